/* SPDX-License-Identifier: Apache-2.0 */
/* fit: which size class is a request of, may this free range serve it, and may the range be split for it?
 *
 * The split limit keeps large ranges whole for large requests. Let L = max_split_size, N =
 * max_non_split_rounding: a request below L never takes from a range of L or more; a request of L or more
 * takes a range whole or not at all, and only one that is less than N larger. Without a limit every range may
 * serve and be split. As in PyTorch, native splits a range of the large class only if more than 1 MiB is
 * left, and expandable splits always. */
#ifndef SEAM_POLICIES_FIT_H
#define SEAM_POLICIES_FIT_H

#include "policies/options.h"

/* Requires: range >= request, both multiples of 512. */
bool sm_fit_allows(const struct sm_options *options, uint64_t request, uint64_t range);

/* Returns: true when the rest of the range stays free; false: the whole range becomes the block. */
bool sm_fit_splits(const struct sm_options *options, uint64_t request, uint64_t range);

/* Small requests (rounded size) live in a home of their own: up to small_limit under stitch, up to 1 MiB
 * under the policies that follow PyTorch. */
bool sm_fit_is_small(const struct sm_options *options, uint64_t request);

#endif
