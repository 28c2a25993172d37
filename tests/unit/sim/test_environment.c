/* SPDX-License-Identifier: Apache-2.0 */
/* What SEAMALLOC_SIM_* does. Each case is a child process that initialises the driver afresh; this process
 * never does. */
#include "tests/unit/sim/child.h"
#include <jansson.h>
#include <sys/stat.h>

static int init(void)
{
    return (int)cuInit(0);
}

/* What cuInit answers when a variable has a value, and what it says. */
static int init_with(const char *variable, const char *value, struct outcome *outcome)
{
    setenv(variable, value, 1);
    in_child(init, outcome);
    unsetenv(variable);
    assert_true(WIFEXITED(outcome->status)); /* the process lives */
    return WEXITSTATUS(outcome->status);
}

static void test_start_line(void **state)
{
    (void)state;
    struct outcome outcome;
    setenv("SEAMALLOC_SIM_DEVICES", "2", 1);
    setenv("SEAMALLOC_SIM_COST", "a100", 1);
    setenv("SEAMALLOC_SIM_STREAMS", "lag:50", 1);
    assert_int_equal(init_with("SEAMALLOC_SIM_MIB", "1024", &outcome), CUDA_SUCCESS);
    assert_text(&outcome, "seamalloc: simulated CUDA device, 2 x 1024 MiB, cost a100, streams lag:50");
    unsetenv("SEAMALLOC_SIM_DEVICES");
    unsetenv("SEAMALLOC_SIM_COST");
    unsetenv("SEAMALLOC_SIM_STREAMS");
    in_child(init, &outcome);
    assert_text(&outcome, "seamalloc: simulated CUDA device, 1 x 81920 MiB, cost h100, streams immediate");
}

