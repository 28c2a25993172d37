/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions, as a program meets them: libcuda.so.1 is the simulated one, found by the allocator
 * itself. Arguments, settings, errors, statistics by name, shutdown and restart, a forked child. Each test
 * begins and ends without an allocator. */
#include "sim/sim.h"
#include "tests/support/cmocka_all.h"
#include <seamalloc/seamalloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static void ok(seam_result result)
{
    if (result)
        fail_msg("%s: %s", seam_result_name(result), seam_last_error());
}

static void refused(seam_result result, seam_result code, const char *part)
{
    if (result != code)
        fail_msg("%s came, %s was expected: %s", seam_result_name(result), seam_result_name(code),
                 seam_last_error());
    assert_int_equal(seam_last_result(), code);
    if (!strstr(seam_last_error(), part))
        fail_msg("\"%s\" was expected in: %s", part, seam_last_error());
}

static int64_t stat(const char *name)
{
    int64_t value = -1;
    ok(seam_stat(0, name, &value));
    return value;
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
    struct sim_live live;
    (void)state;
    if (seam_shutdown())
        return -1;
    sim_live(&live);
    return live.handles || live.mappings || live.reservations || live.events || sim_violation_count() ? -1
                                                                                                      : 0;
}

static void sizes_and_devices(void **state)
{
    (void)state;
    assert_int_equal(seam_device_count(), 0);
    assert_null(seam_malloc(0, 0, NULL));
    assert_int_equal(sim_calls_total(), 0); /* a request of nothing asks nobody */
    void *a = seam_malloc(1000, 0, NULL), *b = seam_malloc(1000, 1, NULL);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(seam_device_count(), 2);
    assert_int_equal((uintptr_t)a % 512, 0);
    assert_null(seam_malloc(1000, 2, NULL));
    refused(seam_last_result(), SEAM_E_ARGUMENT, "device 2");
    assert_null(seam_malloc(1000, -1, NULL));
    refused(seam_last_result(), SEAM_E_ARGUMENT, "device -1");
    assert_null(seam_malloc(2048 * MIB, 0, NULL));
    refused(seam_last_result(), SEAM_E_DEVICE_OOM, "2147483648");
    assert_null(seam_malloc(SIZE_MAX, 0, NULL));
    refused(seam_last_result(), SEAM_E_DEVICE_OOM, "18446744073709551615");
    ok(seam_free(b));
    ok(seam_free(a));
    ok(seam_validate());
}

static void pointers(void **state)
{
    (void)state;
    int here;
    void *block = NULL;
    size_t size = 0;
    ok(seam_free(NULL));
    refused(seam_free(&here), SEAM_E_POINTER, "seam_free");
    char *a = seam_malloc(3000, 0, NULL);
    refused(seam_free(&here), SEAM_E_POINTER, "seam_free");
    refused(seam_free(a + 512), SEAM_E_POINTER, "seam_free");
    assert_int_equal(stat("unknown_frees"), 2);
    ok(seam_block_of(a + 3071, &block, &size));
    assert_ptr_equal(block, a);
    assert_int_equal(size, 3072);
    ok(seam_block_of(a, NULL, NULL));
    refused(seam_block_of(a + 3072, &block, &size), SEAM_E_POINTER, "seam_block_of");
    assert_ptr_equal(block, a);
    ok(seam_record_stream(a, NULL));
    refused(seam_record_stream(&here, NULL), SEAM_E_POINTER, "seam_record_stream");
    refused(seam_record_stream(NULL, NULL), SEAM_E_POINTER, "seam_record_stream");
    ok(seam_free(a));
    refused(seam_free(a), SEAM_E_POINTER, "seam_free");
    assert_int_equal(stat("unknown_frees"), 3);
    assert_int_equal(stat("allocated_bytes.all.current"), 0);
}

static void settings_are_echoed(void **state)
{
    (void)state;
    char text[1024], again[1024];
    ok(seam_configure("small_limit_kib:128,max_split_size_mb:64"));
    size_t length = seam_settings(text, sizeof(text));
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "small_limit_kib:128"));
    assert_non_null(strstr(text, "max_split_size_mb:64"));
    /* What is echoed is what can be given. */
    ok(seam_configure(text));
    seam_settings(again, sizeof(again));
    assert_string_equal(text, again);
    assert_int_equal(seam_settings(again, 8), length);
    assert_int_equal(strlen(again), 7);
    assert_int_equal(seam_settings(NULL, 0), length);
    refused(seam_configure("small_limit_kib:1,nonsense:2"), SEAM_E_OPTION, "nonsense");
    seam_settings(again, sizeof(again));
    assert_string_equal(text, again); /* nothing of it was applied */
    refused(seam_configure(NULL), SEAM_E_ARGUMENT, "NULL");
    ok(seam_free(seam_malloc(1, 0, NULL)));
    refused(seam_configure("small_limit_kib:1"), SEAM_E_STATE, "earlier");
    seam_settings(again, sizeof(again));
    assert_string_equal(text, again);
}

