/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing a handle by file descriptor, here within one process; processes.c has two. */
#include "tests/contract/contract.h"
#include <unistd.h>

static CUmemGenericAllocationHandle create_exportable(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop = device_prop(0);
    int can;
    assert_ok(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    /* note: the attribute may say yes and creation no, in containers for instance */
    if (!can || cuMemCreate(&handle, granularity, &prop, 0))
        CONTRACT_SKIP("no handles that another process can open");
    return handle;
}

/* cuda.h, cuMemImportFromShareableHandle: the same memory; each import needs a release. */
static void test_import(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create_exportable(), imported;
    int file = -1;
    unsigned word = 0;
    assert_ok(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    assert_true(file >= 0);
    assert_ok(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)file,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(file);
    CUdeviceptr base = reserve(2 * granularity);
    assert_ok(cuMemMap(base, granularity, 0, handle, 0));
    assert_ok(cuMemMap(base + granularity, granularity, 0, imported, 0));
    give_access(base, 2 * granularity);
    assert_ok(cuMemsetD32(base, 31, 64));
    assert_ok(cuMemcpyDtoH(&word, base + granularity + 4, 4));
    assert_int_equal(word, 31);
    assert_ok(cuMemUnmap(base, granularity));
    assert_ok(cuMemUnmap(base + granularity, granularity));
    assert_ok(cuMemRelease(imported));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemAddressFree(base, 2 * granularity));
    assert_int_equal(free_bytes(), before);
}

/* cuda.h, cuMemCreate: a handle is exportable only as it was asked for. */
static void test_not_exportable(void **state)
{
    (void)state;
    int file;
    CUmemGenericAllocationHandle handle = create(granularity);
    assert_int_equal(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemRelease(handle));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_import),
        cmocka_unit_test(test_not_exportable),
    };
    RUN_CONTRACT(tests);
}
