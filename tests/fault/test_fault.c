/* SPDX-License-Identifier: Apache-2.0 */
/* The fault test: chosen scenarios, in each of which every driver call and every host allocation fails (see
 * faults.h). */
#include "base/log.h"
#include "tests/fault/faults.h"

/* ---- scenarios ---- */

static void with_device(struct run *run)
{
    assert_true(run_set_up(run, 0));
}

static void act_set_up(struct run *run)
{
    run_set_up(run, 0);
    run_set_up(run, 1);
    run_request(run, MIB, NULL);
}

static void one_block(struct run *run)
{
    with_device(run);
    run_request(run, 3 * MIB, run->streams[0]);
}

static void act_growth(struct run *run)
{
    run_request(run, 100 * MIB, run->streams[0]);
    run_request(run, 100, run->streams[0]);
    run_request(run, 5 * MIB, run->streams[0]);
}

static void act_new_homes(struct run *run)
{
    run_request(run, 20 * MIB, run->streams[1]);
    run_request(run, 700, run->streams[2]);
    run_request(run, 700, NULL);
}

/* A hole between live blocks, and memory that ends in the middle of a handle. */
static void a_hole(struct run *run)
{
    with_device(run);
    for (int i = 0; i < 6; i++)
        run_request(run, 8 * MIB, run->streams[0]);
    run_give(run, 1);
    run_give(run, 2);
    run_give(run, 4);
    run_trim(run);
    run_request(run, 2 * MIB + 512, run->streams[0]);
}

static void act_fill_the_hole(struct run *run)
{
    run_request(run, 16 * MIB, run->streams[0]);
    run_request(run, 30 * MIB, run->streams[0]);
    run_request(run, 9 * MIB, run->streams[0]);
    run_give(run, 0);
    run_request(run, 8 * MIB, run->streams[0]);
}

static void blocks_in_use(struct run *run)
{
    with_device(run);
    for (int i = 0; i < 4; i++)
        run_request(run, (uint64_t)(i + 1) * 3 * MIB, run->streams[0]);
}

static void act_record_and_free(struct run *run)
{
    for (unsigned i = 0; i < 4; i++) {
        run_use(run, i, run->streams[1 + i % 2]);
        (void)sim_stream_run(run->streams[1 + i % 2]);
        run_use(run, i, run->streams[3]);
        (void)sim_stream_run(run->streams[3]);
        run_give(run, i);
    }
    run_request(run, 6 * MIB, run->streams[0]);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sim_stream_run(run->streams[i]), CUDA_SUCCESS);
    run_request(run, 6 * MIB, run->streams[0]);
    run_request(run, 6 * MIB, run->streams[0]);
}

static void free_memory_of_busy_streams(struct run *run)
{
    with_device(run);
    for (unsigned i = 0; i < 9; i++) {
        run_request(run, (i + 1) * 2 * MIB, run->streams[i % 3]);
        fixture_work(run->streams[i % 3], run->blocks[i].address, 512);
    }
    for (unsigned i = 0; i < 9; i++)
        if (i % 4)
            run_give(run, i);
}

static void act_trim(struct run *run)
{
    run_trim(run);
    run_request(run, 5 * MIB, run->streams[1]);
    run_trim(run);
}

static void act_pool(struct run *run)
{
    const seam_pool_id id = {4, 2};
    struct sm_error *error = &run->f.error;
    unsigned first = run->count;
    seam_result begun = sm_capture_begin(run->f.device, id, NULL, NULL, error);
    run_tick(run, begun, "pool begin");
    run_request(run, 4 * MIB, run->streams[0]);
    run_request(run, 100, run->streams[1]);
    run_use(run, first, run->streams[2]);
    run_give(run, first);
    if (!begun) {
        run_tick(run, sm_capture_end(run->f.device, id, error), "pool end");
        run_tick(run, sm_capture_release(run->f.device, id, error), "pool release");
    }
    run_trim(run);
    run_give(run, first + 1);
    run_trim(run);
}

