/* SPDX-License-Identifier: Apache-2.0 */
/* Views as they go: trims that leave what live blocks use, eviction from the one used longest ago, the
 * ceiling on mappings, each driver call of a stitch refused; and that both addresses of a byte are the same
 * byte. */
#include "alloc/heap/view.h"
#include "base/log.h"
#include "tests/support/random.h"
#include "tests/unit/alloc/stitches.h"
#include <string.h>

static void open_exact(struct fixture *f)
{
    fixture_init(f);
    fixture_open(f, EXACT);
}

static bool is_mapped(CUdeviceptr address)
{
    return sim_resolve(address, NULL, NULL);
}

static void evict(struct fixture *f, uint64_t keep)
{
    sm_lock_take(&f->device->memory_lock);
    (void)sm_stitch_evict(f->device, keep, SM_TRIM_IDLE_ONLY);
    sm_lock_give(&f->device->memory_lock);
    fixture_check(f);
}

/* ---- trim ---- */

static void a_trim_takes_views_before_homes(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f);
    comb_open(&comb, &f, 6, 10 * MIB, NULL);
    CUdeviceptr block = fixture_alloc(&f, 30 * MIB, NULL);
    fixture_trim(&f); /* all of it is in use */
    assert_int_equal(sim_physical_bytes(0), 60 * MIB);
    fixture_free(&f, block);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 30 * MIB);
    assert_int_equal(f.device->heap.view_count, 0);
    assert_int_equal(fixture_level(&f, SM_LEVEL_view_bytes), 0);
    assert_false(is_mapped(block));
    comb_close(&comb, &f);
    fixture_close(&f);
}

/* Of a view in use only what its blocks use stays. */
static void a_trim_makes_views_thin(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f);
    comb_open(&comb, &f, 8, 10 * MIB, NULL);
    CUdeviceptr block = fixture_alloc(&f, 40 * MIB, NULL);
    fixture_free(&f, block);
    CUdeviceptr part = fixture_alloc(&f, 15 * MIB, NULL);
    assert_int_equal(part, block);
    uint64_t kept = handle_of(part + 12 * MIB);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 60 * MIB);
    assert_int_equal(f.device->heap.view_count, 1);
    assert_int_equal(f.device->heap.view_handles, 2);
    assert_true(is_mapped(block + 20 * MIB - 1));
    assert_false(is_mapped(block + 20 * MIB));
    assert_int_equal(handle_of(part + 12 * MIB), kept);
    expect_sound(part, 15 * MIB);
    /* The slots of the handles that went serve others; the view has nothing to do with them. */
    CUdeviceptr more = fixture_alloc(&f, 20 * MIB, NULL);
    fixture_free(&f, part);
    CUdeviceptr again = fixture_alloc(&f, 20 * MIB, NULL);
    assert_int_equal(again, block);
    CUdeviceptr other = fixture_alloc(&f, 40 * MIB, NULL);
    expect_sound(other, 40 * MIB);
    fixture_free(&f, again);
    fixture_free(&f, more);
    fixture_free(&f, other);
    comb_close(&comb, &f);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

/* The address range that a view's handle had at home went back to the driver while the view lives. */
static void a_view_outlives_a_home(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f);
    CUstream a = fixture_stream(), b = fixture_stream();
    comb_fill(&comb, &f, 4, 10 * MIB, a);
    CUdeviceptr foreign = fixture_alloc(&f, 10 * MIB, b);
    fixture_free(&f, foreign);
    comb_thin(&comb, &f);
    CUdeviceptr block = fixture_alloc(&f, 30 * MIB, a);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
    fixture_free(&f, block);
    assert_int_equal(fixture_alloc(&f, 10 * MIB, b), foreign);
    CUdeviceptr part = fixture_alloc(&f, 15 * MIB, a); /* in what is a's own */
    assert_int_equal(part, block);
    fixture_free(&f, foreign);
    int64_t addresses = fixture_level(&f, SM_LEVEL_reserved_address_bytes);
    fixture_trim(&f);
    assert_true(fixture_level(&f, SM_LEVEL_reserved_address_bytes) < addresses);
    assert_false(is_mapped(foreign));
    assert_int_equal(f.device->heap.view_handles, 2);
    /* Everything that walks the view. */
    assert_ptr_equal(sm_pool_block_of(f.device, part + MIB), sm_heap_block(&f.device->heap, part));
    assert_null(sm_pool_block_of(f.device, part + 25 * MIB));
    CUdeviceptr other = fixture_alloc(&f, 12 * MIB, a);
    fixture_free(&f, part);
    fixture_free(&f, other);
    assert_int_equal(fixture_alloc(&f, 20 * MIB, a), block);
    fixture_free(&f, block);
    comb_close(&comb, &f);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

