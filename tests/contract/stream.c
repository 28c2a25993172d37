/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, host functions. */
#include "tests/contract/contract.h"
#include <stdatomic.h>

static CUstream s, t;
static CUevent event;

static int make(void **state)
{
    (void)state;
    return cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) || cuStreamCreate(&t, CU_STREAM_NON_BLOCKING) ||
                   cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)
               ? -1
               : 0;
}

static int unmake(void **state)
{
    (void)state;
    return cuStreamDestroy(s) || cuStreamDestroy(t) || cuEventDestroy(event) ? -1 : 0;
}

/* cuda.h, cuStreamCreateWithPriority: out of range is clamped; the range goes from least to greatest
 * (smaller). */
static void test_priorities(void **state)
{
    (void)state;
    int least, greatest, got;
    CUstream stream;
    unsigned flags;
    assert_ok(cuCtxGetStreamPriorityRange(&least, &greatest));
    assert_true(greatest <= least);
    assert_ok(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 100));
    assert_ok(cuStreamGetPriority(stream, &got));
    assert_int_equal(got, greatest);
    assert_ok(cuStreamGetFlags(stream, &flags));
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, least + 100));
    assert_ok(cuStreamGetPriority(stream, &got));
    assert_int_equal(got, least);
    assert_ok(cuStreamDestroy(stream));
    assert_int_equal(cuStreamCreate(&stream, 0xff00), CUDA_ERROR_INVALID_VALUE);
}

/* cuda.h, cuStreamGetId: unique for the life of the program. */
static void test_ids(void **state)
{
    (void)state;
    unsigned long long a, b, again;
    assert_ok(cuStreamGetId(s, &a));
    assert_ok(cuStreamGetId(t, &b));
    assert_ok(cuStreamGetId(s, &again));
    assert_int_not_equal(a, b);
    assert_int_equal(a, again);
}

/* cuda.h, cuEventQuery: an event that was never recorded is complete. */
static void test_unrecorded_event(void **state)
{
    (void)state;
    assert_ok(cuEventQuery(event));
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuStreamWaitEvent(s, event, 0));
    assert_ok(cuStreamSynchronize(s));
}

/* cuda.h, cuEventRecord: the most recent record counts. */
static void test_recorded_event(void **state)
{
    (void)state;
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuEventQuery(event));
    assert_ok(cuEventRecord(event, s)); /* the last record counts */
    assert_ok(cuStreamSynchronize(s));
    assert_ok(cuEventQuery(event));
}

static atomic_int order;

static void CUDA_CB note(void *user)
{
    *(int *)user = atomic_fetch_add(&order, 1);
}

/* cuda.h, cuLaunchHostFunc, cuStreamWaitEvent: in the order of the stream, and of the event. */
static void test_order_by_event(void **state)
{
    (void)state;
    int at[4] = {-1, -1, -1, -1};
    atomic_store(&order, 0);
    assert_ok(cuLaunchHostFunc(s, note, &at[0]));
    assert_ok(cuLaunchHostFunc(s, note, &at[1]));
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_ok(cuLaunchHostFunc(t, note, &at[2]));
    assert_ok(cuLaunchHostFunc(t, note, &at[3]));
    assert_ok(cuStreamSynchronize(t));
    for (int i = 0; i < 4; i++)
        assert_int_equal(at[i], i);
}

