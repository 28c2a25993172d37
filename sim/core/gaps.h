/* SPDX-License-Identifier: Apache-2.0 */
/* gaps: which parts of a line of integers are free (addresses of an arena, offsets of a memory file).
 *
 * Free parts are kept whole: what is given back joins its neighbours. Nothing here is thread-safe by itself;
 * protected by: the core lock. */
#ifndef SEAMALLOC_SIM_CORE_GAPS_H
#define SEAMALLOC_SIM_CORE_GAPS_H

#include "sim/core/tree.h"
#include <stdbool.h>
#include <stdint.h>

struct sim_gap {
    RB_ENTRY(sim_gap) link;
    uint64_t start, end;
    uint64_t largest; /* derived: of the gaps in this subtree */
};
RB_HEAD(sim_gap_tree, sim_gap);
struct sim_gaps {
    struct sim_gap_tree tree;
};

/* Makes [start, end) the whole free line. Returns: false when there is no host memory. */
bool sim_gaps_init(struct sim_gaps *gaps, uint64_t start, uint64_t end);
void sim_gaps_clear(struct sim_gaps *gaps);

/* Takes the lowest (or highest) place for size bytes at a multiple of align. Requires: align is a power of
 * two, size > 0. Returns: false when there is none. */
bool sim_gaps_take_low(struct sim_gaps *gaps, uint64_t size, uint64_t align, uint64_t *start);
bool sim_gaps_take_high(struct sim_gaps *gaps, uint64_t size, uint64_t align, uint64_t *start);

/* Takes exactly [start, start + size). Returns: false when a part of it is not free. */
bool sim_gaps_take_at(struct sim_gaps *gaps, uint64_t start, uint64_t size);

/* Gives back what was taken, in any pieces. */
void sim_gaps_give(struct sim_gaps *gaps, uint64_t start, uint64_t size);

#endif
