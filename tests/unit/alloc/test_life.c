/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a process: forks while others allocate, ends in any order with live blocks, a device that was
 * reset, a library that is unloaded, two copies of it at once, devices that nobody asked for.
 *
 *   test_alloc_life LIBSEAMALLOC LIBSEAMALLOC_TORCH */
#include "sim/sim.h"
#include "tests/support/cmocka_all.h"
#include <dlfcn.h>
#include <pthread.h>
#include <seamalloc/seamalloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB     ((size_t)1 << 20)
#define SECONDS 60 /* after which a child that hangs is ended */

static const char *library, *torch_library;

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
    return seam_shutdown() || sim_violation_count() ? -1 : 0;
}

static int run(int (*function)(void))
{
    alarm(SECONDS);
    int result = function();
    if (result)
        fprintf(stderr, "the child: %d, %s\n", result, seam_last_error());
    return result;
}

static void wait_for(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("the child was ended by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Runs a function in a child; 0 is its good end. */
static void in_child(int (*function)(void))
{
    pid_t pid = fork();
    if (pid == 0)
        exit(run(function)); /* with all handlers */
    wait_for(pid);
}

/* The same in a process of its own, which has a driver. */
static void in_process(const char *name)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_alloc_life", library, torch_library, name, (char *)NULL);
        _exit(127);
    }
    wait_for(pid);
}

/* ---- devices ---- */

static bool is_active(CUdevice device)
{
    unsigned flags;
    int active = -1;
    assert_int_equal(cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
    return active;
}

static void a_device_that_nobody_uses_is_not_touched(void **state)
{
    (void)state;
    char text[64];
    double fraction;
    int64_t value;
    void *a = seam_malloc(MIB, 1, NULL);
    assert_non_null(a);
    ok(seam_phase_push("forward"));
    ok(seam_trim(-1));
    ok(seam_trim(0));
    ok(seam_reset_peaks(-1));
    ok(seam_memory_fraction(0, &fraction));
    ok(seam_stat(0, "hits", &value));
    assert_true(seam_stats_json(-1, text, sizeof(text)) > 0);
    assert_true(seam_stats_table(0, text, sizeof(text)) > 0);
    ok(seam_validate());
    ok(seam_phase_pop());
    ok(seam_free(a));
    assert_true(is_active(1));
    assert_false(is_active(0));
    ok(seam_shutdown());
    assert_false(is_active(0));
}

/* What a driver answers once the program has reset the device. */
static void a_device_that_was_reset(void **state)
{
    (void)state;
    void *a = seam_malloc(MIB, 0, NULL), *b = seam_malloc(MIB, 0, NULL);
    CUstream s = NULL;
    assert_true(a && b);
    ok(seam_record_stream(b, (CUstream)(uintptr_t)1));
    assert_true(sim_fail("cuCtxPushCurrent", 1, true, CUDA_ERROR_CONTEXT_IS_DESTROYED));
    ok(seam_free(a));
    ok(seam_free(b));
    assert_null(seam_malloc(700 * MIB, 0, s));
    assert_int_equal(seam_last_result(), SEAM_E_DEVICE);
    assert_non_null(strstr(seam_last_error(), "709"));
    ok(seam_trim(-1));
    ok(seam_validate());
    sim_fail_clear();
    ok(seam_shutdown());
    a = seam_malloc(700 * MIB, 0, NULL); /* as new */
    assert_non_null(a);
    ok(seam_free(a));
}

/* ---- forks ---- */

static atomic_bool busy;

static void *allocate(void *argument)
{
    uint64_t i = (uintptr_t)argument;
    char text[4096];
    while (atomic_load(&busy)) {
        void *a = seam_malloc((1 + i % 9) * 700000, (int)(i % 2), NULL);
        i++;
        seam_settings(text, sizeof(text));
        if (i % 16 == 0)
            seam_trim(-1);
        seam_free(a);
    }
    return NULL;
}

/* Whatever the others were doing when the process forked, nothing waits and nothing is called. */
static int everything_is_inert(void)
{
    char text[4096];
    int64_t value;
    uint64_t window, calls = sim_calls_total();
    const seam_pool_id id = {9, 9};
    bool right = !seam_malloc(100, 0, NULL) && seam_last_result() == SEAM_E_STATE;
    right &= seam_free((void *)(uintptr_t)512) == SEAM_E_STATE && seam_free(NULL) == SEAM_OK;
    right &= seam_trim(0) == SEAM_E_STATE && seam_shutdown() == SEAM_E_STATE;
    right &= seam_pool_begin(0, id, NULL, NULL) == SEAM_E_STATE;
    right &= seam_pool_end(0, id) == SEAM_E_STATE && seam_pool_release(0, id) == SEAM_E_STATE;
    right &= seam_phase_pop() == SEAM_E_STATE && seam_window_open("w", &window) == SEAM_E_STATE;
    right &= seam_stat(0, "hits", &value) == SEAM_E_STATE && !seam_stats_json(-1, text, sizeof(text));
    right &= seam_trace_stop() == SEAM_E_STATE && seam_trace_start("/dev/null") == SEAM_E_STATE;
    right &= seam_settings(text, sizeof(text)) > 0;
    right &= sim_calls_total() == calls;
    return right ? 0 : 1;
}

static void forks_while_others_allocate(void **state)
{
    (void)state;
    pthread_t threads[3];
    atomic_store(&busy, true);
    ok(seam_free(seam_malloc(MIB, 0, NULL)));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < 12; i++)
        in_child(everything_is_inert);
    atomic_store(&busy, false);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ok(seam_validate());
}

