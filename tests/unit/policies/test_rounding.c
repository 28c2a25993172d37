/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding: the known figures, tables with gaps, and the property over all sizes next to the edges. */
#include "base/align.h"
#include "policies/rounding.h"
#include "tests/unit/policies/cmocka_all.h"
#include <stdio.h>

static uint64_t rounded(const char *divisions, uint64_t size)
{
    struct sm_options options;
    struct sm_error error;
    char text[200];
    sm_options_defaults(&options);
    snprintf(text, sizeof text, "roundup_power2_divisions:%s", divisions);
    if (sm_options_parse(&options, "SEAMALLOC_CONF", text, &error) != SEAM_OK)
        fail_msg("%s", error.text);
    return sm_round_size(&options, size);
}

static void plain_rounding_is_to_512(void **state)
{
    (void)state;
    assert_int_equal(rounded("0", 1), 512);
    assert_int_equal(rounded("0", 511), 512);
    assert_int_equal(rounded("0", 512), 512);
    assert_int_equal(rounded("0", 513), 1024);
    assert_int_equal(rounded("0", 514 * SM_MIB), 514 * SM_MIB);
    assert_true(rounded("0", SM_REQUEST_MAX) == SM_REQUEST_MAX);
    assert_true(rounded("0", SM_REQUEST_MAX - 1) == SM_REQUEST_MAX);
    assert_true(rounded("1", SM_REQUEST_MAX - 1) == SM_REQUEST_MAX);
}

static void near_sizes_become_one(void **state)
{
    (void)state;
    assert_int_equal(rounded("1", 514 * SM_MIB), 1024 * SM_MIB);
    assert_int_equal(rounded("2", 514 * SM_MIB), 768 * SM_MIB);
    assert_int_equal(rounded("4", 514 * SM_MIB), 640 * SM_MIB);
    assert_int_equal(rounded("8", 514 * SM_MIB), 576 * SM_MIB);
    assert_int_equal(rounded("4", 1200), 1536); /* up to 512 d the plain rule holds */
    assert_int_equal(rounded("4", 2049), 2560);
    assert_int_equal(rounded("1", 513), 1024);
    assert_int_equal(rounded("1", 1200), 2048);
    static const char *const all[] = {"0", "1", "2", "4", "8", "16", "32", "64", "128"};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(rounded(all[i], 512 * SM_MIB), 512 * SM_MIB);
        assert_int_equal(rounded(all[i], SM_GIB), SM_GIB);
    }
}

static void tables_with_gaps(void **state)
{
    (void)state;
    static const char table[] = "[1:1,4:2,16:4,>:8]";
    assert_int_equal(rounded(table, 3 * SM_MIB), 4 * SM_MIB);   /* 2 is not listed: 1's */
    assert_int_equal(rounded(table, 9 * SM_MIB), 12 * SM_MIB);  /* 8 is not listed: 4's, halves */
    assert_int_equal(rounded(table, 17 * SM_MIB), 20 * SM_MIB); /* quarters */
    assert_int_equal(rounded(table, 33 * SM_MIB), 36 * SM_MIB); /* behind the last: ">" */
    assert_int_equal(rounded(table, 200 * SM_GIB), 208 * SM_GIB);
    assert_int_equal(rounded(table, 600 * SM_KIB), 1024 * SM_KIB);
    /* The first pair counts below itself, the last one above where no ">" stands. */
    assert_int_equal(rounded("[64:2,256:0]", 5 * SM_MIB), 6 * SM_MIB);
    assert_int_equal(rounded("[64:2,256:0]", 129 * SM_MIB), 192 * SM_MIB);
    assert_int_equal(rounded("[64:2,256:0]", 257 * SM_MIB), 257 * SM_MIB);
    assert_int_equal(rounded("[64:2,256:4]", 33 * SM_GIB), 40 * SM_GIB);
    assert_int_equal(rounded("[>:1]", 514 * SM_MIB), 1024 * SM_MIB);
}

static unsigned slot_of(uint64_t size)
{
    unsigned log = sm_log2(size);
    return log < 20 ? 0 : log > 35 ? 15 : log - 20;
}

