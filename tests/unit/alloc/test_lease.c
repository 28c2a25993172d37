/* SPDX-License-Identifier: Apache-2.0 */
/* Leased homes change nothing but the time a hit takes: two devices get the same requests, one leases its
 * homes at every hit, the other never does. Blocks lie in the same places, and every figure is the same
 * whenever somebody looks: levels with their peaks and totals, counters, parts, phases. */
#include "stats/internal.h"
#include "tests/support/fixture.h"
#include "tests/support/random.h"
#include <stdlib.h>
#include <string.h>

#define STREAMS 3
#define BLOCKS  160
#define LOOKS   200
#define REPORT  (1 << 17)

enum { LEASED, PLAIN, SIDES };

static struct {
    struct fixture f;
    struct random random;
    struct sm_device *devices[SIDES];
    CUstream streams[SIDES][STREAMS];
    uint64_t blocks[SIDES][BLOCKS];
    unsigned depth;
    uint64_t window;
    char reports[SIDES][REPORT];
} twin;

static void open_twin(const char *options)
{
    memset(&twin, 0, sizeof(twin));
    twin.random.state = 7;
    fixture_init(&twin.f);
    twin.f.sim.devices = SIDES;
    twin.f.sim.granularity = 64 * SM_KIB;
    fixture_open(&twin.f, options);
    for (int side = 0; side < SIDES; side++) {
        twin.devices[side] = fixture_device(&twin.f, side);
        twin.devices[side]->lease_after = side == LEASED ? 0 : UINT32_MAX;
        assert_int_equal(cuCtxSetCurrent(twin.f.contexts[side]), CUDA_SUCCESS);
        for (int i = 0; i < STREAMS; i++)
            twin.streams[side][i] = fixture_stream();
    }
    assert_int_equal(cuCtxSetCurrent(twin.f.contexts[0]), CUDA_SUCCESS);
}

static void request(size_t at)
{
    uint64_t size = random_in(&twin.random, 1, 3 << random_below(&twin.random, 20));
    uint64_t stream = random_below(&twin.random, STREAMS);
    for (int side = 0; side < SIDES; side++) {
        uint64_t *block = &twin.blocks[side][at];
        if (*block)
            assert_int_equal(sm_pool_free(twin.devices[side], *block), SEAM_OK);
        *block = sm_pool_alloc(twin.devices[side], size, twin.streams[side][stream], &twin.f.error);
        assert_true(*block);
    }
}

static void give_back(size_t at)
{
    for (int side = 0; side < SIDES; side++) {
        if (twin.blocks[side][at])
            assert_int_equal(sm_pool_free(twin.devices[side], twin.blocks[side][at]), SEAM_OK);
        twin.blocks[side][at] = 0;
    }
}

static void use_elsewhere(size_t at)
{
    uint64_t stream = random_below(&twin.random, STREAMS);
    for (int side = 0; side < SIDES; side++)
        if (twin.blocks[side][at])
            assert_int_equal(sm_pool_record_stream(twin.devices[side], twin.blocks[side][at],
                                                   twin.streams[side][stream], &twin.f.error),
                             SEAM_OK);
}

static void cross_a_boundary(void)
{
    static const char *const names[] = {"forward", "backward", "step"};
    struct sm_allocator *allocator = twin.f.allocator;
    switch (random_below(&twin.random, 4)) {
    case 0:
        twin.depth +=
            sm_allocator_phase_push(allocator, names[random_below(&twin.random, 3)], false, NULL) == SEAM_OK;
        break;
    case 1:
        twin.depth -= sm_allocator_phase_pop(allocator, false, NULL) == SEAM_OK;
        break;
    case 2:
        if (!twin.window)
            assert_int_equal(sm_allocator_window_open(allocator, "look", &twin.window, NULL), SEAM_OK);
        break;
    default:
        if (twin.window)
            assert_int_equal(sm_allocator_window_close(allocator, twin.window, NULL), SEAM_OK);
        twin.window = 0;
    }
}

static void reset(void)
{
    for (int side = 0; side < SIDES; side++) {
        sm_lock_take(&twin.devices[side]->heap_lock);
        sm_stats_reset_peaks(twin.devices[side]->stats);
        sm_lock_give(&twin.devices[side]->heap_lock);
    }
}

