/* SPDX-License-Identifier: Apache-2.0 */
/* What people met with other allocators, as sequences: a stuck stream, a large temporary that survivors cut
 * up, sizes that grow step by step, peaks after a reset, a pool that runs out beside its own idle memory. */
#include "tests/support/fixture.h"
#include "tests/support/random.h"
#include <stdio.h>

/* The most that one growth may look ahead. */
#define CHUNK (34 * MIB)

/* A stream that never finishes keeps its own block, and nothing else. */
static void one_stuck_stream_stops_nobody(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.device_bytes = 16 * GIB;
    fixture_open(&f, "");
    CUstream m = fixture_stream(), stuck = fixture_stream(), other = fixture_stream();
    assert_int_equal(sim_stream_hold(stuck, true), CUDA_SUCCESS);
    CUdeviceptr a = fixture_alloc(&f, 256 * MIB, m), first = 0;
    fixture_use(&f, a, stuck);
    fixture_work(stuck, a, 256 * MIB);
    fixture_free(&f, a);
    for (int i = 0; i < 100; i++) {
        CUdeviceptr b = fixture_alloc(&f, 64 * MIB, m);
        if (!i)
            first = b;
        assert_int_equal(b, first);
        fixture_use(&f, b, other);
        fixture_work(other, b, 64 * MIB);
        assert_int_equal(sim_stream_run(other), CUDA_SUCCESS);
        fixture_free(&f, b);
        assert_true(sim_physical_bytes(0) <= 320 * MIB + CHUNK);
        assert_true(fixture_level(&f, SM_LEVEL_active_bytes) >= (int64_t)(256 * MIB));
        assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), 0);
    }
    assert_int_equal(sim_stream_hold(stuck, false), CUDA_SUCCESS);
    assert_int_equal(sim_stream_run(stuck), CUDA_SUCCESS);
    uint64_t calls = fixture_memory_calls();
    assert_int_equal(fixture_alloc(&f, 256 * MIB, m), a);
    assert_int_equal(fixture_memory_calls(), calls);
    fixture_close(&f);
}

/* Buffers on streams that are used once: what an idle stream left serves the next. */
static void short_lived_streams_leave_nothing_behind(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.device_bytes = 80 * GIB;
    fixture_open(&f, "");
    CUstream m = fixture_stream();
    fixture_alloc(&f, 50 * GIB, m);
    for (int i = 0; i < 40; i++) {
        CUstream s = fixture_stream();
        CUdeviceptr x = fixture_alloc(&f, GIB, s), y = fixture_alloc(&f, GIB, s);
        fixture_work(s, x, GIB);
        assert_int_equal(sim_stream_run(s), CUDA_SUCCESS);
        fixture_free(&f, x);
        fixture_free(&f, y);
        assert_true(sim_physical_bytes(0) <= 54 * GIB);
    }
    fixture_alloc(&f, 25 * GIB, m);
    fixture_close(&f);
}

