/* SPDX-License-Identifier: Apache-2.0 */
/* grow: memory from the driver. The only file that creates handles, maps them at home and reserves for homes.
 *
 * Growth of a home, publish last:
 *   1 plan      under the heap lock: which gap, how many bytes, all host records that publishing will need
 *   2 join      above the peak of live bytes, free memory of other places comes first (stitch.c)
 *   3 limit     refuse before the driver is asked
 *   4 create    one handle after the other
 *   5 map       side by side into the gap
 *   6 access    one call over the range, for the device and its peers
 *   7 publish   under the heap lock: the gap's low end is free memory now, and the request is served from it
 * A failure in 4, 5 or 6 takes everything back, in reverse (what the driver refuses to take: trim.c).
 *
 * Under the policy native a growth is a plain allocation instead, a segment that joins with nothing.
 * Protected by: memory lock; the heap lock is held for bookkeeping only. */
#include "alloc/engine.h"
#include "alloc/heap/view.h"
#include "base/align.h"
#include "base/log.h"
#include "policies/fit.h"
#include "policies/growth.h"

struct plan {
    struct sm_block *gap;
    uint64_t least, wanted; /* bytes to map */
    uint64_t address;       /* the gap's low end */
    bool apart;             /* a split limit is set: the request is served from new memory alone */
    struct sm_growth_state state;
};

/* Handles of one growth on their way. */
struct batch {
    uint32_t count, created, mapped;
    uint64_t sizes[SM_GROWTH_HANDLES_MAX], names[SM_GROWTH_HANDLES_MAX];
};

/* A device that is full says nothing about what it can do. */
static seam_result too_full(struct sm_device *device, struct sm_error *error)
{
    return sm_error_set(
        error, SEAM_E_DEVICE_OOM,
        "device %d (%s) is full: not even %lu bytes could be had to try what it offers; it is "
        "tried again at the next call",
        device->ordinal, device->name, device->granularity);
}

seam_result sm_grow_try(struct sm_device *device, bool *created, struct sm_error *error)
{
    struct sm_driver *driver = device->allocator->driver;
    CUmemGenericAllocationHandle handle = 0;
    if (!sm_slab_reserve(&device->lost_records, 1))
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the records of device %d",
                            device->ordinal);
    CUresult code = SM_CALL(driver, cuMemCreate, &handle, device->granularity, &device->properties, 0);
    *created = code == CUDA_SUCCESS;
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return too_full(device, error);
    if (code == CUDA_SUCCESS && SM_CALL(driver, cuMemRelease, handle) != CUDA_SUCCESS) {
        sm_note_error(device);
        sm_lose_handle(device, handle, device->granularity, 0, SM_KIND_LARGE);
    }
    return SEAM_OK;
}

/* Takes a trial with a handle of so many bytes back. Returns: false when the driver refused something, which
 * is kept for later. */
static bool take_back(struct sm_device *device, uint64_t handle, uint64_t bytes, bool mapped, uint64_t base)
{
    struct sm_driver *driver = device->allocator->driver;
    if (mapped && sm_unmap(device, base, device->granularity))
        mapped = false;
    if (!mapped && SM_CALL(driver, cuMemRelease, handle) == CUDA_SUCCESS)
        bytes = 0;
    if (base && !bytes && SM_CALL(driver, cuMemAddressFree, base, device->granularity) == CUDA_SUCCESS)
        base = 0;
    if (!bytes && !base)
        return true;
    sm_note_error(device);
    sm_lose_trial(device, handle, bytes, mapped, base);
    return false;
}

