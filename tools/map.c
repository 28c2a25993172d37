/* SPDX-License-Identifier: Apache-2.0 */
/* map: see map.h. A red-black tree of libbsd's, ordered by key, then by insertion. */
#include "tools/map.h"
#include <stdio.h>
#include <stdlib.h>

static int compare(const struct map_entry *a, const struct map_entry *b)
{
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

RB_PROTOTYPE_INTERNAL(map_tree, map_entry, node, compare, static __attribute__((unused)))
RB_GENERATE_INTERNAL(map_tree, map_entry, node, compare, static __attribute__((unused)))

struct map_entry *map_add(struct map *map, uint64_t key, uint64_t value)
{
    struct map_entry *entry = malloc(sizeof(*entry));
    if (!entry) {
        fputs("seamalloc: out of host memory\n", stderr);
        exit(1);
    }
    *entry = (struct map_entry){.key = key, .order = ++map->inserted, .value = value};
    RB_INSERT(map_tree, &map->tree, entry);
    return entry;
}

struct map_entry *map_find(struct map *map, uint64_t key)
{
    struct map_entry wanted = {.key = key};
    struct map_entry *entry = RB_NFIND(map_tree, &map->tree, &wanted);
    return entry && entry->key == key ? entry : NULL;
}

void map_remove(struct map *map, struct map_entry *entry)
{
    RB_REMOVE(map_tree, &map->tree, entry);
    free(entry);
}

struct map_entry *map_first(struct map *map)
{
    return RB_MIN(map_tree, &map->tree);
}

struct map_entry *map_next(struct map_entry *entry)
{
    return RB_NEXT(map_tree, , entry);
}

void map_clear(struct map *map)
{
    struct map_entry *entry;
    while ((entry = map_first(map)))
        map_remove(map, entry);
    map->inserted = 0;
}

uint64_t map_number(struct map *map, uint64_t key)
{
    struct map_entry *entry = key ? map_find(map, key) : NULL;
    if (!key)
        return 0;
    return entry ? entry->value : map_add(map, key, map->inserted + 1)->value;
}
