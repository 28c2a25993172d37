/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: what another stream used waits for that stream and for no other; events are used again; what a
 * capture forbids is left for later. The streams lag: work completes when a test runs it, or when somebody
 * waits for it on the host. */
#include "tests/support/fixture.h"
#include <string.h>

static void open_lagging(struct fixture *f, const char *options)
{
    fixture_init(f);
    f->sim.streams = SIM_STREAMS_LAG;
    f->sim.lag = 1u << 30;
    fixture_open(f, options);
}

static void run(CUstream stream)
{
    assert_int_equal(sim_stream_run(stream), CUDA_SUCCESS);
}

/* A block of m that s is still using is freed. Returns: its address. */
static CUdeviceptr leave_pending(struct fixture *f, uint64_t size, CUstream m, CUstream s)
{
    CUdeviceptr block = fixture_alloc(f, size, m);
    fixture_use(f, block, s);
    fixture_work(s, block, size);
    fixture_free(f, block);
    return block;
}

static void the_own_stream_may_reuse_at_once(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream();
    CUdeviceptr a = fixture_alloc(&f, MIB, m);
    fixture_use(&f, a, m); /* says nothing new */
    fixture_work(m, a, MIB);
    fixture_free(&f, a);
    assert_int_equal(fixture_alloc(&f, MIB, m), a);
    fixture_work(m, a, MIB);
    assert_int_equal(sim_calls("cuEventRecord"), 0);
    run(m);
    fixture_close(&f);
}

static void another_stream_has_memory_of_its_own(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), s = fixture_stream();
    CUdeviceptr a = fixture_alloc(&f, MIB, m);
    fixture_work(m, a, MIB);
    fixture_free(&f, a);
    CUdeviceptr b = fixture_alloc(&f, MIB, s);
    assert_int_not_equal(b, a);
    fixture_work(s, b, MIB); /* on the same bytes it would be a race */
    run(m);
    run(s);
    fixture_close(&f);
}

static void recorded_use_delays_reuse(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), s = fixture_stream();
    CUdeviceptr a = leave_pending(&f, MIB, m, s);
    assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), 0);
    assert_int_equal(fixture_level(&f, SM_LEVEL_active_bytes), MIB);
    assert_int_equal(f.device->heap.parts.bytes[SM_PART_pending], MIB);
    CUdeviceptr b = fixture_alloc(&f, MIB, m);
    assert_int_not_equal(b, a);
    run(s);
    CUdeviceptr c = fixture_alloc(&f, MIB, m);
    assert_int_equal(c, a);
    assert_int_equal(fixture_level(&f, SM_LEVEL_active_bytes), 2 * MIB);
    assert_int_equal(fixture_count(&f, SM_COUNTER_fence_waits), 1);
    fixture_work(m, c, MIB);
    run(m);
    fixture_close(&f);
}

static void every_stream_that_used_it_counts(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), s[3];
    CUdeviceptr a = fixture_alloc(&f, MIB, m);
    for (int i = 0; i < 3; i++) {
        s[i] = fixture_stream();
        fixture_use(&f, a, s[i]);
        fixture_use(&f, a, s[i]); /* once is enough */
        fixture_work(s[i], a, 512);
        run(s[i]);
        fixture_work(s[i], a + 512 * (uint64_t)(i + 1), 512);
    }
    fixture_free(&f, a);
    assert_int_equal(sim_calls("cuEventRecord"), 3);
    for (int i = 0; i < 3; i++) {
        CUdeviceptr b = fixture_alloc(&f, MIB, m);
        assert_int_not_equal(b, a);
        fixture_free(&f, b);
        run(s[i]);
    }
    assert_int_equal(fixture_alloc(&f, MIB, m), a);
    fixture_close(&f);
}

static void events_are_used_again(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), s = fixture_stream();
    for (int i = 0; i < 200; i++) {
        leave_pending(&f, MIB, m, s);
        run(s);
    }
    assert_int_equal(sim_calls("cuEventCreate"), 1);
    assert_int_equal(fixture_level(&f, SM_LEVEL_events), 1);
    assert_int_equal(sim_physical_bytes(0), sim_physical_bytes_peak(0));
    fixture_close(&f);
}

/* Only the front of each stream's queue is asked, and only when something waits. */
static void queries_are_bounded(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), s = fixture_stream();
    for (int i = 0; i < 100; i++)
        leave_pending(&f, 4096, m, s);
    uint64_t before = sim_calls("cuEventQuery");
    fixture_alloc(&f, 4096, m);
    assert_int_equal(sim_calls("cuEventQuery"), before + 1);
    run(s);
    fixture_alloc(&f, 4096, m);
    assert_int_equal(sim_calls("cuEventQuery"), before + 101);
    before = sim_calls("cuEventQuery");
    fixture_alloc(&f, 4096, m);
    assert_int_equal(sim_calls("cuEventQuery"), before);
    fixture_close(&f);
}

