/* SPDX-License-Identifier: Apache-2.0 */
/* map: from an address to the home whose extent holds it; views are not in it.
 *
 * An array ordered by address, searched by halving. It is changed under the device's heap lock, and may be
 * read without: each change makes the sequence number odd and then even again, so a reader that saw it change
 * knows that it saw nothing. Arrays that were outgrown stay until the end, for readers that still look at
 * them; together they are no larger than the last. What such a reader gets is the home's tag, a number to the
 * heap: the home itself may be gone. */
#ifndef SEAM_ALLOC_HEAP_MAP_H
#define SEAM_ALLOC_HEAP_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sm_home;

struct sm_map_entry {
    _Atomic uint64_t base, size;
    _Atomic(void *) tag;
    struct sm_home *home; /* heap lock */
};

struct sm_map_array {
    struct sm_map_array *outgrown;
    size_t capacity;
    struct sm_map_entry entries[];
};

struct sm_map {
    _Atomic uint64_t sequence;
    _Atomic(struct sm_map_array *) array;
    _Atomic size_t count;
};

/* Makes room for one more entry. Returns: false when out of host memory; nothing changed. */
bool sm_map_reserve(struct sm_map *map);
void sm_map_fini(struct sm_map *map);
/* Requires: room; the range overlaps none in the map. */
void sm_map_add(struct sm_map *map, uint64_t base, uint64_t size, struct sm_home *home, void *tag);
/* Requires: it is there. */
void sm_map_remove(struct sm_map *map, uint64_t base);
/* Heap lock held. NULL: in no extent. */
struct sm_home *sm_map_home(const struct sm_map *map, uint64_t address);
enum sm_map_answer { SM_MAP_CHANGING, SM_MAP_NOWHERE, SM_MAP_HOME };
/* No lock needed. Returns: whether the address lies in an extent, and then the tag of its home in *tag; or
 * that the map was changing. */
enum sm_map_answer sm_map_tag(const struct sm_map *map, uint64_t address, void **tag);

#endif
