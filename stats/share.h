/* SPDX-License-Identifier: Apache-2.0 */
/* share: what a home's hits did, kept apart from the device's statistics and handed over in one go
 * (contracts: stats.h, which includes this).
 *
 * Peaks stay exact because a share may not reach one. When it is opened it is granted a part of what lies
 * between each level and its running peak, and no level may rise by more than that: the sum of all shares and
 * of what the statistics know stays at or below every peak, in whatever order their hits happened. Who needs
 * more closes the shares first.
 *
 * Thread: opened and closed under the device's heap lock; between, under a lock of its own. */
#ifndef SEAM_STATS_SHARE_H
#define SEAM_STATS_SHARE_H

#ifndef SEAM_STATS_STATS_H
#error "include stats/stats.h"
#endif

#define SM_SHARE_DEATHS 8

struct sm_share {
    enum sm_kind kind; /* of the home: what its free ranges count under */
    uint32_t birth;    /* stamp of blocks handed out */
    unsigned death_count;
    uint64_t hits;
    struct sm_flow in[SM_SIDE_COUNT];
    struct sm_flow left[SM_KIND_COUNT], granted[SM_KIND_COUNT]; /* room: now, at the opening */
    struct sm_spread spread_left, spread_granted, spread_in;
    struct { /* blocks freed, by the stamp of their birth */
        uint32_t birth;
        int64_t count, bytes;
    } deaths[SM_SHARE_DEATHS];
};

/* Room for one request of this size, with the device's statistics themselves or with a share of them. */
static inline bool sm_flow_holds(const struct sm_flow left[SM_KIND_COUNT], enum sm_kind kind,
                                 uint64_t requested, uint64_t rounded)
{
    const struct sm_flow *own = &left[kind], *all = &left[SM_KIND_ALL];
    return own->count > 0 && all->count > 0 && own->bytes >= (int64_t)rounded &&
           all->bytes >= (int64_t)rounded && own->requested >= (int64_t)requested &&
           all->requested >= (int64_t)requested;
}

/* Returns: false, and nothing is shared, when thread phases are open or a level is at its peak since nothing
 * was freed. most_bytes: how far allocated bytes may rise for other reasons than peaks. */
bool sm_share_open(struct sm_stats *stats, struct sm_share *share, enum sm_kind kind, int64_t most_bytes);
/* Grants the share half of what there is beside the open ones, once more. Requires: as open. */
void sm_share_widen(struct sm_stats *stats, struct sm_share *share, int64_t most_bytes);
void sm_share_close(struct sm_stats *stats, struct sm_share *share);
/* Is there room beside the open shares, for a request and for free ranges of this kind to spread? */
bool sm_share_spares(const struct sm_stats *stats, enum sm_kind kind, uint64_t requested, uint64_t rounded);
int64_t sm_share_granted(const struct sm_stats *stats); /* bytes that allocated ones may rise by in shares */
bool sm_share_spares_spread(const struct sm_stats *stats, enum sm_kind kind, const struct sm_spread *spread);

static inline void sm_share_alloc(struct sm_share *share, enum sm_kind kind, uint64_t requested,
                                  uint64_t rounded)
{
    sm_hot_pass(&share->in[sm_hot_side(kind)], requested, rounded);
    sm_hot_unpass(&share->left[kind], requested, rounded);
    sm_hot_unpass(&share->left[SM_KIND_ALL], requested, rounded);
    share->hits++;
}

/* Returns: false when it cannot be noted; nothing changed. */
static inline bool sm_share_free(struct sm_share *share, enum sm_kind kind, uint64_t requested,
                                 uint64_t rounded, uint32_t birth)
{
    unsigned i = 0;
    while (i < share->death_count && share->deaths[i].birth != birth)
        i++;
    if (i == SM_SHARE_DEATHS)
        return false;
    if (i == share->death_count) {
        share->deaths[i].birth = birth;
        share->deaths[i].count = share->deaths[i].bytes = 0;
        share->death_count++;
    }
    share->deaths[i].count++;
    share->deaths[i].bytes += (int64_t)rounded;
    sm_hot_pass(&share->left[kind], requested, rounded);
    sm_hot_pass(&share->left[SM_KIND_ALL], requested, rounded);
    return true;
}

/* The home's free ranges spread over so many more, or fewer, held ranges and bytes. */
static inline void sm_share_spread(struct sm_share *share, int64_t ranges, int64_t bytes)
{
    share->spread_left.ranges -= ranges;
    share->spread_left.bytes -= bytes;
    share->spread_in.ranges += ranges > 0 ? ranges : 0;
    share->spread_in.bytes += bytes > 0 ? bytes : 0;
}

#endif
