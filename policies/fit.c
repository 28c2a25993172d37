/* SPDX-License-Identifier: Apache-2.0 */
/* fit: see fit.h. Pure; the caller's lock protects the options. */
#include "policies/fit.h"
#include "base/align.h"

/* PyTorch's line between small and large, and the least rest for which it splits a large segment. */
#define TORCH_SMALL SM_MIB

/* Requests that the split limit calls large: served by whole ranges only. */
static bool takes_whole(const struct sm_options *options, uint64_t request)
{
    return options->max_split_size != SM_UNLIMITED && request >= options->max_split_size;
}

bool sm_fit_allows(const struct sm_options *options, uint64_t request, uint64_t range)
{
    if (options->max_split_size == SM_UNLIMITED)
        return true;
    if (takes_whole(options, request))
        return range - request < options->max_non_split_rounding;
    return range < options->max_split_size;
}

bool sm_fit_splits(const struct sm_options *options, uint64_t request, uint64_t range)
{
    if (range == request)
        return false;
    switch (options->policy) {
    case SM_POLICY_EXPANDABLE:
        return true;
    case SM_POLICY_NATIVE:
        return sm_fit_is_small(options, request) ||
               (!takes_whole(options, request) && range - request > TORCH_SMALL);
    default:
        return !takes_whole(options, request);
    }
}

bool sm_fit_is_small(const struct sm_options *options, uint64_t request)
{
    return request <= (options->policy == SM_POLICY_STITCH ? options->small_limit : TORCH_SMALL);
}
