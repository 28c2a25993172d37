/* SPDX-License-Identifier: Apache-2.0 */
/* Fit: the split limit at its edges. */
#include "base/align.h"
#include "policies/fit.h"
#include "tests/unit/policies/cmocka_all.h"

#define B 512

static struct sm_options with_limit(uint64_t split, uint64_t rounding)
{
    struct sm_options options;
    sm_options_defaults(&options);
    options.max_split_size = split;
    options.max_non_split_rounding = rounding;
    return options;
}

static void without_a_limit_everything_serves(void **state)
{
    (void)state;
    struct sm_options options = with_limit(SM_UNLIMITED, 20 * SM_MIB);
    for (uint64_t request = B; request < 100 * SM_GIB; request *= 3) {
        assert_true(sm_fit_allows(&options, request, request));
        assert_false(sm_fit_splits(&options, request, request));
        assert_true(sm_fit_allows(&options, request, 500 * SM_GIB));
        assert_true(sm_fit_splits(&options, request, 500 * SM_GIB));
        assert_true(sm_fit_splits(&options, request, request + B));
    }
}

static void below_the_limit_large_ranges_are_kept(void **state)
{
    (void)state;
    uint64_t limit = 100 * SM_MIB;
    struct sm_options options = with_limit(limit, 20 * SM_MIB);
    assert_true(sm_fit_allows(&options, B, limit - B));
    assert_false(sm_fit_allows(&options, B, limit));
    assert_true(sm_fit_allows(&options, limit - B, limit - B));
    assert_false(sm_fit_allows(&options, limit - B, limit));
    assert_true(sm_fit_splits(&options, B, limit - B));
    assert_false(sm_fit_splits(&options, B, B));
}

static void from_the_limit_on_ranges_are_taken_whole(void **state)
{
    (void)state;
    uint64_t limit = 100 * SM_MIB, rounding = 20 * SM_MIB;
    struct sm_options options = with_limit(limit, rounding);
    for (uint64_t request = limit; request < SM_GIB; request += 99 * SM_MIB) {
        assert_true(sm_fit_allows(&options, request, request));
        assert_true(sm_fit_allows(&options, request, request + rounding - B));
        assert_false(sm_fit_allows(&options, request, request + rounding));
        assert_false(sm_fit_splits(&options, request, request + rounding - B));
    }
}

/* PyTorch: small and large part at 1 MiB; a large segment is split only for more than 1 MiB, an expandable
 * one always. */
static void pytorchs_classes_and_splits(void **state)
{
    (void)state;
    struct sm_options options;
    sm_options_defaults(&options);
    assert_true(sm_fit_is_small(&options, options.small_limit));
    assert_false(sm_fit_is_small(&options, options.small_limit + 512));
    options.policy = SM_POLICY_NATIVE;
    assert_true(sm_fit_is_small(&options, 1 << 20));
    assert_false(sm_fit_is_small(&options, (1 << 20) + 512));
    assert_true(sm_fit_splits(&options, 512, 1024));
    assert_false(sm_fit_splits(&options, 4 << 20, 5 << 20));
    assert_true(sm_fit_splits(&options, 4 << 20, (5 << 20) + 512));
    options.max_split_size = 20 << 20;
    assert_false(sm_fit_splits(&options, 20 << 20, 40 << 20));
    options.policy = SM_POLICY_EXPANDABLE;
    assert_true(sm_fit_splits(&options, 20 << 20, (20 << 20) + 512));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorchs_classes_and_splits),
        cmocka_unit_test(without_a_limit_everything_serves),
        cmocka_unit_test(below_the_limit_large_ranges_are_kept),
        cmocka_unit_test(from_the_limit_on_ranges_are_taken_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
