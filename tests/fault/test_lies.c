/* SPDX-License-Identifier: Apache-2.0 */
/* Drivers that say one thing and do another (lies.h), at every point of a program, once and for ever, under
 * every policy.
 *
 * What must hold whatever is said: the validator is content, the blocks that were there are where they were
 * and can be reached, no request is given memory that is not there, and once the driver is honest again the
 * next requests are served. Where the driver can be asked what is so (mappings and plain allocations), the
 * statistics are the device's record in the end; what it keeps for itself without a word nobody can know.
 * A lie that is told for ever begins at one of the first calls: later ones meet the same states. */
#include "base/log.h"
#include "tests/fault/faults.h"
#include "tests/fault/lies.h"
#include <string.h>

static struct {
    const char *options, *name;
    enum lie lie;
    uint64_t nth, told;
    bool forever;
} now;

/* Can what the lie hides be found out? */
static bool is_answerable(enum liar liar, enum lie lie)
{
    switch (liar) {
    case LIAR_cuMemMap:
        return true;
    case LIAR_cuMemUnmap: /* not done, it is found when memory grows there again */
    case LIAR_cuMemFree:
    case LIAR_cuMemSetAccess:
    case LIAR_cuEventRecord:
    case LIAR_cuEventQuery:
    case LIAR_cuEventSynchronize:
    case LIAR_cuStreamQuery:
    case LIAR_cuStreamSynchronize:
    case LIAR_cuCtxSynchronize:
        return lie == LIE_FAILED;
    default:
        return false;
    }
}

/* Memory that is lost with each lie: for ever, that is all there is. */
static bool takes_memory(enum liar liar, enum lie lie)
{
    return lie == LIE_FAILED ? liar == LIAR_cuMemCreate || liar == LIAR_cuMemAlloc
                             : liar == LIAR_cuMemRelease || liar == LIAR_cuMemFree;
}

static void look(struct run *run)
{
    if (sm_allocator_validate(run->f.allocator, &run->f.error))
        fail_msg("%s: %s", run->doing, run->f.error.text);
    run_check_blocks(run);
}

static void request(struct run *run, uint64_t size, CUstream stream)
{
    struct block *block = &run->blocks[run->count++];
    *block = (struct block){.size = size};
    run->doing = "request";
    block->address = sm_pool_alloc(run->f.device, size, stream, &run->f.error);
    if (block->address) {
        if (!sim_resolve(block->address, &block->handles[0], &block->offsets[0]) ||
            !sim_resolve(block->address + size - 1, &block->handles[1], &block->offsets[1]))
            fail_msg("memory that is not there was handed out");
    }
    look(run);
}

static void give(struct run *run, unsigned i)
{
    CUdeviceptr address = run->blocks[i].address;
    run->blocks[i].address = 0;
    run->doing = "free";
    if (address)
        assert_int_equal(sm_pool_free(run->f.device, address), SEAM_OK);
    look(run);
}

static void use(struct run *run, unsigned i, CUstream stream)
{
    if (!run->blocks[i].address ||
        sm_pool_record_stream(run->f.device, run->blocks[i].address, stream, &run->f.error))
        return;
    fixture_work(stream, run->blocks[i].address, 512);
}

static void trim(struct run *run)
{
    run->doing = "trim";
    sm_reclaim_trim(run->f.device);
    look(run);
}

/* Growth, splits, holes that are filled or joined, other streams, trims, and memory that runs short. */
static void act(struct run *run)
{
    CUstream *s = run->streams;
    for (unsigned i = 0; i < 6; i++)
        request(run, 8 * MIB, s[0]);
    request(run, 900, s[0]);
    request(run, 30 * MIB, s[1]);
    use(run, 3, s[2]);
    for (unsigned i = 1; i < 6; i += 2)
        give(run, i);
    request(run, 24 * MIB, s[0]); /* 8 */
    give(run, 8);
    request(run, 24 * MIB, s[0]); /* 9 */
    trim(run);
    request(run, 50 * MIB, s[0]); /* 10 */
    give(run, 9);
    give(run, 10);
    trim(run);
    request(run, 40 * MIB, s[0]); /* 11 */
    request(run, 700 * MIB, s[0]);
    give(run, 12);
    request(run, 800 * MIB, s[1]);
    request(run, 20 * MIB, s[1]);
}

static void served(struct run *run, uint64_t size, CUstream stream)
{
    unsigned i = run->count;
    request(run, size, stream);
    if (!run->blocks[i].address)
        fail_msg("afterwards %lu bytes were refused: %s", size, run->f.error.text);
    assert_true(sim_accessible(run->blocks[i].address, 0) &&
                sim_accessible(run->blocks[i].address + size - 1, 0));
    give(run, i);
}

