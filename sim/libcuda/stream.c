/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, host functions. What is asked most (event queries, capture status) takes no lock when it
 * can be answered without. */
#include "sim/core/stream.h"
#include "sim/core/calls.h"
#include "sim/core/capture.h"
#include "sim/core/config.h"
#include "sim/core/lock.h"
#include "sim/core/pool.h"
#include "sim/core/sticky.h"
#include "sim/core/timing.h"

/* Why sim_stream_get gave nothing. */
static CUresult no_stream(void)
{
    return sim_context_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

#define GET_STREAM(stream, handle)                                                                           \
    struct sim_stream *stream = sim_stream_get(handle);                                                      \
    if (!stream)                                                                                             \
    return no_stream()

#define GET_EVENT(event, handle)                                                                             \
    struct sim_event *event = sim_event_get(handle);                                                         \
    if (!event)                                                                                              \
    return CUDA_ERROR_INVALID_HANDLE

static CUresult create(CUstream *stream, unsigned int flags, int priority, int device)
{
    if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    sim_lock();
    CUresult result = sim_stream_new(device, flags, priority, stream);
    sim_unlock();
    return result;
}

SIM_API CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    SIM_ENTER_CONTEXT(cuStreamCreate, device);
    SIM_NEED(stream);
    return create(stream, flags, 0, device);
}

SIM_API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    SIM_ENTER_CONTEXT(cuStreamCreateWithPriority, device);
    SIM_NEED(stream);
    return create(stream, flags, priority, device);
}

SIM_API CUresult cuStreamDestroy_v2(CUstream stream)
{
    SIM_ENTER(cuStreamDestroy);
    sim_lock();
    CUresult result = sim_stream_destroy(stream);
    sim_unlock();
    return result;
}

SIM_API CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    SIM_ENTER(cuStreamGetPriority);
    SIM_NEED(priority);
    GET_STREAM(stream, handle);
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    SIM_ENTER(cuStreamGetFlags);
    SIM_NEED(flags);
    GET_STREAM(stream, handle);
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    SIM_ENTER(cuStreamGetId);
    SIM_NEED(id);
    GET_STREAM(stream, handle);
    *id = stream->number;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
    SIM_ENTER(cuStreamGetDevice);
    SIM_NEED(device);
    GET_STREAM(stream, handle);
    *device = stream->lane->device;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    SIM_ENTER(cuStreamGetCtx);
    SIM_NEED(context);
    GET_STREAM(stream, handle);
    *context = sim_context_primary(stream->lane->device);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamSynchronize(CUstream handle)
{
    SIM_ENTER(cuStreamSynchronize);
    GET_STREAM(stream, handle);
    sim_lock();
    CUresult result = sim_capture_forbid_lane(stream->lane);
    if (!result)
        result = sim_queue_wait(stream->lane, stream->lane->last);
    sim_pools_synchronised();
    sim_unlock();
    return result ? result : sim_sticky(stream->lane->device);
}

SIM_API CUresult cuStreamQuery(CUstream handle)
{
    SIM_ENTER(cuStreamQuery);
    GET_STREAM(stream, handle);
    sim_lock();
    CUresult result = sim_capture_forbid_lane(stream->lane);
    sim_queue_tick();
    if (!result)
        result = sim_sticky(stream->lane->device);
    if (!result && sim_queue_pending(stream->lane))
        result = CUDA_ERROR_NOT_READY;
    sim_unlock();
    if (result == CUDA_ERROR_NOT_READY && sim_timing_on())
        sim_timing_vain();
    return result;
}

SIM_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags)
{
    SIM_ENTER(cuStreamWaitEvent);
    GET_EVENT(event, event_handle);
    GET_STREAM(stream, handle);
    sim_lock();
    /* An external wait is a node of a graph, about an event as it is when the graph runs; here such a node is
     * nothing. Outside of a capture there is none (comment of cuStreamWaitEvent in cuda.h). */
    bool external = flags & CU_EVENT_WAIT_EXTERNAL;
    CUresult result = !external               ? sim_stream_wait_event(stream, event)
                      : stream->lane->capture ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    return result;
}

static CUresult submit(CUstream handle, const struct sim_op *op)
{
    GET_STREAM(stream, handle);
    sim_lock();
    CUresult result = sim_stream_submit(stream, op);
    sim_queue_tick();
    sim_unlock();
    return result;
}

SIM_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user)
{
    struct sim_op op = {.kind = SIM_OP_HOST, .host = {function, user}};
    SIM_ENTER(cuLaunchHostFunc);
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, &op);
}

SIM_API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                         unsigned int flags)
{
    struct sim_transfer write = {
        .dst = address, .width = 4, .height = 1, .dst_pitch = 4, .value = value, .element = 4};
    SIM_ENTER(cuStreamWriteValue32);
    (void)flags;
    if (address % 4)
        return CUDA_ERROR_INVALID_VALUE;
    GET_STREAM(s, stream);
    sim_lock();
    CUresult result = sim_stream_transfer(s, &write, false);
    sim_queue_tick();
    sim_unlock();
    return result;
}

