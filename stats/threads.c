/* SPDX-License-Identifier: Apache-2.0 */
/* threads: phases that count one thread's own requests.
 *
 * A thread has a record here only while it has such a phase open; without any, the hit path pays one compare.
 * The record keeps running sums of the thread and one running peak; as with crests, boundaries fold it into
 * the innermost frame and a frame that ends hands its peak to the one below. */
#include "stats/internal.h"

#include "base/log.h"
#include <stdatomic.h>

enum { NET_ALLOCATED, NET_REQUESTED, NET_COUNT };

/* An open phase of a thread. */
struct frame {
    struct frame *below;
    struct sm_node *node;
    int64_t start_ns;
    int64_t entry[NET_COUNT], peak[NET_COUNT];
    struct sm_flow allocated, freed; /* the thread's sums at entry */
    uint64_t counters[SM_COUNTER_COUNT];
};

struct sm_thread {
    struct sm_thread *next;
    uint64_t id;
    struct frame *top;
    unsigned depth;
    int64_t running[NET_COUNT];      /* peaks since the last boundary */
    struct sm_flow allocated, freed; /* since the record was made */
    uint64_t counters[SM_COUNTER_COUNT];
};

uint64_t sm_stats_thread_self(void)
{
    /* Numbers are never given twice, so a new thread cannot inherit the phases of a dead one. */
    static _Atomic uint64_t last;
    static _Thread_local uint64_t self;
    if (!self)
        self = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return self;
}

static struct sm_thread *find_thread(const struct sm_stats *stats, uint64_t id)
{
    struct sm_thread *thread = stats->hot.threads;
    while (thread && thread->id != id)
        thread = thread->next;
    return thread;
}

static void read_net(const struct sm_thread *thread, int64_t net[NET_COUNT])
{
    net[NET_ALLOCATED] = thread->allocated.bytes - thread->freed.bytes;
    net[NET_REQUESTED] = thread->allocated.requested - thread->freed.requested;
}

static void raise_to(int64_t *peak, const int64_t *value)
{
    for (unsigned i = 0; i < NET_COUNT; i++)
        if (value[i] > peak[i])
            peak[i] = value[i];
}

/* A boundary of this thread. */
static void fold_thread(struct sm_thread *thread)
{
    if (thread->top)
        raise_to(thread->top->peak, thread->running);
    read_net(thread, thread->running);
}

void sm_thread_alloc(struct sm_stats *stats, uint64_t requested, uint64_t rounded)
{
    struct sm_thread *thread = find_thread(stats, sm_stats_thread_self());
    if (!thread)
        return;
    thread->allocated.count++;
    thread->allocated.bytes += (int64_t)rounded;
    thread->allocated.requested += (int64_t)requested;
    int64_t net[NET_COUNT];
    read_net(thread, net);
    raise_to(thread->running, net);
}

void sm_thread_free(struct sm_stats *stats, uint64_t requested, uint64_t rounded)
{
    struct sm_thread *thread = find_thread(stats, sm_stats_thread_self());
    if (!thread)
        return;
    thread->freed.count++;
    thread->freed.bytes += (int64_t)rounded;
    thread->freed.requested += (int64_t)requested;
}

void sm_thread_count(struct sm_stats *stats, enum sm_counter_id counter, uint64_t times)
{
    struct sm_thread *thread = find_thread(stats, sm_stats_thread_self());
    if (thread)
        thread->counters[counter] += times;
}

bool sm_stats_thread_phase_reserve(struct sm_stats *stats, uint64_t thread, const char *name)
{
    (void)thread;
    (void)name;
    return sm_slab_reserve(&stats->thread_slab, 1) && sm_slab_reserve(&stats->frame_slab, 1) &&
           sm_tree_reserve(stats);
}

static struct sm_thread *add_thread(struct sm_stats *stats, uint64_t id)
{
    struct sm_thread *thread = sm_slab_take(&stats->thread_slab);
    thread->id = id;
    thread->next = stats->hot.threads;
    stats->hot.threads = thread;
    return thread;
}

void sm_stats_thread_phase_push(struct sm_stats *stats, uint64_t id, const char *name, int64_t now_ns)
{
    struct sm_thread *thread = find_thread(stats, id);
    if (!thread)
        thread = add_thread(stats, id);
    fold_thread(thread);
    struct frame *frame = sm_slab_take(&stats->frame_slab);
    frame->below = thread->top;
    frame->node = sm_tree_enter(stats, thread->top ? thread->top->node : &stats->thread_root, name);
    frame->start_ns = now_ns;
    frame->allocated = thread->allocated;
    frame->freed = thread->freed;
    read_net(thread, frame->entry);
    read_net(thread, frame->peak);
    for (unsigned i = 0; i < SM_COUNTER_COUNT; i++)
        frame->counters[i] = thread->counters[i];
    thread->top = frame;
    thread->depth++;
}

