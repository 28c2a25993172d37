/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator on a device that is broken: work of the program has faulted, and every call answers the same
 * error from then on. Frees go through, what is cached is still handed out, a miss is refused with the
 * error's name, the books stay true, and the end leaves the host with everything back. */
#include "base/log.h"
#include "tests/support/fixture.h"
#include <string.h>

enum { BLOCKS = 8 };

static const char *const policies[] = {"policy:stitch", "policy:native", "policy:expandable"};

struct scene {
    struct fixture f;
    CUstream stream, side;
    CUdeviceptr blocks[BLOCKS];
};

static void open_scene(struct scene *s, const char *policy, enum sim_streams streams)
{
    fixture_init(&s->f);
    s->f.sim.streams = streams;
    fixture_open(&s->f, policy);
    s->stream = fixture_stream();
    s->side = fixture_stream();
    for (unsigned i = 0; i < BLOCKS; i++)
        s->blocks[i] = fixture_alloc(&s->f, (i + 1) * 3 * MIB, s->stream);
}

/* The next fill of a block faults on the device. */
static void break_device(const struct scene *s)
{
    assert_true(sim_fail_text("cuMemsetD8Async:1:fault=CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_int_equal(cuMemsetD8Async(s->blocks[0], 0, 64, s->side), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(s->side), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void refuse_miss(struct scene *s)
{
    fixture_refuse(&s->f, 512 * MIB, s->stream, SEAM_E_DEVICE);
    if (!strstr(s->f.error.text, "CUDA_ERROR_ILLEGAL_ADDRESS"))
        fail_msg("the error is not named: %s", s->f.error.text);
}

/* Nothing of the device can be given back, everything of the host must be. */
static void close_scene(struct scene *s)
{
    fixture_check(&s->f);
    sm_allocator_destroy(s->f.allocator);
    sm_driver_close(&s->f.driver);
    assert_int_equal(sm_check_failures(), s->f.check_failures);
    assert_int_equal(sm_hostmem_bytes(), s->f.host_bytes);
    assert_int_equal(sim_violation_count(), 0);
}

static void run_scene(const char *policy, bool record)
{
    struct scene s = {0};
    open_scene(&s, policy, SIM_STREAMS_IMMEDIATE);
    int64_t allocated = fixture_level(&s.f, SM_LEVEL_allocated_bytes);
    if (record)
        for (unsigned i = 0; i < BLOCKS; i++)
            fixture_use(&s.f, s.blocks[i], s.side);
    break_device(&s);
    fixture_check(&s.f);
    refuse_miss(&s);
    assert_int_equal(fixture_level(&s.f, SM_LEVEL_allocated_bytes), allocated); /* the refusal took nothing */
    for (unsigned i = 0; i < BLOCKS; i++)
        fixture_free(&s.f, s.blocks[i]);
    assert_int_equal(fixture_level(&s.f, SM_LEVEL_allocated_bytes), 0);
    refuse_miss(&s);
    if (record) /* the other stream's work on it may not have ended */
        fixture_refuse(&s.f, BLOCKS * 3 * MIB, s.stream, SEAM_E_DEVICE);
    sm_reclaim_trim(s.f.device); /* gives nothing back, and harms nothing */
    fixture_check(&s.f);
    if (!record) { /* what is cached needs no device */
        fixture_free(&s.f, fixture_alloc(&s.f, 3 * MIB, s.stream));
        fixture_free(&s.f, fixture_alloc(&s.f, 6 * MIB, s.stream));
    }
    close_scene(&s);
}

static void test_frees_and_misses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
        run_scene(policies[i], false);
}

/* Blocks that another stream used cannot be asked about any more. They are not handed out again. */
static void test_blocks_in_use_elsewhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
        run_scene(policies[i], true);
}

/* Blocks already wait for another stream when the device breaks: the wait never ends, and hands out nothing.
 */
static void test_blocks_that_wait(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        struct scene s = {0};
        open_scene(&s, policies[i], SIM_STREAMS_LATE);
        for (unsigned k = 0; k < BLOCKS; k++) {
            fixture_use(&s.f, s.blocks[k], s.side);
            fixture_work(s.side, s.blocks[k], MIB);
        }
        for (unsigned k = 1; k < BLOCKS; k++)
            fixture_free(&s.f, s.blocks[k]);
        break_device(&s);
        fixture_check(&s.f);
        refuse_miss(&s);
        fixture_free(&s.f, s.blocks[0]);
        refuse_miss(&s);
        fixture_refuse(&s.f, BLOCKS * 3 * MIB, s.stream, SEAM_E_DEVICE);
        sm_reclaim_trim(s.f.device);
        close_scene(&s);
    }
}

/* A device that nothing was asked of yet cannot be set up, and says why. */
static void test_set_up(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr plain;
    fixture_init(&f);
    fixture_open(&f, "");
    assert_int_equal(cuMemAlloc(&plain, MIB), CUDA_SUCCESS);
    assert_true(sim_fail_text("cuMemsetD8Async:1:fault=CUDA_ERROR_LAUNCH_FAILED"));
    assert_int_equal(cuMemsetD8Async(plain, 0, 64, NULL), CUDA_SUCCESS);
    struct sm_device *device = NULL;
    seam_result result = sm_allocator_device(f.allocator, 0, &device, &f.error);
    if (!result) /* nothing of what it needs failed: the first miss does */
        assert_int_equal(sm_pool_alloc(device, MIB, NULL, &f.error), 0);
    assert_non_null(strstr(f.error.text, "CUDA_ERROR_LAUNCH_FAILED"));
    sm_allocator_destroy(f.allocator);
    sm_driver_close(&f.driver);
    assert_int_equal(sm_hostmem_bytes(), f.host_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frees_and_misses),
        cmocka_unit_test(test_blocks_in_use_elsewhere),
        cmocka_unit_test(test_blocks_that_wait),
        cmocka_unit_test(test_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
