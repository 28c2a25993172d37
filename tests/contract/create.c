/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: their sizes, their count, and when their memory goes back. */
#include "tests/contract/contract.h"

/* cuda.h, cuMemGetAllocationGranularity: minimum and recommended; the second is a multiple of the first. */
static void test_granularity(void **state)
{
    (void)state;
    CUmemAllocationProp prop = device_prop(0);
    size_t recommended;
    assert_true(granularity > 0 && (granularity & (granularity - 1)) == 0);
    assert_ok(cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    assert_int_equal(recommended % granularity, 0);
}

/* cuda.h, cuMemCreate: size is a multiple of the granularity; flags are 0; the location is a device. */
static void test_wrong_arguments(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = 77;
    CUmemAllocationProp prop = device_prop(0);
    assert_int_equal(cuMemCreate(&handle, granularity + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemCreate(&handle, granularity, &prop, 1), CUDA_ERROR_INVALID_VALUE);
    prop.location.id = 1000;
    assert_int_not_equal(cuMemCreate(&handle, granularity, &prop, 0), CUDA_SUCCESS);
    assert_int_equal(handle, 77);
}

/* guide, allocating physical memory: a handle takes memory when it is created, not when it is mapped. That
 * a release gives exactly as much back is ours. */
static void test_memory_is_counted(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create(8 * granularity);
    assert_true(before - free_bytes() >= 8 * granularity);
    assert_ok(cuMemRelease(handle));
    assert_int_equal(free_bytes(), before);
}

/* cuda.h, cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY; a failed call takes nothing. */
static void test_out_of_memory(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = 77;
    CUmemAllocationProp prop = device_prop(0);
    size_t left, total, before = free_bytes();
    assert_ok(cuMemGetInfo(&left, &total));
    size_t size = (total / granularity + 1) * granularity;
    assert_int_equal(cuMemCreate(&handle, size, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(handle, 77);
    assert_int_equal(free_bytes(), before);
}

/* cuda.h, cuMemRelease: memory is freed when all references and mappings are gone. */
static void test_release_while_mapped(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create(granularity);
    CUdeviceptr base = reserve(granularity);
    assert_ok(cuMemMap(base, granularity, 0, handle, 0));
    give_access(base, granularity);
    assert_ok(cuMemsetD8(base, 17, granularity));
    assert_ok(cuMemRelease(handle));
    assert_true(before - free_bytes() >= granularity);
    unsigned char byte = 0;
    assert_ok(cuMemcpyDtoH(&byte, base + granularity - 1, 1));
    assert_int_equal(byte, 17);
    assert_ok(cuMemUnmap(base, granularity));
    assert_int_equal(free_bytes(), before);
    assert_ok(cuMemAddressFree(base, granularity));
}

/* cuda.h, cuMemRetainAllocationHandle: any address of a mapping; each retain needs a release. */
static void test_retain_by_address(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create(2 * granularity), again;
    CUdeviceptr base = reserve(2 * granularity);
    assert_int_equal(cuMemRetainAllocationHandle(&again, (void *)base), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemMap(base, 2 * granularity, 0, handle, 0));
    assert_ok(cuMemRetainAllocationHandle(&again, (void *)(base + granularity + 5)));
    assert_int_equal(again, handle);
    assert_ok(cuMemUnmap(base, 2 * granularity));
    assert_ok(cuMemRelease(handle));
    assert_true(before - free_bytes() >= 2 * granularity);
    assert_ok(cuMemRelease(again));
    assert_int_equal(free_bytes(), before);
    assert_ok(cuMemAddressFree(base, 2 * granularity));
}

/* cuda.h, cuMemRelease: CUDA_ERROR_INVALID_VALUE for what is no handle. A second release of one handle is
 * only tried where it is known to be caught; a driver may have given the number to somebody else. */
static void test_release_of_nothing(void **state)
{
    (void)state;
    assert_int_equal(cuMemRelease(0), CUDA_ERROR_INVALID_VALUE);
}

/* cuda.h, cuMemGetAllocationPropertiesFromHandle: as they were given. */
static void test_properties(void **state)
{
    (void)state;
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle = create(granularity);
    assert_ok(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    assert_int_equal(prop.type, CU_MEM_ALLOCATION_TYPE_PINNED);
    assert_int_equal(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(prop.location.id, 0);
    assert_ok(cuMemRelease(handle));
}

/* cuda.h, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: whether a handle may be asked for that
 * other hardware can write to. note: where it says yes, creation may refuse all the same. Which error it is,
 * is ours. */
static void test_direct_access_by_hardware(void **state)
{
    (void)state;
    int can;
    unsigned char capable = 0;
    CUmemGenericAllocationHandle handle = 77;
    CUmemAllocationProp prop = device_prop(0), got;
    size_t before = free_bytes();
    assert_ok(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
    prop.allocFlags.gpuDirectRDMACapable = 1;
    CUresult result = cuMemCreate(&handle, granularity, &prop, 0);
    if (!can || result) {
        assert_int_equal(result, CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(handle, 77);
        assert_int_equal(free_bytes(), before);
        return;
    }
    assert_ok(cuMemGetAllocationPropertiesFromHandle(&got, handle));
    assert_int_equal(got.allocFlags.gpuDirectRDMACapable, 1);
    CUdeviceptr base = reserve(granularity);
    assert_ok(cuMemMap(base, granularity, 0, handle, 0));
    give_access(base, granularity);
    assert_ok(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, base));
    assert_int_equal(capable, 1);
    assert_ok(cuMemUnmap(base, granularity));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemAddressFree(base, granularity));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_granularity),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_memory_is_counted),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_release_while_mapped),
        cmocka_unit_test(test_retain_by_address),
        cmocka_unit_test(test_release_of_nothing),
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_direct_access_by_hardware),
    };
    RUN_CONTRACT(tests);
}
