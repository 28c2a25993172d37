/* SPDX-License-Identifier: Apache-2.0 */
/* trim: memory and address space back to the driver, and what happens when it refuses.
 *
 * Whole handles are carved out of free ranges first, so that nobody takes them; then the stream that last
 * used them is asked or waited for; then they are unmapped and released one by one. A handle that lies in a
 * view goes only after the view. What the driver refuses to unmap stays free memory; what it has unmapped and
 * refuses to release is kept in a list of lost handles, stays counted as reserved, and is tried again before
 * each growth and at each trim. A refusal is not taken on trust: the driver is asked whether anything is
 * still there, so that memory that is gone is never handed out again.
 *
 * Protected by: memory lock; the heap lock is held for bookkeeping only. */
#include "alloc/engine.h"
#include "alloc/plant.h"
#include "base/align.h"
#include "base/log.h"

enum sm_kind sm_home_kind(const struct sm_home *home)
{
    return home->key.small_class ? SM_KIND_SMALL : SM_KIND_LARGE;
}

void sm_count_mapped(struct sm_device *device, int64_t bytes, int64_t handles)
{
    sm_stats_move(device->stats, SM_LEVEL_mapped_bytes, SM_KIND_ALL, bytes);
    sm_stats_move(device->stats, SM_LEVEL_handles, SM_KIND_ALL, handles);
    sm_stats_move(device->stats, SM_LEVEL_mappings, SM_KIND_ALL, handles);
    device->work += handles > 0 ? 2 * (uint64_t)handles : (uint64_t)-handles;
}

void sm_note_error(struct sm_device *device)
{
    sm_lock_take(&device->heap_lock);
    sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
    sm_lock_give(&device->heap_lock);
}

/* ---- what the driver says and what is so ---- */

/* CUDA_SUCCESS: something is mapped there. CUDA_ERROR_INVALID_VALUE: nothing is. */
static CUresult ask_mapping(struct sm_device *device, uint64_t address)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal};
    unsigned long long flags;
    return SM_CALL(device->allocator->driver, cuMemGetAccess, &flags, &here, address);
}

bool sm_is_mapped(struct sm_device *device, uint64_t address)
{
    return ask_mapping(device, address) == CUDA_SUCCESS;
}

bool sm_unmap(struct sm_device *device, uint64_t address, uint64_t size)
{
    if (SM_CALL(device->allocator->driver, cuMemUnmap, address, size) == CUDA_SUCCESS)
        return true;
    if (ask_mapping(device, address) != CUDA_ERROR_INVALID_VALUE)
        return false;
    sm_note_error(device);
    return true;
}

/* The same for a plain allocation. */
static bool free_plain(struct sm_device *device, uint64_t base)
{
    struct sm_driver *driver = device->allocator->driver;
    CUdeviceptr found;
    size_t size;
    if (SM_CALL(driver, cuMemFree, base) == CUDA_SUCCESS)
        return true;
    CUresult code = SM_CALL(driver, cuMemGetAddressRange, &found, &size, base);
    if (code != CUDA_ERROR_NOT_FOUND && code != CUDA_ERROR_INVALID_VALUE)
        return false;
    sm_note_error(device);
    return true;
}

/* ---- lost handles ---- */

/* What is mapped of a lost handle: a granule of one that was tried, else all of it. */
static uint64_t mapped_size(const struct sm_lost_handle *lost)
{
    return lost->span_size ? lost->span_size : lost->size;
}

