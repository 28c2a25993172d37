/* SPDX-License-Identifier: Apache-2.0 */
/* stats: levels and counters of one device: how they are moved, read and reset. What the hit path does is
 * inline, in hot.h.
 *
 * The five block levels are differences of the sums at the three doors; all others are moved by name. Nothing
 * here obtains memory or calls the system after creation. */
#include "stats/internal.h"

#include "base/log.h"
#include <string.h>

struct sm_stats *sm_stats_create(int device, const struct sm_parts *parts)
{
    struct sm_stats *stats = sm_hostmem_get(sizeof *stats);
    if (!stats)
        return NULL;
    stats->device = device;
    stats->parts = parts;
    sm_tree_init(stats);
    sm_threads_init(stats);
    stats->view = sm_hostmem_get(SM_LEVEL_COUNT * sizeof *stats->view);
    if (!stats->view || !sm_births_init(stats)) {
        sm_stats_destroy(stats);
        return NULL;
    }
    sm_crest_restart(stats);
    stats->hot.marks = SM_MARK_BOTH;
    return stats;
}

void sm_stats_destroy(struct sm_stats *stats)
{
    if (!stats)
        return;
    sm_threads_fini(stats);
    sm_intervals_fini(stats);
    sm_tree_fini(stats);
    sm_births_fini(stats);
    sm_hostmem_put(stats->view, SM_LEVEL_COUNT * sizeof *stats->view);
    sm_hostmem_put(stats, sizeof *stats);
}

/* ---- moving ---- */

static void move_one(struct sm_level *level, int64_t delta)
{
    level->current += delta;
    if (delta >= 0)
        level->in += delta;
    else
        level->out -= delta;
    sm_hot_rise(&level->peak, level->current);
}

void sm_stats_move(struct sm_stats *stats, enum sm_level_id level, enum sm_kind kind, int64_t delta)
{
    SM_ASSERT(!sm_stats_is_block_level(level));
    if (level == SM_LEVEL_reserved_bytes && delta < 0 && stats->hot.marks)
        sm_crest_note(stats);

    struct sm_level *all = &stats->moved[level][SM_KIND_ALL];
    move_one(all, delta);
    if (kind == SM_KIND_ALL)
        stats->all_only[level] = true;
    else
        move_one(&stats->moved[level][kind], delta);

    if (level == SM_LEVEL_reserved_bytes && sm_hot_rise(&stats->reserved_running, all->current))
        stats->hot.marks |= SM_MARK_RESERVED;
}

/* ---- reading ---- */

struct sm_use sm_stats_use(const struct sm_stats *stats, unsigned side)
{
    return sm_hot_use(&stats->hot, side);
}

bool sm_stats_is_block_level(enum sm_level_id level)
{
    return level == SM_LEVEL_allocation || level == SM_LEVEL_allocated_bytes ||
           level == SM_LEVEL_requested_bytes || level == SM_LEVEL_active || level == SM_LEVEL_active_bytes;
}

bool sm_stats_has_pools(const struct sm_stats *stats, enum sm_level_id level)
{
    return level <= SM_LEVEL_inactive_split_bytes && !stats->all_only[level];
}

void sm_stats_tracked(const struct sm_stats *stats, int64_t value[SM_TRACKED_COUNT])
{
    const struct sm_use small = sm_hot_use(&stats->hot, SM_SIDE_SMALL),
                        large = sm_hot_use(&stats->hot, SM_SIDE_LARGE);
    value[SM_TRACKED_allocated] = small.allocated + large.allocated;
    value[SM_TRACKED_requested] = small.requested + large.requested;
    value[SM_TRACKED_active] = small.active_bytes + large.active_bytes;
    value[SM_TRACKED_reserved] = stats->moved[SM_LEVEL_reserved_bytes][SM_KIND_ALL].current;
}

/* Sums of a door over the sides that a kind covers: since creation, or since the last reset. */
static struct sm_flow door_sum(const struct sm_stats *stats, enum sm_door door, enum sm_kind kind,
                               bool since_reset)
{
    struct sm_flow sum = {0};
    for (unsigned side = 0; side < SM_SIDE_COUNT; side++) {
        if (kind == (side == SM_SIDE_SMALL ? SM_KIND_LARGE : SM_KIND_SMALL))
            continue;
        const struct sm_flow *flow = &stats->hot.flow[door][side], *base = &stats->flow_base[door][side];
        sum.count += flow->count - (since_reset ? base->count : 0);
        sum.bytes += flow->bytes - (since_reset ? base->bytes : 0);
        sum.requested += flow->requested - (since_reset ? base->requested : 0);
    }
    return sum;
}

