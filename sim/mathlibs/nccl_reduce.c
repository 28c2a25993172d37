/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_reduce: see nccl_reduce.h. Owns nothing, has no lock. */
#include "sim/mathlibs/nccl_reduce.h"

#include <stdint.h>

enum { SUM, PRODUCT, MAXIMUM, MINIMUM, AVERAGE };

/* ncclDataType_t in its order, with the type that computes it. */
#define ARITHMETIC_TYPES(X)                                                                                  \
    X(0, int8_t)                                                                                             \
    X(1, uint8_t)                                                                                            \
    X(2, int32_t)                                                                                            \
    X(3, uint32_t)                                                                                           \
    X(4, int64_t)                                                                                            \
    X(5, uint64_t)                                                                                           \
    X(7, float)                                                                                              \
    X(8, double)

size_t nccl_type_bytes(int type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 0;
}

#define DEFINE_FOLD(number, type)                                                                            \
    static void fold_##type(type *into, const type *from, size_t count, int op)                              \
    {                                                                                                        \
        for (size_t i = 0; i < count; i++) {                                                                 \
            if (op == PRODUCT)                                                                               \
                into[i] = (type)(into[i] * from[i]);                                                         \
            else if (op == MAXIMUM)                                                                          \
                into[i] = into[i] > from[i] ? into[i] : from[i];                                             \
            else if (op == MINIMUM)                                                                          \
                into[i] = into[i] < from[i] ? into[i] : from[i];                                             \
            else                                                                                             \
                into[i] = (type)(into[i] + from[i]);                                                         \
        }                                                                                                    \
    }                                                                                                        \
    static void divide_##type(type *into, size_t count, int ranks)                                           \
    {                                                                                                        \
        for (size_t i = 0; i < count; i++)                                                                   \
            into[i] = (type)(into[i] / (type)ranks);                                                         \
    }
ARITHMETIC_TYPES(DEFINE_FOLD)

bool nccl_fold(void *into, const void *from, size_t count, int type, int op)
{
    if (op < SUM || op > AVERAGE)
        return false;
    switch (type) {
#define FOLD_CASE(number, type)                                                                              \
    case number:                                                                                             \
        fold_##type(into, from, count, op);                                                                  \
        return true;
        ARITHMETIC_TYPES(FOLD_CASE)
    default:
        return false;
    }
}

void nccl_finish(void *into, size_t count, int type, int op, int ranks)
{
    if (op != AVERAGE)
        return;
    switch (type) {
#define DIVIDE_CASE(number, type)                                                                            \
    case number:                                                                                             \
        divide_##type(into, count, ranks);                                                                   \
        break;
        ARITHMETIC_TYPES(DIVIDE_CASE)
    default:
        break;
    }
}
