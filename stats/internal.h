/* SPDX-License-Identifier: Apache-2.0 */
/* internal: what the files of this room share.
 *
 * Three ideas keep the hit path short.
 * 1. *Flows* (hot.h). Running sums at the three doors that a block passes, of which block levels, totals and
 * what happened inside a phase are differences. A reset only remembers where the sums stood.
 * 2. *Crests*. One running peak a level since the last boundary, with the parts at it. Boundaries fold it.
 *    Open phases and windows stand in one array by age. A piece of time is folded into the newest only; one
 * that closes has seen what the newer ones saw, and hands its own crest to the next older. So a nested phase
 * costs O(1) at its boundaries and a window O(what is newer and still open).
 * 3. *Births*. A block's stamp is the index of a slot that says since which interval blocks of this slot are
 * born. A slot lives as long as its blocks, so stamps never wrap.
 *
 * Thread: the device's heap lock protects everything here. */
#ifndef SEAM_STATS_INTERNAL_H
#define SEAM_STATS_INTERNAL_H

#include "base/hostmem.h"
#include "stats/stats.h"
#include <bsd/sys/tree.h>
#include <sys/queue.h>

/* The levels that phases follow. X(name in a phase, level) */
#define SM_TRACKED(X)                                                                                        \
    X(requested, requested_bytes)                                                                            \
    X(allocated, allocated_bytes)                                                                            \
    X(active, active_bytes)                                                                                  \
    X(reserved, reserved_bytes)

enum sm_tracked {
#define X(name, level) SM_TRACKED_##name,
    SM_TRACKED(X)
#undef X
        SM_TRACKED_COUNT
};

/* The highest values of a stretch of time. */
struct sm_crest {
    int64_t peak[SM_TRACKED_COUNT];
    struct sm_parts at_reserved, at_allocated;
};

#define SM_BIRTH_NONE UINT32_MAX

/* ---- phases ---- */

/* Counters whose deltas phases keep. */
#define SM_PHASE_COUNTERS(X)                                                                                 \
    X(hits)                                                                                                  \
    X(view_hits)                                                                                             \
    X(misses)                                                                                                \
    X(stitches)                                                                                              \
    X(borrows)                                                                                               \
    X(growths)                                                                                               \
    X(trims)                                                                                                 \
    X(num_alloc_retries)                                                                                     \
    X(fence_waits)                                                                                           \
    X(event_waits)

enum sm_phase_counter {
#define X(name) SM_PHASE_COUNTER_##name,
    SM_PHASE_COUNTERS(X)
#undef X
        SM_PHASE_COUNTER_COUNT
};

enum { SM_POINT_ENTRY, SM_POINT_PEAK, SM_POINT_EXIT, SM_POINT_COUNT };

/* What one entry of a phase is described by: an array of numbers, so that min, mean, max and last are one
 * loop. */
enum sm_figure {
    SM_FIGURE_wall_ns,
    SM_FIGURE_levels, /* + tracked level * SM_POINT_COUNT + point */
    SM_FIGURE_at_reserved = SM_FIGURE_levels + SM_TRACKED_COUNT * SM_POINT_COUNT, /* + part */
    SM_FIGURE_at_allocated = SM_FIGURE_at_reserved + SM_PART_COUNT,               /* + part */
    SM_FIGURE_allocations = SM_FIGURE_at_allocated + SM_PART_COUNT, /* here and below: count, then bytes */
    SM_FIGURE_frees = SM_FIGURE_allocations + 2,
    SM_FIGURE_carried_out = SM_FIGURE_frees + 2,
    SM_FIGURE_released_in = SM_FIGURE_carried_out + 2,
    SM_FIGURE_counters = SM_FIGURE_released_in + 2, /* + phase counter */
    SM_FIGURE_COUNT = SM_FIGURE_counters + SM_PHASE_COUNTER_COUNT
};

static inline unsigned sm_figure_level(unsigned tracked, unsigned point)
{
    return SM_FIGURE_levels + tracked * SM_POINT_COUNT + point;
}

/* One figure over all entries. */
struct sm_series {
    int64_t min, max, last;
    double sum;
};

#define SM_PHASE_NAME_MAX  63
#define SM_NODE_DEPTH_MAX  64   /* deeper paths are counted under "(other)" */
#define SM_NODES_MAX       4096 /* so are new paths beyond this many a device */
#define SM_NODE_OTHER_NAME "(other)"

