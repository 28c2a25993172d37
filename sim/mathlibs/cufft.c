/* SPDX-License-Identifier: Apache-2.0 */
/* cufft: plans are numbers, and the size of a plan's work area is an answer that becomes an allocation. Owns
 * nothing. */
#include "sim/mathlibs/mathlib.h"

#include <stdatomic.h>

int cufftCreate(int *plan);
int cufftXtMakePlanMany(int plan, int rank, const int64_t *n, const int64_t *in_embed, int64_t in_stride,
                        int64_t in_distance, int in_type, const int64_t *out_embed, int64_t out_stride,
                        int64_t out_distance, int out_type, int64_t batch, size_t *work_size, int type);

#pragma GCC visibility push(default)

int cufftCreate(int *plan)
{
    static atomic_int plans;

    *plan = atomic_fetch_add(&plans, 1) + 1;
    return 0;
}

/* One copy of the transformed data: what a transform that cannot be done in place needs. */
int cufftXtMakePlanMany(int plan, int rank, const int64_t *n, const int64_t *in_embed, int64_t in_stride,
                        int64_t in_distance, int in_type, const int64_t *out_embed, int64_t out_stride,
                        int64_t out_distance, int out_type, int64_t batch, size_t *work_size, int type)
{
    int64_t elements = batch;

    (void)plan, (void)in_embed, (void)in_stride, (void)in_distance, (void)in_type, (void)out_embed;
    (void)out_stride, (void)out_distance, (void)out_type;
    for (int i = 0; i < rank; i++)
        elements *= n[i];
    *work_size = (size_t)elements * mathlib_type_bytes(type);
    return 0;
}

#pragma GCC visibility pop
