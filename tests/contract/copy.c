/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills: which bytes end up where, and when the host may rely on it. */
#include "tests/contract/contract.h"
#include <string.h>

enum { SIZE = 1 << 20 };
static unsigned char source[SIZE], result[SIZE];
static CUdeviceptr a, b;
static CUstream stream;

static int make_buffers(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SIZE; i++)
        source[i] = (unsigned char)(i * 7 + i / 256);
    memset(result, 0xee, SIZE);
    return cuMemAlloc(&a, SIZE) || cuMemAlloc(&b, SIZE) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)
               ? -1
               : 0;
}

static int free_buffers(void **state)
{
    (void)state;
    return cuStreamDestroy(stream) || cuMemFree(a) || cuMemFree(b) ? -1 : 0;
}

/* cuda.h, cuMemcpyHtoD, cuMemcpyDtoD, cuMemcpyDtoH. */
static void test_round_trip(void **state)
{
    (void)state;
    assert_ok(cuMemcpyHtoD(a, source, SIZE));
    assert_ok(cuMemcpyDtoD(b, a, SIZE));
    assert_ok(cuMemcpyDtoH(result, b, SIZE));
    assert_memory_equal(result, source, SIZE);
}

/* cuda.h, cuMemcpy: from and to any address, host or device; here at odd offsets and sizes. */
static void test_parts(void **state)
{
    (void)state;
    assert_ok(cuMemsetD8(a, 0, SIZE));
    assert_ok(cuMemcpy(a + 4097, (CUdeviceptr)(uintptr_t)source, 70001));
    assert_ok(cuMemcpy(b + 13, a + 4097, 70001));
    assert_ok(cuMemcpy((CUdeviceptr)(uintptr_t)result, b + 13, 70001));
    assert_memory_equal(result, source, 70001);
    assert_ok(cuMemcpyDtoH(result, a, 4097));
    for (unsigned i = 0; i < 4097; i++)
        assert_int_equal(result[i], 0);
}

/* guide, streams: work on one stream is in order; a synchronised stream has done it. */
static void test_asynchronous(void **state)
{
    (void)state;
    void *pinned;
    assert_ok(cuMemHostAlloc(&pinned, SIZE, 0));
    assert_ok(cuMemsetD8Async(a, 1, SIZE, stream));
    assert_ok(cuMemcpyHtoDAsync(a + 100, source, 1000, stream));
    assert_ok(cuMemcpyDtoDAsync(b, a, SIZE, stream));
    assert_ok(cuMemsetD8Async(a, 2, SIZE, stream));
    assert_ok(cuMemcpyDtoHAsync(pinned, b, SIZE, stream));
    assert_ok(cuStreamSynchronize(stream));
    const unsigned char *got = pinned;
    assert_int_equal(got[99], 1);
    assert_memory_equal(got + 100, source, 1000);
    assert_int_equal(got[1100], 1);
    assert_ok(cuMemFreeHost(pinned));
}

/* guide, API synchronization behavior: from pageable memory the source may change once the call has
 * returned. */
static void test_pageable_source_is_taken(void **state)
{
    (void)state;
    unsigned char *block = malloc(4096);
    assert_non_null(block);
    memset(block, 5, 4096);
    assert_ok(cuMemcpyHtoDAsync(a, block, 4096, stream));
    memset(block, 6, 4096);
    free(block);
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuMemcpyDtoH(result, a, 4096));
    assert_int_equal(result[0], 5);
    assert_int_equal(result[4095], 5);
}

/* guide, API synchronization behavior: to pageable memory the copy is done when the call returns. */
static void test_pageable_destination_is_complete(void **state)
{
    (void)state;
    assert_ok(cuMemsetD8Async(a, 9, SIZE, stream));
    assert_ok(cuMemcpyDtoHAsync(result, a, SIZE, stream));
    assert_int_equal(result[0], 9);
    assert_int_equal(result[SIZE - 1], 9);
    assert_ok(cuStreamSynchronize(stream));
}

