/* SPDX-License-Identifier: Apache-2.0 */
/* Extents, gaps and handles: growth into a gap, what a gap lacks, carving whole handles out, putting them
 * back, closing; the table from granule to handle. */
#include "alloc/heap/internal.h"
#include "tests/support/random.h"
#include "tests/unit/heap/bench.h"

static int64_t part(const struct bench *bench, enum sm_part part)
{
    return bench->heap.parts.bytes[part];
}

static void an_extent_begins_as_one_gap(void **state)
{
    (void)state;
    struct bench bench;
    uint64_t missing = 7;
    bench_open(&bench, 16);
    assert_ptr_equal(bench.extent->first, bench.extent->last);
    assert_int_equal(bench.extent->first->state, SM_BLOCK_UNMAPPED);
    assert_int_equal(bench.heap.address_bytes, 16 * GRANULE);
    assert_null(sm_extent_handle_at(bench.extent, AT(3)));
    assert_ptr_equal(sm_home_best_gap(bench.home, 16 * GRANULE, &missing), bench.extent->first);
    assert_int_equal(missing, 16 * GRANULE);
    missing = 7;
    assert_null(sm_home_best_gap(bench.home, 16 * GRANULE + 512, &missing));
    assert_int_equal(missing, 7);
    sm_extent_remove(bench.extent);
    assert_int_equal(bench.heap.address_bytes, 0);
    assert_true(TAILQ_EMPTY(&bench.home->gaps));
    bench_close(&bench);
}

static void filling_makes_memory_from_the_low_end(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 16);
    struct sm_block *range = FILL(&bench, bench.extent->first, 3, 1);
    assert_int_equal(range->address, BASE);
    assert_int_equal(range->size, 4 * GRANULE);
    assert_int_equal(range->whole, 4 * GRANULE);
    assert_int_equal(bench.heap.reserved, 4 * GRANULE);
    assert_int_equal(bench.heap.handles, 2);
    assert_int_equal(bench.heap.counts[0].segments, 1);
    assert_int_equal(sm_extent_handle_at(bench.extent, AT(0))->name, 1);
    assert_int_equal(sm_extent_handle_at(bench.extent, AT(3) - 1)->name, 1);
    assert_int_equal(sm_extent_handle_at(bench.extent, AT(3))->name, 2);
    assert_null(sm_extent_handle_at(bench.extent, AT(4)));
    /* The next growth joins. */
    range = FILL(&bench, range->next, 2);
    assert_int_equal(range->size, 6 * GRANULE);
    assert_int_equal(bench.heap.counts[0].segments, 1);
    /* The rest of the gap, to its last byte. */
    range = FILL(&bench, range->next, 10);
    assert_ptr_equal(bench.extent->first, bench.extent->last);
    assert_true(TAILQ_EMPTY(&bench.home->gaps));
    bench_close(&bench);
}

static void handle_borders_decide_what_is_whole(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 16);
    FILL(&bench, bench.extent->first, 3, 1, 4);
    assert_int_equal(sm_extent_boundary_up(bench.extent, AT(0)), AT(0));
    assert_int_equal(sm_extent_boundary_up(bench.extent, AT(0) + 512), AT(3));
    assert_int_equal(sm_extent_boundary_up(bench.extent, AT(2)), AT(3));
    assert_int_equal(sm_extent_boundary_down(bench.extent, AT(3)), AT(3));
    assert_int_equal(sm_extent_boundary_down(bench.extent, AT(3) - 512), AT(0));
    assert_int_equal(sm_extent_boundary_down(bench.extent, AT(4) + 512), AT(4));
    assert_int_equal(sm_extent_boundary_down(bench.extent, AT(8)), AT(8));
    struct sm_block *block = bench_take(&bench, 512);
    assert_int_equal(part(&bench, SM_PART_whole_free), 5 * GRANULE);
    assert_int_equal(part(&bench, SM_PART_held_free), 3 * GRANULE - 512);
    assert_int_equal(bench.heap.counts[0].held_ranges, 1);
    bench_give(&bench, block);
    assert_int_equal(part(&bench, SM_PART_whole_free), 8 * GRANULE);
    bench_close(&bench);
}

