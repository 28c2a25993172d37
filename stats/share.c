/* SPDX-License-Identifier: Apache-2.0 */
/* share: see share.h. */
#include "stats/internal.h"

#include "base/log.h"

/* What lies between the block levels of a kind and their running peaks, beside what is granted. */
static struct sm_flow room_of(const struct sm_stats *stats, enum sm_kind kind)
{
    const struct sm_stats_hot *hot = &stats->hot;
    const struct sm_use *peak = &hot->peak[kind];
    struct sm_use now = {0};
    for (unsigned side = 0; side < SM_SIDE_COUNT; side++) {
        const struct sm_use use = sm_hot_use(hot, side);
        if (kind == (side == SM_SIDE_SMALL ? SM_KIND_LARGE : SM_KIND_SMALL))
            continue;
        now.allocation += use.allocation;
        now.allocated += use.allocated;
        now.requested += use.requested;
        now.active += use.active;
        now.active_bytes += use.active_bytes;
    }
    const struct sm_flow *granted = &stats->granted[kind];
    const int64_t count = peak->allocation - now.allocation, active = peak->active - now.active;
    const int64_t bytes = peak->allocated - now.allocated, held = peak->active_bytes - now.active_bytes;
    return (struct sm_flow){.count = (count < active ? count : active) - granted->count,
                            .bytes = (bytes < held ? bytes : held) - granted->bytes,
                            .requested = peak->requested - now.requested - granted->requested};
}

static int64_t spread_room(const struct sm_stats *stats, enum sm_level_id level, enum sm_kind kind)
{
    const struct sm_level *own = &stats->moved[level][kind], *all = &stats->moved[level][SM_KIND_ALL];
    const int64_t here = own->peak - own->current, there = all->peak - all->current;
    return here < there ? here : there;
}

/* Granted to either kind counts against both: they have the peak of all in common. */
static struct sm_spread spread_of(const struct sm_stats *stats, enum sm_kind kind)
{
    return (struct sm_spread){
        .ranges = spread_room(stats, SM_LEVEL_inactive_split, kind) - stats->spread_granted.ranges,
        .bytes = spread_room(stats, SM_LEVEL_inactive_split_bytes, kind) - stats->spread_granted.bytes,
    };
}

/* A share takes half of what there is, so that there is something for the next. */
static int64_t half(int64_t room)
{
    return room > 0 ? (room + 1) / 2 : 0;
}

static void grant(struct sm_flow *sum, const struct sm_flow *part, int sign)
{
    sum->count += sign * part->count;
    sum->bytes += sign * part->bytes;
    sum->requested += sign * part->requested;
}

static void spread_grant(struct sm_spread *sum, const struct sm_spread *part)
{
    sum->ranges += part->ranges;
    sum->bytes += part->bytes;
}

void sm_share_widen(struct sm_stats *stats, struct sm_share *share, int64_t most_bytes)
{
    for (unsigned k = 0; k < SM_KIND_COUNT; k++) {
        const struct sm_flow room = room_of(stats, (enum sm_kind)k);
        int64_t bytes = room.bytes;
        if (k == SM_KIND_ALL && most_bytes - stats->granted[k].bytes < bytes)
            bytes = most_bytes - stats->granted[k].bytes;
        const struct sm_flow part = {
            .count = half(room.count), .bytes = half(bytes), .requested = half(room.requested)};
        grant(&share->granted[k], &part, 1);
        grant(&share->left[k], &part, 1);
        grant(&stats->granted[k], &part, 1);
    }
    const struct sm_spread spread = spread_of(stats, share->kind);
    const struct sm_spread part = {half(spread.ranges), half(spread.bytes)};
    spread_grant(&share->spread_granted, &part);
    spread_grant(&share->spread_left, &part);
    spread_grant(&stats->spread_granted, &part);
}

bool sm_share_open(struct sm_stats *stats, struct sm_share *share, enum sm_kind kind, int64_t most_bytes)
{
    /* At a peak, the parts that belong to it are copied when it is left. */
    if (stats->hot.threads || stats->hot.marks)
        return false;
    *share = (struct sm_share){.kind = kind, .birth = stats->hot.birth_now};
    sm_share_widen(stats, share, most_bytes);
    return true;
}

