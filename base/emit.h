/* SPDX-License-Identifier: Apache-2.0 */
/* emit: one description of a tree of figures, two writers: JSON, or an indented table for people.
 *
 * The caller walks its data once and names each figure with its unit; the writer decides how it looks (JSON:
 * raw numbers; table: MiB for bytes, milliseconds for nanoseconds). Output goes into a caller's buffer as
 * snprintf does: what does not fit is counted and cut, and no memory is obtained, so it works when there is
 * none.
 *
 * Use: sm_emit_begin, objects/arrays/figures, sm_emit_end -> length needed. JSON strings are escaped; the
 * commas are the writer's business. Thread: an emitter belongs to one thread. */
#ifndef SEAM_BASE_EMIT_H
#define SEAM_BASE_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sm_emit_form { SM_EMIT_JSON, SM_EMIT_TABLE };
enum sm_unit { SM_UNIT_BYTES, SM_UNIT_COUNT, SM_UNIT_NS };

struct sm_emit {
    enum sm_emit_form form;
    char *buffer; /* may be NULL when capacity is 0 */
    size_t capacity;
    size_t length; /* needed so far */
    unsigned depth;
    bool first; /* no member yet at this depth */
};

void sm_emit_begin(struct sm_emit *emit, enum sm_emit_form form, char *buffer, size_t capacity);
/* Ends the text with 0 where capacity > 0. Returns: the length needed without it. */
size_t sm_emit_end(struct sm_emit *emit);

/* name NULL inside an array and for the root. In a table an object or array is a heading. */
void sm_emit_object_open(struct sm_emit *emit, const char *name);
void sm_emit_object_close(struct sm_emit *emit);
void sm_emit_array_open(struct sm_emit *emit, const char *name);
void sm_emit_array_close(struct sm_emit *emit);

void sm_emit_int(struct sm_emit *emit, const char *name, int64_t value, enum sm_unit unit);
void sm_emit_real(struct sm_emit *emit, const char *name, double value);
void sm_emit_bool(struct sm_emit *emit, const char *name, bool value);
void sm_emit_string(struct sm_emit *emit, const char *name, const char *value);
void sm_emit_null(struct sm_emit *emit, const char *name);
/* Text that stands only in a table; no effect in JSON. */
void sm_emit_line(struct sm_emit *emit, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
