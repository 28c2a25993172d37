/* SPDX-License-Identifier: Apache-2.0 */
/* pytorch: what native and expandable give back, and in which order, so that the device sees the calls that
 * PyTorch's own allocator would make.
 *
 *   collect      at a miss, above a share of the limit: segments of the large class that lay unused for at
 *                least as many requests as they do on average; again, with the average of the rest, until
 *                enough has gone
 *   give enough  with a split limit: one segment that the limit keeps whole and the request fits into, or
 *                several, the largest first; of the request's home alone
 *   give all     everything that is free and whole
 *
 * A segment is whole when one free range fills it. Among several, the large class goes before the small one,
 * then they go by stream, size and address: addresses that the driver gets back in the same order are given
 * out in the same order. Protected by: memory lock; choosing, by the heap lock. */
#include "alloc/engine.h"
#include "base/align.h"

/* Requests since the range became free. */
static uint32_t unused_for(const struct sm_block *range)
{
    return range->extent->home->heap->requests - range->birth;
}

/* Of the default pool's large class, which alone is collected. */
static bool is_collected(const struct sm_home *home)
{
    return !home->key.small_class && !home->key.pool_first && !home->key.pool_second;
}

static struct sm_block *first_segment(struct sm_home *home, double unused)
{
    struct sm_block *range;
    RB_FOREACH(range, sm_free_tree, &home->free_ranges)
        if (sm_block_can_carve(range) && unused_for(range) >= unused)
            return range;
    return NULL;
}

static bool goes_before(const struct sm_home *a, const struct sm_home *b)
{
    const struct sm_stream *of_a = a->key.stream, *of_b = b->key.stream;
    if (a->key.small_class != b->key.small_class)
        return b->key.small_class;
    return (uintptr_t)of_a->stream < (uintptr_t)of_b->stream;
}

/* The next one that is unused for so long; heap lock held. NULL if there is none. */
static struct sm_block *next_segment(struct sm_device *device, double unused, bool collected_only)
{
    struct sm_block *range, *best = NULL;
    struct sm_home *home;
    LIST_FOREACH(home, &device->heap.homes, link) {
        if (!home->whole || !sm_capture_may_trim(device, home) || (collected_only && !is_collected(home)))
            continue;
        if (best && !goes_before(home, best->extent->home))
            continue;
        range = first_segment(home, unused);
        best = range ? range : best;
    }
    return best;
}

/* Heap lock held. Returns: how many segments may be collected. */
static uint64_t sum_ages(struct sm_device *device, uint64_t *age)
{
    struct sm_block *range;
    struct sm_home *home;
    uint64_t count = 0;
    *age = 0;
    LIST_FOREACH(home, &device->heap.homes, link) {
        if (!is_collected(home))
            continue;
        RB_FOREACH(range, sm_free_tree, &home->free_ranges) {
            if (!sm_block_can_carve(range))
                continue;
            *age += unused_for(range);
            count++;
        }
    }
    return count;
}

/* Gives back what is unused for so long, even if less would be enough. */
static uint64_t collect_older(struct sm_device *device, double unused, uint64_t *age, uint64_t *count)
{
    struct sm_block *range;
    uint64_t given = 0;
    while (*count && (range = next_segment(device, unused, true))) {
        uint64_t its_age = unused_for(range), got = sm_trim_range(device, range);
        if (!got)
            break;
        given += got;
        *age -= sm_min(its_age, *age);
        (*count)--;
    }
    return given;
}

bool sm_pytorch_collect(struct sm_device *device)
{
    uint64_t age, count, got, given = 0;
    if (device->limit == SM_UNLIMITED || device->options.policy != SM_POLICY_NATIVE)
        return false;
    uint64_t mark = (uint64_t)(device->options.garbage_collection_threshold * (double)device->limit);
    if (device->heap.reserved <= mark)
        return false;
    uint64_t wanted = device->heap.reserved - mark;
    sm_lock_take(&device->heap_lock);
    count = sum_ages(device, &age);
    do {
        got = count ? collect_older(device, (double)age / (double)count, &age, &count) : 0;
        given += got;
    } while (got && given < wanted);
    sm_lock_give(&device->heap_lock);
    return given > 0;
}

bool sm_pytorch_give_enough(const struct sm_request *request)
{
    struct sm_device *device = request->device;
    uint64_t limit = device->options.max_split_size, got, given = 0;
    if (limit == SM_UNLIMITED || device->options.policy != SM_POLICY_NATIVE)
        return false;
    uint64_t wanted = sm_max(request->size, limit);
    sm_lock_take(&device->heap_lock);
    struct sm_block *range = sm_home_best_fit(request->home, wanted);
    bool pinned = !sm_capture_may_trim(device, request->home); /* PyTorch does not ask */
    while (!pinned && given < wanted) {
        if (!range)
            range = sm_home_largest(request->home);
        if (!range || range->size < limit || !sm_block_can_carve(range))
            break;
        got = sm_trim_range(device, range);
        if (!got)
            break;
        given += got;
        range = NULL;
    }
    sm_lock_give(&device->heap_lock);
    return given >= wanted;
}

void sm_pytorch_give_all(struct sm_device *device)
{
    struct sm_block *range;
    if (device->options.policy == SM_POLICY_NATIVE) {
        sm_lock_take(&device->heap_lock);
        while ((range = next_segment(device, 0, false)) && sm_trim_range(device, range))
            ;
        sm_lock_give(&device->heap_lock);
    }
    sm_trim(device, UINT64_MAX, SM_TRIM_WAIT,
            NULL); /* under native: what stands behind one that was refused */
    sm_trim_addresses(device);
}
