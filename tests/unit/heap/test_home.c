/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a home: best fit, split, join, taking from the middle, pending, sums, records made ready ahead.
 */
#include "alloc/heap/internal.h"
#include "tests/support/random.h"
#include "tests/unit/heap/bench.h"

static int64_t part(const struct bench *bench, enum sm_part part)
{
    return bench->heap.parts.bytes[part];
}

/* Free ranges of 4, 2, 3 and 2 KiB in this order of addresses, apart from each other; the rest is taken. */
static void make_ranges(struct bench *bench, struct sm_block *ranges[4])
{
    static const unsigned kib[] = {4, 2, 3, 2};
    bench_open(bench, 8);
    FILL(bench, bench->extent->first, 1);
    for (int i = 0; i < 4; i++) {
        ranges[i] = bench_take(bench, kib[i] * SM_KIB);
        bench_take(bench, 512);
    }
    bench_take(bench, sm_home_largest(bench->home)->size);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(bench_give(bench, ranges[i]), ranges[i]);
}

static void the_smallest_range_that_fits(void **state)
{
    (void)state;
    struct bench bench;
    struct sm_block *ranges[4];
    make_ranges(&bench, ranges);
    assert_ptr_equal(sm_home_best_fit(bench.home, 2560), ranges[2]);
    assert_ptr_equal(sm_home_best_fit(bench.home, 3072), ranges[2]);
    assert_ptr_equal(sm_home_best_fit(bench.home, 3584), ranges[0]);
    assert_null(sm_home_best_fit(bench.home, 4608));
    assert_ptr_equal(sm_home_largest(bench.home), ranges[0]);
    bench_close(&bench);
}

static void the_lowest_address_among_equals(void **state)
{
    (void)state;
    struct bench bench;
    struct sm_block *ranges[4];
    make_ranges(&bench, ranges);
    assert_ptr_equal(sm_home_best_fit(bench.home, 512), ranges[1]);
    assert_ptr_equal(sm_home_best_fit(bench.home, 2048), ranges[1]);
    bench_take(&bench, 2048);
    assert_ptr_equal(sm_home_best_fit(bench.home, 512), ranges[3]);
    bench_close(&bench);
}

static void a_split_hands_out_the_low_end(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 8);
    struct sm_block *range = FILL(&bench, bench.extent->first, 2);
    uint64_t splits = bench.heap.counts[0].splits;
    assert_true(sm_heap_prepare(&bench.heap, 1));
    sm_block_take(range, 1536, 1030, true);
    bench_check(&bench);
    assert_int_equal(range->state, SM_BLOCK_LIVE);
    assert_int_equal(range->address, BASE);
    assert_int_equal(range->size, 1536);
    assert_int_equal(range->requested, 1030);
    assert_int_equal(bench.heap.counts[0].splits, splits + 1);
    assert_int_equal(range->next->state, SM_BLOCK_FREE);
    assert_int_equal(range->next->size, 2 * GRANULE - 1536);
    assert_int_equal(part(&bench, SM_PART_requested_live), 1030);
    assert_int_equal(part(&bench, SM_PART_rounding), 506);
    /* The first handle is broken, the second is whole. */
    assert_int_equal(part(&bench, SM_PART_held_free), 2 * GRANULE - 1536);
    assert_ptr_equal(sm_heap_block(&bench.heap, BASE), range);
    bench_close(&bench);
}

static void without_a_split_all_of_it_goes(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 8);
    struct sm_block *range = FILL(&bench, bench.extent->first, 2);
    sm_block_take(range, 1536, 1030, false);
    bench_check(&bench);
    assert_int_equal(range->size, 2 * GRANULE);
    assert_int_equal(bench.heap.counts[0].splits, 0);
    assert_int_equal(part(&bench, SM_PART_rounding), 2 * GRANULE - 1030);
    bench_give(&bench, range);
    /* An exact fit is no split either. */
    sm_block_take(range, 2 * GRANULE, 2 * GRANULE, true);
    assert_int_equal(bench.heap.counts[0].splits, 0);
    assert_null(sm_home_largest(bench.home));
    bench_close(&bench);
}

