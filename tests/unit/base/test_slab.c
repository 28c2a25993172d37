/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs: records do not overlap, are zeroed, need few chunks, and a refused chunk changes nothing. */
#include "base/hostmem.h"
#include "tests/unit/base/cmocka_all.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 5000

static int compare_pointers(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return (x > y) - (x < y);
}

static void records_are_apart_and_zeroed(void **state)
{
    (void)state;
    static unsigned char *records[RECORDS], *sorted[RECORDS];
    const size_t sizes[] = {sizeof(void *), 13, 96, 4096, 100000};
    size_t before = sm_hostmem_bytes();
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        unsigned count = sizes[s] > 1000 ? 100 : RECORDS;
        struct sm_slab slab;
        sm_slab_init(&slab, sizes[s]);
        assert_int_equal(sm_hostmem_bytes(), before);
        for (int round = 0; round < 2; round++) {
            for (unsigned i = 0; i < count; i++) {
                records[i] = sorted[i] = sm_slab_take(&slab);
                assert_non_null(records[i]);
                for (size_t k = 0; k < sizes[s]; k++)
                    assert_int_equal(records[i][k], 0);
                memset(records[i], 0xa5, sizes[s]);
            }
            assert_int_equal(slab.count, count);
            qsort(sorted, count, sizeof *sorted, compare_pointers);
            for (unsigned i = 1; i < count; i++)
                assert_true((size_t)(sorted[i] - sorted[i - 1]) >= sizes[s]);
            for (unsigned i = 0; i < count; i++)
                sm_slab_give(&slab, records[i * 7 % count]); /* count and 7 share no divisor */
            assert_int_equal(slab.count, 0);
        }
        sm_slab_fini(&slab);
        assert_int_equal(sm_hostmem_bytes(), before);
    }
}

static unsigned allocations_of(struct sm_slab *slab, unsigned takes)
{
    /* Armed far away the counter only counts. */
    const uint64_t far = (uint64_t)1 << 40;
    sm_fault_arm(sm_hostmem_fault(), far, false);
    for (unsigned i = 0; i < takes; i++)
        assert_non_null(sm_slab_take(slab));
    uint64_t left = sm_hostmem_fault()->countdown;
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    return (unsigned)(far - left);
}

static void chunks_double_up_to_a_limit(void **state)
{
    (void)state;
    struct sm_slab slab;
    sm_slab_init(&slab, 64);
    /* 4 + 4 + 8 + ... + 128 KiB hold 4096 records of 64 bytes but for the heads. */
    assert_in_range(allocations_of(&slab, 4000), 4, 8);
    size_t held = sm_hostmem_bytes();
    assert_in_range(held, 4000 * 64, 2 * 4000 * 64 + 8192);
    /* Later chunks hold 256 KiB each: about 4095 records. */
    assert_in_range(allocations_of(&slab, 40000), 8, 12);
    sm_slab_fini(&slab);
}

static void reserved_takes_cannot_fail(void **state)
{
    (void)state;
    struct sm_slab slab;
    sm_slab_init(&slab, 40);
    for (unsigned records = 1; records < 30000; records = records * 3 + 1) {
        assert_true(sm_slab_reserve(&slab, records));
        sm_fault_arm(sm_hostmem_fault(), 1, true);
        for (unsigned i = 0; i < records; i++)
            assert_non_null(sm_slab_take(&slab));
        assert_int_equal(sm_hostmem_fault()->hits, 0);
        sm_fault_arm(sm_hostmem_fault(), 0, false);
    }
    sm_slab_fini(&slab);
}

