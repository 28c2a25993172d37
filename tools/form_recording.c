/* SPDX-License-Identifier: Apache-2.0 */
/* form_recording: recordings of the allocator, read and written with its own reader and writer. */
#include "stats/trace/reader.h"
#include "stats/trace/writer.h"
#include "tools/forms.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By enum sm_trace_action; 0 for what is no event. */
static const char letters[] = "afrxtbed+-p\0\0";
_Static_assert(sizeof(letters) == SM_TRACE_ACTION_COUNT + 1, "each action has its letter");

struct recording_in {
    struct reader reader;
    struct sm_trace_reader *source;
    const char *path;
    uint64_t events;
};

static int recording_end(struct recording_in *in)
{
    uint64_t cut = sm_trace_reader_cut(in->source), lost = sm_trace_reader_lost(in->source);
    if (cut)
        fprintf(stderr, "seamalloc: %s: the recording breaks off at byte %lu, after %lu events\n", in->path,
                cut, in->events);
    if (lost)
        fprintf(stderr, "seamalloc: %s: the recording has lost %lu events\n", in->path, lost);
    return 0;
}

static int recording_next(struct reader *reader, struct trace_event *event)
{
    struct recording_in *in = (struct recording_in *)reader;
    struct sm_trace_event read;
    struct sm_error error;
    int code;
    do
        code = sm_trace_reader_next(in->source, &read, &error);
    while (code > 0 && !letters[read.action]);
    if (code < 0)
        fprintf(stderr, "seamalloc: %s\n", error.text);
    if (code <= 0)
        return code ? code : recording_end(in);
    if (read.device != SM_TRACE_DEVICES_ALL && read.device >= TRACE_DEVICES_MAX) {
        fprintf(stderr, "seamalloc: %s: event %lu: there is no device %u\n", in->path, in->events + 1,
                read.device);
        return -1;
    }
    *event = (struct trace_event){
        .action = letters[read.action],
        .id = read.id,
        .size = read.size,
        .stream = read.stream,
        .pool = read.pool,
        .device = (int)read.device,
        .thread = read.thread,
        .name = read.name,
        .line = ++in->events,
    };
    return 1;
}

static void recording_close(struct reader *reader)
{
    sm_trace_reader_close(((struct recording_in *)reader)->source);
    free(reader);
}

struct reader *recording_reader(const char *path)
{
    struct recording_in *in = calloc(1, sizeof(*in));
    struct sm_error error;
    if (in && !sm_trace_reader_open(path, &in->source, &error)) {
        in->reader = (struct reader){recording_next, recording_close};
        in->path = path;
        return &in->reader;
    }
    fprintf(stderr, "seamalloc: %s\n", in ? error.text : "out of host memory");
    free(in);
    return NULL;
}

bool recording_is_cut(const struct reader *reader)
{
    return sm_trace_reader_cut(((const struct recording_in *)reader)->source) != 0;
}

uint64_t recording_lost(const struct reader *reader)
{
    return sm_trace_reader_lost(((const struct recording_in *)reader)->source);
}

/* ---- writing ---- */

struct recording_out {
    struct writer writer;
    struct sm_trace *trace;
};

static bool recording_put(struct writer *writer, const struct trace_event *event)
{
    struct sm_trace *trace = ((struct recording_out *)writer)->trace;
    const char *letter = memchr(letters, event->action, SM_TRACE_DEVICE);
    struct sm_trace_event put = {
        .action = (enum sm_trace_action)(letter - letters),
        .id = event->id,
        .size = event->size,
        .stream = event->stream,
        .pool = event->pool,
        .device = (uint32_t)event->device,
        .thread = event->thread,
        .name = event->name,
    };
    sm_trace_put_as(trace, &put);
    return true;
}

static bool recording_finish(struct writer *writer)
{
    struct recording_out *out = (struct recording_out *)writer;
    struct sm_error error;
    bool good = sm_trace_end(out->trace, &error) == SEAM_OK;
    if (!good)
        fprintf(stderr, "seamalloc: %s\n", error.text);
    sm_trace_destroy(out->trace);
    free(out);
    return good;
}

struct writer *recording_writer(const char *path, const char *from)
{
    struct recording_out *out = calloc(1, sizeof(*out));
    struct sm_error error = {.text = "out of host memory"};
    json_t *head = json_pack("{s:s, s:i, s:s}", "format", "seamalloc.trace", "version", SM_TRACE_VERSION,
                             "converted_from", from);
    char *text = head ? json_dumps(head, 0) : NULL;
    if (out && text && (out->trace = sm_trace_create()) &&
        sm_trace_begin(out->trace, path, text, &error) == SEAM_OK) {
        out->writer = (struct writer){recording_put, recording_finish, 0};
    } else {
        fprintf(stderr, "seamalloc: %s\n", error.text);
        if (out)
            sm_trace_destroy(out->trace);
        free(out);
        out = NULL;
    }
    free(text);
    json_decref(head);
    return out ? &out->writer : NULL;
}
