/* SPDX-License-Identifier: Apache-2.0 */
/* Random programs under every policy, with faults at every point (faults.h): requests of all sizes on several
 * streams, work and its recording, frees, trims, private pools, limits. Each program is drawn from its seed
 * before anything fails, so that every point of it is met.
 *
 *   test_fault_programs [SEED]    other programs than those of seed 1 */
#include "base/log.h"
#include "tests/fault/faults.h"
#include "tests/support/random.h"
#include <stdlib.h>

#define STEPS 26

static const seam_pool_id pool = {3, 0};

/* Which block an operation is about: one that is there, if any. */
static unsigned choose(const struct run *run, struct random *random)
{
    uint64_t from = random_below(random, BLOCKS);
    for (unsigned i = 0; i < run->count; i++) {
        unsigned k = (unsigned)((from + i) % run->count);
        if (run->blocks[k].address)
            return k;
    }
    return UINT32_MAX;
}

static uint64_t some_size(struct random *random)
{
    switch (random_below(random, 5)) {
    case 0:
        return random_in(random, 1, 8000);
    case 1:
        return random_in(random, 1, 3) * 300 * SM_KIB;
    case 2:
        return random_in(random, 1, 40) * MIB + 512;
    case 3:
        return random_in(random, 1, 12) * 2 * MIB;
    default:
        return random_in(random, 30, 180) * MIB;
    }
}

struct program {
    struct random random;
    bool filling;           /* a pool */
    CUstream users[BLOCKS]; /* a block is used by one stream, as nothing orders its work with another's */
};

static void toggle_pool(struct run *run, struct program *program)
{
    struct sm_error *error = &run->f.error;
    if (!program->filling) {
        seam_result begun = sm_capture_begin(run->f.device, pool, NULL, NULL, error);
        program->filling = !begun;
        run_tick(run, begun, "pool begin");
        return;
    }
    run_tick(run, sm_capture_end(run->f.device, pool, error), "pool end");
    run_tick(run, sm_capture_release(run->f.device, pool, error), "pool release");
    program->filling = false;
}

static void use(struct run *run, struct program *program, unsigned which, CUstream stream)
{
    if (program->users[which] && program->users[which] != stream)
        return;
    program->users[which] = stream;
    run_use(run, which, stream);
}

static void step(struct run *run, struct program *program)
{
    struct random *random = &program->random;
    unsigned which = choose(run, random);
    CUstream stream = run->streams[random_below(random, 4)];
    uint64_t size = some_size(random), what = random_below(random, 100);
    if (what < 45 && run->count < BLOCKS)
        run_request(run, size, stream);
    else if (what < 55 && which != UINT32_MAX)
        use(run, program, which, stream);
    else if (what < 82 && which != UINT32_MAX)
        run_give(run, which);
    else if (what < 90)
        assert_int_equal(sim_stream_run(stream), CUDA_SUCCESS);
    else if (what < 95)
        run_trim(run);
    else if (run->f.device)
        toggle_pool(run, program);
}

static void act_program(struct run *run)
{
    struct program program = {.random = {run->seed}};
    run->may_run_out = true;
    if (!run_set_up(run, 0))
        return;
    for (int i = 0; i < STEPS; i++)
        step(run, &program);
    if (program.filling)
        toggle_pool(run, &program);
}

static const struct {
    const char *name, *options;
    unsigned lacks, lies;
} set_ups[] = {
    {"stitch", "", 0, 0},
    {"stitch, no slack", "slack_permille:0,small_limit_kib:0", 0, 0},
    {"stitch, split limit", "max_split_size_mb:20", 0, 0},
    {"stitch, garbage, fraction",
     "handle_mib:2,garbage_collection_threshold:0.4,per_process_memory_fraction:0.6,lending:off", 0, 0},
    {"expandable", "policy:expandable", 0, 0},
    {"expandable, split limit, garbage",
     "policy:expandable,max_split_size_mb:32,garbage_collection_threshold:0.4,per_process_memory_fraction:0."
     "6",
     0, 0},
    {"native", "policy:native", 0, 0},
    {"native, split limit, garbage",
     "policy:native,max_split_size_mb:32,garbage_collection_threshold:0.4,per_process_memory_fraction:0.6", 0,
     0},
    {"plain fallback", "", SIM_FEATURE_VMM, 0},
    {"plain fallback, split limit, where VMM lies", "max_split_size_mb:32", 0, SIM_FEATURE_VMM},
};

static uint64_t seed = 1;

#define PROGRAMS 2

static void programs(void **state)
{
    size_t i = (size_t)(uintptr_t)*state;
    for (uint64_t k = 0; k < PROGRAMS; k++) {
        const struct scenario scenario = {.name = set_ups[i].name,
                                          .options = set_ups[i].options,
                                          .act = act_program,
                                          .devices = 1,
                                          .lacks = set_ups[i].lacks,
                                          .lies = set_ups[i].lies,
                                          .seed = seed * 1000 + k};
        fault_points(&scenario);
    }
}

int main(int argc, char **argv)
{
#define SET_UPS (sizeof(set_ups) / sizeof(set_ups[0]))
    struct CMUnitTest tests[SET_UPS];
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    for (size_t i = 0; i < SET_UPS; i++)
        tests[i] = (struct CMUnitTest){.name = set_ups[i].name,
                                       .test_func = programs,
                                       .teardown_func = fault_say_where,
                                       .initial_state = (void *)(uintptr_t)i};
    sm_log_set_level(SM_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
