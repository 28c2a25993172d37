/* SPDX-License-Identifier: Apache-2.0 */
/* engine: what the files of alloc/ share: the allocator, its devices, its streams.
 *
 * Files, by what they alone may do:
 *   grow     creates and maps handles at home; reserves address space
 *   trim     unmaps and releases them; frees address space
 *   stitch   maps handles a second time, into views, and unmaps those
 *   defer    knows events and fences
 *   capture  knows pools and captures
 *   reclaim  retries
 *   pytorch  names what goes back first under native and expandable
 *   device   sets devices up and takes them down, keeps streams and homes
 *   pool     the hit path: from a request to a block, and back
 *   lease    the same for a home at a time, without the device's heap lock
 *   report   figures for people and programs
 *   record   tells the recording what happened
 *   allocator, api: all devices together; the public functions, arguments checked
 *
 * Locks, in the order in which they are taken (base/lock.h): phases, setup, a device's memory lock (held over
 * driver calls that change memory), its heap lock (never held over a driver call that may wait for the
 * device), the lock of a leased home, and last that of a recording, if one runs. A hit takes one lock: that
 * of its home's lease, or the heap lock. */
#ifndef SEAM_ALLOC_ENGINE_H
#define SEAM_ALLOC_ENGINE_H

#include "alloc/driver/driver.h"
#include "alloc/heap/heap.h"
#include "base/lock.h"
#include "policies/options.h"
#include "stats/stats.h"
#include "stats/trace/writer.h"
#include <seamalloc/seamalloc.h>
#include <stdatomic.h>

#define SM_DEVICES_MAX 64

TAILQ_HEAD(sm_fence_queue, sm_fence);

/* A stream as callers name it; made at first sight, kept until the device is taken down. */
struct sm_stream {
    CUstream stream; /* NULL: the legacy default stream */
    struct sm_device *device;
    CUcontext context;                  /* of another device whose stream it is; NULL: this device's */
    struct sm_spare_event *events;      /* spare ones of that context */
    uint64_t number;                    /* in recordings; 0: the default stream */
    _Atomic(struct sm_home *) homes[2]; /* default pool: large, small; NULL until first used */
    struct sm_fence_queue waiting;      /* fences with a recorded event, in the order of recording */
    uint64_t freed;                     /* blocks given back so far */
    uint64_t done;                /* value of freed at which the stream was known to have done its work */
    uint64_t passed_over;         /* serial of the trim that found it at work */
    struct sm_stream *next;       /* of the same slot; immutable */
    TAILQ_ENTRY(sm_stream) waits; /* in device->waiting while its queue is not empty */
};

/* A private pool of a device. */
struct sm_pool {
    seam_pool_id id;
    uint64_t number; /* in recordings, from 1 */
    unsigned uses;
    bool captured; /* a graph holds addresses of it: pinned while it has uses */
    LIST_ENTRY(sm_pool) link;
};

/* A pool being filled: requests that it claims go to the pool. Innermost first. */
struct sm_scope {
    struct sm_pool *pool;
    seam_pool_filter filter; /* NULL: capturing streams and the thread that began it */
    void *context;
    uint64_t thread;    /* never given twice, unlike a pthread_t */
    cuuint64_t capture; /* id of the capture that was bound to it; 0: none yet */
    CUstream stream;    /* on which that capture was seen last */
    bool over;          /* that capture has ended, though nobody ended the scope */
    bool served;        /* a request that no capture made: it is no scope of a capture that just began */
    LIST_ENTRY(sm_scope) link;
};

/* An event that waits to be used again. */
struct sm_spare_event {
    struct sm_spare_event *next;
    CUevent event;
};

/* A handle that the driver refused to unmap (address set) or to release. Still counted as reserved, tried
 * again later. */
struct sm_lost_handle {
    struct sm_lost_handle *next;
    uint64_t name, size, address; /* size 0: the handle is gone, its addresses are not */
    uint64_t span, span_size;     /* a reservation that belongs to nothing else */
    enum sm_kind kind;
};

#define SM_STREAM_SLOTS 64

