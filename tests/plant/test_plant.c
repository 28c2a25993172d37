/* SPDX-License-Identifier: Apache-2.0 */
/* A fault planted in the allocator is caught: by the device's rules, in each mode in which work completes
 * late, and by the damage that it does to the contents of memory. This program is built once for each fault
 * and once without, when nothing may be reported and nothing damaged. */
#include "sim/sim.h"
#include "tests/support/cmocka_all.h"
#include <seamalloc/seamalloc.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

enum { ROUNDS = 6 };

static const char fault[] = PLANT_NAME;

static bool is_planted(const char *name)
{
    return !strcmp(fault, name);
}

static bool reuses_early(void)
{
    return is_planted("early_reuse") || is_planted("missing_event") || is_planted("wrong_stream");
}

static void ok(int result)
{
    if (result)
        fail_msg("%d: %s", result, seam_last_error());
}

static CUstream new_stream(void)
{
    CUstream stream;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUdeviceptr take(size_t size, CUstream stream)
{
    void *block = seam_malloc(size, 0, stream);
    if (!block)
        fail_msg("%s", seam_last_error());
    return (CUdeviceptr)(uintptr_t)block;
}

static void give(CUdeviceptr block)
{
    ok(seam_free((void *)(uintptr_t)block));
}

static void start(enum sim_streams streams, uint64_t seed)
{
    struct sim_config config;
    CUcontext context;
    sim_config_default(&config);
    config.device_bytes = 1024 * MIB;
    config.streams = streams;
    config.seed = seed;
    assert_true(sim_start(&config));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuCtxSetCurrent(context));
    ok(seam_init());
}

static size_t broken(const char *rule)
{
    struct sim_violation v;
    size_t n = 0;
    for (size_t i = 0; sim_violation(i, &v); i++)
        n += !strcmp(v.rule, rule);
    return n;
}

/* Bytes of a block that are not what the host put there. */
static size_t damaged(CUdeviceptr block, size_t size, unsigned char expected)
{
    static unsigned char bytes[4 * MIB];
    size_t n = 0;
    ok(cuMemcpyDtoH(bytes, block, size));
    for (size_t i = 0; i < size; i++)
        n += bytes[i] != expected;
    return n;
}

/* A block that a side stream still works on is freed; the main stream asks for as much, fills it and relies
 * on what it filled. `by_kernel`: the side stream's work is a kernel; else a fill. Returns: damaged bytes. */
static size_t share_between_streams(size_t size, bool by_kernel)
{
    size_t bytes = 0;
    CUstream main_stream = new_stream(), side = new_stream();
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr first = take(size, main_stream);
        ok(seam_record_stream((void *)(uintptr_t)first, side));
        ok(by_kernel ? sim_stream_work(side, first, size, 1000) : cuMemsetD8Async(first, 0x11, size, side));
        give(first);
        ok(cuStreamSynchronize(main_stream)); /* says nothing about the other stream */
        CUdeviceptr second = take(size, main_stream);
        ok(cuMemsetD8Async(second, 0x22, size, main_stream));
        ok(cuStreamSynchronize(main_stream));
        ok(cuStreamSynchronize(side));
        bytes += damaged(second, size, 0x22);
        give(second);
    }
    return bytes;
}

static void check_sharing(enum sim_streams streams, uint64_t seed, size_t size, bool by_kernel)
{
    start(streams, seed);
    size_t bytes = share_between_streams(size, by_kernel);
    if (reuses_early()) {
        assert_int_not_equal(broken("race"), 0);
        assert_int_not_equal(bytes, 0);
    } else {
        assert_int_equal(sim_violation_count(), 0);
        assert_int_equal(bytes, 0);
    }
    ok(seam_shutdown());
}

static void test_sharing_late(void **state)
{
    (void)state;
    check_sharing(SIM_STREAMS_LATE, 0, MIB, false);
    check_sharing(SIM_STREAMS_LATE, 0, 4 * MIB, true);
    check_sharing(SIM_STREAMS_LATE, 0, 4096, true);
}

static void test_sharing_at_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        check_sharing(SIM_STREAMS_RANDOM, seed, MIB, false);
        check_sharing(SIM_STREAMS_RANDOM, seed, MIB, true);
    }
}

/* Memory goes back to the device while its stream still works on it, and that breaks the device. */
static void check_trim(enum sim_streams streams, uint64_t seed, bool by_kernel)
{
    start(streams, seed);
    CUstream stream = new_stream();
    for (int round = 0; round < ROUNDS && !sim_device_error(0); round++) {
        CUdeviceptr block = take(16 * MIB, stream);
        ok(by_kernel ? sim_stream_work(stream, block, 16 * MIB, 1000)
                     : cuMemsetD8Async(block, 0x11, 16 * MIB, stream));
        give(block);
        ok(seam_trim(0));
    }
    if (is_planted("early_unmap")) {
        assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_not_equal(broken("unmap-in-use"), 0);
        assert_int_not_equal(broken("touch-unmapped") + broken("touch-no-access"), 0);
    } else {
        ok(cuStreamSynchronize(stream));
        assert_int_equal(sim_violation_count(), 0);
    }
    ok(seam_shutdown());
}

static void test_trim_late(void **state)
{
    (void)state;
    check_trim(SIM_STREAMS_LATE, 0, false);
    check_trim(SIM_STREAMS_LATE, 0, true);
}

static void test_trim_at_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        check_trim(SIM_STREAMS_RANDOM, seed, true);
}

/* The device is short, and a stream gets what another one has freed and still works on. */
static void check_lending(enum sim_streams streams, uint64_t seed, bool by_kernel)
{
    const size_t size = 600 * MIB, looked_at = 4 * MIB;
    start(streams, seed);
    size_t bytes = 0;
    CUstream a = new_stream(), b = new_stream();
    for (int round = 0; round < ROUNDS; round++, seed++) {
        CUdeviceptr first = take(size, a);
        ok(by_kernel ? sim_stream_work(a, first, looked_at, 1000)
                     : cuMemsetD8Async(first, 0x11, looked_at, a));
        give(first);
        CUdeviceptr second = take(size, b);
        ok(cuMemsetD8Async(second, 0x22, looked_at, b));
        ok(cuStreamSynchronize(b));
        ok(cuStreamSynchronize(a));
        bytes += damaged(second, looked_at, 0x22);
        give(second);
        ok(seam_trim(0));
    }
    if (is_planted("early_lend")) {
        assert_int_not_equal(broken("race"), 0);
        assert_int_not_equal(bytes, 0);
    } else if (!is_planted("early_unmap")) {
        assert_int_equal(sim_violation_count(), 0);
        assert_int_equal(bytes, 0);
    }
    ok(seam_shutdown());
}

static void test_lending(void **state)
{
    (void)state;
    check_lending(SIM_STREAMS_LATE, 0, false);
    check_lending(SIM_STREAMS_LATE, 0, true);
    check_lending(SIM_STREAMS_RANDOM, 7, true);
}

/* In the immediate mode nothing is late, so nothing is broken, whatever is planted: why the other modes
 * exist. */
static void test_immediate(void **state)
{
    (void)state;
    start(SIM_STREAMS_IMMEDIATE, 0);
    assert_int_equal(share_between_streams(MIB, false), 0);
    assert_int_equal(sim_violation_count(), 0);
    ok(seam_shutdown());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharing_late), cmocka_unit_test(test_sharing_at_random),
        cmocka_unit_test(test_trim_late),    cmocka_unit_test(test_trim_at_random),
        cmocka_unit_test(test_lending),      cmocka_unit_test(test_immediate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
