/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: captures of several streams, threads and devices, captures that fail or that nobody ended, blocks
 * and uses that outlive theirs. In every test the capture itself must survive what the allocator does: the
 * device breaks it at the first query, wait or event that does not belong there. */
#include "tests/support/fixture.h"
#include <pthread.h>
#include <string.h>

static const seam_pool_id one = {1, 0}, two = {2, 0};

static void open_lagging(struct fixture *f, const char *options)
{
    fixture_init(f);
    f->sim.streams = SIM_STREAMS_LAG;
    f->sim.lag = 1u << 30;
    fixture_open(f, options);
    fixture_device(f, 0);
}

static void begin_pool(struct fixture *f, seam_pool_id id)
{
    if (sm_capture_begin(f->device, id, NULL, NULL, &f->error))
        fail_msg("%s", f->error.text);
}

static void end_pool(struct fixture *f, seam_pool_id id)
{
    if (sm_capture_end(f->device, id, &f->error))
        fail_msg("%s", f->error.text);
    fixture_check(f);
}

static void release_pool(struct fixture *f, seam_pool_id id)
{
    if (sm_capture_release(f->device, id, &f->error))
        fail_msg("%s", f->error.text);
    fixture_check(f);
}

static void start(CUstream stream)
{
    assert_int_equal(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
}

/* The capture is whole. */
static void finish(CUstream stream)
{
    CUgraph graph = NULL;
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
}

/* As a program breaks its own capture. */
static void break_capture(CUstream stream)
{
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* The device notes the program's own mistake; what comes after has to be without one. */
static void forgive(struct fixture *f)
{
    (void)f;
    struct sim_violation v;
    assert_int_equal(sim_violation_count(), 1);
    assert_true(sim_violation(0, &v) && !strcmp(v.call, "cuStreamSynchronize"));
}

static seam_pool_id pool_of(struct fixture *f, CUdeviceptr block)
{
    const struct sm_home_key *key = &sm_pool_block_of(f->device, block)->extent->home->key;
    return (seam_pool_id){key->pool_first, key->pool_second};
}

static bool is_in(struct fixture *f, CUdeviceptr block, seam_pool_id id)
{
    seam_pool_id found = pool_of(f, block);
    return found.first == id.first && found.second == id.second;
}

/* Bytes of the device: without the books, which a broken rule of the program's own would fail. */
static CUdeviceptr take(struct fixture *f, uint64_t size, CUstream stream)
{
    CUdeviceptr block = sm_pool_alloc(f->device, size, stream, &f->error);
    if (!block)
        fail_msg("%s", f->error.text);
    if (sm_allocator_validate(f->allocator, &f->error))
        fail_msg("%s", f->error.text);
    return block;
}

static void drop(struct fixture *f, CUdeviceptr block)
{
    assert_int_equal(sm_pool_free(f->device, block), SEAM_OK);
    if (sm_allocator_validate(f->allocator, &f->error))
        fail_msg("%s", f->error.text);
}

/* ---- several streams ---- */

/* A capture spreads to other streams: their requests are of its pool too, and no other capture's. */
static void a_capture_of_two_streams(void **state)
{
    (void)state;
    struct fixture f;
    CUevent event;
    open_lagging(&f, "");
    CUstream s = fixture_stream(), t = fixture_stream();
    assert_int_equal(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    begin_pool(&f, one);
    start(s);
    CUdeviceptr a = take(&f, MIB, s);
    assert_int_equal(cuEventRecord(event, s), CUDA_SUCCESS);
    assert_int_equal(cuStreamWaitEvent(t, event, 0), CUDA_SUCCESS);
    CUdeviceptr b = take(&f, MIB, t);
    assert_true(is_in(&f, a, one) && is_in(&f, b, one));
    /* Used by the other stream of the capture: free only once the capture is over, not asked for before. */
    assert_int_equal(sm_pool_record_stream(f.device, a, t, &f.error), SEAM_OK);
    drop(&f, a);
    assert_int_not_equal(take(&f, MIB, s), a);
    assert_int_equal(cuEventRecord(event, t), CUDA_SUCCESS);
    assert_int_equal(cuStreamWaitEvent(s, event, 0), CUDA_SUCCESS);
    finish(s);
    assert_int_equal(cuEventDestroy(event), CUDA_SUCCESS);
    end_pool(&f, one); /* an event is recorded now, for what waited */
    assert_int_equal(sim_stream_run(t), CUDA_SUCCESS);
    begin_pool(&f, one);
    start(s);
    assert_int_equal(take(&f, MIB, s), a);
    assert_int_equal(f.device->pending, 0);
    finish(s);
    end_pool(&f, one);
    fixture_close(&f);
}

/* A block of the default pool whose user is being captured: no event may be recorded on that stream, whoever
 * frees and asks, and however the capture is known. */
static void a_use_by_a_captured_stream(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        struct fixture f;
        open_lagging(&f, "");
        CUstream s = fixture_stream(), t = fixture_stream();
        CUdeviceptr x = take(&f, 8 * MIB, t);
        if (known)
            begin_pool(&f, one);
        start(s);
        if (known)
            take(&f, MIB, s);
        assert_int_equal(sm_pool_record_stream(f.device, x, s, &f.error), SEAM_OK);
        drop(&f, x);
        for (int i = 0; i < 4; i++)
            assert_int_not_equal(take(&f, 8 * MIB, t), x);
        sm_reclaim_trim(f.device);
        assert_int_equal(
            fixture_level(&f, SM_LEVEL_active_bytes) - fixture_level(&f, SM_LEVEL_allocated_bytes), 8 * MIB);
        finish(s);
        if (known)
            end_pool(&f, one);
        sm_reclaim_trim(f.device);
        assert_int_equal(f.device->pending, 0);
        fixture_close(&f);
    }
}

/* ---- captures that are not seen, or not ended ---- */

static void *want_all(void *argument)
{
    struct fixture *f = argument;
    struct sm_error error;
    CUcontext context = f->contexts[0];
    cuCtxSetCurrent(context);
    return (void *)(uintptr_t)sm_pool_alloc(f->device, 900 * MIB, NULL, &error);
}

/* A capture has begun and has asked for nothing yet; another thread runs out of memory, up to the wait for
 * the whole device. */
static void shortage_beside_a_capture_that_nobody_saw(void **state)
{
    (void)state;
    struct fixture f;
    pthread_t thread;
    void *block = &f;
    open_lagging(&f, "");
    CUstream s = fixture_stream(), t = fixture_stream(), u = fixture_stream();
    CUdeviceptr x = take(&f, 400 * MIB, t);
    assert_int_equal(sm_pool_record_stream(f.device, x, u, &f.error), SEAM_OK);
    fixture_work(u, x, 512);
    begin_pool(&f, one);
    start(s);
    assert_true(sim_fail("cuEventRecord", 1, true, CUDA_ERROR_UNKNOWN));
    drop(&f, x); /* without an event: only a wait for the device can pass it */
    assert_int_equal(pthread_create(&thread, NULL, want_all, &f), 0);
    pthread_join(thread, &block);
    assert_null(block);
    finish(s);
    end_pool(&f, one);
    release_pool(&f, one);
    CUdeviceptr y = take(&f, 900 * MIB, t);
    sim_fail_clear();
    drop(&f, y);
    fixture_close(&f);
}

/* A capture that its program breaks; the end of its pool is never told. Nothing hangs on it afterwards: other
 * requests are not the pool's, memory that waits comes back, trims work, the pool can be filled again. */
static void a_capture_that_nobody_ended(void **state)
{
    (void)state;
    CUgraph graph = NULL;
    struct fixture f;
    open_lagging(&f, "");
    CUstream s = fixture_stream(), t = fixture_stream();
    CUdeviceptr x = take(&f, 8 * MIB, t);
    begin_pool(&f, one);
    start(s);
    CUdeviceptr a = take(&f, 8 * MIB, s);
    assert_int_equal(sm_pool_record_stream(f.device, x, s, &f.error), SEAM_OK);
    drop(&f, x);
    break_capture(s);
    assert_true(sm_capture_running(f.device)); /* broken, and not ended yet */
    assert_int_not_equal(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    forgive(&f);
    assert_false(sm_capture_running(f.device));
    CUdeviceptr y = take(&f, 8 * MIB, t); /* an event is recorded now */
    assert_int_equal(sim_stream_run(s), CUDA_SUCCESS);
    assert_int_equal(take(&f, 8 * MIB, t), x);
    assert_int_equal(f.device->pending, 0);
    drop(&f, x);
    drop(&f, y);
    CUdeviceptr b = take(&f, 8 * MIB, s);
    assert_true(is_in(&f, b, (seam_pool_id){0, 0}));
    drop(&f, b);
    drop(&f, a);
    sm_reclaim_trim(f.device);
    assert_int_equal(sim_physical_bytes(0), 8 * MIB); /* the pool's, as nobody said that it is over */
    begin_pool(&f, one);                              /* this thread begins it again: so it is */
    start(s);
    assert_int_equal(take(&f, 8 * MIB, s), a);
    drop(&f, a);
    finish(s);
    assert_int_equal(sm_capture_end(f.device, one, &f.error), SEAM_OK);
    assert_int_equal(sm_capture_release(f.device, one, &f.error), SEAM_OK);
    assert_int_equal(sm_capture_release(f.device, one, &f.error), SEAM_E_STATE); /* one use, not two */
    sm_reclaim_trim(f.device);
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_true(LIST_EMPTY(&f.device->pools));
    sm_allocator_destroy(f.allocator);
}

/* The same, where the pool's end is told: after that a trim leaves nothing. */
static void a_broken_capture_leaves_no_pool(void **state)
{
    (void)state;
    CUgraph graph = NULL;
    struct fixture f;
    open_lagging(&f, "");
    CUstream s = fixture_stream();
    begin_pool(&f, one);
    start(s);
    CUdeviceptr a = take(&f, 8 * MIB, s);
    break_capture(s);
    CUdeviceptr b = take(&f, 8 * MIB, s); /* a request of a broken capture is served */
    assert_int_not_equal(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    forgive(&f);
    assert_int_equal(sm_capture_end(f.device, one, &f.error), SEAM_OK);
    assert_int_equal(sm_capture_release(f.device, one, &f.error), SEAM_OK);
    drop(&f, a);
    drop(&f, b);
    sm_reclaim_trim(f.device);
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_true(LIST_EMPTY(&f.device->pools));
    sm_allocator_destroy(f.allocator);
}

/* ---- graphs and their memory ---- */

static void memory_goes_with_the_last_graph_and_the_last_block(void **state)
{
    (void)state;
    struct fixture f;
    open_lagging(&f, "handle_mib:2,slack_permille:0");
    CUstream s = fixture_stream();
    CUdeviceptr out[2];
    for (int i = 0; i < 2; i++) { /* two graphs of one pool */
        begin_pool(&f, one);
        start(s);
        out[i] = take(&f, 8 * MIB, s);
        drop(&f, take(&f, 20 * MIB, s));
        finish(s);
        end_pool(&f, one);
    }
    assert_int_equal(sim_physical_bytes(0), 36 * MIB); /* the second graph used the first one's scratch */
    fixture_free(&f, out[0]);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 36 * MIB);
    release_pool(&f, one);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 36 * MIB); /* one graph may still replay all of it */
    release_pool(&f, one);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 8 * MIB); /* an output outlives its graph */
    assert_true(sim_accessible(out[1], 0) && sim_accessible(out[1] + 8 * MIB - 1, 0));
    fixture_free(&f, out[1]);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_true(LIST_EMPTY(&f.device->pools));
    fixture_close(&f);
}

/* Neither lent, nor joined, nor given back: whatever else is asked for while the graph lives. */
static void nobody_else_gets_a_graphs_memory(void **state)
{
    (void)state;
    struct fixture f;
    CUdeviceptr held[8];
    open_lagging(&f, "slack_permille:0,small_limit_kib:0");
    CUstream s = fixture_stream(), t = fixture_stream();
    for (int i = 0; i < 8; i++)
        held[i] = take(&f, 8 * MIB, t);
    begin_pool(&f, one);
    start(s);
    CUdeviceptr scratch = take(&f, 100 * MIB, s), wall = take(&f, 8 * MIB, s);
    drop(&f, scratch);
    for (int i = 0; i < 8; i += 2)
        drop(&f, held[i]);
    /* The captured stream's request takes nothing of the default pool's either. */
    CUdeviceptr inside = take(&f, 104 * MIB, s);
    assert_true(is_in(&f, inside, one));
    finish(s);
    end_pool(&f, one);
    CUdeviceptr large = take(&f, 108 * MIB, t), beside = take(&f, 32 * MIB, s);
    for (uint64_t at = 0; at < 104 * MIB; at += 2 * MIB) {
        uint64_t mine, other, offset;
        assert_true(sim_resolve(inside + at, &mine, &offset));
        for (uint64_t k = 0; k < 108 * MIB; k += 2 * MIB)
            assert_false(sim_resolve(large + k, &other, &offset) && other == mine);
        for (uint64_t k = 0; k < 32 * MIB; k += 2 * MIB)
            assert_false(sim_resolve(beside + k, &other, &offset) && other == mine);
    }
    fixture_trim(&f);
    assert_true(sim_accessible(scratch, 0) && sim_accessible(wall, 0));
    fixture_close(&f);
}

/* Growth in a pool is the default pool's: contiguous, no handle more than is missing. */
static void a_pool_grows_in_place(void **state)
{
    (void)state;
    static const char *const policies[] = {"slack_permille:0", "policy:expandable"};
    for (int p = 0; p < 2; p++) {
        struct fixture f;
        open_lagging(&f, policies[p]);
        begin_pool(&f, one);
        CUdeviceptr a = take(&f, 20 * MIB, NULL);
        drop(&f, a);
        CUdeviceptr b = take(&f, 60 * MIB, NULL);
        assert_int_equal(b, a);
        assert_int_equal(sim_physical_bytes(0), 60 * MIB);
        end_pool(&f, one);
        fixture_close(&f);
    }
}

/* ---- threads and devices ---- */

struct capturer {
    struct fixture *f;
    seam_pool_id id;
    pthread_barrier_t *together;
    bool right;
};

static void *capture_in_thread(void *argument)
{
    struct capturer *c = argument;
    struct sm_error error;
    CUgraph graph = NULL;
    CUstream s = NULL;
    bool right = true;
    cuCtxSetCurrent(c->f->contexts[0]);
    right &= cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    right &= sm_capture_begin(c->f->device, c->id, NULL, NULL, &error) == SEAM_OK;
    pthread_barrier_wait(c->together);
    right &= cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS;
    for (int i = 0; i < 200; i++) {
        uint64_t block = sm_pool_alloc(c->f->device, (uint64_t)(1 + i % 5) * MIB, s, &error);
        const struct sm_home_key *key = NULL;
        sm_lock_take(&c->f->device->heap_lock);
        struct sm_block *found = block ? sm_pool_block_of(c->f->device, block) : NULL;
        key = found ? &found->extent->home->key : NULL;
        right &= key && key->pool_first == c->id.first && key->pool_second == c->id.second;
        sm_lock_give(&c->f->device->heap_lock);
        right &= sm_pool_free(c->f->device, block) == SEAM_OK;
    }
    right &= cuStreamEndCapture(s, &graph) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS;
    pthread_barrier_wait(c->together);
    right &= sm_capture_end(c->f->device, c->id, &error) == SEAM_OK;
    right &= sm_capture_release(c->f->device, c->id, &error) == SEAM_OK;
    c->right = right;
    return NULL;
}

static void two_threads_capture_at_once(void **state)
{
    (void)state;
    struct fixture f;
    pthread_barrier_t together;
    pthread_t threads[2];
    open_lagging(&f, "");
    pthread_barrier_init(&together, NULL, 3);
    struct capturer c[2] = {{&f, one, &together, false}, {&f, two, &together, false}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, capture_in_thread, &c[i]), 0);
    pthread_barrier_wait(&together);
    /* A third thread's requests are nobody's but the default pool's. */
    for (int i = 0; i < 200; i++) {
        uint64_t block = sm_pool_alloc(f.device, 3 * MIB, NULL, &f.error);
        sm_lock_take(&f.device->heap_lock);
        const struct sm_home_key key = sm_pool_block_of(f.device, block)->extent->home->key;
        sm_lock_give(&f.device->heap_lock);
        assert_true(!key.pool_first && !key.pool_second);
        assert_int_equal(sm_pool_free(f.device, block), SEAM_OK);
    }
    pthread_barrier_wait(&together);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_true(c[i].right);
    }
    pthread_barrier_destroy(&together);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

