/* SPDX-License-Identifier: Apache-2.0 */
/* Real numbers as text: exact both ways, and with a point although the program uses a decimal comma. */
#include "base/number.h"
#include "tests/unit/base/cmocka_all.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void known_texts(void **state)
{
    (void)state;
    char text[SM_NUMBER_TEXT_MAX];
    assert_string_equal(sm_number_exact(text, 0.8), "0.8");
    assert_string_equal(sm_number_exact(text, 1), "1");
    assert_string_equal(sm_number_exact(text, -2.5), "-2.5");
    assert_string_equal(sm_number_exact(text, 0.1 + 0.2), "0.30000000000000004");
    assert_string_equal(sm_number_exact(text, NAN), "null");
    assert_string_equal(sm_number_exact(text, -INFINITY), "null");
    assert_string_equal(sm_number_fixed(text, sizeof text, 1234.5678, 2), "1234.57");
    assert_string_equal(sm_number_fixed(text, 4, 1234.5678, 2), "123");
}

static void reads_back_the_same(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    char text[SM_NUMBER_TEXT_MAX], *end;
    for (int i = 0; i < 20000; i++) {
        double value;
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        memcpy(&value, &seed, sizeof value);
        if (!isfinite(value))
            continue;
        sm_number_exact(text, value);
        assert_true(sm_number_read(text, &end) == value);
        assert_int_equal(*end, 0);
    }
}

static void stops_at_what_is_no_number(void **state)
{
    (void)state;
    char *end;
    const char *text = "0.5x";
    assert_true(sm_number_read(text, &end) == 0.5);
    assert_ptr_equal(end, text + 3);
    text = "x";
    sm_number_read(text, &end);
    assert_ptr_equal(end, text);
}

/* Makes a locale with a decimal comma where the system can, and runs the texts again under it. */
static void ignores_the_locale(void **state)
{
    char folder[] = "/tmp/seam-locale-XXXXXX", command[200], text[SM_NUMBER_TEXT_MAX], *end;
    if (!mkdtemp(folder)) {
        print_message("no folder can be made in /tmp\n");
        skip();
    }
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    int made = system(command);
    setenv("LOCPATH", folder, 1);
    int set = made != -1 && setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    if (set) {
        snprintf(text, sizeof text, "%.1f", 0.5);
        assert_string_equal(text, "0,5"); /* the locale is in force */
        known_texts(state);
        assert_true(sm_number_read("0.75", &end) == 0.75);
        snprintf(text, sizeof text, "%.1f", 0.5);
        assert_string_equal(text, "0,5"); /* and still is */
        setlocale(LC_ALL, "C");
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    if (!set) {
        print_message("no locale with a decimal comma can be made here\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts),
        cmocka_unit_test(reads_back_the_same),
        cmocka_unit_test(stops_at_what_is_no_number),
        cmocka_unit_test(ignores_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
