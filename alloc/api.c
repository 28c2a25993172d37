/* SPDX-License-Identifier: Apache-2.0 */
/* api: the public functions: one allocator for the process, its arguments checked, its errors kept for the
 * caller.
 *
 * Loading the library calls nothing: driver and settings are taken up by the first call that needs them. A
 * forked child is inert: its copy of the driver's state is not usable, so every call that would touch a
 * device fails, and frees are ignored.
 *
 * Protected by: `door`, taken for setting up, configuring and shutting down only; the allocator pointer is
 * published with release order and read with acquire order. */
#include "alloc/engine.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

static struct {
    struct sm_lock door;
    pthread_once_t once;
    struct sm_driver driver;   /* door */
    struct sm_options options; /* door */
    bool configured;           /* options were set by the program, over those of the environment; door */
    _Atomic(struct sm_allocator *) allocator;
    _Atomic bool forked;
} process = {.once = PTHREAD_ONCE_INIT};

static __thread struct sm_error last;

/* The last begin of this thread, until it is known what became of it. */
static __thread struct {
    seam_pool_id pool;
    int ordinal;
    bool open;
} begun;

/* Nobody is inside the door while the process forks, so that the child finds it whole. */
static void close_door(void)
{
    sm_lock_take(&process.door);
}

static void open_door(void)
{
    sm_lock_give(&process.door);
}

/* Until the driver was started there is nothing that a child could not use. */
static void become_inert(void)
{
    if (atomic_load(&process.allocator))
        atomic_store(&process.forked, true);
    sm_lock_give(&process.door);
}

static void prepare_once(void)
{
    sm_lock_init(&process.door, SM_RANK_SETUP, "door");
    pthread_atfork(close_door, open_door, become_inert);
}

static seam_result check_fork(void)
{
    if (atomic_load_explicit(&process.forked, memory_order_relaxed))
        return sm_error_set(
            &last, SEAM_E_STATE,
            "this process was forked from one that had loaded seamalloc: CUDA cannot be used in it; start "
            "it by spawn instead");
    return SEAM_OK;
}

/* ---- version, errors, settings ---- */

const char *seam_version(void)
{
    return SEAMALLOC_VERSION;
}

const char *seam_result_name(seam_result result)
{
    return sm_result_name(result);
}

const char *seam_result_text(seam_result result)
{
    return sm_result_text(result);
}

const char *seam_last_error(void)
{
    return last.text;
}

seam_result seam_last_result(void)
{
    return last.code;
}

/* The settings that hold, or would hold: environment, then the program's. Door held. */
static seam_result load_options(struct sm_options *options, struct sm_error *error)
{
    if (process.configured) {
        *options = process.options;
        return SEAM_OK;
    }
    return sm_options_from_environment(options, error);
}

seam_result seam_configure(const char *text)
{
    struct sm_options options;
    seam_result result;
    if (!text)
        return sm_error_set(&last, SEAM_E_ARGUMENT, "seam_configure: options is NULL; \"\" changes nothing");
    pthread_once(&process.once, prepare_once);
    sm_lock_take(&process.door);
    if (atomic_load(&process.allocator))
        result = sm_error_set(&last, SEAM_E_STATE,
                              "seam_configure: the allocator is in use already; call it earlier");
    else
        result = load_options(&options, &last);
    if (!result)
        result = sm_options_parse(&options, "seam_configure", text, &last);
    if (!result) {
        process.options = options;
        process.configured = true;
    }
    sm_lock_give(&process.door);
    return result;
}

size_t seam_settings(char *buffer, size_t capacity)
{
    struct sm_allocator *allocator = atomic_load_explicit(&process.allocator, memory_order_acquire);
    struct sm_options options;
    if (!allocator) {
        pthread_once(&process.once, prepare_once);
        sm_lock_take(&process.door);
        load_options(&options, NULL);
        sm_lock_give(&process.door);
    }
    return sm_options_format(allocator ? &allocator->options : &options, buffer, capacity);
}

/* A recording that nobody ended is whole all the same. */
static void end_recording(void)
{
    struct sm_allocator *allocator = atomic_load(&process.allocator);
    if (allocator && !atomic_load(&process.forked))
        (void)sm_trace_end(allocator->trace, NULL);
}

