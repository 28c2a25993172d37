/* SPDX-License-Identifier: Apache-2.0 */
/* trace: a run in virtual time as a file in the trace event format, which chrome://tracing and Perfetto show:
 * one row for the host's driver calls, one for each stream. Events are written as they become known.
 * Protected by: a lock of its own, inside of the core lock. */
#ifndef SEAMALLOC_SIM_CORE_TRACE_H
#define SEAMALLOC_SIM_CORE_TRACE_H

#include "sim/core/queue.h"
#include "sim/core/timing.h"
#include <stdatomic.h>

extern _Atomic bool sim_tracing;

static inline bool sim_trace_on(void)
{
    return atomic_load_explicit(&sim_tracing, memory_order_relaxed);
}

/* Begins a file. Returns: false when it cannot be made. */
bool sim_trace_begin(const char *path);
/* Ends it. Returns: false when not all of it could be written. */
bool sim_trace_end(void);
/* In a forked child: the file is the parent's. */
void sim_trace_forked(void);

/* Requires of these: sim_trace_on. Something the host did (kind "call" or "wait"); a row's name; an
 * operation of a stream; a stream that stood still for another one. */
void sim_trace_host(const char *kind, const char *name, uint64_t begin, uint64_t end);
void sim_trace_stream(const struct sim_track *track);
void sim_trace_operation(const struct sim_track *track, const char *name, uint64_t begin, uint64_t end);
void sim_trace_wait(const struct sim_track *track, uint64_t begin, uint64_t end);

/* A copy of a name that is never freed, the same one for the same name; NULL without host memory. */
const char *sim_trace_name(const char *name);

#endif
