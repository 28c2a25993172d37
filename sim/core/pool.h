/* SPDX-License-Identifier: Apache-2.0 */
/* pool: stream-ordered allocations (cuMemAllocAsync) and their pools.
 *
 * A pool keeps what is freed into it. An allocation is served from it where it can be: by what its stream has
 * freed, also if that free is still queued; by what was freed on another stream, once its free was reached or
 * where an event puts it before; by the smallest piece that fits, which is split. Otherwise the pool grows,
 * after giving back as much as it keeps in smaller pieces: pages can be put side by side. What a pool keeps
 * beyond its release threshold goes back when the host next waits for a stream, an event or the context, and
 * before any allocation of the process fails. A real pool reserves in larger units, and may keep more.
 * Protected by: the core lock. */
#ifndef SEAMALLOC_SIM_CORE_POOL_H
#define SEAMALLOC_SIM_CORE_POOL_H

#include "sim/core/stream.h"

/* The pool that a device has from the start, and the one that it now uses. */
CUresult sim_pool_default(int device, CUmemoryPool *pool);
CUresult sim_pool_current(int device, CUmemoryPool *pool);
CUresult sim_pool_set_current(int device, CUmemoryPool pool);

/* most: bytes that it may have allocated at one time; 0: no limit of its own. */
CUresult sim_pool_create(int device, uint64_t most, CUmemoryPool *pool);
CUresult sim_pool_destroy(CUmemoryPool pool);
CUresult sim_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult sim_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);

/* NULL: the current pool of the stream's device. */
CUresult sim_pool_alloc(CUmemoryPool pool, uint64_t size, struct sim_stream *stream, uint64_t *base);
CUresult sim_pool_free(uint64_t base, struct sim_stream *stream);
/* A queued free has been reached. */
void sim_pool_reached(uint64_t base, uint64_t number);
/* A plain free (cuMemFree) of an allocation, of a pool or not. Requires: it is one, and not freed. */
void sim_pool_free_now(uint64_t base);

/* The host has waited for the device: what exceeds the thresholds goes. */
void sim_pools_synchronised(void);
/* Does any pool keep anything? Thread: any, no lock. */
bool sim_pools_cache(void);
/* Gives back what pools of a device keep, until there are so many bytes. Returns: how many. */
uint64_t sim_pools_release(int device, uint64_t bytes);
CUresult sim_pool_trim(CUmemoryPool pool, uint64_t keep);

/* Opens a pool's memory to kernels of a device, or closes it. */
CUresult sim_pool_set_access(CUmemoryPool pool, int device, bool open);
bool sim_pool_open_to(uint64_t pool, int device);

bool sim_pool_is_default(uint64_t handle);
uint64_t sim_pools_made(void);
void sim_pools_reset(void);

#endif
