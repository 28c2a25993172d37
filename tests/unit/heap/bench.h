/* SPDX-License-Identifier: Apache-2.0 */
/* A heap on invented addresses for the tests of alloc/heap: one home, one extent, handles with invented
 * names. What a test does to it is followed by bench_check(), which lets the validator walk everything. */
#ifndef SEAM_TESTS_HEAP_BENCH_H
#define SEAM_TESTS_HEAP_BENCH_H

#include "alloc/heap/heap.h"
#include "base/align.h"
#include "tests/support/cmocka_all.h"

#define GRANULE (2 * SM_MIB)
#define BASE    ((uint64_t)0x700000000000)
/* An address in granules from the base. */
#define AT(granules) (BASE + (uint64_t)(granules)*GRANULE)

struct bench {
    struct sm_heap heap;
    struct sm_home *home;
    struct sm_extent *extent;
    uint64_t names; /* of handles, given so far */
    size_t bytes;   /* host memory in use before */
};

/* An empty extent of this many granules. */
static inline void bench_open(struct bench *bench, uint64_t granules)
{
    struct sm_home_key key = {.stream = bench};
    *bench = (struct bench){.bytes = sm_hostmem_bytes()};
    sm_heap_init(&bench->heap, GRANULE);
    bench->home = sm_home_create(&bench->heap, &key);
    assert_non_null(bench->home);
    bench->extent = sm_extent_add(bench->home, BASE, granules * GRANULE);
    assert_non_null(bench->extent);
}

static inline void bench_check(struct bench *bench)
{
    struct sm_error error;
    if (sm_heap_validate(&bench->heap, &error))
        fail_msg("%s", error.text);
}

static inline void bench_close(struct bench *bench)
{
    bench_check(bench);
    sm_heap_fini(&bench->heap);
    assert_int_equal(sm_hostmem_bytes(), bench->bytes);
}

/* The block that holds an address, by a walk. */
static inline struct sm_block *bench_block(const struct sm_extent *extent, uint64_t address)
{
    struct sm_block *block = extent->first;
    while (block && address - block->address >= block->size)
        block = block->next;
    assert_non_null(block);
    return block;
}

/* Fills a gap with handles of these sizes in granules; 0 ends the list. */
static inline struct sm_block *bench_fill(struct bench *bench, struct sm_block *gap, const unsigned *granules)
{
    uint64_t sizes[64], names[64], bytes = 0;
    uint32_t count = 0;
    for (; granules[count]; count++) {
        sizes[count] = granules[count] * GRANULE;
        names[count] = ++bench->names;
        bytes += sizes[count];
    }
    assert_true(sm_heap_prepare(&bench->heap, 1));
    assert_true(sm_extent_prepare(gap->extent, gap->address + bytes, count));
    struct sm_block *range = sm_gap_fill(gap, sizes, names, count);
    bench_check(bench);
    return range;
}

#define FILL(bench, gap, ...) bench_fill(bench, gap, (const unsigned[]){__VA_ARGS__, 0})

/* A block by best fit, split when larger. */
static inline struct sm_block *bench_take(struct bench *bench, uint64_t size)
{
    struct sm_block *block = sm_home_best_fit(bench->home, size);
    assert_non_null(block);
    assert_true(sm_heap_prepare(&bench->heap, 1));
    sm_block_take(block, size, size, true);
    bench_check(bench);
    return block;
}

static inline struct sm_block *bench_give(struct bench *bench, struct sm_block *block)
{
    struct sm_block *range = sm_block_give(block);
    bench_check(bench);
    return range;
}

/* Carves, lets the handles go and closes the gap, as a trim does. Returns: bytes that went. */
static inline uint64_t bench_trim(struct bench *bench, struct sm_block *block, uint64_t most)
{
    assert_true(sm_heap_prepare(&bench->heap, 2));
    struct sm_block *carved = sm_block_carve(block, most);
    if (!carved)
        return 0;
    uint64_t bytes = carved->size;
    for (uint64_t at = carved->address, end = sm_block_end(carved); at < end;) {
        uint64_t size = sm_extent_handle_at(carved->extent, at)->size;
        sm_carved_forget(carved, at);
        at += size;
    }
    sm_carved_close(carved);
    bench_check(bench);
    return bytes;
}

#endif
