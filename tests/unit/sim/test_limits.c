/* SPDX-License-Identifier: Apache-2.0 */
/* Limits and switches of the configuration. */
#include "tests/unit/sim/sim_test.h"

/* The ceiling shows as out of memory from set-access, not from map, and the failed call changes nothing. */
static void test_mapping_ceiling(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    config.mappings_max = 5;
    begin(&config);
    CUmemGenericAllocationHandle handle = create(UNIT);
    CUdeviceptr base = reserve(8 * UNIT);
    for (int i = 0; i < 8; i++)
        assert_ok(cuMemMap(base + (CUdeviceptr)i * UNIT, UNIT, 0, handle, 0));
    assert_ok(try_access(base, 3 * UNIT, 0));
    assert_int_equal(try_access(base + 3 * UNIT, 5 * UNIT, 0), CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 3; i < 8; i++)
        assert_false(sim_accessible(base + (CUdeviceptr)i * UNIT, 0));
    assert_ok(try_access(base + 3 * UNIT, 2 * UNIT, 0));
    assert_ok(try_access(base, 5 * UNIT, 1)); /* those that have access need nothing new */
    assert_ok(cuMemUnmap(base, UNIT));
    assert_ok(try_access(base + 5 * UNIT, UNIT, 0));
}

static void test_address_budget(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUdeviceptr a, b, plain;
    config.address_bytes = 10 * UNIT;
    begin(&config);
    a = reserve(6 * UNIT);
    assert_int_equal(cuMemAddressReserve(&b, 5 * UNIT, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    b = reserve(4 * UNIT);
    assert_int_equal(cuMemAlloc(&plain, UNIT), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_ok(cuMemAddressFree(a, 6 * UNIT));
    assert_ok(cuMemAlloc(&plain, UNIT));
}

static void test_partial_mappings(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    uint64_t offset;
    config.partial_mappings = true;
    begin(&config);
    CUmemGenericAllocationHandle handle = create(4 * UNIT);
    CUdeviceptr base = reserve(4 * UNIT);
    assert_ok(cuMemMap(base, UNIT, 2 * UNIT, handle, 0));
    assert_true(sim_resolve(base + 5, NULL, &offset));
    assert_int_equal(offset, 2 * UNIT + 5);
    assert_int_equal(cuMemMap(base + UNIT, 3 * UNIT, 2 * UNIT, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemMap(base + UNIT, 2 * UNIT, UNIT, handle, 0));
    assert_ok(try_access(base, 3 * UNIT, 0));
    unsigned word = 5, got = 0;
    assert_ok(cuMemcpyHtoD(base + 64, &word, 4));
    assert_ok(cuMemcpyDtoH(&got, base + 2 * UNIT + 64, 4)); /* the same byte of the handle */
    assert_int_equal(got, 5);
}

static void test_unmap_one_by_one(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    config.unmap_several = false;
    begin(&config);
    CUdeviceptr base = reserve(2 * UNIT);
    assert_ok(cuMemMap(base, UNIT, 0, create(UNIT), 0));
    assert_ok(cuMemMap(base + UNIT, UNIT, 0, create(UNIT), 0));
    assert_int_equal(cuMemUnmap(base, 2 * UNIT), CUDA_ERROR_INVALID_VALUE);
    assert_broken("unmap-several");
    assert_ok(cuMemUnmap(base, UNIT));
    assert_ok(cuMemUnmap(base + UNIT, UNIT));
}

static void test_no_vmm(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    int value;
    config.lacks = SIM_FEATURE_VMM;
    begin(&config);
    assert_ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    assert_int_equal(value, 0);
    assert_int_equal(try_create(UNIT, &handle), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuMemAddressReserve(&base, UNIT, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_ok(cuMemAlloc(&base, UNIT));
}

/* note: an attribute may say yes and the call no (containers, some virtual GPUs). */
static void test_lies(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    int value;
    config.lies = SIM_FEATURE_EXPORT;
    begin(&config);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    assert_ok(
        cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    assert_int_equal(value, 1);
    assert_int_equal(cuMemCreate(&handle, UNIT, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_ok(try_create(UNIT, &handle));
    config.lies = SIM_FEATURE_VMM;
    begin(&config);
    assert_int_equal(try_create(UNIT, &handle), CUDA_ERROR_NOT_SUPPORTED);
}

static void test_other_granularity(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    size_t granularity;
    config.granularity = 16 * MIB;
    begin(&config);
    assert_ok(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    assert_int_equal(granularity, 16 * MIB);
    assert_int_equal(try_create(2 * MIB, &handle), CUDA_ERROR_INVALID_VALUE);
    assert_ok(try_create(16 * MIB, &handle));
}

/* Table-only: the same books and rules, no host memory; copies to the host give zeros. */
static void test_table_only(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    config.backed = false;
    config.device_bytes = (uint64_t)1 << 40;
    begin(&config);
    enum { N = 70000 }; /* more than a process may have maps */
    CUmemGenericAllocationHandle handle = create(UNIT);
    CUdeviceptr base = reserve((size_t)N * UNIT);
    for (CUdeviceptr i = 0; i < N; i++)
        if (cuMemMap(base + i * UNIT, UNIT, 0, handle, 0))
            fail_msg("mapping %llu", i);
    assert_ok(try_access(base, (size_t)N * UNIT, 0));
    assert_int_equal(sim_mapping_count(0), N);
    unsigned word = 5;
    assert_ok(cuMemsetD32(base, 1, 16));
    assert_ok(cuMemcpyDtoH(&word, base, 4));
    assert_int_equal(word, 0);
    assert_int_equal(cuMemcpyDtoH(&word, base + (CUdeviceptr)N * UNIT, 4), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemUnmap(base, (size_t)N * UNIT));
    assert_ok(cuMemAddressFree(base, (size_t)N * UNIT));
}

/* A whole device in the smallest handles, each mapped twice, the second time in the opposite order. */
static void test_hundred_gib_mapped_twice(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    enum { N = 51200 };
    config.backed = false;
    config.device_bytes = (uint64_t)100 << 30;
    begin(&config);
    CUdeviceptr base = reserve((size_t)N * UNIT), view = reserve((size_t)N * UNIT);
    for (CUdeviceptr i = 0; i < N; i++) {
        CUmemGenericAllocationHandle handle = create(UNIT);
        assert_ok(cuMemMap(base + i * UNIT, UNIT, 0, handle, 0));
        assert_ok(cuMemMap(view + (N - 1 - i) * UNIT, UNIT, 0, handle, 0));
        assert_ok(cuMemRelease(handle));
    }
    assert_ok(try_access(base, (size_t)N * UNIT, 0));
    assert_ok(try_access(view, (size_t)N * UNIT, 0));
    assert_int_equal(sim_mapping_count(0), 2 * N);
    assert_int_equal(sim_physical_bytes(0), (uint64_t)N * UNIT);
    for (CUdeviceptr i = 0; i < N; i += 997) {
        uint64_t handle[2], offset[2];
        assert_true(sim_resolve(base + i * UNIT + 7, &handle[0], &offset[0]));
        assert_true(sim_resolve(view + (N - 1 - i) * UNIT + 7, &handle[1], &offset[1]));
        assert_true(handle[0] == handle[1] && offset[0] == offset[1]);
    }
    assert_ok(cuMemUnmap(base, (size_t)N * UNIT));
    assert_ok(cuMemUnmap(view, (size_t)N * UNIT));
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_ok(cuMemAddressFree(base, (size_t)N * UNIT));
    assert_ok(cuMemAddressFree(view, (size_t)N * UNIT));
}

/* Backed, neighbours in address and memory share a host map: more mappings than a process may have maps. */
static void test_many_backed_mappings(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    enum { N = 70000 };
    config.granularity = 65536;
    config.device_bytes = (uint64_t)N * 65536;
    begin(&config);
    CUdeviceptr base = reserve((size_t)N * 65536);
    for (CUdeviceptr i = 0; i < N; i++)
        if (cuMemMap(base + i * 65536, 65536, 0, create(65536), 0))
            fail_msg("mapping %llu", i);
    assert_ok(try_access(base, (size_t)N * 65536, 0));
    unsigned word = 9, got = 0;
    assert_ok(cuMemcpyHtoD(base + (CUdeviceptr)(N - 1) * 65536, &word, 4));
    assert_ok(cuMemcpyDtoH(&got, base + (CUdeviceptr)(N - 1) * 65536, 4));
    assert_int_equal(got, 9);
    assert_ok(cuMemUnmap(base, (size_t)N * 65536));
}

/* When the host has no more maps, set-access is out of memory, as at the ceiling, and changes nothing. One
 * handle seen from many neighbouring addresses needs a host map for each. */
static void test_host_runs_out_of_maps(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    enum { N = 70000, SMALL = 65536 };
    config.granularity = SMALL;
    begin(&config);
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    long most = 0;
    if (!file || fscanf(file, "%ld", &most) != 1 || most > N)
        skip();
    fclose(file);
    CUmemGenericAllocationHandle handle = create(SMALL);
    CUdeviceptr base = reserve((size_t)N * SMALL);
    for (CUdeviceptr i = 0; i < N; i++)
        if (cuMemMap(base + i * SMALL, SMALL, 0, handle, 0))
            fail_msg("mapping %llu", i);
    assert_int_equal(try_access(base, (size_t)N * SMALL, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_false(sim_accessible(base, 0));
    assert_false(sim_accessible(base + 60000 * (CUdeviceptr)SMALL, 0));
    assert_ok(try_access(base, 1000 * (size_t)SMALL, 0)); /* the failed call has left room */
    assert_ok(cuMemsetD32(base, 7, 4));
    unsigned word = 0;
    assert_ok(cuMemcpyDtoH(&word, base + 999 * (CUdeviceptr)SMALL, 4));
    assert_int_equal(word, 7);
    assert_ok(cuMemUnmap(base, (size_t)N * SMALL));
    assert_ok(cuMemAddressFree(base, (size_t)N * SMALL));
}

/* Free memory in pieces serves a large handle: a GPU has pages. */
static void test_pieces_serve_large_handles(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUmemGenericAllocationHandle handles[128];
    begin(&config);
    for (int i = 0; i < 128; i++)
        handles[i] = create(UNIT);
    for (int i = 0; i < 128; i += 2)
        assert_ok(cuMemRelease(handles[i]));
    create(64 * UNIT);
    assert_int_equal(sim_physical_bytes(0), 256 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mapping_ceiling),
        cmocka_unit_test(test_address_budget),
        cmocka_unit_test(test_partial_mappings),
        cmocka_unit_test(test_unmap_one_by_one),
        cmocka_unit_test(test_no_vmm),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_other_granularity),
        cmocka_unit_test(test_table_only),
        cmocka_unit_test(test_hundred_gib_mapped_twice),
        cmocka_unit_test(test_many_backed_mappings),
        cmocka_unit_test(test_host_runs_out_of_maps),
        cmocka_unit_test(test_pieces_serve_large_handles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