/* Where a block lies in its extent, or in its view. */
static uint64_t place_of(int side, size_t at)
{
    const struct sm_block *block = sm_heap_block(&twin.devices[side]->heap, twin.blocks[side][at]);
    assert_non_null(block);
    return block->address - block->extent->base;
}

static void write_report(int side)
{
    struct sm_report_facts facts = {
        .device_name = "", .policy = "", .settings = "", .host_memory_source = ""};
    struct sm_emit emit;
    twin.devices[side]->stats->device = 0;
    sm_emit_begin(&emit, SM_EMIT_JSON, twin.reports[side], REPORT);
    sm_stats_emit(twin.devices[side]->stats, &facts, &emit, NULL, 0);
    assert_true(sm_emit_end(&emit) < REPORT);
}

static void compare_levels(void)
{
    for (unsigned level = 0; level < SM_LEVEL_COUNT; level++)
        for (unsigned kind = 0; kind < SM_KIND_COUNT; kind++) {
            const struct sm_level *a = sm_stats_level(twin.devices[LEASED]->stats, (enum sm_level_id)level,
                                                      kind),
                                  *b = sm_stats_level(twin.devices[PLAIN]->stats, (enum sm_level_id)level,
                                                      kind);
            if (memcmp(a, b, sizeof(*a)))
                fail_msg(
                    "level %u of kind %u is %ld, peak %ld, in %ld, out %ld with leases; %ld, %ld, %ld, %ld "
                    "without",
                    level, kind, a->current, a->peak, a->in, a->out, b->current, b->peak, b->in, b->out);
        }
}

/* Everything else that a report shows: peaks' parts, counters, phases. */
static void compare_reports(void)
{
    const char *a = twin.reports[LEASED], *b = twin.reports[PLAIN];
    size_t at = 0;
    while (a[at] && a[at] == b[at])
        at++;
    if (a[at] != b[at]) {
        size_t from = at < 300 ? 0 : at - 300;
        fail_msg("with leases: %.330s\n\nwithout: %.330s", a + from, b + from);
    }
}

/* Somebody looks: that ends all leases. */
static void compare(void)
{
    fixture_check(&twin.f);
    for (int side = 0; side < SIDES; side++) {
        sm_lock_take(&twin.devices[side]->heap_lock);
        write_report(side);
        sm_lock_give(&twin.devices[side]->heap_lock);
    }
    compare_levels();
    compare_reports();
    assert_memory_equal(&twin.devices[LEASED]->heap.parts, &twin.devices[PLAIN]->heap.parts,
                        sizeof(struct sm_parts));
    assert_int_equal(twin.devices[LEASED]->live_peak, twin.devices[PLAIN]->live_peak);
    for (size_t at = 0; at < BLOCKS; at++)
        if (twin.blocks[LEASED][at])
            assert_int_equal(place_of(LEASED, at), place_of(PLAIN, at));
}

static void some_requests(void)
{
    uint64_t count = random_in(&twin.random, 1, 120);
    for (uint64_t i = 0; i < count; i++) {
        size_t at = random_below(&twin.random, BLOCKS);
        if (random_chance(&twin.random, 55))
            request(at);
        else
            give_back(at);
        if (random_below(&twin.random, 400) == 0)
            use_elsewhere(at);
    }
}

static void with_options(const char *options)
{
    open_twin(options);
    for (int look = 0; look < LOOKS; look++) {
        some_requests();
        compare();
        if (random_chance(&twin.random, 40))
            cross_a_boundary();
        if (random_chance(&twin.random, 5))
            reset();
    }
    for (size_t at = 0; at < BLOCKS; at++)
        give_back(at);
    compare();
    print_message("\"%s\": %lu hits, %lu of them and of frees in leased homes\n", options,
                  sm_stats_counter(twin.devices[LEASED]->stats, SM_COUNTER_hits),
                  twin.devices[LEASED]->lease_served);
    assert_true(twin.devices[LEASED]->lease_served > 2000);
    assert_int_equal(twin.devices[PLAIN]->lease_served, 0);
    fixture_close(&twin.f);
}

static void every_figure_is_the_same(void **state)
{
    (void)state;
    static const char *const options[] = {"", "small_limit_kib:0,slack_permille:0", "policy:expandable",
                                          "policy:native", "max_split_size_mb:21"};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        with_options(options[i]);
}

