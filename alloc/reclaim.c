/* SPDX-License-Identifier: Apache-2.0 */
/* reclaim: when no free range serves a request: growth, and if that fails the ladder. The only file that
 * retries.
 *
 *   1 grow         new handles, exactly what is missing if more is refused
 *   2 trim, need   free handles of streams that are done, as many as are missing; grow
 *   3 wait, any    for a while (patience_ms) for whichever pending block comes free first; grow; until none
 *                  does
 *   4 trim, idle   all free handles of streams that are done; grow
 *   5 wait, one    for the pending block that has waited longest, however long; grow; until nothing waits
 *   6 trim, wait   all free handles, waiting for their streams; grow
 *   7 wait, all    for the whole device: fences without an event, streams that are gone; trim; grow
 *
 * The order puts what costs nobody anything first: steps 1 to 4 never wait for a stream that is stuck. A trim
 * gives back no more than is missing, as far as that can be known, though it unmaps views to get at it. Limit
 * and fraction are checked before the driver is asked, and climb the same ladder.
 *
 * native and expandable descend as PyTorch does (pytorch.c). Protected by: memory lock, held throughout; hits
 * of others go on. */
#include "alloc/engine.h"
#include "base/align.h"

enum step {
    STEP_TRIM_NEED,
    STEP_WAIT_ANY,
    STEP_TRIM_IDLE,
    STEP_WAIT_ONE,
    STEP_TRIM_WAIT,
    STEP_WAIT_ALL,
    STEP_COUNT
};

/* How much must go back before the growth that failed can succeed. */
static uint64_t shortfall(struct sm_device *device, const struct sm_shortage *shortage)
{
    size_t free_bytes = 0, total = 0;
    if (shortage->obstacle == SM_OBSTACLE_LIMIT)
        return device->heap.reserved + shortage->bytes - device->limit;
    if (SM_CALL(device->allocator->driver, cuMemGetInfo, &free_bytes, &total) != CUDA_SUCCESS)
        return shortage->bytes;
    /* What the driver calls free is a hint: if it says that there is enough, the request failed all the same.
     */
    return free_bytes < shortage->bytes ? shortage->bytes - free_bytes : shortage->bytes;
}

/* One step down. Returns: true when something changed, so that another attempt makes sense. */
static bool take_step(struct sm_request *request, enum step step, const struct sm_shortage *shortage)
{
    struct sm_device *device = request->device;
    uint64_t bytes = shortfall(device, shortage);
    switch (step) {
    case STEP_TRIM_NEED:
        return sm_trim(device, bytes, SM_TRIM_IDLE_ONLY, request->home) > 0;
    case STEP_WAIT_ANY:
        return sm_fence_wait_any(device);
    case STEP_TRIM_IDLE:
        return sm_trim(device, UINT64_MAX, SM_TRIM_IDLE_ONLY, request->home) > 0;
    case STEP_WAIT_ONE:
        return sm_fence_wait_one(device);
    case STEP_TRIM_WAIT:
        return sm_trim(device, UINT64_MAX, SM_TRIM_WAIT, request->home) > 0;
    default:
        return sm_fence_wait_all(device) && (sm_trim(device, UINT64_MAX, SM_TRIM_WAIT, request->home), true);
    }
}

static void count_retry(struct sm_device *device)
{
    sm_lock_take(&device->heap_lock);
    sm_stats_count(device->stats, SM_COUNTER_num_alloc_retries, 1);
    sm_lock_give(&device->heap_lock);
}

static seam_result descend(struct sm_request *request, struct sm_block **block, struct sm_shortage *shortage,
                           seam_result result, struct sm_error *error)
{
    struct sm_device *device = request->device;
    for (int step = 0; step < STEP_COUNT && sm_is_shortage(result);) {
        if (!take_step(request, (enum step)step, shortage)) {
            step++;
            continue;
        }
        count_retry(device);
        result = sm_grow(request, block, shortage, error);
        /* Waits are repeated until nothing waits; the others have done what they can in one go. */
        step += step != STEP_WAIT_ANY && step != STEP_WAIT_ONE;
    }
    return result;
}

static void wait_for_fences(struct sm_device *device)
{
    sm_lock_take(&device->heap_lock);
    sm_fence_poll(device);
    sm_lock_give(&device->heap_lock);
    while (sm_fence_wait_one(device))
        ;
    if (sm_fence_pending(device)) /* fences without an event */
        sm_fence_wait_all(device);
}

