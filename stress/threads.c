/* SPDX-License-Identifier: Apache-2.0 */
/* threads: every thread has a stream, asks for blocks on it, and leaves them to whoever comes by to free;
 * blocks are used on other streams too, and one thread trims all the time. Every block carries a mark at both
 * ends, in the device's memory: a block that two hold loses one.
 *
 * The bound on reserved: what is alive at once at most, for each stream once, since memory of one stream
 * serves another only after a trim. */
#include "stress/stress.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define THREADS   8
#define SLOTS     128
#define BLOCK_MAX (2 * MIB)

struct parcel {
    char *block;
    uint64_t size, mark;
};

static struct {
    pthread_mutex_t lock;
    struct parcel slots[SLOTS]; /* lock */
    seam_stream streams[THREADS];
    struct stress seeds[THREADS];
    int steps;
    _Atomic uint64_t marks, broken;
    _Atomic bool stop;
} shared;

static void take_back(const struct parcel *parcel)
{
    uint64_t low, high;
    memcpy(&low, parcel->block, sizeof(low));
    memcpy(&high, parcel->block + parcel->size - sizeof(high), sizeof(high));
    shared.broken += low != parcel->mark || high != parcel->mark;
    stress_free(parcel->block);
}

static void *work(void *argument)
{
    struct stress *own = argument;
    size_t me = (size_t)(own - shared.seeds);
    for (int i = 0; i < shared.steps; i++) {
        struct parcel parcel = {.size = 16 + stress_below(own, stress_below(own, 4) ? 65536 : BLOCK_MAX)};
        parcel.block = stress_alloc(parcel.size, shared.streams[me]);
        parcel.mark = ++shared.marks * 0x9E3779B97F4A7C15u;
        memcpy(parcel.block, &parcel.mark, sizeof(parcel.mark));
        memcpy(parcel.block + parcel.size - sizeof(parcel.mark), &parcel.mark, sizeof(parcel.mark));
        if (stress_below(own, 4) == 0)
            stress_check(!seam_record_stream(parcel.block, shared.streams[stress_below(own, THREADS)]),
                         "seam_record_stream");
        struct parcel *slot = &shared.slots[stress_below(own, SLOTS)];
        pthread_mutex_lock(&shared.lock);
        struct parcel old = *slot;
        *slot = parcel;
        pthread_mutex_unlock(&shared.lock);
        if (old.block)
            take_back(&old);
    }
    return NULL;
}

static void *trim(void *unused)
{
    (void)unused;
    while (!shared.stop) {
        stress_check(seam_trim(0) == SEAM_OK, "seam_trim");
        stress_check(seam_validate() == SEAM_OK, "seam_validate");
    }
    return NULL;
}

void stress_threads(struct stress *stress)
{
    pthread_t threads[THREADS], trimmer;
    stress_begin(8 * GIB, true);
    memset(&shared, 0, sizeof(shared));
    pthread_mutex_init(&shared.lock, NULL);
    shared.steps = stress->is_short ? 2000 : 200000;
    for (int i = 0; i < THREADS; i++) {
        shared.streams[i] = stress_stream();
        shared.seeds[i].random = stress->seed * 1000 + (uint64_t)i;
    }
    stress_check(!pthread_create(&trimmer, NULL, trim, NULL), "pthread_create");
    for (int i = 0; i < THREADS; i++)
        stress_check(!pthread_create(&threads[i], NULL, work, &shared.seeds[i]), "pthread_create");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    shared.stop = true;
    pthread_join(trimmer, NULL);
    for (int i = 0; i < SLOTS; i++)
        if (shared.slots[i].block)
            take_back(&shared.slots[i]);
    stress_count(stress, "blocks whose marks were lost", shared.broken, 0);
    stress_bytes(stress, "reserved at its peak", sim_physical_bytes_peak(0),
                 THREADS * ((SLOTS + THREADS) * BLOCK_MAX + 34 * MIB));
    stress_check(seam_trim(0) == SEAM_OK, "seam_trim");
    stress_bytes(stress, "reserved when nothing lives", sim_physical_bytes(0), 0);
    pthread_mutex_destroy(&shared.lock);
    stress_end();
}
