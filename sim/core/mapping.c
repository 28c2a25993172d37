/* SPDX-License-Identifier: Apache-2.0 */
/* mapping: reservations, mappings and access rights. See memory.h and mapping.h.
 *
 * Mapping only enters a table; the host's map is made when access is given (backing.h), and that is also
 * where a device may run out of page tables: the ceiling counts mappings that have access. */
#include "sim/core/mapping.h"
#include "base/align.h"
#include "sim/core/address.h"
#include "sim/core/backing.h"
#include "sim/core/config.h"
#include "sim/core/lock.h"
#include "sim/core/physical.h"
#include "sim/core/queue.h"
#include <stdlib.h>

static int compare(const struct sim_mapping *a, const struct sim_mapping *b)
{
    return a->base < b->base ? -1 : a->base > b->base;
}
RB_HEAD(mapping_tree, sim_mapping);
SIM_TREE_GENERATE(mapping_tree, sim_mapping, link, compare)

static struct mapping_tree mappings;
static struct {
    uint64_t count, peak;
    uint64_t shown; /* of them, how many have access for somebody */
} devices[SIM_DEVICES_MAX];

struct sim_mapping *sim_mapping_find(uint64_t address)
{
    for (struct sim_mapping *m = RB_ROOT(&mappings); m;) {
        if (address < m->base)
            m = RB_LEFT(m, link);
        else if (address - m->base >= m->size)
            m = RB_RIGHT(m, link);
        else
            return m;
    }
    return NULL;
}

struct sim_mapping *sim_mapping_next(const struct sim_mapping *mapping)
{
    return mapping ? RB_NEXT(mapping_tree, &mappings, (struct sim_mapping *)mapping)
                   : RB_MIN(mapping_tree, &mappings);
}

/* The first mapping that is not wholly below an address. */
static struct sim_mapping *first_from(uint64_t address)
{
    struct sim_mapping key = {.base = address}, *m = sim_mapping_find(address);
    return m ? m : RB_NFIND(mapping_tree, &mappings, &key);
}

/* ---- reservations ---- */

