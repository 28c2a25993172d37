/* SPDX-License-Identifier: Apache-2.0 */
/* index: from the address of a live block to its record; the answer to "is this pointer ours?" that trusts no
 * caller.
 *
 * A hash table of chains that run through the records themselves (sm_block.chain), so that an insertion needs
 * no memory and cannot fail, and a removal touches no other chain. There are about as many buckets as blocks;
 * where the host has no memory for more, chains grow longer instead.
 *
 * Each home has one, and the heap one for its stitched blocks. Protected by: what protects the home. */
#ifndef SEAM_ALLOC_HEAP_INDEX_H
#define SEAM_ALLOC_HEAP_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sm_block;

struct sm_index {
    struct sm_block **buckets;
    size_t capacity;        /* buckets: a power of two, or 0 */
    struct sm_block *alone; /* the only chain while capacity is 0 */
    size_t count;
};

void sm_index_fini(struct sm_index *index);
/* Requires: no block of this address is in the index. */
static inline void sm_index_insert(struct sm_index *index, struct sm_block *block);
/* The block that begins at this address, or NULL. */
static inline struct sm_block *sm_index_find(const struct sm_index *index, uint64_t address);
/* Returns: false when it was not there. */
static inline bool sm_index_remove(struct sm_index *index, const struct sm_block *block);
/* Twice the buckets, if the host has memory for them. */
void sm_index_widen(struct sm_index *index);
/* Goes through all blocks, in no order: the first for NULL, NULL after the last. The index must not change
 * meanwhile. */
struct sm_block *sm_index_next(const struct sm_index *index, const struct sm_block *block);

#endif
