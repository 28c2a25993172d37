/* SPDX-License-Identifier: Apache-2.0 */
/* hot: what an allocation and a free on the hit path do to the statistics, inline (contracts: stats.h, which
 * includes this).
 *
 * A block passes three doors: handed out, free requested, free completed. Each door keeps running sums since
 * creation, by side of PyTorch's line. All block levels, their totals, and what happened inside a phase are
 * differences of these sums, so that the hit path stores three words a door, and peaks, and nothing else.
 * What happens seldom is a call.
 *
 * Thread: as stats.h says. */
#ifndef SEAM_STATS_HOT_H
#define SEAM_STATS_HOT_H

#ifndef SEAM_STATS_STATS_H
#error "include stats/stats.h"
#endif

enum sm_door { SM_DOOR_ALLOC, SM_DOOR_REQUEST, SM_DOOR_COMPLETE, SM_DOOR_COUNT };
enum { SM_SIDE_SMALL, SM_SIDE_LARGE, SM_SIDE_COUNT };

struct sm_flow {
    int64_t count, bytes, requested;
};

/* Held free ranges (the level inactive_split) and their bytes. */
struct sm_spread {
    int64_t ranges, bytes;
};

/* The five block levels at an instant, or their peaks. */
struct sm_use {
    int64_t allocation, allocated, requested, active, active_bytes;
};

/* Which parts are still to be copied for the running peak. */
enum { SM_MARK_RESERVED = 1, SM_MARK_ALLOCATED = 2, SM_MARK_BOTH = 3 };

struct sm_birth {
    uint64_t start;       /* sequence number of the newest interval that was open at birth */
    int64_t count, bytes; /* live blocks with this stamp */
    uint32_t next_free;
};

struct sm_thread; /* threads.c: a thread that has phases of its own open */

/* The head of struct sm_stats. */
struct sm_stats_hot {
    struct sm_flow flow[SM_DOOR_COUNT][SM_SIDE_COUNT];
    struct sm_use peak[SM_KIND_COUNT]; /* of SM_KIND_ALL the tracked ones: running, since the last boundary */
    struct sm_birth *births;
    uint64_t newest_start;     /* of the newest open interval; 0 when none is open */
    struct sm_thread *threads; /* NULL: no thread has a phase of its own open */
    uint32_t birth_now;
    uint32_t marks;
    uint64_t counters[SM_COUNTER_COUNT]; /* since creation */
};

/* ---- the seldom cases ---- */

/* crest.c: a peak is about to be left: copies the parts that are marked. */
void sm_crest_note(struct sm_stats *stats);
/* births.c: the last live block of a slot died and the slot is not the current one. */
void sm_births_give(struct sm_stats *stats, uint32_t birth);
/* intervals.c: blocks born at `birth` (a sequence number), before the newest interval opened, are being
 * freed. */
void sm_interval_release(struct sm_stats *stats, uint64_t birth, int64_t count, int64_t bytes);
/* threads.c: called only while threads is not NULL. */
void sm_thread_alloc(struct sm_stats *stats, uint64_t requested, uint64_t rounded);
void sm_thread_free(struct sm_stats *stats, uint64_t requested, uint64_t rounded);
void sm_thread_count(struct sm_stats *stats, enum sm_counter_id counter, uint64_t times);

/* ---- the usual case ---- */

static inline enum sm_kind sm_stats_kind(uint64_t rounded)
{
    return rounded <= SM_SPLIT_SMALL_MAX ? SM_KIND_SMALL : SM_KIND_LARGE;
}

static inline unsigned sm_hot_side(enum sm_kind kind)
{
    return kind == SM_KIND_LARGE ? SM_SIDE_LARGE : SM_SIDE_SMALL;
}

static inline struct sm_use sm_hot_use(const struct sm_stats_hot *hot, unsigned side)
{
    const struct sm_flow *in = &hot->flow[SM_DOOR_ALLOC][side], *asked = &hot->flow[SM_DOOR_REQUEST][side],
                         *out = &hot->flow[SM_DOOR_COMPLETE][side];
    return (struct sm_use){
        .allocation = in->count - asked->count,
        .allocated = in->bytes - asked->bytes,
        .requested = in->requested - out->requested,
        .active = in->count - out->count,
        .active_bytes = in->bytes - out->bytes,
    };
}

