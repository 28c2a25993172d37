/* SPDX-License-Identifier: Apache-2.0 */
/* history: see history.h. */
#include "sim/core/history.h"
#include <pthread.h>

enum { EVENTS = 65536, WRITTEN = 24 };

struct event {
    const char *what;
    struct sim_origin origin;
    uint64_t base, size, handle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event events[EVENTS]; /* protected by lock, as the count */
static uint64_t count;

struct sim_origin sim_origin_now(void)
{
    return (struct sim_origin){sim_current_number(), sim_current()};
}

void sim_history_note(const char *what, uint64_t base, uint64_t size, uint64_t handle)
{
    struct event event = {what, sim_origin_now(), base, size, handle};
    pthread_mutex_lock(&lock);
    events[count++ % EVENTS] = event;
    pthread_mutex_unlock(&lock);
}

static bool is_about(const struct event *event, uint64_t base, uint64_t size, uint64_t handle)
{
    if (!size && !handle)
        return true;
    return (size && event->base < base + size && base < event->base + event->size) ||
           (handle && event->handle == handle);
}

static void print_event(FILE *out, const struct event *event)
{
    fprintf(out, "    call %llu, %s: %s", (unsigned long long)event->origin.number,
            sim_call_names[event->origin.call], event->what);
    if (event->size)
        fprintf(out, " [%#llx, +%llu)", (unsigned long long)event->base, (unsigned long long)event->size);
    if (event->handle)
        fprintf(out, " handle %#llx", (unsigned long long)event->handle);
    fputc('\n', out);
}

size_t sim_history_print(FILE *out, uint64_t base, uint64_t size, uint64_t handle)
{
    struct event found[WRITTEN];
    size_t n = 0;
    pthread_mutex_lock(&lock);
    uint64_t oldest = count > EVENTS ? count - EVENTS : 0;
    for (uint64_t i = count; i > oldest && n < WRITTEN; i--)
        if (is_about(&events[(i - 1) % EVENTS], base, size, handle))
            found[n++] = events[(i - 1) % EVENTS];
    pthread_mutex_unlock(&lock);
    for (size_t i = n; i > 0; i--)
        print_event(out, &found[i - 1]);
    return n;
}

size_t sim_print_history(FILE *out, CUdeviceptr base, size_t size)
{
    return sim_history_print(out, base, size, 0);
}

void sim_history_reset(void)
{
    pthread_mutex_lock(&lock);
    count = 0;
    pthread_mutex_unlock(&lock);
}
