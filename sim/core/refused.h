/* SPDX-License-Identifier: Apache-2.0 */
/* refused: calls that a library on top of the driver had no answer for, by name. The driver's own are counted
 * in calls.c; names of libraries are not known beforehand. Protected by: a lock of its own, below all others.
 */
#ifndef SEAMALLOC_SIM_CORE_REFUSED_H
#define SEAMALLOC_SIM_CORE_REFUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The i-th name in order of its first call, and how often it was called; the name lives until the reset.
 * Returns: false beyond the last. Thread: any. */
bool sim_refused(size_t i, const char **name, uint64_t *count);

/* Forgets all. */
void sim_refused_reset(void);

#endif
