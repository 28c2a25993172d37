/* SPDX-License-Identifier: Apache-2.0 */
/* faults: see faults.h. */
#include "tests/fault/faults.h"
#include <string.h>

const char *fault_driver_calls(void)
{
    static char names[2048];
    if (names[0])
        return names;
#define X(name, version, required)                                                                           \
    if (strncmp(#name, "cuGetError", 10) != 0 && strcmp(#name, "cuCtxPopCurrent") != 0)                      \
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", names[0] ? "," : "", #name);
    SM_DRIVER_CALLS(X)
#undef X
    return names;
}

void fault_arm(struct run *run, const char *calls, uint64_t nth, bool forever)
{
    if (run->fault == FAULT_DRIVER)
        assert_true(sim_fail_any_of(calls, nth, forever));
    else
        sm_fault_arm(sm_hostmem_fault(), nth, forever);
}

uint64_t fault_disarm(void)
{
    uint64_t hits = sim_fail_hits() + atomic_load(&sm_hostmem_fault()->hits);
    sim_fail_clear();
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    atomic_store(&sm_hostmem_fault()->hits, 0);
    return hits;
}

/* ---- operations that may fail ---- */

static void locate(struct block *block)
{
    assert_true(sim_resolve(block->address, &block->handles[0], &block->offsets[0]));
    assert_true(sim_resolve(block->address + block->size - 1, &block->handles[1], &block->offsets[1]));
}

void run_check_blocks(const struct run *run)
{
    for (unsigned i = 0; i < run->count; i++) {
        struct block now = run->blocks[i];
        if (!now.address)
            continue;
        locate(&now);
        assert_memory_equal(&now, &run->blocks[i], sizeof(now));
        assert_true(sim_accessible(now.address, 0) && sim_accessible(now.address + now.size - 1, 0));
    }
}

void run_check(struct run *run, seam_result result)
{
    bool of_driver = result == SEAM_E_DEVICE || result == SEAM_E_DEVICE_OOM;
    if (result && run->fault == FAULT_DRIVER && !of_driver)
        fail_msg("%s: %s after a driver call failed: %s", run->doing, sm_result_name(result),
                 run->f.error.text);
    if (result && run->fault == FAULT_HOST && result != SEAM_E_HOST_OOM &&
        !(run->may_run_out && result == SEAM_E_DEVICE_OOM))
        fail_msg("%s: %s after a host allocation failed: %s", run->doing, sm_result_name(result),
                 run->f.error.text);
    assert_true(!result || run->f.error.text[0]);
    fixture_check(&run->f);
    run_check_blocks(run);
}

bool run_set_up(struct run *run, int ordinal)
{
    struct sm_device *device = NULL;
    run->doing = "device set-up";
    seam_result result = sm_allocator_device(run->f.allocator, ordinal, &device, &run->f.error);
    run_check(run, result);
    if (!ordinal && !result)
        run->f.device = device;
    assert_true(!result == !!device);
    return !result;
}

void run_request(struct run *run, uint64_t size, CUstream stream)
{
    struct block *block = &run->blocks[run->count++];
    assert_true(run->count <= BLOCKS);
    *block = (struct block){.size = size};
    if (!run->f.device)
        return;
    memset(&run->f.error, 0, sizeof(run->f.error));
    run->doing = "request";
    block->address = sm_pool_alloc(run->f.device, size, stream, &run->f.error);
    if (block->address)
        locate(block);
    run_check(run, block->address ? SEAM_OK : run->f.error.code);
    assert_true(block->address || run->f.error.code);
    assert_true(block->address || !run->served);
}

void run_give(struct run *run, unsigned i)
{
    CUdeviceptr address = run->blocks[i].address;
    if (!address)
        return;
    run->blocks[i].address = 0;
    run->doing = "free";
    assert_int_equal(sm_pool_free(run->f.device, address), SEAM_OK);
    run_check(run, SEAM_OK);
    assert_int_equal(sm_pool_free(run->f.device, address), SEAM_E_POINTER);
}

void run_use(struct run *run, unsigned i, CUstream stream)
{
    CUdeviceptr address = run->blocks[i].address;
    if (!address)
        return;
    run->doing = "record_stream";
    seam_result result = sm_pool_record_stream(run->f.device, address, stream, &run->f.error);
    run_check(run, result);
    if (!result)
        fixture_work(stream, address, 512);
}

void run_trim(struct run *run)
{
    run->doing = "trim";
    if (run->f.device)
        sm_reclaim_trim(run->f.device);
    run_check(run, SEAM_OK);
}

void run_tick(struct run *run, seam_result result, const char *doing)
{
    run->doing = doing;
    run_check(run, result);
}

/* ---- one run ---- */

void run_open(struct run *run, const struct scenario *scenario, enum fault fault)
{
    memset(run, 0, sizeof(*run));
    run->fault = fault;
    fixture_init(&run->f);
    run->f.sim.devices = scenario->devices;
    run->f.sim.lacks = scenario->lacks;
    run->f.sim.lies = scenario->lies;
    run->f.sim.partial = scenario->parts ? SIM_PARTIAL_INNER : SIM_PARTIAL_WHOLE;
    run->seed = scenario->seed;
    run->f.sim.streams = SIM_STREAMS_LAG;
    run->f.sim.lag = 1u << 30;
    fixture_open(&run->f, scenario->options);
    for (int i = 0; i < 4; i++)
        run->streams[i] = fixture_stream();
    if (scenario->prepare)
        scenario->prepare(run);
}

void run_close(struct run *run)
{
    struct sim_live live;
    run->doing = "afterwards";
    fixture_check(&run->f);
    run_check_blocks(run);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sim_stream_run(run->streams[i]), CUDA_SUCCESS);
    for (unsigned i = 0; i < run->count; i++)
        run_give(run, i);
    for (int i = 0; i < 3; i++) {
        CUdeviceptr a = fixture_alloc(&run->f, 8 * MIB, run->streams[i]);
        CUdeviceptr b = fixture_alloc(&run->f, 300, run->streams[i]);
        fixture_use(&run->f, a, run->streams[3]);
        fixture_free(&run->f, b);
        fixture_free(&run->f, a);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(sim_stream_run(run->streams[i]), CUDA_SUCCESS);
    for (int i = 0; i < run->f.sim.devices; i++)
        if (sm_allocator_seen(run->f.allocator, i))
            sm_reclaim_trim(sm_allocator_seen(run->f.allocator, i));
    assert_int_equal(fixture_level(&run->f, SM_LEVEL_active_bytes), 0);
    sim_live(&live);
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_int_equal(live.handles + live.mappings + live.reservations, 0);
    fixture_close(&run->f);
}

static struct {
    const char *scenario, *fault;
    uint64_t nth, failed; /* of calls, in all */
    bool forever;
} now;

static const char making_calls[] = "cuMemAddressReserve,cuMemCreate,cuMemMap,cuMemSetAccess";

/* Nothing here is longer: a scenario that did not come to its end would never pass. */
#define POINTS_MAX 4000

static void fail_each(const struct scenario *scenario, enum fault fault, const char *calls, bool forever)
{
    static struct run run;
    uint64_t hits = 1;
    now.scenario = scenario->name;
    now.fault = fault == FAULT_HOST             ? "host allocation"
                : calls == fault_driver_calls() ? "driver call"
                                                : calls;
    now.forever = forever;
    for (now.nth = 1; hits; now.nth++) {
        run_open(&run, scenario, fault);
        run.served = calls == making_calls;
        fault_arm(&run, calls, now.nth, forever);
        scenario->act(&run);
        hits = fault_disarm();
        if (!hits && scenario->stitches)
            assert_true(fixture_count(&run.f, SM_COUNTER_stitches) >= scenario->stitches);
        now.failed += hits;
        run_close(&run);
        assert_true(now.nth < POINTS_MAX);
    }
}

/* Fail together, or alone, for ever. */
static const char *const some_calls[] = {
    "cuMemSetAccess,cuMemUnmap",
    "cuMemMap,cuMemRelease",
    "cuMemSetAccess,cuMemUnmap,cuMemRelease",
    "cuMemSetAccess,cuMemUnmap,cuMemAddressFree",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuStreamQuery,cuStreamSynchronize",
    "cuEventSynchronize,cuStreamSynchronize,cuCtxSynchronize",
    "cuMemGetInfo,cuMemCreate",
    "cuMemAlloc",
    "cuMemFree",
    "cuCtxPushCurrent",
    "cuThreadExchangeStreamCaptureMode",
};

void fault_points(const struct scenario *scenario)
{
    for (int forever = 0; forever < 2; forever++)
        for (int fault = 0; fault < FAULT_COUNT; fault++) {
            now.failed = 0;
            fail_each(scenario, (enum fault)fault, fault_driver_calls(), forever);
            print_message("%s: %lu points, %lu %ss failed, %s\n", scenario->name, now.nth - 2, now.failed,
                          now.fault, forever ? "for ever" : "once");
        }
    now.scenario = NULL;
}

void fault_every(void **state)
{
    const struct scenario *scenario = *state;
    fault_points(scenario);
    if (scenario->served) {
        now.failed = 0;
        fail_each(scenario, FAULT_DRIVER, making_calls, false);
        assert_true(now.failed > 0);
    }
    now.failed = 0;
    for (size_t i = 0; i < sizeof(some_calls) / sizeof(some_calls[0]); i++)
        fail_each(scenario, FAULT_DRIVER, some_calls[i], true);
    print_message("%s: %lu chosen calls failed\n", scenario->name, now.failed);
    now.scenario = NULL;
}

int fault_say_where(void **state)
{
    (void)state;
    fault_disarm();
    if (now.scenario)
        print_error("scenario \"%s\": %s %lu failed, %s\n", now.scenario, now.fault, now.nth,
                    now.forever ? "for ever" : "once");
    now.scenario = NULL;
    return 0;
}
