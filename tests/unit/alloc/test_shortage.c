/* SPDX-License-Identifier: Apache-2.0 */
/* No room: limits and fractions, what the ladder gives back before it gives up, what the text of an
 * out-of-memory says, two devices, peers. */
#include "tests/support/fixture.h"
#include <string.h>

static void set_fraction(struct fixture *f, double fraction)
{
    fixture_device(f, 0);
    sm_lock_take(&f->device->memory_lock);
    sm_lock_take(&f->device->heap_lock);
    sm_device_set_fraction(f->device, fraction);
    sm_lock_give(&f->device->heap_lock);
    sm_lock_give(&f->device->memory_lock);
}

static void expect_text(const struct fixture *f, const char *part)
{
    if (!strstr(f->error.text, part))
        fail_msg("\"%s\" was expected in: %s", part, f->error.text);
}

/* The text ends with its one cause. */
static void expect_cause(const struct fixture *f, const char *cause)
{
    const char *said = strstr(f->error.text, "Cause: ");
    if (!said || strncmp(said + 7, cause, strlen(cause)) != 0 || strcmp(said + 7 + strlen(cause), ".") != 0)
        fail_msg("cause %s was expected in: %s", cause, f->error.text);
}

static void a_limit_is_kept_to_the_byte(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    set_fraction(&f, 0.5);
    CUdeviceptr a = fixture_alloc(&f, 512 * MIB, NULL);
    uint64_t creates = sim_calls("cuMemCreate");
    fixture_refuse(&f, 1, NULL, SEAM_E_LIMIT);
    expect_cause(&f, "limit");
    assert_int_equal(sim_calls("cuMemCreate"), creates); /* the driver is not even asked */
    assert_true(fixture_count(&f, SM_COUNTER_limit_refusals) > 0);
    assert_int_equal(fixture_count(&f, SM_COUNTER_num_ooms), 1);
    fixture_free(&f, a);
    fixture_alloc(&f, 100, NULL);
    assert_true(sim_physical_bytes_peak(0) <= 512 * MIB);
    fixture_close(&f);
}

static void a_limit_of_nothing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "per_process_memory_fraction:0");
    fixture_refuse(&f, 1, NULL, SEAM_E_LIMIT);
    set_fraction(&f, 1);
    fixture_alloc(&f, 1, NULL);
    fixture_close(&f);
}

static void a_lower_limit_keeps_what_is_held(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 600 * MIB, NULL);
    set_fraction(&f, 0.25);
    fixture_check(&f);
    assert_true(sim_accessible(a, 0));
    fixture_refuse(&f, 4 * MIB, NULL, SEAM_E_LIMIT);
    fixture_free(&f, a);
    /* What is there may be used; what is new may not pass the limit. */
    assert_int_equal(fixture_alloc(&f, 600 * MIB, NULL), a);
    fixture_close(&f);
}

static void the_limit_gives_idle_memory_back_first(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "lending:off");
    set_fraction(&f, 0.5);
    CUstream s = fixture_stream();
    CUdeviceptr a = fixture_alloc(&f, 400 * MIB, s);
    fixture_free(&f, a);
    fixture_alloc(&f, 400 * MIB, NULL);
    assert_true(sim_physical_bytes(0) <= 512 * MIB);
    assert_true(fixture_count(&f, SM_COUNTER_num_alloc_retries) > 0);
    fixture_close(&f);
}

static void an_error_leaves_no_trace(void **state)
{
    (void)state;
    struct fixture f;
    struct sim_live before, after;
    fixture_init(&f);
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 700 * MIB, NULL);
    sim_live(&before);
    int64_t allocated = fixture_level(&f, SM_LEVEL_allocated_bytes);
    for (int i = 0; i < 5; i++) {
        fixture_refuse(&f, 900 * MIB, NULL, SEAM_E_DEVICE_OOM);
        expect_cause(&f, "shortage");
    }
    sim_live(&after);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), allocated);
    assert_int_equal(fixture_count(&f, SM_COUNTER_num_ooms), 5);
    CUdeviceptr b = fixture_alloc(&f, 300 * MIB, NULL); /* the next smaller step works */
    fixture_free(&f, b);
    fixture_free(&f, a);
    fixture_close(&f);
}

static void the_text_names_sizes_and_one_cause(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 900 * MIB, NULL);
    fixture_refuse(&f, 200 * MIB + 5, NULL, SEAM_E_DEVICE_OOM);
    expect_text(&f, "CUDA out of memory"); /* what programs look for */
    expect_text(&f, "209715205 bytes");
    expect_text(&f, "1.00 GiB");
    expect_text(&f, "900.00 MiB in blocks");
    expect_cause(&f, "shortage");
    fixture_free(&f, a);
    fixture_close(&f);
}

