/* SPDX-License-Identifier: Apache-2.0 */
/* probe: asks a driver what it allows and what its calls cost, and prints that as a cost file of the
 * simulator.
 *
 *   seamalloc_probe [DEVICE] > gpu.conf
 *
 * It opens whatever libcuda.so.1 the loader finds: on a machine with a GPU the real one. It takes about two
 * seconds and at most 1 GiB of the device. Each cost is the median of several calls; what depends on size or
 * on the number of handles is measured at two points and given as a fixed part and a part for each handle or
 * GiB. Rules are printed as comments: whether a prefix or an inner part of a handle maps, whether bytes are
 * seen through a second address, whether one unmap takes several mappings. Every object is given back; a call
 * that fails ends the probe with its name. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* clang-format off */
#define FUNCTIONS(X)                                                                                         \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet)                                                           \
    X(cuDeviceGetName) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)                              \
    X(cuCtxSetCurrent) X(cuMemGetAllocationGranularity) X(cuMemAddressReserve)                               \
    X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease)                                                       \
    X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)                                                              \
    X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo)                                                               \
    X(cuEventCreate) X(cuEventRecord) X(cuEventQuery)                                                        \
    X(cuEventDestroy) X(cuMemcpyHtoD) X(cuMemcpyDtoH)                                                        \
    X(cuStreamSynchronize) X(cuCtxSynchronize)
/* clang-format on */

#define X(name) static __typeof__(&name) p_##name;
FUNCTIONS(X)
#undef X

#define TRIES 15
#define MIB   ((size_t)1 << 20)

static CUmemAllocationProp properties;
static CUmemAccessDesc access;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void need(CUresult code, const char *call)
{
    if (code == CUDA_SUCCESS)
        return;
    fprintf(stderr, "seamalloc_probe: %s failed with CUDA error %d\n", call, (int)code);
    exit(1);
}