/* before | gap | after: free bytes on either side in granules, the request, what is missing. */
static void what_a_gap_lacks(void **state)
{
    (void)state;
    static const struct {
        uint64_t before, gap, after, request, missing; /* granules; request in 512 B over granules below */
        uint64_t request_bytes;
    } cases[] = {
        {0, 4, 0, 1, 1, 0},   {0, 4, 0, 4, 4, 0},   {0, 4, 0, 4, 0, 512}, {1, 4, 0, 4, 3, 0},
        {1, 4, 0, 4, 4, 512}, {1, 4, 0, 5, 4, 0},   {1, 4, 0, 5, 0, 512}, {0, 4, 2, 5, 4, 0},
        {0, 4, 2, 6, 4, 0},   {0, 4, 2, 6, 0, 512}, {2, 4, 3, 9, 4, 0},   {2, 4, 3, 9, 0, 512},
        {2, 4, 3, 3, 1, 0},   {2, 4, 3, 7, 4, 0},   {2, 1, 2, 5, 1, 0},   {2, 1, 2, 2, 1, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench bench;
        uint64_t before = cases[i].before, gap_size = cases[i].gap, after = cases[i].after;
        uint64_t total = before + gap_size + after, missing = 0;
        bench_open(&bench, total);
        /* One granule a handle, all taken, then given back where it is to be free, then the gap is trimmed.
         */
        for (uint64_t g = 0; g < total; g++)
            FILL(&bench, bench.extent->last, 1);
        struct sm_block *all = bench_take(&bench, total * GRANULE);
        bench_give(&bench, all);
        assert_true(sm_heap_prepare(&bench.heap, 4));
        all = sm_block_take_at(bench.extent->first, AT(0), total * GRANULE, 1);
        all = bench_give(&bench, all);
        struct sm_block *low = before ? bench_take(&bench, before * GRANULE) : NULL;
        struct sm_block *middle = bench_take(&bench, gap_size * GRANULE);
        struct sm_block *high = after ? bench_take(&bench, after * GRANULE) : NULL;
        assert_int_equal(bench_trim(&bench, bench_give(&bench, middle), UINT64_MAX), gap_size * GRANULE);
        if (low)
            bench_give(&bench, low);
        if (high)
            bench_give(&bench, high);
        struct sm_block *gap = bench_block(bench.extent, AT(before));
        assert_int_equal(gap->state, SM_BLOCK_UNMAPPED);
        uint64_t size = cases[i].request * GRANULE + cases[i].request_bytes;
        assert_int_equal(sm_gap_missing(&bench.heap, gap, size), cases[i].missing * GRANULE);
        assert_ptr_equal(sm_home_best_gap(bench.home, size, &missing), cases[i].missing ? gap : NULL);
        if (cases[i].missing) {
            /* And filled with that, it holds the request; with a granule less it does not. */
            assert_int_equal(missing, cases[i].missing * GRANULE);
            FILL(&bench, gap, (unsigned)cases[i].missing);
            assert_non_null(sm_home_best_fit(bench.home, size));
        }
        bench_close(&bench);
    }
}

static void sizes_near_the_end_of_numbers(void **state)
{
    (void)state;
    struct bench bench;
    uint64_t missing;
    bench_open(&bench, 4);
    assert_int_equal(sm_gap_missing(&bench.heap, bench.extent->first, UINT64_MAX), 0);
    assert_int_equal(sm_gap_missing(&bench.heap, bench.extent->first, UINT64_MAX - GRANULE), 0);
    assert_null(sm_home_best_gap(bench.home, UINT64_MAX, &missing));
    FILL(&bench, bench.extent->first, 1);
    assert_null(sm_home_best_fit(bench.home, UINT64_MAX));
    assert_int_equal(sm_gap_missing(&bench.heap, bench.extent->last, UINT64_MAX), 0);
    bench_close(&bench);
}

static void the_gap_that_lacks_least(void **state)
{
    (void)state;
    struct bench bench;
    uint64_t missing = 0;
    bench_open(&bench, 20);
    FILL(&bench, bench.extent->first, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
    struct sm_block *blocks[10];
    for (int i = 0; i < 10; i++)
        blocks[i] = bench_take(&bench, GRANULE);
    /* Gaps of one granule at 2 and at 6; a free granule before the one at 6. */
    bench_trim(&bench, bench_give(&bench, blocks[2]), UINT64_MAX);
    bench_trim(&bench, bench_give(&bench, blocks[6]), UINT64_MAX);
    assert_int_equal(sm_home_best_gap(bench.home, GRANULE, &missing)->address, AT(2));
    assert_int_equal(missing, GRANULE);
    bench_give(&bench, blocks[5]);
    assert_int_equal(sm_home_best_gap(bench.home, 2 * GRANULE, &missing)->address, AT(6));
    assert_int_equal(missing, GRANULE);
    assert_int_equal(sm_home_best_gap(bench.home, 3 * GRANULE, &missing)->address, AT(10));
    assert_int_equal(missing, 3 * GRANULE);
    bench_close(&bench);
}

static void carving_takes_whole_handles_only(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 16);
    FILL(&bench, bench.extent->first, 3, 1, 4);
    struct sm_block *block = bench_take(&bench, 512);
    struct sm_block *range = block->next;
    assert_int_equal(bench.heap.counts[0].segments, 1);
    assert_int_equal(bench_trim(&bench, range, UINT64_MAX), 5 * GRANULE);
    assert_int_equal(bench.heap.reserved, 3 * GRANULE);
    assert_int_equal(bench.heap.handles, 1);
    assert_int_equal(bench.heap.counts[0].segments, 1);
    assert_int_equal(range->size, 3 * GRANULE - 512);
    assert_int_equal(range->whole, 0);
    /* The gap joined what lay behind it. */
    assert_int_equal(range->next->size, 13 * GRANULE);
    /* What is left has no whole handle. */
    assert_true(sm_heap_prepare(&bench.heap, 2));
    assert_null(sm_block_carve(range, UINT64_MAX));
    bench_check(&bench);
    bench_close(&bench);
}

static void carving_a_part_comes_from_the_high_end(void **state)
{
    (void)state;
    static const struct {
        uint64_t most;
        unsigned granules;
    } cases[] = {{1, 2},           {2 * GRANULE, 2},     {2 * GRANULE + 1, 6}, {6 * GRANULE, 6},
                 {7 * GRANULE, 7}, {8 * GRANULE - 1, 8}, {UINT64_MAX, 8}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench bench;
        bench_open(&bench, 16);
        struct sm_block *range = FILL(&bench, bench.extent->first, 1, 1, 4, 2);
        assert_int_equal(bench_trim(&bench, range, cases[i].most), cases[i].granules * GRANULE);
        assert_int_equal(bench.heap.reserved, (8 - cases[i].granules) * GRANULE);
        bench_close(&bench);
    }
}

static void carving_from_the_middle_makes_two_segments(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 16);
    FILL(&bench, bench.extent->first, 2, 2, 2, 2);
    struct sm_block *low = bench_take(&bench, GRANULE);
    struct sm_block *rest = low->next;
    assert_true(sm_heap_prepare(&bench.heap, 2));
    struct sm_block *high = sm_block_take_at(rest, AT(7), GRANULE, GRANULE);
    rest = low->next;
    assert_int_equal(bench_trim(&bench, rest, UINT64_MAX), 4 * GRANULE);
    assert_int_equal(bench.heap.counts[0].segments, 2);
    assert_int_equal(rest->size, GRANULE);
    assert_int_equal(part(&bench, SM_PART_held_free), 2 * GRANULE);
    bench_give(&bench, low);
    bench_give(&bench, high);
    assert_int_equal(bench.heap.counts[0].segments, 2);
    /* Filling the gap whole joins both sides again. */
    struct sm_block *range = FILL(&bench, bench_block(bench.extent, AT(2)), 4);
    assert_int_equal(range->address, BASE);
    assert_int_equal(range->size, 8 * GRANULE);
    assert_int_equal(bench.heap.counts[0].segments, 1);
    bench_close(&bench);
}

