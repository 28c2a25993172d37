/* SPDX-License-Identifier: Apache-2.0 */
/* heap: the bookkeeping of one device's memory, in integers.
 *
 * Nouns, from large to small:
 *   home    the memory of one (pool, stream, size class): a chain of extents and an index of its free ranges.
 *   extent  one reservation of address space, tiled by blocks without gap or overlap.
 *   handle  physical memory mapped once into an extent; a multiple of the granularity, never split.
 *   block   [address, address + size), in one of five states.
 *
 *   extent  |--------------------------------- reservation ---------------------------------|
 *   handles |   handle 0   |   handle 1   |  h2  |
 *   blocks  | LIVE | FREE       | LIVE | PENDING |                 UNMAPPED                |
 *
 * Nothing here calls the driver, takes a lock or decides a policy: addresses and handle names are numbers, so
 * that every test runs with invented ones. Records come from slabs; functions that need some say how many,
 * and cannot fail after sm_heap_prepare() has made sure of them.
 *
 * The heap keeps the device's parts (base/parts.h) exactly: an O(1) change with each call, because only the
 * handles at the two ends of a free range decide how much of it is whole.
 *
 * A home's blocks, and what changes with them, can be used apart from the rest (sm_home_part), so that homes
 * need not wait for each other: its sums then go to a place of its own and its records come from there.
 *
 * Protected by: the device's heap lock, all of it but homes that are apart: whatever their owner says. Claim:
 * validate.c proves every sentence above by a walk.
 */
#ifndef SEAM_ALLOC_HEAP_HEAP_H
#define SEAM_ALLOC_HEAP_HEAP_H

#include "alloc/heap/index.h"
#include "alloc/heap/map.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "base/log.h"
#include "base/parts.h"
#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

enum sm_block_state {
    SM_BLOCK_FREE,    /* in its home's free index */
    SM_BLOCK_LIVE,    /* handed out; in the address index */
    SM_BLOCK_PENDING, /* freed, its fence has not passed; in the address index no longer */
    SM_BLOCK_LENT,    /* its bytes serve a stitched block and follow that block's state */
    SM_BLOCK_UNMAPPED /* address space without memory */
};

/* One entry of a fence: work of a stream that a block has to wait for. The engine owns stream and event. */
struct sm_fence {
    struct sm_fence *next; /* of the same block */
    void *stream;          /* struct sm_stream */
    struct sm_block *block;
    void *event;     /* record of the CUevent once recorded, else NULL */
    uint64_t serial; /* of queueing, to tell what a wait for the whole device covered */
    bool queued;     /* in a queue: the stream's if it has an event, else that of unrecorded ones */
    TAILQ_ENTRY(sm_fence) waiting; /* in that queue, in the order of recording */
};

struct sm_block {
    uint64_t address, size; /* bytes */
    struct sm_extent *extent;
    struct sm_block *prev, *next; /* neighbours in the extent, by address */
    union {
        struct { /* FREE */
            RB_ENTRY(sm_block) by_size;
            uint64_t whole; /* bytes in handles that lie wholly inside */
        };
        struct { /* LIVE, PENDING */
            uint64_t requested;
            struct sm_fence *fence; /* what the block waits for once it is freed; empty for most */
            void *stream; /* struct sm_stream that asked for it: not the home's if the memory is borrowed */
            struct sm_block
                *pieces;    /* of a stitched block, in the order of their addresses in it; else NULL */
            uint64_t trace; /* id in recordings; 0, or of an earlier one: the running one does not know it */
            struct sm_block *chain; /* LIVE: of the address index */
        };
        struct {                         /* LENT */
            struct sm_block *borrower;   /* NULL while the stitched block is being made */
            struct sm_block *next_piece; /* of the same borrower */
        };
        TAILQ_ENTRY(sm_block) gap; /* UNMAPPED */
    };
    uint32_t birth; /* LIVE, PENDING: stamp of stats/; FREE: heap->requests when it became so */
    uint8_t state;  /* enum sm_block_state */
    uint8_t kind;   /* LIVE, PENDING: enum sm_kind of stats/ */
};

struct sm_handle {
    uint64_t address, size; /* where it is mapped at home; size 0: the slot is not in use */
    uint64_t name;          /* CUmemGenericAllocationHandle */
    struct sm_block *first; /* the block that holds its first byte */
    uint32_t views;         /* that map it a second time */
};

