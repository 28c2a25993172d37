/* SPDX-License-Identifier: Apache-2.0 */
/* trace: reads the text form of an allocation trace, one event a line, plain or compressed (xz, zstd, gzip).
 *
 *   a ID SIZE STREAM [DEVICE THREAD POOL]   a block is asked for; ID names it until its f
 *   f ID STREAM                             it is freed
 *   r ID STREAM                             work on another stream uses it
 *   x SIZE STREAM [DEVICE THREAD POOL]      a request that failed when this was recorded
 *   t                                       free memory is given back
 *   b POOL / e POOL                         a private pool is filled from here / to here
 *   + NAME / - / p NAME                     a phase is entered / left / changed
 * Empty lines and lines that begin with # are passed over; anything else is an error that names the line. */
#ifndef SEAM_TOOLS_TRACE_H
#define SEAM_TOOLS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_event {
    char action; /* one of a f r x t b e + - p */
    uint64_t id, size, stream, pool;
    int device, thread;
    const char *name; /* valid until the next event */
    uint64_t line;
};

struct trace;

/* Returns: NULL with a message on stderr when the file cannot be opened. */
struct trace *trace_open(const char *path);
/* Returns: 1 for an event, 0 at the end, -1 with a message on stderr for a bad line or a file that breaks
 * off. */
int trace_next(struct trace *trace, struct trace_event *event);
void trace_close(struct trace *trace);

#endif
