/* SPDX-License-Identifier: Apache-2.0 */
/* timing: virtual time, the mode SIM_STREAMS_TIMED. No real clock is read, so the same calls give the same
 * times.
 *
 * The host has one clock. Driver calls and launches add their cost to it, host waits move it to the end of
 * what they wait for. An operation is given its begin and end when it is put on its stream: it begins when it
 * has been submitted, the stream's operation before it has ended, and what the stream was told to wait for
 * has ended. It takes effect when the host's clock has passed its end, and not before.
 *
 * A thread that has only asked questions so far (has this event completed? which device is current?) is an
 * onlooker, and its calls are free: how often a watchdog looks is a matter of real time. When it has asked a
 * thousand times in vain while the clock stood still, somebody depends on its asking, and it counts.
 *
 * In a process that is watched (sim_host_watched: NCCL says so when it makes a communicator) the program and
 * its watchdog share the work of asking which collectives are over and of clearing them away, by real time.
 * There the answer "done", all other questions, and making and destroying events cost no virtual time for
 * anybody. The answer "not yet" costs its price as everywhere: what is not over yet cannot have been cleared
 * away by anybody, so that the program gets this answer equally often each time.
 *
 * Protected by: the core lock; the host's clock is an atomic. */
#ifndef SEAMALLOC_SIM_CORE_TIMING_H
#define SEAMALLOC_SIM_CORE_TIMING_H

#include "sim/core/calls.h"
#include "sim/core/config.h"
#include "sim/core/queue.h"

/* What is known of a stream. It outlives its stream. */
struct sim_track {
    SLIST_ENTRY(sim_track) link;
    uint64_t stream; /* cuStreamGetId; 0: none, for what is about a whole device */
    uint32_t lane;
    int device;
    bool is_default;
    struct sim_stream_time time;
    uint64_t blocker; /* the stream whose end its next operation waits for last */
    size_t waited_count;
    struct sim_waited {
        uint64_t stream, ns;
    } * waited; /* its waiting time, by the stream that was waited for */
};

static inline bool sim_timing_on(void)
{
    return sim_config.streams == SIM_STREAMS_TIMED;
}

/* The host's clock. Thread: any, no lock. */
uint64_t sim_timing_now(void);

/* Requires of these three: timing is on. Thread: any, no lock.
 * A call has been entered; a call costs more than its fixed part; a launch outside a driver call (by a math
 * library, say). */
void sim_timing_call(enum sim_call call);
void sim_timing_extra(enum sim_call call, uint64_t ns);
void sim_timing_launch(void);

/* A question was answered "not yet". When it was asked again and again the clock moves, so that who polls
 * gets there. Thread: any, no lock. */
void sim_timing_vain(void);

/* Gives an operation its times (op->due is its end). Requires: `blocker` is the stream of the lane that a
 * wait is for. */
void sim_timing_place(struct sim_lane *lane, struct sim_op *op, uint64_t blocker);

/* The host has waited for something that ends then. */
void sim_timing_reach(uint64_t ns);

/* When everything is over: the host, and all streams. */
uint64_t sim_timing_end(void);

/* The tracks, in the order in which streams were first used; NULL after the last. */
struct sim_track *sim_timing_next(const struct sim_track *track);

/* Host time in calls of one kind, waiting left out; waiting in them. */
uint64_t sim_timing_call_ns(int call);
uint64_t sim_timing_wait_ns(int call);
uint64_t sim_timing_launch_ns(void);
uint64_t sim_timing_spent_ns(void);

void sim_timing_reset(void);

#endif
