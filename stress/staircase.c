/* SPDX-License-Identifier: Apache-2.0 */
/* staircase: a request that is larger each time, as with growing sequences, then the same sizes in random
 * order. Each step is freed before the next.
 *
 * The highest step is what the device has to hold, not the sum of them: a step maps what it is longer than
 * the one before. Once every size was seen no call takes memory or gives it back. */
#include "stress/stress.h"

#define STEPS 40

void stress_staircase(struct stress *stress)
{
    uint64_t sizes[STEPS], highest = 0;
    int rounds = stress->is_short ? 200 : 20000;
    stress_begin(32 * GIB, false);
    seam_stream stream = stress_stream();
    for (int i = 0; i < STEPS; i++) {
        highest += 64 * MIB + stress_below(stress, 512 * MIB);
        sizes[i] = highest;
        void *block = stress_alloc(sizes[i], stream);
        stress_work(stream, block, sizes[i]);
        stress_free(block);
    }
    stress_share(stress, "utilisation", (double)highest / (double)sim_physical_bytes_peak(0), 0.99);
    stress_bytes(stress, "reserved at its peak", sim_physical_bytes_peak(0), highest + 34 * MIB);
    uint64_t calls = stress_memory_calls();
    for (int i = 0; i < rounds; i++)
        stress_free(stress_alloc(sizes[stress_below(stress, STEPS)], stream));
    stress_count(stress, "memory calls once every size was seen", stress_memory_calls() - calls, 0);
    stress_end();
}
