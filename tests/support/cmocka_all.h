/* SPDX-License-Identifier: Apache-2.0 */
/* CMocka with the headers it wants before it. */
#ifndef SEAM_TESTS_SUPPORT_CMOCKA_ALL_H
#define SEAM_TESTS_SUPPORT_CMOCKA_ALL_H

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#endif
