/* SPDX-License-Identifier: Apache-2.0 */
/* library: code that a program loads itself. Owns nothing; the handles are the driver's own. */
#include "sim/libcudart/runtime.h"

#include <stddef.h>
#include <stdint.h>

RT_API cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                       enum cudaJitOption *jit_options, void **jit_values, unsigned jit_count,
                                       enum cudaLibraryOption *options, void **values, unsigned count)
{
    return RT_RUN(cuLibraryLoadData((CUlibrary *)library, code, (CUjit_option *)jit_options, jit_values,
                                    jit_count, (CUlibraryOption *)options, values, count));
}

RT_API cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *path,
                                           enum cudaJitOption *jit_options, void **jit_values,
                                           unsigned jit_count, enum cudaLibraryOption *options, void **values,
                                           unsigned count)
{
    return RT_RUN(cuLibraryLoadFromFile((CUlibrary *)library, path, (CUjit_option *)jit_options, jit_values,
                                        jit_count, (CUlibraryOption *)options, values, count));
}

RT_API cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    return RT_RUN(cuLibraryUnload((CUlibrary)library));
}

RT_API cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    return RT_RUN(cuLibraryGetKernel((CUkernel *)kernel, (CUlibrary)library, name));
}

RT_API cudaError_t cudaLibraryGetKernelCount(unsigned *count, cudaLibrary_t library)
{
    return RT_RUN(cuLibraryGetKernelCount(count, (CUlibrary)library));
}

RT_API cudaError_t cudaLibraryGetGlobal(void **pointer, size_t *size, cudaLibrary_t library, const char *name)
{
    CUdeviceptr address = 0;
    cudaError_t error = RT_RUN(cuLibraryGetGlobal(&address, size, (CUlibrary)library, name));

    if (!error)
        *pointer = (void *)(uintptr_t)address;
    return error;
}

RT_API cudaError_t cudaLibraryGetManaged(void **pointer, size_t *size, cudaLibrary_t library,
                                         const char *name)
{
    CUdeviceptr address = 0;
    cudaError_t error = RT_RUN(cuLibraryGetManaged(&address, size, (CUlibrary)library, name));

    if (!error)
        *pointer = (void *)(uintptr_t)address;
    return error;
}

RT_API cudaError_t cudaLibraryGetUnifiedFunction(void **function, cudaLibrary_t library, const char *symbol)
{
    return RT_RUN(cuLibraryGetUnifiedFunction(function, (CUlibrary)library, symbol));
}

RT_API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attribute,
                                                   int value, int device)
{
    return RT_RUN(cuKernelSetAttribute((CUfunction_attribute)attribute, value, (CUkernel)kernel, device));
}