static void a_bad_environment_is_an_error(void **state)
{
    (void)state;
    char text[1024];
    setenv("SEAMALLOC_CONF", "small_limit_kib:many", 1);
    refused(seam_init(), SEAM_E_OPTION, "SEAMALLOC_CONF");
    assert_null(seam_malloc(1, 0, NULL));
    refused(seam_last_result(), SEAM_E_OPTION, "small_limit_kib");
    assert_true(seam_settings(text, sizeof(text)) > 0);
    setenv("SEAMALLOC_CONF", "small_limit_kib:32", 1);
    ok(seam_init());
    seam_settings(text, sizeof(text));
    assert_non_null(strstr(text, "small_limit_kib:32"));
    unsetenv("SEAMALLOC_CONF");
}

static void fractions(void **state)
{
    (void)state;
    double fraction = -1;
    size_t free_bytes = 0, total = 0;
    refused(seam_set_memory_fraction(1.5, 0), SEAM_E_ARGUMENT, "1.5");
    refused(seam_set_memory_fraction(-0.1, 0), SEAM_E_ARGUMENT, "-0.1");
    refused(seam_set_memory_fraction(__builtin_nan(""), 0), SEAM_E_ARGUMENT, "nan");
    refused(seam_set_memory_fraction(0.5, 7), SEAM_E_ARGUMENT, "device 7");
    ok(seam_memory_fraction(0, &fraction));
    assert_true(fraction == 1);
    ok(seam_set_memory_fraction(0.25, 0));
    ok(seam_memory_fraction(0, &fraction));
    assert_true(fraction == 0.25);
    assert_null(seam_malloc(257 * MIB, 0, NULL));
    refused(seam_last_result(), SEAM_E_LIMIT, "limit");
    void *a = seam_malloc(256 * MIB, 0, NULL), *b = seam_malloc(512 * MIB, 1, NULL);
    assert_true(a && b);
    ok(seam_device_memory(0, &free_bytes, &total));
    assert_int_equal(total, 1024 * MIB);
    assert_true(free_bytes <= 768 * MIB);
    refused(seam_memory_fraction(0, NULL), SEAM_E_ARGUMENT, "NULL");
}

static void trim_and_devices(void **state)
{
    (void)state;
    ok(seam_trim(-1)); /* before the first use there is nothing to do */
    void *a = seam_malloc(100 * MIB, 0, NULL), *b = seam_malloc(100 * MIB, 1, NULL);
    ok(seam_free(a));
    ok(seam_free(b));
    refused(seam_trim(2), SEAM_E_ARGUMENT, "device 2");
    refused(seam_trim(-2), SEAM_E_ARGUMENT, "device -2");
    ok(seam_trim(0));
    assert_int_equal(sim_physical_bytes(0), 0);
    assert_int_equal(sim_physical_bytes(1), 100 * MIB);
    ok(seam_trim(-1));
    assert_int_equal(sim_physical_bytes(1), 0);
}

static void pools(void **state)
{
    (void)state;
    const seam_pool_id none = {0, 0}, id = {0, 9};
    refused(seam_pool_begin(0, none, NULL, NULL), SEAM_E_ARGUMENT, "default pool");
    refused(seam_pool_end(0, none), SEAM_E_ARGUMENT, "default pool");
    refused(seam_pool_release(0, none), SEAM_E_ARGUMENT, "default pool");
    refused(seam_pool_begin(5, id, NULL, NULL), SEAM_E_ARGUMENT, "device 5");
    refused(seam_pool_end(0, id), SEAM_E_STATE, "pool");
    ok(seam_pool_begin(0, id, NULL, NULL));
    refused(seam_pool_begin(0, id, NULL, NULL), SEAM_E_STATE, "pool");
    void *a = seam_malloc(MIB, 0, NULL);
    ok(seam_pool_end(0, id));
    ok(seam_pool_release(0, id));
    refused(seam_pool_release(0, id), SEAM_E_STATE, "pool");
    ok(seam_free(a));
    ok(seam_trim(0));
    assert_int_equal(sim_physical_bytes(0), 0);
}

