/* SPDX-License-Identifier: Apache-2.0 */
/* report: one device as an object. Reading is a boundary: running peaks are folded first, so that every
 * figure is of this instant. The form for people is table.c. docs/statistics.md describes the layout. */
#include "stats/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

double sm_report_ratio(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0.0;
}

int64_t sm_report_allocated_in(const struct sm_parts *parts)
{
    return parts->bytes[SM_PART_requested_live] + parts->bytes[SM_PART_rounding];
}

void sm_report_path(const struct sm_node *node, char path[SM_PATH_MAX])
{
    const struct sm_node *chain[SM_NODE_DEPTH_MAX];
    unsigned depth = 0;
    for (; node->parent; node = node->parent)
        chain[depth++] = node;
    size_t length = 0;
    while (depth-- > 0) {
        const size_t bytes = strlen(chain[depth]->name);
        if (length)
            path[length++] = '/';
        memcpy(path + length, chain[depth]->name, bytes);
        length += bytes;
    }
    path[length] = 0;
}

bool sm_report_open_figures(const struct sm_stats *stats, const struct sm_node *node, unsigned nth,
                            int64_t now_ns, int64_t figure[SM_FIGURE_COUNT])
{
    for (unsigned i = 0; i < stats->interval_count; i++)
        if (stats->intervals[i].node == node && nth-- == 0) {
            sm_interval_figures(stats, i, now_ns, figure, NULL);
            return true;
        }
    return false;
}

/* ---- one device ---- */

static void emit_share(struct sm_emit *emit, const char *name, int64_t part, int64_t whole)
{
    if (whole > 0)
        sm_emit_real(emit, name, sm_report_ratio(part, whole));
    else
        sm_emit_null(emit, name); /* nothing is reserved: there is no share */
}

static void emit_levels(const struct sm_stats *stats, struct sm_emit *emit)
{
    sm_emit_object_open(emit, "levels");
    for (unsigned level = 0; level < SM_LEVEL_COUNT; level++) {
        sm_emit_object_open(emit, sm_level_names[level]);
        const unsigned kinds = sm_stats_has_pools(stats, (enum sm_level_id)level) ? SM_KIND_COUNT : 1;
        for (unsigned kind = 0; kind < kinds; kind++) {
            const struct sm_level *now = sm_stats_level(stats, (enum sm_level_id)level, (enum sm_kind)kind);
            sm_emit_object_open(emit, sm_kind_names[kind]);
            sm_emit_int(emit, "current", now->current, sm_level_units[level]);
            sm_emit_int(emit, "peak", now->peak, sm_level_units[level]);
            sm_emit_int(emit, "in", now->in, sm_level_units[level]);
            sm_emit_int(emit, "out", now->out, sm_level_units[level]);
            sm_emit_object_close(emit);
        }
        sm_emit_object_close(emit);
    }
    sm_emit_object_close(emit);
}

static void emit_counters(const struct sm_stats *stats, struct sm_emit *emit)
{
    sm_emit_object_open(emit, "counters");
    for (unsigned i = 0; i < SM_COUNTER_COUNT; i++)
        sm_emit_int(emit, sm_counter_names[i], (int64_t)sm_stats_counter(stats, (enum sm_counter_id)i),
                    sm_counter_units[i]);
    sm_emit_object_close(emit);
}

static void emit_parts(struct sm_emit *emit, const char *name, const struct sm_parts *parts)
{
    sm_emit_object_open(emit, name);
    for (unsigned i = 0; i < SM_PART_COUNT; i++)
        sm_emit_int(emit, sm_part_names[i], parts->bytes[i], SM_UNIT_BYTES);
    sm_emit_object_close(emit);
}

static void emit_gap(const struct sm_stats *stats, struct sm_emit *emit)
{
    const int64_t reserved = sm_stats_level(stats, SM_LEVEL_reserved_bytes, SM_KIND_ALL)->current;
    emit_parts(emit, "gap", stats->parts);
    sm_emit_object_open(emit, "gap_shares");
    for (unsigned i = 0; i < SM_PART_COUNT; i++)
        emit_share(emit, sm_part_names[i], stats->parts->bytes[i], reserved);
    sm_emit_object_close(emit);
    emit_parts(emit, "gap_at_reserved_peak", &stats->total.at_reserved);
    emit_parts(emit, "gap_at_allocated_peak", &stats->total.at_allocated);

    const int64_t *peak = stats->total.peak;
    emit_share(emit, "utilisation", peak[SM_TRACKED_allocated], peak[SM_TRACKED_reserved]);
    emit_share(emit, "fragmentation", peak[SM_TRACKED_reserved] - peak[SM_TRACKED_allocated],
               peak[SM_TRACKED_reserved]);
    sm_emit_string(emit, "utilisation_note", SM_REPORT_UTILISATION_NOTE);
    emit_share(emit, "utilisation_at_reserved_peak", sm_report_allocated_in(&stats->total.at_reserved),
               peak[SM_TRACKED_reserved]);
}

