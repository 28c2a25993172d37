/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the code comes back, the text is cut and ended, each result has a name and a meaning of its own. */
#include "base/error.h"
#include "tests/unit/base/cmocka_all.h"
#include <string.h>

static void fills_and_returns_the_code(void **state)
{
    (void)state;
    struct sm_error error = {0};
    assert_int_equal(sm_error_set(&error, SEAM_E_LIMIT, "%s asks for %d", "x", 7), SEAM_E_LIMIT);
    assert_int_equal(error.code, SEAM_E_LIMIT);
    assert_string_equal(error.text, "x asks for 7");
    assert_int_equal(sm_error_set(NULL, SEAM_E_IO, "nobody listens"), SEAM_E_IO);
}

static void cuts_long_texts(void **state)
{
    (void)state;
    static char text[3 * SM_ERROR_TEXT_MAX];
    struct sm_error error;
    memset(text, 'y', sizeof text - 1);
    memset(&error, 0x55, sizeof error);
    sm_error_set(&error, SEAM_E_DEVICE, "%s", text);
    assert_int_equal(strlen(error.text), SM_ERROR_TEXT_MAX - 1);
    assert_memory_equal(error.text, text, SM_ERROR_TEXT_MAX - 1);
}

static void every_result_has_a_name_and_a_text(void **state)
{
    (void)state;
    assert_string_equal(sm_result_name(SEAM_OK), "SEAM_OK");
    assert_string_equal(sm_result_name(SEAM_E_LIMIT), "SEAM_E_LIMIT");
    for (int i = 0; i < SEAM_RESULT_COUNT; i++) {
        assert_int_equal(strncmp(sm_result_name((seam_result)i), "SEAM_", 5), 0);
        assert_string_not_equal(sm_result_text((seam_result)i), "unknown result");
        for (int k = 0; k < i; k++)
            assert_string_not_equal(sm_result_name((seam_result)i), sm_result_name((seam_result)k));
    }
    assert_string_equal(sm_result_name(SEAM_RESULT_COUNT), "unknown result");
    assert_string_equal(sm_result_text((seam_result)1234), "unknown result");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_and_returns_the_code),
        cmocka_unit_test(cuts_long_texts),
        cmocka_unit_test(every_result_has_a_name_and_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