/* The call's nanoseconds; it must succeed. */
#define TIME(name, ...)                                                                                      \
    __extension__({                                                                                          \
        int64_t start_ = now_ns();                                                                           \
        need(p_##name(__VA_ARGS__), #name);                                                                  \
        now_ns() - start_;                                                                                   \
    })

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (!symbol) {
        fprintf(stderr, "seamalloc_probe: no CUDA driver of 12.0 or newer: %s\n",
                library ? "too old" : dlerror());
        exit(1);
    }
    memcpy(&get, &symbol, sizeof(get));
#define X(name)                                                                                              \
    if (get(#name, (void **)&p_##name, 12000, 0, NULL) || !p_##name) {                                       \
        fprintf(stderr, "seamalloc_probe: the driver has no %s\n", #name);                                   \
        exit(1);                                                                                             \
    }
    FUNCTIONS(X)
#undef X
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int64_t median(int64_t *times, int count)
{
    qsort(times, (size_t)count, sizeof(*times), ascending);
    return times[count / 2];
}

enum { RESERVE, CREATE, MAP, ACCESS, UNMAP, RELEASE, ADDRESS_FREE, STEPS };
static const char *const step_names[STEPS] = {"cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                                              "cuMemSetAccess",      "cuMemUnmap",  "cuMemRelease",
                                              "cuMemAddressFree"};

/* Medians of one life of `count` handles of `size` bytes, mapped side by side, access in one call. */
static void live(size_t size, int count, int64_t result[STEPS])
{
    static int64_t times[STEPS][TRIES];
    CUmemGenericAllocationHandle handles[64];
    for (int t = 0; t < TRIES; t++) {
        CUdeviceptr base;
        times[RESERVE][t] = TIME(cuMemAddressReserve, &base, size * (size_t)count, 0, 0, 0);
        for (int i = CREATE; i <= RELEASE; i++)
            times[i][t] = 0;
        for (int i = 0; i < count; i++)
            times[CREATE][t] += TIME(cuMemCreate, &handles[i], size, &properties, 0);
        for (int i = 0; i < count; i++)
            times[MAP][t] += TIME(cuMemMap, base + size * (size_t)i, size, 0, handles[i], 0);
        times[ACCESS][t] = TIME(cuMemSetAccess, base, size * (size_t)count, &access, 1);
        for (int i = 0; i < count; i++)
            times[UNMAP][t] += TIME(cuMemUnmap, base + size * (size_t)i, size);
        for (int i = 0; i < count; i++)
            times[RELEASE][t] += TIME(cuMemRelease, handles[i]);
        times[ADDRESS_FREE][t] = TIME(cuMemAddressFree, base, size * (size_t)count);
    }
    for (int i = 0; i < STEPS; i++)
        result[i] = median(times[i], TRIES);
}

/* fixed + handles x per handle + GiB x per GiB, through three lives: one small handle, 32 of them, one of the
 * same bytes. */
static void print_costs(size_t granularity)
{
    int64_t one[STEPS], many[STEPS], large[STEPS];
    const int count = 32;
    double gib = (double)granularity / (1 << 30);
    live(granularity, 1, one);
    live(granularity, count, many);
    live(granularity * count, 1, large);
    for (int i = 0; i < STEPS; i++) {
        bool each = i == CREATE || i == MAP || i == UNMAP || i == RELEASE; /* one call a handle */
        double per_gib = (double)(large[i] - one[i]) / (gib * (count - 1));
        if (per_gib < 0)
            per_gib = 0;
        double fixed = (double)one[i] - per_gib * gib;
        double per_handle = each ? 0 : ((double)(many[i] - large[i])) / (count - 1);
        if (per_handle < 0)
            per_handle = 0;
        fixed -= per_handle;
        printf("%s %.0f %.0f %.0f\n", step_names[i], fixed > 0 ? fixed : 0, per_handle, per_gib);
    }
}

static void print_plain(void)
{
    int64_t get[2][TRIES], give[2][TRIES], info[TRIES];
    const size_t sizes[2] = {2 * MIB, 512 * MIB};
    for (int s = 0; s < 2; s++)
        for (int t = 0; t < TRIES; t++) {
            CUdeviceptr block;
            size_t free_bytes, total;
            get[s][t] = TIME(cuMemAlloc, &block, sizes[s]);
            info[t] = TIME(cuMemGetInfo, &free_bytes, &total);
            give[s][t] = TIME(cuMemFree, block);
        }
    double gib = (double)(sizes[1] - sizes[0]) / (1 << 30);
    int64_t get_small = median(get[0], TRIES), give_small = median(give[0], TRIES);
    double get_gib = (double)(median(get[1], TRIES) - get_small) / gib;
    double give_gib = (double)(median(give[1], TRIES) - give_small) / gib;
    printf("cuMemAlloc %ld 0 %.0f\ncuMemFree %ld 0 %.0f\ncuMemGetInfo %ld\n", get_small,
           get_gib > 0 ? get_gib : 0, give_small, give_gib > 0 ? give_gib : 0, median(info, TRIES));
}

static void print_events(void)
{
    int64_t create[TRIES], record[TRIES], query[TRIES], destroy[TRIES], stream[TRIES], context[TRIES];
    for (int t = 0; t < TRIES; t++) {
        CUevent event;
        create[t] = TIME(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
        record[t] = TIME(cuEventRecord, event, NULL);
        stream[t] = TIME(cuStreamSynchronize, NULL);
        query[t] = TIME(cuEventQuery, event);
        context[t] = TIME(cuCtxSynchronize);
        destroy[t] = TIME(cuEventDestroy, event);
    }
    printf("cuEventCreate %ld\ncuEventRecord %ld\ncuEventQuery %ld\ncuEventDestroy %ld\ncuStreamSynchronize "
           "%ld\n"
           "cuCtxSynchronize %ld\n",
           median(create, TRIES), median(record, TRIES), median(query, TRIES), median(destroy, TRIES),
           median(stream, TRIES), median(context, TRIES));
}

/* Does [offset, offset + size) of a handle map, with access? */
static bool maps(CUmemGenericAllocationHandle handle, CUdeviceptr at, size_t size, size_t offset)
{
    if (p_cuMemMap(at, size, offset, handle, 0) != CUDA_SUCCESS)
        return false;
    bool works = p_cuMemSetAccess(at, size, &access, 1) == CUDA_SUCCESS;
    need(p_cuMemUnmap(at, size), "cuMemUnmap");
    return works;
}

/* Is what is written through one address read through another? */
static bool aliases(CUmemGenericAllocationHandle handle, CUdeviceptr base, size_t size)
{
    uint64_t written = 0x5eA3A110c5eA3A11, seen = 0;
    need(p_cuMemMap(base, size, 0, handle, 0), "cuMemMap");
    if (p_cuMemMap(base + size, size, 0, handle, 0) != CUDA_SUCCESS) {
        need(p_cuMemUnmap(base, size), "cuMemUnmap");
        return false;
    }
    need(p_cuMemSetAccess(base, 2 * size, &access, 1), "cuMemSetAccess");
    need(p_cuMemcpyHtoD(base + size - 8, &written, 8), "cuMemcpyHtoD");
    need(p_cuMemcpyDtoH(&seen, base + 2 * size - 8, 8), "cuMemcpyDtoH");
    bool one_call = p_cuMemUnmap(base, 2 * size) == CUDA_SUCCESS;
    printf("# one unmap over two whole mappings: %s\n", one_call ? "yes" : "no");
    if (!one_call) {
        need(p_cuMemUnmap(base, size), "cuMemUnmap");
        need(p_cuMemUnmap(base + size, size), "cuMemUnmap");
    }
    return seen == written;
}

static void print_rules(size_t granularity)
{
    const size_t size = 32 * granularity;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    need(p_cuMemAddressReserve(&base, 2 * size, 0, 0, 0), "cuMemAddressReserve");
    need(p_cuMemCreate(&handle, size, &properties, 0), "cuMemCreate");
    printf("# a prefix of a handle maps: %s\n", maps(handle, base, granularity, 0) ? "yes" : "no");
    printf("# an inner part of a handle maps: %s\n",
           maps(handle, base, granularity, granularity) && maps(handle, base, granularity, size - granularity)
               ? "yes"
               : "no");
    printf("# a second mapping shows the same bytes: %s\n", aliases(handle, base, size) ? "yes" : "no");
    need(p_cuMemRelease(handle), "cuMemRelease");
    need(p_cuMemAddressFree(base, 2 * size), "cuMemAddressFree");
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    char name[128] = "";
    int ordinal = argc > 1 ? atoi(argv[1]) : 0, version = 0;
    size_t granularity = 0;
    load();
    need(p_cuInit(0), "cuInit");
    need(p_cuDeviceGet(&device, ordinal), "cuDeviceGet");
    need(p_cuDeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
    need(p_cuDriverGetVersion(&version), "cuDriverGetVersion");
    need(p_cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    need(p_cuCtxSetCurrent(context), "cuCtxSetCurrent");
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = access.location.id = ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    need(p_cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
         "cuMemGetAllocationGranularity");
    printf("# %s, driver %d.%d, host time, medians of %d\n# granularity: %zu bytes\n", name, version / 1000,
           version % 1000 / 10, TRIES, granularity);
    print_rules(granularity);
    print_costs(granularity);
    print_plain();
    print_events();
    printf("default 100\n"); /* calls that are not measured here: a guess */
    need(p_cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    need(p_cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
    return 0;
}
