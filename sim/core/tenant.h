/* SPDX-License-Identifier: Apache-2.0 */
/* tenant: somebody else on the device who takes memory and gives it back by a plan (SEAMALLOC_SIM_TENANT).
 *
 * The plan is a list of steps "MIB@WHEN": from WHEN on, a count of this process's driver calls or a virtual
 * time, the tenant has MIB of each device. It takes what is free at that moment and does not wait for more.
 * A step is made at the entry of the first call that is not before WHEN. Protected by: the core lock; the
 * plan is read-only after start. */
#ifndef SEAMALLOC_SIM_CORE_TENANT_H
#define SEAMALLOC_SIM_CORE_TENANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes over a plan. mib: what a device has; has_time: virtual time may be asked for. Returns: false when it
 * is none, with what would be right; there is no plan then. */
bool sim_tenant_plan(const char *text, uint64_t mib, bool has_time, char *right, size_t size);

/* Forgets it. Thread: no other may be in a call. */
void sim_tenant_clear(void);

/* The plan as it was given; NULL: none. */
const char *sim_tenant_text(void);

extern _Atomic bool sim_tenant_waits; /* steps are left */

/* Makes the steps that are due. Thread: any, without the core lock. */
void sim_tenant_step(uint64_t call);

/* A driver call has been entered, the call-th of this process. */
static inline void sim_tenant_look(uint64_t call)
{
    if (__builtin_expect(atomic_load_explicit(&sim_tenant_waits, memory_order_relaxed), 0))
        sim_tenant_step(call);
}

#endif
