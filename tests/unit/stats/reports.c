/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: the JSON against its schema, in both directions, and against what happened; the tables; buffers
 * that are too small; docs/statistics.md against the lists. */
#include "stats/internal.h"
#include "tests/unit/stats/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifndef SEAM_SOURCE_DIR
#error "SEAM_SOURCE_DIR: the folder that holds docs/"
#endif

#define MIB ((int64_t)1 << 20)

static struct sm_parts parts;

static int64_t take_bytes(struct sm_stats *stats, int64_t rounded, uint32_t *birth)
{
    parts.bytes[SM_PART_requested_live] += rounded - 12;
    parts.bytes[SM_PART_rounding] += 12;
    parts.bytes[SM_PART_whole_free] -= rounded;
    *birth =
        sm_stats_alloc(stats, sm_stats_kind((uint64_t)rounded), (uint64_t)rounded - 12, (uint64_t)rounded);
    return rounded;
}

static void give_bytes(struct sm_stats *stats, int64_t rounded, uint32_t birth)
{
    const enum sm_kind kind = sm_stats_kind((uint64_t)rounded);
    sm_stats_free_request(stats, kind, (uint64_t)rounded - 12, (uint64_t)rounded, birth);
    sm_stats_free_complete(stats, kind, (uint64_t)rounded - 12, (uint64_t)rounded);
    parts.bytes[SM_PART_requested_live] -= rounded - 12;
    parts.bytes[SM_PART_rounding] -= 12;
    parts.bytes[SM_PART_whole_free] += rounded;
}

static void push(struct sm_stats *stats, const char *name, int64_t now_ns)
{
    assert_true(sm_stats_phase_reserve(stats, name));
    sm_stats_phase_push(stats, name, now_ns);
}

/* Two steps that ended and one that is open, a window and a thread phase in both states. */
static int create(void **state)
{
    memset(&parts, 0, sizeof parts);
    struct sm_stats *stats = sm_stats_create(2, &parts);
    if (!stats)
        return 1;
    const uint64_t self = sm_stats_thread_self();
    uint32_t weights, activation;
    parts.bytes[SM_PART_whole_free] = 64 * MIB;
    sm_stats_move(stats, SM_LEVEL_reserved_bytes, SM_KIND_LARGE, 64 * MIB);
    sm_stats_move(stats, SM_LEVEL_handles, SM_KIND_ALL, 32);
    sm_stats_count(stats, SM_COUNTER_growths, 1);
    take_bytes(stats, 4 * MIB, &weights);
    for (int64_t i = 0; i < 3; i++) {
        push(stats, "step", 1000 * i);
        assert_true(sm_stats_window_reserve(stats, "update"));
        sm_stats_window_open(stats, "update", (uint64_t)i, 1000 * i);
        assert_true(sm_stats_thread_phase_reserve(stats, self, "mine"));
        sm_stats_thread_phase_push(stats, self, "mine", 1000 * i);
        push(stats, "forward \"x\"", 1000 * i + 100);
        const int64_t bytes = take_bytes(stats, (8 + i) * MIB, &activation);
        sm_stats_count(stats, SM_COUNTER_hits, 1);
        sm_stats_phase_pop(stats, 1000 * i + 300);
        give_bytes(stats, bytes, activation);
        if (i == 2)
            break;
        sm_stats_thread_phase_pop(stats, self, 1000 * i + 900);
        assert_true(sm_stats_window_close(stats, (uint64_t)i, 1000 * i + 900));
        sm_stats_phase_pop(stats, 1000 * i + 900);
    }
    *state = stats;
    return 0;
}

static int destroy(void **state)
{
    sm_stats_destroy(*state);
    return 0;
}

