/* SPDX-License-Identifier: Apache-2.0 */
/* code: kernels and device variables, as the host code that nvcc makes registers and launches them.
 *
 * A program tells the runtime its kernels when it is loaded (PyTorch some twenty thousand), long before a
 * device is used. They are kept in a hash table by the address that stands for them in host code; the driver
 * is asked for the function when it is first launched on a device. No machine code is read: the image handed
 * to the driver is empty.
 *
 * Owns: the table of symbols, one module of each device, memory of the variables that were asked for.
 * Lock: `lock` for everything here but reading the table, whose entries are added at the head of a chain and
 * never taken out. */
#include "sim/libcudart/fill.h"
#include "sim/libcudart/moves.h"
#include "sim/libcudart/registration.h"
#include "sim/sim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define BUCKETS 65536

/* A registered kernel or variable. */
struct symbol {
    struct symbol *next;
    const void *host;
    const char *name;
    size_t size; /* of a variable; 0 for a kernel */
    bool elementwise;
    struct rt_moves moves;
    unsigned fill; /* of a fill kernel: bytes of its element; else 0 */
    /* The driver's function, or the variable's address, on each device; 0 until it is asked for. */
    _Atomic uintptr_t on_device[RT_DEVICES_MAX];
};

/* A call of kernel<<<grid, block, shared, stream>>> between its two halves. */
struct call {
    dim3 grid, block;
    size_t shared;
    void *stream;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct symbol *_Atomic symbols[BUCKETS];
static CUmodule modules[RT_DEVICES_MAX];
static __thread struct call calls[16];
static __thread int n_calls;

/* ---- registration ---- */

static struct symbol *_Atomic *bucket_of(const void *host)
{
    return &symbols[(uintptr_t)host * 0x9e3779b97f4a7c15u >> 48];
}

static void add_symbol(const void *host, const char *name, size_t size)
{
    struct symbol *symbol = calloc(1, sizeof *symbol);

    if (!symbol)
        abort(); /* the caller is the loader; there is nobody to tell */
    symbol->host = host;
    symbol->name = name;
    symbol->size = size;
    symbol->elementwise = size == 0 && rt_is_elementwise(name);
    if (size == 0)
        symbol->moves = rt_moves(name);
    symbol->fill = symbol->elementwise ? rt_fill_element(name) : 0;
    pthread_mutex_lock(&lock);
    symbol->next = *bucket_of(host);
    *bucket_of(host) = symbol;
    pthread_mutex_unlock(&lock);
}

static struct symbol *find_symbol(const void *host)
{
    struct symbol *symbol = *bucket_of(host);

