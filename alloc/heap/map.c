/* SPDX-License-Identifier: Apache-2.0 */
/* map: see map.h. */
#include "alloc/heap/map.h"
#include "base/hostmem.h"
#include "base/log.h"

#define MAP_MIN 16

static size_t bytes_of(size_t capacity)
{
    return sizeof(struct sm_map_array) + capacity * sizeof(struct sm_map_entry);
}

static void copy_entry(struct sm_map_entry *to, const struct sm_map_entry *from)
{
    atomic_store_explicit(&to->base, atomic_load_explicit(&from->base, memory_order_relaxed),
                          memory_order_release);
    atomic_store_explicit(&to->size, atomic_load_explicit(&from->size, memory_order_relaxed),
                          memory_order_release);
    atomic_store_explicit(&to->tag, atomic_load_explicit(&from->tag, memory_order_relaxed),
                          memory_order_release);
    to->home = from->home;
}

bool sm_map_reserve(struct sm_map *map)
{
    struct sm_map_array *array = atomic_load_explicit(&map->array, memory_order_relaxed), *wide;
    size_t count = atomic_load_explicit(&map->count, memory_order_relaxed);
    size_t capacity = array ? 2 * array->capacity : MAP_MIN;
    if (array && count < array->capacity)
        return true;
    wide = sm_hostmem_get(bytes_of(capacity));
    if (!wide)
        return false;
    wide->capacity = capacity;
    wide->outgrown = array;
    for (size_t i = 0; array && i < count; i++)
        copy_entry(&wide->entries[i], &array->entries[i]);
    atomic_store_explicit(&map->array, wide, memory_order_release);
    return true;
}

void sm_map_fini(struct sm_map *map)
{
    struct sm_map_array *array = atomic_load_explicit(&map->array, memory_order_relaxed);
    while (array) {
        struct sm_map_array *outgrown = array->outgrown;
        sm_hostmem_put(array, bytes_of(array->capacity));
        array = outgrown;
    }
    atomic_store_explicit(&map->array, NULL, memory_order_relaxed);
    atomic_store_explicit(&map->count, 0, memory_order_relaxed);
}

/* How many entries begin at or below an address. */
static size_t entries_up_to(const struct sm_map_array *array, size_t count, uint64_t address)
{
    size_t low = 0;
    while (count) {
        size_t half = count / 2;
        bool above = atomic_load_explicit(&array->entries[low + half].base, memory_order_acquire) > address;
        low += above ? 0 : half + 1;
        count = above ? half : count - half - 1;
    }
    return low;
}

/* A change begins, a change ends. */
static void step(struct sm_map *map)
{
    atomic_fetch_add_explicit(&map->sequence, 1, memory_order_acq_rel);
}

void sm_map_add(struct sm_map *map, uint64_t base, uint64_t size, struct sm_home *home, void *tag)
{
    struct sm_map_array *array = atomic_load_explicit(&map->array, memory_order_relaxed);
    size_t count = atomic_load_explicit(&map->count, memory_order_relaxed), at;
    SM_ASSERT(array && count < array->capacity);
    at = entries_up_to(array, count, base);
    step(map);
    for (size_t i = count; i > at; i--)
        copy_entry(&array->entries[i], &array->entries[i - 1]);
    atomic_store_explicit(&array->entries[at].base, base, memory_order_release);
    atomic_store_explicit(&array->entries[at].size, size, memory_order_release);
    atomic_store_explicit(&array->entries[at].tag, tag, memory_order_release);
    array->entries[at].home = home;
    atomic_store_explicit(&map->count, count + 1, memory_order_release);
    step(map);
}

void sm_map_remove(struct sm_map *map, uint64_t base)
{
    struct sm_map_array *array = atomic_load_explicit(&map->array, memory_order_relaxed);
    size_t count = atomic_load_explicit(&map->count, memory_order_relaxed);
    size_t at = entries_up_to(array, count, base);
    if (!SM_CHECK(at && atomic_load_explicit(&array->entries[at - 1].base, memory_order_relaxed) == base))
        return;
    step(map);
    for (; at < count; at++)
        copy_entry(&array->entries[at - 1], &array->entries[at]);
    atomic_store_explicit(&map->count, count - 1, memory_order_release);
    step(map);
}

/* The entry that holds an address, or NULL. */
static const struct sm_map_entry *find(const struct sm_map *map, uint64_t address)
{
    const struct sm_map_array *array = atomic_load_explicit(&map->array, memory_order_acquire);
    size_t count = atomic_load_explicit(&map->count, memory_order_acquire);
    const struct sm_map_entry *entry;
    if (!array)
        return NULL;
    count = entries_up_to(array, count < array->capacity ? count : array->capacity, address);
    if (!count)
        return NULL;
    entry = &array->entries[count - 1];
    return address - atomic_load_explicit(&entry->base, memory_order_acquire) <
                   atomic_load_explicit(&entry->size, memory_order_acquire)
               ? entry
               : NULL;
}

struct sm_home *sm_map_home(const struct sm_map *map, uint64_t address)
{
    const struct sm_map_entry *entry = find(map, address);
    return entry ? entry->home : NULL;
}

enum sm_map_answer sm_map_tag(const struct sm_map *map, uint64_t address, void **tag)
{
    uint64_t before = atomic_load_explicit(&map->sequence, memory_order_acquire);
    const struct sm_map_entry *entry = find(map, address);
    *tag = entry ? atomic_load_explicit(&entry->tag, memory_order_acquire) : NULL;
    if (before & 1 || atomic_load_explicit(&map->sequence, memory_order_relaxed) != before)
        return SM_MAP_CHANGING;
    return entry ? SM_MAP_HOME : SM_MAP_NOWHERE;
}
