/* SPDX-License-Identifier: Apache-2.0 */
/* pace: how many events a second the allocator takes when no driver is called, on table-only memory.
 *
 * One loop of allocations and frees of all sizes is drawn beforehand: some thousand blocks live, and at its
 * end none. It is played until a round of it calls no driver, and then again and again: none of these rounds
 * may call one either. A request and a free are one event each; drawing and measuring are not in it. Time is
 * the thread's own, so that programs beside it do not count, and the fastest round gives the figure. */
#include "stress/stress.h"
#include <string.h>
#include <time.h>

enum { EVENTS = 200000, LIVE = 2000, SEEN_BY = 12 };

struct event {
    uint32_t slot;
    uint64_t size; /* 0: a free */
};

static struct event events[EVENTS];
static void *blocks[LIVE];

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* 512 bytes to 32 MiB, each power of two as often as the others. */
static uint64_t draw_size(struct stress *stress)
{
    uint64_t power = (uint64_t)512 << stress_below(stress, 16);
    return power + stress_below(stress, power);
}

/* Fills and empties slots at random; the rest of the loop empties all of them. */
static void draw_events(struct stress *stress)
{
    static bool taken[LIVE];
    int live = 0;
    memset(taken, 0, sizeof(taken));
    for (int i = 0; i < EVENTS; i++) {
        uint32_t slot = (uint32_t)stress_below(stress, LIVE);
        bool ends = live >= EVENTS - i;
        while (ends && !taken[slot])
            slot = (slot + 1) % LIVE;
        live += taken[slot] ? -1 : 1;
        events[i] = (struct event){slot, taken[slot] ? 0 : draw_size(stress)};
        taken[slot] = !taken[slot];
    }
}

static void play(void)
{
    for (int i = 0; i < EVENTS; i++) {
        void **block = &blocks[events[i].slot];
        if (events[i].size)
            *block = seam_malloc(events[i].size, 0, NULL);
        if (!*block || (!events[i].size && seam_free(*block) != SEAM_OK))
            stress_check(false, "an event failed");
    }
}

static uint64_t rounds_until_quiet(void)
{
    for (uint64_t rounds = 0;; rounds++) {
        uint64_t calls = sim_calls_total();
        play();
        if (sim_calls_total() == calls || rounds > SEEN_BY)
            return rounds;
    }
}

void stress_pace(struct stress *stress)
{
    int rounds = stress->is_short ? 3 : 50;
    uint64_t lowest = UINT64_MAX;
    stress_begin(80 * GIB, false);
    draw_events(stress);
    stress_count(stress, "rounds until none calls the driver", rounds_until_quiet(), SEEN_BY);
    uint64_t calls = sim_calls_total();
    for (int i = 0; i < rounds; i++) {
        uint64_t begin = thread_ns();
        play();
        uint64_t ns = thread_ns() - begin;
        lowest = ns < lowest ? ns : lowest;
    }
    stress_count(stress, "driver calls in all rounds that count", sim_calls_total() - calls, 0);
    stress_figure("events in them", (double)rounds * EVENTS / 1e6, "million");
    stress_figure("events a second of processor time", EVENTS * 1e3 / (double)lowest, "million");
    stress_end();
}
