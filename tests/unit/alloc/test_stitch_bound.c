/* SPDX-License-Identifier: Apache-2.0 */
/* The bound of stitching, as a property of random programs: whenever a request of at least four granules
 * makes memory grow beyond the peak of live bytes and its slack, then once it is served
 *
 *   reserved <= live + W + free bytes of the small class,
 *
 * W being the free bytes of large handles that also hold live ones. In other words: not one whole handle of
 * the large class is free. All four are counted here from the device and the blocks in hand, not from the
 * allocator's sums. The programs have one stream, or several whose work is always done. */
#include "policies/growth.h"
#include "tests/support/random.h"
#include "tests/unit/alloc/stitches.h"

#define HELD     64
#define STEPS    3000
#define GRANULES 4 /* of a request that is stitched rather than grown for */

struct program {
    struct fixture f;
    struct random random;
    CUstream streams[3];
    unsigned stream_count;
    struct {
        CUdeviceptr address;
        uint64_t size;
    } held[HELD];
    uint64_t live; /* rounded bytes in hand */
    uint64_t bounded, grown, stitched, reached_small;
    bool parts; /* the device maps any part of a handle */
};

/* Free bytes: of the small class; of large handles that are broken; of large handles that are whole. */
struct free_bytes {
    uint64_t small, broken, whole;
};

/* Where parts of handles map, a hole of two granules or more gives all its whole ones. */
static struct free_bytes count_free_granules(const struct program *program)
{
    struct free_bytes sum = {0};
    struct sm_heap *heap = &program->f.device->heap;
    struct sm_home *home;
    struct sm_block *block;
    LIST_FOREACH(home, &heap->homes, link)
        RB_FOREACH(block, sm_free_tree, &home->free_ranges) {
            uint64_t up = sm_align_up(block->address, heap->granularity);
            uint64_t down = sm_align_down(sm_block_end(block), heap->granularity);
            uint64_t whole = block->size >= 2 * heap->granularity && down > up ? down - up : 0;
            if (home->key.small_class)
                sum.small += block->size;
            else {
                sum.whole += whole;
                sum.broken += block->size - whole;
            }
        }
    return sum;
}

static struct free_bytes count_free(const struct program *program)
{
    struct free_bytes sum = {0};
    if (program->parts)
        return count_free_granules(program);
    const struct sm_home *home;
    const struct sm_extent *extent;
    LIST_FOREACH(home, &program->f.device->heap.homes, link)
        TAILQ_FOREACH(extent, &home->extents, link)
            for (uint32_t i = 0; i < extent->handle_slots; i++) {
                const struct sm_handle *handle = &extent->handles[i];
                uint64_t end = handle->address + handle->size, free = 0;
                const struct sm_block *block = handle->size ? handle->first : NULL;
                for (; block && block->address < end; block = block->next)
                    if (block->state == SM_BLOCK_FREE)
                        free += sm_min(sm_block_end(block), end) - sm_max(block->address, handle->address);
                if (home->key.small_class)
                    sum.small += free;
                else if (free == handle->size)
                    sum.whole += free;
                else
                    sum.broken += free;
            }
    return sum;
}

static uint64_t random_request(struct program *program)
{
    struct random *random = &program->random;
    switch (random_below(random, 5)) {
    case 0:
        return random_in(random, 1, 300) * 512; /* small class or not */
    case 1:
        return random_in(random, 1, 16) * MIB;
    case 2:
        return random_in(random, 1, 8 * 2048) * 512;
    default:
        return random_in(random, 1, 60 * 2048) * 512;
    }
}

