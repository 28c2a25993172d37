/* SPDX-License-Identifier: Apache-2.0 */
/* Several devices, and devices that offer less than they say: streams of one device at work on another's
 * memory, contexts of threads, peers on every mapping, plain segments where virtual memory management is
 * missing, refused or not all there. */
#include "tests/support/fixture.h"
#include <pthread.h>
#include <string.h>

/* ---- streams of another device ---- */

/* A driver refuses to record an event on a stream of another context; the simulated one does not tell them
 * apart, so that this table in front of it does. */
static struct {
    struct sm_driver real;
    struct {
        CUevent event;
        CUcontext context;
    } events[16];
    unsigned count, mixed;
} contexts;

static CUresult event_create(CUevent *event, unsigned flags)
{
    CUresult code = contexts.real.cuEventCreate(event, flags);
    assert_true(contexts.count < 16);
    contexts.events[contexts.count].event = *event;
    contexts.real.cuCtxPopCurrent(&contexts.events[contexts.count].context);
    contexts.real.cuCtxPushCurrent(contexts.events[contexts.count++].context);
    return code;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    CUcontext of_stream = NULL;
    contexts.real.cuStreamGetCtx(stream, &of_stream);
    for (unsigned i = 0; i < contexts.count; i++)
        if (contexts.events[i].event == event && contexts.events[i].context != of_stream) {
            contexts.mixed++;
            return CUDA_ERROR_INVALID_HANDLE;
        }
    return contexts.real.cuEventRecord(event, stream);
}

static void open_two(struct fixture *f, const char *options)
{
    fixture_init(f);
    f->sim.devices = 2;
    f->sim.streams = SIM_STREAMS_LAG;
    f->sim.lag = 1u << 30;
    fixture_open(f, options);
    contexts.real = f->driver;
    contexts.count = contexts.mixed = 0;
    f->driver.cuEventCreate = event_create;
    f->driver.cuEventRecord = event_record;
    fixture_device(f, 0);
}

static CUstream stream_of(struct fixture *f, int device)
{
    assert_int_equal(cuCtxPushCurrent(f->contexts[device]), CUDA_SUCCESS);
    CUstream stream = fixture_stream();
    CUcontext popped;
    assert_int_equal(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    return stream;
}

static void another_devices_stream_is_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    open_two(&f, "");
    CUstream own = fixture_stream(), foreign = stream_of(&f, 1);
    for (int round = 0; round < 3; round++) {
        CUdeviceptr x = fixture_alloc(&f, 8 * MIB, own);
        fixture_use(&f, x, foreign);
        fixture_work(foreign, x, 512);
        fixture_free(&f, x);
        CUdeviceptr y = fixture_alloc(&f, 8 * MIB, own);
        assert_int_not_equal(y, x);
        assert_int_equal(fixture_level(&f, SM_LEVEL_active_bytes), 16 * MIB);
        assert_int_equal(sim_stream_run(foreign), CUDA_SUCCESS);
        CUdeviceptr z = fixture_alloc(&f, 8 * MIB, own);
        assert_int_equal(z, x);
        fixture_free(&f, y);
        fixture_free(&f, z);
    }
    assert_int_equal(contexts.mixed, 0);
    assert_int_equal(contexts.count, 1); /* one event is enough, again and again */
    fixture_close(&f);
}

/* The whole ladder ends with a wait for this device: it says nothing about the other one's work. */
static void a_wait_for_the_device_does_not_answer_for_another(void **state)
{
    (void)state;
    struct fixture f;
    open_two(&f, "");
    CUstream own = fixture_stream(), foreign = stream_of(&f, 1);
    CUdeviceptr x = fixture_alloc(&f, 600 * MIB, own);
    fixture_use(&f, x, foreign);
    fixture_work(foreign, x, 512);
    assert_true(sim_fail("cuEventRecord", 1, true, CUDA_ERROR_UNKNOWN));
    fixture_free(&f, x);
    CUdeviceptr y = fixture_alloc(&f, 600 * MIB, own); /* waited for on the other device, at last */
    assert_int_equal(sim_stream_pending(foreign), 0);
    sim_fail_clear();
    fixture_free(&f, y);
    fixture_close(&f);
}

static void a_foreign_stream_that_is_gone(void **state)
{
    (void)state;
    struct fixture f;
    open_two(&f, "");
    CUstream own = fixture_stream(), foreign = stream_of(&f, 1);
    CUdeviceptr x = fixture_alloc(&f, 8 * MIB, own);
    fixture_use(&f, x, foreign);
    fixture_work(foreign, x, 512);
    assert_int_equal(cuStreamDestroy(foreign), CUDA_SUCCESS);
    assert_int_equal(sm_pool_free(f.device, x), SEAM_OK);
    sm_reclaim_trim(f.device);
    assert_int_equal(fixture_level(&f, SM_LEVEL_active_bytes), 0);
    assert_int_equal(sim_physical_bytes(0), 0);
    sm_allocator_destroy(f.allocator);
}

