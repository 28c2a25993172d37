/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: primary ones, others, and the current one of a thread. */
#include "sim/core/calls.h"
#include "sim/core/capture.h"
#include "sim/core/config.h"
#include "sim/core/lock.h"
#include "sim/core/pool.h"
#include "sim/core/sticky.h"
#include "sim/core/stream.h"
#include <cudaProfiler.h>

#define NEED_DEVICE(device)                                                                                  \
    do {                                                                                                     \
        if ((device) < 0 || (device) >= sim_config.devices)                                                  \
            return CUDA_ERROR_INVALID_DEVICE;                                                                \
    } while (0)

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRetain);
    SIM_NEED(context);
    NEED_DEVICE(device);
    return sim_context_primary_retain(device, context);
}

SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease);
    NEED_DEVICE(device);
    return sim_context_primary_release(device);
}

SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxReset);
    NEED_DEVICE(device);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags);
    NEED_DEVICE(device);
    sim_context_primary_flags(device, flags);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    SIM_ENTER(cuDevicePrimaryCtxGetState);
    SIM_NEED(flags);
    SIM_NEED(active);
    NEED_DEVICE(device);
    sim_context_primary_state(device, flags, active);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetCurrent(CUcontext *context)
{
    SIM_ENTER(cuCtxGetCurrent);
    SIM_NEED(context);
    *context = sim_context_current();
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetCurrent(CUcontext context)
{
    SIM_ENTER(cuCtxSetCurrent);
    return sim_context_set(context);
}

SIM_API CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    SIM_ENTER(cuCtxPushCurrent);
    SIM_NEED(context);
    return sim_context_push(context);
}

SIM_API CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    SIM_ENTER(cuCtxPopCurrent);
    return sim_context_pop(context);
}

SIM_API CUresult cuCtxGetDevice(CUdevice *device)
{
    SIM_ENTER_CONTEXT(cuCtxGetDevice, current);
    SIM_NEED(device);
    *device = current;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    SIM_ENTER(cuCtxGetDevice);
    SIM_NEED(device);
    return sim_context_info(context, device, NULL, NULL);
}

SIM_API CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate);
    SIM_NEED(context);
    NEED_DEVICE(device);
    return sim_context_create(context, flags, device);
}

SIM_API CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                                CUdevice device)
{
    if (params && (params->numExecAffinityParams || params->cigParams))
        return sim_unsupported(SIM_CALL_cuCtxCreate);
    return cuCtxCreate_v2(context, flags, device);
}

SIM_API CUresult cuCtxDestroy_v2(CUcontext context)
{
    SIM_ENTER(cuCtxDestroy);
    return sim_context_destroy(context);
}

SIM_API CUresult cuCtxGetFlags(unsigned int *flags)
{
    SIM_ENTER(cuCtxGetFlags);
    SIM_NEED(flags);
    return sim_context_info(NULL, NULL, flags, NULL);
}

SIM_API CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    uint64_t number;
    SIM_ENTER(cuCtxGetId);
    SIM_NEED(id);
    CUresult result = sim_context_info(context, NULL, NULL, &number);
    if (!result)
        *id = number;
    return result;
}

SIM_API CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    SIM_ENTER(cuCtxGetApiVersion);
    SIM_NEED(version);
    CUresult result = sim_context_info(context, NULL, NULL, NULL);
    if (!result)
        *version = 3020; /* what drivers answer, whatever their own version */
    return result;
}

SIM_API CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    SIM_ENTER_CONTEXT(cuCtxGetLimit, device);
    (void)device;
    SIM_NEED(value);
    *value = limit == CU_LIMIT_STACK_SIZE ? 1024 : (size_t)8 << 20;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    SIM_ENTER_CONTEXT(cuCtxSetLimit, device);
    (void)device;
    (void)limit;
    (void)value;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    SIM_ENTER_CONTEXT(cuCtxGetCacheConfig, device);
    (void)device;
    SIM_NEED(config);
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    SIM_ENTER_CONTEXT(cuCtxSetCacheConfig, device);
    (void)device;
    (void)config;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_ENTER_CONTEXT(cuCtxGetStreamPriorityRange, device);
    (void)device;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

static CUresult synchronize(int device)
{
    sim_lock();
    CUresult result = sim_capture_any() ? sim_capture_unsafe() : CUDA_SUCCESS;
    if (!result)
        result = sim_queue_wait_all(device);
    sim_pools_synchronised();
    sim_unlock();
    return result ? result : sim_sticky(device);
}

SIM_API CUresult cuCtxSynchronize(void)
{
    SIM_ENTER_CONTEXT(cuCtxSynchronize, device);
    return synchronize(device);
}

SIM_API CUresult cuCtxSynchronize_v2(CUcontext context)
{
    int device;
    SIM_ENTER(cuCtxSynchronize);
    CUresult result = sim_context_info(context, &device, NULL, NULL);
    return result ? result : synchronize(device);
}

/* Peer access concerns plain allocations only, and the kernels that use them. */
SIM_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    int other;
    SIM_ENTER_CONTEXT(cuCtxEnablePeerAccess, device);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_context_info(peer, &other, NULL, NULL);
    if (result || other == device)
        return result ? result : CUDA_ERROR_INVALID_DEVICE;
    if (!sim_has(SIM_FEATURE_PEERS))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return sim_context_set_peer(device, other, true) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

SIM_API CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    int other;
    SIM_ENTER_CONTEXT(cuCtxDisablePeerAccess, device);
    CUresult result = sim_context_info(peer, &other, NULL, NULL);
    if (result)
        return result;
    return sim_context_set_peer(device, other, false) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

/* Since 12.5: an event about all work of a context. While a stream of it captures, the call fails and the
 * capture is invalid (comment of cuCtxRecordEvent in cuda.h). */
SIM_API CUresult cuCtxRecordEvent(CUcontext context, CUevent handle)
{
    int device;
    SIM_ENTER(cuCtxRecordEvent);
    struct sim_event *event = sim_event_get(handle);
    CUresult result = event ? sim_context_info(context, &device, NULL, NULL) : CUDA_ERROR_INVALID_HANDLE;
    if (result)
        return result;
    sim_lock();
    result = sim_stream_record_device(device, event);
    sim_queue_tick();
    sim_unlock();
    return result;
}

SIM_API CUresult cuCtxWaitEvent(CUcontext context, CUevent handle)
{
    int device;
    SIM_ENTER(cuCtxWaitEvent);
    struct sim_event *event = sim_event_get(handle);
    CUresult result = event ? sim_context_info(context, &device, NULL, NULL) : CUDA_ERROR_INVALID_HANDLE;
    if (result)
        return result;
    sim_lock();
    result = sim_stream_device_wait(device, event);
    sim_unlock();
    return result;
}

SIM_API CUresult cuProfilerStart(void)
{
    SIM_ENTER(cuProfilerStart);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuProfilerStop(void)
{
    SIM_ENTER(cuProfilerStop);
    return CUDA_SUCCESS;
}
