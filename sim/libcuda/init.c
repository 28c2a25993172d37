/* SPDX-License-Identifier: Apache-2.0 */
/* cuInit, versions, devices, errors, and looking up entry points. */
#include "base/align.h"
#include "sim/core/calls.h"
#include "sim/core/config.h"
#include "sim/core/device.h"
#include "sim/core/errors.h"
#include "sim/libcuda/lookup.h"
#include <stdlib.h>
#include <string.h>

SIM_API CUresult cuInit(unsigned int flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_init();
    return result ? result : sim_enter(SIM_CALL_cuInit);
}

SIM_API CUresult cuDriverGetVersion(int *version)
{
    SIM_NEED(version);
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static bool is_device(int device)
{
    return device >= 0 && device < sim_config.devices;
}

#define NEED_DEVICE(device)                                                                                  \
    do {                                                                                                     \
        if (!is_device(device))                                                                              \
            return CUDA_ERROR_INVALID_DEVICE;                                                                \
    } while (0)

SIM_API CUresult cuDeviceGetCount(int *count)
{
    SIM_ENTER(cuDeviceGetCount);
    SIM_NEED(count);
    *count = sim_config.devices;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_ENTER(cuDeviceGet);
    SIM_NEED(device);
    NEED_DEVICE(ordinal);
    *device = ordinal;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    SIM_ENTER(cuDeviceGetName);
    SIM_NEED(name);
    NEED_DEVICE(device);
    if (length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", SIM_DEVICE_NAME);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    SIM_ENTER(cuDeviceTotalMem);
    SIM_NEED(bytes);
    NEED_DEVICE(device);
    *bytes = sim_config.device_bytes;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    SIM_ENTER(cuDeviceGetAttribute);
    SIM_NEED(value);
    NEED_DEVICE(device);
    if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *value = sim_device_attribute(device, attribute);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid);
    SIM_NEED(uuid);
    NEED_DEVICE(device);
    memcpy(uuid->bytes, "seamalloc-sim", 14);
    uuid->bytes[14] = 0;
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    SIM_ENTER(cuDeviceGetPCIBusId);
    SIM_NEED(id);
    NEED_DEVICE(device);
    if (length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(id, (size_t)length, "0000:%02X:00.0", (unsigned)device + 1);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
    unsigned domain, bus;
    SIM_ENTER(cuDeviceGetByPCIBusId);
    SIM_NEED(device);
    SIM_NEED(id);
    if (sscanf(id, "%x:%x:", &domain, &bus) != 2 || domain || !is_device((int)bus - 1))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = (int)bus - 1;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    SIM_ENTER(cuDeviceCanAccessPeer);
    SIM_NEED(can);
    NEED_DEVICE(device);
    NEED_DEVICE(peer);
    *can = device != peer && sim_claims(SIM_FEATURE_PEERS);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice source,
                                         CUdevice target)
{
    SIM_ENTER(cuDeviceGetP2PAttribute);
    SIM_NEED(value);
    NEED_DEVICE(source);
    NEED_DEVICE(target);
    if (source == target)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED && sim_claims(SIM_FEATURE_PEERS);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned channels,
                                                    CUdevice device)
{
    SIM_ENTER(cuDeviceGetTexture1DLinearMaxWidth);
    (void)format;
    (void)channels;
    SIM_NEED(width);
    NEED_DEVICE(device);
    *width = (size_t)1 << 28;
    return CUDA_SUCCESS;
}

/* ---- errors ---- */

SIM_API CUresult cuGetErrorName(CUresult error, const char **name)
{
    SIM_NEED(name);
    const struct sim_error *known = sim_error_find(error);
    *name = known ? known->name : NULL;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGetErrorString(CUresult error, const char **text)
{
    SIM_NEED(text);
    const struct sim_error *known = sim_error_find(error);
    *text = known ? known->text : NULL;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- entry points ---- */

/* The newest form of a function that is not newer than the caller. */
static const struct sim_form *find_form(const char *name, int version, int per_thread)
{
    const struct sim_form *best = NULL;
    for (unsigned i = 0; i < sim_form_count; i++)
        if (!strcmp(sim_forms[i].name, name) && sim_forms[i].per_thread == per_thread &&
            sim_forms[i].version <= version)
            best = &sim_forms[i];
    return best;
}

static bool is_known_name(const char *name)
{
    return sim_call_find(name, strlen(name)) >= 0;
}

SIM_API CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status)
{
    SIM_NEED(name);
    SIM_NEED(function);
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct sim_form *form = per_thread ? find_form(name, version, 1) : NULL;
    if (!form)
        form = find_form(name, version, 0);
    *function = form ? form->function : NULL;
    if (status)
        *status = form                  ? CU_GET_PROC_ADDRESS_SUCCESS
                  : is_known_name(name) ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS; /* a missing name is no error (comment of the function in cuda.h) */
}

SIM_API CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/* There are no undocumented tables here, and none are answered. */
SIM_API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)id;
    SIM_NEED(table);
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
