/* SPDX-License-Identifier: Apache-2.0 */
/* What drivers do in different ways: each switch changes what it says, and by default is off. The public
 * reports behind them are named at each test. */
#include "tests/unit/sim/sim_test.h"

static void begin_with(struct sim_config *config)
{
    begin(config);
    assert_int_equal(sim_violation_count(), 0);
}

/* note: cuMemMap's comment allows a part of a handle and says that the offset must be 0; only whole handles
 * by default. */
static void test_partial_mappings(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    for (int on = 0; on < 2; on++) {
        config.partial = on ? SIM_PARTIAL_INNER : SIM_PARTIAL_WHOLE;
        begin_with(&config);
        CUmemGenericAllocationHandle handle = create(4 * UNIT);
        CUdeviceptr base = reserve(8 * UNIT);
        CUresult wanted = on ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        assert_int_equal(cuMemMap(base, 2 * UNIT, 0, handle, 0), wanted);
        assert_int_equal(cuMemMap(base + 2 * UNIT, 2 * UNIT, UNIT, handle, 0), wanted);
        assert_int_equal(cuMemMap(base + 4 * UNIT, 4 * UNIT, UNIT, handle, 0), CUDA_ERROR_INVALID_VALUE);
        if (!on)
            continue;
        unsigned word = 5, got = 0;
        uint64_t offset;
        assert_true(sim_resolve(base + 2 * UNIT + 5, NULL, &offset));
        assert_int_equal(offset, UNIT + 5);
        assert_ok(try_access(base, 4 * UNIT, 0));
        assert_ok(cuMemcpyHtoD(base + UNIT + 64, &word, 4));
        assert_ok(cuMemcpyDtoH(&got, base + 2 * UNIT + 64, 4)); /* the same byte of the handle */
        assert_int_equal(got, 5);
    }
}

