/* SPDX-License-Identifier: Apache-2.0 */
/* fit: may this free range serve this request, and may it be split for it?
 *
 * The split limit keeps large ranges whole for large requests. Let L = max_split_size, N =
 * max_non_split_rounding: a request below L never takes from a range of L or more; a request of L or more
 * takes a range whole or not at all, and only one that is less than N larger. Without a limit every range may
 * serve and be split. */
#ifndef SEAM_POLICIES_FIT_H
#define SEAM_POLICIES_FIT_H

#include "policies/options.h"

/* Requires: range >= request, both multiples of 512. */
bool sm_fit_allows(const struct sm_options *options, uint64_t request, uint64_t range);

/* Returns: true when the rest of the range stays free; false: the whole range becomes the block. */
bool sm_fit_splits(const struct sm_options *options, uint64_t request, uint64_t range);

#endif
