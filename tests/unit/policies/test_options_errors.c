/* SPDX-License-Identifier: Apache-2.0 */
/* Bad option strings: each is refused with the place, the key and what would be valid, and changes nothing.
 */
#include "tests/unit/policies/options_testing.h"

#define R "roundup_power2_divisions"

static void bad_divisions(void **state)
{
    (void)state;
    refuse(PYTORCH, R ":3", "position 26", R, "power of two up to 128");
    refuse(PYTORCH, R ":-1", "position 26", R, "power of two up to 128");
    refuse(PYTORCH, R ":256", "position 26", R, "power of two up to 128");
    refuse(PYTORCH, R ":[1:1", "position 26", R, "not closed");
    refuse(PYTORCH, R ":[", "position 26", R, "not closed");
    refuse(PYTORCH, R ":]", "position 26", R, "power of two up to 128");
    refuse(PYTORCH, R ":[]", "position 27", R, "no pair");
    refuse(PYTORCH, R ":[4:2,1:1]", "position 31", R, "not above");
    refuse(PYTORCH, R ":[4:2,4:1]", "position 31", R, "not above");
    refuse(PYTORCH, R ":[4:2,]", "position 31", R, "no pair");
    refuse(PYTORCH, R ":[4]", "position 27", R, "no pair");
    refuse(PYTORCH, R ":[4:]", "position 27", R, "power of two up to 128");
    refuse(PYTORCH, R ":[:4]", "position 27", R, "1 to 32768");
    refuse(PYTORCH, R ":[3:4]", "position 27", R, "1 to 32768");
    refuse(PYTORCH, R ":[0:4]", "position 27", R, "1 to 32768");
    refuse(PYTORCH, R ":[65536:4]", "position 27", R, "1 to 32768");
    refuse(PYTORCH, R ":[4:3]", "position 27", R, "power of two up to 128");
    refuse(PYTORCH, R ":[4:2:1]", "position 27", R, "power of two up to 128");
    refuse(PYTORCH, R ":[>:1,4:2]", "position 31", R, "has to be the last");
    refuse(PYTORCH, R ":[>:1,>:2]", "position 31", R, "has to be the last");
    refuse(PYTORCH, R ":[1:1]x", "position 31", "comma", "");
    refuse(PYTORCH, R ":[1:1]]", "position 31", "comma", "");
    refuse(PYTORCH, R ":[[1:1]]", "position 27", R, "1 to 32768");
}

static void bad_forms(void **state)
{
    (void)state;
    refuse(PYTORCH, "expandable_segments", "position 20", "expandable_segments", "True or False");
    refuse(PYTORCH, "expandable_segments:", "position 21", "expandable_segments", "True or False");
    refuse(PYTORCH, "expandable_segments:True,", "position 26", "key is missing", "backend");
    refuse(PYTORCH, ",,", "position 1", "key is missing", "backend");
    refuse(PYTORCH, ",", "position 1", "key is missing", "backend");
    refuse(PYTORCH, ":", "position 1", "key is missing", "backend");
    refuse(PYTORCH, ":5", "position 1", "key is missing", "backend");
    refuse(PYTORCH, "  ,expandable_segments:True", "position 3", "key is missing", "backend");
    refuse(PYTORCH, "expandable_segments:True,,backend:native", "position 26", "key is missing", "backend");
    refuse(PYTORCH, "expandable_segments:True backend:native", "position 21", "expandable_segments",
           "True or False");
    refuse(PYTORCH, "expandable_segments::True", "position 21", "expandable_segments", "True or False");
    refuse(PYTORCH, "expandable_segments=True", "position 1", "unknown key", "expandable_segments");
    refuse(PYTORCH, "max_split_size_mb:20:30", "position 19", "max_split_size_mb", "20 to ");
    refuse(PYTORCH, "expandable_segments_reserve_by_class:[a:1", "position 38", "reserve_by_class",
           "not closed");
    refuse(PYTORCH, "pinned_x:a:b", "position 10", "pinned_*", "outside of a list");
    refuse(PYTORCH, "pinned_x", "position 9", "pinned_*", "value is missing");
    refuse(PYTORCH, "pinned_:1", "position 1", "unknown key \"pinned_\"", "pinned_*");
}

