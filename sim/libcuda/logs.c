/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's log, of which the simulated device keeps none: whoever asks to be told is accepted, and never
 * called. */
#include "sim/core/calls.h"
#include <stdlib.h>

SIM_API CUresult cuLogsRegisterCallback(CUlogsCallback callback, void *data, CUlogsCallbackHandle *handle)
{
    SIM_ENTER(cuLogsRegisterCallback);
    SIM_NEED(callback);
    (void)data;
    CUlogsCallbackHandle listener = malloc(1);
    if (!listener)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (handle)
        *handle = listener;
    else
        free(listener);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle)
{
    SIM_ENTER(cuLogsUnregisterCallback);
    SIM_NEED(handle);
    free(handle);
    return CUDA_SUCCESS;
}