struct sm_device {
    struct sm_allocator *allocator;
    struct sm_trace *trace;    /* the allocator's */
    struct sm_options options; /* the allocator's; policy native where the device has no VMM; immutable */
    int ordinal;
    CUdevice device;
    CUcontext context; /* primary, retained */
    char name[96];
    uint64_t total_bytes, granularity;
    CUmemAllocationProp properties; /* of every handle; immutable after setup */
    CUmemAccessDesc *access;        /* the device, then its peers */
    size_t access_count;

    struct sm_lock memory_lock;
    struct sm_lost_handle *lost; /* memory lock */
    struct sm_slab lost_records; /* memory lock */
    uint64_t trim_serial;        /* memory lock */

    struct sm_lock heap_lock; /* all that follows */
    struct sm_heap heap;
    struct sm_stats *stats;
    _Atomic(struct sm_stream *) streams[SM_STREAM_SLOTS]; /* only ever added to; read without a lock */
    LIST_HEAD(, sm_lease) leases;                         /* that run */
    _Atomic unsigned lease_count;                         /* of them; read without a lock */
    uint64_t lease_served;                                /* hits and frees in leases that ended */
    unsigned lease_after; /* hits before a home is leased; 0: each hit leases it, for tests */
    struct sm_fence_queue
        unrecorded; /* fences whose event could not be recorded, or must not be while a capture runs */
    TAILQ_HEAD(, sm_stream) waiting; /* streams with waiting fences */
    uint64_t pending;                /* PENDING blocks */
    uint64_t fence_serial;
    LIST_HEAD(, sm_pool) pools;
    LIST_HEAD(, sm_scope) scopes;
    struct sm_spare_event *free_events;
    struct sm_slab event_records;
    uint64_t live_peak; /* bytes of LIVE and PENDING blocks; no reset touches it */
    uint64_t work;      /* half mappings: two for each handle that was mapped, one for each unmapped */
    uint64_t limit;     /* bytes; SM_UNLIMITED for none */
    double fraction;
    struct sm_heap_counts told[2]; /* what the statistics know of the heap */
};

struct sm_request;
struct sm_lease;

struct sm_allocator {
    struct sm_driver *driver;
    struct sm_options options; /* immutable once a device exists */
    struct sm_lock phase_lock; /* phase and window boundaries */
    struct sm_lock setup_lock; /* creation of devices */
    int device_count;
    _Atomic(struct sm_device *) devices[SM_DEVICES_MAX];
    _Atomic uint64_t address_bytes;                /* reserved, all devices */
    struct sm_trace *trace;                        /* immutable; recordings begin and end in it */
    _Atomic uint64_t stream_numbers, pool_numbers; /* given so far, for recordings */
    uint64_t next_window;                          /* phase lock */
    struct sm_stats *open_phases; /* what is open now, for devices that are set up later; phase lock */
    struct sm_parts no_parts;     /* its parts: always 0 */
};

/* ---- allocator.c ---- */

/* Makes an allocator on a driver table, which must outlive it. Touches no device yet.
 * Returns: SEAM_OK, SEAM_E_DEVICE, SEAM_E_NO_DRIVER (no device), SEAM_E_HOST_OOM. */
seam_result sm_allocator_create(struct sm_driver *driver, const struct sm_options *options,
                                struct sm_allocator **allocator, struct sm_error *error);
/* Gives all memory back, live blocks included. Not while another thread is inside. */
void sm_allocator_destroy(struct sm_allocator *allocator);
/* The device, set up at first use. */
seam_result sm_allocator_device(struct sm_allocator *allocator, int ordinal, struct sm_device **device,
                                struct sm_error *error);
/* The device if it was set up already, else NULL. */
static inline struct sm_device *sm_allocator_seen(struct sm_allocator *allocator, int ordinal)
{
    if (ordinal < 0 || ordinal >= allocator->device_count)
        return NULL;
    return atomic_load_explicit(&allocator->devices[ordinal], memory_order_acquire);
}
/* Phases and windows of all devices, those set up later included. of_thread: of the calling thread alone. */
seam_result sm_allocator_phase_push(struct sm_allocator *allocator, const char *name, bool of_thread,
                                    struct sm_error *error);
seam_result sm_allocator_phase_pop(struct sm_allocator *allocator, bool of_thread, struct sm_error *error);
seam_result sm_allocator_window_open(struct sm_allocator *allocator, const char *name, uint64_t *window,
                                     struct sm_error *error);
