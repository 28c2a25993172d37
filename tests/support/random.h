/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded random numbers that are the same with every compiler and C library: splitmix64. */
#ifndef SEAM_TESTS_SUPPORT_RANDOM_H
#define SEAM_TESTS_SUPPORT_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* 0 .. bound - 1. Requires: bound > 0. The bias of the remainder does not matter here. */
static inline uint64_t random_below(struct random *random, uint64_t bound)
{
    return random_next(random) % bound;
}

/* low .. high, both included. */
static inline uint64_t random_in(struct random *random, uint64_t low, uint64_t high)
{
    return low + random_below(random, high - low + 1);
}

static inline bool random_chance(struct random *random, unsigned percent)
{
    return random_below(random, 100) < percent;
}

#endif
