/* SPDX-License-Identifier: Apache-2.0 */
/* event: see event.h. */
#include "sim/core/event.h"
#include "base/clock.h"
#include "sim/core/rules.h"
#include "sim/core/table.h"
#include "sim/core/timing.h"
#include <stdlib.h>

CUresult sim_event_new(int device, unsigned flags, struct sim_event **event)
{
    struct sim_event *e = calloc(1, sizeof *e);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->device = device;
    e->flags = flags;
    e->handle = sim_table_add(SIM_KIND_EVENT, e);
    if (!e->handle) {
        free(e);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *event = e;
    return CUDA_SUCCESS;
}

static void free_event(struct sim_event *e)
{
    sim_point_clear(&e->point);
    free(e);
}

CUresult sim_event_destroy(uint64_t handle)
{
    struct sim_event *e = sim_table_remove(SIM_KIND_EVENT, handle);
    if (!e) {
        sim_violate(SIM_RULE_UNKNOWN_EVENT, -1, 0, 0, "event %#llx", (unsigned long long)handle);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    free_event(e);
    return CUDA_SUCCESS;
}

struct sim_event *sim_event_get(CUevent handle)
{
    struct sim_event *e = sim_table_get(SIM_KIND_EVENT, (uint64_t)(uintptr_t)handle);
    if (!e)
        sim_violate(SIM_RULE_UNKNOWN_EVENT, -1, 0, 0, "event %#llx", (unsigned long long)(uintptr_t)handle);
    return e;
}

CUresult sim_event_record(struct sim_event *event, struct sim_lane *lane)
{
    uint64_t number = atomic_load_explicit(&event->recorded, memory_order_relaxed) + 1;
    struct sim_op op = {.kind = SIM_OP_RECORD};
    op.record.event = event->handle;
    op.record.number = number;
    atomic_store_explicit(&event->recorded, number, memory_order_release);
    atomic_store_explicit(&event->capture_id, 0, memory_order_release);
    CUresult result = sim_queue_put(lane, &op);
    if (!result && !sim_queue_point(lane, &event->point))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        atomic_store_explicit(&event->recorded, number - 1, memory_order_release);
    return result;
}

void sim_event_complete(uint64_t handle, uint64_t number, uint64_t virtual_ns)
{
    struct sim_event *e = sim_table_get(SIM_KIND_EVENT, handle);
    if (!e || number <= atomic_load_explicit(&e->done, memory_order_relaxed))
        return;
    if (!(e->flags & CU_EVENT_DISABLE_TIMING))
        e->completed_ns = sim_timing_on() ? (int64_t)virtual_ns : (int64_t)sm_clock_ns();
    atomic_store_explicit(&e->done, number, memory_order_release);
}

CUresult sim_event_captured(const struct sim_event *event)
{
    sim_violate(SIM_RULE_CAPTURED_EVENT, event->device, 0, 0, "event %#llx, of capture %llu",
                (unsigned long long)event->handle, (unsigned long long)event->capture_id);
    return CUDA_ERROR_CAPTURED_EVENT;
}

static void drop(uint64_t handle, void *object, void *user)
{
    (void)user;
    sim_table_remove(SIM_KIND_EVENT, handle);
    free_event(object);
}

void sim_events_reset(void)
{
    sim_table_each(SIM_KIND_EVENT, drop, NULL);
}
