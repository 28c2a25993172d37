/* SPDX-License-Identifier: Apache-2.0 */
/* The two writers: JSON that a foreign parser reads back, a table for people, and cuts at every capacity. */
#include "base/emit.h"
#include "tests/unit/base/cmocka_all.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char hostile[] =
    "tab\t line\n quote\" back\\ bell\a del\x7f caf\xc3\xa9 cut\xe2\x82 lone\xff end";
static const char hostile_read[] =
    "tab\t line\n quote\" back\\ bell\a del\x7f caf\xc3\xa9 cut\xef\xbf\xbd\xef\xbf\xbd "
    "lone\xef\xbf\xbd end";

static size_t write_tree(enum sm_emit_form form, char *buffer, size_t capacity)
{
    struct sm_emit emit;
    sm_emit_begin(&emit, form, buffer, capacity);
    sm_emit_object_open(&emit, NULL);
    sm_emit_line(&emit, "Device %d", 0);
    sm_emit_int(&emit, "reserved", 3 << 20, SM_UNIT_BYTES);
    sm_emit_int(&emit, "block", 512, SM_UNIT_BYTES);
    sm_emit_int(&emit, "least", INT64_MIN, SM_UNIT_COUNT);
    sm_emit_object_open(&emit, "empty");
    sm_emit_object_close(&emit);
    sm_emit_array_open(&emit, "none");
    sm_emit_array_close(&emit);
    sm_emit_array_open(&emit, "phases");
    for (int i = 0; i < 2; i++) {
        sm_emit_object_open(&emit, NULL);
        sm_emit_int(&emit, "time", 1500000 * (int64_t)i, SM_UNIT_NS);
        sm_emit_array_open(&emit, "pair");
        sm_emit_int(&emit, NULL, 1, SM_UNIT_COUNT);
        sm_emit_int(&emit, NULL, -2, SM_UNIT_COUNT);
        sm_emit_array_close(&emit);
        sm_emit_object_close(&emit);
    }
    sm_emit_array_close(&emit);
    sm_emit_real(&emit, "share", 0.1 + 0.2);
    sm_emit_real(&emit, "unknown", NAN);
    sm_emit_bool(&emit, "yes", true);
    sm_emit_bool(&emit, "no", false);
    sm_emit_string(&emit, "hostile", hostile);
    sm_emit_string(&emit, hostile, "as a name");
    sm_emit_string(&emit, "absent", NULL);
    sm_emit_null(&emit, "null");
    sm_emit_object_close(&emit);
    return sm_emit_end(&emit);
}

static void json_reads_back(void **state)
{
    (void)state;
    char text[4096];
    json_error_t error;
    size_t length = write_tree(SM_EMIT_JSON, text, sizeof text);
    assert_int_equal(length, strlen(text));
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error), *phase;
    if (!root)
        fail_msg("%s at %d in %s", error.text, error.position, text);
    assert_int_equal(json_object_size(root), 14);
    assert_int_equal(json_integer_value(json_object_get(root, "reserved")), 3 << 20);
    assert_true(json_integer_value(json_object_get(root, "least")) == INT64_MIN);
    assert_int_equal(json_object_size(json_object_get(root, "empty")), 0);
    assert_true(json_is_array(json_object_get(root, "none")));
    assert_int_equal(json_array_size(json_object_get(root, "phases")), 2);
    phase = json_array_get(json_object_get(root, "phases"), 1);
    assert_int_equal(json_integer_value(json_object_get(phase, "time")), 1500000);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(phase, "pair"), 1)), -2);
    assert_true(json_real_value(json_object_get(root, "share")) == 0.1 + 0.2);
    assert_true(json_is_null(json_object_get(root, "unknown")));
    assert_true(json_is_true(json_object_get(root, "yes")));
    assert_true(json_is_false(json_object_get(root, "no")));
    assert_string_equal(json_string_value(json_object_get(root, "hostile")), hostile_read);
    assert_string_equal(json_string_value(json_object_get(root, hostile_read)), "as a name");
    assert_true(json_is_null(json_object_get(root, "absent")));
    json_decref(root);
}

