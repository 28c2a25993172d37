/* SPDX-License-Identifier: Apache-2.0 */
/* Plain device memory, host memory, and what the driver says about pointers. */
#include "tests/contract/contract.h"
#include <string.h>

/* cuda.h, cuMemAlloc: suitably aligned for any kind of variable. That a free gives exactly as much back as
 * was taken is ours. */
static void test_alloc_and_free(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUdeviceptr ptr;
    assert_ok(cuMemAlloc(&ptr, 32 << 20));
    assert_int_equal(ptr % 256, 0); /* cuda.h, cuMemAlloc: suitably aligned for any kind of variable */
    assert_true(before - free_bytes() >= 32 << 20);
    assert_ok(cuMemFree(ptr));
    assert_int_equal(free_bytes(), before);
}

/* cuda.h, cuMemAlloc: CUDA_ERROR_INVALID_VALUE for 0 bytes; out of memory leaves everything as it was. */
static void test_alloc_fails_cleanly(void **state)
{
    (void)state;
    CUdeviceptr ptr = 77;
    size_t left, total;
    assert_int_equal(cuMemAlloc(&ptr, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemGetInfo(&left, &total));
    assert_int_equal(cuMemAlloc(&ptr, 2 * total), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(ptr, 77);
    assert_int_equal(free_bytes(), left);
}

/* cuda.h, cuMemFree: what is not the base of an allocation is an invalid value; 0 is let pass (runtime,
 * cudaFree). */
static void test_free_of_something_else(void **state)
{
    (void)state;
    CUdeviceptr ptr;
    assert_ok(cuMemAlloc(&ptr, 4 << 20));
    assert_int_equal(cuMemFree(ptr + 512), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemFree(ptr));
    assert_int_equal(cuMemFree(ptr), CUDA_ERROR_INVALID_VALUE);
}

/* note: small allocations share large pages; here that many neither overlap nor cost a page each. */
static void test_small_ones(void **state)
{
    (void)state;
    enum { N = 64 };
    CUdeviceptr ptrs[N];
    size_t before = free_bytes();
    for (unsigned i = 0; i < N; i++) {
        assert_ok(cuMemAlloc(&ptrs[i], 1000));
        for (unsigned j = 0; j < i; j++)
            assert_true(ptrs[i] + 1000 <= ptrs[j] || ptrs[j] + 1000 <= ptrs[i]);
    }
    assert_true(before - free_bytes() <= N * (size_t)(2 << 20) / 2);
    for (unsigned i = 0; i < N; i++)
        assert_ok(cuMemFree(ptrs[i]));
}

/* cuda.h, cuMemGetAddressRange: base and size of the allocation that an address lies in. */
static void test_address_range(void **state)
{
    (void)state;
    CUdeviceptr ptr, base;
    size_t size;
    assert_ok(cuMemAlloc(&ptr, 6 << 20));
    assert_ok(cuMemGetAddressRange(&base, &size, ptr + 12345));
    assert_int_equal(base, ptr);
    assert_true(size >= 6 << 20);
    assert_ok(cuMemFree(ptr));
    assert_int_not_equal(cuMemGetAddressRange(&base, &size, ptr), CUDA_SUCCESS);
}

/* note: for virtual memory the range is that of one mapping, not of the reservation. */
static void test_address_range_of_a_mapping(void **state)
{
    (void)state;
    CUdeviceptr reserved = reserve(4 * granularity), base;
    size_t size;
    CUmemGenericAllocationHandle a = create(granularity), b = create(granularity);
    assert_ok(cuMemMap(reserved, granularity, 0, a, 0));
    assert_ok(cuMemMap(reserved + granularity, granularity, 0, b, 0));
    give_access(reserved, 2 * granularity);
    assert_ok(cuMemGetAddressRange(&base, &size, reserved + granularity + 5));
    assert_int_equal(base, reserved + granularity);
    assert_int_equal(size, granularity);
    unmap_each(reserved, granularity, 2);
    assert_ok(cuMemRelease(a));
    assert_ok(cuMemRelease(b));
    assert_ok(cuMemAddressFree(reserved, 4 * granularity));
}

/* cuda.h, cuPointerGetAttribute. */
static void test_pointer_attributes(void **state)
{
    (void)state;
    CUdeviceptr ptr, device_ptr;
    unsigned type;
    int ordinal;
    unsigned long long id, other;
    assert_ok(cuMemAlloc(&ptr, 4096));
    assert_ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr + 100));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
    assert_int_equal(ordinal, 0);
    assert_ok(cuPointerGetAttribute(&device_ptr, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr + 100));
    assert_int_equal(device_ptr, ptr + 100);
    assert_ok(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
    assert_ok(cuMemFree(ptr));
    assert_ok(cuMemAlloc(&ptr, 4096));
    assert_ok(cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
    assert_int_not_equal(id, other); /* unique, also for an address that is used again */
    assert_ok(cuMemFree(ptr));
    assert_int_equal(
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&type),
        CUDA_ERROR_INVALID_VALUE);
}

/* cuda.h, cuPointerGetAttributes: an unknown pointer is no error, its attributes are empty. */
static void test_attributes_of_unknown_pointers(void **state)
{
    (void)state;
    unsigned type = 99;
    int ordinal = 99;
    CUpointer_attribute which[2] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *out[2] = {&type, &ordinal};
    assert_ok(cuPointerGetAttributes(2, which, out, (CUdeviceptr)(uintptr_t)&type));
    assert_int_equal(type, 0);
    assert_int_equal(ordinal, -2);
}

/* cuda.h, cuMemHostAlloc, cuMemFreeHost. */
static void test_host_memory(void **state)
{
    (void)state;
    void *ptr;
    CUdeviceptr device_ptr;
    unsigned type;
    assert_ok(cuMemHostAlloc(&ptr, 10000, CU_MEMHOSTALLOC_PORTABLE));
    memset(ptr, 1, 10000);
    assert_ok(cuMemHostGetDevicePointer(&device_ptr, ptr, 0));
    assert_ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_ptr));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    assert_ok(cuMemFreeHost(ptr));
    assert_int_equal(cuMemFreeHost(&ptr), CUDA_ERROR_INVALID_VALUE);
}

