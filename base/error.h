/* SPDX-License-Identifier: Apache-2.0 */
/* An error on its way up: a result code and a text for people. Filled once, at the place that knows most. */
#ifndef SEAM_BASE_ERROR_H
#define SEAM_BASE_ERROR_H

#include <seamalloc/result.h>
#include <stdarg.h>

#define SM_ERROR_TEXT_MAX 1024

struct sm_error {
    seam_result code;
    char text[SM_ERROR_TEXT_MAX]; /* cut at the end when longer */
};

/* Fills *error (may be NULL: then nothing) and returns code, so that a function can end with it. */
seam_result sm_error_set(struct sm_error *error, seam_result code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
seam_result sm_error_setv(struct sm_error *error, seam_result code, const char *format, va_list args);

#ifdef __clang_analyzer__
/* The analyzer sees one file at a time: this tells it what is returned. */
#define sm_error_set(error, code, ...) ((sm_error_set)(error, code, __VA_ARGS__), (code))
#endif

/* "SEAM_E_LIMIT" and its meaning; "unknown result" for a number that is none. */
const char *sm_result_name(seam_result code);
const char *sm_result_text(seam_result code);

#endif
