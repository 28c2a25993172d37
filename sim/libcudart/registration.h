/* SPDX-License-Identifier: Apache-2.0 */
/* registration: the functions that nvcc's host code calls by itself, and the profiler's two. They are in
 * headers that only nvcc reads, or that come in a package of their own. */
#ifndef SEAMALLOC_SIM_LIBCUDART_REGISTRATION_H
#define SEAMALLOC_SIM_LIBCUDART_REGISTRATION_H

#include "sim/libcudart/runtime.h"

/* When a program or library is loaded and unloaded. `handle` is what the first call returned. */
RT_API void **__cudaRegisterFatBinary(void *binary);
RT_API void __cudaRegisterFatBinaryEnd(void **handle);
RT_API void __cudaUnregisterFatBinary(void **handle);
RT_API char __cudaInitModule(void **handle);
RT_API void __cudaRegisterFunction(void **handle, const char *host, char *device_name, const char *name,
                                   int limit, uint3 *thread, uint3 *block, dim3 *block_dim, dim3 *grid_dim,
                                   int *warp_size);
RT_API void __cudaRegisterVar(void **handle, char *host, char *device_name, const char *name, int external,
                              size_t size, int constant, int global);

/* kernel<<<...>>>(...): the configuration is put aside, and taken by the kernel's host function. */
RT_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
RT_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
RT_API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
RT_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream);

RT_API cudaError_t cudaProfilerStart(void);
RT_API cudaError_t cudaProfilerStop(void);

#endif