/* Half of what is held lies in holes; a request needs them all. `pieces`: the holes are in use themselves. */
static void fill_the_holes(const char *options, bool pieces)
{
    struct fixture f;
    CUdeviceptr x[64], piece[32];
    fixture_init(&f);
    f.sim.device_bytes = 11 * GIB;
    fixture_open(&f, options);
    CUstream m = fixture_stream();
    for (int i = 0; i < 64; i++)
        x[i] = fixture_alloc(&f, 100 * MIB, m);
    for (int i = 0; i < 64; i += 2)
        fixture_free(&f, x[i]);
    for (int i = 0; i < 32 && pieces; i++)
        piece[i] = fixture_alloc(&f, 40 * MIB, m);
    if (pieces)
        fixture_refuse(&f, 7168 * MIB, m, SEAM_E_DEVICE_OOM);
    else
        fixture_free(&f, fixture_alloc(&f, 7168 * MIB, m));
    fixture_check(&f);
    for (int i = 1; i < 64; i += 2)
        fixture_free(&f, x[i]);
    for (int i = 0; i < 32 && pieces; i++)
        fixture_free(&f, piece[i]);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

static void holes_are_given_up_under_every_limit(void **state)
{
    (void)state;
    static const char *const policies[] = {"policy:stitch", "policy:expandable", "policy:native"};
    static const char *const limits[] = {"", ",max_split_size_mb:32,garbage_collection_threshold:0.6",
                                         ",max_split_size_mb:32", ",garbage_collection_threshold:0.6"};
    for (int p = 0; p < 3; p++)
        for (int l = 0; l < 4; l++)
            for (int pieces = 0; pieces < 2; pieces++) {
                char options[128];
                snprintf(options, sizeof options, "%s%s", policies[p], limits[l]);
                fill_the_holes(options, pieces);
            }
}

/* A share of the device, or of the limit where there is one; nothing stops for it, and nothing more goes. */
static void garbage_goes_without_a_flush(void **state)
{
    (void)state;
    for (int limited = 0; limited < 2; limited++) {
        struct fixture f;
        CUdeviceptr blocks[7];
        const uint64_t base = limited ? 5 * GIB : 10 * GIB, unit = base / 100;
        fixture_init(&f);
        f.sim.device_bytes = 10 * GIB;
        fixture_open(&f, limited ? "garbage_collection_threshold:0.8,max_split_size_mb:200,"
                                   "per_process_memory_fraction:0.5"
                                 : "garbage_collection_threshold:0.8,max_split_size_mb:200");
        for (unsigned i = 0; i < 7; i++) /* 7 to 13 parts of a hundred: 70 in all */
            blocks[i] = fixture_alloc(&f, sm_align_up((7 + i) * unit, 2 * MIB), NULL);
        for (int i = 0; i < 7; i++)
            fixture_free(&f, blocks[i]);
        assert_true(sim_physical_bytes(0) <= base * 8 / 10);
        fixture_alloc(&f, 17 * unit, NULL);
        assert_true(sim_physical_bytes(0) <= base * 8 / 10);
        assert_true(sim_physical_bytes(0) >= base * 6 / 10);
        assert_int_equal(fixture_count(&f, SM_COUNTER_gc_runs), 1);
        assert_int_equal(fixture_count(&f, SM_COUNTER_num_alloc_retries), 0);
        assert_int_equal(sim_calls("cuCtxSynchronize"), 0);
        fixture_close(&f);
    }
}

#define LARGE 11643387904ull

static const uint64_t pieces[] = {16515072, 16515072, 11400192, 18191360, 18191360, 18191360};

/* Allocates L and frees it, then sixty pieces, of which every second one survives. Returns: bytes alive. */
static uint64_t cut_up(struct fixture *f, CUstream m, CUdeviceptr *large)
{
    CUdeviceptr blocks[60];
    uint64_t alive = 0;
    *large = fixture_alloc(f, LARGE, m);
    fixture_free(f, *large);
    for (int i = 0; i < 60; i++)
        blocks[i] = fixture_alloc(f, pieces[i % 6], m);
    for (int i = 1; i < 60; i += 2)
        fixture_free(f, blocks[i]);
    for (int i = 0; i < 60; i += 2)
        alive += pieces[i % 6];
    return alive;
}

static void a_temporary_that_survivors_cut_up(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr large;
    fixture_init(&f);
    f.sim.device_bytes = 16 * GIB;
    fixture_open(&f, "");
    uint64_t alive = cut_up(&f, NULL, &large);
    assert_int_equal(alive, 461066240);
    assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), alive);
    fixture_alloc(&f, LARGE, NULL);
    /* Without stitching growth takes what the pieces took from the range, the free ones too, and no more. */
    assert_true(sim_physical_bytes(0) <= LARGE + 990044160ull + CHUNK);
    fixture_close(&f);
}

/* With a split limit the pieces never touch the large range. */
static void a_split_limit_keeps_the_large_range_whole(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr large;
    fixture_init(&f);
    f.sim.device_bytes = 16 * GIB;
    fixture_open(&f, "max_split_size_mb:200");
    cut_up(&f, NULL, &large);
    uint64_t unmaps = sim_calls("cuMemUnmap");
    assert_int_equal(fixture_alloc(&f, LARGE, NULL), large);
    assert_int_equal(sim_calls("cuMemUnmap"), unmaps);
    fixture_close(&f);
}

static void a_staircase_costs_its_highest_step(void **state)
{
    (void)state;
    static const uint64_t steps[] = {4811000000, 5377000000, 5797000000};
    struct random random = {4};
    struct fixture f;
    fixture_init(&f);
    f.sim.device_bytes = 32 * GIB;
    fixture_open(&f, "");
    CUstream m = fixture_stream();
    fixture_device(&f, 0);
    uint64_t unmaps = sim_calls("cuMemUnmap"); /* of the trial at set-up */
    for (int i = 0; i < 3; i++) {
        CUdeviceptr x = fixture_alloc(&f, steps[i], m);
        fixture_work(m, x, steps[i]);
        fixture_free(&f, x);
    }
    assert_true(sim_physical_bytes_peak(0) <= steps[2] + CHUNK);
    assert_int_equal(sim_calls("cuMemUnmap"), unmaps);
    uint64_t calls = fixture_memory_calls();
    for (int i = 0; i < 15; i++) {
        CUdeviceptr x = fixture_alloc(&f, steps[random_below(&random, 3)], m);
        fixture_free(&f, x);
    }
    assert_int_equal(fixture_memory_calls(), calls);
    fixture_close(&f);
}

