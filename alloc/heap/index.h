/* SPDX-License-Identifier: Apache-2.0 */
/* index: from the address of a live block to its record; the answer to "is this pointer ours?" that trusts no
 * caller.
 *
 * Open addressing with linear probing over block pointers; the load stays at most 3/4. Room is made ahead
 * (sm_index_reserve), so that an insertion never fails. Removal closes the hole by moving later entries back:
 * no tombstones. Protected by: the device's heap lock. */
#ifndef SEAM_ALLOC_HEAP_INDEX_H
#define SEAM_ALLOC_HEAP_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sm_block;

struct sm_index {
    struct sm_block **slots;
    size_t capacity; /* 0 or a power of two */
    size_t count;
};

/* Makes room for `count` entries in all. Returns: false when out of host memory; nothing changed. */
bool sm_index_reserve(struct sm_index *index, size_t count);
void sm_index_fini(struct sm_index *index);
/* Requires: room; the address is not in the index. */
void sm_index_insert(struct sm_index *index, struct sm_block *block);
/* The block that begins at this address, or NULL. */
struct sm_block *sm_index_find(const struct sm_index *index, uint64_t address);
/* Returns: false when it was not there. */
bool sm_index_remove(struct sm_index *index, const struct sm_block *block);

#endif