/* A capture that failed: nobody releases its pool. */
static void a_begin_is_undone(void **state)
{
    (void)state;
    const seam_pool_id id = {0, 9};
    ok(seam_pool_settle(false)); /* nothing was begun */
    for (int ended = 0; ended < 2; ended++) {
        ok(seam_pool_begin(0, id, NULL, NULL));
        ok(seam_free(seam_malloc(MIB, 0, NULL)));
        if (ended)
            ok(seam_pool_end(0, id));
        ok(seam_pool_settle(false));
        ok(seam_pool_settle(false)); /* once is enough */
        refused(seam_pool_end(0, id), SEAM_E_STATE, "pool");
        refused(seam_pool_release(0, id), SEAM_E_STATE, "pool");
        ok(seam_trim(0));
        assert_int_equal(sim_physical_bytes(0), 0);
    }
    ok(seam_pool_begin(0, id, NULL, NULL));
    ok(seam_pool_settle(true));
    ok(seam_pool_settle(false)); /* it was kept */
    ok(seam_pool_end(0, id));
    ok(seam_pool_release(0, id));
}

static void phases_and_figures(void **state)
{
    (void)state;
    uint64_t window = 0;
    int64_t value = 5;
    refused(seam_phase_pop(), SEAM_E_STATE, "push");
    refused(seam_phase_push(""), SEAM_E_ARGUMENT, "");
    refused(seam_phase_push("a/b"), SEAM_E_ARGUMENT, "");
    refused(seam_phase_push(NULL), SEAM_E_ARGUMENT, "");
    ok(seam_phase_push("forward"));
    ok(seam_thread_phase_push("mine"));
    ok(seam_window_open("look", &window));
    refused(seam_window_open("look", NULL), SEAM_E_ARGUMENT, "NULL");
    void *a = seam_malloc(5000, 0, NULL);
    ok(seam_window_close(window));
    refused(seam_window_close(window), SEAM_E_STATE, "window");
    ok(seam_thread_phase_pop());
    refused(seam_thread_phase_pop(), SEAM_E_STATE, "thread");
    ok(seam_phase_pop());
    assert_int_equal(stat("requested_bytes.all.current"), 5000);
    assert_int_equal(stat("allocated_bytes.small_pool.peak"), 5120);
    assert_int_equal(stat("gap.rounding"), 120);
    ok(seam_free(a));
    assert_int_equal(stat("allocated_bytes.all.peak"), 5120);
    ok(seam_reset_peaks(-1));
    assert_int_equal(stat("allocated_bytes.all.peak"), 0);
    assert_int_equal(stat("allocation.all.in"), 1);
    ok(seam_reset_totals(0));
    assert_int_equal(stat("allocation.all.in"), 0);
    refused(seam_stat(0, "no.such.figure", &value), SEAM_E_ARGUMENT, "no.such.figure");
    refused(seam_stat(0, NULL, &value), SEAM_E_ARGUMENT, "NULL");
    refused(seam_stat(0, "hits", NULL), SEAM_E_ARGUMENT, "NULL");
    assert_int_equal(value, 5);
}

static void reports_fit_their_buffer(void **state)
{
    (void)state;
    ok(seam_free(seam_malloc(1, 0, NULL)));
    size_t (*const reports[])(int, char *, size_t) = {seam_stats_json, seam_stats_table};
    for (int i = 0; i < 2; i++) {
        char tiny[4] = "xyz";
        size_t length = reports[i](-1, NULL, 0);
        assert_true(length > 100);
        char *text = malloc(2 * length + 64); /* counters may have more digits the second time */
        size_t second = reports[i](-1, text, 2 * length + 64);
        assert_int_equal(strlen(text), second);
        free(text);
        reports[i](-1, tiny, sizeof(tiny));
        assert_int_equal(strlen(tiny), 3);
        assert_int_equal(reports[i](9, tiny, sizeof(tiny)), 0);
        assert_int_equal(tiny[0], 0);
    }
}

