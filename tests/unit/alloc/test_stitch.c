/* SPDX-License-Identifier: Apache-2.0 */
/* Stitching: one block from several free ranges, with no more new memory than is missing; what may be
 * stitched and what may not; memory of other streams; views that serve again. The device's own table says
 * which handle lies where. */
#include "tests/unit/alloc/stitches.h"
#include <string.h>

static void open_exact(struct fixture *f, const char *options)
{
    fixture_init(f);
    fixture_open(f, options);
}

static void open_lagging(struct fixture *f, const char *options)
{
    fixture_init(f);
    f->sim.streams = SIM_STREAMS_LAG;
    f->sim.lag = 1u << 30;
    fixture_open(f, options);
}

static void run(CUstream stream)
{
    assert_int_equal(sim_stream_run(stream), CUDA_SUCCESS);
}

/* ---- pieces ---- */

static void holes_become_one_block(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f, EXACT);
    comb_open(&comb, &f, 5, 10 * MIB, NULL);
    struct calls before = calls_now();
    CUdeviceptr block = fixture_alloc(&f, 30 * MIB, NULL);
    expect_calls(&before, 1, 0, 3, 1);
    expect_sound(block, 30 * MIB);
    assert_int_equal(sim_physical_bytes(0), 50 * MIB);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
    assert_int_equal(fixture_count(&f, SM_COUNTER_pieces), 3);
    assert_int_equal(fixture_count(&f, SM_COUNTER_borrows), 0);
    assert_int_equal(fixture_level(&f, SM_LEVEL_view_bytes), 30 * MIB);
    assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), 50 * MIB);
    unsigned found = 0;
    for (unsigned i = 0; i < 5; i += 2)
        for (unsigned k = 0; k < 3; k++)
            found += handle_of(block + k * 10 * MIB) == comb.handles[i];
    assert_int_equal(found, 3);
    fixture_free(&f, block);
    /* At home the same memory serves again, where it was. */
    for (unsigned i = 0; i < 5; i += 2)
        assert_int_equal(handle_of(fixture_alloc(&f, 10 * MIB, NULL)), comb.handles[i]);
    assert_int_equal(sim_physical_bytes(0), 50 * MIB);
    fixture_close(&f);
}

static void no_more_is_created_than_is_missing(void **state)
{
    (void)state;
    static const struct {
        uint64_t size, created;
    } rows[] = {{30 * MIB - 512, 0},     {30 * MIB + 512, 2 * MIB}, {32 * MIB, 2 * MIB},
                {32 * MIB + 1, 4 * MIB}, {45 * MIB, 16 * MIB},      {100 * MIB + 512, 72 * MIB},
                {11 * MIB, 0},           {20 * MIB + 512, 0},       {130 * MIB, 100 * MIB}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        struct comb comb;
        open_exact(&f, EXACT);
        /* The last tooth is live, so that nothing free ends where memory grows. */
        comb_open(&comb, &f, 6, 10 * MIB, NULL);
        CUdeviceptr block = fixture_alloc(&f, rows[i].size, NULL);
        assert_int_equal(sim_physical_bytes(0), 60 * MIB + rows[i].created);
        assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
        assert_int_equal(sim_physical_bytes_peak(0), sim_physical_bytes(0));
        expect_sound(block, rows[i].size);
        fixture_free(&f, block);
        comb_close(&comb, &f);
        fixture_trim(&f);
        assert_int_equal(sim_physical_bytes(0), 0);
        fixture_close(&f);
    }
}

/* One handle of 20 MiB, its middle live: the part before it could only end a block, the part behind it only
 * begin one, and a view that holds the handle for both would hold it twice. */
