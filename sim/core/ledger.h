/* SPDX-License-Identifier: Apache-2.0 */
/* ledger: several processes on one set of devices (SEAMALLOC_SIM_SHARE): how much of each device's memory
 * every one of them has, the peak of all together, and the calls of those that have ended.
 *
 * The ledger is a piece of shared memory under a name of the user's choice. Each process has a slot in it,
 * and holds a file lock on that slot, which goes with the process however it ends: a slot without a lock is a
 * dead process's, and its memory is free again. The last one to leave takes the ledger away.
 *
 * Protected by: a robust mutex in the ledger; in this process also the core lock. Without a ledger all
 * functions answer as for a process that is alone. */
#ifndef SEAMALLOC_SIM_CORE_LEDGER_H
#define SEAMALLOC_SIM_CORE_LEDGER_H

#include "sim/sim.h"

/* Joins the ledger of a name, or makes it; NULL: none. Returns: false, with a message, when it cannot, or
 * when those who use it have other devices. */
bool sim_ledger_join(const struct sim_config *config);
/* Leaves: this process's memory is given back, its calls are added to the common record. */
void sim_ledger_leave(void);

/* Takes (or, negative, gives) bytes of a device if `limit` bytes are enough for all processes together.
 * Returns: false when they are not. */
bool sim_ledger_take(int device, int64_t bytes, uint64_t limit);
/* Bytes that other processes have of a device. */
uint64_t sim_ledger_others(int device);

struct sim_ledger_figures {
    uint64_t running, ended, died; /* processes; died: without leaving, their calls are not known */
    struct {
        uint64_t bytes, peak_bytes;
    } devices[SIM_DEVICES_MAX];
    uint64_t violations; /* of those that have ended */
};
/* Returns: false without a ledger. */
bool sim_ledger_figures(struct sim_ledger_figures *figures);
/* Calls of processes that have ended. */
uint64_t sim_ledger_calls(int device, int call);

#endif
