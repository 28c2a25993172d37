/* SPDX-License-Identifier: Apache-2.0 */
/* memory: what lies behind device addresses: handles (cuMemCreate) and their mappings, and plain allocations.
 *
 *   reservation |----------------------------------------|   addresses (address.h)
 *   mappings       |== A ==|== B ==|        |== A ==|         each a whole handle, with its access bits
 *   handles        A, B: runs of the device's file           counted references and mappings
 *
 * A handle's memory goes back when neither a reference nor a mapping is left. All functions here require the
 * core lock, and answer what the driver answers; a broken rule is recorded as well. */
#ifndef SEAMALLOC_SIM_CORE_MEMORY_H
#define SEAMALLOC_SIM_CORE_MEMORY_H

#include "sim/core/rules.h"
#include "sim/sim.h"

struct sim_memory {
    uint64_t id;
    uint64_t handle; /* for the driver's user; valid while references > 0 */
    uint64_t size, offset;
    uint64_t references, mappings;
    int device;
    int file;               /* where its bytes are (backing.h): its device's, or one of another process */
    bool exported;          /* other processes may have it too */
    uint64_t home, home_id; /* the reservation in which it was mapped last; 0: none */
    CUmemAllocationProp prop;
};

CUresult sim_memory_create(uint64_t *handle, uint64_t size, const CUmemAllocationProp *prop);
CUresult sim_memory_release(uint64_t handle);
CUresult sim_memory_retain(uint64_t address, uint64_t *handle);
CUresult sim_memory_import(uint64_t handle);
/* Gives memory that came from elsewhere a handle. */
CUresult sim_memory_adopt(struct sim_memory *memory, uint64_t *handle);
/* Returns: the memory of a handle that is referenced, else NULL. */
struct sim_memory *sim_memory_get(uint64_t handle);

CUresult sim_memory_reserve(uint64_t *base, uint64_t size, uint64_t align, uint64_t hint, int device);
CUresult sim_memory_free_addresses(uint64_t base, uint64_t size);

CUresult sim_memory_map(uint64_t base, uint64_t size, uint64_t offset, uint64_t handle);
/* *mappings: how many were undone (also on an error: 0). */
CUresult sim_memory_unmap(uint64_t base, uint64_t size, uint64_t *mappings);
/* *mappings: how many lie in the range. */
CUresult sim_memory_set_access(uint64_t base, uint64_t size, const CUmemAccessDesc *desc, size_t count,
                               uint64_t *mappings);
CUresult sim_memory_get_access(uint64_t address, int device, unsigned long long *flags);

/* A plain allocation; size is rounded as the device does. Returns: CUDA_ERROR_OUT_OF_MEMORY when memory or
 * addresses are short. */
CUresult sim_memory_alloc(int device, uint64_t size, uint64_t *base);
/* The bytes that an allocation of a size takes. Returns: 0 when that is more than a number can say. */
uint64_t sim_memory_rounded(uint64_t size);
/* Requires: base is one. */
void sim_memory_free(uint64_t base);

/* Shows a part of another process's file at new addresses, as a plain allocation that is opened once. */
CUresult sim_memory_open_foreign(int device, int file, uint64_t offset, uint64_t size, uint64_t *base);

/* One piece of contiguous physical memory of which a range of addresses consists. */
struct sim_piece {
    uint64_t id, offset, size; /* as sim_resolve tells them */
};

/* Which bytes a range is. Fills at most `room` pieces. Returns: how many there are, 0 when a part is not
 * mapped. */
size_t sim_memory_pieces(uint64_t base, uint64_t size, struct sim_piece *pieces, size_t room);

/* May a device read (and write) a range of device memory?
 * Returns: CUDA_SUCCESS; or CUDA_ERROR_INVALID_VALUE, and then *rule is the one that is broken. */
CUresult sim_memory_check(uint64_t base, uint64_t size, int device, bool write, enum sim_rule *rule);

/* May a kernel of a device use plain allocations in a range that are another device's? */
bool sim_memory_open_to(uint64_t base, uint64_t size, int device);

/* Is it an address that only device memory can have, also where there is none (any more)? */
bool sim_memory_is_device(uint64_t address);

/* Is it an address of host memory that the device knows? */
bool sim_memory_is_pinned(uint64_t address);

/* The mapping that holds an address. Returns: false when there is none. */
bool sim_memory_mapping(uint64_t address, uint64_t *base, uint64_t *size, const struct sim_memory **memory);

/* Where in which file a device address lies. Returns: how many bytes of [address, address + size) lie
 * there in one run; 0 when nothing is mapped at the address. */
uint64_t sim_memory_run(uint64_t address, uint64_t size, int *file, uint64_t *offset);

/* Do two ranges of device addresses share a byte, through whatever mappings? */
bool sim_memory_overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size);

/* Has zeros shown in [base, base + size) without touching pages. Returns: false when it cannot (then fill).
 */
bool sim_memory_zero(uint64_t base, uint64_t size);

void sim_memory_start(int devices);
void sim_memory_reset(void);
uint64_t sim_memory_mappings_peak(int device);
void sim_memory_live(struct sim_live *live);

#endif
