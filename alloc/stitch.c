/* SPDX-License-Identifier: Apache-2.0 */
/* stitch: one block from free memory of several places.
 *
 *   1 holes    free ranges of at least half a granule (two, where parts of handles map) in the large homes
 *              that may lend: the request's own, and those of streams that are known to be done with
 *              everything they were given
 *   2 middles  whole handles of the holes with the most of them, until the request is covered
 *   3 ends     the first piece may begin inside a handle, if it ends with it; the last may end inside one;
 *              the two may not share a handle, as a view holds a handle once
 *   4 growth   exactly what is still missing, as new memory at home
 *   5 view     a fresh range of addresses; each handle the pieces touch is mapped into it whole, then access
 *              in one call
 *   6 block    the pieces are LENT, the block lies in the view, and the view is kept after it
 *
 * Where the driver maps any part of a handle (found by trying when a device is set up), all of this holds of
 * granules instead of handles: pieces begin and end at granules, and only those are mapped. Nothing is lost
 * but what lies beside other bytes in a granule.
 *
 * Pieces are lent before the heap lock is given up for the driver, so that nobody takes them; a refused call
 * gives them back and undoes the view.
 *
 * Memory of another stream: the block's fence then holds its own stream from the start, so that the pieces
 * are free again only when that stream has done its work. Bytes are accounted at home alone: a view owns no
 * memory.
 *
 * Bound. When a request of at least 4 granules made memory grow, and reserved R is then above the peak of
 * live bytes and its slack, then once the request is served
 *
 *     R <= L + W + S
 *
 * with L the bytes of live and pending blocks, W the free bytes of large handles that hold others too, and S
 * the free bytes of the small class: no large handle is free whole. Premises: the default pool, no split
 * limit; every stream with free memory is done and lending is on, or else the homes that may not lend count
 * apart; at most HOLES_MAX holes, of which PIECES_MAX - 3 have whole handles; nobody takes or gives memory
 * meanwhile; the driver refuses nothing; growth did not fill a gap whole to join what lies behind it. Where
 * parts of handles map, read "granule" for "large handle" and add two granules: growth alone may use a free
 * range that is below a hole's least size, and be no more than a stitch with as much free elsewhere.
 * Proof. Each free whole handle is at least a granule and lies in the middle of one hole. (a) Growth with a
 * stitch: the middles did not cover the request, so all of them were chosen; what is cut off at the end, as
 * growth is whole granules, is less than a granule, and frees no whole handle. (b) Growth alone, by n bytes
 * behind a free range of b: chosen because the draft lacked n or more. The draft had all middles, and as
 * first piece gained no less than that range has beside its own; so it had b and the middles of all others,
 * and lacked n or more only if those are none. The block uses b, and all but less than a granule of n.
 *
 * Protected by: memory lock; the heap lock for bookkeeping. */
#include "alloc/engine.h"
#include "alloc/heap/view.h"
#include "alloc/plant.h"
#include "base/align.h"
#include "base/log.h"

#define HOLES_MAX    192
#define PIECES_MAX   64
#define VIEWS_TRIED  64
#define VIEWS_SPARED 256 /* mappings in views that are never too many */
#define HANDLE_BYTES (16 * SM_MIB)
#define VIEWS_FACTOR 12 /* beyond that, mappings in views for each handle */

/* The smallest free range worth a piece: half a granule, which may be most of an end; two where parts of
 * handles map, as then every hole would be a piece. */
static uint64_t hole_min(const struct sm_device *device)
{
    return device->heap.parts_map ? 2 * device->granularity : device->granularity / 2;
}

struct hole {
    struct sm_block *block;
    uint64_t low, up, down, high; /* its ends, and the handle boundaries next to them inside */
    bool middle;
};

struct piece {
    struct sm_extent *extent;
    uint64_t from, to;
};

