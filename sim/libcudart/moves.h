/* SPDX-License-Identifier: Apache-2.0 */
/* moves: how much memory PyTorch's kernels move, as far as their names and arguments say; virtual time is
 * reckoned from it.
 *
 * Two kinds are known: kernels over contiguous elements, and those that go over a list of tensors in chunks
 * (optimisers). The second give an upper bound: every block is taken to have a whole chunk, which is too much
 * where tensors are small. For all other kernels the device goes by the number of threads. */
#ifndef SEAMALLOC_SIM_LIBCUDART_MOVES_H
#define SEAMALLOC_SIM_LIBCUDART_MOVES_H

#include <stdint.h>

struct rt_moves {
    uint32_t per_element; /* bytes for each of the elements that argument 0 counts; 0: another kind */
    uint32_t per_block;   /* bytes for each block; 0: another kind */
};

/* What a kernel's name says. Thread: any. */
struct rt_moves rt_moves(const char *name);

/* The bytes that one launch moves; 0: not known. Requires: `arguments` are those of the kernel that *moves is
 * about. Thread: any. */
uint64_t rt_moved_bytes(const struct rt_moves *moves, void **arguments, uint64_t blocks);

#endif
