/* SPDX-License-Identifier: Apache-2.0 */
/* Phases and windows: names, paths, bounds, copies to a new device, failing host memory; phases of one
 * thread. */
#include "base/hostmem.h"
#include "tests/unit/stats/report.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sm_parts parts;

static int create(void **state)
{
    memset(&parts, 0, sizeof parts);
    *state = sm_stats_create(0, &parts);
    return *state ? 0 : 1;
}

static int destroy(void **state)
{
    sm_stats_destroy(*state);
    assert_int_equal(sm_hostmem_bytes(), 0);
    return 0;
}

static uint32_t take(struct sm_stats *stats, int64_t bytes)
{
    if (parts.bytes[SM_PART_whole_free] < bytes) {
        parts.bytes[SM_PART_whole_free] += bytes;
        sm_stats_move(stats, SM_LEVEL_reserved_bytes, SM_KIND_SMALL, bytes);
    }
    parts.bytes[SM_PART_requested_live] += bytes;
    parts.bytes[SM_PART_whole_free] -= bytes;
    return sm_stats_alloc(stats, SM_KIND_SMALL, (uint64_t)bytes, (uint64_t)bytes);
}

static void give(struct sm_stats *stats, int64_t bytes, uint32_t birth)
{
    sm_stats_free_request(stats, SM_KIND_SMALL, (uint64_t)bytes, (uint64_t)bytes, birth);
    sm_stats_free_complete(stats, SM_KIND_SMALL, (uint64_t)bytes, (uint64_t)bytes);
    parts.bytes[SM_PART_requested_live] -= bytes;
    parts.bytes[SM_PART_whole_free] += bytes;
}

static void push(struct sm_stats *stats, const char *name, int64_t now_ns)
{
    assert_true(sm_stats_phase_reserve(stats, name));
    sm_stats_phase_push(stats, name, now_ns);
}

static void expect_valid(const struct sm_stats *stats)
{
    struct sm_error error;
    if (sm_stats_validate(stats, &error))
        fail_msg("%s", error.text);
}

static void test_names(void **state)
{
    struct sm_error error;
    char longest[65];
    (void)state;
    memset(longest, 'x', 64);
    longest[64] = 0;
    assert_int_equal(sm_phase_name_check(NULL, &error), SEAM_E_ARGUMENT);
    assert_int_equal(sm_phase_name_check("", &error), SEAM_E_ARGUMENT);
    assert_int_equal(sm_phase_name_check(longest, &error), SEAM_E_ARGUMENT);
    assert_non_null(strstr(error.text, "63"));
    assert_int_equal(sm_phase_name_check("a/b", &error), SEAM_E_ARGUMENT);
    assert_non_null(strstr(error.text, "a/b"));
    assert_int_equal(sm_phase_name_check("a/b", NULL), SEAM_E_ARGUMENT);
    longest[63] = 0;
    assert_int_equal(sm_phase_name_check(longest, &error), SEAM_OK);
    assert_int_equal(sm_phase_name_check("layer \"3\"", &error), SEAM_OK);
}

static void test_same_name_elsewhere_is_another_phase(void **state)
{
    struct sm_stats *stats = *state;
    push(stats, "a", 0);
    push(stats, "b", 0);
    sm_stats_phase_pop(stats, 5);
    push(stats, "a", 5); /* recursion */
    sm_stats_phase_pop(stats, 6);
    sm_stats_phase_pop(stats, 7);
    push(stats, "b", 7);
    sm_stats_phase_pop(stats, 10);
    push(stats, "b", 10);
    sm_stats_phase_pop(stats, 14);

    json_t *report = report_json(stats, 20);
    static const char *const paths[] = {"a", "a/b", "a/a", "b"};
    static const int64_t wall[] = {7, 5, 1, 4}, counts[] = {1, 1, 1, 2}, depth[] = {0, 1, 1, 0};
    assert_int_equal(json_array_size(at_path(report, "phases")), 4);
    for (unsigned i = 0; i < 4; i++) {
        json_t *node = json_array_get(at_path(report, "phases"), i);
        assert_string_equal(json_string_value(at_path(node, "path")), paths[i]);
        assert_int_equal(int_at(node, "count"), counts[i]);
        assert_int_equal(int_at(node, "depth"), depth[i]);
        assert_int_equal(int_at(node, "wall_ns.last"), wall[i]);
    }
    json_decref(report);
}

