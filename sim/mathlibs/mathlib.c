/* SPDX-License-Identifier: Apache-2.0 */
/* mathlib: see mathlib.h. Compiled into each stand-in; owns nothing, has no lock. */
#include "sim/mathlibs/mathlib.h"

#include <stdlib.h>

/* cudaDataType_t, as documented; the header that has it is only for C++ and nvcc in part. */
#include <library_types.h>

void *mathlib_new(void)
{
    void *block = calloc(1, 64);

    if (!block)
        abort();
    return block;
}

void mathlib_delete(void *block)
{
    free(block);
}

void mathlib_set_stream(void *handle, CUstream stream)
{
    *(CUstream *)handle = stream;
}

void mathlib_succeed(const void *handle, CUdeviceptr status, int count)
{
    if (status && count > 0)
        cuMemsetD32Async(status, 0, (size_t)count, *(const CUstream *)handle);
}

long mathlib_refuse(const char *name, long status)
{
    sim_note_unsupported(name);
    return status;
}

size_t mathlib_type_bytes(int type)
{
    switch (type) {
    case CUDA_R_8I:
    case CUDA_R_8U:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
        return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
    case CUDA_R_16I:
        return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
    case CUDA_C_16F:
    case CUDA_C_16BF:
        return 4;
    case CUDA_R_64F:
    case CUDA_C_32F:
    case CUDA_R_64I:
        return 8;
    case CUDA_C_64F:
        return 16;
    default:
        return 0;
    }
}

/* Round figures of a large current device, in operations and bytes a nanosecond: half of what its tensor
 * cores could do with 16-bit numbers, an eighth of that for wider ones, and its memory's bandwidth. */
static double operations_per_ns(int type)
{
    return mathlib_type_bytes(type) <= 2 ? 400e3 : 50e3;
}

#define BYTES_PER_NS 3000.0

void mathlib_matrix_product(CUstream stream, const struct mathlib_matrix *result, int64_t inner)
{
    double element = (double)mathlib_type_bytes(result->type), batch = (double)result->batch;
    double rows = (double)result->rows, columns = (double)result->columns;
    double arithmetic = 2.0 * rows * columns * (double)inner * batch / operations_per_ns(result->type);
    double bytes = element * batch * (rows * columns + (rows + columns) * (double)inner) / BYTES_PER_NS;
    double ns = arithmetic > bytes ? arithmetic : bytes;
    size_t size = 0;

    if (result->base && result->rows > 0 && result->columns > 0 && result->batch > 0)
        size = (size_t)(result->stride * (result->batch - 1) + result->ld * (result->columns - 1) +
                        result->rows) *
               mathlib_type_bytes(result->type);
    sim_stream_work(stream, size ? result->base : 0, size, (uint64_t)ns);
}
