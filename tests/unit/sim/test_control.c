/* SPDX-License-Identifier: Apache-2.0 */
/* Start and reset, and the device's books. */
#include "tests/unit/sim/sim_test.h"

static void test_wrong_configurations(void **state)
{
    (void)state;
    struct sim_config good = small_device(), c;
    begin(&good);
    CUmemGenericAllocationHandle handle = create(UNIT);
    c = good;
    c.devices = 0;
    assert_false(sim_start(&c));
    c = good;
    c.devices = SIM_DEVICES_MAX + 1;
    assert_false(sim_start(&c));
    c = good;
    c.granularity = 3 * MIB;
    assert_false(sim_start(&c));
    c = good;
    c.device_bytes = UNIT + 1;
    assert_false(sim_start(&c));
    c = good;
    c.cost = "no-such-preset";
    assert_false(sim_start(&c));
    assert_ok(cuMemRelease(handle)); /* the device of before is still there */
}

/* After a reset everything is as new, and what was given out before is unknown. */
static void test_reset(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUstream stream;
    CUevent event;
    CUcontext context;
    CUdeviceptr plain, base = map_new(UNIT, &handle);
    assert_ok(cuMemAlloc(&plain, MIB));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&event, 0));
    assert_ok(sim_stream_hold(stream, true));
    assert_ok(sim_stream_work(stream, base, UNIT, 0));
    sim_reset();
    struct sim_live live, none = {0};
    sim_live(&live);
    assert_memory_equal(&live, &none, sizeof live);
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_int_equal(sim_physical_bytes_peak(0), 0);
    assert_int_equal(sim_calls_total(), 0);
    assert_ok(cuCtxGetCurrent(&context));
    assert_null(context);
    use_device(0);
    assert_int_equal(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFree(plain), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
}

/* The same calls give the same addresses, after a reset and in every process. */
static void test_addresses_repeat(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr reserved[2], plain[2];
    for (int i = 0; i < 2; i++) {
        reserved[i] = map_new(3 * UNIT, &handle);
        assert_ok(cuMemAlloc(&plain[i], 5 * MIB));
        sim_reset();
        use_device(0);
    }
    assert_int_equal(reserved[0], reserved[1]);
    assert_int_equal(plain[0], plain[1]);
}

static void test_peak(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle a = create(3 * UNIT), b = create(2 * UNIT);
    assert_int_equal(sim_physical_bytes(0), 5 * UNIT);
    assert_ok(cuMemRelease(a));
    assert_int_equal(sim_physical_bytes(0), 2 * UNIT);
    assert_int_equal(sim_physical_bytes_peak(0), 5 * UNIT);
    assert_int_equal(sim_physical_bytes(1), 0);
    assert_ok(cuMemRelease(b));
}