static void another_tenant_is_named(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    fixture_alloc(&f, 100 * MIB, NULL);
    assert_true(sim_tenant(0, 800 * (int64_t)MIB));
    fixture_refuse(&f, 300 * MIB, NULL, SEAM_E_DEVICE_OOM);
    expect_cause(&f, "others' processes");
    assert_true(sim_tenant(0, -800 * (int64_t)MIB));
    fixture_alloc(&f, 300 * MIB, NULL);
    fixture_close(&f);
}

/* Enough bytes are free, each beside a live one. */
static void stranded_memory_is_named(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr blocks[64];
    fixture_init(&f);
    f.sim.device_bytes = 128 * MIB;
    fixture_open(&f, "small_limit_kib:0,handle_mib:2,slack_permille:0");
    for (int i = 0; i < 64; i++) {
        fixture_alloc(&f, 512, NULL);
        blocks[i] = fixture_alloc(&f, 2 * MIB - 512, NULL);
    }
    for (int i = 0; i < 64; i++)
        fixture_free(&f, blocks[i]);
    fixture_refuse(&f, 64 * MIB, NULL, SEAM_E_DEVICE_OOM);
    expect_cause(&f, "stranded");
    expect_text(&f, "largest free range 2.00 MiB");
    fixture_close(&f);
}

/* What was freed would do, but a graph is being captured: nobody may wait for the stream that uses it. */
static void waiting_memory_is_named(void **state)
{
    (void)state;
    struct fixture f;
    CUgraph graph = NULL;
    const seam_pool_id pool = {1, 0};
    fixture_init(&f);
    f.sim.device_bytes = 128 * MIB;
    f.sim.streams = SIM_STREAMS_LATE;
    fixture_open(&f, "");
    CUstream captured = fixture_stream(), other = fixture_stream(), late = fixture_stream();
    CUdeviceptr a = fixture_alloc(&f, 100 * MIB, other);
    fixture_use(&f, a, late);
    fixture_work(late, a, 100 * MIB);
    assert_int_equal(sm_capture_begin(f.device, pool, NULL, NULL, &f.error), SEAM_OK);
    assert_int_equal(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    fixture_alloc(&f, MIB, captured);
    fixture_free(&f, a);
    fixture_refuse(&f, 100 * MIB, captured, SEAM_E_DEVICE_OOM);
    expect_cause(&f, "waiting");
    assert_int_equal(cuStreamEndCapture(captured, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(sm_capture_end(f.device, pool, &f.error), SEAM_OK);
    assert_int_equal(sm_capture_release(f.device, pool, &f.error), SEAM_OK);
    assert_int_equal(fixture_alloc(&f, 100 * MIB, other), a);
    fixture_close(&f);
}

static void address_space_is_named(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "address_limit_gib:1");
    CUdeviceptr a = fixture_alloc(&f, 600 * MIB, NULL);
    fixture_refuse(&f, 600 * MIB, fixture_stream(), SEAM_E_DEVICE_OOM);
    expect_cause(&f, "address space");
    fixture_free(&f, a);
    fixture_close(&f);
}

static void a_small_address_budget_of_the_device_is_lived_with(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.address_bytes = 700 * MIB; /* less than the device has memory */
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 300 * MIB, NULL);
    fixture_free(&f, a);
    fixture_refuse(&f, 800 * MIB, NULL, SEAM_E_DEVICE_OOM);
    fixture_alloc(&f, 300 * MIB, NULL);
    fixture_close(&f);
}

static void the_mapping_budget_is_named(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.mappings_max = 8;
    fixture_open(&f, "handle_mib:2,small_limit_kib:0,slack_permille:0");
    CUdeviceptr a = fixture_alloc(&f, 12 * MIB, NULL);
    fixture_refuse(&f, 100 * MIB, NULL, SEAM_E_DEVICE_OOM);
    expect_cause(&f, "mapping budget");
    fixture_free(&f, a);
    fixture_trim(&f);
    fixture_close(&f);
}

static void garbage_goes_before_the_mark_is_passed(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr blocks[7];
    fixture_init(&f);
    f.sim.device_bytes = 10 * GIB;
    fixture_open(&f, "garbage_collection_threshold:0.8");
    CUstream s = fixture_stream();
    for (int i = 0; i < 7; i++)
        blocks[i] = fixture_alloc(&f, (1024 + (uint64_t)i * 102) * MIB, s);
    for (int i = 0; i < 7; i++)
        fixture_free(&f, blocks[i]);
    fixture_alloc(&f, 1792 * MIB, NULL);
    assert_true(sim_physical_bytes(0) <= 8 * GIB);
    assert_int_equal(fixture_count(&f, SM_COUNTER_gc_runs), 1);
    assert_int_equal(sim_calls("cuCtxSynchronize"), 0);
    fixture_close(&f);
}

/* No host memory, the fewest records that will do, and the driver refuses the second handle of a trim: what
 * could not go back is free again. */
static void a_trim_without_host_memory(void **state)
{
    (void)state;
    for (size_t left = 0; left < 6; left++) {
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f, "small_limit_kib:0,handle_mib:2,slack_permille:0");
        fixture_alloc(&f, MIB, NULL);
        CUdeviceptr hole = fixture_alloc(&f, 9 * MIB + MIB / 2, NULL); /* begins and ends inside of handles */
        fixture_alloc(&f, MIB, NULL);
        fixture_free(&f, hole);
        while (f.device->heap.blocks.capacity - f.device->heap.blocks.count != left)
            fixture_alloc(&f, 512, NULL);
        assert_true(sim_fail("cuMemUnmap", 2, true, CUDA_ERROR_UNKNOWN));
        sm_fault_arm(sm_hostmem_fault(), 1, true);
        fixture_trim(&f);
        sm_fault_arm(sm_hostmem_fault(), 0, false);
        sim_fail_clear();
        fixture_trim(&f);
        assert_int_equal(f.device->heap.parts.bytes[SM_PART_whole_free], 0);
        fixture_close(&f);
    }
}

