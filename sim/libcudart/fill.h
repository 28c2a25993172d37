/* SPDX-License-Identifier: Apache-2.0 */
/* fill: the one kernel that is carried out. PyTorch makes small tensors of a given value (a count, a flag, a
 * shape that ranks compare) with a kernel of its own, and programs read them back and act on them. Its name
 * says what it is, and its arguments (count, value, address) say all that it does.
 *
 * Zeros are filled in at any size, as that takes no host memory; other values up to 4 KiB, so that a large
 * tensor of ones does not become resident. Anything else stays a kernel that does nothing. */
#ifndef SEAMALLOC_SIM_LIBCUDART_FILL_H
#define SEAMALLOC_SIM_LIBCUDART_FILL_H

#include "sim/libcudart/runtime.h"

/* The bytes of an element if `name` is a fill kernel of contiguous memory; 0 for any other kernel. Thread:
 * any. */
unsigned rt_fill_element(const char *name);

/* Does what the fill kernel would do on the stream, when it can: `arguments` are those of its launch.
 * Requires: the thread's context is current; `element` is what rt_fill_element returned.
 * Returns: true with *error written when it was done or failed; false when the kernel is to be launched
 * instead. */
bool rt_fill(unsigned element, void **arguments, cudaStream_t stream, cudaError_t *error);

#endif
