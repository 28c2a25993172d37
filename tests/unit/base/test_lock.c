/* SPDX-License-Identifier: Apache-2.0 */
/* Locks: they exclude, and debug builds stop a thread that takes them in the wrong order. */
#include "base/lock.h"
#include "tests/unit/base/child.h"
#include "tests/unit/base/cmocka_all.h"
#include <sched.h>
#include <signal.h>
#include <string.h>

static struct sm_lock phases, setup, memory, heap, other_heap;
static unsigned long counter;

static int init_locks(void **state)
{
    (void)state;
    sm_lock_init(&phases, SM_RANK_PHASES, "phases");
    sm_lock_init(&setup, SM_RANK_SETUP, "setup");
    sm_lock_init(&memory, SM_RANK_MEMORY, "memory 0");
    sm_lock_init(&heap, SM_RANK_HEAP, "heap 0");
    sm_lock_init(&other_heap, SM_RANK_HEAP, "heap 1");
    return 0;
}

static int fini_locks(void **state)
{
    (void)state;
    sm_lock_fini(&phases);
    sm_lock_fini(&setup);
    sm_lock_fini(&memory);
    sm_lock_fini(&heap);
    sm_lock_fini(&other_heap);
    return 0;
}

static void *count_up(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        sm_lock_take(&memory);
        sm_lock_take(&heap);
        sm_lock_assert_held(&heap);
        sm_lock_assert_held(&memory);
        counter++;
        sm_lock_give(&heap);
        sm_lock_give(&memory);
    }
    return NULL;
}

static void they_exclude(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(counter, 80000);
}

static struct sm_lock brief;

static void *count_up_briefly(void *unused)
{
    (void)unused;
    for (int i = 0; i < 2000; i++) {
        sm_lock_take_brief(&brief);
        unsigned long seen = counter;
        if (i % 20 == 0)
            sched_yield(); /* somebody else comes, and finds it taken */
        counter = seen + 1;
        sm_lock_give_brief(&brief);
    }
    return NULL;
}

static void brief_ones_exclude(void **state)
{
    (void)state;
    pthread_t threads[8];
    sm_lock_init(&brief, SM_RANK_HOME, "home");
    counter = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up_briefly, NULL), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(counter, 16000);
    sm_lock_fini(&brief);
}

static void count_entry(void *context)
{
    sm_lock_assert_held(&heap);
    ++*(unsigned long *)context;
}

static void entering_is_told_unless_bare(void **state)
{
    (void)state;
    unsigned long entries = 0;
    heap.entered = count_entry;
    heap.context = &entries;
    for (int i = 0; i < 3; i++) {
        sm_lock_take(&heap);
        sm_lock_give(&heap);
        sm_lock_take_bare(&heap);
        sm_lock_assert_held(&heap);
        sm_lock_give(&heap);
    }
    heap.entered = NULL;
    assert_int_equal(entries, 3);
}

static void take_ascending_give_in_any_order(void)
{
    for (int i = 0; i < 3; i++) {
        sm_lock_take(&phases);
        sm_lock_take(&setup);
        sm_lock_take(&heap);
        sm_lock_give(&setup);
        sm_lock_give(&heap);
        sm_lock_take(&memory); /* phases is still held, and lower */
        sm_lock_give(&phases);
        sm_lock_take(&other_heap);
        sm_lock_give(&memory);
        sm_lock_give(&other_heap);
    }
}

static void *take_lower(void *unused)
{
    (void)unused;
    sm_lock_take(&memory);
    sm_lock_give(&memory);
    return NULL;
}

/* What one thread holds is no business of another. */
static void hold_high_while_another_takes_low(void)
{
    pthread_t thread;
    sm_lock_take(&heap);
    if (pthread_create(&thread, NULL, take_lower, NULL) != 0)
        _exit(3);
    pthread_join(thread, NULL);
    sm_lock_give(&heap);
}

static void right_orders_pass(void **state)
{
    (void)state;
    struct child child = run_child(take_ascending_give_in_any_order);
    assert_true(child_ended_well(&child));
    assert_string_equal(child.told, "");
    child = run_child(hold_high_while_another_takes_low);
    assert_true(child_ended_well(&child));
}

#ifdef NDEBUG
static void wrong_orders_abort(void **state)
{
    (void)state;
    print_message("release builds do not look at the order\n");
    skip();
}
#else
static void take_in_the_wrong_order(void)
{
    sm_lock_take(&heap);
    sm_lock_take(&memory);
}

static void take_heap_inside_a_brief_lock(void)
{
    sm_lock_init(&brief, SM_RANK_HOME, "home");
    sm_lock_take_brief(&brief);
    sm_lock_take(&heap);
}

static void take_two_of_one_rank(void)
{
    sm_lock_take(&heap);
    sm_lock_take(&other_heap);
}

static void take_twice(void)
{
    sm_lock_take(&setup);
    sm_lock_take(&setup);
}

static void give_what_is_not_held(void)
{
    sm_lock_give(&phases);
}

static void *assert_held(void *unused)
{
    (void)unused;
    sm_lock_assert_held(&setup);
    return NULL;
}

static void assert_what_another_thread_holds(void)
{
    pthread_t thread;
    sm_lock_take(&setup);
    sm_lock_assert_held(&setup);
    if (pthread_create(&thread, NULL, assert_held, NULL) == 0)
        pthread_join(thread, NULL);
}

static void *take_in_the_wrong_order_here(void *unused)
{
    (void)unused;
    take_in_the_wrong_order();
    return NULL;
}

static void take_in_the_wrong_order_in_a_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, take_in_the_wrong_order_here, NULL) == 0)
        pthread_join(thread, NULL);
}

static void assert_aborts_naming(void (*function)(void), const char *one, const char *other)
{
    struct child child = run_child(function);
    if (!child_aborted(&child) || !strstr(child.told, one) || !strstr(child.told, other))
        fail_msg("status %x, told: %s", (unsigned)child.status, child.told);
}

static void wrong_orders_abort(void **state)
{
    (void)state;
    assert_aborts_naming(take_in_the_wrong_order, "\"memory 0\"", "\"heap 0\"");
    assert_aborts_naming(take_in_the_wrong_order_in_a_thread, "\"memory 0\"", "\"heap 0\"");
    assert_aborts_naming(take_two_of_one_rank, "\"heap 1\"", "\"heap 0\"");
    assert_aborts_naming(take_heap_inside_a_brief_lock, "\"heap 0\"", "\"home\"");
    assert_aborts_naming(take_twice, "\"setup\"", "is held");
    assert_aborts_naming(give_what_is_not_held, "\"phases\"", "does not hold");
    assert_aborts_naming(assert_what_another_thread_holds, "\"setup\"", "not held");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_exclude),
        cmocka_unit_test(brief_ones_exclude),
        cmocka_unit_test(entering_is_told_unless_bare),
        cmocka_unit_test(right_orders_pass),
        cmocka_unit_test(wrong_orders_abort),
    };
    return cmocka_run_group_tests(tests, init_locks, fini_locks);
}
