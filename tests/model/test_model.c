/* SPDX-License-Identifier: Apache-2.0 */
/* The model test: random operations on several streams of two devices, compared with a naive reference after
 * every step.
 *
 *   test_model [--seed N] [--steps N]
 *
 * Streams never finish by themselves: they do when the test runs them, or when the allocator waits on the
 * host. Each block is used by work on its stream and on the streams it was recorded for; memory that is
 * handed out, or unmapped, while such work is unfinished breaks a rule of the device, and the device says so.
 * In a share of the steps driver calls or host allocations fail.
 *
 * Some set-ups are made for stitching: few trims, live bytes always near a peak that rises slowly, few
 * streams, and devices
 * with real memory whose streams are late or of random pace. There each block has a tag written into it by
 * its stream, and it must still be there when the block is freed, whoever had the memory before, at whichever
 * address.
 *
 * After each step: the validator; the statistics against the device's record; sums and peaks against the
 * reference's own; now and then every byte of every live block. At the end the counts of what was reached are
 * printed, and each must have been reached often enough for the run to mean something. */
#include "policies/fit.h"
#include "policies/growth.h"
#include "policies/rounding.h"
#include "tests/model/reference.h"
#include "tests/support/fixture.h"
#include "tests/support/random.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS   5
#define POOLS     2
#define WANTED    1000
#define CHECK_ALL 250 /* steps */
#define DEVICES   2

struct side {
    struct sm_device *device;
    struct reference reference;
    CUstream streams[STREAMS];
    uint64_t device_bytes, tenant;
    double fraction;
    unsigned uses[POOLS];
    bool filling[POOLS];
    int64_t allocated_peak, active_peak, reserved_peak; /* since the last reset */
    uint64_t counts[SM_COUNTER_COUNT];                  /* before the last reset */
    bool faulted;                                       /* since its peaks were reset */
};

enum operation { ALLOC, FREE, RECORD, RUN, TRIM, LIMIT, TENANT, RESET, PHASE, POOL, OPERATIONS };

struct setup {
    const char *options;
    uint64_t granularity, device_mib;
    enum { ROUGH, STITCHING } way;
    enum sim_streams streams;
    bool backed;
    bool parts; /* the device maps any part of a handle */
};

static struct {
    struct fixture f;
    struct random random;
    struct side sides[DEVICES];
    unsigned phases, thread_phases;
    uint64_t window;
    bool fault, faulted; /* armed now; in this step */
    uint64_t seed, steps;
    /* what was reached */
    uint64_t step, served, refused, frees, faults, host_faults, runs, trims;
    uint64_t evictions, view_rollbacks, contents;
    uint64_t reached[SM_COUNTER_COUNT];
    const struct setup *setup;
    const char *operation;
    unsigned tags;
    uint64_t full; /* per cent of a device that live bytes are kept at, in the set-ups for stitching */
    bool finished;
} model = {.seed = 1, .steps = 180000};

#define EXPECT(condition, ...)                                                                               \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail_msg(__VA_ARGS__);                                                                           \
    } while (0)

static uint64_t below(uint64_t bound)
{
    return random_below(&model.random, bound);
}

static bool chance(unsigned percent)
{
    return random_chance(&model.random, percent);
}

static const struct sm_level *level(const struct side *side, enum sm_level_id id)
{
    return sm_stats_level(side->device->stats, id, SM_KIND_ALL);
}

/* ---- faults ---- */

static void arm(void)
{
    static const char *const calls[] = {
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemCreate,cuMemMap,cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
        "cuEventRecord",
        "cuEventCreate,cuEventQuery,cuEventSynchronize",
        "cuMemAlloc",
        "cuMemFree",
        "cuMemAddressReserve,cuMemAddressFree,cuStreamQuery,cuStreamSynchronize,cuCtxSynchronize"};
    uint64_t which = below(sizeof(calls) / sizeof(calls[0]) + 6);
    bool stitching = model.setup->way == STITCHING;
    model.fault = chance(stitching ? 45 : 25);
    if (!model.fault)
        return;
    model.faulted = true;
    if (stitching && chance(90)) /* of a view, as a rule: it has more maps than a growth */
        EXPECT(sim_fail_any_of("cuMemMap,cuMemSetAccess", 1 + below(5), chance(15)), "no fault can be armed");
    else if (which < sizeof(calls) / sizeof(calls[0]))
        EXPECT(sim_fail_any_of(calls[which], 1 + below(3), chance(30)), "no fault can be armed");
    else if (which < sizeof(calls) / sizeof(calls[0]) + 4)
        EXPECT(sim_fail_any_of("cuMemSetAccess,cuMemMap", 1 + below(2), false), "no fault can be armed");
    else
        sm_fault_arm(sm_hostmem_fault(), 1 + below(4), chance(20));
}

