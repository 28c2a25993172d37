/* SPDX-License-Identifier: Apache-2.0 */
/* cublas: the part of the cuBLAS stand-in whose answers depend on its handle, and the matrix products, which
 * take their modelled time on the handle's stream. Other computations do nothing (tables/cublas.tab).
 *
 * Owns: the handle. A handle is used by one thread at a time, as cuBLAS asks for. No cuBLAS header is needed
 * to build this; enumerations are ints, as the calling convention has them. */
#include "sim/mathlibs/mathlib.h"

#include <library_types.h>

struct handle {
    CUstream stream; /* first: mathlib_set_stream */
    int pointer_mode, math_mode;
};

int cublasCreate_v2(struct handle **handle);
int cublasDestroy_v2(struct handle *handle);
int cublasSetStream_v2(struct handle *handle, CUstream stream);
int cublasSetPointerMode_v2(struct handle *handle, int mode);
int cublasGetPointerMode_v2(struct handle *handle, int *mode);
int cublasSetMathMode(struct handle *handle, int mode);
int cublasGetMathMode(struct handle *handle, int *mode);

#pragma GCC visibility push(default)

int cublasCreate_v2(struct handle **handle)
{
    *handle = mathlib_new();
    return 0;
}

int cublasDestroy_v2(struct handle *handle)
{
    mathlib_delete(handle);
    return 0;
}

int cublasSetStream_v2(struct handle *handle, CUstream stream)
{
    handle->stream = stream;
    return 0;
}

int cublasSetPointerMode_v2(struct handle *handle, int mode)
{
    handle->pointer_mode = mode;
    return 0;
}

int cublasGetPointerMode_v2(struct handle *handle, int *mode)
{
    *mode = handle->pointer_mode;
    return 0;
}

int cublasSetMathMode(struct handle *handle, int mode)
{
    handle->math_mode = mode;
    return 0;
}

int cublasGetMathMode(struct handle *handle, int *mode)
{
    *mode = handle->math_mode;
    return 0;
}

/* ---- matrix products ---- */

static int multiply(struct handle *handle, const struct mathlib_matrix *result, int64_t inner)
{
    mathlib_matrix_product(handle->stream, result, inner);
    return 0;
}

#define GEMM(letter, type)                                                                                   \
    int cublas##letter##gemm_v2(struct handle *handle, int ta, int tb, int m, int n, int k,                  \
                                const void *alpha, const void *a, int lda, const void *b, int ldb,           \
                                const void *beta, void *c, int ldc);                                         \
    int cublas##letter##gemm_v2(struct handle *handle, int ta, int tb, int m, int n, int k,                  \
                                const void *alpha, const void *a, int lda, const void *b, int ldb,           \
                                const void *beta, void *c, int ldc)                                          \
    {                                                                                                        \
        struct mathlib_matrix result = {(CUdeviceptr)c, type, m, n, ldc, 1, 0};                              \
                                                                                                             \
        (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta;                 \
        return multiply(handle, &result, k);                                                                 \
    }                                                                                                        \
    int cublas##letter##gemmBatched(struct handle *handle, int ta, int tb, int m, int n, int k,              \
                                    const void *alpha, const void *a, int lda, const void *b, int ldb,       \
                                    const void *beta, void *c, int ldc, int batch);                          \
    int cublas##letter##gemmBatched(struct handle *handle, int ta, int tb, int m, int n, int k,              \
                                    const void *alpha, const void *a, int lda, const void *b, int ldb,       \
                                    const void *beta, void *c, int ldc, int batch)                           \
    {                                                                                                        \
        struct mathlib_matrix result = {0, type, m, n, ldc, batch, 0};                                       \
                                                                                                             \
        (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c;        \
        return multiply(handle, &result, k);                                                                 \
    }                                                                                                        \
    int cublas##letter##gemmStridedBatched(struct handle *handle, int ta, int tb, int m, int n, int k,       \
                                           const void *alpha, const void *a, int lda, int64_t stride_a,      \
                                           const void *b, int ldb, int64_t stride_b, const void *beta,       \
                                           void *c, int ldc, int64_t stride_c, int batch);                   \
    int cublas##letter##gemmStridedBatched(struct handle *handle, int ta, int tb, int m, int n, int k,       \
                                           const void *alpha, const void *a, int lda, int64_t stride_a,      \
                                           const void *b, int ldb, int64_t stride_b, const void *beta,       \
                                           void *c, int ldc, int64_t stride_c, int batch)                    \
    {                                                                                                        \
        struct mathlib_matrix result = {(CUdeviceptr)c, type, m, n, ldc, batch, stride_c};                   \
                                                                                                             \
        (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)stride_a, (void)b, (void)ldb,             \
            (void)stride_b;                                                                                  \
        (void)beta;                                                                                          \
        return multiply(handle, &result, k);                                                                 \
    }

