/* SPDX-License-Identifier: Apache-2.0 */
/* capture: see capture.h.
 *
 * Within a capture, lanes have clocks of their own: for each lane of the capture, up to which of its captured
 * operations another lane is known to come after. At the end the first lane must come after all of them. */
#include "sim/core/capture.h"
#include "base/align.h"
#include "sim/core/faults.h"
#include "sim/core/rules.h"
#include "sim/core/table.h"
#include <stdlib.h>
#include <string.h>

enum { LANES_MAX = 64 };

struct member {
    struct sim_lane *lane;
    uint64_t count; /* operations captured from it */
    uint64_t after[LANES_MAX];
};

/* Where an event that was recorded in a capture stands in it. */
struct mark {
    uint64_t event;
    uint64_t after[LANES_MAX];
    struct mark *next;
};

struct sim_capture {
    struct sim_capture *next;
    uint64_t id;
    CUstreamCaptureMode mode;
    const void *thread; /* the address of a thread-local names its thread */
    bool is_invalid;
    struct sim_graph *graph;
    uint32_t member_count;
    struct member members[LANES_MAX]; /* the first is the one on which it began */
    struct mark *marks;
};

_Atomic unsigned sim_captures;
static struct sim_capture *captures;
static uint64_t next_id = 1;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static const void *this_thread(void)
{
    return &thread_mode;
}

static CUresult invalidate(struct sim_capture *capture, CUresult result, enum sim_rule rule, const char *why)
{
    capture->is_invalid = true;
    sim_violate(rule, capture->members[0].lane->device, 0, 0, "%s", why);
    return result;
}

static struct member *member_of(struct sim_capture *capture, const struct sim_lane *lane)
{
    for (uint32_t i = 0; i < capture->member_count; i++)
        if (capture->members[i].lane == lane)
            return &capture->members[i];
    return NULL;
}

static struct sim_capture *capture_of(uint64_t id)
{
    struct sim_capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static struct member *join(struct sim_capture *capture, struct sim_lane *lane)
{
    if (capture->member_count == LANES_MAX)
        return NULL;
    struct member *m = &capture->members[capture->member_count++];
    *m = (struct member){.lane = lane};
    lane->capture = capture;
    atomic_store_explicit(&lane->capture_id, capture->id, memory_order_release);
    return m;
}

CUresult sim_capture_begin(struct sim_lane *lane, CUstreamCaptureMode mode)
{
    if (lane->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (lane->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *c = calloc(1, sizeof *c);
    struct sim_graph *graph = c ? sim_graph_new() : NULL;
    if (!graph) {
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    c->id = next_id++;
    c->mode = mode;
    c->thread = this_thread();
    c->graph = graph;
    join(c, lane);
    c->next = captures;
    captures = c;
    atomic_fetch_add(&sim_captures, 1);
    return CUDA_SUCCESS;
}

/* Takes a capture apart; its graph stays. */
static void finish(struct sim_capture *capture)
{
    struct sim_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    for (uint32_t i = 0; i < capture->member_count; i++) {
        capture->members[i].lane->capture = NULL;
        atomic_store_explicit(&capture->members[i].lane->capture_id, 0, memory_order_release);
    }
    for (struct mark *mark; (mark = capture->marks);) {
        capture->marks = mark->next;
        free(mark);
    }
    free(capture);
    atomic_fetch_sub(&sim_captures, 1);
}

static bool is_joined(const struct sim_capture *capture)
{
    for (uint32_t i = 1; i < capture->member_count; i++)
        if (capture->members[0].after[i] < capture->members[i].count)
            return false;
    return true;
}

CUresult sim_capture_end(struct sim_lane *lane, CUgraph *graph)
{
    struct sim_capture *c = lane->capture;
    CUresult result = CUDA_SUCCESS;
    *graph = NULL;
    if (!c)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->members[0].lane != lane)
        return invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, SIM_RULE_CAPTURE_ORDER,
                          "ended on a stream on which it did not begin");
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != this_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (c->is_invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(c))
        result = invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, SIM_RULE_CAPTURE_ORDER,
                            "a stream that joined did not come back");
    struct sim_graph *g = c->graph;
    finish(c);
    if (!result)
        *graph = (CUgraph)(uintptr_t)g->handle;
    else
        sim_graph_destroy((CUgraph)(uintptr_t)g->handle);
    return result;
}

void sim_capture_status(const struct sim_lane *lane, CUstreamCaptureStatus *status, uint64_t *id,
                        CUgraph *graph)
{
    const struct sim_capture *c = lane->capture;
    if (status)
        *status = !c              ? CU_STREAM_CAPTURE_STATUS_NONE
                  : c->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id)
        *id = c ? c->id : 0;
    if (graph)
        *graph = c ? (CUgraph)(uintptr_t)c->graph->handle : NULL;
}

/* The capture of a stream with which the default stream is ordered. Returns: NULL for none, and for other
 * lanes. */