static void test_figures(void **state)
{
    json_t *report = report_json(*state, 5000);
    assert_int_equal(int_at(report, "device"), 2);
    assert_string_equal(json_string_value(at_path(report, "name")), "Test \"device\"");
    assert_true(json_is_null(at_path(report, "limit_bytes")));
    assert_int_equal(int_at(report, "external.largest_possible"), 8192);
    assert_int_equal(int_at(report, "driver_calls.cuMemCreate.calls"), 7);
    assert_int_equal(int_at(report, "driver_calls.cuMemCreate.failures"), 1);
    assert_int_equal(int_at(report, "driver_calls.cuMemMap.ns"), 2500);
    assert_int_equal(int_at(report, "levels.allocated_bytes.all.peak"), 14 * MIB);
    assert_int_equal(int_at(report, "levels.allocated_bytes.large_pool.in"), 31 * MIB);
    assert_int_equal(int_at(report, "levels.handles.all.current"), 32);
    assert_null(json_object_get(at_path(report, "levels.handles"), "small_pool"));
    assert_int_equal(int_at(report, "counters.hits"), 3);
    assert_float_equal(json_real_value(at_path(report, "utilisation")), 14.0 / 64, 1e-12);
    assert_float_equal(json_real_value(at_path(report, "fragmentation")), 50.0 / 64, 1e-12);
    assert_float_equal(json_number_value(at_path(report, "gap_shares.whole_free")), 60.0 / 64, 1e-12);
    assert_int_equal(int_at(report, "gap_at_allocated_peak.rounding"), 24);

    json_t *step = node_of(report, "phases", "step"),
           *forward = node_of(report, "phases", "step/forward \"x\"");
    assert_int_equal(int_at(step, "count"), 2);
    assert_int_equal(int_at(step, "allocated.peak.max"), 13 * MIB);
    assert_int_equal(int_at(step, "highest.allocated"), 13 * MIB);
    assert_int_equal(json_array_size(at_path(step, "open")), 1);
    assert_int_equal(int_at(json_array_get(at_path(step, "open"), 0), "wall_ns"), 3000);
    assert_int_equal(int_at(json_array_get(at_path(step, "open"), 0), "allocated.peak"), 14 * MIB);
    assert_int_equal(int_at(forward, "count"), 3);
    assert_int_equal(int_at(forward, "carried_out.bytes.min"), 8 * MIB);
    assert_int_equal(int_at(forward, "carried_out.bytes.mean"), 9 * MIB);
    assert_int_equal(int_at(forward, "wall_ns.last"), 200);
    assert_int_equal(int_at(node_of(report, "windows", "update"), "counters.hits.max"), 1);
    assert_int_equal(int_at(node_of(report, "thread_phases", "mine"), "requested.peak.max"), 9 * MIB - 12);
    json_decref(report);
}

/* Nothing reserved, nothing happened: no share is made up. */
static void test_empty(void **state)
{
    static struct sm_parts none;
    (void)state;
    struct sm_stats *stats = sm_stats_create(0, &none);
    assert_non_null(stats);
    json_t *report = report_json(stats, 0);
    assert_true(json_is_null(at_path(report, "utilisation")));
    assert_true(json_is_null(at_path(report, "gap_shares.rounding")));
    assert_int_equal(int_at(report, "levels.reserved_bytes.all.peak"), 0);
    assert_int_equal(json_array_size(at_path(report, "phases")), 0);
    json_decref(report);
    sm_stats_destroy(stats);
}

/* ---- the schema: types, required, and in this direction too: no field that the schema does not name ---- */

static json_t *schema_root;

static json_t *resolve(json_t *schema)
{
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    if (!reference)
        return schema;
    assert_int_equal(strncmp(reference, "#/$defs/", 8), 0);
    json_t *target = json_object_get(json_object_get(schema_root, "$defs"), reference + 8);
    if (!target)
        fail_msg("the schema has no %s", reference);
    return target;
}

static bool has_type(const json_t *value, const char *type)
{
    if (!strcmp(type, "null"))
        return json_is_null(value);
    if (!strcmp(type, "integer"))
        return json_is_integer(value);
    if (!strcmp(type, "number"))
        return json_is_number(value);
    if (!strcmp(type, "string"))
        return json_is_string(value);
    if (!strcmp(type, "array"))
        return json_is_array(value);
    return !strcmp(type, "object") && json_is_object(value);
}

static void check_type(json_t *value, json_t *schema, const char *where)
{
    json_t *type = json_object_get(schema, "type"), *one;
    bool good = !type || json_is_array(type) ? !type : has_type(value, json_string_value(type));
    size_t i;
    json_array_foreach(type, i, one) good = good || has_type(value, json_string_value(one));
    json_t *constant = json_object_get(schema, "const"), *minimum = json_object_get(schema, "minimum");
    if (!good || (constant && !json_equal(constant, value)) ||
        (minimum && json_number_value(value) < json_number_value(minimum)))
        fail_msg("%s is not what the schema says", where);
}

