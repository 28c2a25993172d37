/* SPDX-License-Identifier: Apache-2.0 */
/* Errors that stay: what breaks a device, when that is told, and what is left of it. What every call answers
 * then is the contract's business (tests/contract/fault.c). */
#include "tests/unit/sim/sim_test.h"
#include <stdatomic.h>

static void start_mode(enum sim_streams streams, bool copies_fault)
{
    struct sim_config config = small_device();
    config.streams = streams;
    config.copies_fault = copies_fault;
    begin(&config);
}

/* A mapping to which nobody has access. */
static CUdeviceptr map_closed(void)
{
    CUdeviceptr base = reserve(UNIT);
    assert_ok(cuMemMap(base, UNIT, 0, create(UNIT), 0));
    return base;
}

static void assert_broken_device(int device, const char *rule)
{
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(sim_device_error(device), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_broken(rule);
    assert_int_equal(sim_violation_count(), 1);
}

/* A kernel's addresses are its own business: the launch is taken in every mode. */
static void test_kernels(void **state)
{
    (void)state;
    for (int mode = SIM_STREAMS_IMMEDIATE; mode <= SIM_STREAMS_TIMED; mode++) {
        start_mode((enum sim_streams)mode, false);
        assert_ok(sim_stream_work(NULL, reserve(UNIT), UNIT, 0));
        assert_broken_device(0, "touch-unmapped");
        start_mode((enum sim_streams)mode, false);
        assert_ok(sim_stream_work(NULL, map_closed(), UNIT, 0));
        assert_broken_device(0, "touch-no-access");
        assert_int_equal(sim_device_error(1), CUDA_SUCCESS);
    }
}

/* A copy or fill is refused at the call, and nothing is broken; or it is taken, where the device says so. */
static void test_copies(void **state)
{
    (void)state;
    unsigned word = 0;
    start_mode(SIM_STREAMS_IMMEDIATE, false);
    assert_int_equal(cuMemsetD8(reserve(UNIT), 0, UNIT), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoH(&word, map_closed(), 4), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuCtxSynchronize());
    assert_int_equal(sim_device_error(0), CUDA_SUCCESS);
    start_mode(SIM_STREAMS_LATE, true);
    assert_ok(cuMemsetD8Async(reserve(UNIT), 0, UNIT, NULL));
    assert_broken_device(0, "touch-unmapped");
    start_mode(SIM_STREAMS_LATE, true);
    assert_int_equal(cuMemcpyDtoH(&word, map_closed(), 4), CUDA_ERROR_ILLEGAL_ADDRESS); /* it waits itself */
    assert_broken_device(0, "touch-no-access");
}

/* Memory that goes while work on it is queued. */
static void test_memory_that_goes(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    for (int kernel = 0; kernel < 2; kernel++) {
        start_mode(SIM_STREAMS_LATE, false);
        CUdeviceptr base = map_new(UNIT, &handle);
        if (kernel)
            assert_ok(sim_stream_work(NULL, base, UNIT, 0));
        else
            assert_ok(cuMemsetD8Async(base, 1, UNIT, NULL));
        assert_ok(cuMemUnmap(base, UNIT)); /* recorded: unmap-in-use */
        assert_int_equal(sim_device_error(0), CUDA_SUCCESS);
        assert_int_equal(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_broken("touch-unmapped");
    }
}

/* The addresses of a graph's nodes are not looked up again at a launch. */
static void test_graphs(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    start_mode(SIM_STREAMS_IMMEDIATE, false);
    CUdeviceptr base = map_new(UNIT, &handle);
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuMemsetD8Async(base, 1, UNIT, stream));
    assert_ok(cuStreamEndCapture(stream, &graph));
    assert_ok(cuGraphInstantiate(&exec, graph, 0));
    assert_ok(cuGraphLaunch(exec, stream));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuMemUnmap(base, UNIT));
    assert_ok(cuGraphLaunch(exec, stream));
    assert_broken_device(0, "touch-unmapped");
}

/* A broken device does no work that is queued, and calls nobody. */
static atomic_int calls;

static void CUDA_CB count_call(void *user)
{
    (void)user;
    atomic_fetch_add(&calls, 1);
}

