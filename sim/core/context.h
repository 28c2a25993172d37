/* SPDX-License-Identifier: Apache-2.0 */
/* context: primary and other contexts, and the stack of current ones that each thread has.
 *
 * A context here is a device with flags; it owns nothing, so memory and streams outlive it until they are
 * given back (a reset of the primary context releases nothing). The current device of a thread is a
 * thread-local, read by every call without a lock. */
#ifndef SEAMALLOC_SIM_CORE_CONTEXT_H
#define SEAMALLOC_SIM_CORE_CONTEXT_H

#include "sim/sim.h"

/* The device of this thread's current context, or -1. Thread: any, no lock. */
int sim_context_device(void);

/* The current context of this thread, or NULL. */
CUcontext sim_context_current(void);
CUresult sim_context_set(CUcontext context);
CUresult sim_context_push(CUcontext context);
CUresult sim_context_pop(CUcontext *context);

/* Makes a context and pushes it. */
CUresult sim_context_create(CUcontext *context, unsigned flags, int device);
CUresult sim_context_destroy(CUcontext context);

CUresult sim_context_primary_retain(int device, CUcontext *context);
CUresult sim_context_primary_release(int device);
void sim_context_primary_flags(int device, unsigned flags);
void sim_context_primary_state(int device, unsigned *flags, int *active);

/* The primary context's handle, made when it is first asked for. Requires: 0 <= device < devices. */
CUcontext sim_context_primary(int device);

/* Opens (or closes) the plain memory of a device to kernels of another. Returns: false when it is so already.
 * Thread: any. */
bool sim_context_set_peer(int device, int peer, bool open);
bool sim_context_peers(int device, int peer);

/* Device, flags and number of a context (NULL: the current one). Returns: CUDA_ERROR_INVALID_CONTEXT for
 * none. */
CUresult sim_context_info(CUcontext context, int *device, unsigned *flags, uint64_t *id);

/* Requires: the lock is held. Forgets all contexts, of all threads. */
void sim_contexts_reset(void);

#endif
