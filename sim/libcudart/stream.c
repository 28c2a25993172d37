/* SPDX-License-Identifier: Apache-2.0 */
/* stream: streams, events, captures and graphs. Owns nothing; the handles are the driver's own. */
#include "sim/libcudart/runtime.h"

#include <string.h>

RT_API cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return RT_RUN(cuStreamCreate(stream, CU_STREAM_DEFAULT));
}

RT_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return RT_RUN(cuStreamCreate(stream, flags));
}

RT_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    return RT_RUN(cuStreamCreateWithPriority(stream, flags, priority));
}

RT_API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return RT_RUN(cuStreamDestroy(stream));
}

RT_API cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return RT_RUN(cuStreamSynchronize(stream));
}

RT_API cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return RT_RUN(cuStreamQuery(stream));
}

RT_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    return RT_RUN(cuStreamWaitEvent(stream, event, flags));
}

RT_API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    return RT_RUN(cuStreamGetPriority(stream, priority));
}

RT_API cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags)
{
    return RT_RUN(cuStreamGetFlags(stream, flags));
}

RT_API cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    return RT_RUN(cuStreamGetId(stream, id));
}

RT_API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data,
                                         unsigned flags)
{
    /* Both callbacks take (stream, error number, data). */
    return RT_RUN(cuStreamAddCallback(stream, (CUstreamCallback)(void *)callback, data, flags));
}

RT_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    return RT_RUN(cuLaunchHostFunc(stream, function, data));
}

RT_API cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return RT_RUN(cuEventCreate(event, CU_EVENT_DEFAULT));
}

RT_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    return RT_RUN(cuEventCreate(event, flags));
}

RT_API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return RT_RUN(cuEventDestroy(event));
}

RT_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return RT_RUN(cuEventRecord(event, stream));
}

RT_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    return RT_RUN(cuEventRecordWithFlags(event, stream, flags));
}

RT_API cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return RT_RUN(cuEventQuery(event));
}

RT_API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return RT_RUN(cuEventSynchronize(event));
}

RT_API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    return RT_RUN(cuEventElapsedTime(ms, start, end));
}

RT_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    return RT_RUN(cuIpcGetEventHandle((CUipcEventHandle *)handle, event));
}

RT_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle driver_handle;

    memcpy(&driver_handle, &handle, sizeof driver_handle);
    return RT_RUN(cuIpcOpenEventHandle(event, driver_handle));
}

/* ---- captures ---- */

RT_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return RT_RUN(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

RT_API cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                 const cudaGraphNode_t *dependencies,
                                                 const cudaGraphEdgeData *edges, size_t count,
                                                 enum cudaStreamCaptureMode mode)
{
    return RT_RUN(cuStreamBeginCaptureToGraph(stream, graph, dependencies, (const CUgraphEdgeData *)edges,
                                              count, (CUstreamCaptureMode)mode));
}

RT_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    return RT_RUN(cuStreamEndCapture(stream, graph));
}

RT_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    return RT_RUN(cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status));
}

RT_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                            unsigned long long *id, cudaGraph_t *graph,
                                            const cudaGraphNode_t **dependencies,
                                            const cudaGraphEdgeData **edges, size_t *count)
{
    return RT_RUN(cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph,
                                         dependencies, (const CUgraphEdgeData **)edges, count));
}

RT_API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                       const cudaGraphEdgeData *edges, size_t count,
                                                       unsigned flags)
{
    return RT_RUN(cuStreamUpdateCaptureDependencies(stream, dependencies, (const CUgraphEdgeData *)edges,
                                                    count, flags));
}

RT_API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return RT_RUN(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

/* ---- graphs ---- */

RT_API cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags)
{
    return RT_RUN(cuGraphCreate(graph, flags));
}

RT_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                        unsigned long long flags)
{
    return RT_RUN(cuGraphInstantiate(executable, graph, flags));
}

RT_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph,
                                                 unsigned long long flags)
{
    return RT_RUN(cuGraphInstantiate(executable, graph, flags));
}

RT_API cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    return RT_RUN(cuGraphLaunch(executable, stream));
}

RT_API cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return RT_RUN(cuGraphDestroy(graph));
}

RT_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    return RT_RUN(cuGraphExecDestroy(executable));
}

RT_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return RT_RUN(cuGraphGetNodes(graph, nodes, count));
}

RT_API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
                                                cudaGraphEdgeData *edges, size_t *count)
{
    return RT_RUN(cuGraphNodeGetDependencies(node, dependencies, (CUgraphEdgeData *)edges, count));
}

/* The parameters have one layout in both APIs. A kernel node of the runtime names a host symbol where the
 * driver wants a function, but nothing launches the nodes of a simulated graph. */
RT_API cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                    const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges,
                                    size_t count, struct cudaGraphNodeParams *parameters)
{
    return RT_RUN(cuGraphAddNode(node, graph, dependencies, (const CUgraphEdgeData *)edges, count,
                                 (CUgraphNodeParams *)parameters));
}

RT_API cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned flags)
{
    return RT_RUN(cuGraphDebugDotPrint(graph, path, flags));
}

RT_API cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle, cudaGraph_t graph,
                                                    unsigned launch_value, unsigned flags)
{
    CUcontext context = NULL;
    cudaError_t error = RT_RUN(cuCtxGetCurrent(&context));

    return error ? error
                 : rt_note(cuGraphConditionalHandleCreate((CUgraphConditionalHandle *)handle, graph, context,
                                                          launch_value, flags));
}

RT_API cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *data, cudaHostFn_t destroy,
                                        unsigned references, unsigned flags)
{
    return RT_RUN(cuUserObjectCreate(object, data, destroy, references, flags));
}

RT_API cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count)
{
    return RT_RUN(cuUserObjectRelease(object, count));
}

RT_API cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                             unsigned flags)
{
    return RT_RUN(cuGraphRetainUserObject(graph, object, count, flags));
}
