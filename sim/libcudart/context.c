/* SPDX-License-Identifier: Apache-2.0 */
/* context: which device a thread works on, and the primary contexts behind that.
 * A primary context is retained once for the process and kept until it ends. Lock: `lock`, for `contexts`. */
#include "sim/libcudart/runtime.h"

#include <pthread.h>

__thread struct rt_thread rt_thread;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[RT_DEVICES_MAX];
static pthread_once_t started = PTHREAD_ONCE_INIT;
static CUresult start_result;

static void start_driver(void)
{
    start_result = cuInit(0);
}

CUresult rt_start(void)
{
    pthread_once(&started, start_driver);
    return start_result;
}

static CUresult retain_context(int device, CUcontext *context)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    if (!contexts[device])
        result = cuDevicePrimaryCtxRetain(&contexts[device], device);
    *context = contexts[device];
    pthread_mutex_unlock(&lock);
    return result;
}

/* A thread that came with a context of its own keeps it, and works on that context's device. */
static bool adopt_context(void)
{
    CUcontext context = NULL;
    CUdevice device;

    if (rt_thread.device != 0 || cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return false;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return false;
    rt_thread.device = device;
    return true;
}

bool rt_bind(void)
{
    CUcontext context;
    CUresult result = rt_start();

    if (result == CUDA_SUCCESS && adopt_context()) {
        rt_thread.bound = true;
        return false;
    }
    if (result == CUDA_SUCCESS)
        result = retain_context(rt_thread.device, &context);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    if (result != CUDA_SUCCESS) {
        rt_note(result);
        return true;
    }
    rt_thread.bound = true;
    return false;
}

RT_API cudaError_t cudaSetDevice(int device)
{
    int count = 0;
    CUcontext context;
    cudaError_t error = RT_ASK(cuDeviceGetCount(&count));

    if (error)
        return error;
    if (device < 0 || device >= count || device >= RT_DEVICES_MAX)
        return rt_fail(cudaErrorInvalidDevice);
    if (rt_thread.bound && rt_thread.device == device)
        return cudaSuccess;
    error = rt_note(retain_context(device, &context));
    if (!error)
        error = rt_note(cuCtxSetCurrent(context));
    if (error)
        return error;
    rt_thread.device = device;
    rt_thread.bound = true;
    return cudaSuccess;
}

RT_API cudaError_t cudaGetDevice(int *device)
{
    if (!rt_thread.bound && rt_start() == CUDA_SUCCESS)
        adopt_context();
    *device = rt_thread.device;
    return cudaSuccess;
}

RT_API cudaError_t cudaDeviceReset(void)
{
    cudaError_t error = RT_RUN(cuCtxSynchronize());

    if (!error)
        error = rt_note(cuDevicePrimaryCtxReset(rt_thread.device));
    return error;
}
