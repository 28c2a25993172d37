/* SPDX-License-Identifier: Apache-2.0 */
/* number: see number.h. The C locale is glibc's own object: newlocale hands it out without obtaining memory,
 * and freelocale leaves it alone. uselocale changes the calling thread only. */
#include "base/number.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double sm_number_read(const char *text, char **end)
{
    return strtod_l(text, end, c_locale());
}

const char *sm_number_fixed(char *text, size_t size, double value, int decimals)
{
    locale_t before = uselocale(c_locale());
    snprintf(text, size, "%.*f", decimals, value);
    uselocale(before);
    return text;
}

const char *sm_number_exact(char *text, double value)
{
    if (!isfinite(value)) {
        snprintf(text, SM_NUMBER_TEXT_MAX, "null");
        return text;
    }
    locale_t before = uselocale(c_locale());
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, SM_NUMBER_TEXT_MAX, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    uselocale(before);
    return text;
}
