/* SPDX-License-Identifier: Apache-2.0 */
/* view: see view.h. */
#include "alloc/heap/view.h"
#include "alloc/heap/internal.h"
#include "base/align.h"
#include "base/log.h"

struct sm_handle *sm_view_handle(const struct sm_view_entry *entry)
{
    return &entry->extent->handles[entry->slot];
}

/* ---- pieces ---- */

struct sm_block *sm_block_lend(struct sm_block *block, uint64_t from, uint64_t to)
{
    SM_ASSERT(block->state == SM_BLOCK_FREE && from >= block->address && from < to &&
              to <= sm_block_end(block));
    sm_free_remove(block);
    if (from > block->address) {
        struct sm_block *rest = sm_block_divide(block, from);
        sm_free_insert(block);
        block = rest;
    }
    if (to < sm_block_end(block))
        sm_free_insert(sm_block_divide(block, to));
    block->state = SM_BLOCK_LENT;
    block->borrower = NULL;
    block->next_piece = NULL;
    block->extent->home->used += block->size;
    sm_block_heap(block)->parts.bytes[SM_PART_fenced] += (int64_t)block->size;
    return block;
}

void sm_block_unlend(struct sm_block *piece)
{
    SM_ASSERT(piece->state == SM_BLOCK_LENT);
    piece->extent->home->used -= piece->size;
    if (!piece->borrower)
        sm_block_heap(piece)->parts.bytes[SM_PART_fenced] -= (int64_t)piece->size;
    sm_free_join(piece);
}

/* ---- views ---- */

struct sm_view *sm_view_create(struct sm_home *home, uint32_t count)
{
    struct sm_view *view = sm_hostmem_get(sizeof(*view));
    if (!view)
        return NULL;
    view->entries = sm_hostmem_get(count * sizeof(*view->entries));
    if (!view->entries) {
        sm_hostmem_put(view, sizeof(*view));
        return NULL;
    }
    view->span.home = home;
    view->span.handle_slots = count; /* entries there is room for */
    view->stream = home->key.stream;
    view->closed = true;
    return view;
}

void sm_view_add(struct sm_view *view, struct sm_extent *extent, struct sm_handle *handle, uint64_t from,
                 uint64_t size)
{
    SM_ASSERT(view->count < view->span.handle_slots);
    view->entries[view->count++] = (struct sm_view_entry){.extent = extent,
                                                          .slot = (uint32_t)(handle - extent->handles),
                                                          .offset = view->span.size,
                                                          .from = from,
                                                          .size = size};
    view->span.size += size;
    handle->views++;
}

void sm_view_publish(struct sm_heap *heap, struct sm_view *view, uint64_t base)
{
    view->span.base = base;
    TAILQ_INSERT_HEAD(&heap->views, view, link);
    heap->view_count++;
    heap->view_handles += view->count;
    heap->address_bytes += view->span.size;
}

static void free_view(struct sm_view *view)
{
    for (uint32_t i = 0; i < view->count; i++)
        if (!view->entries[i].gone)
            sm_view_handle(&view->entries[i])->views--;
    sm_hostmem_put(view->entries, view->span.handle_slots * sizeof(*view->entries));
    sm_hostmem_put(view, sizeof(*view));
}

void sm_view_destroy(struct sm_heap *heap, struct sm_view *view)
{
    SM_ASSERT(!view->live);
    if (view->span.base) {
        TAILQ_REMOVE(&heap->views, view, link);
        heap->view_count--;
        for (uint32_t i = 0; i < view->count; i++)
            heap->view_handles -= !view->entries[i].gone;
        heap->address_bytes -= view->span.size;
    }
    free_view(view);
}

void sm_view_fini(struct sm_heap *heap)
{
    struct sm_view *view;
    while ((view = TAILQ_FIRST(&heap->views))) {
        TAILQ_REMOVE(&heap->views, view, link);
        sm_hostmem_put(view->entries, view->span.handle_slots * sizeof(*view->entries));
        sm_hostmem_put(view, sizeof(*view));
    }
}

bool sm_view_uses(const struct sm_view *view, const struct sm_view_entry *entry)
{
    uint64_t home = sm_view_home(entry);
    const struct sm_block *block = sm_view_handle(entry)->first;
    for (; block && block->address < home + entry->size; block = block->next)
        if (sm_block_end(block) > home && block->state == SM_BLOCK_LENT &&
            (!block->borrower || block->borrower->extent == &view->span))
            return true;
    return false;
}

void sm_view_drop(struct sm_heap *heap, struct sm_view_entry *entry)
{
    sm_view_handle(entry)->views--;
    entry->gone = true;
    entry->extent = NULL; /* it may go before the view */
    heap->view_handles--;
}

/* ---- runs ---- */

struct search {
    uint64_t size, best;
    struct sm_run *run;
    bool found;
};

/* The run that is open ends: is it the shortest that holds the request? */
static void close_run(struct search *search, struct sm_view *view, uint64_t from, uint64_t to)
{
    if (to - from < search->size || (search->found && to - from >= search->best))
        return;
    *search->run = (struct sm_run){view, from, to};
    search->best = to - from;
    search->found = true;
}

