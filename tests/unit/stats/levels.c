/* SPDX-License-Identifier: Apache-2.0 */
/* Levels, counters, resets, figures by name, and the validator's identities. */
#include "base/hostmem.h"
#include "stats/stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

static struct sm_parts parts;

static int create(void **state)
{
    memset(&parts, 0, sizeof parts);
    *state = sm_stats_create(3, &parts);
    return *state ? 0 : 1;
}

static int destroy(void **state)
{
    sm_stats_destroy(*state);
    return 0;
}

static void grow(struct sm_stats *stats, int64_t bytes)
{
    parts.bytes[SM_PART_whole_free] += bytes;
    sm_stats_move(stats, SM_LEVEL_reserved_bytes, SM_KIND_LARGE, bytes);
}

static uint32_t take(struct sm_stats *stats, uint64_t requested, uint64_t rounded)
{
    parts.bytes[SM_PART_requested_live] += (int64_t)requested;
    parts.bytes[SM_PART_rounding] += (int64_t)(rounded - requested);
    parts.bytes[SM_PART_whole_free] -= (int64_t)rounded;
    return sm_stats_alloc(stats, sm_stats_kind(rounded), requested, rounded);
}

static void request(struct sm_stats *stats, uint64_t requested, uint64_t rounded, uint32_t birth)
{
    sm_stats_free_request(stats, sm_stats_kind(rounded), requested, rounded, birth);
    parts.bytes[SM_PART_requested_live] -= (int64_t)requested;
    parts.bytes[SM_PART_rounding] -= (int64_t)(rounded - requested);
    parts.bytes[SM_PART_pending] += (int64_t)rounded;
}

static void complete(struct sm_stats *stats, uint64_t requested, uint64_t rounded)
{
    sm_stats_free_complete(stats, sm_stats_kind(rounded), requested, rounded);
    parts.bytes[SM_PART_pending] -= (int64_t)rounded;
    parts.bytes[SM_PART_whole_free] += (int64_t)rounded;
}

static void expect(const struct sm_stats *stats, enum sm_level_id level, enum sm_kind kind, int64_t current,
                   int64_t peak, int64_t in, int64_t out)
{
    const struct sm_level *now = sm_stats_level(stats, level, kind);
    assert_int_equal(now->current, current);
    assert_int_equal(now->peak, peak);
    assert_int_equal(now->in, in);
    assert_int_equal(now->out, out);
}

static void expect_valid(const struct sm_stats *stats)
{
    struct sm_error error;
    if (sm_stats_validate(stats, &error))
        fail_msg("%s", error.text);
}

static void test_kind(void **state)
{
    (void)state;
    assert_int_equal(sm_stats_kind(512), SM_KIND_SMALL);
    assert_int_equal(sm_stats_kind(MIB), SM_KIND_SMALL);
    assert_int_equal(sm_stats_kind(MIB + 512), SM_KIND_LARGE);
}

static void test_life_of_a_block(void **state)
{
    struct sm_stats *stats = *state;
    grow(stats, 8 << 20);
    const uint32_t small = take(stats, 1000, 1024), large = take(stats, 3 * MIB - 1, 3 * MIB);
    expect(stats, SM_LEVEL_allocated_bytes, SM_KIND_ALL, 3 * MIB + 1024, 3 * MIB + 1024, 3 * MIB + 1024, 0);
    expect(stats, SM_LEVEL_allocation, SM_KIND_SMALL, 1, 1, 1, 0);
    expect(stats, SM_LEVEL_allocation, SM_KIND_LARGE, 1, 1, 1, 0);
    expect_valid(stats);

    /* Allocated falls at the request, requested and active when the free completes. */
    request(stats, 3 * MIB - 1, 3 * MIB, large);
    expect(stats, SM_LEVEL_allocation, SM_KIND_ALL, 1, 2, 2, 1);
    expect(stats, SM_LEVEL_allocated_bytes, SM_KIND_LARGE, 0, 3 * MIB, 3 * MIB, 3 * MIB);
    expect(stats, SM_LEVEL_active, SM_KIND_ALL, 2, 2, 2, 0);
    expect(stats, SM_LEVEL_active_bytes, SM_KIND_ALL, 3 * MIB + 1024, 3 * MIB + 1024, 3 * MIB + 1024, 0);
    expect(stats, SM_LEVEL_requested_bytes, SM_KIND_LARGE, 3 * MIB - 1, 3 * MIB - 1, 3 * MIB - 1, 0);
    expect_valid(stats);
    complete(stats, 3 * MIB - 1, 3 * MIB);
    expect(stats, SM_LEVEL_active_bytes, SM_KIND_ALL, 1024, 3 * MIB + 1024, 3 * MIB + 1024, 3 * MIB);
    expect(stats, SM_LEVEL_requested_bytes, SM_KIND_ALL, 1000, 3 * MIB + 999, 3 * MIB + 999, 3 * MIB - 1);
    expect_valid(stats);
    request(stats, 1000, 1024, small);
    complete(stats, 1000, 1024);
    expect_valid(stats);
}

