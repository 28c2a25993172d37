/* SPDX-License-Identifier: Apache-2.0 */
/* gaps: see gaps.h. A tree by start; each node knows the largest gap below it, so that a search skips
 * subtrees in which nothing fits. Cost: O(log n), times the gaps that fit in size but not in alignment. */
#include "sim/core/gaps.h"
#include "base/align.h"
#include <stdlib.h>

static int compare(const struct sim_gap *a, const struct sim_gap *b)
{
    return a->start < b->start ? -1 : a->start > b->start;
}

static void augment(struct sim_gap *gap)
{
    for (; gap; gap = RB_PARENT(gap, link)) {
        uint64_t largest = gap->end - gap->start;
        if (RB_LEFT(gap, link))
            largest = sm_max(largest, RB_LEFT(gap, link)->largest);
        if (RB_RIGHT(gap, link))
            largest = sm_max(largest, RB_RIGHT(gap, link)->largest);
        gap->largest = largest;
    }
}
#undef RB_AUGMENT
#define RB_AUGMENT(x) augment(x)
SIM_TREE_GENERATE(sim_gap_tree, sim_gap, link, compare)

static bool add_gap(struct sim_gaps *gaps, uint64_t start, uint64_t end)
{
    struct sim_gap *gap = calloc(1, sizeof *gap);
    if (!gap)
        return false;
    gap->start = start;
    gap->end = end;
    gap->largest = end - start;
    RB_INSERT(sim_gap_tree, &gaps->tree, gap);
    augment(gap);
    return true;
}

static void drop_gap(struct sim_gaps *gaps, struct sim_gap *gap)
{
    struct sim_gap *parent = RB_PARENT(gap, link);
    RB_REMOVE(sim_gap_tree, &gaps->tree, gap);
    augment(parent);
    free(gap);
}

bool sim_gaps_init(struct sim_gaps *gaps, uint64_t start, uint64_t end)
{
    RB_INIT(&gaps->tree);
    return add_gap(gaps, start, end);
}

void sim_gaps_clear(struct sim_gaps *gaps)
{
    for (struct sim_gap *gap; (gap = RB_ROOT(&gaps->tree));) {
        RB_REMOVE(sim_gap_tree, &gaps->tree, gap);
        free(gap);
    }
}

/* Cuts [start, start + size) out of a gap that holds it. */
static bool cut(struct sim_gaps *gaps, struct sim_gap *gap, uint64_t start, uint64_t size)
{
    uint64_t end = gap->end, begin = gap->start;
    if (begin < start && start + size < end) {
        if (!add_gap(gaps, start + size, end))
            return false;
        gap->end = start;
    } else if (begin < start) {
        gap->end = start;
    } else if (start + size < end) {
        gap->start = start + size; /* the order in the tree stays */
    } else {
        drop_gap(gaps, gap);
        return true;
    }
    augment(gap);
    return true;
}

static bool fits_low(const struct sim_gap *gap, uint64_t size, uint64_t align, uint64_t *start)
{
    *start = sm_align_up(gap->start, align);
    return *start >= gap->start && *start < gap->end && gap->end - *start >= size;
}

static bool fits_high(const struct sim_gap *gap, uint64_t size, uint64_t align, uint64_t *start)
{
    if (gap->end - gap->start < size)
        return false;
    *start = sm_align_down(gap->end - size, align);
    return *start >= gap->start;
}

static struct sim_gap *search(struct sim_gap *gap, uint64_t size, uint64_t align, bool high, uint64_t *start)
{
    if (!gap || gap->largest < size)
        return NULL;
    struct sim_gap *near = high ? RB_RIGHT(gap, link) : RB_LEFT(gap, link);
    struct sim_gap *far = high ? RB_LEFT(gap, link) : RB_RIGHT(gap, link);
    struct sim_gap *found = search(near, size, align, high, start);
    if (found)
        return found;
    if (high ? fits_high(gap, size, align, start) : fits_low(gap, size, align, start))
        return gap;
    return search(far, size, align, high, start);
}

bool sim_gaps_take_low(struct sim_gaps *gaps, uint64_t size, uint64_t align, uint64_t *start)
{
    struct sim_gap *gap = search(RB_ROOT(&gaps->tree), size, align, false, start);
    return gap && cut(gaps, gap, *start, size);
}

bool sim_gaps_take_high(struct sim_gaps *gaps, uint64_t size, uint64_t align, uint64_t *start)
{
    struct sim_gap *gap = search(RB_ROOT(&gaps->tree), size, align, true, start);
    return gap && cut(gaps, gap, *start, size);
}

/* The gap with the greatest start not above `at`. */
static struct sim_gap *floor_of(struct sim_gaps *gaps, uint64_t at)
{
    struct sim_gap *best = NULL;
    for (struct sim_gap *gap = RB_ROOT(&gaps->tree); gap;) {
        if (gap->start <= at) {
            best = gap;
            gap = RB_RIGHT(gap, link);
        } else {
            gap = RB_LEFT(gap, link);
        }
    }
    return best;
}

bool sim_gaps_take_at(struct sim_gaps *gaps, uint64_t start, uint64_t size)
{
    struct sim_gap *gap = floor_of(gaps, start);
    return gap && gap->end > start && gap->end - start >= size && cut(gaps, gap, start, size);
}

void sim_gaps_give(struct sim_gaps *gaps, uint64_t start, uint64_t size)
{
    uint64_t end = start + size;
    struct sim_gap *before = floor_of(gaps, start);
    struct sim_gap *after =
        before ? RB_NEXT(sim_gap_tree, &gaps->tree, before) : RB_MIN(sim_gap_tree, &gaps->tree);
    bool joins_before = before && before->end == start, joins_after = after && after->start == end;
    if (joins_before && joins_after) {
        end = after->end;
        drop_gap(gaps, after);
        before->end = end;
        augment(before);
    } else if (joins_before) {
        before->end = end;
        augment(before);
    } else if (joins_after) {
        after->start = start;
        augment(after);
    } else {
        /* Without host memory for the note the place is lost, which is safe. */
        (void)add_gap(gaps, start, end);
    }
}
