/* SPDX-License-Identifier: Apache-2.0 */
/* Stitching with many threads: some take and free blocks that only views can serve, one trims, one looks. At
 * the end the books are right; while it runs, the parts of reserved bytes add up whenever somebody looks.
 * Under the thread sanitizer this is also a test of what each lock protects. */
#include "tests/support/random.h"
#include "tests/unit/alloc/stitches.h"
#include <pthread.h>
#include <stdatomic.h>

#define WORKERS 3
#define STEPS   1500 /* at least, and until somebody has looked often enough */
#define LOOKS   150
#define BLOCKS  12

static struct {
    struct fixture f;
    CUstream streams[WORKERS];
    atomic_bool stop;
    atomic_ulong trims, looks, wrong, refused;
} shared;

static void *work(void *argument)
{
    const unsigned number = (unsigned)(uintptr_t)argument;
    struct random random = {.state = number + 5};
    uint64_t blocks[BLOCKS] = {0};
    struct sm_error error;
    for (int i = 0; i < STEPS || atomic_load(&shared.looks) < LOOKS; i++) {
        unsigned k = (unsigned)random_below(&random, BLOCKS);
        if (blocks[k])
            atomic_fetch_add(&shared.wrong, sm_pool_free(shared.f.device, blocks[k]) != SEAM_OK);
        blocks[k] = sm_pool_alloc(shared.f.device, random_in(&random, 1, 24) * MIB / 2,
                                  shared.streams[number], &error);
        atomic_fetch_add(&shared.refused, !blocks[k]);
        if (blocks[k] && random_chance(&random, 20))
            (void)sm_pool_record_stream(shared.f.device, blocks[k],
                                        shared.streams[random_below(&random, WORKERS)], &error);
    }
    for (unsigned k = 0; k < BLOCKS; k++)
        if (blocks[k])
            atomic_fetch_add(&shared.wrong, sm_pool_free(shared.f.device, blocks[k]) != SEAM_OK);
    return NULL;
}

static void *look(void *argument)
{
    struct random random = {.state = 99};
    (void)argument;
    while (!atomic_load(&shared.stop)) {
        int64_t sum = 0;
        sm_lock_take(&shared.f.device->heap_lock);
        for (int i = 0; i < SM_PART_COUNT; i++)
            sum += shared.f.device->heap.parts.bytes[i];
        atomic_fetch_add(&shared.wrong, sum != (int64_t)shared.f.device->heap.reserved);
        sm_lock_give(&shared.f.device->heap_lock);
        atomic_fetch_add(&shared.looks, 1);
        if (random_chance(&random, 25)) {
            sm_reclaim_trim(shared.f.device);
            atomic_fetch_add(&shared.trims, 1);
        }
        if (random_chance(&random, 10))
            atomic_fetch_add(&shared.wrong, sm_allocator_validate(shared.f.allocator, NULL) != SEAM_OK);
        sched_yield();
    }
    return NULL;
}

static void threads_share_views(void **state)
{
    (void)state;
    pthread_t threads[WORKERS + 1];
    fixture_init(&shared.f);
    fixture_open(&shared.f, EXACT);
    fixture_device(&shared.f, 0);
    for (unsigned i = 0; i < WORKERS; i++)
        shared.streams[i] = fixture_stream();
    assert_int_equal(pthread_create(&threads[WORKERS], NULL, look, NULL), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store(&shared.stop, true);
    assert_int_equal(pthread_join(threads[WORKERS], NULL), 0);
    fixture_check(&shared.f);
    print_message(
        "%lu stitches, %lu view hits, %lu borrows, %lu trims, %lu looks\n",
        fixture_count(&shared.f, SM_COUNTER_stitches), fixture_count(&shared.f, SM_COUNTER_view_hits),
        fixture_count(&shared.f, SM_COUNTER_borrows), atomic_load(&shared.trims), atomic_load(&shared.looks));
    assert_int_equal(atomic_load(&shared.wrong), 0);
    assert_int_equal(atomic_load(&shared.refused), 0);
    assert_true(fixture_count(&shared.f, SM_COUNTER_stitches) > 50);
    assert_true(atomic_load(&shared.trims) > 10);
    fixture_trim(&shared.f);
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_int_equal(shared.f.device->heap.view_count, 0);
    fixture_close(&shared.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
