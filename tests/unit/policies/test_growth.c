/* SPDX-License-Identifier: Apache-2.0 */
/* Growth: what is asked for, and how it is cut into handles. */
#include "base/align.h"
#include "policies/growth.h"
#include "tests/unit/policies/cmocka_all.h"
#include <limits.h>

static uint64_t sizes[SM_GROWTH_HANDLES_MAX];

static struct sm_options defaults(void)
{
    struct sm_options options;
    sm_options_defaults(&options);
    return options;
}

static uint64_t wanted(struct sm_growth_state state)
{
    struct sm_options options = defaults();
    state.granularity = 2 * SM_MIB;
    return sm_growth_wanted(&options, &state);
}

static void least_is_what_is_missing(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    struct sm_growth_state growth = {.granularity = 2 * SM_MIB, .missing = 1};
    assert_int_equal(sm_growth_least(&options, &growth), 2 * SM_MIB);
    growth.missing = 2 * SM_MIB;
    assert_int_equal(sm_growth_least(&options, &growth), 2 * SM_MIB);
    growth.missing = 2 * SM_MIB + 1;
    assert_int_equal(sm_growth_least(&options, &growth), 4 * SM_MIB);
}

/* PyTorch's expandable segments map pages of one size: 2 MiB for small requests, large_segment_size for large
 * ones. */
static void expandable_grows_in_equal_handles(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    struct sm_growth_state growth = {.granularity = 2 * SM_MIB, .missing = 41 * SM_MIB};
    options.policy = SM_POLICY_EXPANDABLE;
    assert_int_equal(sm_growth_least(&options, &growth), 60 * SM_MIB);
    assert_int_equal(sm_growth_wanted(&options, &growth), 60 * SM_MIB);
    assert_int_equal(sm_growth_handles(&options, &growth, 60 * SM_MIB, sizes), 3);
    assert_int_equal(sizes[0], 20 * SM_MIB);
    growth.missing = 100 * SM_GIB; /* more handles than one growth takes: the rest follows in the next */
    assert_int_equal(sm_growth_least(&options, &growth), SM_GROWTH_HANDLES_MAX * 20 * SM_MIB);
    growth = (struct sm_growth_state){.granularity = 2 * SM_MIB, .missing = 512, .small_class = true};
    assert_int_equal(sm_growth_wanted(&options, &growth), 2 * SM_MIB);
    options.large_segment_size = 32 * SM_MIB;
    growth = (struct sm_growth_state){.granularity = 2 * SM_MIB, .missing = 33 * SM_MIB};
    assert_int_equal(sm_growth_least(&options, &growth), 64 * SM_MIB);
}

static void native_segments_have_pytorchs_sizes(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    options.policy = SM_POLICY_NATIVE;
    assert_int_equal(sm_growth_segment(&options, 512), 2 * SM_MIB);
    assert_int_equal(sm_growth_segment(&options, SM_MIB), 2 * SM_MIB);
    assert_int_equal(sm_growth_segment(&options, SM_MIB + 512), 20 * SM_MIB);
    assert_int_equal(sm_growth_segment(&options, 10 * SM_MIB - 512), 20 * SM_MIB);
    assert_int_equal(sm_growth_segment(&options, 10 * SM_MIB), 10 * SM_MIB);
    assert_int_equal(sm_growth_segment(&options, 10 * SM_MIB + 512), 12 * SM_MIB);
}

static void small_homes_grow_by_an_eighth(void **state)
{
    (void)state;
    struct sm_growth_state growth = {.missing = 512, .small_class = true};
    assert_int_equal(wanted(growth), 2 * SM_MIB);
    growth.home_bytes = 16 * SM_MIB;
    assert_int_equal(wanted(growth), 2 * SM_MIB);
    growth.home_bytes = 32 * SM_MIB;
    assert_int_equal(wanted(growth), 4 * SM_MIB);
    growth.home_bytes = 40 * SM_MIB; /* 5 MiB: down to the granularity */
    assert_int_equal(wanted(growth), 4 * SM_MIB);
    growth.home_bytes = 10 * SM_GIB;
    assert_int_equal(wanted(growth), 20 * SM_MIB);
    growth.missing = 30 * SM_MIB;
    assert_int_equal(wanted(growth), 30 * SM_MIB);
}