static void frame_figures(const struct sm_thread *thread, const struct frame *frame, int64_t now_ns,
                          int64_t figure[SM_FIGURE_COUNT])
{
    static const unsigned tracked[NET_COUNT] = {SM_TRACKED_allocated, SM_TRACKED_requested};
    int64_t net[NET_COUNT];
    read_net(thread, net);
    for (unsigned i = 0; i < NET_COUNT; i++) {
        figure[sm_figure_level(tracked[i], SM_POINT_PEAK)] = frame->peak[i] - frame->entry[i];
        figure[sm_figure_level(tracked[i], SM_POINT_EXIT)] = net[i] - frame->entry[i];
    }
    figure[SM_FIGURE_wall_ns] = now_ns - frame->start_ns;
    figure[SM_FIGURE_allocations] = thread->allocated.count - frame->allocated.count;
    figure[SM_FIGURE_allocations + 1] = thread->allocated.bytes - frame->allocated.bytes;
    figure[SM_FIGURE_frees] = thread->freed.count - frame->freed.count;
    figure[SM_FIGURE_frees + 1] = thread->freed.bytes - frame->freed.bytes;
#define X(name)                                                                                              \
    figure[SM_FIGURE_counters + SM_PHASE_COUNTER_##name] =                                                   \
        (int64_t)(thread->counters[SM_COUNTER_##name] - frame->counters[SM_COUNTER_##name]);
    SM_PHASE_COUNTERS(X)
#undef X
}

bool sm_thread_open_figures(const struct sm_stats *stats, const struct sm_node *node, unsigned nth,
                            int64_t now_ns, int64_t figure[SM_FIGURE_COUNT])
{
    for (const struct sm_thread *thread = stats->hot.threads; thread; thread = thread->next) {
        int64_t peak[NET_COUNT] = {thread->running[NET_ALLOCATED], thread->running[NET_REQUESTED]};
        for (const struct frame *frame = thread->top; frame; frame = frame->below) {
            raise_to(peak, frame->peak); /* what newer frames saw, this one saw too */
            if (frame->node == node && nth-- == 0) {
                struct frame seen = *frame;
                raise_to(seen.peak, peak);
                frame_figures(thread, &seen, now_ns, figure);
                return true;
            }
        }
    }
    return false;
}

static void remove_thread(struct sm_stats *stats, struct sm_thread *thread)
{
    struct sm_thread **link = &stats->hot.threads;
    while (*link != thread)
        link = &(*link)->next;
    *link = thread->next;
    sm_slab_give(&stats->thread_slab, thread);
}

void sm_stats_thread_phase_pop(struct sm_stats *stats, uint64_t id, int64_t now_ns)
{
    struct sm_thread *thread = find_thread(stats, id);
    if (!SM_CHECK(thread != NULL))
        return;
    fold_thread(thread);
    struct frame *frame = thread->top;
    int64_t figure[SM_FIGURE_COUNT] = {0};
    const struct sm_crest none = {0};
    frame_figures(thread, frame, now_ns, figure);
    sm_tree_add(frame->node, figure, &none);
    thread->top = frame->below;
    if (thread->top)
        raise_to(thread->top->peak, frame->peak);
    sm_slab_give(&stats->frame_slab, frame);
    if (--thread->depth == 0)
        remove_thread(stats, thread);
}

unsigned sm_stats_thread_phase_depth(const struct sm_stats *stats, uint64_t id)
{
    const struct sm_thread *thread = find_thread(stats, id);
    return thread ? thread->depth : 0;
}

void sm_threads_init(struct sm_stats *stats)
{
    sm_slab_init(&stats->thread_slab, sizeof(struct sm_thread));
    sm_slab_init(&stats->frame_slab, sizeof(struct frame));
}

void sm_threads_fini(struct sm_stats *stats)
{
    sm_slab_fini(&stats->thread_slab);
    sm_slab_fini(&stats->frame_slab);
    stats->hot.threads = NULL;
}

/* Outermost first. */
static void copy_frames(struct sm_stats *stats, uint64_t id, const struct frame *frame)
{
    /* A recursion here would be as deep as the program's phases; walking down from the top costs only time.
     */
    unsigned depth = 0;
    for (const struct frame *f = frame; f; f = f->below)
        depth++;
    while (depth-- > 0) {
        const struct frame *f = frame;
        for (unsigned i = 0; i < depth; i++)
            f = f->below;
        sm_stats_thread_phase_push(stats, id, f->node->name, f->start_ns);
    }
}

bool sm_threads_copy(struct sm_stats *stats, const struct sm_stats *from)
{
    if (!sm_slab_reserve(&stats->thread_slab, from->thread_slab.count) ||
        !sm_slab_reserve(&stats->frame_slab, from->frame_slab.count))
        return false;
    for (const struct sm_thread *thread = from->hot.threads; thread; thread = thread->next)
        copy_frames(stats, thread->id, thread->top);
    return true;
}
