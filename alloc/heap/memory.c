/* SPDX-License-Identifier: Apache-2.0 */
/* memory: extents, the handles mapped in them, and the gaps between.
 *
 * An extent is tiled by blocks; what has no memory is an UNMAPPED block, a gap. Growth fills a gap from its
 * low end, a trim carves whole handles out of free ranges and leaves gaps. A table from granule to handle
 * answers "which handle lies here" in O(1); it is as long as the extent was ever mapped, not as long as the
 * reservation.
 *
 * Protected by: the device's heap lock. */
#include "alloc/heap/internal.h"
#include "base/align.h"
#include "base/log.h"
#include <string.h>

#define SLOTS_MIN    8
#define GRANULES_MIN 64

void sm_extent_free(struct sm_extent *extent)
{
    sm_hostmem_put(extent->handles, extent->handle_slots * sizeof(*extent->handles));
    sm_hostmem_put(extent->granules, extent->granule_count * sizeof(*extent->granules));
    sm_hostmem_put(extent, sizeof(*extent));
}

static bool make_tables(struct sm_extent *extent, uint64_t granules, uint32_t handles);

bool sm_extent_ready(struct sm_heap *heap, uint64_t mapped, uint32_t handles)
{
    uint64_t granules = (mapped + heap->granularity - 1) >> heap->granule_shift;
    if (!heap->spare && !(heap->spare = sm_hostmem_get(sizeof(*heap->spare))))
        return false;
    if (!make_tables(heap->spare, granules, handles) || !sm_map_reserve(&heap->map) ||
        !sm_heap_promise(heap, 1))
        return false;
    heap->spare_promised = true;
    return true;
}

void sm_extent_unready(struct sm_heap *heap)
{
    sm_heap_redeem(heap, 1);
    heap->spare_promised = false;
}

static struct sm_extent *add_extent(struct sm_home *home, uint64_t base, uint64_t size, bool plain)
{
    struct sm_heap *heap = home->heap;
    struct sm_extent *extent;
    struct sm_block *gap;
    if (!heap->spare_promised && !sm_extent_ready(heap, 0, 0))
        return NULL;
    sm_extent_unready(heap);
    extent = heap->spare;
    heap->spare = NULL;
    gap = sm_slab_take(&heap->blocks);
    *gap = (struct sm_block){.address = base, .size = size, .extent = extent, .state = SM_BLOCK_UNMAPPED};
    extent->home = home;
    extent->base = base;
    extent->size = size;
    extent->plain = plain;
    extent->first = extent->last = gap;
    TAILQ_INSERT_TAIL(&home->gaps, gap, gap);
    TAILQ_INSERT_TAIL(&home->extents, extent, link);
    sm_map_add(&heap->map, base, size, home, home->tag);
    heap->address_bytes += plain ? 0 : size;
    return extent;
}

struct sm_extent *sm_extent_add(struct sm_home *home, uint64_t base, uint64_t size)
{
    return add_extent(home, base, size, false);
}

struct sm_extent *sm_extent_add_plain(struct sm_home *home, uint64_t base, uint64_t size)
{
    return add_extent(home, base, size, true);
}

void sm_extent_remove(struct sm_extent *extent)
{
    struct sm_home *home = extent->home;
    SM_ASSERT(!extent->mapped && extent->first == extent->last && extent->first->state == SM_BLOCK_UNMAPPED);
    TAILQ_REMOVE(&home->gaps, extent->first, gap);
    sm_slab_give(&home->heap->blocks, extent->first);
    TAILQ_REMOVE(&home->extents, extent, link);
    sm_map_remove(&home->heap->map, extent->base);
    home->heap->address_bytes -= extent->plain ? 0 : extent->size;
    sm_extent_free(extent);
}

/* ---- growth ---- */

static uint64_t free_size(const struct sm_block *block)
{
    return block && block->state == SM_BLOCK_FREE ? block->size : 0;
}

uint64_t sm_gap_missing(const struct sm_heap *heap, const struct sm_block *gap, uint64_t size)
{
    uint64_t before = free_size(gap->prev), rounded;
    uint64_t need = size > before ? size - before : 0;
    if (sm_align_up_checked(need, heap->granularity, &rounded) && rounded <= gap->size)
        return sm_max(rounded, heap->granularity);
    /* Filled whole, the gap joins what lies behind it. */
    return need - sm_min(need, gap->size) <= free_size(gap->next) ? gap->size : 0;
}

struct sm_block *sm_home_best_gap(struct sm_home *home, uint64_t size, uint64_t *missing)
{
    struct sm_block *gap, *best = NULL;
    uint64_t least = 0;
    TAILQ_FOREACH(gap, &home->gaps, gap) {
        uint64_t need = gap->extent->shut ? 0 : sm_gap_missing(home->heap, gap, size);
        if (need && (!best || need < least || (need == least && gap->address < best->address))) {
            best = gap;
            least = need;
        }
    }
    if (best)
        *missing = least;
    return best;
}