seam_result sm_allocator_window_close(struct sm_allocator *allocator, uint64_t window,
                                      struct sm_error *error);
/* One figure by name; of a device that nobody used yet it is 0, and the device stays untouched. Returns:
 * false for no figure. */
bool sm_allocator_stat(struct sm_allocator *allocator, int ordinal, const char *name, int64_t *value);
seam_result sm_allocator_validate(struct sm_allocator *allocator, struct sm_error *error);

/* ---- device.c ---- */

seam_result sm_device_create(struct sm_allocator *allocator, int ordinal, struct sm_device **device,
                             struct sm_error *error);
void sm_device_destroy(struct sm_device *device);
/* A thread's stay in a device's context. */
struct sm_visit {
    CUstreamCaptureMode mode; /* what the thread had before */
};
/* Makes the device's context current for the calling thread, in relaxed capture mode, so that driver calls
 * here do not break a capture that runs elsewhere; leave restores both. Returns: SEAM_OK or SEAM_E_DEVICE. */
seam_result sm_device_enter(struct sm_device *device, struct sm_visit *visit, struct sm_error *error);
void sm_device_leave(struct sm_device *device, const struct sm_visit *visit);
/* Limits what is held from now on; memory lock and heap lock held. Requires: 0 <= fraction <= 1. */
void sm_device_set_fraction(struct sm_device *device, double fraction);
/* The record of a stream; heap lock held. Returns: NULL when out of host memory. */
struct sm_stream *sm_device_stream(struct sm_device *device, CUstream stream);
/* Two names of one stream. */
static inline CUstream sm_device_stream_name(CUstream handle)
{
    return handle == CU_STREAM_LEGACY ? NULL : handle;
}

static inline _Atomic(struct sm_stream *) *sm_device_slot(struct sm_device *device, CUstream handle)
{
    return &device->streams[((uintptr_t)handle * 0x9E3779B97F4A7C15u >> 32) % SM_STREAM_SLOTS];
}

/* The record of a stream if there is one already, else NULL. No lock needed. */
static inline struct sm_stream *sm_device_find_stream(struct sm_device *device, CUstream handle)
{
    struct sm_stream *stream;
    handle = sm_device_stream_name(handle);
    stream = atomic_load_explicit(sm_device_slot(device, handle), memory_order_acquire);
    while (stream && stream->stream != handle)
        stream = stream->next;
    return stream;
}
/* The home of a stream and size class in a pool (NULL: default); heap lock held. NULL when out of host
 * memory. */
struct sm_home *sm_device_home(struct sm_device *device, struct sm_stream *stream, const struct sm_pool *pool,
                               bool small_class);
/* Tells the statistics what changed in the heap since the last call; heap lock held. */
void sm_device_tell(struct sm_device *device);

/* ---- lease.c: a home's hits without the heap lock ---- */

/* A home of the default pool on loan. Its blocks, its sums and its part of the statistics are then protected
 * by the lease's lock alone, so that hits in two homes go side by side. Taking the heap lock ends all leases
 * (sm_lock.entered): who holds it has the whole device, and every figure is exact.
 *
 * While a lease runs, no block is pending, no pool is being filled, no thread phase is open and no recording
 * runs: each of these begins under the heap lock. Where segments are collected by their age in requests
 * (pytorch.c), nothing is leased. */
struct sm_lease {
    struct sm_lock lock;
    _Atomic bool runs; /* changed under the heap lock and this one */
    struct sm_device *device;
    struct sm_home *home;
    struct sm_apart apart;
    struct sm_share share;
    uint64_t freed, served; /* blocks given back, and hits of all kinds, since it began */
    unsigned hits, wait;    /* heap lock: since the last lease, and how many make one */
    unsigned records;       /* that it was supplied with last */
    LIST_ENTRY(sm_lease) link;
};

/* Returns: NULL when out of host memory; the home is then never leased. */
struct sm_lease *sm_lease_create(struct sm_device *device, struct sm_home *home);
void sm_lease_destroy(struct sm_lease *lease);
/* Ends all leases; heap lock held. What the heap lock calls when it is taken. */
void sm_lease_end_all(void *device);
/* Serves a request that is a hit in a leased home. Returns: the address, or 0 when it is none, or must be
 * done under the heap lock. No lock held. */
