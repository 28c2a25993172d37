/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs. They come from captures only: adding nodes by hand is not supported. */
#include "sim/core/graph.h"
#include "sim/core/calls.h"
#include "sim/core/capture.h"
#include "sim/core/lock.h"
#include "sim/core/stream.h"

SIM_API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTER(cuGraphGetNodes);
    SIM_NEED(count);
    sim_lock();
    const struct sim_graph *graph = sim_graph_get(handle);
    size_t there = graph ? graph->count : 0;
    sim_unlock();
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (!nodes) {
        *count = there;
        return CUDA_SUCCESS;
    }
    /* Nodes cannot be asked about, so their handles are only told apart from nothing. */
    for (size_t i = 0; i < *count; i++)
        nodes[i] = i < there ? (CUgraphNode)(uintptr_t)(i + 1) : NULL;
    if (*count > there)
        *count = there;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphDestroy(CUgraph graph)
{
    SIM_ENTER(cuGraphDestroy);
    sim_lock();
    CUresult result = sim_graph_destroy(graph);
    sim_unlock();
    return result;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph)
{
    sim_lock();
    CUresult result = sim_graph_instantiate(graph, exec);
    sim_unlock();
    return result;
}

SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    SIM_ENTER(cuGraphInstantiate);
    SIM_NEED(exec);
    (void)flags;
    return instantiate(exec, graph);
}

SIM_API CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    SIM_ENTER(cuGraphInstantiateWithParams);
    SIM_NEED(exec);
    SIM_NEED(params);
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return instantiate(exec, graph);
}

SIM_API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SIM_ENTER(cuGraphExecDestroy);
    sim_lock();
    CUresult result = sim_graph_exec_destroy(exec);
    sim_unlock();
    return result;
}

/* Puts the operations of a graph on a stream, or into the capture of that stream, one after the other. */
static CUresult launch(struct sim_graph *exec, struct sim_stream *stream)
{
    const struct sim_op *op;
    CUresult result = CUDA_SUCCESS;
    sim_graph_launched(exec);
    STAILQ_FOREACH(op, &exec->ops, link) {
        if (op->kind == SIM_OP_KERNEL)
            sim_transfer_kernel();
        result = sim_stream_submit(stream, op);
        if (result)
            break;
    }
    return result;
}

SIM_API CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    SIM_ENTER(cuGraphLaunch);
    struct sim_stream *stream = sim_stream_get(stream_handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_lock();
    struct sim_graph *exec = sim_graph_exec_get(handle);
    CUresult result = exec ? launch(exec, stream) : CUDA_ERROR_INVALID_VALUE;
    sim_queue_tick();
    sim_unlock();
    return result;
}

SIM_API CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    SIM_ENTER(cuGraphUpload);
    if (!sim_stream_get(stream))
        return CUDA_ERROR_INVALID_HANDLE;
    return sim_graph_exec_get(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
    SIM_ENTER(cuGraphDebugDotPrint);
    SIM_NEED(path);
    (void)flags;
    return sim_graph_get(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
