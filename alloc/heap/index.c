/* SPDX-License-Identifier: Apache-2.0 */
/* index: see index.h. */
#include "alloc/heap/index.h"
#include "alloc/heap/heap.h"
#include "base/hostmem.h"
#include "base/log.h"

#define INDEX_MIN 64

static struct sm_block *first_of(const struct sm_index *index, size_t slot)
{
    return index->capacity ? index->buckets[slot] : index->alone;
}

void sm_index_widen(struct sm_index *index)
{
    struct sm_index wide = {.capacity = index->capacity ? 2 * index->capacity : INDEX_MIN,
                            .count = index->count};
    wide.buckets = sm_hostmem_get(wide.capacity * sizeof(struct sm_block *));
    if (!wide.buckets)
        return;
    for (size_t slot = 0; slot == 0 || slot < index->capacity; slot++)
        for (struct sm_block *block = first_of(index, slot), *next; block; block = next) {
            next = block->chain;
            sm_index_link(&wide, block);
        }
    sm_index_fini(index);
    *index = wide;
}

void sm_index_fini(struct sm_index *index)
{
    sm_hostmem_put(index->buckets, index->capacity * sizeof(struct sm_block *));
    *index = (struct sm_index){0};
}

struct sm_block *sm_index_next(const struct sm_index *index, const struct sm_block *block)
{
    size_t slot = 0;
    if (block && block->chain)
        return block->chain;
    if (block)
        slot = index->capacity ? sm_index_slot(index, block->address) + 1 : 1;
    for (; slot == 0 || slot < index->capacity; slot++)
        if (first_of(index, slot))
            return first_of(index, slot);
    return NULL;
}
