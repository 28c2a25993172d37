/* SPDX-License-Identifier: Apache-2.0 */
/* device: sets a device up and takes it down; keeps its streams and homes; tells the statistics what the heap
 * did.
 *
 * Set up at the first request for the device, so that a device that nobody asks for is never touched. The
 * properties of handles are for life and are found by trying: exportable and RDMA-capable where the device
 * says so and a trial creation agrees. */
#include "alloc/engine.h"
#include "base/align.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

/* Hits of a home under the heap lock before it is leased. */
#define SM_LEASE_AFTER 8

static seam_result refuse(struct sm_device *device, const char *call, CUresult code, struct sm_error *error)
{
    char text[160];
    return sm_error_set(error, SEAM_E_DEVICE, "device %d: %s: %s", device->ordinal, call,
                        sm_driver_text(device->allocator->driver, code, text, sizeof(text)));
}

seam_result sm_device_enter(struct sm_device *device, struct sm_visit *visit, struct sm_error *error)
{
    struct sm_driver *driver = device->allocator->driver;
    CUresult code = SM_CALL(driver, cuCtxPushCurrent, device->context);
    if (code != CUDA_SUCCESS)
        return refuse(device, "cuCtxPushCurrent", code, error);
    visit->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (SM_CALL(driver, cuThreadExchangeStreamCaptureMode, &visit->mode) != CUDA_SUCCESS)
        visit->mode = CU_STREAM_CAPTURE_MODE_GLOBAL; /* the mode of a thread that never asked for another */
    return SEAM_OK;
}

void sm_device_leave(struct sm_device *device, const struct sm_visit *visit)
{
    struct sm_driver *driver = device->allocator->driver;
    CUstreamCaptureMode mode = visit->mode;
    CUcontext popped;
    (void)SM_CALL(driver, cuThreadExchangeStreamCaptureMode, &mode);
    (void)SM_CALL(driver, cuCtxPopCurrent, &popped);
}

static int attribute(struct sm_device *device, CUdevice_attribute name)
{
    int value = 0;
    if (SM_CALL(device->allocator->driver, cuDeviceGetAttribute, &value, name, device->device) !=
        CUDA_SUCCESS)
        return 0;
    return value;
}

/* Without VMM, or where it lies, the device is used in plain segments. */
static void go_plain(struct sm_device *device, const char *why)
{
    if (device->options.policy != SM_POLICY_NATIVE)
        sm_log(SM_LOG_WARNING, "device %d (%s) is used with policy native: %s", device->ordinal, device->name,
               why);
    device->options.policy = SM_POLICY_NATIVE;
    if (!device->granularity)
        device->granularity = SM_MIB; /* the unit of segments; nothing is mapped */
}

/* A capability bit may be set where the creation is then refused: only a trial tells. Context entered. */
static seam_result find_properties(struct sm_device *device, struct sm_error *error)
{
    CUmemAllocationProp *properties = &device->properties;
    const char *refused = NULL;
    seam_result result;
    bool can = true;
    if (device->options.policy == SM_POLICY_NATIVE)
        return SEAM_OK;
    result = sm_grow_probe(device, &refused, error);
    if (result)
        return result;
    if (refused && !strcmp(refused, "cuMemSetAccess") && device->access_count > 1) {
        device->access_count = 1;
        sm_log(
            SM_LOG_WARNING,
            "device %d (%s) refuses access to its memory from other devices: their kernels and copies cannot "
            "reach it",
            device->ordinal, device->name);
        result = sm_grow_probe(device, &refused, error);
        if (result)
            return result;
    }
    if (refused) {
        char why[160];
        snprintf(why, sizeof(why), "it says that it offers virtual memory management, and refuses %s",
                 refused);
        go_plain(device, why);
    }
    if (refused || !device->options.exportable)
        return SEAM_OK;
    if (attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        result = sm_grow_try(device, &can, error);
        if (result)
            return result;
        if (!can)
            properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    }
    if (!device->lost && attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
        properties->allocFlags.gpuDirectRDMACapable = 1;
        result = sm_grow_try(device, &can, error);
        if (result)
            return result;
        if (!can)
            properties->allocFlags.gpuDirectRDMACapable = 0;
    }
    return SEAM_OK;
}

/* Who is granted every mapping: the device itself, then each device that can reach it. */
static seam_result find_peers(struct sm_device *device, struct sm_error *error)
{
    struct sm_allocator *allocator = device->allocator;
    int count = allocator->options.peers == SM_PEERS_ALL ? allocator->device_count : 1;
    device->access = sm_hostmem_get((size_t)allocator->device_count * sizeof(*device->access));
    if (!device->access)
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the access list of device %d",
                            device->ordinal);
    device->access[device->access_count++] = (CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    for (int peer = 0; peer < count && count > 1; peer++) {
        int can = 0;
        if (peer == device->ordinal ||
            SM_CALL(allocator->driver, cuDeviceCanAccessPeer, &can, peer, device->device) != CUDA_SUCCESS ||
            !can)
            continue;
        device->access[device->access_count] = device->access[0];
        device->access[device->access_count++].location.id = peer;
    }
    return SEAM_OK;
}

