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

/* cuda.h, cuStreamBeginCapture: what is captured is not executed; a launched graph does it, each time. */
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

/* cuda.h, cuStreamGetCaptureInfo: the id is unique over the lifetime of the process; the graph is there
 * while it is captured into. */
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

/* cuda.h, cuStreamBeginCapture: not on CU_STREAM_LEGACY. Which error says so is in the guide. */
static void test_not_on_the_default_stream(void **state)
{
    (void)state;
    assert_int_equal(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* guide, cross-stream dependencies: another stream joins by waiting for an event of the capture, and has
 * to come back. */
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

/* cuda.h, CUDA_ERROR_STREAM_CAPTURE_UNJOINED; cuStreamEndCapture: a NULL graph. */
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

/* cuda.h, CUDA_ERROR_STREAM_CAPTURE_ISOLATION: work outside the capture cannot be waited for in it. */
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

/* cuda.h, CUDA_ERROR_STREAM_CAPTURE_MERGE. */
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

/* cuda.h, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and CUDA_ERROR_CAPTURED_EVENT; guide, prohibited
 * operations: what captures can be neither asked nor waited for. */
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

/* cuda.h, cuThreadExchangeStreamCaptureMode: "potentially unsafe" calls, cudaMalloc among them, are not
 * permitted in global mode, and are in relaxed mode. */
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

/* cuda.h, cuThreadExchangeStreamCaptureMode: a thread that exchanges its mode for relaxed may make them
 * during anybody's capture. */
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

/* cuda.h, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED and CUDA_ERROR_ILLEGAL_STATE: ending on another stream,
 * ending what has not begun, and beginning twice. The second and the third are by the text of the error
 * alone. */
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

/* cuda.h, CUDA_ERROR_CAPTURED_EVENT: "not permitted on an event which was last recorded in a capturing
 * stream"; cuThreadExchangeStreamCaptureMode: no mode permits it. note: it is still so when the capture has
 * ended, as the event marks a place in a graph and nothing that runs. A record outside makes it usable. */
static void test_event_after_its_capture(void **state)
{
    (void)state;
    CUgraph graph;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuEventRecord(event, s));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE); /* asking in vain harms nothing */
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_ok(cuEventRecord(event, t));
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuEventQuery(event));
}

/* cuda.h, CUDA_ERROR_CAPTURED_EVENT names no call; that waiting on a stream for such an event and asking for
 * its time are among them is ours. */
static void test_wait_for_event_after_its_capture(void **state)
{
    (void)state;
    CUgraph graph;
    CUevent from;
    float ms;
    assert_ok(cuEventCreate(&from, CU_EVENT_DEFAULT));
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuEventRecord(from, s));
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
    assert_int_equal(cuStreamWaitEvent(t, from, 0), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(cuEventElapsedTime(&ms, from, from), CUDA_ERROR_CAPTURED_EVENT);
    assert_ok(cuStreamSynchronize(t));
    assert_ok(cuEventDestroy(from));
}

/* cuda.h, cuThreadExchangeStreamCaptureMode: freeing is as unsafe as allocating, and what is refused did not
 * happen. note: cudaFree in a capture fails. */
static void test_free_in_a_capture(void **state)
{
    (void)state;
    CUgraph graph;
    CUdeviceptr more;
    assert_ok(cuMemAlloc(&more, 1 << 20));
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    size_t before = free_bytes();
    assert_int_equal(cuMemFree(more), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(free_bytes(), before);
    assert_int_equal(status_of(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_int_equal(cuMemsetD8Async(ptr, 1, 64, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    assert_ok(cuMemsetD8(more, 1, 1 << 20));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuMemFree(more));
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
}

/* cuda.h, cuThreadExchangeStreamCaptureMode; guide, prohibited operations: waiting for the context, and
 * asking about events that have nothing to do with the capture. note: a thread that polls events disturbs
 * captures in global mode, and not when it takes thread-local mode for itself. */
static void test_questions_in_a_capture(void **state)
{
    (void)state;
    CUgraph graph;
    assert_ok(cuEventRecord(event, t));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuEventQuery(event));
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
}

/* cuda.h, cuMemAllocAsync, cuMemFreeAsync: in a capture they become nodes, and are permitted; the memory is
 * the graph's. */
static void test_pools_in_a_capture(void **state)
{
    (void)state;
    CUgraph graph;
    CUdeviceptr more;
    size_t nodes;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (cuMemAllocAsync(&more, 1 << 20, s)) {
        (void)cuStreamEndCapture(s, &graph);
        CONTRACT_SKIP("no pools");
    }
    assert_ok(cuMemsetD8Async(more, 1, 1 << 20, s));
    assert_ok(cuMemFreeAsync(more, s));
    assert_int_equal(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphGetNodes(graph, NULL, &nodes));
    assert_true(nodes > 0);
    assert_ok(cuGraphDestroy(graph));
}

/* cuda.h, cuStreamIsCapturing, cuStreamGetCaptureInfo: asked about the default stream while a blocking stream
 * captures, they answer CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; the capture goes on. */
static void test_status_of_the_default_stream(void **state)
{
    (void)state;
    CUgraph graph;
    CUstream blocking;
    CUstreamCaptureStatus status;
    assert_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(status_of(NULL), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
    assert_ok(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(cuStreamGetCaptureInfo(NULL, &status, NULL, NULL, NULL, NULL, NULL),
                     CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_ok(cuStreamEndCapture(blocking, &graph));
    assert_ok(cuGraphDestroy(graph));
    assert_ok(cuStreamDestroy(blocking));
}

/* cuda.h, cuStreamWaitEvent, cuEventRecordWithFlags: the flags for external nodes are invalid outside of a
 * capture. */
static void test_external_flags(void **state)
{
    (void)state;
    CUgraph graph;
    assert_int_equal(cuStreamWaitEvent(s, event, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuEventRecordWithFlags(event, s, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuStreamWaitEvent(s, event, CU_EVENT_WAIT_EXTERNAL));
    assert_ok(cuEventRecordWithFlags(event, s, CU_EVENT_RECORD_EXTERNAL));
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_ok(cuGraphDestroy(graph));
    assert_ok(cuEventQuery(event)); /* it was not captured itself */
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
        TEST(test_event_after_its_capture),
        TEST(test_wait_for_event_after_its_capture),
        TEST(test_free_in_a_capture),
        TEST(test_questions_in_a_capture),
        TEST(test_pools_in_a_capture),
        TEST(test_status_of_the_default_stream),
        TEST(test_external_flags),
    };
    RUN_CONTRACT(tests);
}
