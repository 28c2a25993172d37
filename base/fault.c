/* SPDX-License-Identifier: Apache-2.0 */
/* fault: see fault.h. The countdown is the only word that decides; a compare-and-swap hands each number to
 * exactly one call, so that "the nth" stays one call when threads race. */
#include "base/fault.h"

void sm_fault_arm(struct sm_fault *fault, uint64_t nth, bool forever)
{
    atomic_store_explicit(&fault->countdown, 0, memory_order_relaxed);
    atomic_store_explicit(&fault->hits, 0, memory_order_relaxed);
    atomic_store_explicit(&fault->forever, forever, memory_order_relaxed);
    atomic_store_explicit(&fault->countdown, nth, memory_order_release);
}

bool sm_fault_fires(struct sm_fault *fault)
{
    uint64_t left = atomic_load_explicit(&fault->countdown, memory_order_acquire);
    while (left) {
        /* A countdown that fails for ever rests at 1. */
        bool stays = left == 1 && atomic_load_explicit(&fault->forever, memory_order_relaxed);
        if (!stays && !atomic_compare_exchange_weak_explicit(&fault->countdown, &left, left - 1,
                                                             memory_order_acquire, memory_order_acquire))
            continue;
        if (left > 1)
            return false;
        atomic_fetch_add_explicit(&fault->hits, 1, memory_order_relaxed);
        return true;
    }
    return false;
}