static seam_result ask_driver(struct sm_device *device, struct sm_error *error)
{
    struct sm_driver *driver = device->allocator->driver;
    size_t bytes = 0;
    int has_vmm = 0;
    CUresult code = SM_CALL(driver, cuDeviceGet, &device->device, device->ordinal);
    if (code != CUDA_SUCCESS)
        return refuse(device, "cuDeviceGet", code, error);
    if (SM_CALL(driver, cuDeviceGetName, device->name, sizeof(device->name), device->device) != CUDA_SUCCESS)
        strcpy(device->name, "unknown");
    code = SM_CALL(driver, cuDeviceTotalMem, &bytes, device->device);
    if (code != CUDA_SUCCESS)
        return refuse(device, "cuDeviceTotalMem", code, error);
    device->total_bytes = bytes;
    code = SM_CALL(driver, cuDeviceGetAttribute, &has_vmm,
                   CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device->device);
    if (code != CUDA_SUCCESS)
        return refuse(device, "cuDeviceGetAttribute", code, error);
    if (!has_vmm || !sm_driver_has_vmm(driver) || device->options.policy == SM_POLICY_NATIVE) {
        go_plain(device, "it offers no virtual memory management");
        return SEAM_OK;
    }
    device->properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
    };
    code = SM_CALL(driver, cuMemGetAllocationGranularity, &bytes, &device->properties,
                   CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (code != CUDA_SUCCESS || !sm_is_pow2(bytes) || bytes < 4096)
        go_plain(device, "it names no granularity that is a power of two of at least 4096 bytes");
    else
        device->granularity = bytes;
    return SEAM_OK;
}

static seam_result open_context(struct sm_device *device, struct sm_error *error)
{
    CUresult code =
        SM_CALL(device->allocator->driver, cuDevicePrimaryCtxRetain, &device->context, device->device);
    if (code != CUDA_SUCCESS) {
        device->context = NULL;
        return refuse(device, "cuDevicePrimaryCtxRetain", code, error);
    }
    struct sm_visit visit;
    seam_result result = sm_device_enter(device, &visit, error);
    if (result)
        return result;
    result = find_properties(device, error);
    if (!result && device->options.policy == SM_POLICY_STITCH && device->options.map_parts && !device->lost)
        result = sm_grow_try_parts(device, &device->heap.parts_map, error);
    sm_device_leave(device, &visit);
    return result;
}

static void init_records(struct sm_device *device)
{
    sm_lock_init(&device->memory_lock, SM_RANK_MEMORY, "memory");
    sm_lock_init(&device->heap_lock, SM_RANK_HEAP, "heap");
    sm_slab_init(&device->lost_records, sizeof(struct sm_lost_handle));
    sm_slab_init(&device->event_records, sizeof(struct sm_spare_event));
    device->heap_lock.entered = sm_lease_end_all;
    device->heap_lock.context = device;
    LIST_INIT(&device->leases);
    device->lease_after = SM_LEASE_AFTER;
    TAILQ_INIT(&device->unrecorded);
    TAILQ_INIT(&device->waiting);
    LIST_INIT(&device->pools);
    LIST_INIT(&device->scopes);
}

seam_result sm_device_create(struct sm_allocator *allocator, int ordinal, struct sm_device **out,
                             struct sm_error *error)
{
    struct sm_device *device = sm_hostmem_get(sizeof(*device));
    seam_result result;
    if (!device)
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the record of device %d", ordinal);
    device->allocator = allocator;
    device->trace = allocator->trace;
    device->options = allocator->options;
    device->ordinal = ordinal;
    init_records(device);
    result = ask_driver(device, error);
    if (!result) {
        sm_heap_init(&device->heap, device->granularity);
        device->stats = sm_stats_create(ordinal, &device->heap.parts);
        sm_device_set_fraction(device, allocator->options.per_process_memory_fraction);
        if (!device->stats)
            result = sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the statistics of device %d",
                                  ordinal);
    }
    if (!result)
        result = find_peers(device, error);
    if (!result)
        result = open_context(device, error);
    if (result) {
        sm_device_destroy(device);
        return result;
    }
    sm_log(SM_LOG_INFO, "device %d (%s): %lu MiB, granularity %lu KiB, %zu with access", ordinal,
           device->name, device->total_bytes / SM_MIB, device->granularity / SM_KIB, device->access_count);
    *out = device;
    return SEAM_OK;
}

static void destroy_streams(struct sm_device *device)
{
    for (int i = 0; i < SM_STREAM_SLOTS; i++) {
        struct sm_stream *stream = atomic_load(&device->streams[i]), *next;
        for (; stream; stream = next) {
            next = stream->next;
            sm_hostmem_put(stream, sizeof(*stream));
        }
    }
}

static void destroy_leases(struct sm_device *device)
{
    struct sm_home *home;
    LIST_FOREACH(home, &device->heap.homes, link)
        sm_lease_destroy(home->tag);
}

