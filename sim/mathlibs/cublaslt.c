/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt: the part of the cuBLASLt stand-in whose answers matter: matrix layouts, the product itself, and
 * the one algorithm that the heuristic always finds. Owns: the layouts. No lock: a descriptor is its
 * caller's. */
#include "sim/mathlibs/mathlib.h"

#include <string.h>

/* Documented attributes of a layout. */
enum {
    LAYOUT_TYPE = 0,
    LAYOUT_ROWS = 2,
    LAYOUT_COLUMNS = 3,
    LAYOUT_LD = 4,
    LAYOUT_BATCH = 5,
    LAYOUT_STRIDE = 6
};

enum { STATUS_SUCCESS = 0, STATUS_INVALID_VALUE = 7 };

struct layout {
    int32_t type, batch;
    uint64_t rows, columns;
    int64_t ld, stride;
};

/* cublasLtMatmulHeuristicResult_t, as documented: an opaque algorithm, and what it would need. */
struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

int cublasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
int cublasLtMatrixLayoutDestroy(struct layout *layout);
int cublasLtMatrixLayoutSetAttribute(struct layout *layout, int attribute, const void *value, size_t size);
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, struct heuristic *results, int *found);
int cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, struct layout *layout_a,
                   const void *b, struct layout *layout_b, const void *beta, const void *c,
                   struct layout *layout_c, void *d, struct layout *layout_d, const void *algorithm,
                   void *workspace, size_t workspace_size, CUstream stream);

#pragma GCC visibility push(default)

int cublasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    *layout = mathlib_new();
    **layout = (struct layout){.type = type, .batch = 1, .rows = rows, .columns = columns, .ld = ld};
    return STATUS_SUCCESS;
}

int cublasLtMatrixLayoutDestroy(struct layout *layout)
{
    mathlib_delete(layout);
    return STATUS_SUCCESS;
}

int cublasLtMatrixLayoutSetAttribute(struct layout *layout, int attribute, const void *value, size_t size)
{
    void *field;
    size_t width = 8;

    switch (attribute) {
    case LAYOUT_TYPE:
        field = &layout->type, width = 4;
        break;
    case LAYOUT_ROWS:
        field = &layout->rows;
        break;
    case LAYOUT_COLUMNS:
        field = &layout->columns;
        break;
    case LAYOUT_LD:
        field = &layout->ld;
        break;
    case LAYOUT_BATCH:
        field = &layout->batch, width = 4;
        break;
    case LAYOUT_STRIDE:
        field = &layout->stride;
        break;
    default:
        return STATUS_SUCCESS; /* an order or a plane, which changes neither size nor time here */
    }
    if (size < width)
        return STATUS_INVALID_VALUE;
    memcpy(field, value, width);
    return STATUS_SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, struct heuristic *results, int *found)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (wanted < 1)
        return STATUS_INVALID_VALUE;
    results[0] = (struct heuristic){.waves = 1.0F}; /* it needs no workspace */
    *found = 1;
    return STATUS_SUCCESS;
}

int cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, struct layout *layout_a,
                   const void *b, struct layout *layout_b, const void *beta, const void *c,
                   struct layout *layout_c, void *d, struct layout *layout_d, const void *algorithm,
                   void *workspace, size_t workspace_size, CUstream stream)
{
    struct mathlib_matrix result = {.base = (CUdeviceptr)d,
                                    .type = layout_d->type,
                                    .rows = (int64_t)layout_d->rows,
                                    .columns = (int64_t)layout_d->columns,
                                    .ld = layout_d->ld,
                                    .batch = layout_d->batch,
                                    .stride = layout_d->stride};
    /* A is m by k, or transposed; its elements are m times k either way. */
    uint64_t inner = layout_d->rows ? layout_a->rows * layout_a->columns / layout_d->rows : 0;

    (void)handle, (void)operation, (void)alpha, (void)a, (void)b, (void)layout_b, (void)beta, (void)c;
    (void)layout_c, (void)algorithm, (void)workspace, (void)workspace_size;
    mathlib_matrix_product(stream, &result, (int64_t)inner);
    return STATUS_SUCCESS;
}

#pragma GCC visibility pop
