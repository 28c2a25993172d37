/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings: where a handle may be mapped, several times too, and how it is unmapped. */
#include "tests/contract/contract.h"

enum { UNITS = 8 };
static CUdeviceptr base;

static int reserve_base(void **state)
{
    (void)state;
    return cuMemAddressReserve(&base, UNITS * granularity, 0, 0, 0) ? -1 : 0;
}

/* Fails when a test has left a mapping behind. */
static int free_base(void **state)
{
    (void)state;
    return cuMemAddressFree(base, UNITS * granularity) ? -1 : 0;
}

static CUdeviceptr unit(unsigned i)
{
    return base + i * granularity;
}

static void poke(CUdeviceptr at, unsigned value)
{
    assert_ok(cuMemcpyHtoD(at, &value, sizeof value));
}

static unsigned peek(CUdeviceptr at)
{
    unsigned value = 0;
    assert_ok(cuMemcpyDtoH(&value, at, sizeof value));
    return value;
}

/* cuda.h, cuMemMap: sizes and addresses are multiples of the granularity, flags are 0. */
static void test_wrong_arguments(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(granularity);
    assert_int_equal(cuMemMap(base + 4096, granularity, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(base, granularity - 4096, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(base, 0, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(base, granularity, 0, handle, 1), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemRelease(handle));
}

/* One unit of a handle of two that is mapped whole at unit 0. A driver refuses the part, or shows its bytes.
 */
static void check_part(CUmemGenericAllocationHandle handle, unsigned first)
{
    CUresult result = cuMemMap(unit(4), granularity, first * granularity, handle, 0);
    if (result) {
        assert_int_equal(result, CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(cuMemUnmap(unit(4), granularity), CUDA_ERROR_INVALID_VALUE); /* nothing is there */
        return;
    }
    give_access(unit(4), granularity);
    poke(unit(first) + 64, 500 + first);
    assert_int_equal(peek(unit(4) + 64), 500 + first);
    assert_ok(cuMemUnmap(unit(4), granularity));
    assert_int_equal(peek(unit(first) + 64), 500 + first);
}

/* cuda.h, cuMemMap: offset and size lie within the handle, by which its first part may be mapped. note: all
 * allocators map whole handles. Refusing it, which the simulated device does unless told otherwise, is ours.
 */
static void test_first_part(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(2 * granularity);
    assert_ok(cuMemMap(base, 2 * granularity, 0, handle, 0));
    give_access(base, 2 * granularity);
    check_part(handle, 0);
    assert_ok(cuMemUnmap(base, 2 * granularity));
    assert_ok(cuMemRelease(handle));
}

/* cuda.h, cuMemMap: "offset: ... currently must be zero"; a driver that takes another one shows those bytes.
 */
static void test_inner_part(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(2 * granularity);
    assert_ok(cuMemMap(base, 2 * granularity, 0, handle, 0));
    give_access(base, 2 * granularity);
    check_part(handle, 1);
    assert_int_equal(cuMemMap(unit(4), 2 * granularity, granularity, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemUnmap(base, 2 * granularity));
    assert_ok(cuMemRelease(handle));
}

/* cuda.h, cuMemMap: offset and size lie within the handle. */
static void test_more_than_the_handle(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(granularity);
    assert_int_equal(cuMemMap(base, 2 * granularity, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemRelease(handle));
}

/* cuda.h, cuMemMap: the range is reserved, and not mapped. */
static void test_over_a_mapping(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle a = create(2 * granularity), b = create(2 * granularity);
    assert_ok(cuMemMap(unit(2), 2 * granularity, 0, a, 0));
    assert_int_equal(cuMemMap(unit(2), 2 * granularity, 0, b, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(unit(1), 2 * granularity, 0, b, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(unit(3), 2 * granularity, 0, b, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemMap(unit(0), 2 * granularity, 0, b, 0));
    assert_ok(cuMemUnmap(unit(0), 2 * granularity));
    assert_ok(cuMemUnmap(unit(2), 2 * granularity));
    assert_ok(cuMemRelease(a));
    assert_ok(cuMemRelease(b));
}

/* cuda.h, cuMemMap: only reserved addresses, and all of them. */
static void test_outside_a_reservation(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(2 * granularity);
    CUdeviceptr freed = reserve(4 * granularity);
    assert_ok(cuMemAddressFree(freed, 4 * granularity));
    assert_int_equal(cuMemMap(freed, 2 * granularity, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(unit(UNITS - 1), 2 * granularity, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemRelease(handle));
}

/* guide, virtual aliasing: one handle at several addresses is allowed, and they are the same bytes. */
static void test_aliasing(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(granularity);
    for (unsigned i = 0; i < 3; i++)
        assert_ok(cuMemMap(unit(2 * i), granularity, 0, handle, 0));
    for (unsigned i = 0; i < 3; i++)
        give_access(unit(2 * i), granularity);
    for (unsigned i = 0; i < 3; i++) {
        poke(unit(2 * i) + 4096 * i, 1000 + i);
        for (unsigned j = 0; j < 3; j++)
            assert_int_equal(peek(unit(2 * j) + 4096 * i), 1000 + i);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_ok(cuMemUnmap(unit(2 * i), granularity));
    assert_ok(cuMemRelease(handle));
}

/* guide, virtual memory management: handles that lie side by side are one range for copies and fills. */
static void test_contiguous_view(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handles[4];
    for (unsigned i = 0; i < 4; i++) {
        handles[i] = create(granularity);
        assert_ok(cuMemMap(unit(i), granularity, 0, handles[i], 0));
    }
    for (unsigned i = 0; i < 4; i++) /* the same handles in reverse order */
        assert_ok(cuMemMap(unit(4 + i), granularity, 0, handles[3 - i], 0));
    give_access(base, 8 * granularity);
    assert_ok(cuMemsetD32(base, 5, 4 * granularity / 4));
    poke(unit(1) - 4, 11);
    assert_int_equal(peek(unit(1) - 4), 11);
    assert_int_equal(peek(unit(8) - 4), 11); /* handle 0 is last in the second view */
    assert_int_equal(peek(unit(5)), 5);
    unmap_each(base, granularity, 8);
    for (unsigned i = 0; i < 4; i++)
        assert_ok(cuMemRelease(handles[i]));
}

/* note: allocators unmap a handle and map it elsewhere, and rely on its bytes. */
static void test_bytes_follow_the_handle(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(granularity);
    assert_ok(cuMemMap(unit(0), granularity, 0, handle, 0));
    give_access(unit(0), granularity);
    poke(unit(0) + 64, 99);
    assert_ok(cuMemUnmap(unit(0), granularity));
    assert_ok(cuMemMap(unit(5), granularity, 0, handle, 0));
    give_access(unit(5), granularity);
    assert_int_equal(peek(unit(5) + 64), 99);
    assert_ok(cuMemUnmap(unit(5), granularity));
    assert_ok(cuMemRelease(handle));
}

/* cuda.h, cuMemUnmap: the range is what one or more cuMemMap calls mapped, never a part of a mapping. */
static void test_unmap_takes_whole_mappings(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(2 * granularity);
    assert_ok(cuMemMap(unit(2), 2 * granularity, 0, handle, 0));
    assert_int_equal(cuMemUnmap(unit(2), granularity), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(unit(3), granularity), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(unit(0), granularity), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemUnmap(unit(2), 2 * granularity));
    assert_int_equal(cuMemUnmap(unit(2), 2 * granularity), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemRelease(handle));
}

/* note: several whole adjoining mappings in one call (an allocator for CUDA relies on it); not every driver
 * takes that, and one that does not leaves all of them. */
static void test_unmap_of_several(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle a = create(granularity), b = create(2 * granularity);
    assert_ok(cuMemMap(unit(1), granularity, 0, a, 0));
    assert_ok(cuMemMap(unit(2), 2 * granularity, 0, b, 0));
    CUresult result = cuMemUnmap(unit(1), 3 * granularity);
    if (result) {
        assert_int_equal(result, CUDA_ERROR_INVALID_VALUE);
    } else {
        assert_ok(cuMemMap(unit(1), granularity, 0, a, 0)); /* both are gone */
        assert_ok(cuMemMap(unit(2), 2 * granularity, 0, b, 0));
    }
    assert_ok(cuMemUnmap(unit(1), granularity));
    assert_ok(cuMemUnmap(unit(2), 2 * granularity));
    assert_ok(cuMemRelease(a));
    assert_ok(cuMemRelease(b));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, reserve_base, free_base)
    const struct CMUnitTest tests[] = {
        TEST(test_wrong_arguments),
        TEST(test_first_part),
        TEST(test_inner_part),
        TEST(test_more_than_the_handle),
        TEST(test_over_a_mapping),
        TEST(test_outside_a_reservation),
        TEST(test_aliasing),
        TEST(test_contiguous_view),
        TEST(test_bytes_follow_the_handle),
        TEST(test_unmap_takes_whole_mappings),
        TEST(test_unmap_of_several),
    };
    RUN_CONTRACT(tests);
}
