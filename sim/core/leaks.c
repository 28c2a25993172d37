/* SPDX-License-Identifier: Apache-2.0 */
/* leaks: what was made and never given back, by kind, with the call that made it (sim_print_leaks in sim.h).
 * What a device has by itself (default streams, default pools, contexts) and code that was loaded are none.
 */
#include "sim/core/address.h"
#include "sim/core/device.h"
#include "sim/core/history.h"
#include "sim/core/lock.h"
#include "sim/core/mapping.h"
#include "sim/core/pool.h"
#include "sim/core/table.h"

enum { NAMED = 10 };

struct list {
    FILE *out;
    const char *kind;
    size_t count; /* of this kind */
    size_t total;
};

/* One more of a kind: named while there are few of it. */
static void add(struct list *list, uint64_t base, uint64_t size, struct sim_origin origin)
{
    if (list->total == 0 && list->count == 0)
        fprintf(list->out, "seamalloc: simulated device: never given back:\n");
    if (++list->count > NAMED)
        return;
    fprintf(list->out, "    %s %#llx", list->kind, (unsigned long long)base);
    if (size)
        fprintf(list->out, " of %llu bytes", (unsigned long long)size);
    fprintf(list->out, ": call %llu, %s\n", (unsigned long long)origin.number, sim_call_names[origin.call]);
}

static void finish(struct list *list)
{
    if (list->count > NAMED)
        fprintf(list->out, "    and %zu more: %s\n", list->count - NAMED, list->kind);
    list->total += list->count;
    list->count = 0;
}

static void add_handle(uint64_t handle, void *object, void *user)
{
    (void)object;
    add(user, handle, 0, sim_table_origin(handle));
}

static void add_memory(uint64_t handle, void *object, void *user)
{
    add(user, handle, ((const struct sim_memory *)object)->size, sim_table_origin(handle));
}

static void add_pool(uint64_t handle, void *object, void *user)
{
    (void)object;
    if (!sim_pool_is_default(handle))
        add(user, handle, 0, sim_table_origin(handle));
}

static void add_ranges(struct list *list, enum sim_range_kind kind, const char *name)
{
    list->kind = name;
    for (const struct sim_range *range = sim_address_next(NULL); range;
         range = sim_address_next((struct sim_range *)range))
        if (range->kind == kind && !range->cached)
            add(list, range->base, range->size, range->origin);
    finish(list);
}

static void add_kind(struct list *list, enum sim_kind kind, const char *name,
                     void (*visit)(uint64_t handle, void *object, void *user))
{
    list->kind = name;
    sim_table_each(kind, visit, list);
    finish(list);
}

size_t sim_print_leaks(FILE *out)
{
    struct list list = {.out = out};
    sim_lock();
    add_kind(&list, SIM_KIND_MEMORY, "handle", add_memory);
    list.kind = "mapping";
    for (const struct sim_mapping *m = sim_mapping_next(NULL); m; m = sim_mapping_next(m))
        add(&list, m->base, m->size, m->origin);
    finish(&list);
    add_ranges(&list, SIM_RANGE_RESERVATION, "reservation");
    add_ranges(&list, SIM_RANGE_PLAIN, "allocation");
    add_ranges(&list, SIM_RANGE_HOST, "host memory");
    add_ranges(&list, SIM_RANGE_REGISTERED, "registered memory");
    add_kind(&list, SIM_KIND_EVENT, "event", add_handle);
    add_kind(&list, SIM_KIND_STREAM, "stream", add_handle);
    add_kind(&list, SIM_KIND_GRAPH, "graph", add_handle);
    add_kind(&list, SIM_KIND_EXEC, "executable graph", add_handle);
    add_kind(&list, SIM_KIND_POOL, "pool", add_pool);
    sim_unlock();
    return list.total;
}
