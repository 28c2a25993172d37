/* SPDX-License-Identifier: Apache-2.0 */
/* lease: hits in a home without the device's heap lock, so that threads on different streams go side by side.
 *
 * 1. A home of the default pool that had some hits since its last lease is leased: its blocks go apart from
 *    the heap (sm_home_part), and it gets a share of the statistics (stats/share.h) with room up to their
 *    peaks.
 * 2. Its hits then take the lease's lock and nothing else. What a request needs to get there is read without
 *    a lock: the list of streams only grows, and the map of addresses tells when it changed.
 * 3. Whatever cannot be done so is done under the heap lock as ever, and that ends all leases first: a miss,
 *    a block that other streams used, a level that might pass its peak, anybody who looks at figures.
 * 4. Hits in homes without a lease leave the others' leases alone, if there is room under the peaks.
 *
 * A lease that ends soon costs more than it saves: the home then waits longer for the next.
 *
 * Protected by: the heap lock, then the lease's. Never the other way round. */
#include "alloc/engine.h"
#include "base/align.h"
#include "base/log.h"
#include "policies/fit.h"
#include "policies/rounding.h"

/* Records that go along, and how many may gather: each is passed on by hand. */
#define RECORDS_ALONG 32
#define RECORDS_MOST  512
/* A lease that served so many hits was worth it. */
#define SERVED_ENOUGH 32
#define WAIT_MOST     512

struct sm_lease *sm_lease_create(struct sm_device *device, struct sm_home *home)
{
    struct sm_lease *lease = sm_hostmem_get(sizeof(*lease));
    if (!lease)
        return NULL;
    sm_lock_init(&lease->lock, SM_RANK_HOME, "home");
    lease->device = device;
    lease->home = home;
    lease->wait = device->lease_after;
    return lease;
}

void sm_lease_destroy(struct sm_lease *lease)
{
    if (!lease)
        return;
    sm_lock_fini(&lease->lock);
    sm_hostmem_put(lease, sizeof(*lease));
}

/* ---- beginning and end ---- */

static bool runs(struct sm_lease *lease)
{
    return lease && atomic_load_explicit(&lease->runs, memory_order_relaxed);
}

static enum sm_kind kind_of(const struct sm_lease *lease)
{
    return sm_home_kind(lease->home);
}

/* How far live bytes may rise before they pass the highest that growth goes by. */
static int64_t live_room(const struct sm_device *device)
{
    const int64_t *parts = device->heap.parts.bytes;
    return (int64_t)device->live_peak -
           (parts[SM_PART_requested_live] + parts[SM_PART_rounding] + parts[SM_PART_pending]);
}

/* Is every hit to be told to the whole device? Then none can be apart. */
static bool is_watched(const struct sm_device *device)
{
    return device->pending || !LIST_EMPTY(&device->scopes) || sm_trace_is_on(device->trace) ||
           (device->options.policy != SM_POLICY_STITCH && device->options.garbage_collection_threshold > 0);
}

void sm_lease_begin(struct sm_lease *lease)
{
    struct sm_device *device = lease->device;
    if (runs(lease) || is_watched(device) ||
        !sm_share_open(device->stats, &lease->share, kind_of(lease), live_room(device)))
        return;
    sm_lock_take_brief(&lease->lock);
    sm_home_part(lease->home, &lease->apart, RECORDS_ALONG);
    lease->freed = lease->served = 0;
    lease->records = RECORDS_ALONG;
    atomic_store_explicit(&lease->runs, true, memory_order_relaxed);
    sm_lock_give_brief(&lease->lock);
    LIST_INSERT_HEAD(&device->leases, lease, link);
    atomic_fetch_add_explicit(&device->lease_count, 1, memory_order_relaxed);
}

static unsigned twice(unsigned value, unsigned most)
{
    return value > most / 2 ? most : 2 * value;
}

/* Before the lease's lock is taken for more: what the heap has to spare. Heap lock held. */
static void prepare(struct sm_lease *lease)
{
    lease->records = twice(lease->records, RECORDS_MOST / 2);
    (void)sm_heap_prepare(&lease->device->heap, 1); /* if even that is refused, the request asks again */
}

/* More records, more room, as far as there is any. Heap lock held, and the lease's. */
static void supply(struct sm_lease *lease)
{
    size_t records = sm_apart_records(&lease->apart);
    if (records < lease->records)
        sm_home_supply(lease->home, &lease->apart, lease->records - records);
    sm_share_widen(lease->device->stats, &lease->share, live_room(lease->device));
}