static void *begin_second(void *argument)
{
    struct fixture *f = argument;
    struct sm_error error;
    return sm_capture_begin(f->device, two, NULL, NULL, &error) == SEAM_OK ? f : NULL;
}

/* A pool that another thread began later, and whose capture has not begun, takes nothing of this one. */
static void a_capture_stays_with_its_pool(void **state)
{
    (void)state;
    struct fixture f;
    pthread_t thread;
    void *begun = NULL;
    open_lagging(&f, "");
    CUstream s = fixture_stream();
    begin_pool(&f, one);
    assert_int_equal(pthread_create(&thread, NULL, begin_second, &f), 0);
    pthread_join(thread, &begun);
    assert_non_null(begun);
    start(s);
    for (int i = 0; i < 3; i++)
        assert_true(is_in(&f, take(&f, MIB, s), one));
    finish(s);
    end_pool(&f, one);
    end_pool(&f, two);
    fixture_close(&f);
}

struct stranger {
    struct fixture *f;
    CUstream stream;
    struct sm_error error;
    uint64_t block;
};

static void *ask_as_stranger(void *argument)
{
    struct stranger *stranger = argument;
    stranger->block = sm_pool_alloc(stranger->f->device, MIB, stranger->stream, &stranger->error);
    return NULL;
}

