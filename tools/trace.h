/* SPDX-License-Identifier: Apache-2.0 */
/* trace: reads allocation traces of any form: recordings of seamalloc (docs/trace.md), text, snapshots of
 * PyTorch (pickle or JSON), logs of RMM (CSV). The form is found by looking at the file; all but recordings
 * may be compressed (xz, zstd, gzip).
 *
 * The text form has one event a line:
 *   a ID SIZE STREAM [DEVICE THREAD POOL]   a block is asked for; ID names it until its f
 *   f ID STREAM [THREAD]                    it is freed
 *   r ID STREAM [THREAD]                    work on another stream uses it
 *   x SIZE STREAM [DEVICE THREAD POOL]      a request that failed when this was recorded
 *   t [DEVICE]                              free memory is given back; without DEVICE on all
 *   b POOL [DEVICE] / e POOL [DEVICE]       a private pool is filled from here / to here: requests on the
 *                                           device that name no pool belong to the one begun last
 *   d POOL [DEVICE]                         a use of the pool is dropped
 *   + NAME / - / p NAME                     a phase is entered / left / changed
 * Empty lines and lines that begin with # are passed over; anything else is an error that names the line. */
#ifndef SEAM_TOOLS_TRACE_H
#define SEAM_TOOLS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum trace_form { TRACE_TEXT, TRACE_RECORDING, TRACE_SNAPSHOT, TRACE_JSON, TRACE_RMM };

#define TRACE_DEVICES_ALL (-1)
#define TRACE_DEVICES_MAX 64

struct trace_event {
    char action; /* one of a f r x t b e d + - p */
    uint64_t id, size, stream, pool;
    int device; /* of t: may be TRACE_DEVICES_ALL */
    uint32_t thread;
    const char *name; /* valid until the next event */
    uint64_t line;    /* or the event's number, where there are no lines */
};

struct trace;

/* Returns: NULL with a message on stderr when the file cannot be opened or is of no known form. */
struct trace *trace_open(const char *path);
/* Returns: 1 for an event, 0 at the end, -1 with a message on stderr for a bad line or a file that is
 * damaged. */
int trace_next(struct trace *trace, struct trace_event *event);
void trace_close(struct trace *trace);

/* After the end: did the recording break off, or lose events? It was said on stderr then. */
bool trace_is_cut(const struct trace *trace);
uint64_t trace_lost(const struct trace *trace);

#endif