/* A driver refuses to unmap the handle number `refused` of four: what went is gone, the rest is free again.
 */
static void a_refusal_half_way_returns_the_rest(void **state)
{
    (void)state;
    for (unsigned refused = 0; refused < 4; refused++)
        for (unsigned wall = 0; wall < 2; wall++) {
            struct bench bench;
            bench_open(&bench, 16);
            FILL(&bench, bench.extent->first, 1, 1, 1, 1, 1, 1);
            struct sm_block *low = bench_take(&bench, GRANULE);
            struct sm_block *middle = bench_take(&bench, 4 * GRANULE);
            struct sm_block *high = wall ? bench_take(&bench, GRANULE) : NULL;
            middle = bench_give(&bench, middle);
            assert_true(sm_heap_prepare(&bench.heap, 3));
            struct sm_block *carved = sm_block_carve(middle, UINT64_MAX);
            uint64_t at = carved->address;
            for (unsigned i = 0; i < refused; i++, at += GRANULE)
                sm_carved_forget(carved, at);
            sm_carved_return(carved, at);
            bench_check(&bench);
            assert_int_equal(bench.heap.reserved, (6 - refused) * GRANULE);
            assert_int_equal(bench.heap.counts[0].segments, refused ? 2 : 1);
            assert_int_equal(part(&bench, SM_PART_whole_free), (4 - refused + !wall) * GRANULE);
            /* The next trim gets it. */
            assert_int_equal(bench_trim(&bench, bench_block(bench.extent, at), UINT64_MAX),
                             (4 - refused + !wall) * GRANULE);
            bench_give(&bench, low);
            if (high)
                bench_give(&bench, high);
            bench_close(&bench);
        }
}