static int64_t field_of(const struct sm_flow *flow, enum sm_level_id level)
{
    switch (level) {
    case SM_LEVEL_allocation:
    case SM_LEVEL_active:
        return flow->count;
    case SM_LEVEL_requested_bytes:
        return flow->requested;
    default:
        return flow->bytes;
    }
}

static int64_t block_peak(const struct sm_stats *stats, enum sm_level_id level, enum sm_kind kind)
{
    const struct sm_use *peak = &stats->hot.peak[kind];
    const int64_t *folded = stats->total.peak;
    const bool all = kind == SM_KIND_ALL; /* then *peak is only the running part of the tracked ones */
    switch (level) {
    case SM_LEVEL_allocation:
        return peak->allocation;
    case SM_LEVEL_allocated_bytes:
        return all && folded[SM_TRACKED_allocated] > peak->allocated ? folded[SM_TRACKED_allocated]
                                                                     : peak->allocated;
    case SM_LEVEL_requested_bytes:
        return all && folded[SM_TRACKED_requested] > peak->requested ? folded[SM_TRACKED_requested]
                                                                     : peak->requested;
    case SM_LEVEL_active:
        return peak->active;
    default:
        return all && folded[SM_TRACKED_active] > peak->active_bytes ? folded[SM_TRACKED_active]
                                                                     : peak->active_bytes;
    }
}

const struct sm_level *sm_stats_level(const struct sm_stats *stats, enum sm_level_id level, enum sm_kind kind)
{
    struct sm_level *view = &stats->view[level][kind];
    if (!sm_stats_is_block_level(level)) {
        *view = stats->moved[level][kind];
        return view;
    }
    /* Allocated falls when a free is requested; requested and active fall when it completes. */
    const bool early = level == SM_LEVEL_allocation || level == SM_LEVEL_allocated_bytes;
    const enum sm_door exit = early ? SM_DOOR_REQUEST : SM_DOOR_COMPLETE;
    const struct sm_flow in = door_sum(stats, SM_DOOR_ALLOC, kind, false),
                         out = door_sum(stats, exit, kind, false);
    const struct sm_flow in_since = door_sum(stats, SM_DOOR_ALLOC, kind, true),
                         out_since = door_sum(stats, exit, kind, true);
    view->current = field_of(&in, level) - field_of(&out, level);
    view->peak = block_peak(stats, level, kind);
    view->in = field_of(&in_since, level);
    view->out = field_of(&out_since, level);
    return view;
}

uint64_t sm_stats_counter(const struct sm_stats *stats, enum sm_counter_id counter)
{
    return stats->hot.counters[counter] - stats->counter_base[counter];
}

/* ---- resets ---- */

void sm_stats_reset_peaks(struct sm_stats *stats)
{
    /* Open phases take what there was before it is forgotten. */
    sm_crest_fold(stats);
    sm_crest_restart(stats);

    struct sm_use *all = &stats->hot.peak[SM_KIND_ALL];
    stats->hot.peak[SM_KIND_SMALL] = sm_hot_use(&stats->hot, SM_SIDE_SMALL);
    stats->hot.peak[SM_KIND_LARGE] = sm_hot_use(&stats->hot, SM_SIDE_LARGE);
    all->allocation = stats->hot.peak[SM_KIND_SMALL].allocation + stats->hot.peak[SM_KIND_LARGE].allocation;
    all->active = stats->hot.peak[SM_KIND_SMALL].active + stats->hot.peak[SM_KIND_LARGE].active;
    for (unsigned level = 0; level < SM_LEVEL_COUNT; level++)
        for (unsigned kind = 0; kind < SM_KIND_COUNT; kind++)
            stats->moved[level][kind].peak = stats->moved[level][kind].current;
}

void sm_stats_reset_totals(struct sm_stats *stats)
{
    memcpy(stats->flow_base, stats->hot.flow, sizeof stats->hot.flow);
    memcpy(stats->counter_base, stats->hot.counters, sizeof stats->hot.counters);
    for (unsigned level = 0; level < SM_LEVEL_COUNT; level++)
        for (unsigned kind = 0; kind < SM_KIND_COUNT; kind++) {
            struct sm_level *moved = &stats->moved[level][kind];
            stats->moved_base[level][kind] = moved->current;
            moved->in = moved->out = 0;
        }
}
