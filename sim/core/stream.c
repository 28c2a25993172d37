/* SPDX-License-Identifier: Apache-2.0 */
/* stream: see stream.h. */
#include "sim/core/stream.h"
#include "sim/core/calls.h"
#include "sim/core/capture.h"
#include "sim/core/config.h"
#include "sim/core/context.h"
#include "sim/core/lock.h"
#include "sim/core/memory.h"
#include "sim/core/model.h"
#include "sim/core/rules.h"
#include "sim/core/sticky.h"
#include "sim/core/table.h"
#include "sim/core/timing.h"
#include "sim/core/trace.h"
#include <stdlib.h>

static struct sim_stream *_Atomic legacy[SIM_DEVICES_MAX];
static struct sim_lane
    *device_lanes[SIM_DEVICES_MAX]; /* for what is about all streams; no handle leads here */
static uint64_t next_number = 1;
static _Atomic uint64_t epoch = 1;

/* Per-thread default streams: the thread's own, void after a reset. */
static __thread struct sim_stream *per_thread[SIM_DEVICES_MAX];
static __thread uint64_t per_thread_epoch;

static struct sim_stream *make(int device, unsigned flags, int priority, bool is_legacy)
{
    struct sim_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (struct sim_stream){.flags = flags, .priority = priority};
    s->lane = sim_lane_new(device, !is_legacy && !(flags & CU_STREAM_NON_BLOCKING), is_legacy);
    if (!s->lane) {
        free(s);
        return NULL;
    }
    s->number = s->lane->stream = next_number++;
    return s;
}

