/* SPDX-License-Identifier: Apache-2.0 */
/* Fault counters: exactly the nth call fails, once or for ever, also when threads race for it. */
#include "base/fault.h"
#include "tests/unit/base/cmocka_all.h"
#include <pthread.h>

static void never_fires_when_not_armed(void **state)
{
    (void)state;
    struct sm_fault fault = {0};
    for (int i = 0; i < 100; i++)
        assert_false(sm_fault_fires(&fault));
    sm_fault_arm(&fault, 1, true);
    sm_fault_arm(&fault, 0, true);
    assert_false(sm_fault_fires(&fault));
    assert_int_equal(fault.hits, 0);
}

static void only_the_nth_call_fails(void **state)
{
    (void)state;
    struct sm_fault fault = {0};
    for (uint64_t nth = 1; nth <= 20; nth++) {
        sm_fault_arm(&fault, nth, false);
        for (uint64_t call = 1; call <= 40; call++)
            assert_int_equal(sm_fault_fires(&fault), call == nth);
        assert_int_equal(fault.hits, 1);
    }
}

static void all_fail_from_the_nth_on(void **state)
{
    (void)state;
    struct sm_fault fault = {0};
    for (uint64_t nth = 1; nth <= 20; nth++) {
        sm_fault_arm(&fault, nth, true);
        for (uint64_t call = 1; call <= 40; call++)
            assert_int_equal(sm_fault_fires(&fault), call >= nth);
        assert_int_equal(fault.hits, 41 - nth);
    }
}

#define CALLS 20000
static struct sm_fault shared;

static void *call_often(void *fired)
{
    for (int i = 0; i < CALLS; i++)
        *(unsigned *)fired += sm_fault_fires(&shared);
    return NULL;
}

static unsigned race(uint64_t nth, bool forever)
{
    pthread_t threads[4];
    unsigned fired[4] = {0}, sum = 0;
    sm_fault_arm(&shared, nth, forever);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &fired[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        sum += fired[i];
    }
    assert_int_equal(shared.hits, sum);
    return sum;
}

static void counts_exactly_under_threads(void **state)
{
    (void)state;
    assert_int_equal(race(3 * CALLS, false), 1);
    assert_int_equal(race(3 * CALLS, true), CALLS + 1);
    assert_int_equal(race(4 * CALLS + 1, false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_fires_when_not_armed),
        cmocka_unit_test(only_the_nth_call_fails),
        cmocka_unit_test(all_fail_from_the_nth_on),
        cmocka_unit_test(counts_exactly_under_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
