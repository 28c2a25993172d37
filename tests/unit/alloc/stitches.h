/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of stitching share: memory with holes, and what a block is made of, as the device says. */
#ifndef SEAM_TESTS_ALLOC_STITCHES_H
#define SEAM_TESTS_ALLOC_STITCHES_H

#include "tests/support/fixture.h"

/* No slack and no small class: each growth is one handle of what is missing, so that layouts are what they
 * say. */
#define UNSLACK "slack_permille:0,small_limit_kib:0"
#define EXACT   UNSLACK ",handle_mib:1048576"

#define COMB_MAX 32
/* Blocks of one size, side by side, each a handle; the even ones are freed. */
struct comb {
    unsigned count;
    uint64_t size;
    CUdeviceptr teeth[COMB_MAX]; /* the odd ones are live */
    uint64_t handles[COMB_MAX];  /* numbers of their handles */
};

static inline uint64_t handle_of(CUdeviceptr address)
{
    uint64_t handle = 0;
    assert_true(sim_resolve(address, &handle, NULL));
    return handle;
}

static inline uint64_t offset_of(CUdeviceptr address)
{
    uint64_t offset = 0;
    assert_true(sim_resolve(address, NULL, &offset));
    return offset;
}

static inline void comb_fill(struct comb *comb, struct fixture *f, unsigned count, uint64_t size,
                             CUstream stream)
{
    comb->count = count;
    comb->size = size;
    for (unsigned i = 0; i < count; i++) {
        comb->teeth[i] = fixture_alloc(f, size, stream);
        comb->handles[i] = handle_of(comb->teeth[i]);
        assert_int_equal(offset_of(comb->teeth[i]), 0);
    }
}

static inline void comb_thin(struct comb *comb, struct fixture *f)
{
    for (unsigned i = 0; i < comb->count; i += 2)
        fixture_free(f, comb->teeth[i]);
}

static inline void comb_open(struct comb *comb, struct fixture *f, unsigned count, uint64_t size,
                             CUstream stream)
{
    comb_fill(comb, f, count, size, stream);
    comb_thin(comb, f);
}

static inline void comb_close(struct comb *comb, struct fixture *f)
{
    for (unsigned i = 1; i < comb->count; i += 2)
        fixture_free(f, comb->teeth[i]);
}

/* Driver calls since a moment. */
struct calls {
    uint64_t reserve, create, map, access, unmap, release, memory;
};

static inline struct calls calls_now(void)
{
    return (struct calls){sim_calls("cuMemAddressReserve"),
                          sim_calls("cuMemCreate"),
                          sim_calls("cuMemMap"),
                          sim_calls("cuMemSetAccess"),
                          sim_calls("cuMemUnmap"),
                          sim_calls("cuMemRelease"),
                          fixture_memory_calls()};
}

static inline void expect_calls(const struct calls *before, uint64_t reserve, uint64_t create, uint64_t map,
                                uint64_t access)
{
    struct calls now = calls_now();
    assert_int_equal(now.reserve - before->reserve, reserve);
    assert_int_equal(now.create - before->create, create);
    assert_int_equal(now.map - before->map, map);
    assert_int_equal(now.access - before->access, access);
    assert_int_equal(now.memory - before->memory, reserve + create + map + access);
}

/* Every granule-sized step of a block, and its last byte, is mapped, open to the device, and no two lie at
 * one physical byte. */
static inline void expect_sound(CUdeviceptr block, uint64_t size)
{
    enum { STEP = 256 * 1024 };
    for (uint64_t at = 0; at < size; at += STEP) {
        assert_true(sim_accessible(block + at, 0));
        for (uint64_t other = 0; other < at; other += STEP)
            assert_false(handle_of(block + at) == handle_of(block + other) &&
                         offset_of(block + at) == offset_of(block + other));
    }
    assert_true(sim_accessible(block + size - 1, 0));
}

#endif
