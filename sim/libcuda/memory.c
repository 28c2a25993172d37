/* SPDX-License-Identifier: Apache-2.0 */
/* Plain device memory, host memory, and questions about pointers. */
#include "sim/core/memory.h"
#include "base/align.h"
#include "sim/core/address.h"
#include "sim/core/backing.h"
#include "sim/core/calls.h"
#include "sim/core/capture.h"
#include "sim/core/config.h"
#include "sim/core/cost.h"
#include "sim/core/lock.h"
#include "sim/core/physical.h"
#include "sim/core/pool.h"
#include "sim/core/share.h"
#include "sim/core/sticky.h"

SIM_API CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
    SIM_ENTER_CONTEXT(cuMemGetInfo, device);
    SIM_NEED(left);
    SIM_NEED(total);
    sim_lock();
    sim_share_sweep();
    *left = sim_physical_left(device);
    sim_unlock();
    *total = sim_config.device_bytes;
    return CUDA_SUCCESS;
}

static CUresult alloc(enum sim_call call, int device, CUdeviceptr *ptr, size_t size)
{
    uint64_t base;
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_capture_any() ? sim_capture_unsafe() : CUDA_SUCCESS;
    if (!result)
        result = sim_memory_alloc(device, size, &base);
    sim_unlock();
    if (result)
        return result;
    *ptr = base;
    sim_cost_add(device, call, 1, size);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
    SIM_ENTER_CONTEXT_SIZED(cuMemAlloc, device, size);
    SIM_NEED(ptr);
    return alloc(SIM_CALL_cuMemAlloc, device, ptr, size);
}

SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
                                    unsigned int element)
{
    size_t row, size;
    SIM_ENTER_CONTEXT(cuMemAllocPitch, device);
    SIM_NEED(ptr);
    SIM_NEED(pitch);
    if (element != 4 && element != 8 && element != 16)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sm_align_up_checked(width, 512, &row) || __builtin_mul_overflow(row, height, &size))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = alloc(SIM_CALL_cuMemAllocPitch, device, ptr, size);
    if (!result)
        *pitch = row;
    return result;
}

static bool can_be_freed(const struct sim_range *range)
{
    return range->kind == SIM_RANGE_PLAIN && !range->freeing && !range->cached && !range->opened;
}

/* Waits for the device, as the driver does, and then gives the memory back. */
SIM_API CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    SIM_ENTER(cuMemFree);
    if (ptr == 0)
        return CUDA_SUCCESS;
    sim_lock();
    CUresult result = sim_capture_any() ? sim_capture_unsafe() : CUDA_SUCCESS;
    const struct sim_range *range = sim_address_at(ptr);
    if (!result && (!range || !can_be_freed(range))) {
        sim_violate(SIM_RULE_UNKNOWN_POINTER, range ? range->device : -1, ptr, 0, NULL);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (!result) {
        int device = range->device;
        result = sim_queue_wait_all(device);
        result = result ? result : sim_sticky(device); /* of work that the wait has brought to an end */
    }
    if (!result && (range = sim_address_at(ptr))) { /* the wait may have dropped the lock */
        sim_cost_add(range->device, SIM_CALL_cuMemFree, 1, range->size);
        sim_pool_free_now(ptr);
    }
    sim_unlock();
    return result;
}

/* ---- managed memory ---- */

/* Device addresses are host addresses here, so all that managed memory needs is to be visible. It does not
 * migrate: it takes device memory when it is allocated, and more than that is refused. */
SIM_API CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
    SIM_ENTER_CONTEXT_SIZED(cuMemAllocManaged, device, size);
    SIM_NEED(ptr);
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_has(SIM_FEATURE_MANAGED) ||
        !sim_backing_on()) /* table-only: the host would find nothing there */
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = alloc(SIM_CALL_cuMemAllocManaged, device, ptr, size);
    if (result)
        return result;
    sim_lock();
    sim_address_at(*ptr)->managed = true;
    sim_unlock();
    return CUDA_SUCCESS;
}

