/* SPDX-License-Identifier: Apache-2.0 */
/* calls: see calls.h. A call is counted for the device whose context is current, for device 0 where none is.
 */
#include "sim/core/calls.h"
#include "sim/core/config.h"
#include "sim/core/context.h"
#include "sim/core/faults.h"
#include "sim/core/refused.h"
#include "sim/core/sticky.h"
#include "sim/core/tenant.h"
#include "sim/core/timing.h"
#include <string.h>

_Atomic int sim_state;

static _Atomic uint64_t counts[SIM_DEVICES_MAX][SIM_CALL_COUNT];
static _Atomic uint64_t unsupported[SIM_CALL_COUNT];
static _Atomic uint64_t numbers;
static __thread enum sim_call current;
static __thread uint64_t current_number;

CUresult sim_check_state(void)
{
    switch (atomic_load_explicit(&sim_state, memory_order_acquire)) {
    case SIM_STATE_READY:
        return CUDA_SUCCESS;
    case SIM_STATE_OVER:
        return CUDA_ERROR_DEINITIALIZED;
    default: /* a forked child finds the driver uninitialised, and cannot initialise it */
        return CUDA_ERROR_NOT_INITIALIZED;
    }
}

CUresult sim_enter_about(enum sim_call call, int device, uint64_t size)
{
    CUresult result = sim_check_state();
    if (result)
        return result;
    int own = sim_context_device();
    atomic_fetch_add_explicit(&counts[own < 0 ? 0 : own][call], 1, memory_order_relaxed);
    current = call;
    current_number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
    if (sim_timing_on())
        sim_timing_call(call);
    sim_tenant_look(current_number);
    sim_fault_settle();
    result = sim_sticky_call(call, own);
    return result ? result : sim_fault(call, device < 0 ? own : device, size);
}

uint64_t sim_current_number(void)
{
    return current_number;
}

enum sim_call sim_current(void)
{
    return current;
}

void sim_set_current(enum sim_call call)
{
    current = call;
}

const char *sim_current_call(void)
{
    return sim_call_names[current];
}

CUresult sim_unsupported(enum sim_call call)
{
    CUresult result = sim_enter(call);
    if (result)
        return result;
    if (atomic_fetch_add_explicit(&unsupported[call], 1, memory_order_relaxed) == 0 && sim_config.log)
        fprintf(stderr, "seamalloc: simulated device: %s is not supported\n", sim_call_names[call]);
    return CUDA_ERROR_NOT_SUPPORTED;
}

int sim_call_find(const char *name, size_t length)
{
    int low = 0, high = SIM_CALL_COUNT - 1;
    while (low <= high) { /* the names are sorted */
        int middle = (low + high) / 2;
        int order = strncmp(name, sim_call_names[middle], length);
        if (order == 0 && sim_call_names[middle][length])
            order = -1; /* a proper prefix sorts before */
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return -1;
}

uint64_t sim_call_count(int device, int call)
{
    return atomic_load_explicit(&counts[device][call], memory_order_relaxed);
}

uint64_t sim_call_unsupported_count(int call)
{
    return atomic_load_explicit(&unsupported[call], memory_order_relaxed);
}

void sim_calls_reset(void)
{
    atomic_store(&numbers, 0);
    for (int call = 0; call < SIM_CALL_COUNT; call++) {
        for (int device = 0; device < SIM_DEVICES_MAX; device++)
            atomic_store_explicit(&counts[device][call], 0, memory_order_relaxed);
        atomic_store_explicit(&unsupported[call], 0, memory_order_relaxed);
    }
    sim_refused_reset();
}

uint64_t sim_calls(const char *name)
{
    int call = sim_call_find(name, strlen(name));
    uint64_t sum = 0;
    for (int device = 0; call >= 0 && device < SIM_DEVICES_MAX; device++)
        sum += sim_call_count(device, call);
    return sum;
}

uint64_t sim_calls_total(void)
{
    uint64_t sum = 0;
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        for (int device = 0; device < SIM_DEVICES_MAX; device++)
            sum += sim_call_count(device, call);
    return sum;
}

uint64_t sim_calls_unsupported(void)
{
    uint64_t sum = 0;
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        sum += sim_call_unsupported_count(call);
    const char *name;
    uint64_t count;
    for (size_t i = 0; sim_refused(i, &name, &count); i++)
        sum += count;
    return sum;
}