/* The ladder of native and expandable, in PyTorch's order, so that the device sees the same calls. */
static seam_result descend_as_pytorch(struct sm_request *request, struct sm_block **block,
                                      struct sm_shortage *shortage, seam_result result,
                                      struct sm_error *error)
{
    struct sm_device *device = request->device;
    request->anew = true;
    if (sm_pytorch_give_enough(request))
        result = sm_grow(request, block, shortage, error);
    if (!sm_is_shortage(result))
        return result;
    wait_for_fences(device);
    sm_pytorch_give_all(device);
    count_retry(device);
    result = sm_grow(request, block, shortage, error);
    if (!sm_is_shortage(result))
        return result;
    /* PyTorch fails here, even if a block that it has just waited for would do. */
    *block = sm_grow_hit(request);
    return *block ? SEAM_OK : result;
}

/* Before reserved passes threshold x limit, free memory goes back first, as far as its streams are done. */
static bool give_garbage(struct sm_request *request)
{
    struct sm_device *device = request->device;
    double threshold = device->options.garbage_collection_threshold;
    uint64_t base = device->limit != SM_UNLIMITED ? device->limit : device->total_bytes;
    uint64_t mark = (uint64_t)(threshold * (double)base);
    uint64_t after = device->heap.reserved + sm_align_up(request->size, device->granularity);
    return after > mark && sm_trim(device, after - mark, SM_TRIM_IDLE_ONLY, request->home);
}

static void collect_garbage(struct sm_request *request)
{
    struct sm_device *device = request->device;
    if (device->options.garbage_collection_threshold <= 0)
        return;
    if (!(device->options.policy == SM_POLICY_STITCH ? give_garbage(request) : sm_pytorch_collect(device)))
        return;
    sm_lock_take(&device->heap_lock);
    sm_stats_count(device->stats, SM_COUNTER_gc_runs, 1);
    sm_lock_give(&device->heap_lock);
}

/* The request has left the ladder. */
static void finish(struct sm_request *request, seam_result result)
{
    struct sm_device *device = request->device;
    sm_lock_take(&device->heap_lock);
    request->home->pins--;
    sm_stats_count(device->stats, SM_COUNTER_num_ooms, sm_is_shortage(result));
    sm_stats_count(device->stats, SM_COUNTER_limit_refusals, result == SEAM_E_LIMIT);
    sm_lock_give(&device->heap_lock);
}

static seam_result serve(struct sm_request *request, struct sm_block **block, struct sm_shortage *shortage,
                         struct sm_error *error)
{
    struct sm_device *device = request->device;
    struct sm_visit visit;
    seam_result result = sm_device_enter(device, &visit, error);
    if (result)
        return result;
    sm_lock_take(&device->heap_lock);
    sm_stats_count(device->stats, SM_COUNTER_misses, 1);
    sm_lock_give(&device->heap_lock);
    collect_garbage(request);
    result = sm_grow(request, block, shortage, error);
    if (sm_is_shortage(result))
        result = device->options.policy == SM_POLICY_STITCH
                     ? descend(request, block, shortage, result, error)
                     : descend_as_pytorch(request, block, shortage, result, error);
    sm_device_leave(device, &visit);
    return result;
}

seam_result sm_reclaim_serve(struct sm_request *request, struct sm_block **block, struct sm_error *error)
{
    struct sm_shortage shortage = {0};
    seam_result result;
    sm_lock_take(&request->device->memory_lock);
    result = serve(request, block, &shortage, error);
    if (sm_is_shortage(result))
        sm_report_shortage(request, &shortage, error);
    finish(request, result);
    sm_lock_give(&request->device->memory_lock);
    return result;
}

void sm_reclaim_trim(struct sm_device *device)
{
    struct sm_visit visit;
    sm_record_mark(device->allocator, device, SM_TRACE_TRIM, NULL);
    sm_lock_take(&device->memory_lock);
    if (sm_device_enter(device, &visit, NULL) == SEAM_OK) {
        wait_for_fences(device);
        sm_release_lost(device);
        if (device->options.policy == SM_POLICY_STITCH) {
            sm_trim(device, UINT64_MAX, SM_TRIM_WAIT, NULL);
            sm_trim_addresses(device);
        } else {
            sm_pytorch_give_all(device);
        }
        sm_device_leave(device, &visit);
    }
    sm_lock_give(&device->memory_lock);
}