static void emit_facts(const struct sm_stats *stats, const struct sm_report_facts *facts,
                       struct sm_emit *emit)
{
    sm_emit_int(emit, "device", stats->device, SM_UNIT_COUNT);
    sm_emit_string(emit, "name", facts->device_name);
    sm_emit_string(emit, "policy", facts->policy);
    sm_emit_string(emit, "settings", facts->settings);
    sm_emit_int(emit, "device_bytes", (int64_t)facts->device_bytes, SM_UNIT_BYTES);
    if (facts->limit_bytes == UINT64_MAX)
        sm_emit_null(emit, "limit_bytes");
    else
        sm_emit_int(emit, "limit_bytes", (int64_t)facts->limit_bytes, SM_UNIT_BYTES);
    sm_emit_object_open(emit, "host_memory");
    sm_emit_string(emit, "source", facts->host_memory_source);
    sm_emit_int(emit, "bytes", (int64_t)facts->host_bytes, SM_UNIT_BYTES);
    sm_emit_int(emit, "bytes_peak", (int64_t)facts->host_bytes_peak, SM_UNIT_BYTES);
    sm_emit_object_close(emit);
}

static void emit_external(const struct sm_report_facts *facts, struct sm_emit *emit)
{
    sm_emit_object_open(emit, "external");
    sm_emit_int(emit, "largest_free", (int64_t)facts->largest_free, SM_UNIT_BYTES);
    sm_emit_int(emit, "largest_possible", (int64_t)facts->largest_possible, SM_UNIT_BYTES);
    sm_emit_object_close(emit);
    sm_emit_object_open(emit, "driver_calls");
    for (unsigned i = 0; i < facts->call_count; i++) {
        sm_emit_object_open(emit, facts->calls[i].name);
        sm_emit_int(emit, "calls", (int64_t)facts->calls[i].calls, SM_UNIT_COUNT);
        sm_emit_int(emit, "failures", (int64_t)facts->calls[i].failures, SM_UNIT_COUNT);
        sm_emit_int(emit, "ns", (int64_t)facts->calls[i].ns, SM_UNIT_NS);
        sm_emit_object_close(emit);
    }
    sm_emit_object_close(emit);
}

/* ---- phases ---- */

/* Figures of an entry that is still open (plain numbers), or of all that ended (min, mean, max, last). */
struct source {
    const int64_t *open;
    const struct sm_node *node;
};

static void emit_figure(struct sm_emit *emit, const char *name, enum sm_unit unit, const struct source *from,
                        unsigned index)
{
    if (from->open) {
        sm_emit_int(emit, name, from->open[index], unit);
        return;
    }
    const struct sm_series *series = &from->node->figure[index];
    sm_emit_object_open(emit, name);
    sm_emit_int(emit, "min", series->min, unit);
    sm_emit_real(emit, "mean", series->sum / (double)from->node->count);
    sm_emit_int(emit, "max", series->max, unit);
    sm_emit_int(emit, "last", series->last, unit);
    sm_emit_object_close(emit);
}

/* A count and the bytes that go with it. */
static void emit_pair(struct sm_emit *emit, const char *name, const struct source *from, unsigned index)
{
    sm_emit_object_open(emit, name);
    emit_figure(emit, "count", SM_UNIT_COUNT, from, index);
    emit_figure(emit, "bytes", SM_UNIT_BYTES, from, index + 1);
    sm_emit_object_close(emit);
}

static void emit_figure_parts(struct sm_emit *emit, const char *name, const struct source *from,
                              unsigned first)
{
    sm_emit_object_open(emit, name);
    for (unsigned i = 0; i < SM_PART_COUNT; i++)
        emit_figure(emit, sm_part_names[i], SM_UNIT_BYTES, from, first + i);
    sm_emit_object_close(emit);
}

static void emit_figure_levels(struct sm_emit *emit, const struct source *from, bool of_thread)
{
    static const char *const points[] = {"entry", "peak", "exit"};
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++) {
        if (of_thread && i != SM_TRACKED_allocated && i != SM_TRACKED_requested)
            continue; /* one thread reserves nothing, and what is pending is nobody's */
        sm_emit_object_open(emit, sm_tracked_names[i]);
        for (unsigned point = of_thread ? SM_POINT_PEAK : SM_POINT_ENTRY; point < SM_POINT_COUNT; point++)
            emit_figure(emit, points[point], SM_UNIT_BYTES, from, sm_figure_level(i, point));
        sm_emit_object_close(emit);
    }
}