static void check(json_t *value, json_t *schema, const char *where)
{
    const char *key;
    char inner[256];
    json_t *child, *name;
    size_t i;
    schema = resolve(schema);
    check_type(value, schema, where);
    json_array_foreach(json_object_get(schema, "required"), i,
                       name) if (!json_object_get(value, json_string_value(name)))
        fail_msg("%s has no \"%s\"", where, json_string_value(name));
    json_object_foreach(value, key, child)
    {
        json_t *known = json_object_get(json_object_get(schema, "properties"), key);
        known = known ? known : json_object_get(schema, "additionalProperties");
        if (!known)
            fail_msg("the schema does not know %s.%s", where, key);
        snprintf(inner, sizeof inner, "%.180s.%.60s", where, key);
        check(child, known, inner);
    }
    json_array_foreach(value, i, child)
    {
        snprintf(inner, sizeof inner, "%.180s[%zu]", where, i);
        check(child, json_object_get(schema, "items"), inner);
    }
}

/* Every property of the device in the schema occurs in a report that has all kinds of figures. */
static void check_all_occur(json_t *schema, json_t *value, const char *where)
{
    const char *key;
    json_t *child;
    schema = resolve(schema);
    json_object_foreach(json_object_get(schema, "properties"), key, child)
    {
        json_t *found = json_is_array(value) ? NULL : json_object_get(value, key);
        if (!found)
            fail_msg("no report has %s.%s, which the schema names", where, key);
        if (json_is_object(found))
            check_all_occur(child, found, key);
    }
}

static void test_schema(void **state)
{
    json_error_t error;
    schema_root =
        json_load_file(SEAM_SOURCE_DIR "/docs/statistics.schema.json", JSON_REJECT_DUPLICATES, &error);
    if (!schema_root)
        fail_msg("docs/statistics.schema.json, line %d: %s", error.line, error.text);
    json_t *device = report_json(*state, 5000), *devices = json_array();
    json_array_append(devices, device);
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:s, s:s, s:o}", "format", "seamalloc.stats", "version", 1,
                  "library_version", "1.2.3", "policy", "stitch", "settings", "", "devices", devices);
    check(root, schema_root, "report");
    json_t *defs = json_object_get(schema_root, "$defs");
    check_all_occur(json_object_get(defs, "device"), device, "device");
    check_all_occur(json_object_get(defs, "phase"), node_of(device, "phases", "step"), "phase");
    check_all_occur(json_object_get(defs, "thread_phase"), node_of(device, "thread_phases", "mine"),
                    "thread phase");
    json_decref(root);
    json_decref(device);
    json_decref(schema_root);
}

/* ---- cut buffers and tables ---- */

static void expect_cut(struct sm_stats *stats, enum sm_emit_form form)
{
    char *whole = report_text(stats, form, 5000);
    const size_t length = strlen(whole);
    char *part = malloc(length + 2);
    assert_non_null(part);
    for (size_t capacity = 0; capacity <= length + 1; capacity += capacity < 40 ? 1 : 97) {
        struct sm_emit emit;
        memset(part, 0x55, length + 2);
        sm_emit_begin(&emit, form, capacity ? part : NULL, capacity);
        sm_stats_emit(stats, &test_facts, &emit, NULL, 5000);
        assert_int_equal(sm_emit_end(&emit), length);
        assert_int_equal(part[capacity], 0x55);
        if (capacity) {
            const size_t kept = capacity - 1 < length ? capacity - 1 : length;
            assert_int_equal(part[kept], 0);
            assert_memory_equal(part, whole, kept);
        }
    }
    free(part);
    free(whole);
}

static void test_cut(void **state)
{
    expect_cut(*state, SM_EMIT_JSON);
    expect_cut(*state, SM_EMIT_TABLE);
}

static unsigned columns_of(const char *line, size_t length)
{
    unsigned columns = 0;
    for (size_t i = 0; i < length; i++)
        columns += ((unsigned char)line[i] & 0xC0) != 0x80;
    return columns;
}

