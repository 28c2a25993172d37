/* SPDX-License-Identifier: Apache-2.0 */
/* record: see record.h. The text is laid out twice, first to learn its length. */
#include "sim/core/record.h"
#include "base/align.h"
#include "base/emit.h"
#include "sim/core/address.h"
#include "sim/core/calls.h"
#include "sim/core/config.h"
#include "sim/core/cost.h"
#include "sim/core/device.h"
#include "sim/core/ledger.h"
#include "sim/core/lock.h"
#include "sim/core/memory.h"
#include "sim/core/physical.h"
#include "sim/core/pool.h"
#include "sim/core/refused.h"
#include "sim/core/table.h"
#include "sim/core/tenant.h"
#include "sim/core/terms.h"
#include "sim/core/timing.h"
#include <stdlib.h>

void sim_live(struct sim_live *live)
{
    *live = (struct sim_live){0};
    sim_lock();
    sim_memory_live(live);
    live->pools = sim_pools_made();
    sim_unlock();
    live->events = sim_table_count(SIM_KIND_EVENT);
    live->streams = sim_table_count(SIM_KIND_STREAM);
    live->graphs = sim_table_count(SIM_KIND_GRAPH) + sim_table_count(SIM_KIND_EXEC);
}

/* Sizes and addresses that a broken rule is about may be anything: what JSON readers cannot take is cut. */
static void put(struct sm_emit *emit, const char *name, uint64_t value, enum sm_unit unit)
{
    sm_emit_int(emit, name, (int64_t)sm_min(value, INT64_MAX), unit);
}

static void put_calls(struct sm_emit *emit, int device)
{
    uint64_t total = 0;
    sm_emit_object_open(emit, "calls");
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        if (sim_call_count(device, call))
            put(emit, sim_call_names[call], sim_call_count(device, call), SM_UNIT_COUNT);
    sm_emit_object_close(emit);
    sm_emit_object_open(emit, "driver_ns");
    for (int call = 0; call < SIM_CALL_COUNT; call++) {
        if (sim_call_count(device, call))
            put(emit, sim_call_names[call], sim_cost_ns(device, call), SM_UNIT_NS);
        total += sim_cost_ns(device, call);
    }
    sm_emit_object_close(emit);
    put(emit, "driver_ns_total", total, SM_UNIT_NS);
}

static void put_violations(struct sm_emit *emit, int device)
{
    struct sim_violation v;
    sm_emit_array_open(emit, "violations");
    for (size_t i = 0; sim_violation(i, &v); i++) {
        if ((v.device < 0 ? 0 : v.device) != device)
            continue;
        sm_emit_object_open(emit, NULL);
        sm_emit_string(emit, "rule", v.rule);
        sm_emit_string(emit, "call", v.call);
        put(emit, "base", v.base, SM_UNIT_COUNT);
        put(emit, "size", v.size, SM_UNIT_BYTES);
        sm_emit_string(emit, "text", v.text);
        sm_emit_object_close(emit);
    }
    sm_emit_array_close(emit);
}

/* The streams of a device in virtual time. Requires: the core lock is held. */
static void put_streams(struct sm_emit *emit, int device)
{
    const struct sim_track *track;
    sm_emit_array_open(emit, "streams");
    for (track = sim_timing_next(NULL); track; track = sim_timing_next(track)) {
        const struct sim_stream_time *time = &track->time;
        if (track->device != device || time->operations == 0)
            continue;
        sm_emit_object_open(emit, NULL);
        put(emit, "stream", track->stream, SM_UNIT_COUNT);
        sm_emit_bool(emit, "default", track->is_default);
        put(emit, "operations", time->operations, SM_UNIT_COUNT);
        put(emit, "begin_ns", time->begin_ns, SM_UNIT_NS);
        put(emit, "end_ns", time->end_ns, SM_UNIT_NS);
        put(emit, "busy_ns", time->busy_ns, SM_UNIT_NS);
        put(emit, "waiting_ns", time->waiting_ns, SM_UNIT_NS);
        put(emit, "idle_ns", time->idle_ns, SM_UNIT_NS);
        sm_emit_array_open(emit, "waiting_for");
        for (size_t i = 0; i < track->waited_count; i++) {
            sm_emit_object_open(emit, NULL);
            put(emit, "stream", track->waited[i].stream, SM_UNIT_COUNT);
            put(emit, "ns", track->waited[i].ns, SM_UNIT_NS);
            sm_emit_object_close(emit);
        }
        sm_emit_array_close(emit);
        sm_emit_object_close(emit);
    }
    sm_emit_array_close(emit);
}