static void bad_values(void **state)
{
    (void)state;
    refuse(PYTORCH, "max_split_size_mb:abc", "position 19", "max_split_size_mb: \"abc\"",
           "20 to 17592186044415");
    refuse(PYTORCH, "max_split_size_mb:-5", "position 19", "\"-5\"", "20 to 17592186044415");
    refuse(PYTORCH, "max_split_size_mb:+50", "position 19", "\"+50\"", "20 to 17592186044415");
    refuse(PYTORCH, "max_split_size_mb:0x40", "position 19", "\"0x40\"", "20 to 17592186044415");
    refuse(PYTORCH, "max_split_size_mb:19", "position 19", "\"19\"", "20 to 17592186044415");
    refuse(PYTORCH, "max_split_size_mb:1e3", "position 19", "\"1e3\"", "20 to 17592186044415");
    refuse(PYTORCH, "max_split_size_mb:18446744073709551616", "position 19", "max_split_size_mb", "20 to ");
    refuse(PYTORCH, "max_split_size_mb:18446744073709551636", "position 19", "max_split_size_mb", "20 to ");
    refuse(PYTORCH, "large_segment_size_mb:10", "position 23", "large_segment_size_mb", "11 to ");
    refuse(PYTORCH, "garbage_collection_threshold:1.5", "position 30", "\"1.5\"", "above 0 and below 1");
    refuse(PYTORCH, "garbage_collection_threshold:0", "position 30", "\"0\"", "above 0 and below 1");
    refuse(PYTORCH, "garbage_collection_threshold:1", "position 30", "\"1\"", "above 0 and below 1");
    refuse(PYTORCH, "garbage_collection_threshold:1e-400", "position 30", "\"1e-400\"",
           "above 0 and below 1");
    refuse(PYTORCH, "per_process_memory_fraction:nan", "position 29", "\"nan\"", "0 to 1");
    refuse(PYTORCH, "per_process_memory_fraction:inf", "position 29", "\"inf\"", "0 to 1");
    refuse(PYTORCH, "per_process_memory_fraction:-0.1", "position 29", "\"-0.1\"", "0 to 1");
    refuse(PYTORCH, "per_process_memory_fraction:1.0000000000000002", "position 29", "fraction", "0 to 1");
    refuse(PYTORCH, "per_process_memory_fraction:0.5.5", "position 29", "fraction", "0 to 1");
    refuse(PYTORCH, "per_process_memory_fraction:0,5", "position 31", "unknown key \"5\"", "per_process");
    refuse(PYTORCH, "per_process_memory_fraction:1e", "position 29", "fraction", "0 to 1");
    refuse(PYTORCH, "per_process_memory_fraction:0x1p-1", "position 29", "fraction", "0 to 1");
    refuse(PYTORCH, "backend:cudaMallocAsync", "position 9", "\"cudaMallocAsync\"",
           "refuses any other backend");
    refuse(OURS, "policy:best", "position 8", "\"best\"", "stitch");
    refuse(OURS, "log:4", "position 5", "\"4\"", "0 to 3");
    refuse(OURS, "log:-1", "position 5", "\"-1\"", "0 to 3");
    refuse(OURS, "peers:0", "position 7", "\"0\"", "all or none");
    refuse(OURS, "handle_mib:1", "position 12", "\"1\"", "2 to 1048576 or auto");
    refuse(OURS, "max_split_size_mb:none", "position 19", "\"none\"", "or unlimited");
    refuse(OURS, "exportable:yes", "position 12", "\"yes\"", "True or False");
}

static void bad_keys(void **state)
{
    (void)state;
    struct sm_error error = refuse_as(SEAM_E_OPTION, OURS, "expandeable_segments:True", "position 1",
                                      "\"expandeable_segments\"", "backend");
    for (const struct sm_option_info *info = sm_options_table(); info->key; info++)
        assert_non_null(strstr(error.text, info->key)); /* the whole list fits */
    error = refuse_as(SEAM_E_OPTION, PYTORCH, "key", "position 1", "unknown key \"key\"", "backend");
    for (const struct sm_option_info *info = sm_options_table(); info->key; info++)
        assert_int_equal(strstr(error.text, info->key) != NULL, info->of_pytorch);
    refuse(PYTORCH, "Backend:native", "position 1", "unknown key \"Backend\"", "backend");
    refuse(PYTORCH, "backen:native", "position 1", "unknown key", "backend");
    refuse(PYTORCH, "backendd:native", "position 1", "unknown key", "backend");
    refuse(OURS, "handle_mib:8,log:2,handle_mib:8", "position 20", "handle_mib", "once");
    refuse(PYTORCH, "backend:native,backend:native", "position 16", "backend", "once");
    accept(PYTORCH, "pinned_a:1,pinned_b:2"); /* two keys of one family */
}

