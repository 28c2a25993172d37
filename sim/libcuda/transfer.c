/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. All forms become one: rows of bytes on a stream; the forms without a stream use the
 * default one and wait. */
#include "sim/core/calls.h"
#include "sim/core/lock.h"
#include "sim/core/stream.h"

static CUresult submit(struct sim_transfer *transfer, CUstream handle, bool sync)
{
    struct sim_stream *stream = sim_stream_get(handle);
    if (!stream)
        return sim_context_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
    sim_lock();
    CUresult result = sim_stream_transfer(stream, transfer, sync);
    sim_queue_tick();
    sim_unlock();
    return result;
}

static CUresult copy(uint64_t dst, uint64_t src, size_t size, CUstream stream, bool sync)
{
    struct sim_transfer transfer = {
        .dst = dst, .src = src, .width = size, .height = 1, .dst_pitch = size, .src_pitch = size};
    return submit(&transfer, stream, sync);
}

#define HOST(pointer) ((uint64_t)(uintptr_t)(pointer))

SIM_API CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
    SIM_ENTER(cuMemcpy);
    return copy(dst, src, size, NULL, true);
}

SIM_API CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t size)
{
    SIM_ENTER(cuMemcpyHtoD);
    return copy(dst, HOST(src), size, NULL, true);
}

SIM_API CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t size)
{
    SIM_ENTER(cuMemcpyDtoH);
    return copy(HOST(dst), src, size, NULL, true);
}

SIM_API CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
    SIM_ENTER(cuMemcpyDtoD);
    return copy(dst, src, size, NULL, true);
}

SIM_API CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
                              size_t size)
{
    SIM_ENTER(cuMemcpyPeer);
    (void)dst_context;
    (void)src_context;
    return copy(dst, src, size, NULL, true);
}

SIM_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    SIM_ENTER(cuMemcpyAsync);
    return copy(dst, src, size, stream, false);
}

SIM_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size, CUstream stream)
{
    SIM_ENTER(cuMemcpyHtoDAsync);
    return copy(dst, HOST(src), size, stream, false);
}

SIM_API CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoHAsync);
    return copy(HOST(dst), src, size, stream, false);
}

SIM_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoDAsync);
    return copy(dst, src, size, stream, false);
}

SIM_API CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                   CUcontext src_context, size_t size, CUstream stream)
{
    SIM_ENTER(cuMemcpyPeerAsync);
    (void)dst_context;
    (void)src_context;
    return copy(dst, src, size, stream, false);
}

static bool is_linear(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, bool sync)
{
    SIM_NEED(c);
    if (!is_linear(c->dstMemoryType) || !is_linear(c->srcMemoryType))
        return CUDA_ERROR_NOT_SUPPORTED; /* arrays */
    uint64_t dst = c->dstMemoryType == CU_MEMORYTYPE_HOST ? HOST(c->dstHost) : c->dstDevice;
    uint64_t src = c->srcMemoryType == CU_MEMORYTYPE_HOST ? HOST(c->srcHost) : c->srcDevice;
    uint64_t dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
    uint64_t src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
    if (c->Height > 1 && (dst_pitch < c->WidthInBytes || src_pitch < c->WidthInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_transfer transfer = {.dst = dst + c->dstY * dst_pitch + c->dstXInBytes,
                                    .src = src + c->srcY * src_pitch + c->srcXInBytes,
                                    .width = c->WidthInBytes,
                                    .height = c->Height,
                                    .dst_pitch = dst_pitch,
                                    .src_pitch = src_pitch};
    return submit(&transfer, stream, sync);
}

SIM_API CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *c)
{
    SIM_ENTER(cuMemcpy2D);
    return copy_2d(c, NULL, true);
}

SIM_API CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *c)
{
    SIM_ENTER(cuMemcpy2DUnaligned);
    return copy_2d(c, NULL, true);
}

SIM_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream)
{
    SIM_ENTER(cuMemcpy2DAsync);
    return copy_2d(c, stream, false);
}

/* ---- fills: asynchronous for the host too, also those without a stream ---- */

static CUresult fill(CUdeviceptr dst, size_t pitch, uint32_t value, uint8_t element, size_t count,
                     size_t height, CUstream stream)
{
    uint64_t width;
    if (__builtin_mul_overflow(count, element, &width) || dst % element || (height > 1 && pitch < width))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_transfer transfer = {
        .dst = dst, .width = width, .height = height, .dst_pitch = pitch, .value = value, .element = element};
    return submit(&transfer, stream, false);
}

SIM_API CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count)
{
    SIM_ENTER(cuMemsetD8);
    return fill(dst, 0, value, 1, count, 1, NULL);
}

SIM_API CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t count)
{
    SIM_ENTER(cuMemsetD16);
    return fill(dst, 0, value, 2, count, 1, NULL);
}

SIM_API CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t count)
{
    SIM_ENTER(cuMemsetD32);
    return fill(dst, 0, value, 4, count, 1, NULL);
}

SIM_API CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
    SIM_ENTER(cuMemsetD8Async);
    return fill(dst, 0, value, 1, count, 1, stream);
}

SIM_API CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream)
{
    SIM_ENTER(cuMemsetD16Async);
    return fill(dst, 0, value, 2, count, 1, stream);
}

SIM_API CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream)
{
    SIM_ENTER(cuMemsetD32Async);
    return fill(dst, 0, value, 4, count, 1, stream);
}

SIM_API CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
                                 size_t height)
{
    SIM_ENTER(cuMemsetD2D8);
    return fill(dst, pitch, value, 1, width, height, NULL);
}

SIM_API CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
                                  size_t height)
{
    SIM_ENTER(cuMemsetD2D16);
    return fill(dst, pitch, value, 2, width, height, NULL);
}

SIM_API CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
                                  size_t height)
{
    SIM_ENTER(cuMemsetD2D32);
    return fill(dst, pitch, value, 4, width, height, NULL);
}

SIM_API CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
                                   size_t height, CUstream stream)
{
    SIM_ENTER(cuMemsetD2D8Async);
    return fill(dst, pitch, value, 1, width, height, stream);
}

SIM_API CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
                                    size_t height, CUstream stream)
{
    SIM_ENTER(cuMemsetD2D16Async);
    return fill(dst, pitch, value, 2, width, height, stream);
}

SIM_API CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
                                    size_t height, CUstream stream)
{
    SIM_ENTER(cuMemsetD2D32Async);
    return fill(dst, pitch, value, 4, width, height, stream);
}