static void two_ends_never_share_a_handle(void **state)
{
    (void)state;
    struct fixture f;
    open_exact(&f, EXACT);
    CUdeviceptr whole = fixture_alloc(&f, 20 * MIB, NULL);
    uint64_t handle = handle_of(whole);
    fixture_free(&f, whole);
    CUdeviceptr a = fixture_alloc(&f, 6 * MIB, NULL), b = fixture_alloc(&f, 8 * MIB, NULL);
    CUdeviceptr c = fixture_alloc(&f, 6 * MIB, NULL), fence = fixture_alloc(&f, 2 * MIB, NULL);
    assert_int_equal(handle_of(c), handle);
    fixture_free(&f, a);
    fixture_free(&f, c);
    CUdeviceptr block = fixture_alloc(&f, 12 * MIB, NULL);
    assert_int_equal(sim_physical_bytes(0), 22 * MIB + 6 * MIB);
    expect_sound(block, 12 * MIB);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
    /* A later run over the whole view meets each byte once. */
    fixture_free(&f, block);
    fixture_free(&f, b);
    expect_sound(fixture_alloc(&f, 24 * MIB, NULL), 24 * MIB);
    (void)fence;
    fixture_close(&f);
}

/* The first piece begins inside its handle and ends with it; the last begins with its handle. */
static void the_ends_may_lie_inside_handles(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f, EXACT);
    comb_open(&comb, &f, 6, 10 * MIB, NULL);
    CUdeviceptr low[3];
    for (unsigned i = 0; i < 2; i++)
        low[i] = fixture_alloc(&f, 3 * MIB + 512, NULL); /* holes of 4 and 10, or of 7, 7 and 10 MiB */
    struct calls before = calls_now();
    uint64_t rest = 30 * MIB - 2 * (3 * MIB + 512);
    CUdeviceptr block = fixture_alloc(&f, rest, NULL);
    expect_calls(&before, 1, 0, 3, 1);
    expect_sound(block, rest);
    assert_int_equal(offset_of(block + rest - 1), 10 * MIB - 1);
    low[2] = low[0];
    fixture_free(&f, low[2]);
    fixture_free(&f, low[1]);
    fixture_free(&f, block);
    comb_close(&comb, &f);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

/* ---- reuse ---- */

static void a_view_serves_again_without_the_driver(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f, EXACT);
    comb_open(&comb, &f, 7, 10 * MIB, NULL);
    CUdeviceptr block = fixture_alloc(&f, 40 * MIB, NULL);
    struct calls before = calls_now();
    for (int i = 0; i < 100; i++) {
        fixture_free(&f, block);
        assert_int_equal(fixture_alloc(&f, 40 * MIB, NULL), block);
    }
    assert_int_equal(fixture_count(&f, SM_COUNTER_view_hits), 100);
    fixture_free(&f, block);
    /* Two smaller blocks side by side in the same view; then its rest is no more than one handle. */
    CUdeviceptr a = fixture_alloc(&f, 15 * MIB, NULL), b = fixture_alloc(&f, 24 * MIB, NULL);
    assert_int_equal(a, block);
    assert_int_equal(b, block + 15 * MIB);
    expect_calls(&before, 0, 0, 0, 0);
    assert_int_equal(fixture_count(&f, SM_COUNTER_view_hits), 102);
    fixture_free(&f, a);
    assert_int_equal(fixture_alloc(&f, 15 * MIB, NULL), block);
    expect_calls(&before, 0, 0, 0, 0);
    fixture_close(&f);
}

/* Free bytes at home come first, and a view whose handles serve at home has no run any more. */
static void memory_used_at_home_is_not_in_a_view_too(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_exact(&f, EXACT);
    comb_open(&comb, &f, 6, 10 * MIB, NULL);
    CUdeviceptr block = fixture_alloc(&f, 30 * MIB, NULL);
    fixture_free(&f, block);
    CUdeviceptr home = fixture_alloc(&f, 512, NULL);
    uint64_t physical = sim_physical_bytes(0);
    CUdeviceptr other = fixture_alloc(&f, 30 * MIB, NULL);
    assert_int_not_equal(other, block);
    assert_int_equal(sim_physical_bytes(0), physical + 2 * MIB);
    for (uint64_t at = 0; at < 30 * MIB; at += MIB / 2)
        assert_false(handle_of(other + at) == handle_of(home) && offset_of(other + at) == offset_of(home));
    fixture_close(&f);
}

