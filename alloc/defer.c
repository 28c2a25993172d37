/* SPDX-License-Identifier: Apache-2.0 */
/* defer: blocks that other streams used wait until those streams have done their work.
 *
 * 1. seam_record_stream() adds the stream to the block's fence.
 * 2. At the free an event is recorded on each stream of the fence, and the block is PENDING.
 * 3. Each stream has its own queue, in the order of recording: work on a stream completes in order, so only
 * the front is asked. A stream that is stuck holds up its own blocks and nobody else's.
 * 4. A fence whose event could not be recorded, or must not be while a graph is captured, waits in a list of
 * its own and is tried again; a wait for the whole device passes it too.
 * 5. A stream of another device, at work on this one's memory, takes events of its own context only, and a
 * wait for this device says nothing about it: its context is waited for too.
 *
 * Events are kept and used again; they carry no time. Protected by: heap lock; waits are made with the memory
 * lock alone. */
#include "alloc/engine.h"
#include "alloc/plant.h"
#include "base/log.h"

bool sm_fence_add(struct sm_device *device, struct sm_block *block, struct sm_stream *stream)
{
    struct sm_fence *fence;
    for (fence = block->fence; fence; fence = fence->next)
        if (fence->stream == stream)
            return true;
    fence = sm_slab_take(&device->heap.fences);
    if (!fence)
        return false;
    sm_fence_set(block, stream, fence);
    return true;
}

void sm_fence_set(struct sm_block *block, struct sm_stream *stream, struct sm_fence *record)
{
    *record = (struct sm_fence){.next = block->fence, .stream = stream, .block = block};
    block->fence = record;
}

/* An event can be recorded on streams of its own context alone. */
static struct sm_spare_event **spares_of(struct sm_device *device, struct sm_stream *stream)
{
    return stream->context ? &stream->events : &device->free_events;
}

/* Makes an event in the stream's context. Heap lock not held. */
static CUresult event_create(struct sm_device *device, const struct sm_stream *stream, CUevent *event)
{
    struct sm_driver *driver = device->allocator->driver;
    CUcontext popped;
    CUresult code = CUDA_SUCCESS;
    if (stream->context)
        code = SM_CALL(driver, cuCtxPushCurrent, stream->context);
    if (code != CUDA_SUCCESS)
        return code;
    code = SM_CALL(driver, cuEventCreate, event, CU_EVENT_DISABLE_TIMING);
    if (stream->context)
        (void)SM_CALL(driver, cuCtxPopCurrent, &popped);
    return code;
}

/* A free event, or NULL. The heap lock is given up while the driver makes one. */
static struct sm_spare_event *event_take(struct sm_device *device, struct sm_stream *stream)
{
    struct sm_spare_event **spares = spares_of(device, stream), *spare = *spares;
    CUevent event = NULL;
    CUresult code;
    if (spare) {
        *spares = spare->next;
        return spare;
    }
    spare = sm_slab_take(&device->event_records);
    if (!spare)
        return NULL;
    sm_lock_give(&device->heap_lock);
    code = event_create(device, stream, &event);
    sm_lock_take(&device->heap_lock);
    if (code != CUDA_SUCCESS) {
        sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
        sm_slab_give(&device->event_records, spare);
        return NULL;
    }
    sm_stats_move(device->stats, SM_LEVEL_events, SM_KIND_ALL, 1);
    spare->event = event;
    return spare;
}

static void event_give(struct sm_device *device, struct sm_stream *stream, struct sm_spare_event *spare)
{
    struct sm_spare_event **spares = spares_of(device, stream);
    spare->next = *spares;
    *spares = spare;
}

/* Puts a fence into the list of those without an event. */
static void queue_unrecorded(struct sm_device *device, struct sm_fence *fence)
{
    fence->queued = true;
    fence->serial = ++device->fence_serial;
    TAILQ_INSERT_TAIL(&device->unrecorded, fence, waiting);
}

static CUstream recorded_on(const struct sm_fence *fence)
{
    struct sm_stream *stream =
        SM_PLANTED(WRONG_STREAM) ? fence->block->extent->home->key.stream : fence->stream;
    return stream->stream;
}

