/* SPDX-License-Identifier: Apache-2.0 */
/* errors: names and texts of all errors of the driver. Immutable. */
#ifndef SEAMALLOC_SIM_CORE_ERRORS_H
#define SEAMALLOC_SIM_CORE_ERRORS_H

#include <cuda.h>

struct sim_error {
    CUresult error;
    const char *name, *text;
};

/* Return: NULL for what is no error of the driver. */
const struct sim_error *sim_error_find(CUresult error);
const struct sim_error *sim_error_named(const char *name, size_t length);

#endif