/* With every host allocation failing: nobody asks for one. */
static void test_hit_path_needs_no_host_memory(void **state)
{
    struct sm_stats *stats = *state;
    uint32_t birth[64];
    grow(stats, 64 << 20);
    assert_true(sm_stats_phase_reserve(stats, "phase"));
    sm_fault_arm(sm_hostmem_fault(), 1, true);
    sm_stats_phase_push(stats, "phase", 0);
    for (unsigned i = 0; i < 100000; i++) {
        if (i >= 64) {
            request(stats, 500, 512, birth[i % 64]);
            complete(stats, 500, 512);
        }
        birth[i % 64] = take(stats, 500, 512);
        sm_stats_count(stats, SM_COUNTER_hits, 1);
        sm_stats_move(stats, SM_LEVEL_inactive_split, SM_KIND_SMALL, i % 2 ? -1 : 1);
    }
    sm_stats_phase_pop(stats, 1);
    const uint64_t asked = sm_hostmem_fault()->hits;
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    assert_int_equal(asked, 0);
    expect_valid(stats);
}

static void test_moved_levels(void **state)
{
    struct sm_stats *stats = *state;
    sm_stats_move(stats, SM_LEVEL_segment, SM_KIND_SMALL, 2);
    sm_stats_move(stats, SM_LEVEL_segment, SM_KIND_LARGE, 3);
    sm_stats_move(stats, SM_LEVEL_segment, SM_KIND_SMALL, -1);
    expect(stats, SM_LEVEL_segment, SM_KIND_ALL, 4, 5, 5, 1);
    expect(stats, SM_LEVEL_segment, SM_KIND_SMALL, 1, 2, 2, 1);
    expect(stats, SM_LEVEL_segment, SM_KIND_LARGE, 3, 3, 3, 0);
    sm_stats_move(stats, SM_LEVEL_handles, SM_KIND_ALL, 7);
    expect(stats, SM_LEVEL_handles, SM_KIND_ALL, 7, 7, 7, 0);
    expect_valid(stats);
}

static void test_resets(void **state)
{
    struct sm_stats *stats = *state;
    grow(stats, 8 << 20);
    const uint32_t a = take(stats, 500, 512), b = take(stats, 2 * MIB, 2 * MIB);
    request(stats, 2 * MIB, 2 * MIB, b);
    complete(stats, 2 * MIB, 2 * MIB);
    sm_stats_move(stats, SM_LEVEL_mappings, SM_KIND_ALL, 5);
    sm_stats_move(stats, SM_LEVEL_mappings, SM_KIND_ALL, -2);
    sm_stats_count(stats, SM_COUNTER_hits, 4);

    sm_stats_reset_peaks(stats);
    expect(stats, SM_LEVEL_allocated_bytes, SM_KIND_ALL, 512, 512, 2 * MIB + 512, 2 * MIB);
    expect(stats, SM_LEVEL_allocated_bytes, SM_KIND_LARGE, 0, 0, 2 * MIB, 2 * MIB);
    expect(stats, SM_LEVEL_active, SM_KIND_ALL, 1, 1, 2, 1);
    expect(stats, SM_LEVEL_mappings, SM_KIND_ALL, 3, 3, 5, 2);
    assert_int_equal(sm_stats_counter(stats, SM_COUNTER_hits), 4);

    sm_stats_reset_totals(stats);
    expect(stats, SM_LEVEL_allocated_bytes, SM_KIND_ALL, 512, 512, 0, 0);
    expect(stats, SM_LEVEL_mappings, SM_KIND_ALL, 3, 3, 0, 0);
    assert_int_equal(sm_stats_counter(stats, SM_COUNTER_hits), 0);
    expect_valid(stats);

    request(stats, 500, 512, a);
    complete(stats, 500, 512);
    sm_stats_count(stats, SM_COUNTER_hits, 1);
    expect(stats, SM_LEVEL_allocated_bytes, SM_KIND_SMALL, 0, 512, 0, 512);
    assert_int_equal(sm_stats_counter(stats, SM_COUNTER_hits), 1);
    expect_valid(stats);
}

