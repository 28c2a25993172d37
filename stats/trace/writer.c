/* SPDX-License-Identifier: Apache-2.0 */
/* writer: see writer.h. Buffers are used in turn: [tail, head) are full, head is being filled. The thread
 * takes the one at tail, gives the lock up, writes, and moves tail. Protected by: the trace lock; a full
 * buffer belongs to the thread until tail has passed it. */
#include "stats/trace/writer.h"
#include "base/clock.h"
#include "base/hostmem.h"
#include "base/lock.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define BUFFERS      16u
#define BUFFER_BYTES ((size_t)128 << 10)
#define CROWDED      (BUFFERS - 4) /* full ones from which on callers wait: the rest is for those inside */
#define FLUSH_S      1

struct buffer {
    uint8_t *bytes;
    uint32_t length;
    uint64_t first_event, events;
};

struct sm_trace {
    struct sm_trace_hot hot;
    struct sm_lock lock;    /* all that follows */
    pthread_cond_t to_do;   /* for the thread */
    pthread_cond_t to_fill; /* for those who wait for room */
    struct sm_trace_codec codec;
    struct buffer buffers[BUFFERS];
    uint64_t head, tail; /* counts; the buffer is the remainder */
    uint64_t events, lost, lost_told;
    uint64_t last_id;          /* given so far */
    _Atomic uint64_t first_id; /* of this recording; read without the lock */
    unsigned depth;            /* phases entered in it */
    bool running, ending;
    int failure; /* errno of the write that failed */
    int file;
    pthread_t thread;
    uint8_t *store; /* the thread's alone: what goes into the file */
    void *zstd;     /* the thread's alone; NULL: blocks are stored as they are */
    char path[4096];
};

struct sm_trace *sm_trace_create(void)
{
    struct sm_trace *trace = sm_hostmem_get(sizeof(*trace));
    pthread_condattr_t clock;
    if (!trace)
        return NULL;
    sm_lock_init(&trace->lock, SM_RANK_TRACE, "trace");
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&trace->to_do, &clock);
    pthread_cond_init(&trace->to_fill, &clock);
    pthread_condattr_destroy(&clock);
    return trace;
}

void sm_trace_destroy(struct sm_trace *trace)
{
    if (!trace)
        return;
    if (trace->running)
        (void)sm_trace_end(trace, NULL);
    pthread_cond_destroy(&trace->to_do);
    pthread_cond_destroy(&trace->to_fill);
    sm_lock_fini(&trace->lock);
    sm_hostmem_put(trace, sizeof(*trace));
}

/* ---- the file ---- */

