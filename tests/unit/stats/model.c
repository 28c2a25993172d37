/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics against a naive reference.
 *
 * A made-up heap allocates, frees (at once, or pending for a while), grows and trims at random; phases nest
 * five deep, windows overlap, peaks and totals are reset. The reference keeps the whole history, one sample
 * an event, and finds every peak, and the parts at it, by walking it; births and deaths of every block are
 * kept too. Reports are compared through their JSON. argv: number of steps, seed. */
#include "tests/unit/stats/report.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { REQUESTED, ALLOCATED, ACTIVE, RESERVED, LEVELS };
static const char *const level_names[LEVELS] = {"requested", "allocated", "active", "reserved"};
static const char *const part_names[] = {
#define X(name, meaning, helps) #name,
    SM_PARTS(X)
#undef X
};

#define MAX_SAMPLES 60000
#define MAX_BLOCKS  30000
#define MAX_OPEN    16
#define MAX_PATHS   4000
#define MAX_LIVE    64
#define PHASE_DEPTH 5

/* What the world looked like after an event. */
struct sample {
    int64_t level[LEVELS], count, active_count;
    int64_t kind_allocated[2];
    struct sm_parts parts;
    bool fall;     /* the event was a fall of allocated or reserved */
    bool boundary; /* the event was a boundary */
};

struct block {
    bool live, pending;
    enum sm_kind kind;
    int64_t requested, rounded;
    uint32_t birth;
    size_t born, died; /* sample numbers; died 0: not yet */
};

/* One entry of a phase or window, open or ended. */
struct entry {
    char path[512];
    bool is_window;
    uint64_t window;
    size_t first, last; /* samples at its boundaries */
    int64_t start_ns, end_ns;
    uint64_t hits_at_entry, hits;
};

static struct world {
    struct sample *samples;
    size_t sample_count;
    struct block *blocks;
    size_t block_count;
    struct entry *open[MAX_OPEN];
    unsigned open_count;
    struct entry *ended;
    size_t ended_count, ended_capacity;
    size_t peaks_reset; /* sample at the last reset of peaks */
    int64_t in[LEVELS], out[LEVELS];
    uint64_t hits, hits_base;
    uint64_t next_window;
    int64_t now_ns;
    struct sm_parts parts;
    struct sample now;
    struct sm_stats *stats;
} world;

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545F4914F6CDD1D;
}

static unsigned random_below(unsigned limit)
{
    return (unsigned)(random_next() >> 33) % limit;
}

/* The heap's free bytes are spread over the three free parts at random; the rest follows from the blocks. */
static void settle_parts(void)
{
    struct sample *now = &world.now;
    int64_t requested_live = 0, spare = now->level[RESERVED] - now->level[ACTIVE];
    for (size_t i = 0; i < world.block_count; i++)
        if (world.blocks[i].live)
            requested_live += world.blocks[i].requested;
    world.parts.bytes[SM_PART_requested_live] = requested_live;
    world.parts.bytes[SM_PART_rounding] = now->level[ALLOCATED] - requested_live;
    world.parts.bytes[SM_PART_pending] = now->level[ACTIVE] - now->level[ALLOCATED];
    world.parts.bytes[SM_PART_fenced] = spare / (1 + random_below(5));
    spare -= world.parts.bytes[SM_PART_fenced];
    world.parts.bytes[SM_PART_held_free] = spare / (1 + random_below(5));
    world.parts.bytes[SM_PART_whole_free] = spare - world.parts.bytes[SM_PART_held_free];
}

static void add_sample(bool fall, bool boundary)
{
    assert_true(world.sample_count < MAX_SAMPLES);
    world.now.parts = world.parts;
    world.now.fall = fall;
    world.now.boundary = boundary;
    world.samples[world.sample_count++] = world.now;
}

static void change(unsigned level, int64_t delta)
{
    world.now.level[level] += delta;
    if (delta > 0)
        world.in[level] += delta;
    else
        world.out[level] -= delta;
}

/* ---- events ---- */

