/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that host and device both use: managed, pinned and registered. cuda.h: cuMemAllocManaged,
 * cuMemPrefetchAsync, cuMemHostAlloc, cuMemHostRegister, cuPointerGetAttribute. */
#include "tests/contract/contract.h"
#include <string.h>

static unsigned attribute(CUpointer_attribute which, CUdeviceptr ptr)
{
    unsigned long long value = 0;
    assert_ok(cuPointerGetAttribute(&value, which, ptr));
    return (unsigned)value;
}

/* cuda.h, cuMemAllocManaged: valid on the host and the device; 0 bytes and flags that are none are invalid
 * values. */
static void test_managed(void **state)
{
    (void)state;
    int can;
    CUdeviceptr ptr = 0;
    void *host;
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    assert_ok(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
    if (!can || cuMemAllocManaged(&ptr, 1 << 20, CU_MEM_ATTACH_GLOBAL))
        CONTRACT_SKIP("no managed memory");
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr) & 0xff, 1);
    assert_ok(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr));
    memset(host, 3, 1 << 20);
    assert_ok(cuMemPrefetchAsync(ptr, 1 << 20, device, 0, NULL));
    assert_ok(cuMemAdvise(ptr, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device));
    assert_ok(cuMemsetD8(ptr + 16, 9, 16));
    assert_ok(cuCtxSynchronize());
    assert_int_equal(((unsigned char *)host)[15], 3);
    assert_int_equal(((unsigned char *)host)[16], 9);
    assert_ok(cuMemFree(ptr));
    assert_int_equal(cuMemAllocManaged(&ptr, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocManaged(&ptr, 4096, 0), CUDA_ERROR_INVALID_VALUE);
}

/* cuda.h, cuMemAdvise: about managed memory. */
static void test_plain_is_not_managed(void **state)
{
    (void)state;
    CUdeviceptr ptr;
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    assert_ok(cuMemAlloc(&ptr, 1 << 20));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr) & 0xff, 0);
    assert_int_equal(cuMemAdvise(ptr, 1 << 20, CU_MEM_ADVISE_SET_READ_MOSTLY, device),
                     CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemFree(ptr));
}

/* cuda.h, cuMemHostAlloc, cuMemHostGetFlags, cuMemHostGetDevicePointer. */
static void test_pinned(void **state)
{
    (void)state;
    unsigned char *host;
    unsigned flags;
    CUdeviceptr mapped, plain;
    assert_ok(cuMemHostAlloc((void **)&host, 1 << 20, CU_MEMHOSTALLOC_PORTABLE));
    assert_ok(cuMemHostGetFlags(&flags, host));
    assert_true(flags & CU_MEMHOSTALLOC_PORTABLE);
    assert_ok(cuMemHostGetDevicePointer(&mapped, host, 0));
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host),
                     CU_MEMORYTYPE_HOST);
    assert_ok(cuMemAlloc(&plain, 4096));
    host[100] = 5;
    assert_ok(cuMemcpyHtoD(plain, host, 4096));
    host[100] = 0;
    assert_ok(cuMemcpyDtoH(host, plain, 4096));
    assert_int_equal(host[100], 5);
    assert_ok(cuMemFree(plain));
    assert_ok(cuMemFreeHost(host));
}

/* cuda.h, cuMemHostRegister, cuMemHostUnregister. */
static void test_registered(void **state)
{
    (void)state;
    size_t size = 1 << 20;
    unsigned char *host = aligned_alloc(4096, size);
    CUdeviceptr plain;
    assert_non_null(host);
    memset(host, 7, size);
    assert_ok(cuMemHostRegister(host, size, CU_MEMHOSTREGISTER_PORTABLE));
    assert_int_equal(cuMemHostRegister(host, size, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host + 5),
                     CU_MEMORYTYPE_HOST);
    assert_ok(cuMemAlloc(&plain, size));
    assert_ok(cuMemcpyHtoD(plain, host, size));
    memset(host, 0, size);
    assert_ok(cuMemcpyDtoH(host, plain, size));
    assert_int_equal(host[size - 1], 7);
    assert_ok(cuMemFree(plain));
    assert_ok(cuMemHostUnregister(host));
    assert_int_equal(cuMemHostUnregister(host), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_managed),
        cmocka_unit_test(test_plain_is_not_managed),
        cmocka_unit_test(test_pinned),
        cmocka_unit_test(test_registered),
    };
    RUN_CONTRACT(tests);
}
