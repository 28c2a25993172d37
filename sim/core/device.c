/* SPDX-License-Identifier: Apache-2.0 */
/* device: the attributes of a device of compute capability 8.0, and starting, resetting and ending the whole
 * simulator.
 *
 * Zeros where a real device has none are not harmless: a wrong launch limit or multiprocessor count makes
 * PyTorch divide by zero. Protected by: start and reset are single-threaded by contract. */
#include "sim/core/device.h"
#include "base/align.h"
#include "sim/core/address.h"
#include "sim/core/backing.h"
#include "sim/core/calls.h"
#include "sim/core/capture.h"
#include "sim/core/config.h"
#include "sim/core/context.h"
#include "sim/core/cost.h"
#include "sim/core/faults.h"
#include "sim/core/history.h"
#include "sim/core/ledger.h"
#include "sim/core/lock.h"
#include "sim/core/memory.h"
#include "sim/core/module.h"
#include "sim/core/physical.h"
#include "sim/core/pool.h"
#include "sim/core/record.h"
#include "sim/core/share.h"
#include "sim/core/sticky.h"
#include "sim/core/stream.h"
#include "sim/core/tenant.h"
#include "sim/core/timing.h"
#include "sim/core/trace.h"
#include <pthread.h>
#include <unistd.h>

#define A(name) CU_DEVICE_ATTRIBUTE_##name

static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {A(MAX_THREADS_PER_BLOCK), 1024},
    {A(MAX_BLOCK_DIM_X), 1024},
    {A(MAX_BLOCK_DIM_Y), 1024},
    {A(MAX_BLOCK_DIM_Z), 64},
    {A(MAX_GRID_DIM_X), 2147483647},
    {A(MAX_GRID_DIM_Y), 65535},
    {A(MAX_GRID_DIM_Z), 65535},
    {A(MAX_SHARED_MEMORY_PER_BLOCK), 49152},
    {A(TOTAL_CONSTANT_MEMORY), 65536},
    {A(WARP_SIZE), 32},
    {A(MAX_PITCH), 2147483647},
    {A(MAX_REGISTERS_PER_BLOCK), 65536},
    {A(CLOCK_RATE), 1410000},
    {A(TEXTURE_ALIGNMENT), 512},
    {A(TEXTURE_PITCH_ALIGNMENT), 32},
    {A(SURFACE_ALIGNMENT), 512},
    {A(GPU_OVERLAP), 1},
    {A(MULTIPROCESSOR_COUNT), 108},
    {A(CAN_MAP_HOST_MEMORY), 1},
    {A(CONCURRENT_KERNELS), 1},
    {A(ECC_ENABLED), 1},
    {A(MEMORY_CLOCK_RATE), 1215000},
    {A(GLOBAL_MEMORY_BUS_WIDTH), 5120},
    {A(L2_CACHE_SIZE), 41943040},
    {A(MAX_THREADS_PER_MULTIPROCESSOR), 2048},
    {A(ASYNC_ENGINE_COUNT), 3},
    {A(UNIFIED_ADDRESSING), 1},
    {A(COMPUTE_CAPABILITY_MAJOR), 8},
    {A(COMPUTE_CAPABILITY_MINOR), 0},
    {A(STREAM_PRIORITIES_SUPPORTED), 1},
    {A(GLOBAL_L1_CACHE_SUPPORTED), 1},
    {A(LOCAL_L1_CACHE_SUPPORTED), 1},
    {A(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR), 167936},
    {A(MAX_REGISTERS_PER_MULTIPROCESSOR), 65536},
    {A(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO), 2},
    {A(COMPUTE_PREEMPTION_SUPPORTED), 1},
    {A(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM), 1},
    {A(COOPERATIVE_LAUNCH), 1},
    {A(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 166912},
    {A(HOST_REGISTER_SUPPORTED), 1},
    {A(MAX_BLOCKS_PER_MULTIPROCESSOR), 32},
    {A(MAX_PERSISTING_L2_CACHE_SIZE), 31457280},
    {A(MAX_ACCESS_POLICY_WINDOW_SIZE), 134213632},
    {A(RESERVED_SHARED_MEMORY_PER_BLOCK), 1024},
    {A(PAGEABLE_MEMORY_ACCESS), 0},
    {A(CAN_USE_64_BIT_STREAM_MEM_OPS), 1},
    {A(MAXIMUM_TEXTURE1D_WIDTH), 131072},
    {A(MAXIMUM_TEXTURE2D_WIDTH), 131072},
    {A(MAXIMUM_TEXTURE2D_HEIGHT), 65536},
};

static const struct {
    CUdevice_attribute attribute;
    enum sim_feature feature;
} claims[] = {
    {A(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), SIM_FEATURE_VMM},
    {A(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED), SIM_FEATURE_EXPORT},
    {A(HANDLE_TYPE_FABRIC_SUPPORTED), SIM_FEATURE_FABRIC},
    {A(MEMORY_POOLS_SUPPORTED), SIM_FEATURE_POOLS},
    {A(MANAGED_MEMORY), SIM_FEATURE_MANAGED},
    {A(CONCURRENT_MANAGED_ACCESS), SIM_FEATURE_MANAGED},
    {A(GPU_DIRECT_RDMA_SUPPORTED), SIM_FEATURE_RDMA},
    {A(GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED), SIM_FEATURE_RDMA},
};

int sim_device_attribute(int device, CUdevice_attribute attribute)
{
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
        if (claims[i].attribute == attribute)
            return sim_claims(claims[i].feature);
    if (attribute == A(PCI_BUS_ID))
        return device + 1;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].attribute == attribute)
            return attributes[i].value;
    return 0;
}

