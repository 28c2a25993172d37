/* SPDX-License-Identifier: Apache-2.0 */
/* table: driver handles (streams, events, allocation handles ...) and the objects behind them.
 *
 * A handle is an integer: kind, generation, slot. It is never an address, so a stale or foreign handle is
 * known as such instead of being followed. Slots are reused oldest first, with a new generation. Looking up
 * takes no lock. */
#ifndef SEAMALLOC_SIM_CORE_TABLE_H
#define SEAMALLOC_SIM_CORE_TABLE_H

#include "sim/core/history.h"
#include <stdint.h>

enum sim_kind {
    SIM_KIND_NONE,
    SIM_KIND_CONTEXT,
    SIM_KIND_MEMORY, /* of cuMemCreate */
    SIM_KIND_STREAM,
    SIM_KIND_EVENT,
    SIM_KIND_GRAPH,
    SIM_KIND_EXEC,
    SIM_KIND_NODE,
    SIM_KIND_POOL,
    SIM_KIND_MODULE,
    SIM_KIND_FUNCTION,
    SIM_KIND_COUNT
};

/* Requires: the lock is held. Returns: a new handle for `object`, or 0 when there is no memory or no slot
 * left. */
uint64_t sim_table_add(enum sim_kind kind, void *object);

/* Requires: the lock is held. Forgets the handle. Returns: its object, or NULL when there is none. */
void *sim_table_remove(enum sim_kind kind, uint64_t handle);

/* Returns: the object of a live handle of this kind, else NULL. Thread: any, no lock. */
void *sim_table_get(enum sim_kind kind, uint64_t handle);

/* The call that made a live handle. Requires: the lock is held, the handle is live. */
struct sim_origin sim_table_origin(uint64_t handle);

/* How many live handles of a kind there are. */
uint64_t sim_table_count(enum sim_kind kind);

/* Requires: the lock is held. Calls visit for each live handle of a kind; visit may remove the one it gets.
 */
void sim_table_each(enum sim_kind kind, void (*visit)(uint64_t handle, void *object, void *user), void *user);

#endif
