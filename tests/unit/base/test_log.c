/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: filtered by level, one line each, cut when long; checks count and, in debug builds, abort. */
#include "base/log.h"
#include "tests/unit/base/child.h"
#include "tests/unit/base/cmocka_all.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

static void log_at_all_levels(void)
{
    sm_log(SM_LOG_ERROR, "e%d", 1);
    sm_log(SM_LOG_WARNING, "w%d", 2);
    sm_log(SM_LOG_INFO, "i%d", 3);
    sm_log(SM_LOG_DEBUG, "d%d", 4);
}

static void log_errors_only(void)
{
    sm_log_set_level(SM_LOG_ERROR);
    log_at_all_levels();
}

static void log_everything(void)
{
    sm_log_set_level(SM_LOG_DEBUG);
    log_at_all_levels();
}

static void levels_filter(void **state)
{
    (void)state;
    assert_string_equal(run_child(log_at_all_levels).told, "seamalloc: error: e1\nseamalloc: warning: w2\n");
    assert_string_equal(run_child(log_errors_only).told, "seamalloc: error: e1\n");
    assert_string_equal(run_child(log_everything).told, "seamalloc: error: e1\nseamalloc: warning: w2\n"
                                                        "seamalloc: i3\nseamalloc: d4\n");
}

static void log_long(void)
{
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    errno = 99;
    sm_log(SM_LOG_ERROR, "%s", text);
    if (errno != 99)
        _exit(1);
}

static void long_lines_are_cut_but_ended(void **state)
{
    (void)state;
    struct child child = run_child(log_long);
    assert_true(child_ended_well(&child));
    size_t length = strlen(child.told);
    assert_in_range(length, 1200, 1280);
    assert_int_equal(child.told[length - 1], '\n');
    assert_int_equal(child.told[length - 2], 'x');
}

static void break_twice(void)
{
    int two = 2;
    if (SM_CHECK(two == 2) != 1 || sm_check_failures() != 0)
        _exit(1);
    if (SM_CHECK(two == 3) != 0 || SM_CHECK(two == 4) != 0 || sm_check_failures() != 2)
        _exit(1);
}

static void checks_tell_once(void **state)
{
    (void)state;
    struct child child = run_child(break_twice);
    assert_non_null(strstr(child.told, "two == 3"));
    assert_non_null(strstr(child.told, "test_log.c:"));
    assert_null(strstr(child.told, "two == 4"));
#ifdef NDEBUG
    assert_true(child_ended_well(&child));
#else
    assert_true(child_aborted(&child));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_filter),
        cmocka_unit_test(long_lines_are_cut_but_ended),
        cmocka_unit_test(checks_tell_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
