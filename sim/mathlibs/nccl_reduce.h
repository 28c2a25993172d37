/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_reduce: the arithmetic of a small reduction on the host. */
#ifndef SEAMALLOC_SIM_MATHLIBS_NCCL_REDUCE_H
#define SEAMALLOC_SIM_MATHLIBS_NCCL_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of an element of an ncclDataType_t; 0 for one that is not known. */
size_t nccl_type_bytes(int type);

/* Folds `count` elements of `from` into `into`: sum (0), product (1), maximum (2), minimum (3); an average
 * (4) is a sum until nccl_finish. Returns: false for a type or operation that has no arithmetic here (16-bit
 * and 8-bit floats, custom operations); nothing has changed then. */
bool nccl_fold(void *into, const void *from, size_t count, int type, int op);

/* Makes an average out of a sum over `ranks`; nothing for the other operations. */
void nccl_finish(void *into, size_t count, int type, int op, int ranks);

#endif
