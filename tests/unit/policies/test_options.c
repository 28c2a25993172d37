/* SPDX-License-Identifier: Apache-2.0 */
/* Options that are understood: each key, the order of the sources, and the echo that reads back. */
#include "base/align.h"
#include "policies/presets.h"
#include "tests/unit/policies/options_testing.h"

static void defaults_are_as_documented(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    assert_int_equal(options.policy, SM_POLICY_STITCH);
    assert_true(options.max_split_size == SM_UNLIMITED);
    assert_int_equal(options.max_non_split_rounding, 20 * SM_MIB);
    for (unsigned i = 0; i < SM_ROUNDUP_SLOTS; i++)
        assert_int_equal(options.roundup_divisions[i], 0);
    assert_true(options.garbage_collection_threshold == 0);
    assert_true(options.per_process_memory_fraction == 1);
    assert_false(options.expandable_segments);
    assert_int_equal(options.small_limit, 256 * SM_KIB);
    assert_int_equal(options.handle_bytes, 0);
    assert_int_equal(options.slack_permille, 4);
    assert_int_equal(options.address_limit, (uint64_t)1 << 47);
    assert_int_equal(options.peers, SM_PEERS_ALL);
    assert_true(options.exportable);
    assert_int_equal(options.log_level, 1);
}

static void every_key_of_pytorch(void **state)
{
    (void)state;
    struct sm_options options = accept(
        PYTORCH,
        "backend:native, max_split_size_mb : 128,max_non_split_rounding_mb:40,large_segment_size_mb:30,"
        "garbage_collection_threshold:0.8,expandable_segments:True,per_process_memory_fraction:0.5,"
        "expandable_segments_reserve:40G,expandable_segments_reserve_by_class:[a:0.25,b:8G],"
        "throw_on_cudamalloc_oom:True,release_lock_on_cudamalloc:False,"
        "graph_capture_record_stream_reuse:True,pinned_use_cuda_host_register:True,"
        "pinned_num_register_threads:8,roundup_power2_divisions:4");
    assert_int_equal(options.max_split_size, 128 * SM_MIB);
    assert_int_equal(options.max_non_split_rounding, 40 * SM_MIB);
    assert_true(options.garbage_collection_threshold == 0.8);
    assert_true(options.expandable_segments);
    assert_true(options.per_process_memory_fraction == 0.5);
    assert_int_equal(options.roundup_divisions[0], 4);
    assert_int_equal(options.roundup_divisions[15], 4);
}

static void every_key_of_ours(void **state)
{
    (void)state;
    struct sm_options options =
        accept(OURS, "policy:stitch,small_limit_kib:1024,handle_mib:32,slack_permille:10,"
                     "address_limit_gib:64,peers:none,exportable:false,log:debug,"
                     "expandable_segments:true,max_split_size_mb:unlimited");
    assert_int_equal(options.small_limit, SM_MIB);
    assert_int_equal(options.handle_bytes, 32 * SM_MIB);
    assert_int_equal(options.slack_permille, 10);
    assert_int_equal(options.address_limit, 64 * SM_GIB);
    assert_int_equal(options.peers, SM_PEERS_NONE);
    assert_false(options.exportable);
    assert_int_equal(options.log_level, 3);
    assert_true(options.expandable_segments);
    assert_int_equal(accept(OURS, "log:0").log_level, 0);
    assert_int_equal(accept(OURS, "log:2").log_level, 2);
    assert_int_equal(accept("seam_configure()", "handle_mib:auto").handle_bytes, 0);
}

