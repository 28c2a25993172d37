/* SPDX-License-Identifier: Apache-2.0 */
/* form_rmm: the CSV log of RMM's logging resource, read and written: Thread,Time,Action,Pointer,Size,Stream.
 *
 * Columns are found by their names, others are passed over. Blocks are known by address and lifetime: the log
 * is written after the fact by many threads, so that an address may be handed out again some lines before its
 * free. A log has one device. */
#include "tools/forms.h"
#include "tools/lines.h"
#include "tools/map.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 32
enum column { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, COLUMN_COUNT };
static const char *const column_names[] = {"Thread", "Time", "Action", "Pointer", "Size", "Stream"};

struct rmm_in {
    struct reader reader;
    struct lines *lines;
    int place[COLUMN_COUNT];
    struct map live; /* address to id */
    struct map streams, threads;
    uint64_t ids;
};

/* Cuts the line at its commas. Returns: the number of fields. */
static int cut(char *text, char **fields)
{
    int count = 0;
    text[strcspn(text, "\r")] = 0;
    for (char *at = text; at && count < COLUMNS_MAX; count++)
        fields[count] = strsep(&at, ",");
    return count;
}

static bool read_header(struct rmm_in *in)
{
    char *fields[COLUMNS_MAX];
    int count;
    if (lines_next(in->lines) <= 0)
        return false;
    count = cut(lines_text(in->lines), fields);
    for (int c = 0; c < COLUMN_COUNT; c++) {
        in->place[c] = -1;
        for (int i = 0; i < count; i++)
            if (!strcmp(fields[i], column_names[c]))
                in->place[c] = i;
        if (in->place[c] < 0 && c != TIME) {
            lines_complain(in->lines, "the header lacks Thread, Action, Pointer, Size or Stream");
            return false;
        }
    }
    return true;
}

static bool parse(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strcmp(text, "(nil)") != 0 ? strtoull(text, &end, 0) : 0;
    return !strcmp(text, "(nil)") || (*text >= '0' && *text <= '9' && !*end && !errno);
}

static int fill(struct rmm_in *in, struct trace_event *event, const char *action, uint64_t pointer)
{
    struct map_entry *entry;
    if (!strcmp(action, "allocate")) {
        event->action = 'a';
        event->id = ++in->ids;
        map_add(&in->live, pointer, event->id);
        return 1;
    }
    if (!strcmp(action, "allocate failure")) {
        event->action = 'x';
        return 1;
    }
    if (strcmp(action, "free") != 0)
        return lines_complain(in->lines, "the action is none of allocate, free, allocate failure");
    entry = map_find(&in->live, pointer);
    if (!entry)
        return lines_complain(in->lines, "this address was not allocated before, or was freed already");
    event->action = 'f';
    event->id = entry->value;
    event->size = 0;
    map_remove(&in->live, entry);
    return 1;
}

static int rmm_next(struct reader *reader, struct trace_event *event)
{
    struct rmm_in *in = (struct rmm_in *)reader;
    char *fields[COLUMNS_MAX];
    uint64_t values[COLUMN_COUNT] = {0};
    int code, count;
    do
        code = lines_next(in->lines);
    while (code > 0 && !lines_text(in->lines)[0]);
    if (code <= 0)
        return code;
    count = cut(lines_text(in->lines), fields);
    for (int c = 0; c < COLUMN_COUNT; c++) {
        if (c == TIME)
            continue;
        if (in->place[c] >= count)
            return lines_complain(in->lines, "the line has fewer fields than the header");
        if (c != ACTION && !parse(fields[in->place[c]], &values[c]))
            return lines_complain(in->lines, "thread, pointer, size and stream must be numbers");
    }
    /* 1 is another name of the default stream. */
    *event = (struct trace_event){
        .size = values[SIZE],
        .stream = values[STREAM] == 1 ? 0 : map_number(&in->streams, values[STREAM]),
        .thread = (uint32_t)map_number(&in->threads, values[THREAD] + 1) - 1,
        .line = lines_number(in->lines),
    };
    return fill(in, event, fields[in->place[ACTION]], values[POINTER]);
}

