/* SPDX-License-Identifier: Apache-2.0 */
/* index_hot: the part of index.h that every hit uses, inline; heap.h includes it. */
#ifndef SEAM_ALLOC_HEAP_INDEX_HOT_H
#define SEAM_ALLOC_HEAP_INDEX_HOT_H

#ifndef SEAM_ALLOC_HEAP_HEAP_H
#error "include alloc/heap/heap.h"
#endif

/* Fibonacci hashing: block addresses are multiples of 512, so their low bits say nothing. */
static inline size_t sm_index_slot(const struct sm_index *index, uint64_t address)
{
    return (size_t)(((address >> 9) * 0x9E3779B97F4A7C15u) >> 20) & (index->capacity - 1);
}

static inline struct sm_block **sm_index_bucket(struct sm_index *index, uint64_t address)
{
    return index->capacity ? &index->buckets[sm_index_slot(index, address)] : &index->alone;
}

static inline void sm_index_link(struct sm_index *index, struct sm_block *block)
{
    struct sm_block **bucket = sm_index_bucket(index, block->address);
    block->chain = *bucket;
    *bucket = block;
}

static inline void sm_index_insert(struct sm_index *index, struct sm_block *block)
{
    SM_ASSERT(!sm_index_find(index, block->address));
    if (index->count >= index->capacity)
        sm_index_widen(index);
    sm_index_link(index, block);
    index->count++;
}

static inline struct sm_block *sm_index_find(const struct sm_index *index, uint64_t address)
{
    struct sm_block *block = *sm_index_bucket((struct sm_index *)index, address);
    while (block && block->address != address)
        block = block->chain;
    return block;
}

static inline bool sm_index_remove(struct sm_index *index, const struct sm_block *block)
{
    struct sm_block **at = sm_index_bucket(index, block->address);
    while (*at && *at != block)
        at = &(*at)->chain;
    if (!*at)
        return false;
    *at = block->chain;
    index->count--;
    return true;
}

#endif
