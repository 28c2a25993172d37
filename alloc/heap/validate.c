/* SPDX-License-Identifier: Apache-2.0 */
/* validate: walks all bookkeeping and recounts it. What it finds is a fault of ours, never of a caller.
 *
 * Claims checked: blocks tile each extent; free neighbours are joined, gaps too; a block is in a free index
 * if and only if it is FREE, and in the address index if and only if it is LIVE; handles tile exactly what is
 * not UNMAPPED, and the table of granules agrees; every sum equals a recount. Protected by: the device's
 * memory lock and heap lock. */
#include "alloc/heap/internal.h"
#include "alloc/heap/view.h"
#include "base/align.h"

#define FAIL(...) return sm_error_set(error, SEAM_E_STATE, __VA_ARGS__)

struct recount {
    struct sm_parts parts;
    uint64_t live, stitched, blocks, handles, views, reserved, address_bytes;
    struct sm_heap_counts counts[2];
    uint64_t home_mapped, home_used, home_held, home_whole, home_gaps, home_free;
};

static seam_result check_free(const struct sm_block *block, struct recount *count, struct sm_error *error)
{
    struct sm_extent *extent = block->extent;
    uint64_t up = sm_extent_boundary_up(extent, block->address);
    uint64_t down = sm_extent_boundary_down(extent, sm_block_end(block));
    uint64_t whole = down > up ? down - up : 0;
    if (block->whole != whole)
        FAIL("free range %#lx+%#lx says %#lx whole bytes, its handles say %#lx", block->address, block->size,
             block->whole, whole);
    if (block->next && block->next->state == SM_BLOCK_FREE)
        FAIL("free ranges %#lx and %#lx touch and are not joined", block->address, block->next->address);
    struct sm_block key = *block;
    if (RB_FIND(sm_free_tree, &extent->home->free_ranges, &key) != block)
        FAIL("free range %#lx is not in its home's index", block->address);
    count->parts.bytes[SM_PART_whole_free] += (int64_t)whole;
    count->parts.bytes[SM_PART_held_free] += (int64_t)(block->size - whole);
    count->home_whole += whole;
    count->home_held += block->size - whole;
    count->counts[extent->home->key.small_class].held_ranges += whole < block->size;
    count->counts[extent->home->key.small_class].held += block->size - whole;
    count->home_free++;
    return SEAM_OK;
}

/* Each byte of a stitched block lies where its view says, in pieces that are lent to it, and nowhere twice.
 */
static seam_result check_stitched(const struct sm_block *block, struct sm_error *error)
{
    const struct sm_view *view = sm_block_view(block);
    uint64_t at = block->address - view->span.base, sum = 0;
    uint32_t i = 0;
    for (const struct sm_block *piece = block->pieces; piece; piece = piece->next_piece) {
        if (piece->state != SM_BLOCK_LENT || piece->borrower != block)
            FAIL("piece %#lx of block %#lx is in state %d, or lent to another", piece->address,
                 block->address, piece->state);
        for (uint64_t done = 0; done < piece->size;) {
            while (i < view->count && view->entries[i].offset + view->entries[i].size <= at)
                i++;
            if (i == view->count)
                FAIL("block %#lx is longer than its view", block->address);
            const struct sm_view_entry *entry = &view->entries[i];
            if (entry->gone || !entry->mapped)
                FAIL("block %#lx lies where its view is not mapped any more", block->address);
            if (sm_view_home(entry) + at - entry->offset != piece->address + done)
                FAIL("byte %#lx of block %#lx is mapped to another place than piece %#lx", at, block->address,
                     piece->address);
            uint64_t step = sm_min(piece->size - done, entry->offset + entry->size - at);
            done += step;
            at += step;
        }
        sum += piece->size;
    }
    if (sum != block->size)
        FAIL("the pieces of block %#lx sum to %#lx of %#lx bytes", block->address, sum, block->size);
    return SEAM_OK;
}