static int write_all(int file, const void *head, size_t head_size, const void *bytes, size_t size)
{
    struct iovec parts[2] = {{(void *)head, head_size}, {(void *)bytes, size}};
    int at = 0;
    while (at < 2) {
        ssize_t n = writev(file, parts + at, 2 - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        for (; at < 2 && (size_t)n >= parts[at].iov_len; at++)
            n -= (ssize_t)parts[at].iov_len;
        if (at < 2) {
            parts[at].iov_base = (char *)parts[at].iov_base + n;
            parts[at].iov_len -= (size_t)n;
        }
    }
    return 0;
}

static int write_head(int file, const char *text)
{
    uint8_t head[SM_TRACE_HEAD_BYTES];
    uint32_t numbers[2] = {SM_TRACE_VERSION, (uint32_t)strlen(text)}, crc;
    memcpy(head, SM_TRACE_MAGIC, 8);
    memcpy(head + 8, numbers, sizeof(numbers));
    crc = sm_trace_crc(sm_trace_crc(0, head, sizeof(head)), text, numbers[1]);
    int code = write_all(file, head, sizeof(head), text, numbers[1]);
    return code ? code : write_all(file, &crc, sizeof(crc), NULL, 0);
}

/* The thread, without the lock: one full buffer becomes a block. */
static int write_block(struct sm_trace *trace, const struct buffer *buffer)
{
    struct sm_trace_block block = {
        .mark = SM_TRACE_BLOCK_MARK,
        .raw_bytes = buffer->length,
        .first_event = buffer->first_event,
        .events = buffer->events,
    };
    const uint8_t *bytes = trace->store;
    if (trace->zstd)
        block.stored_bytes = (uint32_t)sm_zstd_compress(trace->zstd, trace->store, BUFFER_BYTES,
                                                        buffer->bytes, buffer->length);
    block.coding = SM_TRACE_ZSTD;
    if (!block.stored_bytes) {
        block.coding = SM_TRACE_RAW;
        block.stored_bytes = buffer->length;
        bytes = buffer->bytes;
    }
    block.checksum = sm_trace_block_crc(&block, bytes);
    return write_all(trace->file, &block, sizeof(block), bytes, block.stored_bytes);
}

static int write_end(struct sm_trace *trace)
{
    struct sm_trace_block block = {
        .mark = SM_TRACE_END_MARK, .first_event = trace->events, .events = trace->lost};
    block.checksum = sm_trace_block_crc(&block, NULL);
    return write_all(trace->file, &block, sizeof(block), NULL, 0);
}

/* ---- the thread ---- */

/* The buffer being filled is done with; trace lock held. Requires: it is not the last free one. */
static void close_buffer(struct sm_trace *trace)
{
    struct buffer *next = &trace->buffers[(trace->head + 1) % BUFFERS];
    trace->head++;
    next->length = 0;
    next->events = 0;
    next->first_event = trace->events;
    trace->codec = (struct sm_trace_codec){0};
    if (trace->head - trace->tail >= CROWDED)
        atomic_store_explicit(&trace->hot.crowded, true, memory_order_relaxed);
    pthread_cond_signal(&trace->to_do);
}

/* Waits until there is a full buffer, or time has passed and the one being filled has events, or the end.
 * Lock held. Returns: false when everything is written and the recording ends. */
static bool wait_for_work(struct sm_trace *trace)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FLUSH_S;
    while (trace->head == trace->tail) {
        int code =
            trace->ending ? ETIMEDOUT : pthread_cond_timedwait(&trace->to_do, &trace->lock.mutex, &until);
        if (code != ETIMEDOUT)
            continue;
        if (trace->head == trace->tail && trace->buffers[trace->head % BUFFERS].length)
            close_buffer(trace);
        else if (trace->ending)
            return false;
        else {
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_sec += FLUSH_S;
        }
    }
    return true;
}

static void *write_blocks(void *context)
{
    struct sm_trace *trace = context;
    sm_lock_take(&trace->lock);
    while (wait_for_work(trace)) {
        struct buffer *buffer = &trace->buffers[trace->tail % BUFFERS];
        sm_lock_give(&trace->lock);
        int code = trace->failure ? 0 : write_block(trace, buffer);
        sm_lock_take(&trace->lock);
        if (code) {
            trace->failure = code;
            atomic_store_explicit(&trace->hot.on, false, memory_order_relaxed);
            sm_log(SM_LOG_ERROR, "the recording %s ends here: %s", trace->path, strerror(code));
        }
        trace->tail++;
        if (trace->head - trace->tail < CROWDED) {
            atomic_store_explicit(&trace->hot.crowded, false, memory_order_relaxed);
            pthread_cond_broadcast(&trace->to_fill);
        }
    }
    sm_lock_give(&trace->lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(struct sm_trace *trace)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&trace->thread, NULL, write_blocks, trace);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!code)
        pthread_setname_np(trace->thread, "seam-trace");
    return code;
}

/* ---- begin and end ---- */

static bool expand_path(const char *path, char *out, size_t capacity)
{
    const char *mark = strstr(path, "%p");
    int length = mark ? snprintf(out, capacity, "%.*s%d%s", (int)(mark - path), path, (int)getpid(), mark + 2)
                      : snprintf(out, capacity, "%s", path);
    return length > 0 && (size_t)length < capacity;
}

