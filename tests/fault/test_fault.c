/* SPDX-License-Identifier: Apache-2.0 */
/* The fault test: in each scenario driver call number k fails, for every k until the scenario passes without
 * a failure; then host allocation number k. Once, and from then on until the scenario is over.
 *
 * While the fault lasts, after each operation: its code says what failed, the validator is content, the
 * statistics are the device's record, and the blocks that were there are where they were. Once it is over:
 * the next requests are served, a trim gives back all that is free, and in the end nothing is left. */
#include "base/log.h"
#include "tests/support/fixture.h"
#include <string.h>

#define BLOCKS 64

enum fault { FAULT_DRIVER, FAULT_HOST, FAULT_COUNT };

struct block {
    CUdeviceptr address;
    uint64_t size;
    uint64_t handles[2], offsets[2]; /* of the first and the last byte */
};

struct run {
    struct fixture f;
    enum fault fault;
    CUstream streams[4];
    struct block blocks[BLOCKS]; /* in the order of their requests; address 0: refused or freed */
    unsigned count;
    bool may_run_out, served;
    const char *doing;
};

struct scenario {
    const char *name;
    const char *options;
    void (*prepare)(struct run *run); /* without faults */
    void (*act)(struct run *run);
    int devices;
    unsigned stitches; /* that it makes when nothing fails, preparation included */
    bool served;       /* one call that makes memory or maps it fails: all requests are served another way */
};

/* Everything the allocator calls of the driver, but what tells texts, and cuCtxPopCurrent: it fails only
 * where there is no context, and what a caller could do about it needs the context that is not there. */
static const char *driver_calls(void)
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

static void arm(struct run *run, const char *calls, uint64_t nth, bool forever)
{
    if (run->fault == FAULT_DRIVER)
        assert_true(sim_fail_any_of(calls, nth, forever));
    else
        sm_fault_arm(sm_hostmem_fault(), nth, forever);
}

/* Returns: failures since it was armed. */
static uint64_t disarm(void)
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

static void check_blocks(const struct run *run)
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

static void check(struct run *run, seam_result result)
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
    check_blocks(run);
}

static bool set_up(struct run *run, int ordinal)
{
    struct sm_device *device = NULL;
    run->doing = "device set-up";
    seam_result result = sm_allocator_device(run->f.allocator, ordinal, &device, &run->f.error);
    check(run, result);
    if (!ordinal && !result)
        run->f.device = device;
    assert_true(!result == !!device);
    return !result;
}

static void request(struct run *run, uint64_t size, CUstream stream)
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
    check(run, block->address ? SEAM_OK : run->f.error.code);
    assert_true(block->address || run->f.error.code);
    assert_true(block->address || !run->served);
}

static void give(struct run *run, unsigned i)
{
    CUdeviceptr address = run->blocks[i].address;
    if (!address)
        return;
    run->blocks[i].address = 0;
    run->doing = "free";
    assert_int_equal(sm_pool_free(run->f.device, address), SEAM_OK);
    check(run, SEAM_OK);
    assert_int_equal(sm_pool_free(run->f.device, address), SEAM_E_POINTER);
}

/* Work on the stream, recorded. A stream whose use could not be noted does not use the block. */
static void use(struct run *run, unsigned i, CUstream stream)
{
    CUdeviceptr address = run->blocks[i].address;
    if (!address)
        return;
    run->doing = "record_stream";
    seam_result result = sm_pool_record_stream(run->f.device, address, stream, &run->f.error);
    check(run, result);
    if (!result)
        fixture_work(stream, address, 512);
}

static void trim(struct run *run)
{
    run->doing = "trim";
    if (run->f.device)
        sm_reclaim_trim(run->f.device);
    check(run, SEAM_OK);
}

static void tick(struct run *run, seam_result result, const char *doing)
{
    run->doing = doing;
    check(run, result);
}

/* ---- scenarios ---- */

static void with_device(struct run *run)
{
    assert_true(set_up(run, 0));
}

static void act_set_up(struct run *run)
{
    set_up(run, 0);
    set_up(run, 1);
    request(run, MIB, NULL);
}

static void one_block(struct run *run)
{
    with_device(run);
    request(run, 3 * MIB, run->streams[0]);
}