/* note: a range that several maps made and one unmap undid stayed in use on another vendor's driver. */
static void test_unmap_single(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmemGenericAllocationHandle handle;
    for (int several = 0; several < 2; several++) {
        config.unmap_several = several;
        begin_with(&config);
        CUdeviceptr base = reserve(2 * UNIT);
        handle = create(UNIT);
        assert_ok(cuMemMap(base, UNIT, 0, handle, 0));
        assert_ok(cuMemMap(base + UNIT, UNIT, 0, handle, 0));
        assert_int_equal(cuMemUnmap(base, 2 * UNIT), several ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(sim_mapping_count(0), several ? 0 : 2);
        if (several)
            continue;
        assert_broken("unmap-several");
        assert_ok(cuMemUnmap(base, UNIT));
        assert_ok(cuMemUnmap(base + UNIT, UNIT));
    }
}

/* note: set-access failed on some parts unless it was called for the whole range. */
static void test_access_whole(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    for (int on = 0; on < 2; on++) {
        config.access_whole = on;
        begin_with(&config);
        CUdeviceptr base = reserve(4 * UNIT);
        assert_ok(cuMemMap(base, UNIT, 0, create(UNIT), 0));
        assert_ok(try_access(base, UNIT, 0)); /* there is one alone */
        assert_ok(cuMemMap(base + UNIT, UNIT, 0, create(UNIT), 0));
        assert_int_equal(try_access(base + UNIT, UNIT, 0), on ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
        assert_int_equal(sim_accessible(base + UNIT, 0), !on);
        assert_true(sim_accessible(base, 0));
        assert_ok(try_access(base, 2 * UNIT, 0));
        assert_true(sim_accessible(base + UNIT, 0));
    }
}

/* note: released memory came back only when its addresses were freed, on one vendor's driver. */
static void test_release_keeps(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    for (int on = 0; on < 2; on++) {
        config.release_keeps = on;
        begin_with(&config);
        CUmemGenericAllocationHandle first = create(4 * UNIT), second = create(UNIT);
        CUdeviceptr base = reserve(8 * UNIT), other = reserve(UNIT);
        assert_ok(cuMemMap(base, 4 * UNIT, 0, first, 0));
        assert_ok(cuMemMap(other, UNIT, 0, second, 0));
        assert_ok(cuMemUnmap(base, 4 * UNIT));
        assert_ok(cuMemRelease(first)); /* after the unmap */
        assert_ok(cuMemRelease(second));
        assert_ok(cuMemUnmap(other, UNIT));    /* before it */
        assert_ok(cuMemRelease(create(UNIT))); /* never mapped */
        assert_int_equal(sim_physical_bytes(0), on ? 5 * UNIT : 0);
        assert_ok(cuMemAddressFree(base, 8 * UNIT));
        assert_int_equal(sim_physical_bytes(0), on ? UNIT : 0);
        CUdeviceptr again = reserve(8 * UNIT); /* the same addresses are another reservation */
        assert_int_equal(again, base);
        assert_ok(cuMemAddressFree(again, 8 * UNIT));
        assert_ok(cuMemAddressFree(other, UNIT));
        assert_int_equal(sim_physical_bytes(0), 0);
    }
    config.release_keeps = true; /* what is kept goes with the device */
    begin_with(&config);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = map_new(UNIT, &handle);
    assert_ok(cuMemUnmap(base, UNIT));
    assert_ok(cuMemRelease(handle));
    sim_reset();
    assert_int_equal(sim_physical_bytes(0), 0);
}

/* note: a reservation at a wished address was an invalid value on some drivers. */
static void test_hints_refused(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    for (int on = 0; on < 2; on++) {
        config.hints_refused = on;
        begin_with(&config);
        CUdeviceptr base = reserve(UNIT), next = 77;
        CUresult result = cuMemAddressReserve(&next, UNIT, 0, base + 8 * UNIT, 0);
        assert_int_equal(result, on ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
        assert_int_equal(next, on ? 77 : base + 8 * UNIT);
        assert_ok(cuMemAddressReserve(&next, UNIT, 0, 0, 0));
    }
}

/* note: the driver of a desktop system goes on beyond the memory of the device, and says that none is free.
 */
static void test_oversubscribe(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr plain;
    size_t left, total;
    for (int on = 0; on < 2; on++) {
        config.oversubscribe = on;
        begin_with(&config);
        create(240 * (size_t)MIB);
        assert_int_equal(try_create(32 * MIB, &handle), on ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(cuMemAlloc(&plain, 200 * (size_t)MIB), on ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
        assert_ok(cuMemGetInfo(&left, &total));
        assert_int_equal(total, 256 * MIB);
        assert_int_equal(left, on ? 0 : 16 * MIB);
        assert_int_equal(try_create(64 * MIB, &handle), CUDA_ERROR_OUT_OF_MEMORY); /* not without end */
    }
}

/* note: a reservation by one granularity and a handle by another did not go together. */
static void test_recommended_granularity(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmemAllocationProp prop = device_prop(0);
    CUmemGenericAllocationHandle handle;
    size_t least, recommended;
    config.recommended = 16 * MIB;
    begin_with(&config);
    assert_ok(cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    assert_ok(cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    assert_int_equal(least, UNIT);
    assert_int_equal(recommended, 16 * MIB);
    assert_ok(try_create(UNIT, &handle)); /* the smaller one is what has to be kept */
    config.recommended = MIB;
    assert_false(sim_start(&config));
}

/* ---- another tenant, between two calls ---- */

static void test_tenant_between_calls(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmemGenericAllocationHandle handle;
    size_t left, total;
    begin_with(&config);
    assert_true(sim_fail_text("cuMemCreate:1:tenant=200M,cuMemCreate:3:tenant=-100M:device=0"));
    assert_ok(cuMemGetInfo(&left, &total));
    assert_int_equal(left, 256 * MIB);
    assert_int_equal(try_create(64 * MIB, &handle), CUDA_ERROR_OUT_OF_MEMORY); /* it was there a call ago */
    assert_ok(try_create(32 * MIB, &handle));
    assert_ok(try_create(64 * MIB, &handle));
    assert_int_equal(sim_fail_hits(), 0);                   /* no call failed on purpose */
    assert_true(sim_fail_text("cuMemGetInfo:1:tenant=4G")); /* all there is */
    assert_ok(cuMemGetInfo(&left, &total));
    assert_int_equal(left, 0);
    assert_true(sim_fail_text("cuMemGetInfo:1:tenant=-4G")); /* all that it has */
    assert_ok(cuMemGetInfo(&left, &total));
    assert_int_equal(left, 160 * MIB);
}

/* Each call that the reports name can be made to fail, once and by its place, with an error of choice. */
static void test_nth_of_each(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr base = 0;
    CUevent event;
    begin_with(&config);
    assert_true(sim_fail_text("cuMemCreate:2:error=CUDA_ERROR_NOT_PERMITTED,cuMemMap:2,cuMemSetAccess:2,"
                              "cuMemUnmap:2,cuMemAddressReserve:2,"
                              "cuEventQuery:2:error=CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
    assert_ok(cuEventCreate(&event, 0));
    static const CUresult wanted[2][6] = {{CUDA_SUCCESS},
                                          {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_PERMITTED,
                                           CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY,
                                           CUDA_ERROR_UNKNOWN, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}};
    for (int round = 0; round < 2; round++) {
        const CUresult *want = wanted[round];
        assert_int_equal(cuMemAddressReserve(&base, UNIT, 0, 0, 0), want[0]);
        assert_int_equal(try_create(UNIT, &handle), want[1]);
        assert_int_equal(cuMemMap(base, UNIT, 0, handle, 0), want[2]);
        assert_int_equal(try_access(base, UNIT, 0), want[3]);
        assert_int_equal(cuMemUnmap(base, UNIT), want[4]);
        assert_int_equal(cuEventQuery(event), want[5]);
    }
    assert_int_equal(sim_fail_hits(), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_mappings),
        cmocka_unit_test(test_unmap_single),
        cmocka_unit_test(test_access_whole),
        cmocka_unit_test(test_release_keeps),
        cmocka_unit_test(test_hints_refused),
        cmocka_unit_test(test_oversubscribe),
        cmocka_unit_test(test_recommended_granularity),
        cmocka_unit_test(test_tenant_between_calls),
        cmocka_unit_test(test_nth_of_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
