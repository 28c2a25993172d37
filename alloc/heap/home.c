/* SPDX-License-Identifier: Apache-2.0 */
/* home: blocks of a home, from free to live and back.
 *
 * 1. A request takes the smallest free range that holds it, the lowest address among equals, so that high
 * memory drains.
 * 2. It gets the range's low end; the rest stays free.
 * 3. A block that comes back joins its free neighbours, byte for byte, across the borders of handles.
 *
 * Cost: O(log n) for n free ranges of the home. Protected by: the device's heap lock, or,
 * while the home is leased, the lease's. */
#include "alloc/heap/internal.h"
#include "alloc/heap/view.h"
#include "base/align.h"
#include "base/log.h"

int sm_free_order(const struct sm_block *a, const struct sm_block *b)
{
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return a->address < b->address ? -1 : a->address > b->address;
}

RB_GENERATE(sm_free_tree, sm_block, by_size, sm_free_order)

void sm_heap_init(struct sm_heap *heap, uint64_t granularity)
{
    SM_ASSERT(sm_is_pow2(granularity) && granularity >= 512);
    *heap = (struct sm_heap){.granularity = granularity, .granule_shift = sm_log2(granularity)};
    sm_slab_init(&heap->blocks, sizeof(struct sm_block));
    sm_slab_init(&heap->fences, sizeof(struct sm_fence));
    LIST_INIT(&heap->homes);
    TAILQ_INIT(&heap->views);
}

static void free_home(struct sm_home *home)
{
    LIST_REMOVE(home, link);
    sm_index_fini(&home->index);
    sm_hostmem_put(home, sizeof(*home));
}

void sm_heap_fini(struct sm_heap *heap)
{
    struct sm_home *home;
    while ((home = LIST_FIRST(&heap->homes))) {
        struct sm_extent *extent;
        while ((extent = TAILQ_FIRST(&home->extents))) {
            TAILQ_REMOVE(&home->extents, extent, link);
            sm_extent_free(extent);
        }
        free_home(home);
    }
    if (heap->spare)
        sm_extent_free(heap->spare);
    sm_view_fini(heap);
    sm_slab_fini(&heap->blocks);
    sm_slab_fini(&heap->fences);
    sm_index_fini(&heap->index);
    sm_map_fini(&heap->map);
}

bool sm_heap_prepare(struct sm_heap *heap, size_t records)
{
    return sm_slab_reserve(&heap->blocks, records + heap->promised);
}

bool sm_heap_promise(struct sm_heap *heap, size_t records)
{
    if (!sm_heap_prepare(heap, records))
        return false;
    heap->promised += records;
    return true;
}

void sm_heap_redeem(struct sm_heap *heap, size_t records)
{
    SM_ASSERT(heap->promised >= records);
    heap->promised -= records;
}

struct sm_home *sm_home_create(struct sm_heap *heap, const struct sm_home_key *key)
{
    struct sm_home *home = sm_hostmem_get(sizeof(*home));
    if (!home)
        return NULL;
    home->heap = heap;
    home->key = *key;
    home->parts = &heap->parts;
    home->counts = &heap->counts[key->small_class];
    home->records = &heap->blocks;
    RB_INIT(&home->free_ranges);
    TAILQ_INIT(&home->extents);
    TAILQ_INIT(&home->gaps);
    LIST_INSERT_HEAD(&heap->homes, home, link);
    return home;
}

void sm_home_destroy(struct sm_home *home)
{
    SM_ASSERT(TAILQ_EMPTY(&home->extents));
    free_home(home);
}

/* ---- homes that are apart ---- */

void sm_home_part(struct sm_home *home, struct sm_apart *apart, size_t records)
{
    apart->parts = (struct sm_parts){{0}};
    apart->counts = (struct sm_heap_counts){0};
    sm_slab_lend(&home->heap->blocks, &apart->records, 0);
    sm_home_supply(home, apart, records);
    home->parts = &apart->parts;
    home->counts = &apart->counts;
    home->records = &apart->records;
}

void sm_home_supply(struct sm_home *home, struct sm_apart *apart, size_t records)
{
    struct sm_slab *blocks = &home->heap->blocks;
    size_t spare = blocks->capacity - blocks->count, promised = home->heap->promised;
    sm_slab_lend_more(blocks, &apart->records, sm_min(records, spare > promised ? spare - promised : 0));
}

