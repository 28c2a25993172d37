/* SPDX-License-Identifier: Apache-2.0 */
/* number: real numbers as text with a decimal point, whatever locale the program has set. */
#ifndef SEAM_BASE_NUMBER_H
#define SEAM_BASE_NUMBER_H

#include <stddef.h>

#define SM_NUMBER_TEXT_MAX 32

/* The shortest text (of 15 to 17 significant digits) that reads back as the same number; "null" where not
 * finite. Requires: text has room for SM_NUMBER_TEXT_MAX bytes. Returns: text. Thread: safe. */
const char *sm_number_exact(char *text, double value);

/* Reads a number as strtod does in the C locale. Returns: the number; *end is the first byte that is none of
 * it. */
double sm_number_read(const char *text, char **end);

/* A number with a fixed count of decimals, into size bytes, cut as snprintf does. Returns: text. */
const char *sm_number_fixed(char *text, size_t size, double value, int decimals);

#endif
