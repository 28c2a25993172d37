/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads, each with a stream of its own, that free each other's blocks, while others trim, validate,
 * open phases and pools. Every block carries a mark at both ends, written and read through the device's
 * memory: a block that is handed out twice loses one. Workers count what they see; the test looks at the
 * counts after they have joined. */
#include "tests/support/fixture.h"
#include "tests/support/random.h"
#include <pthread.h>
#include <string.h>

#define WORKERS 9
#define STEPS   1500
#define PARCELS 64

/* A block on its way to whoever frees it. */
struct parcel {
    uint64_t block, size, mark;
};

static struct {
    struct fixture f;
    struct sm_device *device;
    pthread_mutex_t lock;
    struct parcel parcels[PARCELS]; /* lock */
    CUstream streams[WORKERS];
    _Atomic uint64_t marks, broken, refused, served, failed, stop, released;
} shared;

static void write_marks(const struct parcel *parcel)
{
    memcpy((void *)(uintptr_t)parcel->block, &parcel->mark, sizeof(parcel->mark));
    memcpy((void *)(uintptr_t)(parcel->block + parcel->size - sizeof(parcel->mark)), &parcel->mark,
           sizeof(parcel->mark));
}

static void free_parcel(const struct parcel *parcel)
{
    uint64_t low, high;
    memcpy(&low, (void *)(uintptr_t)parcel->block, sizeof(low));
    memcpy(&high, (void *)(uintptr_t)(parcel->block + parcel->size - sizeof(high)), sizeof(high));
    shared.broken += low != parcel->mark || high != parcel->mark;
    shared.failed += sm_pool_free(shared.device, parcel->block) != SEAM_OK;
}

/* Puts a parcel into the box; whose place it takes is freed. */
static void post(struct random *random, struct parcel parcel)
{
    struct parcel *slot = &shared.parcels[random_below(random, PARCELS)];
    pthread_mutex_lock(&shared.lock);
    struct parcel old = *slot;
    *slot = parcel;
    pthread_mutex_unlock(&shared.lock);
    if (old.block)
        free_parcel(&old);
}

static void use_elsewhere(struct random *random, const struct parcel *parcel)
{
    struct sm_error error;
    CUstream user = shared.streams[random_below(random, WORKERS)];
    shared.failed += sm_pool_record_stream(shared.device, parcel->block, user, &error) != SEAM_OK;
}

static void *work(void *argument)
{
    size_t me = (size_t)(uintptr_t)argument;
    struct random random = {.state = 100 + me};
    struct sm_error error;
    for (int i = 0; i < STEPS; i++) {
        struct parcel parcel = {.size = random_in(&random, 1, random_chance(&random, 20) ? 4000 : 60) * 512};
        parcel.block = sm_pool_alloc(shared.device, parcel.size, shared.streams[me], &error);
        if (!parcel.block) {
            shared.refused++;
            continue;
        }
        parcel.mark = ++shared.marks * 0x9E3779B97F4A7C15u;
        shared.served++;
        write_marks(&parcel);
        if (random_chance(&random, 30))
            use_elsewhere(&random, &parcel);
        post(&random, parcel);
    }
    return NULL;
}

static void *trim_and_validate(void *unused)
{
    struct sm_error error;
    (void)unused;
    while (!shared.stop) {
        sm_reclaim_trim(shared.device);
        if (sm_allocator_validate(shared.f.allocator, &error)) {
            shared.failed++;
            print_error("%s\n", error.text);
        }
    }
    return NULL;
}

static void *measure(void *unused)
{
    struct sm_error error;
    uint64_t window;
    struct sm_allocator *allocator = shared.f.allocator;
    static char report[1 << 16];
    (void)unused;
    while (!shared.stop) {
        shared.failed += sm_allocator_phase_push(allocator, "step", false, &error) != SEAM_OK;
        shared.failed += sm_allocator_phase_push(allocator, "mine", true, &error) != SEAM_OK;
        shared.failed += sm_allocator_window_open(allocator, "look", &window, &error) != SEAM_OK;
        shared.failed += sm_report(allocator, -1, SM_EMIT_JSON, report, sizeof(report)) == 0;
        shared.failed += sm_allocator_window_close(allocator, window, &error) != SEAM_OK;
        shared.failed += sm_allocator_phase_pop(allocator, true, &error) != SEAM_OK;
        shared.failed += sm_allocator_phase_pop(allocator, false, &error) != SEAM_OK;
    }
    return NULL;
}