static inline bool sm_hot_rise(int64_t *peak, int64_t value)
{
    if (__builtin_expect(value <= *peak, 1))
        return false;
    *peak = value;
    return true;
}

/* Returns: whether allocated bytes are at a new peak. */
static inline bool sm_hot_rise_all(struct sm_use *peak, const struct sm_use *now)
{
    sm_hot_rise(&peak->allocation, now->allocation);
    sm_hot_rise(&peak->requested, now->requested);
    sm_hot_rise(&peak->active, now->active);
    sm_hot_rise(&peak->active_bytes, now->active_bytes);
    return sm_hot_rise(&peak->allocated, now->allocated);
}

static inline void sm_hot_pass(struct sm_flow *flow, uint64_t requested, uint64_t rounded)
{
    flow->count++;
    flow->bytes += (int64_t)rounded;
    flow->requested += (int64_t)requested;
}

static inline void sm_hot_unpass(struct sm_flow *flow, uint64_t requested, uint64_t rounded)
{
    flow->count--;
    flow->bytes -= (int64_t)rounded;
    flow->requested -= (int64_t)requested;
}

static inline uint32_t sm_stats_alloc(struct sm_stats *stats, enum sm_kind kind, uint64_t requested,
                                      uint64_t rounded)
{
    struct sm_stats_hot *hot = (struct sm_stats_hot *)stats;
    const unsigned side = sm_hot_side(kind);
    sm_hot_pass(&hot->flow[SM_DOOR_ALLOC][side], requested, rounded);

    const struct sm_use own = sm_hot_use(hot, side), other = sm_hot_use(hot, !side);
    const struct sm_use all = {
        .allocation = own.allocation + other.allocation,
        .allocated = own.allocated + other.allocated,
        .requested = own.requested + other.requested,
        .active = own.active + other.active,
        .active_bytes = own.active_bytes + other.active_bytes,
    };
    sm_hot_rise_all(&hot->peak[kind], &own);
    if (sm_hot_rise_all(&hot->peak[SM_KIND_ALL], &all))
        hot->marks |= SM_MARK_ALLOCATED;

    struct sm_birth *birth = &hot->births[hot->birth_now];
    birth->count++;
    birth->bytes += (int64_t)rounded;
    if (__builtin_expect(hot->threads != NULL, 0))
        sm_thread_alloc(stats, requested, rounded);
    return hot->birth_now;
}

static inline void sm_stats_free_request(struct sm_stats *stats, enum sm_kind kind, uint64_t requested,
                                         uint64_t rounded, uint32_t birth)
{
    struct sm_stats_hot *hot = (struct sm_stats_hot *)stats;
    if (hot->marks)
        sm_crest_note(stats);
    sm_hot_pass(&hot->flow[SM_DOOR_REQUEST][sm_hot_side(kind)], requested, rounded);

    struct sm_birth *slot = &hot->births[birth];
    if (slot->start < hot->newest_start)
        sm_interval_release(stats, slot->start, 1, (int64_t)rounded);
    if (__builtin_expect(hot->threads != NULL, 0))
        sm_thread_free(stats, requested, rounded);
    slot->bytes -= (int64_t)rounded;
    if (--slot->count == 0 && birth != hot->birth_now)
        sm_births_give(stats, birth);
}

static inline void sm_stats_free_complete(struct sm_stats *stats, enum sm_kind kind, uint64_t requested,
                                          uint64_t rounded)
{
    struct sm_stats_hot *hot = (struct sm_stats_hot *)stats;
    sm_hot_pass(&hot->flow[SM_DOOR_COMPLETE][sm_hot_side(kind)], requested, rounded);
}

static inline void sm_stats_count(struct sm_stats *stats, enum sm_counter_id counter, uint64_t times)
{
    struct sm_stats_hot *hot = (struct sm_stats_hot *)stats;
    hot->counters[counter] += times;
    if (__builtin_expect(hot->threads != NULL, 0))
        sm_thread_count(stats, counter, times);
}

#endif