static void act_growth(struct run *run)
{
    request(run, 100 * MIB, run->streams[0]);
    request(run, 100, run->streams[0]);
    request(run, 5 * MIB, run->streams[0]);
}

static void act_new_homes(struct run *run)
{
    request(run, 20 * MIB, run->streams[1]);
    request(run, 700, run->streams[2]);
    request(run, 700, NULL);
}

/* A hole between live blocks, and memory that ends in the middle of a handle. */
static void a_hole(struct run *run)
{
    with_device(run);
    for (int i = 0; i < 6; i++)
        request(run, 8 * MIB, run->streams[0]);
    give(run, 1);
    give(run, 2);
    give(run, 4);
    trim(run);
    request(run, 2 * MIB + 512, run->streams[0]);
}

static void act_fill_the_hole(struct run *run)
{
    request(run, 16 * MIB, run->streams[0]);
    request(run, 30 * MIB, run->streams[0]);
    request(run, 9 * MIB, run->streams[0]);
    give(run, 0);
    request(run, 8 * MIB, run->streams[0]);
}

static void blocks_in_use(struct run *run)
{
    with_device(run);
    for (int i = 0; i < 4; i++)
        request(run, (uint64_t)(i + 1) * 3 * MIB, run->streams[0]);
}

static void act_record_and_free(struct run *run)
{
    for (unsigned i = 0; i < 4; i++) {
        use(run, i, run->streams[1 + i % 2]);
        (void)sim_stream_run(run->streams[1 + i % 2]);
        use(run, i, run->streams[3]);
        (void)sim_stream_run(run->streams[3]);
        give(run, i);
    }
    request(run, 6 * MIB, run->streams[0]);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sim_stream_run(run->streams[i]), CUDA_SUCCESS);
    request(run, 6 * MIB, run->streams[0]);
    request(run, 6 * MIB, run->streams[0]);
}

static void free_memory_of_busy_streams(struct run *run)
{
    with_device(run);
    for (unsigned i = 0; i < 9; i++) {
        request(run, (i + 1) * 2 * MIB, run->streams[i % 3]);
        fixture_work(run->streams[i % 3], run->blocks[i].address, 512);
    }
    for (unsigned i = 0; i < 9; i++)
        if (i % 4)
            give(run, i);
}

static void act_trim(struct run *run)
{
    trim(run);
    request(run, 5 * MIB, run->streams[1]);
    trim(run);
}

static void act_pool(struct run *run)
{
    const seam_pool_id id = {4, 2};
    struct sm_error *error = &run->f.error;
    unsigned first = run->count;
    seam_result begun = sm_capture_begin(run->f.device, id, NULL, NULL, error);
    tick(run, begun, "pool begin");
    request(run, 4 * MIB, run->streams[0]);
    request(run, 100, run->streams[1]);
    use(run, first, run->streams[2]);
    give(run, first);
    if (!begun) {
        tick(run, sm_capture_end(run->f.device, id, error), "pool end");
        tick(run, sm_capture_release(run->f.device, id, error), "pool release");
    }
    trim(run);
    give(run, first + 1);
    trim(run);
}

static void act_phases(struct run *run)
{
    struct sm_allocator *allocator = run->f.allocator;
    struct sm_error *error = &run->f.error;
    uint64_t window = 0;
    seam_result outer = sm_allocator_phase_push(allocator, "outer", false, error);
    tick(run, outer, "phase push");
    request(run, MIB, run->streams[0]);
    seam_result inner = sm_allocator_phase_push(allocator, "inner", false, error);
    tick(run, inner, "phase push");
    seam_result own = sm_allocator_phase_push(allocator, "own", true, error);
    tick(run, own, "thread phase push");
    seam_result look = sm_allocator_window_open(allocator, "look", &window, error);
    tick(run, look, "window open");
    set_up(run, 1); /* begins inside of all that */
    request(run, 7 * MIB, run->streams[1]);
    if (!look)
        tick(run, sm_allocator_window_close(allocator, window, error), "window close");
    if (!own)
        tick(run, sm_allocator_phase_pop(allocator, true, error), "thread phase pop");
    if (!inner)
        tick(run, sm_allocator_phase_pop(allocator, false, error), "phase pop");
    if (!outer)
        tick(run, sm_allocator_phase_pop(allocator, false, error), "phase pop");
    assert_int_equal(sm_allocator_phase_pop(allocator, false, error), SEAM_E_STATE);
}