static void do_grow(void)
{
    const int64_t bytes = (int64_t)(1 + random_below(8)) << 21;
    change(RESERVED, bytes);
    settle_parts();
    sm_stats_move(world.stats, SM_LEVEL_reserved_bytes, SM_KIND_LARGE, bytes);
    sm_stats_count(world.stats, SM_COUNTER_growths, 1);
    add_sample(false, false);
}

static void do_trim(void)
{
    const int64_t spare = world.now.level[RESERVED] - world.now.level[ACTIVE];
    const int64_t bytes = spare / 2 >> 21 << 21;
    if (!bytes)
        return;
    sm_stats_move(world.stats, SM_LEVEL_reserved_bytes, SM_KIND_LARGE, -bytes);
    change(RESERVED, -bytes);
    settle_parts();
    add_sample(true, false);
}

static void do_alloc(void)
{
    const int64_t rounded = 512 * (1 + (int64_t)random_below(random_below(4) ? 2000 : 8000));
    while (world.now.level[RESERVED] - world.now.level[ACTIVE] < rounded)
        do_grow();
    assert_true(world.block_count < MAX_BLOCKS);
    struct block *block = &world.blocks[world.block_count++];
    *block = (struct block){.live = true, .rounded = rounded, .requested = rounded - random_below(512)};
    block->kind = sm_stats_kind((uint64_t)rounded);
    assert_int_equal(block->kind, rounded <= 1 << 20 ? SM_KIND_SMALL : SM_KIND_LARGE);
    block->born = world.sample_count;
    change(REQUESTED, block->requested);
    change(ALLOCATED, rounded);
    change(ACTIVE, rounded);
    world.now.count++;
    world.now.active_count++;
    world.now.kind_allocated[block->kind == SM_KIND_LARGE] += rounded;
    settle_parts();
    block->birth = sm_stats_alloc(world.stats, block->kind, (uint64_t)block->requested, (uint64_t)rounded);
    sm_stats_count(world.stats, SM_COUNTER_hits, 1);
    world.hits++;
    add_sample(false, false);
}

static struct block *pick_block(bool pending)
{
    struct block *found = NULL;
    unsigned seen = 0;
    for (size_t i = 0; i < world.block_count; i++) {
        struct block *block = &world.blocks[i];
        if ((pending ? block->pending : block->live) && random_below(++seen) == 0)
            found = block;
    }
    return found;
}

static void do_complete(struct block *block)
{
    sm_stats_free_complete(world.stats, block->kind, (uint64_t)block->requested, (uint64_t)block->rounded);
    block->pending = false;
    change(REQUESTED, -block->requested);
    change(ACTIVE, -block->rounded);
    world.now.active_count--;
    settle_parts();
    add_sample(false, false);
}

static void do_free(struct block *block)
{
    sm_stats_free_request(world.stats, block->kind, (uint64_t)block->requested, (uint64_t)block->rounded,
                          block->birth);
    block->live = false;
    block->pending = true;
    block->died = world.sample_count;
    change(ALLOCATED, -block->rounded);
    world.now.count--;
    world.now.kind_allocated[block->kind == SM_KIND_LARGE] -= block->rounded;
    settle_parts();
    add_sample(true, false);
    if (random_below(3))
        do_complete(block);
}

static struct entry *innermost(void)
{
    for (unsigned i = world.open_count; i-- > 0;)
        if (!world.open[i]->is_window)
            return world.open[i];
    return NULL;
}

static unsigned phase_depth(void)
{
    unsigned depth = 0;
    for (unsigned i = 0; i < world.open_count; i++)
        depth += !world.open[i]->is_window;
    return depth;
}

static struct entry *open_entry(const char *name, bool is_window)
{
    static const char *const cut = "/";
    struct entry *parent = is_window ? NULL : innermost(), *entry = calloc(1, sizeof *entry);
    assert_non_null(entry);
    snprintf(entry->path, sizeof entry->path, "%.400s%s%s", parent ? parent->path : "", parent ? cut : "",
             name);
    entry->is_window = is_window;
    entry->start_ns = world.now_ns;
    entry->hits_at_entry = world.hits;
    entry->first = world.sample_count;
    add_sample(false, true);
    world.open[world.open_count++] = entry;
    return entry;
}