/* ---- streams ---- */

static void a_stitched_block_waits_for_its_users(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_lagging(&f, EXACT);
    CUstream m = fixture_stream(), s = fixture_stream();
    comb_open(&comb, &f, 6, 10 * MIB, m);
    CUdeviceptr block = fixture_alloc(&f, 30 * MIB, m);
    fixture_work(m, block, 30 * MIB);
    fixture_use(&f, block, s);
    run(m);
    fixture_work(s, block, 30 * MIB);
    fixture_free(&f, block);
    assert_int_equal(fixture_level(&f, SM_LEVEL_active_bytes), 60 * MIB);
    assert_int_equal(fixture_level(&f, SM_LEVEL_allocated_bytes), 30 * MIB);
    assert_int_equal(f.device->heap.parts.bytes[SM_PART_pending], 30 * MIB);
    /* Neither the view nor the home may serve while s works. */
    CUdeviceptr a = fixture_alloc(&f, 10 * MIB, m), b = fixture_alloc(&f, 30 * MIB, m);
    fixture_work(m, a, 10 * MIB);
    fixture_work(m, b, 30 * MIB);
    assert_int_equal(sim_physical_bytes(0), 100 * MIB);
    run(s);
    assert_int_equal(fixture_alloc(&f, 30 * MIB, m), block);
    run(m);
    fixture_close(&f);
}

/* A borrowed range: its own stream is asked first, and has it back when the borrower is done. */
static void a_range_of_another_stream(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, EXACT);
    CUstream a = fixture_stream(), b = fixture_stream();
    CUdeviceptr block = fixture_alloc(&f, 20 * MIB, a);
    fixture_work(a, block, 20 * MIB);
    fixture_free(&f, block);
    CUdeviceptr other = fixture_alloc(&f, 16 * MIB, b); /* a is at work */
    assert_int_not_equal(other, block);
    assert_int_equal(sim_physical_bytes(0), 36 * MIB);
    run(a);
    CUdeviceptr lent = fixture_alloc(&f, 16 * MIB, b);
    assert_int_equal(lent, block);
    assert_int_equal(sim_physical_bytes(0), 36 * MIB);
    assert_int_equal(fixture_count(&f, SM_COUNTER_borrows), 1);
    fixture_work(b, lent, 16 * MIB);
    fixture_free(&f, lent);
    assert_int_equal(f.device->heap.parts.bytes[SM_PART_pending], 16 * MIB);
    CUdeviceptr again = fixture_alloc(&f, 20 * MIB, a); /* b is at work */
    fixture_work(a, again, 20 * MIB);
    assert_int_not_equal(again, block);
    run(b);
    CUdeviceptr back = fixture_alloc(&f, 16 * MIB, a);
    assert_int_equal(back, block);
    fixture_work(a, back, 16 * MIB);
    run(a);
    fixture_close(&f);
}

/* What the lender's stream does with a borrowed block is a use by another stream. */
static void a_lender_uses_what_it_lent(void **state)
{
    (void)state;
    for (int stitched = 0; stitched < 2; stitched++) {
        struct fixture f;
        struct comb comb;
        open_lagging(&f, EXACT);
        CUstream a = fixture_stream(), b = fixture_stream();
        comb_open(&comb, &f, 5, 10 * MIB, a);
        uint64_t size = stitched ? 30 * MIB : 10 * MIB, physical = sim_physical_bytes(0);
        CUdeviceptr lent = fixture_alloc(&f, size, b);
        assert_int_equal(sim_physical_bytes(0), physical);
        assert_int_equal(fixture_count(&f, SM_COUNTER_borrows), 1);
        fixture_use(&f, lent, a);
        fixture_work(a, lent, size);
        fixture_free(&f, lent);
        run(b);
        CUdeviceptr other = fixture_alloc(&f, size, b); /* a is at work in the first */
        fixture_work(b, other, size);
        assert_int_equal(f.device->heap.parts.bytes[SM_PART_pending], size);
        run(a);
        run(b);
        fixture_close(&f);
    }
}