static void table_is_for_people(void **state)
{
    (void)state;
    char text[1024];
    struct sm_emit emit;
    sm_emit_begin(&emit, SM_EMIT_TABLE, text, sizeof text);
    sm_emit_object_open(&emit, NULL);
    sm_emit_line(&emit, "Device %d", 0);
    sm_emit_int(&emit, "reserved", 3 << 20, SM_UNIT_BYTES);
    sm_emit_int(&emit, "block", 512, SM_UNIT_BYTES);
    sm_emit_object_open(&emit, "times");
    sm_emit_int(&emit, "driver", 1234567, SM_UNIT_NS);
    sm_emit_object_close(&emit);
    sm_emit_array_open(&emit, "list");
    sm_emit_int(&emit, NULL, 7, SM_UNIT_COUNT);
    sm_emit_object_open(&emit, NULL);
    sm_emit_bool(&emit, "on", true);
    sm_emit_object_close(&emit);
    sm_emit_array_close(&emit);
    sm_emit_real(&emit, "share", 0.25);
    sm_emit_string(&emit, "name", "a\nb");
    sm_emit_string(&emit, "a name that is longer than the column of the values", "x");
    sm_emit_object_close(&emit);
    size_t length = sm_emit_end(&emit);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text, "Device 0\n"
                              "reserved                                3.00 MiB\n"
                              "block                                   0.0005 MiB\n"
                              "times\n"
                              "  driver                                1.235 ms\n"
                              "list\n"
                              "  -                                     7\n"
                              "  -\n"
                              "    on                                  yes\n"
                              "share                                   0.2500\n"
                              "name                                    a\\nb\n"
                              "a name that is longer than the column of the values x\n");
}

static void cut_at_every_capacity(void **state)
{
    (void)state;
    static char whole[4096], cut[4096];
    for (int form = SM_EMIT_JSON; form <= SM_EMIT_TABLE; form++) {
        size_t length = write_tree((enum sm_emit_form)form, whole, sizeof whole);
        assert_int_equal(write_tree((enum sm_emit_form)form, NULL, 0), length);
        for (size_t capacity = 1; capacity <= length + 2; capacity++) {
            memset(cut, 0x5a, sizeof cut);
            assert_int_equal(write_tree((enum sm_emit_form)form, cut, capacity), length);
            size_t kept = capacity - 1 < length ? capacity - 1 : length;
            assert_memory_equal(cut, whole, kept);
            assert_int_equal(cut[kept], 0);
            for (size_t i = capacity; i < length + 8; i++)
                assert_int_equal(cut[i], 0x5a);
        }
    }
}

static char *read_back(const char *value)
{
    static char text[1024];
    struct sm_emit emit;
    sm_emit_begin(&emit, SM_EMIT_JSON, text, sizeof text);
    sm_emit_array_open(&emit, NULL);
    sm_emit_string(&emit, NULL, value);
    sm_emit_array_close(&emit);
    assert_true(sm_emit_end(&emit) < sizeof text);
    json_t *root = json_loads(text, 0, NULL);
    if (!root)
        fail_msg("not JSON: %s", text);
    char *copy = strdup(json_string_value(json_array_get(root, 0)));
    json_decref(root);
    return copy;
}

static void assert_reads_as(const char *value, const char *expected)
{
    char *copy = read_back(value);
    assert_string_equal(copy, expected);
    free(copy);
}

#define GONE "\xef\xbf\xbd"

static void utf8_at_its_edges(void **state)
{
    (void)state;
    static const char *const good[] = {"\x7f",         "\xc2\x80",         "\xdf\xbf",
                                       "\xe0\xa0\x80", "\xed\x9f\xbf",     "\xee\x80\x80",
                                       "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_reads_as(good[i], good[i]);
    assert_reads_as("\xc1\xbf", GONE GONE);          /* overlong */
    assert_reads_as("\xe0\x9f\xbf", GONE GONE GONE); /* overlong */
    assert_reads_as("\xed\xa0\x80", GONE GONE GONE); /* surrogate */
    assert_reads_as("\xf0\x8f\xbf\xbf", GONE GONE GONE GONE);
    assert_reads_as("\xf4\x90\x80\x80", GONE GONE GONE GONE); /* above U+10FFFF */
    assert_reads_as("\xf5", GONE);
    assert_reads_as("\x80", GONE);
    assert_reads_as("a\xf0\x90\x80", "a" GONE GONE GONE); /* ends inside */
    for (int byte = 1; byte < 0x80; byte++) {
        char text[2] = {(char)byte, 0};
        assert_reads_as(text, text);
    }
}

static void any_bytes_give_json(void **state)
{
    (void)state;
    uint64_t seed = 2463534242u;
    for (int i = 0; i < 5000; i++) {
        char value[64];
        for (size_t k = 0; k < sizeof value - 1; k++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            unsigned char byte = (unsigned char)(seed >> 32);
            value[k] = (char)(byte ? byte : 1);
        }
        value[sizeof value - 1] = 0;
        free(read_back(value));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_reads_back),       cmocka_unit_test(table_is_for_people),
        cmocka_unit_test(cut_at_every_capacity), cmocka_unit_test(utf8_at_its_edges),
        cmocka_unit_test(any_bytes_give_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
