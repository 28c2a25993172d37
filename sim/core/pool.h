/* SPDX-License-Identifier: Apache-2.0 */
/* pool: stream-ordered allocations (cuMemAllocAsync) and their pools.
 *
 * A pool here has no cache: an allocation takes device memory when it is made, and a free gives it back when
 * its stream reaches it. What a pool reserves is therefore the least that a real one could. Protected by: the
 * core lock. */
#ifndef SEAMALLOC_SIM_CORE_POOL_H
#define SEAMALLOC_SIM_CORE_POOL_H

#include "sim/core/stream.h"

/* The pool that a device has from the start, and the one that it now uses. */
CUresult sim_pool_default(int device, CUmemoryPool *pool);
CUresult sim_pool_current(int device, CUmemoryPool *pool);
CUresult sim_pool_set_current(int device, CUmemoryPool pool);

CUresult sim_pool_create(int device, CUmemoryPool *pool);
CUresult sim_pool_destroy(CUmemoryPool pool);
CUresult sim_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult sim_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);

/* NULL: the current pool of the stream's device. */
CUresult sim_pool_alloc(CUmemoryPool pool, uint64_t size, struct sim_stream *stream, uint64_t *base);
CUresult sim_pool_free(uint64_t base, struct sim_stream *stream);
/* A plain free of a pool's allocation, which is allowed: keeps the pool's counts right. */
void sim_pool_forget(uint64_t pool, uint64_t size);

bool sim_pool_is_default(uint64_t handle);
uint64_t sim_pools_made(void);
void sim_pools_reset(void);

#endif
