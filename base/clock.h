/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic host time in nanoseconds. */
#ifndef SEAM_BASE_CLOCK_H
#define SEAM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t sm_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