static void disarm(void)
{
    model.faults += sim_fail_hits();
    model.host_faults += atomic_load(&sm_hostmem_fault()->hits);
    sim_fail_clear();
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    model.fault = false;
}

/* ---- operations ---- */

static uint64_t random_size(void)
{
    if (model.setup->way == STITCHING)
        return chance(40) ? 1 + below(6 * MIB) : (1 + below(12)) * MIB / 2;
    switch (below(10)) {
    case 0:
        return 1 + below(512);
    case 1:
    case 2:
    case 3:
        return 1 + below(64 * SM_KIB);
    case 4:
    case 5:
    case 6:
        return 1 + below(MIB);
    case 7:
        return (1 + below(48)) * 64 * SM_KIB;
    default:
        return 1 + below(6 * MIB);
    }
}

/* Work that uses a block, on one of its streams. It writes what it touches, so it leaves the places alone
 * whose contents
 * are checked: begin, middle and end; what other blocks' work writes there by mistake is seen. */
static void use(struct side *side, const struct held *held, int stream)
{
    uint64_t middle = held->size / 1024 * 512, from = 512, size = 0;
    if (middle > 512) {
        from = 512 + below((middle - 512) / 512) * 512;
        size = chance(50) ? middle - from : 512;
    }
    CUresult code = sim_stream_work(side->streams[stream], held->address + from, size, 100);
    EXPECT(code == CUDA_SUCCESS, "work on stream %d: %d", stream, (int)code);
}

/* ---- contents ---- */

#define SPOT_WORDS 128 /* of 512 bytes */

/* Three spots of a block: its begin, its middle, its end. */
static CUdeviceptr spot(const struct held *held, int i)
{
    return held->address + (i == 0 ? 0 : i == 1 ? held->size / 1024 * 512 : held->size - 512);
}

static void enter(const struct side *side)
{
    EXPECT(cuCtxSetCurrent(model.f.contexts[side->reference.device]) == CUDA_SUCCESS, "no context");
}

static void leave(void)
{
    EXPECT(cuCtxSetCurrent(model.f.contexts[0]) == CUDA_SUCCESS, "no context");
}

/* Its stream writes the block's tag, some time. */
static void write_tag(struct side *side, struct held *held)
{
    held->tag = ++model.tags;
    enter(side);
    for (int i = 0; i < 3; i++) {
        CUresult code = cuMemsetD32Async(spot(held, i), held->tag, SPOT_WORDS, side->streams[held->stream]);
        EXPECT(code == CUDA_SUCCESS, "a fill on stream %d: %d", held->stream, (int)code);
    }
    leave();
}

/* Its streams have done their work: what was written is there, and nobody else's. */
static void check_tag(struct side *side, const struct held *held)
{
    unsigned words[SPOT_WORDS];
    for (int i = 0; i < STREAMS; i++)
        if (i == held->stream || held->users & 1u << i)
            EXPECT(sim_stream_run(side->streams[i]) == CUDA_SUCCESS, "a stream cannot be run");
    enter(side);
    for (int i = 0; i < 3; i++) {
        EXPECT(cuMemcpyDtoH(words, spot(held, i), sizeof(words)) == CUDA_SUCCESS, "a copy failed");
        for (int k = 0; k < SPOT_WORDS; k++)
            EXPECT(words[k] == held->tag,
                   "block %#llx of %lu bytes: word %d of spot %d is %u, written was %u", held->address,
                   held->size, k, i, words[k], held->tag);
    }
    leave();
    model.contents++;
}

