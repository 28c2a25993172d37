/* SPDX-License-Identifier: Apache-2.0 */
/* Lies: a driver call that says it failed though it was done, or says it was done though it was not.
 *
 * They stand in the allocator's driver table, in front of the simulated device, which knows what is so. */
#ifndef SEAM_TESTS_FAULT_LIES_H
#define SEAM_TESTS_FAULT_LIES_H

#include "alloc/driver/driver.h"

enum lie { LIE_FAILED, LIE_DONE };

/* Calls that can lie. BOTH: in both ways. The others only fail in words: what they make, or promise, would be
 * handed on without anybody who could tell (access that was not given, an event that marks nothing). */
#define LIES(BOTH, FAILED)                                                                                   \
    BOTH(cuMemAddressReserve)                                                                                \
    BOTH(cuMemAddressFree)                                                                                   \
    BOTH(cuMemCreate)                                                                                        \
    BOTH(cuMemRelease)                                                                                       \
    BOTH(cuMemMap)                                                                                           \
    BOTH(cuMemUnmap)                                                                                         \
    BOTH(cuMemFree)                                                                                          \
    FAILED(cuMemSetAccess)                                                                                   \
    FAILED(cuMemAlloc)                                                                                       \
    FAILED(cuEventCreate)                                                                                    \
    FAILED(cuEventRecord)                                                                                    \
    FAILED(cuEventQuery)                                                                                     \
    FAILED(cuEventSynchronize)                                                                               \
    FAILED(cuStreamQuery)                                                                                    \
    FAILED(cuStreamSynchronize)                                                                              \
    FAILED(cuCtxSynchronize)

enum liar {
#define X(name) LIAR_##name,
    LIES(X, X)
#undef X
        LIAR_COUNT
};

/* The table's functions lie from now on when they are told to. */
void lies_put(struct sm_driver *driver);
const char *liar_name(enum liar liar);
bool liar_lies(enum liar liar, enum lie lie);
/* The nth call from now on lies; with forever, all later ones too. */
void lies_arm(enum liar liar, enum lie lie, uint64_t nth, bool forever);
/* Returns: lies told since. */
uint64_t lies_disarm(void);

#endif
