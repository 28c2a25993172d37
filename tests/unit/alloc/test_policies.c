/* SPDX-License-Identifier: Apache-2.0 */
/* The policies that follow PyTorch, and plain segments where the device has no VMM: sizes of segments and
 * handles, what joins and what does not, trims, refusals. Each test compares the books with the device's own
 * (fixture_check). */
#include "tests/support/fixture.h"

static uint64_t creates(void)
{
    return sim_calls("cuMemCreate");
}

static void native_takes_segments(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "policy:native");
    CUdeviceptr small = fixture_alloc(&f, 512, NULL);
    assert_int_equal(sim_physical_bytes(0), 2 * MIB);
    CUdeviceptr middle = fixture_alloc(&f, 2 * MIB, NULL);
    assert_int_equal(sim_physical_bytes(0), 22 * MIB);
    CUdeviceptr large = fixture_alloc(&f, 29 * MIB, NULL);
    assert_int_equal(sim_physical_bytes(0), 52 * MIB);
    assert_int_equal(fixture_level(&f, SM_LEVEL_segment), 3);
    assert_int_equal(sim_calls("cuMemAlloc"), 3);
    assert_int_equal(creates(), 0);
    /* The rest of 1 MiB stays with the block, the rest of 18 MiB serves the next. */
    assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), 512 + 2 * MIB + 30 * MIB);
    CUdeviceptr next = fixture_alloc(&f, 9 * MIB, NULL);
    assert_int_equal(next, middle + 2 * MIB);
    fixture_check(&f);
    fixture_free(&f, small);
    fixture_free(&f, middle);
    fixture_free(&f, large);
    fixture_trim(&f); /* the segment that still holds a block stays, whole */
    assert_int_equal(sim_physical_bytes(0), 20 * MIB);
    assert_int_equal(fixture_level(&f, SM_LEVEL_segment), 1);
    fixture_free(&f, next);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_check(&f);
    fixture_close(&f);
}

/* Segments of an odd number of MiB are split, joined and given back like others. */
static void native_takes_segments_of_any_size(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "policy:native,large_segment_size_mb:11");
    fixture_device(&f, 0);
    CUdeviceptr a = sm_pool_alloc(f.device, 5 * MIB, NULL, &f.error);
    CUdeviceptr b = sm_pool_alloc(f.device, 3 * MIB, NULL, &f.error);
    assert_int_equal(b, a + 5 * MIB);
    /* The device rounds it up to 12, so that the books agree only without it. */
    assert_int_equal(fixture_level(&f, SM_LEVEL_reserved_bytes), 11 * MIB);
    assert_int_equal(sm_pool_free(f.device, a), SEAM_OK);
    assert_int_equal(sm_pool_free(f.device, b), SEAM_OK);
    sm_reclaim_trim(f.device);
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_int_equal(fixture_level(&f, SM_LEVEL_reserved_bytes), 0);
    fixture_close(&f);
}

/* Segments never join, even where the driver puts them side by side. */
static void native_segments_do_not_join(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "policy:native");
    CUdeviceptr a = fixture_alloc(&f, 20 * MIB, NULL), b = fixture_alloc(&f, 20 * MIB, NULL);
    assert_true(a + 20 * MIB == b || b + 20 * MIB == a);
    fixture_free(&f, a);
    fixture_free(&f, b);
    fixture_free(&f, fixture_alloc(&f, 40 * MIB, NULL));
    assert_int_equal(sim_physical_bytes(0), 80 * MIB);
    fixture_check(&f);
    fixture_close(&f);
}

static void native_gives_idle_segments_up_before_it_fails(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.device_bytes = 100 * MIB;
    fixture_open(&f, "policy:native");
    CUdeviceptr a = fixture_alloc(&f, 40 * MIB, NULL);
    fixture_free(&f, fixture_alloc(&f, 50 * MIB, NULL));
    CUdeviceptr b = fixture_alloc(&f, 60 * MIB, NULL);
    assert_int_equal(sim_physical_bytes(0), 100 * MIB);
    fixture_free(&f, a);
    fixture_free(&f, b);
    fixture_close(&f);
}