/* Another tenant: what it takes is not there for us, whatever the driver said a moment before. */
static void test_tenant(void **state)
{
    (void)state;
    size_t left, total;
    CUmemGenericAllocationHandle handle;
    assert_true(sim_tenant(0, 200 * (int64_t)MIB));
    assert_ok(cuMemGetInfo(&left, &total));
    assert_int_equal(left, 56 * MIB);
    assert_int_equal(total, 256 * MIB);
    assert_int_equal(try_create(60 * MIB, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    assert_false(sim_tenant(0, 57 * (int64_t)MIB));
    assert_false(sim_tenant(0, -201 * (int64_t)MIB));
    assert_true(sim_tenant(0, -100 * (int64_t)MIB));
    assert_ok(try_create(60 * MIB, &handle));
    assert_int_equal(sim_physical_bytes(0), 60 * MIB); /* the tenant's are not ours */
    assert_ok(cuMemRelease(handle));
    assert_false(sim_tenant(5, 1));
}

static void test_live(void **state)
{
    (void)state;
    struct sim_live live;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = map_new(UNIT, &handle), plain;
    CUevent event;
    CUstream stream;
    void *host;
    assert_ok(cuMemAlloc(&plain, 1));
    assert_ok(cuMemHostAlloc(&host, 1, 0));
    assert_ok(cuEventCreate(&event, 0));
    assert_ok(cuStreamCreate(&stream, 0));
    assert_ok(cuMemRelease(handle)); /* still mapped, so still there */
    sim_live(&live);
    assert_int_equal(live.handles, 1);
    assert_int_equal(live.mappings, 1);
    assert_int_equal(live.reservations, 1);
    assert_int_equal(live.reserved_bytes, UNIT);
    assert_int_equal(live.allocations, 1);
    assert_int_equal(live.host, 1);
    assert_int_equal(live.events, 1);
    assert_int_equal(live.streams, 1);
    assert_int_equal(sim_mapping_count(0), 1);
    assert_int_equal(sim_mapping_count(1), 0);
    assert_ok(cuMemUnmap(base, UNIT));
    sim_live(&live);
    assert_int_equal(live.handles, 0);
    assert_int_equal(live.mappings, 0);
}

/* Two addresses are one byte if and only if handle and offset agree. */
static void test_resolve(void **state)
{
    (void)state;
    uint64_t id, other, offset;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = map_new(2 * UNIT, &handle), view = reserve(4 * UNIT), plain;
    assert_true(sim_resolve(base + UNIT + 7, &id, &offset));
    assert_int_equal(offset, UNIT + 7);
    assert_ok(cuMemMap(view + UNIT, 2 * UNIT, 0, handle, 0));
    assert_true(sim_resolve(view + 2 * UNIT + 7, &other, &offset));
    assert_int_equal(other, id);
    assert_int_equal(offset, UNIT + 7);
    assert_false(sim_accessible(view + UNIT, 0));
    assert_true(sim_accessible(base, 0));
    assert_false(sim_accessible(base, 1));
    assert_false(sim_resolve(view, &other, &offset));
    assert_ok(cuMemAlloc(&plain, MIB));
    assert_true(sim_resolve(plain + 9, &other, NULL));
    assert_int_not_equal(other, id);
}

/* Handles of one name, whatever their version or stream variant, are counted as one. */
static void test_counts(void **state)
{
    (void)state;
    CUdeviceptr plain;
    uint64_t before = sim_calls_total();
    assert_ok(cuMemAlloc(&plain, MIB));
    assert_ok(cuMemsetD8Async(plain, 0, 16, NULL));
    assert_ok(cuMemFree(plain));
    assert_int_equal(sim_calls("cuMemAlloc"), 1);
    assert_int_equal(sim_calls("cuMemsetD8Async"), 1);
    assert_int_equal(sim_calls("cuMemFree"), 1);
    assert_int_equal(sim_calls("cuMemAlloc_v2"), 0);
    assert_int_equal(sim_calls_total(), before + 3);
    assert_int_equal(sim_calls_unsupported(), 0);
    assert_int_equal(cuGraphCreate(NULL, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(sim_calls_unsupported(), 1);
    assert_int_equal(sim_calls("cuGraphCreate"), 1);
}

static void test_before_and_after(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    int count;
    config.uninitialised = true;
    assert_true(sim_start(&config));
    assert_int_equal(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    assert_ok(cuInit(0));
    assert_ok(cuDeviceGetCount(&count));
    assert_int_equal(count, 2);
    sim_deinitialise();
    assert_int_equal(cuDeviceGetCount(&count), CUDA_ERROR_DEINITIALIZED);
    assert_int_equal(cuMemFree(4096), CUDA_ERROR_DEINITIALIZED);
    assert_int_equal(cuInit(0), CUDA_ERROR_DEINITIALIZED);
}

/* Memory that nobody wrote stays unbacked: a copy between devices of 64 MiB of nothing makes nothing
 * resident. */
static void test_nothing_becomes_resident(void **state)
{
    (void)state;
    CUdeviceptr a, b;
    unsigned char first[8192];
    assert_ok(cuMemAlloc(&a, 64 * MIB));
    assert_ok(cuMemAlloc(&b, 64 * MIB));
    long before = 0, after = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &before), 1);
    fclose(file);
    assert_ok(cuMemsetD8(a, 0, 64 * MIB));
    assert_ok(cuMemcpyDtoD(b, a, 64 * MIB));
    assert_ok(cuMemcpyDtoH(first, b + 32 * MIB, sizeof first));
    file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &after), 1);
    fclose(file);
    assert_true(after - before < 2 * MIB / 4096);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, start_small)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_configurations),
        TEST(test_reset),
        TEST(test_addresses_repeat),
        TEST(test_peak),
        TEST(test_tenant),
        TEST(test_live),
        TEST(test_resolve),
        TEST(test_counts),
        TEST(test_nothing_becomes_resident),
        cmocka_unit_test(test_before_and_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