/* The driver did not take something back. Requires: a record prepared. Heap lock not held. */
static void lose(struct sm_device *device, const struct sm_lost_handle *what)
{
    struct sm_lost_handle *lost = sm_slab_take(&device->lost_records);
    if (!SM_CHECK(lost))
        return;
    *lost = *what;
    lost->next = device->lost;
    device->lost = lost;
    sm_lock_take(&device->heap_lock);
    if (lost->size) {
        sm_heap_lose(&device->heap, lost->size);
        sm_stats_move(device->stats, SM_LEVEL_reserved_bytes, lost->kind, (int64_t)lost->size);
        sm_stats_move(device->stats, SM_LEVEL_handles, SM_KIND_ALL, 1);
    }
    if (lost->address) {
        sm_stats_move(device->stats, SM_LEVEL_mapped_bytes, SM_KIND_ALL, (int64_t)mapped_size(lost));
        sm_stats_move(device->stats, SM_LEVEL_mappings, SM_KIND_ALL, 1);
    }
    if (lost->span_size) {
        atomic_fetch_add(&device->allocator->address_bytes, lost->span_size);
        sm_heap_lose_addresses(&device->heap, lost->span_size);
        sm_stats_move(device->stats, SM_LEVEL_reserved_address_bytes, SM_KIND_ALL, (int64_t)lost->span_size);
    }
    sm_lock_give(&device->heap_lock);
    sm_log(SM_LOG_WARNING,
           "device %d: the driver refused to take back %s of %lu bytes; it is tried again later",
           device->ordinal, lost->size ? "a handle" : "addresses", lost->size ? lost->size : lost->span_size);
}

void sm_lose_handle(struct sm_device *device, uint64_t name, uint64_t size, uint64_t address,
                    enum sm_kind kind)
{
    lose(device, &(struct sm_lost_handle){.name = name, .size = size, .address = address, .kind = kind});
}

void sm_lose_trial(struct sm_device *device, uint64_t name, uint64_t size, bool mapped, uint64_t span)
{
    lose(device, &(struct sm_lost_handle){.name = name,
                                          .size = size,
                                          .address = mapped ? span : 0,
                                          .span = span,
                                          .span_size = span ? device->granularity : 0,
                                          .kind = SM_KIND_LARGE});
}

static void found(struct sm_device *device, const struct sm_lost_handle *lost)
{
    sm_lock_take(&device->heap_lock);
    sm_stats_move(device->stats, SM_LEVEL_reserved_bytes, lost->kind, -(int64_t)lost->size);
    sm_stats_move(device->stats, SM_LEVEL_handles, SM_KIND_ALL, -1);
    sm_heap_find(&device->heap, lost->size);
    sm_lock_give(&device->heap_lock);
}

static void found_addresses(struct sm_device *device, const struct sm_lost_handle *lost)
{
    atomic_fetch_sub(&device->allocator->address_bytes, lost->span_size);
    sm_lock_take(&device->heap_lock);
    sm_stats_move(device->stats, SM_LEVEL_reserved_address_bytes, SM_KIND_ALL, -(int64_t)lost->span_size);
    sm_heap_find_addresses(&device->heap, lost->span_size);
    sm_lock_give(&device->heap_lock);
}

/* One more attempt at unmapping, releasing, freeing addresses, as far as it goes. Returns: nothing is
 * left. */
static bool take_back(struct sm_device *device, struct sm_lost_handle *lost)
{
    struct sm_driver *driver = device->allocator->driver;
    if (lost->address && sm_unmap(device, lost->address, mapped_size(lost))) {
        lost->address = 0;
        sm_lock_take(&device->heap_lock);
        sm_stats_move(device->stats, SM_LEVEL_mapped_bytes, SM_KIND_ALL, -(int64_t)mapped_size(lost));
        sm_stats_move(device->stats, SM_LEVEL_mappings, SM_KIND_ALL, -1);
        sm_lock_give(&device->heap_lock);
    }
    if (lost->size && !lost->address && SM_CALL(driver, cuMemRelease, lost->name) == CUDA_SUCCESS) {
        found(device, lost);
        lost->size = 0;
    }
    if (lost->span_size && !lost->size &&
        SM_CALL(driver, cuMemAddressFree, lost->span, lost->span_size) == CUDA_SUCCESS) {
        found_addresses(device, lost);
        lost->span_size = 0;
    }
    return !lost->size && !lost->span_size;
}

