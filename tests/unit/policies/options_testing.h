/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the options share. */
#ifndef SEAM_TESTS_UNIT_POLICIES_OPTIONS_TESTING_H
#define SEAM_TESTS_UNIT_POLICIES_OPTIONS_TESTING_H

#include "policies/options.h"
#include "tests/unit/policies/cmocka_all.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OURS    "SEAMALLOC_CONF"
#define PYTORCH "PYTORCH_CUDA_ALLOC_CONF"

/* The settings in force, as text: equal texts are equal settings, for every field is in it. */
static inline const char *settings_text(const struct sm_options *options, char text[2048])
{
    assert_true(sm_options_format(options, text, 2048) < 2048);
    return text;
}

static inline void assert_same_settings(const struct sm_options *a, const struct sm_options *b)
{
    char one[2048], other[2048];
    assert_string_equal(settings_text(a, one), settings_text(b, other));
}

static inline struct sm_options defaults(void)
{
    struct sm_options options;
    sm_options_defaults(&options);
    return options;
}

/* Takes the text, over the defaults, or fails the test. */
static inline struct sm_options accept(const char *source, const char *text)
{
    struct sm_options options = defaults();
    struct sm_error error;
    if (sm_options_parse(&options, source, text, &error) != SEAM_OK)
        fail_msg("%s was refused: %s", text, error.text);
    return options;
}

/* Refuses the text: the code, the source and each of the parts stand in the error, and no setting changed. */
static inline struct sm_error refuse_as(seam_result code, const char *source, const char *text,
                                        const char *position, const char *key, const char *valid)
{
    struct sm_options before =
        accept(OURS, "max_split_size_mb:77,roundup_power2_divisions:[2:4,8:2],log:error");
    struct sm_options options = before;
    struct sm_error error = {.code = SEAM_OK};
    if (sm_options_parse(&options, source, text, &error) != code || error.code != code)
        fail_msg("\"%.200s\" gave %s: %s", text, sm_result_name(error.code), error.text);
    const char *parts[] = {source, position, key, valid};
    for (unsigned i = 0; i < 4; i++)
        if (!strstr(error.text, parts[i]))
            fail_msg("\"%.200s\": no \"%s\" in: %s", text, parts[i], error.text);
    assert_memory_equal(&options, &before, sizeof options);
    assert_int_equal(sm_options_parse(&options, source, text, NULL), code);
    return error;
}

static inline void refuse(const char *source, const char *text, const char *position, const char *key,
                          const char *valid)
{
    refuse_as(SEAM_E_OPTION, source, text, position, key, valid);
}

#endif