/* A window that closes between two others, with the peak in each of the three stretches. */
static void test_window_closed_in_the_middle(void **state)
{
    struct sm_stats *stats = *state;
    for (uint64_t i = 0; i < 3; i++) {
        const char *name = i == 0 ? "w0" : i == 1 ? "w1" : "w2";
        assert_true(sm_stats_window_reserve(stats, name));
        sm_stats_window_open(stats, name, i, 0);
        give(stats, 1000 * (3 - (int64_t)i), take(stats, 1000 * (3 - (int64_t)i)));
    }
    assert_true(sm_stats_window_close(stats, 1, 1));
    assert_false(sm_stats_window_close(stats, 1, 1));
    assert_true(sm_stats_window_close(stats, 0, 1));
    assert_true(sm_stats_window_close(stats, 2, 1));
    json_t *report = report_json(stats, 20);
    assert_int_equal(int_at(node_of(report, "windows", "w0"), "allocated.peak.last"), 3000);
    assert_int_equal(int_at(node_of(report, "windows", "w1"), "allocated.peak.last"), 2000);
    assert_int_equal(int_at(node_of(report, "windows", "w2"), "allocated.peak.last"), 1000);
    json_decref(report);
}

static void test_reset_inside_a_phase(void **state)
{
    struct sm_stats *stats = *state;
    push(stats, "step", 0);
    give(stats, 4096, take(stats, 4096));
    sm_stats_reset_peaks(stats);
    assert_int_equal(sm_stats_level(stats, SM_LEVEL_allocated_bytes, SM_KIND_ALL)->peak, 0);
    give(stats, 512, take(stats, 512));
    assert_int_equal(sm_stats_level(stats, SM_LEVEL_allocated_bytes, SM_KIND_ALL)->peak, 512);
    sm_stats_phase_pop(stats, 1);
    json_t *report = report_json(stats, 20);
    assert_int_equal(int_at(node_of(report, "phases", "step"), "allocated.peak.last"), 4096);
    assert_int_equal(int_at(report, "levels.allocated_bytes.all.peak"), 512);
    json_decref(report);
}

/* Names without end, and a recursion without end, are counted and cost bounded memory. */
static void test_too_many_paths(void **state)
{
    struct sm_stats *stats = *state;
    char name[32];
    for (unsigned i = 0; i < 200; i++)
        push(stats, "again", 0);
    for (unsigned i = 0; i < 200; i++)
        sm_stats_phase_pop(stats, 1);
    for (unsigned i = 0; i < 6000; i++) {
        snprintf(name, sizeof name, "step %u", i);
        push(stats, name, 0);
        sm_stats_phase_pop(stats, 1);
    }
    const size_t bytes = sm_hostmem_bytes();
    for (unsigned i = 6000; i < 7000; i++) {
        snprintf(name, sizeof name, "step %u", i);
        push(stats, name, 0);
        push(stats, "inner", 0);
        sm_stats_phase_pop(stats, 1);
        sm_stats_phase_pop(stats, 1);
    }
    assert_int_equal(sm_hostmem_bytes(), bytes);
    expect_valid(stats);

    json_t *report = report_json(stats, 2), *node;
    size_t i;
    int64_t entries = 0, deepest = 0;
    json_array_foreach(at_path(report, "phases"), i, node)
    {
        entries += int_at(node, "count");
        deepest = int_at(node, "depth") > deepest ? int_at(node, "depth") : deepest;
    }
    assert_int_equal(entries, 200 + 7000 + 1000);
    assert_int_equal(deepest, 63);
    assert_true(json_array_size(at_path(report, "phases")) < 5000);
    /* 136 levels of the recursion, and what came when all paths were taken. */
    assert_true(int_at(node_of(report, "phases", "(other)"), "count") > 136 + 3000);
    json_decref(report);
}