uint64_t sm_lease_alloc(struct sm_device *device, uint64_t requested, CUstream stream);
enum sm_lease_answer { SM_LEASE_DONE, SM_LEASE_NOT_HERE, SM_LEASE_ASK };
/* Gives a block of a leased home back. Returns: DONE; NOT_HERE when the device has no such address; ASK when
 * the heap lock must be taken to know. No lock held. */
enum sm_lease_answer sm_lease_free(struct sm_device *device, uint64_t address);
/* The heap lock was taken bare, and leases run. Gives the home's lease what it lacks, if that is all, and
 * serves the request, or takes the block back, there. Otherwise ends the leases, unless it can be done in a
 * home that has none without passing a peak. Returns: whether it was done; the address, or 0. */
uint64_t sm_lease_settle_alloc(struct sm_request *request, CUstream stream);
bool sm_lease_settle_free(struct sm_device *device, uint64_t address);
/* Leases a home; heap lock held. */
void sm_lease_begin(struct sm_lease *lease);
/* One more hit under the heap lock, in the home of a lease (NULL: it has none): after some it begins. Heap
 * lock held. */
static inline void sm_lease_offer(struct sm_lease *lease)
{
    if (lease && ++lease->hits > lease->wait)
        sm_lease_begin(lease);
}

/* ---- pool.c: the hit path ---- */

/* A request on its way. */
struct sm_request {
    struct sm_device *device;
    struct sm_stream *stream;
    struct sm_pool *pool;
    struct sm_home *home;
    uint64_t requested, size; /* asked for; after rounding */
    uint64_t pool_number;     /* in recordings */
    bool lend;                /* not a request of a caller: new memory as a piece of a stitched block */
    bool anew;                /* free ranges were looked at: from new memory alone */
};

/* Serves a request. Returns: the block's address, or 0 with *error. No lock held. */
uint64_t sm_pool_alloc(struct sm_device *device, uint64_t size, CUstream stream, struct sm_error *error);
/* A block's owner gives it back. Returns: SEAM_OK, or SEAM_E_POINTER without a text: another device may own
 * the address. No lock held. */
seam_result sm_pool_free(struct sm_device *device, uint64_t address);
/* The same, or SEAM_E_HOST_OOM with *error. */
seam_result sm_pool_record_stream(struct sm_device *device, uint64_t address, CUstream stream,
                                  struct sm_error *error);
/* The LIVE block that holds an address; heap lock held. NULL if none. Slow. */
struct sm_block *sm_pool_block_of(struct sm_device *device, uint64_t address);
/* The free range that serves a request at home by rules that need nothing but the home, or NULL. Requires:
 * the heap lock, or that of the home's lease. */
struct sm_block *sm_pool_find(const struct sm_options *options, struct sm_home *home, uint64_t size);
/* Best fit at home; heap lock held. Returns: the LIVE block, or NULL. */
struct sm_block *sm_pool_hit(struct sm_request *request);
/* The statistics of a block just handed out; heap lock held. */
void sm_pool_count(const struct sm_request *request, struct sm_block *block);
/* A PENDING block whose fence has passed becomes FREE; heap lock held. */
void sm_pool_complete(struct sm_device *device, struct sm_block *block);

/* Failures that freeing memory may cure. */
static inline bool sm_is_shortage(seam_result result)
{
    return result == SEAM_E_DEVICE_OOM || result == SEAM_E_LIMIT;
}

/* ---- grow.c: memory from the driver ---- */

/* What stood in the way of a growth, for the report. */
enum sm_obstacle {
    SM_OBSTACLE_NONE,
    SM_OBSTACLE_LIMIT,
    SM_OBSTACLE_DEVICE,
    SM_OBSTACLE_ADDRESS,
    SM_OBSTACLE_MAPPING,
    SM_OBSTACLE_PLACE /* the driver maps nothing where memory was to grow: elsewhere it may */
};

struct sm_shortage {
    enum sm_obstacle obstacle;
    uint64_t bytes; /* that the growth asked for at least */
};

/* Makes the request's home larger and serves the request from it, or from what was freed meanwhile.
 * Requires: memory lock held, heap lock not; context current. Returns: SEAM_OK and *block LIVE and counted;
 * SEAM_E_DEVICE_OOM or SEAM_E_LIMIT with *shortage; SEAM_E_DEVICE, SEAM_E_HOST_OOM. On failure nothing is
 * mapped, counted or marked. */
