/* SPDX-License-Identifier: Apache-2.0 */
/* transfer: copies and fills, the only work here that does anything.
 *
 * Kernels do nothing, so a program that reads back a few bytes (a count, a loss) would get whatever lay
 * there, and might take it for an enormous size. Therefore a read of at most 16 bytes from the device gives
 * zeros once a kernel has been launched, unless just those bytes were written since by a fill, or by a copy
 * of bytes that are known in the same way.
 *
 * A kernel whose result is known to lie somewhere (sim_stream_work, matrix products, PyTorch's element-wise
 * kernels for one byte an element) writes there all the same when it completes late, so that memory which was
 * given out too early is really damaged. Everything else that a kernel writes is not known here: results of
 * other kernels, and of batched products through arrays of pointers.
 *
 * No path here may make memory resident that nobody wrote: zeros over whole pages give the pages back, and
 * what was never written is neither read through a mapping nor copied. Protected by: the core lock. */
#ifndef SEAMALLOC_SIM_CORE_TRANSFER_H
#define SEAMALLOC_SIM_CORE_TRANSFER_H

#include "sim/sim.h"

struct sim_transfer {
    uint64_t dst, src; /* src unused by a fill */
    uint64_t width;    /* bytes of a row */
    uint64_t height;   /* rows; 1 for plain ones */
    uint64_t dst_pitch, src_pitch;
    uint32_t value;  /* fill */
    uint8_t element; /* bytes of the fill's value; 0: a copy */
    bool dst_device, src_device;
    void *staged; /* a copy of a pageable source, taken when the call returned before the work was done */
};

/* Sets dst_device and src_device. */
void sim_transfer_classify(struct sim_transfer *transfer);

/* Checks the device sides of a transfer that runs on `device`. Returns: CUDA_SUCCESS, or
 * CUDA_ERROR_INVALID_VALUE with a broken rule recorded. */
/* Is a side in the first page of the host, as a null pointer is, or a fill for memory that no device reaches?
 * Nothing could be done then but to fault in the program. Requires: it is classified. */
bool sim_transfer_is_nowhere(const struct sim_transfer *transfer);

CUresult sim_transfer_check(const struct sim_transfer *transfer, int device);

/* Does it. Returns: false when a range has gone meanwhile, which is a broken rule; all is left alone then. */
bool sim_transfer_run(const struct sim_transfer *transfer, int device);

/* The effect of a kernel that is known to write a range, when it completes late: its bytes become
 * SIM_KERNEL_BYTE, all of a small range, else the first 64 bytes of a few of its pages and its last 64. A
 * range that has gone meanwhile is a broken rule. Returns: false for such a range. */
#define SIM_KERNEL_BYTE 0x3c /* as a float of any width a small number, neither 0 nor infinite */
bool sim_transfer_kernel_writes(uint64_t base, uint64_t size, int device);

/* The bytes a side spans, from its first to its last. */
uint64_t sim_transfer_span(uint64_t width, uint64_t height, uint64_t pitch);

/* A kernel was launched: small reads are no longer to be trusted, or those not that lie where the thread said
 * with sim_kernel_writes that it writes. */
void sim_transfer_kernel(void);
/* What the thread's next kernel surely writes; asked once. Returns: false when that is not known. */
bool sim_transfer_sure(uint64_t *base, uint64_t *size);
void sim_transfer_reset(void);

#endif
