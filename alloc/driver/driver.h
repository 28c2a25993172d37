/* SPDX-License-Identifier: Apache-2.0 */
/* driver: the one door to the device, a table of the CUDA driver functions that the allocator calls.
 *
 * The table is filled from libcuda.so.1 through cuGetProcAddress, or by a test from functions that are linked
 * in. Calls go through SM_CALL, which counts them and the host time they take. Nothing here interprets a
 * result but sm_driver_text.
 *
 * Contract of each function: the CUDA driver API's documentation. The signatures are cuda.h's own.
 * Thread: a table is immutable once loaded; the counters are relaxed atomics. */
#ifndef SEAM_ALLOC_DRIVER_DRIVER_H
#define SEAM_ALLOC_DRIVER_DRIVER_H

#include "base/clock.h"
#include "base/error.h"
#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

/* X(function, version at which its present signature appeared, required) */
#define SM_DRIVER_CALLS(X)                                                                                   \
    X(cuInit, 2000, 1)                                                                                       \
    X(cuDriverGetVersion, 2020, 1)                                                                           \
    X(cuGetErrorName, 6000, 1)                                                                               \
    X(cuGetErrorString, 6000, 1)                                                                             \
    X(cuDeviceGetCount, 2000, 1)                                                                             \
    X(cuDeviceGet, 2000, 1)                                                                                  \
    X(cuDeviceGetName, 2000, 1)                                                                              \
    X(cuDeviceGetAttribute, 2000, 1)                                                                         \
    X(cuDeviceTotalMem, 3020, 1)                                                                             \
    X(cuDeviceCanAccessPeer, 4000, 1)                                                                        \
    X(cuDevicePrimaryCtxRetain, 7000, 1)                                                                     \
    X(cuDevicePrimaryCtxRelease, 11000, 1)                                                                   \
    X(cuCtxPushCurrent, 4000, 1)                                                                             \
    X(cuCtxPopCurrent, 4000, 1)                                                                              \
    X(cuMemAlloc, 3020, 1)                                                                                   \
    X(cuMemFree, 3020, 1)                                                                                    \
    X(cuMemGetInfo, 3020, 1)                                                                                 \
    X(cuMemGetAddressRange, 3020, 1)                                                                         \
    X(cuMemGetAllocationGranularity, 10020, 0)                                                               \
    X(cuMemAddressReserve, 10020, 0)                                                                         \
    X(cuMemAddressFree, 10020, 0)                                                                            \
    X(cuMemCreate, 10020, 0)                                                                                 \
    X(cuMemRelease, 10020, 0)                                                                                \
    X(cuMemMap, 10020, 0)                                                                                    \
    X(cuMemUnmap, 10020, 0)                                                                                  \
    X(cuMemSetAccess, 10020, 0)                                                                              \
    X(cuMemGetAccess, 10020, 0)                                                                              \
    X(cuEventCreate, 2000, 1)                                                                                \
    X(cuEventDestroy, 4000, 1)                                                                               \
    X(cuEventRecord, 2000, 1)                                                                                \
    X(cuEventQuery, 2000, 1)                                                                                 \
    X(cuEventSynchronize, 2000, 1)                                                                           \
    X(cuStreamQuery, 2000, 1)                                                                                \
    X(cuStreamSynchronize, 2000, 1)                                                                          \
    X(cuStreamIsCapturing, 10000, 1)                                                                         \
    X(cuStreamGetCtx, 9020, 1)                                                                               \
    X(cuThreadExchangeStreamCaptureMode, 10010, 1)                                                           \
    X(cuCtxSynchronize, 2000, 1)

enum sm_driver_call {
#define X(name, version, required) SM_CALL_##name,
    SM_DRIVER_CALLS(X)
#undef X
        SM_CALL_COUNT
};

struct sm_driver_count {
    _Atomic uint64_t calls, failures, ns;
};

struct sm_driver {
    /* cuda.h renames some functions to their present version; so do these members, in the same way. */
#define X(name, version, required) __typeof__(&name) name;
    SM_DRIVER_CALLS(X)
#undef X
    /* cuStreamGetCaptureInfo has another signature in each major version: the id alone, by the form of 11.3.
     */
    CUresult (*capture_info)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,
                             size_t *);
    void *library; /* from dlopen, or NULL */
    struct sm_driver_count counts[SM_CALL_COUNT];
};

/* The signature of cuGetProcAddress since 12.0. */
typedef CUresult (*sm_get_proc)(const char *symbol, void **function, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult *status);

/* Opens libcuda.so.1 and fills the table; cuInit is called too.
 * Returns: SEAM_OK; SEAM_E_NO_DRIVER when the library, a required function or a device is missing; *driver is
 * then unusable. */
seam_result sm_driver_open(struct sm_driver *driver, struct sm_error *error);
/* Fills the table through get_proc, for functions that are linked into the program. */
seam_result sm_driver_fill(struct sm_driver *driver, sm_get_proc get_proc, struct sm_error *error);
void sm_driver_close(struct sm_driver *driver);
/* Does the driver have all functions of virtual memory management? The others are there always. */
bool sm_driver_has_vmm(const struct sm_driver *driver);

/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)" into a caller's buffer; returns it. */
const char *sm_driver_text(const struct sm_driver *driver, CUresult code, char *buffer, size_t capacity);
const char *sm_driver_call_name(enum sm_driver_call call);

static inline CUresult sm_driver_note(struct sm_driver *driver, enum sm_driver_call call, int64_t start_ns,
                                      CUresult code)
{
    struct sm_driver_count *count = &driver->counts[call];
    atomic_fetch_add_explicit(&count->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&count->ns, (uint64_t)(sm_clock_ns() - start_ns), memory_order_relaxed);
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY)
        atomic_fetch_add_explicit(&count->failures, 1, memory_order_relaxed);
    return code;
}

/* SM_CALL(driver, cuMemMap, ...): calls through the table. */
#define SM_CALL(driver, name, ...) SM_CALL_AS(driver, SM_CALL_##name, name, __VA_ARGS__)
#define SM_CALL_AS(driver, call, name, ...)                                                                  \
    __extension__({                                                                                          \
        int64_t sm_call_start_ = sm_clock_ns();                                                              \
        sm_driver_note((driver), (call), sm_call_start_, (driver)->name(__VA_ARGS__));                       \
    })

#endif