/* Gives three neighbours back in each of the six orders: always one range in the end. */
static void neighbours_join_in_every_order(void **state)
{
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int order = 0; order < 6; order++) {
        struct bench bench;
        struct sm_block *blocks[3];
        bench_open(&bench, 8);
        FILL(&bench, bench.extent->first, 1);
        for (int i = 0; i < 3; i++)
            blocks[i] = bench_take(&bench, 1024);
        struct sm_block *wall = bench_take(&bench, 512);
        uint64_t merges = bench.heap.counts[0].merges;
        for (int i = 0; i < 3; i++)
            bench_give(&bench, blocks[orders[order][i]]);
        assert_int_equal(bench.heap.counts[0].merges, merges + 2);
        assert_int_equal(bench.extent->first->size, 3072);
        assert_ptr_equal(bench.extent->first->next, wall);
        bench_give(&bench, wall);
        assert_int_equal(bench.heap.counts[0].merges, merges + 4);
        assert_ptr_equal(bench.extent->first->next->state, SM_BLOCK_UNMAPPED);
        assert_int_equal(part(&bench, SM_PART_whole_free), GRANULE);
        assert_int_equal(part(&bench, SM_PART_held_free), 0);
        assert_int_equal(bench.heap.counts[0].held_ranges, 0);
        bench_close(&bench);
    }
}

static void taken_from_the_middle(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset, size;
        unsigned splits;
    } cases[] = {{0, 4096, 0}, {0, 1024, 1}, {3072, 1024, 1}, {1024, 2048, 2}, {512, 512, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench bench;
        bench_open(&bench, 8);
        FILL(&bench, bench.extent->first, 1);
        struct sm_block *range = bench_take(&bench, 4096);
        bench_take(&bench, 512);
        range = bench_give(&bench, range);
        uint64_t splits = bench.heap.counts[0].splits, address = range->address + cases[i].offset;
        assert_true(sm_heap_prepare(&bench.heap, 2));
        struct sm_block *block = sm_block_take_at(range, address, cases[i].size, cases[i].size - 1);
        bench_check(&bench);
        assert_int_equal(block->address, address);
        assert_int_equal(block->size, cases[i].size);
        assert_int_equal(block->state, SM_BLOCK_LIVE);
        assert_int_equal(bench.heap.counts[0].splits, splits + cases[i].splits);
        assert_ptr_equal(sm_heap_block(&bench.heap, address), block);
        block = bench_give(&bench, block);
        assert_int_equal(block->address, BASE);
        assert_int_equal(block->size, 4096);
        bench_close(&bench);
    }
}

static void pending_is_neither_live_nor_free(void **state)
{
    (void)state;
    struct bench bench;
    struct sm_fence fence = {0};
    bench_open(&bench, 8);
    FILL(&bench, bench.extent->first, 1);
    struct sm_block *block = bench_take(&bench, 1024), *other = bench_take(&bench, 1024);
    block->fence = &fence; /* what it waits for is the engine's business */
    sm_block_pend(block);
    bench_check(&bench);
    assert_null(sm_heap_block(&bench.heap, BASE));
    assert_int_equal(part(&bench, SM_PART_pending), 1024);
    assert_int_equal(part(&bench, SM_PART_requested_live), 1024);
    assert_int_equal(bench.home->used, 2048);
    bench_give(&bench, other); /* joins the free rest, not the pending block before it */
    assert_int_equal(bench.extent->first->size, 1024);
    assert_true(sm_home_best_fit(bench.home, 512)->address >= BASE + 1024);
    block->fence = NULL;
    bench_give(&bench, block);
    assert_int_equal(part(&bench, SM_PART_pending), 0);
    assert_int_equal(part(&bench, SM_PART_whole_free), GRANULE);
    bench_close(&bench);
}

/* However far the refusals reach, what prepare said is ready is ready, and the index works on. */
static void a_refused_preparation_is_made_up_for(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth < 4; nth++) {
        struct bench bench;
        size_t before;
        bench_open(&bench, 1024);
        FILL(&bench, bench.extent->first, 8);
        before = bench.heap.blocks.count;
        sm_fault_arm(sm_hostmem_fault(), nth, true);
        while (sm_heap_prepare(&bench.heap, 1000))
            bench_take(&bench, 512);
        sm_fault_arm(sm_hostmem_fault(), 0, false);
        bench_check(&bench);
        for (int i = 0; i < 4000; i++) {
            bench_take(&bench, 512);
            assert_true(bench.home->index.count <= bench.home->index.capacity);
        }
        assert_true(bench.heap.blocks.count >= before + 4000);
        bench_close(&bench);
    }
}

