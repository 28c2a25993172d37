/* SPDX-License-Identifier: Apache-2.0 */
/* queue: see queue.h. */
#include "sim/core/queue.h"
#include "base/align.h"
#include "sim/core/config.h"
#include "sim/core/event.h"
#include "sim/core/faults.h"
#include "sim/core/lock.h"
#include "sim/core/memory.h"
#include "sim/core/model.h"
#include "sim/core/pool.h"
#include "sim/core/sticky.h"
#include "sim/core/timing.h"
#include "sim/core/trace.h"
#include <stdlib.h>
#include <string.h>

enum { LANES_MAX = 1 << 16, LATE_CALLS = 10000, RANDOM_CALLS = 64 };

static struct sim_lane *lanes[LANES_MAX]; /* never freed: an index stays valid, and so do its sequences */
static uint32_t lane_count;
static TAILQ_HEAD(lane_list, sim_lane) active_lanes = TAILQ_HEAD_INITIALIZER(active_lanes);
static _Atomic uint64_t pending_total;
static uint64_t now;      /* calls so far */
static uint64_t drawn;    /* state of the random mode */
static uint32_t sleepers; /* host waits that sleep */

/* ---- clocks ---- */

static bool clock_grow(struct sim_clock *clock, size_t size)
{
    if (clock->size >= size)
        return true;
    uint64_t *at = realloc(clock->at, size * sizeof *at);
    if (!at)
        return false;
    memset(at + clock->size, 0, (size - clock->size) * sizeof *at);
    *clock = (struct sim_clock){at, size};
    return true;
}

static bool clock_set(struct sim_clock *clock, uint32_t lane, uint64_t sequence)
{
    if (!clock_grow(clock, lane + 1))
        return false;
    clock->at[lane] = sm_max(clock->at[lane], sequence);
    return true;
}

static bool clock_join(struct sim_clock *clock, const struct sim_clock *other)
{
    if (!clock_grow(clock, other->size))
        return false;
    for (size_t i = 0; i < other->size; i++)
        clock->at[i] = sm_max(clock->at[i], other->at[i]);
    return true;
}

static uint64_t clock_at(const struct sim_clock *clock, uint32_t lane)
{
    return lane < clock->size ? clock->at[lane] : 0;
}

void sim_point_clear(struct sim_point *point)
{
    free(point->clock.at);
    *point = (struct sim_point){0};
}

/* ---- lanes ---- */

static struct sim_lane *unused_lane(void)
{
    for (uint32_t i = 0; i < lane_count; i++)
        if (lanes[i]->is_dying && lanes[i]->done == lanes[i]->last)
            return lanes[i];
    if (lane_count == LANES_MAX)
        return NULL;
    struct sim_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return NULL;
    lane->index = lane_count;
    STAILQ_INIT(&lane->ops);
    return lanes[lane_count++] = lane;
}

struct sim_lane *sim_lane_new(int device, bool is_blocking, bool is_legacy)
{
    struct sim_lane *lane = unused_lane();
    if (!lane)
        return NULL;
    lane->device = device;
    lane->is_blocking = is_blocking;
    lane->is_legacy = is_legacy;
    lane->is_held = lane->is_dying = false;
    lane->capture = NULL;
    lane->track = NULL;
    lane->stream = lane->end_ns = 0;
    atomic_store(&lane->capture_id, 0);
    /* What ran here before is done, so no order with anything needs to be remembered. */
    lane->clock.size = 0;
    return lane;
}

void sim_lane_drop(struct sim_lane *lane)
{
    lane->is_dying = true;
}

/* ---- completing ---- */

static void free_op(struct sim_op *op)
{
    if (op->kind == SIM_OP_TRANSFER)
        free(op->transfer.staged);
    free(op);
}

/* What a kernel that completes late does to its memory. In virtual time all is late, and memory would become
 * resident for nothing. Returns: false when the memory has gone meanwhile. */
static bool late_kernel(const struct sim_lane *lane, const struct sim_op *op)
{
    return op->touch_count == 0 || sim_config.streams > SIM_STREAMS_RANDOM ||
           sim_transfer_kernel_writes(op->touches[0].base, op->touches[0].size, lane->device);
}

