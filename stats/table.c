/* SPDX-License-Identifier: Apache-2.0 */
/* table: one device for people, within 110 columns. A row is put together cell by cell in a buffer on the
 * stack, so that a report needs no memory. Bytes are MiB. */
#include "stats/internal.h"

#include "base/align.h"
#include "base/number.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ROW_MAX 512

struct row {
    char text[ROW_MAX];
    size_t length;
};

static void add_byte(struct row *row, char byte)
{
    if (row->length + 1 < sizeof row->text)
        row->text[row->length++] = byte;
}

/* A name in a column of its own, cut with '~' when it is wider. Columns are counted in UTF-8 characters;
 * control characters become '?', so that a name cannot break the table. */
static void add_name(struct row *row, unsigned indent, const char *name, unsigned width)
{
    unsigned column = 0;
    for (; column < indent && column + 1 < width; column++)
        add_byte(row, ' ');
    for (const char *s = name; *s; s++) {
        const bool more = ((unsigned char)*s & 0xC0) == 0x80;
        if (!more && column + 2 > width) {
            add_byte(row, '~');
            column++;
            break;
        }
        add_byte(row, (unsigned char)*s < 0x20 || *s == 0x7F ? '?' : *s);
        column += !more;
    }
    for (; column < width; column++)
        add_byte(row, ' ');
}

