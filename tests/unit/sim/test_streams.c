/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that are stuck, work that is late, and work that is not ordered. */
#include "tests/unit/sim/sim_test.h"
#include <pthread.h>
#include <unistd.h>

static CUstream s, t;
static CUevent event;
static CUdeviceptr base;
static CUmemGenericAllocationHandle handle;

static void make(const struct sim_config *config)
{
    begin(config);
    assert_ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    assert_ok(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    base = map_new(2 * UNIT, &handle);
}

static int start(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    make(&config);
    return 0;
}

static void test_held_stream(void **state)
{
    (void)state;
    assert_ok(sim_stream_hold(s, true));
    assert_ok(sim_stream_work(s, base, UNIT, 0));
    assert_ok(cuEventRecord(event, s));
    assert_int_equal(sim_stream_pending(s), 2);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    assert_ok(cuStreamQuery(t));
    assert_ok(sim_stream_hold(s, false));
    assert_int_equal(sim_stream_pending(s), 0);
    assert_ok(cuEventQuery(event));
}

/* sim_stream_run completes what is there now; the stream stays held. */
static void test_run(void **state)
{
    (void)state;
    assert_ok(sim_stream_hold(s, true));
    assert_ok(cuEventRecord(event, s));
    assert_ok(sim_stream_run(s));
    assert_ok(cuEventQuery(event));
    assert_ok(cuEventRecord(event, s));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
}

/* What waits for a held stream waits; the effects come late, and in order. */
static void test_effects_are_late(void **state)
{
    (void)state;
    unsigned word = 0;
    assert_ok(cuMemsetD32(base, 1, 16));
    assert_ok(sim_stream_hold(s, true));
    assert_ok(cuMemsetD32Async(base, 2, 16, s));
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_ok(cuMemsetD32Async(base, 3, 1, t));
    assert_ok(cuMemcpyDtoH(&word, base, 4));
    assert_int_equal(word, 1); /* the default stream is not ordered with these */
    assert_broken("race");
    assert_ok(sim_stream_hold(s, false));
    assert_ok(cuMemcpyDtoH(&word, base, 4));
    assert_int_equal(word, 3);
    assert_ok(cuMemcpyDtoH(&word, base + 4, 4));
    assert_int_equal(word, 2);
}

/* A host wait on a stream that stays stuck ends with an error and a report, instead of for ever. */
static void test_stuck_wait(void **state)
{
    (void)state;
    assert_ok(sim_stream_hold(s, true));
    assert_ok(cuEventRecord(event, s));
    assert_int_equal(cuEventSynchronize(event), CUDA_ERROR_LAUNCH_TIMEOUT);
    assert_broken("waits-for-ever");
    assert_ok(sim_stream_hold(s, false));
}

static void *release_soon(void *unused)
{
    (void)unused;
    usleep(2000);
    sim_stream_hold(s, false);
    return NULL;
}

static void test_released_by_another_thread(void **state)
{
    (void)state;
    pthread_t thread;
    struct sim_config config = small_device();
    config.stuck_ms = 60000;
    make(&config);
    assert_ok(sim_stream_hold(s, true));
    assert_ok(sim_stream_work(s, base, UNIT, 0));
    assert_int_equal(pthread_create(&thread, NULL, release_soon, NULL), 0);
    assert_ok(cuStreamSynchronize(s));
    pthread_join(thread, NULL);
    assert_int_equal(sim_stream_pending(s), 0);
}

/* note: unmap is not ordered by streams. It succeeds, as on a GPU, and is a broken rule. */
static void test_unmap_in_use(void **state)
{
    (void)state;
    assert_ok(sim_stream_hold(s, true));
    assert_ok(sim_stream_work(s, base + UNIT, 512, 0));
    assert_ok(cuMemUnmap(base, 2 * UNIT));
    assert_broken("unmap-in-use");
    assert_ok(sim_stream_hold(s, false));
}

/* Unmapping one view while work runs through another one is fine. */
static void test_unmap_of_another_view(void **state)
{
    (void)state;
    CUdeviceptr view = reserve(2 * UNIT);
    assert_ok(cuMemMap(view, 2 * UNIT, 0, handle, 0));
    assert_ok(try_access(view, 2 * UNIT, 0));
    assert_ok(sim_stream_hold(s, true));
    assert_ok(sim_stream_work(s, base, UNIT, 0));
    assert_ok(cuMemUnmap(view, 2 * UNIT));
    assert_int_equal(sim_violation_count(), 0);
    assert_ok(sim_stream_hold(s, false));
}

/* A copy whose memory went away before its turn does nothing, and is a broken rule. */
static void test_late_copy_into_unmapped_memory(void **state)
{
    (void)state;
    assert_ok(sim_stream_hold(s, true));
    assert_ok(cuMemsetD8Async(base, 1, UNIT, s));
    assert_ok(cuMemUnmap(base, 2 * UNIT));
    assert_ok(sim_stream_hold(s, false));
    assert_broken("touch-unmapped");
}

/* cuMemFree waits for the device, cuMemUnmap does not. */
static void test_free_waits(void **state)
{
    (void)state;
    CUdeviceptr plain;
    assert_ok(cuMemAlloc(&plain, MIB));
    assert_ok(sim_stream_hold(s, true));
    assert_ok(sim_stream_work(s, plain, MIB, 0));
    assert_int_equal(cuMemFree(plain), CUDA_ERROR_LAUNCH_TIMEOUT);
    assert_ok(sim_stream_hold(s, false));
    assert_ok(cuMemFree(plain));
}

/* Two streams, the same bytes, no order: a race, through whatever addresses. */
static void test_race(void **state)
{
    (void)state;
    CUdeviceptr view = reserve(2 * UNIT);
    assert_ok(cuMemMap(view, 2 * UNIT, 0, handle, 0));
    assert_ok(try_access(view, 2 * UNIT, 0));
    assert_ok(sim_stream_hold(s, true));
    assert_ok(sim_stream_work(s, base, UNIT, 0));
    assert_ok(sim_stream_work(t, base + UNIT, UNIT, 0)); /* other bytes */
    assert_ok(sim_stream_work(s, base, UNIT, 0));        /* the same stream */
    assert_int_equal(sim_violation_count(), 0);
    assert_ok(sim_stream_work(t, view + 4096, 4096, 0));
    assert_broken("race");
    assert_int_equal(sim_violation_count(), 1);
    assert_ok(sim_stream_hold(s, false));
    assert_ok(sim_stream_work(t, view, UNIT, 0)); /* all is done now */
    assert_int_equal(sim_violation_count(), 1);
}

/* An event orders what came before its record, also over a third stream, and no more than that. */
static void test_order(void **state)
{
    (void)state;
    CUstream third;
    CUevent second;
    assert_ok(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    assert_ok(sim_stream_hold(s, true));
    assert_ok(sim_stream_work(s, base, UNIT, 0));
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_ok(cuEventRecord(second, t));
    assert_ok(cuStreamWaitEvent(third, second, 0));
    assert_ok(sim_stream_work(third, base, UNIT, 0));
    assert_int_equal(sim_violation_count(), 0);
    assert_ok(sim_stream_work(s, base + UNIT, UNIT, 0)); /* after the record */
    assert_ok(sim_stream_work(third, base + UNIT, UNIT, 0));
    assert_broken("race");
    assert_ok(sim_stream_hold(s, false));
    assert_ok(cuStreamSynchronize(third));
}

/* Reading the same bytes on two streams is no race. */
static void test_readers(void **state)
{
    (void)state;
    CUdeviceptr a, b;
    assert_ok(cuMemAlloc(&a, MIB));
    assert_ok(cuMemAlloc(&b, MIB));
    assert_ok(sim_stream_hold(s, true));
    assert_ok(cuMemcpyDtoDAsync(a, base, MIB, s));
    assert_ok(cuMemcpyDtoDAsync(b, base, MIB, t));
    assert_int_equal(sim_violation_count(), 0);
    assert_ok(cuMemcpyDtoDAsync(b, a, MIB, t)); /* a is still being written */
    assert_broken("race");
    assert_ok(sim_stream_hold(s, false));
}

/* lag:N: an event is complete after N further calls, or when it is waited for. */
static void test_lag(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    config.streams = SIM_STREAMS_LAG;
    config.lag = 10;
    make(&config);
    assert_ok(cuEventRecord(event, s));
    int queries = 0;
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        assert_true(++queries < 20);
    assert_in_range(queries, 5, 10);
    assert_ok(cuEventRecord(event, s));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuEventQuery(event));
}

/* late: nothing completes until it is waited for, but who polls is not left alone for ever. */
static void test_late(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    unsigned word = 0;
    config.streams = SIM_STREAMS_LATE;
    make(&config);
    assert_ok(cuMemsetD32(base, 1, 16));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuMemsetD32Async(base, 2, 16, s));
    assert_ok(cuEventRecord(event, s));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_ok(cuMemcpyDtoH(&word, base, 4)); /* not ordered with s: reads what was there before */
    assert_int_equal(word, 1);
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuMemcpyDtoH(&word, base, 4));
    assert_int_equal(word, 2);
    assert_ok(cuEventRecord(event, s));
    int queries = 0;
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        assert_true(++queries <= 10000);
    assert_true(queries > 5000);
}

