/* SPDX-License-Identifier: Apache-2.0 */
/* report: figures for people and programs, and the text of an out-of-memory.
 *
 * The text names one cause, found in this order:
 *   limit          the memory limit or fraction that was set stands in the way
 *   address space  no room to map it
 *   mapping budget the driver has memory, but refused to map it
 *   waiting        blocks that were freed wait for other streams, and would do
 *   stranded       the allocator holds enough free memory, but not in one piece that this request may use
 *   others         other processes hold more of the device than is missing
 *   shortage       there is simply not enough */
#include "alloc/engine.h"
#include "base/align.h"
#include <stdio.h>

struct picture {
    uint64_t free_bytes, total_bytes, reserved, allocated, pending, held, whole, largest, limit;
};

static struct picture look(struct sm_device *device)
{
    size_t free_bytes = 0, total_bytes = device->total_bytes;
    struct picture now = {0};
    const int64_t *parts = device->heap.parts.bytes;
    struct sm_home *home;
    struct sm_visit visit;
    if (sm_device_enter(device, &visit, NULL) == SEAM_OK) {
        (void)SM_CALL(device->allocator->driver, cuMemGetInfo, &free_bytes, &total_bytes);
        sm_device_leave(device, &visit);
    }
    sm_lock_take(&device->heap_lock);
    now = (struct picture){
        .free_bytes = free_bytes,
        .total_bytes = total_bytes,
        .reserved = device->heap.reserved,
        .allocated = (uint64_t)(parts[SM_PART_requested_live] + parts[SM_PART_rounding]),
        .pending = (uint64_t)parts[SM_PART_pending],
        .held = (uint64_t)parts[SM_PART_held_free],
        .whole = (uint64_t)parts[SM_PART_whole_free],
        .limit = device->limit,
    };
    LIST_FOREACH(home, &device->heap.homes, link) {
        struct sm_block *block = sm_home_largest(home);
        now.largest = sm_max(now.largest, block ? block->size : 0);
    }
    sm_lock_give(&device->heap_lock);
    return now;
}

static const char *cause_of(const struct sm_shortage *shortage, uint64_t size, const struct picture *now)
{
    uint64_t spare = now->held + now->whole;
    uint64_t others = now->total_bytes - sm_min(now->total_bytes, now->free_bytes + now->reserved);
    if (shortage->obstacle == SM_OBSTACLE_LIMIT)
        return "limit";
    if (shortage->obstacle == SM_OBSTACLE_ADDRESS)
        return "address space";
    if (shortage->obstacle == SM_OBSTACLE_MAPPING && now->free_bytes >= shortage->bytes)
        return "mapping budget";
    if (now->pending && now->free_bytes + spare + now->pending >= size)
        return "waiting";
    if (now->free_bytes + spare >= size)
        return "stranded";
    return others + now->free_bytes + spare >= size && others > now->total_bytes / 16 ? "others' processes"
                                                                                      : "shortage";
}

/* "1.50 GiB" */
static const char *amount(uint64_t bytes, char buffer[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    snprintf(buffer, 32, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return buffer;
}

void sm_report_shortage(const struct sm_request *request, const struct sm_shortage *shortage,
                        struct sm_error *error)
{
    struct sm_device *device = request->device;
    struct picture now = look(device);
    char text[10][32];
    sm_error_set(error, shortage->obstacle == SM_OBSTACLE_LIMIT ? SEAM_E_LIMIT : SEAM_E_DEVICE_OOM,
                 "CUDA out of memory. Tried to allocate %s (%lu bytes). GPU %d has a total capacity of %s of "
                 "which %s is "
                 "free. seamalloc holds %s of it: %s in blocks, %s freed and waiting for other streams, %s "
                 "free beside "
                 "other bytes, %s free in whole handles; largest free range %s; limit %s. Cause: %s.",
                 amount(request->requested, text[0]), request->requested, device->ordinal,
                 amount(now.total_bytes, text[1]), amount(now.free_bytes, text[2]),
                 amount(now.reserved, text[3]), amount(now.allocated, text[4]), amount(now.pending, text[5]),
                 amount(now.held, text[6]), amount(now.whole, text[7]), amount(now.largest, text[8]),
                 now.limit == SM_UNLIMITED ? "none" : amount(now.limit, text[9]),
                 cause_of(shortage, request->size, &now));
}

static void collect_calls(struct sm_driver *driver, struct sm_call_stat calls[SM_CALL_COUNT])
{
    for (int i = 0; i < SM_CALL_COUNT; i++)
        calls[i] = (struct sm_call_stat){
            .name = sm_driver_call_name((enum sm_driver_call)i),
            .calls = atomic_load(&driver->counts[i].calls),
            .failures = atomic_load(&driver->counts[i].failures),
            .ns = atomic_load(&driver->counts[i].ns),
        };
}

static void emit_device(struct sm_device *device, struct sm_emit *emit)
{
    char settings[4096];
    struct sm_call_stat calls[SM_CALL_COUNT];
    struct picture now = look(device);
    collect_calls(device->allocator->driver, calls);
    sm_options_format(&device->options, settings, sizeof(settings));
    struct sm_report_facts facts = {
        .device_name = device->name,
        .policy = sm_options_policy_name(device->options.policy),
        .settings = settings,
        .host_memory_source = sm_hostmem_source(),
        .device_bytes = device->total_bytes,
        .limit_bytes = now.limit,
        .largest_free = now.largest,
        /* After reclaim and growth, as far as limit and the device's free memory go. */
        .largest_possible = sm_min(now.free_bytes + now.held + now.whole,
                                   now.limit - sm_min(now.limit, now.allocated + now.pending)),
        .host_bytes = sm_hostmem_bytes(),
        .host_bytes_peak = sm_hostmem_bytes_peak(),
        .calls = calls,
        .call_count = SM_CALL_COUNT,
    };
    sm_lock_take(&device->heap_lock);
    sm_stats_emit(device->stats, &facts, emit, NULL, sm_clock_ns());
    sm_lock_give(&device->heap_lock);
}

size_t sm_report(struct sm_allocator *allocator, int ordinal, enum sm_emit_form form, char *buffer,
                 size_t capacity)
{
    char settings[4096];
    struct sm_emit emit;
    sm_options_format(&allocator->options, settings, sizeof(settings));
    sm_emit_begin(&emit, form, buffer, capacity);
    sm_emit_object_open(&emit, NULL);
    sm_emit_string(&emit, "format", "seamalloc.stats");
    sm_emit_int(&emit, "version", 1, SM_UNIT_COUNT);
    sm_emit_string(&emit, "library_version", seam_version());
    sm_emit_string(&emit, "policy", sm_options_policy_name(allocator->options.policy));
    sm_emit_string(&emit, "settings", settings);
    sm_emit_array_open(&emit, "devices");
    for (int i = 0; i < allocator->device_count; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        if (device && (ordinal < 0 || ordinal == i))
            emit_device(device, &emit);
    }
    sm_emit_array_close(&emit);
    sm_emit_object_close(&emit);
    return sm_emit_end(&emit);
}