/* Does the device still do such work? A broken one does none, and calls nobody. */
static bool is_dead_work(const struct sim_lane *lane, const struct sim_op *op)
{
    bool is_work = op->kind == SIM_OP_KERNEL || op->kind == SIM_OP_TRANSFER || op->kind == SIM_OP_HOST;
    return is_work && sim_sticky(lane->device);
}

/* Has the effect of an operation. Drops and retakes the lock for a host function. */
static void perform(struct sim_lane *lane, const struct sim_op *op, bool is_late)
{
    if (is_dead_work(lane, op))
        return;
    if (op->fault) {
        sim_sticky_set(lane->device, op->fault);
        return;
    }
    switch (op->kind) {
    case SIM_OP_TRANSFER:
        if (!sim_transfer_run(&op->transfer, lane->device))
            sim_sticky_set(lane->device, CUDA_ERROR_ILLEGAL_ADDRESS);
        break;
    case SIM_OP_RECORD:
        sim_event_complete(op->record.event, op->record.number, op->due);
        break;
    case SIM_OP_HOST:
        lane->is_busy = true;
        sim_unlock();
        op->host.call(op->host.user);
        sim_lock();
        lane->is_busy = false;
        break;
    case SIM_OP_FREE:
        sim_pool_reached(op->free.base, op->free.number);
        break;
    case SIM_OP_KERNEL:
        if (is_late && !late_kernel(lane, op))
            sim_sticky_set(lane->device, CUDA_ERROR_ILLEGAL_ADDRESS);
        break;
    case SIM_OP_WAIT:
        break;
    }
}

/* Requires: the lane has an operation and is not busy. */
static void complete_head(struct sim_lane *lane)
{
    struct sim_op *op = STAILQ_FIRST(&lane->ops);
    if (sim_timing_on()) /* no step when it completes by itself: its time has come then */
        sim_timing_reach(op->due);
    perform(lane, op, true);
    STAILQ_REMOVE_HEAD(&lane->ops, link);
    lane->done = op->sequence;
    atomic_fetch_sub_explicit(&pending_total, 1, memory_order_relaxed);
    free_op(op);
    if (STAILQ_EMPTY(&lane->ops)) {
        TAILQ_REMOVE(&active_lanes, lane, active);
        lane->is_active = false;
    }
    if (sleepers)
        sim_wake();
}

static bool wait_is_over(const struct sim_op *op)
{
    return op->kind != SIM_OP_WAIT || lanes[op->wait.lane]->done >= op->wait.sequence;
}

/* May the first operation of a lane complete now, unasked? */
static bool may_run(const struct sim_lane *lane, const struct sim_op *op)
{
    if (lane->is_held || lane->is_busy || !wait_is_over(op))
        return false;
    return (sim_timing_on() ? sim_timing_now() : now) >= op->due;
}

/* Completes what may in one lane. Returns: whether anything did. */
static bool pump_lane(struct sim_lane *lane)
{
    bool progress = false;
    while (!STAILQ_EMPTY(&lane->ops) && may_run(lane, STAILQ_FIRST(&lane->ops))) {
        complete_head(lane);
        progress = true;
    }
    return progress;
}

/* Completes all whose end the host's clock has passed, in the order of their ends. */
static void pump_timed(void)
{
    for (;;) {
        struct sim_lane *lane, *first = NULL;
        TAILQ_FOREACH(lane, &active_lanes, active) {
            const struct sim_op *op = STAILQ_FIRST(&lane->ops);
            if (may_run(lane, op) && (!first || op->due < STAILQ_FIRST(&first->ops)->due))
                first = lane;
        }
        if (!first)
            return;
        complete_head(first);
    }
}

/* Completes all that may, in all lanes. After each progress the list may be another one, so it is begun
 * again. */
static void pump(void)
{
    struct sim_lane *lane;
    if (sim_timing_on()) {
        pump_timed();
        return;
    }
    do {
        TAILQ_FOREACH(lane, &active_lanes, active) {
            if (pump_lane(lane))
                break;
        }
    } while (lane);
}

/* Completes a lane up to an operation and what it waits for, whatever the mode says. Returns: whether it got
 * there. */