/* One path in a tree of phases. */
struct sm_node {
    struct sm_node *parent; /* NULL for a root */
    RB_ENTRY(sm_node) by_name;
    TAILQ_HEAD(sm_node_list, sm_node) children; /* in the order of their first entry */
    TAILQ_ENTRY(sm_node) sibling;
    char name[SM_PHASE_NAME_MAX + 1];
    unsigned depth; /* 0 for a root */
    uint64_t count; /* entries that ended */
    struct sm_series figure[SM_FIGURE_COUNT];
    struct sm_crest highest; /* over all entries that ended */
};
RB_HEAD(sm_node_tree, sm_node);

/* An open phase or window. */
struct sm_interval {
    uint64_t start; /* sequence number */
    struct sm_node *node;
    bool is_window;
    uint64_t window;
    int64_t start_ns;
    int64_t entry[SM_TRACKED_COUNT];
    struct sm_crest crest;           /* while this was the newest; of it, of closed newer ones */
    struct sm_flow allocated, freed; /* sums at the two doors at entry */
    uint64_t counters[SM_PHASE_COUNTER_COUNT];
    int64_t released_count, released_bytes; /* born before, freed inside */
};

struct sm_stats {
    struct sm_stats_hot hot;                              /* first: hot.h finds it there */
    struct sm_level moved[SM_LEVEL_COUNT][SM_KIND_COUNT]; /* block levels stay 0 here */
    bool all_only[SM_LEVEL_COUNT];                        /* moved without a kind: small + large is not all */
    int64_t reserved_running;                             /* running peak of reserved */
    struct sm_parts running_at_reserved, running_at_allocated;
    struct sm_crest total;                 /* folded, since the last reset of peaks */
    struct sm_flow granted[SM_KIND_COUNT]; /* to the open shares */
    struct sm_spread spread_granted;

    /* Where the sums stood at the last reset of totals. */
    struct sm_flow flow_base[SM_DOOR_COUNT][SM_SIDE_COUNT];
    uint64_t counter_base[SM_COUNTER_COUNT];
    int64_t moved_base[SM_LEVEL_COUNT][SM_KIND_COUNT]; /* current values then */

    const struct sm_parts *parts;
    int device;
    struct sm_level (*view)[SM_KIND_COUNT]; /* what sm_stats_level hands out; filled when read */
    uint32_t birth_capacity, birth_used, birth_free;
    uint64_t sequence; /* of intervals opened so far */

    struct sm_interval *intervals; /* open ones, oldest first */
    unsigned interval_count, interval_capacity;
    unsigned phase_depth; /* intervals that are no windows */
    struct sm_slab nodes;
    struct sm_node_tree nodes_by_name;
    struct sm_node phase_root, window_root, thread_root;
    struct sm_slab thread_slab, frame_slab;
};

/* ---- names.c */
extern const char *const sm_level_names[SM_LEVEL_COUNT];
extern const enum sm_unit sm_level_units[SM_LEVEL_COUNT];
extern const char *const sm_counter_names[SM_COUNTER_COUNT];
extern const enum sm_unit sm_counter_units[SM_COUNTER_COUNT];
extern const char *const sm_part_names[SM_PART_COUNT];
extern const char *const sm_part_helps[SM_PART_COUNT];
extern const char *const sm_kind_names[SM_KIND_COUNT];
extern const char *const sm_tracked_names[SM_TRACKED_COUNT];
extern const char *const sm_phase_counter_names[SM_PHASE_COUNTER_COUNT];

/* ---- stats.c */
/* The block levels of one side now. */
struct sm_use sm_stats_use(const struct sm_stats *stats, unsigned side);
/* Current values of the tracked levels, all kinds. */
void sm_stats_tracked(const struct sm_stats *stats, int64_t value[SM_TRACKED_COUNT]);
bool sm_stats_is_block_level(enum sm_level_id level);
/* Whether small_pool and large_pool say something: PyTorch's levels are kept by pool unless one was moved for
 * all only; what follows them in the list are objects of the driver. */
bool sm_stats_has_pools(const struct sm_stats *stats, enum sm_level_id level);