static void an_error_stays_until_the_next(void **state)
{
    (void)state;
    refused(seam_free((void *)(uintptr_t)512), SEAM_E_POINTER, "seam_free");
    char before[1200];
    snprintf(before, sizeof(before), "%s", seam_last_error());
    ok(seam_free(seam_malloc(1, 0, NULL)));
    ok(seam_trim(0));
    assert_string_equal(seam_last_error(), before);
    assert_int_equal(seam_last_result(), SEAM_E_POINTER);
    assert_string_equal(seam_result_name((seam_result)12345), "unknown result");
}

static void shutdown_and_restart(void **state)
{
    (void)state;
    struct sim_live live;
    for (int round = 0; round < 4; round++) {
        ok(seam_configure(round % 2 ? "small_limit_kib:64" : ""));
        void *a = seam_malloc(100 * MIB, 0, NULL), *b = seam_malloc(700, 0, NULL);
        assert_true(a && b);
        assert_int_equal(stat("allocation.all.in"), 2);
        ok(seam_free(a));
        ok(seam_shutdown()); /* with a live block */
        ok(seam_shutdown()); /* again: nothing to do */
        sim_live(&live);
        assert_int_equal(live.handles + live.mappings + live.reservations + live.events, 0);
        refused(seam_free(b), SEAM_E_POINTER, "seam_free");
        assert_int_equal(seam_device_count(), 0);
    }
}

static void without_a_device(void **state)
{
    (void)state;
    assert_true(sim_fail("cuInit", 1, true, CUDA_ERROR_NO_DEVICE));
    refused(seam_init(), SEAM_E_NO_DRIVER, "cuInit");
    assert_null(seam_malloc(1, 0, NULL));
    refused(seam_last_result(), SEAM_E_NO_DRIVER, "cuInit");
    sim_fail_clear();
    ok(seam_init());
}

static void at_the_end_of_the_process(void **state)
{
    (void)state;
    void *a = seam_malloc(100 * MIB, 0, NULL), *b = seam_malloc(100, 0, NULL);
    sim_deinitialise();
    ok(seam_free(a));
    assert_null(seam_malloc(700 * MIB, 0, NULL));
    refused(seam_last_result(), SEAM_E_DEVICE, "DEINITIALIZED");
    ok(seam_trim(-1));
    ok(seam_free(b));
    ok(seam_validate());
    ok(seam_shutdown());
    start(NULL);
}

/* In the child: no driver call, no crash, a clear error. Its checks end it by their number. */
static void in_child(void *block, uint64_t calls)
{
    int64_t value;
    size_t bytes;
    int wrong = 0;
    wrong |= seam_malloc(100, 0, NULL) ? 1 : 0;
    wrong |= seam_last_result() != SEAM_E_STATE || !strstr(seam_last_error(), "fork") ? 2 : 0;
    wrong |= seam_free(block) != SEAM_E_STATE ? 4 : 0;
    wrong |= seam_free(NULL) != SEAM_OK ? 8 : 0;
    wrong |= seam_trim(-1) != SEAM_E_STATE || seam_init() != SEAM_E_STATE ? 16 : 0;
    wrong |= seam_stat(0, "hits", &value) != SEAM_E_STATE || seam_validate() != SEAM_E_STATE ? 32 : 0;
    wrong |= seam_phase_push("x") != SEAM_E_STATE || seam_shutdown() != SEAM_E_STATE ? 64 : 0;
    wrong |= seam_device_memory(0, &bytes, &bytes) != SEAM_E_STATE ||
                     seam_record_stream(block, NULL) != SEAM_E_STATE || sim_calls_total() != calls
                 ? 128
                 : 0;
    _exit(wrong);
}

static void a_forked_child_is_inert(void **state)
{
    (void)state;
    int status = 0;
    void *a = seam_malloc(MIB, 0, NULL);
    uint64_t calls = sim_calls_total();
    pid_t pid = fork();
    if (pid == 0)
        in_child(a, calls);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    ok(seam_free(a)); /* the parent goes on */
    ok(seam_validate());
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(sizes_and_devices),
        TEST(pointers),
        TEST(settings_are_echoed),
        TEST(a_bad_environment_is_an_error),
        TEST(fractions),
        TEST(trim_and_devices),
        TEST(pools),
        TEST(a_begin_is_undone),
        TEST(phases_and_figures),
        TEST(reports_fit_their_buffer),
        TEST(an_error_stays_until_the_next),
        TEST(shutdown_and_restart),
        TEST(without_a_device),
        TEST(at_the_end_of_the_process),
        TEST(a_forked_child_is_inert),
    };
    unsetenv("SEAMALLOC_CONF");
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    unsetenv("PYTORCH_ALLOC_CONF");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