/* Maps the granule at `offset` of a handle of so many bytes, opens it, and takes all back. */
static seam_result try_mapping(struct sm_device *device, uint64_t bytes, uint64_t offset,
                               const char **refused, struct sm_error *error)
{
    struct sm_driver *driver = device->allocator->driver;
    uint64_t size = device->granularity;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr base = 0;
    bool mapped = false;
    CUresult code;
    if (!sm_slab_reserve(&device->lost_records, 1))
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the records of device %d",
                            device->ordinal);
    *refused = "cuMemCreate"; /* first, as a device without room for it leaves nothing to undo then */
    code = SM_CALL(driver, cuMemCreate, &handle, bytes, &device->properties, 0);
    if (code != CUDA_SUCCESS)
        return code == CUDA_ERROR_OUT_OF_MEMORY ? too_full(device, error) : SEAM_OK;
    *refused = "cuMemAddressReserve";
    code = SM_CALL(driver, cuMemAddressReserve, &base, size, 0, 0, 0);
    if (code == CUDA_SUCCESS) {
        *refused = "cuMemMap";
        code = SM_CALL(driver, cuMemMap, base, size, offset, handle, 0);
        mapped = code == CUDA_SUCCESS;
    }
    if (mapped) {
        *refused = "cuMemSetAccess";
        code = SM_CALL(driver, cuMemSetAccess, base, size, device->access, device->access_count);
    }
    if (code == CUDA_SUCCESS)
        *refused = NULL;
    if (!take_back(device, handle, bytes, mapped, base))
        *refused = "cuMemUnmap, cuMemRelease or cuMemAddressFree";
    return SEAM_OK;
}

seam_result sm_grow_probe(struct sm_device *device, const char **refused, struct sm_error *error)
{
    return try_mapping(device, device->granularity, 0, refused, error);
}

seam_result sm_grow_try_parts(struct sm_device *device, bool *parts, struct sm_error *error)
{
    const char *refused = NULL;
    seam_result result = try_mapping(device, 2 * device->granularity, device->granularity, &refused, error);
    *parts = !result && !refused;
    return result == SEAM_E_HOST_OOM ? result : SEAM_OK;
}

/* ---- address space ---- */

/* How much to reserve: room for the whole device in one piece while the budget is far, less later. */
static uint64_t extent_size(struct sm_device *device, const struct sm_home *home, uint64_t need)
{
    uint64_t used = atomic_load(&device->allocator->address_bytes);
    uint64_t limit = device->options.address_limit;
    uint64_t want = sm_align_up(device->total_bytes, device->granularity);
    if (device->options.policy == SM_POLICY_EXPANDABLE) {
        struct sm_growth_state state = {.granularity = device->granularity,
                                        .small_class = home->key.small_class};
        uint64_t step = sm_growth_step(&device->options, &state), room = want + want / 8;
        return used + room <= limit ? room / step * step + (room % step ? step : 0) : 0;
    }
    if (home->key.small_class)
        want = sm_align_up(want / 8, device->granularity);
    if (used > limit / 2 || want > limit / 8)
        want = sm_align_up(want / 16, device->granularity);
    want = sm_max(want, need);
    return used + want <= limit ? want : used + need <= limit ? need : 0;
}

/* A new extent of at least `need` bytes. A refused reservation is tried smaller. */
static seam_result add_extent(struct sm_device *device, struct sm_home *home, uint64_t need,
                              struct sm_error *error)
{
    struct sm_driver *driver = device->allocator->driver;
    uint64_t size = extent_size(device, home, need);
    CUdeviceptr base = 0;
    CUresult code = CUDA_ERROR_OUT_OF_MEMORY;
    bool ready;
    char text[160];
    if (!size)
        return sm_error_set(
            error, SEAM_E_DEVICE_OOM,
            "device %d: %lu bytes more address space would pass address_limit_gib (%lu of %lu bytes are "
            "reserved)",
            device->ordinal, need, atomic_load(&device->allocator->address_bytes),
            device->options.address_limit);
    sm_lock_take(&device->heap_lock);
    ready = sm_extent_ready(&device->heap, 0, 0);
    sm_lock_give(&device->heap_lock);
    if (!ready)
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the record of an address range");
    for (;; size = sm_max(need, sm_align_up(size / 2, device->granularity))) {
        code = SM_CALL(driver, cuMemAddressReserve, &base, size, 0, 0, 0);
        if (code == CUDA_SUCCESS || size == need)
            break;
        sm_note_error(device);
    }
    sm_lock_take(&device->heap_lock);
    if (code == CUDA_SUCCESS) {
        (void)sm_extent_add(home, base, size); /* made ready above */
        sm_stats_move(device->stats, SM_LEVEL_reserved_address_bytes, SM_KIND_ALL, (int64_t)size);
    } else {
        sm_extent_unready(&device->heap);
        sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
    }
    sm_lock_give(&device->heap_lock);
    if (code != CUDA_SUCCESS)
        return sm_error_set(error, SEAM_E_DEVICE_OOM, "device %d: no address space for %lu bytes: %s",
                            device->ordinal, size, sm_driver_text(driver, code, text, sizeof(text)));
    atomic_fetch_add(&device->allocator->address_bytes, size);
    return SEAM_OK;
}