/* ---- crest.c */
/* No piece of time yet. */
void sm_crest_clear(struct sm_crest *crest);
/* Makes *into the higher of both, level by level; the parts go with their peak. Equal peaks: the earlier
 * (*into) stays. */
void sm_crest_merge(struct sm_crest *into, const struct sm_crest *from);
/* A boundary: the running peaks go into everything that is open and start again at the current values. */
void sm_crest_fold(struct sm_stats *stats);
/* Forgets the peaks since the last reset: the next fold brings the current values. Requires: folded. */
void sm_crest_restart(struct sm_stats *stats);

/* ---- births.c */
bool sm_births_init(struct sm_stats *stats);
void sm_births_fini(struct sm_stats *stats);
/* Makes sure that the next sm_births_begin cannot fail. */
bool sm_births_reserve(struct sm_stats *stats);
/* From now on blocks are born in a new interval. Returns: its sequence number. */
uint64_t sm_births_begin(struct sm_stats *stats);

/* ---- tree.c */
void sm_tree_init(struct sm_stats *stats);
void sm_tree_fini(struct sm_stats *stats);
/* Makes sure that the next sm_tree_enter cannot fail. */
bool sm_tree_reserve(struct sm_stats *stats);
/* The child of that name, made when it is new; the root's "(other)" where there are too many paths. Never
 * NULL. Requires: reserved, or known that the child exists. */
struct sm_node *sm_tree_enter(struct sm_stats *stats, struct sm_node *parent, const char *name);
/* An entry has ended: its figures and its peaks. */
void sm_tree_add(struct sm_node *node, const int64_t figure[SM_FIGURE_COUNT], const struct sm_crest *crest);
/* The node after this one, parents before children. Returns: NULL after the last. node may be a root. */
struct sm_node *sm_tree_next(const struct sm_node *node);

/* ---- intervals.c */
void sm_intervals_fini(struct sm_stats *stats);
/* Makes sure that the next `count` opens cannot fail. */
bool sm_intervals_reserve(struct sm_stats *stats, unsigned count);
void sm_interval_open(struct sm_stats *stats, struct sm_node *node, int64_t start_ns);
void sm_interval_close(struct sm_stats *stats, unsigned index, int64_t now_ns);
/* What an open interval has seen so far. Requires: folded (sm_crest_fold). crest may be NULL. */
void sm_interval_figures(const struct sm_stats *stats, unsigned index, int64_t now_ns,
                         int64_t figure[SM_FIGURE_COUNT], struct sm_crest *crest);
/* What was born inside and lives. */
void sm_interval_carried(const struct sm_stats *stats, unsigned index, int64_t *count, int64_t *bytes);

/* ---- threads.c: alloc, free, count: only while stats->threads is not NULL */
void sm_threads_init(struct sm_stats *stats);
void sm_threads_fini(struct sm_stats *stats);
/* The figures so far of the nth open entry of this node. Returns: false when there are not so many. */
bool sm_thread_open_figures(const struct sm_stats *stats, const struct sm_node *node, unsigned nth,
                            int64_t now_ns, int64_t figure[SM_FIGURE_COUNT]);
/* Copies the open stacks of all threads. Requires: nodes for all of them reserved. Returns: false when out of
 * host memory, with none of them copied. */
bool sm_threads_copy(struct sm_stats *stats, const struct sm_stats *from);

/* ---- report.c */
#define SM_PATH_MAX                (SM_NODE_DEPTH_MAX * (SM_PHASE_NAME_MAX + 1))
#define SM_REPORT_UTILISATION_NOTE "peak allocated / peak reserved: two instants"
/* part / whole; 0 where whole is 0. */
double sm_report_ratio(int64_t part, int64_t whole);
/* Allocated bytes at the instant of these parts. */
int64_t sm_report_allocated_in(const struct sm_parts *parts);
/* "step/forward/layer3". */
void sm_report_path(const struct sm_node *node, char path[SM_PATH_MAX]);
/* As sm_thread_open_figures, of phases and windows. Requires: folded. */
bool sm_report_open_figures(const struct sm_stats *stats, const struct sm_node *node, unsigned nth,
                            int64_t now_ns, int64_t figure[SM_FIGURE_COUNT]);

/* ---- table.c */
void sm_table_emit(const struct sm_stats *stats, const struct sm_report_facts *facts, struct sm_emit *emit,
                   int64_t now_ns);

#endif
