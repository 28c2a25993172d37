/* SPDX-License-Identifier: Apache-2.0 */
/* The map of addresses: what was added is found by every address inside and by none outside, and a reader
 * without a lock gets a right answer or is told that the map was changing. */
#include "alloc/heap/map.h"
#include "base/fault.h"
#include "base/hostmem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/random.h"
#include <pthread.h>

#define RANGES 300
#define STEP   0x10000

/* Range i begins at STEP (2 i + 1) and is one to two thirds as long. */
static uint64_t base_of(size_t i)
{
    return (uint64_t)STEP * (2 * i + 1);
}

static uint64_t size_of(size_t i)
{
    return STEP / 3 * (1 + i % 2);
}

static void *tag_of(size_t i)
{
    return (void *)(uintptr_t)(i + 1);
}

static struct sm_home *home_of(size_t i)
{
    return (struct sm_home *)(uintptr_t)(16 * (i + 1));
}

static void add(struct sm_map *map, size_t i)
{
    assert_true(sm_map_reserve(map));
    sm_map_add(map, base_of(i), size_of(i), home_of(i), tag_of(i));
}

static void expect(const struct sm_map *map, uint64_t address, size_t i, bool inside)
{
    void *tag;
    assert_int_equal(sm_map_tag(map, address, &tag), inside ? SM_MAP_HOME : SM_MAP_NOWHERE);
    assert_ptr_equal(tag, inside ? tag_of(i) : NULL);
    assert_ptr_equal(sm_map_home(map, address), inside ? home_of(i) : NULL);
}

static void it_finds_what_lies_inside(void **state)
{
    (void)state;
    static bool there[RANGES];
    struct random random = {.state = 5};
    size_t before = sm_hostmem_bytes();
    struct sm_map map = {0};
    expect(&map, base_of(0), 0, false);
    for (int step = 0; step < 4000; step++) {
        size_t i = random_below(&random, RANGES);
        if (there[i])
            sm_map_remove(&map, base_of(i));
        else
            add(&map, i);
        there[i] = !there[i];
        for (size_t k = 0; k < RANGES && step % 100 == 0; k++) {
            expect(&map, base_of(k) - 1, k, false);
            expect(&map, base_of(k), k, there[k]);
            expect(&map, base_of(k) + size_of(k) - 1, k, there[k]);
            expect(&map, base_of(k) + size_of(k), k, false);
        }
    }
    sm_map_fini(&map);
    assert_int_equal(sm_hostmem_bytes(), before);
}

static void a_refused_reservation_changes_nothing(void **state)
{
    (void)state;
    struct sm_map map = {0};
    sm_fault_arm(sm_hostmem_fault(), 1, true);
    assert_false(sm_map_reserve(&map));
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    add(&map, 0);
    sm_fault_arm(sm_hostmem_fault(), 1, true);
    size_t count = 1;
    for (; sm_map_reserve(&map); count++)
        sm_map_add(&map, base_of(count), size_of(count), home_of(count), tag_of(count));
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    for (size_t i = 0; i <= count; i++)
        expect(&map, base_of(i), i, i < count);
    add(&map, count);
    expect(&map, base_of(count), count, true);
    sm_map_fini(&map);
}

static struct {
    struct sm_map map;
    _Atomic uint64_t stop, wrong, found;
} busy;

/* Odd ranges are always there, even ones come and go. */
static void *read_on(void *unused)
{
    struct random random = {.state = 9};
    (void)unused;
    while (!busy.stop) {
        size_t i = random_below(&random, RANGES);
        void *tag;
        enum sm_map_answer answer = sm_map_tag(&busy.map, base_of(i) + 1, &tag);
        busy.wrong += answer == SM_MAP_HOME && tag != tag_of(i);
        busy.wrong += answer == SM_MAP_NOWHERE && i % 2;
        busy.found += answer == SM_MAP_HOME;
    }
    return NULL;
}

static void readers_need_no_lock(void **state)
{
    (void)state;
    struct random random = {.state = 3};
    bool there[RANGES] = {false};
    pthread_t reader;
    for (size_t i = 1; i < RANGES; i += 2)
        add(&busy.map, i);
    assert_int_equal(pthread_create(&reader, NULL, read_on, NULL), 0);
    for (int step = 0; step < 20000 || busy.found < 1000; step++) {
        size_t i = random_below(&random, RANGES / 2) * 2;
        if (there[i])
            sm_map_remove(&busy.map, base_of(i));
        else
            add(&busy.map, i);
        there[i] = !there[i];
    }
    busy.stop = 1;
    pthread_join(reader, NULL);
    assert_int_equal(busy.wrong, 0);
    sm_map_fini(&busy.map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_finds_what_lies_inside),
        cmocka_unit_test(a_refused_reservation_changes_nothing),
        cmocka_unit_test(readers_need_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