static void watch_exit(void)
{
    atexit(end_recording);
}

static pthread_once_t exit_watched = PTHREAD_ONCE_INIT;

/* As the option says. Door held. */
static seam_result begin_recording(struct sm_allocator *allocator, const char *path, struct sm_error *error)
{
    if (!*path)
        return SEAM_OK;
    pthread_once(&exit_watched, watch_exit);
    return sm_record_open(allocator, path, error);
}

/* Opens the driver and makes the allocator. Door held. */
static seam_result open_allocator(struct sm_error *error)
{
    struct sm_allocator *allocator = NULL;
    struct sm_options options;
    seam_result result = load_options(&options, error);
    if (result)
        return result;
    sm_log_set_level((enum sm_log_level)options.log_level);
    result = sm_driver_open(&process.driver, error);
    if (result)
        return result;
    result = sm_allocator_create(&process.driver, &options, &allocator, error);
    if (!result && (result = begin_recording(allocator, options.trace, error)) != SEAM_OK)
        sm_allocator_destroy(allocator);
    if (result) {
        sm_driver_close(&process.driver);
        return result;
    }
    atomic_store_explicit(&process.allocator, allocator, memory_order_release);
    return SEAM_OK;
}

seam_result seam_init(void)
{
    seam_result result = check_fork();
    if (result || atomic_load_explicit(&process.allocator, memory_order_acquire))
        return result;
    pthread_once(&process.once, prepare_once);
    sm_lock_take(&process.door);
    if (!atomic_load(&process.allocator))
        result = open_allocator(&last);
    sm_lock_give(&process.door);
    return result;
}

/* The allocator, set up if need be; NULL with the error kept. */
static struct sm_allocator *get(void)
{
    return seam_init() ? NULL : atomic_load_explicit(&process.allocator, memory_order_acquire);
}

/* The allocator if it was set up and may be used; NULL without an error otherwise. */
static struct sm_allocator *peek(void)
{
    if (atomic_load_explicit(&process.forked, memory_order_relaxed))
        return NULL;
    return atomic_load_explicit(&process.allocator, memory_order_acquire);
}

static struct sm_device *get_device(int ordinal)
{
    struct sm_allocator *allocator = get();
    struct sm_device *device = NULL;
    if (!allocator || sm_allocator_device(allocator, ordinal, &device, &last))
        return NULL;
    return device;
}

/* Is there such a device? Touches none. */
static seam_result check_ordinal(const struct sm_allocator *allocator, const char *call, int ordinal)
{
    if (ordinal >= 0 && ordinal < allocator->device_count)
        return SEAM_OK;
    return sm_error_set(&last, SEAM_E_ARGUMENT, "%s: there is no device %d: the driver has devices 0 to %d",
                        call, ordinal, allocator->device_count - 1);
}

int seam_device_count(void)
{
    struct sm_allocator *allocator = peek();
    return allocator ? allocator->device_count : 0;
}

/* ---- memory ---- */

/* CUDA's per-thread default stream is one handle for a stream of each thread: nothing could be ordered by
 * it. */
static seam_result check_stream(const char *call, seam_stream stream)
{
    if (stream != CU_STREAM_PER_THREAD)
        return SEAM_OK;
    return sm_error_set(
        &last, SEAM_E_ARGUMENT,
        "%s: the per-thread default stream stands for many streams: name a stream of cuStreamCreate, or "
        "NULL for the legacy default stream",
        call);
}

void *seam_malloc(size_t size, int ordinal, seam_stream stream)
{
    struct sm_device *device;
    if (!size || check_stream("seam_malloc", stream))
        return NULL;
    device = get_device(ordinal);
    return device ? (void *)(uintptr_t)sm_pool_alloc(device, size, stream, &last) : NULL;
}

/* The address is no live block of any device. */
static seam_result unknown(const char *call, const void *address)
{
    return sm_error_set(
        &last, SEAM_E_POINTER,
        "%s: %p is not the address of a live block: it was freed already, or came from elsewhere", call,
        address);
}

