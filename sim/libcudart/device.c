/* SPDX-License-Identifier: Apache-2.0 */
/* device: how many devices there are and what they are like. Owns nothing; every answer is the driver's. */
#include "sim/libcudart/registration.h"

#include <stddef.h>
#include <string.h>

/* Fields of cudaDeviceProp that are one attribute of the driver, by the type of the field. */
#define INT_PROPERTIES(X)                                                                                    \
    X(regsPerBlock, MAX_REGISTERS_PER_BLOCK)                                                                 \
    X(warpSize, WARP_SIZE)                                                                                   \
    X(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK)                                                             \
    X(maxThreadsDim[0], MAX_BLOCK_DIM_X)                                                                     \
    X(maxThreadsDim[1], MAX_BLOCK_DIM_Y)                                                                     \
    X(maxThreadsDim[2], MAX_BLOCK_DIM_Z)                                                                     \
    X(maxGridSize[0], MAX_GRID_DIM_X)                                                                        \
    X(maxGridSize[1], MAX_GRID_DIM_Y)                                                                        \
    X(maxGridSize[2], MAX_GRID_DIM_Z)                                                                        \
    X(major, COMPUTE_CAPABILITY_MAJOR)                                                                       \
    X(minor, COMPUTE_CAPABILITY_MINOR)                                                                       \
    X(multiProcessorCount, MULTIPROCESSOR_COUNT)                                                             \
    X(integrated, INTEGRATED)                                                                                \
    X(canMapHostMemory, CAN_MAP_HOST_MEMORY)                                                                 \
    X(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH)                                                                 \
    X(maxTexture2D[0], MAXIMUM_TEXTURE2D_WIDTH)                                                              \
    X(maxTexture2D[1], MAXIMUM_TEXTURE2D_HEIGHT)                                                             \
    X(concurrentKernels, CONCURRENT_KERNELS)                                                                 \
    X(ECCEnabled, ECC_ENABLED)                                                                               \
    X(pciBusID, PCI_BUS_ID)                                                                                  \
    X(pciDeviceID, PCI_DEVICE_ID)                                                                            \
    X(pciDomainID, PCI_DOMAIN_ID)                                                                            \
    X(tccDriver, TCC_DRIVER)                                                                                 \
    X(asyncEngineCount, ASYNC_ENGINE_COUNT)                                                                  \
    X(unifiedAddressing, UNIFIED_ADDRESSING)                                                                 \
    X(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH)                                                               \
    X(l2CacheSize, L2_CACHE_SIZE)                                                                            \
    X(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE)                                                \
    X(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR)                                           \
    X(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED)                                                \
    X(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED)                                                     \
    X(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED)                                                       \
    X(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR)                                               \
    X(managedMemory, MANAGED_MEMORY)                                                                         \
    X(isMultiGpuBoard, MULTI_GPU_BOARD)                                                                      \
    X(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID)                                                        \
    X(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED)                                               \
    X(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS)                                                          \
    X(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS)                                                    \
    X(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED)                                              \
    X(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)                            \
    X(cooperativeLaunch, COOPERATIVE_LAUNCH)                                                                 \
    X(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)                  \
    X(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST)                                   \
    X(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR)                                             \
    X(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE)                                              \
    X(hostRegisterSupported, HOST_REGISTER_SUPPORTED)                                                        \
    X(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED)                                                          \
    X(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED)                                                     \
    X(ipcEventSupported, IPC_EVENT_SUPPORTED)                                                                \
    X(clusterLaunch, CLUSTER_LAUNCH)                                                                         \
    X(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS)

#define SIZE_PROPERTIES(X)                                                                                   \
    X(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK)                                                        \
    X(memPitch, MAX_PITCH)                                                                                   \
    X(totalConstMem, TOTAL_CONSTANT_MEMORY)                                                                  \
    X(textureAlignment, TEXTURE_ALIGNMENT)                                                                   \
    X(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT)                                                        \
    X(surfaceAlignment, SURFACE_ALIGNMENT)                                                                   \
    X(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)                                      \
    X(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)                                             \
    X(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK)

RT_API cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error;

    *count = 0;
    error = RT_ASK(cuDeviceGetCount(count));
    return !error && *count == 0 ? rt_fail(cudaErrorNoDevice) : error;
}

RT_API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    return RT_ASK(cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device));
}

