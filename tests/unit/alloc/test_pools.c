/* SPDX-License-Identifier: Apache-2.0 */
/* Private pools: which requests they claim, nesting, uses, memory apart from the default pool's, captures. */
#include "tests/support/fixture.h"

static const seam_pool_id one = {1, 0}, two = {0, 2};

static void begin(struct fixture *f, seam_pool_id id, seam_pool_filter filter, void *context)
{
    if (sm_capture_begin(fixture_device(f, 0), id, filter, context, &f->error))
        fail_msg("%s", f->error.text);
}

static void end(struct fixture *f, seam_pool_id id)
{
    if (sm_capture_end(f->device, id, &f->error))
        fail_msg("%s", f->error.text);
    fixture_check(f);
}

static void release(struct fixture *f, seam_pool_id id)
{
    if (sm_capture_release(f->device, id, &f->error))
        fail_msg("%s", f->error.text);
    fixture_check(f);
}

/* The pool of a live block, as its first number; 0 and 0: default. */
static seam_pool_id pool_of(struct fixture *f, CUdeviceptr block)
{
    const struct sm_home_key *key = &sm_pool_block_of(f->device, block)->extent->home->key;
    return (seam_pool_id){key->pool_first, key->pool_second};
}

static void expect_pool(struct fixture *f, CUdeviceptr block, seam_pool_id id)
{
    assert_int_equal(pool_of(f, block).first, id.first);
    assert_int_equal(pool_of(f, block).second, id.second);
}

static void a_pool_claims_its_threads_requests(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUdeviceptr before = fixture_alloc(&f, MIB, NULL);
    fixture_free(&f, before);
    begin(&f, one, NULL, NULL);
    CUdeviceptr a = fixture_alloc(&f, MIB, NULL);
    expect_pool(&f, a, one);
    assert_int_not_equal(a, before); /* default and private pools share no memory */
    end(&f, one);
    CUdeviceptr b = fixture_alloc(&f, MIB, NULL);
    assert_int_equal(b, before);
    fixture_free(&f, a);
    assert_int_not_equal(fixture_alloc(&f, MIB, NULL), a);
    begin(&f, one, NULL, NULL); /* again: the memory is still the pool's */
    assert_int_equal(fixture_alloc(&f, MIB, NULL), a);
    end(&f, one);
    fixture_close(&f);
}

static void the_innermost_pool_wins(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    begin(&f, one, NULL, NULL);
    begin(&f, two, NULL, NULL);
    expect_pool(&f, fixture_alloc(&f, MIB, NULL), two);
    end(&f, one); /* in any order */
    expect_pool(&f, fixture_alloc(&f, MIB, NULL), two);
    begin(&f, one, NULL, NULL);
    expect_pool(&f, fixture_alloc(&f, MIB, NULL), one);
    end(&f, one);
    end(&f, two);
    expect_pool(&f, fixture_alloc(&f, MIB, NULL), (seam_pool_id){0, 0});
    fixture_close(&f);
}

static bool is_stream(CUstream stream, void *context)
{
    return stream == (CUstream)context;
}

static void a_filter_decides_by_stream(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUstream s = fixture_stream(), t = fixture_stream();
    begin(&f, one, is_stream, s);
    begin(&f, two, is_stream, t);
    expect_pool(&f, fixture_alloc(&f, MIB, s), one);
    expect_pool(&f, fixture_alloc(&f, MIB, t), two);
    expect_pool(&f, fixture_alloc(&f, MIB, NULL), (seam_pool_id){0, 0});
    end(&f, one);
    expect_pool(&f, fixture_alloc(&f, MIB, s), (seam_pool_id){0, 0});
    end(&f, two);
    fixture_close(&f);
}

static void wrong_order_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    fixture_device(&f, 0);
    assert_int_equal(sm_capture_end(f.device, one, &f.error), SEAM_E_STATE);
    assert_int_equal(sm_capture_release(f.device, one, &f.error), SEAM_E_STATE);
    begin(&f, one, NULL, NULL);
    assert_int_equal(sm_capture_begin(f.device, one, NULL, NULL, &f.error), SEAM_E_STATE);
    end(&f, one);
    assert_int_equal(sm_capture_end(f.device, one, &f.error), SEAM_E_STATE);
    release(&f, one);
    assert_int_equal(sm_capture_release(f.device, one, &f.error), SEAM_E_STATE);
    fixture_close(&f);
}