/* One more free of nobody's block, told to the first device. */
static void count_unknown(struct sm_allocator *allocator)
{
    for (int i = 0; allocator && i < allocator->device_count; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        if (!device)
            continue;
        sm_lock_take(&device->heap_lock);
        sm_stats_count(device->stats, SM_COUNTER_unknown_frees, 1);
        sm_lock_give(&device->heap_lock);
        return;
    }
}

seam_result seam_free(void *block)
{
    struct sm_allocator *allocator = peek();
    if (!block)
        return SEAM_OK;
    for (int i = 0; allocator && i < allocator->device_count; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        if (device && sm_pool_free(device, (uintptr_t)block) == SEAM_OK)
            return SEAM_OK;
    }
    count_unknown(allocator);
    return check_fork() ? SEAM_E_STATE : unknown("seam_free", block);
}

seam_result seam_record_stream(void *block, seam_stream stream)
{
    struct sm_allocator *allocator = peek();
    if (check_stream("seam_record_stream", stream))
        return last.code;
    for (int i = 0; allocator && i < allocator->device_count; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        seam_result result = SEAM_E_POINTER;
        if (device)
            result = sm_pool_record_stream(device, (uintptr_t)block, stream, &last);
        if (result != SEAM_E_POINTER)
            return result;
    }
    return check_fork() ? SEAM_E_STATE : unknown("seam_record_stream", block);
}

seam_result seam_block_of(const void *address, void **block, size_t *size)
{
    struct sm_allocator *allocator = peek();
    for (int i = 0; allocator && i < allocator->device_count; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        struct sm_block *found = NULL;
        if (!device)
            continue;
        sm_lock_take(&device->heap_lock);
        found = sm_pool_block_of(device, (uintptr_t)address);
        if (found && block)
            *block = (void *)(uintptr_t)found->address;
        if (found && size)
            *size = found->size;
        sm_lock_give(&device->heap_lock);
        if (found)
            return SEAM_OK;
    }
    return check_fork() ? SEAM_E_STATE : unknown("seam_block_of", address);
}

/* Runs act on one device, or on all that were set up. Devices that nobody used have nothing to do. */
static seam_result on_devices(int ordinal, const char *call, void (*act)(struct sm_device *))
{
    struct sm_allocator *allocator = peek();
    if (check_fork())
        return SEAM_E_STATE;
    if (!allocator)
        return ordinal >= -1
                   ? SEAM_OK
                   : sm_error_set(&last, SEAM_E_ARGUMENT, "%s: there is no device %d", call, ordinal);
    if (ordinal < -1 || ordinal >= allocator->device_count)
        return sm_error_set(&last, SEAM_E_ARGUMENT,
                            "%s: there is no device %d: the driver has devices 0 to %d; -1 means all", call,
                            ordinal, allocator->device_count - 1);
    for (int i = 0; i < allocator->device_count; i++) {
        struct sm_device *device = sm_allocator_seen(allocator, i);
        if (device && (ordinal == -1 || ordinal == i))
            act(device);
    }
    return SEAM_OK;
}

seam_result seam_trim(int ordinal)
{
    return on_devices(ordinal, "seam_trim", sm_reclaim_trim);
}

seam_result seam_set_memory_fraction(double fraction, int ordinal)
{
    struct sm_device *device;
    if (!(fraction >= 0 && fraction <= 1))
        return sm_error_set(&last, SEAM_E_ARGUMENT, "seam_set_memory_fraction: %g is not between 0 and 1",
                            fraction);
    device = get_device(ordinal);
    if (!device)
        return last.code;
    sm_lock_take(&device->memory_lock);
    sm_lock_take(&device->heap_lock);
    sm_device_set_fraction(device, fraction);
    sm_lock_give(&device->heap_lock);
    sm_lock_give(&device->memory_lock);
    return SEAM_OK;
}

seam_result seam_memory_fraction(int ordinal, double *fraction)
{
    struct sm_allocator *allocator = get();
    struct sm_device *device;
    if (!allocator || check_ordinal(allocator, "seam_memory_fraction", ordinal))
        return last.code;
    if (!fraction)
        return sm_error_set(&last, SEAM_E_ARGUMENT, "seam_memory_fraction: fraction is NULL");
    *fraction = allocator->options.per_process_memory_fraction; /* of a device that nobody used yet */
    device = sm_allocator_seen(allocator, ordinal);
    if (!device)
        return SEAM_OK;
    sm_lock_take(&device->heap_lock);
    *fraction = device->fraction;
    sm_lock_give(&device->heap_lock);
    return SEAM_OK;
}