/* Half of the memory is another stream's. */
static void a_block_from_two_streams(void **state)
{
    (void)state;
    struct fixture f;
    struct comb own, foreign;
    open_lagging(&f, EXACT);
    CUstream a = fixture_stream(), b = fixture_stream();
    comb_fill(&own, &f, 4, 10 * MIB, a);
    comb_fill(&foreign, &f, 4, 10 * MIB, b);
    comb_thin(&own, &f);
    comb_thin(&foreign, &f);
    CUdeviceptr block = fixture_alloc(&f, 40 * MIB, a);
    assert_int_equal(sim_physical_bytes(0), 80 * MIB);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
    assert_int_equal(fixture_count(&f, SM_COUNTER_borrows), 1);
    expect_sound(block, 40 * MIB);
    fixture_work(a, block, 40 * MIB);
    fixture_free(&f, block);
    /* All of it waits for a, also what is b's: work of b there now would break a rule of the device. */
    CUdeviceptr c = fixture_alloc(&f, 10 * MIB, b);
    fixture_work(b, c, 10 * MIB);
    assert_int_equal(sim_physical_bytes(0), 90 * MIB);
    run(a);
    run(b);
    CUdeviceptr d = fixture_alloc(&f, 10 * MIB, b);
    fixture_work(b, d, 10 * MIB);
    assert_int_equal(sim_physical_bytes(0), 90 * MIB);
    run(b);
    fixture_free(&f, d);
    struct calls before = calls_now();
    sm_lock_take(&f.device->memory_lock);
    struct sm_request asked = {.device = f.device}; /* so that both are known to be done */
    sm_stitch_refresh(&asked);
    sm_lock_give(&f.device->memory_lock);
    assert_int_equal(fixture_alloc(&f, 40 * MIB, a), block); /* the view again, with its fence */
    assert_int_equal(fixture_count(&f, SM_COUNTER_borrows), 2);
    expect_calls(&before, 0, 0, 0, 0);
    fixture_close(&f);
}

static void a_lender_at_work_is_passed_over(void **state)
{
    (void)state;
    struct fixture f;
    struct comb own, foreign;
    open_lagging(&f, EXACT);
    CUstream a = fixture_stream(), b = fixture_stream();
    comb_fill(&own, &f, 4, 10 * MIB, a);
    comb_fill(&foreign, &f, 4, 10 * MIB, b);
    comb_thin(&own, &f);
    comb_thin(&foreign, &f);
    CUdeviceptr x = fixture_alloc(&f, 10 * MIB, b);
    fixture_work(b, x, 10 * MIB);
    fixture_free(&f, x);
    CUdeviceptr block = fixture_alloc(&f, 40 * MIB, a);
    fixture_work(a, block, 40 * MIB);
    assert_int_equal(sim_physical_bytes(0), 100 * MIB);
    assert_int_equal(fixture_count(&f, SM_COUNTER_borrows), 0);
    run(a);
    run(b);
    fixture_close(&f);
}

static void nothing_is_lent_when_that_is_off(void **state)
{
    (void)state;
    struct fixture f;
    struct comb foreign;
    open_exact(&f, EXACT ",lending:off");
    CUstream a = fixture_stream(), b = fixture_stream();
    comb_open(&foreign, &f, 8, 10 * MIB, b);
    fixture_alloc(&f, 10 * MIB, a);
    fixture_alloc(&f, 40 * MIB, a);
    assert_int_equal(sim_physical_bytes(0), 130 * MIB);
    assert_int_equal(fixture_count(&f, SM_COUNTER_borrows), 0);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 0);
    /* A stream's own memory is stitched all the same. */
    fixture_alloc(&f, 40 * MIB, b);
    assert_int_equal(sim_physical_bytes(0), 130 * MIB);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
    fixture_close(&f);
}