static void a_gap_joins_gaps_on_both_sides(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 6);
    FILL(&bench, bench.extent->first, 1, 1, 1, 1, 1, 1);
    struct sm_block *blocks[6];
    for (int i = 0; i < 6; i++)
        blocks[i] = bench_take(&bench, GRANULE);
    bench_trim(&bench, bench_give(&bench, blocks[1]), UINT64_MAX);
    bench_trim(&bench, bench_give(&bench, blocks[3]), UINT64_MAX);
    assert_int_equal(bench.heap.counts[0].segments, 3);
    bench_trim(&bench, bench_give(&bench, blocks[2]), UINT64_MAX);
    assert_int_equal(bench.heap.counts[0].segments, 2);
    struct sm_block *gap = bench_block(bench.extent, AT(1));
    assert_int_equal(gap->size, 3 * GRANULE);
    bench_trim(&bench, bench_give(&bench, blocks[0]), UINT64_MAX);
    bench_trim(&bench, bench_give(&bench, blocks[5]), UINT64_MAX);
    bench_trim(&bench, bench_give(&bench, blocks[4]), UINT64_MAX);
    assert_ptr_equal(bench.extent->first, bench.extent->last);
    assert_int_equal(bench.heap.counts[0].segments, 0);
    assert_int_equal(bench.heap.reserved, 0);
    sm_extent_remove(bench.extent);
    bench_close(&bench);
}

static void a_lost_handle_stays_counted(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 4);
    FILL(&bench, bench.extent->first, 1);
    sm_heap_lose(&bench.heap, 3 * GRANULE);
    bench_check(&bench);
    assert_int_equal(bench.heap.reserved, 4 * GRANULE);
    assert_int_equal(part(&bench, SM_PART_whole_free), 4 * GRANULE);
    sm_heap_find(&bench.heap, 3 * GRANULE);
    bench_check(&bench);
    assert_int_equal(bench.heap.reserved, GRANULE);
    assert_int_equal(bench.heap.handles, 1);
    bench_close(&bench);
}

