/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a recording: what goes in comes out; a file that breaks off anywhere gives a prefix and says
 * so; a byte that changed is found. */
#include "base/hostmem.h"
#include "stats/trace/writer.h"
#include "tests/support/random.h"
#include "tests/unit/trace/trace_testing.h"

#define EVENTS 60000 /* several blocks */

/* Event i of a made-up recording: all actions, small and large numbers. */
static struct sm_trace_event made_up(uint64_t i)
{
    uint64_t wild = i % 97 == 0 ? ~i : i * 7919 % 1000;
    struct sm_trace_event event = {.action = (enum sm_trace_action)(i % SM_TRACE_LOST),
                                   .device = (uint32_t)(i / 50 % 3),
                                   .thread = (uint32_t)(i / 9 % 4),
                                   .stream = i % 5 ? i / 100 % 7 : wild};
    switch (event.action) {
    case SM_TRACE_ALLOC:
        event.id = i % 3 ? i : wild;
        event.size = wild * 512;
        event.pool = i % 4 ? 0 : wild;
        break;
    case SM_TRACE_FREE:
    case SM_TRACE_RECORD_STREAM:
        event.id = wild;
        break;
    case SM_TRACE_FAIL:
        event.size = wild;
        event.result = 5;
        break;
    case SM_TRACE_TRIM:
        event.device = i % 2 ? SM_TRACE_DEVICES_ALL : 1;
        break;
    case SM_TRACE_DEVICE:
        event.id = 2097152;
        event.size = wild;
        event.name = "a device";
        break;
    case SM_TRACE_PHASE_ENTER:
    case SM_TRACE_PHASE_MARK:
        event.name = i % 2 ? "forward" : "";
        break;
    default:
        event.pool = i % 11;
    }
    return event;
}

static void write_recording(const char *path, uint64_t events)
{
    struct sm_trace *trace = sm_trace_create();
    struct sm_error error;
    assert_non_null(trace);
    if (sm_trace_begin(trace, path, "{\"format\":\"seamalloc.trace\"}", &error))
        fail_msg("%s", error.text);
    for (uint64_t i = 0; i < events; i++) {
        struct sm_trace_event event = made_up(i);
        sm_trace_put_as(trace, &event);
    }
    if (sm_trace_end(trace, &error))
        fail_msg("%s", error.text);
    assert_int_equal(sm_trace_events(trace), events);
    sm_trace_destroy(trace);
}

static void expect_prefix(const struct recording *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct sm_trace_event event = made_up(i);
        const struct sm_trace_event *read = &r->events[i];
        assert_string_equal(r->names[i], event.name ? event.name : "");
        if (read->action != event.action || read->id != event.id || read->size != event.size ||
            read->stream != event.stream || read->pool != event.pool || read->device != event.device ||
            read->thread != event.thread || read->result != event.result)
            fail_msg("event %zu differs", i);
    }
}

static void comes_back(void **state)
{
    size_t bytes = sm_hostmem_bytes();
    struct recording r;
    (void)state;
    write_recording(file_path(), EVENTS);
    r = recording_load(file_path());
    assert_int_equal(r.end, 0);
    assert_int_equal(r.count, EVENTS);
    assert_int_equal(r.cut, 0);
    assert_int_equal(r.lost, 0);
    expect_prefix(&r);
    recording_free(&r);
    unlink(file_path());
    assert_int_equal(sm_hostmem_bytes(), bytes);
}

static char *load(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(1 << 22);
    assert_non_null(file);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 22, file);
    fclose(file);
    return bytes;
}