struct sm_extent {
    struct sm_home *home;
    uint64_t base, size;
    bool plain; /* not a reservation but one plain allocation of the driver: one handle, filled whole */
    struct sm_block *first, *last;
    struct sm_handle *handles; /* slots, in no order */
    uint32_t handle_slots, handle_count, handle_hint;
    uint32_t *granules; /* granule -> slot + 1, 0: unmapped; as long as anything was ever mapped */
    uint64_t granule_count;
    uint64_t mapped;  /* bytes */
    uint64_t refused; /* serial of the trim at which the driver would not take the addresses back */
    bool shut;        /* the driver would not map something in it: memory grows elsewhere for now */
    TAILQ_ENTRY(sm_extent) link;
};

RB_HEAD(sm_free_tree, sm_block);
TAILQ_HEAD(sm_extent_list, sm_extent);
TAILQ_HEAD(sm_gap_list, sm_block);

struct sm_home_key {
    uint64_t pool_first, pool_second; /* {0, 0}: default pool */
    void *stream;                     /* struct sm_stream */
    bool small_class;
};

/* Sums that change with the blocks of one size class. */
struct sm_heap_counts {
    uint64_t segments;       /* contiguous mapped ranges */
    uint64_t held_ranges;    /* FREE blocks with bytes in handles that are not wholly free */
    uint64_t held;           /* those bytes */
    uint64_t splits, merges; /* running counts */
};

struct sm_home {
    struct sm_heap *heap;
    struct sm_home_key key;
    void *tag;                       /* what the engine knows the home by, for readers of the map */
    struct sm_parts *parts;          /* the heap's, or while the home is apart its own */
    struct sm_heap_counts *counts;   /* the same, of its size class */
    struct sm_slab *records;         /* where block records come from and go to: the same */
    struct sm_index index;           /* its LIVE blocks by address */
    struct sm_free_tree free_ranges; /* by (size, address) */
    struct sm_extent_list extents;   /* in the order of their creation */
    struct sm_gap_list gaps;         /* UNMAPPED blocks */
    uint64_t mapped;                 /* bytes of handles */
    uint64_t used;                   /* bytes of LIVE, PENDING and LENT blocks */
    uint64_t held, whole;            /* bytes of FREE blocks */
    unsigned pins;                   /* requests on their way to it: not to be destroyed */
    LIST_ENTRY(sm_home) link;
};

struct sm_heap {
    uint64_t granularity; /* a power of two */
    unsigned granule_shift;
    bool parts_map; /* any granules of a handle may be mapped in a view, not the whole handle alone */
    struct sm_slab blocks, fences;
    struct sm_index index; /* LIVE stitched blocks by address */
    struct sm_map map;     /* from addresses to homes */
    LIST_HEAD(, sm_home) homes;
    TAILQ_HEAD(sm_view_list, sm_view) views; /* the one used last in front */
    uint64_t view_count, view_handles;       /* views, and mappings in them */
    _Atomic uint64_t stitched;               /* records of stitched blocks; may be read without a lock */
    struct sm_parts parts;
    struct sm_extent *spare; /* for the next extent */
    bool spare_promised;
    size_t promised;         /* block records kept aside */
    uint64_t reserved;       /* bytes of handles in all homes */
    uint64_t lost;           /* of these: handles that the driver refused to release; counted as whole_free */
    uint64_t handles;        /* count, plain allocations left out */
    uint64_t address_bytes;  /* of all extents and views, and the lost ones */
    uint64_t lost_addresses; /* of these: a range that the driver refused to take back and nobody uses */
    struct sm_heap_counts counts[2]; /* of homes of the large class, of the small class */
    _Atomic uint32_t
        requests; /* that could have been served by the default pool's large class; the engine counts,
                                  leased homes left out */
};

/* ---- heap and homes ---- */

/* Requires: granularity is a power of two >= 512. Allocates nothing. */
void sm_heap_init(struct sm_heap *heap, uint64_t granularity);
/* Gives all host memory back; knows nothing of the driver. */
void sm_heap_fini(struct sm_heap *heap);

/* Makes sure that the next `records` block records are at hand.
 * Returns: false when out of host memory; nothing changed. Cheap when they are. */
bool sm_heap_prepare(struct sm_heap *heap, size_t records);
/* Keeps `records` aside for a caller that gives up the heap lock in between: others cannot use them up. Ended
 * by redeem, just before they are used or when they are not needed. Returns: false when out of host memory;
 * nothing changed. */
bool sm_heap_promise(struct sm_heap *heap, size_t records);
void sm_heap_redeem(struct sm_heap *heap, size_t records);