/* ---- events ---- */

SIM_API CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    struct sim_event *made;
    SIM_ENTER_CONTEXT(cuEventCreate, device);
    SIM_NEED(event);
    if (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS) ||
        (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_event_new(device, flags, &made);
    sim_unlock();
    if (!result)
        *event = (CUevent)(uintptr_t)made->handle;
    return result;
}

SIM_API CUresult cuEventDestroy_v2(CUevent event)
{
    SIM_ENTER(cuEventDestroy);
    sim_lock();
    CUresult result = sim_event_destroy((uint64_t)(uintptr_t)event);
    sim_unlock();
    return result;
}

SIM_API CUresult cuEventRecordWithFlags(CUevent event_handle, CUstream handle, unsigned int flags)
{
    SIM_ENTER(cuEventRecord);
    GET_EVENT(event, event_handle);
    GET_STREAM(stream, handle);
    if (event->device != stream->lane->device)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_lock();
    bool external = flags & CU_EVENT_RECORD_EXTERNAL;
    CUresult result = !external               ? sim_stream_record(stream, event)
                      : stream->lane->capture ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_VALUE;
    sim_queue_tick();
    sim_unlock();
    return result;
}

SIM_API CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, 0);
}

SIM_API CUresult cuEventQuery(CUevent handle)
{
    SIM_ENTER(cuEventQuery);
    GET_EVENT(event, handle);
    CUresult result = CUDA_SUCCESS;
    if (event->capture_id || sim_capture_any() ||
        (sim_config.streams != SIM_STREAMS_IMMEDIATE && sim_queue_total())) {
        sim_lock();
        result = sim_capture_forbid_event(event);
        sim_queue_tick();
        sim_unlock();
    }
    result = result ? result : sim_sticky(event->device);
    if (result)
        return result;
    if (sim_event_is_done(event))
        return CUDA_SUCCESS;
    if (sim_timing_on())
        sim_timing_vain();
    return CUDA_ERROR_NOT_READY;
}

SIM_API CUresult cuEventSynchronize(CUevent handle)
{
    SIM_ENTER(cuEventSynchronize);
    GET_EVENT(event, handle);
    if (!sim_capture_any() && !event->capture_id && sim_event_is_done(event) && !sim_pools_cache())
        return sim_sticky(event->device);
    sim_lock();
    CUresult result = sim_capture_forbid_event(event);
    if (!result && !sim_event_is_done(event))
        result = sim_queue_wait_lane(event->point.lane, event->point.sequence);
    sim_pools_synchronised();
    sim_unlock();
    return result ? result : sim_sticky(event->device);
}

SIM_API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    SIM_ENTER(cuEventElapsedTime);
    SIM_NEED(milliseconds);
    GET_EVENT(start, start_handle);
    GET_EVENT(end, end_handle);
    if (start->capture_id || end->capture_id)
        return sim_event_captured(start->capture_id ? start : end);
    if (!start->recorded || !end->recorded || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_event_is_done(start) || !sim_event_is_done(end))
        return CUDA_ERROR_NOT_READY;
    sim_lock();
    *milliseconds = (float)((double)(end->completed_ns - start->completed_ns) / 1e6);
    sim_unlock();
    return CUDA_SUCCESS;
}

SIM_API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/* ---- capture ---- */

SIM_API CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    SIM_ENTER(cuStreamBeginCapture);
    GET_STREAM(stream, handle);
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_capture_begin(stream->lane, mode);
    sim_unlock();
    return result;
}

SIM_API CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    SIM_ENTER(cuStreamEndCapture);
    SIM_NEED(graph);
    GET_STREAM(stream, handle);
    sim_lock();
    CUresult result = sim_capture_end(stream->lane, graph);
    sim_unlock();
    return result;
}

static CUresult capture_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph)
{
    GET_STREAM(stream, handle);
    if (sim_capture_any() && stream->lane->is_legacy) {
        sim_lock();
        bool implicit = sim_capture_is_implicit(stream->lane);
        sim_unlock();
        if (implicit)
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!sim_capture_any() || !atomic_load_explicit(&stream->lane->capture_id, memory_order_acquire)) {
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
        if (id)
            *id = 0;
        if (graph)
            *graph = NULL;
        return CUDA_SUCCESS;
    }
    sim_lock();
    uint64_t number;
    sim_capture_status(stream->lane, status, &number, graph);
    sim_unlock();
    if (id)
        *id = number;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    SIM_ENTER(cuStreamIsCapturing);
    SIM_NEED(status);
    return capture_info(stream, status, NULL, NULL);
}

SIM_API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                           CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    SIM_ENTER(cuStreamGetCaptureInfo);
    SIM_NEED(status);
    if (dependencies) /* nodes are not modelled */
        *dependencies = NULL;
    if (count)
        *count = 0;
    return capture_info(stream, status, id, graph);
}

SIM_API CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                           CUgraph *graph, const CUgraphNode **dependencies,
                                           const CUgraphEdgeData **edges, size_t *count)
{
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

SIM_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    SIM_NEED(mode);
    return sim_capture_exchange_mode(mode);
}
