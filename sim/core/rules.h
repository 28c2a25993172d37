/* SPDX-License-Identifier: Apache-2.0 */
/* rules: what a program must not do to the driver, each with where it is written, and the list of what it
 * did.
 *
 * A broken rule is recorded whether or not the call also answers an error. In strict mode it ends the process
 * with a report, which names the rule, the call and the range, and what happened to the range before.
 * Sources: "cuda.h" is the comment of the named function there (the driver API reference has the same text);
 * "guide" is the CUDA programming guide, section on virtual memory management or on graphs.
 */
#ifndef SEAMALLOC_SIM_CORE_RULES_H
#define SEAMALLOC_SIM_CORE_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* X(identifier, name in reports, what has to hold, source) */
#define SIM_RULES(X)                                                                                         \
    X(GRANULARITY, "granularity", "sizes and addresses are multiples of the granularity",                    \
      "cuMemCreate, cuMemMap")                                                                               \
    X(FLAGS, "flags", "reserved flag arguments are 0", "cuMemCreate, cuMemMap, cuMemAddressReserve")         \
    X(MAP_OFFSET, "map-offset", "the offset of a mapping is 0", "cuMemMap")                                  \
    X(MAP_PART, "map-part", "a mapping takes its whole handle", "cuMemMap, what allocators rely on")         \
    X(MAP_OVER_MAPPING, "map-over-mapping", "only addresses that are not mapped can be mapped", "cuMemMap")  \
    X(MAP_OUTSIDE, "map-outside-reservation", "only reserved addresses can be mapped", "cuMemMap")           \
    X(UNKNOWN_HANDLE, "unknown-handle", "a handle is used between its creation and its last release",        \
      "cuMemMap, cuMemRelease")                                                                              \
    X(UNMAP_UNMAPPED, "unmap-unmapped", "only mapped addresses can be unmapped", "cuMemUnmap")               \
    X(UNMAP_PART, "unmap-part", "an unmap takes whole mappings", "cuMemUnmap")                               \
    X(UNMAP_SEVERAL, "unmap-several", "an unmap takes one mapping (only where the device says so)",          \
      "cuMemUnmap")                                                                                          \
    X(UNMAP_IN_USE, "unmap-in-use", "no unfinished work uses memory that is unmapped", "cuMemUnmap, guide")  \
    X(ACCESS_RANGE, "access-range", "access is set for whole mappings, without a hole", "cuMemSetAccess")    \
    X(FREE_MAPPED, "free-mapped", "addresses are unmapped before they are freed", "cuMemAddressFree")        \
    X(FREE_INEXACT, "free-inexact", "exactly one whole reservation is freed", "cuMemAddressFree")            \
    X(UNKNOWN_POINTER, "unknown-pointer",                                                                    \
      "a pointer given to free or unregister came from the matching call",                                   \
      "cuMemFree, cuMemFreeHost, cuMemFreeAsync")                                                            \
    X(TOUCH_UNMAPPED, "touch-unmapped", "work uses only memory that is there", "guide")                      \
    X(TOUCH_NO_ACCESS, "touch-no-access", "work uses only memory its device was given access to",            \
      "cuMemSetAccess")                                                                                      \
    X(RACE, "race", "work on two streams that uses the same bytes is ordered by an event or a wait",         \
      "guide")                                                                                               \
    X(UNKNOWN_EVENT, "unknown-event", "an event is used between its creation and its destruction",           \
      "cuEventDestroy")                                                                                      \
    X(UNKNOWN_STREAM, "unknown-stream", "a stream is used between its creation and its destruction",         \
      "cuStreamDestroy")                                                                                     \
    X(CAPTURE_UNSAFE, "capture-unsafe", "a capture is not disturbed by calls that its mode forbids",         \
      "cuThreadExchangeStreamCaptureMode, guide")                                                            \
    X(CAPTURE_ORDER, "capture-order", "captured and other work wait for each other only in allowed ways",    \
      "cuStreamWaitEvent, cuStreamEndCapture, guide")                                                        \
    X(CAPTURED_EVENT, "captured-event",                                                                      \
      "an event that was last recorded in a capture is used in that capture alone",                          \
      "CUDA_ERROR_CAPTURED_EVENT, cuThreadExchangeStreamCaptureMode")                                        \
    X(STUCK, "waits-for-ever", "the host does not wait for work that cannot complete", "-")

enum sim_rule {
#define X(identifier, name, text, source) SIM_RULE_##identifier,
    SIM_RULES(X)
#undef X
        SIM_RULE_COUNT
};

/* Records a broken rule for the call this thread is in. `format` may be NULL. Strict mode does not return.
 * Thread: any, with or without the core lock. */
void sim_violate(enum sim_rule rule, int device, uint64_t base, uint64_t size, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Says which handle the next broken rule of this thread is about: its history is reported too. */
void sim_rules_about(uint64_t handle);

void sim_rules_reset(bool strict);

#endif