static void the_default_stream_has_two_names(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUdeviceptr a = fixture_alloc(&f, MIB, NULL);
    fixture_use(&f, a, CU_STREAM_LEGACY);
    fixture_free(&f, a);
    assert_int_equal(sim_calls("cuEventRecord"), 0);
    assert_int_equal(fixture_alloc(&f, MIB, CU_STREAM_LEGACY), a);
    fixture_close(&f);
}

static void no_room_is_made_by_waiting(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), s = fixture_stream();
    CUdeviceptr a = leave_pending(&f, 900 * MIB, m, s);
    CUdeviceptr b = fixture_alloc(&f, 800 * MIB, m); /* waits for s, then takes a's memory */
    assert_int_equal(b, a);
    assert_int_equal(sim_stream_pending(s), 0);
    assert_true(fixture_count(&f, SM_COUNTER_event_waits) > 0);
    fixture_close(&f);
}

/* The ladder waits for the oldest block first and stops when there is enough. */
static void no_more_waiting_than_needed(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), first = fixture_stream(), second = fixture_stream();
    CUdeviceptr a = leave_pending(&f, 500 * MIB, m, first);
    leave_pending(&f, 500 * MIB, m, second);
    assert_int_equal(fixture_alloc(&f, 400 * MIB, m), a);
    assert_int_equal(sim_stream_pending(first), 0);
    assert_int_not_equal(sim_stream_pending(second), 0);
    run(second);
    fixture_close(&f);
}

static void memory_of_an_idle_stream_is_reclaimed(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), s = fixture_stream();
    CUdeviceptr a = fixture_alloc(&f, 900 * MIB, s);
    fixture_work(s, a, MIB);
    fixture_free(&f, a);
    run(s);
    fixture_alloc(&f, 900 * MIB, m);
    assert_int_equal(sim_calls("cuStreamSynchronize"), 0);
    assert_int_equal(sim_calls("cuCtxSynchronize"), 0);
    fixture_close(&f);
}

static void memory_of_a_busy_stream_is_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), s = fixture_stream();
    CUdeviceptr a = fixture_alloc(&f, 900 * MIB, s);
    fixture_work(s, a, MIB);
    fixture_free(&f, a);
    fixture_alloc(&f, 900 * MIB, m);
    assert_int_equal(sim_stream_pending(s), 0);
    fixture_close(&f);
}

static void memory_of_a_destroyed_stream_is_not_lost(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUstream m = fixture_stream();
    for (int i = 0; i < 40; i++) {
        CUstream s = fixture_stream();
        CUdeviceptr a = fixture_alloc(&f, 300 * MIB, s), b = fixture_alloc(&f, 200 * MIB, s);
        fixture_work(s, a, MIB);
        fixture_free(&f, a);
        fixture_free(&f, b);
    }
    fixture_alloc(&f, 900 * MIB, m);
    fixture_close(&f);
}

/* Where no event can be recorded, only a wait for the whole device tells; it is the ladder's last step. */
static void what_has_no_event_waits_for_the_device(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "");
    CUstream m = fixture_stream(), s = fixture_stream();
    assert_true(sim_fail("cuEventRecord", 1, true, CUDA_ERROR_UNKNOWN));
    CUdeviceptr a = leave_pending(&f, 900 * MIB, m, s);
    CUdeviceptr small = fixture_alloc(&f, 512, m);
    assert_int_equal(fixture_level(&f, SM_LEVEL_active_bytes), 900 * MIB + 512);
    CUdeviceptr b = fixture_alloc(&f, 900 * MIB, m);
    assert_int_equal(b, a);
    assert_int_equal(sim_stream_pending(s), 0);
    assert_int_equal(fixture_count(&f, SM_COUNTER_num_sync_all_streams), 1);
    sim_fail_clear();
    fixture_free(&f, small);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_own_stream_may_reuse_at_once),
        cmocka_unit_test(another_stream_has_memory_of_its_own),
        cmocka_unit_test(recorded_use_delays_reuse),
        cmocka_unit_test(every_stream_that_used_it_counts),
        cmocka_unit_test(events_are_used_again),
        cmocka_unit_test(queries_are_bounded),
        cmocka_unit_test(the_default_stream_has_two_names),
        cmocka_unit_test(no_room_is_made_by_waiting),
        cmocka_unit_test(no_more_waiting_than_needed),
        cmocka_unit_test(memory_of_an_idle_stream_is_reclaimed),
        cmocka_unit_test(memory_of_a_busy_stream_is_waited_for),
        cmocka_unit_test(memory_of_a_destroyed_stream_is_not_lost),
        cmocka_unit_test(what_has_no_event_waits_for_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