/* What PyTorch itself would refuse is refused in its variable. */
static void pytorchs_variables_are_pytorchs(void **state)
{
    (void)state;
    refuse(PYTORCH, "policy:stitch", "position 1", "policy is a key of SEAMALLOC_CONF", "backend");
    refuse("PYTORCH_ALLOC_CONF", "log:2", "position 1", "log is a key of SEAMALLOC_CONF", "backend");
    refuse(PYTORCH, "expandable_segments:true", "position 21", "\"true\"", "True or False");
    refuse(PYTORCH, "max_split_size_mb:unlimited", "position 19", "\"unlimited\"", "20 to ");
    refuse(PYTORCH, "garbage_collection_threshold:off", "position 30", "\"off\"", "above 0");
    refuse(PYTORCH, "@/etc/passwd", "position 1", "unknown key", "backend");
}

static void nothing_is_half_applied(void **state)
{
    (void)state;
    refuse(OURS, "slack_permille:9,handle_mib:64,roundup_power2_divisions:[1:1,2:2],log:9", "position 71",
           "log", "0 to 3");
    refuse(OURS, "roundup_power2_divisions:[1:1,2:2,4:5]", "position 35", R, "power of two");
}

static void ten_thousand_digits(void **state)
{
    (void)state;
    static char text[10100];
    static const char *const keys[] = {"max_split_size_mb:",
                                       "garbage_collection_threshold:",
                                       "log:",
                                       R ":",
                                       R ":[",
                                       "expandable_segments:",
                                       ""};
    for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++) {
        size_t length = strlen(keys[i]);
        strcpy(text, keys[i]);
        memset(text + length, '7', 10000);
        strcpy(text + length + 10000, strchr(keys[i], '[') ? ":1]" : "");
        struct sm_error error = refuse_as(SEAM_E_OPTION, OURS, text, "position ", "777...\"", "valid");
        assert_true(strlen(error.text) < SM_ERROR_TEXT_MAX - 1); /* quoted in part, not cut at the end */
    }
}

static void foreign_bytes_are_not_echoed(void **state)
{
    (void)state;
    struct sm_error error =
        refuse_as(SEAM_E_OPTION, OURS, "log:\x1b[2J\xff", "position 5", "\"?[2J?\"", "0 to 3");
    for (const char *at = error.text; *at; at++)
        assert_true(*at >= 0x20 && *at < 0x7f);
}

/* Every prefix and every single changed byte of a good string: never a crash, and refused or taken whole. */
static void mutations_of_a_good_string(void **state)
{
    (void)state;
    static const char good[] =
        "max_split_size_mb:128,roundup_power2_divisions:[64:8,256:4,>:1],expandable_segments:True,"
        "garbage_collection_threshold:0.8,policy:stitch,log:2";
    static const char bytes[] = ":,[]> @0x9-\xff\n#";
    struct sm_options before = defaults(), options;
    char text[sizeof good];
    unsigned taken = 0, refused = 0;
    for (size_t i = 0; i < sizeof good - 1; i++) {
        for (size_t k = 0; k < sizeof bytes; k++) { /* the last one is the 0: a prefix */
            memcpy(text, good, sizeof good);
            text[i] = bytes[k];
            options = before;
            struct sm_error error = {0};
            if (sm_options_parse(&options, OURS, text, &error) == SEAM_OK) {
                taken++;
            } else {
                refused++;
                assert_memory_equal(&options, &before, sizeof options);
                assert_int_equal(strncmp(error.text, "SEAMALLOC_CONF, position ", 25), 0);
            }
        }
    }
    assert_true(taken > 10 && refused > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_divisions),
        cmocka_unit_test(bad_forms),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(bad_keys),
        cmocka_unit_test(pytorchs_variables_are_pytorchs),
        cmocka_unit_test(nothing_is_half_applied),
        cmocka_unit_test(ten_thousand_digits),
        cmocka_unit_test(foreign_bytes_are_not_echoed),
        cmocka_unit_test(mutations_of_a_good_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
