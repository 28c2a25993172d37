/* SPDX-License-Identifier: Apache-2.0 */
/* Code: modules, libraries, kernels, launches. A kernel does nothing; what is asked about it are the answers
 * of an ordinary small one, as PyTorch divides by several of them. */
#include "sim/core/module.h"
#include "sim/core/calls.h"
#include "sim/core/lock.h"
#include "sim/core/model.h"
#include "sim/core/stream.h"
#include "sim/core/trace.h"
#include <string.h>

enum { THREADS_PER_BLOCK = 1024, THREADS_PER_MULTIPROCESSOR = 2048, SHARED_BYTES = 49152, REGISTERS = 32 };

static CUresult load(uint64_t *module)
{
    sim_lock();
    *module = sim_module_new();
    sim_unlock();
    return *module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult load_module(CUmodule *module, const void *image)
{
    uint64_t made;
    SIM_NEED(module);
    SIM_NEED(image);
    CUresult result = load(&made);
    if (!result)
        *module = (CUmodule)(uintptr_t)made;
    return result;
}

SIM_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_ENTER(cuModuleGetLoadingMode);
    SIM_NEED(mode);
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuModuleLoad(CUmodule *module, const char *file)
{
    SIM_ENTER_CONTEXT(cuModuleLoad, device);
    (void)device;
    return load_module(module, file);
}

SIM_API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SIM_ENTER_CONTEXT(cuModuleLoadData, device);
    (void)device;
    return load_module(module, image);
}

SIM_API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                                    CUjit_option *options, void **values)
{
    SIM_ENTER_CONTEXT(cuModuleLoadDataEx, device);
    (void)device;
    (void)count;
    (void)options;
    (void)values;
    return load_module(module, image);
}

SIM_API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    SIM_ENTER_CONTEXT(cuModuleLoadFatBinary, device);
    (void)device;
    return load_module(module, image);
}

static CUresult unload(uint64_t module)
{
    sim_lock();
    CUresult result = sim_module_unload(module);
    sim_unlock();
    return result;
}

SIM_API CUresult cuModuleUnload(CUmodule module)
{
    SIM_ENTER(cuModuleUnload);
    return unload((uint64_t)(uintptr_t)module);
}

static CUresult get_function(uint64_t module, const char *name, uint64_t *function)
{
    SIM_NEED(name);
    sim_lock();
    CUresult result = sim_module_function(module, name, function);
    sim_unlock();
    return result;
}

SIM_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    uint64_t found;
    SIM_ENTER(cuModuleGetFunction);
    SIM_NEED(function);
    CUresult result = get_function((uint64_t)(uintptr_t)module, name, &found);
    if (!result)
        *function = (CUfunction)(uintptr_t)found;
    return result;
}

static CUresult get_global(uint64_t module, const char *name, int device, CUdeviceptr *ptr, size_t *size)
{
    uint64_t base;
    SIM_NEED(name);
    sim_lock();
    CUresult result = sim_module_global(module, name, device, &base, size);
    sim_unlock();
    if (!result && ptr)
        *ptr = base;
    return result;
}

SIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *size, CUmodule module, const char *name)
{
    SIM_ENTER_CONTEXT(cuModuleGetGlobal, device);
    return get_global((uint64_t)(uintptr_t)module, name, device, ptr, size);
}

/* ---- libraries: modules of no context ---- */

SIM_API CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values,
                                   unsigned int jit_count, CUlibraryOption *options, void **values,
                                   unsigned int count)
{
    uint64_t made;
    SIM_ENTER(cuLibraryLoadData);
    SIM_NEED(library);
    SIM_NEED(code);
    (void)jit;
    (void)jit_values;
    (void)jit_count;
    (void)options;
    (void)values;
    (void)count;
    CUresult result = load(&made);
    if (!result)
        *library = (CUlibrary)(uintptr_t)made;
    return result;
}

SIM_API CUresult cuLibraryUnload(CUlibrary library)
{
    SIM_ENTER(cuLibraryUnload);
    return unload((uint64_t)(uintptr_t)library);
}

SIM_API CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    uint64_t found;
    SIM_ENTER(cuLibraryGetKernel);
    SIM_NEED(kernel);
    CUresult result = get_function((uint64_t)(uintptr_t)library, name, &found);
    if (!result)
        *kernel = (CUkernel)(uintptr_t)found;
    return result;
}

