/* SPDX-License-Identifier: Apache-2.0 */
/* allocator: all devices together: creation at first use, and what is one for all: phases, windows, checking.
 *
 * Phases. Statistics are per device, phases are not: a boundary is told to every device, first a reservation
 * of what it needs to all of them, then the boundary itself, which cannot fail. A statistics object without a
 * device keeps what is open, so that a device set up in the middle of a phase begins inside it. Protected by:
 * phase lock, then each device's heap lock. */
#include "alloc/engine.h"
#include "alloc/heap/view.h"

seam_result sm_allocator_create(struct sm_driver *driver, const struct sm_options *options,
                                struct sm_allocator **out, struct sm_error *error)
{
    struct sm_allocator *allocator;
    int count = 0;
    char text[160];
    CUresult code = SM_CALL(driver, cuDeviceGetCount, &count);
    if (code != CUDA_SUCCESS)
        return sm_error_set(error, SEAM_E_DEVICE, "cuDeviceGetCount: %s",
                            sm_driver_text(driver, code, text, sizeof(text)));
    if (count < 1)
        return sm_error_set(error, SEAM_E_NO_DRIVER, "the CUDA driver is there, but it knows no device");
    allocator = sm_hostmem_get(sizeof(*allocator));
    if (!allocator)
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the allocator");
    allocator->driver = driver;
    allocator->options = *options;
    allocator->device_count = count < SM_DEVICES_MAX ? count : SM_DEVICES_MAX;
    allocator->open_phases = sm_stats_create(-1, &allocator->no_parts);
    allocator->trace = sm_trace_create();
    if (!allocator->open_phases || !allocator->trace) {
        sm_trace_destroy(allocator->trace);
        if (allocator->open_phases)
            sm_stats_destroy(allocator->open_phases);
        sm_hostmem_put(allocator, sizeof(*allocator));
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the statistics");
    }
    sm_lock_init(&allocator->phase_lock, SM_RANK_PHASES, "phases");
    sm_lock_init(&allocator->setup_lock, SM_RANK_SETUP, "setup");
    *out = allocator;
    return SEAM_OK;
}

void sm_allocator_destroy(struct sm_allocator *allocator)
{
    for (int i = 0; i < allocator->device_count; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        if (device)
            sm_device_destroy(device);
    }
    sm_trace_destroy(allocator->trace);
    sm_stats_destroy(allocator->open_phases);
    sm_lock_fini(&allocator->setup_lock);
    sm_lock_fini(&allocator->phase_lock);
    sm_hostmem_put(allocator, sizeof(*allocator));
}

static seam_result set_up(struct sm_allocator *allocator, int ordinal, struct sm_device **out,
                          struct sm_error *error)
{
    struct sm_device *device = NULL;
    seam_result result = sm_device_create(allocator, ordinal, &device, error);
    if (!result && !sm_stats_phase_copy_open(device->stats, allocator->open_phases)) {
        sm_device_destroy(device);
        result =
            sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the open phases of device %d", ordinal);
    }
    if (result)
        return result;
    sm_record_device(device);
    atomic_store_explicit(&allocator->devices[ordinal], device, memory_order_release);
    *out = device;
    return SEAM_OK;
}

seam_result sm_allocator_device(struct sm_allocator *allocator, int ordinal, struct sm_device **out,
                                struct sm_error *error)
{
    struct sm_device *device = sm_allocator_seen(allocator, ordinal);
    seam_result result = SEAM_OK;
    if (device) {
        *out = device;
        return SEAM_OK;
    }
    if (ordinal < 0 || ordinal >= allocator->device_count)
        return sm_error_set(error, SEAM_E_ARGUMENT, "there is no device %d: the driver has devices 0 to %d",
                            ordinal, allocator->device_count - 1);
    sm_lock_take(&allocator->phase_lock);
    sm_lock_take(&allocator->setup_lock);
    device = sm_allocator_seen(allocator, ordinal);
    if (!device)
        result = set_up(allocator, ordinal, &device, error);
    sm_lock_give(&allocator->setup_lock);
    sm_lock_give(&allocator->phase_lock);
    if (!result)
        *out = device;
    return result;
}

