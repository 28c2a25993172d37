/* SPDX-License-Identifier: Apache-2.0 */
/* nvml: NVIDIA's management library as far as PyTorch asks: which devices there are, who uses their memory,
 * and that they have no links and no fabric. PyTorch 2.15 needs it as soon as it makes an expandable segment.
 *
 * The documented API, with structures laid out as its reference describes them; there is no header to
 * include. A device handle is the device's number plus one. Owns nothing; needs no context of the driver. */
#include "sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NVML_API __attribute__((visibility("default")))

enum status {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_UNKNOWN = 999
};

typedef struct device *device;

/* nvmlProcessInfo_v1_t */
struct process {
    unsigned pid;
    unsigned long long used;
};

/* nvmlMemory_t */
struct memory {
    unsigned long long total, available, used;
};

/* nvmlGpuFabricInfoV_t, all versions: what follows the version number */
struct fabric {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};

enum { P2P_NOT_SUPPORTED = 5 };

NVML_API int nvmlInit_v2(void);
NVML_API int nvmlInit(void);
NVML_API int nvmlShutdown(void);
NVML_API const char *nvmlErrorString(int status);
NVML_API int nvmlSystemGetCudaDriverVersion_v2(int *version);
NVML_API int nvmlSystemGetDriverVersion(char *version, unsigned length);
NVML_API int nvmlDeviceGetCount_v2(unsigned *count);
NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found);
NVML_API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device *found);
NVML_API int nvmlDeviceGetHandleByUUID(const char *uuid, device *found);
NVML_API int nvmlDeviceGetUUID(device handle, char *uuid, unsigned length);
NVML_API int nvmlDeviceGetMemoryInfo(device handle, struct memory *memory);
NVML_API int nvmlDeviceGetNvLinkRemoteDeviceType(device handle, unsigned link, int *type);
NVML_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(device handle, unsigned link, void *info);
NVML_API int nvmlDeviceGetComputeRunningProcesses(device handle, unsigned *count, struct process *processes);
NVML_API int nvmlDeviceGetP2PStatus(device from, device to, int what, int *status);
NVML_API int nvmlDeviceGetGpuFabricInfoV(device handle, struct fabric *info);

static device handle_of(int number)
{
    return (device)(uintptr_t)(number + 1);
}

static int number_of(device handle)
{
    return (int)(uintptr_t)handle - 1;
}

int nvmlInit_v2(void)
{
    return cuInit(0) == CUDA_SUCCESS ? NVML_SUCCESS : NVML_UNINITIALIZED;
}

int nvmlInit(void)
{
    return nvmlInit_v2();
}

int nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

const char *nvmlErrorString(int status)
{
    switch (status) {
    case NVML_SUCCESS:
        return "success";
    case NVML_INVALID_ARGUMENT:
        return "invalid argument";
    case NVML_NOT_SUPPORTED:
        return "not supported";
    case NVML_NOT_FOUND:
        return "not found";
    case NVML_INSUFFICIENT_SIZE:
        return "insufficient size";
    default:
        return "unknown error";
    }
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuDriverGetVersion(version) == CUDA_SUCCESS ? NVML_SUCCESS : NVML_UNKNOWN;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return snprintf(version, length, "0.0-simulated") < (int)length ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    int devices;

    if (cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        return NVML_UNINITIALIZED;
    *count = (unsigned)devices;
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found)
{
    unsigned count;
    int status = nvmlDeviceGetCount_v2(&count);

    if (status == NVML_SUCCESS && index >= count)
        status = NVML_INVALID_ARGUMENT;
    if (status == NVML_SUCCESS)
        *found = handle_of((int)index);
    return status;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device *found)
{
    CUdevice number;

    if (cuDeviceGetByPCIBusId(&number, id) != CUDA_SUCCESS)
        return NVML_NOT_FOUND;
    *found = handle_of(number);
    return NVML_SUCCESS;
}

/* "GPU-" and the driver's sixteen bytes in groups of 4, 2, 2, 2 and 6. */
int nvmlDeviceGetUUID(device handle, char *uuid, unsigned length)
{
    CUuuid bytes;
    int written;

    if (cuDeviceGetUuid(&bytes, number_of(handle)) != CUDA_SUCCESS)
        return NVML_INVALID_ARGUMENT;
    written = snprintf(uuid, length, "GPU-");
    for (int i = 0; i < 16 && written < (int)length; i++)
        written += snprintf(uuid + written, length - (unsigned)written, "%s%02x",
                            i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)bytes.bytes[i]);
    return written < (int)length ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device *found)
{
    unsigned count;
    char known[64];

    if (nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS)
        return NVML_UNINITIALIZED;
    for (int i = 0; i < (int)count; i++)
        if (nvmlDeviceGetUUID(handle_of(i), known, sizeof known) == NVML_SUCCESS &&
            strcmp(known, uuid) == 0) {
            *found = handle_of(i);
            return NVML_SUCCESS;
        }
    return NVML_NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(device handle, struct memory *memory)
{
    size_t total;

    if (cuDeviceTotalMem(&total, number_of(handle)) != CUDA_SUCCESS)
        return NVML_INVALID_ARGUMENT;
    memory->total = total;
    memory->used = sim_shared_bytes(number_of(handle));
    memory->available = memory->total - memory->used;
    return NVML_SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device handle, unsigned link, int *type)
{
    (void)handle, (void)link, (void)type;
    return NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device handle, unsigned link, void *info)
{
    (void)handle, (void)link, (void)info;
    return NVML_NOT_SUPPORTED;
}

/* The only process that is known is this one. */
int nvmlDeviceGetComputeRunningProcesses(device handle, unsigned *count, struct process *processes)
{
    unsigned room = *count;

    *count = 1;
    if (room < 1)
        return NVML_INSUFFICIENT_SIZE;
    processes[0] = (struct process){(unsigned)getpid(), sim_physical_bytes(number_of(handle))};
    return NVML_SUCCESS;
}

int nvmlDeviceGetP2PStatus(device from, device to, int what, int *status)
{
    (void)from, (void)to, (void)what;
    *status = P2P_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* A state of 0 says that the device knows no fabric. */
int nvmlDeviceGetGpuFabricInfoV(device handle, struct fabric *info)
{
    unsigned version = info->version;

    (void)handle;
    *info = (struct fabric){.version = version};
    return NVML_SUCCESS;
}