/* The most that a growth for this request can need. */
static uint64_t growth_need(const struct side *side, uint64_t size)
{
    const struct sm_options *options = &side->device->options;
    uint64_t rounded = sm_round_size(options, size);
    if (options->policy == SM_POLICY_NATIVE)
        return sm_growth_segment(options, rounded);
    struct sm_growth_state state = {.granularity = side->device->granularity,
                                    .small_class = sm_fit_is_small(options, rounded)};
    if (options->policy == SM_POLICY_EXPANDABLE) {
        uint64_t step = sm_growth_step(options, &state);
        return (rounded + step - 1) / step * step;
    }
    return sm_align_up(rounded, state.granularity);
}

/* A refusal is right only if the device, or the limit, has no room for as much as was asked for. */
static void check_refusal(struct side *side, uint64_t size)
{
    uint64_t need = growth_need(side, size), physical = sim_physical_bytes(side->reference.device);
    uint64_t room = side->device_bytes - side->tenant - physical;
    if (side->device->limit != SM_UNLIMITED)
        room = sm_min(room, side->device->limit - sm_min(side->device->limit, physical));
    EXPECT(room < need, "%lu bytes were refused although %lu could be had: %s", size, room,
           model.f.error.text);
    EXPECT(model.f.error.code == SEAM_E_DEVICE_OOM || model.f.error.code == SEAM_E_LIMIT, "%s",
           model.f.error.text);
}

static int random_stream(void)
{
    return (int)below(model.setup->way == STITCHING && chance(90) ? 2 : STREAMS);
}

/* What the request did with views, from what the device and the heap count. */
struct views {
    uint64_t stitches, rollbacks, views, creates, maps;
};

static struct views count_views(const struct side *side)
{
    const struct sm_stats *stats = side->device->stats;
    return (struct views){sm_stats_counter(stats, SM_COUNTER_stitches),
                          sm_stats_counter(stats, SM_COUNTER_rollbacks), side->device->heap.view_count,
                          sim_calls("cuMemCreate"), sim_calls("cuMemMap")};
}

static void note_views(const struct side *side, const struct views *before)
{
    struct views now = count_views(side);
    uint64_t made = now.stitches - before->stitches;
    if (before->views + made > now.views)
        model.evictions += before->views + made - now.views;
    /* A growth maps no more than it creates. */
    if (!made && now.rollbacks > before->rollbacks && now.maps - before->maps > now.creates - before->creates)
        model.view_rollbacks++;
}

static void do_alloc(struct side *side)
{
    struct held held = {.requested = random_size(), .stream = random_stream()};
    if (side->reference.held_count == HELD_MAX)
        return;
    struct views before = count_views(side);
    arm();
    memset(&model.f.error, 0, sizeof(model.f.error));
    held.address = sm_pool_alloc(side->device, held.requested, side->streams[held.stream], &model.f.error);
    bool fault = model.fault;
    disarm();
    note_views(side, &before);
    if (!held.address) {
        model.refused++;
        EXPECT(model.f.error.text[0], "a refusal without a text");
        if (!fault)
            check_refusal(side, held.requested);
        return;
    }
    model.served++;
    held.size = sm_pool_block_of(side->device, held.address)->size;
    if (model.setup->backed)
        write_tag(side, &held);
    EXPECT(reference_claim(&side->reference, &held), "%s", side->reference.wrong);
    if (chance(80))
        use(side, &held, held.stream);
}

static void do_record(struct side *side)
{
    if (!side->reference.held_count)
        return;
    struct held *held = &side->reference.held[below(side->reference.held_count)];
    int user = (int)below(STREAMS);
    arm();
    seam_result result =
        sm_pool_record_stream(side->device, held->address, side->streams[user], &model.f.error);
    bool fault = model.fault;
    disarm();
    EXPECT(!result || (fault && result == SEAM_E_HOST_OOM), "record_stream: %s", model.f.error.text);
    if (result || user == held->stream)
        return;
    held->users |= 1u << user;
    /* The user's stream may touch the bytes only after what the owner had put there. */
    EXPECT(sim_stream_run(side->streams[held->stream]) == CUDA_SUCCESS, "a stream cannot be run");
    for (int other = 0; other < STREAMS; other++)
        if (other != user && held->users & 1u << other)
            EXPECT(sim_stream_run(side->streams[other]) == CUDA_SUCCESS, "a stream cannot be run");
    use(side, held, user);
}