/* Keeps the first error in *result. */
static int read_attribute(int device, CUdevice_attribute attribute, CUresult *result)
{
    int value = 0;
    CUresult own = cuDeviceGetAttribute(&value, attribute, device);

    /* An attribute that the driver does not know reads as 0, which is what the field says then. */
    if (own && own != CUDA_ERROR_INVALID_VALUE && !*result)
        *result = own;
    return own ? 0 : value;
}

static CUresult fill_attributes(struct cudaDeviceProp *properties, int device)
{
    CUresult result = CUDA_SUCCESS;
#define FILL_INT(field, name) properties->field = read_attribute(device, CU_DEVICE_ATTRIBUTE_##name, &result);
#define FILL_SIZE(field, name)                                                                               \
    properties->field = (size_t)read_attribute(device, CU_DEVICE_ATTRIBUTE_##name, &result);
    INT_PROPERTIES(FILL_INT)
    SIZE_PROPERTIES(FILL_SIZE)
#undef FILL_INT
#undef FILL_SIZE
    properties->memoryPoolSupportedHandleTypes =
        (unsigned)read_attribute(device, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, &result);
    return result;
}

RT_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t error;

    memset(properties, 0, sizeof *properties);
    error = RT_ASK(cuDeviceGetName(properties->name, sizeof properties->name, device));
    if (!error)
        error = rt_note(cuDeviceGetUuid((CUuuid *)&properties->uuid, device));
    if (!error)
        error = rt_note(cuDeviceTotalMem(&properties->totalGlobalMem, device));
    if (!error)
        error = rt_note(fill_attributes(properties, device));
    return error;
}

RT_API cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

RT_API cudaError_t cudaDriverGetVersion(int *version)
{
    return rt_note(cuDriverGetVersion(version));
}

RT_API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    return RT_ASK(cuDeviceCanAccessPeer(can, device, peer));
}

RT_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    CUcontext context;
    int device = rt_thread.device;
    cudaError_t error = cudaSetDevice(peer); /* retains the peer's context */

    if (!error)
        error = rt_note(cuCtxGetCurrent(&context));
    if (!error)
        error = cudaSetDevice(device);
    return error ? error : RT_RUN(cuCtxEnablePeerAccess(context, flags));
}

RT_API cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    CUcontext context;
    int device = rt_thread.device;
    cudaError_t error = cudaSetDevice(peer);

    if (!error)
        error = rt_note(cuCtxGetCurrent(&context));
    if (!error)
        error = cudaSetDevice(device);
    return error ? error : RT_RUN(cuCtxDisablePeerAccess(context));
}

RT_API cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device)
{
    return RT_ASK(cuDeviceGetPCIBusId(id, length, device));
}

RT_API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return RT_RUN(cuCtxGetStreamPriorityRange(least, greatest));
}

RT_API cudaError_t cudaDeviceSynchronize(void)
{
    return RT_RUN(cuCtxSynchronize());
}

RT_API cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    return RT_RUN(cuCtxGetLimit(value, (CUlimit)limit));
}

RT_API cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    return RT_RUN(cuCtxSetLimit((CUlimit)limit, value));
}

RT_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    return RT_ASK(cuDeviceGetDefaultMemPool(pool, device));
}

RT_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device)
{
    return RT_ASK(cuDeviceGetMemPool(pool, device));
}

RT_API cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
    return RT_ASK(cuDeviceSetMemPool(device, pool));
}

RT_API cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
                                                  void *value)
{
    return RT_ASK(cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)attribute, value));
}

RT_API cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
                                                  void *value)
{
    return RT_ASK(cuDeviceSetGraphMemAttribute(device, (CUgraphMem_attribute)attribute, value));
}

RT_API cudaError_t cudaDeviceGraphMemTrim(int device)
{
    return RT_ASK(cuDeviceGraphMemTrim(device));
}

/* Nothing watches the simulated device, so a profiler's start and stop have nobody to tell. */
RT_API cudaError_t cudaProfilerStart(void)
{
    return cudaSuccess;
}

RT_API cudaError_t cudaProfilerStop(void)
{
    return cudaSuccess;
}

/* How PyTorch gets at the driver. */
RT_API cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *found)
{
    CUdriverProcAddressQueryResult query;
    CUresult result = cuGetProcAddress(symbol, function, (int)version, flags, &query);

    if (result != CUDA_SUCCESS)
        *function = NULL;
    if (found)
        *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return result == CUDA_ERROR_INVALID_VALUE ? rt_note(result) : cudaSuccess;
}