/* A LENT block; its borrower is counted with its first piece. */
static seam_result check_lent(const struct sm_block *piece, struct recount *count, struct sm_error *error)
{
    const struct sm_block *block = piece->borrower;
    count->home_used += piece->size;
    if (!block)
        FAIL("block %#lx is lent to nobody", piece->address);
    if (block->pieces != piece)
        return SEAM_OK;
    count->stitched++;
    if (block->state == SM_BLOCK_LIVE) {
        if (sm_heap_block(sm_block_heap(block), block->address) != block)
            FAIL("stitched block %#lx is not in the address index", block->address);
        count->live++;
        count->parts.bytes[SM_PART_requested_live] += (int64_t)block->requested;
        count->parts.bytes[SM_PART_rounding] += (int64_t)(block->size - block->requested);
    } else {
        if (block->state != SM_BLOCK_PENDING || !block->fence)
            FAIL("stitched block %#lx is in state %d", block->address, block->state);
        count->parts.bytes[SM_PART_pending] += (int64_t)block->size;
    }
    return check_stitched(block, error);
}

/* Is the entry its whole handle, or granules of it where the driver maps those? */
static bool is_part(const struct sm_heap *heap, const struct sm_view_entry *entry)
{
    if (entry->gone)
        return true;
    uint64_t size = sm_view_handle(entry)->size;
    if (!heap->parts_map)
        return !entry->from && entry->size == size;
    return entry->size && entry->from % heap->granularity == 0 && entry->size % heap->granularity == 0 &&
           entry->from < size && entry->size <= size - entry->from;
}

static bool overlap(const struct sm_view_entry *a, const struct sm_view_entry *b)
{
    return !a->gone && !b->gone && a->extent == b->extent && a->slot == b->slot &&
           a->from < b->from + b->size && b->from < a->from + a->size;
}

static seam_result check_views(const struct sm_heap *heap, struct recount *count, struct sm_error *error)
{
    const struct sm_view *view;
    uint64_t views = 0, handles = 0, live = 0;
    TAILQ_FOREACH(view, &heap->views, link) {
        uint64_t offset = 0;
        for (uint32_t i = 0; i < view->count; i++) {
            const struct sm_view_entry *entry = &view->entries[i];
            if (entry->offset != offset || !is_part(heap, entry))
                FAIL("entry %u of view %#lx does not follow the one before, or its handle changed", i,
                     view->span.base);
            for (uint32_t j = 0; j < i; j++)
                if (overlap(entry, &view->entries[j]))
                    FAIL("view %#lx holds bytes twice", view->span.base);
            offset += entry->size;
            handles += !entry->gone;
        }
        views++;
        live += view->live;
        count->address_bytes += view->span.size;
    }
    if (views != heap->view_count || handles != heap->view_handles || live != heap->stitched ||
        live != count->stitched)
        FAIL("views %lu with %lu handles and %lu blocks; a recount gives %lu, %lu, %lu", heap->view_count,
             heap->view_handles, heap->stitched, views, handles, count->stitched);
    if (count->views != handles)
        FAIL("the handles count %lu mappings in views, the views hold %lu", count->views, handles);
    return SEAM_OK;
}

