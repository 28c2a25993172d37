/* SPDX-License-Identifier: Apache-2.0 */
/* index: see index.h. */
#include "alloc/heap/index.h"
#include "alloc/heap/heap.h"
#include "base/hostmem.h"
#include "base/log.h"

#define INDEX_MIN 256

/* Fibonacci hashing: block addresses are multiples of 512, so their low bits say nothing. */
static size_t slot_of(const struct sm_index *index, uint64_t address)
{
    return (size_t)(((address >> 9) * 0x9E3779B97F4A7C15u) >> 20) & (index->capacity - 1);
}

bool sm_index_reserve(struct sm_index *index, size_t count)
{
    struct sm_index grown = {.capacity = index->capacity ? index->capacity : INDEX_MIN};
    while (grown.capacity / 4 * 3 < count)
        grown.capacity *= 2;
    if (index->slots && grown.capacity == index->capacity)
        return true;
    grown.slots = sm_hostmem_get(grown.capacity * sizeof(*grown.slots));
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < index->capacity; i++)
        if (index->slots[i]) /* NOLINT(clang-analyzer-core.NullDereference): without slots capacity is 0 */
            sm_index_insert(&grown, index->slots[i]);
    sm_index_fini(index);
    *index = grown;
    return true;
}

void sm_index_fini(struct sm_index *index)
{
    if (index->slots)
        sm_hostmem_put(index->slots, index->capacity * sizeof(*index->slots));
    *index = (struct sm_index){0};
}

void sm_index_insert(struct sm_index *index, struct sm_block *block)
{
    size_t i = slot_of(index, block->address);
    SM_ASSERT(index->count < index->capacity);
    while (index->slots[i]) {
        SM_ASSERT(index->slots[i]->address != block->address);
        i = (i + 1) & (index->capacity - 1);
    }
    index->slots[i] = block;
    index->count++;
}

struct sm_block *sm_index_find(const struct sm_index *index, uint64_t address)
{
    if (!index->count)
        return NULL;
    for (size_t i = slot_of(index, address); index->slots[i]; i = (i + 1) & (index->capacity - 1))
        if (index->slots[i]->address == address)
            return index->slots[i];
    return NULL;
}

bool sm_index_remove(struct sm_index *index, const struct sm_block *block)
{
    size_t mask = index->capacity - 1;
    size_t hole;
    if (!index->count)
        return false;
    for (hole = slot_of(index, block->address); index->slots[hole] != block; hole = (hole + 1) & mask)
        if (!index->slots[hole])
            return false;
    /* An entry may move into the hole if its own slot does not lie after the hole, seen around the ring. */
    for (size_t i = (hole + 1) & mask; index->slots[i]; i = (i + 1) & mask) {
        size_t home = slot_of(index, index->slots[i]->address);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            index->slots[hole] = index->slots[i];
            hole = i;
        }
    }
    index->slots[hole] = NULL;
    index->count--;
    return true;
}