static void check_property(const struct sm_options *options, uint64_t size, uint64_t *size_before,
                           uint64_t *result_before)
{
    unsigned d = options->roundup_divisions[slot_of(size)];
    uint64_t result = sm_round_size(options, size);
    assert_true(result >= size);
    assert_int_equal(result % 512, 0);
    assert_int_equal(sm_round_size(options, result), result);
    if (d && size > 512 * d)
        assert_true(result - size <= size / d); /* result / size <= 1 + 1/d */
    else
        assert_true(result - size < 512);
    if (size >= *size_before && slot_of(size) == slot_of(*size_before))
        assert_true(result >= *result_before);
    if (sm_is_pow2(size) && size >= 512)
        assert_true(result == size);
    *size_before = size;
    *result_before = result;
}

static void property_next_to_every_edge(void **state)
{
    (void)state;
    struct sm_options options;
    for (unsigned d = 0; d <= 128; d = d ? 2 * d : 1) {
        sm_options_defaults(&options);
        for (unsigned i = 0; i < SM_ROUNDUP_SLOTS; i++)
            options.roundup_divisions[i] = (uint8_t)d;
        uint64_t before = 1, result = 512;
        for (unsigned log = 0; log < 60; log++) {
            uint64_t power = (uint64_t)1 << log, step = power / 64 ? power / 64 : 1;
            for (uint64_t base = power; base < 2 * power; base += step)
                for (uint64_t size = base - (base > 1); size <= base + 1; size++)
                    check_property(&options, size, &before, &result);
        }
    }
}

/* PyTorch leaves an interval off that no pair names; the first pair counts below it, ">" above the last. */
static void intervals_that_are_not_listed(void **state)
{
    (void)state;
    struct sm_options options;
    struct sm_error error;
    static const struct {
        uint64_t size, pytorch, stitch;
    } cases[] = {
        {SM_MIB + 513, SM_MIB + SM_MIB / 8, SM_MIB + SM_MIB / 8},           /* below the first pair */
        {2 * SM_MIB + 1, 2 * SM_MIB + SM_MIB / 4, 2 * SM_MIB + SM_MIB / 4}, /* named */
        {4 * SM_MIB + 1, 4 * SM_MIB + 512, 4 * SM_MIB + SM_MIB / 2},        /* not named */
        {16 * SM_MIB + 1, 24 * SM_MIB, 24 * SM_MIB},
        {32 * SM_MIB + 1, 32 * SM_MIB + 512, 48 * SM_MIB},
        {64 * SM_MIB + 1, 64 * SM_MIB + 512, 128 * SM_MIB}, /* 1: off there, the next power of two here */
        {128 * SM_MIB + 1, 160 * SM_MIB, 160 * SM_MIB},     /* ">" */
        {100 * SM_GIB, 112 * SM_GIB, 112 * SM_GIB},
    };
    for (int policy = 0; policy < SM_POLICY_COUNT; policy++)
        for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            sm_options_defaults(&options);
            assert_int_equal(sm_options_parse(&options, "PYTORCH_ALLOC_CONF",
                                              "roundup_power2_divisions:[2:8,16:2,64:1,>:4]", &error),
                             SEAM_OK);
            options.policy = (enum sm_policy)policy;
            assert_int_equal(sm_round_size(&options, cases[i].size),
                             policy == SM_POLICY_STITCH ? cases[i].stitch : cases[i].pytorch);
        }
}

static void property_of_random_sizes_and_tables(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    struct sm_options options;
    for (unsigned round = 0; round < 300; round++) {
        sm_options_defaults(&options);
        for (unsigned i = 0; i < SM_ROUNDUP_SLOTS; i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            options.roundup_divisions[i] = (uint8_t)(seed % 9 ? 1u << (seed % 9 - 1) : 0);
        }
        for (unsigned i = 0; i < 300; i++) {
            uint64_t before = 1, result = 512;
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            uint64_t size = (seed >> (4 + seed % 60)) + 1;
            check_property(&options, size, &before, &result);
            check_property(&options, size + seed % 1000, &before, &result);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_rounding_is_to_512),
        cmocka_unit_test(near_sizes_become_one),
        cmocka_unit_test(tables_with_gaps),
        cmocka_unit_test(intervals_that_are_not_listed),
        cmocka_unit_test(property_next_to_every_edge),
        cmocka_unit_test(property_of_random_sizes_and_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