/* A level rose by `in` in all, and by `net` in the end. */
static void move_by(struct sm_stats *stats, enum sm_level_id level, enum sm_kind kind, int64_t in,
                    int64_t net)
{
    struct sm_level *both[] = {&stats->moved[level][kind], &stats->moved[level][SM_KIND_ALL]};
    for (unsigned i = 0; i < 2; i++) {
        both[i]->current += net;
        both[i]->in += in;
        both[i]->out += in - net;
        SM_ASSERT(both[i]->current <= both[i]->peak);
    }
}

static void close_births(struct sm_stats *stats, const struct sm_share *share)
{
    struct sm_birth *born = &stats->hot.births[share->birth];
    for (unsigned side = 0; side < SM_SIDE_COUNT; side++) {
        born->count += share->in[side].count;
        born->bytes += share->in[side].bytes;
    }
    for (unsigned i = 0; i < share->death_count; i++) {
        struct sm_birth *slot = &stats->hot.births[share->deaths[i].birth];
        if (slot->start < stats->hot.newest_start)
            sm_interval_release(stats, slot->start, share->deaths[i].count, share->deaths[i].bytes);
        slot->count -= share->deaths[i].count;
        slot->bytes -= share->deaths[i].bytes;
        if (slot->count == 0 && share->deaths[i].birth != stats->hot.birth_now)
            sm_births_give(stats, share->deaths[i].birth);
    }
}

void sm_share_close(struct sm_stats *stats, struct sm_share *share)
{
    struct sm_stats_hot *hot = &stats->hot;
    static const enum sm_kind kinds[SM_SIDE_COUNT] = {
        [SM_SIDE_SMALL] = SM_KIND_SMALL, [SM_SIDE_LARGE] = SM_KIND_LARGE};
    for (unsigned side = 0; side < SM_SIDE_COUNT; side++) {
        /* What went out is what came in, less how much room it took in the end. */
        struct sm_flow out = share->in[side];
        grant(&out, &share->granted[kinds[side]], -1);
        grant(&out, &share->left[kinds[side]], 1);
        grant(&hot->flow[SM_DOOR_ALLOC][side], &share->in[side], 1);
        grant(&hot->flow[SM_DOOR_REQUEST][side], &out, 1);
        grant(&hot->flow[SM_DOOR_COMPLETE][side], &out, 1);
    }
    for (unsigned k = 0; k < SM_KIND_COUNT; k++)
        grant(&stats->granted[k], &share->granted[k], -1);
    close_births(stats, share);
    hot->counters[SM_COUNTER_hits] += share->hits;
    move_by(stats, SM_LEVEL_inactive_split, share->kind, share->spread_in.ranges,
            share->spread_granted.ranges - share->spread_left.ranges);
    move_by(stats, SM_LEVEL_inactive_split_bytes, share->kind, share->spread_in.bytes,
            share->spread_granted.bytes - share->spread_left.bytes);
    stats->spread_granted.ranges -= share->spread_granted.ranges;
    stats->spread_granted.bytes -= share->spread_granted.bytes;
}

bool sm_share_spares(const struct sm_stats *stats, enum sm_kind kind, uint64_t requested, uint64_t rounded)
{
    struct sm_flow room[SM_KIND_COUNT];
    for (unsigned k = 0; k < SM_KIND_COUNT; k++)
        room[k] = room_of(stats, (enum sm_kind)k);
    return sm_flow_holds(room, kind, requested, rounded);
}

bool sm_share_spares_spread(const struct sm_stats *stats, enum sm_kind kind, const struct sm_spread *spread)
{
    const struct sm_spread room = spread_of(stats, kind);
    return room.ranges >= spread->ranges && room.bytes >= spread->bytes;
}

int64_t sm_share_granted(const struct sm_stats *stats)
{
    return stats->granted[SM_KIND_ALL].bytes;
}
