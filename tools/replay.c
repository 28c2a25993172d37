/* SPDX-License-Identifier: Apache-2.0 */
/* replay: plays a trace through the allocator on the simulated device and says what it cost.
 *
 * The one order of the recording is kept, whatever threads there were, and so are streams, devices, pools and
 * failures; events complete at once. Peaks are the allocator's, which the device's own record must confirm
 * (reserved); driver time and calls are the device's; of several devices the sums. A request that fails
 * although it was served in the recording, or the other way round, ends the replay with the event's number.
 */
#include "tools/map.h"
#include "tools/tools.h"
#include "tools/trace.h"
#include <cuda.h>
#include <jansson.h>
#include <seamalloc/seamalloc.h>
#include <sim/sim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDS_MAX     ((uint64_t)1 << 28)
#define STREAMS_MAX 4096

static const struct {
    const char *key, *name;
} calls[] = {
    {"create", "cuMemCreate"},
    {"map", "cuMemMap"},
    {"set_access", "cuMemSetAccess"},
    {"unmap", "cuMemUnmap"},
    {"release", "cuMemRelease"},
    {"reserve", "cuMemAddressReserve"},
    {"address_free", "cuMemAddressFree"},
    {"alloc", "cuMemAlloc"},
    {"free", "cuMemFree"},
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

/* What stands for a block of no bytes, which the allocator does not hand out. */
#define NO_BYTES ((void *)1)

/* A private pool. */
struct scope {
    struct replay *replay;
    uint64_t pool;
    int device;
    bool open;
};

struct slot {
    void *block; /* NULL: none lives */
    int device;
};

struct replay {
    const char *path;
    double scale;
    struct slot *blocks; /* by id */
    uint64_t ids;
    int devices;
    CUcontext contexts[SIM_DEVICES_MAX];
    CUstream streams[SIM_DEVICES_MAX][STREAMS_MAX];
    struct map scopes;               /* by pool and device, to struct scope */
    const struct trace_event *event; /* being played */
    bool cut;
    uint64_t lost;
    uint64_t events, failed, requests;
    unsigned depth; /* of phases entered by + */
    bool in_step;   /* a phase changed by p is open */
    uint64_t allocator_ns;
};

/* What the allocator has in one piece. */
static json_int_t largest_free(int device)
{
    size_t size = seam_stats_json(device, NULL, 0) + 4096;
    char *text = malloc(size);
    json_t *root = NULL;
    json_int_t value = -1;
    if (text && seam_stats_json(device, text, size) < size)
        root = json_loads(text, 0, NULL);
    json_unpack(root, "{s:[{s:{s:I}}]}", "devices", "external", "largest_free", &value);
    json_decref(root);
    free(text);
    return value;
}

static int fail_at(const struct replay *replay, const struct trace_event *event, const char *what)
{
    fprintf(stderr, "seamalloc: %s:%lu: event %lu: %s\n", replay->path, event->line, replay->events, what);
    return -1;
}

static int fail_request(const struct replay *replay, const struct trace_event *event, const char *what)
{
    fprintf(stderr,
            "seamalloc: %s:%lu: event %lu: request of %lu bytes on stream %lu of device %d: %s "
            "(largest_free %lld)\n",
            replay->path, event->line, replay->events, event->size, event->stream, event->device, what,
            (long long)largest_free(event->device));
    return -1;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The trace's stream n of a device; stream 0 is the default stream. */
static bool stream_of(struct replay *replay, int device, uint64_t n, CUstream *stream)
{
    CUstream *found = n < STREAMS_MAX ? &replay->streams[device][n] : NULL;
    bool good = found != NULL;
    if (good && n && !*found) {
        good = cuCtxSetCurrent(replay->contexts[device]) == CUDA_SUCCESS &&
               cuStreamCreate(found, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
        cuCtxSetCurrent(replay->contexts[0]);
    }
    *stream = good ? *found : NULL;
    return good;
}

/* ---- pools ---- */

/* A request goes where the trace says. */
static bool claims(seam_stream stream, void *context)
{
    const struct scope *scope = context;
    (void)stream;
    return scope->replay->event->pool == scope->pool;
}

static struct scope *scope_of(struct replay *replay, const struct trace_event *event)
{
    uint64_t key = event->pool * TRACE_DEVICES_MAX + (uint64_t)event->device;
    struct map_entry *entry = map_find(&replay->scopes, key);
    struct scope *scope;
    if (entry)
        return (struct scope *)(uintptr_t)entry->value;
    scope = calloc(1, sizeof(*scope));
    if (!scope)
        abort();
    *scope = (struct scope){.replay = replay, .pool = event->pool, .device = event->device};
    map_add(&replay->scopes, key, (uintptr_t)scope);
    return scope;
}

static int play_pool(struct replay *replay, const struct trace_event *event)
{
    struct scope *scope = scope_of(replay, event);
    seam_pool_id id = {0, event->pool};
    seam_result result = event->action == 'b'   ? seam_pool_begin(event->device, id, claims, scope)
                         : event->action == 'e' ? seam_pool_end(event->device, id)
                                                : seam_pool_release(event->device, id);
    if (result)
        return fail_at(replay, event, seam_last_error());
    if (event->action != 'd')
        scope->open = event->action == 'b';
    return 0;
}

/* The pool of a request, where nothing has opened it: a trace may begin within, or tell no scopes. */
static bool visit_pool(struct replay *replay, const struct trace_event *event, bool begin)
{
    seam_pool_id id = {0, event->pool};
    if (!event->pool || scope_of(replay, event)->open)
        return true;
    if (begin)
        return !seam_pool_begin(event->device, id, claims, scope_of(replay, event));
    return !seam_pool_end(event->device, id) && !seam_pool_release(event->device, id);
}

/* ---- events ---- */

static struct slot *slot_of(struct replay *replay, uint64_t id)
{
    if (id >= IDS_MAX)
        return NULL;
    if (id >= replay->ids) {
        uint64_t ids = replay->ids ? replay->ids : 4096;
        while (ids <= id)
            ids *= 2;
        struct slot *blocks = realloc(replay->blocks, ids * sizeof(*blocks));
        if (!blocks)
            return NULL;
        memset(blocks + replay->ids, 0, (ids - replay->ids) * sizeof(*blocks));
        replay->blocks = blocks;
        replay->ids = ids;
    }
    return &replay->blocks[id];
}

static int play_request(struct replay *replay, const struct trace_event *event)
{
    struct slot *slot = event->action == 'a' ? slot_of(replay, event->id) : NULL;
    CUstream stream;
    uint64_t start;
    void *block;
    if (event->action == 'a' && (!slot || slot->block))
        return fail_at(replay, event, slot ? "this id is in use already" : "the id is too large");
    if (!stream_of(replay, event->device, event->stream, &stream))
        return fail_at(replay, event, "more streams than can be made");
    if (!visit_pool(replay, event, true))
        return fail_at(replay, event, seam_last_error());
    start = now_ns();
    block = seam_malloc(event->size, event->device, stream);
    replay->allocator_ns += now_ns() - start;
    replay->requests++;
    if (!visit_pool(replay, event, false))
        return fail_at(replay, event, seam_last_error());
    if (event->action == 'x') {
        replay->failed++;
        seam_free(block);
        return block ? fail_request(replay, event, "it failed in the recording, and was served here") : 0;
    }
    *slot = (struct slot){block ? block : NO_BYTES, event->device};
    if (!block && event->size)
        return fail_request(replay, event, seam_last_error());
    return 0;
}

static int play_block(struct replay *replay, const struct trace_event *event)
{
    struct slot *slot = event->id < replay->ids ? &replay->blocks[event->id] : NULL;
    seam_result result = SEAM_OK;
    CUstream stream;
    uint64_t start;
    if (slot && !slot->block && event->action == 'r')
        return 0; /* of a block that is gone already: as recorders of others have it */
    if (!slot || !slot->block)
        return fail_at(replay, event, "no block has this id");
    if (!stream_of(replay, slot->device, event->stream, &stream))
        return fail_at(replay, event, "more streams than can be made");
    start = now_ns();
    if (slot->block != NO_BYTES)
        result = event->action == 'f' ? seam_free(slot->block) : seam_record_stream(slot->block, stream);
    replay->allocator_ns += now_ns() - start;
    if (event->action == 'f')
        slot->block = NULL;
    return result ? fail_at(replay, event, seam_last_error()) : 0;
}

static int play_phase(struct replay *replay, const struct trace_event *event)
{
    seam_result result = SEAM_OK;
    if (event->action == 'p' && replay->in_step)
        result = seam_phase_pop();
    if (!result)
        result = event->action == '-' ? seam_phase_pop() : seam_phase_push(event->name);
    replay->in_step |= event->action == 'p';
    return result ? fail_at(replay, event, seam_last_error()) : 0;
}

static int play(struct replay *replay, const struct trace_event *event)
{
    replay->events++;
    replay->event = event;
    switch (event->action) {
    case 'a':
    case 'x':
        return play_request(replay, event);
    case 'f':
    case 'r':
        return play_block(replay, event);
    case 't':
        return seam_trim(event->device) ? fail_at(replay, event, seam_last_error()) : 0;
    case 'b':
    case 'e':
    case 'd':
        return play_pool(replay, event);
    default:
        return play_phase(replay, event);
    }
}

/* Of all devices together. */
static int64_t figure(const struct replay *replay, const char *name)
{
    int64_t sum = 0, value;
    for (int i = 0; i < replay->devices; i++)
        sum += seam_stat(i, name, &value) ? 0 : value;
    return sum;
}

static uint64_t physical_peak(const struct replay *replay)
{
    uint64_t sum = 0;
    for (int i = 0; i < replay->devices; i++)
        sum += sim_physical_bytes_peak(i);
    return sum;
}

static json_t *call_counts(const uint64_t *before)
{
    json_t *object = json_object();
    for (size_t i = 0; i < CALLS; i++)
        json_object_set_new(object, calls[i].key,
                            json_integer((json_int_t)(sim_calls(calls[i].name) - before[i])));
    return object;
}

static uint64_t driver_ns(void)
{
    uint64_t ns = 0;
    for (size_t i = 0; i < CALLS; i++)
        ns += sim_driver_ns(calls[i].name);
    return ns;
}

/* The second half begins at the middle event, so the trace is read twice. Returns: the events, or -1. */
static int64_t look_ahead(struct replay *replay, const char *path)
{
    struct trace *trace = trace_open(path);
    struct trace_event event;
    int64_t count = 0;
    int code = -1;
    if (!trace)
        return -1;
    replay->devices = 1;
    while ((code = trace_next(trace, &event)) > 0) {
        count++;
        if (event.device >= replay->devices)
            replay->devices = event.device + 1;
    }
    replay->cut = trace_is_cut(trace);
    replay->lost = trace_lost(trace);
    trace_close(trace);
    if (code == 0 && replay->devices <= SIM_DEVICES_MAX)
        return count;
    if (code == 0)
        fprintf(stderr, "seamalloc: %s: %d devices; at most %d can be simulated\n", path, replay->devices,
                SIM_DEVICES_MAX);
    return -1;
}

static json_t *result_of(const struct replay *replay, const char *policy, const uint64_t *half)
{
    static const uint64_t none[CALLS];
    double allocated = (double)figure(replay, "allocated_bytes.all.peak"),
           reserved = (double)physical_peak(replay);
    uint64_t operations =
        figure(replay, "allocation.all.in") > 0 ? (uint64_t)figure(replay, "allocation.all.in") : 1;
    json_t *row = json_object();
    json_object_set_new(row, "trace", json_string(replay->path));
    json_object_set_new(row, "policy", json_string(policy));
    json_object_set_new(row, "events", json_integer((json_int_t)replay->events));
    json_object_set_new(row, "cut_short", json_boolean(replay->cut));
    json_object_set_new(row, "devices", json_integer(replay->devices));
    json_object_set_new(row, "failed", json_integer((json_int_t)replay->failed));
    json_object_set_new(row, "requested_peak", json_integer(figure(replay, "requested_bytes.all.peak")));
    json_object_set_new(row, "allocated_peak", json_integer(figure(replay, "allocated_bytes.all.peak")));
    json_object_set_new(row, "active_peak", json_integer(figure(replay, "active_bytes.all.peak")));
    json_object_set_new(row, "reserved_peak", json_integer((json_int_t)physical_peak(replay)));
    json_object_set_new(row, "utilisation", json_real(reserved > 0 ? allocated / reserved : 0));
    json_object_set_new(row, "driver_ns", json_integer((json_int_t)driver_ns()));
    json_object_set_new(row, "driver_calls", call_counts(none));
    json_object_set_new(row, "driver_calls_second_half", call_counts(half));
    json_object_set_new(row, "mappings_peak", json_integer(figure(replay, "mappings.all.peak")));
    json_object_set_new(row, "view_bytes_peak", json_integer(figure(replay, "view_bytes.all.peak")));
    json_object_set_new(row, "host_ns_per_op", json_real((double)replay->allocator_ns / (double)operations));
    return row;
}

/* A request of some bytes remains one. */
static uint64_t scaled(uint64_t size, double scale)
{
    uint64_t bytes = (uint64_t)((double)size * scale);
    if (scale == 1)
        return size;
    return bytes || !size ? bytes : 1;
}

static int play_all(struct replay *replay, int64_t events, uint64_t *half)
{
    struct trace *trace = trace_open(replay->path);
    struct trace_event event;
    int code;
    if (!trace)
        return -1;
    while ((code = trace_next(trace, &event)) > 0) {
        event.size = scaled(event.size, replay->scale);
        if ((int64_t)replay->events == events / 2)
            for (size_t i = 0; i < CALLS; i++)
                half[i] = sim_calls(calls[i].name);
        if (play(replay, &event)) {
            code = -1;
            break;
        }
    }
    trace_close(trace);
    return code;
}

static bool enter_devices(struct replay *replay)
{
    for (int i = 0; i < replay->devices; i++)
        if (cuDevicePrimaryCtxRetain(&replay->contexts[i], i) != CUDA_SUCCESS)
            return false;
    return cuCtxSetCurrent(replay->contexts[0]) == CUDA_SUCCESS;
}

static void free_replay(struct replay *replay)
{
    for (struct map_entry *entry = map_first(&replay->scopes); entry; entry = map_next(entry))
        free((void *)(uintptr_t)entry->value);
    map_clear(&replay->scopes);
    free(replay->blocks);
    free(replay);
}

json_t *replay_trace(const char *path, const char *policy, double scale, const struct sim_config *config)
{
    struct replay *replay = calloc(1, sizeof(*replay));
    int64_t events = replay ? look_ahead(replay, path) : -1;
    struct sim_config device = *config;
    uint64_t half[CALLS] = {0};
    json_t *row = NULL;
    if (events >= 0)
        device.devices = replay->devices;
    if (events < 0 || !sim_start(&device)) {
        free(replay);
        return NULL;
    }
    replay->path = path;
    replay->scale = scale;
    if (enter_devices(replay) && !play_all(replay, events, half)) {
        if (seam_validate() || sim_violation_count() ||
            (uint64_t)figure(replay, "reserved_bytes.all.peak") != physical_peak(replay))
            fprintf(stderr, "seamalloc: %s: the allocator's books and the device's record differ: %s\n", path,
                    seam_last_error());
        else if (replay->lost)
            fprintf(stderr, "seamalloc: %s: the replay is not what was recorded\n", path);
        else
            row = result_of(replay, policy, half);
    }
    seam_shutdown();
    free_replay(replay);
    return row;
}
