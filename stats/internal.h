/* SPDX-License-Identifier: Apache-2.0 */
/* internal: what the files of this room share.
 *
 * Three ideas keep the hit path short.
 * 1. *Flows*. A block passes three doors: handed out, free requested, free completed. Each door keeps running
 * sums since creation, by kind. All block levels, their totals, and what happened inside a phase are
 * differences of these sums, so the hit path stores three words a door and nothing else, and a reset only
 * remembers where the sums stood.
 * 2. *Crests*. One running peak a level since the last boundary, with the parts at it. Boundaries fold it.
 * 3. *Births*. A block's stamp is the index of a slot that says since which interval blocks of this slot are
 * born. A slot lives as long as its blocks, so stamps never wrap.
 *
 * Thread: the device's heap lock protects everything here. */
#ifndef SEAM_STATS_INTERNAL_H
#define SEAM_STATS_INTERNAL_H

#include "base/hostmem.h"
#include "stats/stats.h"

/* The levels that phases follow. X(name in a phase, level) */
#define SM_TRACKED(X)                                                                                        \
    X(allocated, allocated_bytes)                                                                            \
    X(requested, requested_bytes)                                                                            \
    X(active, active_bytes)                                                                                  \
    X(reserved, reserved_bytes)

enum sm_tracked {
#define X(name, level) SM_TRACKED_##name,
    SM_TRACKED(X)
#undef X
        SM_TRACKED_COUNT
};

enum sm_door { SM_DOOR_ALLOC, SM_DOOR_REQUEST, SM_DOOR_COMPLETE, SM_DOOR_COUNT };
enum { SM_SIDE_SMALL, SM_SIDE_LARGE, SM_SIDE_COUNT };

struct sm_flow {
    int64_t count, bytes, requested;
};

/* The five block levels at an instant, or their peaks. */
struct sm_use {
    int64_t allocation, allocated, requested, active, active_bytes;
};

/* The highest values of a stretch of time. */
struct sm_crest {
    int64_t peak[SM_TRACKED_COUNT];
    struct sm_parts at_reserved, at_allocated;
};

/* Which parts are still to be copied for the running peak. */
enum { SM_MARK_RESERVED = 1, SM_MARK_ALLOCATED = 2, SM_MARK_BOTH = 3 };

struct sm_birth {
    uint64_t start;       /* sequence number of the newest interval that was open at birth */
    int64_t count, bytes; /* live blocks with this stamp */
    uint32_t next_free;
};

#define SM_BIRTH_NONE UINT32_MAX

struct sm_stats {
    /* Touched by every alloc and free: kept together. */
    struct sm_flow flow[SM_DOOR_COUNT][SM_SIDE_COUNT];
    struct sm_use peak[SM_KIND_COUNT]; /* of SM_KIND_ALL the tracked ones: running, since the last boundary */
    struct sm_birth *births;
    uint64_t newest_start; /* of the newest open interval; 0 when none is open */
    uint32_t birth_now;
    uint32_t marks;
    uint64_t counters[SM_COUNTER_COUNT]; /* since creation */

    struct sm_level moved[SM_LEVEL_COUNT][SM_KIND_COUNT]; /* block levels stay 0 here */
    bool all_only[SM_LEVEL_COUNT];                        /* moved without a kind: small + large is not all */
    int64_t reserved_running;                             /* running peak of reserved */
    struct sm_parts running_at_reserved, running_at_allocated;
    struct sm_crest total; /* folded, since the last reset of peaks */

    /* Where the sums stood at the last reset of totals. */
    struct sm_flow flow_base[SM_DOOR_COUNT][SM_SIDE_COUNT];
    uint64_t counter_base[SM_COUNTER_COUNT];
    int64_t moved_base[SM_LEVEL_COUNT][SM_KIND_COUNT]; /* current values then */

    const struct sm_parts *parts;
    int device;
    struct sm_level (*view)[SM_KIND_COUNT]; /* what sm_stats_level hands out; filled when read */
    uint32_t birth_capacity, birth_used, birth_free;
    uint64_t sequence; /* of intervals opened so far */
};

/* ---- stats.c */
/* The block levels of one side now. */
struct sm_use sm_stats_use(const struct sm_stats *stats, unsigned side);
/* Current values of the tracked levels, all kinds. */
void sm_stats_tracked(const struct sm_stats *stats, int64_t value[SM_TRACKED_COUNT]);
bool sm_stats_is_block_level(enum sm_level_id level);

/* ---- crest.c */
/* A peak is about to be left: copies the parts that are marked. */
void sm_crest_note(struct sm_stats *stats);
/* Makes *into the higher of both, level by level; the parts go with their peak. Equal peaks: the earlier
 * (*into) stays. */
void sm_crest_merge(struct sm_crest *into, const struct sm_crest *from);
/* A boundary: the running peaks go into everything that is open and start again at the current values. */
void sm_crest_fold(struct sm_stats *stats);
/* Peaks since the last reset := current values, with their parts. Requires: folded. */
void sm_crest_restart(struct sm_stats *stats);

/* ---- births.c */
bool sm_births_init(struct sm_stats *stats);
void sm_births_fini(struct sm_stats *stats);
/* Makes sure that the next sm_births_begin cannot fail. */
bool sm_births_reserve(struct sm_stats *stats);
/* From now on blocks are born in a new interval. Returns: its sequence number. */
uint64_t sm_births_begin(struct sm_stats *stats);
/* The last live block of a slot died and the slot is not the current one. */
void sm_births_give(struct sm_stats *stats, uint32_t birth);

#endif