static void act_phases(struct run *run)
{
    struct sm_allocator *allocator = run->f.allocator;
    struct sm_error *error = &run->f.error;
    uint64_t window = 0;
    seam_result outer = sm_allocator_phase_push(allocator, "outer", false, error);
    run_tick(run, outer, "phase push");
    run_request(run, MIB, run->streams[0]);
    seam_result inner = sm_allocator_phase_push(allocator, "inner", false, error);
    run_tick(run, inner, "phase push");
    seam_result own = sm_allocator_phase_push(allocator, "own", true, error);
    run_tick(run, own, "thread phase push");
    seam_result look = sm_allocator_window_open(allocator, "look", &window, error);
    run_tick(run, look, "window open");
    run_set_up(run, 1); /* begins inside of all that */
    run_request(run, 7 * MIB, run->streams[1]);
    if (!look)
        run_tick(run, sm_allocator_window_close(allocator, window, error), "window close");
    if (!own)
        run_tick(run, sm_allocator_phase_pop(allocator, true, error), "thread phase pop");
    if (!inner)
        run_tick(run, sm_allocator_phase_pop(allocator, false, error), "phase pop");
    if (!outer)
        run_tick(run, sm_allocator_phase_pop(allocator, false, error), "phase pop");
    assert_int_equal(sm_allocator_phase_pop(allocator, false, error), SEAM_E_STATE);
}

/* The device is full: with idle memory of one stream, busy memory of another, and blocks that wait. */
static void a_full_device(struct run *run)
{
    with_device(run);
    for (unsigned i = 0; i < 3; i++)
        run_request(run, 300 * MIB, run->streams[i]);
    fixture_work(run->streams[1], run->blocks[1].address, 512);
    run_give(run, 1);
    run_give(run, 2);
    run_use(run, 0, run->streams[3]);
    run_give(run, 0);
}

static void act_ladder(struct run *run)
{
    run->may_run_out = true;
    run_request(run, 500 * MIB, run->streams[2]);
    run_request(run, 400 * MIB, run->streams[0]);
    run_request(run, 2 * GIB, run->streams[0]);
}

/* ---- scenarios of stitching ---- */

/* No slack and no small class: each block below is a handle of its own. */
#define EXACT "slack_permille:0,small_limit_kib:0"

/* Blocks 0 .. 6 of 8 MiB, the even ones freed: four holes. */
static void holes(struct run *run)
{
    with_device(run);
    for (int i = 0; i < 7; i++)
        run_request(run, 8 * MIB, run->streams[0]);
    for (unsigned i = 0; i < 7; i += 2)
        run_give(run, i);
}

static void act_stitch(struct run *run)
{
    run_request(run, 24 * MIB, run->streams[0]);
    run_request(run, 12 * MIB, run->streams[0]); /* the last hole, and new memory behind it */
}

static void act_stitch_with_growth(struct run *run)
{
    run_request(run, 75 * MIB, run->streams[0]);
    run_give(run, 7);
    run_request(run, 75 * MIB, run->streams[0]);
}

/* Holes of two streams, one of them known to be done and one not. */
static void holes_of_streams(struct run *run)
{
    with_device(run);
    for (unsigned i = 0; i < 12; i++)
        run_request(run, 8 * MIB, run->streams[i % 3]);
    for (unsigned i = 0; i < 6; i++)
        run_give(run, i);
    run_request(run, 2 * MIB, run->streams[2]);
    if (run->blocks[12].address)
        fixture_work(run->streams[2], run->blocks[12].address, 512);
    run_give(run, 12);
}