struct draft {
    struct hole holes[HOLES_MAX];
    unsigned hole_count;
    struct piece pieces[PIECES_MAX];
    unsigned piece_count, growth_at; /* the growth stands before this piece */
    uint64_t missing;                /* bytes of growth, whole granules */
    uint64_t growth;                 /* of these, bytes that the block uses */
};

/* ---- who may lend ---- */

bool sm_stitch_applies(const struct sm_request *request)
{
    const struct sm_options *options = &request->device->options;
    return options->policy == SM_POLICY_STITCH && options->max_split_size == SM_UNLIMITED && !request->pool &&
           !request->home->key.small_class && !request->lend;
}

static bool may_lend(const struct sm_home *home, void *context)
{
    const struct sm_request *request = context;
    const struct sm_stream *stream = home->key.stream;
    if (home->key.small_class || home->key.pool_first || home->key.pool_second)
        return false;
    return stream == request->stream || (request->device->options.lending != SM_LENDING_OFF &&
                                         (stream->done == stream->freed || SM_PLANTED(EARLY_LEND)));
}

void sm_stitch_refresh(struct sm_request *request)
{
    struct sm_device *device = request->device;
    struct {
        struct sm_stream *stream;
        uint64_t freed;
    } asked[16];
    unsigned count = 0;
    struct sm_home *home;
    if (device->options.lending == SM_LENDING_OFF)
        return;
    sm_lock_take(&device->heap_lock);
    LIST_FOREACH(home, &device->heap.homes, link) {
        struct sm_stream *stream = home->key.stream;
        if (!home->key.small_class && stream != request->stream && stream->done != stream->freed &&
            home->held + home->whole >= hole_min(device) && count < sizeof(asked) / sizeof(asked[0])) {
            asked[count].stream = stream;
            asked[count++].freed = stream->freed;
        }
    }
    bool capturing = sm_capture_running(device);
    sm_lock_give(&device->heap_lock);
    for (unsigned i = 0; i < count && !capturing; i++)
        sm_stream_is_done(device, asked[i].stream, asked[i].freed, SM_TRIM_IDLE_ONLY);
}

/* The block's memory is another stream's, in whole or in part: it is free again only when this stream has
 * done its work. */
static bool is_foreign(const struct sm_request *request, const struct sm_block *block)
{
    const struct sm_block *piece = block->pieces;
    if (!piece)
        return block->extent->home->key.stream != request->stream;
    for (; piece; piece = piece->next_piece)
        if (piece->extent->home->key.stream != request->stream)
            return true;
    return false;
}

/* A LIVE block in hand: whose it is. `record` is used when its memory is another stream's, and given back
 * otherwise. */
static void sign(struct sm_request *request, struct sm_block *block, struct sm_fence *record)
{
    struct sm_device *device = request->device;
    block->stream = request->stream;
    if (!is_foreign(request, block)) {
        sm_slab_give(&device->heap.fences, record);
        return;
    }
    sm_fence_set(block, request->stream, record);
    sm_stats_count(device->stats, SM_COUNTER_borrows, 1);
}

struct sm_block *sm_stitch_borrow(struct sm_request *request)
{
    struct sm_device *device = request->device;
    struct sm_block *best = NULL;
    struct sm_home *home;
    LIST_FOREACH(home, &device->heap.homes, link) {
        if (home == request->home || !may_lend(home, request))
            continue;
        struct sm_block *block = sm_home_best_fit(home, request->size);
        if (block && (!best || sm_free_order(block, best) < 0))
            best = block;
    }
    if (!best || !sm_heap_prepare(&device->heap, 1))
        return NULL;
    struct sm_fence *record = sm_slab_take(&device->heap.fences);
    if (!record)
        return NULL;
    sm_block_take(best, request->size, request->requested, true);
    sign(request, best, record);
    return best;
}

