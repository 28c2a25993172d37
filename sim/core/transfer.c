/* SPDX-License-Identifier: Apache-2.0 */
/* transfer: see transfer.h. */
#include "sim/core/transfer.h"
#include "base/align.h"
#include "sim/core/backing.h"
#include "sim/core/memory.h"
#include <stdatomic.h>
#include <string.h>

enum { SMALL_READ = 16, WRITES = 64, LARGE = 65536, PAGE = 4096 };

static _Atomic uint64_t kernels;

/* The last pieces that copies and fills wrote, to tell known bytes from those of a kernel that did nothing.
 */
static struct {
    struct sim_piece piece;
    uint64_t kernels;
} writes[WRITES];
static unsigned write_count;

/* Where the next kernel of this thread writes; size 0: not known. */
static __thread uint64_t next_base, next_size;
/* What it surely writes; size 0: not known. */
static __thread uint64_t sure_base, sure_size;

void sim_transfer_reset(void)
{
    atomic_store(&kernels, 0);
    memset(writes, 0, sizeof writes);
    write_count = 0;
}

static void note_write(uint64_t base, uint64_t size)
{
    struct sim_piece pieces[4];
    size_t count = sm_min(sim_memory_pieces(base, size, pieces, 4), 4);
    for (size_t i = 0; i < count; i++) {
        writes[write_count % WRITES].piece = pieces[i];
        writes[write_count % WRITES].kernels = atomic_load(&kernels);
        write_count++;
    }
}

/* What was copied from bytes that a kernel may have written is as little known as they are. */
static void forget_write(uint64_t base, uint64_t size)
{
    struct sim_piece pieces[4];
    size_t count = sm_min(sim_memory_pieces(base, size, pieces, 4), 4);
    for (size_t i = 0; i < count; i++)
        for (unsigned k = 0; k < WRITES; k++) {
            struct sim_piece *w = &writes[k].piece;
            if (w->id == pieces[i].id && w->offset < pieces[i].offset + pieces[i].size &&
                pieces[i].offset < w->offset + w->size)
                w->size = 0;
        }
}

void sim_kernel_writes(CUdeviceptr base, size_t size)
{
    next_base = base;
    next_size = size;
}

void sim_transfer_kernel(void)
{
    if (next_size)
        forget_write(next_base, next_size);
    else
        atomic_fetch_add_explicit(&kernels, 1, memory_order_relaxed);
    next_size = 0;
}

void sim_kernel_surely_writes(CUdeviceptr base, size_t size)
{
    sure_base = base;
    sure_size = size;
}

bool sim_transfer_sure(uint64_t *base, uint64_t *size)
{
    *base = sure_base;
    *size = sure_size;
    sure_size = 0;
    return *size && sim_memory_is_device(*base);
}

static bool is_known(uint64_t base, uint64_t size)
{
    struct sim_piece p;
    uint64_t now = atomic_load(&kernels);
    if (now == 0)
        return true;
    if (sim_memory_pieces(base, size, &p, 1) != 1)
        return false;
    for (unsigned i = 0; i < WRITES; i++) {
        const struct sim_piece *w = &writes[i].piece;
        if (writes[i].kernels == now && w->id == p.id && w->size && p.offset >= w->offset &&
            p.offset + p.size <= w->offset + w->size)
            return true;
    }
    return false;
}

uint64_t sim_transfer_span(uint64_t width, uint64_t height, uint64_t pitch)
{
    uint64_t rows, span;
    if (height == 0 || width == 0)
        return 0;
    bool wraps =
        __builtin_mul_overflow(pitch, height - 1, &rows) || __builtin_add_overflow(rows, width, &span);
    return wraps ? UINT64_MAX : span;
}

void sim_transfer_classify(struct sim_transfer *t)
{
    t->dst_device = sim_memory_is_device(t->dst);
    t->src_device = t->element == 0 && sim_memory_is_device(t->src);
}

bool sim_transfer_is_nowhere(const struct sim_transfer *t)
{
    bool has_target = t->dst_device || (t->element ? sim_memory_is_pinned(t->dst) : t->dst >= PAGE);
    return !has_target || (t->element == 0 && !t->src_device && t->src < PAGE);
}

static CUresult check_side(uint64_t base, uint64_t size, int device, bool write)
{
    enum sim_rule rule;
    CUresult result = sim_memory_check(base, size, device, write, &rule);
    if (result)
        sim_violate(rule, device, base, size, "by a %s", write ? "write" : "read");
    return result;
}