/* How many queries each of some events takes, in a run of the random mode. */
static void random_run(uint64_t seed, int queries[8])
{
    struct sim_config config = small_device();
    config.streams = SIM_STREAMS_RANDOM;
    config.seed = seed;
    make(&config);
    for (int i = 0; i < 8; i++) {
        assert_ok(cuEventRecord(event, i % 2 ? s : t));
        for (queries[i] = 0; cuEventQuery(event) == CUDA_ERROR_NOT_READY; queries[i]++)
            assert_true(queries[i] < 64);
    }
}

static void test_random(void **state)
{
    (void)state;
    int first[8], again[8], other[8];
    random_run(1, first);
    random_run(1, again);
    random_run(2, other);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
}

/* Memory that a pool frees late comes back when an allocation needs it. */
static void test_pool_waits_for_frees(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUdeviceptr ptr, again;
    config.streams = SIM_STREAMS_LAG;
    config.lag = 1000;
    make(&config);
    assert_ok(cuMemAllocAsync(&ptr, 200 * MIB, s));
    assert_ok(cuMemFreeAsync(ptr, s));
    assert_true(sim_physical_bytes(0) >= 200 * MIB);
    assert_ok(cuMemAllocAsync(&again, 200 * MIB, s));
    assert_ok(cuMemFreeAsync(again, s));
    assert_int_equal(cuMemFreeAsync(again, s), CUDA_ERROR_INVALID_VALUE);
    assert_broken("unknown-pointer");
    assert_ok(cuStreamSynchronize(s));
}

