/* SPDX-License-Identifier: Apache-2.0 */
/* Result codes: one list gives the enum, the name and the meaning of each.
 *
 * Two kinds of out-of-memory are kept apart because a program reacts differently: DEVICE_OOM and LIMIT may
 * pass after something is freed, HOST_OOM speaks of the host's memory. DEVICE means that the driver refused
 * for another reason than memory; its own code and text stand in seam_last_error(). */
#ifndef SEAMALLOC_RESULT_H
#define SEAMALLOC_RESULT_H

#define SEAM_RESULTS(X)                                                                                      \
    X(OK, "success")                                                                                         \
    X(E_ARGUMENT, "an argument is outside of what the function accepts")                                     \
    X(E_OPTION, "a configuration string was not understood")                                                 \
    X(E_STATE, "the call is not allowed in the present state")                                               \
    X(E_POINTER, "the pointer is not a block of this allocator")                                             \
    X(E_DEVICE_OOM, "the device has no memory left for the request")                                         \
    X(E_LIMIT, "the request would pass the memory limit that was set")                                       \
    X(E_HOST_OOM, "the host has no memory left for bookkeeping")                                             \
    X(E_DEVICE, "the driver refused a call")                                                                 \
    X(E_NO_DRIVER, "no usable CUDA driver was found")                                                        \
    X(E_UNSUPPORTED, "the device or the driver does not offer what was asked")                               \
    X(E_IO, "a file could not be read or written")

enum seam_result {
#define X(name, text) SEAM_##name,
    SEAM_RESULTS(X)
#undef X
        SEAM_RESULT_COUNT
};
typedef enum seam_result seam_result;

#endif
