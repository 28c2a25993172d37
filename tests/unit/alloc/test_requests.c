/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and frees: sizes at both ends, what is no block, reuse, splitting and rounding options, trim. */
#include "tests/support/fixture.h"
#include <string.h>

static void the_smallest_request(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 1, NULL), b = fixture_alloc(&f, 1, NULL),
                c = fixture_alloc(&f, 513, NULL);
    assert_int_equal(b, a + 512);
    assert_int_equal(c, b + 512);
    assert_int_equal(fixture_level(&f, SM_LEVEL_requested_bytes), 515);
    assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), 2048);
    assert_int_equal(fixture_level(&f, SM_LEVEL_reserved_bytes), 2 * MIB);
    fixture_close(&f); /* with live blocks */
}

static void a_hit_makes_no_driver_call(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 100 * MIB, NULL);
    fixture_free(&f, a);
    size_t host = sm_hostmem_bytes();
    uint64_t calls = sim_calls_total();
    struct sm_error error;
    for (int i = 0; i < 50; i++) {
        uint64_t block = sm_pool_alloc(f.device, 100 * MIB - (uint64_t)i * 512, NULL, &error);
        assert_int_equal(block, a);
        assert_int_equal(sm_pool_free(f.device, block), SEAM_OK);
    }
    assert_int_equal(sim_calls_total(), calls);
    assert_int_equal(sm_hostmem_bytes(), host);
    assert_int_equal(fixture_count(&f, SM_COUNTER_hits), 50);
    assert_int_equal(fixture_count(&f, SM_COUNTER_misses), 1);
    fixture_close(&f);
}

static void huge_requests_fail_cleanly(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {GIB + 1,           2 * GIB,
                                     (uint64_t)1 << 47, ((uint64_t)1 << 60) - 1,
                                     (uint64_t)1 << 60, ((uint64_t)1 << 60) + 1,
                                     UINT64_MAX - 511,  UINT64_MAX};
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 512 * MIB, NULL);
    uint64_t reserved = sim_physical_bytes(0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char number[32];
        fixture_refuse(&f, sizes[i], NULL, SEAM_E_DEVICE_OOM);
        snprintf(number, sizeof(number), "%lu", sizes[i]);
        assert_non_null(strstr(f.error.text, number));
    }
    assert_int_equal(sim_physical_bytes(0), reserved);
    fixture_free(&f, a);
    /* The whole device, to the last byte, and nothing is left over. */
    a = fixture_alloc(&f, GIB, NULL);
    fixture_refuse(&f, 1, NULL, SEAM_E_DEVICE_OOM);
    fixture_free(&f, a);
    fixture_close(&f);
}

static void every_bad_rounding_division_is_a_clean_refusal(void **state)
{
    (void)state;
    static const char *const options[] = {"roundup_power2_divisions:1", "roundup_power2_divisions:2",
                                          "roundup_power2_divisions:128"};
    for (size_t i = 0; i < 3; i++) {
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f, options[i]);
        fixture_refuse(&f, ((uint64_t)1 << 60) - 1, NULL, SEAM_E_DEVICE_OOM);
        fixture_refuse(&f, UINT64_MAX, NULL, SEAM_E_DEVICE_OOM);
        fixture_alloc(&f, 3 * MIB, NULL);
        fixture_close(&f);
    }
}

static void what_is_no_block_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 4096, NULL), b = fixture_alloc(&f, 4096, NULL);
    CUdeviceptr wrong[] = {0, 1, 512, a + 1, a + 512, a - 512, b + 4096, (CUdeviceptr)(uintptr_t)&f, ~0ull};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(sm_pool_free(f.device, wrong[i]), SEAM_E_POINTER);
        assert_int_equal(sm_pool_record_stream(f.device, wrong[i], NULL, &f.error), SEAM_E_POINTER);
        fixture_check(&f);
    }
    assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), 8192);
    fixture_free(&f, a);
    assert_int_equal(sm_pool_free(f.device, a), SEAM_E_POINTER);
    assert_int_equal(sm_pool_record_stream(f.device, a, NULL, &f.error), SEAM_E_POINTER);
    fixture_free(&f, b);
    assert_int_equal(sm_pool_free(f.device, b), SEAM_E_POINTER);
    fixture_close(&f);
}