seam_result sm_grow(struct sm_request *request, struct sm_block **block, struct sm_shortage *shortage,
                    struct sm_error *error);

/* Serves the request from a free range and counts it, as a hit would. Heap lock not held. Returns: the block,
 * or NULL. */
struct sm_block *sm_grow_hit(struct sm_request *request);
/* Creates a handle of one granule with the device's present properties, and releases it; for set-up, before
 * anybody else knows the device. Context entered. Returns: SEAM_OK and *created; SEAM_E_DEVICE_OOM when the
 * device is full, which says nothing about it; SEAM_E_HOST_OOM. */
seam_result sm_grow_try(struct sm_device *device, bool *created, struct sm_error *error);
/* Does all of it with one granule: reserves, creates, maps, gives access to all that device->access lists,
 * and takes it back. As above. Returns: SEAM_OK and the name of the call that was refused, or NULL. */
seam_result sm_grow_probe(struct sm_device *device, const char **refused, struct sm_error *error);
/* Does the driver map a part of a handle alone? Tried as above with the second granule of a handle of two;
 * *parts is false when a call is refused or there is no room. Returns: SEAM_OK or SEAM_E_HOST_OOM. */
seam_result sm_grow_try_parts(struct sm_device *device, bool *parts, struct sm_error *error);
/* New memory of exactly `bytes` in the request's home, apart from its free neighbours.
 * Requires: as sm_grow. Returns: SEAM_OK and *piece, LENT to nobody yet; else as sm_grow. */
seam_result sm_grow_piece(struct sm_request *request, uint64_t bytes, struct sm_block **piece,
                          struct sm_shortage *shortage, struct sm_error *error);

/* ---- trim.c: memory back to the driver, and what growth shares with that ---- */

enum sm_trim_wait { SM_TRIM_IDLE_ONLY, SM_TRIM_WAIT };
/* Gives whole free handles back, at least `bytes` of them if there are so many, other homes' before
 * `sparing`'s (may be NULL). IDLE_ONLY passes over memory whose stream may still be at work; WAIT waits for
 * such streams. Requires: memory lock held, heap lock not; context current. Returns: bytes given back. */
uint64_t sm_trim(struct sm_device *device, uint64_t bytes, enum sm_trim_wait wait,
                 const struct sm_home *sparing);
/* Gives the whole handles of one free range back, waiting for its stream; nothing while a graph is captured.
 * Requires: as sm_trim, but the heap lock is held; it is given up meanwhile. Returns: bytes given back. */
uint64_t sm_trim_range(struct sm_device *device, struct sm_block *range);
/* Address space of extents without memory goes back; memory lock held, heap lock not. */
void sm_trim_addresses(struct sm_device *device);
/* Tries again to release what the driver refused before; memory lock held. */
void sm_release_lost(struct sm_device *device);
/* Unmaps, releases and frees everything, live or not; nobody else is inside. */
void sm_trim_teardown(struct sm_device *device);
/* Is the stream done with what it had freed when its count was `freed`? Asks the driver, or waits, only when
 * that is not known. Memory lock held, heap lock not. */
bool sm_stream_is_done(struct sm_device *device, struct sm_stream *stream, uint64_t freed,
                       enum sm_trim_wait wait);

/* The kind that a home's memory counts under. */
enum sm_kind sm_home_kind(const struct sm_home *home);
/* Handles mapped at home came (+) or went (-): plain allocations are none. Heap lock held. */
void sm_count_mapped(struct sm_device *device, int64_t bytes, int64_t handles);
/* Is memory mapped at this address? False too when the driver does not say. Heap lock not held. */
bool sm_is_mapped(struct sm_device *device, uint64_t address);
/* Unmaps a handle. Returns: false when it is still mapped. A driver that refuses is asked whether it is: what
 * is not there any more counts as unmapped. Heap lock not held. */
bool sm_unmap(struct sm_device *device, uint64_t address, uint64_t size);
/* Does something that the driver refused to unmap lie in [address, address + bytes)? Memory lock held. */
bool sm_is_blocked(const struct sm_device *device, uint64_t address, uint64_t bytes);
/* One more driver error. Heap lock not held. */
void sm_note_error(struct sm_device *device);
/* The driver did not take a handle back: unmapped unless address says where it still is. Memory lock held,
 * heap lock not; a record was prepared in device->lost_records. */
