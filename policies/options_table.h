/* SPDX-License-Identifier: Apache-2.0 */
/* options_table: how each option is stored and read. Internal to the options: the parser, the writer of the
 * echo and the table share it. Everything here is constant. */
#ifndef SEAM_POLICIES_OPTIONS_TABLE_H
#define SEAM_POLICIES_OPTIONS_TABLE_H

#include "policies/options.h"

enum sm_option_kind {
    SM_OPTION_NUMBER,    /* a whole number of units, or a word that stands for one value */
    SM_OPTION_SHARE,     /* a real number between 0 and 1, or such a word */
    SM_OPTION_BOOL,      /* True or False */
    SM_OPTION_CHOICE,    /* a name, stored as its index */
    SM_OPTION_DIVISIONS, /* roundup_power2_divisions */
    SM_OPTION_PATH,      /* of a file, or a word for none */
    SM_OPTION_TEXT       /* anything that has the form of a value */
};

#define SM_OPTION_NOT_STORED ((size_t)-1)

struct sm_option_row {
    enum sm_option_kind kind;
    size_t offset; /* of the field in struct sm_options, or SM_OPTION_NOT_STORED: accepted and passed over */
    uint64_t unit, min, max;
    bool open;           /* share: the ends do not belong to the range */
    bool digits;         /* choice: its index is accepted too */
    const char *word;    /* not in PyTorch's variables, which do not know it */
    uint64_t word_value; /* stored for the word, in units of 1 */
    const char *const *names;
};

/* Row i describes entry i of sm_options_table(). */
extern const struct sm_option_row sm_option_rows[];
/* Returns: the row's index, or -1. A key that ends with "*" in the table stands for all keys that begin so.
 */
int sm_option_find(const char *key, size_t length);

/* Part of a text, not ended by 0. */
struct sm_span {
    const char *at;
    size_t length;
};

/* Reads a value, without blanks around it, into its field. strict: exactly as PyTorch takes it, else our
 * words and lower-case booleans too. Returns: NULL, or what is wrong with it, with *where set to the part
 * that is wrong. */
const char *sm_option_read(const struct sm_option_row *row, struct sm_options *options, struct sm_span value,
                           bool strict, struct sm_span *where);

#define SM_OPTION_VALUE_MAX 256
/* The value in force, as sm_option_read takes it. Requires: the row is stored. */
void sm_option_write(const struct sm_option_row *row, const struct sm_options *options,
                     char text[SM_OPTION_VALUE_MAX]);

#endif
