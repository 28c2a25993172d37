/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of recordings share: a file of their own, and a recording read whole. */
#ifndef SEAM_TESTS_UNIT_TRACE_TRACE_TESTING_H
#define SEAM_TESTS_UNIT_TRACE_TRACE_TESTING_H

#include "stats/trace/reader.h"
#include "tests/support/cmocka_all.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A path of this process, valid until the next call. */
static inline const char *file_path(void)
{
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/seam-trace-test-%d", (int)getpid());
    return path;
}

struct recording {
    struct sm_trace_event *events;
    char (*names)[SM_TRACE_NAME_MAX + 1];
    size_t count;
    int end; /* what the reader said last */
    uint64_t cut, lost;
    struct sm_error error;
};

static inline struct recording recording_load(const char *path)
{
    struct recording r = {0};
    struct sm_trace_reader *reader = NULL;
    struct sm_trace_event event;
    size_t capacity = 0;
    r.end = sm_trace_reader_open(path, &reader, &r.error) ? -2 : 0;
    while (reader && (r.end = sm_trace_reader_next(reader, &event, &r.error)) > 0) {
        if (r.count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            r.events = realloc(r.events, capacity * sizeof(*r.events));
            r.names = realloc(r.names, capacity * sizeof(*r.names));
            assert_non_null(r.events);
            assert_non_null(r.names);
        }
        strcpy(r.names[r.count], event.name ? event.name : "");
        r.events[r.count++] = event;
    }
    if (reader) {
        r.cut = sm_trace_reader_cut(reader);
        r.lost = sm_trace_reader_lost(reader);
        sm_trace_reader_close(reader);
    }
    return r;
}

static inline void recording_free(struct recording *r)
{
    free(r->events);
    free(r->names);
}

#endif