/* A view made by one stream, with a run that another may use: it may be unmapped only when both are done. */
static void a_view_used_by_two_streams(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    open_lagging(&f, EXACT);
    CUstream a = fixture_stream(), b = fixture_stream();
    comb_open(&comb, &f, 6, 10 * MIB, a);
    CUdeviceptr block = fixture_alloc(&f, 30 * MIB, a);
    fixture_work(a, block, 30 * MIB);
    fixture_free(&f, block);
    run(a);
    sm_lock_take(&f.device->memory_lock);
    struct sm_request asked = {.device = f.device};
    sm_stitch_refresh(&asked);
    sm_lock_give(&f.device->memory_lock);
    CUdeviceptr other = fixture_alloc(&f, 30 * MIB, b);
    assert_int_equal(other, block);
    fixture_work(b, other, 30 * MIB);
    fixture_free(&f, other);
    sm_lock_take(&f.device->memory_lock);
    assert_int_equal(sm_trim(f.device, UINT64_MAX, SM_TRIM_IDLE_ONLY, NULL), 0);
    sm_lock_give(&f.device->memory_lock);
    assert_int_equal(sim_physical_bytes(0), 60 * MIB);
    assert_true(sim_accessible(block, 0));
    run(b);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 30 * MIB);
    assert_int_equal(fixture_level(&f, SM_LEVEL_view_bytes), 0);
    fixture_close(&f);
}

/* Two streams each use their own half of one view; that the one used last is done says nothing of the other.
 */
static void a_view_waits_for_all_that_used_it(void **state)
{
    (void)state;
    struct fixture f;
    struct comb own, foreign;
    open_lagging(&f, EXACT);
    CUstream a = fixture_stream(), b = fixture_stream();
    comb_fill(&own, &f, 4, 10 * MIB, a);
    comb_fill(&foreign, &f, 4, 10 * MIB, b);
    comb_thin(&own, &f);
    comb_thin(&foreign, &f);
    CUdeviceptr block = fixture_alloc(&f, 40 * MIB, a);
    fixture_free(&f, block);
    run(a);
    CUdeviceptr low = fixture_alloc(&f, 15 * MIB, a);
    assert_int_equal(low, block);
    fixture_work(a, low, 15 * MIB);
    fixture_free(&f, low);
    CUdeviceptr high = fixture_alloc(&f, 15 * MIB, b);
    assert_int_equal(high, block + 20 * MIB);
    fixture_work(b, high, 15 * MIB);
    fixture_free(&f, high);
    run(b);
    sm_lock_take(&f.device->memory_lock);
    assert_false(sm_stitch_evict(f.device, 0, SM_TRIM_IDLE_ONLY));
    sm_lock_give(&f.device->memory_lock);
    assert_true(sim_accessible(block, 0));
    fixture_trim(&f); /* waits */
    assert_int_equal(f.device->heap.view_count, 0);
    assert_int_equal(sim_physical_bytes(0), 40 * MIB);
    fixture_close(&f);
}

/* ---- what is never stitched ---- */