void sm_home_rejoin(struct sm_home *home, struct sm_apart *apart)
{
    struct sm_heap *heap = home->heap;
    home->parts = &heap->parts;
    home->counts = &heap->counts[home->key.small_class];
    home->records = &heap->blocks;
    for (int i = 0; i < SM_PART_COUNT; i++)
        heap->parts.bytes[i] += apart->parts.bytes[i];
    home->counts->segments += apart->counts.segments;
    home->counts->held_ranges += apart->counts.held_ranges;
    home->counts->held += apart->counts.held;
    home->counts->splits += apart->counts.splits;
    home->counts->merges += apart->counts.merges;
    sm_slab_unlend(&heap->blocks, &apart->records);
}

/* ---- blocks ---- */

struct sm_block *sm_block_divide(struct sm_block *left, uint64_t address)
{
    struct sm_block *right = sm_slab_take(left->extent->home->records);
    SM_ASSERT(right && address > left->address && address < sm_block_end(left));
    right->address = address;
    right->size = sm_block_end(left) - address;
    right->extent = left->extent;
    right->state = left->state;
    right->prev = left;
    right->next = left->next;
    if (right->next)
        right->next->prev = right;
    else
        left->extent->last = right;
    left->next = right;
    left->size = address - left->address;
    sm_block_own_handles(right, right->address, sm_block_end(right));
    return right;
}

void sm_block_absorb(struct sm_block *left, struct sm_block *right)
{
    SM_ASSERT(left->next == right && sm_block_end(left) == right->address);
    sm_block_own_handles(left, right->address, sm_block_end(right));
    left->size += right->size;
    left->next = right->next;
    if (left->next)
        left->next->prev = left;
    else
        left->extent->last = left;
    sm_slab_give(left->extent->home->records, right);
}

/* Moves a free range's bytes into (+1) or out of (-1) the sums. */
static void count_free(struct sm_block *block, int sign)
{
    struct sm_home *home = block->extent->home;
    uint64_t held = block->size - block->whole;
    home->whole += (uint64_t)sign * block->whole;
    home->held += (uint64_t)sign * held;
    home->parts->bytes[SM_PART_whole_free] += sign * (int64_t)block->whole;
    home->parts->bytes[SM_PART_held_free] += sign * (int64_t)held;
    home->counts->held_ranges += (uint64_t)sign * (held > 0);
    home->counts->held += (uint64_t)sign * held;
}

/* Bytes in handles that lie wholly inside [from, to), a mapped range of the extent. */
static uint64_t whole_bytes(const struct sm_extent *extent, uint64_t from, uint64_t to)
{
    const struct sm_handle *handle = sm_extent_handle_at(extent, from);
    uint64_t up, down;
    SM_ASSERT(handle);
    if (to < handle->address + handle->size)
        return 0;
    up = handle->address == from ? from : handle->address + handle->size;
    down = sm_extent_boundary_down(extent, to);
    return down > up ? down - up : 0;
}

uint64_t sm_block_whole_behind(const struct sm_block *block, uint64_t size)
{
    if (!block->whole || size == block->size)
        return 0;
    return whole_bytes(block->extent, block->address + size, sm_block_end(block));
}

void sm_free_insert(struct sm_block *block)
{
    block->state = SM_BLOCK_FREE;
    block->whole = whole_bytes(block->extent, block->address, sm_block_end(block));
    block->birth = atomic_load_explicit(&sm_block_heap(block)->requests, memory_order_relaxed);
    RB_INSERT(sm_free_tree, &block->extent->home->free_ranges, block);
    count_free(block, 1);
}

void sm_free_remove(struct sm_block *block)
{
    SM_ASSERT(block->state == SM_BLOCK_FREE);
    RB_REMOVE(sm_free_tree, &block->extent->home->free_ranges, block);
    count_free(block, -1);
}

struct sm_block *sm_free_join(struct sm_block *block)
{
    struct sm_heap_counts *counts = block->extent->home->counts;
    if (block->next && block->next->state == SM_BLOCK_FREE) {
        sm_free_remove(block->next);
        sm_block_absorb(block, block->next);
        counts->merges++;
    }
    if (block->prev && block->prev->state == SM_BLOCK_FREE) {
        block = block->prev;
        sm_free_remove(block);
        sm_block_absorb(block, block->next);
        counts->merges++;
    }
    sm_free_insert(block);
    return block;
}