void sm_release_lost(struct sm_device *device)
{
    struct sm_lost_handle **at = &device->lost;
    if (!device->lost)
        return;
    sm_lock_take(&device->heap_lock);
    bool capturing = sm_capture_running(device);
    sm_lock_give(&device->heap_lock);
    if (capturing)
        return;
    while (*at) {
        struct sm_lost_handle *lost = *at;
        if (!take_back(device, lost)) {
            at = &lost->next;
            continue;
        }
        *at = lost->next;
        sm_slab_give(&device->lost_records, lost);
    }
}

/* ---- address space ---- */

bool sm_is_blocked(const struct sm_device *device, uint64_t address, uint64_t bytes)
{
    for (const struct sm_lost_handle *lost = device->lost; lost; lost = lost->next)
        if (lost->address && lost->address < address + bytes && address < lost->address + lost->size)
            return true;
    return false;
}

/* An extent without memory that the driver was not asked for in vain already. Heap lock held. */
static struct sm_extent *empty_extent(struct sm_device *device)
{
    struct sm_home *home;
    struct sm_extent *extent;
    LIST_FOREACH(home, &device->heap.homes, link)
        TAILQ_FOREACH(extent, &home->extents, link)
            if (!extent->mapped && extent->refused != device->trim_serial &&
                !sm_is_blocked(device, extent->base, extent->size))
                return extent;
    return NULL;
}

/* Where the driver refused to map something may be tried again; not a range in which it never mapped
 * anything and which it does not take back. Heap lock held. */
static void open_extents(struct sm_device *device)
{
    struct sm_home *home;
    struct sm_extent *extent;
    LIST_FOREACH(home, &device->heap.homes, link)
        TAILQ_FOREACH(extent, &home->extents, link)
            extent->shut = extent->shut && !extent->mapped;
}

void sm_trim_addresses(struct sm_device *device)
{
    struct sm_driver *driver = device->allocator->driver;
    device->trim_serial++;
    sm_lock_take(&device->heap_lock);
    for (;;) {
        struct sm_extent *extent = empty_extent(device);
        CUresult code;
        if (!extent)
            break;
        if (extent->plain) {
            sm_extent_remove(extent);
            continue;
        }
        sm_lock_give(&device->heap_lock);
        code = SM_CALL(driver, cuMemAddressFree, extent->base, extent->size);
        sm_lock_take(&device->heap_lock);
        if (code != CUDA_SUCCESS) {
            sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
            extent->refused = device->trim_serial;
            continue;
        }
        atomic_fetch_sub(&device->allocator->address_bytes, extent->size);
        sm_stats_move(device->stats, SM_LEVEL_reserved_address_bytes, SM_KIND_ALL, -(int64_t)extent->size);
        sm_extent_remove(extent);
    }
    open_extents(device);
    sm_capture_prune(device);
    sm_lock_give(&device->heap_lock);
}

/* ---- trim ---- */

