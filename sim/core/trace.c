/* SPDX-License-Identifier: Apache-2.0 */
/* trace: see trace.h. Owns its file and buffer, and the names. The buffer is its own, not stdio's, which a
 * forked child would write out a second time. */
#include "sim/core/trace.h"
#include "base/emit.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 16, LINE_BYTES = 2048, NAMES = 4096, NAME_SHOWN = 256 };

_Atomic bool sim_tracing;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int file = -1;
static bool is_first, is_broken;
static char buffer[BUFFER_BYTES];
static size_t used;

struct name {
    struct name *next;
    char text[];
};
static struct name *names[NAMES];

static void flush_buffer(void)
{
    for (size_t done = 0; done < used && !is_broken;) {
        ssize_t n = write(file, buffer + done, used - done);
        is_broken = n <= 0;
        done += n > 0 ? (size_t)n : 0;
    }
    used = 0;
}

static void add_text(const char *text, size_t length)
{
    if (used + length > sizeof buffer)
        flush_buffer();
    memcpy(buffer + used, text, length);
    used += length;
}

/* One event. Virtual times are nanoseconds, the format's unit is a microsecond. */
static void add_event(struct sm_emit *emit, const char *line)
{
    size_t length = sm_emit_end(emit);
    pthread_mutex_lock(&lock);
    if (file >= 0 && length < LINE_BYTES) {
        add_text(is_first ? "\n" : ",\n", is_first ? 1 : 2);
        add_text(line, length);
        is_first = false;
    }
    pthread_mutex_unlock(&lock);
}

static void open_event(struct sm_emit *emit, char *line, const char *phase, int process, uint64_t thread)
{
    sm_emit_begin(emit, SM_EMIT_JSON, line, LINE_BYTES);
    sm_emit_object_open(emit, NULL);
    sm_emit_string(emit, "ph", phase);
    sm_emit_int(emit, "pid", process, SM_UNIT_COUNT);
    sm_emit_int(emit, "tid", (int64_t)thread, SM_UNIT_COUNT);
}

static void add_slice(const char *kind, const char *name, int process, uint64_t thread, uint64_t begin,
                      uint64_t end)
{
    struct sm_emit emit;
    char line[LINE_BYTES], shown[NAME_SHOWN];
    snprintf(shown, sizeof shown, "%s", name ? name : "work");
    open_event(&emit, line, "X", process, thread);
    sm_emit_string(&emit, "cat", kind);
    sm_emit_string(&emit, "name", shown);
    sm_emit_real(&emit, "ts", (double)begin / 1e3);
    sm_emit_real(&emit, "dur", (double)(end - begin) / 1e3);
    sm_emit_object_close(&emit);
    add_event(&emit, line);
}

/* Names a process (the host, a device) or one of its rows. */
static void add_label(const char *what, const char *label, int process, uint64_t thread)
{
    struct sm_emit emit;
    char line[LINE_BYTES];
    open_event(&emit, line, "M", process, thread);
    sm_emit_string(&emit, "name", what);
    sm_emit_object_open(&emit, "args");
    sm_emit_string(&emit, "name", label);
    sm_emit_object_close(&emit);
    sm_emit_object_close(&emit);
    add_event(&emit, line);
}

bool sim_trace_begin(const char *path)
{
    static const char head[] = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    char label[32];
    int made = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (made < 0)
        return false;
    sim_trace_end();
    pthread_mutex_lock(&lock);
    file = made;
    is_first = true;
    is_broken = false;
    used = 0;
    add_text(head, sizeof head - 1);
    pthread_mutex_unlock(&lock);
    add_label("process_name", "host", 0, 0);
    add_label("thread_name", "driver calls", 0, 0);
    for (int device = 0; device < sim_config.devices; device++) {
        snprintf(label, sizeof label, "device %d", device);
        add_label("process_name", label, 1 + device, 0);
    }
    atomic_store(&sim_tracing, true);
    return true;
}

bool sim_trace_end(void)
{
    bool good = true;
    atomic_store(&sim_tracing, false);
    pthread_mutex_lock(&lock);
    if (file >= 0) {
        add_text("\n]}\n", 4);
        flush_buffer();
        good = !is_broken;
        if (close(file))
            good = false;
        file = -1;
    }
    pthread_mutex_unlock(&lock);
    return good;
}

/* The lock may be held by a thread that the child does not have: it is left alone. */
void sim_trace_forked(void)
{
    atomic_store(&sim_tracing, false);
    if (file >= 0)
        close(file);
    file = -1;
}

void sim_trace_host(const char *kind, const char *name, uint64_t begin, uint64_t end)
{
    add_slice(kind, name, 0, 0, begin, end);
}

/* A row for each stream, not for each lane: a lane that is used again is another row. */
static uint64_t row_of(const struct sim_track *track)
{
    return track->stream ? track->stream : 1000000 + track->lane;
}

void sim_trace_stream(const struct sim_track *track)
{
    char label[48];
    if (track->is_default)
        snprintf(label, sizeof label, "default stream");
    else if (track->stream)
        snprintf(label, sizeof label, "stream %llu", (unsigned long long)track->stream);
    else
        snprintf(label, sizeof label, "all streams");
    add_label("thread_name", label, 1 + track->device, row_of(track));
}

void sim_trace_operation(const struct sim_track *track, const char *name, uint64_t begin, uint64_t end)
{
    add_slice("work", name, 1 + track->device, row_of(track), begin, end);
}

void sim_trace_wait(const struct sim_track *track, uint64_t begin, uint64_t end)
{
    char name[48];
    snprintf(name, sizeof name, "waiting for stream %llu", (unsigned long long)track->blocker);
    add_slice("wait", name, 1 + track->device, row_of(track), begin, end);
}

const char *sim_trace_name(const char *name)
{
    size_t size = strlen(name) + 1, slot = 5381;
    for (const char *c = name; *c; c++)
        slot = slot * 33 + (unsigned char)*c;
    pthread_mutex_lock(&lock);
    struct name **head = &names[slot % NAMES], *found = *head;
    while (found && strcmp(found->text, name) != 0)
        found = found->next;
    if (!found && (found = malloc(sizeof *found + size))) {
        memcpy(found->text, name, size);
        found->next = *head;
        *head = found;
    }
    pthread_mutex_unlock(&lock);
    return found ? found->text : NULL;
}