__attribute__((format(printf, 3, 4))) static void add_cell(struct row *row, unsigned width,
                                                           const char *format, ...)
{
    char text[64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (size_t length = strlen(text); length < width; length++)
        add_byte(row, ' ');
    for (const char *s = text; *s; s++)
        add_byte(row, *s);
}

/* MiB. Narrow columns (below 8) hold 6 characters up to 976 GiB: fewer decimals for larger numbers. */
static void add_mib(struct row *row, unsigned width, double bytes)
{
    char text[SM_NUMBER_TEXT_MAX];
    const double mib = bytes / (double)SM_MIB, size = fabs(mib);
    const int decimals = size == 0                                  ? 0
                         : size < 0.01                              ? 4
                         : size < 100                               ? 2
                         : size < (width && width < 8 ? 1000 : 1e6) ? 1
                                                                    : 0;
    add_cell(row, width, "%s", sm_number_fixed(text, sizeof text, mib, decimals));
}

static void add_fixed(struct row *row, unsigned width, double value, int decimals)
{
    char text[SM_NUMBER_TEXT_MAX];
    add_cell(row, width, "%s", sm_number_fixed(text, sizeof text, value, decimals));
}

/* A count over entries: whole numbers as such. */
static void add_mean_count(struct row *row, unsigned width, double value)
{
    add_fixed(row, width, value, value == floor(value) || value >= 1000 ? 0 : 1);
}

static void add_share(struct row *row, unsigned width, int64_t part, int64_t whole)
{
    if (whole > 0)
        add_fixed(row, width, 100 * sm_report_ratio(part, whole), 1);
    else
        add_cell(row, width, "-");
}

static void end_row(struct row *row, struct sm_emit *emit)
{
    while (row->length && row->text[row->length - 1] == ' ')
        row->length--;
    row->text[row->length] = 0;
    sm_emit_line(emit, "%s", row->text);
    row->length = 0;
}

/* ---- one device ---- */

static void table_head(const struct sm_stats *stats, const struct sm_report_facts *facts,
                       struct sm_emit *emit)
{
    struct row row = {0};
    add_cell(&row, 0, "device %d: ", stats->device);
    add_cell(&row, 0, "%s", facts->device_name ? facts->device_name : "unavailable");
    add_cell(&row, 0, ", policy ");
    add_cell(&row, 0, "%s", facts->policy ? facts->policy : "unavailable");
    add_cell(&row, 0, ", ");
    add_mib(&row, 0, (double)facts->device_bytes);
    add_cell(&row, 0, " MiB, limit ");
    if (facts->limit_bytes == UINT64_MAX)
        add_cell(&row, 0, "none");
    else
        add_mib(&row, 0, (double)facts->limit_bytes);
    end_row(&row, emit);
    if (facts->settings && *facts->settings)
        sm_emit_line(emit, "settings %s", facts->settings);
    sm_emit_line(emit, "%s", "");
}

static void table_levels(const struct sm_stats *stats, struct sm_emit *emit)
{
    struct row row = {0};
    add_name(&row, 0, "levels (bytes in MiB)", 24);
    for (const char *const *title =
             (const char *const[]){"current", "peak", "in", "out", "small peak", "large peak", NULL};
         *title; title++)
        add_cell(&row, 13, "%s", *title);
    end_row(&row, emit);
    for (unsigned i = 0; i < SM_LEVEL_COUNT; i++) {
        const enum sm_level_id level = (enum sm_level_id)i;
        const struct sm_level now = *sm_stats_level(stats, level, SM_KIND_ALL);
        const int64_t cell[] = {now.current,
                                now.peak,
                                now.in,
                                now.out,
                                sm_stats_level(stats, level, SM_KIND_SMALL)->peak,
                                sm_stats_level(stats, level, SM_KIND_LARGE)->peak};
        add_name(&row, 0, sm_level_names[i], 24);
        for (unsigned c = 0; c < (sm_stats_has_pools(stats, level) ? 6 : 4); c++)
            if (sm_level_units[i] == SM_UNIT_BYTES)
                add_mib(&row, 13, (double)cell[c]);
            else
                add_cell(&row, 13, "%" PRId64, cell[c]);
        end_row(&row, emit);
    }
    sm_emit_line(emit, "%s", "");
}

static void table_gap(const struct sm_stats *stats, struct sm_emit *emit)
{
    const struct sm_parts *const at[] = {stats->parts, &stats->total.at_reserved, &stats->total.at_allocated};
    int64_t reserved[3] = {0};
    struct row row = {0};
    add_name(&row, 0, "reserved, by use", 18);
    add_cell(&row, 9, "MiB now");
    add_cell(&row, 6, "%%");
    add_cell(&row, 13, "at peak res.");
    add_cell(&row, 6, "%%");
    add_cell(&row, 13, "at peak all.");
    add_cell(&row, 6, "%%");
    add_cell(&row, 0, "  what helps");
    end_row(&row, emit);
    for (unsigned a = 0; a < 3; a++)
        for (unsigned i = 0; i < SM_PART_COUNT; i++)
            reserved[a] += at[a]->bytes[i];
    for (unsigned i = 0; i < SM_PART_COUNT; i++) {
        add_name(&row, 0, sm_part_names[i], 18);
        for (unsigned a = 0; a < 3; a++) {
            add_mib(&row, a ? 13 : 9, (double)at[a]->bytes[i]);
            add_share(&row, 6, at[a]->bytes[i], reserved[a]);
        }
        add_cell(&row, 0, "  %s", sm_part_helps[i]);
        end_row(&row, emit);
    }
    add_name(&row, 0, "= reserved", 18);
    for (unsigned a = 0; a < 3; a++) {
        add_mib(&row, a ? 13 : 9, (double)reserved[a]);
        add_share(&row, 6, reserved[a], reserved[a]);
    }
    end_row(&row, emit);

    const int64_t *peak = stats->total.peak;
    add_cell(&row, 0, "utilisation ");
    add_share(&row, 0, peak[SM_TRACKED_allocated], peak[SM_TRACKED_reserved]);
    add_cell(&row, 0, " %% (" SM_REPORT_UTILISATION_NOTE "); ");
    add_cell(&row, 0, "at the peak of reserved ");
    add_share(&row, 0, sm_report_allocated_in(&stats->total.at_reserved), peak[SM_TRACKED_reserved]);
    add_cell(&row, 0, " %%");
    end_row(&row, emit);
    sm_emit_line(emit, "%s", "");
}

/* Four a line, and only what happened. */
static void table_counters(const struct sm_stats *stats, struct sm_emit *emit)
{
    struct row row = {0};
    unsigned shown = 0;
    sm_emit_line(emit, "counters (those that are not 0)");
    for (unsigned i = 0; i < SM_COUNTER_COUNT; i++) {
        const uint64_t value = sm_stats_counter(stats, (enum sm_counter_id)i);
        if (!value)
            continue;
        if (shown && shown % 3 == 0)
            end_row(&row, emit);
        add_name(&row, shown % 3 ? 2 : 0, sm_counter_names[i], 24);
        add_cell(&row, 10, "%" PRIu64, value);
        shown++;
    }
    if (row.length)
        end_row(&row, emit);
    sm_emit_line(emit, "%s", "");
}

static void table_external(const struct sm_report_facts *facts, struct sm_emit *emit)
{
    struct row row = {0};
    add_cell(&row, 0, "largest free range ");
    add_mib(&row, 0, (double)facts->largest_free);
    add_cell(&row, 0, " MiB, largest request that could be served ");
    add_mib(&row, 0, (double)facts->largest_possible);
    add_cell(&row, 0, " MiB");
    end_row(&row, emit);
    add_cell(&row, 0, "host memory (%.24s) ",
             facts->host_memory_source ? facts->host_memory_source : "unavailable");
    add_mib(&row, 0, (double)facts->host_bytes);
    add_cell(&row, 0, " MiB, peak ");
    add_mib(&row, 0, (double)facts->host_bytes_peak);
    add_cell(&row, 0, " MiB");
    end_row(&row, emit);
    sm_emit_line(emit, "%s", "");

    add_name(&row, 0, "driver calls", 32);
    add_cell(&row, 12, "calls");
    add_cell(&row, 12, "failures");
    add_cell(&row, 14, "ms");
    end_row(&row, emit);
    for (unsigned i = 0; i < facts->call_count; i++) {
        if (!facts->calls[i].calls)
            continue;
        add_name(&row, 0, facts->calls[i].name, 32);
        add_cell(&row, 12, "%" PRIu64, facts->calls[i].calls);
        add_cell(&row, 12, "%" PRIu64, facts->calls[i].failures);
        add_fixed(&row, 14, (double)facts->calls[i].ns / 1e6, 3);
        end_row(&row, emit);
    }
}

/* ---- phases ---- */

/* What a row of a phase shows: means over the entries that ended; of a phase that never ended, its newest
 * open entry. */
struct shown {
    char name[SM_PHASE_NAME_MAX + 2]; /* with '*' when an entry is open */
    double mean[SM_FIGURE_COUNT];
    struct sm_crest highest;
    int64_t highest_net[SM_TRACKED_COUNT]; /* of thread phases: highest peaks */
};

static bool open_figures(const struct sm_stats *stats, const struct sm_node *node, bool of_thread,
                         unsigned nth, int64_t now_ns, int64_t figure[SM_FIGURE_COUNT])
{
    return of_thread ? sm_thread_open_figures(stats, node, nth, now_ns, figure)
                     : sm_report_open_figures(stats, node, nth, now_ns, figure);
}

/* Returns: false when there is nothing to show. */
static bool show_node(const struct sm_stats *stats, const struct sm_node *node, bool of_thread,
                      int64_t now_ns, struct shown *shown)
{
    int64_t figure[SM_FIGURE_COUNT] = {0};
    unsigned open = 0;
    while (open_figures(stats, node, of_thread, open, now_ns, figure))
        open++;
    if (!open && !node->count)
        return false;
    snprintf(shown->name, sizeof shown->name, "%s%s", node->name, open ? "*" : "");
    shown->highest = node->highest;
    for (unsigned i = 0; i < SM_FIGURE_COUNT; i++)
        shown->mean[i] = node->count ? node->figure[i].sum / (double)node->count : (double)figure[i];
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++) {
        const unsigned peak = sm_figure_level(i, SM_POINT_PEAK);
        shown->highest_net[i] = node->count ? node->figure[peak].max : figure[peak];
    }
    if (!node->count && !of_thread) {
        memcpy(shown->highest.peak, shown->highest_net, sizeof shown->highest.peak);
        memcpy(&shown->highest.at_reserved, &figure[SM_FIGURE_at_reserved],
               sizeof shown->highest.at_reserved);
    }
    return true;
}

