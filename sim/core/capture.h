/* SPDX-License-Identifier: Apache-2.0 */
/* capture: streams that record into a graph instead of working.
 *
 * A capture begins on one stream, spreads to others through events, and must have come back to the first one
 * when it ends. While it runs, calls that its mode forbids fail and invalidate it. The sources are the
 * comments of cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode, cuStreamWaitEvent and
 * cuStreamEndCapture in cuda.h, and the guide's section on stream capture. Protected by: the core lock,
 * except where said. */
#ifndef SEAMALLOC_SIM_CORE_CAPTURE_H
#define SEAMALLOC_SIM_CORE_CAPTURE_H

#include "sim/core/event.h"
#include "sim/core/graph.h"
#include "sim/core/queue.h"

extern _Atomic unsigned sim_captures;

/* Does any stream capture at the moment? Thread: any, no lock. */
static inline bool sim_capture_any(void)
{
    return atomic_load_explicit(&sim_captures, memory_order_acquire) != 0;
}

CUresult sim_capture_begin(struct sim_lane *lane, CUstreamCaptureMode mode);
CUresult sim_capture_end(struct sim_lane *lane, CUgraph *graph);
void sim_capture_status(const struct sim_lane *lane, CUstreamCaptureStatus *status, uint64_t *id,
                        CUgraph *graph);

/* May work be put on the lane? Not when its capture is invalid, nor on the default stream while a stream that
 * is ordered with it captures. */
CUresult sim_capture_check_use(struct sim_lane *lane);

/* Does a stream capture with which the default stream, this one, is ordered? */
bool sim_capture_is_implicit(const struct sim_lane *lane);

/* Requires: the lane captures. */
CUresult sim_capture_add(struct sim_lane *lane, const struct sim_op *op);
CUresult sim_capture_record(struct sim_lane *lane, struct sim_event *event);
CUresult sim_capture_own(struct sim_lane *lane, uint64_t base);

/* Requires: the lane captures or the event was captured. */
CUresult sim_capture_wait(struct sim_lane *lane, struct sim_event *event);

/* For calls that a capture may forbid to everybody or to its thread (allocation, queries, waits).
 * Returns: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture is invalid. */
CUresult sim_capture_unsafe(void);
/* The same for a query of, or a wait for, a stream or an event that may belong to a capture; for an event of
 * one, also of one that has ended, CUDA_ERROR_CAPTURED_EVENT, and the capture goes on. */
CUresult sim_capture_forbid_lane(struct sim_lane *lane);
CUresult sim_capture_forbid_event(const struct sim_event *event);
/* For calls about all streams of a device: none may capture. */
CUresult sim_capture_break_device(int device);

/* cuThreadExchangeStreamCaptureMode. Thread: any, no lock. */
CUresult sim_capture_exchange_mode(CUstreamCaptureMode *mode);

void sim_captures_reset(void);

#endif
