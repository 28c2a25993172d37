/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic on sizes and addresses. Inline, no state. */
#ifndef SEAM_BASE_ALIGN_H
#define SEAM_BASE_ALIGN_H

#include <stdbool.h>
#include <stdint.h>

#define SM_KIB ((uint64_t)1 << 10)
#define SM_MIB ((uint64_t)1 << 20)
#define SM_GIB ((uint64_t)1 << 30)

static inline bool sm_is_pow2(uint64_t n)
{
    return n && !(n & (n - 1));
}

/* Requires: align is a power of two. */
static inline uint64_t sm_align_down(uint64_t n, uint64_t align)
{
    return n & ~(align - 1);
}

/* Requires: align is a power of two and n + align - 1 does not overflow (sm_align_up_checked where unsure).
 */
static inline uint64_t sm_align_up(uint64_t n, uint64_t align)
{
    return (n + align - 1) & ~(align - 1);
}

/* Returns: false and leaves *out alone when the result does not fit. */
static inline bool sm_align_up_checked(uint64_t n, uint64_t align, uint64_t *out)
{
    uint64_t sum;
    if (__builtin_add_overflow(n, align - 1, &sum))
        return false;
    *out = sum & ~(align - 1);
    return true;
}

/* Returns: floor(log2 n). Requires: n > 0. */
static inline unsigned sm_log2(uint64_t n)
{
    return 63u - (unsigned)__builtin_clzll(n);
}

static inline uint64_t sm_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t sm_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
