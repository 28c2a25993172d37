/* SPDX-License-Identifier: Apache-2.0 */
/* options_value: the values of options, from text into their field and back. One reader and one writer for
 * each kind; what the writer writes the reader takes. Pure. */
#include "base/align.h"
#include "base/number.h"
#include "policies/options_table.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DIVISIONS_MAX 128

static bool span_is(struct sm_span span, const char *word)
{
    return span.length == strlen(word) && memcmp(span.at, word, span.length) == 0;
}

static struct sm_span span_trim(struct sm_span span)
{
    while (span.length && (*span.at == ' ' || *span.at == '\t'))
        span.at++, span.length--;
    while (span.length && (span.at[span.length - 1] == ' ' || span.at[span.length - 1] == '\t'))
        span.length--;
    return span;
}

/* Cuts what stands before the first `mark` off *rest; all of it where there is none. Returns: whether there
 * was one. */
static bool span_cut(struct sm_span *rest, char mark, struct sm_span *head)
{
    const char *found = rest->length ? memchr(rest->at, mark, rest->length) : NULL;
    *head = *rest;
    if (!found) {
        rest->at += rest->length;
        rest->length = 0;
        return false;
    }
    head->length = (size_t)(found - rest->at);
    rest->length -= head->length + 1;
    rest->at = found + 1;
    return true;
}

/* Digits only: a sign, a point or a word is no number here. Returns: false when not a number or above `most`.
 */
static bool read_digits(struct sm_span span, uint64_t most, uint64_t *out)
{
    uint64_t n = 0;
    if (!span.length)
        return false;
    for (size_t i = 0; i < span.length; i++) {
        if (span.at[i] < '0' || span.at[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(span.at[i] - '0'), &n))
            return false;
    }
    if (n > most)
        return false;
    *out = n;
    return true;
}

/* The characters are checked first: strtod would take "nan", "inf" and hexadecimal numbers. */
static bool read_real(struct sm_span span, double *out)
{
    char text[64], *end;
    if (!span.length || span.length >= sizeof text)
        return false;
    for (size_t i = 0; i < span.length; i++)
        if (!memchr("0123456789.eE+-", span.at[i], 15))
            return false;
    memcpy(text, span.at, span.length);
    text[span.length] = 0;
    double value = sm_number_read(text, &end);
    if (*end || end == text)
        return false;
    *out = value;
    return true;
}

static void *field_of(const struct sm_option_row *row, struct sm_options *options)
{
    return row->offset == SM_OPTION_NOT_STORED ? NULL : (char *)options + row->offset;
}

static const char *read_number(const struct sm_option_row *row, uint64_t *field, struct sm_span value,
                               bool strict)
{
    uint64_t n;
    if (row->word && !strict && span_is(value, row->word)) {
        n = row->word_value;
    } else {
        if (!read_digits(value, row->max, &n) || n < row->min)
            return "is not a whole number in the range";
        n *= row->unit;
    }
    if (field)
        *field = n;
    return NULL;
}

static const char *read_share(const struct sm_option_row *row, double *field, struct sm_span value,
                              bool strict)
{
    double share;
    if (row->word && !strict && span_is(value, row->word))
        share = (double)row->word_value;
    else if (!read_real(value, &share) || !(row->open ? share > 0 && share < 1 : share >= 0 && share <= 1))
        return "is not a number in the range";
    if (field)
        *field = share;
    return NULL;
}

static const char *read_bool(bool *field, struct sm_span value, bool strict)
{
    bool yes = span_is(value, "True") || (!strict && span_is(value, "true"));
    if (!yes && !span_is(value, "False") && (strict || !span_is(value, "false")))
        return "is neither True nor False";
    if (field)
        *field = yes;
    return NULL;
}

static const char *read_choice(const struct sm_option_row *row, unsigned *field, struct sm_span value)
{
    unsigned i = 0;
    while (row->names[i] && !span_is(value, row->names[i]) &&
           !(row->digits && value.length == 1 && *value.at == (char)('0' + i)))
        i++;
    if (!row->names[i])
        return "is none of the names";
    if (field)
        *field = i;
    return NULL;
}

static const char *read_path(const struct sm_option_row *row, char *field, struct sm_span value)
{
    bool none = row->word && span_is(value, row->word);
    if (value.length >= SM_OPTION_PATH_BYTES)
        return "is too long";
    if (memchr(value.at, ':', value.length) || *value.at == '[' || memchr(value.at, 0, value.length))
        return "is no such path";
    if (field) {
        memset(field, 0, SM_OPTION_PATH_BYTES);
        memcpy(field, value.at, none ? 0 : value.length);
    }
    return NULL;
}

static bool read_divisions(struct sm_span span, uint8_t *out)
{
    uint64_t n;
    if (!read_digits(span_trim(span), DIVISIONS_MAX, &n) || (n && !sm_is_pow2(n)))
        return false;
    *out = (uint8_t)n;
    return true;
}

struct division_table {
    uint8_t slots[SM_ROUNDUP_SLOTS];
    uint16_t listed;
};

/* One "MIB:N" or ">:N" of a list. first is the slot after the last one listed; the pair fills the slots from
 * its own to the end, so that a slot which no later pair lists keeps it, and the first pair those below too.
 */
