/* SPDX-License-Identifier: Apache-2.0 */
/* emit: see emit.h.
 *
 * put_byte is the only place that writes into the buffer; everything else counts through it. The JSON writer
 * asks for a comma before each member but the first of its depth. The table writer prints a line a member,
 * two spaces a depth, the value in a column of its own; members without a name (of arrays) are marked "-". */
#include "base/emit.h"
#include "base/align.h"
#include "base/number.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TABLE_VALUE_COLUMN 40

static void put_byte(struct sm_emit *emit, char byte)
{
    if (emit->length + 1 < emit->capacity)
        emit->buffer[emit->length] = byte;
    emit->length++;
}

static void put_text(struct sm_emit *emit, const char *text)
{
    while (*text) /* NOLINT(clang-analyzer-core.NullDereference): a table's figure has no text for JSON */
        put_byte(emit, *text++);
}

/* Returns: length of the well-formed UTF-8 sequence at s, or 0. Reads no further than the first byte that
 * breaks it, so the final 0 stops it too. Overlong forms, surrogates and what lies above U+10FFFF are not
 * well-formed. */
static unsigned utf8_length(const unsigned char *s)
{
    unsigned char low = 0x80, high = 0xbf;
    unsigned more;
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        more = 1;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        more = 2;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        more = 3;
    else
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (s[1] < low || s[1] > high)
        return 0;
    for (unsigned i = 2; i <= more; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return more + 1;
}

static void put_escape(struct sm_emit *emit, unsigned char byte)
{
    static const char letters[] = "\bb\ff\nn\rr\tt";
    for (const char *pair = letters; *pair; pair += 2) {
        if (byte == (unsigned char)pair[0]) {
            put_byte(emit, '\\');
            put_byte(emit, pair[1]);
            return;
        }
    }
    char text[8];
    snprintf(text, sizeof text, "\\u%04x", byte);
    put_text(emit, text);
}

/* Escaped text; bytes that are no UTF-8 become U+FFFD. quoted: JSON's own marks are escaped too. */
static void put_string(struct sm_emit *emit, const char *text, bool quoted)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        unsigned length = utf8_length(s);
        if (length == 0) {
            put_text(emit, "\xef\xbf\xbd");
            s++;
            continue;
        }
        if (*s < 0x20 || *s == 0x7f)
            put_escape(emit, *s);
        else if (quoted && (*s == '"' || *s == '\\')) {
            put_byte(emit, '\\');
            put_byte(emit, (char)*s);
        } else {
            for (unsigned i = 0; i < length; i++)
                put_byte(emit, (char)s[i]);
        }
        s += length;
    }
}

static void put_quoted(struct sm_emit *emit, const char *text)
{
    put_byte(emit, '"');
    put_string(emit, text, true);
    put_byte(emit, '"');
}

/* The members of the root stand at the margin. */
static size_t indent(const struct sm_emit *emit)
{
    return emit->depth > 1 ? 2 * ((size_t)emit->depth - 1) : 0;
}

static void put_indent(struct sm_emit *emit)
{
    for (size_t i = indent(emit); i > 0; i--)
        put_byte(emit, ' ');
}

/* Everything that stands before a member's value. */
static void begin_member(struct sm_emit *emit, const char *name)
{
    if (emit->form == SM_EMIT_JSON) {
        if (!emit->first)
            put_byte(emit, ',');
        if (name) {
            put_quoted(emit, name);
            put_byte(emit, ':');
        }
        emit->first = false;
        return;
    }
    put_indent(emit);
    put_string(emit, name ? name : "-", false);
}

/* A figure: raw text in JSON, padded to the column and closed by a newline in a table. */
static void put_figure(struct sm_emit *emit, const char *name, const char *json, const char *table)
{
    begin_member(emit, name);
    if (emit->form == SM_EMIT_JSON) {
        put_text(emit, json);
        return;
    }
    size_t used = indent(emit) + strlen(name ? name : "-");
    do
        put_byte(emit, ' ');
    while (++used < TABLE_VALUE_COLUMN);
    put_string(emit, table, false);
    put_byte(emit, '\n');
}

