/* SPDX-License-Identifier: Apache-2.0 */
/* Where the driver maps any part of a handle: found by trying when a device is set up, and then holes inside
 * one handle are stitched, granules alone being mapped. */
#include "tests/unit/alloc/stitches.h"

static void open_device(struct fixture *f, const char *options, bool maps_parts)
{
    fixture_init(f);
    f->sim.partial = maps_parts ? SIM_PARTIAL_INNER : SIM_PARTIAL_WHOLE;
    fixture_open(f, options);
    fixture_device(f, 0);
}

/* One handle of 96 MiB; blocks of 9 MiB in it, every other one free, and 6 MiB at the end. */
static void open_comb_in_a_handle(struct fixture *f, CUdeviceptr *teeth)
{
    CUdeviceptr whole = fixture_alloc(f, 96 * MIB, NULL);
    uint64_t handle = handle_of(whole);
    fixture_free(f, whole);
    for (unsigned i = 0; i < 10; i++) {
        teeth[i] = fixture_alloc(f, 9 * MIB, NULL);
        assert_int_equal(handle_of(teeth[i]), handle);
    }
    for (unsigned i = 0; i < 10; i += 2)
        fixture_free(f, teeth[i]);
}

static void trying_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        bool maps_parts, found;
    } rows[] = {{"", false, false},
                {"", true, true},
                {"map_parts:False", true, false},
                {"policy:expandable", true, false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        struct sim_live live;
        open_device(&f, rows[i].options, rows[i].maps_parts);
        assert_int_equal(f.device->heap.parts_map, rows[i].found);
        sim_live(&live);
        assert_int_equal(live.handles + live.mappings + live.reserved_bytes, 0);
        assert_int_equal(sim_physical_bytes(0), 0);
        assert_int_equal(sim_violation_count(), 0);
        fixture_close(&f);
    }
}

static void holes_of_one_handle_become_a_block(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr teeth[10];
    open_device(&f, EXACT, true);
    open_comb_in_a_handle(&f, teeth);
    /* Four holes give 8 MiB each, the last gives 9: 40 MiB without new memory, in 5 mappings. */
    struct calls before = calls_now();
    CUdeviceptr block = fixture_alloc(&f, 40 * MIB, NULL);
    expect_calls(&before, 1, 0, 5, 1);
    expect_sound(block, 40 * MIB);
    assert_int_equal(sim_physical_bytes(0), 96 * MIB);
    assert_int_equal(fixture_level(&f, SM_LEVEL_view_bytes), 40 * MIB);
    fixture_check(&f);
    /* The view serves again, from inside it too. */
    fixture_free(&f, block);
    before = calls_now();
    block = fixture_alloc(&f, 40 * MIB, NULL);
    fixture_free(&f, block);
    block = fixture_alloc(&f, 33 * MIB, NULL);
    expect_sound(block, 33 * MIB);
    expect_calls(&before, 0, 0, 0, 0);
    fixture_close(&f);
}

static void without_it_whole_handles_alone_are_joined(void **state)
{
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct fixture f;
        CUdeviceptr teeth[10];
        open_device(&f, off ? EXACT ",map_parts:False" : EXACT, off);
        open_comb_in_a_handle(&f, teeth);
        CUdeviceptr block = fixture_alloc(&f, 40 * MIB, NULL);
        expect_sound(block, 40 * MIB);
        assert_true(sim_physical_bytes(0) >= 96 * MIB + 30 * MIB);
        fixture_close(&f);
    }
}

/* A first piece that begins, and a last one that ends, inside a granule beside live bytes: never the same. */
static void ends_share_no_granule(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr teeth[32];
    open_device(&f, EXACT, true);
    fixture_free(&f, fixture_alloc(&f, 96 * MIB, NULL));
    for (unsigned i = 0; i < 32; i++)
        teeth[i] = fixture_alloc(&f, 3 * MIB, NULL);
    for (unsigned i = 0; i < 32; i++)
        if (i % 8 != 3)
            fixture_free(&f, teeth[i]);
    for (uint64_t size = 22; size <= 80; size += 3) {
        CUdeviceptr block = fixture_alloc(&f, size * MIB + 512, NULL);
        expect_sound(block, size * MIB + 512);
        fixture_check(&f);
        fixture_free(&f, block);
    }
    assert_true(fixture_count(&f, SM_COUNTER_stitches) > 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trying_leaves_nothing),
        cmocka_unit_test(holes_of_one_handle_become_a_block),
        cmocka_unit_test(without_it_whole_handles_alone_are_joined),
        cmocka_unit_test(ends_share_no_granule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