/* A recording is the parent's: a child's end adds nothing to it. */
static int end_at_once(void)
{
    return 0;
}

static long length_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    fclose(file);
    return length;
}

static void a_childs_end_leaves_the_recording_alone(void **state)
{
    (void)state;
    char path[] = "/tmp/seamalloc-life-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    unlink(path);
    ok(seam_trace_start(path));
    for (int i = 0; i < 100; i++)
        ok(seam_free(seam_malloc(5000, 0, NULL)));
    long before = length_of(path);
    in_child(end_at_once);
    assert_int_equal(length_of(path), before);
    ok(seam_trace_stop());
    assert_true(length_of(path) > before);
    unlink(path);
}

/* ---- ends ---- */

static int end_with_live_blocks(void)
{
    pthread_t thread;
    atomic_store(&busy, true);
    if (!seam_malloc(MIB, 0, NULL) || pthread_create(&thread, NULL, allocate, NULL))
        return 1;
    for (int i = 0; i < 50; i++)
        seam_malloc(3000000, 1, NULL);
    return 0; /* and the thread goes on */
}

static void late_free(void)
{
    static char other;
    if (seam_free(&other) != SEAM_E_POINTER)
        _exit(3);
}

static int end_with_a_driver_that_went_first(void)
{
    atexit(late_free);
    atexit(sim_deinitialise); /* runs before it */
    return seam_malloc(MIB, 0, NULL) ? 0 : 1;
}

static void processes_end_with_live_blocks(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        in_process("end_with_live_blocks");
    in_process("end_with_a_driver_that_went_first");
}

/* ---- copies of the library ---- */

struct copy {
    void *opened;
    void *(*allocate)(size_t, int, seam_stream);
    seam_result (*give)(void *);
    seam_result (*configure)(const char *);
    size_t (*settings)(char *, size_t);
    seam_result (*shutdown)(void);
};

