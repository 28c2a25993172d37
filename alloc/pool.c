/* SPDX-License-Identifier: Apache-2.0 */
/* pool: from a request to a block, and back: the hit path.
 *
 * 1. Blocks whose fences have passed become free, if any wait.
 * 2. The request finds its home: pool, stream, size class.
 * 3. The smallest free range that fits serves it. No driver call, no host allocation, no system call but the
 * lock.
 * 4. Otherwise reclaim.c takes over, with the heap lock given up.
 *
 * A free trusts nothing but the address: size, device and stream are in the block's record. Protected by:
 * heap lock. */
#include "alloc/engine.h"
#include "alloc/heap/view.h"
#include "base/align.h"
#include "policies/fit.h"
#include "policies/rounding.h"

struct sm_block *sm_pool_find(const struct sm_options *options, struct sm_home *home, uint64_t size)
{
    struct sm_block *block = sm_home_best_fit(home, size);
    if (block && options->policy == SM_POLICY_EXPANDABLE)
        block = sm_home_sheltered_fit(block);
    return block && sm_fit_allows(options, size, block->size) ? block : NULL;
}

struct sm_block *sm_pool_hit(struct sm_request *request)
{
    const struct sm_options *options = &request->device->options;
    struct sm_block *block = sm_pool_find(options, request->home, request->size);
    if (!block)
        return sm_stitch_applies(request) ? sm_stitch_reuse(request) : NULL;
    bool split = sm_fit_splits(options, request->size, block->size);
    if (split && !sm_heap_prepare(&request->device->heap, 1))
        return NULL;
    sm_block_take(block, request->size, request->requested, split);
    return block;
}

void sm_pool_count(const struct sm_request *request, struct sm_block *block)
{
    struct sm_device *device = request->device;
    const int64_t *parts = device->heap.parts.bytes;
    uint64_t live =
        (uint64_t)(parts[SM_PART_requested_live] + parts[SM_PART_rounding] + parts[SM_PART_pending]);
    device->live_peak = sm_max(device->live_peak, live);
    block->kind = (uint8_t)sm_stats_kind(block->size);
    block->birth = sm_stats_alloc(device->stats, block->kind, block->requested, block->size);
    block->trace = sm_trace_is_on(device->trace) ? sm_record_alloc(request) : 0;
    sm_device_tell(device);
}