/* Puts a fence into its stream's queue with an event recorded, or into the list of those without. Context
 * entered. */
static bool record_one(struct sm_device *device, struct sm_fence *fence)
{
    struct sm_stream *stream = fence->stream;
    struct sm_spare_event *spare = event_take(device, stream);
    CUresult code = CUDA_ERROR_UNKNOWN;
    if (spare) {
        sm_lock_give(&device->heap_lock);
        /* Recorded in a capture, the event would belong to the graph. */
        if (sm_capture_on(device, stream->stream))
            code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        else
            code = SM_PLANTED(MISSING_EVENT)
                       ? CUDA_SUCCESS
                       : SM_CALL(device->allocator->driver, cuEventRecord, spare->event, recorded_on(fence));
        sm_lock_take(&device->heap_lock);
    }
    if (code == CUDA_SUCCESS) {
        fence->queued = true;
        fence->serial = ++device->fence_serial;
        fence->event = spare;
        if (TAILQ_EMPTY(&stream->waiting))
            TAILQ_INSERT_TAIL(&device->waiting, stream, waits);
        TAILQ_INSERT_TAIL(&stream->waiting, fence, waiting);
        return true;
    }
    if (spare) {
        sm_stats_count(device->stats, SM_COUNTER_driver_errors,
                       code != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        event_give(device, stream, spare);
    }
    queue_unrecorded(device, fence);
    return false;
}

static struct sm_fence *first_unqueued(struct sm_block *block)
{
    struct sm_fence *fence = block->fence;
    while (fence && fence->queued)
        fence = fence->next;
    return fence;
}

void sm_fence_record(struct sm_device *device, struct sm_block *block)
{
    struct sm_fence *fence;
    struct sm_visit visit;
    bool entered;
    if (sm_capture_running(device)) {
        while ((fence = first_unqueued(block)))
            queue_unrecorded(device, fence);
        return;
    }
    /* As long as one entry is not queued the block cannot complete, whoever polls while the lock is given up.
     */
    entered = sm_device_enter(device, &visit, NULL) == SEAM_OK;
    while ((fence = first_unqueued(block))) {
        if (entered)
            record_one(device, fence);
        else
            queue_unrecorded(device, fence);
    }
    if (entered)
        sm_device_leave(device, &visit);
}

/* The fence has passed: off its queue and its block; the block completes with its last one. */
static void pass(struct sm_device *device, struct sm_fence *fence)
{
    struct sm_block *block = fence->block;
    struct sm_stream *stream = fence->stream;
    struct sm_fence **at = &block->fence;
    if (fence->event) {
        TAILQ_REMOVE(&stream->waiting, fence, waiting);
        if (TAILQ_EMPTY(&stream->waiting))
            TAILQ_REMOVE(&device->waiting, stream, waits);
        event_give(device, stream, fence->event);
    } else {
        TAILQ_REMOVE(&device->unrecorded, fence, waiting);
    }
    while (*at != fence)
        at = &(*at)->next;
    *at = fence->next;
    sm_slab_give(&device->heap.fences, fence);
    if (!block->fence)
        sm_pool_complete(device, block);
}

/* Fences that got no event when their block was freed. */
static void record_late(struct sm_device *device)
{
    uint64_t until = device->fence_serial;
    struct sm_fence *fence;
    while ((fence = TAILQ_FIRST(&device->unrecorded)) && fence->serial <= until) {
        TAILQ_REMOVE(&device->unrecorded, fence, waiting);
        if (!record_one(device, fence))
            return;
    }
}

static CUresult query(struct sm_device *device, const struct sm_spare_event *spare)
{
    return SM_CALL(device->allocator->driver, cuEventQuery, spare->event);
}

void sm_fence_poll(struct sm_device *device)
{
    struct sm_stream *stream, *next;
    struct sm_visit visit;
    if (!device->pending || sm_capture_running(device) || sm_device_enter(device, &visit, NULL))
        return;
    if (!TAILQ_EMPTY(&device->unrecorded))
        record_late(device);
    for (stream = TAILQ_FIRST(&device->waiting); stream; stream = next) {
        struct sm_fence *fence;
        next = TAILQ_NEXT(stream, waits);
        while ((fence = TAILQ_FIRST(&stream->waiting))) {
            CUresult code = SM_PLANTED(EARLY_REUSE) ? CUDA_SUCCESS : query(device, fence->event);
            if (code != CUDA_SUCCESS) {
                if (code != CUDA_ERROR_NOT_READY)
                    sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
                break;
            }
            pass(device, fence);
        }
    }
    sm_device_leave(device, &visit);
}

/* Between two looks at what waits. */
#define PAUSE_NS_MIN 20000
#define PAUSE_NS_MAX 1000000

bool sm_fence_wait_any(struct sm_device *device)
{
    int64_t end = sm_clock_ns() + (int64_t)device->options.patience_ms * 1000000;
    long pause = PAUSE_NS_MIN;
    for (;;) {
        sm_lock_take(&device->heap_lock);
        uint64_t before = device->pending;
        bool waits = !TAILQ_EMPTY(&device->waiting) && !sm_capture_running(device);
        sm_fence_poll(device);
        bool passed = device->pending < before;
        sm_stats_count(device->stats, SM_COUNTER_event_waits, passed);
        sm_lock_give(&device->heap_lock);
        if (passed || !waits || sm_clock_ns() >= end)
            return passed;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        pause = pause * 2 < PAUSE_NS_MAX ? pause * 2 : PAUSE_NS_MAX;
    }
}

/* The fence whose event was recorded first of all that wait; NULL if none. Heap lock held. */
static struct sm_fence *oldest(struct sm_device *device)
{
    struct sm_fence *fence, *first = NULL;
    struct sm_stream *stream;
    TAILQ_FOREACH(stream, &device->waiting, waits) {
        fence = TAILQ_FIRST(&stream->waiting);
        if (!first || fence->serial < first->serial)
            first = fence;
    }
    return first;
}

bool sm_fence_wait_one(struct sm_device *device)
{
    struct sm_driver *driver = device->allocator->driver;
    struct sm_spare_event *spare = NULL;
    struct sm_fence *fence;
    uint64_t serial = 0;
    bool passed;
    CUresult code;
    sm_lock_take(&device->heap_lock);
    fence = sm_capture_running(device) ? NULL : oldest(device);
    if (fence) {
        spare = fence->event;
        serial = fence->serial;
    }
    sm_lock_give(&device->heap_lock);
    if (!spare)
        return false;
    /* The event may be passed and used again by others meanwhile: then the wait is longer than needed, no
     * more. */
    code = SM_CALL(driver, cuEventSynchronize, spare->event);
    sm_lock_take(&device->heap_lock);
    sm_stats_count(device->stats, code ? SM_COUNTER_driver_errors : SM_COUNTER_event_waits, 1);
    sm_fence_poll(device);
    /* If it waits all the same, the driver does not answer for its event: waiting again would not end. */
    fence = oldest(device);
    passed = !fence || fence->serial != serial;
    sm_lock_give(&device->heap_lock);
    return code == CUDA_SUCCESS && passed;
}

/* Everything queued up to `until` on streams of a context (NULL: the device's own) has passed: that context
 * has done its work. Heap lock held. */
static void pass_queue(struct sm_device *device, struct sm_fence_queue *queue, uint64_t until,
                       CUcontext context)
{
    struct sm_fence *fence, *next;
    for (fence = TAILQ_FIRST(queue); fence; fence = next) {
        const struct sm_stream *stream = fence->stream;
        next = TAILQ_NEXT(fence, waiting);
        if (fence->serial <= until && stream->context == context)
            pass(device, fence);
    }
}

static void pass_until(struct sm_device *device, uint64_t until, CUcontext context)
{
    struct sm_stream *stream, *next;
    pass_queue(device, &device->unrecorded, until, context);
    for (stream = TAILQ_FIRST(&device->waiting); stream; stream = next) {
        next = TAILQ_NEXT(stream, waits); /* passing its last fence takes the stream off the list */
        pass_queue(device, &stream->waiting, until, context);
    }
}

/* A context of another device that a fence waits for, after one; NULL: there is none. Heap lock held. */
static CUcontext next_foreign(struct sm_device *device, CUcontext after)
{
    CUcontext next = NULL;
    const struct sm_stream *stream;
    const struct sm_fence *fence;
    TAILQ_FOREACH(fence, &device->unrecorded, waiting) {
        stream = fence->stream;
        if ((uintptr_t)stream->context > (uintptr_t)after &&
            (!next || (uintptr_t)stream->context < (uintptr_t)next))
            next = stream->context;
    }
    TAILQ_FOREACH(stream, &device->waiting, waits)
        if ((uintptr_t)stream->context > (uintptr_t)after &&
            (!next || (uintptr_t)stream->context < (uintptr_t)next))
            next = stream->context;
    return next;
}

/* Waits for the contexts of other devices whose streams used this one's memory. Memory lock held. Returns:
 * false when the driver refused one of them. */
static bool wait_foreign(struct sm_device *device, uint64_t until)
{
    struct sm_driver *driver = device->allocator->driver;
    CUcontext context = NULL, popped;
    bool all = true;
    for (;;) {
        sm_lock_take(&device->heap_lock);
        context = next_foreign(device, context);
        sm_lock_give(&device->heap_lock);
        if (!context)
            return all;
        CUresult code = SM_CALL(driver, cuCtxPushCurrent, context);
        if (code == CUDA_SUCCESS) {
            code = SM_CALL(driver, cuCtxSynchronize, );
            (void)SM_CALL(driver, cuCtxPopCurrent, &popped);
        }
        sm_lock_take(&device->heap_lock);
        if (code == CUDA_SUCCESS)
            pass_until(device, until, context);
        else
            sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
        sm_lock_give(&device->heap_lock);
        all &= code == CUDA_SUCCESS;
    }
}

bool sm_fence_pending(struct sm_device *device)
{
    sm_lock_take(&device->heap_lock);
    bool pending = device->pending > 0;
    sm_lock_give(&device->heap_lock);
    return pending;
}

bool sm_fence_wait_all(struct sm_device *device)
{
    uint64_t until;
    bool capturing, foreign;
    CUresult code;
    sm_lock_take(&device->heap_lock);
    capturing = sm_capture_running(device);
    until = device->fence_serial;
    sm_lock_give(&device->heap_lock);
    if (capturing)
        return false;
    code = sm_capture_safe_wait(device);
    sm_lock_take(&device->heap_lock);
    sm_stats_count(device->stats, code ? SM_COUNTER_driver_errors : SM_COUNTER_num_sync_all_streams, 1);
    if (code == CUDA_SUCCESS)
        pass_until(device, until, NULL);
    sm_lock_give(&device->heap_lock);
    /* What forbids to wait for this device would be broken by waiting for another just as well. */
    foreign = code != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && wait_foreign(device, until);
    sm_lock_take(&device->heap_lock);
    sm_fence_poll(device);
    sm_lock_give(&device->heap_lock);
    return code == CUDA_SUCCESS && foreign;
}

static void destroy_events(struct sm_device *device, struct sm_spare_event **spares)
{
    struct sm_spare_event *spare;
    while ((spare = *spares)) {
        *spares = spare->next;
        (void)SM_CALL(device->allocator->driver, cuEventDestroy, spare->event);
    }
}

void sm_fence_teardown(struct sm_device *device)
{
    struct sm_stream *stream;
    struct sm_fence *fence;
    TAILQ_FOREACH(stream, &device->waiting, waits)
        TAILQ_FOREACH(fence, &stream->waiting, waiting)
            event_give(device, stream, fence->event);
    destroy_events(device, &device->free_events);
    for (int i = 0; i < SM_STREAM_SLOTS; i++)
        for (stream = atomic_load(&device->streams[i]); stream; stream = stream->next)
            destroy_events(device, &stream->events);
    sm_slab_fini(&device->event_records);
}
