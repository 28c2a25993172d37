/* SPDX-License-Identifier: Apache-2.0 */
/* Each broken rule is recorded under its name, with its call and range; whether the call also fails is the
 * contract's business (tests/contract). */
#include "tests/unit/sim/sim_test.h"

/* Whether parts of handles map may be asked: with one that is mapped nowhere, in a range of its own. */
static void test_asking_breaks_no_rule(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle, other;
    CUdeviceptr own = reserve(UNIT), wide = reserve(2 * UNIT);
    (void)map_new(2 * UNIT, &handle);
    assert_ok(try_create(2 * UNIT, &other));
    assert_int_equal(cuMemMap(own, UNIT, UNIT, other, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sim_violation_count(), 0);
    cuMemMap(wide, UNIT, UNIT, other, 0);
    assert_broken("map-offset");
    cuMemMap(own, UNIT, UNIT, handle, 0);
    assert_int_equal(sim_violation_count(), 2);
}

static void test_memory_rules(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle, other;
    CUdeviceptr base = map_new(2 * UNIT, &handle), free_base = reserve(2 * UNIT);
    assert_int_equal(sim_violation_count(), 0);
    try_create(UNIT + 1, &other);
    assert_broken("granularity");
    cuMemMap(free_base, UNIT, UNIT, handle, 0);
    assert_broken("map-offset");
    cuMemMap(free_base, UNIT, 0, handle, 0);
    assert_broken("map-part");
    cuMemMap(base, 2 * UNIT, 0, handle, 0);
    assert_broken("map-over-mapping");
    cuMemMap(free_base + UNIT, 2 * UNIT, 0, handle, 0);
    assert_broken("map-outside-reservation");
    cuMemMap(free_base, 2 * UNIT, 0, handle + 1, 0);
    assert_broken("unknown-handle");
    cuMemMap(free_base, 2 * UNIT, 0, handle, 1);
    assert_broken("flags");
    cuMemUnmap(free_base, UNIT);
    assert_broken("unmap-unmapped");
    cuMemUnmap(base, UNIT);
    assert_broken("unmap-part");
    try_access(base, UNIT, 0);
    assert_broken("access-range");
    cuMemAddressFree(base, 2 * UNIT);
    assert_broken("free-mapped");
    cuMemAddressFree(free_base, UNIT);
    assert_broken("free-inexact");
    cuMemFree(base);
    assert_broken("unknown-pointer");
    assert_ok(cuMemRelease(handle));
    cuMemRelease(handle); /* released already, though its mapping keeps the memory */
    assert_broken("unknown-handle");
}

static void test_report_of_a_violation(void **state)
{
    (void)state;
    struct sim_violation v;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = map_new(2 * UNIT, &handle);
    cuMemUnmap(base + UNIT, UNIT);
    assert_int_equal(sim_violation_count(), 1);
    assert_true(sim_violation(0, &v));
    assert_string_equal(v.rule, "unmap-part");
    assert_string_equal(v.call, "cuMemUnmap");
    assert_int_equal(v.base, base + UNIT);
    assert_int_equal(v.size, UNIT);
    assert_false(sim_violation(1, &v));
}

/* Memory that is not there, or to which the device was given no access. */
static void test_touching(void **state)
{
    (void)state;
    char byte = 0;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = map_new(UNIT, &handle), view = reserve(2 * UNIT);
    assert_ok(cuMemMap(view, UNIT, 0, handle, 0));
    assert_int_equal(cuMemcpyHtoD(view, &byte, 1), CUDA_ERROR_INVALID_VALUE);
    assert_broken("touch-no-access");
    assert_ok(try_access(view, UNIT, 1)); /* for the other device */
    assert_int_equal(cuMemsetD8(view, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_broken("touch-no-access");
    assert_ok(try_access(view, UNIT, 0));
    assert_ok(cuMemsetD8(view, 0, UNIT));
    assert_int_equal(cuMemsetD8(view + UNIT - 4, 0, 8), CUDA_ERROR_INVALID_VALUE);
    assert_broken("touch-unmapped");
    assert_int_equal(cuMemcpyDtoH(&byte, view + UNIT, 1), CUDA_ERROR_INVALID_VALUE);
    assert_broken("touch-unmapped");
    assert_ok(sim_stream_work(NULL, base, UNIT, 0));
    size_t count = sim_violation_count();
    assert_ok(sim_stream_work(NULL, view + UNIT, UNIT, 0)); /* a launch is taken, and the device is told */
    assert_broken("touch-unmapped");
    assert_int_equal(sim_violation_count(), count + 1);
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A copy between devices needs access to both sides for the device that makes it. */
static void test_peers(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(1);
    CUdeviceptr here = map_new(UNIT, &handle), there = reserve(UNIT);
    assert_ok(cuMemCreate(&handle, UNIT, &prop, 0));
    assert_ok(cuMemMap(there, UNIT, 0, handle, 0));
    assert_ok(try_access(there, UNIT, 1));
    assert_int_equal(sim_mapping_count(1), 1);
    assert_int_equal(cuMemcpyDtoD(there, here, 4096), CUDA_ERROR_INVALID_VALUE);
    assert_broken("touch-no-access");
    assert_ok(try_access(there, UNIT, 0)); /* adds to the other device's right */
    assert_ok(cuMemcpyDtoD(there, here, 4096));
    assert_true(sim_accessible(there, 0));
    assert_true(sim_accessible(there, 1));
}

static void test_handles_of_the_dead(void **state)
{
    (void)state;
    CUstream stream;
    CUevent event;
    assert_ok(cuStreamCreate(&stream, 0));
    assert_ok(cuEventCreate(&event, 0));
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuEventDestroy(event));
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    assert_broken("unknown-stream");
    assert_int_equal(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
    assert_broken("unknown-stream");
    assert_int_equal(cuEventRecord(event, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_broken("unknown-event");
    assert_int_equal(cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
    assert_broken("unknown-event");
    for (int i = 0; i < 100; i++) { /* a handle is not given again soon */
        CUevent another;
        assert_ok(cuEventCreate(&another, 0));
        assert_ptr_not_equal(another, event);
        assert_ok(cuEventDestroy(another));
    }
}

/* What captured and other work may not do to each other. */
static void test_order_in_captures(void **state)
{
    (void)state;
    const CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream s, t, blocking;
    CUevent event;
    CUgraph graph;
    CUdeviceptr plain;
    assert_ok(cuMemAlloc(&plain, MIB));
    assert_ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    assert_ok(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    assert_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));

    assert_ok(cuEventRecord(event, t)); /* work outside is waited for */
    assert_ok(cuStreamBeginCapture(s, mode));
    cuStreamWaitEvent(s, event, 0);
    assert_broken("capture-order");
    cuStreamEndCapture(s, &graph);
    assert_int_equal(sim_violation_count(), 1);

    assert_ok(cuStreamBeginCapture(s, mode)); /* a stream does not come back */
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_ok(cuMemsetD8Async(plain, 1, 16, t));
    cuStreamEndCapture(s, &graph);
    assert_broken("capture-order");
    assert_int_equal(sim_violation_count(), 2);

    assert_ok(cuStreamBeginCapture(s, mode)); /* two become one: both are told */
    assert_ok(cuStreamBeginCapture(t, mode));
    assert_ok(cuEventRecord(event, s));
    cuStreamWaitEvent(t, event, 0);
    assert_broken("capture-order");
    assert_int_equal(sim_violation_count(), 4);
    cuStreamEndCapture(s, &graph);
    cuStreamEndCapture(t, &graph);

    assert_ok(cuStreamBeginCapture(s, mode)); /* it ends elsewhere */
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    cuStreamEndCapture(t, &graph);
    assert_broken("capture-order");
    cuStreamEndCapture(s, &graph);
    assert_int_equal(sim_violation_count(), 5);

    assert_ok(cuStreamBeginCapture(blocking, mode)); /* the default stream is ordered with it */
    assert_int_equal(cuMemsetD8Async(plain, 1, 16, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_broken("capture-order");
    cuStreamEndCapture(blocking, &graph);
    assert_int_equal(sim_violation_count(), 6);
}

/* An event of a capture is no event outside, during it and afterwards. */
static void test_events_of_captures(void **state)
{
    (void)state;
    CUstream s, t;
    CUevent event;
    CUgraph graph;
    assert_ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    assert_ok(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuEventRecord(event, s));
    cuEventQuery(event);
    assert_broken("captured-event");
    assert_ok(cuStreamEndCapture(s, &graph));
    cuEventQuery(event);
    cuEventSynchronize(event);
    cuStreamWaitEvent(t, event, 0);
    assert_broken("captured-event");
    assert_int_equal(sim_violation_count(), 4);
    assert_ok(cuEventRecord(event, t));
    assert_ok(cuEventQuery(event));
    assert_int_equal(sim_violation_count(), 4);
}

/* Peer access that is enabled opens plain memory to another device's kernels; mapped memory is opened by
 * set-access alone. */
static void test_peer_access(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUcontext first;
    CUdeviceptr mapped = map_new(UNIT, &handle), plain;
    assert_ok(cuMemAlloc(&plain, UNIT));
    assert_ok(cuCtxGetCurrent(&first));
    assert_ok(try_access(mapped, UNIT, 1));
    use_device(1);
    assert_ok(sim_stream_work(NULL, mapped, UNIT, 0)); /* it never needed the other call */
    assert_ok(cuCtxEnablePeerAccess(first, 0));
    assert_ok(sim_stream_work(NULL, plain, UNIT, 0));
    assert_ok(cuMemUnmap(mapped, UNIT));
    assert_ok(cuMemMap(mapped, UNIT, 0, handle, 0));
    assert_ok(try_access(mapped, UNIT, 0)); /* mapped anew for its own device alone */
    assert_ok(cuCtxSynchronize());
    assert_int_equal(sim_violation_count(), 0);
    assert_ok(sim_stream_work(NULL, mapped, UNIT, 0));
    assert_broken("touch-no-access");
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void test_captures(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr plain;
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    cuMemAlloc(&plain, MIB);
    assert_broken("capture-unsafe");
    cuStreamEndCapture(stream, &graph);
    assert_int_equal(sim_violation_count(), 1);
}

/* More violations than are kept are still counted. */
static void test_many(void **state)
{
    (void)state;
    struct sim_violation v;
    for (int i = 0; i < 1500; i++)
        cuMemRelease(5);
    assert_int_equal(sim_violation_count(), 1500);
    assert_true(sim_violation(1023, &v));
    assert_false(sim_violation(1024, &v));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, start_small)
    const struct CMUnitTest tests[] = {
        TEST(test_asking_breaks_no_rule),
        TEST(test_memory_rules),
        TEST(test_report_of_a_violation),
        TEST(test_touching),
        TEST(test_peers),
        TEST(test_handles_of_the_dead),
        TEST(test_captures),
        TEST(test_order_in_captures),
        TEST(test_events_of_captures),
        TEST(test_peer_access),
        TEST(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
