/* SPDX-License-Identifier: Apache-2.0 */
/* error: names and texts of the runtime's errors, and the last one of each thread. No lock: all is the
 * thread's. */
#include "sim/libcudart/runtime.h"
#include "sim/sim.h"

#include <stddef.h>

static const struct {
    cudaError_t error;
    const char *name, *text;
} texts[] = {
#define TEXT(error, text)                                                                                    \
    {                                                                                                        \
        error, #error, text                                                                                  \
    }
    TEXT(cudaSuccess, "no error"),
    TEXT(cudaErrorInvalidValue, "invalid argument"),
    TEXT(cudaErrorMemoryAllocation, "out of memory"),
    TEXT(cudaErrorInitializationError, "initialization error"),
    TEXT(cudaErrorCudartUnloading, "driver shutting down"),
    TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TEXT(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    TEXT(cudaErrorInvalidSymbol, "invalid device symbol"),
    TEXT(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    TEXT(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    TEXT(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    TEXT(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    TEXT(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    TEXT(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    TEXT(cudaErrorDeviceUninitialized, "invalid device context"),
    TEXT(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    TEXT(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    TEXT(cudaErrorFileNotFound, "file not found"),
    TEXT(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    TEXT(cudaErrorSymbolNotFound, "named symbol not found"),
    TEXT(cudaErrorNotReady, "device not ready"),
    TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TEXT(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    TEXT(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    TEXT(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    TEXT(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    TEXT(cudaErrorContextIsDestroyed, "context is destroyed"),
    TEXT(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    TEXT(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    TEXT(cudaErrorAssert, "device-side assert triggered"),
    TEXT(cudaErrorHardwareStackError, "hardware stack error"),
    TEXT(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    TEXT(cudaErrorMisalignedAddress, "misaligned address"),
    TEXT(cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space"),
    TEXT(cudaErrorInvalidPc, "invalid program counter"),
    TEXT(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    TEXT(cudaErrorContained, "invalid access of peer GPU memory over nvlink or a hardware error"),
    TEXT(cudaErrorExternalDevice, "an async error has occurred in external entity outside of CUDA"),
    TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    TEXT(cudaErrorNotPermitted, "operation not permitted"),
    TEXT(cudaErrorNotSupported, "operation not supported"),
    TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    TEXT(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    TEXT(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    TEXT(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    TEXT(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    TEXT(cudaErrorStreamCaptureImplicit,
         "operation would make the legacy stream depend on a capturing blocking stream"),
    TEXT(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    TEXT(cudaErrorStreamCaptureWrongThread,
         "attempt to terminate a thread-local capture sequence from another thread"),
    TEXT(cudaErrorUnknown, "unknown error"),
#undef TEXT
};

cudaError_t rt_fail(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        rt_thread.last = error;
    return error;
}

cudaError_t rt_stays(void)
{
    return rt_thread.bound ? (cudaError_t)sim_device_error(rt_thread.device) : cudaSuccess;
}

/* Forgets the thread's last error; one that stays with the device comes back. */
RT_API cudaError_t cudaGetLastError(void)
{
    cudaError_t error = rt_thread.last;

    rt_thread.last = cudaSuccess;
    return error ? error : rt_stays();
}

RT_API cudaError_t cudaPeekAtLastError(void)
{
    return rt_thread.last ? rt_thread.last : rt_stays();
}

RT_API const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].error == error)
            return texts[i].name;
    return "unrecognized error code";
}

RT_API const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].error == error)
            return texts[i].text;
    return "unrecognized error code";
}