/* Advice and prefetches are about managed memory; nothing moves. */
static CUresult check_managed(CUdeviceptr ptr, size_t size)
{
    sim_lock();
    const struct sim_range *range = sim_address_find(ptr);
    bool good = range && range->managed && size > 0 && size <= range->base + range->size - ptr;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMemAdvise_v2(CUdeviceptr ptr, size_t size, CUmem_advise advice, CUmemLocation location)
{
    SIM_ENTER(cuMemAdvise);
    (void)advice;
    (void)location;
    return check_managed(ptr, size);
}

SIM_API CUresult cuMemPrefetchAsync_v2(CUdeviceptr ptr, size_t size, CUmemLocation location,
                                       unsigned int flags, CUstream stream)
{
    SIM_ENTER(cuMemPrefetchAsync);
    (void)location;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_stream_get(stream))
        return CUDA_ERROR_INVALID_HANDLE;
    return check_managed(ptr, size);
}

/* ---- host memory ---- */

SIM_API CUresult cuMemHostAlloc(void **ptr, size_t size, unsigned int flags)
{
    SIM_ENTER_CONTEXT_SIZED(cuMemHostAlloc, device, size);
    SIM_NEED(ptr);
    uint64_t rounded, base;
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (size == 0 || flags & ~known || !sm_align_up_checked(size, 4096, &rounded))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_capture_any() ? sim_capture_unsafe() : CUDA_SUCCESS;
    base = result ? 0 : sim_backing_host_alloc(rounded);
    struct sim_range *range = base ? sim_address_note_host(SIM_RANGE_HOST, device, base, rounded) : NULL;
    if (range) {
        range->flags = flags;
        sim_history_note("allocated on the host", base, rounded, 0);
    }
    sim_unlock();
    if (range) {
        *ptr = (void *)(uintptr_t)base;
        sim_cost_add(device, SIM_CALL_cuMemHostAlloc, 1, size);
        return CUDA_SUCCESS;
    }
    if (base)
        sim_backing_host_free(base, rounded);
    return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API CUresult cuMemAllocHost_v2(void **ptr, size_t size)
{
    return cuMemHostAlloc(ptr, size, 0);
}

/* Ends what began as `kind` at an address. Waits for the device first. */
static CUresult end_host(void *ptr, enum sim_range_kind kind, CUresult unknown)
{
    uint64_t base = (uint64_t)(uintptr_t)ptr;
    sim_lock();
    struct sim_range *range = sim_address_at(base);
    CUresult result = CUDA_SUCCESS;
    if (!range || range->kind != kind) {
        sim_violate(SIM_RULE_UNKNOWN_POINTER, -1, base, 0, NULL);
        result = unknown;
    }
    if (!result)
        result = sim_queue_wait_all(-1);
    if (!result && (range = sim_address_at(base))) {
        uint64_t size = range->size;
        sim_history_note(kind == SIM_RANGE_HOST ? "freed" : "unregistered", base, size, 0);
        sim_address_drop(range);
        if (kind == SIM_RANGE_HOST)
            sim_backing_host_free(base, size);
    }
    sim_unlock();
    return result;
}

SIM_API CUresult cuMemFreeHost(void *ptr)
{
    SIM_ENTER(cuMemFreeHost);
    return end_host(ptr, SIM_RANGE_HOST, CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuMemHostRegister_v2(void *ptr, size_t size, unsigned int flags)
{
    SIM_ENTER_CONTEXT_SIZED(cuMemHostRegister, device, size);
    const unsigned known =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY;
    if (flags & CU_MEMHOSTREGISTER_READ_ONLY) /* the device's attribute says that it cannot */
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!ptr || size == 0 || size > UINT64_MAX - (uint64_t)(uintptr_t)ptr || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_range *range =
        sim_address_note_host(SIM_RANGE_REGISTERED, device, (uint64_t)(uintptr_t)ptr, size);
    if (range) {
        range->flags = flags;
        sim_history_note("registered", range->base, size, 0);
    }
    sim_unlock();
    return range ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

SIM_API CUresult cuMemHostUnregister(void *ptr)
{
    SIM_ENTER(cuMemHostUnregister);
    return end_host(ptr, SIM_RANGE_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static bool host_range(const void *ptr, struct sim_range *copy)
{
    sim_lock();
    const struct sim_range *range = sim_address_find((uint64_t)(uintptr_t)ptr);
    bool is_host = range && (range->kind == SIM_RANGE_HOST || range->kind == SIM_RANGE_REGISTERED);
    if (is_host)
        *copy = *range;
    sim_unlock();
    return is_host;
}

SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_ptr, void *ptr, unsigned int flags)
{
    struct sim_range range;
    SIM_ENTER(cuMemHostGetDevicePointer);
    SIM_NEED(device_ptr);
    if (flags || !host_range(ptr, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *device_ptr = (CUdeviceptr)(uintptr_t)ptr;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemHostGetFlags(unsigned int *flags, void *ptr)
{
    struct sim_range range;
    SIM_ENTER(cuMemHostGetFlags);
    SIM_NEED(flags);
    if (!host_range(ptr, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = range.flags;
    return CUDA_SUCCESS;
}

/* ---- questions about pointers ---- */

/* What the attributes of a pointer say; protected by nothing, it is a copy. */
struct pointer {
    uint64_t address, base, size, id, pool;
    int device;
    bool is_host, is_vmm, is_managed, is_rdma;
};

/* Requires: the lock is held. Within a reservation the answer is about one mapping, not the reservation. */
static bool describe(uint64_t address, struct pointer *p)
{
    const struct sim_range *range = sim_address_find(address);
    const struct sim_memory *memory;
    if (!range || range->cached)
        return false;
    *p = (struct pointer){.address = address,
                          .base = range->base,
                          .size = range->size,
                          .id = range->id,
                          .pool = range->pool,
                          .device = range->device,
                          .is_managed = range->managed,
                          .is_rdma = range->kind == SIM_RANGE_PLAIN && !range->managed && !range->pool &&
                                     sim_has(SIM_FEATURE_RDMA),
                          .is_host = range->kind == SIM_RANGE_HOST || range->kind == SIM_RANGE_REGISTERED};
    if (range->kind != SIM_RANGE_RESERVATION)
        return true;
    p->is_vmm = true;
    if (!sim_memory_mapping(address, &p->base, &p->size, &memory))
        return false;
    p->id = memory->id;
    p->device = memory->device;
    p->is_rdma = memory->prop.allocFlags.gpuDirectRDMACapable;
    return true;
}

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
    struct pointer p;
    SIM_ENTER(cuMemGetAddressRange);
    sim_lock();
    bool known = describe(ptr, &p);
    sim_unlock();
    if (!known || p.is_host)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = p.base;
    if (size)
        *size = p.size;
    return CUDA_SUCCESS;
}

/* Writes one attribute of a known pointer. */
static CUresult attribute(void *out, CUpointer_attribute which, const struct pointer *p)
{
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)out = p->is_vmm ? NULL : sim_context_primary(p->device);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)out = p->is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)out = p->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!p->is_host && !p->is_managed)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)out = (void *)(uintptr_t)p->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned char *)out = p->is_managed;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned char *)out = !p->is_host && !p->is_vmm && !p->pool && !p->is_managed;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)out = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)out = p->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = p->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)out = p->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = p->size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned char *)out = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned char *)out = p->is_rdma;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)out = (CUmemoryPool)(uintptr_t)p->pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_API CUresult cuPointerGetAttribute(void *out, CUpointer_attribute which, CUdeviceptr ptr)
{
    struct pointer p;
    SIM_ENTER(cuPointerGetAttribute);
    SIM_NEED(out);
    sim_lock();
    bool known = describe(ptr, &p);
    sim_unlock();
    return known ? attribute(out, which, &p) : CUDA_ERROR_INVALID_VALUE;
}

/* What an attribute reads as for a pointer that the driver does not know: no error, but nothing. */
static void no_attribute(void *out, CUpointer_attribute which)
{
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = -2;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)out = 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned char *)out = 0;
        break;
    default:
        *(uint64_t *)out = 0;
    }
}

SIM_API CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *which, void **out,
                                        CUdeviceptr ptr)
{
    struct pointer p;
    SIM_ENTER(cuPointerGetAttributes);
    SIM_NEED(which);
    SIM_NEED(out);
    sim_lock();
    bool known = describe(ptr, &p);
    sim_unlock();
    for (unsigned i = 0; i < count; i++)
        if (!known || attribute(out[i], which[i], &p))
            no_attribute(out[i], which[i]);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute which, CUdeviceptr ptr)
{
    SIM_ENTER(cuPointerSetAttribute);
    SIM_NEED(value);
    sim_lock();
    bool known = sim_memory_is_device(ptr);
    sim_unlock();
    return known && which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
