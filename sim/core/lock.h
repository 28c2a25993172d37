/* SPDX-License-Identifier: Apache-2.0 */
/* lock: the one lock of the device's books, and the condition that host waits sleep on. */
#ifndef SEAMALLOC_SIM_CORE_LOCK_H
#define SEAMALLOC_SIM_CORE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

void sim_lock(void);
void sim_unlock(void);

/* Requires: the lock is held. Sleeps until sim_wake or for so long (0: no limit). Returns: false when the
 * time passed. */
bool sim_sleep(uint32_t milliseconds);
/* Requires: the lock is held. Wakes all sleepers. */
void sim_wake(void);

#endif