#define NAME_COLUMNS 19

static void add_phase_name(struct row *row, const struct sm_node *node, const struct shown *shown)
{
    add_name(row, node->depth - 1, shown->name, NAME_COLUMNS);
    add_cell(row, 5, "%" PRIu64, node->count);
}

static void title_levels(struct row *row, struct sm_emit *emit)
{
    add_name(row, 0, "", NAME_COLUMNS + 5);
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++)
        add_cell(row, 21, "%s", sm_tracked_names[i]);
    end_row(row, emit);
    add_name(row, 0, "", NAME_COLUMNS);
    add_cell(row, 5, "times");
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++) {
        add_cell(row, 7, "entry");
        add_cell(row, 7, "peak");
        add_cell(row, 7, "exit");
    }
    end_row(row, emit);
}

static void row_levels(struct row *row, const struct sm_node *node, const struct shown *shown)
{
    add_phase_name(row, node, shown);
    for (unsigned i = 0; i < SM_TRACKED_COUNT; i++) {
        add_mib(row, 7, shown->mean[sm_figure_level(i, SM_POINT_ENTRY)]);
        add_mib(row, 7, (double)shown->highest.peak[i]);
        add_mib(row, 7, shown->mean[sm_figure_level(i, SM_POINT_EXIT)]);
    }
}

