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

/* A prefix maps, at offset 0 only. */
static void test_prefix_mappings(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    config.partial = SIM_PARTIAL_PREFIX;
    begin(&config);
    CUmemGenericAllocationHandle handle = create(4 * UNIT);
    CUdeviceptr base = reserve(4 * UNIT);
    assert_int_equal(cuMemMap(base, UNIT, UNIT, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_broken("map-offset");
    assert_int_equal(cuMemMap(base, 5 * UNIT, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemMap(base, 3 * UNIT, 0, handle, 0));
    assert_ok(cuMemMap(base + 3 * UNIT, UNIT, 0, handle, 0));
    assert_ok(try_access(base, 4 * UNIT, 0));
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

static int says(CUdevice_attribute attribute)
{
    int value = -1;
    assert_ok(cuDeviceGetAttribute(&value, attribute, 0));
    return value;
}

/* What refuses a feature that is not there, whatever the device says. */
static void refuse_pools(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUdeviceptr ptr = 77;
    assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuMemAllocAsync(&ptr, UNIT, NULL), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(ptr, 77);
}

static void refuse_managed(void)
{
    CUdeviceptr ptr = 77;
    assert_int_equal(cuMemAllocManaged(&ptr, UNIT, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(ptr, 77);
    assert_int_equal(sim_physical_bytes(0), 0);
}

static void refuse_peers(void)
{
    CUcontext other;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = map_new(UNIT, &handle);
    assert_ok(cuDevicePrimaryCtxRetain(&other, 1));
    assert_int_equal(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    assert_int_equal(try_access(base, UNIT, 1), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    assert_false(sim_accessible(base, 1));
    assert_true(sim_accessible(base, 0));
}

static void refuse_handle(CUmemAllocationHandleType type, bool rdma)
{
    CUmemGenericAllocationHandle handle = 77;
    CUmemAllocationProp prop = device_prop(0);
    prop.requestedHandleTypes = type;
    prop.allocFlags.gpuDirectRDMACapable = rdma;
    assert_int_equal(cuMemCreate(&handle, UNIT, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(handle, 77);
    assert_ok(try_create(UNIT, &handle)); /* an ordinary one is there */
}

static void refuse_export(void)
{
    refuse_handle(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, false);
}

static void refuse_fabric(void)
{
    refuse_handle(CU_MEM_HANDLE_TYPE_FABRIC, false);
}

static void refuse_rdma(void)
{
    refuse_handle(CU_MEM_HANDLE_TYPE_NONE, true);
}

static void refuse_vmm(void)
{
    CUmemGenericAllocationHandle handle;
    assert_int_equal(try_create(UNIT, &handle), CUDA_ERROR_NOT_SUPPORTED);
}

/* note: an attribute may say yes and the call no (containers, virtual machines, partitions of a device). A
 * device that lacks a feature says no, and refuses in the same way. */
static void test_lacks_and_lies(void **state)
{
    (void)state;
    static const struct {
        unsigned feature;
        CUdevice_attribute attribute; /* 0: cuDeviceCanAccessPeer is what says it */
        void (*refuse)(void);
    } cases[] = {
        {SIM_FEATURE_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, refuse_vmm},
        {SIM_FEATURE_EXPORT, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, refuse_export},
        {SIM_FEATURE_FABRIC, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, refuse_fabric},
        {SIM_FEATURE_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, refuse_pools},
        {SIM_FEATURE_PEERS, (CUdevice_attribute)0, refuse_peers},
        {SIM_FEATURE_MANAGED, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, refuse_managed},
        {SIM_FEATURE_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, refuse_rdma},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int lies = 0; lies < 2; lies++) {
            struct sim_config config = small_device();
            int can = -1;
            config.lies = lies ? cases[i].feature : 0;
            config.lacks = lies ? 0 : cases[i].feature;
            begin(&config);
            assert_ok(cuDeviceCanAccessPeer(&can, 0, 1));
            assert_int_equal(cases[i].attribute ? says(cases[i].attribute) : can, lies);
            cases[i].refuse();
        }
    }
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
    assert_ok(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    assert_int_equal(granularity, 16 * MIB);
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
    if (!file || fscanf(file, "%ld", &most) != 1 || most > N) {
        print_message("the system sets no limit that this test can reach\n");
        skip();
    }
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
        cmocka_unit_test(test_prefix_mappings),
        cmocka_unit_test(test_no_vmm),
        cmocka_unit_test(test_lacks_and_lies),
        cmocka_unit_test(test_other_granularity),
        cmocka_unit_test(test_table_only),
        cmocka_unit_test(test_hundred_gib_mapped_twice),
        cmocka_unit_test(test_many_backed_mappings),
        cmocka_unit_test(test_host_runs_out_of_maps),
        cmocka_unit_test(test_pieces_serve_large_handles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