static void a_pending_block_is_not_freed_twice(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.streams = SIM_STREAMS_LAG;
    f.sim.lag = 1000000;
    fixture_open(&f, "");
    CUstream other = fixture_stream();
    CUdeviceptr a = fixture_alloc(&f, 4096, NULL);
    fixture_use(&f, a, other);
    fixture_work(other, a, 4096);
    fixture_free(&f, a);
    assert_int_equal(sm_pool_free(f.device, a), SEAM_E_POINTER);
    assert_int_equal(fixture_level(&f, SM_LEVEL_active), 1);
    assert_int_equal(sim_stream_run(other), CUDA_SUCCESS);
    fixture_close(&f);
}

static void the_block_that_holds_an_address(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 5000, NULL);
    for (uint64_t offset = 0; offset < 5120; offset += 511) {
        struct sm_block *block = sm_pool_block_of(f.device, a + offset);
        assert_non_null(block);
        assert_int_equal(block->address, a);
        assert_int_equal(block->size, 5120);
    }
    assert_null(sm_pool_block_of(f.device, a + 5120));
    assert_null(sm_pool_block_of(f.device, a - 1));
    assert_null(sm_pool_block_of(f.device, 0));
    assert_null(sm_pool_block_of(f.device, UINT64_MAX));
    fixture_free(&f, a);
    assert_null(sm_pool_block_of(f.device, a));
    fixture_close(&f);
}

static void trim_gives_everything_back(void **state)
{
    (void)state;
    struct fixture f;
    struct sim_live live;
    CUdeviceptr blocks[40];
    fixture_init(&f);
    fixture_open(&f, "");
    CUstream streams[2] = {NULL, fixture_stream()};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 40; i++)
            blocks[i] = fixture_alloc(&f, (uint64_t)(i % 7 + 1) * (i % 3 ? 700 : 2 * MIB), streams[i % 2]);
        /* Every second one: what is whole goes, live bytes stay. */
        for (int i = 0; i < 40; i += 2)
            fixture_free(&f, blocks[i]);
        int64_t allocated = fixture_level(&f, SM_LEVEL_allocated_bytes);
        fixture_trim(&f);
        assert_int_equal(f.device->heap.parts.bytes[SM_PART_whole_free], 0);
        assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), allocated);
        for (int i = 1; i < 40; i += 2) {
            assert_true(sim_accessible(blocks[i], 0));
            fixture_free(&f, blocks[i]);
        }
        fixture_trim(&f);
        sim_live(&live);
        assert_int_equal(sim_physical_bytes(0), 0);
        assert_int_equal(live.mappings, 0);
        assert_int_equal(live.reservations, 0);
        assert_int_equal(live.handles, 0);
    }
    fixture_close(&f);
}

static void a_trim_waits_for_the_streams_own_work(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.streams = SIM_STREAMS_LAG;
    f.sim.lag = 1000000;
    fixture_open(&f, "");
    CUstream stream = fixture_stream();
    CUdeviceptr a = fixture_alloc(&f, 8 * MIB, stream);
    fixture_work(stream, a, 8 * MIB);
    fixture_free(&f, a);
    assert_int_equal(sim_stream_pending(stream), 1);
    fixture_trim(&f); /* an unmap under the work would be a broken rule */
    assert_int_equal(sim_stream_pending(stream), 0);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

/* Requests from the split limit on get whole ranges, smaller ones never take from such a range. */
static void split_limit(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "max_split_size_mb:32");
    CUdeviceptr big = fixture_alloc(&f, 100 * MIB, NULL);
    fixture_free(&f, big);
    CUdeviceptr little = fixture_alloc(&f, 4 * MIB, NULL);
    assert_true(little < big || little >= big + 100 * MIB);
    /* Less than max_non_split_rounding (20 MiB) smaller: the same range, unsplit. */
    CUdeviceptr near = fixture_alloc(&f, 81 * MIB, NULL);
    assert_int_equal(near, big);
    assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), 104 * MIB);
    fixture_free(&f, near);
    /* More: not this range. */
    CUdeviceptr far = fixture_alloc(&f, 40 * MIB, NULL);
    assert_true(far < big || far >= big + 100 * MIB);
    fixture_close(&f);
}

