/* SPDX-License-Identifier: Apache-2.0 */
/* Recording inside the allocator: each kind of event stands in the file, in order, with its numbers; a
 * recording that begins in the middle knows what lives; a hit takes no host memory; threads that free each
 * other's blocks leave a recording that is true; a process that is killed leaves what was written. */
#include "base/hostmem.h"
#include "sim/sim.h"
#include "tests/unit/trace/trace_testing.h"
#include <pthread.h>
#include <seamalloc/seamalloc.h>
#include <signal.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

static void ok(seam_result result)
{
    if (result)
        fail_msg("%s: %s", seam_result_name(result), seam_last_error());
}

static int start(void **state)
{
    struct sim_config config;
    (void)state;
    sim_config_default(&config);
    config.devices = 2;
    config.device_bytes = 1024 * MIB;
    config.backed = false;
    return sim_start(&config) ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    unlink(file_path());
    return seam_shutdown() || sim_violation_count() ? -1 : 0;
}

static void expect(const struct recording *r, size_t at, enum sm_trace_action action, uint64_t id,
                   uint64_t size, uint64_t stream, uint64_t pool, uint32_t device)
{
    const struct sm_trace_event *event = &r->events[at];
    if (at >= r->count || event->action != action || event->id != id || event->size != size ||
        event->stream != stream || event->pool != pool || event->device != device)
        fail_msg("event %zu of %zu: action %d id %lu size %lu stream %lu pool %lu device %u", at, r->count,
                 event->action, event->id, event->size, event->stream, event->pool, event->device);
}

static bool all(seam_stream stream, void *context)
{
    (void)stream;
    (void)context;
    return true;
}

static void every_kind_of_event(void **state)
{
    struct recording r;
    CUstream stream;
    CUcontext context;
    void *a, *b;
    (void)state;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ok(seam_trace_start(file_path()));
    a = seam_malloc(1000, 0, NULL);
    ok(seam_pool_begin(0, (seam_pool_id){0, 77}, all, NULL));
    b = seam_malloc(5000, 0, stream);
    ok(seam_pool_end(0, (seam_pool_id){0, 77}));
    ok(seam_record_stream(a, stream));
    ok(seam_phase_push("forward"));
    ok(seam_free(a));
    assert_null(seam_malloc(MIB * MIB, 0, stream));
    ok(seam_phase_pop());
    ok(seam_free(b));
    ok(seam_pool_release(0, (seam_pool_id){0, 77}));
    ok(seam_trim(0));
    assert_int_equal(seam_free(b), SEAM_E_POINTER); /* an error of the caller is no event */
    ok(seam_trace_stop());
    r = recording_load(file_path());
    assert_int_equal(r.end, 0);
    assert_int_equal(r.cut, 0);
    assert_int_equal(r.events[0].action, SM_TRACE_DEVICE);
    assert_int_equal(r.events[0].size, 1024 * MIB);
    expect(&r, 1, SM_TRACE_ALLOC, 1, 1000, 0, 0, 0);
    expect(&r, 2, SM_TRACE_POOL_BEGIN, 0, 0, 0, 1, 0);
    expect(&r, 3, SM_TRACE_ALLOC, 2, 5000, 1, 1, 0);
    expect(&r, 4, SM_TRACE_POOL_END, 0, 0, 0, 1, 0);
    expect(&r, 5, SM_TRACE_RECORD_STREAM, 1, 0, 1, 0, 0);
    expect(&r, 6, SM_TRACE_PHASE_ENTER, 0, 0, 0, 0, 0);
    assert_string_equal(r.names[6], "forward");
    expect(&r, 7, SM_TRACE_FREE, 1, 0, 0, 0, 0);
    expect(&r, 8, SM_TRACE_FAIL, 0, MIB * MIB, 1, 0, 0);
    assert_int_equal(r.events[8].result, SEAM_E_DEVICE_OOM);
    expect(&r, 9, SM_TRACE_PHASE_LEAVE, 0, 0, 0, 0, 0);
    expect(&r, 10, SM_TRACE_FREE, 2, 0, 1, 0, 0);
    expect(&r, 11, SM_TRACE_POOL_RELEASE, 0, 0, 0, 1, 0);
    expect(&r, 12, SM_TRACE_TRIM, 0, 0, 0, 0, 0);
    assert_int_equal(r.count, 13);
    recording_free(&r);
}

