/* SPDX-License-Identifier: Apache-2.0 */
/* A report of a device as parsed JSON, for the tests of the statistics: see report.h. */
#include "tests/unit/stats/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct sm_call_stat calls[] = {{"cuMemCreate", 7, 1, 1500}, {"cuMemMap", 9, 0, 2500}};

const struct sm_report_facts test_facts = {
    .device_name = "Test \"device\"",
    .policy = "stitch",
    .settings = "policy:stitch",
    .host_memory_source = "libc",
    .device_bytes = (uint64_t)80 << 30,
    .limit_bytes = UINT64_MAX,
    .largest_free = 4096,
    .largest_possible = 8192,
    .host_bytes = 100,
    .host_bytes_peak = 200,
    .calls = calls,
    .call_count = 2,
};

char *report_text(struct sm_stats *stats, enum sm_emit_form form, int64_t now_ns)
{
    struct sm_emit emit;
    sm_emit_begin(&emit, form, NULL, 0);
    sm_stats_emit(stats, &test_facts, &emit, NULL, now_ns);
    const size_t length = sm_emit_end(&emit);
    char *text = malloc(length + 1);
    assert_non_null(text);
    sm_emit_begin(&emit, form, text, length + 1);
    sm_stats_emit(stats, &test_facts, &emit, NULL, now_ns);
    assert_int_equal(sm_emit_end(&emit), length);
    assert_int_equal(strlen(text), length);
    return text;
}

json_t *report_json(struct sm_stats *stats, int64_t now_ns)
{
    char *text = report_text(stats, SM_EMIT_JSON, now_ns);
    json_error_t error;
    json_t *report = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!report)
        fail_msg("no JSON: %s at byte %d", error.text, error.position);
    free(text);
    return report;
}

json_t *at_path(json_t *object, const char *path)
{
    json_t *value = object;
    for (const char *word = path; *word && value;) {
        char key[128];
        const size_t length = strcspn(word, ".");
        assert_true(length < sizeof key);
        memcpy(key, word, length);
        key[length] = 0;
        value = json_object_get(value, key);
        word += length + (word[length] == '.');
    }
    if (!value)
        fail_msg("the report has no \"%s\"", path);
    return value;
}

int64_t int_at(json_t *object, const char *path)
{
    json_t *value = at_path(object, path);
    if (!json_is_integer(value))
        fail_msg("\"%s\" is no whole number", path);
    return json_integer_value(value);
}

json_t *node_of(json_t *report, const char *array, const char *path)
{
    size_t i;
    json_t *node;
    json_array_foreach(at_path(report, array), i,
                       node) if (!strcmp(json_string_value(at_path(node, "path")), path)) return node;
    return NULL;
}
