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
    CUresult bad = cuMemUnmap(base, 4 * granularity);
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

/* Access belongs to a mapping, not to its handle: a second mapping starts with none. */
static void test_not_shared_by_aliases(void **state)
{
    (void)state;
    give_access(base, granularity);
    assert_ok(cuMemMap(base + 4 * granularity, granularity, 0, handles[0], 0));
    assert_int_equal(rights(base + 4 * granularity, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_int_equal(rights(base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_ok(cuMemUnmap(base + 4 * granularity, granularity));
}

static void test_wrong_descriptions(void **state)
{
    (void)state;
    CUmemAccessDesc desc = read_write(1000);
    assert_int_not_equal(cuMemSetAccess(base, granularity, &desc, 1), CUDA_SUCCESS);
    desc = read_write(0);
    assert_int_equal(cuMemSetAccess(base, granularity, &desc, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(base, 0, &desc, 1), CUDA_ERROR_INVALID_VALUE);
}

/* cuda.h, cuMemSetAccess: each device has its own right (peers; note: enabling peer access does not count
 * here). */
static void test_each_device_for_itself(void **state)
{
    (void)state;
    int count, can = 0;
    assert_ok(cuDeviceGetCount(&count));
    if (count > 1)
        assert_ok(cuDeviceCanAccessPeer(&can, 1, 0));
    if (!can)
        skip();
    give_access(base, granularity);
    assert_int_equal(rights(base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemAccessDesc both[2] = {read_write(0), read_write(1)};
    assert_ok(cuMemSetAccess(base, granularity, both, 2));
    assert_int_equal(rights(base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_int_equal(rights(base, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, map_some, unmap_all)
    const struct CMUnitTest tests[] = {
        TEST(test_none_at_first),          TEST(test_one_call_for_a_range),  TEST(test_hole_is_refused),
        TEST(test_lost_on_unmap),          TEST(test_not_shared_by_aliases), TEST(test_wrong_descriptions),
        TEST(test_each_device_for_itself),
    };
    RUN_CONTRACT(tests);
}