static void looking_ahead_stays_below_the_peak_and_its_slack(void **state)
{
    (void)state;
    struct sm_growth_state growth = {.missing = 3 * SM_MIB, .live_peak = 1000 * SM_MIB};
    growth.reserved = 900 * SM_MIB;
    assert_int_equal(wanted(growth), 32 * SM_MIB); /* far below: the whole look-ahead */
    growth.reserved = 997 * SM_MIB;
    assert_int_equal(wanted(growth), 10 * SM_MIB); /* 11 MiB left: down to the granularity */
    growth.reserved = 1006 * SM_MIB;
    assert_int_equal(wanted(growth), 4 * SM_MIB); /* less left than is missing */
    growth.reserved = 2000 * SM_MIB;
    assert_int_equal(wanted(growth), 4 * SM_MIB);
    growth.missing = 100 * SM_MIB;
    growth.reserved = 0;
    assert_int_equal(wanted(growth), 100 * SM_MIB); /* more than the look-ahead */
}

static void slack_is_a_share_and_at_least_eight_mib(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    assert_int_equal(sm_growth_free_limit(&options, 1000 * SM_MIB, 1000), 1008 * SM_MIB);
    assert_int_equal(sm_growth_free_limit(&options, 100000 * SM_MIB, 1000), 100400 * SM_MIB);
    /* Less work than is aimed at does not narrow it, more widens it. */
    assert_int_equal(sm_growth_free_limit(&options, 100000 * SM_MIB, 500), 100400 * SM_MIB);
    assert_int_equal(sm_growth_free_limit(&options, 100000 * SM_MIB, 2000), 100800 * SM_MIB);
    assert_int_equal(sm_growth_free_limit(&options, 0, 1000), 8 * SM_MIB);
    options.slack_permille = 1000;
    assert_true(sm_growth_free_limit(&options, (uint64_t)1 << 60, 1000) == (uint64_t)1 << 61);
    options.slack_permille = 0;
    assert_int_equal(sm_growth_free_limit(&options, 100000 * SM_MIB, 2000), 100000 * SM_MIB);
}

static void pressure_is_work_against_a_mapping_for_each_20_mib(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    options.work_percent = 100;
    assert_int_equal(sm_growth_pressure(&options, 20000 * SM_MIB, 1000), 1000);
    assert_int_equal(sm_growth_pressure(&options, 20000 * SM_MIB, 1500), 1500);
    assert_int_equal(sm_growth_pressure(&options, 40000 * SM_MIB, 1500), 750);
    options.work_percent = 50;
    assert_int_equal(sm_growth_pressure(&options, 20000 * SM_MIB, 600), 1200);
    assert_int_equal(sm_growth_pressure(&options, 20000 * SM_MIB, 0), 500);
    assert_int_equal(sm_growth_pressure(&options, 0, 0), 500);
    assert_int_equal(sm_growth_pressure(&options, 0, UINT64_MAX), 2000);
    assert_int_equal(sm_growth_pressure(&options, UINT64_MAX, 1000), 500);
    /* The first growths say little: they are weighed as if 256 MiB were held. */
    options.work_percent = 100;
    assert_int_equal(sm_growth_pressure(&options, 2 * SM_MIB, 16), 1250);
}

static uint64_t pressure = 1000;

/* Properties of every cut; returns the count. */
static unsigned cut(const struct sm_options *options, uint64_t bytes, uint64_t granularity, bool small_class)
{
    struct sm_growth_state growth = {
        .granularity = granularity, .missing = bytes, .pressure = pressure, .small_class = small_class};
    uint64_t sum = 0;
    unsigned count = sm_growth_handles(options, &growth, bytes, sizes);
    assert_in_range(count, 1, SM_GROWTH_HANDLES_MAX);
    for (unsigned i = 0; i < count; i++) {
        assert_true(sizes[i] > 0 && sizes[i] % granularity == 0);
        sum += sizes[i];
    }
    assert_true(sum == bytes);
    return count;
}

static void a_small_growth_is_one_handle(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    for (uint64_t bytes = 2 * SM_MIB; bytes <= 22 * SM_MIB; bytes += 2 * SM_MIB)
        assert_int_equal(cut(&options, bytes, 2 * SM_MIB, false), 1);
    assert_int_equal(cut(&options, 200 * SM_MIB, 2 * SM_MIB, true), 1);
}