static void do_free(struct side *side)
{
    if (!side->reference.held_count)
        return;
    size_t i = below(side->reference.held_count);
    struct held held = side->reference.held[i];
    if (held.tag && chance(30))
        check_tag(side, &held);
    EXPECT(reference_drop(&side->reference, i), "%s", side->reference.wrong);
    arm();
    seam_result result = sm_pool_free(side->device, held.address);
    disarm();
    EXPECT(result == SEAM_OK, "a free failed");
    EXPECT(sm_pool_free(side->device, held.address) == SEAM_E_POINTER, "a block was freed twice");
    model.frees++;
}

static void do_run(struct side *side)
{
    EXPECT(sim_stream_run(side->streams[below(STREAMS)]) == CUDA_SUCCESS, "a stream cannot be run");
    model.runs++;
}

static void do_trim(struct side *side)
{
    uint64_t views = side->device->heap.view_count;
    arm();
    sm_reclaim_trim(side->device);
    bool fault = model.fault;
    disarm();
    model.evictions += views - side->device->heap.view_count;
    model.trims++;
    EXPECT(fault || side->device->heap.parts.bytes[SM_PART_whole_free] == 0, "a trim left whole handles");
}

static void do_limit(struct side *side)
{
    side->fraction = chance(50) ? 1 : 0.2 + 0.01 * (double)below(60);
    sm_lock_take(&side->device->memory_lock);
    sm_lock_take(&side->device->heap_lock);
    sm_device_set_fraction(side->device, side->fraction);
    sm_lock_give(&side->device->heap_lock);
    sm_lock_give(&side->device->memory_lock);
}

static void do_tenant(struct side *side)
{
    int64_t change = side->tenant ? -(int64_t)side->tenant : (int64_t)((1 + below(20)) * MIB);
    if (sim_tenant(side->reference.device, change))
        side->tenant += (uint64_t)change;
}

static void do_reset(struct side *side)
{
    if (chance(30)) {
        for (int i = 0; i < SM_COUNTER_COUNT; i++)
            side->counts[i] += sm_stats_counter(side->device->stats, (enum sm_counter_id)i);
        sm_stats_reset_totals(side->device->stats);
        return;
    }
    sm_stats_reset_peaks(side->device->stats);
    side->allocated_peak = side->active_peak = side->reserved_peak = 0;
    side->faulted = false;
}

static void do_phase(struct side *side)
{
    static const char *const names[] = {"forward", "backward", "optimizer"};
    struct sm_allocator *allocator = model.f.allocator;
    bool of_thread = chance(30);
    unsigned *depth = of_thread ? &model.thread_phases : &model.phases;
    seam_result result;
    bool fault;
    (void)side;
    if (chance(20)) {
        if (model.window)
            EXPECT(!sm_allocator_window_close(allocator, model.window, &model.f.error), "%s",
                   model.f.error.text);
        model.window = 0;
        if (chance(50))
            EXPECT(!sm_allocator_window_open(allocator, "look", &model.window, &model.f.error), "%s",
                   model.f.error.text);
    }
    if (*depth && chance(55)) {
        EXPECT(!sm_allocator_phase_pop(allocator, of_thread, &model.f.error), "%s", model.f.error.text);
        --*depth;
        return;
    }
    if (*depth >= 6)
        return;
    arm();
    result = sm_allocator_phase_push(allocator, names[below(3)], of_thread, &model.f.error);
    fault = model.fault;
    disarm();
    EXPECT(!result || (fault && result == SEAM_E_HOST_OOM), "a phase was refused: %s", model.f.error.text);
    *depth += !result;
}