static seam_result check_block(struct sm_block *block, struct recount *count, struct sm_error *error)
{
    struct sm_heap *heap = sm_block_heap(block);
    bool indexed = sm_heap_block(heap, block->address) == block;
    count->blocks++;
    if (!block->size || block->size % 512 || block->address % 512)
        FAIL("block %#lx+%#lx is empty or not aligned", block->address, block->size);
    if (indexed != (block->state == SM_BLOCK_LIVE))
        FAIL("block %#lx in state %d is%s in the address index", block->address, block->state,
             indexed ? "" : " not");
    switch ((enum sm_block_state)block->state) {
    case SM_BLOCK_FREE:
        return check_free(block, count, error);
    case SM_BLOCK_LIVE:
        if (block->requested > block->size)
            FAIL("block %#lx holds %#lx bytes for a request of %#lx", block->address, block->size,
                 block->requested);
        count->live++;
        count->home_used += block->size;
        count->parts.bytes[SM_PART_requested_live] += (int64_t)block->requested;
        count->parts.bytes[SM_PART_rounding] += (int64_t)(block->size - block->requested);
        return SEAM_OK;
    case SM_BLOCK_PENDING:
        if (!block->fence)
            FAIL("block %#lx waits for nothing", block->address);
        count->home_used += block->size;
        count->parts.bytes[SM_PART_pending] += (int64_t)block->size;
        return SEAM_OK;
    case SM_BLOCK_LENT:
        return check_lent(block, count, error);
    case SM_BLOCK_UNMAPPED:
        if (block->next && block->next->state == SM_BLOCK_UNMAPPED)
            FAIL("gaps %#lx and %#lx touch and are not joined", block->address, block->next->address);
        if ((block->address - block->extent->base) % heap->granularity || block->size % heap->granularity)
            FAIL("gap %#lx+%#lx is not made of granules", block->address, block->size);
        count->home_gaps++;
        return SEAM_OK;
    default:
        FAIL("block %#lx is in state %d", block->address, block->state);
    }
}

/* The handles tile what is mapped, and nothing else. */
static seam_result check_handles(const struct sm_extent *extent, struct recount *count,
                                 struct sm_error *error)
{
    uint64_t granularity = extent->home->heap->granularity, mapped = 0;
    uint32_t handles = 0;
    for (const struct sm_block *block = extent->first; block; block = block->next) {
        uint64_t from = extent->base + sm_align_down(block->address - extent->base, granularity);
        for (uint64_t at = from; at < sm_block_end(block); at += granularity) {
            const struct sm_handle *handle = sm_extent_handle_at(extent, at);
            if (handle && handle->address == at && at >= block->address && handle->first != block)
                FAIL("handle %#lx names another block than the one it begins in", at);
            if (!handle != (block->state == SM_BLOCK_UNMAPPED))
                FAIL("address %#lx is%s mapped, its block's state is %d", at, handle ? "" : " not",
                     block->state);
            if (handle && (at < handle->address || at >= handle->address + handle->size))
                FAIL("the table gives handle %#lx+%#lx for address %#lx", handle->address, handle->size, at);
        }
    }
    for (uint32_t i = 0; i < extent->handle_slots; i++) {
        mapped += extent->handles[i].size;
        handles += extent->handles[i].size > 0;
        count->views += extent->handles[i].views;
    }
    if (mapped != extent->mapped || handles != extent->handle_count)
        FAIL("extent %#lx counts %#lx bytes in %u handles, its handles are %#lx in %u", extent->base,
             extent->mapped, extent->handle_count, mapped, handles);
    count->handles += extent->plain ? 0 : handles;
    count->reserved += mapped;
    count->home_mapped += mapped;
    return SEAM_OK;
}

static seam_result check_extent(const struct sm_extent *extent, struct recount *count, struct sm_error *error)
{
    uint64_t at = extent->base;
    const struct sm_block *prev = NULL;
    for (struct sm_block *block = extent->first; block; prev = block, block = block->next) {
        if (block->address != at || block->prev != prev || block->extent != extent)
            FAIL("block %#lx does not follow %#lx in extent %#lx", block->address, at, extent->base);
        bool starts = block->state != SM_BLOCK_UNMAPPED && (!prev || prev->state == SM_BLOCK_UNMAPPED);
        count->counts[extent->home->key.small_class].segments += starts;
        at += block->size;
    }
    if (at != extent->base + extent->size || extent->last != prev)
        FAIL("the blocks of extent %#lx end at %#lx, not at %#lx", extent->base, at,
             extent->base + extent->size);
    count->address_bytes += extent->plain ? 0 : extent->size;
    seam_result result = check_handles(extent, count, error);
    for (struct sm_block *block = extent->first; block && !result; block = block->next)
        result = check_block(block, count, error);
    return result;
}

