/* SPDX-License-Identifier: Apache-2.0 */
/* growth: see growth.h. Pure; the caller's lock protects the options and the state. */
#include "policies/growth.h"
#include "base/align.h"
#include "policies/fit.h"

#define SMALL_GROWTH_MAX (20 * SM_MIB)
#define LOOK_AHEAD       (32 * SM_MIB)
#define SLACK_MIN        (8 * SM_MIB)
/* The largest handle while the work done is what is aimed at. */
#define HANDLE_USUAL (24 * SM_MIB)
/* Work is weighed against a mapping for each so many bytes held, but of no less than so many in all. */
#define WORK_BYTES (20 * SM_MIB)
#define WORK_LEAST (256 * SM_MIB)
/* Where parts of handles map. */
#define HANDLE_PARTS (512 * SM_MIB)
#define PRESSURE_MIN 500
#define PRESSURE_MAX 2000

/* PyTorch's figures: segments of small requests, and the size from which a request has a segment of its own.
 */
#define TORCH_SMALL_SEGMENT (2 * SM_MIB)
#define TORCH_LARGE_MIN     (10 * SM_MIB)

uint64_t sm_growth_pressure(const struct sm_options *options, uint64_t reserved, uint64_t work)
{
    uint64_t aim = sm_max(reserved, WORK_LEAST) / SM_MIB * options->work_percent;
    uint64_t done = sm_min(work, UINT32_MAX) * (WORK_BYTES / SM_MIB) * 100;
    return sm_min(sm_max(done * 1000 / aim, PRESSURE_MIN), PRESSURE_MAX);
}

uint64_t sm_growth_free_limit(const struct sm_options *options, uint64_t live_peak, uint64_t pressure)
{
    if (!options->slack_permille)
        return live_peak;
    uint64_t slack = options->slack_permille * sm_max(pressure, 1000);
    /* Divided first: a peak times 1000 may not fit. */
    slack = live_peak / 1000000 * slack + live_peak % 1000000 * slack / 1000000;
    return live_peak + sm_max(slack, SLACK_MIN);
}

uint64_t sm_growth_step(const struct sm_options *options, const struct sm_growth_state *state)
{
    if (options->policy != SM_POLICY_EXPANDABLE)
        return state->granularity;
    return sm_align_up(state->small_class ? TORCH_SMALL_SEGMENT : options->large_segment_size,
                       state->granularity);
}

uint64_t sm_growth_segment(const struct sm_options *options, uint64_t request)
{
    if (sm_fit_is_small(options, request))
        return TORCH_SMALL_SEGMENT;
    if (request < TORCH_LARGE_MIN)
        return options->large_segment_size;
    return sm_align_up(request, TORCH_SMALL_SEGMENT);
}

uint64_t sm_growth_least(const struct sm_options *options, const struct sm_growth_state *state)
{
    uint64_t step = sm_growth_step(options, state);
    uint64_t steps = state->missing / step + (state->missing % step > 0);
    return options->policy == SM_POLICY_EXPANDABLE ? sm_min(steps, SM_GROWTH_HANDLES_MAX) * step
                                                   : steps * step;
}

uint64_t sm_growth_wanted(const struct sm_options *options, const struct sm_growth_state *state)
{
    uint64_t least = sm_growth_least(options, state);
    if (options->policy != SM_POLICY_STITCH)
        return least;
    if (state->small_class) {
        uint64_t share = sm_min(state->home_bytes / 8, SMALL_GROWTH_MAX);
        return sm_max(least, sm_align_down(share, state->granularity));
    }
    uint64_t limit = sm_growth_free_limit(options, state->live_peak, state->pressure);
    if (state->reserved >= limit)
        return least;
    uint64_t room = sm_min(limit - state->reserved, LOOK_AHEAD);
    return sm_max(least, sm_align_down(room, state->granularity));
}

/* Fills sizes with the fewest handles of at most `largest`, no more than count_max of them, the sizes at most
 * one granule apart. Returns: their count. */
static unsigned split_evenly(uint64_t bytes, uint64_t largest, uint64_t granularity, unsigned count_max,
                             uint64_t *sizes)
{
    uint64_t granules = bytes / granularity;
    uint64_t a_handle = sm_max(largest / granularity, 1);
    uint64_t count = sm_min((granules + a_handle - 1) / a_handle, count_max);
    for (uint64_t i = 0; i < count; i++)
        sizes[i] = (granules / count + (i < granules % count)) * granularity;
    return (unsigned)count;
}

unsigned sm_growth_handles(const struct sm_options *options, const struct sm_growth_state *state,
                           uint64_t bytes, uint64_t sizes[SM_GROWTH_HANDLES_MAX])
{
    uint64_t granularity = state->granularity;
    uint64_t largest = options->handle_bytes;
    if (options->policy == SM_POLICY_EXPANDABLE)
        return split_evenly(bytes, sm_growth_step(options, state), sm_growth_step(options, state),
                            SM_GROWTH_HANDLES_MAX, sizes);
    if (state->small_class || bytes == granularity)
        return split_evenly(bytes, largest ? largest : bytes, granularity, SM_GROWTH_HANDLES_MAX, sizes);
    if (state->parts)
        return split_evenly(bytes, largest ? largest : HANDLE_PARTS, granularity, SM_GROWTH_HANDLES_MAX,
                            sizes);
    if (!largest)
        largest = sm_max(sm_align_down(HANDLE_USUAL / 1000 * state->pressure, granularity), granularity);
    if (bytes <= largest) {
        sizes[0] = bytes;
        return 1;
    }
    unsigned count =
        split_evenly(bytes - granularity, largest, granularity, SM_GROWTH_HANDLES_MAX - 1, sizes);
    sizes[count] = granularity;
    return count + 1;
}