static void close_run(struct run *run, bool answerable)
{
    run->doing = "afterwards";
    for (int i = 0; i < 4; i++)
        assert_int_equal(sim_stream_run(run->streams[i]), CUDA_SUCCESS);
    for (unsigned i = 0; i < run->count; i++)
        give(run, i);
    for (int i = 0; i < 3; i++) {
        served(run, 8 * MIB, run->streams[i]);
        served(run, 300, run->streams[i]);
        served(run, 60 * MIB, run->streams[i]);
    }
    trim(run);
    trim(run);
    served(run, 16 * MIB, run->streams[3]);
    trim(run);
    assert_int_equal(fixture_level(&run->f, SM_LEVEL_active_bytes), 0);
    if (answerable) {
        struct sim_live live;
        sim_live(&live);
        assert_int_equal(fixture_level(&run->f, SM_LEVEL_reserved_bytes), sim_physical_bytes(0));
        assert_int_equal(fixture_level(&run->f, SM_LEVEL_mappings), live.mappings);
        assert_int_equal(fixture_level(&run->f, SM_LEVEL_reserved_address_bytes), live.reserved_bytes);
        assert_int_equal(sim_physical_bytes(0), 0);
    }
    sm_allocator_destroy(run->f.allocator);
    sm_driver_close(&run->f.driver);
}

#define FIRST 6

static bool lie_once(const char *options, enum liar liar, enum lie lie, uint64_t nth, bool forever)
{
    static struct run run;
    const struct scenario scenario = {.options = options, .devices = 1};
    run_open(&run, &scenario, FAULT_LIE);
    lies_put(&run.f.driver);
    fixture_device(&run.f, 0);
    lies_arm(liar, lie, nth, forever);
    act(&run);
    uint64_t told = lies_disarm();
    now.told += told;
    close_run(&run, is_answerable(liar, lie));
    return told > 0;
}

static void lies(void **state)
{
    now.options = *state;
    for (enum liar liar = 0; liar < LIAR_COUNT; liar++)
        for (enum lie lie = LIE_FAILED; lie <= LIE_DONE; lie++)
            for (int forever = 0; forever <= !takes_memory(liar, lie) && liar_lies(liar, lie); forever++) {
                now.name = liar_name(liar);
                now.lie = lie;
                now.forever = forever;
                for (now.nth = 1; !forever || now.nth <= FIRST; now.nth++)
                    if (!lie_once(now.options, liar, lie, now.nth, forever))
                        break;
            }
    print_message("%s: %lu lies\n", now.options, now.told);
    assert_true(now.told > 50);
    now.told = 0;
    now.name = NULL;
}

/* As a driver may that looks at the reservation: from its begin on. */
static struct {
    CUresult (*range)(CUdeviceptr *base, size_t *size, CUdeviceptr address);
    CUdeviceptr begin;
} wide;

static CUresult range_from_the_begin(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    CUresult code = wide.range(base, size, address);
    if (code != CUDA_SUCCESS)
        return code;
    *size += *base - wide.begin;
    *base = wide.begin;
    return CUDA_SUCCESS;
}

/* What is unmapped to make way for growth is never more than lies in the way. */
static void an_answer_that_is_too_wide_costs_nothing_live(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_open(&f, "small_limit_kib:0,slack_permille:0");
    lies_put(&f.driver);
    wide.range = f.driver.cuMemGetAddressRange;
    f.driver.cuMemGetAddressRange = range_from_the_begin;
    CUdeviceptr a = fixture_alloc(&f, 20 * MIB, NULL);
    wide.begin = a;
    lies_arm(LIAR_cuMemMap, LIE_FAILED, 1, false);
    CUdeviceptr b = sm_pool_alloc(f.device, 20 * MIB, NULL, &f.error);
    assert_true(b);
    assert_int_equal(lies_disarm(), 1);
    assert_true(sim_accessible(a, 0) && sim_accessible(a + 20 * MIB - 1, 0) && sim_accessible(b, 0));
    assert_int_equal(sm_pool_free(f.device, a), SEAM_OK);
    assert_int_equal(sm_pool_free(f.device, b), SEAM_OK);
    sm_allocator_destroy(f.allocator);
    sm_driver_close(&f.driver);
}

static int say_where(void **state)
{
    (void)state;
    lies_disarm();
    if (now.name)
        print_error("options \"%s\": %s number %lu %s, %s\n", now.options, now.name, now.nth,
                    now.lie == LIE_DONE ? "did not do what it said" : "did what it said had failed",
                    now.forever ? "for ever" : "once");
    now.name = NULL;
    now.told = 0;
    return 0;
}

int main(void)
{
    static const char *const options[] = {
        "",
        "slack_permille:0,small_limit_kib:0",
        "handle_mib:32,max_split_size_mb:20",
        "policy:expandable",
        "policy:native,max_split_size_mb:32",
    };
#define OPTIONS (sizeof(options) / sizeof(options[0]))
    struct CMUnitTest tests[OPTIONS + 1] = {
        [OPTIONS] = cmocka_unit_test(an_answer_that_is_too_wide_costs_nothing_live)};
    for (size_t i = 0; i < OPTIONS; i++)
        tests[i] = (struct CMUnitTest){.name = options[i][0] ? options[i] : "default",
                                       .test_func = lies,
                                       .teardown_func = say_where,
                                       .initial_state = (void *)(uintptr_t)options[i]};
    sm_log_set_level(SM_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
