/* SPDX-License-Identifier: Apache-2.0 */
/* fill: see fill.h. Owns nothing, has no lock. */
#include "sim/libcudart/fill.h"
#include "sim/sim.h"

#include <stdint.h>
#include <string.h>

#define COPY_BYTES_MAX 4096

/* How the compiler writes the element types in the kernel's name. Longer ones first: they begin like shorter
 * ones. */
static const struct {
    const char *code;
    unsigned bytes;
} types[] = {
    {"N3c107complexIdE", 16},
    {"N3c107complexIfE", 8},
    {"N3c107complexI", 4},
    {"N3c104HalfE", 2},
    {"N3c108BFloat16E", 2},
    {"N3c1011Float8_", 1},
    {"N3c1013Float8_", 1},
    {"N3c1014Float8_", 1},
    {"N3c1015Float8_", 1},
    {"a", 1},
    {"h", 1},
    {"b", 1},
    {"s", 2},
    {"t", 2},
    {"i", 4},
    {"j", 4},
    {"f", 4},
    {"l", 8},
    {"m", 8},
    {"d", 8},
};

bool rt_is_elementwise(const char *name)
{
    return strstr(name, "29vectorized_elementwise_kernelI") != NULL;
}

void rt_announce(void **arguments)
{
    int count = *(const int *)arguments[0];

    /* 16 bytes is the widest element, 1 the narrowest. */
    if (count > 0) {
        sim_kernel_writes(*(const CUdeviceptr *)arguments[2], (size_t)count * 16);
        sim_kernel_surely_writes(*(const CUdeviceptr *)arguments[2], (size_t)count);
    }
}

void rt_announce_nothing(void)
{
    sim_kernel_writes(0, 0);
    sim_kernel_surely_writes(0, 0);
}

unsigned rt_fill_element(const char *name)
{
    static const char functor[] = "11FillFunctorI";
    const char *type;

    if (!rt_is_elementwise(name))
        return 0;
    type = strstr(name, functor);
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (strncmp(type + sizeof functor - 1, types[i].code, strlen(types[i].code)) == 0)
            return types[i].bytes;
    return 0;
}

static bool is_capturing(cudaStream_t stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool rt_fill(unsigned element, void **arguments, cudaStream_t stream, cudaError_t *error)
{
    static const char zeros[16];
    int count = *(const int *)arguments[0];
    const void *value = arguments[1];
    CUdeviceptr address = *(const CUdeviceptr *)arguments[2];
    size_t size = (size_t)count * element;
    char bytes[COPY_BYTES_MAX];

    if (count <= 0)
        return false;
    if (memcmp(value, zeros, element) == 0) {
        *error = rt_note(cuMemsetD8Async(address, 0, size, stream));
        return true;
    }
    /* A capture would keep the address of a buffer that is gone when the graph runs. */
    if (size > sizeof bytes || is_capturing(stream))
        return false;
    for (size_t i = 0; i < size; i += element)
        memcpy(bytes + i, value, element);
    *error = rt_note(cuMemcpyHtoDAsync(address, bytes, size, stream));
    return true;
}