static const char *read_pair(struct division_table *table, struct sm_span pair, unsigned *next, bool *last)
{
    struct sm_span from, divisions = pair;
    uint8_t d;
    uint64_t mib;
    if (*last)
        return "stands behind \">\", which has to be the last";
    if (!span_cut(&divisions, ':', &from))
        return "is no pair MIB:N";
    if (!read_divisions(divisions, &d))
        return "does not end with 0 or a power of two up to 128";
    unsigned slot = *next, listed = SM_ROUNDUP_SLOTS;
    from = span_trim(from);
    if (span_is(from, ">")) {
        *last = true;
    } else {
        if (!read_digits(from, (uint64_t)1 << (SM_ROUNDUP_SLOTS - 1), &mib) || !sm_is_pow2(mib))
            return "does not begin with a power of two from 1 to 32768 or with \">\"";
        if (sm_log2(mib) < *next)
            return "is not above the pair before it";
        slot = *next == 0 ? 0 : sm_log2(mib);
        listed = *next = sm_log2(mib) + 1;
    }
    for (unsigned i = slot; i < SM_ROUNDUP_SLOTS; i++) {
        table->slots[i] = d;
        table->listed |= (uint16_t)(i < listed ? 1u << i : 0);
    }
    return NULL;
}

static const char *read_division_table(struct sm_options *options, struct sm_span value,
                                       struct sm_span *where)
{
    struct division_table table = {0};
    if (value.length < 2 || value.at[0] != '[') {
        if (!read_divisions(value, table.slots))
            return "is neither 0 nor a power of two up to 128";
        memset(options->roundup_divisions, table.slots[0], SM_ROUNDUP_SLOTS);
        options->roundup_listed = UINT16_MAX;
        return NULL;
    }
    struct sm_span pair, rest = {value.at + 1, value.length - 2};
    unsigned next = 0;
    bool last = false, more = true;
    while (more) {
        more = span_cut(&rest, ',', &pair);
        pair = span_trim(pair);
        const char *wrong = read_pair(&table, pair, &next, &last);
        if (wrong) {
            *where = pair;
            return wrong;
        }
    }
    memcpy(options->roundup_divisions, table.slots, sizeof table.slots);
    options->roundup_listed = table.listed;
    return NULL;
}

const char *sm_option_read(const struct sm_option_row *row, struct sm_options *options, struct sm_span value,
                           bool strict, struct sm_span *where)
{
    void *field = field_of(row, options);
    *where = value;
    switch (row->kind) {
    case SM_OPTION_NUMBER:
        return read_number(row, field, value, strict);
    case SM_OPTION_SHARE:
        return read_share(row, field, value, strict);
    case SM_OPTION_BOOL:
        return read_bool(field, value, strict);
    case SM_OPTION_CHOICE:
        return read_choice(row, field, value);
    case SM_OPTION_DIVISIONS:
        return read_division_table(options, value, where);
    case SM_OPTION_PATH:
        return read_path(row, field, value);
    case SM_OPTION_TEXT:
        return *value.at != '[' && memchr(value.at, ':', value.length) ? "has a ':' outside of a list" : NULL;
    }
    return "is of no known kind";
}

/* What is not listed is left out: the reader takes it from below again. The first slot is always listed. */
static void write_divisions(const struct sm_options *options, char *text, size_t size)
{
    const uint8_t *slots = options->roundup_divisions;
    bool even = options->roundup_listed == UINT16_MAX;
    for (unsigned i = 1; i < SM_ROUNDUP_SLOTS; i++)
        even = even && slots[i] == slots[0];
    if (even) {
        snprintf(text, size, "%u", slots[0]);
        return;
    }
    size_t length = 0;
    for (unsigned i = 0; i < SM_ROUNDUP_SLOTS; i++)
        if (options->roundup_listed >> i & 1)
            length +=
                (size_t)snprintf(text + length, size - length, "%c%u:%u", i ? ',' : '[', 1u << i, slots[i]);
    snprintf(text + length, size - length, "]");
}

void sm_option_write(const struct sm_option_row *row, const struct sm_options *options,
                     char text[SM_OPTION_VALUE_MAX])
{
    const size_t size = SM_OPTION_VALUE_MAX;
    const void *field = (const char *)options + row->offset;
    char number[SM_NUMBER_TEXT_MAX];
    switch (row->kind) {
    case SM_OPTION_NUMBER:
        if (row->word && *(const uint64_t *)field == row->word_value)
            snprintf(text, size, "%s", row->word);
        else
            snprintf(text, size, "%" PRIu64, *(const uint64_t *)field / row->unit);
        return;
    case SM_OPTION_SHARE:
        if (row->word && *(const double *)field <= (double)row->word_value)
            snprintf(text, size, "%s", row->word);
        else
            snprintf(text, size, "%s", sm_number_exact(number, *(const double *)field));
        return;
    case SM_OPTION_BOOL:
        snprintf(text, size, "%s", *(const bool *)field ? "True" : "False");
        return;
    case SM_OPTION_CHOICE:
        snprintf(text, size, "%s", row->names[*(const unsigned *)field]);
        return;
    case SM_OPTION_DIVISIONS:
        write_divisions(options, text, size);
        return;
    case SM_OPTION_PATH:
        snprintf(text, size, "%s", *(const char *)field ? (const char *)field : row->word);
        return;
    case SM_OPTION_TEXT:
        text[0] = 0;
        return;
    }
}
