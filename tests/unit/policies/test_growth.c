/* SPDX-License-Identifier: Apache-2.0 */
/* Growth: what is asked for, and how it is cut into handles. */
#include "base/align.h"
#include "policies/growth.h"
#include "tests/unit/policies/cmocka_all.h"

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
    assert_int_equal(sm_growth_free_limit(&options, 1000 * SM_MIB), 1008 * SM_MIB);
    assert_int_equal(sm_growth_free_limit(&options, 100000 * SM_MIB), 100400 * SM_MIB);
    assert_int_equal(sm_growth_free_limit(&options, 0), 8 * SM_MIB);
    options.slack_permille = 1000;
    assert_true(sm_growth_free_limit(&options, (uint64_t)1 << 60) == (uint64_t)1 << 61);
    options.slack_permille = 0;
    assert_int_equal(sm_growth_free_limit(&options, 100000 * SM_MIB), 100000 * SM_MIB);
}

/* Properties of every cut; returns the count. */
static unsigned cut(const struct sm_options *options, uint64_t bytes, uint64_t granularity, bool small_class)
{
    struct sm_growth_state growth = {
        .granularity = granularity, .missing = bytes, .small_class = small_class};
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

static void up_to_34_mib_is_one_handle(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    for (uint64_t bytes = 2 * SM_MIB; bytes <= 34 * SM_MIB; bytes += 2 * SM_MIB)
        assert_int_equal(cut(&options, bytes, 2 * SM_MIB, false), 1);
    assert_int_equal(cut(&options, 20 * SM_MIB, 2 * SM_MIB, true), 1);
}

static void more_is_equal_handles_and_a_granule(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    assert_int_equal(cut(&options, 36 * SM_MIB, 2 * SM_MIB, false), 4); /* 12, 12, 10, 2 */
    assert_int_equal(sizes[0], 12 * SM_MIB);
    assert_int_equal(sizes[2], 10 * SM_MIB);
    assert_int_equal(sizes[3], 2 * SM_MIB);
    assert_int_equal(cut(&options, 1202 * SM_MIB, 2 * SM_MIB, false), 13); /* at most 100 MiB each */
    assert_int_equal(cut(&options, 10242 * SM_MIB, 2 * SM_MIB, false), 81);
    assert_int_equal(sizes[0], 128 * SM_MIB);
    for (uint64_t bytes = 36 * SM_MIB; bytes < 8 * SM_GIB; bytes += 46 * SM_MIB) {
        unsigned count = cut(&options, bytes, 2 * SM_MIB, false);
        uint64_t most = sm_min(sm_max(bytes / 12, 16 * SM_MIB), 128 * SM_MIB);
        assert_int_equal(sizes[count - 1], 2 * SM_MIB);
        for (unsigned i = 0; i + 1 < count; i++) {
            assert_true(sizes[i] <= most);
            assert_true(sizes[0] - sizes[i] <= 2 * SM_MIB);
        }
    }
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
    assert_int_equal(cut(&options, 502 * SM_MIB, 2 * SM_MIB, false), 2);
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
        cmocka_unit_test(up_to_34_mib_is_one_handle),
        cmocka_unit_test(more_is_equal_handles_and_a_granule),
        cmocka_unit_test(handle_mib_is_an_upper_bound),
        cmocka_unit_test(handles_grow_rather_than_exceed_the_count),
        cmocka_unit_test(any_granularity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