static bool find(struct copy *copy, const char *name, void *member)
{
    void *symbol = dlsym(copy->opened, name);
    memcpy(member, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static bool open_copy(struct copy *copy, const char *path, int flags)
{
    copy->opened = dlopen(path, RTLD_NOW | flags);
    if (!copy->opened) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    return find(copy, "seam_malloc", &copy->allocate) && find(copy, "seam_free", &copy->give) &&
           find(copy, "seam_configure", &copy->configure) && find(copy, "seam_settings", &copy->settings) &&
           find(copy, "seam_shutdown", &copy->shutdown);
}

static bool has_setting(struct copy *copy, const char *part)
{
    char text[4096];
    copy->settings(text, sizeof(text));
    return strstr(text, part) != NULL;
}

static struct copy passing;

static void *use_once(void *argument)
{
    return (void *)(uintptr_t)passing.give(passing.allocate(5000, 0, argument));
}

static int unload(bool shut_down)
{
    pthread_t thread;
    void *result = NULL;
    for (int round = 0; round < 3; round++) {
        if (!open_copy(&passing, library, RTLD_LOCAL) || !passing.allocate(MIB, 0, NULL) ||
            pthread_create(&thread, NULL, use_once, NULL))
            return 1;
        pthread_join(thread, &result);
        if (result || (shut_down && passing.shutdown()) || dlclose(passing.opened))
            return 2;
        pid_t pid = fork(); /* handlers of what is gone would be called here */
        if (pid == 0)
            _exit(0);
        int status = 1;
        waitpid(pid, &status, 0);
        if (status)
            return 3;
    }
    return 0;
}

static int unload_after_shutdown(void)
{
    return unload(true);
}

static int unload_with_live_blocks(void)
{
    return unload(false);
}

static void the_library_is_unloaded(void **state)
{
    (void)state;
    in_process("unload_after_shutdown");
    in_process("unload_with_live_blocks");
}

/* The same file under another name is another library to the loader. */
static bool copy_file(const char *from, const char *to)
{
    char buffer[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n;
    bool right = in && out;
    while (right && (n = fread(buffer, 1, sizeof(buffer), in)) > 0)
        right = fwrite(buffer, 1, n, out) == n;
    if (in)
        fclose(in);
    return out && !fclose(out) && right;
}

static int several_copies(void)
{
    static const char *const sizes[] = {"small_limit_kib:64", "small_limit_kib:96", "small_limit_kib:160"};
    struct copy copies[3];
    void *blocks[3];
    char path[] = "/tmp/seamalloc-copy-XXXXXX";
    int file = mkstemp(path);
    if (file < 0 || close(file) || !copy_file(library, path))
        return 1;
    bool right = open_copy(&copies[0], library, RTLD_GLOBAL) && open_copy(&copies[1], path, RTLD_LOCAL) &&
                 open_copy(&copies[2], torch_library, RTLD_LOCAL);
    unlink(path);
    for (int i = 0; i < 3 && right; i++) {
        right = copies[i].configure(sizes[i]) == SEAM_OK;
        blocks[i] = right ? copies[i].allocate(MIB, 0, NULL) : NULL;
        right = blocks[i] && has_setting(&copies[i], sizes[i]);
    }
    for (int i = 0; i < 3 && right; i++) {
        right = has_setting(&copies[i], sizes[i]) && copies[i].give(blocks[(i + 1) % 3]) == SEAM_E_POINTER &&
                copies[i].give(blocks[i]) == SEAM_OK;
    }
    for (int i = 0; i < 3 && right; i++)
        right = copies[i].shutdown() == SEAM_OK;
    return right ? 0 : 2;
}

static void copies_know_nothing_of_each_other(void **state)
{
    (void)state;
    in_process("several_copies");
}

static int run_named(const char *name)
{
    static const struct {
        const char *name;
        int (*function)(void);
    } programs[] = {
        {"end_with_live_blocks", end_with_live_blocks},
        {"end_with_a_driver_that_went_first", end_with_a_driver_that_went_first},
        {"unload_after_shutdown", unload_after_shutdown},
        {"unload_with_live_blocks", unload_with_live_blocks},
        {"several_copies", several_copies},
    };
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
        if (!strcmp(name, programs[i].name))
            return start(NULL) ? 9 : run(programs[i].function);
    return 2;
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(a_device_that_nobody_uses_is_not_touched),
        TEST(a_device_that_was_reset),
        TEST(forks_while_others_allocate),
        TEST(a_childs_end_leaves_the_recording_alone),
        TEST(processes_end_with_live_blocks),
        TEST(the_library_is_unloaded),
        TEST(copies_know_nothing_of_each_other),
    };
    if (argc < 3) {
        fprintf(stderr, "usage: %s LIBSEAMALLOC LIBSEAMALLOC_TORCH\n", argv[0]);
        return 2;
    }
    library = argv[1];
    torch_library = argv[2];
    if (argc > 3)
        return run_named(argv[3]);
    unsetenv("SEAMALLOC_CONF");
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    unsetenv("PYTORCH_ALLOC_CONF");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