/* cuda.h, cuStreamQuery: CUDA_ERROR_NOT_READY, or done; after a wait it is done. */
static void test_query(void **state)
{
    (void)state;
    int at = -1;
    assert_ok(cuLaunchHostFunc(s, note, &at));
    CUresult result = cuStreamQuery(s);
    assert_true(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
    assert_ok(cuStreamSynchronize(s));
    assert_ok(cuStreamQuery(s));
    assert_int_not_equal(at, -1);
}

/* cuda.h, cuCtxSynchronize: all preceding tasks of the context. */
static void test_context_wait(void **state)
{
    (void)state;
    int at[2] = {-1, -1};
    assert_ok(cuLaunchHostFunc(s, note, &at[0]));
    assert_ok(cuLaunchHostFunc(t, note, &at[1]));
    assert_ok(cuCtxSynchronize());
    assert_int_not_equal(at[0], -1);
    assert_int_not_equal(at[1], -1);
}

/* cuda.h, cuEventElapsedTime: needs two recorded events with timing. */
static void test_elapsed_time(void **state)
{
    (void)state;
    CUevent from, to;
    float ms = -1;
    assert_ok(cuEventCreate(&from, CU_EVENT_DEFAULT));
    assert_ok(cuEventCreate(&to, CU_EVENT_DEFAULT));
    assert_int_equal(cuEventElapsedTime(&ms, from, to), CUDA_ERROR_INVALID_HANDLE);
    assert_ok(cuEventRecord(from, s));
    assert_ok(cuEventRecord(to, s));
    assert_ok(cuStreamSynchronize(s));
    assert_ok(cuEventElapsedTime(&ms, from, to));
    assert_true(ms >= 0);
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamSynchronize(s));
    assert_int_equal(cuEventElapsedTime(&ms, from, event), CUDA_ERROR_INVALID_HANDLE);
    assert_ok(cuEventDestroy(from));
    assert_ok(cuEventDestroy(to));
}

/* cuda.h, cuStreamDestroy, cuEventDestroy: return at once; what is unfinished still completes. */
static void test_destroy_with_work(void **state)
{
    (void)state;
    CUstream stream;
    CUevent last;
    int at = -1;
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&last, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuLaunchHostFunc(stream, note, &at));
    assert_ok(cuEventRecord(last, stream));
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuEventSynchronize(last));
    assert_int_not_equal(at, -1);
    assert_ok(cuEventRecord(last, s));
    assert_ok(cuEventDestroy(last));
}

/* guide: the default stream and blocking streams wait for each other; non-blocking ones do not take part. */
static void test_default_stream(void **state)
{
    (void)state;
    CUstream blocking;
    int at[3] = {-1, -1, -1};
    assert_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    atomic_store(&order, 0);
    assert_ok(cuLaunchHostFunc(blocking, note, &at[0]));
    assert_ok(cuLaunchHostFunc(NULL, note, &at[1]));
    assert_ok(cuLaunchHostFunc(blocking, note, &at[2]));
    assert_ok(cuStreamSynchronize(blocking));
    for (int i = 0; i < 3; i++)
        assert_int_equal(at[i], i);
    assert_ok(cuStreamDestroy(blocking));
}

/* cuda.h, cuCtxRecordEvent (12.5): all work of the context that was there before. */
static void test_context_event(void **state)
{
    (void)state;
    int at[2] = {-1, -1};
    assert_ok(cuLaunchHostFunc(s, note, &at[0]));
    assert_ok(cuLaunchHostFunc(t, note, &at[1]));
    assert_ok(cuCtxRecordEvent(contract_context, event));
    assert_ok(cuEventSynchronize(event));
    assert_int_not_equal(at[0], -1);
    assert_int_not_equal(at[1], -1);
}

/* cuda.h, cuStreamGetDevice, cuStreamGetCtx. */
static void test_device_of_a_stream(void **state)
{
    (void)state;
    CUdevice device = -1;
    CUcontext context;
    assert_ok(cuStreamGetDevice(s, &device));
    assert_int_equal(device, 0);
    assert_ok(cuStreamGetCtx(s, &context));
    assert_ptr_equal(context, contract_context);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)
    const struct CMUnitTest tests[] = {
        TEST(test_priorities),        TEST(test_ids),
        TEST(test_unrecorded_event),  TEST(test_recorded_event),
        TEST(test_order_by_event),    TEST(test_query),
        TEST(test_context_wait),      TEST(test_elapsed_time),
        TEST(test_destroy_with_work), TEST(test_default_stream),
        TEST(test_context_event),     TEST(test_device_of_a_stream),
    };
    RUN_CONTRACT(tests);
}