seam_result seam_device_memory(int ordinal, size_t *free_bytes, size_t *total_bytes)
{
    struct sm_device *device = get_device(ordinal);
    size_t free_now = 0, total = 0;
    char text[160];
    CUresult code;
    seam_result result;
    struct sm_visit visit;
    if (!device)
        return last.code;
    result = sm_device_enter(device, &visit, &last);
    if (result)
        return result;
    code = SM_CALL(device->allocator->driver, cuMemGetInfo, &free_now, &total);
    sm_device_leave(device, &visit);
    if (code != CUDA_SUCCESS)
        return sm_error_set(&last, SEAM_E_DEVICE, "device %d: cuMemGetInfo: %s", ordinal,
                            sm_driver_text(device->allocator->driver, code, text, sizeof(text)));
    if (free_bytes)
        *free_bytes = free_now;
    if (total_bytes)
        *total_bytes = total;
    return SEAM_OK;
}

/* ---- private pools ---- */

static seam_result check_pool(const char *call, seam_pool_id pool)
{
    if (!pool.first && !pool.second)
        return sm_error_set(&last, SEAM_E_ARGUMENT, "%s: {0, 0} is the default pool, not a private one",
                            call);
    return SEAM_OK;
}

seam_result seam_pool_begin(int ordinal, seam_pool_id pool, seam_pool_filter filter, void *context)
{
    struct sm_device *device;
    if (check_pool("seam_pool_begin", pool))
        return last.code;
    device = get_device(ordinal);
    if (!device || sm_capture_begin(device, pool, filter, context, &last))
        return last.code;
    begun.pool = pool;
    begun.ordinal = ordinal;
    begun.open = true;
    return SEAM_OK;
}

seam_result seam_pool_settle(bool kept)
{
    struct sm_allocator *allocator = peek();
    struct sm_device *device = allocator ? sm_allocator_seen(allocator, begun.ordinal) : NULL;
    bool open = begun.open;
    begun.open = false;
    if (kept || !open || !device)
        return check_fork();
    (void)sm_capture_end(device, begun.pool, NULL);
    return sm_capture_release(device, begun.pool, &last);
}

seam_result seam_pool_end(int ordinal, seam_pool_id pool)
{
    struct sm_device *device;
    if (check_pool("seam_pool_end", pool))
        return last.code;
    device = get_device(ordinal);
    return device ? sm_capture_end(device, pool, &last) : last.code;
}

seam_result seam_pool_release(int ordinal, seam_pool_id pool)
{
    struct sm_device *device;
    if (check_pool("seam_pool_release", pool))
        return last.code;
    device = get_device(ordinal);
    return device ? sm_capture_release(device, pool, &last) : last.code;
}

/* ---- measurement ---- */

seam_result seam_phase_push(const char *name)
{
    struct sm_allocator *allocator = get();
    return allocator ? sm_allocator_phase_push(allocator, name, false, &last) : last.code;
}

seam_result seam_phase_pop(void)
{
    struct sm_allocator *allocator = get();
    return allocator ? sm_allocator_phase_pop(allocator, false, &last) : last.code;
}

seam_result seam_thread_phase_push(const char *name)
{
    struct sm_allocator *allocator = get();
    return allocator ? sm_allocator_phase_push(allocator, name, true, &last) : last.code;
}

seam_result seam_thread_phase_pop(void)
{
    struct sm_allocator *allocator = get();
    return allocator ? sm_allocator_phase_pop(allocator, true, &last) : last.code;
}

seam_result seam_window_open(const char *name, uint64_t *window)
{
    struct sm_allocator *allocator = get();
    if (!allocator)
        return last.code;
    if (!window)
        return sm_error_set(&last, SEAM_E_ARGUMENT,
                            "seam_window_open: window is NULL: nobody could close it");
    return sm_allocator_window_open(allocator, name, window, &last);
}

