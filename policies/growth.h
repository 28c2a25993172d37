/* SPDX-License-Identifier: Apache-2.0 */
/* growth: how much new memory to ask for, and in which handles.
 *
 * Small class: max(granularity, 1/8 of what the home holds, at most 20 MiB), one handle.
 * Large class: what is missing, rounded up to the granularity; up to 34 MiB as one handle, more as equal
 * handles of at most clamp(n / 12, 16 MiB, 128 MiB) and one of a single granule last: a request that ends
 * inside the growth then leaves a small handle broken, not a large one. Look-ahead: while reserved + n stays
 * below peak live x (1 + slack), growth costs nothing at the peak, so a growth may be rounded up to 32 MiB as
 * far as that allows; loops that grow step by step then make fewer driver calls. The slack is at least 8 MiB,
 * unless it is set to 0.
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
    bool small_class;
};

#define SM_GROWTH_HANDLES_MAX 1024

/* Up to how many reserved bytes growth needs no second thought: the peak and its slack.
 * Returns: >= live_peak; equal without slack. */
uint64_t sm_growth_free_limit(const struct sm_options *options, uint64_t live_peak);

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
