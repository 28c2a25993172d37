/* SPDX-License-Identifier: Apache-2.0 */
/* mapping: the mappings of all devices, by address. For memory.c, mapping.c and leaks.c only. Protected by:
 * the core lock. */
#ifndef SEAMALLOC_SIM_CORE_MAPPING_H
#define SEAMALLOC_SIM_CORE_MAPPING_H

#include "sim/core/address.h"
#include "sim/core/history.h"
#include "sim/core/memory.h"
#include "sim/core/tree.h"

struct sim_mapping {
    RB_ENTRY(sim_mapping) link;
    uint64_t base, size;
    uint64_t offset; /* in the handle */
    struct sim_memory *memory;
    struct sim_origin origin;
    uint32_t readers, writers; /* bit d: device d may */
};

/* The mapping that holds an address, or NULL. */
struct sim_mapping *sim_mapping_find(uint64_t address);

/* The mapping after one, in address order; the first for NULL. */
struct sim_mapping *sim_mapping_next(const struct sim_mapping *mapping);

/* Returns a handle's memory when nothing holds it any more. */
void sim_memory_drop_unused(struct sim_memory *memory);

/* Leaves a handle's bytes taken until the reservation in which it was mapped last is freed, where the device
 * does so. Returns: false when it does not. */
bool sim_memory_keep(const struct sim_memory *memory);
/* Ends that for a range: the bytes go back to the device, or the device goes as a whole. */
void sim_memory_drop_kept(struct sim_range *range, bool to_device);

uint64_t sim_mappings_total(void);
void sim_mappings_start(int devices);
void sim_mappings_reset(void);

#endif
