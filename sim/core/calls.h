/* SPDX-License-Identifier: Apache-2.0 */
/* calls: the way into the simulator. Every cu* function begins with SIM_ENTER, which counts the call for the
 * current device, answers for a driver that is not (or no longer) there, and fails the call when a fault is
 * due. No lock: counters and state are atomics. */
#ifndef SEAMALLOC_SIM_CORE_CALLS_H
#define SEAMALLOC_SIM_CORE_CALLS_H

#include "names.h"
#include "sim/core/context.h"
#include "sim/sim.h"
#include <stdatomic.h>

#define SIM_API __attribute__((visibility("default")))

enum sim_state {
    SIM_STATE_NEW,    /* before cuInit */
    SIM_STATE_READY,  /* in use */
    SIM_STATE_OVER,   /* the process is exiting */
    SIM_STATE_FORKED, /* a child of a process that had used the device: no driver for it */
};
extern _Atomic int sim_state;

#define SIM_NO_SIZE UINT64_MAX

/* Counts a call, and returns CUDA_SUCCESS or what the call has to answer at once. Device and size are those
 * that a fault may ask for; device -1: that of the current context. Thread: any. */
CUresult sim_enter_about(enum sim_call call, int device, uint64_t size);

static inline CUresult sim_enter(enum sim_call call)
{
    return sim_enter_about(call, -1, SIM_NO_SIZE);
}

/* The same, without counting and faults: only the state. */
CUresult sim_check_state(void);

/* The call this thread is in, for reports: its name, and its number among all calls of the process. */
enum sim_call sim_current(void);
const char *sim_current_call(void);
uint64_t sim_current_number(void);
/* What a library on top of the driver does is reported as this call, and not counted as one. */
void sim_set_current(enum sim_call call);

#define SIM_ENTER(name)             SIM_ENTER_ABOUT(name, -1, SIM_NO_SIZE)
#define SIM_ENTER_SIZED(name, size) SIM_ENTER_ABOUT(name, -1, size)

#define SIM_ENTER_ABOUT(name, device, size)                                                                  \
    do {                                                                                                     \
        CUresult entered_ = sim_enter_about(SIM_CALL_##name, device, size);                                  \
        if (__builtin_expect(entered_ != CUDA_SUCCESS, 0))                                                   \
            return entered_;                                                                                 \
    } while (0)

/* SIM_ENTER for calls that need a current context; declares `device`, that of the context. */
#define SIM_ENTER_CONTEXT(name, device) SIM_ENTER_CONTEXT_SIZED(name, device, SIM_NO_SIZE)
#define SIM_ENTER_CONTEXT_SIZED(name, device, size)                                                          \
    SIM_ENTER_SIZED(name, size);                                                                             \
    int device = sim_context_device();                                                                       \
    if (device < 0)                                                                                          \
    return CUDA_ERROR_INVALID_CONTEXT

/* A required out-parameter. */
#define SIM_NEED(pointer)                                                                                    \
    do {                                                                                                     \
        if (!(pointer))                                                                                      \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
    } while (0)

/* What the generated stubs answer: CUDA_ERROR_NOT_SUPPORTED, counted by name. */
CUresult sim_unsupported(enum sim_call call);

/* The id of a documented name, or -1. */
int sim_call_find(const char *name, size_t length);

uint64_t sim_call_count(int device, int call);
uint64_t sim_call_unsupported_count(int call);
void sim_calls_reset(void);

#endif