/* A kernel does nothing, so small reads after one give zeros unless a copy or fill has written just those
 * bytes. */
static void test_small_reads(void **state)
{
    (void)state;
    CUmodule module;
    CUfunction function;
    unsigned word = 0;
    assert_ok(cuMemsetD32(base, 77, 1024));
    assert_ok(cuMemcpyDtoH(&word, base + 8, 4));
    assert_int_equal(word, 77); /* no kernel has run yet: all bytes are known */
    assert_ok(cuModuleLoadData(&module, "image"));
    assert_ok(cuModuleGetFunction(&function, module, "kernel"));
    assert_ok(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL));
    assert_ok(cuMemcpyDtoH(&word, base + 8, 4));
    assert_int_equal(word, 0);
    assert_ok(cuMemsetD32(base, 78, 16));
    assert_ok(cuMemcpyDtoH(&word, base + 8, 4));
    assert_int_equal(word, 78);
    unsigned many[8];
    assert_ok(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL));
    assert_ok(cuMemcpyDtoH(many, base, sizeof many)); /* a larger read is what lies there */
    assert_int_equal(many[0], 78);
    assert_ok(cuModuleUnload(module));
}

/* Work that completes late writes what it was said to write; at once it does nothing. */
static void test_late_work_writes(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    static unsigned char bytes[UNIT];
    CUdeviceptr ptr;
    CUstream stream;
    begin(&config);
    assert_ok(cuMemAlloc(&ptr, UNIT));
    assert_ok(cuMemsetD8(ptr, 1, UNIT));
    assert_ok(sim_stream_work(NULL, ptr, UNIT, 0));
    assert_ok(cuMemcpyDtoH(bytes, ptr, UNIT));
    assert_int_equal(bytes[0], 1);
    assert_int_equal(bytes[UNIT - 1], 1);
    config.streams = SIM_STREAMS_LATE;
    begin(&config);
    assert_ok(cuMemAlloc(&ptr, UNIT));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuMemsetD8Async(ptr, 1, UNIT, stream));
    assert_ok(sim_stream_work(stream, ptr + 1000, 100, 0));
    assert_ok(sim_stream_work(stream, ptr + MIB / 2, MIB, 0));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuMemcpyDtoH(bytes, ptr, UNIT));
    assert_int_equal(bytes[999], 1);
    for (int i = 1000; i < 1100; i++)
        assert_int_equal(bytes[i], 0x3c);
    assert_int_equal(bytes[1100], 1);
    assert_int_equal(bytes[MIB / 2 - 1], 1);
    assert_int_equal(bytes[MIB / 2], 0x3c);
    assert_int_equal(bytes[MIB / 2 + MIB - 1], 0x3c);
    assert_int_equal(bytes[MIB / 2 + MIB], 1);
}