SIM_API CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    SIM_ENTER(cuLibraryGetModule);
    SIM_NEED(module);
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryGetGlobal(CUdeviceptr *ptr, size_t *size, CUlibrary library, const char *name)
{
    SIM_ENTER_CONTEXT(cuLibraryGetGlobal, device);
    return get_global((uint64_t)(uintptr_t)library, name, device, ptr, size);
}

/* ---- functions and kernels: one kind of thing here ---- */

#define GET_FUNCTION(function, handle)                                                                       \
    const struct sim_function *function = sim_function_get((uint64_t)(uintptr_t)(handle));                   \
    if (!function)                                                                                           \
    return CUDA_ERROR_INVALID_HANDLE

SIM_API CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    SIM_ENTER(cuKernelGetFunction);
    SIM_NEED(function);
    GET_FUNCTION(f, kernel);
    *function = (CUfunction)(uintptr_t)f->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    SIM_ENTER(cuKernelGetLibrary);
    SIM_NEED(library);
    GET_FUNCTION(f, kernel);
    *library = (CUlibrary)(uintptr_t)f->module;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    SIM_ENTER(cuKernelGetName);
    SIM_NEED(name);
    GET_FUNCTION(f, kernel);
    *name = f->name;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SIM_ENTER(cuFuncGetModule);
    SIM_NEED(module);
    GET_FUNCTION(f, function);
    *module = (CUmodule)(uintptr_t)f->module;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetName(const char **name, CUfunction function)
{
    SIM_ENTER(cuFuncGetName);
    SIM_NEED(name);
    GET_FUNCTION(f, function);
    *name = f->name;
    return CUDA_SUCCESS;
}

static CUresult attribute(int *value, CUfunction_attribute which, uint64_t handle)
{
    SIM_NEED(value);
    GET_FUNCTION(f, handle);
    (void)f;
    switch ((int)which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = THREADS_PER_BLOCK;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = REGISTERS;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 80; /* PyTorch asserts that it is one of those it was built for */
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = SHARED_BYTES;
        break;
    default:
        *value = 0;
    }
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function)
{
    SIM_ENTER(cuFuncGetAttribute);
    return attribute(value, which, (uint64_t)(uintptr_t)function);
}

SIM_API CUresult cuKernelGetAttribute(int *value, CUfunction_attribute which, CUkernel kernel,
                                      CUdevice device)
{
    SIM_ENTER(cuKernelGetAttribute);
    (void)device;
    return attribute(value, which, (uint64_t)(uintptr_t)kernel);
}

/* Settings that change how fast a kernel would be: accepted. */
static CUresult accept_setting(uint64_t handle)
{
    GET_FUNCTION(f, handle);
    (void)f;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value)
{
    SIM_ENTER(cuFuncSetAttribute);
    (void)which;
    (void)value;
    return accept_setting((uint64_t)(uintptr_t)function);
}

SIM_API CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel, CUdevice device)
{
    SIM_ENTER(cuKernelSetAttribute);
    (void)which;
    (void)value;
    (void)device;
    return accept_setting((uint64_t)(uintptr_t)kernel);
}

SIM_API CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    SIM_ENTER(cuFuncSetCacheConfig);
    (void)config;
    return accept_setting((uint64_t)(uintptr_t)function);
}

SIM_API CUresult cuFuncLoad(CUfunction function)
{
    SIM_ENTER(cuFuncLoad);
    return accept_setting((uint64_t)(uintptr_t)function);
}

SIM_API CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_ENTER(cuFuncIsLoaded);
    SIM_NEED(state);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return accept_setting((uint64_t)(uintptr_t)function);
}

/* ---- launches ---- */

/* What the next kernel of this thread moves; 0: not known. */
static __thread uint64_t next_bytes;

void sim_kernel_moves(uint64_t bytes)
{
    next_bytes = bytes;
}

