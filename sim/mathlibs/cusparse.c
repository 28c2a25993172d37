/* SPDX-License-Identifier: Apache-2.0 */
/* cusparse: sparse matrices, whose size is asked for again. Owns: the descriptors. No lock: each is its
 * caller's. */
#include "sim/mathlibs/mathlib.h"

struct sparse {
    int64_t rows, columns, elements;
};

int cusparseCreateCsr(struct sparse **matrix, int64_t rows, int64_t columns, int64_t elements);
int cusparseCreateCoo(struct sparse **matrix, int64_t rows, int64_t columns, int64_t elements);
int cusparseDestroySpMat(struct sparse *matrix);
int cusparseSpMatGetSize(const struct sparse *matrix, int64_t *rows, int64_t *columns, int64_t *elements);

#pragma GCC visibility push(default)

/* The arguments that follow say where the elements lie and of what type they are; nobody here looks at them.
 */
int cusparseCreateCsr(struct sparse **matrix, int64_t rows, int64_t columns, int64_t elements)
{
    *matrix = mathlib_new();
    **matrix = (struct sparse){rows, columns, elements};
    return 0;
}

int cusparseCreateCoo(struct sparse **matrix, int64_t rows, int64_t columns, int64_t elements)
{
    return cusparseCreateCsr(matrix, rows, columns, elements);
}

int cusparseDestroySpMat(struct sparse *matrix)
{
    mathlib_delete(matrix);
    return 0;
}

int cusparseSpMatGetSize(const struct sparse *matrix, int64_t *rows, int64_t *columns, int64_t *elements)
{
    *rows = matrix->rows;
    *columns = matrix->columns;
    *elements = matrix->elements;
    return 0;
}

#pragma GCC visibility pop
