/* SPDX-License-Identifier: Apache-2.0 */
/* faults: calls that fail on purpose, or whose work faults on the device, and another tenant that comes
 * between two calls (sim_fail and its family, SEAMALLOC_SIM_FAIL). */
#ifndef SEAMALLOC_SIM_CORE_FAULTS_H
#define SEAMALLOC_SIM_CORE_FAULTS_H

#include "sim/core/calls.h"
#include "sim/core/queue.h"

extern _Atomic int sim_faults_armed;

/* The slow path of sim_fault: rules exist. */
CUresult sim_fault_due(enum sim_call call, int device, uint64_t size);

/* Whether this call, about a device and of a size (SIM_NO_SIZE: none), is to fail, and with what. Thread:
 * any; costs one load while no fault is armed. */
static inline CUresult sim_fault(enum sim_call call, int device, uint64_t size)
{
    if (__builtin_expect(atomic_load_explicit(&sim_faults_armed, memory_order_relaxed), 0))
        return sim_fault_due(call, device, size);
    return CUDA_SUCCESS;
}

/* The error with which the work that this thread's call puts on a stream is to fault; CUDA_SUCCESS: none. */
extern __thread CUresult sim_fault_of_work;

/* The slow paths of the next two. */
void sim_fault_settle_now(void);
void sim_fault_give(struct sim_op *op);

/* Ends the call before: a fault that found no work breaks the device all the same. */
static inline void sim_fault_settle(void)
{
    if (__builtin_expect(sim_fault_of_work != CUDA_SUCCESS, 0))
        sim_fault_settle_now();
}

/* Gives the thread's fault to the first work that its call puts on a stream, or into a capture. */
static inline void sim_fault_into(struct sim_op *op)
{
    if (__builtin_expect(sim_fault_of_work != CUDA_SUCCESS, 0))
        sim_fault_give(op);
}

/* Arms the rules of a text (see sim_fail_text). All or nothing. Returns: false, and what is wrong in `error`,
 * which names the part. */
bool sim_fault_parse(const char *text, char *error, size_t error_size);

#endif
