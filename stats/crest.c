/* SPDX-License-Identifier: Apache-2.0 */
/* crest: exact peaks of stretches of time, and the parts of reserved memory at them.
 *
 * Time is cut at boundaries. Between two of them the hit path keeps one running peak a level; at a boundary
 * the piece's crest is merged into whatever covers it, and the next piece starts at the current values. */
#include "stats/internal.h"

void sm_crest_note(struct sm_stats *stats)
{
    if (stats->hot.marks & SM_MARK_RESERVED)
        stats->running_at_reserved = *stats->parts;
    if (stats->hot.marks & SM_MARK_ALLOCATED)
        stats->running_at_allocated = *stats->parts;
    stats->hot.marks = 0;
}

void sm_crest_clear(struct sm_crest *crest)
{
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++)
        crest->peak[i] = INT64_MIN;
}

void sm_crest_merge(struct sm_crest *into, const struct sm_crest *from)
{
    if (from->peak[SM_TRACKED_reserved] > into->peak[SM_TRACKED_reserved])
        into->at_reserved = from->at_reserved;
    if (from->peak[SM_TRACKED_allocated] > into->peak[SM_TRACKED_allocated])
        into->at_allocated = from->at_allocated;
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++)
        if (from->peak[i] > into->peak[i])
            into->peak[i] = from->peak[i];
}

/* A new piece of time begins: the running peaks are the current values. */
static void start_piece(struct sm_stats *stats)
{
    int64_t now[SM_TRACKED_COUNT];
    sm_stats_tracked(stats, now);
    stats->hot.peak[SM_KIND_ALL].allocated = now[SM_TRACKED_allocated];
    stats->hot.peak[SM_KIND_ALL].requested = now[SM_TRACKED_requested];
    stats->hot.peak[SM_KIND_ALL].active_bytes = now[SM_TRACKED_active];
    stats->reserved_running = now[SM_TRACKED_reserved];
    stats->hot.marks = SM_MARK_BOTH;
}

void sm_crest_fold(struct sm_stats *stats)
{
    if (stats->hot.marks)
        sm_crest_note(stats);
    const struct sm_crest piece = {
        .peak = {[SM_TRACKED_allocated] = stats->hot.peak[SM_KIND_ALL].allocated,
                 [SM_TRACKED_requested] = stats->hot.peak[SM_KIND_ALL].requested,
                 [SM_TRACKED_active] = stats->hot.peak[SM_KIND_ALL].active_bytes,
                 [SM_TRACKED_reserved] = stats->reserved_running},
        .at_reserved = stats->running_at_reserved,
        .at_allocated = stats->running_at_allocated,
    };
    sm_crest_merge(&stats->total, &piece);
    if (stats->interval_count)
        sm_crest_merge(&stats->intervals[stats->interval_count - 1].crest, &piece);
    start_piece(stats);
}

void sm_crest_restart(struct sm_stats *stats)
{
    sm_crest_clear(&stats->total);
}