struct sm_block *sm_stitch_reuse(struct sm_request *request)
{
    struct sm_heap *heap = &request->device->heap;
    struct sm_block *block;
    struct sm_run run;
    if (!sm_view_find_run(heap, request->size, VIEWS_TRIED, may_lend, request, &run))
        return NULL;
    if (!sm_heap_prepare(heap, sm_view_records(run.view->count)))
        return NULL;
    struct sm_fence *record = sm_slab_take(&heap->fences);
    if (!record)
        return NULL;
    block = sm_view_take(&run, request->size, request->requested);
    sign(request, block, record);
    return block;
}

/* ---- which pieces ---- */

/* Where a piece may begin or end inside a view: at handles, or at granules where the driver maps parts. */
static uint64_t seam_up(const struct sm_extent *extent, uint64_t address)
{
    const struct sm_heap *heap = extent->home->heap;
    return heap->parts_map ? sm_align_up(address, heap->granularity) : sm_extent_boundary_up(extent, address);
}

static uint64_t seam_down(const struct sm_extent *extent, uint64_t address)
{
    const struct sm_heap *heap = extent->home->heap;
    return heap->parts_map ? sm_align_down(address, heap->granularity)
                           : sm_extent_boundary_down(extent, address);
}

static uint64_t middle_of(const struct hole *hole)
{
    return hole->down > hole->up ? hole->down - hole->up : 0;
}

static uint64_t first_of(const struct hole *hole)
{
    return hole->down > hole->low ? hole->down - hole->low : 0;
}

static uint64_t last_of(const struct hole *hole)
{
    return hole->high > hole->up ? hole->high - hole->up : 0;
}

static void add_holes(const struct sm_device *device, struct draft *draft, struct sm_home *home)
{
    struct sm_block *block;
    RB_FOREACH_REVERSE(block, sm_free_tree, &home->free_ranges) {
        if (block->size < hole_min(device) || draft->hole_count == HOLES_MAX)
            return;
        draft->holes[draft->hole_count++] = (struct hole){
            .block = block,
            .low = block->address,
            .high = sm_block_end(block),
            .up = seam_up(block->extent, block->address),
            .down = seam_down(block->extent, sm_block_end(block)),
        };
    }
}

/* Middles by size, the largest first, until they cover the request or none is left. Returns: their bytes. */
static uint64_t choose_middles(struct draft *draft, uint64_t size)
{
    uint64_t total = 0;
    for (unsigned chosen = 0; total < size && chosen < PIECES_MAX - 3; chosen++) {
        struct hole *best = NULL;
        for (unsigned i = 0; i < draft->hole_count; i++) {
            struct hole *hole = &draft->holes[i];
            if (!hole->middle && middle_of(hole) && (!best || middle_of(hole) > middle_of(best)))
                best = hole;
        }
        if (!best)
            break;
        best->middle = true;
        total += middle_of(best);
    }
    return total;
}

/* Would the first piece's head and the last piece's tail map the same bytes: a handle, or a granule? */
static bool share_a_seam(const struct hole *first, const struct hole *last)
{
    const struct sm_extent *extent = first->block->extent;
    if (extent != last->block->extent)
        return false;
    if (extent->home->heap->parts_map)
        return seam_down(extent, first->low) == seam_down(extent, last->high - 1);
    return sm_extent_handle_at(extent, first->low) == sm_extent_handle_at(extent, last->high - 1);
}

/* The hole that gains most as an end, beside what it gives as a middle. */
static struct hole *choose_end(struct draft *draft, uint64_t (*part)(const struct hole *),
                               const struct hole *other)
{
    struct hole *best = NULL;
    uint64_t best_gain = 0;
    for (unsigned i = 0; i < draft->hole_count; i++) {
        struct hole *hole = &draft->holes[i];
        uint64_t gain = part(hole) - (hole->middle ? sm_min(middle_of(hole), part(hole)) : 0);
        if (hole != other && gain > best_gain && !(other && share_a_seam(other, hole))) {
            best = hole;
            best_gain = gain;
        }
    }
    return best;
}