static void act_borrow(struct run *run)
{
    run_request(run, 30 * MIB, run->streams[0]); /* its own, and another's */
    if (run->blocks[13].address)
        fixture_work(run->streams[0], run->blocks[13].address, 512);
    run_give(run, 13);
    run_request(run, 8 * MIB, run->streams[1]);
    assert_int_equal(sim_stream_run(run->streams[0]), CUDA_SUCCESS);
    assert_int_equal(sim_stream_run(run->streams[2]), CUDA_SUCCESS);
    run_request(run, 30 * MIB, run->streams[1]);
    run_give(run, 15);
    run_request(run, 7 * MIB, run->streams[3]);
}

/* A view that was used and is free. */
static void a_view(struct run *run)
{
    holes(run);
    run_request(run, 32 * MIB, run->streams[0]);
    run_give(run, 7);
}

static void act_reuse(struct run *run)
{
    run_request(run, 32 * MIB, run->streams[0]);
    run_use(run, 8, run->streams[1]);
    run_give(run, 8);
    run_request(run, 20 * MIB, run->streams[0]);
    assert_int_equal(sim_stream_run(run->streams[1]), CUDA_SUCCESS);
    run_request(run, 20 * MIB, run->streams[0]);
    run_request(run, 10 * MIB, run->streams[0]);
}

/* Three views; the first of them in part in use, the second by a stream at work. */
static void views(struct run *run)
{
    a_view(run);
    run_request(run, 20 * MIB, run->streams[0]); /* 8, in the first */
    run_request(run, 16 * MIB, run->streams[0]); /* 9: what is left, and growth */
    run_request(run, 8 * MIB, run->streams[0]);
    run_request(run, 8 * MIB, run->streams[0]);
    run_give(run, 9);
    run_request(run, 16 * MIB, run->streams[0]);
    if (run->blocks[12].address)
        fixture_work(run->streams[0], run->blocks[12].address, 512);
    run_give(run, 12);
}

static void act_trim_views(struct run *run)
{
    run_trim(run);
    run_request(run, 18 * MIB, run->streams[0]);
    run_give(run, 8);
    run_trim(run);
    run_request(run, 18 * MIB, run->streams[1]);
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
        run_check(run, SEAM_OK);
    }
    run_request(run, 18 * MIB, run->streams[0]);
}

/* The device is full, and all its free memory is in holes. */
static void a_device_full_of_holes(struct run *run)
{
    holes(run);
    run_request(run, 960 * MIB, run->streams[0]);
    run_give(run, 1);
}

static void act_stitch_or_fail(struct run *run)
{
    run->may_run_out = true;
    run_request(run, 28 * MIB, run->streams[0]);
    run_request(run, 6 * MIB, run->streams[0]);
    run_request(run, 20 * MIB, run->streams[1]);
}

static void act_report(struct run *run)
{
    char text[512];
    assert_true(sm_report(run->f.allocator, -1, SM_EMIT_JSON, text, sizeof(text)) > 0);
    assert_true(sm_report(run->f.allocator, 0, SM_EMIT_TABLE, text, sizeof(text)) > 0);
    run_check(run, SEAM_OK);
}

#define SCENARIO(named, with, before, does, count, makes, otherwise)                                         \
    {                                                                                                        \
        .name = (named), .options = (with), .prepare = (before), .act = (does), .devices = (count),          \
        .stitches = (makes), .served = (otherwise)                                                           \
    }