static void test_names_of_levels_and_counters(void **state)
{
    struct sm_stats *stats = *state;
    int64_t value;
    /* Each level has a value of its own, so that two names cannot be mixed up. */
    grow(stats, 8 << 20);
    take(stats, 700, 1024);
    take(stats, 2 * MIB - 3, 2 * MIB);
    int64_t step = 10;
#define X(name, unit, meaning, moves)                                                                        \
    if (sm_stats_level(stats, SM_LEVEL_##name, SM_KIND_ALL)->current == 0)                                   \
        sm_stats_move(stats, SM_LEVEL_##name, SM_KIND_SMALL, step++);
    SM_LEVELS(X)
#undef X
#define FIELD(name, kind, id, field)                                                                         \
    assert_true(sm_stats_find(stats, #name "." kind "." #field, &value));                                    \
    assert_int_equal(value, sm_stats_level(stats, SM_LEVEL_##name, id)->field);
#define KIND(name, kind, id)                                                                                 \
    FIELD(name, kind, id, current)                                                                           \
    FIELD(name, kind, id, peak)                                                                              \
    FIELD(name, kind, id, in)                                                                                \
    FIELD(name, kind, id, out)
#define X(name, unit, meaning, moves)                                                                        \
    KIND(name, "all", SM_KIND_ALL)                                                                           \
    KIND(name, "small_pool", SM_KIND_SMALL)                                                                  \
    KIND(name, "large_pool", SM_KIND_LARGE)
    SM_LEVELS(X)
#undef X

    uint64_t times = 100;
#define X(name, unit, meaning) sm_stats_count(stats, SM_COUNTER_##name, times++);
    SM_COUNTERS(X)
#undef X
    times = 100;
#define X(name, unit, meaning)                                                                               \
    assert_true(sm_stats_find(stats, #name, &value));                                                        \
    assert_int_equal(value, times++);
    SM_COUNTERS(X)
#undef X
}

static void test_names_of_parts(void **state)
{
    struct sm_stats *stats = *state;
    int64_t value;
    grow(stats, 8 << 20);
    const uint32_t birth = take(stats, 700, 1024);
    const struct sm_parts peak = parts;
    request(stats, 700, 1024, birth);
    complete(stats, 700, 1024);
    grow(stats, 1 << 20);
#define X(name, meaning, helps)                                                                              \
    assert_true(sm_stats_find(stats, "gap." #name, &value));                                                 \
    assert_int_equal(value, parts.bytes[SM_PART_##name]);                                                    \
    assert_true(sm_stats_find(stats, "gap_at_reserved_peak." #name, &value));                                \
    assert_int_equal(value, parts.bytes[SM_PART_##name]);                                                    \
    assert_true(sm_stats_find(stats, "gap_at_allocated_peak." #name, &value));                               \
    assert_int_equal(value, peak.bytes[SM_PART_##name]);
    SM_PARTS(X)
#undef X
}

static void test_names_that_are_none(void **state)
{
    static const char *const names[] = {
        "",
        ".",
        "allocated_bytes",
        "allocated_bytes.all",
        "allocated_bytes.all.peak.",
        "hits.",
        "hit",
        "hitss",
        "hits.all.current",
        "allocated_bytes.all.peaks",
        "gap",
        "gap.",
        "gap.roundin",
        "gap.rounding.x",
        "allocated_bytes..peak",
        "gap_at.rounding",
        "allocated.all.peak",
        "allocated_bytes.tiny_pool.peak",
        "gap_at_reserved_peak",
        "gaprounding",
        " hits",
        "allocated_bytes/all/peak",
    };
    struct sm_stats *stats = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t value = 4711;
        assert_false(sm_stats_find(stats, names[i], &value));
        assert_int_equal(value, 4711);
    }
}

/* Breaks one thing, expects the validator to say so, mends it. */
static void expect_invalid(const struct sm_stats *stats, const char *word)
{
    struct sm_error error = {0};
    assert_int_equal(sm_stats_validate(stats, &error), SEAM_E_STATE);
    assert_non_null(strstr(error.text, "device 3"));
    if (!strstr(error.text, word))
        fail_msg("\"%s\" does not speak of %s", error.text, word);
}

static void test_validator_sees_wrong_parts(void **state)
{
    struct sm_stats *stats = *state;
    grow(stats, 8 << 20);
    take(stats, 700, 1024);
    expect_valid(stats);
    parts.bytes[SM_PART_whole_free]++;
    expect_invalid(stats, "sum of the parts");
    parts.bytes[SM_PART_whole_free]--;

    parts.bytes[SM_PART_requested_live]--;
    parts.bytes[SM_PART_rounding]++;
    expect_invalid(stats, "requested_live");
    parts.bytes[SM_PART_requested_live]++;
    parts.bytes[SM_PART_rounding]--;

    parts.bytes[SM_PART_pending]++;
    parts.bytes[SM_PART_whole_free]--;
    expect_invalid(stats, "pending");
    parts.bytes[SM_PART_pending]--;
    parts.bytes[SM_PART_whole_free]++;

    parts.bytes[SM_PART_fenced] = -1;
    parts.bytes[SM_PART_whole_free]++;
    expect_invalid(stats, "negative");
    parts.bytes[SM_PART_fenced] = 0;
    parts.bytes[SM_PART_whole_free]--;
    expect_valid(stats);
}

static void test_validator_sees_wrong_levels(void **state)
{
    struct sm_stats *stats = *state;
    grow(stats, 8 << 20);
    sm_stats_move(stats, SM_LEVEL_handles, SM_KIND_ALL, -1);
    expect_invalid(stats, "handles");
    sm_stats_move(stats, SM_LEVEL_handles, SM_KIND_ALL, 1);
    expect_valid(stats);

    /* A level whose sides do not add up: moved once without a kind is allowed, a wrong side is not. */
    sm_stats_move(stats, SM_LEVEL_segment, SM_KIND_SMALL, -1);
    expect_invalid(stats, "segment");
    sm_stats_move(stats, SM_LEVEL_segment, SM_KIND_SMALL, 1);

    /* A block freed twice, told to the statistics all the same. */
    const uint32_t birth = take(stats, 512, 512);
    sm_stats_free_request(stats, SM_KIND_SMALL, 512, 512, birth);
    sm_stats_free_request(stats, SM_KIND_SMALL, 512, 512, birth);
    expect_invalid(stats, "allocation");
}

static void test_validator_sees_a_wrong_side(void **state)
{
    struct sm_stats *stats = *state;
    grow(stats, 8 << 20);
    const uint32_t birth = take(stats, 512, 512);
    sm_stats_free_request(stats, SM_KIND_LARGE, 512, 512, birth);
    expect_invalid(stats, "large_pool");
}

static void test_validator_sees_active_above_reserved(void **state)
{
    struct sm_stats *stats = *state;
    take(stats, 512, 512); /* nothing reserved */
    parts.bytes[SM_PART_whole_free] = 0;
    expect_invalid(stats, "parts");
}

#define T(name) cmocka_unit_test_setup_teardown(name, create, destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_kind),
        T(test_life_of_a_block),
        T(test_hit_path_needs_no_host_memory),
        T(test_moved_levels),
        T(test_resets),
        T(test_names_of_levels_and_counters),
        T(test_names_of_parts),
        T(test_names_that_are_none),
        T(test_validator_sees_wrong_parts),
        T(test_validator_sees_wrong_levels),
        T(test_validator_sees_a_wrong_side),
        T(test_validator_sees_active_above_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
