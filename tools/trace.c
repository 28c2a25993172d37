/* SPDX-License-Identifier: Apache-2.0 */
/* trace: see trace.h. libarchive takes care of compression; lines are cut out of its blocks. */
#include "tools/trace.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 512

struct trace {
    struct archive *archive;
    char *path;
    const char *block;
    size_t block_size, at;
    uint64_t line;
    char text[LINE_MAX_BYTES];
};

struct trace *trace_open(const char *path)
{
    struct trace *trace = calloc(1, sizeof(*trace));
    struct archive_entry *entry;
    if (!trace)
        return NULL;
    trace->path = strdup(path);
    trace->archive = archive_read_new();
    archive_read_support_filter_all(trace->archive);
    archive_read_support_format_raw(trace->archive);
    archive_read_support_format_empty(trace->archive);
    if (archive_read_open_filename(trace->archive, path, 1 << 16) != ARCHIVE_OK ||
        archive_read_next_header(trace->archive, &entry) < ARCHIVE_WARN) {
        /* An empty file has no entry: it is a trace without events. */
        if (archive_errno(trace->archive)) {
            fprintf(stderr, "seamalloc: %s: %s\n", path, archive_error_string(trace->archive));
            trace_close(trace);
            return NULL;
        }
    }
    return trace;
}

void trace_close(struct trace *trace)
{
    archive_read_free(trace->archive);
    free(trace->path);
    free(trace);
}

static int complain(const struct trace *trace, const char *what)
{
    fprintf(stderr, "seamalloc: %s:%lu: %s: \"%s\"\n", trace->path, trace->line, what, trace->text);
    return -1;
}

/* The next line without its end. Returns: 1, 0 at the end, -1. */
static int read_line(struct trace *trace)
{
    size_t length = 0;
    for (;;) {
        if (trace->at == trace->block_size) {
            int64_t offset;
            int code = archive_read_data_block(trace->archive, (const void **)&trace->block,
                                               &trace->block_size, &offset);
            trace->at = 0;
            if (code == ARCHIVE_EOF) {
                trace->text[length] = 0;
                trace->line += length > 0;
                trace->block_size = 0;
                return length > 0;
            }
            if (code < ARCHIVE_WARN) {
                fprintf(stderr, "seamalloc: %s: breaks off after line %lu: %s\n", trace->path, trace->line,
                        archive_error_string(trace->archive));
                return -1;
            }
            continue;
        }
        char c = trace->block[trace->at++];
        if (c == '\n')
            break;
        if (length + 1 == sizeof(trace->text)) {
            trace->text[60] = 0;
            trace->line++;
            return complain(trace, "the line is longer than any event");
        }
        trace->text[length++] = c;
    }
    trace->text[length] = 0;
    trace->line++;
    return 1;
}

/* Numbers at *at, separated by one space each. Returns: their count, or -1 for what is no number. */
static int parse_numbers(const char *at, uint64_t *numbers, int most)
{
    int count = 0;
    while (*at && count < most) {
        char *end;
        if (*at != ' ' || at[1] < '0' || at[1] > '9')
            return -1;
        errno = 0;
        numbers[count++] = strtoull(at + 1, &end, 10);
        if (errno)
            return -1;
        at = end;
    }
    return *at ? -1 : count;
}

static int fill(struct trace *trace, struct trace_event *event, const uint64_t *n, int count)
{
    static const struct {
        char action;
        int least, most;
    } forms[] = {{'a', 3, 6}, {'f', 2, 2}, {'r', 2, 2}, {'x', 2, 5},
                 {'t', 0, 0}, {'b', 1, 1}, {'e', 1, 1}, {'-', 0, 0}};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (forms[i].action != event->action)
            continue;
        if (count < forms[i].least || count > forms[i].most)
            return complain(trace, "this event has another number of fields");
        int id = event->action == 'a' || event->action == 'f' || event->action == 'r';
        int size = event->action == 'a' || event->action == 'x';
        bool scope = event->action == 'b' || event->action == 'e';
        event->id = id ? n[0] : 0;
        event->size = size ? n[id] : 0;
        event->stream = !scope && count > id + size ? n[id + size] : 0;
        event->device = size && count > id + 2 ? (int)n[id + 2] : 0;
        event->thread = size && count > id + 3 ? (int)n[id + 3] : 0;
        event->pool = scope ? n[0] : size && count > id + 4 ? n[id + 4] : 0;
        return 1;
    }
    return complain(trace, "no event begins so; one of a f r x t b e + - p was expected");
}

int trace_next(struct trace *trace, struct trace_event *event)
{
    uint64_t numbers[6] = {0};
    int code, count;
    do
        code = read_line(trace);
    while (code > 0 && (!trace->text[0] || trace->text[0] == '#'));
    if (code <= 0)
        return code;
    *event = (struct trace_event){.action = trace->text[0], .line = trace->line};
    if (event->action == '+' || event->action == 'p') {
        if (trace->text[1] != ' ' || !trace->text[2])
            return complain(trace, "a phase needs a name");
        event->name = trace->text + 2;
        return 1;
    }
    count = parse_numbers(trace->text + 1, numbers, 6);
    if (count < 0)
        return complain(trace, "numbers separated by one space were expected");
    return fill(trace, event, numbers, count);
}