/* Does a run of free ranges and gaps from `block` on hold `size` bytes? */
static bool run_holds(const struct sm_block *block, uint64_t size)
{
    uint64_t sum = 0;
    for (; block && sum < size && (block->state == SM_BLOCK_FREE || block->state == SM_BLOCK_UNMAPPED);
         block = block->next)
        sum += block->size;
    return sum >= size;
}

struct sm_block *sm_home_first_run(struct sm_home *home, uint64_t size, uint64_t *missing)
{
    struct sm_block *gap, *first = NULL;
    TAILQ_FOREACH(gap, &home->gaps, gap) {
        const struct sm_block *start = free_size(gap->prev) ? gap->prev : gap;
        if (!gap->extent->shut && (!first || gap->address < first->address) && run_holds(start, size))
            first = gap;
    }
    if (first) {
        uint64_t before = free_size(first->prev);
        *missing = size > before ? sm_min(size - before, first->size) : 0;
    }
    return first;
}

bool sm_extent_prepare(struct sm_extent *extent, uint64_t end, uint32_t count)
{
    return make_tables(extent, sm_extent_granule(extent, end - 1) + 1, count);
}

/* Room in the tables for this many granules in all and `count` more handles. */
static bool make_tables(struct sm_extent *extent, uint64_t granules, uint32_t count)
{
    if (granules > extent->granule_count) {
        uint64_t longer =
            sm_max(sm_max(granules, GRANULES_MIN), extent->granule_count + extent->granule_count / 4);
        uint32_t *table = sm_hostmem_resize(extent->granules, extent->granule_count * sizeof(*table),
                                            longer * sizeof(*table));
        if (!table)
            return false;
        extent->granules = table;
        extent->granule_count = longer;
    }
    if (extent->handle_count + count > extent->handle_slots) {
        uint32_t slots = extent->handle_slots + extent->handle_slots / 2 + count + SLOTS_MIN;
        struct sm_handle *handles = sm_hostmem_resize(
            extent->handles, extent->handle_slots * sizeof(*handles), slots * sizeof(*handles));
        if (!handles)
            return false;
        extent->handle_hint = extent->handle_slots;
        extent->handles = handles;
        extent->handle_slots = slots;
    }
    return true;
}

static void add_handle(struct sm_extent *extent, uint64_t address, uint64_t size, uint64_t name)
{
    uint32_t slot = extent->handle_hint;
    SM_ASSERT(extent->handle_count < extent->handle_slots);
    while (extent->handles[slot % extent->handle_slots].size)
        slot++;
    slot %= extent->handle_slots;
    extent->handles[slot] = (struct sm_handle){.address = address, .size = size, .name = name};
    extent->handle_hint = slot + 1;
    extent->handle_count++;
    for (uint64_t g = sm_extent_granule(extent, address); g <= sm_extent_granule(extent, address + size - 1);
         g++)
        extent->granules[g] = slot + 1;
    extent->mapped += size;
    extent->home->mapped += size;
    extent->home->heap->reserved += size;
    extent->home->heap->handles += !extent->plain;
}

static void drop_handle(struct sm_extent *extent, struct sm_handle *handle)
{
    for (uint64_t g = sm_extent_granule(extent, handle->address);
         g <= sm_extent_granule(extent, handle->address + handle->size - 1); g++)
        extent->granules[g] = 0;
    extent->mapped -= handle->size;
    extent->home->mapped -= handle->size;
    extent->home->heap->reserved -= handle->size;
    extent->home->heap->handles -= !extent->plain;
    extent->handle_hint = (uint32_t)(handle - extent->handles);
    extent->handle_count--;
    *handle = (struct sm_handle){0};
}

void sm_block_own_handles(struct sm_block *block, uint64_t from, uint64_t to)
{
    const struct sm_extent *extent = block->extent;
    struct sm_handle *handle = sm_extent_handle_at(extent, from);
    if (handle && handle->address < from)
        handle = sm_extent_handle_at(extent, handle->address + handle->size);
    for (; handle && handle->address < to;
         handle = sm_extent_handle_at(extent, handle->address + handle->size))
        handle->first = block;
}

static uint64_t *segments_of(const struct sm_extent *extent)
{
    return &extent->home->heap->counts[extent->home->key.small_class].segments;
}

static bool is_mapped(const struct sm_block *block)
{
    return block && block->state != SM_BLOCK_UNMAPPED;
}

struct sm_block *sm_gap_fill(struct sm_block *gap, const uint64_t *sizes, const uint64_t *names,
                             uint32_t count)
{
    struct sm_extent *extent = gap->extent;
    uint64_t address = gap->address;
    for (uint32_t i = 0; i < count; i++) {
        add_handle(extent, address, sizes[i], names[i]);
        address += sizes[i];
    }
    sm_block_own_handles(gap, gap->address, address);
    TAILQ_REMOVE(&extent->home->gaps, gap, gap);
    if (address < sm_block_end(gap)) {
        struct sm_block *rest = sm_block_divide(gap, address);
        TAILQ_INSERT_TAIL(&extent->home->gaps, rest, gap);
    }
    *segments_of(extent) += (uint64_t)1 - is_mapped(gap->prev) - is_mapped(gap->next);
    gap->state = SM_BLOCK_FREE;
    return sm_free_join(gap);
}