/* A bad value is named with its variable and with what would be right; nothing is started. */
static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *value, *right;
    } cases[] = {
        {"SEAMALLOC_SIM_MIB", "12x", "whole number"},
        {"SEAMALLOC_SIM_MIB", "-5", "whole number"},
        {"SEAMALLOC_SIM_MIB", "", "whole number"},
        {"SEAMALLOC_SIM_MIB", "99999999999999999999", "whole number"},
        {"SEAMALLOC_SIM_DEVICES", "0", "from 1 to 16"},
        {"SEAMALLOC_SIM_DEVICES", "17", "from 1 to 16"},
        {"SEAMALLOC_SIM_STRICT", "yes", "from 0 to 1"},
        {"SEAMALLOC_SIM_STREAMS", "lag:", "lag:N"},
        {"SEAMALLOC_SIM_STREAMS", "sometimes", "lag:N"},
        {"SEAMALLOC_SIM_STREAMS", "random:x", "random:SEED"},
        {"SEAMALLOC_SIM_STREAMS", "timed:1", "timed"},
        {"SEAMALLOC_SIM_TRACE", "/tmp/never-made.json", "SEAMALLOC_SIM_STREAMS=timed"},
        {"SEAMALLOC_SIM_COST", "h200", "h100, a100"},
        {"SEAMALLOC_SIM_FAIL", "cuMemMap", "CALL:N"},
        {"SEAMALLOC_SIM_FAIL", "cuMemMap:0", "from 1"},
        {"SEAMALLOC_SIM_FAIL", "cuMemMap:5..4", "the larger last"},
        {"SEAMALLOC_SIM_FAIL", "cuMemCreate:1:size", "after size"},
        {"SEAMALLOC_SIM_FAIL", "cuMemCreate:1:size>=64X", "nothing after the count"},
        {"SEAMALLOC_SIM_FAIL", "cuMemCreate:1:size>8M:size<4M", "no size is like that"},
        {"SEAMALLOC_SIM_FAIL", "cuMemRelease:1:size>=2M", "has no size"},
        {"SEAMALLOC_SIM_FAIL", "cuMemCreate:1:device=16", "device number"},
        {"SEAMALLOC_SIM_FAIL", "cuMemCreate:1:device=0:device=1", "device= once"},
        {"SEAMALLOC_SIM_FAIL", "cuMemCreate:1:weather=fair", "size, device=, error=, fault= or tenant="},
        {"SEAMALLOC_SIM_FAIL", "cuMemCreate:1:fault=CUDA_ERROR_UNKNOWN", "an error that stays"},
        {"SEAMALLOC_SIM_FAIL", "cuMemCreate:1:error=OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"},
        {"SEAMALLOC_SIM_DRIVER", "oversubscribe,copies", "copies-fault"},
        {"SEAMALLOC_SIM_DRIVER", "access", "access-whole"},
        {"SEAMALLOC_SIM_MAPPINGS", "many", "whole number"},
        {"SEAMALLOC_SIM_ADDRESS_GIB", "99999999", "from 0 to"},
        {"SEAMALLOC_SIM_GRANULARITY_KIB", "96", "a power of two from 64 to"},
        {"SEAMALLOC_SIM_GRANULARITY_KIB", "32", "a power of two from 64 to"},
        {"SEAMALLOC_SIM_GRANULARITY_KIB", "2M", "a power of two from 64 to"},
        {"SEAMALLOC_SIM_RECOMMENDED_KIB", "1024", "from the granularity, 2048"},
        {"SEAMALLOC_SIM_PARTIAL", "yes", "whole, prefix or inner"},
        {"SEAMALLOC_SIM_UNMAP", "2", "one or several"},
        {"SEAMALLOC_SIM_TENANT", "", "MIB@WHEN"},
        {"SEAMALLOC_SIM_TENANT", "1024", "MIB@WHEN"},
        {"SEAMALLOC_SIM_TENANT", "1024@5", "5000calls"},
        {"SEAMALLOC_SIM_TENANT", "1024@5hours", "5000calls"},
        {"SEAMALLOC_SIM_TENANT", "1024@0,", "MIB@WHEN"},
        {"SEAMALLOC_SIM_TENANT", "99999@0", "no more than the device has"},
        {"SEAMALLOC_SIM_TENANT", "10@7calls,20@7calls", "later than the one before"},
        {"SEAMALLOC_SIM_TENANT", "10@7ms", "SEAMALLOC_SIM_STREAMS=timed"},
        {"SEAMALLOC_SIM_TENANT", "10@18446744073709552ms", "an earlier time"},
        {"SEAMALLOC_SIM_SHARE", "a/b", "letters, digits"},
        {"SEAMALLOC_SIM_LACKS", "vmm,fabric", "fabric is never there"},
        {"SEAMALLOC_SIM_LIES", "vmm,graphs", "vmm, export, fabric"},
        {"SEAMALLOC_SIM_FAIL", "cuMemMap:3,cuMemNothing:1", "cuMemNothing:1"},
        {"SEAMALLOC_SIM_FAIL", "cuMemMap:3++", "nothing after the count"},
    };
    struct outcome outcome;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(init_with(cases[i].variable, cases[i].value, &outcome), CUDA_ERROR_INVALID_VALUE);
        assert_text(&outcome, cases[i].variable);
        assert_text(&outcome, cases[i].value);
        assert_text(&outcome, cases[i].right);
    }
}

/* However long a value is, the reason is said. */
static void test_long_values(void **state)
{
    (void)state;
    struct outcome outcome;
    char value[600], folder[] = "/tmp/sim-long-XXXXXX";
    memset(value, 'a', sizeof value);
    memcpy(value + 500, ":1", 3);
    assert_int_equal(init_with("SEAMALLOC_SIM_FAIL", value, &outcome), CUDA_ERROR_INVALID_VALUE);
    assert_text(&outcome, "no such call");
    assert_non_null(mkdtemp(folder));
    int used = snprintf(value, sizeof value, "%s", folder);
    while (used < 400)
        used += snprintf(value + used, sizeof value - (size_t)used, "/.");
    snprintf(value + used, sizeof value - (size_t)used, "/cost");
    FILE *file = fopen(value, "w");
    assert_non_null(file);
    assert_true(fputs("cuMemMap 1\ncuNothing 1\n", file) >= 0);
    fclose(file);
    assert_int_equal(init_with("SEAMALLOC_SIM_COST", value, &outcome), CUDA_ERROR_INVALID_VALUE);
    assert_text(&outcome, ":2: no driver call has this name");
    unlink(value);
    rmdir(folder);
}