void sm_emit_begin(struct sm_emit *emit, enum sm_emit_form form, char *buffer, size_t capacity)
{
    *emit = (struct sm_emit){.form = form, .buffer = buffer, .capacity = capacity, .first = true};
}

size_t sm_emit_end(struct sm_emit *emit)
{
    if (emit->capacity)
        emit->buffer[emit->length < emit->capacity ? emit->length : emit->capacity - 1] = 0;
    return emit->length;
}

static void open_group(struct sm_emit *emit, const char *name, char mark)
{
    if (emit->form == SM_EMIT_JSON) {
        begin_member(emit, name);
        put_byte(emit, mark);
    } else if (emit->depth) { /* the root has no heading */
        begin_member(emit, name);
        put_byte(emit, '\n');
    }
    emit->depth++;
    emit->first = true;
}

static void close_group(struct sm_emit *emit, char mark)
{
    if (emit->form == SM_EMIT_JSON)
        put_byte(emit, mark);
    if (emit->depth)
        emit->depth--;
    emit->first = false;
}

void sm_emit_object_open(struct sm_emit *emit, const char *name)
{
    open_group(emit, name, '{');
}

void sm_emit_object_close(struct sm_emit *emit)
{
    close_group(emit, '}');
}

void sm_emit_array_open(struct sm_emit *emit, const char *name)
{
    open_group(emit, name, '[');
}

void sm_emit_array_close(struct sm_emit *emit)
{
    close_group(emit, ']');
}

/* Bytes in MiB with two decimals; with four below 10 KiB, where two would show nothing. */
static void format_unit(char *text, size_t size, int64_t value, enum sm_unit unit)
{
    char number[SM_NUMBER_TEXT_MAX];
    bool tiny = value > -10 * (int64_t)SM_KIB && value < 10 * (int64_t)SM_KIB && value != 0;
    switch (unit) {
    case SM_UNIT_BYTES:
        sm_number_fixed(number, sizeof number, (double)value / (double)SM_MIB, tiny ? 4 : 2);
        snprintf(text, size, "%s MiB", number);
        break;
    case SM_UNIT_NS:
        sm_number_fixed(number, sizeof number, (double)value / 1e6, 3);
        snprintf(text, size, "%s ms", number);
        break;
    case SM_UNIT_COUNT:
        snprintf(text, size, "%" PRId64, value);
        break;
    }
}

void sm_emit_int(struct sm_emit *emit, const char *name, int64_t value, enum sm_unit unit)
{
    char json[24], table[SM_NUMBER_TEXT_MAX + 8];
    snprintf(json, sizeof json, "%" PRId64, value);
    format_unit(table, sizeof table, value, unit);
    put_figure(emit, name, json, table);
}

void sm_emit_real(struct sm_emit *emit, const char *name, double value)
{
    char json[SM_NUMBER_TEXT_MAX], table[SM_NUMBER_TEXT_MAX];
    sm_number_exact(json, value);
    if (!isfinite(value))
        snprintf(table, sizeof table, "-");
    else if (fabs(value) < 1e15)
        sm_number_fixed(table, sizeof table, value, 4);
    else
        sm_number_exact(table, value);
    put_figure(emit, name, json, table);
}

void sm_emit_bool(struct sm_emit *emit, const char *name, bool value)
{
    put_figure(emit, name, value ? "true" : "false", value ? "yes" : "no");
}

void sm_emit_string(struct sm_emit *emit, const char *name, const char *value)
{
    if (!value) {
        sm_emit_null(emit, name);
    } else if (emit->form == SM_EMIT_TABLE) {
        put_figure(emit, name, NULL, value);
    } else {
        begin_member(emit, name);
        put_quoted(emit, value);
    }
}

void sm_emit_null(struct sm_emit *emit, const char *name)
{
    put_figure(emit, name, "null", "-");
}

void sm_emit_line(struct sm_emit *emit, const char *format, ...)
{
    if (emit->form != SM_EMIT_TABLE)
        return;
    put_indent(emit);
    size_t room = emit->length < emit->capacity ? emit->capacity - emit->length : 0;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(room ? emit->buffer + emit->length : NULL, room, format, args);
    va_end(args);
    if (n > 0)
        emit->length += (size_t)n;
    put_byte(emit, '\n');
}
