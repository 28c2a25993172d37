/* SPDX-License-Identifier: Apache-2.0 */
/* fixture: see fixture.h. */
#include "tests/support/fixture.h"
#include "base/log.h"
#include <string.h>

static void require(CUresult code, const char *call)
{
    if (code != CUDA_SUCCESS)
        fail_msg("%s: %d", call, (int)code);
}

void fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    sim_config_default(&f->sim);
    f->sim.device_bytes = GIB;
    f->sim.backed = false;
    f->sim.stuck_ms = 2000;
    sm_options_defaults(&f->options);
    f->options.patience_ms = 0; /* a stream that a test holds does not come free by waiting */
}

void fixture_open(struct fixture *f, const char *options)
{
    assert_true(sim_start(&f->sim));
    for (int i = f->sim.devices; i-- > 0;) {
        require(cuDevicePrimaryCtxRetain(&f->contexts[i], i), "cuDevicePrimaryCtxRetain");
        require(cuCtxSetCurrent(f->contexts[i]), "cuCtxSetCurrent");
    }
    if (sm_options_parse(&f->options, "test", options, &f->error))
        fail_msg("%s", f->error.text);
    f->check_failures = sm_check_failures();
    f->host_bytes = sm_hostmem_bytes();
    if (sm_driver_fill(&f->driver, cuGetProcAddress, &f->error) ||
        sm_allocator_create(&f->driver, &f->options, &f->allocator, &f->error))
        fail_msg("%s", f->error.text);
}

static void check_violations(void)
{
    struct sim_violation v;
    if (sim_violation_count() && sim_violation(0, &v))
        fail_msg("%zu broken rules, the first: %s in %s at %#lx+%#lx: %s", sim_violation_count(), v.rule,
                 v.call, v.base, v.size, v.text);
}

/* The statistics of all devices together against the device's record. */
static void check_record(struct fixture *f)
{
    struct sim_live live;
    int64_t handles = 0, mappings = 0, addresses = 0, events = 0;
    for (int i = 0; i < f->sim.devices; i++) {
        struct sm_device *device = sm_allocator_seen(f->allocator, i);
        if (!device)
            continue;
        assert_int_equal(sm_stats_level(device->stats, SM_LEVEL_reserved_bytes, SM_KIND_ALL)->current,
                         sim_physical_bytes(i));
        handles += sm_stats_level(device->stats, SM_LEVEL_handles, SM_KIND_ALL)->current;
        mappings += sm_stats_level(device->stats, SM_LEVEL_mappings, SM_KIND_ALL)->current;
        addresses += sm_stats_level(device->stats, SM_LEVEL_reserved_address_bytes, SM_KIND_ALL)->current;
        events += sm_stats_level(device->stats, SM_LEVEL_events, SM_KIND_ALL)->current;
    }
    sim_live(&live);
    assert_int_equal(handles, live.handles);
    assert_int_equal(mappings, live.mappings);
    assert_int_equal(addresses, live.reserved_bytes);
    assert_int_equal(events, live.events);
    assert_int_equal(atomic_load(&f->allocator->address_bytes), live.reserved_bytes);
}

void fixture_check(struct fixture *f)
{
    CUcontext current = NULL;
    if (sm_allocator_validate(f->allocator, &f->error))
        fail_msg("%s", f->error.text);
    check_record(f);
    check_violations();
    assert_int_equal(sm_check_failures(), f->check_failures);
    require(cuCtxGetCurrent(&current), "cuCtxGetCurrent");
    assert_ptr_equal(current, f->contexts[0]);
}

void fixture_close(struct fixture *f)
{
    struct sim_live live;
    fixture_check(f);
    sm_allocator_destroy(f->allocator);
    sm_driver_close(&f->driver);
    sim_live(&live);
    assert_int_equal(live.handles, 0);
    assert_int_equal(live.mappings, 0);
    assert_int_equal(live.reservations, 0);
    assert_int_equal(live.allocations, 0);
    assert_int_equal(live.events, 0);
    for (int i = 0; i < f->sim.devices; i++)
        assert_int_equal(sim_physical_bytes(i), 0);
    check_violations();
    assert_int_equal(sm_check_failures(), f->check_failures);
    assert_int_equal(sm_hostmem_bytes(), f->host_bytes);
}

struct sm_device *fixture_device(struct fixture *f, int ordinal)
{
    struct sm_device *device = NULL;
    if (sm_allocator_device(f->allocator, ordinal, &device, &f->error))
        fail_msg("%s", f->error.text);
    if (ordinal == 0)
        f->device = device;
    return device;
}

CUstream fixture_stream(void)
{
    CUstream stream = NULL;
    require(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
}

CUdeviceptr fixture_alloc(struct fixture *f, uint64_t size, CUstream stream)
{
    uint64_t block = sm_pool_alloc(fixture_device(f, 0), size, stream, &f->error);
    if (!block)
        fail_msg("%lu bytes were refused: %s", size, f->error.text);
    assert_int_equal(block % 512, 0);
    assert_true(sim_accessible(block, 0) && sim_accessible(block + size - 1, 0));
    fixture_check(f);
    return block;
}

void fixture_refuse(struct fixture *f, uint64_t size, CUstream stream, seam_result code)
{
    memset(&f->error, 0, sizeof(f->error));
    uint64_t block = sm_pool_alloc(fixture_device(f, 0), size, stream, &f->error);
    if (block)
        fail_msg("%lu bytes were served, a refusal was expected", size);
    if (f->error.code != code)
        fail_msg("%s was expected: %s", sm_result_name(code), f->error.text);
    assert_true(f->error.text[0] != 0);
    fixture_check(f);
}

void fixture_free(struct fixture *f, CUdeviceptr block)
{
    assert_int_equal(sm_pool_free(f->device, block), SEAM_OK);
    fixture_check(f);
}

void fixture_use(struct fixture *f, CUdeviceptr block, CUstream stream)
{
    if (sm_pool_record_stream(f->device, block, stream, &f->error))
        fail_msg("%s", f->error.text);
    fixture_check(f);
}

void fixture_work(CUstream stream, CUdeviceptr block, uint64_t size)
{
    require(sim_stream_work(stream, block, size, 1000), "sim_stream_work");
}

void fixture_trim(struct fixture *f)
{
    sm_reclaim_trim(f->device);
    fixture_check(f);
}

int64_t fixture_level(struct fixture *f, enum sm_level_id level)
{
    return sm_stats_level(f->device->stats, level, SM_KIND_ALL)->current;
}

uint64_t fixture_count(struct fixture *f, enum sm_counter_id counter)
{
    return sm_stats_counter(f->device->stats, counter);
}

uint64_t fixture_memory_calls(void)
{
    static const char *const names[] = {"cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate",
                                        "cuMemRelease",        "cuMemMap",         "cuMemUnmap",
                                        "cuMemSetAccess"};
    uint64_t calls = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        calls += sim_calls(names[i]);
    return calls;
}
