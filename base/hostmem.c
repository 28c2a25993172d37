/* SPDX-License-Identifier: Apache-2.0 */
/* hostmem: see hostmem.h.
 *
 * jemalloc, where the process has it, is asked by names that only it has (mallocx, sdallocx, mallctl), so
 * that nothing here depends on whose malloc() the process uses. The arena is made at the first allocation and
 * never destroyed.
 *
 * Thread caches are passed by (MALLOCX_TCACHE_NONE). With them a free record of ours could be handed to the
 * program (caches do not know arenas), each thread of the program would hold some of our memory, and its
 * first call would have to make a cache. What they save, a lock of the arena's bin, is not needed here: hits
 * take their records from slabs, and only a chunk that is used up, or a table that grows, comes here.
 *
 * What was obtained from one source must go back to it: the source is chosen once for the life of the
 * process. */
#include "base/hostmem.h"
#include "base/align.h"
#include "base/log.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define USE_LIBC_ONLY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define USE_LIBC_ONLY 1
#endif
#endif
#ifndef USE_LIBC_ONLY
#define USE_LIBC_ONLY 0
#endif

/* jemalloc's interface as its manual gives it, declared here so that building needs no header of it. The unit
 * test asks jemalloc itself which arena a pointer is from. */
#define JE_ZERO        0x40
#define JE_TCACHE_NONE 0x100
#define JE_ARENA(n)    ((int)(((n) + 1) << 20))
extern void *mallocx(size_t size, int flags) __attribute__((weak));
extern void sdallocx(void *memory, size_t size, int flags) __attribute__((weak));
extern int mallctl(const char *name, void *old, size_t *old_size, void *new_value, size_t new_size)
    __attribute__((weak));

static struct {
    pthread_once_t once;
    bool jemalloc;
    int flags; /* arena and cache, for each call */
} source = {.once = PTHREAD_ONCE_INIT};

static _Atomic size_t bytes_now, bytes_peak;
static struct sm_fault fault;

static void choose_source(void)
{
    unsigned arena = 0;
    size_t size = sizeof arena;
    if (USE_LIBC_ONLY || !mallocx || !sdallocx || !mallctl)
        return;
    if (mallctl("arenas.create", &arena, &size, NULL, 0) != 0 || arena >= 4095)
        return; /* the flags have 12 bits for an arena */
    source.flags = JE_ARENA(arena) | JE_TCACHE_NONE;
    source.jemalloc = true;
}

static void count_obtained(size_t size)
{
    size_t now = atomic_fetch_add_explicit(&bytes_now, size, memory_order_relaxed) + size;
    size_t peak = atomic_load_explicit(&bytes_peak, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak_explicit(&bytes_peak, &peak, now, memory_order_relaxed,
                                                                memory_order_relaxed))
        ;
}

void *sm_hostmem_get(size_t size)
{
    SM_ASSERT(size > 0);
    if (sm_fault_fires(&fault))
        return NULL;
    pthread_once(&source.once, choose_source);
    /* mallocx leaves sizes above the largest class undefined; no caller means one. */
    if (size > PTRDIFF_MAX / 2)
        return NULL;
    void *memory = source.jemalloc ? mallocx(size, source.flags | JE_ZERO) : calloc(1, size);
    if (memory)
        count_obtained(size);
    return memory;
}

void *sm_hostmem_resize(void *memory, size_t old_size, size_t size)
{
    if (!memory)
        return sm_hostmem_get(size);
    void *other = sm_hostmem_get(size);
    if (!other)
        return NULL;
    memcpy(other, memory, old_size < size ? old_size : size);
    sm_hostmem_put(memory, old_size);
    return other;
}

void sm_hostmem_put(void *memory, size_t size)
{
    if (!memory)
        return;
    if (source.jemalloc)
        sdallocx(memory, size, source.flags);
    else
        free(memory);
    atomic_fetch_sub_explicit(&bytes_now, size, memory_order_relaxed);
}

size_t sm_hostmem_bytes(void)
{
    return atomic_load_explicit(&bytes_now, memory_order_relaxed);
}

size_t sm_hostmem_bytes_peak(void)
{
    return atomic_load_explicit(&bytes_peak, memory_order_relaxed);
}

const char *sm_hostmem_source(void)
{
    pthread_once(&source.once, choose_source);
    return source.jemalloc ? "jemalloc" : "libc";
}

