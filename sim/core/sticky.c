/* SPDX-License-Identifier: Apache-2.0 */
/* sticky: see sticky.h. */
#include "sim/core/sticky.h"
#include "sim/core/history.h"
#include "sim/sim.h"

_Atomic unsigned sim_sticky_count;
static _Atomic int errors[SIM_DEVICES_MAX];

bool sim_is_sticky(CUresult error)
{
    switch (error) {
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return true;
    default:
        return false;
    }
}

/* Calls about the host alone, which need no working context. */
static bool still_works(enum sim_call call)
{
    switch (call) {
    case SIM_CALL_cuInit:
    /* What a device is (note: programs report the device's name with the error). */
    case SIM_CALL_cuDeviceGet:
    case SIM_CALL_cuDeviceGetCount:
    case SIM_CALL_cuDeviceGetName:
    case SIM_CALL_cuDeviceGetUuid:
    case SIM_CALL_cuDeviceGetAttribute:
    case SIM_CALL_cuDeviceTotalMem:
    case SIM_CALL_cuDeviceGetPCIBusId:
    case SIM_CALL_cuDeviceGetByPCIBusId:
    case SIM_CALL_cuDeviceCanAccessPeer:
    case SIM_CALL_cuDeviceGetP2PAttribute:
    /* Which context a thread works in (note: guards restore the device while an error unwinds). */
    case SIM_CALL_cuCtxGetCurrent:
    case SIM_CALL_cuCtxSetCurrent:
    case SIM_CALL_cuCtxPushCurrent:
    case SIM_CALL_cuCtxPopCurrent:
    case SIM_CALL_cuCtxGetDevice:
    case SIM_CALL_cuDevicePrimaryCtxRetain:
    case SIM_CALL_cuDevicePrimaryCtxGetState:
    /* Ours: figures and settings of the host that no device is asked for. */
    case SIM_CALL_cuDevicePrimaryCtxRelease:
    case SIM_CALL_cuCtxGetFlags:
    case SIM_CALL_cuCtxGetId:
    case SIM_CALL_cuCtxGetApiVersion:
    case SIM_CALL_cuThreadExchangeStreamCaptureMode:
    case SIM_CALL_cuMemGetAllocationGranularity:
        return true;
    default:
        return false;
    }
}

CUresult sim_sticky_find(int device)
{
    return device < 0 ? CUDA_SUCCESS : (CUresult)atomic_load_explicit(&errors[device], memory_order_relaxed);
}

CUresult sim_sticky_answer(enum sim_call call, int device)
{
    return still_works(call) ? CUDA_SUCCESS : sim_sticky_find(device);
}

void sim_sticky_set(int device, CUresult error)
{
    int none = CUDA_SUCCESS;
    if (device < 0 || !atomic_compare_exchange_strong(&errors[device], &none, (int)error))
        return;
    atomic_fetch_add(&sim_sticky_count, 1);
    sim_history_note("the device's work faulted", 0, 0, 0);
}

CUresult sim_device_error(int device)
{
    return device < SIM_DEVICES_MAX ? sim_sticky(device) : CUDA_SUCCESS;
}

void sim_sticky_reset(void)
{
    for (int d = 0; d < SIM_DEVICES_MAX; d++)
        atomic_store(&errors[d], CUDA_SUCCESS);
    atomic_store(&sim_sticky_count, 0);
}