/* Middles that are not needed go, the smallest first. Returns: the bytes that are left. */
static uint64_t drop_middles(struct draft *draft, uint64_t total, uint64_t size)
{
    for (;;) {
        struct hole *least = NULL;
        for (unsigned i = 0; i < draft->hole_count; i++) {
            struct hole *hole = &draft->holes[i];
            if (hole->middle && total - middle_of(hole) >= size &&
                (!least || middle_of(hole) < middle_of(least)))
                least = hole;
        }
        if (!least)
            return total;
        least->middle = false;
        total -= middle_of(least);
    }
}

static void add_piece(struct draft *draft, const struct hole *hole, uint64_t from, uint64_t to)
{
    draft->pieces[draft->piece_count++] = (struct piece){hole->block->extent, from, to};
}

/* Cuts what is too much off the end: the last piece shrinks, or goes. */
static void cut(struct draft *draft, uint64_t excess)
{
    while (excess && draft->piece_count > draft->growth_at) {
        struct piece *piece = &draft->pieces[draft->piece_count - 1];
        uint64_t take = sm_min(excess, piece->to - piece->from);
        piece->to -= take;
        excess -= take;
        draft->piece_count -= piece->from == piece->to;
    }
    uint64_t take = sm_min(excess, draft->growth);
    draft->growth -= take;
    excess -= take;
    while (excess && draft->piece_count) {
        struct piece *piece = &draft->pieces[draft->piece_count - 1];
        take = sm_min(excess, piece->to - piece->from);
        piece->to -= take;
        excess -= take;
        draft->piece_count -= piece->from == piece->to;
        draft->growth_at = draft->piece_count;
    }
}

/* Fills in pieces and growth. Heap lock held. */
static void make_draft(const struct sm_request *request, struct draft *draft)
{
    uint64_t size = request->size, total;
    struct sm_home *home;
    draft->hole_count = draft->piece_count = 0;
    add_holes(request->device, draft, request->home);
    LIST_FOREACH(home, &request->device->heap.homes, link)
        if (home != request->home && may_lend(home, (void *)request))
            add_holes(request->device, draft, home);
    total = choose_middles(draft, size);
    struct hole *first = choose_end(draft, first_of, NULL);
    if (first) {
        total += first_of(first) - (first->middle ? middle_of(first) : 0);
        first->middle = false;
    }
    struct hole *last = choose_end(draft, last_of, first);
    if (last) {
        total += last_of(last) - (last->middle ? middle_of(last) : 0);
        last->middle = false;
    }
    total = drop_middles(draft, total, size);
    /* An end that is not needed either is a mapping less. A first piece stays where only whole handles map:
     * its bytes beside others can serve nothing else. */
    if (last && total - last_of(last) >= size) {
        total -= last_of(last);
        last = NULL;
    }
    if (first && request->device->heap.parts_map && total - first_of(first) >= size) {
        total -= first_of(first);
        first = NULL;
    }
    draft->missing = total < size ? sm_align_up(size - total, request->device->granularity) : 0;
    draft->growth = draft->missing;
    if (first)
        add_piece(draft, first, first->low, first->down);
    for (unsigned i = 0; i < draft->hole_count; i++)
        if (draft->holes[i].middle)
            add_piece(draft, &draft->holes[i], draft->holes[i].up, draft->holes[i].down);
    draft->growth_at = draft->piece_count;
    if (last)
        add_piece(draft, last, last->up, last->high);
    cut(draft, total + draft->missing - size);
}

/* ---- lending and giving back ---- */

/* The FREE block that holds an address of a piece. */
static struct sm_block *free_at(const struct piece *piece)
{
    struct sm_block *block = sm_extent_handle_at(piece->extent, piece->from)->first;
    while (sm_block_end(block) <= piece->from)
        block = block->next;
    return block;
}

/* Pieces on their way: LENT blocks in the order of their addresses in the view. */
struct lent {
    struct sm_block *blocks[PIECES_MAX + 1];
    unsigned count;
};

