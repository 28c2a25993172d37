/* SPDX-License-Identifier: Apache-2.0 */
/* comb: a large temporary is freed, pieces are cut out of its memory, every second one survives, and the
 * temporary is asked for again. The survivors of the last few rounds stay, so that the teeth of the comb
 * stand at ever other places.
 *
 * Best fit and growth serve the temporary beside the pieces: what they took from its range, dead ones
 * included, is grown again, once. That is the bound on reserved; utilisation is live over reserved, each at
 * its own peak. */
#include "stress/stress.h"

#define LARGE     (11 * GIB)
#define PIECES    60
#define KEPT      3 /* rounds */
#define PIECE_MAX (24 * MIB)

void stress_comb(struct stress *stress)
{
    static void *survivors[KEPT][PIECES / 2];
    int rounds = stress->is_short ? 10 : 200;
    stress_begin(32 * GIB, false);
    for (int i = 0; i < KEPT; i++)
        for (int k = 0; k < PIECES / 2; k++)
            survivors[i][k] = NULL;
    for (int round = 0; round < rounds; round++) {
        void *pieces[PIECES], **kept = survivors[round % KEPT];
        stress_free(stress_alloc(LARGE, NULL));
        for (int k = 0; k < PIECES; k++)
            pieces[k] = stress_alloc(2 * MIB + stress_below(stress, PIECE_MAX - 2 * MIB), NULL);
        for (int k = 0; k < PIECES / 2; k++) {
            stress_free(kept[k]);
            kept[k] = pieces[2 * k];
            stress_free(pieces[2 * k + 1]);
        }
        void *large = stress_alloc(LARGE, NULL);
        stress_check(seam_validate() == SEAM_OK, "seam_validate");
        stress_free(large);
    }
    uint64_t reserved = sim_physical_bytes_peak(0);
    stress_share(stress, "utilisation", (double)stress_stat("allocated_bytes.all.peak") / (double)reserved,
                 0.9);
    /* All survivors, the dead pieces of a round between them, what one growth may look ahead. */
    stress_bytes(stress, "reserved at its peak", reserved,
                 LARGE + (KEPT + 1) * PIECES * PIECE_MAX / 2 + 34 * MIB);
    stress_end();
}