seam_result seam_window_close(uint64_t window)
{
    struct sm_allocator *allocator = get();
    return allocator ? sm_allocator_window_close(allocator, window, &last) : last.code;
}

static size_t report(int ordinal, enum sm_emit_form form, const char *call, char *buffer, size_t capacity)
{
    struct sm_allocator *allocator = get();
    if (!buffer)
        capacity = 0;
    if (capacity)
        buffer[0] = 0;
    if (!allocator)
        return 0;
    if (ordinal < -1 || ordinal >= allocator->device_count) {
        sm_error_set(&last, SEAM_E_ARGUMENT,
                     "%s: there is no device %d: the driver has devices 0 to %d; -1 means all", call, ordinal,
                     allocator->device_count - 1);
        return 0;
    }
    return sm_report(allocator, ordinal, form, buffer, capacity);
}

size_t seam_stats_json(int ordinal, char *buffer, size_t capacity)
{
    return report(ordinal, SM_EMIT_JSON, "seam_stats_json", buffer, capacity);
}

size_t seam_stats_table(int ordinal, char *buffer, size_t capacity)
{
    return report(ordinal, SM_EMIT_TABLE, "seam_stats_table", buffer, capacity);
}

seam_result seam_stat(int ordinal, const char *name, int64_t *value)
{
    struct sm_allocator *allocator;
    int64_t found_value = 0;
    bool found;
    if (!name || !value)
        return sm_error_set(&last, SEAM_E_ARGUMENT, "seam_stat: %s is NULL", name ? "value" : "name");
    allocator = get();
    if (!allocator || check_ordinal(allocator, "seam_stat", ordinal))
        return last.code;
    found = sm_allocator_stat(allocator, ordinal, name, &found_value);
    if (!found)
        return sm_error_set(&last, SEAM_E_ARGUMENT,
                            "seam_stat: there is no figure \"%s\"; docs/statistics.md lists them", name);
    *value = found_value;
    return SEAM_OK;
}

static void reset_peaks(struct sm_device *device)
{
    sm_lock_take(&device->heap_lock);
    sm_stats_reset_peaks(device->stats);
    sm_lock_give(&device->heap_lock);
}

static void reset_totals(struct sm_device *device)
{
    sm_lock_take(&device->heap_lock);
    sm_stats_reset_totals(device->stats);
    sm_lock_give(&device->heap_lock);
}

seam_result seam_reset_peaks(int ordinal)
{
    return on_devices(ordinal, "seam_reset_peaks", reset_peaks);
}

seam_result seam_reset_totals(int ordinal)
{
    return on_devices(ordinal, "seam_reset_totals", reset_totals);
}

/* ---- recording ---- */

seam_result seam_trace_start(const char *path)
{
    struct sm_allocator *allocator;
    if (!path || !*path)
        return sm_error_set(&last, SEAM_E_ARGUMENT, "seam_trace_start: the path of a file is missing");
    allocator = get();
    if (!allocator)
        return last.code;
    pthread_once(&exit_watched, watch_exit);
    return sm_record_begin(allocator, path, &last);
}

seam_result seam_trace_stop(void)
{
    struct sm_allocator *allocator = peek();
    if (check_fork())
        return SEAM_E_STATE;
    if (!allocator)
        return sm_error_set(&last, SEAM_E_STATE, "seam_trace_stop: no recording runs");
    return sm_trace_end(allocator->trace, &last);
}

/* ---- checking and leaving ---- */

seam_result seam_validate(void)
{
    struct sm_allocator *allocator = peek();
    return allocator ? sm_allocator_validate(allocator, &last) : check_fork();
}

seam_result seam_shutdown(void)
{
    struct sm_allocator *allocator;
    seam_result result = check_fork();
    if (result)
        return result;
    pthread_once(&process.once, prepare_once);
    sm_lock_take(&process.door);
    allocator = atomic_exchange(&process.allocator, NULL);
    if (allocator) {
        sm_allocator_destroy(allocator);
        sm_driver_close(&process.driver);
    }
    process.configured = false;
    sm_lock_give(&process.door);
    return SEAM_OK;
}