/* Heap lock held. Afterwards nobody but its holder changes the home. */
static void stop(struct sm_lease *lease)
{
    sm_lock_take_brief(&lease->lock);
    atomic_store_explicit(&lease->runs, false, memory_order_relaxed);
    sm_lock_give_brief(&lease->lock);
    LIST_REMOVE(lease, link);
    atomic_fetch_sub_explicit(&lease->device->lease_count, 1, memory_order_relaxed);
}

static void end(struct sm_lease *lease)
{
    struct sm_device *device = lease->device;
    struct sm_stream *stream = lease->home->key.stream;
    struct sm_heap_counts *told = &device->told[lease->home->key.small_class];
    stop(lease);
    /* Of these sums the statistics hear through the share. */
    told->held_ranges += lease->apart.counts.held_ranges;
    told->held += lease->apart.counts.held;
    sm_home_rejoin(lease->home, &lease->apart);
    sm_share_close(device->stats, &lease->share);
    sm_device_tell(device);
    stream->freed += lease->freed;
    device->lease_served += lease->served;
    lease->hits = 0;
    lease->wait = lease->served < SERVED_ENOUGH ? twice(lease->wait, WAIT_MOST) : device->lease_after;
}

void sm_lease_end_all(void *context)
{
    struct sm_device *device = context;
    struct sm_lease *lease;
    while ((lease = LIST_FIRST(&device->leases)))
        end(lease);
}

/* ---- hits ---- */

/* The share follows what became of the home's free ranges. */
static void note_spread(struct sm_lease *lease, uint64_t ranges, uint64_t held)
{
    sm_share_spread(&lease->share, (int64_t)(lease->apart.counts.held_ranges - ranges),
                    (int64_t)(lease->apart.counts.held - held));
}

/* What taking the low end of a range adds to held ranges and bytes: whole handles that are broken. */
static struct sm_spread spread_of_take(const struct sm_block *range, uint64_t size)
{
    if (!range->whole)
        return (struct sm_spread){0, 0};
    return (struct sm_spread){1,
                              (int64_t)(range->whole - sm_block_whole_behind(range, size)) - (int64_t)size};
}

static bool is_held(const struct sm_block *neighbour)
{
    return neighbour && neighbour->state == SM_BLOCK_FREE && neighbour->whole < neighbour->size;
}

/* What giving a block back can add: one range, unless it joins one. */
static struct sm_spread spread_of_give(const struct sm_block *block)
{
    return (struct sm_spread){!is_held(block->prev) && !is_held(block->next), (int64_t)block->size};
}

static bool spread_fits(const struct sm_lease *lease, struct sm_spread spread)
{
    return lease->share.spread_left.ranges >= spread.ranges && lease->share.spread_left.bytes >= spread.bytes;
}

static struct sm_block *take(struct sm_lease *lease, uint64_t requested, uint64_t size)
{
    const struct sm_options *options = &lease->device->options;
    const uint64_t ranges = lease->apart.counts.held_ranges, held = lease->apart.counts.held;
    struct sm_block *block = sm_pool_find(options, lease->home, size);
    if (!block)
        return NULL;
    bool split = sm_fit_splits(options, size, block->size);
    uint64_t taken = split ? size : block->size;
    enum sm_kind kind = sm_stats_kind(taken);
    /* A chain more is no reason to ask the host for memory under a brief lock. */
    if (!sm_apart_records(&lease->apart) || lease->home->index.count >= lease->home->index.capacity ||
        !spread_fits(lease, spread_of_take(block, taken)) ||
        !sm_flow_holds(lease->share.left, kind, requested, taken))
        return NULL;
    sm_block_take(block, size, requested, split);
    block->kind = (uint8_t)kind;
    block->birth = lease->share.birth;
    block->trace = 0;
    sm_share_alloc(&lease->share, kind, requested, block->size);
    note_spread(lease, ranges, held);
    return block;
}

/* The home's lease for a request of this size, whether it runs or not; NULL: there is none. */
static struct sm_lease *lease_of(struct sm_device *device, uint64_t size, CUstream handle)
{
    struct sm_stream *stream = sm_device_find_stream(device, handle);
    struct sm_home *home = stream
                               ? atomic_load_explicit(&stream->homes[sm_fit_is_small(&device->options, size)],
                                                      memory_order_acquire)
                               : NULL;
    return home ? home->tag : NULL;
}

/* Serves a request if the lease runs. Returns: the address or 0. Lease's lock held. */
static uint64_t serve(struct sm_lease *lease, uint64_t requested, uint64_t size)
{
    struct sm_block *block = runs(lease) ? take(lease, requested, size) : NULL;
    if (!block)
        return 0;
    lease->served++;
    return block->address;
}

