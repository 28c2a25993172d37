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

void mathlib_matrix_product(CUstream stream, const struct mathlib_matrix *result, int64_t inner)
{
    unsigned element = (unsigned)mathlib_type_bytes(result->type);
    double rows = (double)result->rows, columns = (double)result->columns, batch = (double)result->batch;
    double elements = batch * (rows * columns + (rows + columns) * (double)inner);
    struct sim_work work = {.name = "matrix product",
                            .operations = 2.0 * rows * columns * (double)inner * batch,
                            .element_bytes = element,
                            .memory_bytes = (uint64_t)(elements * element)};
    size_t size = 0;

    if (result->base && result->rows > 0 && result->columns > 0 && result->batch > 0)
        size = (size_t)(result->stride * (result->batch - 1) + result->ld * (result->columns - 1) +
                        result->rows) *
               element;
    sim_stream_do(stream, size ? result->base : 0, size, &work);
}