CUresult sim_transfer_check(const struct sim_transfer *t, int device)
{
    CUresult result = CUDA_SUCCESS;
    if (t->dst_device)
        result = check_side(t->dst, sim_transfer_span(t->width, t->height, t->dst_pitch), device, true);
    if (!result && t->src_device)
        result = check_side(t->src, sim_transfer_span(t->width, t->height, t->src_pitch), device, false);
    return result;
}

/* Copies within device memory; what was never written is not touched, but forgotten at the destination. */
static void copy_on_device(uint64_t dst, uint64_t src, uint64_t size)
{
    while (size > 0) {
        int device;
        uint64_t offset, run = sim_memory_run(src, size, &device, &offset);
        bool is_data = true;
        if (size >= LARGE)
            run = sim_backing_run(device, offset, run, &is_data);
        uint64_t from = sm_align_up(dst, PAGE), to = sm_align_down(dst + run, PAGE);
        if (is_data || from >= to || !sim_memory_zero(from, to - from)) {
            memmove((void *)dst, (const void *)src, run);
        } else {
            memset((void *)dst, 0, from - dst);
            memset((void *)to, 0, dst + run - to);
        }
        dst += run;
        src += run;
        size -= run;
    }
}

/* Reads device memory into the host's without making it resident. */
static void copy_to_host(void *dst, uint64_t src, uint64_t size)
{
    if (size <= SMALL_READ && !is_known(src, size)) {
        memset(dst, 0, size);
        return;
    }
    char *to = dst;
    for (uint64_t run; size > 0; size -= run, src += run, to += run) {
        int device;
        uint64_t offset;
        run = sim_memory_run(src, size, &device, &offset);
        if (run >= PAGE)
            sim_backing_read(device, offset, to, run);
        else
            memcpy(to, (const void *)src, run);
    }
}

static void copy_row(const struct sim_transfer *t, uint64_t dst, uint64_t src)
{
    if (!sim_backing_on() && (t->dst_device || t->src_device)) {
        if (!t->dst_device) /* table-only: the device's bytes are all zero */
            memset((void *)dst, 0, t->width);
    } else if (t->dst_device && t->src_device) {
        copy_on_device(dst, src, t->width);
    } else if (t->src_device) {
        copy_to_host((void *)dst, src, t->width);
    } else {
        memmove((void *)dst, (const void *)src, t->width);
    }
}

static void fill_row(const struct sim_transfer *t, uint64_t dst)
{
    uint64_t start = dst, end = dst + t->width;
    if (!sim_backing_on() && t->dst_device)
        return;
    if (t->value == 0 && t->dst_device && t->width >= LARGE) {
        uint64_t from = sm_align_up(start, PAGE), to = sm_align_down(end, PAGE);
        if (sim_memory_zero(from, to - from)) {
            memset((void *)start, 0, from - start);
            memset((void *)to, 0, end - to);
            return;
        }
    }
    if (t->element == 1)
        memset((void *)start, (int)t->value, t->width);
    else
        for (; start + t->element <= end; start += t->element)
            memcpy((void *)start, &t->value, t->element); /* little-endian: the low bytes come first */
}

static void stamp(uint64_t base, uint64_t size)
{
    int device;
    uint64_t offset;
    for (uint64_t run; size > 0; size -= run, base += run) {
        run = sim_memory_run(base, size, &device, &offset);
        memset((void *)base, SIM_KERNEL_BYTE, run);
    }
}

bool sim_transfer_kernel_writes(uint64_t base, uint64_t size, int device)
{
    enum { STAMP = 64, STAMPS = 7 };
    if (check_side(base, size, device, true))
        return false;
    if (!sim_backing_on())
        return true;
    forget_write(base, size);
    if (size <= LARGE) {
        stamp(base, size);
        return true;
    }
    for (uint64_t i = 0; i < STAMPS; i++)
        stamp(base + size / STAMPS * i / PAGE * PAGE, STAMP);
    stamp(base + size - STAMP, STAMP);
    return true;
}

bool sim_transfer_run(const struct sim_transfer *t, int device)
{
    if (sim_transfer_check(t, device))
        return false;
    uint64_t src = t->staged ? (uint64_t)(uintptr_t)t->staged : t->src;
    bool known = !t->src_device || is_known(src, sim_transfer_span(t->width, t->height, t->src_pitch));
    for (uint64_t row = 0; row < t->height; row++) {
        if (t->element)
            fill_row(t, t->dst + row * t->dst_pitch);
        else
            copy_row(t, t->dst + row * t->dst_pitch, src + row * t->src_pitch);
    }
    if (t->dst_device && known)
        note_write(t->dst, sim_transfer_span(t->width, t->height, t->dst_pitch));
    else if (t->dst_device)
        forget_write(t->dst, sim_transfer_span(t->width, t->height, t->dst_pitch));
    return true;
}
