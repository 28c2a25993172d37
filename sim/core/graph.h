/* SPDX-License-Identifier: Apache-2.0 */
/* graph: recorded work. A graph is a list of operations in an order that its capture allowed; an executable
 * graph is a copy of it. Memory that was allocated while capturing belongs to both: what has been freed, in
 * the graph or outside, goes with the last of them; what has not stays, as the guide to graph memory nodes
 * says. Protected by: the core lock. */
#ifndef SEAMALLOC_SIM_CORE_GRAPH_H
#define SEAMALLOC_SIM_CORE_GRAPH_H

#include "sim/core/queue.h"

struct sim_graph_memory; /* what the allocations of a capture have in common */

struct sim_graph {
    uint64_t handle;
    struct sim_op_list ops;
    size_t count;
    struct sim_graph_memory *memory;
};

/* Returns: NULL when there is no host memory. */
struct sim_graph *sim_graph_new(void);
CUresult sim_graph_add(struct sim_graph *graph, const struct sim_op *op);
/* Notes that a plain allocation belongs to the graph. */
CUresult sim_graph_own(struct sim_graph *graph, uint64_t base);
/* From its first launch on, what a graph allocated is there, and outlives it unless freed. */
void sim_graph_launched(struct sim_graph *exec);
void sim_graph_free(struct sim_graph *graph);

/* Bytes of memory that graphs own on a device, now and at most since the start or the last restart. */
uint64_t sim_graph_bytes(int device);
uint64_t sim_graph_bytes_high(int device);
void sim_graph_bytes_restart(int device);

CUresult sim_graph_instantiate(CUgraph graph, CUgraphExec *exec);
CUresult sim_graph_destroy(CUgraph graph);
CUresult sim_graph_exec_destroy(CUgraphExec exec);
/* The graph of a handle, or NULL. */
struct sim_graph *sim_graph_get(CUgraph graph);
struct sim_graph *sim_graph_exec_get(CUgraphExec exec);

void sim_graphs_reset(void);

#endif
