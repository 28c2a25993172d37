/* SPDX-License-Identifier: Apache-2.0 */
/* address: see address.h. */
#include "sim/core/address.h"
#include "base/align.h"
#include "sim/core/backing.h"
#include "sim/core/config.h"
#include "sim/core/gaps.h"
#include <stdlib.h>

/* Where the arenas lie: clear of a program's own image, heap and libraries, and of a sanitizer's shadow. The
 * thread sanitizer leaves a program only a few windows; the lowest is used under it, which is small. */
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#define WIDE_BASE ((uint64_t)32 << 40)
#define WIDE_SIZE ((uint64_t)32 << 40)
#ifdef UNDER_TSAN
#define BACKED_BASE ((uint64_t)64 << 30)
#define BACKED_SIZE ((uint64_t)416 << 30)
#else
#define BACKED_BASE WIDE_BASE
#define BACKED_SIZE WIDE_SIZE
#endif

static int compare(const struct sim_range *a, const struct sim_range *b)
{
    return a->base < b->base ? -1 : a->base > b->base;
}
RB_HEAD(range_tree, sim_range);
SIM_TREE_GENERATE(range_tree, sim_range, link, compare)

static struct range_tree ranges;
static struct {
    struct sim_gaps gaps;
    uint64_t used, peak;
} arenas[SIM_DEVICES_MAX];
static int arena_count;
static uint64_t arenas_start, arenas_end;
static uint64_t address_budget;
static uint64_t next_id = 1, next_host_id = (uint64_t)1 << 48;

uint64_t sim_arena_bytes(int devices, bool backed)
{
    return sm_align_down((backed ? BACKED_SIZE : WIDE_SIZE) / (uint64_t)devices, SM_GIB);
}

bool sim_address_start(int devices, bool backed, uint64_t budget)
{
    uint64_t size = sim_arena_bytes(devices, backed), base = backed ? BACKED_BASE : WIDE_BASE;
    address_budget = budget ? sm_min(budget, size) : size;
    next_id = 1;
    arenas_start = base;
    arenas_end = base + (uint64_t)devices * size;
    for (arena_count = 0; arena_count < devices; arena_count++) {
        uint64_t start = base + (uint64_t)arena_count * size;
        arenas[arena_count].used = arenas[arena_count].peak = 0;
        if (!sim_gaps_init(&arenas[arena_count].gaps, start, start + size))
            return false;
    }
    return true;
}

void sim_address_reset(void)
{
    for (struct sim_range *range; (range = RB_ROOT(&ranges));) {
        RB_REMOVE(range_tree, &ranges, range);
        free(range);
    }
    while (arena_count > 0)
        sim_gaps_clear(&arenas[--arena_count].gaps);
}

uint64_t sim_address_new_id(void)
{
    return next_id++;
}

/* Finds room in an arena, skipping what the host already uses. */
static bool find_room(int device, enum sim_range_kind kind, uint64_t size, uint64_t align, uint64_t hint,
                      uint64_t *base)
{
    struct sim_gaps *gaps = &arenas[device].gaps;
    if (hint && hint % align == 0 && sim_gaps_take_at(gaps, hint, size)) {
        *base = hint;
        if (sim_backing_reserve(hint, size))
            return true;
        sim_gaps_give(gaps, hint, size);
    }
    for (int tries = 0; tries < 64; tries++) {
        bool found = kind == SIM_RANGE_PLAIN && sim_config.plain_descend
                         ? sim_gaps_take_high(gaps, size, align, base)
                         : sim_gaps_take_low(gaps, size, align, base);
        if (!found)
            return false;
        if (sim_backing_reserve(*base, size))
            return true;
        /* Something of the host lies there: that place stays taken for ever, and the search goes on beyond
         * it. */
    }
    return false;
}

struct sim_range *sim_address_place(enum sim_range_kind kind, int device, uint64_t size, uint64_t align,
                                    uint64_t hint)
{
    uint64_t base;
    if (size > address_budget || arenas[device].used > address_budget - size)
        return NULL;
    struct sim_range *range = calloc(1, sizeof *range);
    if (!range)
        return NULL;
    if (!find_room(device, kind, size, align, hint, &base)) {
        free(range);
        return NULL;
    }
    *range = (struct sim_range){.base = base, .size = size, .kind = kind, .device = device, .file = device};
    range->origin = sim_origin_now();
    range->id = kind == SIM_RANGE_PLAIN ? sim_address_new_id() : next_host_id++;
    RB_INSERT(range_tree, &ranges, range);
    arenas[device].used += size;
    arenas[device].peak = sm_max(arenas[device].peak, arenas[device].used);
    return range;
}

struct sim_range *sim_address_note_host(enum sim_range_kind kind, int device, uint64_t base, uint64_t size)
{
    struct sim_range key = {.base = base}, *after = RB_NFIND(range_tree, &ranges, &key);
    if (sim_address_find(base) || (after && after->base < base + size))
        return NULL;
    struct sim_range *range = calloc(1, sizeof *range);
    if (!range)
        return NULL;
    *range =
        (struct sim_range){.base = base, .size = size, .kind = kind, .device = device, .id = next_host_id++};
    range->origin = sim_origin_now();
    RB_INSERT(range_tree, &ranges, range);
    return range;
}

struct sim_range *sim_address_split(struct sim_range *range, uint64_t size)
{
    struct sim_range *rest = malloc(sizeof *rest);
    if (!rest)
        return NULL;
    *rest = *range;
    rest->base += size;
    rest->offset += size;
    rest->size -= size;
    rest->id = sim_address_new_id();
    range->size = size;
    RB_INSERT(range_tree, &ranges, rest);
    return rest;
}

void sim_address_drop(struct sim_range *range)
{
    RB_REMOVE(range_tree, &ranges, range);
    if (range->kind == SIM_RANGE_RESERVATION || range->kind == SIM_RANGE_PLAIN) {
        sim_backing_release(range->base, range->size);
        sim_gaps_give(&arenas[range->device].gaps, range->base, range->size);
        arenas[range->device].used -= range->size;
    }
    free(range);
}

struct sim_range *sim_address_find(uint64_t address)
{
    for (struct sim_range *range = RB_ROOT(&ranges); range;) {
        if (address < range->base)
            range = RB_LEFT(range, link);
        else if (address - range->base >= range->size)
            range = RB_RIGHT(range, link);
        else
            return range;
    }
    return NULL;
}

struct sim_range *sim_address_at(uint64_t base)
{
    struct sim_range key = {.base = base};
    return RB_FIND(range_tree, &ranges, &key);
}

struct sim_range *sim_address_next(struct sim_range *range)
{
    return range ? RB_NEXT(range_tree, &ranges, range) : RB_MIN(range_tree, &ranges);
}

bool sim_address_in_arena(uint64_t address)
{
    return arena_count > 0 && address >= arenas_start && address < arenas_end;
}

uint64_t sim_address_bytes(int device)
{
    return arenas[device].used;
}

uint64_t sim_address_bytes_peak(int device)
{
    return arenas[device].peak;
}

void sim_address_live(struct sim_live *live)
{
    struct sim_range *range;
    RB_FOREACH(range, range_tree, &ranges) {
        switch (range->kind) {
        case SIM_RANGE_RESERVATION:
            live->reservations++;
            live->reserved_bytes += range->size;
            break;
        case SIM_RANGE_PLAIN:
            live->allocations += !range->cached;
            break;
        default:
            live->host++;
        }
    }
}
