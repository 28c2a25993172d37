/* SPDX-License-Identifier: Apache-2.0 */
/* trace: see trace.h. Looks at the first bytes of a file and hands it to the reader of that form. */
#include "tools/trace.h"
#include "tools/forms.h"
#include "tools/lines.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trace {
    struct reader *reader;
    enum trace_form form;
};

static bool begins(const char *bytes, size_t size, const char *with)
{
    return size >= strlen(with) && !memcmp(bytes, with, strlen(with));
}

/* Returns: false with a message. */
static bool find_form(const char *path, enum trace_form *form)
{
    char head[9] = "", *line;
    FILE *file = fopen(path, "rbe");
    size_t size = file ? fread(head, 1, 8, file) : 0;
    struct lines *lines;
    if (!file) {
        fprintf(stderr, "seamalloc: %s: %s\n", path, strerror(errno));
        return false;
    }
    fclose(file);
    if (begins(head, size, "SEAMTRC\n")) {
        *form = TRACE_RECORDING;
        return true;
    }
    /* The others may be compressed. A pickle's first line may be longer than any line may be. */
    lines = lines_open(path);
    if (!lines)
        return false;
    *form = TRACE_TEXT;
    lines_peek(lines, head, 8);
    line = head;
    if ((unsigned char)line[0] == 0x80)
        *form = TRACE_SNAPSHOT;
    else if (line[0] == '{')
        *form = TRACE_JSON;
    else if (begins(line, 8, "Thread,"))
        *form = TRACE_RMM;
    lines_close(lines);
    return true;
}

void scopes_follow(struct scopes *scopes, const struct trace_event *event)
{
    const int most = sizeof(scopes->open) / sizeof(scopes->open[0]);
    if (event->action == 'b' && scopes->count < most) {
        scopes->open[scopes->count].pool = event->pool;
        scopes->open[scopes->count++].device = event->device;
    }
    for (int i = scopes->count - 1; i >= 0 && event->action == 'e'; i--) {
        if (scopes->open[i].pool != event->pool || scopes->open[i].device != event->device)
            continue;
        scopes->count--;
        memmove(scopes->open + i, scopes->open + i + 1,
                (size_t)(scopes->count - i) * sizeof(scopes->open[0]));
        return;
    }
}

uint64_t scopes_pool(const struct scopes *scopes, int device)
{
    for (int i = scopes->count - 1; i >= 0; i--)
        if (scopes->open[i].device == device)
            return scopes->open[i].pool;
    return 0;
}

struct trace *trace_open(const char *path)
{
    struct trace *trace = calloc(1, sizeof(*trace));
    if (!trace || !find_form(path, &trace->form)) {
        free(trace);
        return NULL;
    }
    switch (trace->form) {
    case TRACE_TEXT:
        trace->reader = text_reader(path);
        break;
    case TRACE_RMM:
        trace->reader = rmm_reader(path);
        break;
    case TRACE_RECORDING:
        trace->reader = recording_reader(path);
        break;
    default:
        trace->reader = snapshot_reader(path, trace->form == TRACE_JSON);
    }
    if (trace->reader)
        return trace;
    free(trace);
    return NULL;
}

int trace_next(struct trace *trace, struct trace_event *event)
{
    return trace->reader->next(trace->reader, event);
}

void trace_close(struct trace *trace)
{
    trace->reader->close(trace->reader);
    free(trace);
}

bool trace_is_cut(const struct trace *trace)
{
    return trace->form == TRACE_RECORDING && recording_is_cut(trace->reader);
}

uint64_t trace_lost(const struct trace *trace)
{
    return trace->form == TRACE_RECORDING ? recording_lost(trace->reader) : 0;
}
