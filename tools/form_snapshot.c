/* SPDX-License-Identifier: Apache-2.0 */
/* form_snapshot: memory snapshots of PyTorch, as pickle or JSON, read and written.
 *
 * Read: the events of device_traces. alloc and oom are requests; free_requested ends a block's life for its
 * owner; segments are the other allocator's business and are passed over, and so are frees of blocks that
 * were there before the history began. Devices are merged by their times where all entries have one. Written:
 * a pickle that memory_viz shows: each block has addresses of its own in one segment a device; the time is
 * the event's number. */
#include "tools/forms.h"
#include "tools/lines.h"
#include "tools/map.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct snapshot_in {
    struct reader reader;
    const char *path;
    json_t *traces;
    size_t at[TRACE_DEVICES_MAX];
    struct map live[TRACE_DEVICES_MAX]; /* address to id */
    struct map streams, pools;
    uint64_t ids, events, passed_over;
};

static int complain(const struct snapshot_in *in, size_t device, const char *what)
{
    fprintf(stderr, "seamalloc: %s: device %zu: entry %zu: %s\n", in->path, device, in->at[device], what);
    return -1;
}

/* The device whose next entry is the oldest. Returns: SIZE_MAX at the end. */
static size_t next_device(struct snapshot_in *in)
{
    size_t found = SIZE_MAX;
    json_int_t oldest = 0;
    for (size_t i = 0; i < json_array_size(in->traces); i++) {
        json_t *entries = json_array_get(in->traces, i);
        const json_t *entry = json_array_get(entries, in->at[i]);
        json_int_t time = json_integer_value(json_object_get(entry, "time_us"));
        if (entry && (found == SIZE_MAX || time < oldest)) {
            found = i;
            oldest = time;
        }
    }
    return found;
}

static uint64_t number_of(const json_t *entry, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(entry, key));
}

static uint64_t pool_of(struct snapshot_in *in, const json_t *entry)
{
    const json_t *pool = json_object_get(entry, "pool_id");
    uint64_t first = (uint64_t)json_integer_value(json_array_get(pool, 0));
    uint64_t second = (uint64_t)json_integer_value(json_array_get(pool, 1));
    /* Ids are small counts; one of the two is 0. */
    return map_number(&in->pools, first << 32 ^ second);
}

/* Returns: 1 for an event, 0 for an entry that is none, -1. */
static int translate(struct snapshot_in *in, size_t device, const json_t *entry, struct trace_event *event)
{
    const char *action = json_string_value(json_object_get(entry, "action"));
    const json_t *size = json_object_get(entry, "size");
    uint64_t address = number_of(entry, "addr");
    struct map_entry *block;
    if (!action || !json_is_integer(size))
        return complain(in, device, "it has no action or no size");
    *event = (struct trace_event){
        .size = number_of(entry, "size"),
        .stream = map_number(&in->streams, number_of(entry, "stream")),
        .pool = pool_of(in, entry),
        .device = (int)device,
    };
    if (!strcmp(action, "alloc")) {
        event->action = 'a';
        event->id = ++in->ids;
        map_add(&in->live[device], address, event->id);
        return 1;
    }
    event->action = 'x';
    if (strcmp(action, "free_requested") != 0)
        return !strcmp(action, "oom");
    block = map_find(&in->live[device], address);
    in->passed_over += !block;
    if (!block)
        return 0;
    event->action = 'f';
    event->id = block->value;
    event->size = event->pool = 0;
    map_remove(&in->live[device], block);
    return 1;
}

static int snapshot_next(struct reader *reader, struct trace_event *event)
{
    struct snapshot_in *in = (struct snapshot_in *)reader;
    size_t device;
    while ((device = next_device(in)) != SIZE_MAX) {
        json_t *entries = json_array_get(in->traces, device);
        int code = translate(in, device, json_array_get(entries, in->at[device]), event);
        in->at[device]++;
        event->line = ++in->events;
        if (code)
            return code;
    }
    if (in->passed_over)
        fprintf(stderr, "seamalloc: %s: %lu frees of blocks from before the history were passed over\n",
                in->path, in->passed_over);
    in->passed_over = 0;
    return 0;
}

static void snapshot_close(struct reader *reader)
{
    struct snapshot_in *in = (struct snapshot_in *)reader;
    for (int i = 0; i < TRACE_DEVICES_MAX; i++)
        map_clear(&in->live[i]);
    map_clear(&in->streams);
    map_clear(&in->pools);
    free(in);
}

