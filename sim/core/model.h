/* SPDX-License-Identifier: Apache-2.0 */
/* model: how long work takes on a device, from its shape. Used by the timed mode only.
 *
 * The idea is a roofline: a piece of work takes as long as its arithmetic or as its memory traffic, whichever
 * is longer, plus a fixed part that no kernel is shorter than. The rates stand in the cost presets as lines
 * "work.NAME NUMBER"; what a preset leaves out is free. They are round figures of a device's data sheet,
 * lowered to what libraries reach, and nobody has compared them with a device.
 * Protected by: nothing; the rates are read-only after start. */
#ifndef SEAMALLOC_SIM_CORE_MODEL_H
#define SEAMALLOC_SIM_CORE_MODEL_H

#include "sim/core/transfer.h"
#include "sim/sim.h"

/* Each is a line "work.NAME" of a preset. Rates of 0 mean that it takes no time. */
#define SIM_MODEL_LIST(X)                                                                                    \
    X(kernel_ns)             /* the fixed part of every kernel */                                            \
    X(matrix16_flops_per_ns) /* matrix products of elements of up to 2 bytes */                              \
    X(matrix32_flops_per_ns) /* of 4 bytes */                                                                \
    X(matrix64_flops_per_ns) /* of more */                                                                   \
    X(memory_bytes_per_ns)   /* the device's memory */                                                       \
    X(thread_bytes)          /* what one thread of an unknown kernel moves */                                \
    X(copy_ns)               /* the fixed part of every copy and fill */                                     \
    X(pinned_bytes_per_ns)   /* copies between the device and pinned host memory */                          \
    X(pageable_bytes_per_ns) /* and other host memory */                                                     \
    X(link_bytes_per_ns)     /* between devices, each way */                                                 \
    X(collective_ns)         /* the fixed part of a collective */                                            \
    X(hop_ns)                /* for each of its steps from rank to rank */                                   \
    X(host_function_ns)      /* a host function on a stream */                                               \
    X(queue_operations)      /* how many unfinished operations a stream takes before the host waits */

struct sim_model {
#define SIM_MODEL_FIELD(name) uint64_t name;
    SIM_MODEL_LIST(SIM_MODEL_FIELD)
#undef SIM_MODEL_FIELD
};

/* The rates in force. */
extern struct sim_model sim_model;

/* The field of *model that "work.NAME" names, or NULL. */
uint64_t *sim_model_field(struct sim_model *model, const char *name);

/* A kernel of so many threads. bytes: what it is known to move, 0: not known. */
uint64_t sim_model_kernel_ns(uint64_t threads, uint64_t bytes);
uint64_t sim_model_work_ns(const struct sim_work *work);
/* Requires: the core lock is held; *transfer is classified. */
uint64_t sim_model_transfer_ns(const struct sim_transfer *transfer, int device);

/* What a collective sends over its links, into work->link_bytes and work->link_steps; and its name. */
void sim_model_collective(struct sim_work *work, enum sim_collective what, uint64_t bytes, int ranks);

/* Copy, fill, and which way, for people. */
const char *sim_model_transfer_name(const struct sim_transfer *transfer);

#endif