/* ---- threads and contexts ---- */

struct visit {
    struct fixture *f;
    CUcontext before, after;
    bool served;
};

static void *other_thread(void *argument)
{
    struct visit *visit = argument;
    struct sm_error error;
    if (visit->before)
        cuCtxSetCurrent(visit->before);
    uint64_t block = sm_pool_alloc(visit->f->device, 70 * MIB, NULL, &error);
    visit->served = block && sm_pool_free(visit->f->device, block) == SEAM_OK;
    sm_reclaim_trim(visit->f->device);
    cuCtxGetCurrent(&visit->after);
    return NULL;
}

static void the_context_of_a_thread_stays(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.devices = 2;
    fixture_open(&f, "");
    fixture_device(&f, 0);
    for (int i = 0; i < 2; i++) { /* none, and that of another device */
        struct visit visit = {.f = &f, .before = i ? f.contexts[1] : NULL, .after = (CUcontext)1};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, other_thread, &visit), 0);
        pthread_join(thread, NULL);
        assert_true(visit.served);
        assert_ptr_equal(visit.after, visit.before);
    }
    assert_int_equal(sim_physical_bytes(1), 0);
    fixture_close(&f);
}

/* ---- peers ---- */

/* A view is a second set of mappings: they are the peers' too. */
static void peers_reach_views(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr block[7];
    fixture_init(&f);
    f.sim.devices = 3;
    fixture_open(&f, "slack_permille:0,small_limit_kib:0");
    for (int i = 0; i < 7; i++)
        block[i] = fixture_alloc(&f, 8 * MIB, NULL);
    for (int i = 0; i < 7; i += 2)
        fixture_free(&f, block[i]);
    CUdeviceptr joined = fixture_alloc(&f, 32 * MIB, NULL);
    assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
    for (uint64_t at = 0; at < 32 * MIB; at += 2 * MIB)
        for (int device = 0; device < 3; device++)
            assert_true(sim_accessible(joined + at, device));
    fixture_close(&f);
}

static struct sm_driver behind;

static CUresult one_device_alone(CUdeviceptr address, size_t size, const CUmemAccessDesc *access,
                                 size_t count)
{
    return count > 1 ? CUDA_ERROR_INVALID_VALUE : behind.cuMemSetAccess(address, size, access, count);
}

/* Drivers are known that take access for one device and refuse it for several. */
static void a_driver_that_refuses_peers(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.devices = 2;
    fixture_open(&f, "");
    behind = f.driver;
    f.driver.cuMemSetAccess = one_device_alone;
    CUdeviceptr a = fixture_alloc(&f, 40 * MIB, NULL);
    assert_int_equal(f.device->access_count, 1);
    assert_int_equal(f.device->options.policy, SM_POLICY_STITCH);
    assert_true(sim_accessible(a, 0) && !sim_accessible(a, 1));
    fixture_close(&f);
}

/* A refused grant takes the growth back whole; what peers had they keep. */
static void a_refused_grant_takes_nothing_from_peers(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.devices = 2;
    fixture_open(&f, "");
    CUdeviceptr a = fixture_alloc(&f, 20 * MIB, NULL);
    assert_true(sim_fail("cuMemSetAccess", 1, false, CUDA_ERROR_UNKNOWN));
    fixture_refuse(&f, 200 * MIB, NULL, SEAM_E_DEVICE);
    assert_true(sim_accessible(a, 0) && sim_accessible(a, 1));
    CUdeviceptr b = fixture_alloc(&f, 200 * MIB, NULL);
    for (uint64_t at = 0; at < 200 * MIB; at += 2 * MIB)
        assert_true(sim_accessible(b + at, 0) && sim_accessible(b + at, 1));
    fixture_close(&f);
}

/* ---- less than they say ---- */

/* What a device refuses while it is set up, whatever its attributes say. */
static void each_refused_call_means_plain_segments(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
                                        "cuMemGetAllocationGranularity"};
    static const char *const policies[] = {"", "policy:expandable", "max_split_size_mb:32"};
    for (size_t call = 0; call < sizeof(calls) / sizeof(calls[0]); call++)
        for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); p++) {
            struct fixture f;
            fixture_init(&f);
            f.sim.devices = 2;
            fixture_open(&f, policies[p]);
            assert_true(sim_fail(calls[call], 1, true, CUDA_ERROR_NOT_SUPPORTED));
            CUdeviceptr a = fixture_alloc(&f, 30 * MIB, NULL), b = fixture_alloc(&f, 512, NULL);
            assert_int_equal(f.device->options.policy, SM_POLICY_NATIVE);
            assert_int_equal(sim_calls("cuMemAlloc"), 2);
            fixture_free(&f, a);
            fixture_free(&f, b);
            fixture_trim(&f);
            assert_int_equal(sim_physical_bytes(0), 0);
            fixture_close(&f);
        }
}