/* The device is full: with idle memory of one stream, busy memory of another, and blocks that wait. */
static void a_full_device(struct run *run)
{
    with_device(run);
    for (unsigned i = 0; i < 3; i++)
        request(run, 300 * MIB, run->streams[i]);
    fixture_work(run->streams[1], run->blocks[1].address, 512);
    give(run, 1);
    give(run, 2);
    use(run, 0, run->streams[3]);
    give(run, 0);
}

static void act_ladder(struct run *run)
{
    run->may_run_out = true;
    request(run, 500 * MIB, run->streams[2]);
    request(run, 400 * MIB, run->streams[0]);
    request(run, 2 * GIB, run->streams[0]);
}

/* ---- scenarios of stitching ---- */

/* No slack and no small class: each block below is a handle of its own. */
#define EXACT "slack_permille:0,small_limit_kib:0"

/* Blocks 0 .. 6 of 8 MiB, the even ones freed: four holes. */
static void holes(struct run *run)
{
    with_device(run);
    for (int i = 0; i < 7; i++)
        request(run, 8 * MIB, run->streams[0]);
    for (unsigned i = 0; i < 7; i += 2)
        give(run, i);
}

static void act_stitch(struct run *run)
{
    request(run, 24 * MIB, run->streams[0]);
    request(run, 12 * MIB, run->streams[0]); /* the last hole, and new memory behind it */
}

static void act_stitch_with_growth(struct run *run)
{
    request(run, 75 * MIB, run->streams[0]);
    give(run, 7);
    request(run, 75 * MIB, run->streams[0]);
}

/* Holes of two streams, one of them known to be done and one not. */
static void holes_of_streams(struct run *run)
{
    with_device(run);
    for (unsigned i = 0; i < 12; i++)
        request(run, 8 * MIB, run->streams[i % 3]);
    for (unsigned i = 0; i < 6; i++)
        give(run, i);
    request(run, 2 * MIB, run->streams[2]);
    if (run->blocks[12].address)
        fixture_work(run->streams[2], run->blocks[12].address, 512);
    give(run, 12);
}

static void act_borrow(struct run *run)
{
    request(run, 30 * MIB, run->streams[0]); /* its own, and another's */
    if (run->blocks[13].address)
        fixture_work(run->streams[0], run->blocks[13].address, 512);
    give(run, 13);
    request(run, 8 * MIB, run->streams[1]);
    assert_int_equal(sim_stream_run(run->streams[0]), CUDA_SUCCESS);
    assert_int_equal(sim_stream_run(run->streams[2]), CUDA_SUCCESS);
    request(run, 30 * MIB, run->streams[1]);
    give(run, 15);
    request(run, 7 * MIB, run->streams[3]);
}

/* A view that was used and is free. */
static void a_view(struct run *run)
{
    holes(run);
    request(run, 32 * MIB, run->streams[0]);
    give(run, 7);
}

static void act_reuse(struct run *run)
{
    request(run, 32 * MIB, run->streams[0]);
    use(run, 8, run->streams[1]);
    give(run, 8);
    request(run, 20 * MIB, run->streams[0]);
    assert_int_equal(sim_stream_run(run->streams[1]), CUDA_SUCCESS);
    request(run, 20 * MIB, run->streams[0]);
    request(run, 10 * MIB, run->streams[0]);
}

/* Three views; the first of them in part in use, the second by a stream at work. */
static void views(struct run *run)
{
    a_view(run);
    request(run, 20 * MIB, run->streams[0]); /* 8, in the first */
    request(run, 16 * MIB, run->streams[0]); /* 9: what is left, and growth */
    request(run, 8 * MIB, run->streams[0]);
    request(run, 8 * MIB, run->streams[0]);
    give(run, 9);
    request(run, 16 * MIB, run->streams[0]);
    if (run->blocks[12].address)
        fixture_work(run->streams[0], run->blocks[12].address, 512);
    give(run, 12);
}

static void act_trim_views(struct run *run)
{
    trim(run);
    request(run, 18 * MIB, run->streams[0]);
    give(run, 8);
    trim(run);
    request(run, 18 * MIB, run->streams[1]);
}