static void serve(struct program *program, unsigned slot)
{
    struct fixture *f = &program->f;
    uint64_t size = random_request(program), before = sim_physical_bytes(0);
    uint64_t peak = sm_max(f->device->live_peak, program->live + size);
    uint64_t pressure = sm_growth_pressure(&f->device->options, before, f->device->work / 2);
    uint64_t stitches = fixture_count(f, SM_COUNTER_stitches);
    CUstream stream = program->streams[random_below(&program->random, program->stream_count)];
    program->held[slot].address = sm_pool_alloc(f->device, size, stream, &f->error);
    if (!program->held[slot].address)
        fail_msg("%s", f->error.text);
    program->held[slot].size = size;
    program->live += size;
    uint64_t after = sim_physical_bytes(0);
    if (after == before)
        return;
    program->grown++;
    if (after <= sm_growth_free_limit(&f->device->options, peak, pressure) ||
        size < GRANULES * f->device->granularity)
        return;
    struct free_bytes free = count_free(program);
    program->bounded++;
    program->stitched += fixture_count(f, SM_COUNTER_stitches) > stitches;
    program->reached_small += free.small > 0;
    uint64_t over = program->parts ? 2 * f->device->granularity : 0;
    if (after > program->live + free.broken + free.small + over)
        fail_msg(
            "%lu bytes grew from %lu to %lu: live %lu, in broken handles %lu, small %lu, whole handles %lu",
            size, before, after, program->live, free.broken, free.small, free.whole);
    assert_true(free.whole <= over);
    assert_int_equal(after, program->live + free.broken + free.small + free.whole);
}

static void give(struct program *program, unsigned slot)
{
    if (program->held[slot].address)
        assert_int_equal(sm_pool_free(program->f.device, program->held[slot].address), SEAM_OK);
    program->live -= program->held[slot].size;
    program->held[slot].address = program->held[slot].size = 0;
}

static void run_program(struct program *program, const char *options, uint64_t seed, unsigned streams)
{
    program->random.state = seed;
    program->live = 0;
    program->stream_count = streams;
    fixture_init(&program->f);
    program->f.sim.device_bytes = 32 * GIB;
    program->f.sim.partial = program->parts ? SIM_PARTIAL_INNER : SIM_PARTIAL_WHOLE;
    fixture_open(&program->f, options);
    fixture_device(&program->f, 0);
    for (unsigned i = 0; i < streams; i++)
        program->streams[i] = fixture_stream();
    for (unsigned i = 0; i < HELD; i++)
        program->held[i].address = program->held[i].size = 0;
    for (unsigned i = 0; i < STEPS; i++) {
        /* Live bytes rise in waves, so that their peak is passed again and again. */
        unsigned slot = (unsigned)random_below(&program->random, 8 + (i / 100 % 8) * 8);
        bool held = program->held[slot].address != 0;
        if (held)
            give(program, slot);
        if (!held || random_chance(&program->random, 70))
            serve(program, slot);
        if (i % 50 == 0)
            fixture_check(&program->f);
    }
    for (unsigned i = 0; i < HELD; i++)
        give(program, i);
    fixture_close(&program->f);
}

static void reserved_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        unsigned streams;
        bool parts;
    } rows[] = {
        {"", 1, false},
        {"slack_permille:0", 1, false},
        {"slack_permille:0,small_limit_kib:0", 1, false},
        {"slack_permille:0,small_limit_kib:0,handle_mib:2", 1, false},
        {"slack_permille:0,handle_mib:16", 1, false},
        {"slack_permille:40", 1, false},
        {"slack_permille:0", 3, false}, /* of streams that are done with all they freed */
        {"", 1, true},
        {"slack_permille:0", 3, true},
        {"slack_permille:0,small_limit_kib:0,handle_mib:16", 1, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static struct program program;
        program.parts = rows[i].parts;
        program.bounded = program.grown = program.stitched = program.reached_small = 0;
        for (uint64_t seed = 1; seed <= 4; seed++)
            run_program(&program, rows[i].options, seed, rows[i].streams);
        print_message("%-50s %s grew %5lu times, %4lu of them beyond the slack, %4lu with a stitch\n",
                      rows[i].options, rows[i].parts ? "parts" : "     ", program.grown, program.bounded,
                      program.stitched);
        assert_true(program.bounded > 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserved_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
