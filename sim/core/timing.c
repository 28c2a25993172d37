/* SPDX-License-Identifier: Apache-2.0 */
/* timing: see timing.h. */
#include "sim/core/timing.h"
#include "base/align.h"
#include "sim/core/cost.h"
#include "sim/core/model.h"
#include "sim/core/trace.h"
#include <stdlib.h>
#include <string.h>

enum {
    VAIN_NS = 100, /* the least that asking again in vain costs: also with free calls polling must end */
    ONLOOKER_ASKS = 1000, /* in vain, while the clock stands still */
    SHOWN_NS = 200        /* shorter calls are left out of the trace */
};

static _Atomic uint64_t now;
static _Atomic uint64_t call_ns[SIM_CALL_COUNT];
static _Atomic uint64_t launch_ns, spent_ns;
static uint64_t wait_ns[SIM_CALL_COUNT];
static SLIST_HEAD(track_list, sim_track) tracks = SLIST_HEAD_INITIALIZER(tracks);
static struct sim_track *last_track;
static _Atomic uint64_t epoch = 1;
static _Atomic bool is_watched; /* others than the program ask for finished work, and clear it away */

/* Since which reset this thread has been more than an onlooker; how often it has asked in vain at one time.
 */
static __thread uint64_t acting_since, vain_at;
static __thread unsigned vain_asks;
static __thread bool polls; /* its last call was a question in vain */

uint64_t sim_timing_now(void)
{
    return atomic_load_explicit(&now, memory_order_relaxed);
}

/* Moves the clock on, and shows what for. */
static void spend(const char *name, uint64_t ns, _Atomic uint64_t *sum)
{
    uint64_t begin = atomic_fetch_add_explicit(&now, ns, memory_order_relaxed);
    atomic_fetch_add_explicit(sum, ns, memory_order_relaxed);
    if (sim_trace_on() && ns >= SHOWN_NS)
        sim_trace_host("call", name, begin, begin + ns);
}

/* ---- the host ---- */

/* Calls that put nothing on a stream and change nothing that anybody waits for. */
static bool is_question(enum sim_call call)
{
    switch ((int)call) {
    case SIM_CALL_cuInit:
    case SIM_CALL_cuDriverGetVersion:
    case SIM_CALL_cuGetProcAddress:
    case SIM_CALL_cuGetErrorName:
    case SIM_CALL_cuGetErrorString:
    case SIM_CALL_cuDeviceGet:
    case SIM_CALL_cuDeviceGetCount:
    case SIM_CALL_cuDeviceGetAttribute:
    case SIM_CALL_cuDeviceGetName:
    case SIM_CALL_cuDeviceGetUuid:
    case SIM_CALL_cuDeviceTotalMem:
    case SIM_CALL_cuDevicePrimaryCtxRetain:
    case SIM_CALL_cuDevicePrimaryCtxGetState:
    case SIM_CALL_cuCtxGetCurrent:
    case SIM_CALL_cuCtxSetCurrent:
    case SIM_CALL_cuCtxPushCurrent:
    case SIM_CALL_cuCtxPopCurrent:
    case SIM_CALL_cuCtxGetDevice:
    case SIM_CALL_cuCtxGetFlags:
    case SIM_CALL_cuStreamQuery:
    case SIM_CALL_cuStreamIsCapturing:
    case SIM_CALL_cuStreamGetCaptureInfo:
    case SIM_CALL_cuThreadExchangeStreamCaptureMode:
    case SIM_CALL_cuEventQuery:
    case SIM_CALL_cuEventDestroy:
    case SIM_CALL_cuEventElapsedTime:
    case SIM_CALL_cuPointerGetAttribute:
    case SIM_CALL_cuPointerGetAttributes:
        return true;
    default:
        return false;
    }
}

/* Calls that cost no time in a process that is watched: who makes them, and when, is decided by real time. */
static bool is_shared_out(enum sim_call call)
{
    return atomic_load_explicit(&is_watched, memory_order_relaxed) &&
           (is_question(call) || call == SIM_CALL_cuEventCreate);
}

static bool is_acting(void)
{
    return acting_since == atomic_load_explicit(&epoch, memory_order_relaxed);
}

static void act(void)
{
    acting_since = atomic_load_explicit(&epoch, memory_order_relaxed);
}

void sim_timing_call(enum sim_call call)
{
    if (!is_acting()) {
        if (is_question(call))
            return;
        act();
    }
    if (is_shared_out(call))
        return;
    if (!is_question(call))
        polls = false;
    uint64_t ns = sim_cost_fixed(call);
    if (ns)
        spend(sim_call_names[call], ns, &call_ns[call]);
}

void sim_host_watched(void)
{
    atomic_store(&is_watched, true);
}

void sim_timing_extra(enum sim_call call, uint64_t ns)
{
    spend(sim_call_names[call], ns, &call_ns[call]);
}

void sim_timing_launch(void)
{
    act();
    spend("launch by a library", sim_cost_fixed(SIM_CALL_cuLaunchKernel), &launch_ns);
}

void sim_host_spend(uint64_t ns)
{
    if (sim_timing_on()) {
        act();
        spend("the program itself", ns, &spent_ns);
    }
}

void sim_timing_vain(void)
{
    enum sim_call call = sim_current();
    uint64_t fixed = sim_cost_fixed(call), at = sim_timing_now();
    if (is_acting()) {
        uint64_t due = polls ? sm_max(fixed, VAIN_NS) : fixed, paid = is_shared_out(call) ? 0 : fixed;
        if (due > paid)
            spend(sim_call_names[call], due - paid, &call_ns[call]);
        polls = true;
        return;
    }
    vain_asks = at == vain_at ? vain_asks + 1 : 0;
    vain_at = at;
    if (vain_asks >= ONLOOKER_ASKS)
        act();
}