/* Eviction alone, with few mappings left to keep and with none. */
static void act_evict(struct run *run)
{
    for (uint64_t keep = 4; keep != UINT64_MAX; keep -= keep ? 4 : 1) {
        struct sm_visit visit;
        run->doing = "evict";
        sm_lock_take(&run->f.device->memory_lock);
        if (!sm_device_enter(run->f.device, &visit, NULL)) {
            (void)sm_stitch_evict(run->f.device, keep, keep ? SM_TRIM_IDLE_ONLY : SM_TRIM_WAIT);
            sm_device_leave(run->f.device, &visit);
        }
        sm_lock_give(&run->f.device->memory_lock);
        check(run, SEAM_OK);
    }
    request(run, 18 * MIB, run->streams[0]);
}

/* The device is full, and all its free memory is in holes. */
static void a_device_full_of_holes(struct run *run)
{
    holes(run);
    request(run, 960 * MIB, run->streams[0]);
    give(run, 1);
}

static void act_stitch_or_fail(struct run *run)
{
    run->may_run_out = true;
    request(run, 28 * MIB, run->streams[0]);
    request(run, 6 * MIB, run->streams[0]);
    request(run, 20 * MIB, run->streams[1]);
}

static void act_report(struct run *run)
{
    char text[512];
    assert_true(sm_report(run->f.allocator, -1, SM_EMIT_JSON, text, sizeof(text)) > 0);
    assert_true(sm_report(run->f.allocator, 0, SM_EMIT_TABLE, text, sizeof(text)) > 0);
    check(run, SEAM_OK);
}

static const struct scenario scenarios[] = {
    {"set-up", "", NULL, act_set_up, 2, 0, false},
    {"growth", "", one_block, act_growth, 1, 0, false},
    {"growth in small handles", "handle_mib:2,small_limit_kib:0", one_block, act_growth, 1, 0, false},
    {"growth with a split limit", "max_split_size_mb:20", one_block, act_growth, 1, 0, false},
    {"growth with peers", "", one_block, act_growth, 2, 0, false},
    {"new homes", "", one_block, act_new_homes, 1, 0, false},
    {"a hole filled", "slack_permille:0", a_hole, act_fill_the_hole, 1, 0, false},
    {"record and free", "", blocks_in_use, act_record_and_free, 1, 0, false},
    {"trim", "", free_memory_of_busy_streams, act_trim, 1, 0, false},
    {"pool", "", one_block, act_pool, 1, 0, false},
    {"phases", "", one_block, act_phases, 2, 0, false},
    {"ladder", "", a_full_device, act_ladder, 1, 0, false},
    {"garbage", "garbage_collection_threshold:0.5", a_full_device, act_ladder, 1, 0, false},
    {"report", "", blocks_in_use, act_report, 1, 0, false},
    {"stitch", EXACT, holes, act_stitch, 1, 1, true},
    {"stitch with growth", EXACT, holes, act_stitch_with_growth, 1, 1, true},
    {"stitch with growth in small handles", EXACT ",handle_mib:2", holes, act_stitch_with_growth, 2, 1, true},
    {"stitch: borrow", EXACT, holes_of_streams, act_borrow, 1, 1, false},
    {"stitch: reuse", EXACT, a_view, act_reuse, 1, 1, false},
    {"stitch: trim, thin", EXACT, views, act_trim_views, 1, 3, false},
    {"stitch: evict", EXACT, views, act_evict, 1, 2, false},
    {"stitch: full device", EXACT, a_device_full_of_holes, act_stitch_or_fail, 1, 1, false},
    {"expandable: set-up", "policy:expandable", NULL, act_set_up, 2, 0, false},
    {"expandable: growth", "policy:expandable", one_block, act_growth, 1, 0, false},
    {"expandable: a hole filled", "policy:expandable", a_hole, act_fill_the_hole, 1, 0, false},
    {"expandable: trim", "policy:expandable", free_memory_of_busy_streams, act_trim, 1, 0, false},
    {"expandable: ladder", "policy:expandable", a_full_device, act_ladder, 1, 0, false},
    {"native: set-up", "policy:native", NULL, act_set_up, 2, 0, false},
    {"native: growth", "policy:native", one_block, act_growth, 1, 0, false},
    {"native: record and free", "policy:native", blocks_in_use, act_record_and_free, 1, 0, false},
    {"native: trim", "policy:native", free_memory_of_busy_streams, act_trim, 1, 0, false},
    {"native: pool", "policy:native", one_block, act_pool, 1, 0, false},
    {"native: ladder", "policy:native", a_full_device, act_ladder, 1, 0, false},
};

