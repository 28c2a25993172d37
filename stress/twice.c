/* SPDX-License-Identifier: Apache-2.0 */
/* twice: 100 GiB in handles of 2 MiB, each mapped at two addresses, the second time in the opposite order.
 *
 * It asks the simulated device and not the allocator: table-only memory must hold so many mappings, and each
 * pair of addresses must mean the same byte. */
#include "stress/stress.h"

#define HANDLE (2 * MIB)

enum { HANDLES = 51200 };

static void map_all(CUdeviceptr base, CUdeviceptr view)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    for (uint64_t i = 0; i < HANDLES; i++) {
        CUmemGenericAllocationHandle handle;
        CUresult code = cuMemCreate(&handle, HANDLE, &properties, 0);
        code = code ? code : cuMemMap(base + i * HANDLE, HANDLE, 0, handle, 0);
        code = code ? code : cuMemMap(view + (HANDLES - 1 - i) * HANDLE, HANDLE, 0, handle, 0);
        code = code ? code : cuMemRelease(handle);
        stress_check(!code, "a handle was not mapped twice");
    }
}

/* How many of the pairs of addresses are not the same byte. */
static uint64_t count_strangers(CUdeviceptr base, CUdeviceptr view)
{
    uint64_t strangers = 0;
    for (uint64_t i = 0; i < HANDLES; i++) {
        uint64_t handle[2] = {0, 1}, offset[2];
        bool found = sim_resolve(base + i * HANDLE + i, &handle[0], &offset[0]) &&
                     sim_resolve(view + (HANDLES - 1 - i) * HANDLE + i, &handle[1], &offset[1]);
        strangers += !found || handle[0] != handle[1] || offset[0] != offset[1];
    }
    return strangers;
}

void stress_twice(struct stress *stress)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const size_t size = HANDLES * HANDLE;
    CUdeviceptr base = 0, view = 0;
    stress_begin(size, false);
    stress_check(!cuMemAddressReserve(&base, size, 0, 0, 0) && !cuMemAddressReserve(&view, size, 0, 0, 0),
                 "no addresses");
    map_all(base, view);
    stress_check(!cuMemSetAccess(base, size, &access, 1) && !cuMemSetAccess(view, size, &access, 1),
                 "no access");
    stress_figure("memory in handles of 2 MiB", (double)sim_physical_bytes(0) / (double)GIB, "GiB");
    stress_figure("mappings", (double)sim_mapping_count(0), "");
    stress_check(sim_physical_bytes(0) == 100 * GIB && sim_mapping_count(0) == 2 * (uint64_t)HANDLES,
                 "not all of it is there");
    stress_count(stress, "pairs of addresses that are not the same byte", count_strangers(base, view), 0);
    stress_check(!cuMemUnmap(base, size) && !cuMemUnmap(view, size) && !cuMemAddressFree(base, size) &&
                     !cuMemAddressFree(view, size),
                 "it did not go again");
    stress_bytes(stress, "memory left when all is unmapped", sim_physical_bytes(0), 0);
    stress_end();
}