/* Requires: records promised. Heap lock held. */
static void lend_all(struct draft *draft, struct lent *lent)
{
    lent->count = 0;
    for (unsigned i = 0; i < draft->piece_count; i++)
        lent->blocks[lent->count++] =
            sm_block_lend(free_at(&draft->pieces[i]), draft->pieces[i].from, draft->pieces[i].to);
}

/* Heap lock held. */
static void give_back(struct lent *lent)
{
    for (unsigned i = 0; i < lent->count; i++)
        if (lent->blocks[i])
            sm_block_unlend(lent->blocks[i]);
    lent->count = 0;
}

/* ---- views ---- */

static void count_mapping(struct sm_device *device, int64_t bytes)
{
    sm_stats_move(device->stats, SM_LEVEL_mapped_bytes, SM_KIND_ALL, bytes);
    sm_stats_move(device->stats, SM_LEVEL_view_bytes, SM_KIND_ALL, bytes);
    sm_stats_move(device->stats, SM_LEVEL_mappings, SM_KIND_ALL, bytes > 0 ? 1 : -1);
    device->work += bytes > 0 ? 2 : 1;
}

/* Unmaps one handle of a closed view. Returns: false when the driver refused. Heap lock not held. */
static bool unmap_entry(struct sm_device *device, const struct sm_view *view, struct sm_view_entry *entry)
{
    if (!entry->mapped)
        return true;
    entry->mapped = !sm_unmap(device, view->span.base + entry->offset, entry->size);
    sm_lock_take(&device->heap_lock);
    if (entry->mapped)
        sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
    else
        count_mapping(device, -(int64_t)entry->size);
    sm_lock_give(&device->heap_lock);
    return !entry->mapped;
}

/* Unmaps what is mapped of a closed view and frees its addresses. Returns: false when the driver refused: it
 * stays, closed, for another attempt. Heap lock not held. */
static bool unmake(struct sm_device *device, struct sm_view *view)
{
    struct sm_driver *driver = device->allocator->driver;
    bool clean = true;
    view->whole = false;
    for (uint32_t i = 0; i < view->count; i++)
        clean &= unmap_entry(device, view, &view->entries[i]);
    if (clean)
        clean = SM_CALL(driver, cuMemAddressFree, view->span.base, view->span.size) == CUDA_SUCCESS;
    sm_lock_take(&device->heap_lock);
    if (clean) {
        atomic_fetch_sub(&device->allocator->address_bytes, view->span.size);
        sm_stats_move(device->stats, SM_LEVEL_reserved_address_bytes, SM_KIND_ALL, -(int64_t)view->span.size);
        sm_view_destroy(&device->heap, view);
    }
    sm_lock_give(&device->heap_lock);
    return clean;
}

/* Is all work done that used the view? Heap lock not held. */
static bool is_idle(struct sm_device *device, struct sm_view *view, enum sm_trim_wait wait)
{
    sm_lock_take(&device->heap_lock);
    struct sm_stream *stream = view->stream;
    uint64_t freed = view->freed;
    bool mixed = view->mixed;
    sm_lock_give(&device->heap_lock);
    if (!mixed)
        return sm_stream_is_done(device, stream, freed, wait);
    if (wait != SM_TRIM_WAIT || sm_capture_safe_wait(device) != CUDA_SUCCESS)
        return false;
    sm_lock_take(&device->heap_lock);
    stream->done = sm_max(stream->done, freed);
    /* Unless one of its blocks was freed meanwhile. */
    view->mixed = view->stream != stream || view->freed != freed;
    sm_lock_give(&device->heap_lock);
    return true;
}

/* Unmaps the handles of a closed view that none of its blocks uses: they can be given back though the view
 * stays. */
