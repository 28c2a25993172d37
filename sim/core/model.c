/* SPDX-License-Identifier: Apache-2.0 */
/* model: see model.h. */
#include "sim/core/model.h"
#include "base/align.h"
#include "sim/core/memory.h"
#include <string.h>

struct sim_model sim_model;

uint64_t *sim_model_field(struct sim_model *model, const char *name)
{
#define SIM_MODEL_MATCH(field)                                                                               \
    if (!strcmp(name, "work." #field))                                                                       \
        return &model->field;
    SIM_MODEL_LIST(SIM_MODEL_MATCH)
#undef SIM_MODEL_MATCH
    return NULL;
}

static double at_rate(double amount, uint64_t per_ns)
{
    return per_ns ? amount / (double)per_ns : 0;
}

static uint64_t matrix_rate(unsigned element_bytes)
{
    if (element_bytes <= 2)
        return sim_model.matrix16_flops_per_ns;
    return element_bytes <= 4 ? sim_model.matrix32_flops_per_ns : sim_model.matrix64_flops_per_ns;
}

uint64_t sim_model_kernel_ns(uint64_t threads, uint64_t bytes)
{
    double moved = bytes ? (double)bytes : (double)threads * (double)sim_model.thread_bytes;
    return sim_model.kernel_ns + (uint64_t)at_rate(moved, sim_model.memory_bytes_per_ns);
}

uint64_t sim_model_work_ns(const struct sim_work *work)
{
    double arithmetic = at_rate(work->operations, matrix_rate(work->element_bytes));
    double memory = at_rate((double)work->memory_bytes, sim_model.memory_bytes_per_ns);
    uint64_t ns = sim_model.kernel_ns + (uint64_t)(arithmetic > memory ? arithmetic : memory);
    if (work->link_steps)
        ns += sim_model.collective_ns + sim_model.hop_ns * work->link_steps +
              (uint64_t)at_rate((double)work->link_bytes, sim_model.link_bytes_per_ns);
    return ns;
}

/* The device whose memory an address is; the given one when nothing is mapped there. */
static int device_of(uint64_t address, int device)
{
    uint64_t offset;
    int found;
    return sim_memory_run(address, 1, &found, &offset) ? found : device;
}

uint64_t sim_model_transfer_ns(const struct sim_transfer *t, int device)
{
    double bytes = (double)t->width * (double)t->height;
    uint64_t rate = sim_model.memory_bytes_per_ns;
    if (t->dst_device && t->src_device) {
        if (device_of(t->dst, device) != device_of(t->src, device))
            rate = sim_model.link_bytes_per_ns;
        else
            bytes *= 2; /* read and written */
    } else if (!t->element) {
        bool pinned = sim_memory_is_pinned(t->dst_device ? t->src : t->dst);
        rate = pinned ? sim_model.pinned_bytes_per_ns : sim_model.pageable_bytes_per_ns;
    }
    return sim_model.copy_ns + (uint64_t)at_rate(bytes, rate);
}

const char *sim_model_transfer_name(const struct sim_transfer *t)
{
    if (t->element)
        return "fill";
    if (t->dst_device)
        return t->src_device ? "copy on device" : "copy to device";
    return t->src_device ? "copy to host" : "copy on host";
}

/* As rings do it: each rank passes on what it has, until all have what they want. */
void sim_model_collective(struct sim_work *work, enum sim_collective what, uint64_t bytes, int ranks)
{
    static const char *const names[] = {"all-reduce", "all-gather", "reduce-scatter", "broadcast",
                                        "reduce",     "gather",     "all-to-all",     "send"};
    uint64_t others = ranks > 1 ? (uint64_t)ranks - 1 : 0;
    double share = (double)bytes * (double)others / (double)sm_max(ranks, 1);
    work->name = names[what];
    work->link_steps = (unsigned)others;
    work->link_bytes = (uint64_t)share;
    switch (what) {
    case SIM_ALL_REDUCE: /* a reduce-scatter and an all-gather */
        work->link_steps = 2 * (unsigned)others;
        work->link_bytes = (uint64_t)(2 * share);
        break;
    case SIM_BROADCAST:
    case SIM_REDUCE: /* in pieces, one behind the other: the whole passes every link once */
        work->link_bytes = others ? bytes : 0;
        break;
    case SIM_SEND:
        work->link_steps = others ? 1 : 0;
        work->link_bytes = others ? bytes : 0;
        break;
    case SIM_ALL_GATHER:
    case SIM_REDUCE_SCATTER:
    case SIM_GATHER:
    case SIM_ALL_TO_ALL:
        break;
    }
}