/* Fills in where a request belongs; heap lock held. */
static seam_result locate(struct sm_request *request, CUstream stream, struct sm_error *error)
{
    struct sm_device *device = request->device;
    bool small_class = sm_fit_is_small(&device->options, request->size);
    seam_result result = sm_capture_pool(device, stream, &request->pool, error);
    if (result)
        return result;
    request->pool_number = request->pool ? request->pool->number : 0;
    if (!small_class && !request->pool) /* written here alone, under the lock; read without */
        atomic_store_explicit(&device->heap.requests,
                              atomic_load_explicit(&device->heap.requests, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    request->stream = sm_device_stream(device, stream);
    if (request->stream)
        request->home = sm_device_home(device, request->stream, request->pool, small_class);
    if (!request->home)
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the record of a stream or its home");
    return SEAM_OK;
}

/* Serves a request under the heap lock, or with new memory. */
static uint64_t alloc_locked(struct sm_device *device, uint64_t size, CUstream stream, struct sm_error *error)
{
    struct sm_request request = {.device = device, .requested = size};
    struct sm_block *block = NULL;
    seam_result result;
    if (size > SM_REQUEST_MAX) {
        sm_record_failure(&request, SEAM_E_DEVICE_OOM);
        sm_error_set(error, SEAM_E_DEVICE_OOM,
                     "CUDA out of memory. Tried to allocate more than 1EB memory (%lu bytes).", size);
        return 0;
    }
    request.size = sm_round_size(&device->options, size);
    sm_trace_admit(device->trace);
    sm_lock_take_bare(&device->heap_lock);
    if (!LIST_EMPTY(&device->leases)) {
        uint64_t address = sm_lease_settle_alloc(&request, stream);
        if (address) {
            sm_lock_give(&device->heap_lock);
            return address;
        }
    }
    sm_fence_poll(device);
    result = locate(&request, stream, error);
    if (!result) {
        block = sm_pool_hit(&request);
        if (block) {
            sm_stats_count(device->stats, block->pieces ? SM_COUNTER_view_hits : SM_COUNTER_hits, 1);
            sm_pool_count(&request, block);
            sm_lease_offer(request.home->tag);
        } else {
            request.home->pins++;
        }
    }
    sm_lock_give(&device->heap_lock);
    if (!result && !block)
        result = sm_reclaim_serve(&request, &block, error);
    if (result && sm_trace_is_on(device->trace))
        sm_record_failure(&request, result);
    return result ? 0 : block->address;
}

uint64_t sm_pool_alloc(struct sm_device *device, uint64_t size, CUstream stream, struct sm_error *error)
{
    uint64_t address = sm_lease_alloc(device, size, stream);
    return address ? address : alloc_locked(device, size, stream, error);
}

void sm_pool_complete(struct sm_device *device, struct sm_block *block)
{
    device->pending--;
    sm_stats_free_complete(device->stats, block->kind, block->requested, block->size);
    sm_block_give(block);
    sm_device_tell(device);
}

/* What must have passed before the view may be unmapped. */
static void note_use(struct sm_view *view, struct sm_stream *stream)
{
    struct sm_stream *before = view->stream;
    view->mixed |= before != stream && before->done < view->freed;
    view->stream = stream;
    view->freed = stream->freed;
}

/* A LIVE block in hand, heap lock held: FREE at once, or PENDING until its fence has passed. */
static void give_back(struct sm_device *device, struct sm_block *block)
{
    struct sm_stream *stream = block->stream;
    stream->freed++;
    if (block->pieces)
        note_use(sm_block_view(block), stream);
    sm_stats_free_request(device->stats, block->kind, block->requested, block->size, block->birth);
    if (!block->fence) {
        sm_stats_free_complete(device->stats, block->kind, block->requested, block->size);
        sm_block_give(block);
        sm_device_tell(device);
        return;
    }
    sm_block_pend(block);
    device->pending++;
    sm_stats_count(device->stats, SM_COUNTER_fence_waits, 1);
    sm_fence_record(device, block);
}

static seam_result free_locked(struct sm_device *device, uint64_t address)
{
    struct sm_block *block;
    sm_trace_admit(device->trace);
    sm_lock_take_bare(&device->heap_lock);
    if (!LIST_EMPTY(&device->leases) && sm_lease_settle_free(device, address)) {
        sm_lock_give(&device->heap_lock);
        return SEAM_OK;
    }
    block = sm_heap_block(&device->heap, address);
    if (block) {
        struct sm_lease *lease = block->extent->home->tag; /* outlives block and home */
        if (sm_trace_is_on(device->trace))
            sm_record_block(device, block, SM_TRACE_FREE, block->stream);
        give_back(device, block);
        sm_lease_offer(lease);
    }
    sm_lock_give(&device->heap_lock);
    return block ? SEAM_OK : SEAM_E_POINTER;
}

seam_result sm_pool_free(struct sm_device *device, uint64_t address)
{
    switch (sm_lease_free(device, address)) {
    case SM_LEASE_DONE:
        return SEAM_OK;
    case SM_LEASE_NOT_HERE:
        return SEAM_E_POINTER;
    default:
        return free_locked(device, address);
    }
}

seam_result sm_pool_record_stream(struct sm_device *device, uint64_t address, CUstream stream,
                                  struct sm_error *error)
{
    seam_result result = SEAM_OK;
    struct sm_block *block;
    struct sm_stream *user;
    sm_trace_admit(device->trace);
    sm_lock_take(&device->heap_lock);
    block = sm_heap_block(&device->heap, address);
    user = block ? sm_device_stream(device, stream) : NULL;
    if (!block)
        result = SEAM_E_POINTER;
    else if (!user || (user != block->stream && !sm_fence_add(device, block, user)))
        result = sm_error_set(error, SEAM_E_HOST_OOM, "no host memory to note that a stream uses block %#lx",
                              address);
    if (!result && sm_trace_is_on(device->trace))
        sm_record_block(device, block, SM_TRACE_RECORD_STREAM, user);
    sm_lock_give(&device->heap_lock);
    return result;
}

struct sm_block *sm_pool_block_of(struct sm_device *device, uint64_t address)
{
    struct sm_block *block = sm_heap_block(&device->heap, address);
    struct sm_home *home;
    struct sm_extent *extent;
    if (block || (block = sm_view_block_of(&device->heap, address)))
        return block;
    LIST_FOREACH(home, &device->heap.homes, link) {
        TAILQ_FOREACH(extent, &home->extents, link) {
            if (address - extent->base >= extent->size)
                continue;
            for (block = extent->first; block && address - block->address >= block->size;)
                block = block->next;
            return block && block->state == SM_BLOCK_LIVE ? block : NULL;
        }
    }
    return NULL;
}