static int fail_the_second(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    if (cuInit(0) || cuMemCreate(&handle, UNIT, &prop, 0))
        return 1;
    if (cuMemCreate(&handle, UNIT, &prop, 0) != CUDA_ERROR_OUT_OF_MEMORY)
        return 2;
    if (cuMemCreate(&handle, UNIT, &prop, 0))
        return 3;
    for (int i = 0; i < 3; i++)
        if (cuMemRelease(handle) != CUDA_ERROR_UNKNOWN)
            return 4;
    return 0;
}

static void test_faults(void **state)
{
    (void)state;
    struct outcome outcome;
    setenv("SEAMALLOC_SIM_FAIL", "cuMemCreate:2,cuMemRelease:1+", 1);
    in_child(fail_the_second, &outcome);
    unsetenv("SEAMALLOC_SIM_FAIL");
    assert_int_equal(outcome.status, 0);
}

/* Limits of the device, and what it claims. */
static int look_at_limits(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    CUdeviceptr base;
    CUcontext context;
    size_t left, total;
    int fabric, vmm, pools;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemGetInfo(&left, &total))
        return 1;
    if (left != 256 * (size_t)MIB || total != 1024 * (size_t)MIB)
        return 2;
    if (cuMemAddressReserve(&base, (size_t)3 << 30, 0, 0, 0) != CUDA_ERROR_OUT_OF_MEMORY ||
        cuMemAddressReserve(&base, (size_t)2 << 30, 0, 0, 0))
        return 3;
    if (cuMemCreate(&handle, UNIT, &prop, 0) || cuMemMap(base, UNIT, 0, handle, 0) ||
        cuMemMap(base + UNIT, UNIT, 0, handle, 0) || try_access(base, UNIT, 0) ||
        try_access(base + UNIT, UNIT, 0) != CUDA_ERROR_OUT_OF_MEMORY)
        return 4;
    cuDeviceGetAttribute(&fabric, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0);
    cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    if (!fabric || !vmm || pools || cuMemCreate(&handle, UNIT, &prop, 0) != CUDA_ERROR_NOT_SUPPORTED)
        return 5;
    return cuMemAllocAsync(&base, UNIT, NULL) == CUDA_ERROR_NOT_SUPPORTED ? 0 : 6;
}

static void test_limits(void **state)
{
    (void)state;
    static const char *const settings[][2] = {
        {"SEAMALLOC_SIM_MIB", "1024"},    {"SEAMALLOC_SIM_TENANT", "768@0"},
        {"SEAMALLOC_SIM_MAPPINGS", "1"},  {"SEAMALLOC_SIM_ADDRESS_GIB", "2"},
        {"SEAMALLOC_SIM_LIES", "fabric"}, {"SEAMALLOC_SIM_LACKS", "pools"}};
    struct outcome outcome;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        setenv(settings[i][0], settings[i][1], 1);
    in_child(look_at_limits, &outcome);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        unsetenv(settings[i][0]);
    assert_int_equal(outcome.status, 0);
}