/* Returns: a new home without extents, or NULL when out of host memory. */
struct sm_home *sm_home_create(struct sm_heap *heap, const struct sm_home_key *key);
/* Requires: the home has no extent. */
void sm_home_destroy(struct sm_home *home);

/* What a home works with while it is apart. */
struct sm_apart {
    struct sm_parts parts;        /* since it went */
    struct sm_heap_counts counts; /* since it went; unsigned, but a difference all the same */
    struct sm_slab records;
};
/* From now on calls that touch nothing but the home's blocks (best fit, take, give of blocks that are not
 * stitched, sm_home_block) change the home and *apart alone. `records` block records go along, if the heap
 * has as many to spare. Nothing else may be done with the home. */
void sm_home_part(struct sm_home *home, struct sm_apart *apart, size_t records);
/* So many more records go along, if the heap has as many to spare. */
void sm_home_supply(struct sm_home *home, struct sm_apart *apart, size_t records);
/* The home is a part of its heap again, and the heap's sums are whole. */
void sm_home_rejoin(struct sm_home *home, struct sm_apart *apart);
/* How many records a home that is apart has left. */
static inline size_t sm_apart_records(const struct sm_apart *apart)
{
    return apart->records.capacity - apart->records.count;
}

/* Makes sure that the next extent can be added, with room in its tables for `mapped` bytes in `handles`
 * handles; a promise of one block record is part of it. Returns: false when out of host memory; nothing
 * changed. */
bool sm_extent_ready(struct sm_heap *heap, uint64_t mapped, uint32_t handles);
/* The extent is not added after all: the promise is over, the record is kept for the next. */
void sm_extent_unready(struct sm_heap *heap);
/* Adds a reservation, or a plain allocation, as one UNMAPPED block. Returns: NULL when out of host memory:
 * not after sm_extent_ready().
 * Requires: base and size are multiples of the granularity. */
struct sm_extent *sm_extent_add(struct sm_home *home, uint64_t base, uint64_t size);
struct sm_extent *sm_extent_add_plain(struct sm_home *home, uint64_t base, uint64_t size);
/* Requires: nothing is mapped in it. */
void sm_extent_remove(struct sm_extent *extent);

/* ---- blocks ---- */

/* The LIVE block that begins at an address: of a home, of the whole heap. NULL if there is none. */
struct sm_block *sm_home_block(const struct sm_home *home, uint64_t address);
struct sm_block *sm_heap_block(const struct sm_heap *heap, uint64_t address);
/* How many blocks are LIVE. */
size_t sm_heap_live(const struct sm_heap *heap);

/* The smallest free range >= size, the lowest address among equals; NULL if there is none. O(log n). */
struct sm_block *sm_home_best_fit(struct sm_home *home, uint64_t size);
struct sm_block *sm_home_largest(struct sm_home *home);
/* After best fit, as PyTorch's expandable segments choose: goes on to the next larger range as long as that
 * one has less room to grow into (its size and the gap behind it), so that the range at the end of a segment
 * is left alone. */
struct sm_block *sm_home_sheltered_fit(struct sm_block *block);

/* FREE -> LIVE, of the stream of the home until the caller sets another: the block's low end becomes the
 * block, the rest stays free when split is true and size is smaller. Requires: block FREE, size <=
 * block->size, both multiples of 512; one record prepared when it splits. */
void sm_block_take(struct sm_block *block, uint64_t size, uint64_t requested, bool split);
/* The same from an address inside the block: what lies before stays free. Requires: two records prepared.
 * Returns: the LIVE block. */
struct sm_block *sm_block_take_at(struct sm_block *block, uint64_t address, uint64_t size,
                                  uint64_t requested);
/* Bytes in whole handles that a FREE block would keep if its low end was taken.
 * Requires: size <= its size. */
uint64_t sm_block_whole_behind(const struct sm_block *block, uint64_t size);
/* LIVE -> PENDING: leaves the address index. */
void sm_block_pend(struct sm_block *block);
/* LIVE or PENDING -> FREE; joins free neighbours. The record may be gone afterwards.
 * Returns: the free range that now holds the bytes. */
struct sm_block *sm_block_give(struct sm_block *block);

/* ---- memory ---- */

/* The least number of granules that must be mapped in this gap, from its low end, for a range >= size to
 * exist there together with its free neighbours; bytes. Returns: 0 when the gap cannot hold it. */
uint64_t sm_gap_missing(const struct sm_heap *heap, const struct sm_block *gap, uint64_t size);
/* The gap that needs the fewest bytes for a range >= size, the lowest address among equals; NULL if none can
 * hold it. Gaps of extents that are shut are passed over here and below. */
