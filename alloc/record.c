/* SPDX-License-Identifier: Apache-2.0 */
/* record: what a recording is told, and how it begins in the middle of things.
 *
 * Blocks have an id each, streams and pools small numbers: a recording holds no addresses. What is told under
 * a device's heap lock stands in the file in the order in which it happened to that device. A block whose
 * allocation the recording does not know is freed without a word. Thread phases and windows are not told:
 * they measure, and place nothing. */
#include "alloc/engine.h"
#include "base/emit.h"

void sm_record_device(struct sm_device *device)
{
    struct sm_trace_event event = {
        .action = SM_TRACE_DEVICE,
        .device = (uint32_t)device->ordinal,
        .id = device->granularity,
        .size = device->total_bytes,
        .name = device->name,
    };
    if (sm_trace_is_on(device->trace))
        sm_trace_put(device->trace, &event);
}

uint64_t sm_record_alloc(const struct sm_request *request)
{
    struct sm_trace_event event = {
        .action = SM_TRACE_ALLOC,
        .size = request->requested,
        .stream = request->stream->number,
        .pool = request->pool_number,
        .device = (uint32_t)request->device->ordinal,
    };
    return sm_trace_put_new(request->device->trace, &event);
}

void sm_record_failure(const struct sm_request *request, seam_result result)
{
    struct sm_trace_event event = {
        .action = SM_TRACE_FAIL,
        .size = request->requested,
        .stream = request->stream ? request->stream->number : 0,
        .pool = request->pool_number,
        .device = (uint32_t)request->device->ordinal,
        .result = result,
    };
    sm_trace_put(request->device->trace, &event);
}

void sm_record_block(struct sm_device *device, const struct sm_block *block, enum sm_trace_action action,
                     const struct sm_stream *stream)
{
    struct sm_trace_event event = {
        .action = action,
        .id = block->trace,
        .stream = stream->number,
        .device = (uint32_t)device->ordinal,
    };
    if (sm_trace_knows(device->trace, block->trace))
        sm_trace_put(device->trace, &event);
}

void sm_record_pool(struct sm_device *device, const struct sm_pool *pool, enum sm_trace_action action)
{
    struct sm_trace_event event = {
        .action = action, .pool = pool->number, .device = (uint32_t)device->ordinal};
    if (sm_trace_is_on(device->trace))
        sm_trace_put(device->trace, &event);
}

void sm_record_mark(struct sm_allocator *allocator, const struct sm_device *device,
                    enum sm_trace_action action, const char *name)
{
    struct sm_trace_event event = {
        .action = action, .name = name, .device = device ? (uint32_t)device->ordinal : 0};
    if (sm_trace_is_on(allocator->trace))
        sm_trace_put(allocator->trace, &event);
}

/* ---- a recording begins ---- */

static void tell_scopes(struct sm_device *device, const struct sm_scope *scope)
{
    if (!scope)
        return;
    tell_scopes(device, LIST_NEXT(scope, link)); /* outermost first */
    sm_record_pool(device, scope->pool, SM_TRACE_POOL_BEGIN);
}

/* Of the private pool that a live block lies in; 0: the default one, or one that is gone. */
static uint64_t pool_of(struct sm_device *device, const struct sm_block *block)
{
    const struct sm_pool *pool;
    const struct sm_home_key *key;
    if (block->pieces)
        return 0; /* stitched blocks are never in private pools */
    key = &block->extent->home->key;
    LIST_FOREACH(pool, &device->pools, link)
        if (pool->id.first == key->pool_first && pool->id.second == key->pool_second)
            return pool->number;
    return 0;
}

static void tell_blocks(struct sm_device *device, const struct sm_index *index)
{
    struct sm_block *block = NULL;
    while ((block = sm_index_next(index, block))) {
        struct sm_stream *stream = block->stream;
        if (sm_trace_knows(device->trace, block->trace))
            continue;
        struct sm_trace_event event = {
            .action = SM_TRACE_ALLOC,
            .size = block->requested,
            .stream = stream->number,
            .pool = pool_of(device, block),
            .device = (uint32_t)device->ordinal,
        };
        sm_trace_admit(device->trace);
        block->trace = sm_trace_put_new(device->trace, &event);
    }
}

/* Heap lock held, also while there is no room in the buffers: what is told here is told once. */
static void tell_live(struct sm_device *device)
{
    struct sm_home *home;
    LIST_FOREACH(home, &device->heap.homes, link)
        tell_blocks(device, &home->index);
    tell_blocks(device, &device->heap.index);
}

static void describe(struct sm_allocator *allocator, char *text, size_t capacity)
{
    char settings[4096];
    struct sm_emit emit;
    int driver_version = 0;
    (void)SM_CALL(allocator->driver, cuDriverGetVersion, &driver_version);
    sm_options_format(&allocator->options, settings, sizeof(settings));
    sm_emit_begin(&emit, SM_EMIT_JSON, text, capacity);
    sm_emit_object_open(&emit, NULL);
    sm_emit_string(&emit, "format", "seamalloc.trace");
    sm_emit_int(&emit, "version", SM_TRACE_VERSION, SM_UNIT_COUNT);
    sm_emit_string(&emit, "library_version", SEAMALLOC_VERSION);
    sm_emit_int(&emit, "driver_version", driver_version, SM_UNIT_COUNT);
    sm_emit_string(&emit, "settings", settings);
    sm_emit_int(&emit, "devices", allocator->device_count, SM_UNIT_COUNT);
    sm_emit_object_close(&emit);
    sm_emit_end(&emit);
}

seam_result sm_record_open(struct sm_allocator *allocator, const char *path, struct sm_error *error)
{
    char text[5000];
    describe(allocator, text, sizeof(text));
    return sm_trace_begin(allocator->trace, path, text, error);
}

seam_result sm_record_begin(struct sm_allocator *allocator, const char *path, struct sm_error *error)
{
    seam_result result;
    sm_lock_take(&allocator->setup_lock);
    result = sm_record_open(allocator, path, error);
    for (int i = 0; i < allocator->device_count && !result; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        if (!device)
            continue;
        sm_lock_take(&device->heap_lock);
        sm_record_device(device);
        tell_scopes(device, LIST_FIRST(&device->scopes));
        tell_live(device);
        sm_lock_give(&device->heap_lock);
    }
    sm_lock_give(&allocator->setup_lock);
    return result;
}
