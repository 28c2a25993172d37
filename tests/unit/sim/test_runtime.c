/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime on top of the driver, used as a program uses it: its last error, errors that stay, and managed
 * memory. The sources are the comments in cuda_runtime_api.h. */
#include "sim/sim.h"
#include "tests/support/cmocka_all.h"
#define __CUDART_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>
#include <string.h>

#define assert_ok(call) assert_int_equal(call, cudaSuccess)

enum { SIZE = 1 << 20 };

/* cudaGetLastError: returns the last error, and resets it; cudaPeekAtLastError does not reset. */
static void test_last_error(void **state)
{
    (void)state;
    void *ptr;
    assert_ok(cudaFree(NULL));
    assert_ok(cudaGetLastError());
    assert_int_equal(cudaMalloc(&ptr, (size_t)1 << 50), cudaErrorMemoryAllocation);
    assert_ok(cudaMalloc(&ptr, SIZE)); /* a call that works does not reset it */
    assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_ok(cudaGetLastError());
    assert_ok(cudaPeekAtLastError());
    assert_ok(cudaFree(ptr));
}

/* cudaGetDeviceProperties: what cannot be asked is an error, not a property of 0: programs divide by them. */
static void test_properties(void **state)
{
    (void)state;
    struct cudaDeviceProp properties;
    assert_ok(cudaGetDeviceProperties(&properties, 0));
    assert_int_equal(properties.warpSize, 32);
    assert_true(sim_fail_text("cuDeviceGetAttribute:5+"));
    assert_int_equal(cudaGetDeviceProperties(&properties, 0), cudaErrorUnknown);
    sim_fail_clear();
    assert_int_equal(cudaGetLastError(), cudaErrorUnknown);
    assert_ok(cudaGetDeviceProperties(&properties, 1));
}

/* cudaMallocManaged: "valid on the CPU and on all GPUs"; cudaMemPrefetchAsync and cudaMemAdvise are about it.
 */
static void test_managed(void **state)
{
    (void)state;
    unsigned char *managed = NULL, *plain, copy[64];
    struct cudaPointerAttributes attributes;
    size_t before, now, total;
    assert_ok(cudaMemGetInfo(&before, &total));
    assert_ok(cudaMallocManaged((void **)&managed, SIZE, cudaMemAttachGlobal));
    assert_ok(cudaMemGetInfo(&now, &total));
    assert_true(before - now >= SIZE);
    assert_ok(cudaPointerGetAttributes(&attributes, managed + 100));
    assert_int_equal(attributes.type, cudaMemoryTypeManaged);
    assert_ptr_equal(attributes.devicePointer, managed + 100);
    assert_ptr_equal(attributes.hostPointer, managed + 100);
    memset(managed, 3, SIZE); /* the host writes, the device reads ... */
    assert_ok(cudaMalloc((void **)&plain, SIZE));
    assert_ok(cudaMemcpy(plain, managed, SIZE, cudaMemcpyDefault));
    assert_ok(cudaMemset(managed, 5, SIZE / 2)); /* ... and the other way round */
    assert_ok(cudaDeviceSynchronize());
    assert_int_equal(managed[SIZE / 2 - 1], 5);
    assert_int_equal(managed[SIZE / 2], 3);
    assert_ok(cudaMemcpy(copy, plain + SIZE - 64, 64, cudaMemcpyDeviceToHost));
    assert_int_equal(copy[63], 3);
    assert_ok(cudaFree(plain));
    assert_ok(cudaFree(managed));
    assert_ok(cudaMemGetInfo(&now, &total));
    assert_int_equal(now, before);
}

/* cudaMallocManaged: cudaErrorInvalidValue for what is neither of its flags; nothing is written. */
static void test_managed_refused(void **state)
{
    (void)state;
    void *managed = &managed;
    assert_int_equal(cudaMallocManaged(&managed, SIZE, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocManaged(&managed, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocManaged(&managed, (size_t)1 << 50, cudaMemAttachGlobal),
                     cudaErrorMemoryAllocation);
    assert_ptr_equal(managed, &managed);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
}

/* Breaks the device for the rest of the process: it comes last. cudaErrorIllegalAddress: "any further CUDA
 * work will return the same error". */
static void test_error_that_stays(void **state)
{
    (void)state;
    void *ptr, *more = NULL;
    int device = 7, count = 0, warp = 0;
    assert_ok(cudaMalloc(&ptr, SIZE));
    assert_true(sim_fail_text("cuMemsetD8Async:1:fault=CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_ok(cudaMemsetAsync(ptr, 1, SIZE, NULL)); /* told later */
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    for (int i = 0; i < 3; i++) { /* asking does not make it go away */
        assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
        assert_int_equal(cudaPeekAtLastError(), cudaErrorIllegalAddress);
    }
    assert_int_equal(cudaMalloc(&more, SIZE), cudaErrorIllegalAddress);
    assert_null(more);
    assert_int_equal(cudaFree(ptr), cudaErrorIllegalAddress);
    assert_int_equal(cudaFree(NULL), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc(&more, 0), cudaErrorIllegalAddress);
    assert_int_equal(cudaMemcpy(&warp, ptr, 4, cudaMemcpyDeviceToHost), cudaErrorIllegalAddress);
    assert_int_equal(cudaMallocManaged(&more, SIZE, cudaMemAttachGlobal), cudaErrorIllegalAddress);
    assert_int_equal(cudaDeviceReset(), cudaErrorIllegalAddress);
    assert_ok(cudaGetDevice(&device));
    assert_int_equal(device, 0);
    assert_ok(cudaGetDeviceCount(&count));
    assert_ok(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, 0));
    assert_int_equal(warp, 32);
    assert_ok(cudaSetDevice(1)); /* another device works */
    assert_ok(cudaMalloc(&more, SIZE));
    assert_ok(cudaMemset(more, 1, SIZE));
    assert_ok(cudaDeviceSynchronize());
    assert_ok(cudaFree(more));
    (void)cudaGetLastError();
    assert_ok(cudaGetLastError());
    assert_ok(cudaSetDevice(0));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_string_equal(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
    assert_string_equal(cudaGetErrorString(cudaErrorAssert), "device-side assert triggered");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_error),       cmocka_unit_test(test_properties),
        cmocka_unit_test(test_managed),          cmocka_unit_test(test_managed_refused),
        cmocka_unit_test(test_error_that_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