static void slots_of_a_table(void **state)
{
    (void)state;
    static const uint8_t known[] = {1, 1, 2, 2, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    static const uint8_t first[] = {8, 8, 8, 8, 8, 8, 8, 0, 2, 2, 2, 2, 2, 2, 2, 2};
    struct sm_options options = accept(PYTORCH, "roundup_power2_divisions:[1:1,4:2,16:4,>:8]");
    assert_memory_equal(options.roundup_divisions, known, sizeof known);
    options = accept(PYTORCH, " roundup_power2_divisions : [ 64 : 8 , 128:0, 256 :2 ] ");
    assert_memory_equal(options.roundup_divisions, first, sizeof first);
    options = accept(PYTORCH, "roundup_power2_divisions:[32768:128]");
    for (unsigned i = 0; i < SM_ROUNDUP_SLOTS; i++)
        assert_int_equal(options.roundup_divisions[i], 128);
    options = accept(PYTORCH, "roundup_power2_divisions:[1:2,32768:4,>:8]"); /* nothing is left for ">" */
    assert_int_equal(options.roundup_divisions[14], 2);
    assert_int_equal(options.roundup_divisions[15], 4);
}

static void nothing_is_a_text_too(void **state)
{
    (void)state;
    struct sm_options standard = defaults(), options = accept(OURS, "");
    assert_same_settings(&options, &standard);
    options = accept(OURS, " \t\r\n ");
    assert_same_settings(&options, &standard);
}

static void later_texts_keep_earlier_settings(void **state)
{
    (void)state;
    struct sm_options options = accept(OURS, "slack_permille:7,log:0");
    assert_int_equal(sm_options_parse(&options, OURS, "log:2", NULL), SEAM_OK);
    assert_int_equal(options.slack_permille, 7);
    assert_int_equal(options.log_level, 2);
}

/* The range texts of the table are true: both ends are taken, what lies next to them is not. */
static void ranges_end_where_the_table_says(void **state)
{
    (void)state;
    unsigned found = 0;
    for (const struct sm_option_info *info = sm_options_table(); info->key; info++) {
        unsigned long long low, high;
        int length = 0;
        char text[100];
        if (sscanf(info->range, "%llu to %llu%n", &low, &high, &length) < 2 || info->range[length] ||
            strcmp(info->kind, "share") == 0)
            continue;
        found++;
        const unsigned long long inside[] = {low, high}, outside[] = {high + 1, low - 1};
        for (unsigned i = 0; i < 2; i++) {
            snprintf(text, sizeof text, "%s:%llu", info->key, inside[i]);
            accept(OURS, text);
            snprintf(text, sizeof text, "%s:%llu", info->key, outside[i]);
            refuse(OURS, text, "position ", info->key, info->range); /* 0 - 1 is a number above every range */
        }
    }
    assert_int_equal(found, 9);
}

/* A preset by name is its file; what stands behind it wins. */
static void presets_are_named(void **state)
{
    (void)state;
    struct sm_options options = defaults();
    struct sm_error error = {0};
    assert_int_equal(sm_options_parse(&options, OURS, "policy:stitch-2mib,slack_permille:9", &error),
                     SEAM_OK);
    assert_int_equal(options.policy, SM_POLICY_STITCH);
    assert_int_equal(options.handle_bytes, 2 << 20);
    assert_int_equal(options.slack_permille, 9);
    options = defaults();
    assert_int_equal(sm_options_parse(&options, OURS, "policy:stitch-few-calls", &error), SEAM_OK);
    assert_true(options.work_percent < defaults().work_percent);
    for (const struct sm_preset *preset = sm_presets; preset->name; preset++) {
        char text[100];
        snprintf(text, sizeof text, "policy:%s", preset->name);
        accept(OURS, text);
    }
    refuse(OURS, "policy:stitch-3mib", "position 8", "policy", "stitch-2mib");
}

/* The default texts of the table are true: each one given says the same as none given. */
static void default_texts_are_true(void **state)
{
    (void)state;
    struct sm_options standard = defaults();
    for (const struct sm_option_info *info = sm_options_table(); info->key; info++) {
        char text[100];
        if (strcmp(info->default_text, "-") == 0)
            continue;
        snprintf(text, sizeof text, "%s:%s", info->key, info->default_text);
        struct sm_options options = accept(OURS, text);
        assert_same_settings(&options, &standard);
    }
}

static void shares_at_their_ends(void **state)
{
    (void)state;
    assert_true(accept(PYTORCH, "per_process_memory_fraction:0").per_process_memory_fraction == 0);
    assert_true(accept(PYTORCH, "per_process_memory_fraction:1.0").per_process_memory_fraction == 1);
    assert_true(accept(PYTORCH, "per_process_memory_fraction:.5").per_process_memory_fraction == 0.5);
    assert_true(accept(PYTORCH, "garbage_collection_threshold:8e-1").garbage_collection_threshold == 0.8);
    assert_true(
        accept(PYTORCH, "garbage_collection_threshold:0.99999999999999989").garbage_collection_threshold < 1);
    assert_true(
        accept(PYTORCH, "per_process_memory_fraction:0.8444218515250481").per_process_memory_fraction ==
        0.8444218515250481);
}

static void echo_reads_back(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (unsigned round = 0; round < 2000; round++) {
        struct sm_options options = defaults(), other;
        uint64_t random[24];
        char text[2048], again[2048];
        for (unsigned i = 0; i < 24; i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            random[i] = seed >> 8;
        }
        options.max_split_size = random[0] % 3 ? (20 + random[0] % 100000) * SM_MIB : SM_UNLIMITED;
        options.max_non_split_rounding = (20 + random[1] % 1000) * SM_MIB;
        for (unsigned i = 0; i < SM_ROUNDUP_SLOTS; i++)
            options.roundup_divisions[i] = (uint8_t)(random[2] % 4 ? 1u << random[3 + i % 8] % 8 : 0);
        if (random[22] % 2)
            options.roundup_listed = (uint16_t)(random[23] | 1);
        for (unsigned i = 1; i < SM_ROUNDUP_SLOTS; i++)
            if (!(options.roundup_listed >> i & 1))
                options.roundup_divisions[i] = options.roundup_divisions[i - 1];
        options.garbage_collection_threshold =
            random[11] % 2 ? (double)(random[12] | 1) / (double)(1ull << 56) : 0;
        options.per_process_memory_fraction = (double)random[13] / (double)(1ull << 56);
        options.expandable_segments = random[14] % 2;
        options.small_limit = random[15] % 20481 * SM_KIB;
        options.handle_bytes = random[16] % 2 ? (2 + random[16] % 1000) * SM_MIB : 0;
        options.slack_permille = random[17] % 1001;
        options.address_limit = (1 + random[18] % 131072) * SM_GIB;
        options.peers = random[19] % 2 ? SM_PEERS_ALL : SM_PEERS_NONE;
        options.exportable = random[20] % 2;
        options.log_level = (unsigned)(random[21] % 4);
        other = accept(OURS, settings_text(&options, text));
        assert_string_equal(settings_text(&other, again), text);
        assert_true(options.max_split_size == other.max_split_size);
        assert_true(options.max_non_split_rounding == other.max_non_split_rounding);
        assert_memory_equal(options.roundup_divisions, other.roundup_divisions, SM_ROUNDUP_SLOTS);
        assert_int_equal(options.roundup_listed, other.roundup_listed);
        assert_true(options.garbage_collection_threshold == other.garbage_collection_threshold);
        assert_true(options.per_process_memory_fraction == other.per_process_memory_fraction);
        assert_int_equal(options.expandable_segments, other.expandable_segments);
        assert_true(options.small_limit == other.small_limit && options.handle_bytes == other.handle_bytes);
        assert_true(options.slack_permille == other.slack_permille &&
                    options.address_limit == other.address_limit);
        assert_int_equal(options.peers, other.peers);
        assert_int_equal(options.exportable, other.exportable);
        assert_int_equal(options.log_level, other.log_level);
    }
}

static void echo_is_cut_as_snprintf_does(void **state)
{
    (void)state;
    struct sm_options options = accept(OURS, "roundup_power2_divisions:[1:1,4:2]");
    char whole[2048], cut[2048];
    size_t length = sm_options_format(&options, whole, sizeof whole);
    assert_int_equal(length, strlen(whole));
    assert_int_equal(sm_options_format(&options, NULL, 0), length);
    for (size_t capacity = 1; capacity <= length + 1; capacity++) {
        memset(cut, 0x5a, sizeof cut);
        assert_int_equal(sm_options_format(&options, cut, capacity), length);
        assert_memory_equal(cut, whole, capacity - 1);
        assert_int_equal(cut[capacity - 1], 0);
        assert_int_equal(cut[capacity], 0x5a);
    }
}

static int clear_environment(void **state)
{
    (void)state;
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    unsetenv("PYTORCH_ALLOC_CONF");
    unsetenv("SEAMALLOC_CONF");
    return 0;
}

static void environment_in_its_order(void **state)
{
    (void)state;
    struct sm_options options, standard = defaults();
    struct sm_error error;
    assert_int_equal(sm_options_from_environment(&options, &error), SEAM_OK);
    assert_same_settings(&options, &standard);
    setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:50", 1);
    assert_int_equal(sm_options_from_environment(&options, &error), SEAM_OK);
    assert_int_equal(options.max_split_size, 50 * SM_MIB);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:60,garbage_collection_threshold:0.5",
           1); /* before the other */
    assert_int_equal(sm_options_from_environment(&options, &error), SEAM_OK);
    assert_int_equal(options.max_split_size, 60 * SM_MIB);
    setenv("SEAMALLOC_CONF", "max_split_size_mb:70", 1);
    assert_int_equal(sm_options_from_environment(&options, &error), SEAM_OK);
    assert_int_equal(options.max_split_size, 70 * SM_MIB);
    assert_true(options.garbage_collection_threshold == 0.5);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "", 1); /* set: the other one does not count */
    unsetenv("SEAMALLOC_CONF");
    assert_int_equal(sm_options_from_environment(&options, &error), SEAM_OK);
    assert_same_settings(&options, &standard);
}

