/* SPDX-License-Identifier: Apache-2.0 */
/* memory: see memory.h. This file has handles, plain allocations and the questions about ranges; mapping.c
 * has reservations, mappings and access. */
#include "sim/core/memory.h"
#include "base/align.h"
#include "sim/core/address.h"
#include "sim/core/backing.h"
#include "sim/core/config.h"
#include "sim/core/context.h"
#include "sim/core/lock.h"
#include "sim/core/mapping.h"
#include "sim/core/physical.h"
#include "sim/core/pool.h"
#include "sim/core/share.h"
#include "sim/core/table.h"
#include <stdlib.h>

static uint64_t live_count;

static bool wants_export(const CUmemAllocationProp *prop)
{
    return prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
}

/* What cuMemCreate refuses before it looks for memory. */
static CUresult check_create(uint64_t size, const CUmemAllocationProp *prop)
{
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.id < 0 || prop->location.id >= sim_config.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    if (size == 0 || size % sim_config.granularity) {
        sim_violate(SIM_RULE_GRANULARITY, prop->location.id, 0, size, "a handle of %llu bytes",
                    (unsigned long long)size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_has(SIM_FEATURE_VMM))
        return CUDA_ERROR_NOT_SUPPORTED;
    /* One file descriptor type is what the device says it can export. */
    if (wants_export(prop) && (!sim_has(SIM_FEATURE_EXPORT) ||
                               prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->allocFlags.gpuDirectRDMACapable && !sim_has(SIM_FEATURE_RDMA))
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

/* What pools keep unused, and what other processes have left, goes before an allocation of any kind fails. */
static bool take(int device, uint64_t size, uint64_t *offset)
{
    if (sim_physical_take(device, size, offset))
        return true;
    sim_share_sweep();
    uint64_t left = sim_physical_left(device);
    if (left >= size)
        return sim_physical_take(device, size, offset);
    return sim_pools_release(device, size - left) && sim_physical_take(device, size, offset);
}

CUresult sim_memory_create(uint64_t *handle, uint64_t size, const CUmemAllocationProp *prop)
{
    CUresult result = check_create(size, prop);
    if (result)
        return result;
    struct sim_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (struct sim_memory){
        .size = size, .references = 1, .device = prop->location.id, .file = prop->location.id, .prop = *prop};
    if (!take(memory->device, size, &memory->offset))
        goto no_memory;
    memory->handle = sim_table_add(SIM_KIND_MEMORY, memory);
    if (!memory->handle)
        goto no_handle;
    memory->id = sim_address_new_id();
    live_count++;
    sim_history_note("created", 0, 0, memory->handle);
    *handle = memory->handle;
    return CUDA_SUCCESS;

no_handle:
    sim_physical_give(memory->device, memory->offset, size);
no_memory:
    free(memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_memory_adopt(struct sim_memory *memory, uint64_t *handle)
{
    memory->handle = sim_table_add(SIM_KIND_MEMORY, memory);
    if (!memory->handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->id = sim_address_new_id();
    live_count++;
    sim_history_note("imported", 0, 0, memory->handle);
    *handle = memory->handle;
    return CUDA_SUCCESS;
}

void sim_memory_drop_unused(struct sim_memory *memory)
{
    if (memory->references || memory->mappings)
        return;
    sim_table_remove(SIM_KIND_MEMORY, memory->handle);
    if (memory->file != memory->device)
        sim_backing_abandon(memory->file, true);
    else if ((!memory->exported || !sim_share_detain(memory)) && !sim_memory_keep(memory))
        sim_physical_give(memory->device, memory->offset, memory->size);
    live_count--;
    free(memory);
}

struct sim_memory *sim_memory_get(uint64_t handle)
{
    struct sim_memory *memory = sim_table_get(SIM_KIND_MEMORY, handle);
    return memory && memory->references ? memory : NULL;
}

CUresult sim_memory_release(uint64_t handle)
{
    struct sim_memory *memory = sim_memory_get(handle);
    if (!memory) {
        sim_rules_about(handle);
        sim_violate(SIM_RULE_UNKNOWN_HANDLE, -1, 0, 0, "release of handle %#llx", (unsigned long long)handle);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memory->references--;
    sim_history_note("released", 0, 0, handle);
    sim_memory_drop_unused(memory);
    return CUDA_SUCCESS;
}

CUresult sim_memory_import(uint64_t handle)
{
    struct sim_memory *memory = sim_table_get(SIM_KIND_MEMORY, handle);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    memory->references++;
    return CUDA_SUCCESS;
}

CUresult sim_memory_retain(uint64_t address, uint64_t *handle)
{
    const struct sim_mapping *mapping = sim_mapping_find(address);
    if (!mapping)
        return CUDA_ERROR_INVALID_VALUE;
    mapping->memory->references++;
    *handle = mapping->memory->handle;
    return CUDA_SUCCESS;
}

/* ---- plain allocations ---- */

/* Large ones have whole large pages; small ones share them, of which here only the alignment is left. */
static uint64_t unit_of(uint64_t size)
{
    return size >= SM_MIB ? 2 * SM_MIB : 64 * SM_KIB;
}

uint64_t sim_memory_rounded(uint64_t size)
{
    uint64_t rounded;
    return sm_align_up_checked(size, unit_of(size), &rounded) ? rounded : 0;
}

CUresult sim_memory_alloc(int device, uint64_t size, uint64_t *base)
{
    uint64_t rounded = sim_memory_rounded(size), offset;
    if (!rounded || !take(device, rounded, &offset))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_range *range = sim_address_place(SIM_RANGE_PLAIN, device, rounded, unit_of(size), 0);
    if (!range)
        goto no_range;
    range->offset = offset;
    if (!sim_backing_show(range->base, rounded, device, offset))
        goto no_backing;
    sim_history_note("allocated", range->base, rounded, 0);
    *base = range->base;
    return CUDA_SUCCESS;

no_backing:
    sim_address_drop(range);
no_range:
    sim_physical_give(device, offset, rounded);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_memory_free(uint64_t base)
{
    struct sim_range *range = sim_address_at(base);
    int device = range->device;
    uint64_t offset = range->offset, size = range->size;
    sim_history_note("freed", base, size, 0);
    sim_address_drop(range);
    sim_physical_give(device, offset, size);
}

CUresult sim_memory_open_foreign(int device, int file, uint64_t offset, uint64_t size, uint64_t *base)
{
    struct sim_range *range = sim_address_place(SIM_RANGE_PLAIN, device, size, unit_of(size), 0);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->offset = offset;
    range->file = file;
    range->opened = 1;
    if (!sim_backing_show(range->base, size, file, offset)) {
        sim_address_drop(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_history_note("opened", range->base, size, 0);
    *base = range->base;
    return CUDA_SUCCESS;
}

/* ---- questions ---- */

bool sim_memory_is_device(uint64_t address)
{
    return sim_address_in_arena(address);
}

bool sim_memory_is_pinned(uint64_t address)
{
    const struct sim_range *range = sim_address_find(address);
    return range && (range->kind == SIM_RANGE_HOST || range->kind == SIM_RANGE_REGISTERED);
}

bool sim_memory_mapping(uint64_t address, uint64_t *base, uint64_t *size, const struct sim_memory **memory)
{
    const struct sim_mapping *mapping = sim_mapping_find(address);
    if (!mapping)
        return false;
    *base = mapping->base;
    *size = mapping->size;
    *memory = mapping->memory;
    return true;
}

/* The piece that begins at an address, cut at `end`. Returns: false when nothing is mapped there. */
static bool piece_at(uint64_t address, uint64_t end, struct sim_piece *piece)
{
    const struct sim_range *range = sim_address_find(address);
    if (!range || range->cached)
        return false;
    if (range->kind == SIM_RANGE_PLAIN) {
        *piece = (struct sim_piece){range->id, address - range->base,
                                    sm_min(end, range->base + range->size) - address};
        return true;
    }
    const struct sim_mapping *m = range->kind == SIM_RANGE_RESERVATION ? sim_mapping_find(address) : NULL;
    if (!m)
        return false;
    *piece = (struct sim_piece){m->memory->id, m->offset + (address - m->base),
                                sm_min(end, m->base + m->size) - address};
    return true;
}

size_t sim_memory_pieces(uint64_t base, uint64_t size, struct sim_piece *pieces, size_t room)
{
    size_t count = 0;
    uint64_t end = base + size;
    for (struct sim_piece piece; base < end; base += piece.size) {
        if (!piece_at(base, end, &piece))
            return 0;
        if (count < room)
            pieces[count] = piece;
        count++;
    }
    return count;
}

static bool has_access(uint64_t address, int device, bool write)
{
    const struct sim_mapping *mapping = sim_mapping_find(address);
    /* Copies go to the plain memory of every device, by way of the host if need be; for kernels see
     * sim_memory_open_to. */
    if (!mapping)
        return true;
    return (write ? mapping->writers : mapping->readers) >> device & 1;
}

CUresult sim_memory_check(uint64_t base, uint64_t size, int device, bool write, enum sim_rule *rule)
{
    uint64_t end = base + size;
    *rule = SIM_RULE_TOUCH_UNMAPPED;
    if (end < base) /* beyond all addresses */
        return CUDA_ERROR_INVALID_VALUE;
    for (struct sim_piece piece; base < end; base += piece.size) {
        *rule = SIM_RULE_TOUCH_UNMAPPED;
        if (!piece_at(base, end, &piece))
            return CUDA_ERROR_INVALID_VALUE;
        *rule = SIM_RULE_TOUCH_NO_ACCESS;
        if (!has_access(base, device, write))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

bool sim_memory_open_to(uint64_t base, uint64_t size, int device)
{
    for (uint64_t end = base + size; base < end;) {
        const struct sim_range *range = sim_address_find(base);
        if (!range)
            return true;
        if (range->kind == SIM_RANGE_PLAIN && range->device != device && !range->managed &&
            !(range->pool ? sim_pool_open_to(range->pool, device) : sim_context_peers(device, range->device)))
            return false;
        base = range->base + range->size;
    }
    return true;
}

bool sim_resolve(CUdeviceptr address, uint64_t *handle_id, uint64_t *offset)
{
    struct sim_piece piece;
    sim_lock();
    bool found = piece_at(address, address + 1, &piece);
    sim_unlock();
    if (found && handle_id)
        *handle_id = piece.id;
    if (found && offset)
        *offset = piece.offset;
    return found;
}

bool sim_accessible(CUdeviceptr address, int device)
{
    enum sim_rule rule;
    sim_lock();
    bool good = !sim_memory_check(address, 1, device, true, &rule);
    sim_unlock();
    return good;
}

uint64_t sim_memory_run(uint64_t address, uint64_t size, int *file, uint64_t *offset)
{
    const struct sim_mapping *m = sim_mapping_find(address);
    const struct sim_range *range = m ? NULL : sim_address_find(address);
    if (m) {
        *file = m->memory->file;
        *offset = m->memory->offset + m->offset + (address - m->base);
        return sm_min(size, m->base + m->size - address);
    }
    if (!range || range->kind != SIM_RANGE_PLAIN)
        return 0;
    *file = range->file;
    *offset = range->offset + (address - range->base);
    return sm_min(size, range->base + range->size - address);
}

bool sim_memory_overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
    struct sim_piece x, y;
    for (uint64_t at = a; at < a + a_size && piece_at(at, a + a_size, &x); at += x.size)
        for (uint64_t to = b; to < b + b_size && piece_at(to, b + b_size, &y); to += y.size)
            if (x.id == y.id && x.offset < y.offset + y.size && y.offset < x.offset + x.size)
                return true;
    return false;
}

bool sim_memory_zero(uint64_t base, uint64_t size)
{
    enum { PAGE = 4096 };
    int file;
    uint64_t offset, run;
    if (!sim_backing_on() || base % PAGE || size % PAGE)
        return false;
    for (uint64_t end = base + size; base < end; base += run) {
        run = sim_memory_run(base, end - base, &file, &offset);
        if (run == 0)
            return false;
        sim_backing_forget(file, offset, run);
    }
    return true;
}

static void forget(uint64_t handle, void *object, void *user)
{
    (void)user;
    sim_table_remove(SIM_KIND_MEMORY, handle);
    free(object);
}

void sim_memory_start(int devices)
{
    sim_mappings_start(devices);
    live_count = 0;
}

/* The backing and the arenas go as a whole afterwards, so nothing is given back piece by piece. */
void sim_memory_reset(void)
{
    sim_mappings_reset();
    for (struct sim_range *range = sim_address_next(NULL), *next; range; range = next) {
        next = sim_address_next(range);
        if (range->kind == SIM_RANGE_HOST)
            sim_backing_host_free(range->base, range->size);
        sim_memory_drop_kept(range, false);
        sim_address_drop(range);
    }
    sim_table_each(SIM_KIND_MEMORY, forget, NULL);
    live_count = 0;
}

void sim_memory_live(struct sim_live *live)
{
    live->handles = live_count;
    live->mappings = sim_mappings_total();
    sim_address_live(live);
}