static void title_gap(struct row *row, struct sm_emit *emit)
{
    add_name(row, 0, "", NAME_COLUMNS);
    add_cell(row, 5, "times");
    add_cell(row, 10, "ms");
    add_cell(row, 10, "req. live");
    for (unsigned i = SM_PART_rounding; i < SM_PART_COUNT; i++)
        add_cell(row, i < SM_PART_held_free ? 9 : 11, "%s", sm_part_names[i]);
    add_cell(row, 13, "carried out");
    end_row(row, emit);
}

static void row_gap(struct row *row, const struct sm_node *node, const struct shown *shown)
{
    add_phase_name(row, node, shown);
    add_fixed(row, 10, shown->mean[SM_FIGURE_wall_ns] / 1e6, 3);
    for (unsigned i = 0; i < SM_PART_COUNT; i++)
        add_mib(row,
                i == 0                  ? 10
                : i < SM_PART_held_free ? 9
                                        : 11,
                (double)shown->highest.at_reserved.bytes[i]);
    add_mib(row, 13, shown->mean[SM_FIGURE_carried_out + 1]);
}

static const struct {
    enum sm_phase_counter counter;
    const char *title;
} counter_columns[] = {
    {SM_PHASE_COUNTER_hits, "hits"},         {SM_PHASE_COUNTER_misses, "misses"},
    {SM_PHASE_COUNTER_stitches, "stitches"}, {SM_PHASE_COUNTER_growths, "growths"},
    {SM_PHASE_COUNTER_trims, "trims"},       {SM_PHASE_COUNTER_event_waits, "waits"},
};
#define COUNTER_COLUMNS (sizeof counter_columns / sizeof *counter_columns)

static void title_calls(struct row *row, struct sm_emit *emit)
{
    add_name(row, 0, "", NAME_COLUMNS);
    add_cell(row, 5, "times");
    add_cell(row, 9, "allocs");
    add_cell(row, 9, "frees");
    for (unsigned i = 0; i < COUNTER_COLUMNS; i++)
        add_cell(row, 9, "%s", counter_columns[i].title);
    add_cell(row, 10, "released");
    end_row(row, emit);
}