/* Each name of the list reaches its switch: what the driver answers by default is the other thing. */
static int look_at_the_driver(void)
{
    CUmemAllocationProp prop = device_prop(0);
    CUmemGenericAllocationHandle handle, spare;
    CUdeviceptr base, other;
    CUcontext context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemAddressReserve(&base, 4 * UNIT, 0, 0, 0) || cuMemCreate(&handle, 2 * UNIT, &prop, 0))
        return 1;
    if (!cuMemAddressReserve(&other, UNIT, 0, base + 64 * (CUdeviceptr)UNIT, 0)) /* hints-refused */
        return 2;
    if (cuMemMap(base, 2 * UNIT, 0, handle, 0) || cuMemMap(base + 2 * UNIT, 2 * UNIT, 0, handle, 0))
        return 3;
    if (!try_access(base, 2 * UNIT, 0) || try_access(base, 4 * UNIT, 0)) /* access-whole */
        return 4;
    if (cuMemUnmap(base, 4 * UNIT))
        return 5;
    if (cuMemRelease(handle) || sim_physical_bytes(0) != 2 * UNIT) /* release-keeps */
        return 6;
    if (cuMemCreate(&spare, (size_t)1100 * MIB, &prop, 0)) /* oversubscribe */
        return 7;
    return !cuMemsetD8Async(base, 1, UNIT, NULL) && cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS
               ? 0
               : 8; /* copies-fault */
}

static void test_driver(void **state)
{
    (void)state;
    struct outcome outcome;
    setenv("SEAMALLOC_SIM_MIB", "1024", 1);
    in_child(look_at_the_driver, &outcome);
    assert_int_not_equal(outcome.status, 0);
    setenv("SEAMALLOC_SIM_DRIVER", "access-whole,release-keeps,hints-refused,oversubscribe,copies-fault", 1);
    in_child(look_at_the_driver, &outcome);
    unsetenv("SEAMALLOC_SIM_DRIVER");
    unsetenv("SEAMALLOC_SIM_MIB");
    assert_int_equal(outcome.status, 0);
}

static size_t memory_left(void)
{
    size_t left = 0, total;
    return cuMemGetInfo(&left, &total) ? 0 : left / MIB;
}

/* The tenant takes 700 of 1,024 MiB at once, all but 100 MiB at the 20th call, and goes at the 30th. */
static int watch_the_tenant(void)
{
    CUdeviceptr block;
    CUcontext context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    if (memory_left() != 324 || cuMemAlloc(&block, 200 * (size_t)MIB))
        return 2;
    for (size_t calls = 6; calls < 20; calls++)
        if (memory_left() != 124)
            return 3;
    /* It wants 924 MiB, and there are 824 beside the 200 of this process: it takes what there is. */
    if (memory_left() != 0 || cuMemAlloc(&block, 2 * (size_t)MIB) != CUDA_ERROR_OUT_OF_MEMORY)
        return 4;
    for (size_t calls = 22; calls < 30; calls++)
        if (memory_left() != 0)
            return 5;
    return memory_left() == 824 && !cuMemAlloc(&block, 800 * (size_t)MIB) ? 0 : 6;
}

static void test_tenant(void **state)
{
    (void)state;
    char folder[] = "/tmp/sim-tenant-XXXXXX", path[64];
    struct outcome outcome;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/record.json", folder);
    setenv("SEAMALLOC_SIM_REPORT", path, 1);
    setenv("SEAMALLOC_SIM_MIB", "1024", 1);
    setenv("SEAMALLOC_SIM_TENANT", "700@0,924@20calls,0@30calls", 1);
    in_child(watch_the_tenant, &outcome);
    assert_int_equal(outcome.status, 0);
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    assert_string_equal(json_string_value(json_object_get(root, "tenant")), "700@0,924@20calls,0@30calls");
    assert_int_equal(json_integer_value(json_object_get(device, "tenant_bytes")), 0);
    assert_int_equal(json_integer_value(json_object_get(device, "tenant_peak_bytes")), 824 * MIB);
    json_decref(root);
    unlink(path);
    rmdir(folder);
    unsetenv("SEAMALLOC_SIM_REPORT");
    assert_int_equal(init_with("SEAMALLOC_SIM_SHARE", "some", &outcome), CUDA_ERROR_INVALID_VALUE);
    assert_text(&outcome, "SEAMALLOC_SIM_SHARE");
    unsetenv("SEAMALLOC_SIM_MIB");
    unsetenv("SEAMALLOC_SIM_TENANT");
}