struct sm_block *sm_home_best_gap(struct sm_home *home, uint64_t size, uint64_t *missing);

/* The first gap, by address, that begins a run of free ranges and gaps >= size (a free range before it
 * counted in), as PyTorch's expandable segments choose. *missing: bytes to map in it, at most its size; 0
 * when what lies before it is enough. */
struct sm_block *sm_home_first_run(struct sm_home *home, uint64_t size, uint64_t *missing);

/* Makes room in the extent's tables for `count` handles that end at most at `end` (an address).
 * Returns: false when out of host memory; nothing changed. */
bool sm_extent_prepare(struct sm_extent *extent, uint64_t end, uint32_t count);
/* Handles now lie at the gap's low end, one after the other: that much of it becomes FREE and joins its free
 * neighbours. Requires: sizes sum to at most the gap's size; extent prepared; one block record prepared.
 * Returns: the free range. */
struct sm_block *sm_gap_fill(struct sm_block *gap, const uint64_t *sizes, const uint64_t *names,
                             uint32_t count);

/* The whole handles inside a FREE block that no view maps leave it: [*from, *to), at most `most` bytes of
 * them (whole handles, from the high end; at least one if there is one). They become an UNMAPPED block whose
 * handles are still listed, so that nobody takes them while the driver unmaps them. Requires: two block
 * records prepared. Returns: that block; NULL when no whole handle lies inside. */
struct sm_block *sm_block_carve(struct sm_block *block, uint64_t most);
/* Is there a whole handle in this FREE block that no view maps? */
bool sm_block_can_carve(const struct sm_block *block);
/* The handle at an address of a carved block is gone from the driver. */
void sm_carved_forget(struct sm_block *carved, uint64_t address);
/* The carved block's memory from `from` on could not be given back and is still mapped: FREE again.
 * The unmapped part before it stays UNMAPPED. Requires: one block record prepared. */
void sm_carved_return(struct sm_block *carved, uint64_t from);
/* The carved block is empty now: joins neighbouring gaps. */
void sm_carved_close(struct sm_block *carved);
/* A handle that is in no home could not be released / was released after all: it counts as whole free memory
 * meanwhile. */
void sm_heap_lose(struct sm_heap *heap, uint64_t size);
void sm_heap_find(struct sm_heap *heap, uint64_t size);
/* The same for a range of addresses that belongs to no extent and no view. */
void sm_heap_lose_addresses(struct sm_heap *heap, uint64_t size);
void sm_heap_find_addresses(struct sm_heap *heap, uint64_t size);

/* ---- checking ---- */

/* Walks everything. Returns: SEAM_OK, or SEAM_E_STATE with the first contradiction. */
seam_result sm_heap_validate(struct sm_heap *heap, struct sm_error *error);

static inline uint64_t sm_block_end(const struct sm_block *block)
{
    return block->address + block->size;
}

/* ---- what hits ask most, inline ---- */

static inline uint64_t sm_extent_granule(const struct sm_extent *extent, uint64_t address)
{
    return (address - extent->base) >> extent->home->heap->granule_shift;
}

/* The handle at an address of the extent; NULL in a gap. */
static inline struct sm_handle *sm_extent_handle_at(const struct sm_extent *extent, uint64_t address)
{
    uint64_t granule = sm_extent_granule(extent, address);
    if (granule >= extent->granule_count || !extent->granules[granule])
        return NULL;
    return &extent->handles[extent->granules[granule] - 1];
}

/* First handle boundary >= address and last one <= address, inside the extent's mapped ranges. */
static inline uint64_t sm_extent_boundary_up(const struct sm_extent *extent, uint64_t address)
{
    const struct sm_handle *handle = sm_extent_handle_at(extent, address);
    SM_ASSERT(handle);
    return handle->address == address ? address : handle->address + handle->size;
}

static inline uint64_t sm_extent_boundary_down(const struct sm_extent *extent, uint64_t address)
{
    const struct sm_handle *handle = sm_extent_handle_at(extent, address - 1);
    SM_ASSERT(handle);
    return handle->address + handle->size == address ? address : handle->address;
}

static inline struct sm_heap *sm_block_heap(const struct sm_block *block)
{
    return block->extent->home->heap;
}

int sm_free_order(const struct sm_block *a, const struct sm_block *b);
RB_PROTOTYPE(sm_free_tree, sm_block, by_size, sm_free_order)

#include "alloc/heap/index_hot.h"

#endif
