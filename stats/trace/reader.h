/* SPDX-License-Identifier: Apache-2.0 */
/* reader: reads a recording (format.h) back, block by block. Thread: a reader belongs to one thread. */
#ifndef SEAM_STATS_TRACE_READER_H
#define SEAM_STATS_TRACE_READER_H

#include "base/error.h"
#include "stats/trace/format.h"

struct sm_trace_reader;

/* Returns: SEAM_OK, SEAM_E_IO (no recording, or damaged; the text says where), SEAM_E_UNSUPPORTED (another
 * version), SEAM_E_HOST_OOM. */
seam_result sm_trace_reader_open(const char *path, struct sm_trace_reader **reader, struct sm_error *error);
void sm_trace_reader_close(struct sm_trace_reader *reader);

/* The JSON text of the header. */
const char *sm_trace_reader_text(const struct sm_trace_reader *reader);

/* The next event, DEVICE and LOST among them; its name is valid until the next call.
 * Returns: 1; 0 at the end of what is whole; -1 with *error naming the byte for a block that is damaged. */
int sm_trace_reader_next(struct sm_trace_reader *reader, struct sm_trace_event *event,
                         struct sm_error *error);

/* After the end: the byte at which the file breaks off, or 0 when it has its end mark. */
uint64_t sm_trace_reader_cut(const struct sm_trace_reader *reader);
/* Events that the writer could not keep, as far as read. */
uint64_t sm_trace_reader_lost(const struct sm_trace_reader *reader);

#endif
