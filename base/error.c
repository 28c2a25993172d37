/* SPDX-License-Identifier: Apache-2.0 */
/* error: see error.h. Names and meanings come from the one list of results. No state. */
#include "base/error.h"
#include <stdio.h>

seam_result sm_error_setv(struct sm_error *error, seam_result code, const char *format, va_list args)
{
    if (error) {
        error->code = code;
        if (vsnprintf(error->text, sizeof error->text, format, args) < 0)
            error->text[0] = 0;
    }
    return code;
}

seam_result(sm_error_set)(struct sm_error *error, seam_result code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    sm_error_setv(error, code, format, args);
    va_end(args);
    return code;
}

const char *sm_result_name(seam_result code)
{
    switch (code) {
#define X(name, text)                                                                                        \
    case SEAM_##name:                                                                                        \
        return "SEAM_" #name;
        SEAM_RESULTS(X)
#undef X
    case SEAM_RESULT_COUNT:
        break;
    }
    return "unknown result";
}

const char *sm_result_text(seam_result code)
{
    switch (code) {
#define X(name, text)                                                                                        \
    case SEAM_##name:                                                                                        \
        return text;
        SEAM_RESULTS(X)
#undef X
    case SEAM_RESULT_COUNT:
        break;
    }
    return "unknown result";
}
