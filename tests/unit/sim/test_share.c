/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes on one set of devices. Each worker is a process that does what it is told over a pipe;
 * this process never uses the device. */
#include "tests/unit/sim/child.h"
#include <jansson.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { UNITS = 128, PARTS_MAX = 256 };

struct worker {
    pid_t process;
    int to, from;
};

static char share_name[32];

/* ---- a worker's side ---- */

static CUmemGenericAllocationHandle parts[PARTS_MAX];
static int part_count;

static long take(long units)
{
    return part_count < PARTS_MAX && !try_create((size_t)units * UNIT, &parts[part_count]) ? ++part_count
                                                                                           : -1;
}

static long drop(void)
{
    while (part_count > 0)
        if (cuMemRelease(parts[--part_count]))
            return -1;
    return 0;
}

static long left(void)
{
    size_t bytes, total;
    return cuMemGetInfo(&bytes, &total) ? -1 : (long)(bytes / UNIT);
}

/* Takes and gives at random. Returns: how often there was not enough. */
static long churn(long seed)
{
    long refused = 0;
    srand((unsigned)seed);
    for (int i = 0; i < 400; i++) {
        if (part_count > 20 || (part_count > 0 && rand() % 2)) {
            if (cuMemRelease(parts[--part_count]))
                return -1;
        } else {
            refused += take(1 + rand() % 12) < 0;
        }
    }
    return drop() ? -1 : refused;
}

static long fork_and_wait(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        exit(0); /* with the handlers of the process */
    waitpid(child, &status, 0);
    return status;
}

static long obey(const char *command)
{
    char word[16] = "";
    long number = 0;
    if (sscanf(command, "%15s %ld", word, &number) < 1)
        return -2;
    if (!strcmp(word, "take"))
        return take(number);
    if (!strcmp(word, "drop"))
        return drop();
    if (!strcmp(word, "left"))
        return left();
    if (!strcmp(word, "churn"))
        return churn(number);
    if (!strcmp(word, "fork"))
        return fork_and_wait();
    if (!strcmp(word, "all"))
        return (long)(sim_shared_bytes(0) / UNIT);
    if (!strcmp(word, "peak"))
        return (long)(sim_shared_bytes_peak(0) / UNIT);
    if (!strcmp(word, "record"))
        return sim_write_record(command + strlen("record ")) ? 0 : -1;
    return -2;
}

static bool join_with(uint64_t bytes)
{
    struct sim_config config = small_device();
    CUcontext context;
    config.device_bytes = bytes;
    config.share = share_name;
    return sim_start(&config) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context);
}

static void work(int in, int out)
{
    char command[256];
    FILE *from = fdopen(in, "r"), *to = fdopen(out, "w");
    bool joined = join_with((uint64_t)UNITS * UNIT);
    fprintf(to, "%d\n", joined ? 1 : 0);
    fflush(to);
    while (joined && fgets(command, sizeof command, from)) {
        command[strcspn(command, "\n")] = 0;
        fprintf(to, "%ld\n", obey(command));
        fflush(to);
    }
    exit(0); /* the pipe was closed: an ordinary end */
}

/* ---- the test's side ---- */

static long answer(const struct worker *w)
{
    char text[32] = "";
    size_t used = 0;
    while (used + 1 < sizeof text && read(w->from, text + used, 1) == 1 && text[used] != '\n')
        used++;
    return used ? strtol(text, NULL, 10) : -3;
}

static void send_to(const struct worker *w, const char *command)
{
    dprintf(w->to, "%s\n", command);
}

static long tell(const struct worker *w, const char *command)
{
    send_to(w, command);
    return answer(w);
}

static struct worker start_worker(void)
{
    int there[2], back[2];
    assert_int_equal(pipe2(there, O_CLOEXEC), 0);
    assert_int_equal(pipe2(back, O_CLOEXEC), 0);
    struct worker w = {.process = fork(), .to = there[1], .from = back[0]};
    if (w.process == 0) {
        for (int i = 3; i < 256; i++) /* the ends of other workers' pipes */
            if (i != there[0] && i != back[1])
                close(i);
        work(there[0], back[1]);
    }
    close(there[0]);
    close(back[1]);
    assert_int_equal(answer(&w), 1);
    return w;
}

static void end_worker(const struct worker *w)
{
    int status;
    close(w->to);
    assert_int_equal(waitpid(w->process, &status, 0), w->process);
    assert_int_equal(status, 0);
    close(w->from);
}

static void kill_worker(const struct worker *w)
{
    int status;
    kill(w->process, SIGKILL);
    waitpid(w->process, &status, 0);
    close(w->to);
    close(w->from);
}

static const char *ledger_path(void)
{
    static char path[128];
    snprintf(path, sizeof path, "/seamalloc-sim-%u-%s", (unsigned)getuid(), share_name);
    return path;
}

static bool ledger_exists(void)
{
    char path[160];
    snprintf(path, sizeof path, "/dev/shm%s", ledger_path());
    return access(path, F_OK) == 0;
}

/* ---- tests ---- */

static void test_common_memory(void **state)
{
    (void)state;
    struct worker a = start_worker(), b = start_worker();
    assert_true(ledger_exists());
    assert_int_equal(tell(&b, "left"), UNITS);
    assert_int_equal(tell(&a, "take 100"), 1);
    assert_int_equal(tell(&b, "left"), 28);
    assert_int_equal(tell(&b, "take 29"), -1);
    assert_int_equal(tell(&b, "take 28"), 1);
    assert_int_equal(tell(&a, "take 1"), -1);
    assert_int_equal(tell(&a, "all"), UNITS);
    assert_int_equal(tell(&a, "drop"), 0);
    assert_int_equal(tell(&b, "left"), 100);
    assert_int_equal(tell(&b, "peak"), UNITS);
    end_worker(&a);
    end_worker(&b);
    assert_false(ledger_exists()); /* the last one takes it away */
}