static void begins_in_the_middle(void **state)
{
    struct recording r;
    void *blocks[10];
    uint64_t size = 0;
    (void)state;
    ok(seam_phase_push("outside"));
    for (int i = 0; i < 10; i++)
        blocks[i] = seam_malloc(MIB + (size_t)i, i % 2, NULL);
    ok(seam_free(blocks[9]));
    ok(seam_pool_begin(1, (seam_pool_id){1, 0}, all, NULL));
    ok(seam_trace_start(file_path()));
    assert_int_equal(seam_trace_start(file_path()), SEAM_E_STATE);
    for (int i = 0; i < 9; i++)
        ok(seam_free(blocks[i]));
    ok(seam_phase_pop()); /* not entered in the recording, so not left in it */
    ok(seam_trace_stop());
    assert_int_equal(seam_trace_stop(), SEAM_E_STATE);
    r = recording_load(file_path());
    assert_int_equal(r.count, 2 + 1 + 9 + 9);
    for (size_t i = 0; i < r.count; i++)
        if (r.events[i].action == SM_TRACE_ALLOC)
            size += r.events[i].size;
    assert_int_equal(size, 9 * MIB + 36);
    for (size_t i = 12; i < 21; i++)
        assert_int_equal(r.events[i].action, SM_TRACE_FREE);
    recording_free(&r);
    ok(seam_pool_end(1, (seam_pool_id){1, 0}));
    ok(seam_pool_release(1, (seam_pool_id){1, 0}));
}

static void a_hit_takes_no_host_memory(void **state)
{
    void *block;
    (void)state;
    ok(seam_trace_start(file_path()));
    ok(seam_free(seam_malloc(4096, 0, NULL)));
    sm_fault_arm(sm_hostmem_fault(), 1, true);
    for (int i = 0; i < 200000; i++) {
        block = seam_malloc(4096, 0, NULL);
        if (!block || seam_free(block))
            fail_msg("pair %d: %s", i, seam_last_error());
    }
    assert_int_equal(atomic_load(&sm_hostmem_fault()->hits), 0);
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    ok(seam_trace_stop());
    struct recording r = recording_load(file_path());
    assert_int_equal(r.count, 1 + 2 * 200001);
    assert_int_equal(r.lost, 0);
    recording_free(&r);
}

static void the_option_begins_it(void **state)
{
    char text[128];
    struct recording r;
    (void)state;
    snprintf(text, sizeof(text), "trace:%s", file_path());
    ok(seam_configure(text));
    ok(seam_free(seam_malloc(512, 1, NULL)));
    ok(seam_shutdown()); /* ends it too */
    r = recording_load(file_path());
    assert_int_equal(r.count, 3);
    assert_int_equal(r.cut, 0);
    expect(&r, 1, SM_TRACE_ALLOC, 1, 512, 0, 0, 1);
    recording_free(&r);
    ok(seam_configure("trace:/nowhere/at/all"));
    assert_int_equal(seam_init(), SEAM_E_IO);
    assert_non_null(strstr(seam_last_error(), "/nowhere/at/all"));
}

/* ---- threads ---- */

#define THREADS 6
#define STEPS   20000
#define SLOTS   256

static _Atomic(void *) slots[SLOTS];

