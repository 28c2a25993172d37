/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of a pool: what it serves, what it keeps, when it gives back; and who may use its memory. What
 * the driver promises about pools is in tests/contract. */
#include "tests/unit/sim/sim_test.h"

static CUmemoryPool pool;
static CUstream s, t;

static void keep(cuuint64_t bytes)
{
    assert_ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

static int start(void **state)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    start_small(state);
    return cuMemPoolCreate(&pool, &props) || cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) ||
           cuStreamCreate(&t, CU_STREAM_NON_BLOCKING);
}

static CUdeviceptr take(size_t size, CUstream stream)
{
    CUdeviceptr ptr;
    assert_ok(cuMemAllocFromPoolAsync(&ptr, size, pool, stream));
    return ptr;
}

static cuuint64_t figure(CUmemPool_attribute attribute)
{
    cuuint64_t value;
    assert_ok(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

#define USED     figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
#define RESERVED figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)

/* cuda.h, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: what exceeds it is given back at the next synchronisation. */
static void test_threshold(void **state)
{
    (void)state;
    CUdeviceptr a = take(8 * UNIT, s), b = take(4 * UNIT, s);
    assert_ok(cuMemFreeAsync(a, s));
    assert_ok(cuMemFreeAsync(b, s));
    assert_int_equal(USED, 0);
    assert_int_equal(RESERVED, 12 * UNIT); /* not before somebody waits */
    assert_int_equal(sim_physical_bytes(0), 12 * UNIT);
    keep(3 * UNIT);
    assert_ok(cuStreamSynchronize(s));
    assert_int_equal(RESERVED, 3 * UNIT);
    assert_int_equal(sim_physical_bytes(0), 3 * UNIT);
    keep(0);
    assert_ok(cuCtxSynchronize());
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_int_equal(figure(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 12 * UNIT);
    assert_int_equal(figure(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 12 * UNIT);
}

static void test_trim(void **state)
{
    (void)state;
    keep(UINT64_MAX);
    CUdeviceptr a = take(8 * UNIT, s), b = take(4 * UNIT, s);
    assert_ok(cuMemFreeAsync(a, s));
    assert_ok(cuStreamSynchronize(s));
    assert_int_equal(RESERVED, 12 * UNIT);
    assert_ok(cuMemPoolTrimTo(pool, 7 * UNIT));
    assert_int_equal(RESERVED, 7 * UNIT);
    assert_ok(cuMemPoolTrimTo(pool, 0)); /* what is used stays */
    assert_int_equal(RESERVED, 4 * UNIT);
    assert_ok(cuMemFreeAsync(b, s));
}

/* A cached piece serves without new memory, and is split; its old bytes are still there. */
static void test_reuse(void **state)
{
    (void)state;
    unsigned word = 0;
    keep(UINT64_MAX);
    CUdeviceptr a = take(8 * UNIT, s);
    assert_ok(cuMemsetD32Async(a, 77, 16, s));
    assert_ok(cuMemFreeAsync(a, s));
    CUdeviceptr b = take(3 * UNIT, s), c = take(5 * UNIT, t);
    assert_true(b == a && c == a + 3 * UNIT);
    assert_int_equal(RESERVED, 8 * UNIT);
    assert_ok(cuMemcpyDtoH(&word, b, 4));
    assert_int_equal(word, 77);
    assert_ok(cuMemFreeAsync(b, s));
    assert_ok(cuMemFreeAsync(c, t));
    /* Two pieces become one: they go back, and as much comes anew. */
    assert_int_not_equal(take(8 * UNIT, s), 0);
    assert_int_equal(RESERVED, 8 * UNIT);
    assert_int_equal(sim_physical_bytes_peak(0), 8 * UNIT);
}

/* What is cached is nobody's. */
static void test_use_after_free(void **state)
{
    (void)state;
    keep(UINT64_MAX);
    CUdeviceptr a = take(UNIT, s);
    assert_ok(cuMemFreeAsync(a, s));
    assert_int_equal(cuMemsetD8(a, 1, 64), CUDA_ERROR_INVALID_VALUE);
    assert_broken("touch-unmapped");
    assert_int_equal(cuMemFreeAsync(a, s), CUDA_ERROR_INVALID_VALUE);
    assert_broken("unknown-pointer");
    assert_int_equal(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
    struct sim_live live;
    sim_live(&live);
    assert_int_equal(live.allocations, 0);
}

/* While the free is queued, the same stream may have the memory, another not, unless an event orders it. */
static void test_order(void **state)
{
    (void)state;
    CUevent event;
    keep(UINT64_MAX);
    CUdeviceptr a = take(4 * UNIT, s);
    assert_ok(sim_stream_hold(s, true));
    assert_ok(sim_stream_work(s, a, 4 * UNIT, 0));
    assert_ok(cuMemFreeAsync(a, s));
    CUdeviceptr other = take(4 * UNIT, t);
    assert_true(other != a);
    assert_int_equal(RESERVED, 8 * UNIT);
    CUdeviceptr same = take(4 * UNIT, s);
    assert_true(same == a);
    assert_int_equal(RESERVED, 8 * UNIT);
    assert_ok(cuMemFreeAsync(same, s));
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_true(take(4 * UNIT, t) == a);
    assert_ok(sim_stream_work(t, a, 4 * UNIT, 0));
    assert_int_equal(sim_violation_count(), 0);
    assert_ok(sim_stream_hold(s, false));
    assert_ok(cuCtxSynchronize());
    assert_int_equal(USED, 8 * UNIT);
    assert_ok(sim_stream_work(t, a, 4 * UNIT, 0)); /* the old free did not take it away */
}

/* Any allocation takes what pools keep before it fails. */
static void test_others_first(void **state)
{
    (void)state;
    keep(UINT64_MAX);
    CUdeviceptr a = take(100 * UNIT, s), plain;
    assert_ok(cuMemFreeAsync(a, s));
    assert_ok(cuMemAlloc(&plain, 60 * UNIT));
    assert_int_equal(RESERVED, 68 * UNIT); /* no more than was missing */
    create(40 * UNIT);
    assert_int_equal(RESERVED, 28 * UNIT);
    assert_int_equal(cuMemAlloc(&plain, 60 * UNIT), CUDA_ERROR_OUT_OF_MEMORY);
}

/* A destroyed pool's allocations live on until they are freed. */
static void test_destroy(void **state)
{
    (void)state;
    keep(UINT64_MAX);
    CUdeviceptr a = take(UNIT, s), b = take(UNIT, s);
    assert_ok(cuMemFreeAsync(a, s));
    assert_ok(cuMemPoolDestroy(pool));
    assert_int_equal(sim_physical_bytes(0), UNIT);
    assert_ok(cuMemsetD8(b, 1, UNIT));
    assert_ok(cuMemFreeAsync(b, s));
    assert_int_equal(sim_physical_bytes(0), 0);
}

/* ---- who may use plain memory ---- */

/* A kernel of the current device is launched on memory that is not open to it; the device is broken then. */
static void assert_device_faults(CUdeviceptr memory)
{
    assert_int_equal(sim_violation_count(), 0);
    assert_ok(sim_stream_work(NULL, memory, UNIT, 0));
    assert_broken("touch-no-access");
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void test_no_access_at_first(void **state)
{
    (void)state;
    CUdeviceptr a = take(UNIT, s);
    use_device(1);
    assert_device_faults(a);
}

static void test_no_peers_at_first(void **state)
{
    (void)state;
    CUdeviceptr there;
    assert_ok(cuMemAlloc(&there, UNIT));
    use_device(1);
    assert_device_faults(there);
}

static void test_access(void **state)
{
    (void)state;
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags;
    CUdeviceptr a = take(UNIT, s);
    use_device(1);
    assert_ok(cuMemPoolGetAccess(&flags, pool, &desc.location));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_ok(cuMemPoolSetAccess(pool, &desc, 1));
    assert_ok(sim_stream_work(NULL, a, UNIT, 0));
    assert_ok(cuCtxSynchronize());
    desc.location.id = 0;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    assert_int_equal(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_VALUE); /* its own device */
    desc.location.id = 1;
    assert_ok(cuMemPoolSetAccess(pool, &desc, 1));
    assert_device_faults(a);
}

/* Kernels need peer access for another device's plain memory; copies do not. */
static void test_peers(void **state)
{
    (void)state;
    CUdeviceptr there, here;
    CUcontext first, second;
    assert_ok(cuMemAlloc(&there, UNIT));
    assert_ok(cuDevicePrimaryCtxRetain(&first, 0));
    use_device(1);
    assert_ok(cuCtxGetCurrent(&second));
    assert_ok(cuMemAlloc(&here, UNIT));
    assert_ok(cuMemcpyDtoD(here, there, UNIT));
    assert_int_equal(sim_violation_count(), 0);
    assert_int_equal(cuCtxDisablePeerAccess(first), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    assert_ok(cuCtxEnablePeerAccess(first, 0));
    assert_int_equal(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    assert_int_equal(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_INVALID_DEVICE);
    assert_ok(sim_stream_work(NULL, there, UNIT, 0));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuCtxDisablePeerAccess(first));
    assert_device_faults(there);
}

/* A device without peers says so; one that lies says yes and refuses. */
static void test_no_peers(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUcontext other;
    int can;
    config.lacks = SIM_FEATURE_PEERS;
    begin(&config);
    assert_ok(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_false(can);
    config.lacks = 0;
    config.lies = SIM_FEATURE_PEERS | SIM_FEATURE_POOLS;
    begin(&config);
    assert_ok(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_true(can);
    assert_ok(cuDevicePrimaryCtxRetain(&other, 1));
    assert_int_equal(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = map_new(UNIT, &handle), ptr;
    assert_int_not_equal(try_access(base, UNIT, 1), CUDA_SUCCESS);
    assert_true(sim_accessible(base, 0));
    assert_ok(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    assert_true(can);
    assert_int_equal(cuMemAllocAsync(&ptr, UNIT, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, start)
    const struct CMUnitTest tests[] = {
        TEST(test_threshold),
        TEST(test_trim),
        TEST(test_reuse),
        TEST(test_use_after_free),
        TEST(test_order),
        TEST(test_access),
        TEST(test_others_first),
        TEST(test_destroy),
        TEST(test_peers),
        TEST(test_no_peers),
        TEST(test_no_access_at_first),
        TEST(test_no_peers_at_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
