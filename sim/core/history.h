/* SPDX-License-Identifier: Apache-2.0 */
/* history: what happened lately to which addresses and handles, for the report of a broken rule, and which
 * call made what is still there.
 *
 * Events are kept in a ring; the oldest are forgotten first. Protected by: a lock of its own, the innermost.
 */
#ifndef SEAMALLOC_SIM_CORE_HISTORY_H
#define SEAMALLOC_SIM_CORE_HISTORY_H

#include "sim/core/calls.h"
#include <stdio.h>

/* Which call made something. */
struct sim_origin {
    uint64_t number; /* among all calls of the process; 0: no call */
    enum sim_call call;
};

/* The call that this thread is in. */
struct sim_origin sim_origin_now(void);

/* Notes that something happened to a range, to a handle, or to both (0: to none). `what` is a constant. */
void sim_history_note(const char *what, uint64_t base, uint64_t size, uint64_t handle);

/* Writes the last events that have to do with a range or with a handle; both 0: all. At most 24.
 * Returns: how many. */
size_t sim_history_print(FILE *out, uint64_t base, uint64_t size, uint64_t handle);

void sim_history_reset(void);

#endif