static void emit_figures(struct sm_emit *emit, const struct source *from, bool of_thread)
{
    emit_figure(emit, "wall_ns", SM_UNIT_NS, from, SM_FIGURE_wall_ns);
    emit_figure_levels(emit, from, of_thread);
    emit_pair(emit, "allocations", from, SM_FIGURE_allocations);
    emit_pair(emit, "frees", from, SM_FIGURE_frees);
    if (!of_thread) {
        emit_figure_parts(emit, "gap_at_reserved_peak", from, SM_FIGURE_at_reserved);
        emit_figure_parts(emit, "gap_at_allocated_peak", from, SM_FIGURE_at_allocated);
        emit_pair(emit, "carried_out", from, SM_FIGURE_carried_out);
        emit_pair(emit, "released_in", from, SM_FIGURE_released_in);
    }
    sm_emit_object_open(emit, "counters");
    for (unsigned i = 0; i < SM_PHASE_COUNTER_COUNT; i++)
        emit_figure(emit, sm_phase_counter_names[i], SM_UNIT_COUNT, from, SM_FIGURE_counters + i);
    sm_emit_object_close(emit);
}

/* The highest over all entries, with the parts at that very instant. */
static void emit_highest(struct sm_emit *emit, const struct sm_crest *highest)
{
    sm_emit_object_open(emit, "highest");
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++)
        sm_emit_int(emit, sm_tracked_names[i], highest->peak[i], SM_UNIT_BYTES);
    emit_parts(emit, "gap_at_reserved_peak", &highest->at_reserved);
    emit_parts(emit, "gap_at_allocated_peak", &highest->at_allocated);
    sm_emit_object_close(emit);
}

static void emit_node(const struct sm_stats *stats, struct sm_emit *emit, const struct sm_node *node,
                      bool of_thread, int64_t now_ns)
{
    char path[SM_PATH_MAX];
    int64_t figure[SM_FIGURE_COUNT] = {0};
    sm_report_path(node, path);
    sm_emit_object_open(emit, NULL);
    sm_emit_string(emit, "path", path);
    sm_emit_string(emit, "name", node->name);
    sm_emit_int(emit, "depth", node->depth - 1, SM_UNIT_COUNT);
    sm_emit_int(emit, "count", (int64_t)node->count, SM_UNIT_COUNT);
    if (node->count) {
        emit_figures(emit, &(struct source){.node = node}, of_thread);
        if (!of_thread)
            emit_highest(emit, &node->highest);
    }
    sm_emit_array_open(emit, "open");
    for (unsigned nth = 0; of_thread ? sm_thread_open_figures(stats, node, nth, now_ns, figure)
                                     : sm_report_open_figures(stats, node, nth, now_ns, figure);
         nth++) {
        sm_emit_object_open(emit, NULL);
        emit_figures(emit, &(struct source){.open = figure}, of_thread);
        sm_emit_object_close(emit);
    }
    sm_emit_array_close(emit);
    sm_emit_object_close(emit);
}

static void emit_tree(const struct sm_stats *stats, struct sm_emit *emit, const char *name,
                      const struct sm_node *root, int64_t now_ns)
{
    sm_emit_array_open(emit, name);
    for (const struct sm_node *node = sm_tree_next(root); node; node = sm_tree_next(node))
        emit_node(stats, emit, node, root == &stats->thread_root, now_ns);
    sm_emit_array_close(emit);
}

void sm_stats_emit(struct sm_stats *stats, const struct sm_report_facts *facts, struct sm_emit *emit,
                   const char *name, int64_t now_ns)
{
    sm_crest_fold(stats);
    if (emit->form == SM_EMIT_TABLE) {
        sm_table_emit(stats, facts, emit, now_ns);
        return;
    }
    sm_emit_object_open(emit, name);
    emit_facts(stats, facts, emit);
    emit_levels(stats, emit);
    emit_counters(stats, emit);
    emit_gap(stats, emit);
    emit_external(facts, emit);
    emit_tree(stats, emit, "phases", &stats->phase_root, now_ns);
    emit_tree(stats, emit, "windows", &stats->window_root, now_ns);
    emit_tree(stats, emit, "thread_phases", &stats->thread_root, now_ns);
    sm_emit_object_close(emit);
}
