/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: reservations, handles, mappings, access, sharing by file descriptor. */
#include "sim/core/calls.h"
#include "sim/core/config.h"
#include "sim/core/cost.h"
#include "sim/core/lock.h"
#include "sim/core/share.h"
#include "sim/core/terms.h"

static void cost(enum sim_call call, uint64_t handles, uint64_t bytes)
{
    sim_cost_add(sim_context_device(), call, handles, bytes);
}

/* A reserved flags argument. */
static bool has_flags(unsigned long long flags)
{
    if (flags)
        sim_violate(SIM_RULE_FLAGS, sim_context_device(), 0, 0, "flags %llu", flags);
    return flags != 0;
}

SIM_API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option)
{
    SIM_ENTER(cuMemGetAllocationGranularity);
    SIM_NEED(granularity);
    SIM_NEED(prop);
    if (!sim_claims(SIM_FEATURE_VMM))
        return CUDA_ERROR_NOT_SUPPORTED;
    if ((unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        (prop->location.id < 0 || prop->location.id >= sim_config.devices))
        return CUDA_ERROR_INVALID_DEVICE;
    *granularity = option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED ? sim_term_recommended(&sim_config)
                                                                  : sim_config.granularity;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr hint,
                                     unsigned long long flags)
{
    uint64_t base;
    SIM_ENTER_SIZED(cuMemAddressReserve, size);
    SIM_NEED(ptr);
    if (has_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    int device = sim_context_device();
    sim_lock();
    CUresult result = sim_memory_reserve(&base, size, alignment, hint, device < 0 ? 0 : device);
    sim_unlock();
    if (!result)
        *ptr = base;
    return result;
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    SIM_ENTER_SIZED(cuMemAddressFree, size);
    sim_lock();
    CUresult result = sim_memory_free_addresses(ptr, size);
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
    uint64_t made;
    SIM_ENTER_ABOUT(cuMemCreate, prop ? prop->location.id : -1, size);
    SIM_NEED(handle);
    SIM_NEED(prop);
    if (has_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_memory_create(&made, size, prop);
    sim_unlock();
    if (result)
        return result;
    *handle = made;
    cost(SIM_CALL_cuMemCreate, 1, size);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(cuMemRelease);
    sim_lock();
    CUresult result = sim_memory_release(handle);
    sim_unlock();
    if (!result)
        cost(SIM_CALL_cuMemRelease, 1, 0);
    return result;
}

SIM_API CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    SIM_ENTER_SIZED(cuMemMap, size);
    if (has_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_memory_map(ptr, size, offset, handle);
    sim_unlock();
    if (!result)
        cost(SIM_CALL_cuMemMap, 1, size);
    return result;
}

SIM_API CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    uint64_t mappings;
    SIM_ENTER_SIZED(cuMemUnmap, size);
    sim_lock();
    CUresult result = sim_memory_unmap(ptr, size, &mappings);
    sim_unlock();
    cost(SIM_CALL_cuMemUnmap, mappings, result ? 0 : size);
    return result;
}

SIM_API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    uint64_t mappings;
    SIM_ENTER_SIZED(cuMemSetAccess, size);
    SIM_NEED(desc);
    sim_lock();
    CUresult result = sim_memory_set_access(ptr, size, desc, count, &mappings);
    sim_unlock();
    /* The work is per mapping and per device that is given access. */
    cost(SIM_CALL_cuMemSetAccess, mappings * count, result ? 0 : size * count);
    return result;
}

SIM_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    SIM_ENTER(cuMemGetAccess);
    SIM_NEED(flags);
    SIM_NEED(location);
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_memory_get_access(ptr, location->id, flags);
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    uint64_t retained;
    SIM_ENTER(cuMemRetainAllocationHandle);
    SIM_NEED(handle);
    sim_lock();
    CUresult result = sim_memory_retain((uint64_t)(uintptr_t)address, &retained);
    sim_unlock();
    if (!result)
        *handle = retained;
    return result;
}

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                        CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(cuMemGetAllocationPropertiesFromHandle);
    SIM_NEED(prop);
    sim_lock();
    const struct sim_memory *memory = sim_memory_get(handle);
    if (memory)
        *prop = memory->prop;
    sim_unlock();
    return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- sharing ---- */

SIM_API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags)
{
    int descriptor;
    SIM_ENTER(cuMemExportToShareableHandle);
    SIM_NEED(out);
    if (has_flags(flags) || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_memory *memory = sim_memory_get(handle);
    bool exportable = memory && memory->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUresult result = exportable ? sim_share_export(memory, &descriptor) : CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    if (!result)
        *(int *)out = descriptor;
    return result;
}

SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                                CUmemAllocationHandleType type)
{
    uint64_t imported;
    SIM_ENTER(cuMemImportFromShareableHandle);
    SIM_NEED(handle);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_share_import((int)(intptr_t)os_handle, &imported);
    sim_unlock();
    if (!result)
        *handle = imported;
    return result;
}