void sm_lose_handle(struct sm_device *device, uint64_t name, uint64_t size, uint64_t address,
                    enum sm_kind kind);
/* The driver did not take all of a trial back: a handle (size 0: none), of which a granule is perhaps mapped,
 * and a reservation of one granule (0: none). As above. */
void sm_lose_trial(struct sm_device *device, uint64_t name, uint64_t size, bool mapped, uint64_t span);

/* ---- stitch.c: blocks from several places ---- */

/* May views and other homes serve this request? Not in private pools (addresses of a graph must not move
 * under it), not with a split limit, not in the small class. */
bool sm_stitch_applies(const struct sm_request *request);

/* A kept view with a run of free bytes, or NULL; heap lock held. No driver call. */
struct sm_block *sm_stitch_reuse(struct sm_request *request);
/* Finds out which other streams are done, so that their free memory may be lent; memory lock held, heap lock
 * not. */
void sm_stitch_refresh(struct sm_request *request);
/* Best fit in the homes of streams that are done; heap lock held. NULL if there is none. */
struct sm_block *sm_stitch_borrow(struct sm_request *request);
/* Joins free ranges, and what new memory is still missing, into one block. `plain`: bytes that growth without
 * stitching would ask for. Requires: memory lock held, heap lock not; context entered. Returns: SEAM_OK and
 * *block, or SEAM_OK and NULL when it would not save anything; a failure leaves nothing. */
seam_result sm_stitch(struct sm_request *request, uint64_t plain, struct sm_block **block,
                      struct sm_shortage *shortage, struct sm_error *error);
/* Unmaps views without blocks, the ones used longest ago first, until at most `keep` mappings are left in
 * views; with keep 0 also what the blocks of other views do not use. Requires: memory lock held, heap lock
 * not; context entered. Returns: true when one went. */
bool sm_stitch_evict(struct sm_device *device, uint64_t keep, enum sm_trim_wait wait);
/* Unmaps all views, live or not; nobody else is inside. */
void sm_stitch_teardown(struct sm_device *device);

/* ---- defer.c: fences and events ---- */

/* Adds a stream to a LIVE block's fence; heap lock held. Returns: false when out of host memory. */
bool sm_fence_add(struct sm_device *device, struct sm_block *block, struct sm_stream *stream);
/* The same with a record taken from device->heap.fences before; the stream is not in the fence yet. */
void sm_fence_set(struct sm_block *block, struct sm_stream *stream, struct sm_fence *record);
/* The block was just made PENDING: records an event for each entry of its fence. Heap lock held at entry and
 * exit, not over the driver calls. Entries without an event wait in device->unrecorded. Never fails. */
void sm_fence_record(struct sm_device *device, struct sm_block *block);
/* Completes every block whose fence has passed; heap lock held at entry and exit, given up between when an
 * event must be recorded. Cheap when nothing waits. */
void sm_fence_poll(struct sm_device *device);
/* Waits, for a fraction of a second, until the fence of any block has passed, and completes it: a stuck
 * stream holds nobody up. Requires: memory lock held, heap lock not. Returns: true when a block became
 * free. */
bool sm_fence_wait_any(struct sm_device *device);
/* Waits for the fence that was recorded first of all that wait, however long, and completes what has passed.
 * Requires: as above. Returns: false when nothing waits, or the driver does not answer for it. */
bool sm_fence_wait_one(struct sm_device *device);
/* Waits until the device has done everything, and completes all fences. Requires: as above. Returns: false
 * when the driver refused. */
bool sm_fence_wait_all(struct sm_device *device);
/* Does any block wait? Heap lock not held. */
bool sm_fence_pending(struct sm_device *device);
/* Forgets fences and destroys events; nobody else is inside. */
void sm_fence_teardown(struct sm_device *device);

/* ---- capture.c: private pools ---- */

/* The pool that a request on this stream belongs to; NULL: the default pool. Heap lock held.
 * Returns: SEAM_OK, or SEAM_E_STATE when a captured stream could belong to several pools. */
