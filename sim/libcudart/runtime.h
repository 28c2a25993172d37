/* SPDX-License-Identifier: Apache-2.0 */
/* libcudart: the CUDA runtime of the simulated device, on top of the driver API and nothing else.
 *
 * The idea: a runtime call finds the thread's device, makes its primary context current when it is not, and
 * asks the driver. Almost every function is one RT_RUN line. What the driver cannot do is refused by the
 * driver, which also counts it, so that this library needs no list of its own.
 *
 * Owns: the thread's device and last error, the table of registered kernels and variables (code.c).
 * Differs from NVIDIA's runtime where a thread changes the current context behind its back: the context is
 * looked at when a thread first calls, and after cudaSetDevice, not at every call. */
#ifndef SEAMALLOC_SIM_LIBCUDART_RUNTIME_H
#define SEAMALLOC_SIM_LIBCUDART_RUNTIME_H

#include <cuda.h>
#include <stdbool.h>
#define __CUDART_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>

#define RT_API __attribute__((visibility("default")))

#define RT_DEVICES_MAX 16

/* What a thread remembers between calls. */
struct rt_thread {
    cudaError_t last;
    int device;
    bool bound; /* the context of `device` is current in this thread */
};
extern __thread struct rt_thread rt_thread;

/* Starts the driver once for the process.
 * Returns what cuInit returned. Thread: any. */
CUresult rt_start(void);

/* Makes the context of the thread's device current, retaining it once for the process.
 * Returns true when that is not possible; the last error then says why. Thread: any. */
bool rt_bind(void);

/* Keeps `error` as the thread's last error, unless it is success or "not ready", which are no errors.
 * Returns: error. Thread: any. */
cudaError_t rt_fail(cudaError_t error);

/* Says a driver's answer in the runtime's words: both APIs give the same number to the same thing.
 * Returns the runtime's error, kept as the thread's last one. Thread: any. */
static inline cudaError_t rt_note(CUresult result)
{
    return result == CUDA_SUCCESS ? cudaSuccess : rt_fail((cudaError_t)result);
}

/* The error that stays with the thread's device since work on it faulted. Thread: any. */
cudaError_t rt_stays(void);

static inline bool rt_enter(void)
{
    return !rt_thread.bound && rt_bind();
}

/* A call for which there is nothing to do but to start. */
#define RT_NOTHING() (rt_enter() ? rt_thread.last : rt_fail(rt_stays()))

/* One driver call in the thread's context. */
#define RT_RUN(driver_call) (rt_enter() ? rt_thread.last : rt_note(driver_call))

/* One driver call that needs no context. */
#define RT_ASK(driver_call) (rt_start() != CUDA_SUCCESS ? rt_note(rt_start()) : rt_note(driver_call))

/* The driver's function of a kernel that host code has registered, in the thread's context.
 * Requires: `host` is what the host code launches. Ensures: *function is written only on success.
 * Returns: cudaErrorInvalidDeviceFunction for what nobody registered. Thread: any. */
cudaError_t rt_function(const void *host, CUfunction *function);

#endif
