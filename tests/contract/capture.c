/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture and graphs: cuda.h, cuStreamBeginCapture, cuStreamEndCapture,
 * cuThreadExchangeStreamCaptureMode; guide, creating a graph using stream capture. */
#include "tests/contract/contract.h"

static CUstream s, t;
static CUevent event, back;
static CUdeviceptr ptr;

static int make(void **state)
{
    (void)state;
    return cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) || cuStreamCreate(&t, CU_STREAM_NON_BLOCKING) ||
                   cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) ||
                   cuEventCreate(&back, CU_EVENT_DISABLE_TIMING) || cuMemAlloc(&ptr, 1 << 20)
               ? -1
               : 0;
}

static int unmake(void **state)
{
    (void)state;
    return cuStreamDestroy(s) || cuStreamDestroy(t) || cuEventDestroy(event) || cuEventDestroy(back) ||
                   cuMemFree(ptr)
               ? -1
               : 0;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    assert_ok(cuStreamIsCapturing(stream, &status));
    return status;
}

static unsigned word_at(size_t i)
{
    unsigned word;
    assert_ok(cuMemcpyDtoH(&word, ptr + 4 * i, 4));
    return word;
}

/* What is captured is not done; a launched graph does it, each time. */
static void test_replay(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    assert_ok(cuMemsetD32(ptr, 1, 1024));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_int_equal(status_of(t), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_ok(cuMemsetD32Async(ptr, 2, 512, s));
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_int_equal(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(word_at(0), 1);
    assert_ok(cuGraphInstantiate(&exec, graph, 0));
    assert_ok(cuGraphDestroy(graph));
    for (int i = 0; i < 2; i++) {
        assert_ok(cuMemsetD32Async(ptr, 3, 1024, s));
        assert_ok(cuGraphLaunch(exec, s));
        assert_ok(cuStreamSynchronize(s));
        assert_int_equal(word_at(0), 2);
        assert_int_equal(word_at(512), 3);
    }
    assert_ok(cuGraphExecDestroy(exec));
}

/* The id of a capture is unique; 0 status and no graph where there is none. */
static void test_info(void **state)
{
    (void)state;
    CUstreamCaptureStatus status;
    cuuint64_t first, second;
    CUgraph graph, during;
    size_t nodes;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuStreamGetCaptureInfo(s, &status, &first, &during, NULL, NULL, NULL));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_non_null(during);
    assert_ok(cuMemsetD32Async(ptr, 2, 512, s));
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 1);
    assert_ok(cuGraphDestroy(graph));
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuStreamGetCaptureInfo(s, &status, &second, NULL, NULL, NULL, NULL));
    assert_int_not_equal(first, second);
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
    assert_ok(cuStreamGetCaptureInfo(s, &status, NULL, NULL, NULL, NULL, NULL));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

static void test_not_on_the_default_stream(void **state)
{
    (void)state;
    assert_int_equal(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* Another stream joins by waiting for an event of the capture, and has to come back. */
static void test_fork_and_join(void **state)
{
    (void)state;
    CUgraph graph;
    cuuint64_t ours, theirs;
    CUstreamCaptureStatus status;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_ok(cuStreamGetCaptureInfo(s, &status, &ours, NULL, NULL, NULL, NULL));
    assert_ok(cuStreamGetCaptureInfo(t, &status, &theirs, NULL, NULL, NULL, NULL));
    assert_int_equal(ours, theirs);
    assert_ok(cuMemsetD32Async(ptr, 9, 16, t));
    assert_ok(cuEventRecord(back, t));
    assert_ok(cuStreamWaitEvent(s, back, 0));
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_int_equal(status_of(t), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_ok(cuGraphDestroy(graph));
}

static void test_unjoined(void **state)
{
    (void)state;
    CUgraph graph = (CUgraph)1;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_ok(cuMemsetD32Async(ptr, 9, 16, t));
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_null(graph);
    assert_int_equal(status_of(t), CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Work outside the capture cannot be waited for in it. */
static void test_isolation(void **state)
{
    (void)state;
    CUgraph graph;
    assert_ok(cuEventRecord(event, t));
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(cuStreamWaitEvent(s, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    assert_int_equal(status_of(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void test_merge(void **state)
{
    (void)state;
    CUgraph graph;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuEventRecord(event, s));
    assert_int_equal(cuStreamWaitEvent(t, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    assert_int_equal(cuStreamEndCapture(t, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* A capturing stream can be neither asked nor waited for. */
static void test_no_wait_for_captured_work(void **state)
{
    (void)state;
    CUgraph graph;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuEventRecord(event, s));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_not_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
}

/* "Potentially unsafe" calls, cudaMalloc among them, are not permitted in global mode, and are in relaxed
 * mode. */
static void test_unsafe_calls(void **state)
{
    (void)state;
    CUgraph graph;
    CUdeviceptr more;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(cuMemAlloc(&more, 1024), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuMemAlloc(&more, 1024));
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
    assert_ok(cuMemFree(more));
}

/* A thread that exchanges its mode for relaxed may make them during anybody's capture. */
static void test_exchanged_mode(void **state)
{
    (void)state;
    CUgraph graph;
    CUdeviceptr more;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_ok(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_ok(cuMemAlloc(&more, 1024));
    assert_ok(cuMemFree(more));
    assert_ok(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
}

/* The calls of virtual memory management do not disturb a capture (note: PyTorch makes them in captures). */
static void test_mapping_in_a_capture(void **state)
{
    (void)state;
    CUgraph graph;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUdeviceptr base = reserve(granularity);
    CUmemGenericAllocationHandle handle = create(granularity);
    assert_ok(cuMemMap(base, granularity, 0, handle, 0));
    give_access(base, granularity);
    assert_ok(cuMemUnmap(base, granularity));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemAddressFree(base, granularity));
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
}

/* cuda.h, cuCtxRecordEvent: fails, and invalidates, while a stream of the context captures. */
static void test_context_event(void **state)
{
    (void)state;
    CUgraph graph;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(cuCtxRecordEvent(contract_context, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* Ending what has not begun, and on another stream. */
static void test_wrong_end(void **state)
{
    (void)state;
    CUgraph graph;
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_int_equal(cuStreamEndCapture(t, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    assert_int_not_equal(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)
    const struct CMUnitTest tests[] = {
        TEST(test_replay),
        TEST(test_info),
        TEST(test_not_on_the_default_stream),
        TEST(test_fork_and_join),
        TEST(test_unjoined),
        TEST(test_isolation),
        TEST(test_merge),
        TEST(test_no_wait_for_captured_work),
        TEST(test_unsafe_calls),
        TEST(test_exchanged_mode),
        TEST(test_mapping_in_a_capture),
        TEST(test_context_event),
        TEST(test_wrong_end),
    };
    RUN_CONTRACT(tests);
}
