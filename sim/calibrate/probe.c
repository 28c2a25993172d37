/* SPDX-License-Identifier: Apache-2.0 */
/* probe: asks a driver what it allows and what its calls cost, and prints that as a cost file of the
 * simulator.
 *
 *   seamalloc_probe [--mappings MOST] [DEVICE] > gpu.conf
 *
 * It opens whatever libcuda.so.1 the loader finds: on a machine with a GPU the real one. It takes at most
 * 1 GiB of the device.
 *
 * 1. Rules, as lines "rule.NAME VALUE": both granularities, how much of a handle one mapping may show, and
 *    whether one unmap takes several mappings. Whether bytes are seen through a second address is a comment:
 *    the simulator knows nothing else.
 * 2. The ceiling on mappings: up to MOST (default 0: not looked for) mappings with access are made of a few
 *    handles, some hundreds in a call, and where a call is refused, one by one. It costs the time of so many
 *    calls: half a minute for 500,000 on a device that takes 60 us for each.
 * 3. Costs. Each is the median of several calls; what depends on size or on the number of handles is measured
 *    at two points and given as a fixed part and a part for each handle or GiB. The time is the host's; a
 *    simulated device in virtual time gives its own clock, so that its prices come back.
 *
 * Every object is given back; a call that fails ends the probe with its name. */
#include <cuda.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* clang-format off */
#define FUNCTIONS(X)                                                                                         \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceTotalMem)                                       \
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

/* The ceiling that the simulator assumes when its file says none. */
#define USUAL_CEILING 523000

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static CUmemAllocationProp properties;
static CUmemAccessDesc access;

/* The clock of a simulated device in virtual time, or NULL. */
static uint64_t (*virtual_clock)(void);

static int64_t now_ns(void)
{
    struct timespec t;
    if (virtual_clock)
        return (int64_t)virtual_clock();
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
    symbol = dlsym(library, "sim_host_ns");
    memcpy(&virtual_clock, &symbol, sizeof(virtual_clock));
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

/* Takes away `count` mappings of `size` bytes side by side, in one call where that is allowed. */
static int64_t unmap_all(CUdeviceptr base, size_t size, size_t count, bool several)
{
    int64_t ns = 0;
    if (several)
        return TIME(cuMemUnmap, base, size * count);
    for (size_t i = 0; i < count; i++)
        ns += TIME(cuMemUnmap, base + size * i, size);
    return ns;
}

/* Medians of one life of `count` handles of `size` bytes, mapped side by side, access in one call. */
static void live(size_t size, int count, bool several, int64_t result[STEPS])
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
        times[UNMAP][t] = unmap_all(base, size, (size_t)count, several);
        for (int i = 0; i < count; i++)
            times[RELEASE][t] += TIME(cuMemRelease, handles[i]);
        times[ADDRESS_FREE][t] = TIME(cuMemAddressFree, base, size * (size_t)count);
    }
    for (int i = 0; i < STEPS; i++)
        result[i] = median(times[i], TRIES);
}

/* fixed + handles x per handle + GiB x per GiB, through three lives: one small handle, 32 of them, one of the
 * same bytes. */