static void each_begin_is_one_use(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    for (int i = 0; i < 3; i++) {
        begin(&f, one, NULL, NULL);
        end(&f, one);
    }
    for (int i = 0; i < 3; i++)
        release(&f, one);
    assert_int_equal(sm_capture_release(f.device, one, &f.error), SEAM_E_STATE);
    assert_true(LIST_EMPTY(&f.device->pools));
    fixture_close(&f);
}

static void a_released_pools_memory_goes_back_as_its_blocks_die(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    begin(&f, one, NULL, NULL);
    CUdeviceptr a = fixture_alloc(&f, 8 * MIB, NULL), b = fixture_alloc(&f, 8 * MIB, NULL);
    fixture_free(&f, a);
    end(&f, one);
    release(&f, one);
    fixture_trim(&f);
    assert_true(sim_accessible(b, 0)); /* a block may outlive its pool */
    assert_true(sim_physical_bytes(0) >= 8 * MIB);
    fixture_free(&f, b);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_true(LIST_EMPTY(&f.device->pools));
    fixture_close(&f);
}

static void a_pool_id_may_come_back(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    for (int round = 0; round < 5; round++) {
        begin(&f, one, NULL, NULL);
        CUdeviceptr a = fixture_alloc(&f, 8 * MIB, NULL);
        end(&f, one);
        release(&f, one);
        fixture_free(&f, a);
        if (round % 2)
            fixture_trim(&f);
    }
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

/* ---- captures ---- */

static void start_capture(CUstream stream)
{
    assert_int_equal(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
}

static void end_capture(CUstream stream)
{
    CUgraph graph = NULL;
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    if (graph)
        assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

static void a_capture_keeps_its_addresses(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUstream s = fixture_stream();
    begin(&f, one, NULL, NULL);
    start_capture(s);
    CUdeviceptr a = fixture_alloc(&f, 8 * MIB, s);
    expect_pool(&f, a, one);
    fixture_free(&f, a);
    assert_int_equal(fixture_alloc(&f, 8 * MIB, s), a);
    fixture_free(&f, a);
    uint64_t calls = fixture_memory_calls();
    sm_reclaim_trim(f.device); /* may not touch anything while the capture runs */
    assert_int_equal(fixture_memory_calls(), calls);
    end_capture(s);
    end(&f, one);
    fixture_trim(&f);
    assert_true(sim_accessible(a, 0)); /* a graph may replay it */
    release(&f, one);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

static void other_streams_use_is_noted_during_a_capture(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.streams = SIM_STREAMS_LAG;
    f.sim.lag = 1u << 30;
    fixture_open(&f, "");
    CUstream s = fixture_stream(), t = fixture_stream(), u = fixture_stream();
    CUdeviceptr x = fixture_alloc(&f, 8 * MIB, t);
    fixture_use(&f, x, u);
    fixture_work(u, x, 512);
    begin(&f, one, NULL, NULL);
    start_capture(s);
    fixture_alloc(&f, 8 * MIB, s);
    uint64_t records = sim_calls("cuEventRecord"), queries = sim_calls("cuEventQuery");
    fixture_free(&f, x); /* no event may be recorded now: it waits without one */
    fixture_alloc(&f, 8 * MIB, s);
    assert_int_equal(sim_calls("cuEventRecord"), records);
    assert_int_equal(sim_calls("cuEventQuery"), queries);
    end_capture(s);
    end(&f, one);
    CUdeviceptr y = fixture_alloc(&f, 8 * MIB, t);
    assert_int_not_equal(y, x);
    assert_int_equal(sim_stream_run(u), CUDA_SUCCESS);
    assert_int_equal(fixture_alloc(&f, 8 * MIB, t), x);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_claims_its_threads_requests),
        cmocka_unit_test(the_innermost_pool_wins),
        cmocka_unit_test(a_filter_decides_by_stream),
        cmocka_unit_test(wrong_order_is_refused),
        cmocka_unit_test(each_begin_is_one_use),
        cmocka_unit_test(a_released_pools_memory_goes_back_as_its_blocks_die),
        cmocka_unit_test(a_pool_id_may_come_back),
        cmocka_unit_test(a_capture_keeps_its_addresses),
        cmocka_unit_test(other_streams_use_is_noted_during_a_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