/* A launch of which it is known what it writes is checked, and writes, as such work. */
static void test_launch_that_writes(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmodule module;
    CUfunction function;
    CUdeviceptr ptr;
    CUstream a, b;
    unsigned char byte = 0;
    config.streams = SIM_STREAMS_LATE;
    begin(&config);
    assert_ok(cuMemAlloc(&ptr, UNIT));
    assert_ok(cuModuleLoadData(&module, "code"));
    assert_ok(cuModuleGetFunction(&function, module, "kernel"));
    assert_ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    assert_ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    sim_kernel_surely_writes(ptr, 4096);
    assert_ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, a, NULL, NULL));
    assert_ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, b, NULL, NULL)); /* about nothing known */
    assert_int_equal(sim_violation_count(), 0);
    sim_kernel_surely_writes(ptr + 4000, 4096);
    assert_ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, b, NULL, NULL));
    assert_broken("race");
    assert_ok(cuCtxSynchronize());
    memcpy(&byte, (const void *)(ptr + 4095), 1); /* device memory lies in host memory here */
    assert_int_equal(byte, 0x3c);
}

/* Memory that goes away under late work is noticed when it completes. */
static void test_memory_that_went_away(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUstream stream;
    config.streams = SIM_STREAMS_LATE;
    begin(&config);
    base = map_new(UNIT, &handle);
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(sim_stream_work(stream, base, UNIT, 0));
    assert_ok(cuMemUnmap(base, UNIT));
    assert_broken("unmap-in-use");
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_broken("touch-unmapped");
    assert_int_equal(sim_violation_count(), 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, start)
    const struct CMUnitTest tests[] = {
        TEST(test_held_stream),
        TEST(test_run),
        TEST(test_effects_are_late),
        TEST(test_stuck_wait),
        cmocka_unit_test(test_released_by_another_thread),
        TEST(test_unmap_in_use),
        TEST(test_unmap_of_another_view),
        TEST(test_late_copy_into_unmapped_memory),
        TEST(test_free_waits),
        TEST(test_race),
        TEST(test_order),
        TEST(test_readers),
        cmocka_unit_test(test_lag),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_pool_waits_for_frees),
        TEST(test_small_reads),
        cmocka_unit_test(test_late_work_writes),
        cmocka_unit_test(test_launch_that_writes),
        cmocka_unit_test(test_memory_that_went_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