CUresult sim_stream_new(int device, unsigned flags, int priority, CUstream *stream)
{
    struct sim_stream *s = make(device, flags, priority, false);
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    s->handle = sim_table_add(SIM_KIND_STREAM, s);
    if (!s->handle) {
        sim_lane_drop(s->lane);
        free(s);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *stream = (CUstream)(uintptr_t)s->handle;
    return CUDA_SUCCESS;
}

static struct sim_stream *unknown(CUstream stream)
{
    sim_violate(SIM_RULE_UNKNOWN_STREAM, -1, 0, 0, "stream %#llx", (unsigned long long)(uintptr_t)stream);
    return NULL;
}

CUresult sim_stream_destroy(CUstream stream)
{
    struct sim_stream *s = sim_table_get(SIM_KIND_STREAM, (uint64_t)(uintptr_t)stream);
    if (!s) {
        unknown(stream);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (s->lane->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_table_remove(SIM_KIND_STREAM, s->handle);
    sim_lane_drop(s->lane); /* what is on it still completes */
    free(s);
    return CUDA_SUCCESS;
}

static struct sim_stream *legacy_stream(int device)
{
    struct sim_stream *s = atomic_load_explicit(&legacy[device], memory_order_acquire);
    if (s)
        return s;
    sim_lock();
    s = legacy[device];
    if (!s)
        atomic_store_explicit(&legacy[device], s = make(device, 0, 0, true), memory_order_release);
    sim_unlock();
    return s;
}

static struct sim_stream *thread_stream(int device)
{
    uint64_t now = atomic_load(&epoch);
    if (per_thread_epoch != now) {
        for (int d = 0; d < SIM_DEVICES_MAX; d++)
            per_thread[d] = NULL;
        per_thread_epoch = now;
    }
    if (!per_thread[device]) {
        sim_lock();
        per_thread[device] = make(device, 0, 0, false);
        sim_unlock();
    }
    return per_thread[device];
}

struct sim_stream *sim_stream_get(CUstream stream)
{
    if (stream > (CUstream)2) {
        struct sim_stream *s = sim_table_get(SIM_KIND_STREAM, (uint64_t)(uintptr_t)stream);
        return s ? s : unknown(stream);
    }
    int device = sim_context_device();
    if (device < 0)
        return NULL;
    return stream == CU_STREAM_PER_THREAD ? thread_stream(device) : legacy_stream(device);
}

CUresult sim_stream_submit(struct sim_stream *stream, const struct sim_op *op)
{
    CUresult result = sim_capture_check_use(stream->lane);
    if (result)
        return result;
    return stream->lane->capture ? sim_capture_add(stream->lane, op) : sim_queue_put(stream->lane, op);
}

CUresult sim_stream_record(struct sim_stream *stream, struct sim_event *event)
{
    CUresult result = sim_capture_check_use(stream->lane);
    if (result)
        return result;
    return stream->lane->capture ? sim_capture_record(stream->lane, event)
                                 : sim_event_record(event, stream->lane);
}

CUresult sim_stream_wait_event(struct sim_stream *stream, struct sim_event *event)
{
    CUresult result = sim_capture_check_use(stream->lane);
    if (result)
        return result;
    if (stream->lane->capture || event->capture_id)
        return sim_capture_wait(stream->lane, event);
    return sim_queue_wait_point(stream->lane, &event->point);
}

static void add_touch(struct sim_op *op, uint64_t base, uint64_t size, bool write)
{
    if (size)
        op->touches[op->touch_count++] = (struct sim_touch){base, size, write};
}

/* A large copy out of pageable memory returns when it has been read, which is when it is all but over. In
 * virtual time the host waits for it; elsewhere it is read at once. */
static bool waits_for_source(const struct sim_transfer *t)
{
    enum { STAGED_AT_ONCE = 65536 };
    return sim_timing_on() && !t->element && t->dst_device && !t->src_device &&
           t->width * t->height > STAGED_AT_ONCE && !sim_memory_is_pinned(t->src);
}

CUresult sim_stream_transfer(struct sim_stream *stream, struct sim_transfer *transfer, bool sync)
{
    struct sim_op op = {.kind = SIM_OP_TRANSFER};
    struct sim_lane *lane = stream->lane;
    if (transfer->width == 0 || transfer->height == 0)
        return CUDA_SUCCESS;
    sim_transfer_classify(transfer);
    if (sim_transfer_is_nowhere(transfer))
        return CUDA_ERROR_INVALID_VALUE;
    op.transfer = *transfer;
    if (transfer->dst_device)
        add_touch(&op, transfer->dst,
                  sim_transfer_span(transfer->width, transfer->height, transfer->dst_pitch), true);
    if (transfer->src_device)
        add_touch(&op, transfer->src,
                  sim_transfer_span(transfer->width, transfer->height, transfer->src_pitch), false);
    if (sync && sim_capture_any()) {
        CUresult unsafe = sim_capture_unsafe();
        if (unsafe)
            return unsafe;
    }
    CUresult result = sim_stream_submit(stream, &op);
    bool to_pageable = !transfer->dst_device && !sim_memory_is_pinned(transfer->dst);
    if (!result && (sync || to_pageable || waits_for_source(transfer)) && !lane->capture) {
        result = sim_queue_wait(lane, lane->last);
        result = result ? result : sim_sticky(lane->device);
    }
    return result;
}

/* ---- all streams of a device ---- */

static struct sim_lane *device_lane(int device)
{
    if (!device_lanes[device])
        device_lanes[device] = sim_lane_new(device, false, false);
    return device_lanes[device];
}

CUresult sim_stream_record_device(int device, struct sim_event *event)
{
    struct sim_lane *lane = device_lane(device);
    CUresult result = lane ? sim_capture_break_device(device) : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result)
        result = sim_queue_wait_device(lane);
    return result ? result : sim_event_record(event, lane);
}

/* Whatever is put on a stream of the device from now on comes after the event: every lane waits for it. */
CUresult sim_stream_device_wait(int device, struct sim_event *event)
{
    CUresult result = sim_capture_break_device(device);
    return result ? result : sim_queue_device_wait_point(device, &event->point);
}

void sim_streams_start(void)
{
    next_number = 1;
}

static void drop(uint64_t handle, void *object, void *user)
{
    (void)user;
    sim_table_remove(SIM_KIND_STREAM, handle);
    free(object);
}

/* Per-thread streams of other threads cannot be reached and are left, some tens of bytes each. */
void sim_streams_reset(void)
{
    sim_table_each(SIM_KIND_STREAM, drop, NULL);
    for (int d = 0; d < SIM_DEVICES_MAX; d++) {
        free(legacy[d]);
        atomic_store(&legacy[d], NULL);
        device_lanes[d] = NULL;
        if (per_thread_epoch == epoch)
            free(per_thread[d]);
        per_thread[d] = NULL;
    }
    atomic_fetch_add(&epoch, 1);
}

/* ---- control ---- */

static struct sim_stream *control_get(CUstream stream)
{
    struct sim_stream *s = sim_stream_get(stream);
    sim_lock();
    return s;
}

CUresult sim_stream_hold(CUstream stream, bool hold)
{
    struct sim_stream *s = control_get(stream);
    if (s)
        sim_queue_hold(s->lane, hold);
    sim_unlock();
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_stream_work(CUstream stream, CUdeviceptr base, size_t size, uint64_t ns)
{
    struct sim_op op = {.kind = SIM_OP_KERNEL};
    struct sim_stream *s = control_get(stream);
    op.ns = ns;
    sim_set_current(SIM_CALL_cuLaunchKernel);
    add_touch(&op, base, size, true);
    CUresult result = s ? sim_stream_submit(s, &op) : CUDA_ERROR_INVALID_HANDLE;
    sim_queue_tick();
    sim_unlock();
    return result;
}

CUresult sim_stream_do(CUstream stream, CUdeviceptr base, size_t size, const struct sim_work *work)
{
    struct sim_op op = {.kind = SIM_OP_KERNEL, .name = work->name, .ns = sim_model_work_ns(work)};
    sim_set_current(SIM_CALL_cuLaunchKernel);
    if (sim_timing_on())
        sim_timing_launch();
    struct sim_stream *s = control_get(stream);
    add_touch(&op, base, size, true);
    CUresult result = s ? sim_stream_submit(s, &op) : CUDA_ERROR_INVALID_HANDLE;
    sim_queue_tick();
    sim_unlock();
    return result;
}

CUresult sim_stream_collective(CUstream stream, CUdeviceptr base, size_t size, enum sim_collective what,
                               uint64_t bytes, int ranks)
{
    struct sim_work work = {0};
    sim_model_collective(&work, what, bytes, ranks);
    return sim_stream_do(stream, base, size, &work);
}

uint64_t sim_host_ns(void)
{
    return sim_timing_now();
}

bool sim_stream_time(CUstream stream, struct sim_stream_time *time)
{
    const struct sim_stream *s = control_get(stream);
    const struct sim_track *track = s ? s->lane->track : NULL;
    bool known = track && track->time.operations;
    if (known)
        *time = track->time;
    sim_unlock();
    return known;
}

uint64_t sim_stream_waited_ns(CUstream stream, CUstream other)
{
    const struct sim_stream *s = sim_stream_get(stream), *o = control_get(other);
    const struct sim_track *track = s ? s->lane->track : NULL;
    uint64_t ns = 0;
    for (size_t i = 0; track && o && i < track->waited_count; i++)
        if (track->waited[i].stream == o->number)
            ns = track->waited[i].ns;
    sim_unlock();
    return ns;
}

bool sim_trace_to(const char *path)
{
    return path ? sim_timing_on() && sim_trace_begin(path) : sim_trace_end();
}

CUresult sim_stream_run(CUstream stream)
{
    struct sim_stream *s = control_get(stream);
    if (s)
        sim_queue_run(s->lane);
    sim_unlock();
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

size_t sim_stream_pending(CUstream stream)
{
    struct sim_stream *s = control_get(stream);
    size_t count = s ? sim_queue_pending(s->lane) : 0;
    sim_unlock();
    return count;
}