/* A home under the small class with one hit behind it, and one block in it. */
static CUdeviceptr lease_one(struct fixture *f, CUstream stream)
{
    struct sm_error error;
    fixture_init(f);
    fixture_open(f, "");
    fixture_device(f, 0)->lease_after = 0;
    CUdeviceptr block = sm_pool_alloc(f->device, 4096, stream, &error);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sm_pool_free(f->device, block), SEAM_OK);
        block = sm_pool_alloc(f->device, 4096, stream, &error);
        assert_true(block);
    }
    assert_false(LIST_EMPTY(&f->device->leases));
    return block;
}

static void what_no_home_knows_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr block = lease_one(&f, NULL);
    assert_int_equal(sm_pool_free(f.device, block + 512), SEAM_E_POINTER);
    assert_int_equal(sm_pool_free(f.device, 512), SEAM_E_POINTER);
    assert_int_equal(sm_pool_free(f.device, block), SEAM_OK);
    assert_int_equal(sm_pool_free(f.device, block), SEAM_E_POINTER);
    fixture_check(&f);
    fixture_trim(&f);
    fixture_close(&f);
}

static void nothing_is_leased_while_more_must_be_known(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr block = lease_one(&f, NULL), more;
    seam_pool_id pool = {1, 1};
    struct sm_error error;
    assert_int_equal(sm_allocator_phase_push(f.allocator, "mine", true, &error), SEAM_OK);
    assert_true(LIST_EMPTY(&f.device->leases));
    for (int i = 0; i < 5; i++)
        assert_int_equal(sm_pool_free(f.device, sm_pool_alloc(f.device, 512, NULL, &error)), SEAM_OK);
    assert_true(LIST_EMPTY(&f.device->leases));
    assert_int_equal(sm_allocator_phase_pop(f.allocator, true, &error), SEAM_OK);
    assert_int_equal(sm_capture_begin(f.device, pool, NULL, NULL, &error), SEAM_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(sm_pool_free(f.device, sm_pool_alloc(f.device, 512, NULL, &error)), SEAM_OK);
    assert_true(LIST_EMPTY(&f.device->leases));
    assert_int_equal(sm_capture_end(f.device, pool, &error), SEAM_OK);
    assert_int_equal(sm_capture_release(f.device, pool, &error), SEAM_OK);
    for (int i = 0; i < 5; i++) {
        more = sm_pool_alloc(f.device, 512, NULL, &error);
        assert_int_equal(sm_pool_free(f.device, more), SEAM_OK);
    }
    assert_false(LIST_EMPTY(&f.device->leases));
    assert_int_equal(sm_pool_free(f.device, block), SEAM_OK);
    fixture_check(&f);
    fixture_trim(&f);
    fixture_close(&f);
}

/* A home without a lease goes on beside those that have one, as long as no peak is in the way. */
static void others_keep_their_leases(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr block = lease_one(&f, NULL), others[8];
    struct sm_error error;
    CUstream stream = fixture_stream();
    f.device->lease_after = UINT32_MAX;
    for (int i = 0; i < 8; i++)
        others[i] = sm_pool_alloc(f.device, 4096, stream, &error);
    assert_true(LIST_EMPTY(&f.device->leases));
    for (int i = 0; i < 8; i += 2) /* now there were more free ranges than there will be */
        assert_int_equal(sm_pool_free(f.device, others[i]), SEAM_OK);
    for (int i = 0; i < 8; i += 2)
        others[i] = sm_pool_alloc(f.device, 4096, stream, &error);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sm_pool_free(f.device, block), SEAM_OK);
        block = sm_pool_alloc(f.device, 4096, NULL, &error);
    }
    struct sm_lease *lease = LIST_FIRST(&f.device->leases);
    assert_non_null(lease);
    assert_ptr_equal(lease->home->key.stream, sm_device_find_stream(f.device, NULL));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(sm_pool_free(f.device, others[i]), SEAM_OK);
        others[i] = sm_pool_alloc(f.device, 4096, stream, &error);
        assert_ptr_equal(LIST_FIRST(&f.device->leases), lease);
    }
    assert_int_not_equal(sm_pool_alloc(f.device, 4096, stream, &error), 0); /* a peak */
    assert_true(LIST_EMPTY(&f.device->leases));
    fixture_check(&f);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_figure_is_the_same),
        cmocka_unit_test(what_no_home_knows_is_refused),
        cmocka_unit_test(nothing_is_leased_while_more_must_be_known),
        cmocka_unit_test(others_keep_their_leases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
