/* SPDX-License-Identifier: Apache-2.0 */
/* sticky: errors that stay. Work that faults on the device breaks its context, and from then on every call
 * there answers the same error until the process ends.
 *
 * Sources: the texts of these errors in cuda.h ("any further CUDA work will return the same error ... the
 * process must be terminated and relaunched"); that the fault is told by a later call than the one that put
 * the work, and that no host function is called any more: \notefnerr and cuLaunchHostFunc there. Which calls
 * about the host alone still work is a published observation where sticky.c says "note", else ours. Streams
 * belong to a device here, so all contexts of the device are broken; those of other devices are not.
 * Lock: none, an atomic for each device. */
#ifndef SEAMALLOC_SIM_CORE_STICKY_H
#define SEAMALLOC_SIM_CORE_STICKY_H

#include "names.h"
#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic unsigned sim_sticky_count;

/* Is this one of the errors that stay? */
bool sim_is_sticky(CUresult error);

/* Breaks a device; the first error stays. Requires: sim_is_sticky(error). */
void sim_sticky_set(int device, CUresult error);
CUresult sim_sticky_find(int device);
/* The same, but for calls that still work. */
CUresult sim_sticky_answer(enum sim_call call, int device);

/* The error that stays with a device, or CUDA_SUCCESS; also for device -1. Thread: any. */
static inline CUresult sim_sticky(int device)
{
    if (__builtin_expect(atomic_load_explicit(&sim_sticky_count, memory_order_acquire) == 0, 1))
        return CUDA_SUCCESS;
    return sim_sticky_find(device);
}

/* What a call that a thread makes on a device has to answer before anything else. */
static inline CUresult sim_sticky_call(enum sim_call call, int device)
{
    if (__builtin_expect(atomic_load_explicit(&sim_sticky_count, memory_order_acquire) == 0, 1))
        return CUDA_SUCCESS;
    return sim_sticky_answer(call, device);
}

void sim_sticky_reset(void);

#endif
