/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON record, read back with a JSON parser. */
#include "tests/unit/sim/sim_test.h"
#include <jansson.h>
#include <unistd.h>

static json_t *record(void)
{
    char path[] = "/tmp/sim-record-XXXXXX";
    json_error_t error;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_true(sim_write_record(path));
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("line %d: %s", error.line, error.text);
    unlink(path);
    return root;
}

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no number %s", key);
    return json_integer_value(value);
}

/* A size that is no number of JSON readers is the largest one, and never negative. */
static void test_sizes_out_of_range(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = map_new(UNIT, &handle);
    assert_int_equal(cuMemUnmap(base, (size_t)-UNIT), CUDA_ERROR_INVALID_VALUE);
    json_t *root = record();
    const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    const json_t *violation = json_array_get(json_object_get(device, "violations"), 0);
    assert_int_equal(number(violation, "size"), INT64_MAX);
    json_decref(root);
}

static void test_fields(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = map_new(3 * UNIT, &handle);
    create(UNIT);
    assert_ok(cuMemUnmap(base, 3 * UNIT));
    assert_ok(cuMemRelease(handle));
    assert_int_equal(cuMemUnmap(base, UNIT), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphCreate(NULL, 0), CUDA_ERROR_NOT_SUPPORTED);
    json_t *root = record();
    assert_true(json_is_true(json_object_get(root, "simulated")));
    assert_string_equal(json_string_value(json_object_get(root, "cost")), "h100");
    assert_string_equal(json_string_value(json_object_get(root, "streams")), "immediate");
    const json_t *devices = json_object_get(root, "devices");
    assert_int_equal(json_array_size(devices), 2);
    const json_t *device = json_array_get(devices, 0);
    assert_int_equal(number(device, "bytes"), 256 * MIB);
    assert_int_equal(number(device, "physical_peak_bytes"), 4 * UNIT);
    assert_int_equal(number(device, "physical_bytes"), UNIT);
    assert_int_equal(number(device, "mappings_peak"), 1);
    assert_int_equal(number(device, "mappings"), 0);
    assert_int_equal(number(device, "address_peak_bytes"), 3 * UNIT);
    const json_t *calls = json_object_get(device, "calls"), *ns = json_object_get(device, "driver_ns");
    assert_int_equal(number(calls, "cuMemCreate"), 2);
    assert_int_equal(number(calls, "cuMemUnmap"), 2);
    assert_null(json_object_get(calls, "cuMemAlloc")); /* never called */
    assert_int_equal(number(ns, "cuMemCreate"), sim_driver_ns("cuMemCreate"));
    assert_int_equal(number(device, "driver_ns_total"), sim_driver_ns(NULL));
    assert_int_equal(number(root, "violations_total"), 1);
    const json_t *violation = json_array_get(json_object_get(device, "violations"), 0);
    assert_string_equal(json_string_value(json_object_get(violation, "rule")), "unmap-unmapped");
    assert_string_equal(json_string_value(json_object_get(violation, "call")), "cuMemUnmap");
    assert_int_equal(number(violation, "base"), base);
    assert_int_equal(number(violation, "size"), UNIT);
    assert_int_equal(number(json_object_get(root, "unsupported_calls"), "cuGraphCreate"), 1);
    assert_int_equal(number(json_object_get(root, "live"), "handles"), 1);
    assert_int_equal(number(json_object_get(root, "live"), "reservations"), 1);
    json_decref(root);
}

/* What belongs to the second device is in its part. */
static void test_devices_apart(void **state)
{
    (void)state;
    CUdeviceptr plain;
    use_device(1);
    assert_ok(cuMemAlloc(&plain, 10 * MIB));
    json_t *root = record();
    const json_t *devices = json_object_get(root, "devices");
    assert_int_equal(number(json_array_get(devices, 0), "physical_peak_bytes"), 0);
    assert_int_equal(number(json_array_get(devices, 1), "physical_peak_bytes"), 10 * MIB);
    assert_int_equal(number(json_object_get(json_array_get(devices, 1), "calls"), "cuMemAlloc"), 1);
    assert_null(json_object_get(json_object_get(json_array_get(devices, 0), "calls"), "cuMemAlloc"));
    json_decref(root);
}

static void test_unwritable(void **state)
{
    (void)state;
    assert_false(sim_write_record("/no/such/folder/record.json"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, start_small)
    const struct CMUnitTest tests[] = {TEST(test_fields), TEST(test_sizes_out_of_range),
                                       TEST(test_devices_apart), TEST(test_unwritable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
