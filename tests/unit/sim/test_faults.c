/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that fail on purpose: which ones, how often, with what, and that they then do nothing. */
#include "tests/unit/sim/sim_test.h"

static void test_once(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    assert_true(sim_fail("cuMemCreate", 3, false, CUDA_ERROR_OUT_OF_MEMORY));
    assert_ok(try_create(UNIT, &handle));
    assert_ok(try_create(UNIT, &handle));
    assert_int_equal(try_create(UNIT, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sim_physical_bytes(0), 2 * UNIT);
    assert_ok(try_create(UNIT, &handle));
    assert_int_equal(sim_fail_hits(), 1);
    assert_int_equal(sim_calls("cuMemCreate"), 4); /* a call that fails is one too */
}

static void test_for_ever(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(UNIT);
    CUdeviceptr base = reserve(UNIT);
    assert_true(sim_fail("cuMemMap", 1, true, CUDA_ERROR_UNKNOWN));
    for (int i = 0; i < 5; i++)
        assert_int_equal(cuMemMap(base, UNIT, 0, handle, 0), CUDA_ERROR_UNKNOWN);
    assert_int_equal(sim_fail_hits(), 5);
    sim_fail_clear();
    assert_int_equal(sim_fail_hits(), 0);
    assert_ok(cuMemMap(base, UNIT, 0, handle, 0));
}

static void test_unknown_name(void **state)
{
    (void)state;
    assert_false(sim_fail("cuMemCreat", 1, false, CUDA_ERROR_UNKNOWN));
    assert_false(sim_fail("cuMemAlloc_v2", 1, false, CUDA_ERROR_UNKNOWN));
    assert_false(sim_fail_any_of("cuMemCreate,nothing", 1, false));
    assert_true(sim_fail_any_of("cuMemCreate,cuMemMap", 1, false));
}

/* One pass over a few calls, in which the nth of them fails. Returns: how many failed. */
static unsigned pass(uint64_t nth, bool forever)
{
    unsigned failed = 0;
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle handle = 0;
    sim_reset();
    use_device(0);
    sim_fail_any(nth, forever);
    failed += cuMemAddressReserve(&base, UNIT, 0, 0, 0) != CUDA_SUCCESS;
    failed += try_create(UNIT, &handle) != CUDA_SUCCESS;
    failed += cuMemMap(base, UNIT, 0, handle, 0) != CUDA_SUCCESS;
    failed += try_access(base, UNIT, 0) != CUDA_SUCCESS;
    return failed;
}

/* A loop over n reaches each call in turn; queries that cannot fail on a healthy device are not counted. */
static void test_any(void **state)
{
    (void)state;
    CUstreamCaptureStatus status;
    for (uint64_t n = 1; n <= 4; n++) {
        assert_int_not_equal(pass(n, false), 0);
        assert_int_equal(sim_fail_hits(), 1);
        assert_int_equal(pass(n, true), 5 - n);
        assert_int_equal(sim_fail_hits(), 5 - n);
    }
    assert_int_equal(pass(5, false), 0);
    assert_int_equal(sim_fail_hits(), 0);
    assert_ok(cuStreamIsCapturing(NULL, &status)); /* not counted */
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
}

/* Where the driver may run out, out of memory is the error; elsewhere it is an unknown one. */
static void test_suitable_errors(void **state)
{
    (void)state;
    CUdeviceptr base = reserve(UNIT);
    CUmemGenericAllocationHandle handle;
    assert_true(sim_fail_any_of("cuMemCreate,cuMemAddressFree", 1, true));
    assert_int_equal(try_create(UNIT, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAddressFree(base, UNIT), CUDA_ERROR_UNKNOWN);
    struct sim_live live;
    sim_live(&live);
    assert_int_equal(live.reservations, 1);
}

/* Only calls of a size are counted, and only they fail. */
static void test_sizes(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    assert_true(sim_fail_text("cuMemCreate:2:size>=8M:size<16M"));
    assert_ok(try_create(4 * UNIT, &handle));
    assert_ok(try_create(UNIT, &handle));
    assert_ok(try_create(8 * UNIT, &handle));
    assert_int_equal(try_create(7 * UNIT, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    assert_ok(try_create(7 * UNIT, &handle));
    assert_true(sim_fail_text("cuMemCreate:1+:size=4194304"));
    assert_ok(try_create(UNIT, &handle));
    assert_int_equal(try_create(2 * UNIT, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(try_create(2 * UNIT, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sim_fail_hits(), 3);
}

/* A creation is about the device whose memory it takes; others are about the current one. */
static void test_devices(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp other = device_prop(1);
    CUdeviceptr plain;
    assert_true(sim_fail_text("cuMemCreate:1+:device=1,cuMemAlloc:1:device=1"));
    assert_ok(try_create(UNIT, &handle));
    assert_int_equal(cuMemCreate(&handle, UNIT, &other, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_ok(cuMemAlloc(&plain, UNIT));
    use_device(1);
    assert_int_equal(cuMemAlloc(&plain, UNIT), CUDA_ERROR_OUT_OF_MEMORY);
    assert_ok(cuMemAlloc(&plain, UNIT));
}

static void test_several_in_a_row(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    assert_true(sim_fail_text("cuMemCreate:2..4"));
    assert_ok(try_create(UNIT, &handle));
    for (int i = 0; i < 3; i++)
        assert_int_equal(try_create(UNIT, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    assert_ok(try_create(UNIT, &handle));
}

/* All or nothing. */
static void test_bad_text(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    assert_false(sim_fail_text("cuMemCreate:1,cuMemMap:1:size>=x"));
    assert_ok(try_create(UNIT, &handle));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, start_small)
    const struct CMUnitTest tests[] = {
        TEST(test_once),    TEST(test_for_ever),         TEST(test_unknown_name),
        TEST(test_any),     TEST(test_suitable_errors),  TEST(test_sizes),
        TEST(test_devices), TEST(test_several_in_a_row), TEST(test_bad_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
