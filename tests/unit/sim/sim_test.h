/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the simulator share: a started device, and short names for the usual steps. */
#ifndef SEAM_TESTS_UNIT_SIM_SIM_TEST_H
#define SEAM_TESTS_UNIT_SIM_SIM_TEST_H

#include "sim/sim.h"
#include "tests/support/cmocka_all.h"
#include <stdlib.h>
#include <string.h>

#define assert_ok(call) assert_int_equal(call, CUDA_SUCCESS)

enum { MIB = 1 << 20, UNIT = 2 * MIB };

/* A small device, and the chance to change it before it starts. */
static inline struct sim_config small_device(void)
{
    struct sim_config config;
    sim_config_default(&config);
    config.device_bytes = 256 * (uint64_t)MIB;
    config.devices = 2;
    config.stuck_ms = 50;
    return config;
}

static inline void use_device(int device)
{
    CUcontext context;
    assert_ok(cuDevicePrimaryCtxRetain(&context, device));
    assert_ok(cuCtxSetCurrent(context));
}

static inline void begin(const struct sim_config *config)
{
    assert_true(sim_start(config));
    use_device(0);
}

static inline int start_small(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    begin(&config);
    return 0;
}

static inline CUmemAllocationProp device_prop(int device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return prop;
}

static inline CUresult try_create(size_t size, CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp prop = device_prop(0);
    return cuMemCreate(handle, size, &prop, 0);
}

static inline CUmemGenericAllocationHandle create(size_t size)
{
    CUmemGenericAllocationHandle handle;
    assert_ok(try_create(size, &handle));
    return handle;
}

static inline CUdeviceptr reserve(size_t size)
{
    CUdeviceptr base;
    assert_ok(cuMemAddressReserve(&base, size, 0, 0, 0));
    return base;
}

static inline CUresult try_access(CUdeviceptr base, size_t size, int device)
{
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(base, size, &desc, 1);
}

/* A handle of `size`, mapped with access for device 0. */
static inline CUdeviceptr map_new(size_t size, CUmemGenericAllocationHandle *handle)
{
    CUdeviceptr base = reserve(size);
    *handle = create(size);
    assert_ok(cuMemMap(base, size, 0, *handle, 0));
    assert_ok(try_access(base, size, 0));
    return base;
}

/* The last violation is of this rule. */
static inline void assert_broken(const char *rule)
{
    struct sim_violation v;
    size_t count = sim_violation_count();
    assert_true(count > 0);
    assert_true(sim_violation(count - 1, &v));
    assert_string_equal(v.rule, rule);
}

#endif