/* By the clock: what a host wait skips is over when it ends. */
static int watch_the_clock(void)
{
    CUcontext context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        memory_left() != 1024)
        return 1;
    sim_host_spend(2000000);
    if (memory_left() != 512)
        return 2;
    sim_host_spend(1000000);
    return memory_left() == 1024 ? 0 : 3;
}

static void test_tenant_by_the_clock(void **state)
{
    (void)state;
    struct outcome outcome;
    setenv("SEAMALLOC_SIM_MIB", "1024", 1);
    setenv("SEAMALLOC_SIM_STREAMS", "timed", 1);
    setenv("SEAMALLOC_SIM_TENANT", "0@0,512@2000us,0@3ms", 1);
    in_child(watch_the_clock, &outcome);
    unsetenv("SEAMALLOC_SIM_MIB");
    unsetenv("SEAMALLOC_SIM_TENANT");
    unsetenv("SEAMALLOC_SIM_STREAMS");
    assert_int_equal(outcome.status, 0);
}

/* The rules of a cost file hold, and a variable wins over them. */
static int look_at_rules(void)
{
    CUmemAllocationProp prop = device_prop(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    size_t least, recommended;
    if (cuInit(0) || cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
        cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return 1;
    if (least != 64 << 10 || recommended != 256 << 10)
        return 2;
    if (cuMemCreate(&handle, 4 * least, &prop, 0) || cuMemAddressReserve(&base, 4 * least, 0, 0, 0) ||
        cuMemMap(base, least, 2 * least, handle, 0) || cuMemMap(base + least, least, 0, handle, 0))
        return 3;
    if (cuMemUnmap(base, 2 * least) != CUDA_ERROR_INVALID_VALUE)
        return 4;
    return try_access(base, 2 * least, 0) == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 5;
}

static void test_rules(void **state)
{
    (void)state;
    struct outcome outcome;
    char path[] = "/tmp/sim-rules-XXXXXX";
    int file = mkstemp(path);
    static const char text[] = "rule.granularity_kib 64\nrule.recommended_kib 256\nrule.partial prefix\n"
                               "rule.unmap one\nrule.mappings 1\n";
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    setenv("SEAMALLOC_SIM_COST", path, 1);
    in_child(look_at_rules, &outcome);
    assert_int_equal(WEXITSTATUS(outcome.status), 3); /* the file's prefix is no inner part */
    setenv("SEAMALLOC_SIM_PARTIAL", "inner", 1);
    in_child(look_at_rules, &outcome);
    unsetenv("SEAMALLOC_SIM_PARTIAL");
    unsetenv("SEAMALLOC_SIM_COST");
    unlink(path);
    assert_int_equal(outcome.status, 0);
}

static int break_a_rule(void)
{
    if (cuInit(0))
        return 1;
    return cuMemUnmap(0x200000, UNIT) == CUDA_ERROR_INVALID_VALUE ? 0 : 2;
}

static void test_strict(void **state)
{
    (void)state;
    struct outcome outcome;
    in_child(break_a_rule, &outcome);
    assert_int_equal(outcome.status, 0);
    setenv("SEAMALLOC_SIM_STRICT", "1", 1);
    in_child(break_a_rule, &outcome);
    unsetenv("SEAMALLOC_SIM_STRICT");
    assert_true(WIFSIGNALED(outcome.status));
    assert_int_equal(WTERMSIG(outcome.status), SIGABRT);
    assert_text(&outcome, "unmap-unmapped");
    assert_text(&outcome, "cuMemUnmap");
    assert_text(&outcome, "[0x200000, +2097152)");
}

/* The record is written at exit, once, by the process that used the device, and not by its forked children.
 */
static int work_and_fork(void)
{
    int count;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    if (cuInit(0) || cuMemCreate(&handle, UNIT, &prop, 0))
        return 1;
    pid_t child = fork();
    if (child == 0) /* a child has no driver, and says so */
        exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                 ? 0
                 : 9);
    int status;
    waitpid(child, &status, 0);
    if (status || cuMemCreate(&handle, UNIT, &prop, 0))
        return 2;
    return 0;
}

static void test_report(void **state)
{
    (void)state;
    struct outcome outcome;
    char folder[] = "/tmp/sim-report-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/record.json", folder);
    setenv("SEAMALLOC_SIM_REPORT", path, 1);
    in_child(work_and_fork, &outcome);
    unsetenv("SEAMALLOC_SIM_REPORT");
    assert_int_equal(outcome.status, 0);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(device, "calls"), "cuMemCreate")), 2);
    assert_int_equal(json_integer_value(json_object_get(device, "physical_peak_bytes")), 2 * UNIT);
    json_decref(root);
    unlink(path);
    rmdir(folder);
}