/* Phases entered and left for ever, with blocks that die in time, take no more host memory. */
static void test_bounded_memory(void **state)
{
    struct sm_stats *stats = *state;
    uint32_t birth[8];
    size_t bytes = 0;
    for (unsigned i = 0; i < 20000; i++) {
        if (i >= 8)
            give(stats, 512, birth[i % 8]);
        push(stats, "step", i);
        if (i % 3)
            give(stats, 1024, take(stats, 1024));
        birth[i % 8] = take(stats, 512);
        sm_stats_phase_pop(stats, i);
        if (i == 100)
            bytes = sm_hostmem_bytes();
    }
    assert_int_equal(sm_hostmem_bytes(), bytes);
    expect_valid(stats);
}

static void test_copy_to_a_new_device(void **state)
{
    struct sm_stats *stats = *state;
    static struct sm_parts none;
    const uint64_t self = sm_stats_thread_self();
    push(stats, "step", 10);
    assert_true(sm_stats_window_reserve(stats, "all"));
    sm_stats_window_open(stats, "all", 77, 20);
    push(stats, "forward", 30);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(sm_stats_thread_phase_reserve(stats, self, "mine"));
        sm_stats_thread_phase_push(stats, self, i == 1 ? "deeper" : "mine", 35 + i);
    }
    struct sm_stats *other = sm_stats_create(1, &none);
    assert_non_null(other);
    assert_true(sm_stats_phase_copy_open(other, stats));
    assert_int_equal(sm_stats_phase_depth(other), 2);
    assert_int_equal(sm_stats_thread_phase_depth(other, self), 3);
    expect_valid(other);
    sm_stats_phase_pop(other, 40);
    assert_true(sm_stats_window_close(other, 77, 50));
    sm_stats_phase_pop(other, 60);
    for (unsigned i = 0; i < 3; i++)
        sm_stats_thread_phase_pop(other, self, 70);
    json_t *report = report_json(other, 100);
    assert_int_equal(int_at(node_of(report, "phases", "step"), "wall_ns.last"), 50);
    assert_int_equal(int_at(node_of(report, "phases", "step/forward"), "wall_ns.last"), 10);
    assert_int_equal(int_at(node_of(report, "windows", "all"), "wall_ns.last"), 30);
    assert_int_equal(int_at(node_of(report, "thread_phases", "mine"), "wall_ns.last"), 35);
    assert_int_equal(int_at(node_of(report, "thread_phases", "mine/deeper/mine"), "wall_ns.last"), 33);
    json_decref(report);
    sm_stats_destroy(other);
}

/* ---- failing host memory ---- */

static void test_create_fails(void **state)
{
    unsigned failures = 0;
    (void)state;
    for (unsigned forever = 0; forever < 2; forever++)
        for (uint64_t nth = 1;; nth++) {
            const size_t before = sm_hostmem_bytes();
            sm_fault_arm(sm_hostmem_fault(), nth, forever);
            struct sm_stats *stats = sm_stats_create(0, &parts);
            sm_fault_arm(sm_hostmem_fault(), 0, false);
            if (stats) {
                sm_stats_destroy(stats);
                assert_int_equal(sm_hostmem_bytes(), before);
                break;
            }
            failures++;
            assert_int_equal(sm_hostmem_bytes(), before);
        }
    assert_true(failures >= 4);
}

enum opener { OPEN_PHASE, OPEN_WINDOW, OPEN_THREAD };

static bool reserve(struct sm_stats *stats, enum opener opener, const char *name)
{
    switch (opener) {
    case OPEN_PHASE:
        return sm_stats_phase_reserve(stats, name);
    case OPEN_WINDOW:
        return sm_stats_window_reserve(stats, name);
    default:
        return sm_stats_thread_phase_reserve(stats, sm_stats_thread_self(), name);
    }
}

static void commit(struct sm_stats *stats, enum opener opener, const char *name, uint64_t number)
{
    switch (opener) {
    case OPEN_PHASE:
        sm_stats_phase_push(stats, name, 0);
        break;
    case OPEN_WINDOW:
        sm_stats_window_open(stats, name, number, 0);
        break;
    default:
        sm_stats_thread_phase_push(stats, sm_stats_thread_self(), name, 0);
    }
}

/* Every host allocation of a reserve fails in turn: nothing that can be seen changes, and afterwards all goes
 * on; what was reserved is opened without a single further allocation. Returns: failures. */
