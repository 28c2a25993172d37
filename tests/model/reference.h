/* SPDX-License-Identifier: Apache-2.0 */
/* reference: what a naive allocator would know, to compare the real one with.
 *
 * It keeps a list of live blocks and, for every physical byte of the devices in units of 512, whether a live
 * block holds it. Which physical byte an address means is asked of the device (sim_resolve), never of the
 * allocator: so two blocks at different addresses on one byte are found, and a block whose memory was moved
 * away under it, too. */
#ifndef SEAM_TESTS_MODEL_REFERENCE_H
#define SEAM_TESTS_MODEL_REFERENCE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A block in somebody's hands. */
struct held {
    CUdeviceptr address;
    uint64_t size, requested; /* rounded, asked for */
    int stream;               /* index */
    unsigned users;           /* other streams, as bits of their indices */
    unsigned tag;             /* what was written into it; 0: nothing */
};

#define HELD_MAX 400

struct cell;
struct reference {
    int device;
    uint64_t granularity;
    struct held held[HELD_MAX];
    size_t held_count;
    uint64_t allocated, requested; /* sums over held */
    struct cell *cells[4096];      /* by hash: granules of handles that hold live bytes */
    char wrong[200];               /* what the last call found; "" for nothing */
};

void reference_open(struct reference *reference, int device, uint64_t granularity);
void reference_close(struct reference *reference);
/* A block was handed out. Returns: false with `wrong` filled when its bytes are not there, not accessible, or
 * another live block's. */
bool reference_claim(struct reference *reference, const struct held *held);
/* held[i] is given back. Returns: false when its bytes are no longer those that were claimed. */
bool reference_drop(struct reference *reference, size_t i);
/* Every live block's bytes are still those that were claimed. */
bool reference_check(struct reference *reference);

#endif