static void records_that_were_promised_stay_aside(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 8);
    FILL(&bench, bench.extent->first, 4);
    assert_true(sm_heap_promise(&bench.heap, 3));
    sm_fault_arm(sm_hostmem_fault(), 1, true);
    while (sm_heap_prepare(&bench.heap, 1)) {
        sm_block_take(sm_home_best_fit(bench.home, 512), 512, 512, true);
        assert_true(bench.heap.blocks.capacity - bench.heap.blocks.count >= 3);
    }
    assert_int_equal(bench.heap.blocks.capacity - bench.heap.blocks.count, 3);
    sm_heap_redeem(&bench.heap, 3);
    assert_true(sm_heap_prepare(&bench.heap, 3));
    assert_false(sm_heap_prepare(&bench.heap, 4));
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    bench_close(&bench);
}

static void homes_are_apart(void **state)
{
    (void)state;
    struct bench bench;
    struct sm_home_key key = {.stream = &bench, .small_class = true};
    bench_open(&bench, 8);
    FILL(&bench, bench.extent->first, 2);
    struct sm_home *other = sm_home_create(&bench.heap, &key);
    assert_non_null(other);
    assert_null(sm_home_best_fit(other, 512));
    struct sm_extent *extent = sm_extent_add(other, AT(1000), 4 * GRANULE);
    assert_non_null(extent);
    FILL(&bench, extent->first, 1);
    assert_int_equal(other->mapped, GRANULE);
    assert_int_equal(bench.home->mapped, 2 * GRANULE);
    assert_int_equal(bench.heap.reserved, 3 * GRANULE);
    assert_int_equal(bench.heap.counts[0].segments, 1);
    assert_int_equal(bench.heap.counts[1].segments, 1);
    assert_int_equal(bench_trim(&bench, extent->first, UINT64_MAX), GRANULE);
    sm_extent_remove(extent);
    sm_home_destroy(other);
    bench_close(&bench);
}

static void no_host_memory_for_a_home_or_an_extent(void **state)
{
    (void)state;
    struct bench bench;
    struct sm_home_key key = {.stream = &bench};
    bench_open(&bench, 8);
    sm_fault_arm(sm_hostmem_fault(), 1, true);
    assert_null(sm_home_create(&bench.heap, &key));
    assert_null(sm_extent_add(bench.home, AT(100), GRANULE));
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    bench_close(&bench);
}

/* Random life of blocks; the validator after each step. */
static void random_life(void **state)
{
    (void)state;
    struct random random = {5};
    struct sm_block *live[200];
    struct bench bench;
    size_t count = 0;
    bench_open(&bench, 64);
    FILL(&bench, bench.extent->first, 1, 3, 1, 8, 2, 1);
    for (int step = 0; step < 6000; step++) {
        uint64_t size = random_in(&random, 1, random_chance(&random, 10) ? 6000 : 40) * 512;
        if (count < 200 && random_chance(&random, 55) && sm_home_best_fit(bench.home, size)) {
            live[count++] = bench_take(&bench, size);
        } else if (count) {
            size_t i = random_below(&random, count);
            bench_give(&bench, live[i]);
            live[i] = live[--count];
        }
    }
    while (count)
        bench_give(&bench, live[--count]);
    assert_int_equal(part(&bench, SM_PART_whole_free), 16 * GRANULE);
    assert_true(bench.heap.counts[0].splits > 1000 && bench.heap.counts[0].merges > 1000);
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_range_that_fits),
        cmocka_unit_test(the_lowest_address_among_equals),
        cmocka_unit_test(a_split_hands_out_the_low_end),
        cmocka_unit_test(without_a_split_all_of_it_goes),
        cmocka_unit_test(neighbours_join_in_every_order),
        cmocka_unit_test(taken_from_the_middle),
        cmocka_unit_test(pending_is_neither_live_nor_free),
        cmocka_unit_test(a_refused_preparation_is_made_up_for),
        cmocka_unit_test(records_that_were_promised_stay_aside),
        cmocka_unit_test(homes_are_apart),
        cmocka_unit_test(no_host_memory_for_a_home_or_an_extent),
        cmocka_unit_test(random_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
