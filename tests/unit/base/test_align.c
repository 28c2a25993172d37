/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic at its edges. */
#include "base/align.h"
#include "base/clock.h"
#include "tests/unit/base/cmocka_all.h"

static void powers_and_logarithms(void **state)
{
    (void)state;
    assert_false(sm_is_pow2(0));
    for (unsigned i = 0; i < 64; i++) {
        uint64_t power = (uint64_t)1 << i;
        assert_true(sm_is_pow2(power));
        assert_int_equal(sm_log2(power), i);
        if (i > 1) {
            assert_false(sm_is_pow2(power - 1));
            assert_false(sm_is_pow2(power + 1));
            assert_int_equal(sm_log2(power - 1), i - 1);
            assert_int_equal(sm_log2(power + 1), i);
        }
    }
    assert_int_equal(sm_log2(UINT64_MAX), 63);
}

static void aligning(void **state)
{
    (void)state;
    const uint64_t aligns[] = {1, 2, 512, 2 * SM_MIB, (uint64_t)1 << 62};
    for (unsigned i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        uint64_t align = aligns[i], out;
        for (uint64_t n = align - 1; n <= align + 1; n++) {
            uint64_t up = n == 0 ? 0 : n <= align ? align : 2 * align;
            assert_int_equal(sm_align_up(n, align), up);
            assert_int_equal(sm_align_down(n, align), n < align ? 0 : n / align * align);
            assert_true(sm_align_up_checked(n, align, &out));
            assert_int_equal(out, up);
        }
    }
}

static void aligning_does_not_wrap(void **state)
{
    (void)state;
    uint64_t out = 77;
    assert_false(sm_align_up_checked(UINT64_MAX, 512, &out));
    assert_false(sm_align_up_checked(UINT64_MAX - 510, 512, &out));
    assert_int_equal(out, 77);
    assert_true(sm_align_up_checked(UINT64_MAX - 511, 512, &out));
    assert_true(out == UINT64_MAX - 511);
}

static void least_most_and_time(void **state)
{
    (void)state;
    assert_true(sm_min(1, UINT64_MAX) == 1 && sm_max(1, UINT64_MAX) == UINT64_MAX);
    int64_t before = sm_clock_ns();
    assert_true(sm_clock_ns() >= before && before > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_and_logarithms),
        cmocka_unit_test(aligning),
        cmocka_unit_test(aligning_does_not_wrap),
        cmocka_unit_test(least_most_and_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