/* ---- start and end ---- */

static bool has_started; /* somebody tried to */
static bool is_up;       /* and it went well */
static char share[80];
static pid_t owner;

static void clear_all(void)
{
    sim_lock();
    sim_ledger_leave();
    sim_captures_reset();
    sim_graphs_reset();
    sim_queue_reset();
    sim_timing_reset();
    sim_streams_reset();
    sim_events_reset();
    sim_pools_reset();
    sim_modules_reset();
    sim_share_reset();
    sim_memory_reset();
    sim_contexts_reset();
    sim_physical_reset();
    sim_address_reset();
    sim_backing_reset();
    sim_transfer_reset();
    sim_unlock();
    sim_sticky_reset();
    sim_fault_of_work = CUDA_SUCCESS;
    sim_calls_reset();
    sim_history_reset();
    sim_cost_reset();
}

static bool bring_up(void)
{
    const struct sim_config *c = &sim_config;
    sim_rules_reset(c->strict);
    sim_queue_start();
    sim_streams_start();
    sim_memory_start(c->devices);
    return sim_ledger_join(c) && sim_backing_start(c->devices, c->device_bytes, c->backed) &&
           sim_physical_start(c->devices, c->device_bytes, c->tenant_bytes) &&
           sim_address_start(c->devices, c->backed, c->address_bytes);
}

/* A child has its parent's tables but no driver: the real one cannot be used after a fork either. */
static void after_fork(void)
{
    if (atomic_load(&sim_state) == SIM_STATE_READY)
        atomic_store(&sim_state, SIM_STATE_FORKED);
    sim_trace_forked();
}

static bool start(const struct sim_config *config)
{
    if (!has_started)
        pthread_atfork(NULL, NULL, after_fork);
    atomic_store(&sim_state, SIM_STATE_NEW);
    clear_all();
    has_started = true;
    is_up = false;
    owner = getpid();
    sim_config = *config;
    sim_config.cost = sim_cost_name();
    if (config->share && config->share != share) { /* what was given may not last */
        snprintf(share, sizeof share, "%s", config->share);
        sim_config.share = share;
    }
    if (!bring_up()) {
        clear_all();
        return false;
    }
    is_up = true;
    if (!config->uninitialised)
        atomic_store(&sim_state, SIM_STATE_READY);
    return true;
}

bool sim_start(const struct sim_config *config)
{
    char error[256];
    struct sim_config copy = *config; /* may be the one in force */
    if (!sim_config_check(&copy, error, sizeof error)) {
        fprintf(stderr, "seamalloc: simulated CUDA device: %s\n", error);
        return false;
    }
    if (!sim_cost_load(copy.cost, NULL, error, sizeof error)) {
        fprintf(stderr, "seamalloc: simulated CUDA device: cost: %s\n", error);
        return false;
    }
    sim_fail_clear();
    sim_tenant_clear();
    return start(&copy);
}

void sim_reset(void)
{
    sim_fail_clear();
    sim_tenant_clear();
    start(&sim_config);
}

void sim_deinitialise(void)
{
    atomic_store(&sim_state, SIM_STATE_OVER);
}

static CUresult init_from_environment(void)
{
    struct sim_config config;
    char text[32];
    if (sim_config_real_device()) {
        fprintf(
            stderr,
            "seamalloc: simulated CUDA device: this machine has a real CUDA device; the simulator does not "
            "stand in for it\n");
        return CUDA_ERROR_NO_DEVICE;
    }
    if (!sim_config_environment(&config))
        return CUDA_ERROR_INVALID_VALUE;
    if (!start(&config))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (sim_config_trace() && !sim_trace_begin(sim_config_trace()))
        fprintf(stderr, "seamalloc: simulated CUDA device: could not write SEAMALLOC_SIM_TRACE=%s\n",
                sim_config_trace());
    fprintf(stderr, "seamalloc: simulated CUDA device, %d x %llu MiB, cost %s, streams %s%s\n",
            config.devices, (unsigned long long)(config.device_bytes / SM_MIB), sim_cost_name(),
            sim_config_streams_text(&config, text, sizeof text), config.strict ? ", strict" : "");
    return CUDA_SUCCESS;
}

CUresult sim_device_init(void)
{
    static pthread_mutex_t initialising = PTHREAD_MUTEX_INITIALIZER;
    CUresult result = CUDA_SUCCESS;
    int state = atomic_load(&sim_state);
    if (state == SIM_STATE_OVER || state == SIM_STATE_FORKED)
        return sim_check_state();
    pthread_mutex_lock(&initialising);
    if (atomic_load(&sim_state) == SIM_STATE_NEW) {
        if (!has_started)
            result = init_from_environment();
        else if (!is_up) /* it would fail again, and is told once */
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else /* sim_start with `uninitialised` */
            atomic_store(&sim_state, SIM_STATE_READY);
    }
    pthread_mutex_unlock(&initialising);
    return result;
}

/* Runs when the process exits, after the handlers that the program registered. */
__attribute__((destructor)) static void end(void)
{
    const char *path = sim_config_report();
    if (!is_up || owner != getpid())
        return;
    if (sim_config.strict && atomic_load(&sim_state) == SIM_STATE_READY)
        sim_print_leaks(stderr);
    if (path && !sim_write_record(path))
        fprintf(stderr, "seamalloc: simulated CUDA device: could not write SEAMALLOC_SIM_REPORT=%s\n", path);
    if (!sim_trace_end())
        fprintf(stderr, "seamalloc: simulated CUDA device: could not write all of the trace\n");
    sim_lock();
    sim_ledger_leave();
    sim_unlock();
    sim_deinitialise();
}