static void do_pool(struct side *side)
{
    uint64_t which = below(POOLS);
    const seam_pool_id id = {which + 1, 100};
    seam_result result;
    switch (below(3)) {
    case 0:
        arm();
        result = sm_capture_begin(side->device, id, NULL, NULL, &model.f.error);
        disarm();
        if (side->filling[which])
            EXPECT(result == SEAM_E_STATE || result == SEAM_E_HOST_OOM, "a pool was begun twice");
        side->uses[which] += !result;
        side->filling[which] |= !result;
        if (!result) /* one without a request may be for a capture, which a wait for the device would break */
            do_alloc(side);
        break;
    case 1:
        result = sm_capture_end(side->device, id, &model.f.error);
        EXPECT(!result == side->filling[which], "the end of a pool: %d", (int)result);
        side->filling[which] = false;
        break;
    default:
        result = sm_capture_release(side->device, id, &model.f.error);
        EXPECT(!result == (side->uses[which] > 0), "the release of a pool: %d", (int)result);
        side->uses[which] -= !result;
    }
}

/* ---- comparing ---- */

static void check_peak(const char *name, const struct sm_level *now, int64_t *peak, bool exact)
{
    *peak = *peak > now->current ? *peak : now->current;
    EXPECT(now->peak >= *peak && (!exact || now->peak == *peak),
           "the peak of %s is %ld, the history says %ld", name, now->peak, *peak);
}

static void check_side(struct side *side)
{
    const struct sm_level *allocated = level(side, SM_LEVEL_allocated_bytes);
    const struct sm_level *active = level(side, SM_LEVEL_active_bytes);
    const int64_t *parts = side->device->heap.parts.bytes;
    EXPECT(allocated->current == (int64_t)side->reference.allocated, "allocated is %ld, a recount gives %lu",
           allocated->current, side->reference.allocated);
    EXPECT(level(side, SM_LEVEL_allocation)->current == (int64_t)side->reference.held_count,
           "%ld blocks are counted, %zu are held", level(side, SM_LEVEL_allocation)->current,
           side->reference.held_count);
    EXPECT(parts[SM_PART_requested_live] == (int64_t)side->reference.requested,
           "requested is %ld, a recount gives %lu", parts[SM_PART_requested_live], side->reference.requested);
    EXPECT(active->current >= allocated->current, "less is active than allocated");
    check_peak("allocated", allocated, &side->allocated_peak, true);
    check_peak("active", active, &side->active_peak, true);
    check_peak("reserved", level(side, SM_LEVEL_reserved_bytes), &side->reserved_peak, !side->faulted);
}

/* All streams run dry and are polled: nothing may be pending. */
static void settle(struct side *side)
{
    for (int i = 0; i < STREAMS; i++)
        EXPECT(sim_stream_run(side->streams[i]) == CUDA_SUCCESS, "a stream cannot be run");
    sm_lock_take(&side->device->heap_lock);
    sm_fence_poll(side->device);
    sm_lock_give(&side->device->heap_lock);
    /* What could not be recorded at its free has its event now, at the end of an idle stream. */
    sm_lock_take(&side->device->heap_lock);
    for (int i = 0; i < STREAMS; i++)
        (void)sim_stream_run(side->streams[i]);
    sm_fence_poll(side->device);
    sm_lock_give(&side->device->heap_lock);
    EXPECT(level(side, SM_LEVEL_active_bytes)->current == (int64_t)side->reference.allocated,
           "all streams are idle and something is pending");
}

static void compare(void)
{
    fixture_check(&model.f);
    for (int i = 0; i < DEVICES; i++) {
        check_side(&model.sides[i]);
        if (model.step % CHECK_ALL == 0)
            EXPECT(reference_check(&model.sides[i].reference), "%s", model.sides[i].reference.wrong);
        if (model.step % (CHECK_ALL * 4) == 0)
            settle(&model.sides[i]);
    }
}

/* ---- the run ---- */

static const struct {
    const char *name;
    void (*act)(struct side *side);
    unsigned weights[2]; /* by way; each sums to 100 */
} operations[OPERATIONS] = {
    [ALLOC] = {"alloc", do_alloc, {38, 40}},   [FREE] = {"free", do_free, {32, 37}},
    [RECORD] = {"record", do_record, {10, 2}}, [RUN] = {"run", do_run, {6, 18}},
    [TRIM] = {"trim", do_trim, {4, 1}},        [LIMIT] = {"limit", do_limit, {1, 0}},
    [TENANT] = {"tenant", do_tenant, {1, 0}},  [RESET] = {"reset", do_reset, {1, 1}},
    [PHASE] = {"phase", do_phase, {3, 1}},     [POOL] = {"pool", do_pool, {4, 0}},
};

