/* SPDX-License-Identifier: Apache-2.0 */
/* pool: see pool.h. */
#include "sim/core/pool.h"
#include "base/align.h"
#include "sim/core/address.h"
#include "sim/core/capture.h"
#include "sim/core/memory.h"
#include "sim/core/rules.h"
#include "sim/core/table.h"
#include <stdatomic.h>
#include <stdlib.h>

struct pool {
    int device;
    bool is_default;
    uint64_t used, used_high;         /* bytes that are allocated */
    uint64_t reserved, reserved_high; /* with those that are kept */
    uint64_t threshold;
    uint64_t most;                /* bytes that may be allocated; 0: no limit of its own */
    int switches[4];              /* the reuse options, by attribute */
    uint32_t open_to;             /* bit d: kernels of device d may use its memory */
    TAILQ_HEAD(, sim_range) free; /* freed: cached, or still in use by what is queued before their free */
};

static CUmemoryPool defaults[SIM_DEVICES_MAX], current[SIM_DEVICES_MAX];
static uint64_t made, free_number;
static _Atomic uint64_t cached_total;

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
    pool->open_to = (uint32_t)1 << device;
    TAILQ_INIT(&pool->free);
    uint64_t handle = sim_table_add(SIM_KIND_POOL, pool);
    if (!handle) {
        free(pool);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUmemoryPool)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

static uint64_t release_cached(struct pool *pool, uint64_t bytes);