/* %p is the process: several of them may report to one folder. */
static void test_report_by_process(void **state)
{
    (void)state;
    struct outcome outcome;
    char folder[] = "/tmp/sim-report-XXXXXX", path[64], command[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/record-%%p.json", folder);
    setenv("SEAMALLOC_SIM_REPORT", path, 1);
    in_child(init, &outcome);
    in_child(init, &outcome);
    unsetenv("SEAMALLOC_SIM_REPORT");
    snprintf(command, sizeof command, "test $(ls %s | grep -c '^record-[0-9]*.json$') = 2 && rm -r %s",
             folder, folder);
    assert_int_equal(system(command), 0);
}

/* Where there is a real device the simulator does not stand in. */
static void test_real_device(void **state)
{
    (void)state;
    struct outcome outcome;
    char root[] = "/tmp/sim-probe-XXXXXX", path[64];
    assert_non_null(mkdtemp(root));
    setenv("SEAMALLOC_SIM_PROBE", root, 1);
    in_child(init, &outcome);
    assert_int_equal(outcome.status, 0);
    snprintf(path, sizeof path, "%s/dev", root);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/dev/nvidia0", root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    in_child(init, &outcome);
    unsetenv("SEAMALLOC_SIM_PROBE");
    assert_int_equal(WEXITSTATUS(outcome.status), CUDA_ERROR_NO_DEVICE);
    assert_text(&outcome, "real CUDA device");
    unlink(path);
    snprintf(path, sizeof path, "%s/dev", root);
    rmdir(path);
    rmdir(root);
}

/* The trace is whole at the end, and a forked child has written nothing into it. */
static void test_trace(void **state)
{
    (void)state;
    struct outcome outcome;
    char folder[] = "/tmp/sim-trace-XXXXXX", path[64];
    size_t i, creates = 0;
    const json_t *event;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trace.json", folder);
    setenv("SEAMALLOC_SIM_TRACE", path, 1);
    setenv("SEAMALLOC_SIM_STREAMS", "timed", 1);
    in_child(work_and_fork, &outcome);
    unsetenv("SEAMALLOC_SIM_TRACE");
    unsetenv("SEAMALLOC_SIM_STREAMS");
    assert_int_equal(outcome.status, 0);
    assert_text(&outcome, "streams timed");
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        creates += strcmp(name, "cuMemCreate") == 0;
    }
    assert_true(creates >= 2); /* two calls, each with a fixed and another part */
    assert_int_equal(creates % 2, 0);
    json_decref(root);
    unlink(path);
    rmdir(folder);
}

static int use_uninitialised(void)
{
    int count;
    return (int)cuDeviceGetCount(&count);
}

static void test_not_initialised(void **state)
{
    (void)state;
    struct outcome outcome;
    in_child(use_uninitialised, &outcome);
    assert_int_equal(WEXITSTATUS(outcome.status), CUDA_ERROR_NOT_INITIALIZED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_line),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_strict),
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_report_by_process),
        cmocka_unit_test(test_real_device),
        cmocka_unit_test(test_not_initialised),
        cmocka_unit_test(test_driver),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_tenant),
        cmocka_unit_test(test_tenant_by_the_clock),
        cmocka_unit_test(test_rules),
    };
    setenv("SEAMALLOC_SIM_PROBE", "/nonexistent", 1); /* also on a machine with a GPU */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