static unsigned open_through_failures(struct sm_stats *stats, enum opener opener, const char *name,
                                      uint64_t number)
{
    unsigned failures = 0;
    bool done = false;
    char *before = report_text(stats, SM_EMIT_JSON, 1);
    for (uint64_t nth = 1; !done; nth++) {
        sm_fault_arm(sm_hostmem_fault(), nth, number % 2);
        done = reserve(stats, opener, name);
        sm_fault_arm(sm_hostmem_fault(), 0, false);
        failures += !done;
        char *after = report_text(stats, SM_EMIT_JSON, 1);
        assert_string_equal(after, before);
        free(after);
        expect_valid(stats);
    }
    free(before);
    sm_fault_arm(sm_hostmem_fault(), 1, true);
    commit(stats, opener, name, number);
    const uint64_t asked = sm_hostmem_fault()->hits;
    sm_fault_arm(sm_hostmem_fault(), 0, false);
    assert_int_equal(asked, 0);
    return failures;
}

static void test_open_fails(void **state)
{
    struct sm_stats *stats = *state;
    unsigned failures[3] = {0};
    char name[32];
    for (uint64_t i = 0; i < 120; i++) {
        const enum opener opener = (enum opener)(i % 3);
        snprintf(name, sizeof name, "name %u", (unsigned)i);
        failures[opener] += open_through_failures(stats, opener, name, i);
        take(stats, 512); /* a birth that stays, so that slots run out too */
        expect_valid(stats);
    }
    /* Nodes, intervals and birth slots: for each opener something must have failed. */
    assert_true(failures[OPEN_PHASE] + failures[OPEN_WINDOW] >= 10);
    assert_true(failures[OPEN_THREAD] >= 3);
    assert_int_equal(sm_stats_phase_depth(stats), 40);
    assert_int_equal(sm_stats_thread_phase_depth(stats, sm_stats_thread_self()), 40);
}

static void test_copy_fails(void **state)
{
    struct sm_stats *stats = *state;
    static struct sm_parts none;
    unsigned failures = 0;
    for (uint64_t i = 0; i < 60; i++) {
        const enum opener opener = (enum opener)(i % 3);
        assert_true(reserve(stats, opener, "name"));
        commit(stats, opener, "name", i);
    }
    for (uint64_t nth = 1;; nth++) {
        struct sm_stats *other = sm_stats_create(1, &none);
        assert_non_null(other);
        sm_fault_arm(sm_hostmem_fault(), nth, false);
        const bool copied = sm_stats_phase_copy_open(other, stats);
        sm_fault_arm(sm_hostmem_fault(), 0, false);
        failures += !copied;
        assert_int_equal(sm_stats_phase_depth(other), copied ? 20 : 0);
        assert_int_equal(sm_stats_thread_phase_depth(other, sm_stats_thread_self()), copied ? 20 : 0);
        expect_valid(other);
        sm_stats_destroy(other);
        if (copied)
            break;
    }
    assert_true(failures >= 4);
}

/* ---- phases of one thread ---- */

#define ROUNDS 400