/* ---- growth ---- */

/* Finds the gap and the sizes. Heap lock held. Returns: false when no gap of the home can hold the request.
 */
static bool make_plan(const struct sm_request *request, struct plan *plan)
{
    struct sm_device *device = request->device;
    const struct sm_options *options = &device->options;
    uint64_t rounded = sm_align_up(request->size, device->granularity);
    struct sm_block *gap = NULL;
    uint64_t missing = rounded;
    plan->apart =
        (options->max_split_size != SM_UNLIMITED && options->policy == SM_POLICY_STITCH) || request->lend;
    if (options->policy == SM_POLICY_EXPANDABLE)
        gap = sm_home_first_run(request->home, request->size, &missing);
    else if (!plan->apart)
        gap = sm_home_best_gap(request->home, request->size, &missing);
    else
        TAILQ_FOREACH(gap, &request->home->gaps, gap)
            if (gap->size >= rounded && !gap->extent->shut)
                break;
    if (!gap)
        return false;
    plan->gap = gap;
    plan->address = gap->address;
    plan->state = (struct sm_growth_state){
        .granularity = device->granularity,
        .missing = missing,
        .home_bytes = request->home->mapped,
        .reserved = device->heap.reserved,
        .live_peak = sm_max(device->live_peak, device->heap.reserved -
                                                   (uint64_t)(device->heap.parts.bytes[SM_PART_held_free] +
                                                              device->heap.parts.bytes[SM_PART_whole_free]) +
                                                   request->size),
        .pressure = sm_growth_pressure(options, device->heap.reserved, device->work / 2),
        .small_class = request->home->key.small_class,
        .parts = device->heap.parts_map,
    };
    plan->least = sm_growth_least(options, &plan->state);
    plan->wanted = plan->apart ? plan->least : sm_min(sm_growth_wanted(options, &plan->state), gap->size);
    return true;
}

static void undo(struct sm_device *device, struct batch *batch, const struct plan *plan, enum sm_kind kind)
{
    struct sm_driver *driver = device->allocator->driver;
    uint64_t address = plan->address;
    for (uint32_t i = 0; i < batch->created; i++) {
        bool mapped = i < batch->mapped;
        if (mapped && sm_unmap(device, address, batch->sizes[i]))
            mapped = false;
        if (mapped || SM_CALL(driver, cuMemRelease, batch->names[i]) != CUDA_SUCCESS)
            sm_lose_handle(device, batch->names[i], batch->sizes[i], mapped ? address : 0, kind);
        address += batch->sizes[i];
    }
    sm_lock_take(&device->heap_lock);
    sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
    if (batch->created)
        sm_stats_count(device->stats, SM_COUNTER_rollbacks, 1);
    sm_lock_give(&device->heap_lock);
}

/* Unmaps what lies in a range: it can only be left from a call that did something else than it said. Up to
 * `end` nothing is ours; what the driver says to reach beyond is left alone. Returns: true when something
 * went. */
static bool clear_way(struct sm_device *device, uint64_t address, uint64_t size, uint64_t end)
{
    struct sm_driver *driver = device->allocator->driver;
    bool any = false;
    for (uint64_t at = address; at < address + size;) {
        CUdeviceptr base = at;
        size_t bytes = 0;
        uint64_t next = at + device->granularity;
        if (sm_is_mapped(device, at) &&
            SM_CALL(driver, cuMemGetAddressRange, &base, &bytes, at) == CUDA_SUCCESS && bytes &&
            base >= address && base <= end && bytes <= end - base) {
            sm_note_error(device);
            any |= sm_unmap(device, base, bytes);
            next = sm_max(next, base + bytes);
        }
        at = next;
    }
    return any;
}