static json_t *load(const char *path, bool json)
{
    static struct { /* the last one: a trace is read more than once, and see unpickle.c */
        char *path;
        json_t *root;
    } kept;
    json_error_t error;
    size_t size;
    char *bytes;
    json_t *root = NULL;
    if (kept.path && !strcmp(kept.path, path))
        return kept.root;
    bytes = file_load(path, &size);
    if (!bytes)
        return NULL;
    if (!json)
        root = unpickle(path, bytes, size);
    else if (!(root = json_loadb(bytes, size, 0, &error)))
        fprintf(stderr, "seamalloc: %s:%d: %s\n", path, error.line, error.text);
    free(bytes);
    if (root) {
        free(kept.path);
        kept.path = strdup(path);
        kept.root = root;
    }
    return root;
}

struct reader *snapshot_reader(const char *path, bool json)
{
    struct snapshot_in *in = calloc(1, sizeof(*in));
    json_t *root = in ? load(path, json) : NULL;
    if (!root) {
        free(in);
        return NULL;
    }
    in->path = path;
    in->traces = json_object_get(root, "device_traces");
    if (!json_is_array(in->traces) || json_array_size(in->traces) > TRACE_DEVICES_MAX) {
        fprintf(stderr, "seamalloc: %s: it holds no device_traces: was the history recorded?\n", path);
        free(in);
        return NULL;
    }
    in->reader = (struct reader){snapshot_next, snapshot_close};
    return &in->reader;
}

/* ---- writing: protocol 2, without a memo ---- */

struct entry {
    char action;
    uint64_t id, size, stream, pool, number;
};

struct snapshot_out {
    struct writer writer;
    FILE *file;
    const char *path;
    uint64_t events;
    struct map living; /* id to device: a free need not tell it */
    int devices;       /* with events */
    struct entry *entries[TRACE_DEVICES_MAX];
    size_t counts[TRACE_DEVICES_MAX], capacities[TRACE_DEVICES_MAX];
};

static void put_int(FILE *file, uint64_t value)
{
    fputs("\x8a\x08", file);
    for (int i = 0; i < 8; i++)
        fputc((int)(value >> 8 * i & 0xff), file);
}

static void put_text(FILE *file, const char *text)
{
    uint32_t length = (uint32_t)strlen(text);
    fputc('X', file);
    for (int i = 0; i < 4; i++)
        fputc((int)(length >> 8 * i & 0xff), file);
    fputs(text, file);
}

static void put_pair(FILE *file, const char *key, uint64_t value)
{
    put_text(file, key);
    put_int(file, value);
}

static void put_pool(FILE *file, const char *key, uint64_t pool)
{
    put_text(file, key);
    put_int(file, 0);
    put_int(file, pool);
    fputc(0x86, file);
}

static void put_entry(FILE *file, const struct entry *entry, const char *action, uint64_t address)
{
    fputs("}(", file);
    put_text(file, "action");
    put_text(file, action);
    put_pair(file, entry->action == 'x' ? "device_free" : "addr", address);
    put_pair(file, "size", entry->size);
    put_pair(file, "stream", entry->stream);
    put_pair(file, "time_us", entry->number);
    put_pool(file, "pool_id", entry->pool);
    put_text(file, "frames");
    fputs("]u", file);
}

#define BASE(device) (((uint64_t)0x7f00 + (device)) << 32)

static uint64_t room(uint64_t size)
{
    return (size + 511) / 512 * 512;
}

/* One device's list. Ensures: what lives at the end is in *live, address to size. Returns: the end of its
 * addresses. */
static uint64_t put_trace(struct snapshot_out *out, int device, struct map *live)
{
    struct map blocks = {0}; /* id to address */
    uint64_t address = BASE((uint64_t)device);
    fputs("](", out->file);
    for (size_t i = 0; i < out->counts[device]; i++) {
        struct entry *entry = &out->entries[device][i];
        struct map_entry *block;
        if (entry->action == 'x') {
            put_entry(out->file, entry, "oom", 0);
        } else if (entry->action == 'a') {
            put_entry(out->file, entry, "alloc", address);
            map_add(&blocks, entry->id, address)->size = entry->size;
            map_add(live, address, entry->size);
            address += room(entry->size ? entry->size : 1);
        } else if ((block = map_find(&blocks, entry->id))) {
            entry->size = block->size;
            put_entry(out->file, entry, "free_requested", block->value);
            put_entry(out->file, entry, "free_completed", block->value);
            map_remove(live, map_find(live, block->value));
            map_remove(&blocks, block);
        }
    }
    fputc('e', out->file);
    map_clear(&blocks);
    return address;
}