/* The host in virtual time. Requires: the core lock is held. */
static void put_host(struct sm_emit *emit)
{
    uint64_t calls = 0, waiting = 0;
    put(emit, "virtual_ns", sim_timing_end(), SM_UNIT_NS);
    sm_emit_object_open(emit, "host");
    put(emit, "ns", sim_timing_now(), SM_UNIT_NS);
    for (int call = 0; call < SIM_CALL_COUNT; call++) {
        calls += sim_timing_call_ns(call);
        waiting += sim_timing_wait_ns(call);
    }
    put(emit, "calls_ns", calls, SM_UNIT_NS);
    put(emit, "launches_ns", sim_timing_launch_ns(), SM_UNIT_NS);
    put(emit, "program_ns", sim_timing_spent_ns(), SM_UNIT_NS);
    put(emit, "waiting_ns", waiting, SM_UNIT_NS);
    sm_emit_object_open(emit, "waiting_in");
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        if (sim_timing_wait_ns(call))
            put(emit, sim_call_names[call], sim_timing_wait_ns(call), SM_UNIT_NS);
    sm_emit_object_close(emit);
    sm_emit_object_close(emit);
}

static void put_device(struct sm_emit *emit, int device)
{
    sm_emit_object_open(emit, NULL);
    put(emit, "index", (uint64_t)device, SM_UNIT_COUNT);
    sm_emit_string(emit, "name", SIM_DEVICE_NAME);
    put(emit, "bytes", sim_config.device_bytes, SM_UNIT_BYTES);
    put(emit, "physical_peak_bytes", sim_physical_bytes_peak(device), SM_UNIT_BYTES);
    put(emit, "physical_bytes", sim_physical_bytes(device), SM_UNIT_BYTES);
    put(emit, "tenant_peak_bytes", sim_physical_tenant_peak(device), SM_UNIT_BYTES);
    put(emit, "tenant_bytes", sim_physical_tenant(device), SM_UNIT_BYTES);
    put(emit, "mappings_peak", sim_memory_mappings_peak(device), SM_UNIT_COUNT);
    put(emit, "mappings", sim_mapping_count(device), SM_UNIT_COUNT);
    put(emit, "address_peak_bytes", sim_address_bytes_peak(device), SM_UNIT_BYTES);
    put(emit, "address_bytes", sim_address_bytes(device), SM_UNIT_BYTES);
    put_calls(emit, device);
    put_violations(emit, device);
    if (sim_timing_on()) {
        sim_lock();
        put_streams(emit, device);
        sim_unlock();
    }
    sm_emit_object_close(emit);
}

static void put_live(struct sm_emit *emit)
{
    struct sim_live live;
    sim_live(&live);
    sm_emit_object_open(emit, "live");
    put(emit, "handles", live.handles, SM_UNIT_COUNT);
    put(emit, "mappings", live.mappings, SM_UNIT_COUNT);
    put(emit, "reservations", live.reservations, SM_UNIT_COUNT);
    put(emit, "reserved_bytes", live.reserved_bytes, SM_UNIT_BYTES);
    put(emit, "allocations", live.allocations, SM_UNIT_COUNT);
    put(emit, "host", live.host, SM_UNIT_COUNT);
    put(emit, "events", live.events, SM_UNIT_COUNT);
    put(emit, "streams", live.streams, SM_UNIT_COUNT);
    put(emit, "graphs", live.graphs, SM_UNIT_COUNT);
    put(emit, "pools", live.pools, SM_UNIT_COUNT);
    sm_emit_object_close(emit);
}

/* What all processes did together that share the devices: those that have ended, and this one. */
static void put_shared(struct sm_emit *emit)
{
    struct sim_ledger_figures figures;
    if (!sim_ledger_figures(&figures))
        return;
    sm_emit_object_open(emit, "shared");
    sm_emit_string(emit, "name", sim_config.share);
    put(emit, "processes_running", figures.running, SM_UNIT_COUNT);
    put(emit, "processes_ended", figures.ended, SM_UNIT_COUNT);
    put(emit, "processes_died", figures.died, SM_UNIT_COUNT);
    put(emit, "violations_total", figures.violations + sim_violation_count(), SM_UNIT_COUNT);
    sm_emit_array_open(emit, "devices");
    for (int device = 0; device < sim_config.devices; device++) {
        sm_emit_object_open(emit, NULL);
        put(emit, "physical_bytes", figures.devices[device].bytes, SM_UNIT_BYTES);
        put(emit, "physical_peak_bytes", figures.devices[device].peak_bytes, SM_UNIT_BYTES);
        sm_emit_object_open(emit, "calls");
        for (int call = 0; call < SIM_CALL_COUNT; call++) {
            uint64_t count = sim_ledger_calls(device, call) + sim_call_count(device, call);
            if (count)
                put(emit, sim_call_names[call], count, SM_UNIT_COUNT);
        }
        sm_emit_object_close(emit);
        sm_emit_object_close(emit);
    }
    sm_emit_array_close(emit);
    sm_emit_object_close(emit);
}