/* However a process ends, its memory is free again. */
static void test_death(void **state)
{
    (void)state;
    struct worker a = start_worker(), b = start_worker(), c;
    assert_int_equal(tell(&a, "take 100"), 1);
    kill_worker(&a);
    assert_int_equal(tell(&b, "take 120"), 1); /* without asking before */
    assert_int_equal(tell(&b, "left"), 8);
    c = start_worker();
    assert_int_equal(tell(&c, "take 8"), 1);
    end_worker(&c); /* with memory it never gave back */
    assert_int_equal(tell(&b, "left"), 8);
    kill_worker(&b);
    assert_true(ledger_exists()); /* nobody was left to take it away, so */
    a = start_worker();           /* the next one begins anew */
    assert_int_equal(tell(&a, "left"), UNITS);
    assert_int_equal(tell(&a, "peak"), 0);
    end_worker(&a);
    assert_false(ledger_exists());
}

/* A forked child is nobody on the device, and takes nothing away when it ends. */
static void test_fork(void **state)
{
    (void)state;
    struct worker a = start_worker(), b = start_worker();
    assert_int_equal(tell(&a, "take 50"), 1);
    assert_int_equal(tell(&a, "fork"), 0);
    assert_int_equal(tell(&b, "left"), UNITS - 50);
    assert_int_equal(tell(&a, "take 10"), 2);
    assert_int_equal(tell(&b, "left"), UNITS - 60);
    end_worker(&a);
    end_worker(&b);
}

/* Other devices under the same name are refused; there is no driver then, however often it is asked for. */
static int join_other(void)
{
    int count;
    if (join_with((uint64_t)UNITS * UNIT / 2))
        return 1;
    for (int i = 0; i < 2; i++)
        if (!cuInit(0) || !cuDeviceGetCount(&count))
            return 2;
    return 0;
}

static void test_other_devices(void **state)
{
    (void)state;
    struct outcome outcome;
    struct worker a = start_worker();
    in_child(join_other, &outcome);
    assert_int_equal(outcome.status, 0);
    assert_text(&outcome, "in use with 2 devices of 256 MiB, not 2 of 128 MiB");
    assert_int_equal(tell(&a, "left"), UNITS);
    end_worker(&a);
}

/* Who was killed between taking the shared memory away and taking its name away leaves what this test writes:
 * the next one begins anew. */
static void test_death_while_leaving(void **state)
{
    (void)state;
    static const struct {
        uint64_t magic, gone;
        char rest[4096];
    } left_behind = {0x3172656764656c73u, 1, {0}};
    int file = shm_open(ledger_path(), O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, &left_behind, sizeof left_behind), sizeof left_behind);
    close(file);
    struct worker a = start_worker();
    assert_int_equal(tell(&a, "left"), UNITS);
    assert_true(ledger_exists());
    end_worker(&a);
    assert_false(ledger_exists());
}

/* At once: what all have never exceeds the device, and nothing is lost. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 4 };
    struct worker w[N];
    long refused = 0;
    for (int i = 0; i < N; i++)
        w[i] = start_worker();
    for (int i = 0; i < N; i++) {
        char command[32];
        snprintf(command, sizeof command, "churn %d", i + 1);
        send_to(&w[i], command);
    }
    for (int i = 0; i < N; i++) {
        long n = answer(&w[i]);
        assert_true(n >= 0);
        refused += n;
    }
    assert_int_not_equal(refused, 0); /* there was a shortage */
    long peak = tell(&w[0], "peak");
    assert_true(peak <= UNITS && peak > UNITS / 2);
    assert_int_equal(tell(&w[0], "all"), 0);
    assert_int_equal(tell(&w[0], "left"), UNITS);
    for (int i = 0; i < N; i++)
        end_worker(&w[i]);
}

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no number %s", key);
    return json_integer_value(value);
}

/* One record: calls of those that have ended are in it, and the peak of all together. */
static void test_record(void **state)
{
    (void)state;
    char path[] = "/tmp/sim-share-XXXXXX", command[64];
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    struct worker a = start_worker(), b = start_worker(), c = start_worker();
    assert_int_equal(tell(&a, "take 40"), 1);
    assert_int_equal(tell(&b, "take 60"), 1);
    end_worker(&a);
    kill_worker(&c);
    assert_int_equal(tell(&b, "take 10"), 2);
    snprintf(command, sizeof command, "record %s", path);
    assert_int_equal(tell(&b, command), 0);
    end_worker(&b);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    const json_t *shared = json_object_get(root, "shared");
    const json_t *device = json_array_get(json_object_get(shared, "devices"), 0);
    assert_string_equal(json_string_value(json_object_get(shared, "name")), share_name);
    assert_int_equal(number(shared, "processes_running"), 1);
    assert_int_equal(number(shared, "processes_ended"), 1);
    assert_int_equal(number(shared, "processes_died"), 1);
    assert_int_equal(number(device, "physical_bytes"), 70 * (json_int_t)UNIT);
    assert_int_equal(number(device, "physical_peak_bytes"), 100 * (json_int_t)UNIT);
    assert_int_equal(number(json_object_get(device, "calls"), "cuMemCreate"), 3);
    json_decref(root);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common_memory),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_other_devices),
        cmocka_unit_test(test_death_while_leaving),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_record),
    };
    snprintf(share_name, sizeof share_name, "test-%ld", (long)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