void sim_timing_reach(uint64_t ns)
{
    uint64_t at = sim_timing_now();
    while (at < ns && !atomic_compare_exchange_weak(&now, &at, ns)) {
    }
    if (at < ns)
        wait_ns[sim_current()] += ns - at;
}

/* ---- streams ---- */

/* The track of a lane, made when it is first needed; NULL without host memory. */
static struct sim_track *track_of(struct sim_lane *lane)
{
    if (lane->track)
        return lane->track;
    struct sim_track *track = calloc(1, sizeof *track);
    if (!track)
        return NULL;
    track->stream = lane->stream;
    track->lane = lane->index;
    track->device = lane->device;
    track->is_default = lane->is_legacy;
    if (last_track)
        SLIST_INSERT_AFTER(last_track, track, link);
    else
        SLIST_INSERT_HEAD(&tracks, track, link);
    last_track = lane->track = track;
    if (sim_trace_on())
        sim_trace_stream(track);
    return track;
}

/* Adds waiting time for a stream; without host memory it is in the sum only. */
static void add_waited(struct sim_track *track, uint64_t stream, uint64_t ns)
{
    struct sim_waited *waited = track->waited;
    size_t i = 0;
    while (i < track->waited_count && waited[i].stream != stream)
        i++;
    if (i == track->waited_count) {
        waited = realloc(waited, (i + 1) * sizeof *waited);
        if (!waited)
            return;
        track->waited = waited;
        waited[i] = (struct sim_waited){stream, 0};
        track->waited_count++;
    }
    waited[i].ns += ns;
}

/* Accounts for an operation that begins then: before that its stream had nothing to do until `ready`, and
 * waited from there on. */
static void account(struct sim_track *track, const struct sim_op *op, uint64_t ready, uint64_t begin)
{
    struct sim_stream_time *time = &track->time;
    if (time->operations++ == 0)
        time->begin_ns = ready;
    else
        time->idle_ns += ready - time->end_ns;
    if (begin > ready) {
        time->waiting_ns += begin - ready;
        add_waited(track, track->blocker, begin - ready);
        if (sim_trace_on())
            sim_trace_wait(track, ready, begin);
    }
    time->busy_ns += op->due - begin;
    time->end_ns = op->due;
    if (sim_trace_on())
        sim_trace_operation(track, op->name, begin, op->due);
}

static void place_work(struct sim_lane *lane, struct sim_op *op)
{
    struct sim_track *track = track_of(lane);
    uint64_t host = sim_timing_now(), begin = sm_max(host, lane->end_ns);
    if (op->kind == SIM_OP_TRANSFER) {
        op->ns = sim_model_transfer_ns(&op->transfer, lane->device);
        op->name = sim_model_transfer_name(&op->transfer);
    } else if (op->kind == SIM_OP_HOST) {
        op->ns = sim_model.host_function_ns;
        op->name = "host function";
    }
    op->due = begin + op->ns;
    if (track)
        account(track, op, sm_max(host, track->time.end_ns), begin);
    lane->end_ns = op->due;
}

void sim_timing_place(struct sim_lane *lane, struct sim_op *op, uint64_t blocker)
{
    struct sim_track *track;
    switch (op->kind) {
    case SIM_OP_KERNEL:
    case SIM_OP_TRANSFER:
    case SIM_OP_HOST:
        place_work(lane, op);
        break;
    case SIM_OP_WAIT:
        track = track_of(lane);
        if (op->wait.end_ns > lane->end_ns) {
            lane->end_ns = op->wait.end_ns;
            if (track)
                track->blocker = blocker;
        }
        op->due = lane->end_ns;
        break;
    case SIM_OP_RECORD:
    case SIM_OP_FREE: /* marks, not work: they take no time and end no wait */
        op->due = lane->end_ns = sm_max(sim_timing_now(), lane->end_ns);
        break;
    }
}

struct sim_track *sim_timing_next(const struct sim_track *track)
{
    return track ? SLIST_NEXT(track, link) : SLIST_FIRST(&tracks);
}

uint64_t sim_timing_end(void)
{
    const struct sim_track *track;
    uint64_t end = sim_timing_now();
    SLIST_FOREACH(track, &tracks, link) {
        end = sm_max(end, track->time.end_ns);
    }
    return end;
}

uint64_t sim_timing_call_ns(int call)
{
    return atomic_load(&call_ns[call]);
}

uint64_t sim_timing_wait_ns(int call)
{
    return wait_ns[call];
}

uint64_t sim_timing_launch_ns(void)
{
    return atomic_load(&launch_ns);
}

uint64_t sim_timing_spent_ns(void)
{
    return atomic_load(&spent_ns);
}

/* Requires: no lane leads to a track any more. */
void sim_timing_reset(void)
{
    for (struct sim_track *track; (track = SLIST_FIRST(&tracks));) {
        SLIST_REMOVE_HEAD(&tracks, link);
        free(track->waited);
        free(track);
    }
    last_track = NULL;
    atomic_store(&is_watched, false);
    atomic_store(&now, 0);
    atomic_store(&launch_ns, 0);
    atomic_store(&spent_ns, 0);
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        atomic_store(&call_ns[call], 0);
    memset(wait_ns, 0, sizeof wait_ns);
    atomic_fetch_add(&epoch, 1);
}
