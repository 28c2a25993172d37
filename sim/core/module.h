/* SPDX-License-Identifier: Apache-2.0 */
/* module: code. A module or library here is a set of names; a kernel is a name that can be launched and does
 * nothing; a device variable is a name with 64 KiB of memory, as no symbol table is read. Protected by: the
 * core lock. */
#ifndef SEAMALLOC_SIM_CORE_MODULE_H
#define SEAMALLOC_SIM_CORE_MODULE_H

#include "sim/sim.h"

struct sim_function {
    uint64_t handle, module;
    char name[];
};

/* Returns: 0 when there is no host memory. */
uint64_t sim_module_new(void);
CUresult sim_module_unload(uint64_t module);
CUresult sim_module_function(uint64_t module, const char *name, uint64_t *function);
CUresult sim_module_global(uint64_t module, const char *name, int device, uint64_t *base, size_t *size);

/* Returns: NULL for no live function. Thread: any, no lock. */
struct sim_function *sim_function_get(uint64_t handle);

void sim_modules_reset(void);

#endif
