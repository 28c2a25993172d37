/* SPDX-License-Identifier: Apache-2.0 */
/* Every pair of options works together: two values of each key, from its row in the table, with two of each
 * other key, under each policy. A short life on a small device, with several streams, a pool, trims and
 * requests that find no room, must leave books that agree with the device's after every step; a limit is
 * kept, and the settings read back are those that were given. */
#include "policies/options_table.h"
#include "tests/support/fixture.h"
#include <stdio.h>
#include <string.h>

#define DEVICE_BYTES (256 * MIB)
#define VALUES       2
#define TEXT_MAX     128

/* The lowest value of a key, and one that is a multiple of nothing; false when the key has no effect, or none
 * that a test can look at. */
static bool value_of(int key, int which, char text[TEXT_MAX])
{
    const struct sm_option_row *row = &sm_option_rows[key];
    const char *name = sm_options_table()[key].key;
    if (row->offset == SM_OPTION_NOT_STORED || row->kind == SM_OPTION_PATH || !strcmp(name, "log") ||
        !strcmp(name, "policy"))
        return false;
    switch (row->kind) {
    case SM_OPTION_NUMBER: {
        uint64_t other = 3 * row->min + 7;
        /* Even ones: the device rounds plain segments up to 2 MiB, and the books do not. */
        uint64_t value = which && other <= row->max ? other : row->min;
        snprintf(text, TEXT_MAX, "%s:%lu", name, row->unit == MIB ? value + value % 2 : value);
        return true;
    }
    case SM_OPTION_SHARE:
        snprintf(text, TEXT_MAX, "%s:%s", name, which ? "0.7" : "0.4");
        return true;
    case SM_OPTION_BOOL:
        snprintf(text, TEXT_MAX, "%s:%s", name, which ? "True" : "False");
        return true;
    case SM_OPTION_CHOICE:
        snprintf(text, TEXT_MAX, "%s:%s", name, row->names[which]);
        return true;
    case SM_OPTION_DIVISIONS:
        snprintf(text, TEXT_MAX, "%s:%s", name, which ? "[2:8,16:2]" : "1");
        return true;
    default:
        return false;
    }
}

/* A request that may find no room. */
static CUdeviceptr try(struct fixture *f, uint64_t size, CUstream stream)
{
    CUdeviceptr block = sm_pool_alloc(fixture_device(f, 0), size, stream, &f->error);
    if (!block && f->error.code != SEAM_E_DEVICE_OOM && f->error.code != SEAM_E_LIMIT)
        fail_msg("%s", f->error.text);
    assert_int_equal(block % 512, 0);
    return block;
}

static void give(struct fixture *f, CUdeviceptr *block)
{
    if (*block)
        fixture_free(f, *block);
    *block = 0;
}

/* Blocks of all classes; every second one goes, then larger ones come, more than there is room for. */
static void live(struct fixture *f)
{
    static const uint64_t sizes[] = {600,      300 * SM_KIB,   3 * MIB + 1, 9 * MIB,
                                     21 * MIB, 17 * MIB + 512, 40 * MIB};
    CUdeviceptr blocks[14] = {0}, large[4] = {0};
    CUstream streams[] = {NULL, fixture_stream(), fixture_stream()};
    seam_pool_id pool = {3, 4};
    struct sm_device *device = fixture_device(f, 0);
    assert_int_equal(sm_capture_begin(device, pool, NULL, NULL, &f->error), SEAM_OK);
    CUdeviceptr pooled = try(f, 5 * MIB, streams[1]);
    assert_int_equal(sm_capture_end(device, pool, &f->error), SEAM_OK);
    for (int i = 0; i < 14; i++) {
        blocks[i] = try(f, sizes[i % 7], streams[i % 3]);
        if (blocks[i] && i % 4 == 1)
            fixture_use(f, blocks[i], streams[(i + 1) % 3]);
    }
    fixture_check(f);
    for (int i = 0; i < 14; i += 2)
        give(f, &blocks[i]);
    for (int i = 0; i < 4; i++)
        large[i] = try(f, (25 + 30 * (uint64_t)i) * MIB, streams[i % 2]);
    fixture_check(f);
    give(f, &pooled);
    assert_int_equal(sm_capture_release(device, pool, &f->error), SEAM_OK);
    for (int i = 0; i < 4; i++)
        give(f, &large[i]);
    fixture_trim(f);
    fixture_check(f);
    for (int i = 0; i < 14; i++)
        give(f, &blocks[i]);
    give(f, &(CUdeviceptr){try(f, 60 * MIB, streams[2])});
    fixture_trim(f);
    assert_int_equal(sim_physical_bytes(0), 0);
}

static const char *const policies[] = {"stitch", "expandable", "native"};

static void check_settings(const struct fixture *f, const char *settings)
{
    struct sm_options again;
    struct sm_error error;
    char text[4096], reread[4096];
    sm_options_defaults(&again);
    sm_options_format(&f->allocator->options, text, sizeof text);
    if (sm_options_parse(&again, "echo", text, &error))
        fail_msg("%s: %s", settings, error.text);
    sm_options_format(&again, reread, sizeof reread);
    assert_string_equal(text, reread);
}

/* As PyTorch, expandable asks for room for a segment, and then maps whole handles. */
static void check_limit(const struct fixture *f)
{
    uint64_t limit = (uint64_t)(f->options.per_process_memory_fraction * (double)DEVICE_BYTES);
    if (f->options.policy == SM_POLICY_EXPANDABLE)
        limit += f->options.large_segment_size;
    assert_true(sim_physical_bytes_peak(0) <= limit);
}

static void check_pair(const char *policy, const char *one, const char *other)
{
    char settings[3 * TEXT_MAX];
    struct fixture f;
    snprintf(settings, sizeof settings, "policy:%s,%s,%s", policy, one, other);
    print_message("%s\n", settings);
    fixture_init(&f);
    f.sim.device_bytes = DEVICE_BYTES;
    fixture_open(&f, settings);
    check_settings(&f, settings);
    live(&f);
    check_limit(&f);
    fixture_close(&f);
}

static void check_with_others(const char *policy, int first, const char *one, unsigned *count)
{
    char other[TEXT_MAX];
    for (int key = first + 1; sm_options_table()[key].key; key++)
        for (int which = 0; which < VALUES; which++)
            if (value_of(key, which, other)) {
                check_pair(policy, one, other);
                ++*count;
            }
}

static void every_pair_works(void **state)
{
    (void)state;
    unsigned count = 0;
    char one[TEXT_MAX];
    for (int p = 0; p < SM_POLICY_COUNT; p++)
        for (int key = 0; sm_options_table()[key].key; key++)
            for (int which = 0; which < VALUES; which++)
                if (value_of(key, which, one))
                    check_with_others(policies[p], key, one, &count);
    assert_true(count > 900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