/* ---- one run ---- */

static void open_run(struct run *run, const struct scenario *scenario, enum fault fault)
{
    memset(run, 0, sizeof(*run));
    run->fault = fault;
    fixture_init(&run->f);
    run->f.sim.devices = scenario->devices;
    run->f.sim.streams = SIM_STREAMS_LAG;
    run->f.sim.lag = 1u << 30;
    fixture_open(&run->f, scenario->options);
    for (int i = 0; i < 4; i++)
        run->streams[i] = fixture_stream();
    if (scenario->prepare)
        scenario->prepare(run);
}

/* The fault is over: everything works again, and everything comes back. */
static void close_run(struct run *run)
{
    struct sim_live live;
    run->doing = "afterwards";
    fixture_check(&run->f);
    check_blocks(run);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sim_stream_run(run->streams[i]), CUDA_SUCCESS);
    for (unsigned i = 0; i < run->count; i++)
        give(run, i);
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

static void fail_each(const struct scenario *scenario, enum fault fault, const char *calls, bool forever)
{
    static struct run run;
    uint64_t hits = 1;
    now.scenario = scenario->name;
    now.fault = fault == FAULT_HOST ? "host allocation" : calls == driver_calls() ? "driver call" : calls;
    now.forever = forever;
    for (now.nth = 1; hits; now.nth++) {
        open_run(&run, scenario, fault);
        run.served = calls == making_calls;
        arm(&run, calls, now.nth, forever);
        scenario->act(&run);
        hits = disarm();
        if (!hits && scenario->stitches)
            assert_true(fixture_count(&run.f, SM_COUNTER_stitches) >= scenario->stitches);
        now.failed += hits;
        close_run(&run);
        /* Nothing here is longer: a scenario that did not come to its end would never pass. */
        assert_true(now.nth < 2000);
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

static void every_failure(void **state)
{
    const struct scenario *scenario = *state;
    for (int forever = 0; forever < 2; forever++)
        for (int fault = 0; fault < FAULT_COUNT; fault++) {
            now.failed = 0;
            fail_each(scenario, (enum fault)fault, driver_calls(), forever);
            print_message("%s: %lu points, %lu %ss failed, %s\n", scenario->name, now.nth - 2, now.failed,
                          now.fault, forever ? "for ever" : "once");
        }
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

static int say_where(void **state)
{
    (void)state;
    disarm();
    if (now.scenario)
        print_error("scenario \"%s\": %s %lu failed, %s\n", now.scenario, now.fault, now.nth,
                    now.forever ? "for ever" : "once");
    now.scenario = NULL;
    return 0;
}

/* The allocator's own creation, where there is nothing yet to look at. */
static void creation(void **state)
{
    (void)state;
    for (int fault = 0; fault < FAULT_COUNT; fault++)
        for (uint64_t nth = 1, hits = 1; hits; nth++) {
            struct run run = {.fault = (enum fault)fault};
            struct sm_allocator *allocator = NULL;
            fixture_init(&run.f);
            fixture_open(&run.f, "");
            arm(&run, driver_calls(), nth, false);
            seam_result result = sm_allocator_create(&run.f.driver, &run.f.options, &allocator, &run.f.error);
            hits = disarm();
            assert_int_equal(result, !hits ? SEAM_OK : fault == FAULT_HOST ? SEAM_E_HOST_OOM : SEAM_E_DEVICE);
            assert_true(!result == !!allocator);
            if (allocator)
                sm_allocator_destroy(allocator);
            fixture_close(&run.f);
        }
}

int main(void)
{
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))
    struct CMUnitTest tests[SCENARIOS + 1];
    for (size_t i = 0; i < SCENARIOS; i++)
        tests[i] = (struct CMUnitTest){.name = scenarios[i].name,
                                       .test_func = every_failure,
                                       .teardown_func = say_where,
                                       .initial_state = (void *)(uintptr_t)&scenarios[i]};
    tests[SCENARIOS] = (struct CMUnitTest)cmocka_unit_test_teardown(creation, say_where);
    sm_log_set_level(SM_LOG_ERROR); /* refused handles are what this is about */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
