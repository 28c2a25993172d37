/* SPDX-License-Identifier: Apache-2.0 */
/* Control and device calls from several threads at once: streams that one thread holds and another waits for,
 * host functions, events that are asked about without a lock. */
#include "tests/unit/sim/sim_test.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = 200 };

static CUcontext context;
static atomic_int failures, calls;
static _Atomic(CUevent) shared;

#define CHECK(expression)                                                                                    \
    do {                                                                                                     \
        if (!(expression))                                                                                   \
            atomic_fetch_add(&failures, 1);                                                                  \
    } while (0)

static void CUDA_CB count_call(void *unused)
{
    (void)unused;
    atomic_fetch_add(&calls, 1);
}

static void *work(void *unused)
{
    CUstream stream;
    (void)unused;
    CHECK(!cuCtxSetCurrent(context));
    CHECK(!cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        CUevent event;
        CUdeviceptr plain;
        CHECK(!cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CHECK(!cuMemAlloc(&plain, 4096));
        CHECK(!sim_stream_hold(stream, true));
        CHECK(!cuMemsetD8Async(plain, 1, 4096, stream));
        CHECK(!cuLaunchHostFunc(stream, count_call, NULL));
        CHECK(!cuEventRecord(event, stream));
        CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
        CHECK(!cuStreamWaitEvent(stream, atomic_load(&shared), 0));
        CUresult others = cuEventQuery(atomic_load(&shared));
        CHECK(others == CUDA_SUCCESS || others == CUDA_ERROR_NOT_READY);
        CHECK(!sim_stream_hold(stream, false));
        CHECK(!cuEventSynchronize(event));
        CHECK(!cuMemFree(plain)); /* waits for the other threads' streams too */
        CHECK(!cuEventDestroy(event));
    }
    CHECK(!cuStreamDestroy(stream));
    return NULL;
}

static void run(enum sim_streams streams)
{
    struct sim_config config = small_device();
    pthread_t threads[THREADS];
    CUevent event;
    config.streams = streams;
    config.stuck_ms = 60000;
    atomic_store(&calls, 0);
    begin(&config);
    assert_ok(cuCtxGetCurrent(&context));
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    atomic_store(&shared, event);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (int i = 0; i < ROUNDS; i++)
        CHECK(!cuEventRecord(event, NULL));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
    assert_int_equal(atomic_load(&calls), THREADS * ROUNDS);
    assert_int_equal(sim_calls("cuEventCreate"), THREADS * ROUNDS + 1);
    assert_int_equal(sim_violation_count(), 0);
    assert_int_equal(sim_physical_bytes(0), 0);
}

static void test_threads(void **state)
{
    (void)state;
    run(SIM_STREAMS_IMMEDIATE);
}

/* The threads share the host's one clock. */
static void test_threads_in_virtual_time(void **state)
{
    (void)state;
    run(SIM_STREAMS_TIMED);
    assert_true(sim_host_ns() >= sim_driver_ns("cuMemAlloc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_threads_in_virtual_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