static void enter_cache(struct pool *pool, struct sim_range *range)
{
    range->cached = true;
    range->freeing = 0;
    atomic_fetch_add_explicit(&cached_total, range->size, memory_order_relaxed);
    TAILQ_INSERT_TAIL(&pool->free, range, free_link);
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

CUresult sim_pool_create(int device, uint64_t most, CUmemoryPool *pool)
{
    CUresult result = make(device, false, pool);
    if (!result)
        pool_get(*pool)->most = most;
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
    release_cached(pool, UINT64_MAX);
    /* What is still queued or allocated goes back to the device by itself when its free is reached. */
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
        *(cuuint64_t *)value = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high;
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
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            pool->used_high = pool->used;
        else
            pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- the cache ---- */

static void leave_cache(struct pool *pool, struct sim_range *range)
{
    TAILQ_REMOVE(&pool->free, range, free_link);
    if (range->cached)
        atomic_fetch_sub_explicit(&cached_total, range->size, memory_order_relaxed);
    range->cached = false;
    range->freeing = 0;
}

/* Gives cached memory back to the device, the longest unused first, and of the last piece only what is
 * asked for. Returns: bytes. */
static uint64_t release_cached(struct pool *pool, uint64_t bytes)
{
    struct sim_range *range, *next;
    uint64_t given = 0;
    for (range = TAILQ_FIRST(&pool->free); range && given < bytes; range = next) {
        next = TAILQ_NEXT(range, free_link);
        if (!range->cached)
            continue;
        struct sim_range *rest = NULL;
        uint64_t wanted = sim_memory_rounded(bytes - given);
        if (wanted && wanted < range->size)
            rest = sim_address_split(range, wanted);
        if (rest) /* stays where it was in the order; the total does not change until the first part goes */
            TAILQ_INSERT_AFTER(&pool->free, range, rest, free_link);
        leave_cache(pool, range);
        given += range->size;
        pool->reserved -= range->size;
        sim_memory_free(range->base);
    }
    return given;
}

struct release {
    int device;
    uint64_t bytes, given;
};

static void release_one(uint64_t handle, void *object, void *user)
{
    struct release *release = user;
    struct pool *pool = object;
    (void)handle;
    if (pool->device == release->device && release->given < release->bytes)
        release->given += release_cached(pool, release->bytes - release->given);
}

uint64_t sim_pools_release(int device, uint64_t bytes)
{
    struct release release = {device, bytes, 0};
    if (atomic_load_explicit(&cached_total, memory_order_relaxed))
        sim_table_each(SIM_KIND_POOL, release_one, &release);
    return release.given;
}

static void release_excess(uint64_t handle, void *object, void *user)
{
    struct pool *pool = object;
    (void)handle;
    (void)user;
    if (pool->reserved > pool->threshold)
        release_cached(pool, pool->reserved - pool->threshold);
}

bool sim_pools_cache(void)
{
    return atomic_load_explicit(&cached_total, memory_order_relaxed) > 0;
}

void sim_pools_synchronised(void)
{
    if (sim_pools_cache())
        sim_table_each(SIM_KIND_POOL, release_excess, NULL);
}

CUresult sim_pool_trim(CUmemoryPool handle, uint64_t keep)
{
    struct pool *pool = pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->reserved > keep)
        release_cached(pool, pool->reserved - keep);
    return CUDA_SUCCESS;
}

/* May an allocation on a lane have a freed piece now? What is not yet done with there must come before it in
 * order; the reuse options say which order is used. */
static bool may_have(const struct pool *pool, const struct sim_range *range, const struct sim_lane *lane)
{
    if (range->cached || range->free_lane == lane->index)
        return true;
    return pool->switches[CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] &&
           sim_queue_is_after(lane, range->free_lane, range->free_sequence);
}

/* The smallest freed piece that is large enough. */
static struct sim_range *best_cached(const struct pool *pool, uint64_t size, const struct sim_lane *lane)
{
    struct sim_range *range, *best = NULL;
    TAILQ_FOREACH(range, &pool->free, free_link) {
        /* What is not cached yet is not split: one that is much too large is left alone. */
        bool fits = range->size >= size && (range->cached || range->size / 2 <= size);
        if (fits && (!best || range->size < best->size) && may_have(pool, range, lane))
            best = range;
    }
    return best;
}

/* Takes a freed piece, and leaves what is more than needed. */
static void use_cached(struct pool *pool, struct sim_range *range, uint64_t size)
{
    bool was_cached = range->cached;
    leave_cache(pool, range);
    struct sim_range *rest = was_cached && range->size > size ? sim_address_split(range, size) : NULL;
    if (rest)
        enter_cache(pool, rest);
    range->id = sim_address_new_id(); /* another allocation, though of the same bytes */
    range->origin = sim_origin_now();
    sim_history_note("allocated from a pool's cache", range->base, range->size, 0);
}

/* ---- allocation ---- */

static CUresult grow(struct pool *pool, uint64_t size, uint64_t *base)
{
    /* A GPU's pool maps the pages of several free pieces side by side; here they go back and come anew. */
    release_cached(pool, size);
    CUresult result = sim_memory_alloc(pool->device, size, base);
    if (result)
        return result;
    pool->reserved += sim_address_at(*base)->size;
    pool->reserved_high = sm_max(pool->reserved_high, pool->reserved);
    return CUDA_SUCCESS;
}

static CUresult serve(struct pool *pool, uint64_t size, const struct sim_lane *lane, uint64_t *base)
{
    struct sim_range *cached = best_cached(pool, size, lane);
    if (!cached)
        return grow(pool, size, base);
    use_cached(pool, cached, size);
    *base = cached->base;
    return CUDA_SUCCESS;
}

static CUresult alloc_for_graph(int device, uint64_t size, struct sim_lane *lane, uint64_t *base)
{
    CUresult result = sim_memory_alloc(device, size, base);
    if (result)
        return result;
    result = sim_capture_own(lane, *base);
    if (result)
        sim_memory_free(*base);
    else
        sim_address_at(*base)->graph = SIM_GRAPH_OWNED;
    return result;
}

static CUresult serve_within(struct pool *pool, uint64_t size, struct sim_lane *lane, uint64_t *base)
{
    if (pool->most && (pool->used > pool->most || size > pool->most - pool->used))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return serve(pool, size, lane, base);
}

CUresult sim_pool_alloc(CUmemoryPool handle, uint64_t size, struct sim_stream *stream, uint64_t *base)
{
    int device = stream->lane->device;
    CUresult result = handle ? CUDA_SUCCESS : sim_pool_current(device, &handle);
    struct pool *pool = pool_get(handle);
    if (result || !pool)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (stream->lane->capture)
        return alloc_for_graph(pool->device, size, stream->lane, base);
    size = sim_memory_rounded(size);
    if (size == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = serve_within(pool, size, stream->lane, base);
    if (result && sim_queue_total()) {
        /* Frees that are queued may have what is missing: an allocation waits for them before it fails. */
        result = sim_queue_wait_all(pool->device);
        pool = pool_get(handle); /* the lock may have been dropped */
        if (!result)
            result = pool ? serve_within(pool, size, stream->lane, base) : CUDA_ERROR_INVALID_VALUE;
    }
    if (result)
        return result;
    struct sim_range *range = sim_address_at(*base);
    range->pool = (uint64_t)(uintptr_t)handle;
    pool->used += range->size;
    pool->used_high = sm_max(pool->used_high, pool->used);
    return CUDA_SUCCESS;
}

/* ---- frees ---- */

void sim_pool_reached(uint64_t base, uint64_t number)
{
    struct sim_range *range = sim_address_at(base);
    if (!range ||
        range->freeing != number) /* it has been given out again meanwhile, in the order of its stream */
        return;
    struct pool *pool = sim_table_get(SIM_KIND_POOL, range->pool);
    if (!pool) {
        sim_memory_free(base);
        return;
    }
    leave_cache(pool, range);
    enter_cache(pool, range);
    sim_history_note("freed into its pool", base, range->size, 0);
}

void sim_pool_free_now(uint64_t base)
{
    struct sim_range *range = sim_address_at(base);
    struct pool *pool = sim_table_get(SIM_KIND_POOL, range->pool);
    if (!pool) {
        sim_memory_free(base);
        return;
    }
    pool->used -= range->size;
    enter_cache(pool, range);
    sim_history_note("freed into its pool", base, range->size, 0);
}

CUresult sim_pool_free(uint64_t base, struct sim_stream *stream)
{
    struct sim_op op = {.kind = SIM_OP_FREE, .free = {base, 0}};
    struct sim_range *range = sim_address_at(base);
    if (!range || range->kind != SIM_RANGE_PLAIN || range->freeing || range->cached || range->opened) {
        sim_violate(SIM_RULE_UNKNOWN_POINTER, stream->lane->device, base, 0, "%s",
                    range && (range->freeing || range->cached) ? "freed before"
                                                               : "no allocation begins there");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range->graph) { /* a launch may need it again: it goes with its graph */
        range->graph = SIM_GRAPH_FREED;
        return CUDA_SUCCESS;
    }
    if (stream->lane->capture) /* a graph that frees what is not its own is not modelled: it stays */
        return CUDA_SUCCESS;
    struct pool *pool = sim_table_get(SIM_KIND_POOL, range->pool);
    op.free.number = range->freeing = ++free_number;
    range->free_lane = stream->lane->index;
    range->free_sequence = stream->lane->last + 1;
    if (pool) {
        pool->used -= range->size;
        TAILQ_INSERT_TAIL(&pool->free, range, free_link);
    }
    CUresult result = sim_queue_put(stream->lane, &op);
    range = sim_address_at(base);
    if (result && range && range->freeing == op.free.number) {
        if (pool) {
            leave_cache(pool, range);
            pool->used += range->size;
        }
        range->freeing = 0;
    }
    return result;
}

/* ---- who may use it ---- */

CUresult sim_pool_set_access(CUmemoryPool handle, int device, bool open)
{
    struct pool *pool = pool_get(handle);
    if (!pool || (device == pool->device && !open))
        return CUDA_ERROR_INVALID_VALUE;
    pool->open_to = open ? pool->open_to | (uint32_t)1 << device : pool->open_to & ~((uint32_t)1 << device);
    return CUDA_SUCCESS;
}

bool sim_pool_open_to(uint64_t handle, int device)
{
    const struct pool *pool = sim_table_get(SIM_KIND_POOL, handle);
    return !pool || pool->open_to >> device & 1;
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
    atomic_store(&cached_total, 0);
}
