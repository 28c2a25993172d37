/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model: the presets, files of one's own, and what a call adds. */
#include "tests/unit/sim/sim_test.h"
#include <unistd.h>

static void start_with(const char *cost)
{
    struct sim_config config = small_device();
    config.cost = cost;
    begin(&config);
}

/* A file with these lines. */
static void write_costs(char *path, const char *lines)
{
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, lines, strlen(lines)), (ssize_t)strlen(lines));
    close(file);
}

static void test_every_preset_loads(void **state)
{
    (void)state;
    static const char *const names[] = {"h100", "a100", "a100-worst", "small"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        start_with(names[i]);
        create(UNIT);
        assert_true(sim_driver_ns("cuMemCreate") > 1000);
        assert_true(sim_driver_ns(NULL) > sim_driver_ns("cuMemCreate"));
    }
    start_with("zero");
    create(UNIT);
    assert_int_equal(sim_driver_ns(NULL), 0);
}

/* fixed + per handle + per GiB, each where it belongs. */
static void test_parts(void **state)
{
    (void)state;
    char path[] = "/tmp/sim-cost-XXXXXX";
    write_costs(path, "# comment\ncuMemSetAccess 1000 10 1024\ncuMemMap 7 # why\n\ndefault 3\n");
    start_with(path);
    CUdeviceptr base = reserve(4 * UNIT);
    for (int i = 0; i < 4; i++)
        assert_ok(cuMemMap(base + (CUdeviceptr)i * UNIT, UNIT, 0, create(UNIT), 0));
    assert_int_equal(sim_driver_ns("cuMemMap"), 4 * 7);
    assert_int_equal(sim_driver_ns("cuMemCreate"), 4 * 3);
    assert_ok(try_access(base, 4 * UNIT, 0)); /* one call for four handles: 8 MiB are 8 of 1,024 ns a GiB */
    assert_int_equal(sim_driver_ns("cuMemSetAccess"), 1000 + 4 * 10 + 8);
    assert_int_equal(sim_driver_ns("no such call"), 0);
    unlink(path);
}

/* Work has figures of its own; a file that gives none, as one that was made by timing calls, takes h100's. */
static void test_work(void **state)
{
    (void)state;
    static const char *const texts[] = {"default 0\nwork.kernel_ns 7\n", "default 0\n"};
    static const uint64_t kernel_ns[] = {7, 2000};
    struct sim_stream_time time;
    struct sim_work work = {0};
    for (size_t i = 0; i < 2; i++) {
        char path[] = "/tmp/sim-cost-XXXXXX";
        struct sim_config config = small_device();
        write_costs(path, texts[i]);
        config.cost = path;
        config.streams = SIM_STREAMS_TIMED;
        begin(&config);
        assert_ok(sim_stream_do(NULL, 0, 0, &work));
        assert_true(sim_stream_time(NULL, &time));
        assert_int_equal(time.busy_ns, kernel_ns[i]);
        unlink(path);
    }
}

/* What a file does not say is as in the preset that it is like. */
static void test_like(void **state)
{
    (void)state;
    char path[] = "/tmp/sim-cost-XXXXXX";
    uint64_t release;
    start_with("small");
    assert_ok(cuMemRelease(create(UNIT)));
    release = sim_driver_ns("cuMemRelease");
    write_costs(path, "# one line\nlike small # and\ncuMemCreate 7\n");
    start_with(path);
    assert_ok(cuMemRelease(create(UNIT)));
    assert_int_equal(sim_driver_ns("cuMemCreate"), 7);
    assert_int_equal(sim_driver_ns("cuMemRelease"), release);
    unlink(path);
}

/* Rules of a file are taken where they are asked for, and then all of them; a start alone takes the costs. */
static void test_rules(void **state)
{
    (void)state;
    char path[] = "/tmp/sim-cost-XXXXXX";
    struct sim_config config = small_device();
    write_costs(path,
                "rule.granularity_kib 64\nrule.recommended_kib 128\nrule.partial prefix\nrule.unmap one\n"
                "rule.mappings 77\n");
    config.cost = path;
    begin(&config);
    assert_int_equal(create(UNIT) != 0, 1);
    assert_int_equal(config.granularity, UNIT);
    assert_true(sim_config_rules(&config));
    assert_int_equal(config.granularity, 65536);
    assert_int_equal(config.recommended, 131072);
    assert_int_equal(config.partial, SIM_PARTIAL_PREFIX);
    assert_int_equal(config.unmap_several, false);
    assert_int_equal(config.mappings_max, 77);
    config.cost = "no such file";
    assert_false(sim_config_rules(&config));
    assert_int_equal(config.mappings_max, 77);
    config.cost = "h100";
    assert_true(sim_config_rules(&config));
    assert_int_equal(config.granularity, UNIT);
    assert_int_equal(config.partial, SIM_PARTIAL_WHOLE);
    unlink(path);
    strcpy(path,
           "/tmp/sim-cost-XXXXXX"); /* a larger granularity than the preset's raises what it recommends */
    write_costs(path, "like h100\nrule.granularity_kib 4096\n");
    config.cost = path;
    assert_true(sim_config_rules(&config));
    assert_int_equal(config.recommended, 4 * MIB);
    begin(&config);
    unlink(path);
}

static void test_wrong_files(void **state)
{
    (void)state;
    static const char *const wrong[] = {"cuMemMap\n",
                                        "cuMemMap 1 2 3 4\n",
                                        "cuMemMap x\n",
                                        "cuNothing 1\n",
                                        "cuMemMap -1\n",
                                        "cuMemMap +1\n",
                                        "cuMemMap 1000000000001\n",
                                        "cuMemMap 18446744073709551615\n",
                                        "cuMemMap 1 99999999999999999999\n",
                                        "work.nothing 1\n",
                                        "work.kernel_ns 1 2\n",
                                        "cuMemMap 1.5\n",
                                        "rule.nothing 1\n",
                                        "rule.unmap\n",
                                        "rule.unmap one 1\n",
                                        "rule.partial 1\n",
                                        "like h200\n",
                                        "like\n",
                                        "default 1\nlike h100\n"};
    struct sim_config config = small_device();
    start_with("zero");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char path[] = "/tmp/sim-cost-XXXXXX";
        write_costs(path, wrong[i]);
        config.cost = path;
        assert_false(sim_start(&config));
        unlink(path);
    }
    create(UNIT);
    assert_int_equal(sim_driver_ns(NULL), 0); /* the costs in force were not touched */
}

/* What follows a zero byte is not passed over in silence. */
static void test_binary_file(void **state)
{
    (void)state;
    char path[] = "/tmp/sim-cost-XXXXXX";
    static const char bytes[] = "cuMemMap 1\n\0rule.nothing 1\n";
    struct sim_config config = small_device();
    int file = mkstemp(path);
    assert_int_equal(write(file, bytes, sizeof bytes - 1), (ssize_t)sizeof bytes - 1);
    close(file);
    config.cost = path;
    assert_false(sim_start(&config));
    unlink(path);
}

/* A call that fails costs its fixed part. */
static void test_failed_call(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    start_with("h100");
    create(UNIT);
    uint64_t one = sim_driver_ns("cuMemCreate");
    assert_true(sim_fail("cuMemCreate", 1, false, CUDA_ERROR_OUT_OF_MEMORY));
    assert_int_equal(try_create(UNIT, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(sim_driver_ns("cuMemCreate") > one);
    assert_true(sim_driver_ns("cuMemCreate") <= 2 * one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_preset_loads),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_like),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_binary_file),
        cmocka_unit_test(test_failed_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
