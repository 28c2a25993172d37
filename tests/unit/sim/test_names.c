/* SPDX-License-Identifier: Apache-2.0 */
/* libcuda.so.1 exports every name of the driver API, and the two lists of the build are complete and
 * disjoint. Arguments: the library, the folder of the lists. */
#include "tests/support/cmocka_all.h"
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *library_path, *list_folder;
static void *library;

static int open_library(void **state)
{
    (void)state;
    library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    return library ? 0 : -1;
}

/* Calls check for each name of a list. Returns: how many there are. */
static unsigned each_name(const char *list, void (*check)(const char *))
{
    char path[4096], line[256];
    unsigned count = 0;
    snprintf(path, sizeof path, "%s/%s", list_folder, list);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        check(line);
        count++;
    }
    fclose(file);
    return count;
}

static void check_exported(const char *name)
{
    if (!dlsym(library, name))
        fail_msg("%s is not exported", name);
}

static void test_exports(void **state)
{
    (void)state;
    unsigned implemented = each_name("names-implemented.txt", check_exported);
    unsigned unsupported = each_name("names-unsupported.txt", check_exported);
    assert_true(implemented > 200);
    assert_true(implemented + unsupported > 600); /* of CUDA 13 */
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

/* The name that cuda.h gives a function now is the one that a look-up for now finds. */
static void check_form(const char *name, const char *symbol)
{
    void *found = NULL;
    CUresult (*look_up)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    *(void **)&look_up = dlsym(library, "cuGetProcAddress_v2");
    assert_non_null(look_up);
    assert_int_equal(look_up(name, &found, CUDA_VERSION, 0, NULL), CUDA_SUCCESS);
    if (!found || found != dlsym(library, symbol))
        fail_msg("%s does not lead to %s", name, symbol);
}

static void test_newest_forms(void **state)
{
    (void)state;
    check_form("cuMemAlloc", TEXT(cuMemAlloc));
    check_form("cuMemFree", TEXT(cuMemFree));
    check_form("cuMemGetInfo", TEXT(cuMemGetInfo));
    check_form("cuCtxCreate", TEXT(cuCtxCreate));
    check_form("cuCtxPushCurrent", TEXT(cuCtxPushCurrent));
    check_form("cuEventDestroy", TEXT(cuEventDestroy));
    check_form("cuEventElapsedTime", TEXT(cuEventElapsedTime));
    check_form("cuStreamDestroy", TEXT(cuStreamDestroy));
    check_form("cuStreamBeginCapture", TEXT(cuStreamBeginCapture));
    check_form("cuStreamGetCaptureInfo", TEXT(cuStreamGetCaptureInfo));
    check_form("cuStreamWriteValue32", TEXT(cuStreamWriteValue32));
    check_form("cuGraphAddNode", TEXT(cuGraphAddNode));
    check_form("cuMemcpyHtoDAsync", TEXT(cuMemcpyHtoDAsync));
    check_form("cuDevicePrimaryCtxRelease", TEXT(cuDevicePrimaryCtxRelease));
    check_form("cuGetProcAddress", TEXT(cuGetProcAddress));
    check_form("cuMemCreate", TEXT(cuMemCreate));
    check_form("cuProfilerStart", TEXT(cuProfilerStart));
}

/* What the allocator, PyTorch and the runtime beside this driver need is implemented. */
static unsigned wanted_left;
static const char *wanted[] = {"cuMemCreate",
                               "cuMemRelease",
                               "cuMemMap",
                               "cuMemUnmap",
                               "cuMemSetAccess",
                               "cuMemAddressReserve",
                               "cuMemAddressFree",
                               "cuMemRetainAllocationHandle",
                               "cuMemGetAllocationPropertiesFromHandle",
                               "cuMemExportToShareableHandle",
                               "cuMemImportFromShareableHandle",
                               "cuMemsetD32Async",
                               "cuMemsetD32Async_ptsz",
                               "cuStreamWriteValue32_v2",
                               "cuEventQuery",
                               "cuCtxRecordEvent",
                               "cuLaunchHostFunc",
                               "cuGraphLaunch",
                               "cuMemAllocAsync"};

static void check_wanted(const char *name)
{
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        wanted_left -= !strcmp(name, wanted[i]);
}

static void test_wanted_names(void **state)
{
    (void)state;
    wanted_left = sizeof wanted / sizeof *wanted;
    each_name("names-implemented.txt", check_wanted);
    assert_int_equal(wanted_left, 0);
}

/* No undocumented table is answered. */
static void test_no_export_table(void **state)
{
    (void)state;
    const void *table = &table;
    CUuuid id = {{0}};
    CUresult (*get)(const void **, const CUuuid *);
    *(void **)&get = dlsym(library, "cuGetExportTable");
    assert_int_equal(get(&table, &id), CUDA_ERROR_NOT_FOUND);
    assert_null(table);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exports),
        cmocka_unit_test(test_newest_forms),
        cmocka_unit_test(test_wanted_names),
        cmocka_unit_test(test_no_export_table),
    };
    if (argc < 3)
        return 2;
    library_path = argv[1];
    list_folder = argv[2];
    return cmocka_run_group_tests(tests, open_library, NULL);
}
