/* SPDX-License-Identifier: Apache-2.0 */
/* event: what cuEventRecord marks. Whether an event has completed is two atomics, so that asking takes no
 * lock (it is asked hundreds of thousands of times in a training run). The rest is protected by the core
 * lock. */
#ifndef SEAMALLOC_SIM_CORE_EVENT_H
#define SEAMALLOC_SIM_CORE_EVENT_H

#include "sim/core/queue.h"

struct sim_event {
    uint64_t handle;
    unsigned flags;
    int device;
    _Atomic uint64_t recorded, done; /* numbers of records; complete when done >= recorded */
    _Atomic uint64_t capture_id;     /* the capture in which it was last recorded; 0: none */
    struct sim_point point;
    int64_t completed_ns; /* virtual time where it is modelled, else real time */
};

CUresult sim_event_new(int device, unsigned flags, struct sim_event **event);
CUresult sim_event_destroy(uint64_t handle);

/* The event of a handle; a broken rule is recorded when there is none. Thread: any. */
struct sim_event *sim_event_get(CUevent handle);

/* Puts a record on a lane that is not capturing. Requires: the lock is held. */
CUresult sim_event_record(struct sim_event *event, struct sim_lane *lane);

/* Called by the queue: a record has been reached, at that virtual time. The event may be gone. */
void sim_event_complete(uint64_t handle, uint64_t number, uint64_t virtual_ns);

static inline bool sim_event_is_done(const struct sim_event *event)
{
    /* recorded first: a new record in between makes it look unfinished, never finished */
    uint64_t recorded = atomic_load_explicit(&event->recorded, memory_order_acquire);
    return atomic_load_explicit(&event->done, memory_order_acquire) >= recorded;
}

/* Says that an event was last recorded in a capture, and so marks a place in a graph and nothing that runs.
 * Returns: CUDA_ERROR_CAPTURED_EVENT, and a broken rule. Thread: any. */
CUresult sim_event_captured(const struct sim_event *event);

void sim_events_reset(void);

#endif
