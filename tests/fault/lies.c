/* SPDX-License-Identifier: Apache-2.0 */
/* lies: see lies.h. */
#include "tests/fault/lies.h"

static struct {
    struct sm_driver real;
    enum liar liar;
    enum lie lie;
    uint64_t left, told; /* 0: nobody lies */
    bool forever;
} lies;

static const struct {
    const char *name;
    bool done;
} liars[] = {
#define BOTH(name)   {#name, true},
#define FAILED(name) {#name, false},
    LIES(BOTH, FAILED)
#undef BOTH
#undef FAILED
};

const char *liar_name(enum liar liar)
{
    return liars[liar].name;
}

bool liar_lies(enum liar liar, enum lie lie)
{
    return lie == LIE_FAILED || liars[liar].done;
}

void lies_arm(enum liar liar, enum lie lie, uint64_t nth, bool forever)
{
    lies.liar = liar;
    lies.lie = lie;
    lies.left = nth;
    lies.forever = forever;
    lies.told = 0;
}

uint64_t lies_disarm(void)
{
    uint64_t told = lies.told;
    lies.left = lies.told = 0;
    return told;
}

static bool due(enum liar liar)
{
    if (!lies.left || lies.liar != liar)
        return false;
    if (lies.left > 1) {
        lies.left--;
        return false;
    }
    lies.left = lies.forever;
    lies.told++;
    return true;
}

/* Calls that make nothing. */
#define LIAR(name, parameters, arguments)                                                                    \
    static CUresult lie_##name parameters                                                                    \
    {                                                                                                        \
        bool lying = due(LIAR_##name);                                                                       \
        if (lying && lies.lie == LIE_DONE)                                                                   \
            return CUDA_SUCCESS;                                                                             \
        CUresult code = lies.real.name arguments;                                                            \
        return lying ? CUDA_ERROR_UNKNOWN : code;                                                            \
    }

LIAR(cuMemAddressFree, (CUdeviceptr base, size_t size), (base, size))
LIAR(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
LIAR(cuMemMap,
     (CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
      unsigned long long flags),
     (base, size, offset, handle, flags))
LIAR(cuMemUnmap, (CUdeviceptr base, size_t size), (base, size))
LIAR(cuMemFree, (CUdeviceptr base), (base))
LIAR(cuMemSetAccess, (CUdeviceptr base, size_t size, const CUmemAccessDesc *access, size_t count),
     (base, size, access, count))
LIAR(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
LIAR(cuEventQuery, (CUevent event), (event))
LIAR(cuEventSynchronize, (CUevent event), (event))
LIAR(cuStreamQuery, (CUstream stream), (stream))
LIAR(cuStreamSynchronize, (CUstream stream), (stream))
LIAR(cuCtxSynchronize, (void), ())

/* Calls that make something: made though they say that they failed, it is lost; said to be there though it is
 * not, it is a name of nothing. */
#define MAKER(name, type, parameters, arguments)                                                             \
    static CUresult lie_##name parameters                                                                    \
    {                                                                                                        \
        type made = (type)(uintptr_t)0x123450000000u;                                                        \
        bool lying = due(LIAR_##name);                                                                       \
        CUresult code = lying && lies.lie == LIE_DONE ? CUDA_SUCCESS : lies.real.name arguments;             \
        if (code == CUDA_SUCCESS && !(lying && lies.lie == LIE_FAILED))                                      \
            *out = made;                                                                                     \
        return lying && lies.lie == LIE_FAILED ? CUDA_ERROR_UNKNOWN : code;                                  \
    }

MAKER(cuMemAddressReserve, CUdeviceptr,
      (CUdeviceptr * out, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags),
      (&made, size, alignment, hint, flags))
MAKER(cuMemCreate, CUmemGenericAllocationHandle,
      (CUmemGenericAllocationHandle * out, size_t size, const CUmemAllocationProp *properties,
       unsigned long long flags),
      (&made, size, properties, flags))
MAKER(cuMemAlloc, CUdeviceptr, (CUdeviceptr * out, size_t size), (&made, size))
MAKER(cuEventCreate, CUevent, (CUevent * out, unsigned flags), (&made, flags))

void lies_put(struct sm_driver *driver)
{
    lies.real = *driver;
#define X(name) driver->name = lie_##name;
    LIES(X, X)
#undef X
}
