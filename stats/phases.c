/* SPDX-License-Identifier: Apache-2.0 */
/* phases: names, nesting and windows; what lies between is the business of intervals.c. */
#include "stats/internal.h"

#include "base/log.h"
#include <string.h>

seam_result sm_phase_name_check(const char *name, struct sm_error *error)
{
    if (!name || !*name)
        return sm_error_set(error, SEAM_E_ARGUMENT,
                            "the name of a phase or window is empty; it needs 1 to %d bytes",
                            SM_PHASE_NAME_MAX);
    if (strnlen(name, SM_PHASE_NAME_MAX + 1) > SM_PHASE_NAME_MAX)
        return sm_error_set(error, SEAM_E_ARGUMENT,
                            "the name \"%.*s...\" of a phase or window is longer than %d bytes",
                            SM_PHASE_NAME_MAX, name, SM_PHASE_NAME_MAX);
    if (strchr(name, '/'))
        return sm_error_set(
            error, SEAM_E_ARGUMENT,
            "the name \"%s\" of a phase or window holds '/', which separates the names of a path: push "
            "one phase for each name",
            name);
    return SEAM_OK;
}

/* Host memory for one more open interval of any name. */
static bool reserve_one(struct sm_stats *stats)
{
    return sm_intervals_reserve(stats, 1) && sm_births_reserve(stats) && sm_tree_reserve(stats);
}

/* Returns: the index of the innermost open phase, or -1. */
static int innermost_phase(const struct sm_stats *stats)
{
    int index = (int)stats->interval_count - 1;
    while (index >= 0 && stats->intervals[index].is_window)
        index--;
    return index;
}

bool sm_stats_phase_reserve(struct sm_stats *stats, const char *name)
{
    (void)name; /* room for a new node is kept whether the name is known or not */
    return reserve_one(stats);
}

void sm_stats_phase_push(struct sm_stats *stats, const char *name, int64_t now_ns)
{
    const int top = innermost_phase(stats);
    struct sm_node *parent = top < 0 ? &stats->phase_root : stats->intervals[top].node;
    sm_interval_open(stats, sm_tree_enter(stats, parent, name), now_ns);
    stats->phase_depth++;
}

void sm_stats_phase_pop(struct sm_stats *stats, int64_t now_ns)
{
    const int top = innermost_phase(stats);
    if (!SM_CHECK(top >= 0))
        return;
    sm_interval_close(stats, (unsigned)top, now_ns);
    stats->phase_depth--;
}

unsigned sm_stats_phase_depth(const struct sm_stats *stats)
{
    return stats->phase_depth;
}

bool sm_stats_window_reserve(struct sm_stats *stats, const char *name)
{
    (void)name;
    return reserve_one(stats);
}

void sm_stats_window_open(struct sm_stats *stats, const char *name, uint64_t window, int64_t now_ns)
{
    sm_interval_open(stats, sm_tree_enter(stats, &stats->window_root, name), now_ns);
    struct sm_interval *interval = &stats->intervals[stats->interval_count - 1];
    interval->is_window = true;
    interval->window = window;
}

bool sm_stats_window_close(struct sm_stats *stats, uint64_t window, int64_t now_ns)
{
    for (unsigned i = stats->interval_count; i-- > 0;)
        if (stats->intervals[i].is_window && stats->intervals[i].window == window) {
            sm_interval_close(stats, i, now_ns);
            return true;
        }
    return false;
}

bool sm_stats_phase_copy_open(struct sm_stats *stats, const struct sm_stats *from)
{
    SM_ASSERT(stats->interval_count == 0 && !stats->hot.threads);
    const unsigned count = from->interval_count;
    /* One birth slot is enough: nothing is born between the opens. */
    if (!sm_intervals_reserve(stats, count) || !sm_births_reserve(stats) ||
        !sm_slab_reserve(&stats->nodes, count + from->frame_slab.count) || !sm_threads_copy(stats, from))
        return false;
    for (unsigned i = 0; i < count; i++) {
        const struct sm_interval *model = &from->intervals[i];
        if (model->is_window)
            sm_stats_window_open(stats, model->node->name, model->window, model->start_ns);
        else
            sm_stats_phase_push(stats, model->node->name, model->start_ns);
    }
    return true;
}