/* Trim and request in turn: what a trim gave back is asked for again, and nothing more than that. */
static void trims_and_requests_in_turn(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f);
    comb_open(&comb, &f, 6, 10 * MIB, NULL);
    for (int i = 0; i < 20; i++) {
        CUdeviceptr block = fixture_alloc(&f, 30 * MIB, NULL);
        assert_int_equal(sim_physical_bytes(0), 60 * MIB);
        fixture_free(&f, block);
        fixture_trim(&f);
        assert_int_equal(sim_physical_bytes(0), 30 * MIB);
    }
    fixture_close(&f);
}

/* ---- eviction ---- */

static void the_view_used_longest_ago_goes_first(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    CUdeviceptr blocks[3];
    open_exact(&f);
    comb_open(&comb, &f, 19, 10 * MIB, NULL);
    for (int i = 0; i < 3; i++)
        blocks[i] = fixture_alloc(&f, 30 * MIB, NULL);
    assert_int_equal(f.device->heap.view_handles, 9);
    for (int i = 0; i < 3; i++)
        fixture_free(&f, blocks[i]);
    /* The one made last, then the one in the middle. */
    CUdeviceptr a = fixture_alloc(&f, 30 * MIB, NULL), b = fixture_alloc(&f, 30 * MIB, NULL);
    assert_int_equal(a, blocks[2]);
    assert_int_equal(b, blocks[1]);
    fixture_free(&f, a);
    fixture_free(&f, b);
    evict(&f, 9);
    assert_int_equal(f.device->heap.view_count, 3);
    evict(&f, 8);
    assert_false(is_mapped(blocks[0]));
    assert_true(is_mapped(blocks[2]));
    evict(&f, 3);
    assert_false(is_mapped(blocks[2]));
    assert_true(is_mapped(blocks[1]));
    /* A view in use stays, however many mappings are too many. */
    b = fixture_alloc(&f, 30 * MIB, NULL);
    assert_int_equal(b, blocks[1]);
    evict(&f, 1);
    assert_true(is_mapped(b));
    fixture_free(&f, b);
    comb_close(&comb, &f);
    fixture_close(&f);
}

/* A program whose sizes never repeat: views come and go, and their mappings stay below the ceiling. */
static void mappings_in_views_have_a_ceiling(void **state)
{
    (void)state;
    struct fixture f;
    struct random random = {.state = 3};
    CUdeviceptr blocks[24] = {0};
    uint64_t most = 0, stitches = 0;
    fixture_init(&f);
    fixture_open(&f, UNSLACK ",handle_mib:2");
    for (int i = 0; i < 12000; i++) {
        unsigned k = (unsigned)random_below(&random, 24);
        if (blocks[k])
            fixture_free(&f, blocks[k]);
        blocks[k] = fixture_alloc(&f, random_in(&random, 1, 20 * 2048) * 512, NULL);
        uint64_t ceiling = sm_max(256, 12 * f.device->heap.handles), in_use = 0;
        const struct sm_view *view;
        TAILQ_FOREACH(view, &f.device->heap.views, link)
            in_use += view->live ? view->count : 0;
        if (fixture_count(&f, SM_COUNTER_stitches) > stitches)
            assert_true(f.device->heap.view_handles <= sm_max(ceiling, in_use));
        stitches = fixture_count(&f, SM_COUNTER_stitches);
        most = sm_max(most, f.device->heap.view_handles);
    }
    assert_true(most > 256); /* else the ceiling was never near */
    assert_true(sim_calls("cuMemUnmap") > 100);
    fixture_close(&f);
}

/* ---- refusals ---- */

enum outcome { STITCHED, GROWN, REFUSED };