    while (symbol && symbol->host != host)
        symbol = symbol->next;
    return symbol;
}

RT_API void **__cudaRegisterFatBinary(void *binary)
{
    void **handle = malloc(sizeof *handle);

    if (handle)
        *handle = binary;
    return handle;
}

RT_API void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

/* The symbols stay: this is called when the process ends, or for a library that others may still point into.
 */
RT_API void __cudaUnregisterFatBinary(void **handle)
{
    free(handle);
}

RT_API char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

RT_API void __cudaRegisterFunction(void **handle, const char *host, char *device_name, const char *name,
                                   int limit, uint3 *thread, uint3 *block, dim3 *block_dim, dim3 *grid_dim,
                                   int *warp_size)
{
    (void)handle, (void)device_name, (void)limit, (void)thread, (void)block, (void)block_dim, (void)grid_dim;
    (void)warp_size;
    add_symbol(host, name, 0);
}

RT_API void __cudaRegisterVar(void **handle, char *host, char *device_name, const char *name, int external,
                              size_t size, int constant, int global)
{
    (void)handle, (void)device_name, (void)external, (void)constant, (void)global;
    add_symbol(host, name, size ? size : 1);
}

/* ---- functions and variables on the thread's device ---- */

/* The module of a device; `lock` is held. */
static CUresult load_module(int device)
{
    return modules[device] ? CUDA_SUCCESS : cuModuleLoadData(&modules[device], "");
}

static cudaError_t function_of(struct symbol *symbol, CUfunction *function)
{
    int device = rt_thread.device;
    CUresult result = CUDA_SUCCESS;
    CUfunction found = (CUfunction)symbol->on_device[device];

    if (!found) {
        pthread_mutex_lock(&lock);
        result = load_module(device);
        if (result == CUDA_SUCCESS)
            result = cuModuleGetFunction(&found, modules[device], symbol->name);
        if (result == CUDA_SUCCESS)
            symbol->on_device[device] = (uintptr_t)found;
        pthread_mutex_unlock(&lock);
    }
    if (result == CUDA_SUCCESS)
        *function = found;
    return rt_note(result);
}

cudaError_t rt_function(const void *host, CUfunction *function)
{
    struct symbol *symbol = find_symbol(host);

    if (rt_enter())
        return rt_thread.last;
    if (!symbol || symbol->size != 0)
        return rt_fail(cudaErrorInvalidDeviceFunction);
    return function_of(symbol, function);
}

/* A variable gets memory when it is first asked for. Its initial value lies in machine code that nobody
 * reads, so it starts as zeros. */
static cudaError_t variable_of(const void *host, CUdeviceptr *address, size_t *size)
{
    struct symbol *symbol = find_symbol(host);
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr found;

    if (rt_enter())
        return rt_thread.last;
    if (!symbol || symbol->size == 0)
        return rt_fail(cudaErrorInvalidSymbol);
    pthread_mutex_lock(&lock);
    found = symbol->on_device[rt_thread.device];
    if (!found) {
        result = cuMemAlloc(&found, symbol->size);
        if (result == CUDA_SUCCESS)
            result = cuMemsetD8(found, 0, symbol->size);
        if (result == CUDA_SUCCESS)
            symbol->on_device[rt_thread.device] = found;
    }
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS) {
        *address = found;
        *size = symbol->size;
    }
    return rt_note(result);
}

RT_API cudaError_t cudaGetSymbolAddress(void **pointer, const void *host)
{
    CUdeviceptr address;
    size_t size;
    cudaError_t error = variable_of(host, &address, &size);

    if (!error)
        *pointer = (void *)(uintptr_t)address;
    return error;
}

RT_API cudaError_t cudaGetSymbolSize(size_t *size, const void *host)
{
    CUdeviceptr address;

    return variable_of(host, &address, size);
}

RT_API cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t count, size_t offset,
                                      enum cudaMemcpyKind kind)
{
    CUdeviceptr address;
    size_t size;
    cudaError_t error = variable_of(host, &address, &size);

    (void)kind;
    if (error)
        return error;
    if (offset > size || count > size - offset)
        return rt_fail(cudaErrorInvalidValue);
    return rt_note(cuMemcpy(address + offset, (CUdeviceptr)(uintptr_t)from, count));
}

RT_API cudaError_t cudaMemcpyFromSymbol(void *to, const void *host, size_t count, size_t offset,
                                        enum cudaMemcpyKind kind)
{
    CUdeviceptr address;
    size_t size;
    cudaError_t error = variable_of(host, &address, &size);

    (void)kind;
    if (error)
        return error;
    if (offset > size || count > size - offset)
        return rt_fail(cudaErrorInvalidValue);
    return rt_note(cuMemcpy((CUdeviceptr)(uintptr_t)to, address + offset, count));
}

/* ---- launches ---- */

RT_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    if (n_calls == (int)(sizeof calls / sizeof *calls))
        return 1;
    calls[n_calls++] = (struct call){grid, block, shared, stream};
    return 0;
}

RT_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    struct call *call;

    if (n_calls == 0)
        return rt_fail(cudaErrorMissingConfiguration);
    call = &calls[--n_calls];
    *grid = call->grid;
    *block = call->block;
    *shared = call->shared;
    *(void **)stream = call->stream;
    return cudaSuccess;
}

