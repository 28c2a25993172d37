/* SPDX-License-Identifier: Apache-2.0 */
/* Faults at every point of a scenario: driver call number k fails, for every k until the scenario passes
 * without a failure; then host allocation number k. Once, and from then on until the scenario is over.
 *
 * While the fault lasts, after each operation: its code says what failed, the validator is content, the
 * statistics are the device's record, and the blocks that were there are where they were. Once it is over:
 * the next requests are served, a trim gives back all that is free, and in the end nothing is left.
 *
 * A lie (lies.h) is a call that did not do what it says; there the statistics can be right only where the
 * driver can be asked. All functions fail the running CMocka test. */
#ifndef SEAM_TESTS_FAULT_FAULTS_H
#define SEAM_TESTS_FAULT_FAULTS_H

#include "tests/support/fixture.h"

#define BLOCKS 64

enum fault { FAULT_DRIVER, FAULT_HOST, FAULT_COUNT, FAULT_LIE = FAULT_COUNT };

struct block {
    CUdeviceptr address;
    uint64_t size;
    uint64_t handles[2], offsets[2]; /* of the first and the last byte */
};

struct run {
    struct fixture f;
    enum fault fault;
    CUstream streams[4];
    struct block blocks[BLOCKS]; /* in the order of their requests; address 0: refused or freed */
    unsigned count;
    uint64_t seed; /* of the scenario */
    bool may_run_out, served;
    const char *doing;
};

struct scenario {
    const char *name;
    const char *options;
    void (*prepare)(struct run *run); /* without faults */
    void (*act)(struct run *run);
    int devices;
    unsigned stitches; /* that it makes when nothing fails, preparation included */
    bool served;       /* one call that makes memory or maps it fails: all requests are served another way */
    unsigned lacks;    /* enum sim_feature, as are the lies */
    unsigned lies;
    uint64_t seed;
    bool parts; /* the device maps any part of a handle */
};

/* ---- operations that may fail ---- */

bool run_set_up(struct run *run, int ordinal);
/* On device 0, at the end of the blocks. */
void run_request(struct run *run, uint64_t size, CUstream stream);
void run_give(struct run *run, unsigned i);
/* Work on the stream, recorded. A stream whose use could not be noted does not use the block. */
void run_use(struct run *run, unsigned i, CUstream stream);
void run_trim(struct run *run);
/* Another operation has ended with this result. */
void run_tick(struct run *run, seam_result result, const char *doing);
/* After each operation: see above. */
void run_check(struct run *run, seam_result result);
void run_check_blocks(const struct run *run);

/* ---- one run ---- */

void run_open(struct run *run, const struct scenario *scenario, enum fault fault);
/* The fault is over: everything works again, and everything comes back. */
void run_close(struct run *run);

/* ---- faults ---- */

/* Everything the allocator calls of the driver, but what tells texts, and cuCtxPopCurrent: it fails only
 * where there is no context, and what a caller could do about it needs the context that is not there. */
const char *fault_driver_calls(void);
void fault_arm(struct run *run, const char *calls, uint64_t nth, bool forever);
/* Returns: failures since it was armed. */
uint64_t fault_disarm(void);
/* Every point of the scenario, each driver call and each host allocation; prints how many. */
void fault_points(const struct scenario *scenario);
/* The same as a CMocka test, its scenario the initial state, with chosen calls that fail together. */
void fault_every(void **state);
/* Its teardown: names the scenario and the point where it failed. */
int fault_say_where(void **state);

#endif
