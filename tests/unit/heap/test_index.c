/* SPDX-License-Identifier: Apache-2.0 */
/* The address index: what was put in is found, what was taken out is not, whatever collides and in whatever
 * order, and whether or not the host has memory for buckets. */
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
    assert_null(sm_index_next(&index, NULL));
    sm_index_insert(&index, &blocks[1]);
    assert_true(sm_index_remove(&index, &blocks[1]));
    assert_null(sm_index_find(&index, 0));
    assert_false(sm_index_remove(&index, &blocks[0]));
    assert_null(sm_index_next(&index, NULL));
    sm_index_fini(&index);
}

static void it_finds_by_the_first_address_only(void **state)
{
    (void)state;
    struct sm_index index = {0};
    place_blocks();
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
        sm_index_insert(&index, &blocks[i]);
        assert_true(index.count <= index.capacity);
    }
    for (size_t i = 0; i < MANY; i++)
        assert_ptr_equal(sm_index_find(&index, blocks[i].address), &blocks[i]);
    sm_index_fini(&index);
    assert_int_equal(sm_hostmem_bytes(), before);
}

/* Every block once, and no other. */
static void expect_all(const struct sm_index *index, size_t count)
{
    static bool seen[MANY];
    size_t found = 0;
    memset(seen, 0, sizeof(seen));
    for (struct sm_block *block = sm_index_next(index, NULL); block; block = sm_index_next(index, block)) {
        assert_false(seen[block - blocks]);
        seen[block - blocks] = true;
        assert_ptr_equal(sm_index_find(index, block->address), block);
        found++;
    }
    assert_int_equal(found, count);
    assert_int_equal(index->count, count);
}

static void without_host_memory_it_works_on(void **state)
{
    (void)state;
    static const size_t before[] = {0, 100};
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        struct sm_index index = {0};
        place_blocks();
        for (size_t k = 0; k < before[i]; k++)
            sm_index_insert(&index, &blocks[k]);
        size_t capacity = index.capacity;
        sm_fault_arm(sm_hostmem_fault(), 1, true);
        for (size_t k = before[i]; k < 400; k++)
            sm_index_insert(&index, &blocks[k]);
        sm_fault_arm(sm_hostmem_fault(), 0, false);
        assert_int_equal(index.capacity, capacity);
        expect_all(&index, 400);
        sm_index_insert(&index, &blocks[400]); /* the host has memory again */
        assert_true(index.capacity > capacity);
        expect_all(&index, 401);
        sm_index_fini(&index);
    }
}

/* Insertions and removals in random order, so that chains are cut at their heads, middles and ends. */
static void random_order(void **state)
{
    (void)state;
    struct random random = {11};
    static bool inside[MANY];
    struct sm_index index = {0};
    size_t count = 0;
    place_blocks();
    memset(inside, 0, sizeof(inside));
    for (int step = 0; step < 60000; step++) {
        size_t i = random_below(&random, MANY);
        if (inside[i]) {
            assert_true(sm_index_remove(&index, &blocks[i]));
            inside[i] = false;
            count--;
        } else if (count < 256) {
            sm_index_insert(&index, &blocks[i]);
            inside[i] = true;
            count++;
        }
        assert_int_equal(index.count, count);
        if (step % 500)
            continue;
        expect_all(&index, count);
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
        cmocka_unit_test(without_host_memory_it_works_on),
        cmocka_unit_test(random_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