static bool thin(struct sm_device *device, struct sm_view *view)
{
    bool any = false;
    for (uint32_t i = 0; i < view->count; i++) {
        struct sm_view_entry *entry = &view->entries[i];
        sm_lock_take(&device->heap_lock);
        /* A block may have been freed since the view was found idle: its work may go on. */
        const struct sm_stream *stream = view->stream;
        bool idle = !entry->gone && !sm_view_uses(view, entry) && !view->mixed && stream->done >= view->freed;
        sm_lock_give(&device->heap_lock);
        if (!idle || !unmap_entry(device, view, entry))
            continue;
        sm_lock_take(&device->heap_lock);
        sm_view_drop(&device->heap, entry);
        sm_lock_give(&device->heap_lock);
        any = true;
    }
    return any;
}

/* The next view towards the one used last; closed, so that nobody takes from it meanwhile. Heap lock held. */
static struct sm_view *close_next(struct sm_device *device, const struct sm_view *after, bool live_too)
{
    struct sm_view *view =
        after ? TAILQ_PREV(after, sm_view_list, link) : TAILQ_LAST(&device->heap.views, sm_view_list);
    while (view && view->live && !live_too)
        view = TAILQ_PREV(view, sm_view_list, link);
    if (view)
        view->closed = true;
    return view;
}

bool sm_stitch_evict(struct sm_device *device, uint64_t keep, enum sm_trim_wait wait)
{
    struct sm_view *view = NULL, *after = NULL;
    bool any = false;
    for (;;) {
        sm_lock_take(&device->heap_lock);
        /* A view may have lost all its handles, and has addresses still. */
        bool enough = (keep && device->heap.view_handles <= keep) || sm_capture_running(device);
        view = enough ? NULL : close_next(device, after, !keep);
        bool live = view && view->live;
        sm_lock_give(&device->heap_lock);
        if (!view)
            return any;
        if (is_idle(device, view, wait)) {
            if (live)
                any |= thin(device, view);
            else if (unmake(device, view)) {
                any = true;
                continue;
            }
        }
        sm_lock_take(&device->heap_lock);
        view->closed = !view->whole;
        sm_lock_give(&device->heap_lock);
        after = view;
    }
}

void sm_stitch_teardown(struct sm_device *device)
{
    struct sm_driver *driver = device->allocator->driver;
    struct sm_view *view;
    TAILQ_FOREACH(view, &device->heap.views, link) {
        for (uint32_t i = 0; i < view->count; i++)
            if (view->entries[i].mapped)
                (void)SM_CALL(driver, cuMemUnmap, view->span.base + view->entries[i].offset,
                              view->entries[i].size);
        (void)SM_CALL(driver, cuMemAddressFree, view->span.base, view->span.size);
        atomic_fetch_sub(&device->allocator->address_bytes, view->span.size);
    }
}

/* Handles that a piece touches. */
static uint32_t handles_of(const struct sm_block *piece)
{
    uint32_t count = 0;
    for (uint64_t at = piece->address; at < sm_block_end(piece); count++) {
        const struct sm_handle *handle = sm_extent_handle_at(piece->extent, at);
        at = handle->address + handle->size;
    }
    return count;
}

/* Adds what a piece from `at` on needs of a handle: all of it, or its granules. Returns: where the handle
 * ends. */
static uint64_t add_entry(struct sm_view *view, const struct sm_block *piece, struct sm_handle *handle,
                          uint64_t at)
{
    uint64_t low = handle->address, high = handle->address + handle->size;
    if (piece->extent->home->heap->parts_map) {
        low = seam_down(piece->extent, at);
        high = sm_min(high, seam_up(piece->extent, sm_block_end(piece)));
    }
    sm_view_add(view, piece->extent, handle, low - handle->address, high - low);
    return handle->address + handle->size;
}

/* The records of a view over the pieces. Heap lock held. */
static struct sm_view *record_view(struct sm_request *request, const struct lent *lent)
{
    uint32_t count = 0;
    struct sm_view *view;
    for (unsigned i = 0; i < lent->count; i++)
        count += handles_of(lent->blocks[i]);
    view = sm_view_create(request->home, count);
    for (unsigned i = 0; view && i < lent->count; i++) {
        const struct sm_block *piece = lent->blocks[i];
        for (uint64_t at = piece->address; at < sm_block_end(piece);) {
            struct sm_handle *handle = sm_extent_handle_at(piece->extent, at);
            at = add_entry(view, piece, handle, at);
        }
    }
    return view;
}

