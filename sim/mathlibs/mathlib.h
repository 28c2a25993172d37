/* SPDX-License-Identifier: Apache-2.0 */
/* mathlib: what the math stand-ins share. Each stand-in is one of NVIDIA's libraries as far as PyTorch
 * imports it: handles and sizes are answered, computations do nothing, and what is in no table refuses and is
 * counted. The libraries are ordinary users of the simulated driver; nothing here knows its insides. */
#ifndef SEAMALLOC_SIM_MATHLIBS_MATHLIB_H
#define SEAMALLOC_SIM_MATHLIBS_MATHLIB_H

#include <stddef.h>
#include <stdint.h>

#include "sim/sim.h"

/* A new zeroed block of 64 bytes that stands for a handle or a descriptor.
 * Returns: never NULL; the process ends when the host has no memory left. Thread: any. */
void *mathlib_new(void);

/* Gives a block of mathlib_new back; NULL is nothing. Thread: any. */
void mathlib_delete(void *block);

/* A handle's stream is the first thing in it. */
void mathlib_set_stream(void *handle, CUstream stream);

/* Says on the handle's stream that `count` problems were solved: zeros in device memory, where a library's
 * kernel would put the status that its caller reads back. NULL is nothing. Thread: any. */
void mathlib_succeed(const void *handle, CUdeviceptr status, int count);

/* Counts a call of a function that has no answer, in the device's record under "unsupported_calls".
 * Returns: status. Thread: any. */
long mathlib_refuse(const char *name, long status);

/* The bytes of one element of a cudaDataType_t; 0 for a type that is not known. */
size_t mathlib_type_bytes(int type);

/* Where a matrix product leaves its result: `columns` columns of `rows` elements, `ld` elements apart,
 * `batch` times, `stride` elements apart. */
struct mathlib_matrix {
    CUdeviceptr base; /* 0: not known, e.g. an array of pointers in device memory */
    int type;         /* cudaDataType_t */
    int64_t rows, columns, ld, batch, stride;
};

/* Puts a matrix product on a stream: `inner` products an element of the result. Its modelled time is that of
 * its arithmetic or of its bytes, whichever is longer. Thread: any. */
void mathlib_matrix_product(CUstream stream, const struct mathlib_matrix *result, int64_t inner);

#endif