static void put_features(struct sm_emit *emit, const char *name, unsigned features)
{
    const char *feature;
    sm_emit_array_open(emit, name);
    for (size_t at = 0; (feature = sim_feature_next(features, &at));)
        sm_emit_string(emit, NULL, feature);
    sm_emit_array_close(emit);
}

/* In what the driver was otherwise than by default. */
static void put_habits(struct sm_emit *emit)
{
    const char *habit;
    sm_emit_array_open(emit, "driver");
    for (size_t at = 0; (habit = sim_habit_next(&sim_config, &at));)
        sm_emit_string(emit, NULL, habit);
    sm_emit_array_close(emit);
    put_features(emit, "lacks", sim_config.lacks);
    put_features(emit, "lies", sim_config.lies);
}

/* Which of the rules in which drivers differ were in force, and who else was on the device. */
static void put_rules(struct sm_emit *emit)
{
    char text[32];
    sm_emit_object_open(emit, "rules");
    put(emit, "granularity_kib", sim_config.granularity / 1024, SM_UNIT_COUNT);
    put(emit, "recommended_kib", sim_term_recommended(&sim_config) / 1024, SM_UNIT_COUNT);
    sm_emit_string(emit, "partial", sim_term_text(&sim_config, SIM_TERM_PARTIAL, text, sizeof text));
    sm_emit_string(emit, "unmap", sim_term_text(&sim_config, SIM_TERM_UNMAP, text, sizeof text));
    put(emit, "mappings", sim_config.mappings_max, SM_UNIT_COUNT);
    sm_emit_object_close(emit);
    put_habits(emit);
    if (sim_tenant_text())
        sm_emit_string(emit, "tenant", sim_tenant_text());
}

static size_t lay_out(char *buffer, size_t size)
{
    struct sm_emit emit;
    char text[32];
    sm_emit_begin(&emit, SM_EMIT_JSON, buffer, size);
    sm_emit_object_open(&emit, NULL);
    sm_emit_bool(&emit, "simulated", true);
    sm_emit_string(&emit, "cost", sim_cost_name());
    sm_emit_string(&emit, "streams", sim_config_streams_text(&sim_config, text, sizeof text));
    sm_emit_bool(&emit, "strict", sim_config.strict);
    put_rules(&emit);
    if (sim_timing_on()) {
        sim_lock();
        put_host(&emit);
        sim_unlock();
    }
    sm_emit_array_open(&emit, "devices");
    for (int device = 0; device < sim_config.devices; device++)
        put_device(&emit, device);
    sm_emit_array_close(&emit);
    put(&emit, "violations_total", sim_violation_count(), SM_UNIT_COUNT);
    sm_emit_object_open(&emit, "unsupported_calls");
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        if (sim_call_unsupported_count(call))
            put(&emit, sim_call_names[call], sim_call_unsupported_count(call), SM_UNIT_COUNT);
    const char *name;
    uint64_t count;
    for (size_t i = 0; sim_refused(i, &name, &count); i++)
        put(&emit, name, count, SM_UNIT_COUNT);
    sm_emit_object_close(&emit);
    put(&emit, "faults", sim_fail_hits(), SM_UNIT_COUNT);
    put_live(&emit);
    put_shared(&emit);
    sm_emit_object_close(&emit);
    return sm_emit_end(&emit);
}

/* The record as a string to be freed, or NULL. Other threads may count on meanwhile: the second layout gets
 * room to spare. */
static char *record_text(void)
{
    size_t size = lay_out(NULL, 0) + 4096;
    char *text = malloc(size);
    if (text && lay_out(text, size) >= size) {
        free(text);
        return NULL;
    }
    return text;
}

void sim_print_record(FILE *out)
{
    char *text = record_text();
    if (text)
        fprintf(out, "%s\n", text);
    free(text);
}

bool sim_write_record(const char *path)
{
    char *text = record_text();
    FILE *file = text ? fopen(path, "w") : NULL;
    bool good = file && fprintf(file, "%s\n", text) > 0;
    if (file && fclose(file))
        good = false;
    free(text);
    return good;
}
