/* SPDX-License-Identifier: Apache-2.0 */
/* convert: from any form of trace into another, event by event. The form that is written follows from the
 * name's ending. */
#include "tools/forms.h"
#include "tools/tools.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), n = strlen(ending);
    return length >= n && !strcmp(path + length - n, ending);
}

static struct writer *open_writer(const char *path, const char *from)
{
    if (ends_with(path, ".txt") || !strcmp(path, "-"))
        return text_writer(path);
    if (ends_with(path, ".seamtrace"))
        return recording_writer(path, from);
    if (ends_with(path, ".pickle") || ends_with(path, ".pkl"))
        return snapshot_writer(path);
    if (ends_with(path, ".csv"))
        return rmm_writer(path);
    fprintf(stderr,
            "seamalloc: %s: the ending says the form: .seamtrace (recording), .txt (text), .pickle (snapshot "
            "of PyTorch), .csv (log of RMM), or - for text on the standard output\n",
            path);
    return NULL;
}

/* A file that is not whole does not stay. */
static int give_up(struct writer *writer, const char *to)
{
    writer->finish(writer);
    if (strcmp(to, "-") != 0)
        unlink(to);
    return 1;
}

int convert(const char *from, const char *to)
{
    struct trace *trace = trace_open(from);
    struct writer *writer = trace ? open_writer(to, from) : NULL;
    struct trace_event event;
    uint64_t left_out;
    int code, result = 1;
    if (!writer)
        goto out;
    while ((code = trace_next(trace, &event)) > 0)
        if (!writer->put(writer, &event)) {
            fprintf(stderr, "seamalloc: %s:%lu: this event stopped it\n", from, event.line);
            code = -1;
            break;
        }
    if (code < 0) {
        give_up(writer, to);
        goto out;
    }
    left_out = writer->left_out;
    result = writer->finish(writer) ? 0 : 1;
    if (left_out)
        fprintf(stderr, "seamalloc: %s: %lu events were left out: the form has no word for them\n", to,
                left_out);
out:
    if (trace)
        trace_close(trace);
    return result;
}