static seam_result check_home(struct sm_home *home, struct recount *count, struct sm_error *error)
{
    struct sm_extent *extent;
    struct sm_block *block;
    count->home_mapped = count->home_used = count->home_held = count->home_whole = 0;
    count->home_gaps = count->home_free = 0;
    TAILQ_FOREACH(extent, &home->extents, link) {
        seam_result result = check_extent(extent, count, error);
        if (result)
            return result;
    }
    uint64_t gaps = 0, ranges = 0;
    TAILQ_FOREACH(block, &home->gaps, gap)
        gaps += block->state == SM_BLOCK_UNMAPPED;
    RB_FOREACH(block, sm_free_tree, &home->free_ranges)
        ranges++;
    if (gaps != count->home_gaps || ranges != count->home_free)
        FAIL("a home lists %lu gaps and %lu free ranges, its extents hold %lu and %lu", gaps, ranges,
             count->home_gaps, count->home_free);
    if (home->mapped != count->home_mapped || home->used != count->home_used ||
        home->held != count->home_held || home->whole != count->home_whole)
        FAIL("a home counts mapped %lu used %lu held %lu whole %lu, a recount gives %lu %lu %lu %lu",
             home->mapped, home->used, home->held, home->whole, count->home_mapped, count->home_used,
             count->home_held, count->home_whole);
    if (home->mapped != home->used + home->held + home->whole)
        FAIL("a home's bytes do not add up: mapped %lu, used %lu, held %lu, whole %lu", home->mapped,
             home->used, home->held, home->whole);
    return SEAM_OK;
}

static seam_result check_totals(const struct sm_heap *heap, const struct recount *count,
                                struct sm_error *error)
{
    static const char *const names[] = {
#define X(name, meaning, helps) #name,
        SM_PARTS(X)
#undef X
    };
    int64_t sum = 0;
    for (int i = 0; i < SM_PART_COUNT; i++) {
        int64_t lost = i == SM_PART_whole_free ? (int64_t)heap->lost : 0;
        if (heap->parts.bytes[i] != count->parts.bytes[i] + lost)
            FAIL("part %s is %ld, a recount gives %ld", names[i], heap->parts.bytes[i],
                 count->parts.bytes[i] + lost);
        sum += heap->parts.bytes[i];
    }
    if (heap->reserved != count->reserved + heap->lost || sum != (int64_t)heap->reserved)
        FAIL("reserved is %lu, the handles sum to %lu, the parts to %ld", heap->reserved,
             count->reserved + heap->lost, sum);
    for (int i = 0; i < 2; i++)
        if (heap->counts[i].segments != count->counts[i].segments ||
            heap->counts[i].held_ranges != count->counts[i].held_ranges ||
            heap->counts[i].held != count->counts[i].held)
            FAIL("the %s class counts segments %lu, held ranges %lu of %lu bytes; a recount gives %lu, %lu, "
                 "%lu",
                 i ? "small" : "large", heap->counts[i].segments, heap->counts[i].held_ranges,
                 heap->counts[i].held, count->counts[i].segments, count->counts[i].held_ranges,
                 count->counts[i].held);
    if (heap->address_bytes != count->address_bytes + heap->lost_addresses || heap->handles < count->handles)
        FAIL("address bytes %lu, handles %lu; a recount gives %lu, %lu", heap->address_bytes, heap->handles,
             count->address_bytes + heap->lost_addresses, count->handles);
    if (sm_heap_live(heap) != count->live)
        FAIL("the address index holds %lu blocks, %lu are live", sm_heap_live(heap), count->live);
    if (heap->blocks.count != count->blocks + count->stitched)
        FAIL("%lu block records are in use, the extents hold %lu", heap->blocks.count, count->blocks);
    return SEAM_OK;
}

seam_result sm_heap_validate(struct sm_heap *heap, struct sm_error *error)
{
    struct recount count = {0};
    struct sm_home *home;
    LIST_FOREACH(home, &heap->homes, link) {
        seam_result result = check_home(home, &count, error);
        if (result)
            return result;
    }
    seam_result result = check_views(heap, &count, error);
    return result ? result : check_totals(heap, &count, error);
}