static void rmm_close(struct reader *reader)
{
    struct rmm_in *in = (struct rmm_in *)reader;
    if (in->lines)
        lines_close(in->lines);
    map_clear(&in->live);
    map_clear(&in->streams);
    map_clear(&in->threads);
    free(in);
}

struct reader *rmm_reader(const char *path)
{
    struct rmm_in *in = calloc(1, sizeof(*in));
    if (in && (in->lines = lines_open(path)) && read_header(in)) {
        in->reader = (struct reader){rmm_next, rmm_close};
        return &in->reader;
    }
    if (in)
        rmm_close(&in->reader);
    return NULL;
}

/* ---- writing ---- */

struct rmm_out {
    struct writer writer;
    FILE *file;
    const char *path;
    struct map blocks; /* id to address and size */
    uint64_t address, events;
};

/* Made-up: each block has addresses of its own. The time is the event's number in microseconds. */
static void put_line(struct rmm_out *out, const struct trace_event *event, const char *action,
                     const char *pointer, uint64_t size)
{
    uint64_t us = out->events++;
    fprintf(out->file, "%u,%02lu:%02lu:%02lu:%06lu,%s,%s,%lu,%#lx\n", event->thread, us / 3600000000u % 24,
            us / 60000000 % 60, us / 1000000 % 60, us % 1000000, action, pointer, size,
            event->stream ? event->stream + 2 : 0);
}

static bool rmm_put(struct writer *writer, const struct trace_event *event)
{
    struct rmm_out *out = (struct rmm_out *)writer;
    struct map_entry *entry;
    char pointer[32];
    if (strchr("afx", event->action) && event->device) {
        fprintf(stderr, "seamalloc: event %lu is of device %d, and a log of RMM has one device\n",
                event->line, event->device);
        return false;
    }
    if (event->action == 'a') {
        entry = map_add(&out->blocks, event->id, out->address);
        entry->size = event->size;
        snprintf(pointer, sizeof(pointer), "%#lx", out->address);
        out->address += (event->size + 511) / 512 * 512;
        put_line(out, event, "allocate", pointer, event->size);
    } else if (event->action == 'x') {
        put_line(out, event, "allocate failure", "(nil)", event->size);
    } else if (event->action == 'f') {
        entry = map_find(&out->blocks, event->id);
        if (!entry) {
            fprintf(stderr, "seamalloc: event %lu frees %lu, which was not allocated\n", event->line,
                    event->id);
            return false;
        }
        snprintf(pointer, sizeof(pointer), "%#lx", entry->value);
        put_line(out, event, "free", pointer, entry->size);
        map_remove(&out->blocks, entry);
    } else {
        writer->left_out++;
    }
    return true;
}

static bool rmm_finish(struct writer *writer)
{
    struct rmm_out *out = (struct rmm_out *)writer;
    bool good = !ferror(out->file);
    good = fclose(out->file) == 0 && good;
    if (!good)
        fprintf(stderr, "seamalloc: %s could not be written: %s\n", out->path, strerror(errno));
    map_clear(&out->blocks);
    free(out);
    return good;
}

struct writer *rmm_writer(const char *path)
{
    struct rmm_out *out = calloc(1, sizeof(*out));
    FILE *file = fopen(path, "we");
    if (!file || !out) {
        fprintf(stderr, "seamalloc: %s: %s\n", path, strerror(errno));
        free(out);
        return NULL;
    }
    *out = (struct rmm_out){{rmm_put, rmm_finish, 0}, file, path, .address = 0x7f0000000000};
    fputs("Thread,Time,Action,Pointer,Size,Stream\n", file);
    return &out->writer;
}