static bool push(struct sim_lane *lane, uint64_t sequence, bool even_held)
{
    while (lane->done < sequence) {
        const struct sim_op *op = STAILQ_FIRST(&lane->ops);
        if ((lane->is_held && !even_held) || lane->is_busy)
            return false;
        if (wait_is_over(op))
            complete_head(lane);
        else if (!push(lanes[op->wait.lane], op->wait.sequence, even_held))
            return false;
    }
    return true;
}

/* ---- putting ---- */

/* Is there unfinished work of another lane on the same bytes, without an order? */
static bool is_race(const struct sim_lane *lane, const struct sim_touch *touch)
{
    const struct sim_lane *other;
    TAILQ_FOREACH(other, &active_lanes, active) {
        uint64_t ordered = clock_at(&lane->clock, other->index);
        const struct sim_op *theirs;
        if (other == lane)
            continue;
        STAILQ_FOREACH(theirs, &other->ops, link) {
            for (int i = 0; theirs->sequence > ordered && i < theirs->touch_count; i++)
                if ((touch->write || theirs->touches[i].write) &&
                    sim_memory_overlap(touch->base, touch->size, theirs->touches[i].base,
                                       theirs->touches[i].size))
                    return true;
        }
    }
    return false;
}

/* May the device use a range? Returns: false, and a broken rule, when it may not. */
static bool may_touch(const struct sim_lane *lane, const struct sim_op *op, const struct sim_touch *touch)
{
    enum sim_rule rule;
    if (sim_memory_check(touch->base, touch->size, lane->device, touch->write, &rule)) {
        sim_violate(rule, lane->device, touch->base, touch->size, "by a %s", touch->write ? "write" : "read");
        return false;
    }
    if (op->kind == SIM_OP_KERNEL && !sim_memory_open_to(touch->base, touch->size, lane->device)) {
        sim_violate(SIM_RULE_TOUCH_NO_ACCESS, lane->device, touch->base, touch->size,
                    "by a kernel, without peer access");
        return false;
    }
    return true;
}

/* The driver looks up the addresses of a copy or fill, and refuses it; what a kernel or a graph uses it does
 * not know, and the device finds out. */
static CUresult check_touches(const struct sim_lane *lane, struct sim_op *op)
{
    bool is_seen = op->kind == SIM_OP_TRANSFER && !op->is_node && !sim_config.copies_fault;
    for (int i = 0; i < op->touch_count; i++) {
        const struct sim_touch *touch = &op->touches[i];
        if (!may_touch(lane, op, touch)) {
            if (is_seen)
                return CUDA_ERROR_INVALID_VALUE;
            op->fault = op->fault ? op->fault : CUDA_ERROR_ILLEGAL_ADDRESS;
            return CUDA_SUCCESS;
        }
        if (is_race(lane, touch))
            sim_violate(SIM_RULE_RACE, lane->device, touch->base, touch->size,
                        "unfinished work on another stream");
    }
    return CUDA_SUCCESS;
}

/* The mode's decision: from which call on an operation that is put now may complete unasked. */
static uint64_t draw_due(void)
{
    switch (sim_config.streams) {
    case SIM_STREAMS_LAG:
        return now + sim_config.lag;
    case SIM_STREAMS_LATE:
        return now + LATE_CALLS;
    case SIM_STREAMS_RANDOM: /* xorshift: the same seed gives the same run everywhere */
        drawn ^= drawn << 13;
        drawn ^= drawn >> 7;
        drawn ^= drawn << 17;
        return now + drawn % RANDOM_CALLS;
    case SIM_STREAMS_IMMEDIATE:
    case SIM_STREAMS_TIMED: /* timing.c says */
        break;
    }
    return now;
}

static CUresult append(struct sim_lane *lane, const struct sim_op *op)
{
    struct sim_op *kept = malloc(sizeof *kept);
    if (!kept)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *kept = *op;
    kept->sequence = ++lane->last;
    if (sim_timing_on())
        sim_timing_place(lane, kept, op->kind == SIM_OP_WAIT ? lanes[op->wait.lane]->stream : 0);
    else
        kept->due = draw_due();
    STAILQ_INSERT_TAIL(&lane->ops, kept, link);
    atomic_fetch_add_explicit(&pending_total, 1, memory_order_relaxed);
    if (!lane->is_active) {
        TAILQ_INSERT_TAIL(&active_lanes, lane, active);
        lane->is_active = true;
    }
    return CUDA_SUCCESS;
}

