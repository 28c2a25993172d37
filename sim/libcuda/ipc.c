/* SPDX-License-Identifier: Apache-2.0 */
/* Plain memory and events of one process in another. */
#include "sim/core/calls.h"
#include "sim/core/lock.h"
#include "sim/core/pool.h"
#include "sim/core/share.h"
#include "sim/core/stream.h"
#include <string.h>

SIM_API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
    SIM_ENTER(cuIpcGetMemHandle);
    SIM_NEED(handle);
    sim_lock();
    CUresult result = sim_share_ipc_get(ptr, handle);
    sim_unlock();
    return result;
}

SIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
    uint64_t base;
    SIM_ENTER_CONTEXT(cuIpcOpenMemHandle, device);
    SIM_NEED(ptr);
    if (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_share_ipc_open(&handle, device, &base);
    sim_unlock();
    if (!result)
        *ptr = base;
    return result;
}

SIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
    SIM_ENTER(cuIpcCloseMemHandle);
    sim_lock();
    CUresult result = sim_queue_wait_all(-1);
    if (!result)
        result = sim_share_ipc_close(ptr);
    sim_unlock();
    return result;
}

/* An event crosses over as one that is done: its work is completed when its handle is taken. A later record
 * is not seen by who opened it. */
static const char event_magic[16] = "sim-ipc-event-1";

SIM_API CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event_handle)
{
    SIM_ENTER(cuIpcGetEventHandle);
    SIM_NEED(handle);
    struct sim_event *event = sim_event_get(event_handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!(event->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = CUDA_SUCCESS;
    if (!sim_event_is_done(event))
        result = sim_queue_wait_lane(event->point.lane, event->point.sequence);
    sim_unlock();
    memset(handle, 0, sizeof *handle);
    memcpy(handle, event_magic, sizeof event_magic);
    return result;
}

SIM_API CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    struct sim_event *made;
    SIM_ENTER_CONTEXT(cuIpcOpenEventHandle, device);
    SIM_NEED(event);
    if (memcmp(&handle, event_magic, sizeof event_magic))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_lock();
    CUresult result = sim_event_new(device, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, &made);
    sim_unlock();
    if (!result)
        *event = (CUevent)(uintptr_t)made->handle;
    return result;
}