seam_result sm_capture_pool(struct sm_device *device, CUstream stream, struct sm_pool **pool,
                            struct sm_error *error);
seam_result sm_capture_begin(struct sm_device *device, seam_pool_id id, seam_pool_filter filter,
                             void *context, struct sm_error *error);
seam_result sm_capture_end(struct sm_device *device, seam_pool_id id, struct sm_error *error);
seam_result sm_capture_release(struct sm_device *device, seam_pool_id id, struct sm_error *error);
/* True when the home's memory may be given back: no graph holds addresses in its pool. Heap lock held. */
bool sm_capture_may_trim(struct sm_device *device, const struct sm_home *home);
/* Is this stream being captured, or its capture broken but not ended? Asks the driver; any lock may be
 * held. */
bool sm_capture_on(struct sm_device *device, CUstream stream);
/* Waits for the whole device, unless a stream that was ever named here is being captured, or a pool was begun
 * and has seen no request: the capture that it may be for would be broken. Memory lock held, heap lock not;
 * context entered. */
CUresult sm_capture_safe_wait(struct sm_device *device);
/* True while a capture is known to run on the device: queries, waits, unmaps would break it or its addresses.
 * One that was ended, or whose stream is gone, runs no longer, also where nobody ended its scope. Heap lock
 * held. */
bool sm_capture_running(struct sm_device *device);
/* Forgets pools that have neither uses nor memory; heap lock held. */
void sm_capture_prune(struct sm_device *device);
void sm_capture_teardown(struct sm_device *device);

/* ---- reclaim.c: when there is no room ---- */

/* Serves a request that no free range served: growth, then the ladder. No lock held, context not entered; the
 * request's home is pinned, and is no longer afterwards. Returns: SEAM_OK and *block, or the final failure
 * with its report in *error. */
seam_result sm_reclaim_serve(struct sm_request *request, struct sm_block **block, struct sm_error *error);

/* Gives back all memory and address space that nobody uses; waits for streams. No lock held. */
void sm_reclaim_trim(struct sm_device *device);

/* ---- pytorch.c: what PyTorch's own allocators give back, and in which order ---- */

/* All: memory lock held, heap lock not; context entered. They wait for the streams of what they give back. */

/* native: old segments, when a share of the limit is passed (garbage_collection_threshold; nothing without a
 * limit, as there). Returns: true when one went. */
bool sm_pytorch_collect(struct sm_device *device);
/* native with a split limit: just enough of the segments that the limit keeps whole, of the request's home.
 * Returns: true when another growth makes sense. */
bool sm_pytorch_give_enough(const struct sm_request *request);
/* Every whole segment (native) or handle (expandable) that is free. */
void sm_pytorch_give_all(struct sm_device *device);

/* ---- record.c: what a recording is told ---- */

/* Begins a recording of everything from now on; blocks, pools and devices that are there already are told
 * first. Returns: as sm_trace_begin. No lock held. */
seam_result sm_record_begin(struct sm_allocator *allocator, const char *path, struct sm_error *error);
/* The same before anybody else knows the allocator, when nothing is there. */
seam_result sm_record_open(struct sm_allocator *allocator, const char *path, struct sm_error *error);
/* The device, when it is set up. */
void sm_record_device(struct sm_device *device);
/* Each tells one event; nothing when no recording runs. Heap lock held, except where the request failed. */
uint64_t sm_record_alloc(const struct sm_request *request);
void sm_record_failure(const struct sm_request *request, seam_result result);
void sm_record_block(struct sm_device *device, const struct sm_block *block, enum sm_trace_action action,
                     const struct sm_stream *stream);
void sm_record_pool(struct sm_device *device, const struct sm_pool *pool, enum sm_trace_action action);
/* A trim of the device, or a phase of the process (device NULL). */
void sm_record_mark(struct sm_allocator *allocator, const struct sm_device *device,
                    enum sm_trace_action action, const char *name);

/* ---- report.c ---- */

size_t sm_report(struct sm_allocator *allocator, int ordinal, enum sm_emit_form form, char *buffer,
                 size_t capacity);
/* The text of an out-of-memory, in place of what *error says; memory lock held. */
void sm_report_shortage(const struct sm_request *request, const struct sm_shortage *shortage,
                        struct sm_error *error);

#endif