static void refused_tables_change_nothing(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct bench bench;
        bench_open(&bench, 4096);
        FILL(&bench, bench.extent->first, 1, 2);
        sm_fault_arm(sm_hostmem_fault(), nth, true);
        assert_false(sm_extent_prepare(bench.extent, AT(4000), 3000));
        sm_fault_arm(sm_hostmem_fault(), 0, false);
        bench_check(&bench);
        assert_int_equal(sm_extent_handle_at(bench.extent, AT(1))->name, 2);
        assert_true(sm_extent_prepare(bench.extent, AT(4000), 3000));
        bench_check(&bench);
        assert_int_equal(sm_extent_handle_at(bench.extent, AT(2))->name, 2);
        bench_close(&bench);
    }
}

/* Handles of random sizes come and go among random blocks; at the end nothing is left. */
static void random_growth_and_trim(void **state)
{
    (void)state;
    struct random random = {17};
    struct sm_block *live[64];
    struct bench bench;
    size_t count = 0;
    unsigned fills = 0, trims = 0;
    bench_open(&bench, 200);
    for (int step = 0; step < 5000; step++) {
        uint64_t size = random_in(&random, 1, 5 * GRANULE / 512) * 512, missing;
        struct sm_block *range, *gap;
        switch (random_below(&random, 4)) {
        case 0:
        case 1:
            if (count == 64)
                break;
            if (!sm_home_best_fit(bench.home, size) && (gap = sm_home_best_gap(bench.home, size, &missing))) {
                unsigned granules = (unsigned)(missing / GRANULE), first = granules > 1 ? granules / 2 : 0;
                range = first ? FILL(&bench, gap, first, granules - first) : FILL(&bench, gap, granules);
                assert_true(range->size >= size);
                fills++;
            }
            if (sm_home_best_fit(bench.home, size))
                live[count++] = bench_take(&bench, size);
            break;
        case 2:
            if (count) {
                size_t i = random_below(&random, count);
                bench_give(&bench, live[i]);
                live[i] = live[--count];
            }
            break;
        default:
            if (random_chance(&random, 30) && (range = sm_home_largest(bench.home)))
                trims += bench_trim(&bench, range, random_in(&random, 1, 4) * GRANULE) > 0;
        }
    }
    assert_true(fills > 100 && trims > 100);
    while (count)
        bench_give(&bench, live[--count]);
    struct sm_block *range;
    while ((range = sm_home_largest(bench.home)))
        assert_true(bench_trim(&bench, range, UINT64_MAX) > 0);
    assert_int_equal(bench.heap.reserved, 0);
    assert_int_equal(bench.heap.handles, 0);
    assert_ptr_equal(bench.extent->first, bench.extent->last);
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_extent_begins_as_one_gap),
        cmocka_unit_test(filling_makes_memory_from_the_low_end),
        cmocka_unit_test(handle_borders_decide_what_is_whole),
        cmocka_unit_test(what_a_gap_lacks),
        cmocka_unit_test(sizes_near_the_end_of_numbers),
        cmocka_unit_test(the_gap_that_lacks_least),
        cmocka_unit_test(carving_takes_whole_handles_only),
        cmocka_unit_test(carving_a_part_comes_from_the_high_end),
        cmocka_unit_test(carving_from_the_middle_makes_two_segments),
        cmocka_unit_test(a_refusal_half_way_returns_the_rest),
        cmocka_unit_test(a_gap_joins_gaps_on_both_sides),
        cmocka_unit_test(a_lost_handle_stays_counted),
        cmocka_unit_test(refused_tables_change_nothing),
        cmocka_unit_test(random_growth_and_trim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
