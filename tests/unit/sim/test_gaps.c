/* SPDX-License-Identifier: Apache-2.0 */
/* gaps against a naive model: one byte a unit, searched from one end. */
#include "base/align.h"
#include "sim/core/gaps.h"
#include "tests/support/cmocka_all.h"
#include <stdlib.h>
#include <string.h>

enum { LINE = 512, BASE = 1 << 20, STEPS = 20000 };

static bool taken[LINE];
static struct sim_gaps gaps;

static bool is_free(unsigned at, unsigned size)
{
    for (unsigned i = 0; i < size; i++)
        if (taken[at + i])
            return false;
    return true;
}

/* The place that the model would take, or LINE. */
static unsigned model_find(unsigned size, unsigned align, bool high)
{
    for (unsigned i = 0; i + size <= LINE; i++) {
        unsigned at = high ? LINE - size - i : i;
        if (at % align == 0 && is_free(at, size))
            return at;
    }
    return LINE;
}

static void mark(unsigned at, unsigned size, bool value)
{
    for (unsigned i = 0; i < size; i++)
        taken[at + i] = value;
}

static void take(unsigned size, unsigned align, bool high)
{
    uint64_t start = 0;
    unsigned expected = model_find(size, align, high);
    bool found =
        high ? sim_gaps_take_high(&gaps, size, align, &start) : sim_gaps_take_low(&gaps, size, align, &start);
    assert_int_equal(found, expected < LINE);
    if (!found)
        return;
    assert_int_equal(start - BASE, expected);
    mark(expected, size, true);
}

static void take_at(unsigned at, unsigned size)
{
    bool expected = at + size <= LINE && is_free(at, size);
    assert_int_equal(sim_gaps_take_at(&gaps, BASE + at, size), expected);
    if (expected)
        mark(at, size, true);
}

/* Gives back a run of taken units, or nothing. */
static void give(unsigned at, unsigned size)
{
    unsigned n = 0;
    while (n < size && at + n < LINE && taken[at + n])
        n++;
    if (n == 0)
        return;
    sim_gaps_give(&gaps, BASE + at, n);
    mark(at, n, false);
}

static void test_against_a_model(void **state)
{
    (void)state;
    srandom(1);
    assert_true(sim_gaps_init(&gaps, BASE, BASE + LINE));
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned size = 1 + (unsigned)random() % (step % 100 == 0 ? 200 : 20), at = (unsigned)random() % LINE;
        switch (random() % 5) {
        case 0:
            take(size, 1u << random() % 5, false);
            break;
        case 1:
            take(size, 1u << random() % 5, true);
            break;
        case 2:
            take_at(at, size);
            break;
        default:
            give(at, size);
        }
    }
    for (unsigned i = 0; i < LINE; i++)
        give(i, LINE);
    take(LINE, 1, false); /* all of it has come together again */
    sim_gaps_clear(&gaps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