static void who_is_never_stitched(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        uint64_t size, pieces_of;
        bool pool;
    } rows[] = {{"slack_permille:0,small_limit_kib:20480", 15 * MIB, 5 * MIB, false},
                {EXACT ",max_split_size_mb:200", 30 * MIB, 10 * MIB, false},
                {EXACT, 30 * MIB, 10 * MIB, true},
                {"policy:expandable", 30 * MIB, 20 * MIB, false},
                {"policy:native", 30 * MIB, 20 * MIB, false},
                {EXACT, 6 * MIB, 2 * MIB, false}}; /* so little is cheaper to grow */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const seam_pool_id id = {5, 5};
        struct fixture f;
        CUdeviceptr blocks[6];
        open_exact(&f, rows[i].options);
        fixture_device(&f, 0);
        if (rows[i].pool)
            assert_int_equal(sm_capture_begin(f.device, id, NULL, NULL, &f.error), SEAM_OK);
        for (int k = 0; k < 6; k++)
            blocks[k] = fixture_alloc(&f, rows[i].pieces_of, NULL);
        for (int k = 0; k < 6; k += 2)
            fixture_free(&f, blocks[k]);
        /* Several, as the small class may have had room for one. */
        uint64_t physical = sim_physical_bytes(0);
        for (uint64_t at = 0; at < 30 * MIB; at += rows[i].size)
            fixture_alloc(&f, rows[i].size, NULL);
        assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 0);
        assert_int_equal(fixture_level(&f, SM_LEVEL_view_bytes), 0);
        assert_true(sim_physical_bytes(0) > physical);
        if (rows[i].pool) {
            /* Nor does the default pool take from a private one. */
            assert_int_equal(sm_capture_end(f.device, id, &f.error), SEAM_OK);
            physical = sim_physical_bytes(0);
            fixture_alloc(&f, 30 * MIB, NULL);
            assert_int_equal(sim_physical_bytes(0), physical + 30 * MIB);
            assert_int_equal(sm_capture_release(f.device, id, &f.error), SEAM_OK);
        }
        fixture_close(&f);
    }
}

/* Below the peak of live bytes growth costs nothing that was not paid before. */
static void below_the_peak_memory_grows(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr blocks[6];
    open_exact(&f, "small_limit_kib:0");
    CUdeviceptr peak = fixture_alloc(&f, 200 * MIB, NULL);
    fixture_free(&f, peak);
    fixture_trim(&f);
    for (int i = 0; i < 6; i++)
        blocks[i] = fixture_alloc(&f, 10 * MIB, NULL);
    for (int i = 0; i < 6; i += 2)
        fixture_free(&f, blocks[i]);
    fixture_alloc(&f, 34 * MIB, NULL);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 0);
    assert_true(sim_physical_bytes_peak(0) <= 200 * MIB);
    fixture_close(&f);
}

/* ---- no room ---- */

static void a_full_device_is_served_by_stitching(void **state)
{
    (void)state;
    struct fixture f;
    struct comb comb;
    fixture_init(&f);
    f.sim.device_bytes = 64 * MIB;
    fixture_open(&f, EXACT);
    CUdeviceptr rest = fixture_alloc(&f, 48 * MIB, NULL);
    comb_open(&comb, &f, 8, 2 * MIB, NULL);
    /* Too small to be stitched while the device has memory. */
    CUdeviceptr block = fixture_alloc(&f, 6 * MIB, NULL);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
    assert_int_equal(fixture_count(&f, SM_COUNTER_num_ooms), 0);
    expect_sound(block, 6 * MIB);
    fixture_refuse(&f, 4 * MIB, NULL, SEAM_E_DEVICE_OOM);
    fixture_alloc(&f, 2 * MIB, NULL);
    (void)rest;
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holes_become_one_block),
        cmocka_unit_test(no_more_is_created_than_is_missing),
        cmocka_unit_test(two_ends_never_share_a_handle),
        cmocka_unit_test(the_ends_may_lie_inside_handles),
        cmocka_unit_test(a_view_serves_again_without_the_driver),
        cmocka_unit_test(memory_used_at_home_is_not_in_a_view_too),
        cmocka_unit_test(a_stitched_block_waits_for_its_users),
        cmocka_unit_test(a_range_of_another_stream),
        cmocka_unit_test(a_lender_uses_what_it_lent),
        cmocka_unit_test(a_block_from_two_streams),
        cmocka_unit_test(a_lender_at_work_is_passed_over),
        cmocka_unit_test(nothing_is_lent_when_that_is_off),
        cmocka_unit_test(a_view_used_by_two_streams),
        cmocka_unit_test(a_view_waits_for_all_that_used_it),
        cmocka_unit_test(who_is_never_stitched),
        cmocka_unit_test(below_the_peak_memory_grows),
        cmocka_unit_test(a_full_device_is_served_by_stitching),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
