/* SPDX-License-Identifier: Apache-2.0 */
/* stress NAME [--short] [--seed N]: runs one scenario, or all; see stress.h. Status 0 if every bound was
 * kept, 1 if not, 2 for a wrong command line. */
#include "stress/stress.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *what;
    void (*run)(struct stress *stress);
} scenarios[] = {
    {"comb", "a large temporary comes back among survivors that cut its memory up", stress_comb},
    {"staircase", "one request that grows from step to step", stress_staircase},
    {"sprinkle", "small blocks that live long, sprinkled among large ones", stress_sprinkle},
    {"threads", "threads with streams of their own that free each other's blocks", stress_threads},
    {"pace", "events a second where no driver is called", stress_pace},
    {"twice", "100 GiB in handles of 2 MiB, each mapped at two addresses", stress_twice},
};

#define COUNT (sizeof(scenarios) / sizeof(scenarios[0]))

void stress_check(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "stress: %s: %s\n", what, seam_last_error());
    exit(1);
}

void stress_begin(uint64_t device_bytes, bool backed)
{
    struct sim_config config;
    sim_config_default(&config);
    config.device_bytes = device_bytes;
    config.backed = backed;
    stress_check(sim_start(&config), "the simulated device did not start");
    CUcontext context;
    stress_check(!cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context), "no context");
    stress_check(seam_init() == SEAM_OK, "seam_init");
}

void stress_end(void)
{
    struct sim_live live;
    struct sim_violation violation = {.text = "no rule was broken"};
    stress_check(seam_validate() == SEAM_OK, "seam_validate");
    stress_check(seam_shutdown() == SEAM_OK, "seam_shutdown");
    sim_live(&live);
    stress_check(!live.handles && !live.mappings && !live.reservations && !live.events, "something is left");
    sim_violation(0, &violation);
    stress_check(!sim_violation_count(), violation.text);
}

/* splitmix64: the same numbers with every compiler. */
uint64_t stress_below(struct stress *stress, uint64_t bound)
{
    uint64_t z = stress->random += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % bound;
}

void *stress_alloc(uint64_t size, seam_stream stream)
{
    void *block = seam_malloc(size, 0, stream);
    stress_check(block, "seam_malloc");
    return block;
}

void stress_free(void *block)
{
    stress_check(seam_free(block) == SEAM_OK, "seam_free");
}

seam_stream stress_stream(void)
{
    CUstream stream;
    stress_check(!cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
}

void stress_work(seam_stream stream, void *block, uint64_t size)
{
    stress_check(!sim_stream_work(stream, (CUdeviceptr)(uintptr_t)block, size, 1000), "work");
}

int64_t stress_stat(const char *name)
{
    int64_t value = 0;
    stress_check(seam_stat(0, name, &value) == SEAM_OK, "seam_stat");
    return value;
}

uint64_t stress_memory_calls(void)
{
    return sim_calls("cuMemCreate") + sim_calls("cuMemMap") + sim_calls("cuMemSetAccess") +
           sim_calls("cuMemUnmap") + sim_calls("cuMemRelease") + sim_calls("cuMemAddressReserve") +
           sim_calls("cuMemAddressFree");
}

static void judge(struct stress *stress, bool kept)
{
    stress->within &= kept;
    printf("   %s\n", kept ? "ok" : "BROKEN");
}

void stress_share(struct stress *stress, const char *what, double share, double at_least)
{
    printf("  %-46s %9.2f %%     at least %9.2f %%", what, 100 * share, 100 * at_least);
    judge(stress, share >= at_least);
}

void stress_bytes(struct stress *stress, const char *what, uint64_t bytes, uint64_t at_most)
{
    printf("  %-46s %9.1f MiB   at most  %9.1f MiB", what, (double)bytes / (double)MIB,
           (double)at_most / (double)MIB);
    judge(stress, bytes <= at_most);
}

void stress_count(struct stress *stress, const char *what, uint64_t count, uint64_t at_most)
{
    printf("  %-46s %9lu       at most  %9lu  ", what, count, at_most);
    judge(stress, count <= at_most);
}

void stress_figure(const char *what, double value, const char *unit)
{
    printf("  %-46s %9.2f %s\n", what, value, unit);
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s NAME|all [--short] [--seed N]\n", program);
    for (size_t i = 0; i < COUNT; i++)
        fprintf(stderr, "  %-10s %s\n", scenarios[i].name, scenarios[i].what);
    return 2;
}

static bool read_number(const char *text, uint64_t *number)
{
    char *end;
    *number = strtoull(text, &end, 10);
    return *text && !*end;
}

int main(int argc, char **argv)
{
    struct stress stress = {.seed = 1, .within = true};
    size_t found = 0;
    if (argc < 2)
        return usage(argv[0]);
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--short"))
            stress.is_short = true;
        else if (strcmp(argv[i], "--seed") || ++i == argc || !read_number(argv[i], &stress.seed))
            return usage(argv[0]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        if (strcmp(argv[1], "all") && strcmp(argv[1], scenarios[i].name))
            continue;
        found++;
        stress.random = stress.seed;
        printf("%s (simulated device, seed %lu%s): %s\n", scenarios[i].name, stress.seed,
               stress.is_short ? ", short" : "", scenarios[i].what);
        scenarios[i].run(&stress);
    }
    if (!found)
        return usage(argv[0]);
    return stress.within ? 0 : 1;
}