/* cuda.h, cuMemsetD8, cuMemsetD16, cuMemsetD32. */
static void test_fills(void **state)
{
    (void)state;
    const unsigned short *shorts = (const unsigned short *)(const void *)result;
    const unsigned *words = (const unsigned *)(const void *)result;
    assert_ok(cuMemsetD32(a, 0x01020304, 1024));
    assert_ok(cuMemsetD16(a + 4096, 0xabcd, 1024));
    assert_ok(cuMemsetD8(a + 6144, 0x7f, 2048));
    assert_ok(cuMemcpyDtoH(result, a, 8192));
    assert_int_equal(words[0], 0x01020304);
    assert_int_equal(words[1023], 0x01020304);
    assert_int_equal(shorts[2048], 0xabcd);
    assert_int_equal(shorts[3071], 0xabcd);
    assert_int_equal(result[6144], 0x7f);
    assert_int_equal(result[8191], 0x7f);
}

/* cuda.h, cuMemsetD8: zeros over a large range, of which the edges are not whole pages. */
static void test_large_zeros(void **state)
{
    (void)state;
    assert_ok(cuMemsetD8(a, 3, SIZE));
    assert_ok(cuMemsetD8(a + 1001, 0, SIZE - 2002));
    assert_ok(cuMemcpyDtoH(result, a, SIZE));
    assert_int_equal(result[1000], 3);
    for (unsigned i = 1001; i < SIZE - 1001; i++)
        if (result[i])
            fail_msg("byte %u is %u", i, result[i]);
    assert_int_equal(result[SIZE - 1001], 3);
    /* and copied on, where the source has holes now */
    assert_ok(cuMemsetD8(b, 4, SIZE));
    assert_ok(cuMemcpyDtoD(b, a, SIZE));
    assert_ok(cuMemcpyDtoH(source, b, SIZE));
    assert_memory_equal(source, result, SIZE);
}

/* cuda.h, cuMemsetD16: the pointer is aligned to the element. */
static void test_misaligned_fill(void **state)
{
    (void)state;
    assert_int_equal(cuMemsetD16(a + 1, 0, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD32(a + 2, 0, 4), CUDA_ERROR_INVALID_VALUE);
}

/* cuda.h, cuMemcpy2D, cuMemsetD2D8. */
static void test_two_dimensions(void **state)
{
    (void)state;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = source,
                          .srcPitch = 100,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = a,
                          .dstPitch = 512,
                          .WidthInBytes = 60,
                          .Height = 10};
    assert_ok(cuMemsetD2D8(a, 512, 0x55, 512, 10));
    assert_ok(cuMemcpy2D(&copy));
    assert_ok(cuMemcpyDtoH(result, a, 5120));
    for (unsigned row = 0; row < 10; row++) {
        assert_memory_equal(result + row * 512, source + row * 100, 60);
        assert_int_equal(result[row * 512 + 60], 0x55);
    }
}

/* note: programs copy and fill 0 bytes, and expect no error. */
static void test_nothing_to_do(void **state)
{
    (void)state;
    assert_ok(cuMemcpyHtoD(a, source, 0));
    assert_ok(cuMemsetD8(a, 1, 0));
}

/* Only ours: null pointers and sizes beyond all addresses are an invalid value, and nothing is broken. */
static void test_nowhere(void **state)
{
    (void)state;
    const size_t huge = (size_t)-SIZE;
    assert_int_equal(cuMemcpyHtoD(0, source, 64), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoH(result, 0, 64), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoD(0, a, 64), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoD(a, 0, 64), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD8(0, 1, 64), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD8((CUdeviceptr)(uintptr_t)result, 1, 64), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD8(a, 1, huge), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoD(b, a, huge), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD2D8(a, (size_t)1 << 60, 1, 64, (size_t)1 << 40), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemHostRegister(result, (size_t)-1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemsetD8(a, 1, SIZE));
    assert_ok(cuCtxSynchronize());
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_buffers, free_buffers)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_parts),
        TEST(test_asynchronous),
        TEST(test_pageable_source_is_taken),
        TEST(test_pageable_destination_is_complete),
        TEST(test_fills),
        TEST(test_large_zeros),
        TEST(test_misaligned_fill),
        TEST(test_two_dimensions),
        TEST(test_nothing_to_do),
        TEST(test_nowhere),
    };
    RUN_CONTRACT(tests);
}
