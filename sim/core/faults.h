/* SPDX-License-Identifier: Apache-2.0 */
/* faults: calls that fail on purpose (sim_fail and its family, SEAMALLOC_SIM_FAIL). */
#ifndef SEAMALLOC_SIM_CORE_FAULTS_H
#define SEAMALLOC_SIM_CORE_FAULTS_H

#include "sim/core/calls.h"

extern _Atomic int sim_faults_armed;

/* The slow path of sim_fault: rules exist. */
CUresult sim_fault_due(enum sim_call call);

/* Whether this call is to fail, and with what. Thread: any; costs one load while no fault is armed. */
static inline CUresult sim_fault(enum sim_call call)
{
    if (__builtin_expect(atomic_load_explicit(&sim_faults_armed, memory_order_relaxed), 0))
        return sim_fault_due(call);
    return CUDA_SUCCESS;
}

/* Arms the rules of a text such as "cuMemMap:17,cuMemCreate:5+". All or nothing.
 * Returns: NULL, or what is wrong (a constant), with *at and *length the part that is. */
const char *sim_fault_parse(const char *text, const char **at, int *length);

#endif
