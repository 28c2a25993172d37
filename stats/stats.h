/* SPDX-License-Identifier: Apache-2.0 */
/* stats: the figures of one device.
 *
 * The engine tells what happened; nothing here decides or calls back. Order of calls: a rise is told *after*
 * the heap has changed, a fall *before* it, so that the parts (base/parts.h, read through the pointer given
 * at creation) still show the instant of a peak when they are copied.
 *
 * Peaks inside phases cost one compare a level on the hit path: there is one running peak for each level; at
 * every boundary (a phase entered or left, a window opened or closed, a report, a reset) it is folded into
 * what is open and starts again at the current value. So a parent's peak is the maximum over its own pieces
 * and never a sum. Parts at a peak: marked when reserved or allocated rises to a new running peak, copied at
 * the first fall of either afterwards, or at a boundary.
 *
 * Thread: all functions with the device's heap lock held, unless said otherwise. Phase functions of all
 * devices are called in one go by the allocator, which holds the phase lock too. */
#ifndef SEAM_STATS_STATS_H
#define SEAM_STATS_STATS_H

#include "base/emit.h"
#include "base/error.h"
#include "base/parts.h"
#include "stats/list.h"
#include <stdbool.h>
#include <stdint.h>

enum sm_level_id {
#define X(name, unit, meaning, moves) SM_LEVEL_##name,
    SM_LEVELS(X)
#undef X
        SM_LEVEL_COUNT
};
enum sm_counter_id {
#define X(name, unit, meaning) SM_COUNTER_##name,
    SM_COUNTERS(X)
#undef X
        SM_COUNTER_COUNT
};
enum sm_kind { SM_KIND_ALL, SM_KIND_SMALL, SM_KIND_LARGE, SM_KIND_COUNT };

struct sm_level {
    int64_t current, peak, in, out;
};

struct sm_stats;

/* What the statistics of a driver call are: filled by alloc/driver, read at report time. */
struct sm_call_stat {
    const char *name;
    uint64_t calls, failures, ns; /* ns: host time spent inside */
};

/* parts: where the heap keeps the device's parts; must live as long as the statistics.
 * Returns: NULL when out of host memory. */
struct sm_stats *sm_stats_create(int device, const struct sm_parts *parts);
void sm_stats_destroy(struct sm_stats *stats);

/* SM_KIND_SMALL or SM_KIND_LARGE for a block of this rounded size. */
static inline enum sm_kind sm_stats_kind(uint64_t rounded);

/* A block was handed out. Returns: the birth stamp to keep in the block (it tells later in which phases it
 * was born). */
static inline uint32_t sm_stats_alloc(struct sm_stats *stats, enum sm_kind kind, uint64_t requested,
                                      uint64_t rounded);
/* Its free was requested / completed (in one go when nothing is pending: call both). Call before the heap
 * changes. */
static inline void sm_stats_free_request(struct sm_stats *stats, enum sm_kind kind, uint64_t requested,
                                         uint64_t rounded, uint32_t birth);
static inline void sm_stats_free_complete(struct sm_stats *stats, enum sm_kind kind, uint64_t requested,
                                          uint64_t rounded);
/* Any other level moved by delta. kind SM_KIND_ALL moves only "all"; else the kind and "all". */
void sm_stats_move(struct sm_stats *stats, enum sm_level_id level, enum sm_kind kind, int64_t delta);
static inline void sm_stats_count(struct sm_stats *stats, enum sm_counter_id counter, uint64_t times);

const struct sm_level *sm_stats_level(const struct sm_stats *stats, enum sm_level_id level,
                                      enum sm_kind kind);
uint64_t sm_stats_counter(const struct sm_stats *stats, enum sm_counter_id counter);

void sm_stats_reset_peaks(struct sm_stats *stats);
void sm_stats_reset_totals(struct sm_stats *stats);

/* ---- phases and windows
 * ------------------------------------------------------------------------------------- The allocator
 * validates names (non-empty, at most 63 bytes, no '/', valid once in sm_phase_name_check) and calls all
 * devices alike; a device created later starts with the phases that are open then: sm_stats_phase_copy_open.
 */