/* The block that holds a byte of an entry's handle at home. */
static struct sm_block *block_at(const struct sm_view_entry *entry, uint64_t address)
{
    struct sm_block *block = sm_view_handle(entry)->first;
    while (sm_block_end(block) <= address)
        block = block->next;
    return block;
}

/* Walks the free bytes of a view's handles; a run goes on from one handle into the next. */
static void search_view(struct search *search, struct sm_view *view, sm_lender_test may_lend, void *context)
{
    uint64_t open = 0, at = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct sm_view_entry *entry = &view->entries[i];
        if (entry->gone) { /* its extent may be gone with it */
            close_run(search, view, open, at);
            open = at = entry->offset + entry->size;
            continue;
        }
        uint64_t home = sm_view_home(entry);
        bool lends = may_lend(entry->extent->home, context);
        for (struct sm_block *block = block_at(entry, home); at < entry->offset + entry->size;
             block = block->next) {
            uint64_t end = sm_min(sm_block_end(block) - home, entry->size) + entry->offset;
            if (!lends || block->state != SM_BLOCK_FREE) {
                close_run(search, view, open, at);
                open = end;
            }
            at = end;
        }
    }
    close_run(search, view, open, at);
}

bool sm_view_find_run(struct sm_heap *heap, uint64_t size, unsigned most, sm_lender_test may_lend,
                      void *context, struct sm_run *run)
{
    struct search search = {.size = size, .run = run};
    struct sm_view *view;
    TAILQ_FOREACH(view, &heap->views, link) {
        if (!most-- || (search.found && search.best == size))
            break;
        if (!view->closed && view->span.size >= size)
            search_view(&search, view, may_lend, context);
    }
    return search.found;
}

struct sm_block *sm_view_take(const struct sm_run *run, uint64_t size, uint64_t requested)
{
    struct sm_block *first = NULL, **link = &first;
    uint64_t to = run->from + size;
    for (uint32_t i = 0; i < run->view->count; i++) {
        const struct sm_view_entry *entry = &run->view->entries[i];
        uint64_t low = sm_max(run->from, entry->offset), high = sm_min(to, entry->offset + entry->size);
        if (low >= high)
            continue;
        uint64_t home = sm_view_home(entry) - entry->offset;
        *link = sm_block_lend(block_at(entry, home + low), home + low, home + high);
        link = &(*link)->next_piece;
    }
    return sm_view_take_pieces(run->view, run->from, size, requested, first);
}

struct sm_block *sm_view_take_pieces(struct sm_view *view, uint64_t offset, uint64_t size, uint64_t requested,
                                     struct sm_block *pieces)
{
    struct sm_heap *heap = view->span.home->heap;
    struct sm_block *block = sm_slab_take(&heap->blocks), *piece;
    SM_ASSERT(block && pieces);
    *block = (struct sm_block){.address = view->span.base + offset,
                               .size = size,
                               .extent = &view->span,
                               .state = SM_BLOCK_LIVE,
                               .requested = requested,
                               .pieces = pieces,
                               .stream = view->span.home->key.stream};
    for (piece = pieces; piece; piece = piece->next_piece) {
        piece->borrower = block;
        heap->parts.bytes[SM_PART_fenced] -= (int64_t)piece->size;
    }
    view->live++;
    TAILQ_REMOVE(&heap->views, view, link);
    TAILQ_INSERT_HEAD(&heap->views, view, link);
    heap->stitched++;
    heap->parts.bytes[SM_PART_requested_live] += (int64_t)requested;
    heap->parts.bytes[SM_PART_rounding] += (int64_t)(size - requested);
    sm_index_insert(&heap->index, block);
    return block;
}

struct sm_block *sm_view_give(struct sm_block *block)
{
    struct sm_view *view = sm_block_view(block);
    struct sm_heap *heap = view->span.home->heap;
    struct sm_block *piece, *next;
    for (piece = block->pieces; piece; piece = next) {
        next = piece->next_piece;
        sm_block_unlend(piece);
    }
    view->live--;
    heap->stitched--;
    sm_slab_give(&heap->blocks, block);
    return NULL;
}

struct sm_block *sm_view_block_of(struct sm_heap *heap, uint64_t address)
{
    struct sm_view *view;
    TAILQ_FOREACH(view, &heap->views, link) {
        if (address - view->span.base >= view->span.size)
            continue;
        for (uint32_t i = 0; i < view->count; i++) {
            if (view->entries[i].gone)
                continue;
            const struct sm_handle *handle = sm_view_handle(&view->entries[i]);
            struct sm_block *piece = handle->first;
            for (; piece && piece->address < handle->address + handle->size; piece = piece->next) {
                struct sm_block *block = piece->state == SM_BLOCK_LENT ? piece->borrower : NULL;
                if (block && block->extent == &view->span && block->state == SM_BLOCK_LIVE &&
                    address - block->address < block->size)
                    return block;
            }
        }
    }
    return NULL;
}
