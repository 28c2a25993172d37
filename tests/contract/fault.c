/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that writes where nothing is, and what every call answers from then on. The tests follow each
 * other in one process, which the first one breaks; the last comes after that.
 *
 * On a GPU the kernel faults by itself. The simulated device runs no code, and is told which launch faults:
 * SEAMALLOC_SIM_FAIL, which no driver reads. */
#include "tests/contract/contract.h"

static const char kernel_text[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                                  ".visible .entry astray() {\n"
                                  "  .reg .u64 %a;\n  mov.u64 %a, 64;\n  st.global.u32 [%a], 1;\n  ret;\n}\n";

static CUstream s;
static CUevent before, after;
static CUdeviceptr plain, reserved;
static CUmemGenericAllocationHandle handle;
static CUfunction astray;
static bool was_called;

static void CUDA_CB call_me(void *user)
{
    *(bool *)user = true;
}

/* Everything that the tests need, made while calls still work. */
static void make(void)
{
    CUmodule module;
    assert_ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuMemAlloc(&plain, 1 << 20));
    reserved = reserve(2 * granularity);
    handle = create(granularity);
    assert_ok(cuModuleLoadData(&module, kernel_text));
    assert_ok(cuModuleGetFunction(&astray, module, "astray"));
}

/* cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS and cuCtxSynchronize: the launch is taken; a wait is told. cuda.h,
 * cuLaunchHostFunc: the function is not called in the event of an error in the context. */
static void test_told_by_a_wait(void **state)
{
    (void)state;
    make();
    assert_ok(cuMemsetD8Async(plain, 1, 1 << 20, s));
    assert_ok(cuEventRecord(before, s));
    assert_ok(cuEventSynchronize(before));
    assert_ok(cuLaunchKernel(astray, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    CUresult next = cuLaunchHostFunc(s, call_me, &was_called); /* may be the one that is told */
    assert_true(next == CUDA_SUCCESS || next == CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_false(was_called);
}

/* cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS: "any further CUDA work will return the same error". */
static void test_work_is_refused(void **state)
{
    (void)state;
    char byte = 0;
    CUdeviceptr more;
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuStreamQuery(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemsetD8Async(plain, 1, 64, s), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemcpyDtoH(&byte, plain, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuLaunchKernel(astray, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemAlloc(&more, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemFree(plain), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS and \notefnerr: events too, those that had completed among them. */
static void test_events_are_refused(void **state)
{
    (void)state;
    CUevent event;
    assert_int_equal(cuEventQuery(before), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuEventSynchronize(before), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuEventRecord(after, s), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS: "any further CUDA work"; that virtual memory management is such work,
 * although it needs no context, is only ours. */
static void test_mapping_is_refused(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle another;
    CUmemAllocationProp prop = device_prop(0);
    CUmemAccessDesc desc = read_write(0);
    assert_int_equal(cuMemCreate(&another, granularity, &prop, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemMap(reserved, granularity, 0, handle, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemSetAccess(reserved, granularity, &desc, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemUnmap(reserved, granularity), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemRelease(handle), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* note: what a device is, and which context is current, can still be asked; programs do so to report the
 * error and to unwind. */
static void test_questions_about_the_host(void **state)
{
    (void)state;
    int count, value;
    char name[64];
    CUcontext now;
    assert_ok(cuDeviceGetCount(&count));
    assert_ok(cuDeviceGetName(name, sizeof name, 0));
    assert_ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    assert_ok(cuCtxGetCurrent(&now));
    assert_ptr_equal(now, contract_context);
    assert_ok(cuCtxSetCurrent(NULL));
    assert_ok(cuCtxSetCurrent(contract_context));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS); /* asking mends nothing */
}

/* note: an error that stays belongs to its context; another device goes on. */
static void test_another_device(void **state)
{
    (void)state;
    int count;
    CUcontext other;
    CUdeviceptr ptr;
    assert_ok(cuDeviceGetCount(&count));
    if (count < 2)
        CONTRACT_SKIP("one device only");
    assert_ok(cuDevicePrimaryCtxRetain(&other, 1));
    assert_ok(cuCtxSetCurrent(other));
    assert_ok(cuMemAlloc(&ptr, 1 << 20));
    assert_ok(cuMemsetD8(ptr, 1, 1 << 20));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuMemFree(ptr));
    assert_ok(cuCtxSetCurrent(contract_context));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* What is broken cannot be given back. */
static int leave(void **state)
{
    (void)state;
    return 0;
}

int main(void)
{
    int devices = 0;
    setenv("SEAMALLOC_SIM_FAIL", "cuLaunchKernel:1:fault=CUDA_ERROR_ILLEGAL_ADDRESS", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_told_by_a_wait),     cmocka_unit_test(test_work_is_refused),
        cmocka_unit_test(test_events_are_refused), cmocka_unit_test(test_mapping_is_refused),
        cmocka_unit_test(test_another_device),     cmocka_unit_test(test_questions_about_the_host),
    };
    if (cuInit(0) || cuDeviceGetCount(&devices) || devices == 0) {
        fprintf(stderr, "skipped: no CUDA device\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, contract_setup, leave);
}