struct sm_block *sm_home_block(const struct sm_home *home, uint64_t address)
{
    return sm_index_find(&home->index, address);
}

struct sm_block *sm_heap_block(const struct sm_heap *heap, uint64_t address)
{
    const struct sm_home *home = sm_map_home(&heap->map, address);
    return home ? sm_home_block(home, address) : sm_index_find(&heap->index, address);
}

size_t sm_heap_live(const struct sm_heap *heap)
{
    size_t live = heap->index.count;
    const struct sm_home *home;
    LIST_FOREACH(home, &heap->homes, link)
        live += home->index.count;
    return live;
}

struct sm_block *sm_home_best_fit(struct sm_home *home, uint64_t size)
{
    struct sm_block key = {.size = size}; /* address 0 sorts before every block of this size */
    return RB_NFIND(sm_free_tree, &home->free_ranges, &key);
}

/* A range's size and that of the gap behind it. */
static uint64_t room_of(const struct sm_block *block)
{
    bool gap = block->next && block->next->state == SM_BLOCK_UNMAPPED;
    return block->size + (gap ? block->next->size : 0);
}

struct sm_block *sm_home_sheltered_fit(struct sm_block *block)
{
    struct sm_block *next;
    while ((next = RB_NEXT(sm_free_tree, NULL, block)) && room_of(next) < room_of(block))
        block = next;
    return block;
}

struct sm_block *sm_home_largest(struct sm_home *home)
{
    return RB_MAX(sm_free_tree, &home->free_ranges);
}

/* The block is in no index and has its final extent: hands it out. */
static void make_live(struct sm_block *block, uint64_t requested)
{
    struct sm_home *home = block->extent->home;
    block->state = SM_BLOCK_LIVE;
    block->requested = requested;
    block->fence = NULL;
    block->pieces = NULL;
    block->stream = home->key.stream;
    home->used += block->size;
    home->parts->bytes[SM_PART_requested_live] += (int64_t)requested;
    home->parts->bytes[SM_PART_rounding] += (int64_t)(block->size - requested);
    sm_index_insert(&home->index, block);
}

void sm_block_take(struct sm_block *block, uint64_t size, uint64_t requested, bool split)
{
    SM_ASSERT(block->size >= size && size >= requested);
    sm_free_remove(block);
    if (split && size < block->size) {
        sm_free_insert(sm_block_divide(block, block->address + size));
        block->extent->home->counts->splits++;
    }
    make_live(block, requested);
}

struct sm_block *sm_block_take_at(struct sm_block *block, uint64_t address, uint64_t size, uint64_t requested)
{
    SM_ASSERT(address >= block->address && address + size <= sm_block_end(block));
    sm_free_remove(block);
    if (address > block->address) {
        struct sm_block *rest = sm_block_divide(block, address);
        sm_free_insert(block);
        block->extent->home->counts->splits++;
        block = rest;
    }
    if (size < block->size) {
        sm_free_insert(sm_block_divide(block, address + size));
        block->extent->home->counts->splits++;
    }
    make_live(block, requested);
    return block;
}

/* A LIVE block leaves the address index and the live sums. */
static void end_live(struct sm_block *block)
{
    struct sm_home *home = block->extent->home;
    if (!sm_index_remove(block->pieces ? &home->heap->index : &home->index, block))
        (void)SM_CHECK(!"a live block is in the address index");
    home->parts->bytes[SM_PART_requested_live] -= (int64_t)block->requested;
    home->parts->bytes[SM_PART_rounding] -= (int64_t)(block->size - block->requested);
}

void sm_block_pend(struct sm_block *block)
{
    SM_ASSERT(block->state == SM_BLOCK_LIVE);
    end_live(block);
    block->state = SM_BLOCK_PENDING;
    block->extent->home->parts->bytes[SM_PART_pending] += (int64_t)block->size;
}

struct sm_block *sm_block_give(struct sm_block *block)
{
    SM_ASSERT(block->state == SM_BLOCK_LIVE || block->state == SM_BLOCK_PENDING);
    if (block->state == SM_BLOCK_LIVE)
        end_live(block);
    else
        block->extent->home->parts->bytes[SM_PART_pending] -= (int64_t)block->size;
    if (block->pieces)
        return sm_view_give(block);
    block->extent->home->used -= block->size;
    return sm_free_join(block);
}
