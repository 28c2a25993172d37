/* SPDX-License-Identifier: Apache-2.0 */
/* stress: scenarios that are hard for an allocator, each with one figure and a bound on it.
 *
 * A scenario is a program on the public functions and the simulated device; it is a pure function of its
 * seed, threads aside. The figures come from the device's own record: what the allocator held is what the
 * device saw. Each function here ends the process with a message when something is wrong. */
#ifndef SEAM_STRESS_STRESS_H
#define SEAM_STRESS_STRESS_H

#include "sim/sim.h"
#include <seamalloc/seamalloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct stress {
    uint64_t random; /* state */
    uint64_t seed;
    bool is_short;
    bool within; /* all bounds so far */
};

/* ---- scenarios ---- */

void stress_comb(struct stress *stress);
void stress_staircase(struct stress *stress);
void stress_sprinkle(struct stress *stress);
void stress_threads(struct stress *stress);
void stress_pace(struct stress *stress);
void stress_twice(struct stress *stress);

/* ---- for scenarios ---- */

/* A fresh device of this size and an allocator with its settings from the environment. */
void stress_begin(uint64_t device_bytes, bool backed);
/* Everything back, nothing left, no rule broken. */
void stress_end(void);

uint64_t stress_below(struct stress *stress, uint64_t bound);
void *stress_alloc(uint64_t size, seam_stream stream);
void stress_free(void *block);
seam_stream stress_stream(void);
/* Work on the stream that uses the block, done before this returns. */
void stress_work(seam_stream stream, void *block, uint64_t size);
int64_t stress_stat(const char *name);
/* Calls that take memory from the device or give it back. */
uint64_t stress_memory_calls(void);
void stress_check(bool condition, const char *what);

/* Prints a figure and its bound, and notes whether it is kept. */
void stress_share(struct stress *stress, const char *what, double share, double at_least);
void stress_bytes(struct stress *stress, const char *what, uint64_t bytes, uint64_t at_most);
void stress_count(struct stress *stress, const char *what, uint64_t count, uint64_t at_most);
/* Prints a figure that has no bound: what depends on the machine has none. */
void stress_figure(const char *what, double value, const char *unit);

#endif