/* ---- phases ---- */

enum boundary { RESERVE_PHASE, PUSH_PHASE, POP_PHASE, RESERVE_WINDOW, OPEN_WINDOW, CLOSE_WINDOW };

struct crossing {
    const char *name;
    uint64_t window, thread; /* thread 0: of the process */
    int64_t now_ns;
};

/* One statistics object crosses a boundary. Returns: false only for a reservation, or a window that is not
 * open. */
static bool cross(struct sm_stats *stats, enum boundary boundary, const struct crossing *at)
{
    switch (boundary) {
    case RESERVE_PHASE:
        return at->thread ? sm_stats_thread_phase_reserve(stats, at->thread, at->name)
                          : sm_stats_phase_reserve(stats, at->name);
    case PUSH_PHASE:
        at->thread ? sm_stats_thread_phase_push(stats, at->thread, at->name, at->now_ns)
                   : sm_stats_phase_push(stats, at->name, at->now_ns);
        return true;
    case POP_PHASE:
        at->thread ? sm_stats_thread_phase_pop(stats, at->thread, at->now_ns)
                   : sm_stats_phase_pop(stats, at->now_ns);
        return true;
    case RESERVE_WINDOW:
        return sm_stats_window_reserve(stats, at->name);
    case OPEN_WINDOW:
        sm_stats_window_open(stats, at->name, at->window, at->now_ns);
        return true;
    default:
        return sm_stats_window_close(stats, at->window, at->now_ns);
    }
}

/* Every device crosses it, and the object that stands for later ones. Phase lock held. */
static bool cross_all(struct sm_allocator *allocator, enum boundary boundary, const struct crossing *at)
{
    if (!cross(allocator->open_phases, boundary, at))
        return false;
    for (int i = 0; i < allocator->device_count; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        bool crossed;
        if (!device)
            continue;
        sm_lock_take(&device->heap_lock);
        crossed = cross(device->stats, boundary, at);
        sm_lock_give(&device->heap_lock);
        if (!crossed)
            return false;
    }
    return true;
}

static seam_result enter(struct sm_allocator *allocator, enum boundary reserve, enum boundary open,
                         const struct crossing *at, struct sm_error *error)
{
    if (!cross_all(allocator, reserve, at))
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the record of \"%s\"", at->name);
    cross_all(allocator, open, at);
    return SEAM_OK;
}

seam_result sm_allocator_phase_push(struct sm_allocator *allocator, const char *name, bool of_thread,
                                    struct sm_error *error)
{
    struct crossing at = {
        .name = name, .thread = of_thread ? sm_stats_thread_self() : 0, .now_ns = sm_clock_ns()};
    seam_result result = sm_phase_name_check(name, error);
    if (result)
        return result;
    sm_lock_take(&allocator->phase_lock);
    result = enter(allocator, RESERVE_PHASE, PUSH_PHASE, &at, error);
    if (!result && !of_thread)
        sm_record_mark(allocator, NULL, SM_TRACE_PHASE_ENTER, name);
    sm_lock_give(&allocator->phase_lock);
    return result;
}

seam_result sm_allocator_phase_pop(struct sm_allocator *allocator, bool of_thread, struct sm_error *error)
{
    struct crossing at = {.thread = of_thread ? sm_stats_thread_self() : 0, .now_ns = sm_clock_ns()};
    unsigned depth;
    sm_lock_take(&allocator->phase_lock);
    depth = of_thread ? sm_stats_thread_phase_depth(allocator->open_phases, at.thread)
                      : sm_stats_phase_depth(allocator->open_phases);
    if (depth)
        cross_all(allocator, POP_PHASE, &at);
    if (depth && !of_thread)
        sm_record_mark(allocator, NULL, SM_TRACE_PHASE_LEAVE, NULL);
    sm_lock_give(&allocator->phase_lock);
    if (!depth)
        return sm_error_set(error, SEAM_E_STATE, "no phase is open%s: each pop needs a push before it",
                            of_thread ? " in this thread" : "");
    return SEAM_OK;
}