/* The runtime's word for a grid or block that no device takes differs from the driver's. */
static cudaError_t note_launch(CUresult result)
{
    return rt_fail(result == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration : (cudaError_t)result);
}

RT_API cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared,
                                    cudaStream_t stream)
{
    struct symbol *symbol = find_symbol(host);
    CUfunction function;
    cudaError_t error = rt_function(host, &function);

    if (error || (symbol->fill && rt_fill(symbol->fill, arguments, stream, &error)))
        return error;
    if (symbol->elementwise)
        rt_announce(arguments);
    sim_kernel_moves(rt_moved_bytes(&symbol->moves, arguments, (uint64_t)grid.x * grid.y * grid.z));
    error = note_launch(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                       (unsigned)shared, stream, arguments, NULL));
    if (symbol->elementwise)
        rt_announce_nothing();
    return error;
}

RT_API cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                                               size_t shared, cudaStream_t stream)
{
    CUfunction function;
    cudaError_t error = rt_function(host, &function);

    return error ? error
                 : note_launch(cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
                                                         block.z, (unsigned)shared, stream, arguments));
}

/* Launch attributes (clusters, programmatic ordering) change nothing for kernels that do nothing. */
RT_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **arguments)
{
    return cudaLaunchKernel(host, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                            config->stream);
}

/* A kernel's handle is its entry in the table. */
RT_API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    struct symbol *symbol = find_symbol(host);

    if (!symbol || symbol->size != 0)
        return rt_fail(cudaErrorInvalidDeviceFunction);
    *kernel = (cudaKernel_t)symbol;
    return cudaSuccess;
}

RT_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream)
{
    if (!kernel)
        return rt_fail(cudaErrorInvalidDeviceFunction);
    return cudaLaunchKernel(((struct symbol *)kernel)->host, grid, block, arguments, shared, stream);
}

/* ---- what is known of a kernel ---- */

RT_API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *host)
{
    CUfunction function;
    cudaError_t error = rt_function(host, &function);
    int shared = 0, constant = 0, local = 0;

    if (error)
        return error;
    *attributes = (struct cudaFuncAttributes){0};
    const struct {
        CUfunction_attribute attribute;
        int *value;
    } wanted[] = {
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &shared},
        {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &constant},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &local},
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &attributes->maxThreadsPerBlock},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, &attributes->numRegs},
        {CU_FUNC_ATTRIBUTE_PTX_VERSION, &attributes->ptxVersion},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &attributes->binaryVersion},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &attributes->maxDynamicSharedSizeBytes},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !error; i++)
        error = rt_note(cuFuncGetAttribute(wanted[i].value, wanted[i].attribute, function));
    attributes->sharedSizeBytes = (size_t)shared;
    attributes->constSizeBytes = (size_t)constant;
    attributes->localSizeBytes = (size_t)local;
    return error;
}

RT_API cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value)
{
    CUfunction function;
    cudaError_t error = rt_function(host, &function);

    return error ? error : rt_note(cuFuncSetAttribute(function, (CUfunction_attribute)attribute, value));
}

RT_API cudaError_t cudaFuncSetCacheConfig(const void *host, enum cudaFuncCache config)
{
    CUfunction function;
    cudaError_t error = rt_function(host, &function);

    return error ? error : rt_note(cuFuncSetCacheConfig(function, (CUfunc_cache)config));
}

RT_API cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *host)
{
    return rt_function(host, function);
}

RT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host,
                                                                          int block_size, size_t shared,
                                                                          unsigned flags)
{
    CUfunction function;
    cudaError_t error = rt_function(host, &function);

    return error ? error
                 : rt_note(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                                shared, flags));
}

RT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host,
                                                                 int block_size, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, block_size, shared, 0);
}