static void a_reset_peak_begins_at_what_is_held(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.device_bytes = 80 * GIB;
    fixture_open(&f, "");
    const uint64_t w = 30370000384, t = 6867000320; /* multiples of 512 */
    fixture_alloc(&f, w, NULL);
    uint64_t allocs = fixture_count(&f, SM_COUNTER_misses);
    sm_stats_reset_peaks(f.device->stats);
    fixture_check(&f);
    CUdeviceptr x = fixture_alloc(&f, t, NULL);
    fixture_free(&f, x);
    const struct sm_level *level = sm_stats_level(f.device->stats, SM_LEVEL_allocated_bytes, SM_KIND_ALL);
    assert_int_equal(level->peak, w + t);
    assert_int_equal(level->current, w);
    assert_int_equal(fixture_count(&f, SM_COUNTER_misses), allocs + 1);
    fixture_close(&f);
}

static const seam_pool_id pool = {7, 7};

static void begin(struct fixture *f)
{
    if (sm_capture_begin(fixture_device(f, 0), pool, NULL, NULL, &f->error))
        fail_msg("%s", f->error.text);
}

static void a_pool_gives_up_its_own_idle_memory_first(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.device_bytes = 80 * GIB;
    fixture_open(&f, "");
    CUstream m = fixture_stream();
    begin(&f);
    CUdeviceptr a = fixture_alloc(&f, 60 * GIB, m);
    fixture_free(&f, a);
    CUdeviceptr b = fixture_alloc(&f, 70 * GIB, m);
    assert_int_equal(sm_capture_end(f.device, pool, &f.error), SEAM_OK);
    fixture_free(&f, b);
    assert_int_equal(sm_capture_release(f.device, pool, &f.error), SEAM_OK);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

/* While a graph is captured nothing of its pool may move: a larger request grows beside it or fails. */
static void a_captured_pool_keeps_its_memory(void **state)
{
    (void)state;
    for (int aborted = 0; aborted < 2; aborted++) {
        struct fixture f;
        CUgraph graph = NULL;
        fixture_init(&f);
        f.sim.device_bytes = 80 * GIB;
        fixture_open(&f, "");
        CUstream m = fixture_stream();
        begin(&f);
        assert_int_equal(cuStreamBeginCapture(m, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
        CUdeviceptr a = fixture_alloc(&f, 60 * GIB, m);
        CUdeviceptr wall = fixture_alloc(&f, 2 * MIB, m); /* so that a's range cannot be made longer */
        fixture_free(&f, a);
        uint64_t unmaps = sim_calls("cuMemUnmap"), releases = sim_calls("cuMemRelease");
        fixture_refuse(&f, 70 * GIB, m, SEAM_E_DEVICE_OOM);
        assert_int_equal(sim_calls("cuMemUnmap"), unmaps);
        /* Handles of a growth that failed half way go back; they were never mapped. */
        assert_true(sim_accessible(a, 0) && sim_accessible(a + 60 * GIB - 1, 0));
        assert_true(sim_calls("cuMemRelease") >= releases);
        assert_int_equal(fixture_alloc(&f, 60 * GIB, m), a);
        fixture_free(&f, a);
        fixture_free(&f, wall);
        if (!aborted) {
            assert_int_equal(cuStreamEndCapture(m, &graph), CUDA_SUCCESS);
            assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
        }
        assert_int_equal(sm_capture_end(f.device, pool, &f.error), SEAM_OK);
        if (aborted) {
            (void)cuStreamEndCapture(m, &graph);
            if (graph)
                cuGraphDestroy(graph);
        }
        assert_int_equal(sm_capture_release(f.device, pool, &f.error), SEAM_OK);
        fixture_trim(&f);
        assert_int_equal(sim_physical_bytes(0), 0);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stuck_stream_stops_nobody),
        cmocka_unit_test(short_lived_streams_leave_nothing_behind),
        cmocka_unit_test(holes_are_given_up_under_every_limit),
        cmocka_unit_test(garbage_goes_without_a_flush),
        cmocka_unit_test(a_temporary_that_survivors_cut_up),
        cmocka_unit_test(a_split_limit_keeps_the_large_range_whole),
        cmocka_unit_test(a_staircase_costs_its_highest_step),
        cmocka_unit_test(a_reset_peak_begins_at_what_is_held),
        cmocka_unit_test(a_pool_gives_up_its_own_idle_memory_first),
        cmocka_unit_test(a_captured_pool_keeps_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
