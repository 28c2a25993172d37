/* SPDX-License-Identifier: Apache-2.0 */
/* rounding: see rounding.h. Pure; the caller's lock protects the options. */
#include "policies/rounding.h"
#include "base/align.h"

static unsigned slot_of(uint64_t size)
{
    unsigned log = sm_log2(size);
    if (log < 20)
        return 0;
    return log - 20 < SM_ROUNDUP_SLOTS ? log - 20 : SM_ROUNDUP_SLOTS - 1;
}

uint64_t sm_round_size(const struct sm_options *options, uint64_t size)
{
    unsigned slot = slot_of(size);
    uint64_t divisions = options->roundup_divisions[slot];
    uint64_t step = SM_BLOCK_ALIGN;
    /* Above 512 d the steps are multiples of 512 already: 2^floor(log2 size) >= 512 d. */
    /* PyTorch takes 1 for "off", and an interval that is not listed; users of stitch mean the next power of
     * two, and what stands below. */
    if (options->policy != SM_POLICY_STITCH && (divisions == 1 || !(options->roundup_listed >> slot & 1)))
        divisions = 0;
    if (divisions && size > SM_BLOCK_ALIGN * divisions)
        step = ((uint64_t)1 << sm_log2(size)) >> sm_log2(divisions);
    return sm_align_up(size, step);
}