void sm_device_destroy(struct sm_device *device)
{
    sm_lease_end_all(device);
    if (device->context) {
        struct sm_visit visit;
        bool entered = sm_device_enter(device, &visit, NULL) == SEAM_OK;
        (void)SM_CALL(device->allocator->driver, cuCtxSynchronize, );
        sm_fence_teardown(device);
        sm_stitch_teardown(device);
        sm_trim_teardown(device);
        if (entered)
            sm_device_leave(device, &visit);
        (void)SM_CALL(device->allocator->driver, cuDevicePrimaryCtxRelease, device->device);
    }
    sm_capture_teardown(device);
    if (device->heap.granularity) {
        destroy_leases(device);
        sm_heap_fini(&device->heap);
    }
    if (device->stats)
        sm_stats_destroy(device->stats);
    destroy_streams(device);
    sm_slab_fini(&device->lost_records);
    sm_slab_fini(&device->event_records);
    sm_hostmem_put(device->access, (size_t)device->allocator->device_count * sizeof(*device->access));
    sm_lock_fini(&device->heap_lock);
    sm_lock_fini(&device->memory_lock);
    sm_hostmem_put(device, sizeof(*device));
}

void sm_device_set_fraction(struct sm_device *device, double fraction)
{
    device->fraction = fraction;
    device->limit = fraction < 1 ? (uint64_t)(fraction * (double)device->total_bytes) : SM_UNLIMITED;
}

/* Whose stream is it? A program may name a stream of another device that works on this one's memory. */
static CUcontext foreign_context(struct sm_device *device, CUstream handle)
{
    CUcontext context = NULL;
    if (handle == CU_STREAM_PER_THREAD ||
        SM_CALL(device->allocator->driver, cuStreamGetCtx, handle, &context) != CUDA_SUCCESS)
        return NULL;
    return context == device->context ? NULL : context;
}

struct sm_stream *sm_device_stream(struct sm_device *device, CUstream handle)
{
    struct sm_stream *stream = sm_device_find_stream(device, handle);
    if (stream)
        return stream;
    handle = sm_device_stream_name(handle);
    stream = sm_hostmem_get(sizeof(*stream));
    if (!stream)
        return NULL;
    stream->stream = handle;
    stream->device = device;
    stream->context = handle ? foreign_context(device, handle) : NULL;
    stream->number = handle ? atomic_fetch_add(&device->allocator->stream_numbers, 1) + 1 : 0;
    TAILQ_INIT(&stream->waiting);
    stream->next = atomic_load_explicit(sm_device_slot(device, handle), memory_order_relaxed);
    atomic_store_explicit(sm_device_slot(device, handle), stream, memory_order_release);
    return stream;
}

struct sm_home *sm_device_home(struct sm_device *device, struct sm_stream *stream, const struct sm_pool *pool,
                               bool small_class)
{
    struct sm_home_key key = {.stream = stream, .small_class = small_class};
    struct sm_home *home =
        pool ? NULL : atomic_load_explicit(&stream->homes[small_class], memory_order_relaxed);
    if (home)
        return home;
    if (pool) {
        key.pool_first = pool->id.first;
        key.pool_second = pool->id.second;
        LIST_FOREACH(home, &device->heap.homes, link)
            if (home->key.stream == stream && home->key.small_class == small_class &&
                home->key.pool_first == key.pool_first && home->key.pool_second == key.pool_second)
                return home;
    }
    home = sm_home_create(&device->heap, &key);
    if (home && !pool) {
        home->tag = sm_lease_create(device, home);
        atomic_store_explicit(&stream->homes[small_class], home, memory_order_release);
    }
    return home;
}

/* Moves a level of the statistics to where the heap's sum is now. */
static void follow(struct sm_device *device, enum sm_level_id level, enum sm_kind kind, uint64_t *told,
                   uint64_t now)
{
    if (*told != now)
        sm_stats_move(device->stats, level, kind, (int64_t)(now - *told));
    *told = now;
}

static void count(struct sm_device *device, enum sm_counter_id counter, uint64_t *told, uint64_t now)
{
    if (*told != now)
        sm_stats_count(device->stats, counter, now - *told);
    *told = now;
}

void sm_device_tell(struct sm_device *device)
{
    const struct sm_heap *heap = &device->heap;
    for (int i = 0; i < 2; i++) {
        const struct sm_heap_counts *now = &heap->counts[i];
        enum sm_kind kind = i ? SM_KIND_SMALL : SM_KIND_LARGE;
        follow(device, SM_LEVEL_segment, kind, &device->told[i].segments, now->segments);
        follow(device, SM_LEVEL_inactive_split, kind, &device->told[i].held_ranges, now->held_ranges);
        follow(device, SM_LEVEL_inactive_split_bytes, kind, &device->told[i].held, now->held);
        count(device, SM_COUNTER_splits, &device->told[i].splits, now->splits);
        count(device, SM_COUNTER_merges, &device->told[i].merges, now->merges);
    }
}
