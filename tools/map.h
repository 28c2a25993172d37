/* SPDX-License-Identifier: Apache-2.0 */
/* map: from a number to what is known of it. A key may be there more than once: an address whose free is
 * logged after its next use has two lifetimes at once, and the older one ends first. */
#ifndef SEAM_TOOLS_MAP_H
#define SEAM_TOOLS_MAP_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_entry {
    uint64_t key, order; /* order: of insertion */
    uint64_t value, size;
    RB_ENTRY(map_entry) node;
};
RB_HEAD(map_tree, map_entry);

struct map {
    struct map_tree tree;
    uint64_t inserted;
};

/* A zeroed map is empty. Ends the program when memory is out. */
struct map_entry *map_add(struct map *map, uint64_t key, uint64_t value);
/* The oldest of this key, or NULL. */
struct map_entry *map_find(struct map *map, uint64_t key);
void map_remove(struct map *map, struct map_entry *entry);
/* In the order of keys. Returns: NULL at the end. */
struct map_entry *map_first(struct map *map);
struct map_entry *map_next(struct map_entry *entry);
void map_clear(struct map *map);
/* Small numbers in the order in which keys are first seen, from 1; the key 0 is 0. */
uint64_t map_number(struct map *map, uint64_t key);

#endif