/* ---- trim ---- */

/* Is the handle that ends at an address mapped in views? *begin: where it begins. */
static bool views_below(const struct sm_extent *extent, uint64_t end, uint64_t *begin)
{
    const struct sm_handle *handle = sm_extent_handle_at(extent, end - 1);
    if (!SM_CHECK(handle))
        return true;
    *begin = handle->address;
    return handle->views > 0;
}

/* The highest run of whole handles in a FREE block that no view maps, at most `most` bytes. Returns: false if
 * there is none. */
static bool find_carvable(const struct sm_block *block, uint64_t most, uint64_t *from, uint64_t *to)
{
    const struct sm_extent *extent = block->extent;
    uint64_t low = sm_extent_boundary_up(extent, block->address);
    uint64_t high = sm_extent_boundary_down(extent, sm_block_end(block));
    uint64_t begin = high;
    while (high > low && views_below(extent, high, &begin))
        high = begin;
    *from = *to = high;
    while (*from > low && *to - *from < most && !views_below(extent, *from, &begin))
        *from = begin;
    return *from < *to;
}

bool sm_block_can_carve(const struct sm_block *block)
{
    uint64_t from, to;
    return block->whole && find_carvable(block, 1, &from, &to);
}

struct sm_block *sm_block_carve(struct sm_block *block, uint64_t most)
{
    struct sm_extent *extent = block->extent;
    struct sm_block *carved = block;
    uint64_t from, to;
    if (!block->whole || !find_carvable(block, most, &from, &to))
        return NULL;
    sm_free_remove(block);
    if (to < sm_block_end(block))
        sm_free_insert(sm_block_divide(block, to));
    if (from > block->address) {
        carved = sm_block_divide(block, from);
        sm_free_insert(block);
    }
    carved->state = SM_BLOCK_UNMAPPED;
    /* It still counts as free whole memory until it is gone. */
    extent->home->whole += carved->size;
    extent->home->heap->parts.bytes[SM_PART_whole_free] += (int64_t)carved->size;
    *segments_of(extent) += (uint64_t)is_mapped(carved->prev) + is_mapped(carved->next) - 1;
    return carved;
}

void sm_carved_forget(struct sm_block *carved, uint64_t address)
{
    struct sm_extent *extent = carved->extent;
    struct sm_handle *handle = sm_extent_handle_at(extent, address);
    extent->home->whole -= handle->size;
    extent->home->heap->parts.bytes[SM_PART_whole_free] -= (int64_t)handle->size;
    drop_handle(extent, handle);
}

void sm_heap_lose(struct sm_heap *heap, uint64_t size)
{
    heap->lost += size;
    heap->reserved += size;
    heap->handles++;
    heap->parts.bytes[SM_PART_whole_free] += (int64_t)size;
}

void sm_heap_find(struct sm_heap *heap, uint64_t size)
{
    heap->lost -= size;
    heap->reserved -= size;
    heap->handles--;
    heap->parts.bytes[SM_PART_whole_free] -= (int64_t)size;
}

void sm_heap_lose_addresses(struct sm_heap *heap, uint64_t size)
{
    heap->lost_addresses += size;
    heap->address_bytes += size;
}

void sm_heap_find_addresses(struct sm_heap *heap, uint64_t size)
{
    heap->lost_addresses -= size;
    heap->address_bytes -= size;
}

void sm_carved_return(struct sm_block *carved, uint64_t from)
{
    struct sm_extent *extent = carved->extent;
    struct sm_heap *heap = extent->home->heap;
    struct sm_block *back = from > carved->address ? sm_block_divide(carved, from) : carved;
    *segments_of(extent) += (uint64_t)1 - (back == carved && is_mapped(back->prev)) - is_mapped(back->next);
    extent->home->whole -= back->size;
    heap->parts.bytes[SM_PART_whole_free] -= (int64_t)back->size;
    back->state = SM_BLOCK_FREE;
    sm_free_join(back);
    if (back != carved)
        sm_carved_close(carved);
}

static bool is_gap(const struct sm_block *block)
{
    return block && block->state == SM_BLOCK_UNMAPPED;
}

void sm_carved_close(struct sm_block *carved)
{
    struct sm_gap_list *gaps = &carved->extent->home->gaps;
    if (is_gap(carved->next)) {
        TAILQ_REMOVE(gaps, carved->next, gap);
        sm_block_absorb(carved, carved->next);
    }
    if (is_gap(carved->prev)) {
        struct sm_block *left = carved->prev;
        TAILQ_REMOVE(gaps, left, gap);
        sm_block_absorb(left, carved);
        carved = left;
    }
    TAILQ_INSERT_TAIL(gaps, carved, gap);
}