/* Maps a recorded view at fresh addresses. Heap lock not held. On failure it is gone, or closed and to be
 * tried again. */
static seam_result map_view(struct sm_device *device, struct sm_view *view, struct sm_error *error)
{
    struct sm_driver *driver = device->allocator->driver;
    const char *call = "cuMemAddressReserve";
    uint32_t count = view->count; /* for the text, when the view is no more */
    CUdeviceptr base = 0;
    char text[160];
    CUresult code = SM_CALL(driver, cuMemAddressReserve, &base, view->span.size, 0, 0, 0);
    if (code != CUDA_SUCCESS) {
        sm_lock_take(&device->heap_lock);
        sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
        sm_view_destroy(&device->heap, view);
        sm_lock_give(&device->heap_lock);
        return sm_error_set(error, SEAM_E_DEVICE, "device %d: %s for a view: %s", device->ordinal, call,
                            sm_driver_text(driver, code, text, sizeof(text)));
    }
    atomic_fetch_add(&device->allocator->address_bytes, view->span.size);
    sm_lock_take(&device->heap_lock);
    sm_view_publish(&device->heap, view, base);
    sm_stats_move(device->stats, SM_LEVEL_reserved_address_bytes, SM_KIND_ALL, (int64_t)view->span.size);
    sm_lock_give(&device->heap_lock);
    for (uint32_t i = 0; i < view->count && code == CUDA_SUCCESS; i++) {
        struct sm_view_entry *entry = &view->entries[i];
        call = "cuMemMap";
        code = SM_CALL(driver, cuMemMap, base + entry->offset, entry->size, entry->from,
                       sm_view_handle(entry)->name, 0);
        /* Said to have failed, it may be there all the same. */
        entry->mapped = code == CUDA_SUCCESS || sm_is_mapped(device, base + entry->offset);
        sm_lock_take(&device->heap_lock);
        if (entry->mapped)
            count_mapping(device, (int64_t)entry->size);
        sm_lock_give(&device->heap_lock);
    }
    if (code == CUDA_SUCCESS) {
        call = "cuMemSetAccess";
        code = SM_CALL(driver, cuMemSetAccess, base, view->span.size, device->access, device->access_count);
    }
    if (code == CUDA_SUCCESS)
        return SEAM_OK;
    unmake(device, view);
    sm_lock_take(&device->heap_lock);
    sm_stats_count(device->stats, SM_COUNTER_driver_errors, 1);
    sm_stats_count(device->stats, SM_COUNTER_rollbacks, 1);
    sm_lock_give(&device->heap_lock);
    return sm_error_set(error, SEAM_E_DEVICE, "device %d: %s in a view of %u handles: %s", device->ordinal,
                        call, count, sm_driver_text(driver, code, text, sizeof(text)));
}

/* ---- stitching ---- */

/* The records that lending, the growth's piece and the block need. */
#define DRAFT_RECORDS (2 * PIECES_MAX + 3)

/* The view stands: the pieces become the block. Heap lock held. */
static struct sm_block *make_block(struct sm_request *request, struct sm_view *view, struct lent *lent,
                                   struct sm_fence *record)
{
    struct sm_device *device = request->device;
    const struct sm_block *head = lent->blocks[0];
    uint64_t offset = head->address - sm_view_home(&view->entries[0]);
    struct sm_block *block;
    for (unsigned i = 0; i + 1 < lent->count; i++)
        lent->blocks[i]->next_piece = lent->blocks[i + 1];
    view->closed = false;
    view->whole = true;
    block = sm_view_take_pieces(view, offset, request->size, request->requested, lent->blocks[0]);
    sign(request, block, record);
    sm_stats_count(device->stats, SM_COUNTER_stitches, 1);
    sm_stats_count(device->stats, SM_COUNTER_pieces, lent->count);
    sm_pool_count(request, block);
    return block;
}

