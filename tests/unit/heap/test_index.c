/* SPDX-License-Identifier: Apache-2.0 */
/* The address index: what was put in is found, what was taken out is not, whatever collides and in whatever
 * order; a refused allocation changes nothing. */
#include "alloc/heap/heap.h"
#include "alloc/heap/index.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/random.h"
#include <string.h>

#define MANY 3000

static struct sm_block blocks[MANY];

static void place_blocks(void)
{
    for (size_t i = 0; i < MANY; i++)
        blocks[i] = (struct sm_block){.address = 0x7f0000000000 + i * 512};
}

static void nothing_is_found_in_an_empty_index(void **state)
{
    (void)state;
    struct sm_index index = {0};
    assert_null(sm_index_find(&index, 512));
    assert_false(sm_index_remove(&index, &blocks[0]));
    assert_true(sm_index_reserve(&index, 1));
    assert_null(sm_index_find(&index, 0));
    assert_false(sm_index_remove(&index, &blocks[0]));
    sm_index_fini(&index);
}

static void it_finds_by_the_first_address_only(void **state)
{
    (void)state;
    struct sm_index index = {0};
    place_blocks();
    assert_true(sm_index_reserve(&index, 2));
    sm_index_insert(&index, &blocks[4]);
    assert_ptr_equal(sm_index_find(&index, blocks[4].address), &blocks[4]);
    assert_null(sm_index_find(&index, blocks[4].address + 1));
    assert_null(sm_index_find(&index, blocks[4].address + 256));
    assert_null(sm_index_find(&index, blocks[5].address));
    assert_true(sm_index_remove(&index, &blocks[4]));
    assert_null(sm_index_find(&index, blocks[4].address));
    assert_false(sm_index_remove(&index, &blocks[4]));
    sm_index_fini(&index);
}

static void growing_keeps_every_entry(void **state)
{
    (void)state;
    struct sm_index index = {0};
    size_t before = sm_hostmem_bytes();
    place_blocks();
    for (size_t i = 0; i < MANY; i++) {
        assert_true(sm_index_reserve(&index, i + 1));
        sm_index_insert(&index, &blocks[i]);
        assert_true(index.count <= index.capacity / 4 * 3);
    }
    for (size_t i = 0; i < MANY; i++)
        assert_ptr_equal(sm_index_find(&index, blocks[i].address), &blocks[i]);
    sm_index_fini(&index);
    assert_int_equal(sm_hostmem_bytes(), before);
}

static void a_refused_allocation_changes_nothing(void **state)
{
    (void)state;
    struct sm_index index = {0};
    place_blocks();
    assert_true(sm_index_reserve(&index, 100));
    for (size_t i = 0; i < 100; i++)
        sm_index_insert(&index, &blocks[i]);
    struct sm_index before = index;
    sm_fault_arm(sm_hostmem_fault(), 1, false);
    assert_false(sm_index_reserve(&index, MANY));
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    assert_memory_equal(&index, &before, sizeof(index));
    for (size_t i = 0; i < 100; i++)
        assert_ptr_equal(sm_index_find(&index, blocks[i].address), &blocks[i]);
    assert_true(sm_index_reserve(&index, MANY));
    assert_int_equal(index.count, 100);
    sm_index_fini(&index);
}

/* Insertions and removals in random order at the highest load that is allowed, so that runs of entries wrap
 * around the end of the table and removals close holes inside them. */
static void random_order_at_full_load(void **state)
{
    (void)state;
    struct random random = {11};
    static bool inside[MANY];
    struct sm_index index = {0};
    size_t count = 0;
    place_blocks();
    memset(inside, 0, sizeof(inside));
    assert_true(sm_index_reserve(&index, 192)); /* 3/4 of 256 */
    assert_int_equal(index.capacity, 256);
    for (int step = 0; step < 60000; step++) {
        size_t i = random_below(&random, MANY);
        if (inside[i]) {
            assert_true(sm_index_remove(&index, &blocks[i]));
            inside[i] = false;
            count--;
        } else if (count < 192) {
            sm_index_insert(&index, &blocks[i]);
            inside[i] = true;
            count++;
        }
        assert_int_equal(index.count, count);
        if (step % 500 == 0)
            for (size_t k = 0; k < MANY; k++)
                assert_ptr_equal(sm_index_find(&index, blocks[k].address), inside[k] ? &blocks[k] : NULL);
    }
    assert_int_equal(index.capacity, 256);
    sm_index_fini(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_found_in_an_empty_index),
        cmocka_unit_test(it_finds_by_the_first_address_only),
        cmocka_unit_test(growing_keeps_every_entry),
        cmocka_unit_test(a_refused_allocation_changes_nothing),
        cmocka_unit_test(random_order_at_full_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
