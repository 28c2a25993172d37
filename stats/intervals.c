/* SPDX-License-Identifier: Apache-2.0 */
/* intervals: what is open now, phases and windows alike.
 *
 * They stand in one array, oldest first. The crest of an interval is the highest of its own and of all newer
 * ones, because a piece of time is folded into the newest alone. Closing the interval at index i in the
 * middle is right for everybody: the older ones get its pieces by the merge into i - 1, the newer ones never
 * had them. */
#include "stats/internal.h"

#include <string.h>

#define INTERVALS_AT_FIRST 8

void sm_intervals_fini(struct sm_stats *stats)
{
    sm_hostmem_put(stats->intervals, stats->interval_capacity * sizeof *stats->intervals);
    stats->intervals = NULL;
}

bool sm_intervals_reserve(struct sm_stats *stats, unsigned count)
{
    unsigned capacity = stats->interval_capacity ? stats->interval_capacity : INTERVALS_AT_FIRST;
    while (capacity - stats->interval_count < count) {
        if (capacity > UINT32_MAX / 4)
            return false;
        capacity *= 2;
    }
    if (capacity == stats->interval_capacity)
        return true;
    struct sm_interval *intervals = sm_hostmem_resize(
        stats->intervals, stats->interval_capacity * sizeof *intervals, capacity * sizeof *intervals);
    if (!intervals)
        return false;
    stats->intervals = intervals;
    stats->interval_capacity = capacity;
    return true;
}

static struct sm_flow sum_sides(const struct sm_stats *stats, enum sm_door door)
{
    const struct sm_flow *small = &stats->hot.flow[door][SM_SIDE_SMALL],
                         *large = &stats->hot.flow[door][SM_SIDE_LARGE];
    return (struct sm_flow){.count = small->count + large->count,
                            .bytes = small->bytes + large->bytes,
                            .requested = small->requested + large->requested};
}

static void read_counters(const struct sm_stats *stats, uint64_t value[SM_PHASE_COUNTER_COUNT])
{
#define X(name) value[SM_PHASE_COUNTER_##name] = stats->hot.counters[SM_COUNTER_##name];
    SM_PHASE_COUNTERS(X)
#undef X
}

void sm_interval_open(struct sm_stats *stats, struct sm_node *node, int64_t start_ns)
{
    sm_crest_fold(stats); /* what was before belongs to the older ones */
    struct sm_interval *interval = &stats->intervals[stats->interval_count++];
    *interval = (struct sm_interval){
        .start = sm_births_begin(stats),
        .node = node,
        .start_ns = start_ns,
        .allocated = sum_sides(stats, SM_DOOR_ALLOC),
        .freed = sum_sides(stats, SM_DOOR_REQUEST),
    };
    sm_stats_tracked(stats, interval->entry);
    read_counters(stats, interval->counters);
    sm_crest_clear(&interval->crest);
    stats->hot.newest_start = interval->start;
}

void sm_interval_release(struct sm_stats *stats, uint64_t birth, int64_t count, int64_t bytes)
{
    for (unsigned i = stats->interval_count; i > 0 && stats->intervals[i - 1].start > birth; i--) {
        stats->intervals[i - 1].released_count += count;
        stats->intervals[i - 1].released_bytes += bytes;
    }
}

void sm_interval_carried(const struct sm_stats *stats, unsigned index, int64_t *count, int64_t *bytes)
{
    const struct sm_interval *interval = &stats->intervals[index];
    const struct sm_flow allocated = sum_sides(stats, SM_DOOR_ALLOC),
                         freed = sum_sides(stats, SM_DOOR_REQUEST);
    *count = allocated.count - interval->allocated.count - (freed.count - interval->freed.count) +
             interval->released_count;
    *bytes = allocated.bytes - interval->allocated.bytes - (freed.bytes - interval->freed.bytes) +
             interval->released_bytes;
}

void sm_interval_figures(const struct sm_stats *stats, unsigned index, int64_t now_ns,
                         int64_t figure[SM_FIGURE_COUNT], struct sm_crest *crest)
{
    const struct sm_interval *interval = &stats->intervals[index];
    struct sm_crest seen = interval->crest;
    for (unsigned i = index + 1; i < stats->interval_count; i++)
        sm_crest_merge(&seen, &stats->intervals[i].crest);
    if (crest)
        *crest = seen;

    int64_t now[SM_TRACKED_COUNT];
    sm_stats_tracked(stats, now);
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++) {
        figure[sm_figure_level(i, SM_POINT_ENTRY)] = interval->entry[i];
        figure[sm_figure_level(i, SM_POINT_PEAK)] = seen.peak[i];
        figure[sm_figure_level(i, SM_POINT_EXIT)] = now[i];
    }
    memcpy(&figure[SM_FIGURE_at_reserved], seen.at_reserved.bytes, sizeof seen.at_reserved.bytes);
    memcpy(&figure[SM_FIGURE_at_allocated], seen.at_allocated.bytes, sizeof seen.at_allocated.bytes);

    const struct sm_flow allocated = sum_sides(stats, SM_DOOR_ALLOC),
                         freed = sum_sides(stats, SM_DOOR_REQUEST);
    figure[SM_FIGURE_wall_ns] = now_ns - interval->start_ns;
    figure[SM_FIGURE_allocations] = allocated.count - interval->allocated.count;
    figure[SM_FIGURE_allocations + 1] = allocated.bytes - interval->allocated.bytes;
    figure[SM_FIGURE_frees] = freed.count - interval->freed.count;
    figure[SM_FIGURE_frees + 1] = freed.bytes - interval->freed.bytes;
    sm_interval_carried(stats, index, &figure[SM_FIGURE_carried_out], &figure[SM_FIGURE_carried_out + 1]);
    figure[SM_FIGURE_released_in] = interval->released_count;
    figure[SM_FIGURE_released_in + 1] = interval->released_bytes;

    uint64_t counters[SM_PHASE_COUNTER_COUNT];
    read_counters(stats, counters);
    for (unsigned i = 0; i < SM_PHASE_COUNTER_COUNT; i++)
        figure[SM_FIGURE_counters + i] = (int64_t)(counters[i] - interval->counters[i]);
}

void sm_interval_close(struct sm_stats *stats, unsigned index, int64_t now_ns)
{
    int64_t figure[SM_FIGURE_COUNT];
    struct sm_crest seen;
    sm_crest_fold(stats);
    sm_interval_figures(stats, index, now_ns, figure, &seen);

    struct sm_interval *interval = &stats->intervals[index];
    sm_tree_add(interval->node, figure, &seen);
    if (index > 0)
        sm_crest_merge(&stats->intervals[index - 1].crest, &interval->crest);
    memmove(interval, interval + 1, (stats->interval_count - index - 1) * sizeof *interval);
    stats->interval_count--;
    stats->hot.newest_start = stats->interval_count ? stats->intervals[stats->interval_count - 1].start : 0;
}