static enum operation pick_operation(const struct side *side)
{
    uint64_t pick = below(100);
    enum operation i = ALLOC;
    for (; pick >= operations[i].weights[model.setup->way]; i++)
        pick -= operations[i].weights[model.setup->way];
    if (model.setup->way == STITCHING && i <= FREE && chance(90))
        i = side->reference.allocated > side->device_bytes / 100 * model.full ? FREE : ALLOC;
    return i;
}

static void take_step(void)
{
    struct side *side = &model.sides[below(DEVICES)];
    enum operation i = pick_operation(side);
    model.operation = operations[i].name;
    model.faulted = false;
    operations[i].act(side);
    side->faulted |= model.faulted;
    compare();
}

static void open_sides(void)
{
    for (int i = 0; i < DEVICES; i++) {
        struct side *side = &model.sides[i];
        memset(side, 0, sizeof(*side));
        side->device = fixture_device(&model.f, i);
        side->device_bytes = model.f.sim.device_bytes;
        if (i) /* one device leases its homes at every hit, the other as it is */
            side->device->lease_after = 0;
        reference_open(&side->reference, i, model.f.sim.granularity);
        assert_int_equal(cuCtxSetCurrent(model.f.contexts[i]), CUDA_SUCCESS);
        for (int k = 0; k < STREAMS; k++)
            side->streams[k] = fixture_stream();
    }
    assert_int_equal(cuCtxSetCurrent(model.f.contexts[0]), CUDA_SUCCESS);
    model.phases = model.thread_phases = 0;
    model.window = 0;
}

static void close_side(struct side *side)
{
    while (side->reference.held_count)
        do_free(side);
    settle(side);
    for (int i = 0; i < POOLS; i++)
        side->filling[i] = false;
    sm_reclaim_trim(side->device);
    EXPECT(sim_physical_bytes(side->reference.device) == 0, "memory is left after the last trim");
    for (int i = 0; i < SM_COUNTER_COUNT; i++)
        model.reached[i] += side->counts[i] + sm_stats_counter(side->device->stats, (enum sm_counter_id)i);
    reference_close(&side->reference);
}

static void run(const struct setup *setup, uint64_t steps)
{
    model.setup = setup;
    fixture_init(&model.f);
    model.f.sim.devices = DEVICES;
    model.f.sim.granularity = setup->granularity;
    model.f.sim.device_bytes = setup->device_mib * MIB;
    model.f.sim.streams = setup->streams;
    model.f.sim.lag = 1u << 30;
    model.f.sim.seed = model.seed;
    model.f.sim.backed = setup->backed;
    model.f.sim.partial = setup->parts ? SIM_PARTIAL_INNER : SIM_PARTIAL_WHOLE;
    fixture_open(&model.f, setup->options);
    open_sides();
    for (uint64_t i = 0; i < steps; i++, model.step++) {
        model.full = 15 + 45 * i / steps;
        take_step();
    }
    for (int i = 0; i < DEVICES; i++)
        close_side(&model.sides[i]);
    fixture_close(&model.f);
}

static void print_table(void)
{
    static const struct {
        const char *name;
        enum sm_counter_id counter;
    } rows[] = {{"splits", SM_COUNTER_splits},           {"merges", SM_COUNTER_merges},
                {"growths", SM_COUNTER_growths},         {"rollbacks", SM_COUNTER_rollbacks},
                {"fence waits", SM_COUNTER_fence_waits}, {"stitches", SM_COUNTER_stitches},
                {"view hits", SM_COUNTER_view_hits},     {"borrows", SM_COUNTER_borrows}};
    const struct {
        const char *name;
        uint64_t count;
    } own[] = {{"evictions", model.evictions}, {"view undone", model.view_rollbacks}};
    printf("model: seed %lu, %lu steps: %lu served, %lu refused, %lu freed, %lu runs, %lu trims, %lu driver "
           "calls and %lu host allocations failed, %lu contents checked\n",
           model.seed, model.step, model.served, model.refused, model.frees, model.runs, model.trims,
           model.faults, model.host_faults, model.contents);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        printf("  %-12s %8lu\n", rows[i].name, model.reached[rows[i].counter]);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        printf("  %-12s %8lu\n", own[i].name, own[i].count);
    printf("  %-12s %8lu\n  %-12s %8lu\n", "event waits", model.reached[SM_COUNTER_event_waits], "retries",
           model.reached[SM_COUNTER_num_alloc_retries]);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        EXPECT(model.reached[rows[i].counter] > WANTED, "only %lu %s were reached",
               model.reached[rows[i].counter], rows[i].name);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        EXPECT(own[i].count > WANTED, "only %lu %s were reached", own[i].count, own[i].name);
    EXPECT(model.contents > WANTED, "only %lu contents were checked", model.contents);
}

