/* SPDX-License-Identifier: Apache-2.0 */
/* stream: stream handles, the default streams, and the way work gets onto a stream: into its lane, or into
 * the graph that it captures. Protected by: the core lock, except where said. */
#ifndef SEAMALLOC_SIM_CORE_STREAM_H
#define SEAMALLOC_SIM_CORE_STREAM_H

#include "sim/core/event.h"
#include "sim/core/queue.h"

struct sim_stream {
    uint64_t handle; /* 0: a default stream */
    uint64_t number; /* cuStreamGetId */
    unsigned flags;
    int priority;
    struct sim_lane *lane;
};

CUresult sim_stream_new(int device, unsigned flags, int priority, CUstream *stream);
CUresult sim_stream_destroy(CUstream stream);

/* The stream of a handle; for 0, 1 and 2 the default streams of the current context. A broken rule is
 * recorded for an unknown handle. Returns: NULL for that, and where no context is current. Thread: any; takes
 * the lock by itself only the first time that a default stream is used. */
struct sim_stream *sim_stream_get(CUstream stream);

/* Puts an operation on a stream or into its capture. Requires: the lock is held; may drop and retake it. */
CUresult sim_stream_submit(struct sim_stream *stream, const struct sim_op *op);
CUresult sim_stream_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_stream_wait_event(struct sim_stream *stream, struct sim_event *event);

/* A transfer on a stream, checked; waits for it where the driver would (a pageable destination, or `sync`).
 */
CUresult sim_stream_transfer(struct sim_stream *stream, struct sim_transfer *transfer, bool sync);

/* cuCtxRecordEvent, cuCtxWaitEvent: about all streams of a device. */
CUresult sim_stream_record_device(int device, struct sim_event *event);
CUresult sim_stream_device_wait(int device, struct sim_event *event);

void sim_streams_start(void);
void sim_streams_reset(void);

#endif
