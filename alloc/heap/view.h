/* SPDX-License-Identifier: Apache-2.0 */
/* view: a second range of addresses in which handles of several places lie side by side.
 *
 * A view owns no memory: each of its entries names a handle that is mapped at home, and whether bytes are
 * free is asked there and nowhere else. A stitched block lies in a view; its bytes are LENT at home, piece by
 * piece, and come back when it dies. The view stays, so that the same pieces can be served again without a
 * driver call.
 *
 *   home    | h0: LIVE | FREE     | h1: FREE             | h2: LIVE |  ...  | h7: FREE    | LIVE |
 *   view               | h0       | h1                   | h7                  |
 *   block                   ^ LENT   LENT                   LENT up to here ^
 *
 * A handle lies in a view at most once: otherwise two parts of one block could be the same bytes. The first
 * piece may begin anywhere in its handle, but must end at the handle's end; the last may end anywhere; those
 * between are whole handles. Where the driver maps any part of a handle, all this holds of granules instead.
 *
 * Integers only; records are prepared by the caller as elsewhere in the heap. Protected by: the device's heap
 * lock. */
#ifndef SEAM_ALLOC_HEAP_VIEW_H
#define SEAM_ALLOC_HEAP_VIEW_H

#include "alloc/heap/heap.h"

struct sm_view_entry {
    struct sm_extent *extent;
    uint32_t slot;   /* of the handle in its extent */
    uint64_t offset; /* in the view */
    uint64_t from;   /* where in the handle the mapped part begins; 0 where only whole handles map */
    uint64_t size;   /* of that part */
    bool mapped;     /* the engine keeps it */
    bool gone; /* unmapped while other parts of the view were in use: its slot may hold another handle by now,
                  and its extent may be no more */
};

struct sm_view {
    struct sm_extent
        span; /* what its blocks name as their extent: base, size, home; it has no blocks or handles */
    struct sm_view_entry *entries;
    uint32_t count;
    uint32_t live; /* blocks in it */
    bool closed;   /* being made or unmade: serves nobody */
    bool whole;    /* every entry is mapped, with access */
    bool mixed; /* used by several streams without an order between them: only the device's end covers all */
    void *stream;   /* struct sm_stream that used it last, and how many blocks that had freed when it gave the
                       view back: */
    uint64_t freed; /* what must have passed before the view may be unmapped */
    TAILQ_ENTRY(sm_view) link;
};

/* A run of free bytes in a view, in view offsets. */
struct sm_run {
    struct sm_view *view;
    uint64_t from, to;
};

/* May memory of this home serve the request? Decided by the engine. */
typedef bool (*sm_lender_test)(const struct sm_home *home, void *context);

/* FREE block -> LENT [from, to) inside it; what lies before and behind stays free. Until it has a borrower it
 * counts as fenced, so that the parts add up while the driver works. Requires: two records prepared. Returns:
 * the LENT block, without a borrower. */
struct sm_block *sm_block_lend(struct sm_block *block, uint64_t from, uint64_t to);
/* LENT -> FREE again, before a borrower was set or after it died. */
void sm_block_unlend(struct sm_block *piece);

/* A view with room for `count` entries; in no list yet. Returns: NULL when out of host memory. */
struct sm_view *sm_view_create(struct sm_home *home, uint32_t count);
/* Adds [from, from + size) of the handle at the end. Requires: room; no byte of it is in the view. */
void sm_view_add(struct sm_view *view, struct sm_extent *extent, struct sm_handle *handle, uint64_t from,
                 uint64_t size);
/* It is mapped at base: into the list. */
void sm_view_publish(struct sm_heap *heap, struct sm_view *view, uint64_t base);
/* Out of the list (if it was published) and forgotten; nothing is unmapped here. Requires: no live block. */
void sm_view_destroy(struct sm_heap *heap, struct sm_view *view);
void sm_view_fini(struct sm_heap *heap);
/* Does a block of the view lie in this entry's handle, in part? Requires: not gone. */
bool sm_view_uses(const struct sm_view *view, const struct sm_view_entry *entry);
/* The entry was unmapped; the view keeps a hole there. Requires: no block of the view lies in it. */
void sm_view_drop(struct sm_heap *heap, struct sm_view_entry *entry);
/* The handle of an entry that is not gone. */
struct sm_handle *sm_view_handle(const struct sm_view_entry *entry);
/* Where the entry's first byte lies at home. Requires: not gone. */
static inline uint64_t sm_view_home(const struct sm_view_entry *entry)
{
    return entry->extent->handles[entry->slot].address + entry->from;
}

/* The shortest run of free bytes >= size among the `most` views used last, in memory that `may_lend`; false
 * if there is none. No record is needed. */
bool sm_view_find_run(struct sm_heap *heap, uint64_t size, unsigned most, sm_lender_test may_lend,
                      void *context, struct sm_run *run);
/* Records that a block over `entries` entries needs. */
static inline size_t sm_view_records(uint32_t entries)
{
    return 2 * (size_t)entries + 1;
}
/* The run's first `size` bytes become a LIVE stitched block. Requires: records prepared. Returns: it. */
struct sm_block *sm_view_take(const struct sm_run *run, uint64_t size, uint64_t requested);
/* A LIVE stitched block over pieces that are LENT already, linked by next_piece in the order of their
 * addresses in the view; it begins `offset` bytes into the view. Requires: one record prepared. */
struct sm_block *sm_view_take_pieces(struct sm_view *view, uint64_t offset, uint64_t size, uint64_t requested,
                                     struct sm_block *pieces);
/* The pieces of a stitched block that left the live or pending sums are free again, and its record is gone.
 * Returns: NULL, as its bytes lie in several ranges. */
struct sm_block *sm_view_give(struct sm_block *block);

/* The LIVE stitched block that holds an address; NULL if none. Slow. */
struct sm_block *sm_view_block_of(struct sm_heap *heap, uint64_t address);

static inline struct sm_view *sm_block_view(const struct sm_block *stitched)
{
    return (struct sm_view *)(void *)((char *)stitched->extent - offsetof(struct sm_view, span));
}

#endif
