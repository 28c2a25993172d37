/* SPDX-License-Identifier: Apache-2.0 */
/* physical: how much memory each device has, who has it, and where in the device's file it lies.
 * Protected by: the core lock; the sums may be read without it. */
#ifndef SEAMALLOC_SIM_CORE_PHYSICAL_H
#define SEAMALLOC_SIM_CORE_PHYSICAL_H

#include <stdbool.h>
#include <stdint.h>

bool sim_physical_start(int devices, uint64_t device_bytes, uint64_t tenant_bytes);
void sim_physical_reset(void);

/* Takes size bytes of a device as one run. Returns: false when the device has not so much left. */
bool sim_physical_take(int device, uint64_t size, uint64_t *offset);
/* Gives a run back; its bytes are forgotten. */
void sim_physical_give(int device, uint64_t offset, uint64_t size);

/* Bytes that a device has left for this process, beside tenants and the processes that share it. */
uint64_t sim_physical_left(int device);

/* The other tenant of a device shall have so many bytes: as many of them as there are free now. */
void sim_physical_let(int device, uint64_t bytes);
/* What it has, and the most that it had. Thread: any, no lock. */
uint64_t sim_physical_tenant(int device);
uint64_t sim_physical_tenant_peak(int device);

#endif