/* 33 MiB in three holes of 10 MiB; the named call fails, the nth time. */
static void expect_outcome(const char *call, uint64_t nth, bool forever, enum outcome outcome)
{
    struct fixture f;
    struct comb comb;
    struct sim_live before, after;
    open_exact(&f);
    comb_open(&comb, &f, 6, 10 * MIB, NULL);
    sim_live(&before);
    assert_true(sim_fail(call, nth, forever, CUDA_ERROR_UNKNOWN));
    CUdeviceptr block = sm_pool_alloc(f.device, 33 * MIB, NULL, &f.error);
    assert_true(sim_fail_hits() > 0);
    fixture_check(&f);
    sim_fail_clear();
    assert_int_equal(block == 0, outcome == REFUSED);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), outcome == STITCHED);
    if (outcome == REFUSED) {
        assert_int_equal(f.error.code, SEAM_E_DEVICE);
        sim_live(&after);
        assert_memory_equal(&before, &after, sizeof(before));
    }
    if (outcome != STITCHED)
        assert_int_equal(f.device->heap.view_count, 0);
    if (outcome == GROWN)
        assert_true(sim_physical_bytes(0) <= 60 * MIB + 4 * MIB + 34 * MIB);
    if (block) {
        expect_sound(block, 33 * MIB);
        fixture_free(&f, block);
    }
    /* It works again, from what is there. */
    uint64_t physical = sm_max(sim_physical_bytes(0), 64 * MIB);
    block = fixture_alloc(&f, 33 * MIB, NULL);
    assert_true(sim_physical_bytes(0) <= physical);
    fixture_free(&f, block);
    comb_close(&comb, &f);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

static void a_refused_call_is_undone_whole(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        uint64_t nth;
        bool forever;
        enum outcome outcome;
    } rows[] = {
        {"cuMemCreate", 1, false, GROWN},        {"cuMemCreate", 1, true, REFUSED},
        {"cuMemMap", 1, false, GROWN}, /* of the new memory at home */
        {"cuMemMap", 2, false, GROWN},           {"cuMemMap", 4, false, GROWN},
        {"cuMemMap", 5, false, GROWN},           {"cuMemMap", 1, true, REFUSED},
        {"cuMemSetAccess", 1, false, GROWN},     {"cuMemSetAccess", 2, false, GROWN},
        {"cuMemSetAccess", 1, true, REFUSED},    {"cuMemAddressReserve", 1, false, GROWN},
        {"cuMemAddressReserve", 1, true, GROWN},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect_outcome(rows[i].call, rows[i].nth, rows[i].forever, rows[i].outcome);
}

/* A view that can be neither finished nor undone serves nobody, and goes when the driver allows. */
static void a_view_that_cannot_be_undone(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f);
    comb_open(&comb, &f, 6, 10 * MIB, NULL);
    assert_true(sim_fail("cuMemSetAccess", 1, false, CUDA_ERROR_UNKNOWN));
    assert_true(sim_fail("cuMemUnmap", 1, true, CUDA_ERROR_UNKNOWN));
    CUdeviceptr block = fixture_alloc(&f, 30 * MIB, NULL);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 0);
    assert_int_equal(f.device->heap.view_count, 1);
    CUdeviceptr home = fixture_alloc(&f, 10 * MIB, NULL); /* the holes are free at home */
    assert_int_equal(sim_physical_bytes(0), 90 * MIB);
    fixture_free(&f, home);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 90 * MIB);
    CUdeviceptr other = fixture_alloc(&f, 30 * MIB, NULL); /* a new view, not the broken one */
    assert_int_equal(f.device->heap.view_count, 2);
    expect_sound(other, 30 * MIB);
    sim_fail_clear();
    fixture_free(&f, other);
    fixture_free(&f, block);
    comb_close(&comb, &f);
    fixture_trim(&f);
    assert_int_equal(f.device->heap.view_count, 0);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

/* Above the limit of the device's mappings a view is refused, and memory that fits is still had. */
static void mappings_run_out(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    fixture_init(&f);
    f.sim.mappings_max = 8;
    fixture_open(&f, EXACT);
    comb_open(&comb, &f, 6, 10 * MIB, NULL);
    CUdeviceptr block = fixture_alloc(&f, 30 * MIB, NULL); /* 6 at home; 3 more in a view are too many */
    assert_int_equal(sim_physical_bytes(0), 90 * MIB);
    fixture_free(&f, block);
    block = fixture_alloc(&f, 30 * MIB, NULL);
    fixture_free(&f, block);
    comb_close(&comb, &f);
    fixture_trim(&f);
    fixture_close(&f);
}

/* ---- contents ---- */

static void write_pattern(CUdeviceptr at, uint64_t size, uint32_t seed)
{
    static uint32_t words[MIB / 4];
    for (uint64_t done = 0; done < size; done += sizeof(words)) {
        uint64_t step = sm_min(size - done, sizeof(words));
        for (uint64_t i = 0; i < step / 4; i++)
            words[i] = seed ^ (uint32_t)((done >> 2) + i) * 2654435761u;
        assert_int_equal(cuMemcpyHtoD(at + done, words, step), CUDA_SUCCESS);
    }
}

