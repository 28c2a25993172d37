/* SPDX-License-Identifier: Apache-2.0 */
/* graph: see graph.h. */
#include "sim/core/graph.h"
#include "base/align.h"
#include "sim/core/address.h"
#include "sim/core/memory.h"
#include "sim/core/table.h"
#include <stdlib.h>
#include <string.h>

struct sim_graph_memory {
    int references; /* graphs and executable graphs */
    bool launched;  /* before that the allocations have not happened */
    size_t count, room;
    uint64_t *bases;
};

/* Bytes of graphs' memory on each device, now and at most. */
static uint64_t bytes[SIM_DEVICES_MAX], bytes_high[SIM_DEVICES_MAX];

uint64_t sim_graph_bytes(int device)
{
    return bytes[device];
}

uint64_t sim_graph_bytes_high(int device)
{
    return bytes_high[device];
}

void sim_graph_bytes_restart(int device)
{
    bytes_high[device] = bytes[device];
}

static void release_memory(struct sim_graph_memory *memory)
{
    if (!memory || --memory->references > 0)
        return;
    for (size_t i = 0; i < memory->count; i++) {
        struct sim_range *range = sim_address_at(memory->bases[i]);
        if (range)
            bytes[range->device] -= range->size;
        if (range && (range->graph == SIM_GRAPH_FREED || !memory->launched))
            sim_memory_free(memory->bases[i]);
        else if (range)
            range->graph = SIM_GRAPH_NONE; /* it outlives its graph, until somebody frees it */
    }
    free(memory->bases);
    free(memory);
}

static struct sim_graph *make(struct sim_graph_memory *memory)
{
    struct sim_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return NULL;
    STAILQ_INIT(&graph->ops);
    graph->memory = memory ? memory : calloc(1, sizeof *graph->memory);
    if (!graph->memory) {
        free(graph);
        return NULL;
    }
    graph->memory->references++;
    return graph;
}

struct sim_graph *sim_graph_new(void)
{
    struct sim_graph *graph = make(NULL);
    if (!graph)
        return NULL;
    graph->handle = sim_table_add(SIM_KIND_GRAPH, graph);
    if (!graph->handle) {
        sim_graph_free(graph);
        return NULL;
    }
    return graph;
}

CUresult sim_graph_add(struct sim_graph *graph, const struct sim_op *op)
{
    struct sim_op *kept = malloc(sizeof *kept);
    if (!kept)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *kept = *op;
    kept->is_node = true;
    STAILQ_INSERT_TAIL(&graph->ops, kept, link);
    graph->count++;
    return CUDA_SUCCESS;
}

CUresult sim_graph_own(struct sim_graph *graph, uint64_t base)
{
    struct sim_graph_memory *memory = graph->memory;
    if (memory->count == memory->room) {
        size_t room = memory->room ? 2 * memory->room : 8;
        uint64_t *bases = realloc(memory->bases, room * sizeof *bases);
        if (!bases)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memory->bases = bases;
        memory->room = room;
    }
    memory->bases[memory->count++] = base;
    struct sim_range *range = sim_address_at(base);
    bytes[range->device] += range->size;
    bytes_high[range->device] = sm_max(bytes_high[range->device], bytes[range->device]);
    return CUDA_SUCCESS;
}

void sim_graph_launched(struct sim_graph *exec)
{
    exec->memory->launched = true;
}

void sim_graph_free(struct sim_graph *graph)
{
    for (struct sim_op *op; (op = STAILQ_FIRST(&graph->ops));) {
        STAILQ_REMOVE_HEAD(&graph->ops, link);
        free(op);
    }
    release_memory(graph->memory);
    free(graph);
}

struct sim_graph *sim_graph_get(CUgraph graph)
{
    return sim_table_get(SIM_KIND_GRAPH, (uint64_t)(uintptr_t)graph);
}

struct sim_graph *sim_graph_exec_get(CUgraphExec exec)
{
    return sim_table_get(SIM_KIND_EXEC, (uint64_t)(uintptr_t)exec);
}

CUresult sim_graph_instantiate(CUgraph handle, CUgraphExec *exec)
{
    struct sim_graph *graph = sim_graph_get(handle);
    const struct sim_op *op;
    if (!graph)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_graph *copy = make(graph->memory);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    STAILQ_FOREACH(op, &graph->ops, link) {
        if (!result)
            result = sim_graph_add(copy, op);
    }
    if (!result)
        copy->handle = sim_table_add(SIM_KIND_EXEC, copy);
    if (!copy->handle) {
        sim_graph_free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *exec = (CUgraphExec)(uintptr_t)copy->handle;
    return CUDA_SUCCESS;
}

static CUresult destroy(enum sim_kind kind, uint64_t handle)
{
    struct sim_graph *graph = sim_table_remove(kind, handle);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult sim_graph_destroy(CUgraph graph)
{
    return destroy(SIM_KIND_GRAPH, (uint64_t)(uintptr_t)graph);
}

CUresult sim_graph_exec_destroy(CUgraphExec exec)
{
    return destroy(SIM_KIND_EXEC, (uint64_t)(uintptr_t)exec);
}

static void drop_graph(uint64_t handle, void *object, void *user)
{
    struct sim_graph *graph = object;
    sim_table_remove(*(enum sim_kind *)user, handle);
    graph->memory->count = 0; /* the memory goes with the device */
    sim_graph_free(graph);
}

void sim_graphs_reset(void)
{
    memset(bytes, 0, sizeof bytes);
    memset(bytes_high, 0, sizeof bytes_high);
    enum sim_kind graph = SIM_KIND_GRAPH, exec = SIM_KIND_EXEC;
    sim_table_each(SIM_KIND_GRAPH, drop_graph, &graph);
    sim_table_each(SIM_KIND_EXEC, drop_graph, &exec);
}
