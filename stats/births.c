/* SPDX-License-Identifier: Apache-2.0 */
/* births: when blocks were born, in terms of phases and windows.
 *
 * A block carries the index of a slot; the slot knows the sequence number of the newest interval that was
 * open then. A block was born inside an open interval exactly if its slot's number is not below the
 * interval's own. A slot that no live block names is used again, so there are never more slots than live
 * blocks and one. */
#include "stats/internal.h"

#define BIRTHS_AT_FIRST 16

bool sm_births_init(struct sm_stats *stats)
{
    stats->hot.births = sm_hostmem_get(BIRTHS_AT_FIRST * sizeof *stats->hot.births);
    if (!stats->hot.births)
        return false;
    stats->birth_capacity = BIRTHS_AT_FIRST;
    stats->birth_used = 1; /* slot 0: born before any interval */
    stats->birth_free = SM_BIRTH_NONE;
    return true;
}

void sm_births_fini(struct sm_stats *stats)
{
    sm_hostmem_put(stats->hot.births, stats->birth_capacity * sizeof *stats->hot.births);
    stats->hot.births = NULL;
}

bool sm_births_reserve(struct sm_stats *stats)
{
    if (stats->birth_free != SM_BIRTH_NONE || stats->birth_used < stats->birth_capacity)
        return true;
    if (stats->birth_capacity > SM_BIRTH_NONE / 2)
        return false;
    const size_t size = stats->birth_capacity * sizeof *stats->hot.births;
    struct sm_birth *births = sm_hostmem_resize(stats->hot.births, size, 2 * size);
    if (!births)
        return false;
    stats->hot.births = births;
    stats->birth_capacity *= 2;
    return true;
}

uint64_t sm_births_begin(struct sm_stats *stats)
{
    const uint64_t start = ++stats->sequence;
    if (stats->hot.births[stats->hot.birth_now].count == 0) {
        stats->hot.births[stats->hot.birth_now].start = start;
        return start;
    }
    uint32_t birth = stats->birth_free;
    if (birth != SM_BIRTH_NONE)
        stats->birth_free = stats->hot.births[birth].next_free;
    else
        birth = stats->birth_used++;
    stats->hot.births[birth] = (struct sm_birth){.start = start, .next_free = SM_BIRTH_NONE};
    stats->hot.birth_now = birth;
    return start;
}

void sm_births_give(struct sm_stats *stats, uint32_t birth)
{
    stats->hot.births[birth].next_free = stats->birth_free;
    stats->birth_free = birth;
}
