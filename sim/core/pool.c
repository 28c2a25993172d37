/* SPDX-License-Identifier: Apache-2.0 */
/* pool: see pool.h. */
#include "sim/core/pool.h"
#include "base/align.h"
#include "sim/core/address.h"
#include "sim/core/capture.h"
#include "sim/core/memory.h"
#include "sim/core/rules.h"
#include "sim/core/table.h"
#include <stdlib.h>

struct pool {
    int device;
    bool is_default;
    uint64_t used, high; /* bytes; reserved is the same, as there is no cache */
    uint64_t threshold;
    int switches[4]; /* the reuse options, which change nothing here */
};

static CUmemoryPool defaults[SIM_DEVICES_MAX], current[SIM_DEVICES_MAX];
static uint64_t made;

static struct pool *pool_get(CUmemoryPool pool)
{
    return sim_table_get(SIM_KIND_POOL, (uint64_t)(uintptr_t)pool);
}

static CUresult make(int device, bool is_default, CUmemoryPool *out)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = (struct pool){.device = device, .is_default = is_default, .switches = {1, 1, 1, 1}};
    uint64_t handle = sim_table_add(SIM_KIND_POOL, pool);
    if (!handle) {
        free(pool);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUmemoryPool)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult sim_pool_default(int device, CUmemoryPool *pool)
{
    CUresult result = defaults[device] ? CUDA_SUCCESS : make(device, true, &defaults[device]);
    if (!result)
        *pool = defaults[device];
    return result;
}

CUresult sim_pool_current(int device, CUmemoryPool *pool)
{
    if (!current[device])
        return sim_pool_default(device, pool);
    *pool = current[device];
    return CUDA_SUCCESS;
}

CUresult sim_pool_set_current(int device, CUmemoryPool pool)
{
    const struct pool *p = pool_get(pool);
    if (!p || p->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    current[device] = pool;
    return CUDA_SUCCESS;
}

CUresult sim_pool_create(int device, CUmemoryPool *pool)
{
    CUresult result = make(device, false, pool);
    made += !result;
    return result;
}

CUresult sim_pool_destroy(CUmemoryPool handle)
{
    struct pool *pool = pool_get(handle);
    if (!pool || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    if (current[pool->device] == handle) /* the device returns to its first pool */
        current[pool->device] = NULL;
    sim_table_remove(SIM_KIND_POOL, (uint64_t)(uintptr_t)handle);
    free(pool);
    made--;
    return CUDA_SUCCESS;
}

CUresult sim_pool_get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    const struct pool *pool = pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->switches[attribute];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_pool_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value)
{
    struct pool *pool = pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->switches[attribute] = *(const int *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: /* may only be set to 0: start again from now */
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        pool->high = pool->used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_pool_alloc(CUmemoryPool handle, uint64_t size, struct sim_stream *stream, uint64_t *base)
{
    int device = stream->lane->device;
    CUresult result = handle ? CUDA_SUCCESS : sim_pool_current(device, &handle);
    struct pool *pool = pool_get(handle);
    if (result || !pool)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    result = sim_memory_alloc(pool->device, size, base);
    if (result && sim_queue_total()) {
        /* Frees that are queued may have what is missing: an allocation waits for them before it fails. */
        result = sim_queue_wait_all(pool->device);
        pool = pool_get(handle); /* the lock may have been dropped */
        if (!result)
            result = pool ? sim_memory_alloc(pool->device, size, base) : CUDA_ERROR_INVALID_VALUE;
    }
    if (result)
        return result;
    struct sim_range *range = sim_address_at(*base);
    if (stream->lane->capture) {
        result = sim_capture_own(stream->lane, *base);
        if (result)
            sim_memory_free(*base);
        else
            range->graph = SIM_GRAPH_OWNED;
        return result;
    }
    range->pool = (uint64_t)(uintptr_t)handle;
    pool->used += range->size;
    pool->high = sm_max(pool->high, pool->used);
    return CUDA_SUCCESS;
}

void sim_pool_forget(uint64_t handle, uint64_t size)
{
    struct pool *pool = sim_table_get(SIM_KIND_POOL, handle);
    if (pool)
        pool->used -= size;
}

CUresult sim_pool_free(uint64_t base, struct sim_stream *stream)
{
    struct sim_op op = {.kind = SIM_OP_FREE, .free_base = base};
    struct sim_range *range = sim_address_at(base);
    if (!range || range->kind != SIM_RANGE_PLAIN || range->freeing) {
        sim_violate(SIM_RULE_UNKNOWN_POINTER, stream->lane->device, base, 0, "%s",
                    range && range->freeing ? "freed before" : "no allocation begins there");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range->graph) { /* a launch may need it again: it goes with its graph */
        range->graph = SIM_GRAPH_FREED;
        return CUDA_SUCCESS;
    }
    if (stream->lane->capture) /* a graph that frees what is not its own is not modelled: it stays */
        return CUDA_SUCCESS;
    uint64_t pool = range->pool, size = range->size;
    range->freeing = true;
    CUresult result = sim_queue_put(stream->lane, &op);
    if (result)
        range->freeing = false;
    else
        sim_pool_forget(pool, size);
    return result;
}

bool sim_pool_is_default(uint64_t handle)
{
    const struct pool *pool = sim_table_get(SIM_KIND_POOL, handle);
    return pool && pool->is_default;
}

uint64_t sim_pools_made(void)
{
    return made;
}

static void drop(uint64_t handle, void *object, void *user)
{
    (void)user;
    sim_table_remove(SIM_KIND_POOL, handle);
    free(object);
}

void sim_pools_reset(void)
{
    sim_table_each(SIM_KIND_POOL, drop, NULL);
    for (int d = 0; d < SIM_DEVICES_MAX; d++)
        defaults[d] = current[d] = NULL;
    made = 0;
}