static CUresult wait_for(struct sim_lane *lane, const struct sim_lane *other)
{
    struct sim_op op = {.kind = SIM_OP_WAIT};
    if (other == lane || other->done == other->last)
        return CUDA_SUCCESS;
    op.wait.lane = other->index;
    op.wait.sequence = other->last;
    op.wait.end_ns = other->end_ns;
    if (!clock_set(&lane->clock, other->index, other->last) || !clock_join(&lane->clock, &other->clock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return append(lane, &op);
}

/* The default stream waits for all blocking streams of its device, and they for it. */
static CUresult order_with_default(struct sim_lane *lane)
{
    const struct sim_lane *other;
    CUresult result = CUDA_SUCCESS;
    if (!lane->is_legacy && !lane->is_blocking)
        return CUDA_SUCCESS;
    TAILQ_FOREACH(other, &active_lanes, active) {
        if (other->device != lane->device || (lane->is_legacy ? !other->is_blocking : !other->is_legacy))
            continue;
        result = wait_for(lane, other);
        if (result)
            break;
    }
    return result;
}

/* A pageable source may change after the call: its bytes are taken now. */
static bool stage(struct sim_op *op)
{
    struct sim_transfer *t = &op->transfer;
    if (op->kind != SIM_OP_TRANSFER || t->element || t->src_device || sim_memory_is_pinned(t->src))
        return true;
    uint64_t span = sim_transfer_span(t->width, t->height, t->src_pitch);
    t->staged = malloc(span ? span : 1);
    if (!t->staged)
        return false;
    memcpy(t->staged, (const void *)t->src, span);
    return true;
}

/* The host is held up by a full stream until there is room; not by one that is held, which makes none. */
static void wait_for_room(struct sim_lane *lane)
{
    uint64_t room = sim_model.queue_operations, begin = sim_timing_now();
    if (room == 0 || lane->last - lane->done <= room)
        return;
    push(lane, lane->last - room, false);
    if (sim_trace_on() && sim_timing_now() > begin)
        sim_trace_host("wait", "the stream is full", begin, sim_timing_now());
}

CUresult sim_queue_put(struct sim_lane *lane, const struct sim_op *op)
{
    struct sim_op kept = *op;
    CUresult result = sim_sticky(lane->device);
    if (!result && pending_total)
        result = order_with_default(lane);
    if (!result)
        result = check_touches(lane, &kept);
    if (result)
        return result;
    sim_fault_into(&kept);
    bool at_once = sim_config.streams == SIM_STREAMS_IMMEDIATE && !lane->is_held && !lane->is_active;
    if (at_once && op->kind != SIM_OP_HOST && wait_is_over(op)) {
        perform(lane, &kept, false);
        lane->done = ++lane->last;
        return CUDA_SUCCESS;
    }
    if (!stage(&kept))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = append(lane, &kept);
    if (result && kept.kind == SIM_OP_TRANSFER)
        free(kept.transfer.staged);
    if (sim_timing_on())
        wait_for_room(lane);
    pump();
    return result;
}

void sim_queue_tick(void)
{
    now++;
    if (pending_total && sim_config.streams != SIM_STREAMS_IMMEDIATE)
        pump();
}

/* ---- points ---- */

bool sim_queue_point(const struct sim_lane *lane, struct sim_point *point)
{
    sim_point_clear(point);
    point->lane = lane->index;
    point->sequence = lane->last;
    point->end_ns = lane->end_ns;
    if (pending_total == 0) /* all is done: there is no order left to remember */
        return true;
    if (!clock_join(&point->clock, &lane->clock) || !clock_set(&point->clock, lane->index, lane->last)) {
        sim_point_clear(point);
        return false;
    }
    return true;
}

bool sim_queue_point_done(const struct sim_point *point)
{
    return point->sequence == 0 || lanes[point->lane]->done >= point->sequence;
}

CUresult sim_queue_wait_point(struct sim_lane *lane, const struct sim_point *point)
{
    struct sim_op op = {.kind = SIM_OP_WAIT};
    if (sim_queue_point_done(point))
        return CUDA_SUCCESS;
    if (!clock_join(&lane->clock, &point->clock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    op.wait.lane = point->lane;
    op.wait.sequence = point->sequence;
    op.wait.end_ns = point->end_ns;
    return sim_queue_put(lane, &op);
}

CUresult sim_queue_wait_device(struct sim_lane *lane)
{
    const struct sim_lane *other;
    CUresult result = CUDA_SUCCESS;
    TAILQ_FOREACH(other, &active_lanes, active) {
        if (other != lane && other->device == lane->device && !result)
            result = wait_for(lane, other);
    }
    return result;
}

CUresult sim_queue_device_wait_point(int device, const struct sim_point *point)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < lane_count && !result; i++)
        if (lanes[i]->device == device && lanes[i]->index != point->lane && !lanes[i]->is_dying)
            result = sim_queue_wait_point(lanes[i], point);
    return result;
}

/* ---- host waits ---- */

CUresult sim_queue_wait(struct sim_lane *lane, uint64_t sequence)
{
    uint64_t begin = sim_timing_now();
    while (!push(lane, sequence, false)) {
        sleepers++;
        bool woken = sim_sleep(sim_config.stuck_ms);
        sleepers--;
        if (!woken && lane->done < sequence) {
            sim_violate(SIM_RULE_STUCK, lane->device, 0, 0, "a host wait of %u ms", sim_config.stuck_ms);
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        }
    }
    if (sim_trace_on() && sim_timing_now() > begin)
        sim_trace_host("wait", sim_current_call(), begin, sim_timing_now());
    pump();
    return CUDA_SUCCESS;
}

CUresult sim_queue_wait_lane(uint32_t index, uint64_t sequence)
{
    return sim_queue_wait(lanes[index], sequence);
}

CUresult sim_queue_wait_all(int device)
{
    CUresult result = CUDA_SUCCESS;
    /* By index: lanes may come and go while a wait sleeps, and those that come later are not waited for. */
    for (uint32_t i = 0, count = lane_count; i < count && !result && pending_total; i++)
        if (device < 0 || lanes[i]->device == device)
            result = sim_queue_wait(lanes[i], lanes[i]->last);
    return result;
}

void sim_queue_run(struct sim_lane *lane)
{
    push(lane, lane->last, true);
    pump();
}

void sim_queue_hold(struct sim_lane *lane, bool hold)
{
    lane->is_held = hold;
    if (!hold) {
        pump();
        if (sleepers)
            sim_wake();
    }
}

size_t sim_queue_pending(const struct sim_lane *lane)
{
    return lane->last - lane->done;
}

bool sim_queue_is_after(const struct sim_lane *lane, uint32_t other, uint64_t sequence)
{
    return lane->index == other || lanes[other]->done >= sequence ||
           clock_at(&lane->clock, other) >= sequence;
}

bool sim_queue_uses(uint64_t base, uint64_t size)
{
    const struct sim_lane *lane;
    TAILQ_FOREACH(lane, &active_lanes, active) {
        const struct sim_op *op;
        STAILQ_FOREACH(op, &lane->ops, link) {
            for (int i = 0; i < op->touch_count; i++)
                if (op->touches[i].base < base + size && base < op->touches[i].base + op->touches[i].size)
                    return true;
        }
    }
    return false;
}

uint64_t sim_queue_total(void)
{
    return atomic_load_explicit(&pending_total, memory_order_relaxed);
}

void sim_queue_start(void)
{
    drawn = sim_config.seed * 0x9e3779b97f4a7c15u + 1;
    drawn = drawn ? drawn : 1; /* xorshift has no way out of 0 */
}

/* Operations are forgotten, not completed. */
void sim_queue_reset(void)
{
    for (uint32_t i = 0; i < lane_count; i++) {
        struct sim_lane *lane = lanes[i];
        for (struct sim_op *op; (op = STAILQ_FIRST(&lane->ops));) {
            STAILQ_REMOVE_HEAD(&lane->ops, link);
            free_op(op);
        }
        lane->done = lane->last;
        lane->is_dying = true;
        lane->is_active = lane->is_held = lane->is_busy = false;
        lane->capture = NULL;
        lane->track = NULL;
        lane->end_ns = 0;
        atomic_store(&lane->capture_id, 0);
    }
    TAILQ_INIT(&active_lanes);
    atomic_store(&pending_total, 0);
    now = 0;
}