static void put_buffers(struct sm_trace *trace)
{
    for (unsigned i = 0; i < BUFFERS; i++) {
        sm_hostmem_put(trace->buffers[i].bytes, BUFFER_BYTES);
        trace->buffers[i] = (struct buffer){0};
    }
    sm_hostmem_put(trace->store, BUFFER_BYTES);
    trace->store = NULL;
    sm_zstd_destroy(trace->zstd);
    trace->zstd = NULL;
}

static bool get_buffers(struct sm_trace *trace)
{
    bool good = (trace->store = sm_hostmem_get(BUFFER_BYTES)) != NULL;
    for (unsigned i = 0; i < BUFFERS && good; i++) {
        good = (trace->buffers[i].bytes = sm_hostmem_get(BUFFER_BYTES)) != NULL;
        if (good) /* no event shall be the first to touch a page */
            memset(trace->buffers[i].bytes, 0xff, BUFFER_BYTES);
    }
    if (!good)
        put_buffers(trace);
    else if (sm_zstd_load())
        trace->zstd = sm_zstd_create();
    else
        sm_log(SM_LOG_WARNING, "libzstd.so.1 is not there: recordings are not compressed");
    return good;
}

/* Lock held: it is the thread's first business to take it, too. */
static seam_result begin(struct sm_trace *trace, const char *path, const char *text, struct sm_error *error)
{
    int code;
    if (trace->running)
        return sm_error_set(error, SEAM_E_STATE, "a recording runs already, into %s", trace->path);
    if (strlen(text) > SM_TRACE_TEXT_MAX || !expand_path(path, trace->path, sizeof(trace->path)))
        return sm_error_set(error, SEAM_E_IO, "the recording's path or description is too long or empty");
    trace->file = open(trace->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (trace->file < 0)
        return sm_error_set(error, SEAM_E_IO, "the recording %s cannot be opened: %s", trace->path,
                            strerror(errno));
    trace->head = trace->tail = trace->events = trace->lost = trace->lost_told = 0;
    trace->failure = 0;
    trace->depth = 0;
    trace->ending = false;
    trace->codec = (struct sm_trace_codec){0};
    atomic_store_explicit(&trace->first_id, trace->last_id + 1, memory_order_relaxed);
    if (!get_buffers(trace)) {
        close(trace->file);
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory for the buffers of a recording");
    }
    code = write_head(trace->file, text);
    if (!code)
        code = start_thread(trace);
    if (code) {
        put_buffers(trace);
        close(trace->file);
        return sm_error_set(error, SEAM_E_IO, "the recording %s cannot be begun: %s", trace->path,
                            strerror(code));
    }
    trace->running = true;
    atomic_store_explicit(&trace->hot.on, true, memory_order_relaxed);
    return SEAM_OK;
}

seam_result sm_trace_begin(struct sm_trace *trace, const char *path, const char *text, struct sm_error *error)
{
    sm_lock_take(&trace->lock);
    seam_result result = begin(trace, path, text, error);
    sm_lock_give(&trace->lock);
    return result;
}

seam_result sm_trace_end(struct sm_trace *trace, struct sm_error *error)
{
    seam_result result = SEAM_OK;
    sm_lock_take(&trace->lock);
    bool runs = trace->running && !trace->ending;
    atomic_store_explicit(&trace->hot.on, false, memory_order_relaxed);
    trace->ending = trace->running;
    pthread_cond_signal(&trace->to_do);
    pthread_cond_broadcast(&trace->to_fill);
    sm_lock_give(&trace->lock);
    if (!runs)
        return sm_error_set(error, SEAM_E_STATE, "no recording runs");
    pthread_join(trace->thread, NULL);
    if (!trace->failure)
        trace->failure = write_end(trace);
    if (close(trace->file) && !trace->failure)
        trace->failure = errno;
    if (trace->failure)
        result = sm_error_set(error, SEAM_E_IO, "the recording %s is not whole: %s", trace->path,
                              strerror(trace->failure));
    sm_lock_take(&trace->lock);
    atomic_store_explicit(&trace->hot.crowded, false, memory_order_relaxed);
    put_buffers(trace);
    trace->running = false;
    sm_lock_give(&trace->lock);
    return result;
}

/* ---- events ---- */

void sm_trace_wait_for_room(struct sm_trace *trace)
{
    sm_lock_take(&trace->lock);
    while (sm_trace_is_on(trace) && trace->head - trace->tail >= CROWDED)
        pthread_cond_wait(&trace->to_fill, &trace->lock.mutex);
    sm_lock_give(&trace->lock);
}

/* Numbers of threads, in the order in which they are first seen. */
static uint32_t thread_number(void)
{
    static _Atomic uint32_t last;
    static __thread uint32_t self; /* plus 1 */
    if (!self)
        self = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return self - 1;
}

static void code(struct sm_trace *trace, struct buffer *buffer, const struct sm_trace_event *event)
{
    buffer->length += (uint32_t)sm_trace_encode(&trace->codec, event, buffer->bytes + buffer->length);
    buffer->events++;
    trace->events++;
}

/* Lock held. */
static void append(struct sm_trace *trace, const struct sm_trace_event *event)
{
    struct buffer *buffer = &trace->buffers[trace->head % BUFFERS];
    if (__builtin_expect(buffer->length + 2 * SM_TRACE_EVENT_MAX > BUFFER_BYTES, 0)) {
        if (trace->head - trace->tail + 1 >= BUFFERS) {
            trace->lost++;
            return;
        }
        close_buffer(trace);
        buffer = &trace->buffers[trace->head % BUFFERS];
    }
    if (trace->lost != trace->lost_told) {
        struct sm_trace_event lost = {.action = SM_TRACE_LOST, .size = trace->lost - trace->lost_told};
        code(trace, buffer, &lost);
        trace->lost_told = trace->lost;
    }
    code(trace, buffer, event);
}

/* A phase that was entered before the recording began is not left in it. Lock held. */
static bool belongs(struct sm_trace *trace, const struct sm_trace_event *event)
{
    if (!sm_trace_is_on(trace))
        return false;
    if (event->action == SM_TRACE_PHASE_ENTER)
        trace->depth++;
    if (event->action == SM_TRACE_PHASE_LEAVE && !trace->depth--) {
        trace->depth = 0;
        return false;
    }
    return true;
}

void sm_trace_put(struct sm_trace *trace, struct sm_trace_event *event)
{
    event->thread = thread_number();
    sm_lock_take(&trace->lock);
    if (belongs(trace, event))
        append(trace, event);
    sm_lock_give(&trace->lock);
}

uint64_t sm_trace_put_new(struct sm_trace *trace, struct sm_trace_event *event)
{
    uint64_t id = 0;
    event->thread = thread_number();
    sm_lock_take(&trace->lock);
    if (sm_trace_is_on(trace)) {
        id = event->id = ++trace->last_id;
        append(trace, event);
    }
    sm_lock_give(&trace->lock);
    return id;
}

void sm_trace_put_as(struct sm_trace *trace, const struct sm_trace_event *event)
{
    sm_trace_admit(trace);
    sm_lock_take(&trace->lock);
    if (sm_trace_is_on(trace))
        append(trace, event);
    sm_lock_give(&trace->lock);
}

bool sm_trace_knows(struct sm_trace *trace, uint64_t id)
{
    return id && id >= atomic_load_explicit(&trace->first_id, memory_order_relaxed);
}

uint64_t sm_trace_events(struct sm_trace *trace)
{
    sm_lock_take(&trace->lock);
    uint64_t events = trace->events;
    sm_lock_give(&trace->lock);
    return events;
}