static void *fill_pools(void *unused)
{
    struct sm_error error;
    (void)unused;
    while (!shared.stop) {
        seam_pool_id id = {3, 3};
        shared.failed += sm_capture_begin(shared.device, id, NULL, NULL, &error) != SEAM_OK;
        uint64_t block = sm_pool_alloc(shared.device, 3 * MIB, shared.streams[0], &error);
        shared.failed += sm_capture_end(shared.device, id, &error) != SEAM_OK;
        shared.failed += sm_capture_release(shared.device, id, &error) != SEAM_OK;
        shared.failed += block && sm_pool_free(shared.device, block) != SEAM_OK;
        shared.released++;
    }
    return NULL;
}

static void open_shared(uint64_t device_bytes, bool lag)
{
    memset(&shared, 0, sizeof(shared));
    pthread_mutex_init(&shared.lock, NULL);
    fixture_init(&shared.f);
    shared.f.sim.backed = true;
    shared.f.sim.device_bytes = device_bytes;
    shared.f.sim.streams = lag ? SIM_STREAMS_LAG : SIM_STREAMS_IMMEDIATE;
    shared.f.sim.lag = 50;
    fixture_open(&shared.f, "");
    shared.device = fixture_device(&shared.f, 0);
    for (int i = 0; i < WORKERS; i++)
        shared.streams[i] = fixture_stream();
}

static void run_threads(void *(*const others[])(void *), int other_count)
{
    pthread_t workers[WORKERS], rest[4];
    for (int i = 0; i < other_count; i++)
        assert_int_equal(pthread_create(&rest[i], NULL, others[i], NULL), 0);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i], NULL, work, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    shared.stop = 1;
    for (int i = 0; i < other_count; i++)
        pthread_join(rest[i], NULL);
}

static void close_shared(void)
{
    fixture_check(&shared.f);
    for (int i = 0; i < PARCELS; i++)
        if (shared.parcels[i].block)
            free_parcel(&shared.parcels[i]);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(sim_stream_run(shared.streams[i]), CUDA_SUCCESS);
    assert_int_equal(shared.broken, 0);
    assert_int_equal(shared.failed, 0);
    assert_int_equal(shared.served + shared.refused, WORKERS * STEPS);
    fixture_trim(&shared.f);
    assert_int_equal(fixture_level(&shared.f, SM_LEVEL_allocated_bytes), 0);
    assert_int_equal(fixture_level(&shared.f, SM_LEVEL_active_bytes), 0);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&shared.f);
    pthread_mutex_destroy(&shared.lock);
}

static void blocks_freed_by_others(void **state)
{
    (void)state;
    open_shared(GIB, false);
    run_threads(NULL, 0);
    assert_int_equal(shared.refused, 0);
    close_shared();
}

static void beside_trims_phases_and_pools(void **state)
{
    (void)state;
    static void *(*const others[])(void *) = {trim_and_validate, measure, fill_pools};
    open_shared(GIB, true);
    run_threads(others, 3);
    assert_int_equal(shared.refused, 0);
    assert_true(shared.released > 0);
    close_shared();
}

/* A device so small that the ladder runs all the time. */
static void with_hardly_enough_memory(void **state)
{
    (void)state;
    static void *(*const others[])(void *) = {trim_and_validate};
    open_shared(32 * MIB, true);
    run_threads(others, 1);
    assert_true(shared.served > 0);
    assert_true(fixture_count(&shared.f, SM_COUNTER_num_alloc_retries) > 0);
    close_shared();
}

/* The first request of every thread sets the device up once. */
static void *first_request(void *argument)
{
    struct sm_device *device = NULL;
    struct sm_error error;
    size_t me = (size_t)(uintptr_t)argument;
    shared.failed += sm_allocator_device(shared.f.allocator, (int)(me % 2), &device, &error) != SEAM_OK;
    if (device) {
        uint64_t block = sm_pool_alloc(device, MIB, NULL, &error);
        shared.failed += !block || sm_pool_free(device, block) != SEAM_OK;
    }
    return NULL;
}

static void devices_are_set_up_once(void **state)
{
    (void)state;
    pthread_t workers[WORKERS];
    memset(&shared, 0, sizeof(shared));
    fixture_init(&shared.f);
    shared.f.sim.devices = 2;
    fixture_open(&shared.f, "");
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i], NULL, first_request, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    assert_int_equal(shared.failed, 0);
    fixture_close(&shared.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_freed_by_others),
        cmocka_unit_test(beside_trims_phases_and_pools),
        cmocka_unit_test(with_hardly_enough_memory),
        cmocka_unit_test(devices_are_set_up_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