static void *exchange(void *context)
{
    uint64_t seed = (uintptr_t)context * 2654435761u + 1;
    for (int i = 0; i < STEPS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        void *block = seam_malloc(512 + (seed >> 40) % 100000, (int)(seed >> 33 & 1), NULL);
        block = atomic_exchange(&slots[seed >> 50 & (SLOTS - 1)], block);
        if (!block || seam_free(block))
            continue;
    }
    return NULL;
}

/* Every id lives when it is freed and is given once: so the order in the file is one that happened. */
static void threads_leave_a_true_recording(void **state)
{
    pthread_t threads[THREADS];
    struct recording r;
    size_t allocations = 0, frees = 0;
    uint8_t *lives;
    unsigned seen = 0;
    (void)state;
    ok(seam_trace_start(file_path()));
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, exchange, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++)
        ok(seam_free(atomic_exchange(&slots[i], NULL)));
    ok(seam_trace_stop());
    r = recording_load(file_path());
    assert_int_equal(r.end, 0);
    assert_int_equal(r.lost, 0);
    lives = calloc(r.count + 1, 1);
    for (size_t i = 0; i < r.count; i++) {
        const struct sm_trace_event *event = &r.events[i];
        if (event->action == SM_TRACE_ALLOC) {
            assert_true(event->id == ++allocations);
            lives[event->id] = 1;
            seen |= 1u << event->thread % 32;
        } else if (event->action == SM_TRACE_FREE) {
            frees++;
            assert_true(lives[event->id]--);
        }
    }
    assert_int_equal(allocations, THREADS * STEPS);
    assert_int_equal(frees, allocations);
    assert_true(__builtin_popcount(seen) == THREADS);
    free(lives);
    recording_free(&r);
}

/* ---- the end of a process ---- */

enum { CHILD_EVENTS = 200001 }; /* pairs, and what the first one brings */

static void child(const char *path, bool killed)
{
    if (start(NULL) || seam_trace_start(path))
        _exit(3);
    for (int i = 0; i < CHILD_EVENTS / 2; i++)
        if (seam_free(seam_malloc((size_t)(i % 50 + 1) * 512, 0, NULL)))
            _exit(4);
    if (!killed)
        exit(0);
    for (;;)
        pause();
}

static size_t events_in(const char *path)
{
    struct recording r = recording_load(path);
    recording_free(&r);
    return r.count;
}

static struct recording leave(bool killed)
{
    char path[128];
    int status;
    pid_t pid;
    snprintf(path, sizeof(path), "%s", file_path());
    unlink(path); /* another test's recording is as long */
    pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        child(path, killed);
    if (killed) {
        /* Once a second what there is is written; how long that takes is the machine's affair. */
        for (int tries = 0; tries < 600 && events_in(path) < CHILD_EVENTS; tries++)
            usleep(100000);
        kill(pid, SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!killed)
        assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    return recording_load(path);
}

static void exit_ends_it(void **state)
{
    struct recording r = leave(false);
    (void)state;
    assert_int_equal(r.end, 0);
    assert_int_equal(r.cut, 0);
    assert_int_equal(r.count, CHILD_EVENTS);
    recording_free(&r);
}

static void a_killed_process_leaves_its_blocks(void **state)
{
    struct recording r = leave(true);
    (void)state;
    assert_int_equal(r.end, 0);
    assert_true(r.cut > 0);
    assert_int_equal(r.count, CHILD_EVENTS);
    recording_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Children are made before this process has a driver. */
        cmocka_unit_test(exit_ends_it),
        cmocka_unit_test(a_killed_process_leaves_its_blocks),
        cmocka_unit_test_setup_teardown(every_kind_of_event, start, stop),
        cmocka_unit_test_setup_teardown(begins_in_the_middle, start, stop),
        cmocka_unit_test_setup_teardown(a_hit_takes_no_host_memory, start, stop),
        cmocka_unit_test_setup_teardown(the_option_begins_it, start, stop),
        cmocka_unit_test_setup_teardown(threads_leave_a_true_recording, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