/* Two pools are being filled, and a thread that began neither captures: nothing says whose it is. */
static void a_capture_that_could_be_anybodys_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    pthread_t thread;
    open_lagging(&f, "");
    struct stranger stranger = {.f = &f, .stream = fixture_stream()};
    begin_pool(&f, one);
    begin_pool(&f, two);
    start(stranger.stream);
    assert_int_equal(pthread_create(&thread, NULL, ask_as_stranger, &stranger), 0);
    pthread_join(thread, NULL);
    assert_int_equal(stranger.block, 0);
    assert_int_equal(stranger.error.code, SEAM_E_STATE);
    assert_non_null(strstr(stranger.error.text, "several pools"));
    finish(stranger.stream);
    end_pool(&f, two);
    end_pool(&f, one);
    fixture_close(&f);
}

/* One id on two devices is two pools: uses, memory and ends are apart. */
static void a_pool_is_of_one_device(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.devices = 2;
    fixture_open(&f, "");
    struct sm_device *first = fixture_device(&f, 0), *second = fixture_device(&f, 1);
    f.device = first;
    begin_pool(&f, one);
    CUdeviceptr b = sm_pool_alloc(second, MIB, NULL, &f.error);
    sm_lock_take(&second->heap_lock);
    assert_int_equal(sm_pool_block_of(second, b)->extent->home->key.pool_first, 0);
    sm_lock_give(&second->heap_lock);
    assert_int_equal(sm_capture_end(second, one, &f.error), SEAM_E_STATE);
    assert_int_equal(sm_capture_release(second, one, &f.error), SEAM_E_STATE);
    assert_int_equal(sm_capture_begin(second, one, NULL, NULL, &f.error), SEAM_OK);
    end_pool(&f, one);
    release_pool(&f, one);
    assert_int_equal(sm_capture_end(second, one, &f.error), SEAM_OK);
    assert_int_equal(sm_capture_release(second, one, &f.error), SEAM_OK);
    assert_true(LIST_EMPTY(&first->pools) && LIST_EMPTY(&second->pools));
    fixture_close(&f);
}

