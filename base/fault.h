/* SPDX-License-Identifier: Apache-2.0 */
/* A fault counter: makes the n-th of a kind of call fail, once or from then on. Host allocations and, in
 * tests, driver calls use the same type. Thread: safe, relaxed atomics; armed and read by tests only. */
#ifndef SEAM_BASE_FAULT_H
#define SEAM_BASE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sm_fault {
    _Atomic uint64_t countdown; /* 0: not armed; 1: the next call fails */
    _Atomic bool forever;       /* keep failing after the first */
    _Atomic uint64_t hits;      /* failures handed out since armed */
};

/* The nth call from now fails (nth >= 1), once or for ever. nth 0 disarms. */
void sm_fault_arm(struct sm_fault *fault, uint64_t nth, bool forever);

/* Returns: true when this call is to fail. Cheap when not armed. */
bool sm_fault_fires(struct sm_fault *fault);

#endif
