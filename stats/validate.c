/* SPDX-License-Identifier: Apache-2.0 */
/* validate: the identities that hold after every operation. */
#include "stats/internal.h"

#include <inttypes.h>

#define FAIL(error, ...) sm_error_set(error, SEAM_E_STATE, __VA_ARGS__)

static seam_result check_level(const struct sm_stats *stats, enum sm_level_id level, const char *name,
                               struct sm_error *error)
{
    int64_t current[SM_KIND_COUNT];
    for (unsigned kind = 0; kind < SM_KIND_COUNT; kind++) {
        const struct sm_level *now = sm_stats_level(stats, level, (enum sm_kind)kind);
        current[kind] = now->current;
        if (now->current < 0 || now->peak < now->current)
            return FAIL(error, "statistics of device %d: %s.%s: current %" PRId64 " and peak %" PRId64,
                        stats->device, name, sm_kind_names[kind], now->current, now->peak);
        const int64_t base = stats->moved_base[level][kind];
        if (!sm_stats_is_block_level(level) && now->current != base + now->in - now->out)
            return FAIL(error,
                        "statistics of device %d: %s.%s: current %" PRId64 " is not %" PRId64 " + in - out",
                        stats->device, name, sm_kind_names[kind], now->current, base);
    }
    if (!stats->all_only[level] && current[SM_KIND_SMALL] + current[SM_KIND_LARGE] != current[SM_KIND_ALL])
        return FAIL(error, "statistics of device %d: %s: small_pool and large_pool do not add up to all",
                    stats->device, name);
    return SEAM_OK;
}

static seam_result check_parts(const struct sm_stats *stats, struct sm_error *error)
{
    int64_t level[SM_TRACKED_COUNT], sum = 0, requested_live = 0;
    sm_stats_tracked(stats, level);
    for (unsigned side = 0; side < SM_SIDE_COUNT; side++)
        requested_live +=
            stats->hot.flow[SM_DOOR_ALLOC][side].requested - stats->hot.flow[SM_DOOR_REQUEST][side].requested;

    const int64_t *part = stats->parts->bytes;
    for (unsigned i = 0; i < SM_PART_COUNT; i++) {
        if (part[i] < 0)
            return FAIL(error, "statistics of device %d: part %u of the gap is negative: %" PRId64,
                        stats->device, i, part[i]);
        sum += part[i];
    }
    const int64_t allocated = level[SM_TRACKED_allocated], active = level[SM_TRACKED_active],
                  reserved = level[SM_TRACKED_reserved];
    const struct {
        const char *what;
        int64_t left, right;
    } equal[] = {
        {"the sum of the parts and reserved", sum, reserved},
        {"requested_live of the heap and of the statistics", part[SM_PART_requested_live], requested_live},
        {"requested_live + rounding and allocated", part[SM_PART_requested_live] + part[SM_PART_rounding],
         allocated},
        {"pending and active - allocated", part[SM_PART_pending], active - allocated},
    };
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++)
        if (equal[i].left != equal[i].right)
            return FAIL(error, "statistics of device %d: %s differ: %" PRId64 " and %" PRId64, stats->device,
                        equal[i].what, equal[i].left, equal[i].right);
    if (allocated > active || active > reserved)
        return FAIL(error,
                    "statistics of device %d: allocated <= active <= reserved does not hold: %" PRId64
                    ", %" PRId64 ", %" PRId64,
                    stats->device, allocated, active, reserved);
    return SEAM_OK;
}

/* Every live block is in one birth slot. */
static seam_result check_births(const struct sm_stats *stats, struct sm_error *error)
{
    int64_t count = 0, bytes = 0;
    for (uint32_t i = 0; i < stats->birth_used; i++) {
        if (stats->hot.births[i].count < 0 || stats->hot.births[i].bytes < 0)
            return FAIL(error, "statistics of device %d: more blocks died than were born in slot %" PRIu32,
                        stats->device, i);
        count += stats->hot.births[i].count;
        bytes += stats->hot.births[i].bytes;
    }
    const struct sm_use small = sm_stats_use(stats, SM_SIDE_SMALL),
                        large = sm_stats_use(stats, SM_SIDE_LARGE);
    if (count != small.allocation + large.allocation || bytes != small.allocated + large.allocated)
        return FAIL(error,
                    "statistics of device %d: the birth slots hold %" PRId64 " blocks of %" PRId64
                    " bytes, allocated are %" PRId64 " of %" PRId64,
                    stats->device, count, bytes, small.allocation + large.allocation,
                    small.allocated + large.allocated);
    return SEAM_OK;
}

/* The bytes carried out of each open interval, counted from the slots, are what its running sums say. */
static seam_result check_intervals(const struct sm_stats *stats, struct sm_error *error)
{
    uint64_t newest = 0;
    unsigned phases = 0;
    for (unsigned i = 0; i < stats->interval_count; i++) {
        const struct sm_interval *interval = &stats->intervals[i];
        int64_t count = 0, bytes = 0, said_count, said_bytes;
        if (interval->start <= newest)
            return FAIL(error, "statistics of device %d: open interval %u is not younger than the one before",
                        stats->device, i);
        newest = interval->start;
        phases += !interval->is_window;
        for (uint32_t b = 0; b < stats->birth_used; b++)
            if (stats->hot.births[b].start >= interval->start) {
                count += stats->hot.births[b].count;
                bytes += stats->hot.births[b].bytes;
            }
        sm_interval_carried(stats, i, &said_count, &said_bytes);
        if (count != said_count || bytes != said_bytes)
            return FAIL(error,
                        "statistics of device %d: %s \"%s\" would carry out %" PRId64 " blocks of %" PRId64
                        " bytes, its sums say %" PRId64 " of %" PRId64,
                        stats->device, interval->is_window ? "window" : "phase", interval->node->name, count,
                        bytes, said_count, said_bytes);
    }
    if (newest != stats->hot.newest_start || phases != stats->phase_depth)
        return FAIL(error, "statistics of device %d: the list of open phases is not what the hit path knows",
                    stats->device);
    return SEAM_OK;
}

/* The running peaks are not below what they run over. */
static seam_result check_running(const struct sm_stats *stats, struct sm_error *error)
{
    int64_t now[SM_TRACKED_COUNT];
    sm_stats_tracked(stats, now);
    const int64_t running[SM_TRACKED_COUNT] = {
        [SM_TRACKED_allocated] = stats->hot.peak[SM_KIND_ALL].allocated,
        [SM_TRACKED_requested] = stats->hot.peak[SM_KIND_ALL].requested,
        [SM_TRACKED_active] = stats->hot.peak[SM_KIND_ALL].active_bytes,
        [SM_TRACKED_reserved] = stats->reserved_running,
    };
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++)
        if (running[i] < now[i])
            return FAIL(error,
                        "statistics of device %d: running peak %u is %" PRId64 " and the level %" PRId64,
                        stats->device, i, running[i], now[i]);
    return SEAM_OK;
}

seam_result sm_stats_validate(const struct sm_stats *stats, struct sm_error *error)
{
    seam_result result = SEAM_OK;
#define X(name, unit, meaning, moves)                                                                        \
    if (!result)                                                                                             \
        result = check_level(stats, SM_LEVEL_##name, #name, error);
    SM_LEVELS(X)
#undef X
    if (!result)
        result = check_parts(stats, error);
    if (!result)
        result = check_births(stats, error);
    if (!result)
        result = check_intervals(stats, error);
    if (!result)
        result = check_running(stats, error);
    return result;
}