seam_result sm_phase_name_check(const char *name, struct sm_error *error);
/* Reserve, then commit: reserve may fail (host memory) and changes nothing; push after a reserve cannot fail.
 */
bool sm_stats_phase_reserve(struct sm_stats *stats, const char *name);
void sm_stats_phase_push(struct sm_stats *stats, const char *name, int64_t now_ns);
/* Requires: depth > 0. */
void sm_stats_phase_pop(struct sm_stats *stats, int64_t now_ns);
unsigned sm_stats_phase_depth(const struct sm_stats *stats);
/* Opens what is open in another device: phases, windows, thread phases; their time began when it did there.
 * Requires: nothing is open here. Returns: false when out of host memory; then nothing is open here. */
bool sm_stats_phase_copy_open(struct sm_stats *stats, const struct sm_stats *from);

bool sm_stats_window_reserve(struct sm_stats *stats, const char *name);
void sm_stats_window_open(struct sm_stats *stats, const char *name, uint64_t window, int64_t now_ns);
/* Returns: false when no such window is open. */
bool sm_stats_window_close(struct sm_stats *stats, uint64_t window, int64_t now_ns);

/* Phases of one thread: only the calling thread's own requests count, on a stack of its own, so threads do
 * not disturb each other. Figures are of its net bytes since the entry (handed out to it minus freed by it,
 * at the free request), so an exit below 0 says that it freed what others or earlier phases had asked for.
 * The hit path pays one compare while no thread has such a phase open. Paths are aggregated over threads.
 * thread: sm_stats_thread_self() of the thread whose stack it is; the calls for requests must come from it.
 * Reserve, push and pop as for the phases above. pop. Requires: depth of this thread > 0. */
uint64_t sm_stats_thread_self(void);
bool sm_stats_thread_phase_reserve(struct sm_stats *stats, uint64_t thread, const char *name);
void sm_stats_thread_phase_push(struct sm_stats *stats, uint64_t thread, const char *name, int64_t now_ns);
void sm_stats_thread_phase_pop(struct sm_stats *stats, uint64_t thread, int64_t now_ns);
unsigned sm_stats_thread_phase_depth(const struct sm_stats *stats, uint64_t thread);

/* ---- reports ----------------------------------------------------------------------------------------------
 */

/* Facts that only the engine knows, for the report of a device. */
struct sm_report_facts {
    const char *device_name, *policy, *settings, *host_memory_source;
    uint64_t device_bytes, limit_bytes; /* limit: UINT64_MAX for none */
    uint64_t largest_free, largest_possible;
    uint64_t host_bytes, host_bytes_peak;
    const struct sm_call_stat *calls;
    unsigned call_count;
};
/* Writes one device as an object (name NULL inside an array): levels, counters, gap by part with shares, gap
 * at the peak of reserved and of allocated, utilisation and fragmentation with the note that the two peaks
 * are two instants, external figures, driver calls, phases (tree, with min/mean/max/last), windows. Form JSON
 * or table by the emitter. */
void sm_stats_emit(struct sm_stats *stats, const struct sm_report_facts *facts, struct sm_emit *emit,
                   const char *name, int64_t now_ns);

/* One figure by dotted name: "<level>.<all|small_pool|large_pool>.<current|peak|in|out>", "<counter>",
 * "gap.<part>", "gap_at_reserved_peak.<part>", "gap_at_allocated_peak.<part>". Returns: false for a name that
 * is none. */
bool sm_stats_find(struct sm_stats *stats, const char *name, int64_t *value);

/* The identities: current = in - out since creation (kept apart from resettable totals), peak >= current >=
 * 0, small + large = all where both are kept, allocated <= active <= reserved, sum of parts = reserved,
 * requested_live + rounding = allocated, pending = active - allocated, and the open phases' running sums.
 * Returns: SEAM_OK, or SEAM_E_STATE with the first that fails. */
seam_result sm_stats_validate(const struct sm_stats *stats, struct sm_error *error);

#include "stats/hot.h"
#include "stats/share.h"

#endif
