/* SPDX-License-Identifier: Apache-2.0 */
/* growth: how much new memory to ask for, and in which handles.
 *
 * Small class: max(granularity, 1/8 of what the home holds, at most 20 MiB), one handle.
 * Large class: what is missing, rounded up to the granularity, in one handle if it is small enough; else in
 * equal handles and one of a single granule last: a request that ends inside the growth then leaves a small
 * handle broken, not a large one. Look-ahead: while reserved + n stays below peak live x (1 + slack), growth
 * costs nothing at the peak, so a growth may be rounded up to 32 MiB as far as that allows; loops that grow
 * step by step then make fewer driver calls. The slack is at least 8 MiB, unless it is set to 0.
 *
 * Pressure: driver work done against what is aimed at, in 1/1000, from 500 to 2000. Small handles lose less
 * memory where a block ends inside one, and cost more when they are mapped. How often they will be mapped is
 * not known when they are made, so what was done so far stands for it: handles are of at most 24 MiB x
 * pressure, and a pressure above 1000 widens the slack likewise, so that a loop whose sizes never come again
 * stitches less. Work is weighed against what PyTorch's expandable segments do for the same bytes, a mapping
 * for each 20 MiB; work_percent says how much of that is aimed at.
 *
 * Where parts of handles map in views, their size loses nothing: handles are of up to 512 MiB, and the
 * last granule needs none of its own.
 *
 * Under expandable all handles are of one size, 2 MiB for the small class and large_segment_size for the
 * large one, and no more are asked for than are missing. Under native a growth is a segment: 2 MiB for small
 * requests, large_segment_size below 10 MiB, else the request rounded up to 2 MiB. */
#ifndef SEAM_POLICIES_GROWTH_H
#define SEAM_POLICIES_GROWTH_H

#include "policies/options.h"

struct sm_growth_state {
    uint64_t granularity; /* power of two */
    uint64_t missing;     /* bytes that the request lacks, > 0 */
    uint64_t home_bytes;  /* mapped in this home */
    uint64_t reserved;    /* of the device */
    uint64_t live_peak;   /* of the device, the request at hand included */
    uint64_t pressure;    /* sm_growth_pressure() */
    bool small_class;
    bool parts; /* any part of a handle maps in views */
};

#define SM_GROWTH_HANDLES_MAX 1024

/* Driver work against what is aimed at, in 1/1000. work: mappings made on the device so far, an unmapping
 * counted half; reserved: bytes. Returns: 500 to 2000. */
uint64_t sm_growth_pressure(const struct sm_options *options, uint64_t reserved, uint64_t work);

/* Up to how many reserved bytes growth needs no second thought: the peak and its slack.
 * Returns: >= live_peak; equal without slack. */
uint64_t sm_growth_free_limit(const struct sm_options *options, uint64_t live_peak, uint64_t pressure);

/* The size that handles of a growth are multiples of. */
uint64_t sm_growth_step(const struct sm_options *options, const struct sm_growth_state *state);
/* Native: the segment for a request. */
uint64_t sm_growth_segment(const struct sm_options *options, uint64_t request);

/* The least growth that serves: missing rounded up to the step, no more than SM_GROWTH_HANDLES_MAX steps
 * under expandable. */
uint64_t sm_growth_least(const struct sm_options *options, const struct sm_growth_state *state);
/* What to ask for first: >= least, a multiple of the granularity. */
uint64_t sm_growth_wanted(const struct sm_options *options, const struct sm_growth_state *state);

/* Splits bytes (a multiple of the granularity) into handle sizes, in the order of their addresses.
 * Returns: their count, at most SM_GROWTH_HANDLES_MAX; sizes[] sums up to bytes. Handles grow rather than
 * exceed the count. */
unsigned sm_growth_handles(const struct sm_options *options, const struct sm_growth_state *state,
                           uint64_t bytes, uint64_t sizes[SM_GROWTH_HANDLES_MAX]);

#endif
