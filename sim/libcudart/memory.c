/* SPDX-License-Identifier: Apache-2.0 */
/* memory: allocation, copies, fills, pools and what a pointer is. Owns nothing; the driver keeps the books.
 */
#include "sim/libcudart/runtime.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

RT_API cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    return RT_RUN(cuMemGetInfo(available, total));
}

RT_API cudaError_t cudaMalloc(void **pointer, size_t size)
{
    CUdeviceptr address = 0;
    cudaError_t error;

    if (size == 0) {
        *pointer = NULL;
        return RT_NOTHING();
    }
    error = RT_RUN(cuMemAlloc(&address, size));
    if (!error)
        *pointer = (void *)(uintptr_t)address;
    return error;
}

RT_API cudaError_t cudaFree(void *pointer)
{
    if (!pointer) /* the usual way to start the runtime */
        return RT_NOTHING();
    return RT_RUN(cuMemFree(address_of(pointer)));
}

RT_API cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned flags)
{
    CUdeviceptr address = 0;
    cudaError_t error = RT_RUN(cuMemAllocManaged(&address, size, flags));

    if (!error)
        *pointer = (void *)(uintptr_t)address;
    return error;
}

RT_API cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream)
{
    CUdeviceptr address = 0;
    cudaError_t error = RT_RUN(cuMemAllocAsync(&address, size, stream));

    if (!error)
        *pointer = (void *)(uintptr_t)address;
    return error;
}

RT_API cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t size, cudaMemPool_t pool,
                                           cudaStream_t stream)
{
    CUdeviceptr address = 0;
    cudaError_t error = RT_RUN(cuMemAllocFromPoolAsync(&address, size, pool, stream));

    if (!error)
        *pointer = (void *)(uintptr_t)address;
    return error;
}

RT_API cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    return RT_RUN(cuMemFreeAsync(address_of(pointer), stream));
}

RT_API cudaError_t cudaMallocHost(void **pointer, size_t size)
{
    return RT_RUN(cuMemHostAlloc(pointer, size, 0));
}

RT_API cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags)
{
    return RT_RUN(cuMemHostAlloc(pointer, size, flags));
}

RT_API cudaError_t cudaFreeHost(void *pointer)
{
    if (!pointer)
        return RT_NOTHING();
    return RT_RUN(cuMemFreeHost(pointer));
}

RT_API cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags)
{
    return RT_RUN(cuMemHostRegister(pointer, size, flags));
}

RT_API cudaError_t cudaHostUnregister(void *pointer)
{
    return RT_RUN(cuMemHostUnregister(pointer));
}

RT_API cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *pointer, unsigned flags)
{
    CUdeviceptr address = 0;
    cudaError_t error = RT_RUN(cuMemHostGetDevicePointer(&address, pointer, flags));

    if (!error)
        *device_pointer = (void *)(uintptr_t)address;
    return error;
}

RT_API cudaError_t cudaHostGetFlags(unsigned *flags, void *pointer)
{
    return RT_RUN(cuMemHostGetFlags(flags, pointer));
}

/* Addresses are unified, so the driver finds out by itself which way a copy goes; `kind` has nothing to add.
 */
RT_API cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    (void)kind;
    return RT_RUN(cuMemcpy(address_of(to), address_of(from), size));
}

RT_API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                                   cudaStream_t stream)
{
    (void)kind;
    return RT_RUN(cuMemcpyAsync(address_of(to), address_of(from), size, stream));
}

RT_API cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size)
{
    (void)to_device;
    (void)from_device;
    return RT_RUN(cuMemcpy(address_of(to), address_of(from), size));
}

RT_API cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                       size_t size, cudaStream_t stream)
{
    (void)to_device;
    (void)from_device;
    return RT_RUN(cuMemcpyAsync(address_of(to), address_of(from), size, stream));
}

static CUDA_MEMCPY2D describe_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                 size_t height)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = address_of(from),
                           .srcPitch = from_pitch,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = address_of(to),
                           .dstPitch = to_pitch,
                           .WidthInBytes = width,
                           .Height = height};
}

RT_API cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                size_t height, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D copy = describe_2d(to, to_pitch, from, from_pitch, width, height);

    (void)kind;
    return RT_RUN(cuMemcpy2D(&copy));
}

RT_API cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                     size_t width, size_t height, enum cudaMemcpyKind kind,
                                     cudaStream_t stream)
{
    CUDA_MEMCPY2D copy = describe_2d(to, to_pitch, from, from_pitch, width, height);

    (void)kind;
    return RT_RUN(cuMemcpy2DAsync(&copy, stream));
}

RT_API cudaError_t cudaMemset(void *pointer, int value, size_t size)
{
    return RT_RUN(cuMemsetD8(address_of(pointer), (unsigned char)value, size));
}

RT_API cudaError_t cudaMemsetAsync(void *pointer, int value, size_t size, cudaStream_t stream)
{
    return RT_RUN(cuMemsetD8Async(address_of(pointer), (unsigned char)value, size, stream));
}

static enum cudaMemoryType memory_type(const void *pointer, unsigned driver_type)
{
    unsigned managed = 0;

    if (cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address_of(pointer)) ==
            CUDA_SUCCESS &&
        managed)
        return cudaMemoryTypeManaged;
    return driver_type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
}

RT_API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    unsigned type = 0;
    int device = 0;

    if (rt_enter())
        return rt_thread.last;
    memset(attributes, 0, sizeof *attributes);
    attributes->device = cudaInvalidDeviceId;
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->hostPointer = (void *)(uintptr_t)pointer;
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address_of(pointer)) != CUDA_SUCCESS)
        return cudaSuccess; /* a pointer that CUDA does not know is an answer, not an error */
    attributes->type = memory_type(pointer, type);
    if (cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address_of(pointer)) ==
        CUDA_SUCCESS)
        attributes->device = device;
    attributes->devicePointer = (void *)(uintptr_t)pointer;
    if (attributes->type == cudaMemoryTypeDevice)
        attributes->hostPointer = NULL;
    return cudaSuccess;
}

RT_API cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties)
{
    CUmemPoolProps driver_properties = {
        .allocType = (CUmemAllocationType)properties->allocType,
        .handleTypes = (CUmemAllocationHandleType)properties->handleTypes,
        .location = {(CUmemLocationType)properties->location.type, properties->location.id},
        .maxSize = properties->maxSize};

    return RT_RUN(cuMemPoolCreate(pool, &driver_properties));
}

RT_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    return RT_RUN(cuMemPoolDestroy(pool));
}

RT_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    return RT_RUN(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

RT_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    return RT_RUN(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

RT_API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access,
                                        size_t count)
{
    return RT_RUN(cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)access, count));
}

RT_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    return RT_RUN(cuMemPoolTrimTo(pool, keep));
}

RT_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer)
{
    return RT_RUN(cuIpcGetMemHandle((CUipcMemHandle *)handle, address_of(pointer)));
}

RT_API cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned flags)
{
    CUdeviceptr address = 0;
    CUipcMemHandle driver_handle;
    cudaError_t error;

    memcpy(&driver_handle, &handle, sizeof driver_handle);
    error = RT_RUN(cuIpcOpenMemHandle(&address, driver_handle, flags));
    if (!error)
        *pointer = (void *)(uintptr_t)address;
    return error;
}

RT_API cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    return RT_RUN(cuIpcCloseMemHandle(address_of(pointer)));
}