CUresult sim_memory_reserve(uint64_t *base, uint64_t size, uint64_t align, uint64_t hint, int device)
{
    uint64_t unit = sim_config.granularity;
    if (size == 0 || size % unit) {
        sim_violate(SIM_RULE_GRANULARITY, device, 0, size, "a reservation of %llu bytes",
                    (unsigned long long)size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (align && !sm_is_pow2(align))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_claims(SIM_FEATURE_VMM))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (hint && sim_config.hints_refused)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_range *range =
        sim_address_place(SIM_RANGE_RESERVATION, device, size, sm_max(align, unit), hint);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *base = range->base;
    sim_history_note("addresses reserved", range->base, size, 0);
    return CUDA_SUCCESS;
}

CUresult sim_memory_free_addresses(uint64_t base, uint64_t size)
{
    struct sim_range *range = sim_address_at(base);
    if (!range || range->kind != SIM_RANGE_RESERVATION || range->size != size) {
        sim_violate(SIM_RULE_FREE_INEXACT, range ? range->device : -1, base, size, "%s",
                    range ? "not the size of the reservation" : "no reservation begins there");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range->mappings) {
        sim_violate(SIM_RULE_FREE_MAPPED, range->device, base, size, "%llu mappings left",
                    (unsigned long long)range->mappings);
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_memory_drop_kept(range, true);
    sim_address_drop(range);
    sim_history_note("addresses freed", base, size, 0);
    return CUDA_SUCCESS;
}

bool sim_memory_keep(const struct sim_memory *memory)
{
    struct sim_range *range = sim_config.release_keeps ? sim_address_find(memory->home) : NULL;
    if (!range || range->kind != SIM_RANGE_RESERVATION || range->id != memory->home_id)
        return false;
    struct sim_kept *kept = malloc(sizeof *kept);
    if (!kept)
        return false;
    *kept = (struct sim_kept){range->kept, memory->offset, memory->size, memory->device};
    range->kept = kept;
    return true;
}

void sim_memory_drop_kept(struct sim_range *range, bool to_device)
{
    for (struct sim_kept *kept; (kept = range->kept);) {
        range->kept = kept->next;
        if (to_device)
            sim_physical_give(kept->device, kept->offset, kept->size);
        free(kept);
    }
}

/* ---- mappings ---- */

/* Returns: the rule that a map breaks, or SIM_RULE_COUNT. */
static enum sim_rule broken_by_map(uint64_t base, uint64_t size, uint64_t offset,
                                   const struct sim_memory *memory, const struct sim_range *range)
{
    uint64_t unit = sim_config.granularity;
    if (!memory)
        return SIM_RULE_UNKNOWN_HANDLE;
    if (size == 0 || size % unit || base % unit || offset % unit)
        return SIM_RULE_GRANULARITY;
    if (offset && sim_config.partial != SIM_PARTIAL_INNER)
        return SIM_RULE_MAP_OFFSET;
    if (size > memory->size || offset > memory->size - size ||
        (size != memory->size && sim_config.partial == SIM_PARTIAL_WHOLE))
        return SIM_RULE_MAP_PART;
    if (!range || range->kind != SIM_RANGE_RESERVATION || size > range->size ||
        base - range->base > range->size - size)
        return SIM_RULE_MAP_OUTSIDE;
    const struct sim_mapping *next = first_from(base);
    if (next && next->base < base + size)
        return SIM_RULE_MAP_OVER_MAPPING;
    return SIM_RULE_COUNT;
}

/* Is a part of a handle that is mapped nowhere to be mapped into a range of just its size? That asks whether
 * the device does it, and nothing relies on the answer: it is refused without being held against anybody. */
static bool is_question(enum sim_rule rule, uint64_t size, const struct sim_memory *memory,
                        const struct sim_range *range)
{
    return (rule == SIM_RULE_MAP_OFFSET || rule == SIM_RULE_MAP_PART) && !memory->mappings && range &&
           range->size == size;
}

CUresult sim_memory_map(uint64_t base, uint64_t size, uint64_t offset, uint64_t handle)
{
    struct sim_memory *memory = sim_memory_get(handle);
    struct sim_range *range = sim_address_find(base);
    enum sim_rule rule = broken_by_map(base, size, offset, memory, range);
    if (rule != SIM_RULE_COUNT && is_question(rule, size, memory, range))
        return CUDA_ERROR_INVALID_VALUE;
    if (rule != SIM_RULE_COUNT) {
        sim_rules_about(handle);
        sim_violate(rule, memory ? memory->device : -1, base, size, "offset %llu, handle %#llx",
                    (unsigned long long)offset, (unsigned long long)handle);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_mapping *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *m = (struct sim_mapping){
        .base = base, .size = size, .offset = offset, .memory = memory, .origin = sim_origin_now()};
    RB_INSERT(mapping_tree, &mappings, m);
    memory->mappings++;
    memory->home = range->base;
    memory->home_id = range->id;
    range->mappings++;
    sim_history_note("mapped", base, size, handle);
    devices[memory->device].count++;
    devices[memory->device].peak = sm_max(devices[memory->device].peak, devices[memory->device].count);
    return CUDA_SUCCESS;
}

static void hide(struct sim_mapping *m)
{
    if (!m->readers)
        return;
    sim_backing_hide(m->base, m->size);
    devices[m->memory->device].shown--;
    m->readers = m->writers = 0;
}

static void remove_mapping(struct sim_mapping *m)
{
    hide(m);
    sim_history_note("unmapped", m->base, m->size, m->memory->handle);
    RB_REMOVE(mapping_tree, &mappings, m);
    sim_address_find(m->base)->mappings--;
    devices[m->memory->device].count--;
    m->memory->mappings--;
    sim_memory_drop_unused(m->memory);
    free(m);
}

/* Counts the mappings of which a range consists. Returns: false, with the rule, unless it is whole mappings
 * one beside the other. */
static bool whole_mappings(uint64_t base, uint64_t size, uint64_t *count, bool *is_part)
{
    const struct sim_mapping *m = first_from(base);
    uint64_t at = base, end = base + size;
    *count = 0;
    *is_part = false;
    while (at < end) {
        if (!m || m->base > at)
            return false;
        if (m->base < at || m->base + m->size > end) {
            *is_part = true;
            return false;
        }
        at = m->base + m->size;
        m = RB_NEXT(mapping_tree, &mappings, (struct sim_mapping *)m);
        ++*count;
    }
    return true;
}

CUresult sim_memory_unmap(uint64_t base, uint64_t size, uint64_t *mapping_count)
{
    bool is_part;
    uint64_t count = 0;
    enum sim_rule rule = SIM_RULE_COUNT;
    *mapping_count = 0;
    if (size == 0 || size % sim_config.granularity || base % sim_config.granularity ||
        size > UINT64_MAX - base)
        rule = SIM_RULE_GRANULARITY;
    else if (!whole_mappings(base, size, &count, &is_part))
        rule = is_part ? SIM_RULE_UNMAP_PART : SIM_RULE_UNMAP_UNMAPPED;
    else if (count > 1 && !sim_config.unmap_several)
        rule = SIM_RULE_UNMAP_SEVERAL;
    if (rule != SIM_RULE_COUNT) {
        sim_violate(rule, -1, base, size, NULL);
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Not refused: the driver does not know, and the work then fails or writes where it should not. */
    if (sim_queue_uses(base, size))
        sim_violate(SIM_RULE_UNMAP_IN_USE, sim_mapping_find(base)->memory->device, base, size, NULL);
    for (uint64_t at = base; at < base + size;) {
        struct sim_mapping *m = sim_mapping_find(at);
        at += m->size;
        remove_mapping(m);
    }
    *mapping_count = count;
    return CUDA_SUCCESS;
}

/* ---- access ---- */

/* Applies one description to access bits. Returns: false when it is not valid. */
static bool apply(const CUmemAccessDesc *desc, uint32_t *readers, uint32_t *writers)
{
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE || desc->location.id < 0 ||
        desc->location.id >= sim_config.devices)
        return false;
    uint32_t bit = (uint32_t)1 << desc->location.id;
    switch (desc->flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
        *readers &= ~bit;
        *writers &= ~bit;
        return true;
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
        *readers |= bit;
        *writers &= ~bit;
        return true;
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
        *readers |= bit;
        *writers |= bit;
        return true;
    default:
        return false;
    }
}

/* Access of another device than the memory's, where devices are no peers. */
static bool needs_peers(uint64_t base, uint64_t size, const CUmemAccessDesc *desc, size_t count)
{
    if (sim_has(SIM_FEATURE_PEERS))
        return false;
    for (const struct sim_mapping *m = first_from(base); m && m->base < base + size; m = sim_mapping_next(m))
        for (size_t i = 0; i < count; i++)
            if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].location.id != m->memory->device)
                return true;
    return false;
}

/* Are these all the mappings of their reservation, where a device wants that? */
static bool is_enough(uint64_t base, uint64_t mapping_count)
{
    return !sim_config.access_whole || sim_address_find(base)->mappings == mapping_count;
}

static CUresult check_descriptions(const CUmemAccessDesc *desc, size_t count)
{
    uint32_t readers = 0, writers = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_device = desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        if (is_device && (desc[i].location.id < 0 || desc[i].location.id >= sim_config.devices))
            return CUDA_ERROR_INVALID_DEVICE;
        if (!apply(&desc[i], &readers, &writers))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return count > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Shows one mapping to the host. Returns: false at the ceiling or when the host refuses. */
static bool show(struct sim_mapping *m)
{
    const struct sim_memory *memory = m->memory;
    if (sim_config.mappings_max && devices[memory->device].shown >= sim_config.mappings_max)
        return false;
    if (!sim_backing_show(m->base, m->size, memory->file, memory->offset + m->offset))
        return false;
    devices[memory->device].shown++;
    return true;
}

/* Undoes what a failed set-access has shown: the mappings in [base, stop) that had no readers before. */
static void undo_show(uint64_t base, uint64_t stop)
{
    for (struct sim_mapping *m = first_from(base); m && m->base < stop;
         m = RB_NEXT(mapping_tree, &mappings, m))
        if (!m->readers) {
            sim_backing_hide(m->base, m->size);
            devices[m->memory->device].shown--;
        }
}

CUresult sim_memory_set_access(uint64_t base, uint64_t size, const CUmemAccessDesc *desc, size_t count,
                               uint64_t *mapping_count)
{
    bool is_part;
    uint64_t end = base + size;
    *mapping_count = 0;
    CUresult wrong = check_descriptions(desc, count);
    if (wrong || size == 0 || size > UINT64_MAX - base)
        return wrong ? wrong : CUDA_ERROR_INVALID_VALUE;
    if (!whole_mappings(base, size, mapping_count, &is_part)) {
        *mapping_count = 0;
        sim_violate(SIM_RULE_ACCESS_RANGE, -1, base, size, "%s",
                    is_part ? "a part of a mapping" : "not all mapped");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_enough(base, *mapping_count)) {
        *mapping_count = 0;
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (needs_peers(base, size, desc, count))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    bool gives = false;
    for (size_t i = 0; i < count; i++)
        gives |= desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    /* First everything that can fail, then the bits: a failed call changes nothing. */
    for (struct sim_mapping *m = first_from(base); gives && m && m->base < end;
         m = RB_NEXT(mapping_tree, &mappings, m))
        if (!m->readers && !show(m)) {
            undo_show(base, m->base);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    for (struct sim_mapping *m = first_from(base); m && m->base < end;
         m = RB_NEXT(mapping_tree, &mappings, m)) {
        uint32_t readers = m->readers, writers = m->writers;
        for (size_t i = 0; i < count; i++)
            apply(&desc[i], &readers, &writers);
        if (!readers && m->readers)
            hide(m);
        m->readers = readers;
        m->writers = writers;
    }
    sim_history_note(gives ? "access given" : "access taken away", base, size, 0);
    return CUDA_SUCCESS;
}

CUresult sim_memory_get_access(uint64_t address, int device, unsigned long long *flags)
{
    const struct sim_mapping *m = sim_mapping_find(address);
    if (!m || device < 0 || device >= sim_config.devices)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = m->writers >> device & 1   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : m->readers >> device & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                        : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

/* ---- the books ---- */

uint64_t sim_mappings_total(void)
{
    uint64_t sum = 0;
    for (int d = 0; d < SIM_DEVICES_MAX; d++)
        sum += devices[d].count;
    return sum;
}

uint64_t sim_mapping_count(int device)
{
    if (device < 0 || device >= SIM_DEVICES_MAX)
        return 0;
    sim_lock();
    uint64_t count = devices[device].count;
    sim_unlock();
    return count;
}

uint64_t sim_memory_mappings_peak(int device)
{
    return devices[device].peak;
}

void sim_mappings_start(int count)
{
    for (int d = 0; d < count; d++)
        devices[d].count = devices[d].peak = devices[d].shown = 0;
}

void sim_mappings_reset(void)
{
    for (struct sim_mapping *m; (m = RB_ROOT(&mappings));) {
        RB_REMOVE(mapping_tree, &mappings, m);
        free(m);
    }
    sim_mappings_start(SIM_DEVICES_MAX);
}
