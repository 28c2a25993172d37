/* SPDX-License-Identifier: Apache-2.0 */
/* replay: plays a trace through the allocator on the simulated device and says what it cost.
 *
 * Order, streams, devices and failures of the recording are kept; events complete at once. Peaks are the
 * allocator's, which the device's own record must confirm (reserved); driver time and calls are the device's.
 * A request that fails although it was served in the recording, or the other way round, ends the replay with
 * the event's line. */
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

struct replay {
    const char *path;
    void **blocks; /* by id */
    uint64_t ids;
    CUstream streams[STREAMS_MAX];
    uint64_t events, failed, requests;
    unsigned depth; /* of phases entered by + */
    bool in_step;   /* a phase changed by p is open */
    uint64_t allocator_ns;
};

static int fail_at(const struct replay *replay, const struct trace_event *event, const char *what)
{
    fprintf(stderr, "seamalloc: %s:%lu: event %lu: %s\n", replay->path, event->line, replay->events, what);
    return -1;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The trace's stream n; stream 0 is the default stream. */
static bool stream_of(struct replay *replay, uint64_t n, CUstream *stream)
{
    if (n >= STREAMS_MAX)
        return false;
    if (n && !replay->streams[n] &&
        cuStreamCreate(&replay->streams[n], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return false;
    *stream = replay->streams[n];
    return true;
}

static void **slot_of(struct replay *replay, uint64_t id)
{
    if (id >= IDS_MAX)
        return NULL;
    if (id >= replay->ids) {
        uint64_t ids = replay->ids ? replay->ids : 4096;
        while (ids <= id)
            ids *= 2;
        void **blocks = realloc(replay->blocks, ids * sizeof(*blocks));
        if (!blocks)
            return NULL;
        memset(blocks + replay->ids, 0, (ids - replay->ids) * sizeof(*blocks));
        replay->blocks = blocks;
        replay->ids = ids;
    }
    return &replay->blocks[id];
}

static int play_request(struct replay *replay, const struct trace_event *event, CUstream stream)
{
    void **slot = event->action == 'a' ? slot_of(replay, event->id) : NULL;
    uint64_t start;
    void *block;
    if (event->action == 'a' && (!slot || *slot))
        return fail_at(replay, event, slot ? "this id is in use already" : "the id is too large");
    start = now_ns();
    block = seam_malloc(event->size, event->device, stream);
    replay->allocator_ns += now_ns() - start;
    replay->requests++;
    if (event->action == 'x') {
        replay->failed++;
        seam_free(block);
        return block ? fail_at(replay, event, "this request failed in the recording, and was served here")
                     : 0;
    }
    *slot = block;
    if (!block && event->size)
        return fail_at(replay, event, seam_last_error());
    return 0;
}

static int play_block(struct replay *replay, const struct trace_event *event, CUstream stream)
{
    void **slot = event->id < replay->ids ? &replay->blocks[event->id] : NULL;
    seam_result result;
    uint64_t start = now_ns();
    if (!slot)
        return fail_at(replay, event, "no block has this id");
    result = event->action == 'f' ? seam_free(*slot) : *slot ? seam_record_stream(*slot, stream) : SEAM_OK;
    replay->allocator_ns += now_ns() - start;
    if (event->action == 'f')
        *slot = NULL;
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
    seam_pool_id pool = {0, event->pool};
    CUstream stream = NULL;
    replay->events++;
    if (!stream_of(replay, event->stream, &stream))
        return fail_at(replay, event, "more streams than can be made");
    switch (event->action) {
    case 'a':
    case 'x':
        return play_request(replay, event, stream);
    case 'f':
    case 'r':
        return play_block(replay, event, stream);
    case 't':
        return seam_trim(-1) ? fail_at(replay, event, seam_last_error()) : 0;
    case 'b':
        return seam_pool_begin(0, pool, NULL, NULL) ? fail_at(replay, event, seam_last_error()) : 0;
    case 'e':
        return seam_pool_end(0, pool) ? fail_at(replay, event, seam_last_error()) : 0;
    default:
        return play_phase(replay, event);
    }
}

static int64_t figure(const char *name)
{
    int64_t value = 0;
    return seam_stat(0, name, &value) ? -1 : value;
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

static json_t *result_of(const struct replay *replay, const char *policy, const uint64_t *half)
{
    static const uint64_t none[CALLS];
    double allocated = (double)figure("allocated_bytes.all.peak"),
           reserved = (double)sim_physical_bytes_peak(0);
    uint64_t operations = figure("allocation.all.in") > 0 ? (uint64_t)figure("allocation.all.in") : 1;
    json_t *row = json_object();
    json_object_set_new(row, "trace", json_string(replay->path));
    json_object_set_new(row, "policy", json_string(policy));
    json_object_set_new(row, "events", json_integer((json_int_t)replay->events));
    json_object_set_new(row, "failed", json_integer((json_int_t)replay->failed));
    json_object_set_new(row, "requested_peak", json_integer(figure("requested_bytes.all.peak")));
    json_object_set_new(row, "allocated_peak", json_integer(figure("allocated_bytes.all.peak")));
    json_object_set_new(row, "active_peak", json_integer(figure("active_bytes.all.peak")));
    json_object_set_new(row, "reserved_peak", json_integer((json_int_t)sim_physical_bytes_peak(0)));
    json_object_set_new(row, "utilisation", json_real(reserved > 0 ? allocated / reserved : 0));
    json_object_set_new(row, "driver_ns", json_integer((json_int_t)driver_ns()));
    json_object_set_new(row, "driver_calls", call_counts(none));
    json_object_set_new(row, "driver_calls_second_half", call_counts(half));
    json_object_set_new(row, "mappings_peak", json_integer(figure("mappings.all.peak")));
    json_object_set_new(row, "view_bytes_peak", json_integer(figure("view_bytes.all.peak")));
    json_object_set_new(row, "host_ns_per_op", json_real((double)replay->allocator_ns / (double)operations));
    return row;
}

/* The second half begins at the middle event, so the trace is read twice. */
static int64_t count_events(const char *path)
{
    struct trace *trace = trace_open(path);
    struct trace_event event;
    int64_t count = 0;
    int code = -1;
    if (!trace)
        return -1;
    while ((code = trace_next(trace, &event)) > 0)
        count++;
    trace_close(trace);
    return code < 0 ? -1 : count;
}

static int play_all(struct replay *replay, int64_t events, uint64_t *half)
{
    struct trace *trace = trace_open(replay->path);
    struct trace_event event;
    int code;
    if (!trace)
        return -1;
    while ((code = trace_next(trace, &event)) > 0) {
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

json_t *replay_trace(const char *path, const char *policy, const struct sim_config *config)
{
    struct replay *replay = calloc(1, sizeof(*replay));
    int64_t events = count_events(path);
    uint64_t half[CALLS] = {0};
    CUcontext context;
    json_t *row = NULL;
    if (!replay || events < 0 || !sim_start(config)) {
        free(replay);
        return NULL;
    }
    replay->path = path;
    if (cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS &&
        !play_all(replay, events, half)) {
        if (seam_validate() || sim_violation_count() ||
            (uint64_t)figure("reserved_bytes.all.peak") != sim_physical_bytes_peak(0))
            fprintf(stderr, "seamalloc: %s: the allocator's books and the device's record differ: %s\n", path,
                    seam_last_error());
        else
            row = result_of(replay, policy, half);
    }
    seam_shutdown();
    free(replay->blocks);
    free(replay);
    return row;
}
