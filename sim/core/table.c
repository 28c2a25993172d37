/* SPDX-License-Identifier: Apache-2.0 */
/* table: see table.h.
 *
 * Slots lie in chunks that are never freed or moved; the chunk pointers and each slot's handle are atomics,
 * which is what makes the look-up lock-free. Protected by: the core lock, for changes. */
#include "sim/core/table.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

/* A handle is kind, generation and slot, over four bits of zeros: programs take handles for addresses of
 * objects, and PyTorch keeps marks of its own in the low bits of a stream's. */
enum { CHUNK_BITS = 10, CHUNK = 1 << CHUNK_BITS, CHUNKS = 1 << 13 };
enum { ZERO_BITS = 4, SLOT_BITS = 24, GENERATION_BITS = 16 };
enum { GENERATION_SHIFT = ZERO_BITS + SLOT_BITS, KIND_SHIFT = GENERATION_SHIFT + GENERATION_BITS };

struct slot {
    _Atomic uint64_t handle; /* 0: free */
    void *_Atomic object;
    struct sim_origin origin;
    uint32_t generation;
    uint32_t next_free;
};

static struct slot *_Atomic chunks[CHUNKS];
static uint32_t slot_count = 1; /* slot 0 is never used */
static uint32_t free_first, free_last;
static _Atomic uint64_t live[SIM_KIND_COUNT];

static struct slot *slot_at(uint32_t index)
{
    struct slot *chunk = atomic_load_explicit(&chunks[index >> CHUNK_BITS], memory_order_acquire);
    return chunk ? &chunk[index & (CHUNK - 1)] : NULL;
}

static uint32_t fresh_slot(void)
{
    if (slot_count >= (uint32_t)CHUNKS * CHUNK)
        return 0;
    if (!slot_at(slot_count)) {
        struct slot *chunk = calloc(CHUNK, sizeof *chunk);
        if (!chunk)
            return 0;
        atomic_store_explicit(&chunks[slot_count >> CHUNK_BITS], chunk, memory_order_release);
    }
    return slot_count++;
}

static uint32_t take_slot(void)
{
    uint32_t index = free_first;
    if (!index)
        return fresh_slot();
    free_first = slot_at(index)->next_free;
    if (!free_first)
        free_last = 0;
    return index;
}

uint64_t sim_table_add(enum sim_kind kind, void *object)
{
    uint32_t index = take_slot();
    if (!index)
        return 0;
    struct slot *slot = slot_at(index);
    slot->generation = (slot->generation + 1) & ((1u << GENERATION_BITS) - 1);
    uint64_t handle = (uint64_t)kind << KIND_SHIFT | (uint64_t)slot->generation << GENERATION_SHIFT |
                      (uint64_t)index << ZERO_BITS;
    slot->origin = sim_origin_now();
    atomic_store_explicit(&slot->object, object, memory_order_relaxed);
    atomic_store_explicit(&slot->handle, handle, memory_order_release);
    atomic_fetch_add_explicit(&live[kind], 1, memory_order_relaxed);
    return handle;
}

static uint32_t index_of(uint64_t handle)
{
    return (uint32_t)(handle >> ZERO_BITS & ((1u << SLOT_BITS) - 1));
}

static struct slot *find(enum sim_kind kind, uint64_t handle)
{
    uint32_t index = index_of(handle);
    if (handle >> KIND_SHIFT != (uint64_t)kind || index >= (uint32_t)CHUNKS * CHUNK)
        return NULL;
    struct slot *slot = slot_at(index);
    if (!slot || atomic_load_explicit(&slot->handle, memory_order_acquire) != handle)
        return NULL;
    return slot;
}

void *sim_table_remove(enum sim_kind kind, uint64_t handle)
{
    struct slot *slot = find(kind, handle);
    if (!slot)
        return NULL;
    uint32_t index = index_of(handle);
    void *object = atomic_load_explicit(&slot->object, memory_order_relaxed);
    atomic_store_explicit(&slot->handle, 0, memory_order_release);
    slot->next_free = 0;
    if (free_last)
        slot_at(free_last)->next_free = index;
    else
        free_first = index;
    free_last = index;
    atomic_fetch_sub_explicit(&live[kind], 1, memory_order_relaxed);
    return object;
}

void *sim_table_get(enum sim_kind kind, uint64_t handle)
{
    struct slot *slot = find(kind, handle);
    return slot ? atomic_load_explicit(&slot->object, memory_order_relaxed) : NULL;
}

struct sim_origin sim_table_origin(uint64_t handle)
{
    return slot_at(index_of(handle))->origin;
}

uint64_t sim_table_count(enum sim_kind kind)
{
    return atomic_load_explicit(&live[kind], memory_order_relaxed);
}

void sim_table_each(enum sim_kind kind, void (*visit)(uint64_t handle, void *object, void *user), void *user)
{
    for (uint32_t index = 1; index < slot_count; index++) {
        struct slot *slot = slot_at(index);
        uint64_t handle = atomic_load_explicit(&slot->handle, memory_order_relaxed);
        if (handle >> KIND_SHIFT == (uint64_t)kind)
            visit(handle, atomic_load_explicit(&slot->object, memory_order_relaxed), user);
    }
}
