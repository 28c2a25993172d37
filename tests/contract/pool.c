/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation: cuda.h, cuMemAllocAsync, cuMemFreeAsync, cuMemPool*. */
#include "tests/contract/contract.h"

static CUstream s, t;
static CUmemoryPool pool;

static int make(void **state)
{
    (void)state;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    return cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) || cuStreamCreate(&t, CU_STREAM_NON_BLOCKING) ||
                   cuMemPoolCreate(&pool, &props)
               ? -1
               : 0;
}

static int unmake(void **state)
{
    (void)state;
    return cuStreamDestroy(s) || cuStreamDestroy(t) || cuMemPoolDestroy(pool) ? -1 : 0;
}

static cuuint64_t figure(CUmemPool_attribute attribute)
{
    cuuint64_t value;
    assert_ok(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

/* cuda.h, cuMemPoolGetAttribute, cuMemPoolSetAttribute: used memory goes up with an allocation and down
 * once its free has been reached; the peak stays until it is reset. */
static void test_counts(void **state)
{
    (void)state;
    CUdeviceptr ptr;
    cuuint64_t zero = 0;
    assert_int_equal(figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert_ok(cuMemAllocFromPoolAsync(&ptr, 4 << 20, pool, s));
    assert_true(figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 4 << 20);
    assert_true(figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    assert_ok(cuMemFreeAsync(ptr, s));
    assert_ok(cuStreamSynchronize(s));
    assert_int_equal(figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert_true(figure(CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 4 << 20);
    assert_ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    assert_int_equal(figure(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    assert_ok(cuMemPoolTrimTo(pool, 0));
}

/* cuda.h, cuMemAllocAsync: memory may be used on its stream between allocation and free, in the order of
 * the stream. */
static void test_use_in_order(void **state)
{
    (void)state;
    CUdeviceptr ptr;
    unsigned word = 0;
    assert_ok(cuMemAllocAsync(&ptr, 1 << 20, s));
    assert_ok(cuMemsetD32Async(ptr, 21, 1 << 18, s));
    assert_ok(cuMemcpyDtoHAsync(&word, ptr, 4, s));
    assert_ok(cuMemFreeAsync(ptr, s));
    assert_ok(cuStreamSynchronize(s));
    assert_int_equal(word, 21);
}

/* cuda.h, cuMemAllocAsync: on another stream after an event; cuMemFree: may free it too. */
static void test_use_on_another_stream(void **state)
{
    (void)state;
    CUdeviceptr ptr;
    CUevent event;
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuMemAllocAsync(&ptr, 1 << 20, s));
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_ok(cuMemsetD8Async(ptr, 1, 1 << 20, t));
    assert_ok(cuStreamSynchronize(t));
    assert_ok(cuMemFree(ptr));
    assert_ok(cuEventDestroy(event));
}

/* cuda.h, cuMemPoolSetAttribute. */
static void test_release_threshold(void **state)
{
    (void)state;
    cuuint64_t threshold = UINT64_MAX;
    assert_ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    assert_true(figure(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == UINT64_MAX);
}

/* cuda.h, cuDeviceSetMemPool: cuMemAllocAsync takes from it; a pool tells where a pointer came from. */
static void test_current_pool(void **state)
{
    (void)state;
    CUmemoryPool first, current, owner;
    CUdeviceptr ptr;
    assert_ok(cuDeviceGetDefaultMemPool(&first, 0));
    assert_ok(cuDeviceGetMemPool(&current, 0));
    assert_ptr_equal(first, current);
    assert_ok(cuDeviceSetMemPool(0, pool));
    assert_ok(cuMemAllocAsync(&ptr, 1 << 20, s));
    assert_ok(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
    assert_ptr_equal(owner, pool);
    assert_ok(cuMemFreeAsync(ptr, s));
    assert_ok(cuStreamSynchronize(s));
    assert_ok(cuDeviceSetMemPool(0, first));
    assert_int_equal(cuMemPoolDestroy(first),
                     CUDA_ERROR_INVALID_VALUE); /* the default pool cannot be destroyed */
}

/* guide, stream ordered memory allocator: freed and allocated in one stream again and again, far more than
 * the device has. */
static void test_reuse(void **state)
{
    (void)state;
    size_t left, total;
    assert_ok(cuMemGetInfo(&left, &total));
    for (int i = 0; i < 20; i++) {
        CUdeviceptr ptr;
        assert_ok(cuMemAllocAsync(&ptr, left / 2 / (1 << 20) * (1 << 20), s));
        assert_ok(cuMemFreeAsync(ptr, s));
    }
    assert_ok(cuStreamSynchronize(s));
}

/* cuda.h, cuMemAllocFromPoolAsync: CUDA_ERROR_OUT_OF_MEMORY; that nothing is written then is ours. */
static void test_out_of_memory(void **state)
{
    (void)state;
    size_t left, total;
    CUdeviceptr ptr = 77;
    assert_ok(cuMemGetInfo(&left, &total));
    assert_int_equal(cuMemAllocFromPoolAsync(&ptr, 2 * total, pool, s), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(ptr, 77);
}

/* cuda.h, cuMemPoolCreate: as large as maxSize at most. */
static void test_largest_size(void **state)
{
    (void)state;
    CUmemoryPool small;
    CUdeviceptr ptr, more = 77;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                            .maxSize = 64 << 20};
    assert_ok(cuMemPoolCreate(&small, &props));
    assert_ok(cuMemAllocFromPoolAsync(&ptr, 48 << 20, small, s));
    assert_int_equal(cuMemAllocFromPoolAsync(&more, 48 << 20, small, s), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(more, 77);
    assert_ok(cuMemFreeAsync(ptr, s));
    assert_ok(cuMemAllocFromPoolAsync(&ptr, 48 << 20, small, s)); /* what is freed is not counted */
    assert_ok(cuMemFreeAsync(ptr, s));
    assert_ok(cuStreamSynchronize(s));
    assert_ok(cuMemPoolDestroy(small));
}

/* cuda.h, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: which handles a pool may be asked for. Which
 * error says no is ours. */
static void test_exportable_pools(void **state)
{
    (void)state;
    int types;
    CUmemoryPool exportable;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    assert_ok(cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
    CUresult result = cuMemPoolCreate(&exportable, &props);
    if (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        assert_ok(result);
        assert_ok(cuMemPoolDestroy(exportable));
    } else {
        assert_int_equal(result, CUDA_ERROR_NOT_SUPPORTED);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)
    const struct CMUnitTest tests[] = {
        TEST(test_counts),
        TEST(test_use_in_order),
        TEST(test_use_on_another_stream),
        TEST(test_release_threshold),
        TEST(test_current_pool),
        TEST(test_reuse),
        TEST(test_out_of_memory),
        TEST(test_largest_size),
        TEST(test_exportable_pools),
    };
    RUN_CONTRACT(tests);
}