static CUresult launch(CUfunction function, CUstream handle, uint64_t threads)
{
    struct sim_op op = {.kind = SIM_OP_KERNEL, .ns = sim_model_kernel_ns(threads, next_bytes)};
    struct sim_stream *stream = sim_stream_get(handle);
    next_bytes = 0;
    GET_FUNCTION(f, function);
    op.name = sim_trace_on() ? sim_trace_name(f->name) : NULL;
    if (sim_transfer_sure(&op.touches[0].base, &op.touches[0].size)) {
        op.touches[0].write = true;
        op.touch_count = 1;
    }
    if (!stream)
        return sim_context_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
    sim_lock();
    CUresult result = sim_stream_submit(stream, &op);
    if (!result)
        sim_transfer_kernel();
    sim_queue_tick();
    sim_unlock();
    return result;
}

static bool is_launchable(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz)
{
    return gx && gy && gz && bx && by && bz && bx <= 1024 && by <= 1024 && bz <= 64 &&
           (uint64_t)bx * by * bz <= THREADS_PER_BLOCK && gx <= 2147483647u && gy <= 65535 && gz <= 65535;
}

SIM_API CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                                unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                                CUstream stream, void **params, void **extra)
{
    SIM_ENTER(cuLaunchKernel);
    (void)shared;
    (void)params;
    (void)extra;
    return is_launchable(gx, gy, gz, bx, by, bz)
               ? launch(function, stream, (uint64_t)gx * gy * gz * bx * by * bz)
               : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy,
                                           unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
                                           unsigned int shared, CUstream stream, void **params)
{
    SIM_ENTER(cuLaunchCooperativeKernel);
    (void)shared;
    (void)params;
    return is_launchable(gx, gy, gz, bx, by, bz)
               ? launch(function, stream, (uint64_t)gx * gy * gz * bx * by * bz)
               : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                                  void **extra)
{
    SIM_ENTER(cuLaunchKernelEx);
    SIM_NEED(config);
    (void)params;
    (void)extra;
    return is_launchable(config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                         config->blockDimY, config->blockDimZ)
               ? launch(function, config->hStream,
                        (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ * config->blockDimX *
                            config->blockDimY * config->blockDimZ)
               : CUDA_ERROR_INVALID_VALUE;
}

/* ---- occupancy ---- */

static int blocks(int block_size)
{
    int n = block_size > 0 ? THREADS_PER_MULTIPROCESSOR / block_size : 0;
    return n ? n : 1;
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, CUfunction function,
                                                                      int block_size, size_t shared,
                                                                      unsigned int flags)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    SIM_NEED(count);
    (void)shared;
    (void)flags;
    *count = blocks(block_size);
    return accept_setting((uint64_t)(uintptr_t)function);
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction function, int block_size,
                                                             size_t shared)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    SIM_NEED(count);
    (void)shared;
    *count = blocks(block_size);
    return accept_setting((uint64_t)(uintptr_t)function);
}

SIM_API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int count,
                                                         int block_size)
{
    SIM_ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
    SIM_NEED(bytes);
    (void)count;
    (void)block_size;
    *bytes = SHARED_BYTES;
    return accept_setting((uint64_t)(uintptr_t)function);
}

SIM_API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                                  CUoccupancyB2DSize size, size_t shared, int limit)
{
    SIM_ENTER(cuOccupancyMaxPotentialBlockSize);
    SIM_NEED(grid);
    SIM_NEED(block);
    (void)size;
    (void)shared;
    *block = limit > 0 && limit < THREADS_PER_BLOCK ? limit : THREADS_PER_BLOCK;
    *grid = 108 * blocks(*block);
    return accept_setting((uint64_t)(uintptr_t)function);
}

SIM_API CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *config)
{
    SIM_ENTER(cuOccupancyMaxActiveClusters);
    SIM_NEED(count);
    (void)config;
    *count = 1;
    return accept_setting((uint64_t)(uintptr_t)function);
}

SIM_API CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                        void *address, const cuuint64_t *dims, const cuuint64_t *strides,
                                        const cuuint32_t *box, const cuuint32_t *element_strides,
                                        CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                        CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    SIM_ENTER(cuTensorMapEncodeTiled);
    SIM_NEED(map);
    (void)type;
    (void)rank;
    (void)address;
    (void)dims;
    (void)strides;
    (void)box;
    (void)element_strides;
    (void)interleave;
    (void)swizzle;
    (void)promotion;
    (void)fill;
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}
