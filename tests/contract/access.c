/* SPDX-License-Identifier: Apache-2.0 */
/* Access rights of mappings. They are read back with cuMemGetAccess; nothing here touches memory without a
 * right. */
#include "tests/contract/contract.h"

enum { UNITS = 6 };
static CUdeviceptr base;
static CUmemGenericAllocationHandle handles[UNITS];

/* Three mappings: units 0, 1 and 2, 3; unit 4 and 5 stay free. */
static int map_some(void **state)
{
    (void)state;
    CUmemAllocationProp prop = device_prop(0);
    if (cuMemAddressReserve(&base, UNITS * granularity, 0, 0, 0))
        return -1;
    for (unsigned i = 0; i < 2; i++)
        if (cuMemCreate(&handles[i], granularity, &prop, 0) ||
            cuMemMap(base + i * granularity, granularity, 0, handles[i], 0))
            return -1;
    return cuMemCreate(&handles[2], 2 * granularity, &prop, 0) ||
                   cuMemMap(base + 2 * granularity, 2 * granularity, 0, handles[2], 0)
               ? -1
               : 0;
}

static int unmap_all(void **state)
{
    (void)state;
    CUresult bad = cuMemUnmap(base, granularity);
    bad |= cuMemUnmap(base + granularity, granularity);
    bad |= cuMemUnmap(base + 2 * granularity, 2 * granularity);
    for (unsigned i = 0; i < 3; i++)
        bad |= cuMemRelease(handles[i]);
    return bad | cuMemAddressFree(base, UNITS * granularity) ? -1 : 0;
}

static unsigned long long rights(CUdeviceptr at, int device)
{
    unsigned long long flags = 99;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    assert_ok(cuMemGetAccess(&flags, &location, at));
    return flags;
}