static void put_block(FILE *file, uint64_t address, uint64_t size, uint64_t requested, const char *state)
{
    if (!size)
        return;
    fputs("}(", file);
    put_pair(file, "address", address);
    put_pair(file, "size", size);
    put_pair(file, "requested_size", requested);
    put_text(file, "state");
    put_text(file, state);
    put_text(file, "frames");
    fputs("]u", file);
}

static void put_segment(struct snapshot_out *out, int device, uint64_t end, struct map *live)
{
    uint64_t at = BASE((uint64_t)device), bytes = 0, requested = 0;
    struct map_entry *block;
    for (block = map_first(live); block; block = map_next(block)) {
        bytes += room(block->value);
        requested += block->value;
    }
    fputs("}(", out->file);
    put_pair(out->file, "device", (uint64_t)device);
    put_pair(out->file, "address", at);
    put_pair(out->file, "total_size", end - at);
    put_pair(out->file, "allocated_size", bytes);
    put_pair(out->file, "active_size", bytes);
    put_pair(out->file, "requested_size", requested);
    put_pair(out->file, "stream", 0);
    put_text(out->file, "segment_type");
    put_text(out->file, "large");
    put_pool(out->file, "segment_pool_id", 0);
    put_text(out->file, "is_expandable");
    fputc(0x88, out->file);
    put_text(out->file, "frames");
    fputc(']', out->file);
    put_text(out->file, "blocks");
    fputs("](", out->file);
    for (block = map_first(live); block; block = map_next(block)) {
        put_block(out->file, at, block->key - at, 0, "inactive");
        put_block(out->file, block->key, room(block->value), block->value, "active_allocated");
        at = block->key + room(block->value);
    }
    put_block(out->file, at, end - at, 0, "inactive");
    fputs("eu", out->file);
}

static bool snapshot_put(struct writer *writer, const struct trace_event *event)
{
    struct snapshot_out *out = (struct snapshot_out *)writer;
    struct map_entry *block = event->action == 'f' ? map_find(&out->living, event->id) : NULL;
    int device = block ? (int)block->value : event->device;
    out->events++;
    if (!strchr("afx", event->action)) {
        writer->left_out++;
        return true;
    }
    if (block)
        map_remove(&out->living, block);
    if (event->action == 'a')
        map_add(&out->living, event->id, (uint64_t)device);
    if (out->counts[device] == out->capacities[device]) {
        size_t capacity = out->capacities[device] ? 2 * out->capacities[device] : 4096;
        struct entry *entries = realloc(out->entries[device], capacity * sizeof(*entries));
        if (!entries) {
            fputs("seamalloc: out of host memory\n", stderr);
            return false;
        }
        out->entries[device] = entries;
        out->capacities[device] = capacity;
    }
    if (device >= out->devices)
        out->devices = device + 1;
    out->entries[device][out->counts[device]++] =
        (struct entry){event->action, event->id, event->size, event->stream, event->pool, out->events};
    return true;
}

static bool snapshot_finish(struct writer *writer)
{
    struct snapshot_out *out = (struct snapshot_out *)writer;
    struct map live[TRACE_DEVICES_MAX] = {0};
    uint64_t ends[TRACE_DEVICES_MAX];
    bool good;
    fputs("\x80\x02}(", out->file);
    put_text(out->file, "device_traces");
    fputs("](", out->file);
    for (int i = 0; i < out->devices; i++)
        ends[i] = put_trace(out, i, &live[i]);
    fputc('e', out->file);
    put_text(out->file, "segments");
    fputs("](", out->file);
    for (int i = 0; i < out->devices; i++)
        if (out->counts[i])
            put_segment(out, i, ends[i], &live[i]);
    fputc('e', out->file);
    put_text(out->file, "allocator_settings");
    fputs("}u.", out->file);
    good = !ferror(out->file);
    good = fclose(out->file) == 0 && good;
    if (!good)
        fprintf(stderr, "seamalloc: %s could not be written: %s\n", out->path, strerror(errno));
    for (int i = 0; i < out->devices; i++) {
        map_clear(&live[i]);
        free(out->entries[i]);
    }
    map_clear(&out->living);
    free(out);
    return good;
}

struct writer *snapshot_writer(const char *path)
{
    struct snapshot_out *out = calloc(1, sizeof(*out));
    FILE *file = fopen(path, "wbe");
    if (!file || !out) {
        fprintf(stderr, "seamalloc: %s: %s\n", path, strerror(errno));
        free(out);
        return NULL;
    }
    out->writer = (struct writer){snapshot_put, snapshot_finish, 0};
    out->file = file;
    out->path = path;
    return &out->writer;
}
