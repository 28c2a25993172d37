/* SPDX-License-Identifier: Apache-2.0 */
/* stats: levels and counters of one device, and the functions that the hit path calls.
 *
 * The five block levels are differences of the sums at the three doors (internal.h); all others are moved by
 * name. Nothing here obtains memory or calls the system after creation. */
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
    stats->marks = SM_MARK_BOTH;
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

/* ---- the hit path
 * -------------------------------------------------------------------------------------------- */

enum sm_kind sm_stats_kind(uint64_t rounded)
{
    return rounded <= SM_SPLIT_SMALL_MAX ? SM_KIND_SMALL : SM_KIND_LARGE;
}

static inline unsigned side_of(enum sm_kind kind)
{
    return kind == SM_KIND_LARGE ? SM_SIDE_LARGE : SM_SIDE_SMALL;
}

static inline struct sm_use use_of(const struct sm_stats *stats, unsigned side)
{
    const struct sm_flow *in = &stats->flow[SM_DOOR_ALLOC][side],
                         *asked = &stats->flow[SM_DOOR_REQUEST][side],
                         *out = &stats->flow[SM_DOOR_COMPLETE][side];
    return (struct sm_use){
        .allocation = in->count - asked->count,
        .allocated = in->bytes - asked->bytes,
        .requested = in->requested - out->requested,
        .active = in->count - out->count,
        .active_bytes = in->bytes - out->bytes,
    };
}

static inline bool rise_to(int64_t *peak, int64_t value)
{
    if (__builtin_expect(value <= *peak, 1))
        return false;
    *peak = value;
    return true;
}

/* Returns: whether allocated bytes are at a new peak. */
static inline bool rise_all(struct sm_use *peak, const struct sm_use *now)
{
    rise_to(&peak->allocation, now->allocation);
    rise_to(&peak->requested, now->requested);
    rise_to(&peak->active, now->active);
    rise_to(&peak->active_bytes, now->active_bytes);
    return rise_to(&peak->allocated, now->allocated);
}

static inline void pass_door(struct sm_flow *flow, uint64_t requested, uint64_t rounded)
{
    flow->count++;
    flow->bytes += (int64_t)rounded;
    flow->requested += (int64_t)requested;
}

uint32_t sm_stats_alloc(struct sm_stats *stats, enum sm_kind kind, uint64_t requested, uint64_t rounded)
{
    const unsigned side = side_of(kind);
    pass_door(&stats->flow[SM_DOOR_ALLOC][side], requested, rounded);

    const struct sm_use own = use_of(stats, side), other = use_of(stats, !side);
    const struct sm_use all = {
        .allocation = own.allocation + other.allocation,
        .allocated = own.allocated + other.allocated,
        .requested = own.requested + other.requested,
        .active = own.active + other.active,
        .active_bytes = own.active_bytes + other.active_bytes,
    };
    rise_all(&stats->peak[kind], &own);
    if (rise_all(&stats->peak[SM_KIND_ALL], &all))
        stats->marks |= SM_MARK_ALLOCATED;

    struct sm_birth *birth = &stats->births[stats->birth_now];
    birth->count++;
    birth->bytes += (int64_t)rounded;
    if (__builtin_expect(stats->threads != NULL, 0))
        sm_thread_alloc(stats, requested, rounded);
    return stats->birth_now;
}

void sm_stats_free_request(struct sm_stats *stats, enum sm_kind kind, uint64_t requested, uint64_t rounded,
                           uint32_t birth)
{
    if (stats->marks)
        sm_crest_note(stats);
    pass_door(&stats->flow[SM_DOOR_REQUEST][side_of(kind)], requested, rounded);

    struct sm_birth *slot = &stats->births[birth];
    if (slot->start < stats->newest_start)
        sm_interval_release(stats, slot->start, rounded);
    if (__builtin_expect(stats->threads != NULL, 0))
        sm_thread_free(stats, requested, rounded);
    slot->bytes -= (int64_t)rounded;
    if (--slot->count == 0 && birth != stats->birth_now)
        sm_births_give(stats, birth);
}

void sm_stats_free_complete(struct sm_stats *stats, enum sm_kind kind, uint64_t requested, uint64_t rounded)
{
    pass_door(&stats->flow[SM_DOOR_COMPLETE][side_of(kind)], requested, rounded);
}

static void move_one(struct sm_level *level, int64_t delta)
{
    level->current += delta;
    if (delta >= 0)
        level->in += delta;
    else
        level->out -= delta;
    rise_to(&level->peak, level->current);
}

void sm_stats_move(struct sm_stats *stats, enum sm_level_id level, enum sm_kind kind, int64_t delta)
{
    SM_ASSERT(!sm_stats_is_block_level(level));
    if (level == SM_LEVEL_reserved_bytes && delta < 0 && stats->marks)
        sm_crest_note(stats);

    struct sm_level *all = &stats->moved[level][SM_KIND_ALL];
    move_one(all, delta);
    if (kind == SM_KIND_ALL)
        stats->all_only[level] = true;
    else
        move_one(&stats->moved[level][kind], delta);

    if (level == SM_LEVEL_reserved_bytes && rise_to(&stats->reserved_running, all->current))
        stats->marks |= SM_MARK_RESERVED;
}

void sm_stats_count(struct sm_stats *stats, enum sm_counter_id counter, uint64_t times)
{
    stats->counters[counter] += times;
    if (__builtin_expect(stats->threads != NULL, 0))
        sm_thread_count(stats, counter, times);
}

/* ---- reading
 * ------------------------------------------------------------------------------------------------- */

struct sm_use sm_stats_use(const struct sm_stats *stats, unsigned side)
{
    return use_of(stats, side);
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
    const struct sm_use small = use_of(stats, SM_SIDE_SMALL), large = use_of(stats, SM_SIDE_LARGE);
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
        const struct sm_flow *flow = &stats->flow[door][side], *base = &stats->flow_base[door][side];
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
    const struct sm_use *peak = &stats->peak[kind];
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
    return stats->counters[counter] - stats->counter_base[counter];
}

/* ---- resets
 * -------------------------------------------------------------------------------------------------- */

void sm_stats_reset_peaks(struct sm_stats *stats)
{
    /* Open phases take what there was before it is forgotten. */
    sm_crest_fold(stats);
    sm_crest_restart(stats);

    struct sm_use *all = &stats->peak[SM_KIND_ALL];
    stats->peak[SM_KIND_SMALL] = use_of(stats, SM_SIDE_SMALL);
    stats->peak[SM_KIND_LARGE] = use_of(stats, SM_SIDE_LARGE);
    all->allocation = stats->peak[SM_KIND_SMALL].allocation + stats->peak[SM_KIND_LARGE].allocation;
    all->active = stats->peak[SM_KIND_SMALL].active + stats->peak[SM_KIND_LARGE].active;
    for (unsigned level = 0; level < SM_LEVEL_COUNT; level++)
        for (unsigned kind = 0; kind < SM_KIND_COUNT; kind++)
            stats->moved[level][kind].peak = stats->moved[level][kind].current;
}

void sm_stats_reset_totals(struct sm_stats *stats)
{
    memcpy(stats->flow_base, stats->flow, sizeof stats->flow);
    memcpy(stats->counter_base, stats->counters, sizeof stats->counters);
    for (unsigned level = 0; level < SM_LEVEL_COUNT; level++)
        for (unsigned kind = 0; kind < SM_KIND_COUNT; kind++) {
            struct sm_level *moved = &stats->moved[level][kind];
            stats->moved_base[level][kind] = moved->current;
            moved->in = moved->out = 0;
        }
}
