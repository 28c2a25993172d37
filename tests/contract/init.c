/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisation, devices, contexts, errors and entry points. */
#include "tests/contract/contract.h"
#include <string.h>

/* cuda.h, cuInit: the flags must be 0; to initialise again is no error. */
static void test_init_takes_no_flags(void **state)
{
    (void)state;
    assert_int_equal(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuInit(0));
}

/* cuda.h, cuDeviceGet: ordinals are 0 .. count - 1. */
static void test_devices(void **state)
{
    (void)state;
    int count, value;
    CUdevice device;
    size_t total;
    char name[64];
    assert_ok(cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++) {
        assert_ok(cuDeviceGet(&device, i));
        assert_ok(cuDeviceTotalMem(&total, device));
        assert_true(total > 0);
        assert_ok(cuDeviceGetName(name, sizeof name, device));
        assert_true(strlen(name) > 0);
        assert_ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
        assert_int_equal(value, 32);
        assert_ok(
            cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
        assert_int_equal(value, 1);
    }
    assert_int_equal(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
}

/* cuda.h, cuDeviceGetPCIBusId and cuDeviceGetByPCIBusId are inverse; identities differ between devices. */
static void test_identity(void **state)
{
    (void)state;
    int count;
    CUuuid first, other;
    assert_ok(cuDeviceGetCount(&count));
    assert_ok(cuDeviceGetUuid(&first, 0));
    for (int i = 0; i < count; i++) {
        char id[20];
        CUdevice found;
        assert_ok(cuDeviceGetPCIBusId(id, sizeof id, i));
        assert_ok(cuDeviceGetByPCIBusId(&found, id));
        assert_int_equal(found, i);
        assert_ok(cuDeviceGetUuid(&other, i));
        assert_int_equal(memcmp(&first, &other, sizeof first) == 0, i == 0);
    }
}

/* cuda.h, cuCtxPushCurrent and cuCtxPopCurrent: a stack for each thread. */
static void test_context_stack(void **state)
{
    (void)state;
    CUcontext now, popped;
    CUdevice device;
    assert_ok(cuCtxPushCurrent(contract_context));
    assert_ok(cuCtxGetCurrent(&now));
    assert_ptr_equal(now, contract_context);
    assert_ok(cuCtxGetDevice(&device));
    assert_int_equal(device, 0);
    assert_ok(cuCtxPopCurrent(&popped));
    assert_ptr_equal(popped, contract_context);
    assert_ok(cuCtxGetCurrent(&now));
    assert_ptr_equal(now, contract_context);
}

/* cuda.h, cuMemAlloc: CUDA_ERROR_INVALID_CONTEXT without a current context. */
static void test_no_context(void **state)
{
    (void)state;
    CUdeviceptr ptr;
    CUdevice device;
    assert_ok(cuCtxSetCurrent(NULL));
    assert_int_equal(cuMemAlloc(&ptr, 1024), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    assert_ok(cuCtxSetCurrent(contract_context));
}

/* cuda.h, cuDevicePrimaryCtxRetain: counted; the state is active while somebody retains it. */
static void test_primary_context_is_counted(void **state)
{
    (void)state;
    CUcontext again;
    unsigned flags;
    int active;
    assert_ok(cuDevicePrimaryCtxRetain(&again, 0));
    assert_ptr_equal(again, contract_context);
    assert_ok(cuDevicePrimaryCtxRelease(0));
    assert_ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 1);
}

/* cuda.h, cuGetErrorName: CUDA_ERROR_INVALID_VALUE and NULL for what is no error. */
static void test_error_texts(void **state)
{
    (void)state;
    const char *text;
    assert_ok(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_ok(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "out of memory");
    assert_int_equal(cuGetErrorName((CUresult)123456, &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
}

/* cuda.h, cuGetProcAddress: the form that fits the asked version; no error for an unknown name, but a status.
 */
static void test_entry_points(void **state)
{
    (void)state;
    CUdriverProcAddressQueryResult status;
    void *function = NULL;
    assert_ok(cuGetProcAddress("cuMemCreate", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
    assert_non_null(function);
    assert_ok(cuGetProcAddress("cuMemCreate", &function, 9000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    assert_null(function);
    assert_ok(cuGetProcAddress("cuNoSuchThing", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    assert_null(function);
}

/* cuda.h, cuGetProcAddress: the form that the version means, and by flag the one for per-thread default
 * streams. */
static void test_entry_point_forms(void **state)
{
    (void)state;
    CUresult (*get_info)(size_t *, size_t *);
    CUresult (*wait_event)(CUstream, CUevent, unsigned);
    void *function;
    size_t left, total;
    assert_ok(cuGetProcAddress("cuMemGetInfo", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    *(void **)&get_info = function;
    assert_ok(get_info(&left, &total));
    assert_true(left <= total && total > 0);
    void *per_thread;
    assert_ok(
        cuGetProcAddress("cuStreamWaitEvent", &function, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL));
    assert_ok(cuGetProcAddress("cuStreamWaitEvent", &per_thread, 12000,
                               CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
    assert_ptr_not_equal(function, per_thread);
    *(void **)&wait_event = per_thread;
    CUevent event;
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(wait_event(NULL, event, 0));
    assert_ok(cuEventDestroy(event));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_takes_no_flags),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_context_stack),
        cmocka_unit_test(test_no_context),
        cmocka_unit_test(test_primary_context_is_counted),
        cmocka_unit_test(test_error_texts),
        cmocka_unit_test(test_entry_points),
        cmocka_unit_test(test_entry_point_forms),
    };
    RUN_CONTRACT(tests);
}