/* Maps one handle of a growth into a gap. */
static CUresult map_one(struct sm_device *device, const struct sm_block *gap, uint64_t address, uint64_t size,
                        uint64_t name)
{
    struct sm_driver *driver = device->allocator->driver;
    CUresult code = SM_CALL(driver, cuMemMap, address, size, 0, name, 0);
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_OUT_OF_MEMORY ||
        !clear_way(device, address, size, sm_block_end(gap)))
        return code;
    code = SM_CALL(driver, cuMemMap, address, size, 0, name, 0);
    if (code != CUDA_SUCCESS)
        clear_way(device, address, size, sm_block_end(gap));
    return code;
}

/* The driver does not map here: the next growth goes elsewhere, until a trim. */
static void shut(struct sm_device *device, const struct plan *plan)
{
    sm_lock_take(&device->heap_lock);
    plan->gap->extent->shut = true;
    sm_lock_give(&device->heap_lock);
}

/* Creates, maps and opens the batch at the plan's address, or leaves nothing. */
static seam_result create_and_map(struct sm_device *device, struct batch *batch, const struct plan *plan,
                                  enum sm_kind kind, enum sm_obstacle *obstacle, struct sm_error *error)
{
    struct sm_driver *driver = device->allocator->driver;
    const char *call = "cuMemCreate";
    CUresult code = CUDA_SUCCESS;
    uint64_t bytes = 0;
    char text[160];
    batch->created = batch->mapped = 0;
    for (uint32_t i = 0; i < batch->count && code == CUDA_SUCCESS; i++) {
        CUmemGenericAllocationHandle handle = 0;
        code = SM_CALL(driver, cuMemCreate, &handle, batch->sizes[i], &device->properties, 0);
        batch->names[i] = handle;
        batch->created += code == CUDA_SUCCESS;
    }
    *obstacle = SM_OBSTACLE_DEVICE;
    for (uint32_t i = 0; i < batch->count && code == CUDA_SUCCESS; i++) {
        call = "cuMemMap";
        *obstacle = SM_OBSTACLE_MAPPING;
        code = map_one(device, plan->gap, plan->address + bytes, batch->sizes[i], batch->names[i]);
        batch->mapped += code == CUDA_SUCCESS;
        bytes += batch->sizes[i];
        if (code != CUDA_SUCCESS && code != CUDA_ERROR_OUT_OF_MEMORY) {
            shut(device, plan);
            *obstacle = SM_OBSTACLE_PLACE;
        }
    }
    if (code == CUDA_SUCCESS) {
        call = "cuMemSetAccess";
        code = SM_CALL(driver, cuMemSetAccess, plan->address, bytes, device->access, device->access_count);
    }
    if (code == CUDA_SUCCESS)
        return SEAM_OK;
    undo(device, batch, plan, kind);
    return sm_error_set(error, code == CUDA_ERROR_OUT_OF_MEMORY ? SEAM_E_DEVICE_OOM : SEAM_E_DEVICE,
                        "device %d: %s failed in a growth by %u handles: %s", device->ordinal, call,
                        batch->count, sm_driver_text(driver, code, text, sizeof(text)));
}

/* The driver has done its part: the memory is ours. Heap lock held; nothing here can fail. */
static struct sm_block *publish(const struct sm_request *request, const struct plan *plan,
                                const struct batch *batch, uint64_t bytes)
{
    struct sm_device *device = request->device;
    const struct sm_options *options = &device->options;
    struct sm_block *range = sm_gap_fill(plan->gap, batch->sizes, batch->names, batch->count);
    sm_stats_move(device->stats, SM_LEVEL_reserved_bytes, sm_home_kind(request->home), (int64_t)bytes);
    if (!range->extent->plain)
        sm_count_mapped(device, (int64_t)bytes, batch->count);
    sm_stats_count(device->stats, SM_COUNTER_num_device_alloc, 1);
    sm_stats_count(device->stats, SM_COUNTER_growths, 1);
    if (request->lend)
        return sm_block_lend(range, plan->address, plan->address + bytes);
    if (plan->apart) {
        bool split = sm_fit_splits(options, request->size, bytes);
        return sm_block_take_at(range, plan->address, split ? request->size : bytes, request->requested);
    }
    if (range->size < request->size)
        return NULL; /* a neighbour that the plan counted on was taken meanwhile */
    sm_block_take(range, request->size, request->requested, true);
    return range;
}