uint64_t sm_lease_alloc(struct sm_device *device, uint64_t requested, CUstream handle)
{
    struct sm_lease *lease;
    uint64_t address, size;
    if (!atomic_load_explicit(&device->lease_count, memory_order_relaxed) || requested > SM_REQUEST_MAX)
        return 0;
    size = sm_round_size(&device->options, requested);
    lease = lease_of(device, size, handle);
    if (!runs(lease))
        return 0;
    sm_lock_take_brief(&lease->lock);
    address = serve(lease, requested, size);
    sm_lock_give_brief(&lease->lock);
    return address;
}

static bool give(struct sm_lease *lease, uint64_t address)
{
    const uint64_t ranges = lease->apart.counts.held_ranges, held = lease->apart.counts.held;
    struct sm_block *block = sm_index_find(&lease->home->index, address);
    if (!block || block->fence || sm_apart_records(&lease->apart) > RECORDS_MOST ||
        !spread_fits(lease, spread_of_give(block)) ||
        !sm_share_free(&lease->share, block->kind, block->requested, block->size, block->birth))
        return false;
    sm_block_give(block);
    note_spread(lease, ranges, held);
    lease->freed++;
    lease->served++;
    return true;
}

enum sm_lease_answer sm_lease_free(struct sm_device *device, uint64_t address)
{
    void *tag;
    bool given = false;
    enum sm_map_answer answer;
    struct sm_lease *lease;
    if (!atomic_load_explicit(&device->lease_count, memory_order_relaxed))
        return SM_LEASE_ASK;
    answer = sm_map_tag(&device->heap.map, address, &tag);
    lease = tag;
    if (answer == SM_MAP_NOWHERE)
        return atomic_load_explicit(&device->heap.stitched, memory_order_acquire) ? SM_LEASE_ASK
                                                                                  : SM_LEASE_NOT_HERE;
    if (answer == SM_MAP_CHANGING || !runs(lease))
        return SM_LEASE_ASK;
    sm_lock_take_brief(&lease->lock);
    if (runs(lease))
        given = give(lease, address);
    sm_lock_give_brief(&lease->lock);
    return given ? SM_LEASE_DONE : SM_LEASE_ASK;
}

/* ---- beside the leases of others ---- */

/* May a home without a lease serve the request, for all that the shares were granted? */
static bool leaves_alone(const struct sm_request *request, struct sm_lease *lease)
{
    struct sm_device *device = request->device;
    const struct sm_block *range = sm_pool_find(&device->options, lease->home, request->size);
    if (!range)
        return false;
    uint64_t size = sm_fit_splits(&device->options, request->size, range->size) ? request->size : range->size;
    struct sm_spread spread = spread_of_take(range, size);
    return (int64_t)size <= live_room(device) - sm_share_granted(device->stats) &&
           sm_share_spares(device->stats, sm_stats_kind(size), request->requested, size) &&
           sm_share_spares_spread(device->stats, kind_of(lease), &spread);
}

uint64_t sm_lease_settle_alloc(struct sm_request *request, CUstream stream)
{
    struct sm_device *device = request->device;
    struct sm_lease *lease = lease_of(device, request->size, stream);
    uint64_t address = 0;
    if (runs(lease)) {
        prepare(lease);
        sm_lock_take_brief(&lease->lock);
        supply(lease);
        address = serve(lease, request->requested, request->size);
        sm_lock_give_brief(&lease->lock);
    }
    if (!address && (!lease || runs(lease) || !leaves_alone(request, lease)))
        sm_lease_end_all(device);
    return address;
}

bool sm_lease_settle_free(struct sm_device *device, uint64_t address)
{
    struct sm_home *home = sm_map_home(&device->heap.map, address);
    struct sm_lease *lease = home ? home->tag : NULL;
    const struct sm_block *block;
    bool given = false;
    if (runs(lease)) {
        prepare(lease);
        sm_lock_take_brief(&lease->lock);
        supply(lease);
        given = give(lease, address);
        sm_lock_give_brief(&lease->lock);
    } else if (!(block = sm_heap_block(&device->heap, address))) {
        return false;
    } else if (home && !block->fence) {
        struct sm_spread spread = spread_of_give(block);
        if (sm_share_spares_spread(device->stats, sm_home_kind(home), &spread))
            return false;
    }
    if (!given)
        sm_lease_end_all(device);
    return given;
}