static struct sim_capture *implicit_capture(const struct sim_lane *lane)
{
    for (struct sim_capture *c = captures; lane->is_legacy && c; c = c->next)
        for (uint32_t i = 0; i < c->member_count; i++)
            if (c->members[i].lane->is_blocking && c->members[i].lane->device == lane->device)
                return c;
    return NULL;
}

CUresult sim_capture_check_use(struct sim_lane *lane)
{
    if (!sim_capture_any())
        return CUDA_SUCCESS;
    if (lane->capture)
        return lane->capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    struct sim_capture *c = implicit_capture(lane);
    return c ? invalidate(c, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, SIM_RULE_CAPTURE_ORDER,
                          "the default stream was used while a stream ordered with it captures")
             : CUDA_SUCCESS;
}

bool sim_capture_is_implicit(const struct sim_lane *lane)
{
    return implicit_capture(lane);
}

CUresult sim_capture_add(struct sim_lane *lane, const struct sim_op *op)
{
    struct sim_op node = *op;
    sim_fault_into(&node);
    CUresult result = sim_graph_add(lane->capture->graph, &node);
    struct member *m = member_of(lane->capture, lane);
    if (!result)
        m->after[m - lane->capture->members] = ++m->count;
    return result;
}

CUresult sim_capture_own(struct sim_lane *lane, uint64_t base)
{
    return sim_graph_own(lane->capture->graph, base);
}

CUresult sim_capture_record(struct sim_lane *lane, struct sim_event *event)
{
    struct sim_capture *c = lane->capture;
    struct member *m = member_of(c, lane);
    struct mark *mark = c->marks;
    while (mark && mark->event != event->handle)
        mark = mark->next;
    if (!mark) {
        mark = calloc(1, sizeof *mark);
        if (!mark)
            return CUDA_ERROR_OUT_OF_MEMORY;
        mark->event = event->handle;
        mark->next = c->marks;
        c->marks = mark;
    }
    memcpy(mark->after, m->after, sizeof mark->after);
    atomic_store_explicit(&event->capture_id, c->id, memory_order_release);
    return CUDA_SUCCESS;
}

static CUresult wait_mark(struct sim_capture *c, struct sim_lane *lane, const struct sim_event *event)
{
    struct member *m = member_of(c, lane);
    const struct mark *mark = c->marks;
    while (mark && mark->event != event->handle)
        mark = mark->next;
    if (!m)
        m = join(c, lane);
    if (!m || !mark)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < LANES_MAX; i++)
        m->after[i] = sm_max(m->after[i], mark->after[i]);
    return CUDA_SUCCESS;
}

CUresult sim_capture_wait(struct sim_lane *lane, struct sim_event *event)
{
    struct sim_capture *theirs = capture_of(event->capture_id), *ours = lane->capture;
    if (!theirs && event->capture_id) /* of one that has ended */
        return sim_event_captured(event);
    if (!theirs && !ours)
        return CUDA_SUCCESS;
    if (ours == theirs)
        return wait_mark(ours, lane, event);
    if (!theirs)
        return event->recorded == 0
                   ? CUDA_SUCCESS
                   : invalidate(ours, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, SIM_RULE_CAPTURE_ORDER,
                                "a capturing stream waits for work outside the capture");
    if (ours) {
        invalidate(theirs, CUDA_ERROR_STREAM_CAPTURE_MERGE, SIM_RULE_CAPTURE_ORDER,
                   "two captures would merge");
        return invalidate(ours, CUDA_ERROR_STREAM_CAPTURE_MERGE, SIM_RULE_CAPTURE_ORDER,
                          "two captures would merge");
    }
    if (lane->is_legacy)
        return invalidate(theirs, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, SIM_RULE_CAPTURE_ORDER,
                          "the default stream cannot join a capture");
    return theirs->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : wait_mark(theirs, lane, event);
}

/* ---- what captures forbid ---- */

static bool forbids(const struct sim_capture *c)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || c->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (c->thread == this_thread())
        return true;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *c = captures; c; c = c->next)
        if (forbids(c))
            result = invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, SIM_RULE_CAPTURE_UNSAFE,
                                "not permitted while a stream captures");
    return result;
}

CUresult sim_capture_forbid_lane(struct sim_lane *lane)
{
    if (!sim_capture_any())
        return CUDA_SUCCESS;
    if (lane->capture)
        return invalidate(lane->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, SIM_RULE_CAPTURE_UNSAFE,
                          "a capturing stream is asked about or waited for");
    return sim_capture_unsafe();
}

CUresult sim_capture_forbid_event(const struct sim_event *event)
{
    return event->capture_id ? sim_event_captured(event) : sim_capture_unsafe();
}

CUresult sim_capture_break_device(int device)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *c = captures; c; c = c->next)
        for (uint32_t i = 0; i < c->member_count && !c->is_invalid; i++)
            if (c->members[i].lane->device == device)
                result = invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, SIM_RULE_CAPTURE_UNSAFE,
                                    "a call about all streams of the context");
    return result;
}

CUresult sim_capture_exchange_mode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;
    if ((unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

void sim_captures_reset(void)
{
    while (captures)
        finish(captures);
}