static void rounding_options(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        uint64_t size, rounded;
    } rows[] = {
        {"", 514 * MIB + 1, 514 * MIB + 512},
        {"roundup_power2_divisions:2", 514 * MIB, 768 * MIB},
        {"roundup_power2_divisions:8", 514 * MIB, 576 * MIB},
        {"roundup_power2_divisions:4", 1200, 1536},
        {"roundup_power2_divisions:[1:1,4:2,16:4,>:8]", 3 * MIB, 4 * MIB},
        {"roundup_power2_divisions:[1:1,4:2,16:4,>:8]", 9 * MIB, 12 * MIB},
        {"roundup_power2_divisions:[1:1,4:2,16:4,>:8]", 40 * MIB, 40 * MIB},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f, rows[i].options);
        fixture_alloc(&f, rows[i].size, NULL);
        assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), rows[i].rounded);
        assert_int_equal(fixture_level(&f, SM_LEVEL_requested_bytes), rows[i].size);
        fixture_close(&f);
    }
}

static void the_size_classes_are_apart(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "small_limit_kib:64");
    CUdeviceptr small = fixture_alloc(&f, 64 * SM_KIB, NULL),
                large = fixture_alloc(&f, 64 * SM_KIB + 1, NULL);
    assert_true(sm_pool_block_of(f.device, small)->extent->home->key.small_class);
    assert_false(sm_pool_block_of(f.device, large)->extent->home->key.small_class);
    fixture_close(&f);
}

static void growth_has_the_size_of_what_is_missing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "slack_permille:0");
    CUdeviceptr a = fixture_alloc(&f, 100 * MIB, NULL);
    fixture_free(&f, a);
    assert_int_equal(fixture_alloc(&f, 104 * MIB, NULL), a);
    assert_int_equal(sim_physical_bytes(0), 104 * MIB);
    assert_int_equal(sim_physical_bytes_peak(0), 104 * MIB);
    fixture_close(&f);
}

/* Below the peak of what was alive a growth costs nothing at the peak, so it may be larger than needed. */
static void growth_below_the_peak_looks_ahead(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "slack_permille:0");
    fixture_alloc(&f, 4 * MIB, NULL);
    assert_int_equal(sim_physical_bytes(0), 4 * MIB);
    CUdeviceptr a = fixture_alloc(&f, 96 * MIB, NULL);
    fixture_free(&f, a);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 4 * MIB);
    fixture_alloc(&f, 6 * MIB, NULL);
    assert_int_equal(sim_physical_bytes(0), 36 * MIB);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_request),
        cmocka_unit_test(a_hit_makes_no_driver_call),
        cmocka_unit_test(huge_requests_fail_cleanly),
        cmocka_unit_test(every_bad_rounding_division_is_a_clean_refusal),
        cmocka_unit_test(what_is_no_block_is_refused),
        cmocka_unit_test(a_pending_block_is_not_freed_twice),
        cmocka_unit_test(the_block_that_holds_an_address),
        cmocka_unit_test(trim_gives_everything_back),
        cmocka_unit_test(a_trim_waits_for_the_streams_own_work),
        cmocka_unit_test(split_limit),
        cmocka_unit_test(rounding_options),
        cmocka_unit_test(the_size_classes_are_apart),
        cmocka_unit_test(growth_has_the_size_of_what_is_missing),
        cmocka_unit_test(growth_below_the_peak_looks_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