static void end_entry(unsigned index)
{
    struct entry *entry = world.open[index];
    entry->end_ns = world.now_ns;
    entry->hits = world.hits - entry->hits_at_entry;
    entry->last = world.sample_count - 1;
    add_sample(false, true);
    assert_true(world.ended_count < world.ended_capacity);
    world.ended[world.ended_count++] = *entry;
    free(entry);
    memmove(&world.open[index], &world.open[index + 1], (world.open_count - index - 1) * sizeof entry);
    world.open_count--;
}

static void do_phase(void)
{
    static const char *const names[] = {"step", "forward", "backward", "layer", "optim"};
    const unsigned depth = phase_depth();
    assert_int_equal(depth, sm_stats_phase_depth(world.stats));
    if (depth < PHASE_DEPTH && (depth == 0 || random_below(2))) {
        const char *name = names[random_below(5)];
        assert_true(sm_stats_phase_reserve(world.stats, name));
        sm_stats_phase_push(world.stats, name, world.now_ns);
        open_entry(name, false);
        return;
    }
    sm_stats_phase_pop(world.stats, world.now_ns);
    for (unsigned i = world.open_count; i-- > 0;)
        if (!world.open[i]->is_window) {
            end_entry(i);
            return;
        }
}

static void do_window(void)
{
    static const char *const names[] = {"update", "epoch", "validation"};
    const unsigned windows = world.open_count - phase_depth();
    if (windows < 4 && random_below(2)) {
        const char *name = names[random_below(3)];
        assert_true(sm_stats_window_reserve(world.stats, name));
        sm_stats_window_open(world.stats, name, world.next_window, world.now_ns);
        open_entry(name, true)->window = world.next_window++;
        return;
    }
    const unsigned pick = windows ? random_below(windows) : 0;
    for (unsigned i = 0, seen = 0; i < world.open_count; i++)
        if (world.open[i]->is_window && seen++ == pick) {
            assert_true(sm_stats_window_close(world.stats, world.open[i]->window, world.now_ns));
            end_entry(i);
            return;
        }
    assert_false(sm_stats_window_close(world.stats, world.next_window + 7, world.now_ns));
}

static void do_reset(void)
{
    if (random_below(2)) {
        sm_stats_reset_peaks(world.stats);
        world.peaks_reset = world.sample_count;
        add_sample(false, true);
        return;
    }
    sm_stats_reset_totals(world.stats);
    memset(world.in, 0, sizeof world.in);
    memset(world.out, 0, sizeof world.out);
    world.hits_base = world.hits;
    assert_int_equal(sm_stats_counter(world.stats, SM_COUNTER_hits), 0);
}

/* ---- the reference's answers ---- */

static int64_t peak_of(size_t first, size_t last, unsigned level)
{
    int64_t peak = world.samples[first].level[level];
    for (size_t i = first; i <= last; i++)
        if (world.samples[i].level[level] > peak)
            peak = world.samples[i].level[level];
    return peak;
}

/* The parts at the first time the level stood at its peak, at the last instant before something fell or a
 * boundary came. */
static struct sm_parts parts_at_peak(size_t first, size_t last, unsigned level)
{
    const int64_t peak = peak_of(first, last, level);
    size_t i = first;
    while (world.samples[i].level[level] != peak)
        i++;
    while (i < last && !world.samples[i + 1].fall && !world.samples[i + 1].boundary)
        i++;
    return world.samples[i].parts;
}

struct expected {
    int64_t wall_ns, level[LEVELS][3];
    struct sm_parts at_reserved, at_allocated;
    int64_t allocations[2], frees[2], carried_out[2], released_in[2], hits;
};

static void tally(int64_t pair[2], bool counts, int64_t bytes)
{
    pair[0] += counts;
    pair[1] += counts ? bytes : 0;
}

