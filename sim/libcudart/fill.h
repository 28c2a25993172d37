/* SPDX-License-Identifier: Apache-2.0 */
/* fill: PyTorch's kernels over contiguous elements, whose names and arguments say where they write, and one
 * of them that is carried out.
 *
 * PyTorch makes small tensors of a given value (a count, a flag, a shape that ranks compare) with a fill
 * kernel, and programs read them back and act on them. Zeros are filled in at any size, as that takes no host
 * memory; other values up to 4 KiB, so that a large tensor of ones does not become resident. Every other
 * kernel does nothing. */
#ifndef SEAMALLOC_SIM_LIBCUDART_FILL_H
#define SEAMALLOC_SIM_LIBCUDART_FILL_H

#include "sim/libcudart/runtime.h"

/* Whether `name` is a kernel over contiguous elements: its arguments are the number of elements, a functor,
 * and an array of addresses that begins with the result's. Thread: any. */
bool rt_is_elementwise(const char *name);

/* Tells the device where the launch that follows writes. Requires: rt_is_elementwise. */
void rt_announce(void **arguments);

/* Takes that back, for a launch that has failed. */
void rt_announce_nothing(void);

/* The bytes of an element if `name` is a fill kernel of contiguous memory; 0 for any other kernel. Thread:
 * any. */
unsigned rt_fill_element(const char *name);

/* Does what the fill kernel would do on the stream, when it can: `arguments` are those of its launch.
 * Requires: the thread's context is current; `element` is what rt_fill_element returned.
 * Returns: true with *error written when it was done or failed; false when the kernel is to be launched
 * instead. */
bool rt_fill(unsigned element, void **arguments, cudaStream_t stream, cudaError_t *error);

#endif