static void test_queued_work_is_dropped(void **state)
{
    (void)state;
    CUstream stream;
    unsigned char bytes[64] = {0};
    start_mode(SIM_STREAMS_IMMEDIATE, false);
    CUdeviceptr plain;
    assert_ok(cuMemAlloc(&plain, 64));
    assert_ok(cuMemsetD8(plain, 7, 64));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(sim_stream_hold(stream, true));
    assert_ok(sim_stream_work(stream, reserve(UNIT), UNIT, 0));
    assert_ok(cuMemsetD8Async(plain, 1, 64, stream));
    assert_ok(cuLaunchHostFunc(stream, count_call, NULL));
    assert_ok(sim_stream_hold(stream, false));
    assert_int_equal(sim_stream_pending(stream), 0);
    assert_int_equal(atomic_load(&calls), 0);
    memcpy(bytes, (const void *)plain, 64); /* addresses are the host's here */
    assert_int_equal(bytes[0], 7);
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Streams and events of a broken device answer for it, whichever device is current. */
static void test_seen_from_another_device(void **state)
{
    (void)state;
    CUstream stream;
    CUevent event;
    CUdeviceptr plain;
    start_mode(SIM_STREAMS_LATE, false);
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&event, 0));
    assert_ok(sim_stream_work(stream, reserve(UNIT), UNIT, 0));
    assert_ok(cuEventRecord(event, stream));
    use_device(1);
    assert_int_equal(cuEventSynchronize(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(sim_stream_work(stream, 0, 0, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_ok(cuMemAlloc(&plain, UNIT));
    assert_ok(cuMemsetD8(plain, 1, UNIT));
    assert_ok(cuCtxSynchronize());
    assert_int_equal(sim_device_error(0), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(sim_device_error(1), CUDA_SUCCESS);
}

/* Faults by name: of work, in a capture, and of a call that has none. */
static void test_faults_on_demand(void **state)
{
    (void)state;
    CUdeviceptr plain;
    start_mode(SIM_STREAMS_IMMEDIATE, false);
    assert_ok(cuMemAlloc(&plain, UNIT));
    assert_true(sim_fail_text("cuMemsetD8Async:2:fault=CUDA_ERROR_LAUNCH_FAILED"));
    assert_ok(cuMemsetD8Async(plain, 1, 64, NULL));
    assert_ok(cuStreamSynchronize(NULL));
    assert_ok(cuMemsetD8Async(plain, 1, 64, NULL));
    assert_int_equal(cuStreamSynchronize(NULL), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(sim_violation_count(), 0); /* the program broke no rule */
    assert_int_equal(sim_fail_hits(), 1);
    start_mode(SIM_STREAMS_IMMEDIATE, false);
    assert_true(sim_fail_text("cuMemAlloc:1:fault=CUDA_ERROR_ILLEGAL_INSTRUCTION"));
    assert_ok(cuMemAlloc(&plain, UNIT));
    assert_int_equal(cuMemAlloc(&plain, UNIT), CUDA_ERROR_ILLEGAL_INSTRUCTION);
    start_mode(SIM_STREAMS_IMMEDIATE, false);
    assert_true(sim_fail_text("cuMemAlloc:1:error=CUDA_ERROR_MISALIGNED_ADDRESS"));
    assert_int_equal(cuMemAlloc(&plain, UNIT), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_int_equal(cuMemAlloc(&plain, UNIT), CUDA_ERROR_MISALIGNED_ADDRESS); /* such an error stays */
}

static void test_faults_of_captured_work(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr plain;
    start_mode(SIM_STREAMS_IMMEDIATE, false);
    assert_ok(cuMemAlloc(&plain, UNIT));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_true(sim_fail_text("cuMemsetD8Async:1:fault=CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(cuMemsetD8Async(plain, 1, 64, stream));
    assert_ok(cuStreamEndCapture(stream, &graph));
    assert_ok(cuGraphInstantiate(&exec, graph, 0));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuGraphLaunch(exec, stream));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* The first error is the one that stays; a new device has none; resetting the context mends nothing. */
static void test_first_one_stays(void **state)
{
    (void)state;
    CUdeviceptr plain;
    start_mode(SIM_STREAMS_LATE, false);
    assert_ok(cuMemAlloc(&plain, UNIT));
    assert_true(sim_fail_text("cuMemsetD8Async:1:fault=CUDA_ERROR_ASSERT"));
    assert_ok(cuMemsetD8Async(plain, 1, 64, NULL));
    assert_ok(sim_stream_work(NULL, reserve(UNIT), UNIT, 0));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
    assert_int_equal(sim_device_error(0), CUDA_ERROR_ASSERT);
    assert_int_equal(cuDevicePrimaryCtxReset(0), CUDA_ERROR_ASSERT);
    sim_reset();
    use_device(0);
    assert_int_equal(sim_device_error(0), CUDA_SUCCESS);
    assert_ok(cuCtxSynchronize());
    assert_int_equal(sim_device_error(-1), CUDA_SUCCESS);
    assert_int_equal(sim_device_error(SIM_DEVICES_MAX), CUDA_SUCCESS);
}

/* A text for what happens to a call names one thing, and an error that is one. */
static void test_wrong_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "cuMemAlloc:1:fault=CUDA_ERROR_OUT_OF_MEMORY",
        "cuMemAlloc:1:fault=700",
        "cuMemAlloc:1:error=CUDA_SUCCESS",
        "cuMemAlloc:1:error=",
        "cuMemAlloc:1:tenant=0",
        "cuMemAlloc:1:tenant=x",
        "cuMemAlloc:1:error=CUDA_ERROR_UNKNOWN:tenant=1M",
    };
    start_mode(SIM_STREAMS_IMMEDIATE, false);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (sim_fail_text(texts[i]))
            fail_msg("taken: %s", texts[i]);
    assert_true(sim_fail_text("cuMemAlloc:1:size>=4M:fault=CUDA_ERROR_ASSERT:device=1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_memory_that_goes),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_queued_work_is_dropped),
        cmocka_unit_test(test_seen_from_another_device),
        cmocka_unit_test(test_faults_on_demand),
        cmocka_unit_test(test_faults_of_captured_work),
        cmocka_unit_test(test_first_one_stays),
        cmocka_unit_test(test_wrong_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