/* With a split limit, native takes ranges of the request's own home before it fails: not of a pool whose
 * addresses a graph replays. */
static void a_split_limit_spares_a_graphs_memory(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sim.device_bytes = 200 * MIB;
    fixture_open(&f, "policy:native,max_split_size_mb:40");
    fixture_device(&f, 0);
    CUstream s = fixture_stream();
    begin_pool(&f, one);
    start(s);
    CUdeviceptr a = take(&f, 90 * MIB, s);
    finish(s);
    end_pool(&f, one);
    drop(&f, a);
    CUdeviceptr other = take(&f, 80 * MIB, NULL);
    begin_pool(&f, one);
    fixture_refuse(&f, 100 * MIB, s, SEAM_E_DEVICE_OOM);
    end_pool(&f, one);
    assert_true(sim_accessible(a, 0));
    drop(&f, other);
    release_pool(&f, one);
    release_pool(&f, one);
    fixture_trim(&f);
    assert_int_equal(sim_physical_bytes(0), 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_of_two_streams),
        cmocka_unit_test(a_use_by_a_captured_stream),
        cmocka_unit_test(shortage_beside_a_capture_that_nobody_saw),
        cmocka_unit_test(a_capture_that_nobody_ended),
        cmocka_unit_test(a_broken_capture_leaves_no_pool),
        cmocka_unit_test(memory_goes_with_the_last_graph_and_the_last_block),
        cmocka_unit_test(nobody_else_gets_a_graphs_memory),
        cmocka_unit_test(a_pool_grows_in_place),
        cmocka_unit_test(a_capture_stays_with_its_pool),
        cmocka_unit_test(two_threads_capture_at_once),
        cmocka_unit_test(a_capture_that_could_be_anybodys_is_refused),
        cmocka_unit_test(a_pool_is_of_one_device),
        cmocka_unit_test(a_split_limit_spares_a_graphs_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
