/* SPDX-License-Identifier: Apache-2.0 */
/* What the contract tests share. They use the driver API and nothing else, so that the same programs run on
 * the simulated device (linked to its libcuda.so.1) and on a GPU. Each rule that a test holds to has its
 * source in a comment: "cuda.h, NAME" is the comment of that function in the header, "guide" the CUDA
 * programming guide, "note" a published observation; a rule that is only ours says so.
 *
 * A test program is skipped (77) where there is no device. */
#ifndef SEAM_TESTS_CONTRACT_CONTRACT_H
#define SEAM_TESTS_CONTRACT_CONTRACT_H

#include "tests/support/cmocka_all.h"
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define assert_ok(call) assert_int_equal(call, CUDA_SUCCESS)

static CUcontext contract_context;
static size_t granularity;

static inline CUmemAllocationProp device_prop(int device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return prop;
}

static inline CUmemAccessDesc read_write(int device)
{
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return desc;
}

/* Makes the primary context of device 0 current. */
static int contract_setup(void **state)
{
    (void)state;
    CUmemAllocationProp prop = device_prop(0);
    if (cuDevicePrimaryCtxRetain(&contract_context, 0) || cuCtxSetCurrent(contract_context))
        return -1;
    return cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ? -1 : 0;
}

static inline int contract_teardown(void **state)
{
    (void)state;
    return cuCtxSetCurrent(NULL) || cuDevicePrimaryCtxRelease(0) ? -1 : 0;
}

static inline size_t free_bytes(void)
{
    size_t left, total;
    assert_ok(cuMemGetInfo(&left, &total));
    return left;
}

static inline CUmemGenericAllocationHandle create(size_t size)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    assert_ok(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static inline CUdeviceptr reserve(size_t size)
{
    CUdeviceptr base;
    assert_ok(cuMemAddressReserve(&base, size, 0, 0, 0));
    return base;
}

static inline void give_access(CUdeviceptr base, size_t size)
{
    CUmemAccessDesc desc = read_write(0);
    assert_ok(cuMemSetAccess(base, size, &desc, 1));
}

/* Undoes mappings of the same size that lie side by side, one by one: not every driver takes several at once.
 */
static inline void unmap_each(CUdeviceptr base, size_t size, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_ok(cuMemUnmap(base + i * size, size));
}

/* The test cannot run on this device: says why. */
#define CONTRACT_SKIP(why)                                                                                   \
    do {                                                                                                     \
        print_message("%s\n", why);                                                                          \
        skip();                                                                                              \
    } while (0)

/* Runs the tests of an array, with the context; skips the program where there is no device. */
#define RUN_CONTRACT(tests)                                                                                  \
    do {                                                                                                     \
        int devices_ = 0;                                                                                    \
        if (cuInit(0) || cuDeviceGetCount(&devices_) || devices_ == 0) {                                     \
            fprintf(stderr, "skipped: no CUDA device\n");                                                    \
            return 77;                                                                                       \
        }                                                                                                    \
        return cmocka_run_group_tests(tests, contract_setup, contract_teardown);                             \
    } while (0)

#endif