/* The rest of the gap, and what is left of the range before and after the block. */
#define PUBLISH_RECORDS 3

/* Everything that publishing, or undoing, needs of host memory. Heap lock held. */
static bool prepare(struct sm_device *device, const struct plan *plan, uint64_t bytes, uint32_t count)
{
    return sm_slab_reserve(&device->lost_records, count) &&
           sm_extent_prepare(plan->gap->extent, plan->address + bytes, count) &&
           sm_heap_promise(&device->heap, PUBLISH_RECORDS);
}

static bool exceeds_limit(struct sm_device *device, uint64_t bytes, struct sm_shortage *shortage,
                          struct sm_error *error)
{
    if (device->heap.reserved + bytes <= device->limit)
        return false;
    *shortage = (struct sm_shortage){.obstacle = SM_OBSTACLE_LIMIT, .bytes = bytes};
    sm_error_set(error, SEAM_E_LIMIT, "device %d: %lu bytes more would pass the limit of %lu bytes",
                 device->ordinal, bytes, device->limit);
    return true;
}

/* One attempt with this many bytes. */
static seam_result attempt(const struct sm_request *request, const struct plan *plan, uint64_t bytes,
                           struct batch *batch, struct sm_block **block, struct sm_shortage *shortage,
                           struct sm_error *error)
{
    struct sm_device *device = request->device;
    seam_result result;
    bool ready;
    shortage->bytes = bytes;
    if (device->options.policy != SM_POLICY_EXPANDABLE && exceeds_limit(device, bytes, shortage, error))
        return SEAM_E_LIMIT;
    sm_release_lost(device);
    if (sm_is_blocked(device, plan->address, bytes)) {
        sm_note_error(device);
        shut(device, plan);
        shortage->obstacle = SM_OBSTACLE_PLACE;
        return sm_error_set(
            error, SEAM_E_DEVICE,
            "device %d: the driver refuses to unmap what lies at %#lx, where memory is to grow",
            device->ordinal, plan->address);
    }
    batch->count = sm_growth_handles(&device->options, &plan->state, bytes, batch->sizes);
    sm_lock_take(&device->heap_lock);
    ready = prepare(device, plan, bytes, batch->count);
    sm_lock_give(&device->heap_lock);
    if (!ready)
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the records of a growth by %lu bytes",
                            bytes);
    result = create_and_map(device, batch, plan, sm_home_kind(request->home), &shortage->obstacle, error);
    sm_lock_take(&device->heap_lock);
    sm_heap_redeem(&device->heap, PUBLISH_RECORDS);
    if (!result) {
        *block = publish(request, plan, batch, bytes);
        if (*block && !request->lend)
            sm_pool_count(request, *block);
        else
            sm_device_tell(device);
    }
    sm_lock_give(&device->heap_lock);
    if (result)
        return result;
    sm_log(SM_LOG_INFO, "device %d: grew by %lu bytes in %u handles for a request of %lu", device->ordinal,
           bytes, batch->count, request->requested);
    return SEAM_OK;
}

/* The gap to fill, in a new extent where the home has none that is large enough. */
static seam_result find_place(struct sm_request *request, struct plan *plan, struct sm_shortage *shortage,
                              struct sm_error *error)
{
    struct sm_device *device = request->device;
    uint64_t need = sm_align_up(request->size, device->granularity);
    seam_result result;
    bool found;
    sm_lock_take(&device->heap_lock);
    found = make_plan(request, plan);
    sm_lock_give(&device->heap_lock);
    if (found)
        return SEAM_OK;
    *shortage = (struct sm_shortage){.obstacle = SM_OBSTACLE_ADDRESS, .bytes = need};
    result = add_extent(device, request->home, need, error);
    if (result)
        return result;
    sm_lock_take(&device->heap_lock);
    found = make_plan(request, plan);
    sm_lock_give(&device->heap_lock);
    if (!SM_CHECK(found))
        return sm_error_set(error, SEAM_E_STATE, "device %d: a new range of %lu bytes has no room for them",
                            device->ordinal, need);
    return SEAM_OK;
}