/* With a split limit a shortage takes one range that is large enough, or the largest ones, and no more. */
static void native_gives_up_just_enough(void **state)
{
    (void)state;
    static const struct {
        uint64_t request, frees;
    } cases[] = {
        {60, 1},            /* the 90 serve it alone */
        {69, 1},  {240, 2}, /* 130 and 120 */
        {250, 2}, {251, 3},
    };
    for (unsigned c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct fixture f;
        CUdeviceptr blocks[4];
        static const uint64_t sizes[] = {90, 120, 100, 130};
        fixture_init(&f);
        f.sim.device_bytes = 460 * MIB;
        fixture_open(&f, "policy:native,max_split_size_mb:40,max_non_split_rounding_mb:20");
        CUdeviceptr small = fixture_alloc(&f, MIB, NULL);
        for (int i = 0; i < 4; i++)
            blocks[i] = fixture_alloc(&f, sizes[i] * MIB, NULL);
        for (int i = 0; i < 4; i++)
            fixture_free(&f, blocks[i]);
        fixture_free(&f, fixture_alloc(&f, cases[c].request * MIB, NULL));
        if (sim_calls("cuMemFree") != cases[c].frees)
            fail_msg("%lu MiB: %lu segments went", cases[c].request, sim_calls("cuMemFree"));
        assert_int_equal(fixture_count(&f, SM_COUNTER_num_alloc_retries), 0);
        fixture_check(&f);
        fixture_free(&f, small);
        fixture_close(&f);
    }
}

/* Above a share of the limit the segments go that lay unused for longer than the average. */
static void native_collects_by_age(void **state)
{
    (void)state;
    for (int limited = 0; limited < 2; limited++) {
        struct fixture f;
        CUdeviceptr blocks[3];
        fixture_init(&f);
        fixture_open(&f, limited ? "policy:native,garbage_collection_threshold:0.5,"
                                   "per_process_memory_fraction:0.5"
                                 : "policy:native,garbage_collection_threshold:0.5");
        CUstream other = fixture_stream();
        for (unsigned i = 0; i < 3; i++) /* 270 MiB of 512, or of 1024 */
            blocks[i] = fixture_alloc(&f, (100 - 10 * i) * MIB, i ? other : NULL);
        fixture_free(&f, blocks[0]);
        for (int i = 0; i < 10; i++)
            fixture_free(&f, fixture_alloc(&f, 100 * MIB, NULL)); /* in use again and again */
        fixture_free(&f, blocks[1]);
        for (int i = 0; i < 10; i++)
            fixture_free(&f, fixture_alloc(&f, 100 * MIB, NULL));
        fixture_free(&f, blocks[2]);
        fixture_alloc(&f, 150 * MIB, NULL); /* no range is as large */
        assert_int_equal(sim_calls("cuMemFree"), limited);
        assert_int_equal(sim_accessible(blocks[1], 0), !limited); /* nobody asked for it for ten requests */
        assert_true(sim_accessible(blocks[0], 0) && sim_accessible(blocks[2], 0));
        assert_int_equal(fixture_count(&f, SM_COUNTER_gc_runs), limited);
        assert_int_equal(fixture_count(&f, SM_COUNTER_num_alloc_retries), 0);
        fixture_close(&f);
    }
}

/* A block that only waits for another stream serves the request, where PyTorch would fail. */
static void native_fails_only_after_a_last_look(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.device_bytes = 100 * MIB;
    f.sim.streams = SIM_STREAMS_LATE;
    fixture_open(&f, "policy:native");
    CUstream other = fixture_stream();
    fixture_alloc(&f, 4 * MIB, NULL);
    CUdeviceptr waits = fixture_alloc(&f, 14 * MIB, NULL); /* of the same segment */
    fixture_alloc(&f, 80 * MIB, NULL);
    fixture_use(&f, waits, other);
    fixture_work(other, waits, 14 * MIB);
    fixture_free(&f, waits);
    assert_int_equal(fixture_alloc(&f, 14 * MIB, NULL), waits);
    fixture_refuse(&f, 14 * MIB, NULL, SEAM_E_DEVICE_OOM);
    fixture_check(&f);
    fixture_close(&f);
}

/* As PyTorch: with a limit there must be room for a segment, even if less is mapped. */
static void expandable_asks_the_limit_for_a_segment(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "policy:expandable,large_segment_size_mb:20,per_process_memory_fraction:0.05");
    fixture_alloc(&f, 18 * MIB, NULL);                /* 20 of 51 MiB */
    fixture_refuse(&f, 38 * MIB, NULL, SEAM_E_LIMIT); /* 36 would do */
    assert_int_equal(sim_physical_bytes(0), 20 * MIB);
    fixture_alloc(&f, 22 * MIB, NULL);
    assert_int_equal(sim_physical_bytes(0), 40 * MIB);
    fixture_close(&f);
}

