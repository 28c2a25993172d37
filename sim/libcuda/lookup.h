/* SPDX-License-Identifier: Apache-2.0 */
/* lookup: which function a name means for a CUDA version; the table is generated from cudaTypedefs.h. */
#ifndef SEAMALLOC_SIM_LIBCUDA_LOOKUP_H
#define SEAMALLOC_SIM_LIBCUDA_LOOKUP_H

#include <cuda.h>
#include <cudaProfiler.h>

struct sim_form {
    const char *name; /* documented name */
    int version;      /* the CUDA version that brought this form, e.g. 12020 */
    int per_thread;   /* the form whose stream 0 is the thread's own */
    void *function;
};
extern const struct sim_form sim_forms[]; /* sorted by name, stream variant, version */
extern const unsigned sim_form_count;

#endif