struct worker {
    struct sm_stats *stats;
    const char *name;
    uint64_t id, seed;
    int64_t peak, exit_net, allocations, frees, hits;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Requests at random inside one phase of the thread's own, counted by hand; the lock is given up between the
 * steps. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    uint32_t birth[ROUNDS];
    int64_t size[ROUNDS], net = 0;
    unsigned live = 0;
    pthread_mutex_lock(&lock);
    worker->id = sm_stats_thread_self();
    /* Before the phase: no part of it. */
    birth[live] = take(worker->stats, 2048);
    size[live++] = 2048;
    if (!sm_stats_thread_phase_reserve(worker->stats, worker->id, worker->name))
        abort();
    sm_stats_thread_phase_push(worker->stats, worker->id, worker->name, 0);
    for (unsigned i = 1; i < ROUNDS; i++) {
        worker->seed = worker->seed * 6364136223846793005u + 1442695040888963407u;
        if (worker->seed >> 63 || !live) {
            size[live] = 512 * (1 + (int64_t)(worker->seed >> 40 & 7));
            birth[live] = take(worker->stats, size[live]);
            sm_stats_count(worker->stats, SM_COUNTER_hits, 1);
            net += size[live++];
            worker->allocations++;
            worker->hits++;
        } else {
            live--;
            give(worker->stats, size[live], birth[live]);
            net -= size[live];
            worker->frees++;
        }
        worker->peak = net > worker->peak ? net : worker->peak;
        pthread_mutex_unlock(&lock);
        pthread_mutex_lock(&lock);
    }
    worker->exit_net = net;
    sm_stats_thread_phase_pop(worker->stats, worker->id, 9);
    while (live-- > 0) /* after the phase: no part of it */
        give(worker->stats, size[live], birth[live]);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void test_threads_do_not_disturb_each_other(void **state)
{
    struct sm_stats *stats = *state;
    struct worker worker[4];
    pthread_t thread[4];
    static const char *const names[] = {"t0", "t1", "t2", "t3"};
    for (unsigned i = 0; i < 4; i++) {
        worker[i] = (struct worker){.stats = stats, .name = names[i], .seed = 7 + i};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &worker[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    expect_valid(stats);
    json_t *report = report_json(stats, 20);
    for (unsigned i = 0; i < 4; i++) {
        json_t *node = node_of(report, "thread_phases", names[i]);
        assert_non_null(node);
        assert_int_equal(int_at(node, "count"), 1);
        assert_int_equal(int_at(node, "allocated.peak.last"), worker[i].peak);
        assert_int_equal(int_at(node, "requested.exit.last"), worker[i].exit_net);
        assert_int_equal(int_at(node, "allocations.count.last"), worker[i].allocations);
        assert_int_equal(int_at(node, "frees.count.last"), worker[i].frees);
        assert_int_equal(int_at(node, "counters.hits.last"), worker[i].hits);
        assert_int_equal(sm_stats_thread_phase_depth(stats, worker[i].id), 0);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(worker[i].id, worker[j].id);
    }
    json_decref(report);
}

static void test_nested_thread_phases(void **state)
{
    struct sm_stats *stats = *state;
    const uint64_t self = sm_stats_thread_self();
    assert_int_equal(self, sm_stats_thread_self());
    assert_true(sm_stats_thread_phase_reserve(stats, self, "outer"));
    sm_stats_thread_phase_push(stats, self, "outer", 0);
    const uint32_t a = take(stats, 1000);
    assert_true(sm_stats_thread_phase_reserve(stats, self, "inner"));
    sm_stats_thread_phase_push(stats, self, "inner", 1);
    const uint32_t b = take(stats, 5000);
    give(stats, 1000, a);
    give(stats, 5000, b);
    assert_true(sm_stats_thread_phase_reserve(stats, self, "third"));
    sm_stats_thread_phase_push(stats, self, "third", 2); /* the peaks above belong to "inner" from here on */

    json_t *report = report_json(stats, 3);
    json_t *outer = json_array_get(at_path(node_of(report, "thread_phases", "outer"), "open"), 0);
    json_t *inner = json_array_get(at_path(node_of(report, "thread_phases", "outer/inner"), "open"), 0);
    assert_int_equal(int_at(outer, "allocated.peak"), 6000);
    assert_int_equal(int_at(inner, "allocated.peak"), 5000);
    assert_int_equal(int_at(inner, "allocated.exit"), -1000);
    assert_null(json_object_get(inner, "reserved"));
    json_decref(report);

    sm_stats_thread_phase_pop(stats, self, 3);
    sm_stats_thread_phase_pop(stats, self, 4);
    sm_stats_thread_phase_pop(stats, self, 6);
    report = report_json(stats, 7);
    assert_int_equal(int_at(node_of(report, "thread_phases", "outer"), "allocated.peak.last"), 6000);
    assert_int_equal(int_at(node_of(report, "thread_phases", "outer"), "allocated.exit.last"), 0);
    assert_int_equal(int_at(node_of(report, "thread_phases", "outer/inner"), "wall_ns.last"), 3);
    json_decref(report);
}

#define T(name) cmocka_unit_test_setup_teardown(name, create, destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_names),
        T(test_same_name_elsewhere_is_another_phase),
        T(test_window_closed_in_the_middle),
        T(test_reset_inside_a_phase),
        T(test_too_many_paths),
        T(test_bounded_memory),
        T(test_copy_to_a_new_device),
        T(test_create_fails),
        T(test_open_fails),
        T(test_copy_fails),
        T(test_threads_do_not_disturb_each_other),
        T(test_nested_thread_phases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