static struct expected expect_entry(const struct entry *entry, size_t last, int64_t end_ns, uint64_t hits)
{
    struct expected want = {.wall_ns = end_ns - entry->start_ns, .hits = (int64_t)hits};
    for (unsigned i = 0; i < LEVELS; i++) {
        want.level[i][0] = world.samples[entry->first].level[i];
        want.level[i][1] = peak_of(entry->first, last, i);
        want.level[i][2] = world.samples[last].level[i];
    }
    want.at_reserved = parts_at_peak(entry->first, last, RESERVED);
    want.at_allocated = parts_at_peak(entry->first, last, ALLOCATED);
    for (size_t i = 0; i < world.block_count; i++) {
        const struct block *block = &world.blocks[i];
        const bool born_in = block->born > entry->first && block->born <= last;
        const bool died_in = block->died > entry->first && block->died <= last;
        tally(want.allocations, born_in, block->rounded);
        tally(want.frees, died_in, block->rounded);
        tally(want.carried_out, born_in && (!block->died || block->died > last), block->rounded);
        tally(want.released_in, died_in && block->born < entry->first, block->rounded);
    }
    return want;
}

/* ---- comparison with a report ---- */

/* figure: a plain number of an open entry, or {min, mean, max, last} of those that ended, in order in values.
 */
static void compare_series(json_t *object, const char *path, const int64_t *values, size_t count, bool open)
{
    if (open) {
        if (int_at(object, path) != values[0])
            fail_msg("open %s: %" PRId64 ", expected %" PRId64, path, int_at(object, path), values[0]);
        return;
    }
    int64_t min = values[0], max = values[0];
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        min = values[i] < min ? values[i] : min;
        max = values[i] > max ? values[i] : max;
        sum += (double)values[i];
    }
    json_t *figure = at_path(object, path);
    const double mean = json_number_value(at_path(figure, "mean"));
    if (int_at(figure, "min") != min || int_at(figure, "max") != max ||
        int_at(figure, "last") != values[count - 1] ||
        fabs(mean - sum / (double)count) > 1e-9 * (1 + fabs(sum)))
        fail_msg("%s: min %lld max %lld last %lld mean %g, expected %" PRId64 " %" PRId64 " %" PRId64 " %g",
                 path, (long long)int_at(figure, "min"), (long long)int_at(figure, "max"),
                 (long long)int_at(figure, "last"), mean, min, max, values[count - 1], sum / (double)count);
}

static int64_t scratch[MAX_PATHS * 4];

#define COMPARE(path, field)                                                                                 \
    do {                                                                                                     \
        for (size_t n_ = 0; n_ < count; n_++)                                                                \
            scratch[n_] = want[n_].field;                                                                    \
        compare_series(object, path, scratch, count, open);                                                  \
    } while (0)