static void store(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

/* Wherever it breaks off: all whole blocks, and the byte at which the next one should be. */
static void breaks_off_anywhere(void **state)
{
    struct random random = {1};
    size_t size, most = 0, least = SIZE_MAX;
    char *bytes;
    (void)state;
    write_recording(file_path(), EVENTS);
    bytes = load(file_path(), &size);
    for (int i = 0; i < 120; i++) {
        size_t cut = i < 60 ? random_below(&random, size) : size - 1 - (size_t)(i - 60);
        struct recording r;
        store(file_path(), bytes, cut);
        r = recording_load(file_path());
        if (r.end == -2) { /* within the header */
            assert_true(cut < 100);
        } else {
            assert_int_equal(r.end, 0);
            assert_true(r.cut > 0 && r.cut <= cut);
            expect_prefix(&r);
            most = r.count > most ? r.count : most;
            least = r.count < least ? r.count : least;
        }
        recording_free(&r);
    }
    assert_int_equal(most, EVENTS); /* only the end mark was missing */
    assert_true(least < EVENTS / 2);
    free(bytes);
    unlink(file_path());
}

static void damage_is_found(void **state)
{
    struct random random = {7};
    size_t size;
    char *bytes;
    (void)state;
    write_recording(file_path(), EVENTS);
    bytes = load(file_path(), &size);
    for (int i = 0; i < 200; i++) {
        size_t at = random_below(&random, size);
        struct recording r;
        bytes[at] ^= (char)(1 << i % 8);
        store(file_path(), bytes, size);
        bytes[at] ^= (char)(1 << i % 8);
        r = recording_load(file_path());
        /* A length that was changed may point behind the end of the file. */
        assert_true(r.end < 0 || r.cut);
        assert_true(r.count < EVENTS || r.cut || r.end < 0);
        if (r.end == -1 && !strstr(r.error.text, "byte "))
            fail_msg("no place in: %s", r.error.text);
        expect_prefix(&r);
        recording_free(&r);
    }
    free(bytes);
    unlink(file_path());
}

static void no_recording_at_all(void **state)
{
    struct recording r;
    (void)state;
    store(file_path(), "a 1 512 0\n", 10);
    r = recording_load(file_path());
    assert_int_equal(r.end, -2);
    assert_int_equal(r.error.code, SEAM_E_IO);
    unlink(file_path());
    r = recording_load(file_path());
    assert_int_equal(r.end, -2);
}

static void begin_and_end_have_their_order(void **state)
{
    struct sm_trace *trace = sm_trace_create();
    struct sm_error error;
    struct sm_trace_event event = {.action = SM_TRACE_ALLOC, .size = 1};
    char path[128];
    (void)state;
    assert_int_equal(sm_trace_end(trace, &error), SEAM_E_STATE);
    assert_int_equal(sm_trace_begin(trace, "/nowhere/at/all", "{}", &error), SEAM_E_IO);
    assert_int_equal(sm_trace_put_new(trace, &event), 0);
    snprintf(path, sizeof(path), "/tmp/seam-trace-test-%%p");
    assert_int_equal(sm_trace_begin(trace, path, "{}", &error), SEAM_OK);
    assert_int_equal(sm_trace_begin(trace, path, "{}", &error), SEAM_E_STATE);
    assert_int_equal(sm_trace_put_new(trace, &event), 1);
    assert_true(sm_trace_knows(trace, 1));
    assert_int_equal(sm_trace_end(trace, &error), SEAM_OK);
    assert_int_equal(access(file_path(), R_OK), 0);
    /* Ids go on: those of the first recording are unknown to the second. */
    assert_int_equal(sm_trace_begin(trace, path, "{}", &error), SEAM_OK);
    assert_false(sm_trace_knows(trace, 1));
    assert_int_equal(sm_trace_put_new(trace, &event), 2);
    assert_int_equal(sm_trace_end(trace, &error), SEAM_OK);
    sm_trace_destroy(trace);
    unlink(file_path());
}

static void no_memory_for_buffers(void **state)
{
    struct sm_trace *trace = sm_trace_create();
    struct sm_error error;
    size_t bytes = sm_hostmem_bytes();
    (void)state;
    for (uint64_t nth = 1; nth <= 17; nth++) {
        sm_fault_arm(sm_hostmem_fault(), nth, false);
        assert_int_equal(sm_trace_begin(trace, file_path(), "{}", &error), SEAM_E_HOST_OOM);
        sm_fault_arm(sm_hostmem_fault(), 0, false);
        assert_int_equal(sm_hostmem_bytes(), bytes);
    }
    sm_trace_destroy(trace);
    unlink(file_path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),
        cmocka_unit_test(breaks_off_anywhere),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(no_recording_at_all),
        cmocka_unit_test(begin_and_end_have_their_order),
        cmocka_unit_test(no_memory_for_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