GEMM(S, CUDA_R_32F)
GEMM(D, CUDA_R_64F)
GEMM(C, CUDA_C_32F)
GEMM(Z, CUDA_C_64F)

int cublasGemmEx(struct handle *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                 int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,
                 int type_c, int ldc, int compute, int algorithm);
int cublasGemmEx(struct handle *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                 int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,
                 int type_c, int ldc, int compute, int algorithm)
{
    struct mathlib_matrix result = {(CUdeviceptr)c, type_c, m, n, ldc, 1, 0};

    (void)ta, (void)tb, (void)alpha, (void)a, (void)type_a, (void)lda, (void)b, (void)type_b, (void)ldb;
    (void)beta, (void)compute, (void)algorithm;
    return multiply(handle, &result, k);
}

int cublasSgemmEx(struct handle *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                  const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta,
                  void *c, int type_c, int ldc);
int cublasSgemmEx(struct handle *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                  const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta,
                  void *c, int type_c, int ldc)
{
    return cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc,
                        0, 0);
}

int cublasGemmStridedBatchedEx(struct handle *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                               const void *a, int type_a, int lda, int64_t stride_a, const void *b,
                               int type_b, int ldb, int64_t stride_b, const void *beta, void *c, int type_c,
                               int ldc, int64_t stride_c, int batch, int compute, int algorithm);
int cublasGemmStridedBatchedEx(struct handle *handle, int ta, int tb, int m, int n, int k, const void *alpha,
                               const void *a, int type_a, int lda, int64_t stride_a, const void *b,
                               int type_b, int ldb, int64_t stride_b, const void *beta, void *c, int type_c,
                               int ldc, int64_t stride_c, int batch, int compute, int algorithm)
{
    struct mathlib_matrix result = {(CUdeviceptr)c, type_c, m, n, ldc, batch, stride_c};

    (void)ta, (void)tb, (void)alpha, (void)a, (void)type_a, (void)lda, (void)stride_a, (void)b, (void)type_b;
    (void)ldb, (void)stride_b, (void)beta, (void)compute, (void)algorithm;
    return multiply(handle, &result, k);
}

/* ---- copies between host and device, which are real ---- */

static int copy_columns(const void *from, int64_t from_pitch, void *to, int64_t to_pitch, int64_t width,
                        int64_t height, CUstream stream)
{
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = (CUdeviceptr)from,
                          .srcPitch = (size_t)from_pitch,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = (CUdeviceptr)to,
                          .dstPitch = (size_t)to_pitch,
                          .WidthInBytes = (size_t)width,
                          .Height = (size_t)height};

    return cuMemcpy2DAsync(&copy, stream) == CUDA_SUCCESS ? 0 : 11; /* mapping error */
}

#define COPIES(direction)                                                                                    \
    int cublas##direction##MatrixAsync(int rows, int columns, int element, const void *a, int lda, void *b,  \
                                       int ldb, CUstream stream);                                            \
    int cublas##direction##MatrixAsync(int rows, int columns, int element, const void *a, int lda, void *b,  \
                                       int ldb, CUstream stream)                                             \
    {                                                                                                        \
        return copy_columns(a, (int64_t)lda * element, b, (int64_t)ldb * element, (int64_t)rows * element,   \
                            columns, stream);                                                                \
    }                                                                                                        \
    int cublas##direction##VectorAsync(int n, int element, const void *x, int inc_x, void *y, int inc_y,     \
                                       CUstream stream);                                                     \
    int cublas##direction##VectorAsync(int n, int element, const void *x, int inc_x, void *y, int inc_y,     \
                                       CUstream stream)                                                      \
    {                                                                                                        \
        return copy_columns(x, (int64_t)inc_x * element, y, (int64_t)inc_y * element, element, n, stream);   \
    }

COPIES(Set)
COPIES(Get)

#pragma GCC visibility pop