/* cuda.h, cuMemHostRegister: not twice; cuMemHostUnregister: only what is registered. */
static void test_registered_memory(void **state)
{
    (void)state;
    char *block = aligned_alloc(4096, 8192);
    assert_non_null(block);
    assert_ok(cuMemHostRegister(block, 8192, 0));
    assert_int_equal(cuMemHostRegister(block, 8192, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_ok(cuMemHostUnregister(block));
    assert_int_equal(cuMemHostUnregister(block), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    free(block);
}

/* cuda.h, cuMemAllocPitch: elements of 4, 8 or 16 bytes; rows of at least the width. */
static void test_rows(void **state)
{
    (void)state;
    CUdeviceptr ptr = 77;
    size_t pitch = 0;
    assert_int_equal(cuMemAllocPitch(&ptr, &pitch, 1000, 10, 3), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(ptr, 77);
    assert_ok(cuMemAllocPitch(&ptr, &pitch, 1000, 10, 4));
    assert_true(pitch >= 1000);
    assert_ok(cuMemsetD8(ptr, 1, pitch * 10));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuMemFree(ptr));
}

/* cuda.h, cuMemHostAlloc, cuMemHostRegister: CUDA_ERROR_INVALID_VALUE for flags that are none; memory that
 * the device may only read where it says so, else CUDA_ERROR_NOT_SUPPORTED. */
static void test_flags_of_host_memory(void **state)
{
    (void)state;
    void *ptr, *block = aligned_alloc(4096, 4096);
    int can;
    assert_non_null(block);
    assert_int_equal(cuMemHostAlloc(&ptr, 4096, 0x100), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemHostRegister(block, 4096, 0x100), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0));
    CUresult result = cuMemHostRegister(block, 4096, CU_MEMHOSTREGISTER_READ_ONLY);
    assert_int_equal(result, can ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
    if (can)
        assert_ok(cuMemHostUnregister(block));
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_and_free),
        cmocka_unit_test(test_alloc_fails_cleanly),
        cmocka_unit_test(test_free_of_something_else),
        cmocka_unit_test(test_small_ones),
        cmocka_unit_test(test_address_range),
        cmocka_unit_test(test_address_range_of_a_mapping),
        cmocka_unit_test(test_pointer_attributes),
        cmocka_unit_test(test_attributes_of_unknown_pointers),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_registered_memory),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_flags_of_host_memory),
    };
    RUN_CONTRACT(tests);
}