/* Takes, reserves and gives; stops at the first refusal, which must have left the slab as it was. */
static bool work(struct sm_slab *slab)
{
    static void *held[4000];
    unsigned count = 0;
    for (unsigned step = 0; step < 40; step++) {
        struct sm_slab before = *slab;
        size_t bytes = sm_hostmem_bytes();
        if (step % 4 == 0 && !sm_slab_reserve(slab, step * 30)) {
            assert_memory_equal(slab, &before, sizeof before);
            assert_int_equal(sm_hostmem_bytes(), bytes);
            return false;
        }
        for (unsigned i = 0; i < 60; i++) {
            before = *slab;
            void *record = sm_slab_take(slab);
            if (!record) {
                assert_memory_equal(slab, &before, sizeof before);
                return false;
            }
            held[count++] = record;
        }
        for (unsigned i = 0; i < 20; i++)
            sm_slab_give(slab, held[--count]);
    }
    return true;
}

static void every_refusal_leaves_the_slab_as_it_was(void **state)
{
    (void)state;
    size_t before = sm_hostmem_bytes();
    for (int forever = 0; forever < 2; forever++) {
        uint64_t nth = 0, hits;
        do {
            struct sm_slab slab;
            sm_slab_init(&slab, 48);
            sm_fault_arm(sm_hostmem_fault(), ++nth, forever);
            bool served = work(&slab);
            hits = sm_hostmem_fault()->hits;
            assert_int_equal(served, hits == 0);
            sm_fault_arm(sm_hostmem_fault(), 0, false);
            if (hits)
                assert_non_null(sm_slab_take(&slab)); /* goes on afterwards */
            sm_slab_fini(&slab);
            assert_int_equal(sm_hostmem_bytes(), before);
        } while (hits);
        assert_in_range(nth, 4, 40); /* several places were reached */
    }
}

static void impossible_reserves_are_refused(void **state)
{
    (void)state;
    struct sm_slab slab;
    sm_slab_init(&slab, 64);
    struct sm_slab before = slab;
    assert_false(sm_slab_reserve(&slab, SIZE_MAX));
    assert_false(sm_slab_reserve(&slab, SIZE_MAX / 64));
    assert_false(sm_slab_reserve(&slab, SIZE_MAX / 128));
    assert_memory_equal(&slab, &before, sizeof before);
    sm_slab_fini(&slab);
}

/* Records that were lent are used under another lock: each belongs to one side at a time, and after the loan
 * the slab knows of all. */
static void a_loan_comes_back_whole(void **state)
{
    (void)state;
    void *own[40], *theirs[40];
    struct sm_slab slab, loan;
    sm_slab_init(&slab, 96);
    assert_true(sm_slab_reserve(&slab, 40));
    for (int i = 0; i < 10; i++)
        own[i] = sm_slab_take(&slab);
    size_t capacity = slab.capacity, spare = capacity - slab.count;
    sm_slab_lend(&slab, &loan, 20);
    assert_int_equal(slab.capacity - slab.count, spare - 20);
    assert_int_equal(loan.capacity - loan.count, 20);
    for (int i = 0; i < 20; i++)
        theirs[i] = sm_slab_take(&loan);
    assert_int_equal(loan.capacity - loan.count, 0);
    for (int i = 0; i < 10; i++) /* more comes back than was lent: records of the slab itself */
        sm_slab_give(&loan, own[i]);
    for (int i = 0; i < 15; i++)
        sm_slab_give(&loan, theirs[i]);
    assert_int_equal(loan.capacity - loan.count, 25);
    assert_true(sm_slab_reserve(&slab, spare - 20)); /* not more than before */
    sm_slab_unlend(&slab, &loan);
    assert_int_equal(slab.capacity, capacity);
    assert_int_equal(slab.count, 5);
    for (size_t i = 0; i < capacity - 5; i++)
        assert_non_null(sm_slab_take(&slab));
    assert_int_equal(slab.capacity, capacity);
    assert_null(slab.free_records);
    sm_slab_fini(&slab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_apart_and_zeroed),
        cmocka_unit_test(chunks_double_up_to_a_limit),
        cmocka_unit_test(reserved_takes_cannot_fail),
        cmocka_unit_test(every_refusal_leaves_the_slab_as_it_was),
        cmocka_unit_test(impossible_reserves_are_refused),
        cmocka_unit_test(a_loan_comes_back_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