static void expandable_maps_equal_handles(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "policy:expandable");
    uint64_t before;
    CUdeviceptr first = fixture_alloc(&f, 512, NULL);
    before = creates();
    CUdeviceptr large = fixture_alloc(&f, 41 * MIB, NULL);
    assert_int_equal(creates() - before, 3);
    assert_int_equal(sim_physical_bytes(0), 62 * MIB);
    before = creates();
    CUdeviceptr next = fixture_alloc(&f, 19 * MIB, NULL);
    assert_int_equal(next, large + 41 * MIB);
    assert_int_equal(creates(), before);
    fixture_free(&f, large);
    fixture_trim(&f); /* whole handles inside the free range go: two of three */
    assert_int_equal(sim_physical_bytes(0), 22 * MIB);
    large = fixture_alloc(&f, 40 * MIB, NULL); /* the gap is filled again */
    assert_true(large < next);
    assert_int_equal(sim_physical_bytes(0), 62 * MIB);
    fixture_check(&f);
    fixture_free(&f, first);
    fixture_free(&f, large);
    fixture_free(&f, next);
    fixture_close(&f);
}

/* A run of gaps and free ranges serves a request over several growths. */
static void expandable_fills_several_gaps(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "policy:expandable");
    CUdeviceptr block[5];
    for (int i = 0; i < 5; i++)
        block[i] = fixture_alloc(&f, 20 * MIB, NULL);
    fixture_free(&f, block[0]);
    fixture_free(&f, block[2]);
    fixture_trim(&f);
    fixture_free(&f, block[1]); /* gap, free, gap */
    CUdeviceptr joined = fixture_alloc(&f, 60 * MIB, NULL);
    assert_int_equal(joined, block[0]);
    assert_int_equal(sim_physical_bytes(0), 100 * MIB);
    fixture_check(&f);
    fixture_free(&f, joined);
    fixture_free(&f, block[3]);
    fixture_free(&f, block[4]);
    fixture_close(&f);
}

static void expandable_shelters_the_end_of_the_segment(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "policy:expandable");
    CUdeviceptr low = fixture_alloc(&f, 18 * MIB, NULL);
    CUdeviceptr wall = fixture_alloc(&f, 8 * MIB, NULL);
    fixture_free(&f, low); /* free: 18 MiB below the wall, 14 MiB at the end */
    CUdeviceptr block = fixture_alloc(&f, 10 * MIB, NULL);
    assert_int_equal(block, low);
    fixture_free(&f, block);
    fixture_free(&f, wall);
    fixture_close(&f);
}

static void works_in_segments(const char *what, bool vmm, bool lies)
{
    struct fixture f;
    fixture_init(&f);
    f.sim.lacks = vmm ? 0 : SIM_FEATURE_VMM;
    f.sim.lies = lies ? SIM_FEATURE_VMM : 0;
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 30 * MIB, NULL);
    if (!a || sim_calls("cuMemAlloc") != 1)
        fail_msg("%s: the device is not used in plain segments", what);
    fixture_check(&f);
    fixture_free(&f, a);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

static void a_device_without_vmm_works_in_segments(void **state)
{
    (void)state;
    works_in_segments("without VMM", false, false);
    works_in_segments("VMM that lies", true, true);
}

/* Each driver call and each host allocation fails once; the books agree after each, and the next request
 * works. */
static void refusals_leave_nothing(void **state)
{
    (void)state;
    static const char *const policies[] = {"policy:native", "policy:expandable"};
    for (int p = 0; p < 2; p++)
        for (uint64_t nth = 1; nth < 40; nth++) {
            struct fixture f;
            CUdeviceptr block[3] = {0};
            fixture_init(&f);
            fixture_open(&f, policies[p]);
            fixture_free(&f, fixture_alloc(&f, 512, NULL));
            sim_fail_any(nth, false);
            for (int i = 0; i < 3; i++)
                block[i] = sm_pool_alloc(f.device, (uint64_t)(i + 1) * 15 * MIB, NULL, &f.error);
            sim_fail_clear();
            fixture_check(&f);
            for (int i = 0; i < 3; i++)
                if (block[i])
                    assert_int_equal(sm_pool_free(f.device, block[i]), SEAM_OK);
            block[0] = fixture_alloc(&f, 15 * MIB, NULL);
            fixture_free(&f, block[0]);
            fixture_trim(&f);
            fixture_check(&f);
            fixture_close(&f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native_takes_segments),
        cmocka_unit_test(native_takes_segments_of_any_size),
        cmocka_unit_test(native_segments_do_not_join),
        cmocka_unit_test(native_gives_idle_segments_up_before_it_fails),
        cmocka_unit_test(native_gives_up_just_enough),
        cmocka_unit_test(native_collects_by_age),
        cmocka_unit_test(native_fails_only_after_a_last_look),
        cmocka_unit_test(expandable_asks_the_limit_for_a_segment),
        cmocka_unit_test(expandable_maps_equal_handles),
        cmocka_unit_test(expandable_fills_several_gaps),
        cmocka_unit_test(expandable_shelters_the_end_of_the_segment),
        cmocka_unit_test(a_device_without_vmm_works_in_segments),
        cmocka_unit_test(refusals_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