seam_result sm_allocator_window_open(struct sm_allocator *allocator, const char *name, uint64_t *window,
                                     struct sm_error *error)
{
    struct crossing at = {.name = name, .now_ns = sm_clock_ns()};
    seam_result result = sm_phase_name_check(name, error);
    if (result)
        return result;
    sm_lock_take(&allocator->phase_lock);
    at.window = allocator->next_window + 1;
    result = enter(allocator, RESERVE_WINDOW, OPEN_WINDOW, &at, error);
    if (!result)
        *window = allocator->next_window = at.window;
    sm_lock_give(&allocator->phase_lock);
    return result;
}

seam_result sm_allocator_window_close(struct sm_allocator *allocator, uint64_t window, struct sm_error *error)
{
    struct crossing at = {.window = window, .now_ns = sm_clock_ns()};
    bool open;
    sm_lock_take(&allocator->phase_lock);
    open = cross_all(allocator, CLOSE_WINDOW, &at);
    sm_lock_give(&allocator->phase_lock);
    if (!open)
        return sm_error_set(error, SEAM_E_STATE, "window %lu is not open", window);
    return SEAM_OK;
}

bool sm_allocator_stat(struct sm_allocator *allocator, int ordinal, const char *name, int64_t *value)
{
    struct sm_device *device = sm_allocator_seen(allocator, ordinal);
    struct sm_lock *lock = device ? &device->heap_lock : &allocator->phase_lock;
    bool found;
    sm_lock_take(lock);
    found = sm_stats_find(device ? device->stats : allocator->open_phases, name, value);
    sm_lock_give(lock);
    return found;
}

/* ---- checking ---- */

/* Bytes of handles that are mapped in views now. */
static uint64_t view_bytes(const struct sm_heap *heap)
{
    const struct sm_view *view;
    uint64_t bytes = 0;
    TAILQ_FOREACH(view, &heap->views, link)
        for (uint32_t i = 0; i < view->count; i++)
            bytes += view->entries[i].mapped ? view->entries[i].size : 0;
    return bytes;
}

static seam_result validate_device(struct sm_device *device, struct sm_error *error)
{
    const struct sm_heap *heap = &device->heap;
    seam_result result = sm_heap_validate(&device->heap, error);
    if (!result)
        result = sm_stats_validate(device->stats, error);
    const struct {
        enum sm_level_id level;
        const char *name;
        uint64_t heap;
    } same[] = {
        {SM_LEVEL_reserved_bytes, "reserved_bytes", heap->reserved},
        {SM_LEVEL_segment, "segment", heap->counts[0].segments + heap->counts[1].segments},
        {SM_LEVEL_inactive_split, "inactive_split",
         heap->counts[0].held_ranges + heap->counts[1].held_ranges},
        {SM_LEVEL_handles, "handles", heap->handles},
        {SM_LEVEL_reserved_address_bytes, "reserved_address_bytes", heap->address_bytes},
        {SM_LEVEL_allocation, "allocation", sm_heap_live(heap)},
        {SM_LEVEL_view_bytes, "view_bytes", view_bytes(heap)},
    };
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]) && !result; i++) {
        int64_t told = sm_stats_level(device->stats, same[i].level, SM_KIND_ALL)->current;
        if (told != (int64_t)same[i].heap)
            result =
                sm_error_set(error, SEAM_E_STATE, "device %d: %s is %ld in the statistics, %lu in the heap",
                             device->ordinal, same[i].name, told, same[i].heap);
    }
    if (!result && heap->promised)
        result = sm_error_set(error, SEAM_E_STATE, "device %d: %zu records are promised to nobody",
                              device->ordinal, heap->promised);
    return result;
}

seam_result sm_allocator_validate(struct sm_allocator *allocator, struct sm_error *error)
{
    seam_result result = SEAM_OK;
    for (int i = 0; i < allocator->device_count && !result; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        if (!device)
            continue;
        sm_lock_take(&device->memory_lock);
        sm_lock_take(&device->heap_lock);
        result = validate_device(device, error);
        sm_lock_give(&device->heap_lock);
        sm_lock_give(&device->memory_lock);
    }
    return result;
}