static void random_operations(void **state)
{
    static const struct setup setups[] = {
        {"", 64 * SM_KIB, 40, ROUGH, SIM_STREAMS_LAG, false, false},
        {"slack_permille:0,small_limit_kib:16", 64 * SM_KIB, 40, ROUGH, SIM_STREAMS_LAG, false, false},
        {"slack_permille:0,small_limit_kib:0,lending:off", 64 * SM_KIB, 40, ROUGH, SIM_STREAMS_LAG, false,
         false},
        {"max_split_size_mb:20,small_limit_kib:64", 64 * SM_KIB, 40, ROUGH, SIM_STREAMS_LAG, false, false},
        {"roundup_power2_divisions:4,garbage_collection_threshold:0.7", 64 * SM_KIB, 40, ROUGH,
         SIM_STREAMS_LAG, false, false},
        {"handle_mib:2,slack_permille:0,small_limit_kib:0", 2 * MIB, 96, ROUGH, SIM_STREAMS_LAG, false,
         false},
        {"policy:expandable", 2 * MIB, 200, ROUGH, SIM_STREAMS_LAG, false, false},
        {"policy:native,max_split_size_mb:32", 2 * MIB, 200, ROUGH, SIM_STREAMS_LAG, false, false},
        {"slack_permille:0,small_limit_kib:0", 64 * SM_KIB, 400, STITCHING, SIM_STREAMS_LAG, false, false},
        {"slack_permille:0", 64 * SM_KIB, 150, STITCHING, SIM_STREAMS_LATE, true, false},
        {"small_limit_kib:64", 256 * SM_KIB, 150, STITCHING, SIM_STREAMS_RANDOM, true, false},
        {"slack_permille:0,lending:off,handle_mib:2", 256 * SM_KIB, 150, STITCHING, SIM_STREAMS_RANDOM, true,
         false},
        {"slack_permille:0,small_limit_kib:0", 64 * SM_KIB, 400, STITCHING, SIM_STREAMS_LAG, false, true},
        {"slack_permille:0", 256 * SM_KIB, 150, STITCHING, SIM_STREAMS_RANDOM, true, true},
    };
    const uint64_t count = sizeof(setups) / sizeof(setups[0]);
    uint64_t shares = 0;
    (void)state;
    model.random.state = model.seed;
    for (uint64_t i = 0; i < count; i++)
        shares += setups[i].way == STITCHING ? 2 : 1;
    for (uint64_t i = 0; i < count; i++)
        run(&setups[i], model.steps / shares * (setups[i].way == STITCHING ? 2 : 1));
    print_table();
    model.finished = true;
}

static int say_where(void **state)
{
    (void)state;
    disarm();
    if (!model.finished)
        print_error("model: seed %lu, options \"%s\", step %lu, %s\n", model.seed, model.setup->options,
                    model.step, model.operation ? model.operation : "begin");
    return 0;
}

static bool read_number(const char *text, uint64_t *number)
{
    char *end;
    *number = strtoull(text, &end, 10);
    return *text && !*end;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(random_operations, say_where)};
    for (int i = 1; i < argc; i += 2) {
        uint64_t *number = !strcmp(argv[i], "--seed")    ? &model.seed
                           : !strcmp(argv[i], "--steps") ? &model.steps
                                                         : NULL;
        if (!number || i + 1 == argc || !read_number(argv[i + 1], number)) {
            fprintf(stderr, "usage: %s [--seed N] [--steps N]\n", argv[0]);
            return 2;
        }
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