static void compare_figures(json_t *object, const struct expected *want, size_t count, bool open)
{
    static const char *const points[] = {"entry", "peak", "exit"};
    char path[128];
    COMPARE("wall_ns", wall_ns);
    for (unsigned i = 0; i < LEVELS; i++)
        for (unsigned p = 0; p < 3; p++) {
            snprintf(path, sizeof path, "%s.%s", level_names[i], points[p]);
            COMPARE(path, level[i][p]);
        }
    for (unsigned i = 0; i < SM_PART_COUNT; i++) {
        snprintf(path, sizeof path, "gap_at_reserved_peak.%s", part_names[i]);
        COMPARE(path, at_reserved.bytes[i]);
        snprintf(path, sizeof path, "gap_at_allocated_peak.%s", part_names[i]);
        COMPARE(path, at_allocated.bytes[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        const char *what = i ? "bytes" : "count";
        snprintf(path, sizeof path, "allocations.%s", what);
        COMPARE(path, allocations[i]);
        snprintf(path, sizeof path, "frees.%s", what);
        COMPARE(path, frees[i]);
        snprintf(path, sizeof path, "carried_out.%s", what);
        COMPARE(path, carried_out[i]);
        snprintf(path, sizeof path, "released_in.%s", what);
        COMPARE(path, released_in[i]);
    }
    COMPARE("counters.hits", hits);
}

/* The highest entry, and the parts at that very peak. */
static void compare_highest(json_t *highest, const struct expected *want, size_t count)
{
    size_t best[LEVELS] = {0};
    char path[128];
    for (unsigned i = 0; i < LEVELS; i++) {
        for (size_t n = 1; n < count; n++)
            if (want[n].level[i][1] > want[best[i]].level[i][1])
                best[i] = n;
        assert_int_equal(int_at(highest, level_names[i]), want[best[i]].level[i][1]);
    }
    for (unsigned i = 0; i < SM_PART_COUNT; i++) {
        snprintf(path, sizeof path, "gap_at_reserved_peak.%s", part_names[i]);
        assert_int_equal(int_at(highest, path), want[best[RESERVED]].at_reserved.bytes[i]);
        snprintf(path, sizeof path, "gap_at_allocated_peak.%s", part_names[i]);
        assert_int_equal(int_at(highest, path), want[best[ALLOCATED]].at_allocated.bytes[i]);
    }
}

/* Compares a node of the report with all that the reference knows of its path. Returns: entries compared. */
static size_t compare_node(json_t *node, bool is_window)
{
    static struct expected want[MAX_PATHS];
    const char *path = json_string_value(at_path(node, "path"));
    size_t count = 0, open = 0;
    for (size_t i = 0; i < world.ended_count; i++) {
        const struct entry *entry = &world.ended[i];
        if (entry->is_window == is_window && !strcmp(entry->path, path)) {
            assert_true(count < MAX_PATHS);
            want[count++] = expect_entry(entry, entry->last, entry->end_ns, entry->hits);
        }
    }
    assert_int_equal(int_at(node, "count"), count);
    if (count) {
        compare_figures(node, want, count, false);
        compare_highest(at_path(node, "highest"), want, count);
    } else {
        assert_null(json_object_get(node, "wall_ns"));
    }
    json_t *open_list = at_path(node, "open");
    for (unsigned i = 0; i < world.open_count; i++) {
        const struct entry *entry = world.open[i];
        if (entry->is_window != is_window || strcmp(entry->path, path))
            continue;
        struct expected now =
            expect_entry(entry, world.sample_count - 1, world.now_ns, world.hits - entry->hits_at_entry);
        compare_figures(json_array_get(open_list, open++), &now, 1, true);
    }
    assert_int_equal(json_array_size(open_list), open);
    return count + open;
}

static void compare_total_parts(json_t *report)
{
    const size_t last = world.sample_count - 1;
    const struct sm_parts reserved = parts_at_peak(world.peaks_reset, last, RESERVED),
                          allocated = parts_at_peak(world.peaks_reset, last, ALLOCATED);
    for (unsigned i = 0; i < SM_PART_COUNT; i++) {
        char name[128];
        int64_t found;
        snprintf(name, sizeof name, "gap_at_reserved_peak.%s", part_names[i]);
        assert_int_equal(int_at(report, name), reserved.bytes[i]);
        assert_true(sm_stats_find(world.stats, name, &found));
        assert_int_equal(found, reserved.bytes[i]);
        snprintf(name, sizeof name, "gap_at_allocated_peak.%s", part_names[i]);
        assert_int_equal(int_at(report, name), allocated.bytes[i]);
        snprintf(name, sizeof name, "gap.%s", part_names[i]);
        assert_int_equal(int_at(report, name), world.parts.bytes[i]);
    }
}

static void compare_report(void)
{
    json_t *report = report_json(world.stats, world.now_ns), *node;
    size_t i, compared = 0;
    add_sample(false, true);
    json_array_foreach(at_path(report, "phases"), i, node) compared += compare_node(node, false);
    json_array_foreach(at_path(report, "windows"), i, node) compared += compare_node(node, true);
    assert_int_equal(compared, world.ended_count + world.open_count);
    compare_total_parts(report);
    assert_int_equal(int_at(report, "counters.hits"), world.hits - world.hits_base);
    json_decref(report);
}

static void compare_levels(void)
{
    static const enum sm_level_id id[LEVELS] = {SM_LEVEL_requested_bytes, SM_LEVEL_allocated_bytes,
                                                SM_LEVEL_active_bytes, SM_LEVEL_reserved_bytes};
    for (unsigned i = 0; i < LEVELS; i++) {
        const struct sm_level *level = sm_stats_level(world.stats, id[i], SM_KIND_ALL);
        assert_int_equal(level->current, world.now.level[i]);
        assert_int_equal(level->in, world.in[i]);
        assert_int_equal(level->out, world.out[i]);
        assert_int_equal(level->peak, peak_of(world.peaks_reset, world.sample_count - 1, i));
    }
    int64_t count = 0, active = 0, kind[2] = {0};
    for (size_t i = world.peaks_reset; i < world.sample_count; i++) {
        const struct sample *sample = &world.samples[i];
        count = sample->count > count ? sample->count : count;
        active = sample->active_count > active ? sample->active_count : active;
        for (unsigned k = 0; k < 2; k++)
            kind[k] = sample->kind_allocated[k] > kind[k] ? sample->kind_allocated[k] : kind[k];
    }
    assert_int_equal(sm_stats_level(world.stats, SM_LEVEL_allocation, SM_KIND_ALL)->peak, count);
    assert_int_equal(sm_stats_level(world.stats, SM_LEVEL_active, SM_KIND_ALL)->peak, active);
    assert_int_equal(sm_stats_level(world.stats, SM_LEVEL_allocated_bytes, SM_KIND_SMALL)->peak, kind[0]);
    assert_int_equal(sm_stats_level(world.stats, SM_LEVEL_allocated_bytes, SM_KIND_LARGE)->peak, kind[1]);
    assert_int_equal(sm_stats_level(world.stats, SM_LEVEL_allocation, SM_KIND_ALL)->current, world.now.count);
    assert_int_equal(sm_stats_level(world.stats, SM_LEVEL_active, SM_KIND_ALL)->current,
                     world.now.active_count);
}

static void do_something(void)
{
    struct block *block;
    world.now_ns += 1 + random_below(1000);
    const unsigned dice = random_below(100);
    if (dice < 34) {
        if (world.now.count < MAX_LIVE)
            do_alloc();
    } else if (dice < 62) {
        if ((block = pick_block(false)))
            do_free(block);
    } else if (dice < 72) {
        if ((block = pick_block(true)))
            do_complete(block);
    } else if (dice < 75) {
        do_grow();
    } else if (dice < 79) {
        do_trim();
    } else if (dice < 91) {
        do_phase();
    } else if (dice < 97) {
        do_window();
    } else if (dice < 98) {
        do_reset();
    }
}

static unsigned steps = 3000;
static uint64_t first_seed = 1;
static unsigned seeds = 3;

static void run_seed(uint64_t seed)
{
    struct sm_error error;
    printf("seed %" PRIu64 ", %u steps\n", seed, steps);
    fflush(stdout);
    random_state = seed * 0x9E3779B97F4A7C15;
    world = (struct world){.ended_capacity = steps, .next_window = 1};
    world.samples = calloc(MAX_SAMPLES, sizeof *world.samples);
    world.blocks = calloc(MAX_BLOCKS, sizeof *world.blocks);
    world.ended = calloc(world.ended_capacity, sizeof *world.ended);
    world.stats = sm_stats_create(0, &world.parts);
    assert_true(world.samples && world.blocks && world.ended && world.stats);
    add_sample(false, true);
    for (unsigned step = 0; step < steps; step++) {
        do_something();
        if (sm_stats_validate(world.stats, &error))
            fail_msg("seed %" PRIu64 ", step %u: %s", seed, step, error.text);
        if (step % 20 == 0)
            compare_levels();
        if (step % 250 == 249)
            compare_report();
    }
    compare_report();
    assert_true(world.ended_count > steps / 40);
    sm_stats_destroy(world.stats);
    for (unsigned i = 0; i < world.open_count; i++)
        free(world.open[i]);
    free(world.samples);
    free(world.blocks);
    free(world.ended);
}

static void test_model(void **state)
{
    (void)state;
    for (unsigned i = 0; i < seeds; i++)
        run_seed(first_seed + i);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        steps = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2) {
        first_seed = strtoull(argv[2], NULL, 10);
        seeds = 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
