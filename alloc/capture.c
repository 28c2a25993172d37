/* SPDX-License-Identifier: Apache-2.0 */
/* capture: private pools, and which requests they claim.
 *
 * A scope is a pool being filled. The innermost scope that claims a request gets it: by the caller's filter,
 * or without one by capture: a scope is bound to the first capture that is seen on a stream while it is the
 * only one without a capture, or that its own thread captures; a request on a stream of that capture belongs
 * to it, and so does, until a capture is seen, one of the thread that began it.
 *
 * A program may lose its scope: a capture that fails is not always ended here. So the driver is asked whether
 * a bound capture still runs; a scope whose capture is over claims nothing, holds nobody up, and makes room
 * for the next one that its thread begins for the pool.
 *
 * Memory of a pool that a capture was bound to is pinned while the pool has uses: a graph replays its
 * addresses. Blocks may outlive the pool. Default and private pools never share a handle: homes are per pool.
 * Protected by: heap lock. */
#include "alloc/engine.h"

static cuuint64_t capture_of(struct sm_device *device, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    struct sm_driver *driver = device->allocator->driver;
    if (!driver->capture_info || driver->capture_info(stream, &status, &id, NULL, NULL, NULL) != CUDA_SUCCESS)
        return 0;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

bool sm_capture_on(struct sm_device *device, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult code = SM_CALL(device->allocator->driver, cuStreamIsCapturing, stream, &status);
    return code == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Does the capture that a scope is bound to run, broken or not? Once it is over it stays so. */
static bool runs(struct sm_device *device, struct sm_scope *scope)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    struct sm_driver *driver = device->allocator->driver;
    CUresult code;
    if (!scope->capture || scope->over || !driver->capture_info)
        return scope->capture && !scope->over;
    code = driver->capture_info(scope->stream, &status, &id, NULL, NULL, NULL);
    if (code == CUDA_SUCCESS)
        scope->over = status == CU_STREAM_CAPTURE_STATUS_NONE ||
                      (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != scope->capture);
    else /* its stream is gone, or everything; another failure says nothing */
        scope->over = code == CUDA_ERROR_INVALID_HANDLE || code == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
                      code == CUDA_ERROR_DEINITIALIZED;
    return !scope->over;
}

CUresult sm_capture_safe_wait(struct sm_device *device)
{
    struct sm_scope *scope;
    bool captured = false;
    sm_lock_take(&device->heap_lock);
    LIST_FOREACH(scope, &device->scopes, link)
        captured = captured || (!scope->capture && !scope->served);
    for (int i = 0; i < SM_STREAM_SLOTS; i++) {
        struct sm_stream *stream;
        for (stream = atomic_load(&device->streams[i]); stream; stream = stream->next)
            captured = captured || sm_capture_on(device, stream->stream);
    }
    sm_lock_give(&device->heap_lock);
    return captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                    : SM_CALL(device->allocator->driver, cuCtxSynchronize, );
}

static bool may_bind(struct sm_device *device, const struct sm_scope *scope, cuuint64_t capture)
{
    struct sm_scope *other;
    unsigned unbound = 0;
    if (scope->thread == sm_stats_thread_self())
        return true;
    LIST_FOREACH(other, &device->scopes, link) {
        if (other->capture == capture)
            return false; /* its own scope comes later in the list */
        unbound += !other->filter && !other->capture;
    }
    return unbound == 1;
}

static bool claims(struct sm_device *device, struct sm_scope *scope, CUstream stream, cuuint64_t capture)
{
    bool filtered = scope->filter && scope->filter(stream, scope->context);
    if (!capture) {
        bool claimed = scope->filter ? filtered : !scope->capture && scope->thread == sm_stats_thread_self();
        scope->served = scope->served || claimed;
        return claimed;
    }
    if (filtered || (!scope->filter && !scope->capture && may_bind(device, scope, capture))) {
        scope->capture = capture;
        scope->over = false;
        scope->pool->captured = true;
    }
    if (scope->capture == capture)
        scope->stream = stream;
    return scope->filter ? filtered : scope->capture == capture;
}

seam_result sm_capture_pool(struct sm_device *device, CUstream stream, struct sm_pool **pool,
                            struct sm_error *error)
{
    struct sm_scope *scope;
    cuuint64_t capture;
    bool open = false;
    *pool = NULL;
    if (LIST_EMPTY(&device->scopes))
        return SEAM_OK;
    capture = capture_of(device, stream);
    LIST_FOREACH(scope, &device->scopes, link) {
        if (claims(device, scope, stream, capture)) {
            *pool = scope->pool;
            return SEAM_OK;
        }
        open |= !scope->filter && !scope->capture;
    }
    if (capture && open)
        return sm_error_set(
            error, SEAM_E_STATE,
            "device %d: several pools are being filled, and nothing says which one capture %llu belongs to: "
            "begin each from the thread that captures, or with a filter",
            device->ordinal, (unsigned long long)capture);
    return SEAM_OK;
}

static struct sm_pool *find_pool(struct sm_device *device, seam_pool_id id)
{
    struct sm_pool *pool;
    LIST_FOREACH(pool, &device->pools, link)
        if (pool->id.first == id.first && pool->id.second == id.second)
            return pool;
    return NULL;
}

static struct sm_scope *find_scope(struct sm_device *device, const struct sm_pool *pool)
{
    struct sm_scope *scope;
    LIST_FOREACH(scope, &device->scopes, link)
        if (scope->pool == pool)
            return scope;
    return NULL;
}

/* The scope of a capture that is over, and the use that its graph never had. */
static void give_up(struct sm_device *device, struct sm_scope *scope)
{
    struct sm_pool *pool = scope->pool;
    LIST_REMOVE(scope, link);
    sm_hostmem_put(scope, sizeof(*scope));
    sm_record_pool(device, pool, SM_TRACE_POOL_END);
    pool->uses--;
    pool->captured = pool->captured && pool->uses;
    sm_record_pool(device, pool, SM_TRACE_POOL_RELEASE);
}

seam_result sm_capture_begin(struct sm_device *device, seam_pool_id id, seam_pool_filter filter,
                             void *context, struct sm_error *error)
{
    struct sm_scope *scope = sm_hostmem_get(sizeof(*scope)), *lost;
    struct sm_pool *spare = sm_hostmem_get(sizeof(*spare)), *pool;
    seam_result result = SEAM_OK;
    sm_lock_take(&device->heap_lock);
    pool = find_pool(device, id);
    lost = pool ? find_scope(device, pool) : NULL;
    if (!scope || !spare)
        result = sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the record of a pool");
    else if (lost && (!lost->capture || lost->thread != sm_stats_thread_self() || runs(device, lost)))
        result = sm_error_set(error, SEAM_E_STATE,
                              "pool {%llu, %llu} of device %d is being filled already: end it first",
                              id.first, id.second, device->ordinal);
    if (!result) {
        if (!pool) {
            pool = spare;
            spare = NULL;
            pool->id = id;
            pool->number = atomic_fetch_add(&device->allocator->pool_numbers, 1) + 1;
            LIST_INSERT_HEAD(&device->pools, pool, link);
        }
        if (lost)
            give_up(device, lost);
        pool->uses++;
        *scope = (struct sm_scope){
            .pool = pool, .filter = filter, .context = context, .thread = sm_stats_thread_self()};
        LIST_INSERT_HEAD(&device->scopes, scope, link);
        sm_record_pool(device, pool, SM_TRACE_POOL_BEGIN);
        scope = NULL;
    }
    sm_lock_give(&device->heap_lock);
    sm_hostmem_put(scope, scope ? sizeof(*scope) : 0);
    sm_hostmem_put(spare, spare ? sizeof(*spare) : 0);
    return result;
}

seam_result sm_capture_end(struct sm_device *device, seam_pool_id id, struct sm_error *error)
{
    struct sm_pool *pool;
    struct sm_scope *scope = NULL;
    sm_lock_take(&device->heap_lock);
    pool = find_pool(device, id);
    if (pool)
        scope = find_scope(device, pool);
    if (scope) {
        LIST_REMOVE(scope, link);
        sm_record_pool(device, pool, SM_TRACE_POOL_END);
        sm_fence_poll(device);
    }
    sm_lock_give(&device->heap_lock);
    if (!scope)
        return sm_error_set(error, SEAM_E_STATE, "pool {%llu, %llu} of device %d is not being filled",
                            id.first, id.second, device->ordinal);
    sm_hostmem_put(scope, sizeof(*scope));
    return SEAM_OK;
}

seam_result sm_capture_release(struct sm_device *device, seam_pool_id id, struct sm_error *error)
{
    struct sm_pool *pool;
    bool used;
    sm_lock_take(&device->heap_lock);
    pool = find_pool(device, id);
    used = pool && pool->uses;
    if (used) {
        pool->uses--;
        pool->captured = pool->captured && pool->uses;
        sm_record_pool(device, pool, SM_TRACE_POOL_RELEASE);
        sm_capture_prune(device);
    }
    sm_lock_give(&device->heap_lock);
    if (!used)
        return sm_error_set(error, SEAM_E_STATE, "pool {%llu, %llu} of device %d has no use left to drop",
                            id.first, id.second, device->ordinal);
    return SEAM_OK;
}

static bool is_private(const struct sm_home *home)
{
    return home->key.pool_first || home->key.pool_second;
}

bool sm_capture_may_trim(struct sm_device *device, const struct sm_home *home)
{
    struct sm_pool *pool;
    if (!is_private(home))
        return true;
    pool = find_pool(device, (seam_pool_id){home->key.pool_first, home->key.pool_second});
    return !pool || !pool->uses || !pool->captured;
}

bool sm_capture_running(struct sm_device *device)
{
    struct sm_scope *scope;
    LIST_FOREACH(scope, &device->scopes, link)
        if (runs(device, scope))
            return true;
    return false;
}

/* Homes of pools that nobody uses any more go once their address space is gone; then the pools. */
void sm_capture_prune(struct sm_device *device)
{
    struct sm_home *home, *next_home;
    struct sm_pool *pool, *next_pool;
    for (home = LIST_FIRST(&device->heap.homes); home; home = next_home) {
        next_home = LIST_NEXT(home, link);
        if (is_private(home) && TAILQ_EMPTY(&home->extents) && !home->pins) {
            pool = find_pool(device, (seam_pool_id){home->key.pool_first, home->key.pool_second});
            if (!pool || !pool->uses)
                sm_home_destroy(home);
        }
    }
    for (pool = LIST_FIRST(&device->pools); pool; pool = next_pool) {
        bool has_home = false;
        next_pool = LIST_NEXT(pool, link);
        LIST_FOREACH(home, &device->heap.homes, link)
            has_home |= home->key.pool_first == pool->id.first && home->key.pool_second == pool->id.second;
        if (pool->uses || has_home || find_scope(device, pool))
            continue;
        LIST_REMOVE(pool, link);
        sm_hostmem_put(pool, sizeof(*pool));
    }
}

void sm_capture_teardown(struct sm_device *device)
{
    struct sm_scope *scope;
    struct sm_pool *pool;
    while ((scope = LIST_FIRST(&device->scopes))) {
        LIST_REMOVE(scope, link);
        sm_hostmem_put(scope, sizeof(*scope));
    }
    while ((pool = LIST_FIRST(&device->pools))) {
        LIST_REMOVE(pool, link);
        sm_hostmem_put(pool, sizeof(*pool));
    }
}