/* Runs of spaces become one, so that the words can be compared without their columns. */
static void squeeze_spaces(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        if (*from != ' ' || from == text || from[-1] != ' ')
            *to++ = *from;
    *to = 0;
}

static void test_table(void **state)
{
    struct sm_stats *stats = *state;
    push(stats, "very long name of a phase, longer than its column", 4000);
    push(stats, "näme with\ttab", 4000);
    char *text = report_text(stats, SM_EMIT_TABLE, 5000);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        const size_t length = strcspn(line, "\n");
        if (columns_of(line, length) > 108)
            fail_msg("%u columns: %.*s", columns_of(line, length), (int)length, line);
    }
    static const char *const expected[] = {
        "device 2: Test \"device\", policy stitch, 81920.0 MiB, limit none\n",
        "\nallocated_bytes 4.00 14.00 31.00 27.00 0 14.00\n",
        "\nhandles 32 32 32 0\n",
        "\nwhole_free 60.00 93.8 60.00 93.8 50.00 78.1 trim, sizes that fit\n",
        "\n= reserved 64.00 100.0 64.00 100.0 64.00 100.0\n",
        "\nutilisation 21.9 % (peak allocated / peak reserved: two instants); at the peak of reserved 6",
        "\nhits 3 growths 1\n",
        "\ncuMemCreate 7 1 0.002\n",
        "\nstep* 2 4.00 13.00 4.00 4.00 13.00 4.00 4.00 13.00 4.00 64.00 64.00 64.00\n",
        "\n forward \"x\" 3 4.00 14.00 13.00 ",
        "\nstep* 2 0.001 4.00 0.0000 0 0 0 60.00 0\n",
        "\n forward \"x\" 3 0.000 12.00 0.0000 0 0 0 52.00 9.00\n",
        "\nstep* 2 1 1 1 0 0 0 0 0 0\n",
        "\n very long name of~ 0 ",
        " n\xc3\xa4me with?tab* 0 ",
        "\nmine* 2 1 1 9.00 0 9.00 0\n",
    };
    squeeze_spaces(text);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (!strstr(text, expected[i]))
            fail_msg("the table lacks \"%s\":\n%s", expected[i], text);
    free(text);
}

/* ---- documentation ---- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be read", path);
    char *text = calloc(1, 1 << 18);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    return text;
}

/* The line of the table that begins with the name, and in it the words. */
static void expect_row(const char *text, const char *name, const char *meaning, const char *more)
{
    char start[80], line[1024];
    snprintf(start, sizeof start, "\n| `%s` |", name);
    const char *found = strstr(text, start);
    if (!found)
        fail_msg("docs/statistics.md has no row for `%s`", name);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(found + 1, "\n"), found + 1);
    if (!strstr(line, meaning) || !strstr(line, more))
        fail_msg("docs/statistics.md, `%s`: \"%s\" and \"%s\" expected", name, meaning, more);
}

static void test_documentation(void **state)
{
    (void)state;
    char *text = read_file(SEAM_SOURCE_DIR "/docs/statistics.md");
#define BYTES "| bytes |"
#define COUNT "| count |"
#define X(name, unit, meaning, moves)                                                                        \
    expect_row(text, #name, meaning, unit);                                                                  \
    expect_row(text, #name, meaning, moves);
    SM_LEVELS(X)
#undef X
#define X(name, unit, meaning) expect_row(text, #name, meaning, "");
    SM_COUNTERS(X)
#undef X
#define X(name, meaning, helps) expect_row(text, #name, meaning, helps);
    SM_PARTS(X)
#undef X
#define X(name)                                                                                              \
    if (!strstr(text, "`" #name "`"))                                                                        \
        fail_msg("docs/statistics.md does not name the phase counter %s", #name);
    SM_PHASE_COUNTERS(X)
#undef X
    char bound[32];
    snprintf(bound, sizeof bound, "beyond %d", SM_NODES_MAX);
    assert_non_null(strstr(text, bound));
    free(text);
}

#define T(name) cmocka_unit_test_setup_teardown(name, create, destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_figures),
        T(test_schema),
        T(test_cut),
        T(test_table),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_documentation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
