/* SPDX-License-Identifier: Apache-2.0 */
/* 64 threads on 16 streams of each of two devices free each other's blocks, while homes are leased and given
 * back all the time: some blocks are used by other streams, somebody looks, phases are crossed. Each block
 * carries a mark at both ends; a block that is handed out twice loses one. The peak of allocated bytes lies
 * between what was surely held at an instant and what may have been.
 *
 *   test_alloc_lease_threads [STEPS]     requests of each thread
 *
 * Under the thread sanitizer this is also a test of what each lock protects. */
#include "tests/support/fixture.h"
#include "tests/support/random.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define THREADS         64
#define STREAMS         16
#define DEVICES         2
#define PARCELS         256
#define REQUESTS_A_LOOK 200

/* A block on its way to whoever frees it. */
struct parcel {
    uint64_t block, size, mark;
    int device;
};

/* Bytes, and the most that there were. */
struct tide {
    _Atomic int64_t now, most;
};

static struct {
    struct fixture f;
    struct sm_device *devices[DEVICES];
    CUstream streams[DEVICES][STREAMS];
    pthread_mutex_t lock;
    struct parcel parcels[PARCELS];              /* lock */
    struct tide surely[DEVICES], maybe[DEVICES]; /* before a peak can hold it, after */
    _Atomic uint64_t marks, broken, failed, stop, looks;
    unsigned steps;
} shared = {.steps = 300};

static void move(struct tide *tide, int64_t bytes)
{
    int64_t now = atomic_fetch_add(&tide->now, bytes) + bytes, most = atomic_load(&tide->most);
    while (now > most && !atomic_compare_exchange_weak(&tide->most, &most, now))
        continue;
}

static uint64_t *end_of(const struct parcel *parcel)
{
    return (uint64_t *)(uintptr_t)(parcel->block + parcel->size - sizeof(parcel->mark));
}

static void give_back(const struct parcel *parcel)
{
    shared.broken += *(uint64_t *)(uintptr_t)parcel->block != parcel->mark || *end_of(parcel) != parcel->mark;
    move(&shared.surely[parcel->device], -(int64_t)parcel->size);
    shared.failed += sm_pool_free(shared.devices[parcel->device], parcel->block) != SEAM_OK;
    move(&shared.maybe[parcel->device], -(int64_t)parcel->size);
}

/* Puts a parcel into the box; whose place it takes is freed. */
static void post(struct random *random, struct parcel parcel)
{
    struct parcel *slot = &shared.parcels[random_below(random, PARCELS)], old;
    pthread_mutex_lock(&shared.lock);
    old = *slot;
    *slot = parcel;
    pthread_mutex_unlock(&shared.lock);
    if (old.block)
        give_back(&old);
}

static void *work(void *argument)
{
    size_t me = (size_t)(uintptr_t)argument;
    struct random random = {.state = 77 + me};
    struct sm_error error;
    for (unsigned i = 0; i < shared.steps; i++) {
        struct parcel parcel = {.device = (int)random_below(&random, DEVICES),
                                .size = random_in(&random, 1, random_chance(&random, 10) ? 1000 : 8) * 512,
                                .mark = ++shared.marks * 0x9E3779B97F4A7C15u};
        struct sm_device *device = shared.devices[parcel.device];
        CUstream *streams = shared.streams[parcel.device];
        move(&shared.maybe[parcel.device], (int64_t)parcel.size);
        parcel.block = sm_pool_alloc(device, parcel.size, streams[me % STREAMS], &error);
        if (!parcel.block) {
            shared.failed++;
            continue;
        }
        move(&shared.surely[parcel.device], (int64_t)parcel.size);
        *(uint64_t *)(uintptr_t)parcel.block = *end_of(&parcel) = parcel.mark;
        if (random_below(&random, 200) == 0)
            shared.failed +=
                sm_pool_record_stream(device, parcel.block, streams[random_below(&random, STREAMS)],
                                      &error) != SEAM_OK;
        post(&random, parcel);
    }
    return NULL;
}

static void *look(void *unused)
{
    struct sm_allocator *allocator = shared.f.allocator;
    struct sm_error error;
    (void)unused;
    while (!shared.stop) {
        shared.failed += sm_allocator_phase_push(allocator, "step", false, &error) != SEAM_OK;
        if (shared.looks % 4 == 0 && sm_allocator_validate(allocator, &error)) {
            print_error("%s\n", error.text);
            shared.failed++;
        }
        shared.failed += sm_allocator_phase_pop(allocator, false, &error) != SEAM_OK;
        shared.looks++;
        /* By requests and not by time: leases last as long on a machine that is busy with other things. */
        for (uint64_t next = shared.marks + REQUESTS_A_LOOK; shared.marks < next && !shared.stop;)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return NULL;
}

static void open_all(void)
{
    pthread_mutex_init(&shared.lock, NULL);
    fixture_init(&shared.f);
    shared.f.sim.backed = true;
    shared.f.sim.devices = DEVICES;
    fixture_open(&shared.f, "");
    for (int d = 0; d < DEVICES; d++) {
        shared.devices[d] = fixture_device(&shared.f, d);
        if (d) /* a lease at every hit there, as few as it gets on the other device */
            shared.devices[d]->lease_after = 0;
        assert_int_equal(cuCtxSetCurrent(shared.f.contexts[d]), CUDA_SUCCESS);
        for (int i = 0; i < STREAMS; i++)
            shared.streams[d][i] = fixture_stream();
    }
    assert_int_equal(cuCtxSetCurrent(shared.f.contexts[0]), CUDA_SUCCESS);
}

static void run_all(void)
{
    pthread_t threads[THREADS], looker;
    assert_int_equal(pthread_create(&looker, NULL, look, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    shared.stop = 1;
    pthread_join(looker, NULL);
}

static void check_figures(int d)
{
    const struct sm_stats *stats = shared.devices[d]->stats;
    const struct sm_level *level = sm_stats_level(stats, SM_LEVEL_allocated_bytes, SM_KIND_ALL);
    print_message(
        "device %d: %lu hits, %lu of them and of frees in leased homes; the peak %ld lies in %ld..%ld\n", d,
        sm_stats_counter(stats, SM_COUNTER_hits), shared.devices[d]->lease_served, level->peak,
        shared.surely[d].most, shared.maybe[d].most);
    assert_int_equal(level->current, shared.surely[d].now);
    assert_true(level->peak >= shared.surely[d].most && level->peak <= shared.maybe[d].most);
    assert_true(shared.devices[d]->lease_served > (d ? (uint64_t)10 * shared.steps : 0));
}

static void everybody_frees_everybodys_blocks(void **state)
{
    (void)state;
    open_all();
    run_all();
    assert_int_equal(shared.broken, 0);
    assert_int_equal(shared.failed, 0);
    fixture_check(&shared.f);
    for (int d = 0; d < DEVICES; d++)
        check_figures(d);
    for (int i = 0; i < PARCELS; i++)
        if (shared.parcels[i].block)
            give_back(&shared.parcels[i]);
    assert_int_equal(shared.broken, 0);
    for (int d = 0; d < DEVICES; d++) {
        sm_reclaim_trim(shared.devices[d]);
        assert_int_equal(sm_stats_level(shared.devices[d]->stats, SM_LEVEL_allocation, SM_KIND_ALL)->current,
                         0);
        assert_int_equal(sim_physical_bytes(d), 0);
    }
    fixture_close(&shared.f);
    pthread_mutex_destroy(&shared.lock);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everybody_frees_everybodys_blocks)};
    if (argc > 1)
        shared.steps = (unsigned)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