struct sm_fault *sm_hostmem_fault(void)
{
    return &fault;
}

/* Slabs. A chunk is this head and its records behind it. */
struct sm_slab_chunk {
    struct sm_slab_chunk *next;
    size_t bytes; /* head included */
};

#define CHUNK_BYTES_MIN ((size_t)4 << 10)
#define CHUNK_BYTES_MAX ((size_t)256 << 10)

void sm_slab_init(struct sm_slab *slab, size_t record_size)
{
    SM_ASSERT(record_size >= sizeof(void *));
    *slab = (struct sm_slab){.record_size = sm_align_up(record_size, sizeof(void *))};
}

void sm_slab_fini(struct sm_slab *slab)
{
    struct sm_slab_chunk *chunk = slab->chunks;
    while (chunk) {
        struct sm_slab_chunk *next = chunk->next;
        sm_hostmem_put(chunk, chunk->bytes);
        chunk = next;
    }
    sm_slab_init(slab, slab->record_size);
}

/* One chunk with room for at least `records`; as many as there are already, within the limits, so that chunks
 * double. One allocation: it succeeds whole or changes nothing. */
static bool add_chunk(struct sm_slab *slab, size_t records)
{
    size_t least, bytes = slab->capacity * slab->record_size;
    if (__builtin_mul_overflow(records, slab->record_size, &least))
        return false;
    bytes = bytes < CHUNK_BYTES_MIN ? CHUNK_BYTES_MIN : bytes > CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX : bytes;
    bytes -= sizeof(struct sm_slab_chunk); /* the whole chunk fits a size class */
    if (bytes < least)
        bytes = least;
    records = bytes / slab->record_size;
    if (__builtin_add_overflow(records * slab->record_size, sizeof(struct sm_slab_chunk), &bytes))
        return false;
    struct sm_slab_chunk *chunk = sm_hostmem_get(bytes);
    if (!chunk)
        return false;
    chunk->bytes = bytes;
    chunk->next = slab->chunks;
    slab->chunks = chunk;
    char *first = (char *)(chunk + 1);
    for (size_t i = records; i-- > 0;) {
        void **record = (void **)(first + i * slab->record_size);
        *record = slab->free_records;
        slab->free_records = record;
    }
    slab->capacity += records;
    return true;
}

bool sm_slab_reserve(struct sm_slab *slab, size_t records)
{
    size_t spare = slab->capacity - slab->count;
    return spare >= records || add_chunk(slab, records - spare);
}

void *sm_slab_take(struct sm_slab *slab)
{
    if (!slab->free_records && !add_chunk(slab, 1))
        return NULL;
    void **record = slab->free_records;
    slab->free_records = *record; /* NOLINT(clang-analyzer-core.NullDereference): add_chunk() gave one */
    slab->count++;
    return memset(record, 0, slab->record_size);
}

void sm_slab_give(struct sm_slab *slab, void *record)
{
    SM_ASSERT(slab->count > 0);
    *(void **)record = slab->free_records;
    slab->free_records = record;
    slab->count--;
}

/* A loan counts from here, because more may be given back to it than was taken from it. */
#define LOAN_COUNT (SIZE_MAX / 2)

void sm_slab_lend(struct sm_slab *slab, struct sm_slab *loan, size_t records)
{
    sm_slab_init(loan, slab->record_size);
    loan->count = loan->capacity = LOAN_COUNT;
    sm_slab_lend_more(slab, loan, records);
}

void sm_slab_lend_more(struct sm_slab *slab, struct sm_slab *loan, size_t records)
{
    SM_ASSERT(slab->capacity - slab->count >= records);
    loan->capacity += records;
    slab->capacity -= records;
    for (size_t i = 0; i < records; i++) {
        void **record = slab->free_records;
        slab->free_records = *record;
        *record = loan->free_records;
        loan->free_records = record;
    }
}

void sm_slab_unlend(struct sm_slab *slab, struct sm_slab *loan)
{
    void **record;
    slab->capacity += loan->capacity - LOAN_COUNT;
    slab->count += loan->count - LOAN_COUNT;
    while ((record = loan->free_records)) {
        loan->free_records = *record;
        *record = slab->free_records;
        slab->free_records = record;
    }
    sm_slab_init(loan, slab->record_size);
}