static const char *missing;

static CUresult without_some(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    if (!strcmp(symbol, missing)) {
        *function = NULL;
        return CUDA_ERROR_NOT_FOUND;
    }
    return cuGetProcAddress(symbol, function, version, flags, status);
}

/* A driver without the functions at all. */
static void a_driver_without_the_functions(void **state)
{
    (void)state;
    static const char *const names[] = {"cuMemMap", "cuMemGetAccess", "cuMemAddressReserve"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f, "");
        missing = names[i];
        assert_int_equal(sm_driver_fill(&f.driver, without_some, &f.error), SEAM_OK);
        CUdeviceptr a = fixture_alloc(&f, 30 * MIB, NULL);
        assert_int_equal(sim_calls("cuMemAlloc"), 1);
        fixture_free(&f, a);
        fixture_close(&f);
    }
}

/* A full device cannot be tried: that is out of memory now, and no verdict for later. */
static void a_full_device_is_tried_again(void **state)
{
    (void)state;
    struct fixture f;
    struct sm_device *device = NULL;
    fixture_init(&f);
    f.sim.tenant_bytes = GIB;
    fixture_open(&f, "");
    assert_int_equal(sm_allocator_device(f.allocator, 0, &device, &f.error), SEAM_E_DEVICE_OOM);
    assert_non_null(strstr(f.error.text, "full"));
    assert_true(sim_tenant(0, -(int64_t)(512 * MIB)));
    fixture_alloc(&f, 100 * MIB, NULL);
    assert_int_equal(f.device->options.policy, SM_POLICY_STITCH);
    fixture_close(&f);
}

/* What the trial could not give back goes back later. */
static void a_trial_that_could_not_be_taken_back(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuMemUnmap", "cuMemRelease", "cuMemAddressFree"};
    for (size_t call = 0; call < sizeof(calls) / sizeof(calls[0]); call++) {
        struct fixture f;
        struct sim_live live;
        fixture_init(&f);
        fixture_open(&f, "");
        assert_true(sim_fail(calls[call], 1, false, CUDA_ERROR_UNKNOWN));
        CUdeviceptr a = fixture_alloc(&f, 30 * MIB, NULL);
        sim_live(&live);
        assert_int_equal(live.reservations, 1);
        fixture_free(&f, a);
        fixture_trim(&f);
        sim_live(&live);
        assert_int_equal(live.reservations + live.handles + live.mappings, 0);
        fixture_close(&f);
    }
}

/* Drivers that take one mapping away at a time, that keep released memory as long as its addresses are
 * reserved, or that refuse wished addresses: growth, a stitch and a trim go on as on any other. */
static void drivers_that_do_otherwise(void **state)
{
    (void)state;
    for (unsigned ways = 0; ways < 8; ways++) {
        struct fixture f;
        CUdeviceptr blocks[12];
        fixture_init(&f);
        f.sim.unmap_several = ways & 1;
        f.sim.release_keeps = ways & 2;
        f.sim.hints_refused = ways & 4;
        fixture_open(&f, "handle_mib:2,slack_permille:0");
        for (unsigned i = 0; i < 12; i++)
            blocks[i] = fixture_alloc(&f, 40 * MIB, NULL);
        for (unsigned i = 0; i < 12; i += 2)
            fixture_free(&f, blocks[i]);
        CUdeviceptr large = fixture_alloc(&f, 200 * MIB, NULL);
        assert_int_equal(fixture_count(&f, SM_COUNTER_stitches), 1);
        fixture_check(&f);
        fixture_free(&f, large);
        if (!f.sim.release_keeps) /* there the device keeps more than is still mapped */
            fixture_trim(&f);
        for (unsigned i = 1; i < 12; i += 2)
            fixture_free(&f, blocks[i]);
        fixture_trim(&f); /* addresses too */
        assert_int_equal(sim_physical_bytes(0), 0);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_devices_stream_is_waited_for),
        cmocka_unit_test(a_wait_for_the_device_does_not_answer_for_another),
        cmocka_unit_test(a_foreign_stream_that_is_gone),
        cmocka_unit_test(the_context_of_a_thread_stays),
        cmocka_unit_test(peers_reach_views),
        cmocka_unit_test(a_driver_that_refuses_peers),
        cmocka_unit_test(a_refused_grant_takes_nothing_from_peers),
        cmocka_unit_test(each_refused_call_means_plain_segments),
        cmocka_unit_test(a_driver_without_the_functions),
        cmocka_unit_test(a_full_device_is_tried_again),
        cmocka_unit_test(a_trial_that_could_not_be_taken_back),
        cmocka_unit_test(drivers_that_do_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