static const struct scenario scenarios[] = {
    SCENARIO("set-up", "", NULL, act_set_up, 2, 0, false),
    SCENARIO("growth", "", one_block, act_growth, 1, 0, false),
    SCENARIO("growth in small handles", "handle_mib:2,small_limit_kib:0", one_block, act_growth, 1, 0, false),
    SCENARIO("growth with a split limit", "max_split_size_mb:20", one_block, act_growth, 1, 0, false),
    SCENARIO("growth with peers", "", one_block, act_growth, 2, 0, false),
    SCENARIO("new homes", "", one_block, act_new_homes, 1, 0, false),
    SCENARIO("a hole filled", "slack_permille:0", a_hole, act_fill_the_hole, 1, 0, false),
    SCENARIO("record and free", "", blocks_in_use, act_record_and_free, 1, 0, false),
    SCENARIO("trim", "", free_memory_of_busy_streams, act_trim, 1, 0, false),
    SCENARIO("pool", "", one_block, act_pool, 1, 0, false),
    SCENARIO("phases", "", one_block, act_phases, 2, 0, false),
    SCENARIO("ladder", "", a_full_device, act_ladder, 1, 0, false),
    SCENARIO("garbage", "garbage_collection_threshold:0.5", a_full_device, act_ladder, 1, 0, false),
    SCENARIO("report", "", blocks_in_use, act_report, 1, 0, false),
    SCENARIO("stitch", EXACT, holes, act_stitch, 1, 1, true),
    SCENARIO("stitch with growth", EXACT, holes, act_stitch_with_growth, 1, 1, true),
    SCENARIO("stitch with growth in small handles", EXACT ",handle_mib:2", holes, act_stitch_with_growth, 2,
             1, true),
    {.name = "set-up where parts map", .options = "", .act = act_set_up, .devices = 2, .parts = true},
    {.name = "stitch: parts",
     .options = EXACT,
     .prepare = holes,
     .act = act_stitch,
     .devices = 1,
     .stitches = 1,
     .served = true,
     .parts = true},
    {.name = "stitch with growth: parts",
     .options = EXACT,
     .prepare = holes,
     .act = act_stitch_with_growth,
     .devices = 1,
     .stitches = 1,
     .served = true,
     .parts = true},
    {.name = "stitch: parts, trim, thin",
     .options = EXACT,
     .prepare = views,
     .act = act_trim_views,
     .devices = 1,
     .stitches = 3,
     .parts = true},
    SCENARIO("stitch: borrow", EXACT, holes_of_streams, act_borrow, 1, 1, false),
    SCENARIO("stitch: reuse", EXACT, a_view, act_reuse, 1, 1, false),
    SCENARIO("stitch: trim, thin", EXACT, views, act_trim_views, 1, 3, false),
    SCENARIO("stitch: evict", EXACT, views, act_evict, 1, 2, false),
    SCENARIO("stitch: full device", EXACT, a_device_full_of_holes, act_stitch_or_fail, 1, 1, false),
    SCENARIO("expandable: set-up", "policy:expandable", NULL, act_set_up, 2, 0, false),
    SCENARIO("expandable: growth", "policy:expandable", one_block, act_growth, 1, 0, false),
    SCENARIO("expandable: a hole filled", "policy:expandable", a_hole, act_fill_the_hole, 1, 0, false),
    SCENARIO("expandable: trim", "policy:expandable", free_memory_of_busy_streams, act_trim, 1, 0, false),
    SCENARIO("expandable: ladder", "policy:expandable", a_full_device, act_ladder, 1, 0, false),
    SCENARIO("native: set-up", "policy:native", NULL, act_set_up, 2, 0, false),
    SCENARIO("native: growth", "policy:native", one_block, act_growth, 1, 0, false),
    SCENARIO("native: record and free", "policy:native", blocks_in_use, act_record_and_free, 1, 0, false),
    SCENARIO("native: trim", "policy:native", free_memory_of_busy_streams, act_trim, 1, 0, false),
    SCENARIO("native: pool", "policy:native", one_block, act_pool, 1, 0, false),
    SCENARIO("native: ladder", "policy:native", a_full_device, act_ladder, 1, 0, false),
};

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
            fault_arm(&run, fault_driver_calls(), nth, false);
            seam_result result = sm_allocator_create(&run.f.driver, &run.f.options, &allocator, &run.f.error);
            hits = fault_disarm();
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
                                       .test_func = fault_every,
                                       .teardown_func = fault_say_where,
                                       .initial_state = (void *)(uintptr_t)&scenarios[i]};
    tests[SCENARIOS] = (struct CMUnitTest)cmocka_unit_test_teardown(creation, fault_say_where);
    sm_log_set_level(SM_LOG_ERROR); /* refused handles are what this is about */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