static void more_is_equal_handles_and_a_granule(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    assert_int_equal(cut(&options, 26 * SM_MIB, 2 * SM_MIB, false), 3); /* 12, 12, 2 */
    assert_int_equal(sizes[0], 12 * SM_MIB);
    assert_int_equal(sizes[2], 2 * SM_MIB);
    for (pressure = 500; pressure <= 2000; pressure += 250) {
        for (uint64_t bytes = 48 * SM_MIB; bytes < 8 * SM_GIB; bytes += 46 * SM_MIB) {
            unsigned count = cut(&options, bytes, 2 * SM_MIB, false);
            if (count == 1)
                continue; /* 48 MiB under the highest pressure */
            assert_int_equal(sizes[count - 1], 2 * SM_MIB);
            for (unsigned i = 0; i + 1 < count; i++) {
                assert_true(sizes[i] <= 24 * SM_MIB * pressure / 1000);
                assert_true(sizes[0] - sizes[i] <= 2 * SM_MIB);
            }
        }
    }
    pressure = 1000;
}

static void work_makes_handles_larger(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    unsigned before = UINT_MAX;
    for (pressure = 500; pressure <= 2000; pressure += 500) {
        unsigned count = cut(&options, 10 * SM_GIB, 2 * SM_MIB, false);
        assert_true(count < before);
        before = count;
    }
    pressure = 1000;
}

/* Where parts of handles map, a large one loses nothing. */
static void handles_are_large_where_parts_map(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    struct sm_growth_state growth = {.granularity = 2 * SM_MIB, .pressure = 500, .parts = true};
    assert_int_equal(sm_growth_handles(&options, &growth, 512 * SM_MIB, sizes), 1);
    assert_int_equal(sm_growth_handles(&options, &growth, 514 * SM_MIB, sizes), 2);
    options.handle_bytes = 16 * SM_MIB;
    assert_int_equal(sm_growth_handles(&options, &growth, 512 * SM_MIB, sizes), 32);
}

static void handle_mib_is_an_upper_bound(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    options.handle_bytes = 8 * SM_MIB;
    for (int small = 0; small < 2; small++) {
        for (uint64_t bytes = 2 * SM_MIB; bytes < 400 * SM_MIB; bytes += 6 * SM_MIB) {
            unsigned count = cut(&options, bytes, 2 * SM_MIB, small);
            for (unsigned i = 0; i < count; i++)
                assert_true(sizes[i] <= 8 * SM_MIB);
        }
    }
    options.handle_bytes = SM_GIB;
    assert_int_equal(cut(&options, 502 * SM_MIB, 2 * SM_MIB, false), 1);
    assert_int_equal(cut(&options, 1026 * SM_MIB, 2 * SM_MIB, false), 2);
    options.handle_bytes = 3 * SM_MIB; /* no multiple of the granularity */
    cut(&options, 100 * SM_MIB, 2 * SM_MIB, false);
    assert_int_equal(sizes[0], 2 * SM_MIB);
}

static void handles_grow_rather_than_exceed_the_count(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    assert_int_equal(cut(&options, (uint64_t)1 << 50, 2 * SM_MIB, false), SM_GROWTH_HANDLES_MAX);
    options.handle_bytes = 2 * SM_MIB;
    assert_int_equal(cut(&options, 100 * SM_GIB, 2 * SM_MIB, false), SM_GROWTH_HANDLES_MAX);
    assert_int_equal(cut(&options, 100 * SM_GIB, 2 * SM_MIB, true), SM_GROWTH_HANDLES_MAX);
    assert_int_equal(cut(&options, SM_GROWTH_HANDLES_MAX * 2 * SM_MIB, 2 * SM_MIB, false),
                     SM_GROWTH_HANDLES_MAX); /* fits exactly */
    assert_int_equal(sizes[0], 2 * SM_MIB);
}

static void any_granularity(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    for (uint64_t granularity = 4096; granularity <= SM_GIB; granularity *= 4)
        for (uint64_t granules = 1; granules < 3000; granules = granules * 3 + 1)
            cut(&options, granules * granularity, granularity, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_is_what_is_missing),
        cmocka_unit_test(expandable_grows_in_equal_handles),
        cmocka_unit_test(native_segments_have_pytorchs_sizes),
        cmocka_unit_test(small_homes_grow_by_an_eighth),
        cmocka_unit_test(looking_ahead_stays_below_the_peak_and_its_slack),
        cmocka_unit_test(slack_is_a_share_and_at_least_eight_mib),
        cmocka_unit_test(pressure_is_work_against_a_mapping_for_each_20_mib),
        cmocka_unit_test(a_small_growth_is_one_handle),
        cmocka_unit_test(more_is_equal_handles_and_a_granule),
        cmocka_unit_test(work_makes_handles_larger),
        cmocka_unit_test(handles_are_large_where_parts_map),
        cmocka_unit_test(handle_mib_is_an_upper_bound),
        cmocka_unit_test(handles_grow_rather_than_exceed_the_count),
        cmocka_unit_test(any_granularity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
