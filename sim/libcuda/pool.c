/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation. */
#include "sim/core/pool.h"
#include "sim/core/calls.h"
#include "sim/core/config.h"
#include "sim/core/cost.h"
#include "sim/core/graph.h"
#include "sim/core/lock.h"

#define NEED_DEVICE(device)                                                                                  \
    do {                                                                                                     \
        if ((device) < 0 || (device) >= sim_config.devices)                                                  \
            return CUDA_ERROR_INVALID_DEVICE;                                                                \
    } while (0)

#define NEED_POOLS                                                                                           \
    do {                                                                                                     \
        if (!sim_has(SIM_FEATURE_POOLS))                                                                     \
            return CUDA_ERROR_NOT_SUPPORTED;                                                                 \
    } while (0)

SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetDefaultMemPool);
    SIM_NEED(pool);
    NEED_DEVICE(device);
    NEED_POOLS;
    sim_lock();
    CUresult result = sim_pool_default(device, pool);
    sim_unlock();
    return result;
}

SIM_API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetMemPool);
    SIM_NEED(pool);
    NEED_DEVICE(device);
    NEED_POOLS;
    sim_lock();
    CUresult result = sim_pool_current(device, pool);
    sim_unlock();
    return result;
}

SIM_API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    SIM_ENTER(cuDeviceSetMemPool);
    NEED_DEVICE(device);
    sim_lock();
    CUresult result = sim_pool_set_current(device, pool);
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    SIM_ENTER(cuMemPoolCreate);
    SIM_NEED(pool);
    SIM_NEED(props);
    NEED_POOLS;
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    NEED_DEVICE(props->location.id);
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE) /* as the device's attribute says */
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_lock();
    CUresult result = sim_pool_create(props->location.id, props->maxSize, pool);
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    SIM_ENTER(cuMemPoolDestroy);
    sim_lock();
    CUresult result = sim_pool_destroy(pool);
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_ENTER(cuMemPoolGetAttribute);
    SIM_NEED(value);
    sim_lock();
    CUresult result = sim_pool_get_attribute(pool, attribute, value);
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_ENTER(cuMemPoolSetAttribute);
    SIM_NEED(value);
    sim_lock();
    CUresult result = sim_pool_set_attribute(pool, attribute, value);
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    SIM_ENTER(cuMemPoolTrimTo);
    sim_lock();
    CUresult result = sim_pool_trim(pool, keep);
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count)
{
    SIM_ENTER(cuMemPoolSetAccess);
    CUresult result = CUDA_SUCCESS;
    SIM_NEED(desc);
    for (size_t i = 0; i < count; i++)
        NEED_DEVICE(desc[i].location.id);
    sim_lock();
    for (size_t i = 0; i < count && !result; i++)
        result =
            sim_pool_set_access(pool, desc[i].location.id, desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    SIM_ENTER(cuMemPoolGetAccess);
    SIM_NEED(flags);
    SIM_NEED(location);
    NEED_DEVICE(location->id);
    cuuint64_t used;
    sim_lock();
    CUresult result = sim_pool_get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    if (!result)
        *flags = sim_pool_open_to((uint64_t)(uintptr_t)pool, location->id)
                     ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    sim_unlock();
    return result;
}

static CUresult alloc(enum sim_call call, CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream handle)
{
    uint64_t base;
    NEED_POOLS;
    struct sim_stream *stream = sim_stream_get(handle);
    if (!stream)
        return sim_context_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
    if (size == 0) {
        *ptr = 0;
        return CUDA_SUCCESS;
    }
    sim_lock();
    CUresult result = sim_pool_alloc(pool, size, stream, &base);
    sim_unlock();
    if (result)
        return result;
    *ptr = base;
    sim_cost_add(stream->lane->device, call, 1, size);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t size, CUstream stream)
{
    SIM_ENTER_SIZED(cuMemAllocAsync, size);
    SIM_NEED(ptr);
    return alloc(SIM_CALL_cuMemAllocAsync, ptr, size, NULL, stream);
}

SIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream)
{
    SIM_ENTER_SIZED(cuMemAllocFromPoolAsync, size);
    SIM_NEED(ptr);
    return alloc(SIM_CALL_cuMemAllocFromPoolAsync, ptr, size, pool, stream);
}

SIM_API CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream handle)
{
    SIM_ENTER(cuMemFreeAsync);
    struct sim_stream *stream = sim_stream_get(handle);
    if (!stream)
        return sim_context_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
    if (ptr == 0)
        return CUDA_SUCCESS;
    sim_lock();
    CUresult result = sim_pool_free(ptr, stream);
    sim_queue_tick();
    sim_unlock();
    return result;
}

/* ---- memory of graphs, which have no pool that could be named ---- */

SIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    SIM_ENTER(cuDeviceGetGraphMemAttribute);
    SIM_NEED(value);
    NEED_DEVICE(device);
    if ((int)attribute < 0 || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    bool high =
        attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    sim_lock();
    *(cuuint64_t *)value = high ? sim_graph_bytes_high(device) : sim_graph_bytes(device);
    sim_unlock();
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    SIM_ENTER(cuDeviceSetGraphMemAttribute);
    SIM_NEED(value);
    NEED_DEVICE(device);
    if ((attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) ||
        *(const cuuint64_t *)value)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    sim_graph_bytes_restart(device);
    sim_unlock();
    return CUDA_SUCCESS;
}

/* Nothing is kept beyond what graphs need. */
SIM_API CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    SIM_ENTER(cuDeviceGraphMemTrim);
    NEED_DEVICE(device);
    return CUDA_SUCCESS;
}