seam_result sm_grow_piece(struct sm_request *request, uint64_t bytes, struct sm_block **piece,
                          struct sm_shortage *shortage, struct sm_error *error)
{
    struct sm_request bare = *request;
    struct batch batch;
    struct plan plan;
    seam_result result;
    bare.size = bare.requested = bytes;
    bare.lend = true;
    result = find_place(&bare, &plan, shortage, error);
    if (!result)
        result = attempt(&bare, &plan, plan.least, &batch, piece, shortage, error);
    return result;
}

struct sm_block *sm_grow_hit(struct sm_request *request)
{
    struct sm_device *device = request->device;
    struct sm_block *block;
    sm_lock_take(&device->heap_lock);
    block = sm_pool_hit(request);
    if (block)
        sm_pool_count(request, block);
    sm_lock_give(&device->heap_lock);
    return block;
}

/* PyTorch's expandable segments take a free range that best fit refused (split limit) when it begins a run.
 * Heap lock held, one record prepared. NULL when it was taken meanwhile. */
static struct sm_block *take_before(struct sm_request *request, const struct plan *plan)
{
    struct sm_block *range = plan->gap->prev;
    if (!range || range->state != SM_BLOCK_FREE || range->size < request->size)
        return NULL;
    sm_block_take(range, request->size, request->requested, true);
    return range;
}

/* Requests below this grow rather than stitch, unless memory is short: their growth is small, a view costs as
 * much as for large. */
#define STITCH_MIN_GRANULES 4

/* Above the peak of live bytes and its slack, free memory of other places is worth its driver calls. SEAM_OK
 * and no block: growth is better. */
static seam_result join(struct sm_request *request, const struct plan *plan, struct sm_block **block,
                        struct sm_shortage *shortage, struct sm_error *error)
{
    struct sm_device *device = request->device;
    if (device->heap.reserved + plan->least <=
        sm_growth_free_limit(&device->options, plan->state.live_peak, plan->state.pressure))
        return SEAM_OK;
    sm_lock_take(&device->heap_lock);
    *block = sm_stitch_borrow(request);
    if (*block)
        sm_pool_count(request, *block);
    sm_lock_give(&device->heap_lock);
    if (*block || request->size < STITCH_MIN_GRANULES * device->granularity)
        return SEAM_OK;
    seam_result result = sm_stitch(request, plan->least, block, shortage, error);
    /* A driver that refuses a view may still grant memory. */
    return result == SEAM_E_HOST_OOM ? result : SEAM_OK;
}

static seam_result grow_home(struct sm_request *request, struct sm_block **block,
                             struct sm_shortage *shortage, struct sm_error *error)
{
    struct sm_device *device = request->device;
    struct batch batch;
    struct plan plan;
    seam_result result = find_place(request, &plan, shortage, error);
    if (result)
        return result;
    if (!plan.state.missing) {
        sm_lock_take(&device->heap_lock);
        bool ready = sm_heap_prepare(&device->heap, 1);
        *block = ready ? take_before(request, &plan) : NULL;
        if (*block)
            sm_pool_count(request, *block);
        sm_lock_give(&device->heap_lock);
        return ready ? SEAM_OK
                     : sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the record of a block");
    }
    if (sm_stitch_applies(request)) {
        result = join(request, &plan, block, shortage, error);
        if (result || *block)
            return result;
        /* An attempt that failed late may have left new memory in the gap. */
        result = find_place(request, &plan, shortage, error);
        if (result)
            return result;
    }
    result = attempt(request, &plan, plan.wanted, &batch, block, shortage, error);
    if (sm_is_shortage(result) && plan.least < plan.wanted)
        result = attempt(request, &plan, plan.least, &batch, block, shortage, error);
    if (sm_is_shortage(result) && sm_stitch_applies(request)) {
        struct sm_shortage other;
        seam_result stitched = sm_stitch(request, plan.least, block, &other, NULL);
        result = !stitched && *block ? SEAM_OK : result;
    }
    return result;
}

/* ---- plain segments ---- */