/* ---- several devices ---- */

static void devices_are_apart(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.devices = 2;
    fixture_open(&f, "");
    struct sm_device *first = fixture_device(&f, 0);
    CUdeviceptr a = fixture_alloc(&f, 600 * MIB, NULL);
    assert_null(sm_allocator_seen(f.allocator, 1)); /* nobody asked for it */
    struct sm_device *second = fixture_device(&f, 1);
    CUdeviceptr b = sm_pool_alloc(second, 600 * MIB, NULL, &f.error);
    assert_true(b != 0 && b != a);
    fixture_check(&f);
    assert_int_equal(sim_physical_bytes(0), 600 * MIB);
    assert_int_equal(sim_physical_bytes(1), 600 * MIB);
    assert_int_equal(sm_pool_free(first, b), SEAM_E_POINTER);
    assert_int_equal(sm_pool_free(second, b), SEAM_OK);
    sm_reclaim_trim(second);
    fixture_check(&f);
    assert_int_equal(sim_physical_bytes(0), 600 * MIB);
    assert_int_equal(sim_physical_bytes(1), 0);
    struct sm_device *none = NULL;
    assert_int_equal(sm_allocator_device(f.allocator, 2, &none, &f.error), SEAM_E_ARGUMENT);
    assert_int_equal(sm_allocator_device(f.allocator, -1, &none, &f.error), SEAM_E_ARGUMENT);
    assert_null(none);
    fixture_close(&f);
}

/* Every chunk, also after a hole was unmapped and filled again. */
static void peers_reach_every_chunk(void **state)
{
    (void)state;
    for (int peers = 0; peers < 2; peers++) {
        struct fixture f;
        fixture_init(&f);
        f.sim.devices = 2;
        fixture_open(&f, peers ? "peers:all" : "peers:none");
        for (int round = 0; round < 2; round++) {
            CUdeviceptr a = fixture_alloc(&f, 20 * MIB, NULL), b = fixture_alloc(&f, 200 * MIB, NULL);
            for (uint64_t at = 0; at < 200 * MIB; at += 2 * MIB) {
                assert_true(sim_accessible(b + at, 0));
                assert_int_equal(sim_accessible(b + at, 1), peers);
            }
            fixture_free(&f, a);
            fixture_trim(&f);
            a = fixture_alloc(&f, 20 * MIB, NULL);
            assert_int_equal(sim_accessible(a, 1), peers);
            fixture_free(&f, a);
            fixture_free(&f, b);
        }
        fixture_close(&f);
    }
}

static void a_device_that_lies_about_handles(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.lies = SIM_FEATURE_EXPORT;
    fixture_open(&f, "");
    fixture_alloc(&f, 20 * MIB, NULL);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_is_kept_to_the_byte),
        cmocka_unit_test(a_limit_of_nothing),
        cmocka_unit_test(a_lower_limit_keeps_what_is_held),
        cmocka_unit_test(the_limit_gives_idle_memory_back_first),
        cmocka_unit_test(an_error_leaves_no_trace),
        cmocka_unit_test(the_text_names_sizes_and_one_cause),
        cmocka_unit_test(another_tenant_is_named),
        cmocka_unit_test(stranded_memory_is_named),
        cmocka_unit_test(waiting_memory_is_named),
        cmocka_unit_test(address_space_is_named),
        cmocka_unit_test(a_small_address_budget_of_the_device_is_lived_with),
        cmocka_unit_test(the_mapping_budget_is_named),
        cmocka_unit_test(garbage_goes_before_the_mark_is_passed),
        cmocka_unit_test(a_trim_without_host_memory),
        cmocka_unit_test(devices_are_apart),
        cmocka_unit_test(peers_reach_every_chunk),
        cmocka_unit_test(a_device_that_lies_about_handles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