/* cuda.h, cuMemMap: a new mapping is accessible to nobody. */
static void test_none_at_first(void **state)
{
    (void)state;
    assert_int_equal(rights(base, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

/* cuda.h, cuMemSetAccess: one call for a range of many mappings. */
static void test_one_call_for_a_range(void **state)
{
    (void)state;
    give_access(base, 4 * granularity);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(rights(base + i * granularity, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_ok(cuMemsetD8(base, 1, 4 * granularity));
}

/* cuda.h, cuMemSetAccess: the range is wholly mapped. */
static void test_hole_is_refused(void **state)
{
    (void)state;
    CUmemAccessDesc desc = read_write(0);
    assert_int_equal(cuMemSetAccess(base, 5 * granularity, &desc, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(rights(base, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_int_equal(cuMemSetAccess(base + 4 * granularity, granularity, &desc, 1), CUDA_ERROR_INVALID_VALUE);
}

/* cuda.h, cuMemSetAccess: access is lost with the mapping, and not inherited by the next one there. */
static void test_lost_on_unmap(void **state)
{
    (void)state;
    give_access(base, granularity);
    assert_ok(cuMemUnmap(base, granularity));
    assert_ok(cuMemMap(base, granularity, 0, handles[0], 0));
    assert_int_equal(rights(base, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    give_access(base, granularity);
    assert_int_equal(rights(base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* cuda.h, cuMemUnmap: "all mappings start with no accessibility": access belongs to a mapping, not to its
 * handle. */
static void test_not_shared_by_aliases(void **state)
{
    (void)state;
    give_access(base, granularity);
    assert_ok(cuMemMap(base + 4 * granularity, granularity, 0, handles[0], 0));
    assert_int_equal(rights(base + 4 * granularity, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_int_equal(rights(base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_ok(cuMemUnmap(base + 4 * granularity, granularity));
}

/* cuda.h, cuMemSetAccess: CUDA_ERROR_INVALID_DEVICE for a device that is none. That no description and no
 * bytes are invalid values is ours. */
static void test_wrong_descriptions(void **state)
{
    (void)state;
    CUmemAccessDesc desc = read_write(1000);
    assert_int_equal(cuMemSetAccess(base, granularity, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
    desc = read_write(0);
    assert_int_equal(cuMemSetAccess(base, granularity, &desc, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(base, 0, &desc, 1), CUDA_ERROR_INVALID_VALUE);
}

/* Skips a test where device 1 cannot use the memory of device 0. */
static void need_peers(void)
{
    int count, can = 0;
    assert_ok(cuDeviceGetCount(&count));
    if (count > 1)
        assert_ok(cuDeviceCanAccessPeer(&can, 1, 0));
    if (!can)
        CONTRACT_SKIP("no two devices that reach each other");
}

/* cuda.h, cuMemSetAccess: each device has its own right. */
static void test_each_device_for_itself(void **state)
{
    (void)state;
    need_peers();
    give_access(base, granularity);
    assert_int_equal(rights(base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemAccessDesc both[2] = {read_write(0), read_write(1)};
    assert_ok(cuMemSetAccess(base, granularity, both, 2));
    assert_int_equal(rights(base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_int_equal(rights(base, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* note: peer access that is enabled for a context does not count for mapped memory; only cuMemSetAccess
 * does. guide, virtual memory management: so that a program does not pay for what it does not share. */
static void test_peer_access_does_not_count(void **state)
{
    (void)state;
    CUcontext other;
    need_peers();
    give_access(base, granularity);
    assert_ok(cuDevicePrimaryCtxRetain(&other, 1));
    assert_ok(cuCtxSetCurrent(other));
    assert_ok(cuCtxEnablePeerAccess(contract_context, 0));
    assert_int_equal(rights(base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemAccessDesc desc = read_write(1);
    assert_ok(cuMemSetAccess(base, granularity, &desc, 1));
    assert_int_equal(rights(base, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_ok(cuCtxDisablePeerAccess(contract_context)); /* and does not take it away */
    assert_int_equal(rights(base, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_ok(cuCtxSetCurrent(contract_context));
    assert_ok(cuDevicePrimaryCtxRelease(1));
}

/* cuda.h, cuCtxEnablePeerAccess, cuCtxDisablePeerAccess: in one direction, once; for plain allocations, those
 * that are there already too. */
static void test_peer_access_of_plain_memory(void **state)
{
    (void)state;
    CUcontext other;
    CUdeviceptr here, there;
    unsigned word = 0;
    need_peers();
    assert_ok(cuMemAlloc(&there, 4096));
    assert_ok(cuMemsetD32(there, 77, 1024));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuDevicePrimaryCtxRetain(&other, 1));
    assert_ok(cuCtxSetCurrent(other));
    assert_int_equal(cuCtxEnablePeerAccess(contract_context, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxDisablePeerAccess(contract_context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    assert_ok(cuCtxEnablePeerAccess(contract_context, 0));
    assert_int_equal(cuCtxEnablePeerAccess(contract_context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    assert_ok(cuMemAlloc(&here, 4096));
    assert_ok(cuMemcpyDtoD(here, there, 4096));
    assert_ok(cuMemcpyDtoH(&word, here + 4092, 4));
    assert_int_equal(word, 77);
    assert_ok(cuMemFree(here));
    assert_ok(cuCtxDisablePeerAccess(contract_context));
    assert_ok(cuCtxSetCurrent(contract_context));
    assert_ok(cuMemFree(there));
    assert_ok(cuDevicePrimaryCtxRelease(1));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, map_some, unmap_all)
    const struct CMUnitTest tests[] = {
        TEST(test_none_at_first),
        TEST(test_one_call_for_a_range),
        TEST(test_hole_is_refused),
        TEST(test_lost_on_unmap),
        TEST(test_not_shared_by_aliases),
        TEST(test_wrong_descriptions),
        TEST(test_each_device_for_itself),
        TEST(test_peer_access_does_not_count),
        TEST(test_peer_access_of_plain_memory),
    };
    RUN_CONTRACT(tests);
}
