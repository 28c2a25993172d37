/* SPDX-License-Identifier: Apache-2.0 */
/* rounding: from requested bytes to block bytes.
 *
 * Everything is a multiple of 512. With roundup divisions d for the size's interval [2^n MiB, 2^(n+1) MiB)
 * (below 2 MiB the first slot, from 32 GiB on the last) and size > 512 d, sizes go up to the next of d equal
 * steps between powers of two, so that near sizes become one: 514 MiB gives 1024, 768, 640, 576 MiB for d =
 * 1, 2, 4, 8; powers of two stay. Under stitch d = 1 means the next power of two, and an interval without an
 * entry takes that of the next lower one; under the policies that follow PyTorch both are off. Property
 * (tested): result >= size, a multiple of 512, monotone in size inside a slot, result / size <= 1 + 1/d. */
#ifndef SEAM_POLICIES_ROUNDING_H
#define SEAM_POLICIES_ROUNDING_H

#include "policies/options.h"

#define SM_BLOCK_ALIGN ((uint64_t)512)
/* Larger requests are refused before any arithmetic: no device holds 2^60 bytes. */
#define SM_REQUEST_MAX ((uint64_t)1 << 60)

/* Requires: 0 < size <= SM_REQUEST_MAX. */
uint64_t sm_round_size(const struct sm_options *options, uint64_t size);

#endif
