/* SPDX-License-Identifier: Apache-2.0 */
/* writer: records events into a file (format.h) while others allocate.
 *
 * Events go into one of a few buffers that are there before the first event; a thread of the writer's own
 * compresses and writes each one that is full, and once a second one that is not. An event takes the trace
 * lock alone, for as long as it takes to code it, and never waits for the file: whoever is about to make
 * events waits beforehand, without any lock, while the buffers are nearly full (sm_trace_admit). The order of
 * the file is the order in which the lock was taken, for all devices and threads.
 *
 * One object for the life of its owner; recordings begin and end in it. Ids are never given twice in it.
 * Thread: all functions may be called from any thread, with other locks held where they say so. */
#ifndef SEAM_STATS_TRACE_WRITER_H
#define SEAM_STATS_TRACE_WRITER_H

#include "base/error.h"
#include "stats/trace/format.h"
#include <stdatomic.h>

struct sm_trace;

/* Returns: NULL when out of host memory. */
struct sm_trace *sm_trace_create(void);
/* Ends a recording. Nobody else is inside. */
void sm_trace_destroy(struct sm_trace *trace);

/* Begins a recording. text: JSON that describes it. "%p" in the path becomes the process's number.
 * Returns: SEAM_OK, SEAM_E_STATE when one runs, SEAM_E_IO, SEAM_E_HOST_OOM. No lock held. */
seam_result sm_trace_begin(struct sm_trace *trace, const char *path, const char *text,
                           struct sm_error *error);
/* Writes what is left and the end mark, and closes the file. Returns: SEAM_OK, SEAM_E_STATE when none runs,
 * SEAM_E_IO when the file is not whole. No lock held. */
seam_result sm_trace_end(struct sm_trace *trace, struct sm_error *error);

/* The head of struct sm_trace. */
struct sm_trace_hot {
    _Atomic bool on;
    _Atomic bool crowded; /* most buffers wait to be written */
};
void sm_trace_wait_for_room(struct sm_trace *trace);

static inline bool sm_trace_is_on(struct sm_trace *trace)
{
    return __builtin_expect(atomic_load_explicit(&((struct sm_trace_hot *)trace)->on, memory_order_relaxed),
                            0);
}

/* To be called before the locks are taken under which events are made. */
static inline void sm_trace_admit(struct sm_trace *trace)
{
    if (sm_trace_is_on(trace) &&
        atomic_load_explicit(&((struct sm_trace_hot *)trace)->crowded, memory_order_relaxed))
        sm_trace_wait_for_room(trace);
}

/* Records an event; nothing when no recording runs. Its thread is filled in. The heap lock may be held. */
void sm_trace_put(struct sm_trace *trace, struct sm_trace_event *event);
/* Records an allocation under a new id. Returns: the id, or 0 when no recording runs. */
uint64_t sm_trace_put_new(struct sm_trace *trace, struct sm_trace_event *event);
/* The same under the caller's own thread and id, for recordings that are converted. */
void sm_trace_put_as(struct sm_trace *trace, const struct sm_trace_event *event);
/* Does the running recording know the block of this id? */
bool sm_trace_knows(struct sm_trace *trace, uint64_t id);

/* Events of the last recording: those kept. */
uint64_t sm_trace_events(struct sm_trace *trace);

#endif
