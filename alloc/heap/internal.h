/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the heap share among themselves. Protected by the device's heap lock. */
#ifndef SEAM_ALLOC_HEAP_INTERNAL_H
#define SEAM_ALLOC_HEAP_INTERNAL_H

#include "alloc/heap/heap.h"

/* A FREE block enters or leaves its home's index and the sums. Requires: state FREE, address and size final.
 */
void sm_free_insert(struct sm_block *block);
void sm_free_remove(struct sm_block *block);
/* Makes the block FREE and joins it with free neighbours. Returns: the range. */
struct sm_block *sm_free_join(struct sm_block *block);

/* A new record behind `left`, covering the bytes from `address` to left's end; left shrinks. The state is
 * copied. Requires: one record prepared; left is in no index. */
struct sm_block *sm_block_divide(struct sm_block *left, uint64_t address);
/* The host memory of an extent's record and tables. */
void sm_extent_free(struct sm_extent *extent);
/* The handles that begin in [from, to) now begin in this block; they lie in its extent. */
void sm_block_own_handles(struct sm_block *block, uint64_t from, uint64_t to);
/* Takes right's bytes into left and gives right's record back. Requires: neighbours, both in no index. */
void sm_block_absorb(struct sm_block *left, struct sm_block *right);

#endif
