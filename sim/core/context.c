/* SPDX-License-Identifier: Apache-2.0 */
/* context: see context.h. Protected by: the core lock for the list of contexts; primary state is atomic; a
 * thread's stack belongs to the thread, and is void once `epoch` has moved on (a reset). */
#include "sim/core/context.h"
#include "sim/core/config.h"
#include "sim/core/lock.h"
#include "sim/core/table.h"
#include <stdatomic.h>
#include <stdlib.h>

enum { DEPTH = 64 };

struct context {
    int device;
    unsigned flags;
    uint64_t id;
};

static struct {
    _Atomic uint64_t handle;
    _Atomic int references;
    _Atomic unsigned flags;
} primary[SIM_DEVICES_MAX];

static _Atomic uint32_t peers[SIM_DEVICES_MAX]; /* bit p: kernels of this device may use memory of device p */

struct entry {
    CUcontext context;
    int device; /* -1 where context is NULL */
};

static _Atomic uint64_t epoch = 1;
static uint64_t next_id = 1; /* protected by the core lock */
static __thread struct entry stack[DEPTH];
static __thread int depth;
static __thread uint64_t stack_epoch;

static struct entry *top(void)
{
    uint64_t now = atomic_load_explicit(&epoch, memory_order_relaxed);
    if (stack_epoch != now) {
        stack_epoch = now;
        depth = 0;
        stack[0] = (struct entry){NULL, -1};
    }
    return &stack[depth];
}

int sim_context_device(void)
{
    return top()->device;
}

CUcontext sim_context_current(void)
{
    return top()->context;
}

static CUresult make_entry(CUcontext context, struct entry *entry)
{
    *entry = (struct entry){context, -1};
    if (!context)
        return CUDA_SUCCESS;
    struct context *c = sim_table_get(SIM_KIND_CONTEXT, (uint64_t)(uintptr_t)context);
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    entry->device = c->device;
    return CUDA_SUCCESS;
}

CUresult sim_context_set(CUcontext context)
{
    struct entry entry;
    CUresult result = make_entry(context, &entry);
    if (!result)
        *top() = entry;
    return result;
}

CUresult sim_context_push(CUcontext context)
{
    struct entry entry;
    CUresult result = make_entry(context, &entry);
    if (result)
        return result;
    struct entry *now = top();
    if (depth == 0 && !now->context) {
        *now = entry;
        return CUDA_SUCCESS;
    }
    if (depth + 1 == DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[++depth] = entry;
    return CUDA_SUCCESS;
}

CUresult sim_context_pop(CUcontext *context)
{
    struct entry *now = top();
    if (!now->context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context)
        *context = now->context;
    *now = (struct entry){NULL, -1};
    if (depth > 0)
        depth--;
    return CUDA_SUCCESS;
}

/* Requires: the lock is held. Returns: 0 when there is no host memory. */
static uint64_t new_context(int device, unsigned flags)
{
    struct context *c = malloc(sizeof *c);
    if (!c)
        return 0;
    *c = (struct context){device, flags, next_id++};
    uint64_t handle = sim_table_add(SIM_KIND_CONTEXT, c);
    if (!handle)
        free(c);
    return handle;
}

CUresult sim_context_create(CUcontext *context, unsigned flags, int device)
{
    sim_lock();
    uint64_t handle = new_context(device, flags);
    sim_unlock();
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *context = (CUcontext)(uintptr_t)handle;
    return sim_context_push(*context);
}

CUresult sim_context_destroy(CUcontext context)
{
    struct entry *now = top();
    for (int d = 0; d < SIM_DEVICES_MAX; d++)
        if (context && primary[d].handle == (uint64_t)(uintptr_t)context)
            return CUDA_ERROR_INVALID_CONTEXT;
    sim_lock();
    struct context *c = sim_table_remove(SIM_KIND_CONTEXT, (uint64_t)(uintptr_t)context);
    sim_unlock();
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    free(c);
    if (now->context == context)
        sim_context_pop(NULL);
    return CUDA_SUCCESS;
}

CUcontext sim_context_primary(int device)
{
    uint64_t handle = atomic_load_explicit(&primary[device].handle, memory_order_acquire);
    if (!handle) {
        sim_lock();
        handle = primary[device].handle;
        if (!handle)
            atomic_store(&primary[device].handle, handle = new_context(device, primary[device].flags));
        sim_unlock();
    }
    return (CUcontext)(uintptr_t)handle;
}

CUresult sim_context_primary_retain(int device, CUcontext *context)
{
    CUcontext c = sim_context_primary(device);
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&primary[device].references, 1);
    *context = c;
    return CUDA_SUCCESS;
}

CUresult sim_context_primary_release(int device)
{
    int n = atomic_load(&primary[device].references);
    while (n > 0)
        if (atomic_compare_exchange_weak(&primary[device].references, &n, n - 1))
            return CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_CONTEXT;
}

void sim_context_primary_flags(int device, unsigned flags)
{
    atomic_store(&primary[device].flags, flags);
}

void sim_context_primary_state(int device, unsigned *flags, int *active)
{
    *flags = atomic_load_explicit(&primary[device].flags, memory_order_relaxed);
    *active = atomic_load_explicit(&primary[device].references, memory_order_relaxed) > 0;
}

bool sim_context_set_peer(int device, int peer, bool open)
{
    uint32_t bit = (uint32_t)1 << peer;
    uint32_t before = open ? atomic_fetch_or(&peers[device], bit) : atomic_fetch_and(&peers[device], ~bit);
    return !(before & bit) == open;
}

bool sim_context_peers(int device, int peer)
{
    return atomic_load(&peers[device]) >> peer & 1;
}

CUresult sim_context_info(CUcontext context, int *device, unsigned *flags, uint64_t *id)
{
    context = context ? context : sim_context_current();
    struct context *c = sim_table_get(SIM_KIND_CONTEXT, (uint64_t)(uintptr_t)context);
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (device)
        *device = c->device;
    if (flags)
        *flags = c->flags;
    if (id)
        *id = c->id;
    return CUDA_SUCCESS;
}

static void drop_context(uint64_t handle, void *object, void *user)
{
    (void)user;
    sim_table_remove(SIM_KIND_CONTEXT, handle);
    free(object);
}

void sim_contexts_reset(void)
{
    atomic_fetch_add(&epoch, 1);
    sim_table_each(SIM_KIND_CONTEXT, drop_context, NULL);
    next_id = 1;
    for (int d = 0; d < SIM_DEVICES_MAX; d++) {
        atomic_store(&primary[d].handle, 0);
        atomic_store(&primary[d].references, 0);
        atomic_store(&primary[d].flags, 0);
        atomic_store(&peers[d], 0);
    }
}
