/* SPDX-License-Identifier: Apache-2.0 */
/* sprinkle: small blocks that live long are asked for between large ones that come and go; then the large
 * ones die and a trim follows.
 *
 * Small ones have a home of their own, so they must not hold large memory: after the trim little more than
 * themselves may be left. Utilisation is live over reserved, each at its own peak. */
#include "stress/stress.h"

#define LARGE_SLOTS 48
#define SMALL_SLOTS 4000

static uint64_t large_size(struct stress *stress)
{
    uint64_t scale = (uint64_t)1 << stress_below(stress, 7);
    return scale * MIB + stress_below(stress, scale * MIB);
}

void stress_sprinkle(struct stress *stress)
{
    static void *large[LARGE_SLOTS], *small[SMALL_SLOTS];
    int steps = stress->is_short ? 20000 : 1000000;
    stress_begin(32 * GIB, false);
    for (int step = 0; step < steps; step++) {
        void **slot = &large[stress_below(stress, LARGE_SLOTS)];
        if (step % 4 == 0) {
            stress_free(*slot);
            *slot = *slot ? NULL : stress_alloc(large_size(stress), NULL);
        }
        slot = &small[stress_below(stress, SMALL_SLOTS)];
        if (!*slot || stress_below(stress, 16) == 0) {
            stress_free(*slot);
            *slot = stress_alloc(1 + stress_below(stress, stress_below(stress, 8) ? 4096 : 200000), NULL);
        }
        if (step % 1000 == 0)
            stress_check(seam_validate() == SEAM_OK, "seam_validate");
    }
    stress_share(stress, "utilisation",
                 (double)stress_stat("allocated_bytes.all.peak") / (double)sim_physical_bytes_peak(0), 0.75);
    for (int i = 0; i < LARGE_SLOTS; i++) {
        stress_free(large[i]);
        large[i] = NULL;
    }
    stress_check(seam_trim(0) == SEAM_OK, "seam_trim");
    uint64_t alive = (uint64_t)stress_stat("allocated_bytes.all.current");
    stress_bytes(stress, "reserved when only small blocks live", sim_physical_bytes(0),
                 alive + alive / 2 + 24 * MIB);
    for (int i = 0; i < SMALL_SLOTS; i++) {
        stress_free(small[i]);
        small[i] = NULL;
    }
    stress_check(seam_trim(0) == SEAM_OK, "seam_trim");
    stress_bytes(stress, "reserved when nothing lives", sim_physical_bytes(0), 0);
    stress_end();
}