static void print_costs(size_t granularity, bool several)
{
    int64_t one[STEPS], many[STEPS], large[STEPS];
    const int count = 32;
    double gib = (double)granularity / (1 << 30);
    live(granularity, 1, several, one);
    live(granularity, count, several, many);
    live(granularity * count, 1, several, large);
    for (int i = 0; i < STEPS; i++) {
        /* one call a handle */
        bool each = i == CREATE || i == MAP || i == RELEASE || (i == UNMAP && !several);
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

/* Through two sizes: a fixed part, and one for each GiB. */
static void print_line(const char *name, int64_t small, int64_t large, const size_t sizes[2])
{
    double per_gib = (double)(large - small) * (1 << 30) / (double)(sizes[1] - sizes[0]);
    if (per_gib < 0)
        per_gib = 0;
    double fixed = (double)small - per_gib * (double)sizes[0] / (1 << 30);
    printf("%s %.0f 0 %.0f\n", name, fixed > 0 ? fixed : 0, per_gib);
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
    print_line("cuMemAlloc", median(get[0], TRIES), median(get[1], TRIES), sizes);
    print_line("cuMemFree", median(give[0], TRIES), median(give[1], TRIES), sizes);
    printf("cuMemGetInfo %ld\n", median(info, TRIES));
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

static size_t granularity_of(CUmemAllocationGranularity_flags kind)
{
    size_t granularity = 0;
    need(p_cuMemGetAllocationGranularity(&granularity, &properties, kind), "cuMemGetAllocationGranularity");
    return granularity;
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

/* Is what is written through one address read through another; does one unmap take both mappings? */
static bool aliases(CUmemGenericAllocationHandle handle, CUdeviceptr base, size_t size, bool *several)
{
    uint64_t written = 0x5eA3A110c5eA3A11, seen = 0;
    need(p_cuMemMap(base, size, 0, handle, 0), "cuMemMap");
    need(p_cuMemMap(base + size, size, 0, handle, 0), "cuMemMap");
    need(p_cuMemSetAccess(base, 2 * size, &access, 1), "cuMemSetAccess");
    need(p_cuMemcpyHtoD(base + size - 8, &written, 8), "cuMemcpyHtoD");
    need(p_cuMemcpyDtoH(&seen, base + 2 * size - 8, 8), "cuMemcpyDtoH");
    *several = p_cuMemUnmap(base, 2 * size) == CUDA_SUCCESS;
    if (!*several)
        unmap_all(base, size, 2, false);
    return seen == written;
}

/* Prints the rules that one handle can tell. Returns: whether one unmap takes several mappings. */
static bool print_rules(size_t granularity)
{
    const size_t size = 32 * granularity, recommended = granularity_of(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    bool several;
    need(p_cuMemAddressReserve(&base, 2 * size, 0, 0, 0), "cuMemAddressReserve");
    need(p_cuMemCreate(&handle, size, &properties, 0), "cuMemCreate");
    bool inner =
        maps(handle, base, granularity, granularity) && maps(handle, base, granularity, size - granularity);
    const char *partial = inner ? "inner" : maps(handle, base, granularity, 0) ? "prefix" : "whole";
    bool same = aliases(handle, base, size, &several);
    printf("rule.granularity_kib %zu\nrule.recommended_kib %zu\nrule.partial %s\nrule.unmap %s\n",
           granularity / KIB, recommended / KIB, partial, several ? "several" : "one");
    printf("# a second mapping shows the same bytes: %s\n", same ? "yes" : "no");
    need(p_cuMemRelease(handle), "cuMemRelease");
    need(p_cuMemAddressFree(base, 2 * size), "cuMemAddressFree");
    return several;
}

/* ---- the ceiling on mappings ---- */

/* Handles that are mapped again and again, side by side in one reservation at a time. */
struct ring {
    CUmemGenericAllocationHandle handles[256];
    size_t count, size;
    bool several;
};

/* Maps the whole ring once more. Returns: how many of its mappings got access; *base: where, 0: nowhere. */
static size_t map_ring(const struct ring *ring, CUdeviceptr *base)
{
    size_t bytes = ring->count * ring->size, mapped = 0, opened = 0;
    *base = 0;
    if (p_cuMemAddressReserve(base, bytes, 0, 0, 0) != CUDA_SUCCESS)
        return 0;
    while (mapped < ring->count &&
           p_cuMemMap(*base + mapped * ring->size, ring->size, 0, ring->handles[mapped], 0) == CUDA_SUCCESS)
        mapped++;
    if (mapped == ring->count && p_cuMemSetAccess(*base, bytes, &access, 1) == CUDA_SUCCESS)
        return mapped;
    while (opened < mapped &&
           p_cuMemSetAccess(*base + opened * ring->size, ring->size, &access, 1) == CUDA_SUCCESS)
        opened++;
    unmap_all(*base + opened * ring->size, ring->size, mapped - opened, false);
    if (opened == 0) {
        need(p_cuMemAddressFree(*base, bytes), "cuMemAddressFree");
        *base = 0;
    }
    return opened;
}

/* Returns: the most mappings with access, 0 when `most` of them were not refused. */
static uint64_t find_ceiling(const struct ring *ring, uint64_t most)
{
    uint64_t found = 0, rounds = 0;
    CUdeviceptr *bases = calloc(most / ring->count + 2, sizeof(*bases));
    size_t opened = ring->count;
    need(bases ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, "calloc");
    while (found < most && opened == ring->count) {
        opened = map_ring(ring, &bases[rounds]);
        rounds += opened > 0;
        found += opened;
    }
    for (uint64_t i = 0; i < rounds; i++) {
        size_t count = i + 1 == rounds && opened ? opened : ring->count;
        unmap_all(bases[i], ring->size, count, ring->several);
        need(p_cuMemAddressFree(bases[i], ring->count * ring->size), "cuMemAddressFree");
    }
    free(bases);
    return opened == ring->count ? 0 : found;
}

/* The ring takes half a GiB, or one handle where that is more. */
static void print_ceiling(size_t granularity, bool several, uint64_t most)
{
    struct ring ring = {.size = granularity, .several = several};
    size_t fit = 512 * MIB / granularity;
    uint64_t ceiling;
    if (most == 0) {
        puts("# the ceiling on mappings was not looked for");
        return;
    }
    ring.count = fit < 1 ? 1 : fit < 256 ? fit : 256;
    for (size_t i = 0; i < ring.count; i++)
        need(p_cuMemCreate(&ring.handles[i], granularity, &properties, 0), "cuMemCreate");
    ceiling = find_ceiling(&ring, most);
    printf("# up to %" PRIu64 " mappings were tried, %s\n", most,
           ceiling ? "not all with success" : "all with success");
    if (ceiling || most > USUAL_CEILING)
        printf("rule.mappings %" PRIu64 "\n", ceiling);
    for (size_t i = 0; i < ring.count; i++)
        need(p_cuMemRelease(ring.handles[i]), "cuMemRelease");
}

/* ---- the program ---- */

/* Whose figures these are. A clock that stands still is none. */
static void print_head(CUdevice device)
{
    char name[128] = "", date[16] = "";
    size_t bytes = 0;
    int version = 0;
    time_t now = time(NULL);
    struct tm day;
    need(p_cuDeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
    need(p_cuDriverGetVersion(&version), "cuDriverGetVersion");
    need(p_cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem");
    if (gmtime_r(&now, &day))
        strftime(date, sizeof(date), "%Y-%m-%d", &day);
    if (virtual_clock && virtual_clock() == 0)
        virtual_clock = NULL;
    printf("# %s, %zu MiB, driver %d.%d, %s, %s time, medians of %d\n", name, bytes / MIB, version / 1000,
           version % 1000 / 10, date, virtual_clock ? "virtual" : "host", TRIES);
}

/* Reads [--mappings MOST] [DEVICE]. Returns: false for anything else. */
static bool read_arguments(int argc, char **argv, uint64_t *most, int *ordinal)
{
    static char nothing[] = "";
    char *end = nothing;
    int at = 1;
    if (at + 1 < argc && !strcmp(argv[at], "--mappings")) {
        *most = strtoull(argv[at + 1], &end, 10);
        at += 2;
    }
    if (!*end && at < argc)
        *ordinal = (int)strtoul(argv[at++], &end, 10);
    return !*end && at == argc;
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    int ordinal = 0;
    uint64_t most = 0;
    if (!read_arguments(argc, argv, &most, &ordinal)) {
        fprintf(stderr, "usage: seamalloc_probe [--mappings MOST] [DEVICE]\n");
        return 2;
    }
    load();
    need(p_cuInit(0), "cuInit");
    need(p_cuDeviceGet(&device, ordinal), "cuDeviceGet");
    need(p_cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    need(p_cuCtxSetCurrent(context), "cuCtxSetCurrent");
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = access.location.id = ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    size_t granularity = granularity_of(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    print_head(device);
    puts("like h100 # what is not said below");
    bool several = print_rules(granularity);
    print_costs(granularity, several);
    print_plain();
    print_events();
    print_ceiling(granularity, several, most);
    need(p_cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    need(p_cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
    return 0;
}