static void bad_environment_leaves_the_defaults(void **state)
{
    (void)state;
    struct sm_options options = accept(OURS, "log:3"), standard = defaults();
    struct sm_error error;
    setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:50", 1);
    setenv("SEAMALLOC_CONF", "log:2,polcy:stitch", 1);
    assert_int_equal(sm_options_from_environment(&options, &error), SEAM_E_OPTION);
    assert_non_null(strstr(error.text, "SEAMALLOC_CONF, position 7: unknown key \"polcy\""));
    assert_same_settings(&options, &standard);
    setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:5", 1);
    assert_int_equal(sm_options_from_environment(&options, &error), SEAM_E_OPTION);
    assert_non_null(strstr(error.text, "PYTORCH_ALLOC_CONF, position 19: max_split_size_mb"));
    assert_same_settings(&options, &standard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_as_documented),
        cmocka_unit_test(every_key_of_pytorch),
        cmocka_unit_test(every_key_of_ours),
        cmocka_unit_test(slots_of_a_table),
        cmocka_unit_test(nothing_is_a_text_too),
        cmocka_unit_test(later_texts_keep_earlier_settings),
        cmocka_unit_test(ranges_end_where_the_table_says),
        cmocka_unit_test(presets_are_named),
        cmocka_unit_test(default_texts_are_true),
        cmocka_unit_test(shares_at_their_ends),
        cmocka_unit_test(echo_reads_back),
        cmocka_unit_test(echo_is_cut_as_snprintf_does),
        cmocka_unit_test_setup_teardown(environment_in_its_order, clear_environment, clear_environment),
        cmocka_unit_test_setup_teardown(bad_environment_leaves_the_defaults, clear_environment,
                                        clear_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
