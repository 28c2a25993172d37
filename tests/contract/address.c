/* SPDX-License-Identifier: Apache-2.0 */
/* Reservations of addresses. */
#include "tests/contract/contract.h"

/* cuda.h, cuMemAddressReserve: the size is a multiple of the host's page, the alignment a power of two,
 * flags are 0. That nothing is reserved in 0 bytes is ours. */
static void test_wrong_arguments(void **state)
{
    (void)state;
    CUdeviceptr base = 77;
    assert_int_equal(cuMemAddressReserve(&base, granularity + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressReserve(&base, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressReserve(&base, granularity, 3 * granularity, 0, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressReserve(&base, granularity, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(base, 77);
}

/* cuda.h, cuMemAddressReserve: the range is aligned as requested. */
static void test_alignment(void **state)
{
    (void)state;
    for (size_t align = granularity; align <= 64 * granularity; align *= 2) {
        CUdeviceptr base;
        assert_ok(cuMemAddressReserve(&base, granularity, align, 0, 0));
        assert_int_equal(base % align, 0);
        assert_ok(cuMemAddressFree(base, granularity));
    }
}

/* guide, reserving a virtual address range: no memory is behind it. That ranges do not overlap goes
 * without saying, and is ours. */
static void test_ranges_are_distinct(void **state)
{
    (void)state;
    enum { N = 16 };
    CUdeviceptr bases[N];
    size_t before = free_bytes();
    for (unsigned i = 0; i < N; i++)
        bases[i] = reserve((1 + i % 3) * granularity);
    assert_int_equal(free_bytes(), before);
    for (unsigned i = 0; i < N; i++)
        for (unsigned j = 0; j < i; j++)
            assert_true(bases[i] + (1 + i % 3) * granularity <= bases[j] ||
                        bases[j] + (1 + j % 3) * granularity <= bases[i]);
    for (unsigned i = 0; i < N; i++)
        assert_ok(cuMemAddressFree(bases[i], (1 + i % 3) * granularity));
}

/* A reservation may be larger than the device (note: allocators reserve the device's size several times
 * over). */
static void test_more_than_the_device(void **state)
{
    (void)state;
    size_t left, total;
    assert_ok(cuMemGetInfo(&left, &total));
    size_t size = total / granularity * granularity * 4;
    CUdeviceptr base = reserve(size);
    assert_ok(cuMemAddressFree(base, size));
}

/* cuda.h, cuMemAddressFree: "the range must match a range from cuMemAddressReserve". */
static void test_free_is_exact(void **state)
{
    (void)state;
    CUdeviceptr base = reserve(4 * granularity);
    assert_int_equal(cuMemAddressFree(base, 2 * granularity), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(base + granularity, 3 * granularity), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(base, 8 * granularity), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemAddressFree(base, 4 * granularity));
    assert_int_equal(cuMemAddressFree(base, 4 * granularity), CUDA_ERROR_INVALID_VALUE);
}

/* cuda.h, cuMemAddressFree: the range is unmapped. */
static void test_free_wants_no_mapping(void **state)
{
    (void)state;
    CUdeviceptr base = reserve(4 * granularity);
    CUmemGenericAllocationHandle handle = create(granularity);
    assert_ok(cuMemMap(base + 2 * granularity, granularity, 0, handle, 0));
    assert_int_equal(cuMemAddressFree(base, 4 * granularity), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemUnmap(base + 2 * granularity, granularity));
    assert_ok(cuMemAddressFree(base, 4 * granularity));
    assert_ok(cuMemRelease(handle));
}

/* cuda.h, cuMemAddressReserve: a fixed address is a wish; what is taken is not given twice. */
static void test_hint(void **state)
{
    (void)state;
    CUdeviceptr base = reserve(4 * granularity), again, other;
    CUresult result = cuMemAddressReserve(&other, granularity, 0, base + granularity, 0);
    if (result) { /* note: some drivers refuse a hint that they cannot follow */
        assert_int_equal(result, CUDA_ERROR_INVALID_VALUE);
        assert_ok(cuMemAddressFree(base, 4 * granularity));
        return;
    }
    assert_true(other + granularity <= base || other >= base + 4 * granularity);
    assert_ok(cuMemAddressFree(base, 4 * granularity));
    assert_ok(cuMemAddressReserve(&again, 4 * granularity, 0, base, 0));
    assert_ok(cuMemAddressFree(again, 4 * granularity));
    assert_ok(cuMemAddressFree(other, granularity));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_ranges_are_distinct),
        cmocka_unit_test(test_more_than_the_device),
        cmocka_unit_test(test_free_is_exact),
        cmocka_unit_test(test_free_wants_no_mapping),
        cmocka_unit_test(test_hint),
    };
    RUN_CONTRACT(tests);
}