/* Is the stream done with everything that was freed up to now? Asks the driver only when it is not known. */
bool sm_stream_is_done(struct sm_device *device, struct sm_stream *stream, uint64_t freed,
                       enum sm_trim_wait wait)
{
    CUresult code;
    if (stream->done >= freed || SM_PLANTED(EARLY_UNMAP))
        return true;
    if (sm_capture_on(device, stream->stream))
        return false;
    struct sm_driver *driver = device->allocator->driver;
    code = wait == SM_TRIM_WAIT ? SM_CALL(driver, cuStreamSynchronize, stream->stream)
                                : SM_CALL(driver, cuStreamQuery, stream->stream);
    /* A stream that its owner destroyed answers nothing: then only the whole device can be asked. */
    if (code == CUDA_ERROR_INVALID_HANDLE || code == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        code = wait == SM_TRIM_WAIT ? sm_capture_safe_wait(device) : CUDA_ERROR_NOT_READY;
    sm_lock_take(&device->heap_lock);
    if (code == CUDA_SUCCESS)
        stream->done = sm_max(stream->done, sm_min(freed, stream->freed));
    else if (code != CUDA_ERROR_NOT_READY)
        sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
    if (code == CUDA_SUCCESS && wait == SM_TRIM_WAIT)
        sm_stats_count(device->stats, SM_COUNTER_event_waits, 1);
    sm_lock_give(&device->heap_lock);
    return code == CUDA_SUCCESS;
}

/* The free range with the most whole bytes among those of a home. */
static struct sm_block *wholest(struct sm_home *home)
{
    struct sm_block *block, *best = NULL;
    RB_FOREACH_REVERSE(block, sm_free_tree, &home->free_ranges) {
        if (best && block->size <= best->whole)
            break;
        if ((!best || block->whole > best->whole) && sm_block_can_carve(block))
            best = block;
    }
    return best;
}

/* Whole handles of a free range, carved out so that nobody takes them. Heap lock held. */
static struct sm_block *carve(struct sm_device *device, struct sm_block *range, uint64_t bytes)
{
    /* Carving takes up to two records, and one stays aside for the rest that may come back. */
    if (!sm_heap_promise(&device->heap, 1))
        return NULL;
    if (!sm_heap_prepare(&device->heap, 2)) {
        sm_heap_redeem(&device->heap, 1);
        return NULL;
    }
    range = sm_block_carve(range, bytes);
    sm_device_tell(device);
    return range;
}

/* The next to carve, other homes' before `sparing`'s. Heap lock held. */
static struct sm_block *carve_next(struct sm_device *device, uint64_t bytes, const struct sm_home *sparing)
{
    struct sm_block *range, *best = NULL;
    struct sm_home *home;
    LIST_FOREACH(home, &device->heap.homes, link) {
        struct sm_stream *stream = home->key.stream;
        if (!home->whole || stream->passed_over == device->trim_serial || !sm_capture_may_trim(device, home))
            continue;
        range = wholest(home);
        if (range &&
            (!best || best->extent->home == sparing || (home != sparing && range->whole > best->whole)))
            best = range;
    }
    return best ? carve(device, best, bytes) : NULL;
}

/* The bookkeeping of a handle that the driver has unmapped, and released unless it is lost. */
static void forget(struct sm_device *device, struct sm_block *carved, uint64_t address, uint64_t size)
{
    sm_lock_take(&device->heap_lock);
    sm_stats_move(device->stats, SM_LEVEL_reserved_bytes, sm_home_kind(carved->extent->home), -(int64_t)size);
    if (!carved->extent->plain)
        sm_count_mapped(device, -(int64_t)size, -1);
    sm_carved_forget(carved, address);
    sm_device_tell(device);
    sm_lock_give(&device->heap_lock);
}

/* Unmaps and releases one handle, or frees a plain segment. Returns: false when it is still there and usable.
 */
static bool return_handle(struct sm_device *device, const struct sm_extent *extent,
                          const struct sm_handle *handle, bool *released)
{
    struct sm_driver *driver = device->allocator->driver;
    *released = true;
    if (extent->plain)
        return free_plain(device, handle->name);
    if (!sm_unmap(device, handle->address, handle->size))
        return false;
    *released = SM_CALL(driver, cuMemRelease, handle->name) == CUDA_SUCCESS;
    return true;
}

/* Unmaps and releases a carved block from its low end. Returns: bytes given back; less than its size after a
 * refusal. */
static uint64_t give_back(struct sm_device *device, struct sm_block *carved)
{
    struct sm_extent *extent = carved->extent;
    uint64_t at = carved->address, end = sm_block_end(carved), given = 0;
    while (at < end) {
        struct sm_handle handle = *sm_extent_handle_at(carved->extent, at);
        bool released;
        if (!sm_slab_reserve(&device->lost_records, 1) ||
            !return_handle(device, carved->extent, &handle, &released)) {
            sm_note_error(device);
            break;
        }
        forget(device, carved, at, handle.size);
        if (!released) {
            sm_note_error(device);
            sm_lose_handle(device, handle.name, handle.size, 0, sm_home_kind(carved->extent->home));
        }
        given += released ? handle.size : 0;
        at += handle.size;
    }
    sm_lock_take(&device->heap_lock);
    sm_heap_redeem(&device->heap, 1);
    if (at < end)
        sm_carved_return(carved, at);
    else
        sm_carved_close(carved);
    if (at == end && extent->plain) /* its addresses are the driver's again: nobody may find it by them */
        sm_extent_remove(extent);
    sm_device_tell(device);
    sm_lock_give(&device->heap_lock);
    return given;
}

/* The carved block stays ours after all. */
static void put_back(struct sm_device *device, struct sm_block *carved)
{
    sm_lock_take(&device->heap_lock);
    sm_heap_redeem(&device->heap, 1);
    sm_carved_return(carved, carved->address);
    sm_device_tell(device);
    sm_lock_give(&device->heap_lock);
}

uint64_t sm_trim_range(struct sm_device *device, struct sm_block *range)
{
    struct sm_stream *stream = range->extent->home->key.stream;
    struct sm_block *carved = sm_capture_running(device) ? NULL : carve(device, range, UINT64_MAX);
    uint64_t freed = stream->freed, given = 0;
    if (!carved)
        return 0;
    sm_lock_give(&device->heap_lock);
    if (sm_stream_is_done(device, stream, freed, SM_TRIM_WAIT))
        given = give_back(device, carved);
    else
        put_back(device, carved);
    sm_lock_take(&device->heap_lock);
    sm_stats_count(device->stats, SM_COUNTER_num_device_free, given > 0);
    return given;
}

uint64_t sm_trim(struct sm_device *device, uint64_t bytes, enum sm_trim_wait wait,
                 const struct sm_home *sparing)
{
    uint64_t given = 0;
    bool evicted = false;
    device->trim_serial++;
    while (given < bytes) {
        struct sm_stream *stream;
        struct sm_block *carved;
        uint64_t freed, size, got;
        sm_lock_take(&device->heap_lock);
        carved = sm_capture_running(device) ? NULL : carve_next(device, bytes - given, sparing);
        stream = carved ? carved->extent->home->key.stream : NULL;
        freed = carved ? stream->freed : 0;
        sm_lock_give(&device->heap_lock);
        if (!carved && !evicted) {
            evicted = true; /* handles in views can go only after the views */
            if (sm_stitch_evict(device, 0, wait))
                continue;
        }
        if (!carved)
            break;
        if (!sm_stream_is_done(device, stream, freed, wait)) {
            put_back(device, carved);
            stream->passed_over = device->trim_serial;
            continue;
        }
        size = carved->size;
        got = give_back(device, carved);
        given += got;
        if (got < size) /* refused: other streams' memory may still go */
            stream->passed_over = device->trim_serial;
    }
    sm_lock_take(&device->heap_lock);
    if (given) {
        sm_stats_count(device->stats, SM_COUNTER_trims, 1);
        sm_stats_count(device->stats, SM_COUNTER_num_device_free, 1);
    }
    sm_lock_give(&device->heap_lock);
    return given;
}

void sm_trim_teardown(struct sm_device *device)
{
    struct sm_driver *driver = device->allocator->driver;
    struct sm_lost_handle *lost;
    struct sm_home *home;
    struct sm_extent *extent;
    for (lost = device->lost; lost; lost = lost->next) {
        if (lost->address)
            (void)SM_CALL(driver, cuMemUnmap, lost->address, mapped_size(lost));
        if (lost->size)
            (void)SM_CALL(driver, cuMemRelease, lost->name);
        if (lost->span_size) {
            (void)SM_CALL(driver, cuMemAddressFree, lost->span, lost->span_size);
            atomic_fetch_sub(&device->allocator->address_bytes, lost->span_size);
        }
    }
    LIST_FOREACH(home, &device->heap.homes, link) {
        TAILQ_FOREACH(extent, &home->extents, link) {
            for (uint32_t i = 0; i < extent->handle_slots; i++) {
                const struct sm_handle *handle = &extent->handles[i];
                bool released;
                if (handle->size)
                    (void)return_handle(device, extent, handle, &released);
            }
            if (extent->plain)
                continue;
            (void)SM_CALL(driver, cuMemAddressFree, extent->base, extent->size);
            atomic_fetch_sub(&device->allocator->address_bytes, extent->size);
        }
    }
}