/* The driver gave a segment, whose records were made ready: serves the request from it. */
static struct sm_block *publish_segment(struct sm_request *request, CUdeviceptr base, uint64_t bytes)
{
    struct sm_device *device = request->device;
    struct batch batch = {.count = 1, .sizes = {bytes}, .names = {base}};
    struct plan plan = {.address = base, .apart = true};
    struct sm_block *block;
    sm_heap_redeem(&device->heap, PUBLISH_RECORDS);
    plan.gap = sm_extent_add_plain(request->home, base, bytes)->first;
    block = publish(request, &plan, &batch, bytes);
    sm_pool_count(request, block);
    return block;
}

/* Everything that a segment needs of host memory. Heap lock held. */
static bool ready_segment(struct sm_heap *heap, uint64_t bytes)
{
    if (!sm_heap_promise(heap, PUBLISH_RECORDS))
        return false;
    if (sm_extent_ready(heap, bytes, 1))
        return true;
    sm_heap_redeem(heap, PUBLISH_RECORDS);
    return false;
}

/* A segment for the request, as PyTorch's native allocator gets it: a plain allocation that joins with
 * nothing. */
static seam_result grow_segment(struct sm_request *request, struct sm_block **block,
                                struct sm_shortage *shortage, struct sm_error *error)
{
    struct sm_device *device = request->device;
    struct sm_driver *driver = device->allocator->driver;
    uint64_t bytes = sm_growth_segment(&device->options, request->size);
    CUdeviceptr base = 0;
    CUresult code;
    char text[160];
    shortage->bytes = bytes;
    if (exceeds_limit(device, bytes, shortage, error))
        return SEAM_E_LIMIT;
    sm_lock_take(&device->heap_lock);
    bool ready = ready_segment(&device->heap, bytes);
    sm_lock_give(&device->heap_lock);
    if (!ready)
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the record of a segment of %lu bytes",
                            bytes);
    code = SM_CALL(driver, cuMemAlloc, &base, bytes);
    sm_lock_take(&device->heap_lock);
    if (code == CUDA_SUCCESS) {
        *block = publish_segment(request, base, bytes);
    } else {
        sm_extent_unready(&device->heap);
        sm_heap_redeem(&device->heap, PUBLISH_RECORDS);
        sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
    }
    sm_lock_give(&device->heap_lock);
    if (code == CUDA_SUCCESS)
        return SEAM_OK;
    shortage->obstacle = SM_OBSTACLE_DEVICE;
    return sm_error_set(error, code == CUDA_ERROR_OUT_OF_MEMORY ? SEAM_E_DEVICE_OOM : SEAM_E_DEVICE,
                        "device %d: cuMemAlloc of %lu bytes: %s", device->ordinal, bytes,
                        sm_driver_text(driver, code, text, sizeof(text)));
}

seam_result sm_grow(struct sm_request *request, struct sm_block **block, struct sm_shortage *shortage,
                    struct sm_error *error)
{
    struct sm_device *device = request->device;
    const struct sm_options *options = &device->options;
    bool plain = options->policy == SM_POLICY_NATIVE;
    bool moved = false;
    seam_result result = SEAM_OK;
    *shortage = (struct sm_shortage){.obstacle = SM_OBSTACLE_DEVICE, .bytes = request->size};
    /* PyTorch asks once whether there is room for a segment, and maps what is missing without asking
     * again. */
    if (options->policy == SM_POLICY_EXPANDABLE &&
        exceeds_limit(device, sm_growth_segment(options, request->size), shortage, error))
        return SEAM_E_LIMIT;
    if (!plain && sm_align_up(request->size, device->granularity) > device->total_bytes)
        return sm_error_set(error, SEAM_E_DEVICE_OOM, "device %d has %lu bytes in all", device->ordinal,
                            device->total_bytes);
    if (sm_stitch_applies(request))
        sm_stitch_refresh(request);
    *block = request->anew ? NULL : sm_grow_hit(request);
    while (!result && !*block) {
        result = plain ? grow_segment(request, block, shortage, error)
                       : grow_home(request, block, shortage, error);
        if (result == SEAM_E_DEVICE && shortage->obstacle == SM_OBSTACLE_PLACE && !moved) {
            moved = true;
            result = SEAM_OK;
        }
        if (!result && !*block)
            *block = sm_grow_hit(request);
    }
    if (result)
        sm_trim_addresses(device);
    return result;
}