static void row_calls(struct row *row, const struct sm_node *node, const struct shown *shown)
{
    add_phase_name(row, node, shown);
    add_mean_count(row, 9, shown->mean[SM_FIGURE_allocations]);
    add_mean_count(row, 9, shown->mean[SM_FIGURE_frees]);
    for (unsigned i = 0; i < COUNTER_COLUMNS; i++)
        add_mean_count(row, 9, shown->mean[SM_FIGURE_counters + counter_columns[i].counter]);
    add_mib(row, 10, shown->mean[SM_FIGURE_released_in + 1]);
}

static void title_thread(struct row *row, struct sm_emit *emit)
{
    add_name(row, 0, "", NAME_COLUMNS);
    add_cell(row, 5, "times");
    for (const char *const *title = (const char *const[]){"allocs", "frees", "req. peak", "req. exit",
                                                          "alloc. peak", "alloc. exit", NULL};
         *title; title++)
        add_cell(row, title[0][0] == 'a' && title[0][5] == '.' ? 12 : 11, "%s", *title);
    end_row(row, emit);
}

static void row_thread(struct row *row, const struct sm_node *node, const struct shown *shown)
{
    static const unsigned order[] = {SM_TRACKED_requested, SM_TRACKED_allocated};
    add_phase_name(row, node, shown);
    add_mean_count(row, 11, shown->mean[SM_FIGURE_allocations]);
    add_mean_count(row, 11, shown->mean[SM_FIGURE_frees]);
    for (unsigned i = 0; i < 2; i++) {
        add_mib(row, 11 + i, (double)shown->highest_net[order[i]]);
        add_mib(row, 11 + i, shown->mean[sm_figure_level(order[i], SM_POINT_EXIT)]);
    }
}

struct section {
    const char *title;
    void (*heading)(struct row *row, struct sm_emit *emit);
    void (*line)(struct row *row, const struct sm_node *node, const struct shown *shown);
};

static void table_section(const struct sm_stats *stats, struct sm_emit *emit, const char *what,
                          const struct sm_node *root, const struct section *section, int64_t now_ns)
{
    struct row row = {0};
    struct shown shown;
    sm_emit_line(emit, "%s", "");
    sm_emit_line(emit, "%s%s", what, section->title);
    section->heading(&row, emit);
    for (const struct sm_node *node = sm_tree_next(root); node; node = sm_tree_next(node))
        if (show_node(stats, node, root == &stats->thread_root, now_ns, &shown)) {
            section->line(&row, node, &shown);
            end_row(&row, emit);
        }
}

void sm_table_emit(const struct sm_stats *stats, const struct sm_report_facts *facts, struct sm_emit *emit,
                   int64_t now_ns)
{
    static const struct section sections[] = {
        {", MiB; entry and exit are means over entries, peaks the highest; * still open", title_levels,
         row_levels},
        {", MiB at the highest peak of reserved; ms and carried out are means", title_gap, row_gap},
        {", means of what happened inside; released: MiB born before and freed inside", title_calls,
         row_calls},
    };
    static const struct section thread_section = {
        ", net MiB of the thread's own requests; exits are means, peaks the highest", title_thread,
        row_thread};
    table_head(stats, facts, emit);
    table_levels(stats, emit);
    table_gap(stats, emit);
    table_counters(stats, emit);
    table_external(facts, emit);
    for (unsigned i = 0; i < sizeof sections / sizeof *sections && sm_tree_next(&stats->phase_root); i++)
        table_section(stats, emit, "phases", &stats->phase_root, &sections[i], now_ns);
    for (unsigned i = 0; i < sizeof sections / sizeof *sections && sm_tree_next(&stats->window_root); i++)
        table_section(stats, emit, "windows", &stats->window_root, &sections[i], now_ns);
    if (sm_tree_next(&stats->thread_root))
        table_section(stats, emit, "phases of one thread", &stats->thread_root, &thread_section, now_ns);
}
