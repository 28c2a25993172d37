/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator of the engine on the linked simulated device, for tests.
 *
 *   struct fixture f;
 *   fixture_init(&f);                   then change f.sim as the test needs
 *   fixture_open(&f, "handle_mib:2");   device and allocator; "" for the default options
 *   ... fixture_alloc, fixture_free, ...
 *   fixture_close(&f);                  nothing may be left, on the device or on the host
 *
 * fixture_check compares everything that can be compared: the validator, the statistics with the device's own
 * books, broken rules, failed assertions, the caller's context. All functions fail the running CMocka test:
 * call them from its thread only. */
#ifndef SEAM_TESTS_SUPPORT_FIXTURE_H
#define SEAM_TESTS_SUPPORT_FIXTURE_H

#include "alloc/engine.h"
#include "base/align.h"
#include "sim/sim.h"
#include "tests/support/cmocka_all.h"

#define MIB SM_MIB
#define GIB SM_GIB

struct fixture {
    struct sim_config sim;
    struct sm_options options;
    struct sm_driver driver;
    struct sm_allocator *allocator;
    struct sm_device *device; /* number 0, once fixture_device() or fixture_alloc() was called */
    struct sm_error error;    /* of the last call that failed */
    CUcontext contexts[SIM_DEVICES_MAX];
    unsigned long check_failures; /* before */
    size_t host_bytes;            /* before */
};

/* A device of 1 GiB that keeps tables only, immediate streams. */
void fixture_init(struct fixture *f);
/* Starts the device with context 0 current, and the allocator. */
void fixture_open(struct fixture *f, const char *options);
/* Destroys the allocator and checks that the device and the host have everything back. */
void fixture_close(struct fixture *f);
void fixture_check(struct fixture *f);

struct sm_device *fixture_device(struct fixture *f, int ordinal);
CUstream fixture_stream(void);
/* A block on device 0. */
CUdeviceptr fixture_alloc(struct fixture *f, uint64_t size, CUstream stream);
/* Expects a refusal with this code; *error keeps the text. */
void fixture_refuse(struct fixture *f, uint64_t size, CUstream stream, seam_result code);
void fixture_free(struct fixture *f, CUdeviceptr block);
void fixture_use(struct fixture *f, CUdeviceptr block, CUstream stream);
void fixture_work(CUstream stream, CUdeviceptr block, uint64_t size);
void fixture_trim(struct fixture *f);

/* Current value of a level of device 0, of all sizes; and a counter. */
int64_t fixture_level(struct fixture *f, enum sm_level_id level);
uint64_t fixture_count(struct fixture *f, enum sm_counter_id counter);
/* Calls that take or give memory: reserve, create, map, access, unmap, release, address free. */
uint64_t fixture_memory_calls(void);

#endif