/* A byte range, read through one address, against the pattern at `done` bytes into it. */
static void read_pattern(CUdeviceptr at, uint64_t size, uint64_t done, uint32_t seed)
{
    static uint32_t words[MIB / 4];
    for (uint64_t end = done + size; done < end;) {
        uint64_t step = sm_min(end - done, sizeof(words));
        assert_int_equal(cuMemcpyDtoH(words, at, step), CUDA_SUCCESS);
        for (uint64_t i = 0; i < step / 4; i++)
            if (words[i] != (seed ^ (uint32_t)((done >> 2) + i) * 2654435761u))
                fail_msg("another word at %#lx", done + i * 4);
        done += step;
        at += step;
    }
}

/* What was written through a view is at home when its memory serves there, and the other way round. */
static void both_addresses_mean_one_byte(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    CUdeviceptr home[3];
    fixture_init(&f);
    f.sim.device_bytes = 128 * MIB;
    f.sim.backed = true;
    fixture_open(&f, EXACT);
    comb_open(&comb, &f, 5, 4 * MIB, NULL);
    for (unsigned i = 1; i < 5; i += 2)
        write_pattern(comb.teeth[i], 4 * MIB, i);
    CUdeviceptr block = fixture_alloc(&f, 14 * MIB, NULL);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
    write_pattern(block, 14 * MIB, 77);
    read_pattern(block, 14 * MIB, 0, 77);
    struct {
        uint64_t handle, at;
    } seen[4];
    for (unsigned k = 0, n = 0; k < 14; k += 2) /* where each handle begins in the block */
        if (!offset_of(block + k * MIB) && n < 4) {
            seen[n].handle = handle_of(block + k * MIB);
            seen[n++].at = k * MIB;
        }
    fixture_free(&f, block);
    for (unsigned i = 0; i < 3; i++) {
        home[i] = fixture_alloc(&f, 4 * MIB, NULL);
        for (unsigned n = 0; n < 4; n++)
            if (seen[n].handle == handle_of(home[i]))
                read_pattern(home[i], sm_min(4 * MIB, 14 * MIB - seen[n].at), seen[n].at, 77);
        write_pattern(home[i], 4 * MIB, 100 + i);
    }
    /* The neighbours are untouched. */
    for (unsigned i = 1; i < 5; i += 2)
        read_pattern(comb.teeth[i], 4 * MIB, 0, i);
    uint64_t handles[3];
    for (unsigned i = 0; i < 3; i++) {
        handles[i] = handle_of(home[i]);
        fixture_free(&f, home[i]);
    }
    assert_int_equal(fixture_alloc(&f, 14 * MIB, NULL), block);
    for (unsigned n = 0; n < 4; n++)
        for (unsigned i = 0; i < 3; i++)
            if (seen[n].handle == handles[i])
                read_pattern(block + seen[n].at, sm_min(4 * MIB, 14 * MIB - seen[n].at), 0, 100 + i);
    fixture_close(&f);
}

/* The peak's parts add up though memory was created in the middle of a stitch. */
static void the_parts_at_the_peak_add_up(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f);
    comb_open(&comb, &f, 6, 10 * MIB, NULL);
    fixture_alloc(&f, 50 * MIB, NULL);
    int64_t sum = 0;
    for (int i = 0; i < SM_PART_COUNT; i++)
        sum += f.device->heap.parts.bytes[i];
    assert_int_equal(sum, 80 * MIB);
    assert_int_equal(f.device->heap.parts.bytes[SM_PART_fenced], 0);
    assert_int_equal(f.device->heap.parts.bytes[SM_PART_requested_live], 80 * MIB);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trim_takes_views_before_homes),
        cmocka_unit_test(a_trim_makes_views_thin),
        cmocka_unit_test(a_view_outlives_a_home),
        cmocka_unit_test(trims_and_requests_in_turn),
        cmocka_unit_test(the_view_used_longest_ago_goes_first),
        cmocka_unit_test(mappings_in_views_have_a_ceiling),
        cmocka_unit_test(a_refused_call_is_undone_whole),
        cmocka_unit_test(a_view_that_cannot_be_undone),
        cmocka_unit_test(mappings_run_out),
        cmocka_unit_test(both_addresses_mean_one_byte),
        cmocka_unit_test(the_parts_at_the_peak_add_up),
    };
    sm_log_set_level(SM_LOG_ERROR); /* refused calls are what this is about */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