/* Chooses pieces and lends them. Returns: SEAM_OK; *worth false when growth alone is no larger. */
static seam_result begin(struct sm_request *request, uint64_t plain, struct draft *draft, struct lent *lent,
                         bool *worth, struct sm_error *error)
{
    struct sm_heap *heap = &request->device->heap;
    seam_result result = SEAM_OK;
    sm_lock_take(&request->device->heap_lock);
    make_draft(request, draft);
    *worth = draft->missing < plain && draft->piece_count > 0;
    if (*worth && !sm_heap_promise(heap, DRAFT_RECORDS))
        result = sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the pieces of a block of %lu bytes",
                              request->size);
    else if (*worth)
        lend_all(draft, lent);
    sm_lock_give(&request->device->heap_lock);
    return result;
}

/* The new memory that is missing stands in its place among the pieces; what the block does not use of it is
 * free again. */
static seam_result add_growth(struct sm_request *request, const struct draft *draft, struct lent *lent,
                              struct sm_shortage *shortage, struct sm_error *error)
{
    struct sm_device *device = request->device;
    struct sm_block *piece = NULL;
    seam_result result;
    if (!draft->growth)
        return SEAM_OK;
    result = sm_grow_piece(request, draft->missing, &piece, shortage, error);
    if (result)
        return result;
    sm_lock_take(&device->heap_lock);
    if (draft->growth < piece->size) {
        uint64_t from = piece->address, to = from + draft->growth;
        struct piece used = {piece->extent, from, to};
        sm_block_unlend(piece);
        piece = sm_block_lend(free_at(&used), from, to);
    }
    for (unsigned i = lent->count; i > draft->growth_at; i--)
        lent->blocks[i] = lent->blocks[i - 1];
    lent->blocks[draft->growth_at] = piece;
    lent->count++;
    sm_lock_give(&device->heap_lock);
    return SEAM_OK;
}

/* Mappings in views that are not too many. Large handles are counted as several. */
static uint64_t mappings_spared(const struct sm_device *device)
{
    uint64_t handles = sm_max(device->heap.handles, device->heap.reserved / HANDLE_BYTES);
    return sm_max(VIEWS_SPARED, VIEWS_FACTOR * handles);
}

seam_result sm_stitch(struct sm_request *request, uint64_t plain, struct sm_block **block,
                      struct sm_shortage *shortage, struct sm_error *error)
{
    struct sm_device *device = request->device;
    struct sm_view *view = NULL;
    struct draft draft;
    struct lent lent = {.count = 0};
    bool worth;
    seam_result result = begin(request, plain, &draft, &lent, &worth, error);
    if (result || !worth)
        return result;
    result = add_growth(request, &draft, &lent, shortage, error);
    if (!result) {
        sm_lock_take(&device->heap_lock);
        view = record_view(request, &lent);
        sm_lock_give(&device->heap_lock);
        result = view ? map_view(device, view, error)
                      : sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the record of a view");
    }
    sm_lock_take(&device->heap_lock);
    sm_heap_redeem(&device->heap, DRAFT_RECORDS);
    struct sm_fence *record = result ? NULL : sm_slab_take(&device->heap.fences);
    if (!result && !record) { /* the view is right all the same */
        result = sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the fence of a block of %lu bytes",
                              request->size);
        view->closed = false;
        view->whole = true;
    }
    if (result)
        give_back(&lent);
    else
        *block = make_block(request, view, &lent, record);
    sm_device_tell(device);
    uint64_t most = mappings_spared(device);
    sm_lock_give(&device->heap_lock);
    sm_stitch_evict(device, most, SM_TRIM_IDLE_ONLY);
    return result;
}
