/* SPDX-License-Identifier: Apache-2.0 */
/* Strict mode: the report of a broken rule, with what happened before, and the list of what was not given
 * back. */
#include "tests/unit/sim/child.h"

static bool start_strict(bool strict)
{
    struct sim_config config = small_device();
    config.strict = strict;
    if (!sim_start(&config))
        return false;
    CUcontext context;
    return !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context);
}

/* Maps, unmaps, and unmaps again. The numbers of the calls follow from the order. */
static int unmap_twice(void)
{
    CUdeviceptr base, other;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    if (!start_strict(true))
        return 1;
    uint64_t first = sim_calls_total() + 1;
    if (cuMemAddressReserve(&base, 2 * UNIT, 0, 0, 0) || cuMemAddressReserve(&other, UNIT, 0, 0, 0) ||
        cuMemCreate(&handle, UNIT, &prop, 0) || cuMemMap(base, UNIT, 0, handle, 0) ||
        try_access(base, UNIT, 0) || cuMemUnmap(base, UNIT))
        return 2;
    fprintf(stderr, "first %llu\n", (unsigned long long)first);
    cuMemUnmap(base, UNIT);
    return 3;
}

static void assert_event(const struct outcome *outcome, unsigned long long number, const char *event)
{
    char line[128];
    snprintf(line, sizeof line, "call %llu, %s", number, event);
    assert_text(outcome, line);
}

static void assert_no_text(const struct outcome *outcome, const char *part)
{
    if (strstr(outcome->text, part))
        fail_msg("\"%s\" is in: %s", part, outcome->text);
}

static void test_history(void **state)
{
    (void)state;
    struct outcome outcome;
    unsigned long long first = 0;
    in_child(unmap_twice, &outcome);
    assert_true(WIFSIGNALED(outcome.status));
    assert_int_equal(WTERMSIG(outcome.status), SIGABRT);
    assert_int_equal(sscanf(outcome.text, "first %llu", &first), 1);
    assert_text(&outcome, "broken rule unmap-unmapped in cuMemUnmap");
    assert_event(&outcome, first, "cuMemAddressReserve: addresses reserved");
    assert_event(&outcome, first + 3, "cuMemMap: mapped");
    assert_event(&outcome, first + 4, "cuMemSetAccess: access given");
    assert_event(&outcome, first + 5, "cuMemUnmap: unmapped");
    char line[64];
    snprintf(line, sizeof line, "call %llu, ", first + 1); /* another range */
    assert_no_text(&outcome, line);
}

/* A handle has a history too. */
static int release_twice(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    if (!start_strict(true) || cuMemCreate(&handle, UNIT, &prop, 0) || cuMemRelease(handle))
        return 1;
    cuMemRelease(handle);
    return 2;
}

static int free_twice(void)
{
    CUdeviceptr plain;
    if (!start_strict(true) || cuMemAlloc(&plain, UNIT) || cuMemFree(plain))
        return 1;
    cuMemFree(plain);
    return 2;
}

static void test_history_of_a_handle(void **state)
{
    (void)state;
    struct outcome outcome;
    in_child(release_twice, &outcome);
    assert_true(WIFSIGNALED(outcome.status));
    assert_text(&outcome, "unknown-handle");
    assert_text(&outcome, "cuMemCreate: created handle");
    assert_text(&outcome, "cuMemRelease: released handle");
    in_child(free_twice, &outcome);
    assert_true(WIFSIGNALED(outcome.status));
    assert_text(&outcome, "unknown-pointer");
    assert_text(&outcome, "cuMemAlloc: allocated");
    assert_text(&outcome, "cuMemFree: freed");
}

/* ---- leaks ---- */

static bool leak_one_of_each(void)
{
    CUdeviceptr base, plain;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool;
    CUstream stream;
    CUevent event;
    void *host;
    return !cuMemAddressReserve(&base, 2 * UNIT, 0, 0, 0) && !cuMemCreate(&handle, UNIT, &prop, 0) &&
           !cuMemMap(base, UNIT, 0, handle, 0) && !cuMemAlloc(&plain, 3 * UNIT) &&
           !cuMemHostAlloc(&host, 4096, 0) && !cuStreamCreate(&stream, 0) && !cuEventCreate(&event, 0) &&
           !cuMemPoolCreate(&pool, &props);
}

static int leak(void)
{
    return start_strict(true) && leak_one_of_each() ? 0 : 1;
}

static int leak_in_peace(void)
{
    return start_strict(false) && leak_one_of_each() ? 0 : 1;
}

static int leak_nothing(void)
{
    CUdeviceptr plain;
    return start_strict(true) && !cuMemAlloc(&plain, UNIT) && !cuMemFree(plain) ? 0 : 1;
}

static void test_leaks(void **state)
{
    (void)state;
    static const char *const kinds[] = {
        "never given back",
        "handle 0x",
        "of 2097152 bytes: call ",
        ", cuMemCreate\n",
        "mapping 0x",
        ", cuMemMap\n",
        "reservation 0x",
        ", cuMemAddressReserve\n",
        "allocation 0x",
        "of 6291456 bytes: call ",
        ", cuMemAlloc\n",
        "host memory 0x",
        "stream 0x",
        "event 0x",
        "pool 0x",
        ", cuMemPoolCreate\n",
    };
    struct outcome outcome;
    in_child(leak, &outcome);
    assert_int_equal(outcome.status, 0); /* they are named; the process ends as it would */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_text(&outcome, kinds[i]);
    in_child(leak_in_peace, &outcome);
    assert_int_equal(outcome.status, 0);
    assert_no_text(&outcome, "never given back");
    in_child(leak_nothing, &outcome);
    assert_int_equal(outcome.status, 0);
    assert_no_text(&outcome, "never given back");
}

/* Many of a kind are counted, not listed. */
static void test_many_leaks(void **state)
{
    (void)state;
    char text[4096] = "";
    assert_true(start_strict(false));
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_int_equal(sim_print_leaks(out), 0);
    for (int i = 0; i < 25; i++)
        create(UNIT);
    assert_int_equal(sim_print_leaks(out), 25);
    fclose(out);
    assert_non_null(strstr(text, "and 15 more: handle"));
}

/* The history is there without strict mode too, and is bounded. */
static void test_history_on_request(void **state)
{
    (void)state;
    char text[8192] = "";
    CUdeviceptr plain;
    assert_true(start_strict(false));
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_ok(cuMemAlloc(&plain, UNIT));
    assert_int_equal(sim_print_history(out, plain, UNIT), 1);
    assert_int_equal(sim_print_history(out, plain + UNIT, UNIT), 0);
    for (int i = 0; i < 70000; i++)
        assert_ok(cuMemRelease(create(UNIT)));
    assert_int_equal(sim_print_history(out, plain, UNIT), 0); /* forgotten */
    assert_int_equal(sim_print_history(out, 0, 0), 24);
    fclose(out);
    assert_non_null(strstr(text, "cuMemAlloc: allocated"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_history_of_a_handle),
        cmocka_unit_test(test_leaks),
        cmocka_unit_test(test_many_leaks),
        cmocka_unit_test(test_history_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
