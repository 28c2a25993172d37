/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time: the rules of the host's clock and of the streams' clocks, with costs so round that every time
 * can be worked out in the head. */
#include "tests/unit/sim/sim_test.h"
#include <jansson.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every launch costs the host 10 ns, an event record 5, a wait 3; the rest is free unless a test says so. */
static const char round_costs[] =
    "cuLaunchKernel 10\ncuEventRecord 5\ncuStreamWaitEvent 3\ncuMemAlloc 50 0 1024\n"
    "cuMemFree 20\ncuMemsetD8Async 2\ncuMemcpyHtoDAsync 2\ndefault 0\n"
    "work.kernel_ns 100\nwork.matrix16_flops_per_ns 1000\n"
    "work.matrix32_flops_per_ns 100\nwork.memory_bytes_per_ns 1024\n"
    "work.thread_bytes 64\nwork.copy_ns 30\nwork.pinned_bytes_per_ns 32\n"
    "work.pageable_bytes_per_ns 8\nwork.link_bytes_per_ns 256\n"
    "work.collective_ns 1000\nwork.hop_ns 7\nwork.host_function_ns 40\n"
    "work.queue_operations 16\n";

static CUstream s, t;
static CUevent event;
static CUdeviceptr base;
static CUfunction kernel;

static void make(const char *costs)
{
    char path[] = "/tmp/sim-timed-XXXXXX";
    struct sim_config config = small_device();
    CUmodule module;
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, costs, strlen(costs)), (ssize_t)strlen(costs));
    close(file);
    config.streams = SIM_STREAMS_TIMED;
    config.cost = path;
    begin(&config);
    unlink(path);
    assert_ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    assert_ok(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&event, 0));
    assert_ok(cuMemAlloc(&base, 4 * MIB)); /* 50 + 4 of 1,024 ns a GiB */
    assert_ok(cuModuleLoadData(&module, "image"));
    assert_ok(cuModuleGetFunction(&kernel, module, "kernel"));
    assert_int_equal(sim_host_ns(), 54);
    sim_host_spend(946); /* from here on times are easier to read */
}

static int start(void **state)
{
    (void)state;
    make(round_costs);
    return 0;
}

static struct sim_stream_time time_of(CUstream stream)
{
    struct sim_stream_time time;
    assert_true(sim_stream_time(stream, &time));
    return time;
}

static void work(CUstream stream, uint64_t ns)
{
    assert_ok(sim_stream_work(stream, 0, 0, ns));
}

/* The host runs ahead; operations of a stream follow one another; a wait brings the host to their end. */
static void test_host_runs_ahead(void **state)
{
    (void)state;
    work(s, 500);
    work(s, 300);
    assert_int_equal(sim_host_ns(), 1000);
    assert_int_equal(time_of(s).end_ns, 1800);
    assert_int_equal(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    assert_ok(cuStreamSynchronize(s));
    assert_int_equal(sim_host_ns(), 1800);
    assert_ok(cuStreamSynchronize(s)); /* a second wait takes no time */
    assert_int_equal(sim_host_ns(), 1800);
    assert_int_equal(time_of(s).busy_ns, 800);
    assert_int_equal(time_of(s).operations, 2);
}

/* An operation does not begin before the host has put it there: the stream is idle until then. */
static void test_idle(void **state)
{
    (void)state;
    work(s, 100);
    sim_host_spend(400);
    work(s, 100);
    struct sim_stream_time time = time_of(s);
    assert_int_equal(time.begin_ns, 1000);
    assert_int_equal(time.end_ns, 1500);
    assert_int_equal(time.idle_ns, 300);
    assert_int_equal(time.busy_ns, 200);
    assert_int_equal(time.waiting_ns, 0);
}

static void test_streams_run_side_by_side(void **state)
{
    (void)state;
    work(s, 500);
    work(t, 700);
    assert_ok(cuCtxSynchronize());
    assert_int_equal(sim_host_ns(), 1700);
}

/* A stream that waits for another begins when that ends, and says for whom it waited. */
static void test_waiting(void **state)
{
    (void)state;
    work(s, 500);                              /* ends at 1500 */
    assert_ok(cuEventRecord(event, s));        /* host: 1005 */
    assert_ok(cuStreamWaitEvent(t, event, 0)); /* 1008 */
    work(t, 50);                               /* ready at 1008, begins at 1500 */
    work(t, 50);
    work(s, 100); /* s itself goes on at once */
    assert_int_equal(time_of(t).waiting_ns, 1500 - 1008);
    assert_int_equal(time_of(t).end_ns, 1600);
    assert_int_equal(sim_stream_waited_ns(t, s), 1500 - 1008);
    assert_int_equal(sim_stream_waited_ns(s, t), 0);
    assert_int_equal(time_of(s).waiting_ns, 0);
    assert_int_equal(time_of(s).end_ns, 1600);
}

/* The wait ends with what was recorded, not with what came later; and an event that has completed costs
 * nothing but the call. */
static void test_waits_no_longer_than_needed(void **state)
{
    (void)state;
    work(s, 500);
    assert_ok(cuEventRecord(event, s));
    work(s, 100000);
    assert_ok(cuStreamWaitEvent(t, event, 0));
    work(t, 1);
    assert_int_equal(time_of(t).end_ns, 1501);
    sim_host_spend(1000);
    assert_ok(cuStreamWaitEvent(t, event, 0)); /* host: 2011 */
    work(t, 1);
    assert_int_equal(time_of(t).end_ns, 2012);
    assert_int_equal(time_of(t).waiting_ns, 1500 - 1008);
}

/* Time in which nothing was there to run is idle, also if a wait was. */
static void test_waiting_is_not_idle(void **state)
{
    (void)state;
    work(s, 500);
    assert_ok(cuEventRecord(event, s));
    work(t, 10); /* 1005 to 1015 */
    assert_ok(cuStreamWaitEvent(t, event, 0));
    sim_host_spend(192); /* host: 1200 */
    work(t, 10);
    struct sim_stream_time time = time_of(t);
    assert_int_equal(time.idle_ns, 1200 - 1015);
    assert_int_equal(time.waiting_ns, 300);
    assert_int_equal(time.busy_ns + time.waiting_ns + time.idle_ns, time.end_ns - time.begin_ns);
}

/* Of several waits the one that ends last is the one that counts. */
static void test_last_wait_counts(void **state)
{
    (void)state;
    CUstream u;
    CUevent other;
    assert_ok(cuStreamCreate(&u, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&other, 0));
    work(s, 500);
    work(u, 900);
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuEventRecord(other, u));
    assert_ok(cuStreamWaitEvent(t, other, 0));
    assert_ok(cuStreamWaitEvent(t, event, 0)); /* host: 1016 */
    work(t, 1);
    assert_int_equal(sim_stream_waited_ns(t, u), 1900 - 1016);
    assert_int_equal(sim_stream_waited_ns(t, s), 0);
}

/* The default stream and blocking ones wait for each other without being told. */
static void test_default_stream(void **state)
{
    (void)state;
    CUstream blocking;
    assert_ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    work(blocking, 500);
    work(NULL, 100);
    work(blocking, 10);
    work(s, 10); /* not ordered with them */
    assert_int_equal(time_of(NULL).end_ns, 1600);
    assert_int_equal(sim_stream_waited_ns(NULL, blocking), 500);
    assert_int_equal(time_of(blocking).end_ns, 1610);
    assert_int_equal(sim_stream_waited_ns(blocking, NULL), 100);
    assert_int_equal(time_of(s).end_ns, 1010);
}

/* Whether an event has completed is a matter of the host's clock, and elapsed time of the streams'. */
static void test_events(void **state)
{
    (void)state;
    CUevent end;
    float milliseconds;
    assert_ok(cuEventCreate(&end, 0));
    work(s, 1000000);
    assert_ok(cuEventRecord(event, s));
    work(s, 2500000);
    assert_ok(cuEventRecord(end, s));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    sim_host_spend(1000000);
    assert_ok(cuEventQuery(event));
    assert_int_equal(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuEventElapsedTime(&milliseconds, event, end), CUDA_ERROR_NOT_READY);
    assert_ok(cuEventSynchronize(end));
    assert_int_equal(sim_host_ns(), 1000 + 3500000);
    assert_ok(cuEventElapsedTime(&milliseconds, event, end));
    assert_float_equal(milliseconds, 2.5, 1e-6);
}

/* Who polls gets there, also where every call is free. */
static void test_polling_ends(void **state)
{
    (void)state;
    unsigned asked = 0;
    work(s, 100000);
    assert_ok(cuEventRecord(event, s));
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        assert_true(++asked <= 1001);
    assert_in_range(asked, 900, 1001);
    assert_in_range(sim_host_ns(), 101000, 101200);
}

static void *poll_event(void *asked)
{
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        ++*(unsigned *)asked;
    return NULL;
}

/* A thread that only looks on does not move the clock, unless nobody else does. */
static void test_onlooker(void **state)
{
    (void)state;
    pthread_t thread;
    unsigned asked = 0;
    work(s, 100000);
    assert_ok(cuEventRecord(event, s));
    assert_int_equal(pthread_create(&thread, NULL, poll_event, &asked), 0);
    pthread_join(thread, NULL);
    assert_in_range(asked, 1900, 2100); /* a thousand for nothing, then 100 ns each */
    assert_in_range(sim_host_ns(), 101000, 101200);
}

/* What a watchdog may take off the program's hands costs no time once there is one; "not yet" does. */
static void test_watched(void **state)
{
    (void)state;
    static const char *const prices = "cuEventQuery 700\ncuEventCreate 300\ncuEventDestroy 200\n"
                                      "cuEventRecord 5\ncuCtxGetDevice 40\ndefault 0\n";
    struct sim_config config = small_device();
    char path[] = "/tmp/sim-timed-XXXXXX";
    CUevent other;
    CUdevice device;
    int file = mkstemp(path);
    assert_int_equal(write(file, prices, strlen(prices)), (ssize_t)strlen(prices));
    close(file);
    config.streams = SIM_STREAMS_TIMED;
    config.cost = path;
    begin(&config);
    unlink(path);
    assert_ok(cuEventCreate(&event, 0));
    work(NULL, 100000);
    assert_ok(cuEventRecord(event, NULL));
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_int_equal(sim_host_ns(), 300 + 5 + 700);
    sim_host_watched();
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_int_equal(sim_host_ns(), 300 + 5 + 2 * 700);
    assert_ok(cuEventSynchronize(event));
    assert_int_equal(sim_host_ns(), 300 + 100000);
    assert_ok(cuEventQuery(event));
    assert_ok(cuEventCreate(&other, 0));
    assert_ok(cuEventDestroy(other));
    assert_ok(cuCtxGetDevice(&device));
    assert_int_equal(sim_host_ns(), 300 + 100000);
    assert_ok(cuEventRecord(event, NULL));
    assert_int_equal(sim_host_ns(), 300 + 100000 + 5);
}

/* Effects come when their time has come, not before: memory given away too early is overwritten. */
static void test_effects_come_in_time(void **state)
{
    (void)state;
    unsigned char byte = 0;
    assert_ok(cuMemsetD8Async(base, 1, 64, s));
    assert_ok(cuStreamSynchronize(s));
    work(s, 5000);
    assert_ok(cuMemsetD8Async(base, 2, 64, s));
    assert_ok(cuMemcpyDtoH(&byte, base, 1)); /* on another stream */
    assert_int_equal(byte, 1);
    assert_broken("race");
    sim_host_spend(10000);
    assert_ok(cuMemcpyDtoH(&byte, base, 1));
    assert_int_equal(byte, 2);
}

/* Two streams' effects come in the order of their times, not of the calls. */
static void test_effects_in_order_of_time(void **state)
{
    (void)state;
    unsigned char byte = 0;
    work(s, 5000);
    assert_ok(cuMemsetD8Async(base, 1, 64, s)); /* put first, comes last */
    assert_ok(cuMemsetD8Async(base, 2, 64, t));
    sim_host_spend(20000);
    assert_ok(cuMemcpyDtoH(&byte, base, 1));
    assert_int_equal(byte, 1);
}

/* A launch costs the host its price, and takes the time of its threads or of what it is known to move. */
static void test_kernels(void **state)
{
    (void)state;
    assert_ok(cuLaunchKernel(kernel, 64, 1, 1, 256, 1, 1, 0, s, NULL, NULL));
    assert_int_equal(sim_host_ns(), 1010);
    assert_int_equal(time_of(s).busy_ns, 100 + 64 * 256 * 64 / 1024);
    sim_kernel_moves(MIB);
    assert_ok(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, t, NULL, NULL));
    assert_int_equal(time_of(t).busy_ns, 100 + 1024);
    assert_ok(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, t, NULL, NULL)); /* it held for one launch */
    assert_int_equal(time_of(t).busy_ns, 100 + 1024 + 100 + 32 * 64 / 1024);
}

/* A product takes the time of its arithmetic, or of its bytes where those take longer. */
static void test_shapes(void **state)
{
    (void)state;
    struct sim_work much = {.operations = 1e6, .element_bytes = 2, .memory_bytes = 1024};
    struct sim_work wide = {.operations = 1e6, .element_bytes = 4, .memory_bytes = 1024};
    struct sim_work thin = {.operations = 1e3, .element_bytes = 2, .memory_bytes = 4 * MIB};
    assert_ok(sim_stream_do(s, 0, 0, &much));
    assert_int_equal(sim_host_ns(), 1010); /* libraries' launches cost the host as much as others */
    assert_int_equal(time_of(s).busy_ns, 100 + 1000);
    assert_ok(sim_stream_do(s, 0, 0, &wide));
    assert_int_equal(time_of(s).busy_ns, 1100 + 100 + 10000);
    assert_ok(sim_stream_do(t, 0, 0, &thin));
    assert_int_equal(time_of(t).busy_ns, 100 + 4096);
}

static uint64_t collective(enum sim_collective what, int ranks)
{
    CUstream stream;
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(sim_stream_collective(stream, 0, 0, what, MIB, ranks));
    return time_of(stream).busy_ns - 100;
}

/* 1 MiB takes 4,096 ns over a link. */
static void test_collectives(void **state)
{
    (void)state;
    assert_int_equal(collective(SIM_ALL_GATHER, 4), 1000 + 3 * 7 + 3072);
    assert_int_equal(collective(SIM_REDUCE_SCATTER, 2), 1000 + 7 + 2048);
    assert_int_equal(collective(SIM_ALL_REDUCE, 4), 1000 + 6 * 7 + 6144);
    assert_int_equal(collective(SIM_BROADCAST, 8), 1000 + 7 * 7 + 4096);
    assert_int_equal(collective(SIM_SEND, 8), 1000 + 7 + 4096);
    assert_int_equal(collective(SIM_ALL_REDUCE, 1), 0);
}

/* Copies: on the device each byte is read and written; from pinned memory the host goes on, from pageable
 * memory it waits. */
static void test_copies(void **state)
{
    (void)state;
    static char pageable[MIB];
    void *pinned;
    assert_ok(cuMemHostAlloc(&pinned, MIB, 0));
    assert_ok(cuMemcpyDtoDAsync(base, base + MIB, MIB, s));
    assert_int_equal(time_of(s).busy_ns, 30 + 2048);
    assert_ok(cuMemsetD8Async(base, 0, MIB, s)); /* host: 1002 */
    assert_int_equal(time_of(s).busy_ns, 30 + 2048 + 30 + 1024);
    assert_ok(cuMemcpyHtoDAsync(base + 2 * MIB, pinned, MIB, t)); /* 1004 */
    assert_int_equal(time_of(t).busy_ns, 30 + 32768);
    assert_int_equal(sim_host_ns(), 1004);
    assert_ok(cuMemcpyHtoDAsync(base + 2 * MIB, pageable, MIB, t)); /* 1006 */
    assert_int_equal(time_of(t).busy_ns, 30 + 32768 + 30 + 131072);
    assert_int_equal(sim_host_ns(), 1004 + 30 + 32768 + 30 + 131072);
}

/* cudaFree waits for the device; its own cost comes after. */
static void test_free_waits(void **state)
{
    (void)state;
    work(s, 5000);
    work(t, 9000);
    assert_ok(cuMemFree(base)); /* 20 before the wait */
    assert_int_equal(sim_host_ns(), 10000);
}

static void test_a_large_allocation(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    CUdeviceptr two;
    config.device_bytes = 4096 * (uint64_t)MIB;
    config.streams = SIM_STREAMS_TIMED;
    begin(&config); /* h100 */
    assert_ok(cuMemAlloc(&two, 2000000000));
    assert_in_range(sim_host_ns(), 1400000, 1800000); /* published: about 1.6 ms */
}

/* A full stream holds the host up. */
static void test_a_full_stream(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++)
        work(s, 1000);
    assert_int_equal(sim_host_ns(), 1000);
    work(s, 1000);
    assert_int_equal(sim_host_ns(), 2000);
    work(t, 1);
    assert_int_equal(time_of(t).end_ns, 2001);
    assert_int_equal(sim_stream_pending(s), 16);
}

static void note(void *at)
{
    *(uint64_t *)at = sim_host_ns();
}

static void test_host_function(void **state)
{
    (void)state;
    uint64_t at = 0;
    work(s, 500);
    assert_ok(cuLaunchHostFunc(s, note, &at));
    assert_int_equal(at, 0);
    assert_ok(cuStreamSynchronize(s));
    assert_int_equal(at, 1540);
}

/* A captured kernel takes its time when the graph runs, and none before. */
static void test_graph(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    struct sim_stream_time none;
    assert_ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    work(s, 500);
    work(s, 300);
    assert_ok(cuStreamEndCapture(s, &graph));
    assert_false(sim_stream_time(s, &none));
    assert_ok(cuGraphInstantiate(&exec, graph, 0));
    assert_ok(cuGraphLaunch(exec, t));
    assert_ok(cuGraphLaunch(exec, t));
    assert_ok(cuStreamSynchronize(t));
    assert_int_equal(sim_host_ns(), 2600);
    assert_ok(cuGraphExecDestroy(exec));
    assert_ok(cuGraphDestroy(graph));
}

/* What a held stream holds up does not complete, whatever the clock says. */
static void test_held_stream(void **state)
{
    (void)state;
    assert_ok(sim_stream_hold(s, true));
    work(s, 10);
    assert_ok(cuEventRecord(event, s));
    sim_host_spend(1000);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_ok(sim_stream_hold(s, false));
    assert_ok(cuEventQuery(event));
}

/* Two ranks' worth of a training step: products on one stream, each layer's gradients reduced on another
 * while the products go on, and an optimiser that needs them all. With `planted`, every layer waits for the
 * reduction of the one before. Returns: how long it took. */
static uint64_t sharded_step(bool planted)
{
    enum { LAYERS = 12 };
    struct sim_work product = {.operations = 2e6, .element_bytes = 2};
    CUevent reduced;
    make(round_costs);
    assert_ok(cuEventCreate(&reduced, CU_EVENT_DISABLE_TIMING));
    for (int layer = 0; layer < LAYERS; layer++) {
        if (planted && layer > 0)
            assert_ok(cuStreamWaitEvent(s, reduced, 0));
        assert_ok(sim_stream_do(s, 0, 0, &product));
        assert_ok(cuEventRecord(event, s));
        assert_ok(cuStreamWaitEvent(t, event, 0));
        assert_ok(sim_stream_collective(t, 0, 0, SIM_ALL_REDUCE, MIB / 8, 2));
        assert_ok(cuEventRecord(reduced, t));
    }
    assert_ok(cuStreamWaitEvent(s, reduced, 0));
    work(s, 1000);
    assert_ok(cuCtxSynchronize());
    return sim_host_ns() - 1000;
}

/* The clock proves something: a wait that is not needed takes exactly the time that it keeps streams apart.
 */
static void test_planted_wait_slows_the_step(void **state)
{
    (void)state;
    const uint64_t product = 100 + 2000, reduction = 100 + 1000 + 2 * 7 + 512;
    uint64_t good = sharded_step(false), waited_good = time_of(s).waiting_ns;
    uint64_t bad = sharded_step(true), waited_bad = sim_stream_waited_ns(s, t);
    /* Overlapped: all products, the last reduction, the optimiser. Planted: one after the other. */
    assert_in_range(good, 12 * product + reduction + 1000, 12 * product + reduction + 1100);
    assert_in_range(bad, 12 * (product + reduction) + 1000, 12 * (product + reduction) + 1100);
    assert_int_equal(bad - good, 11 * reduction);
    assert_int_equal(waited_bad - waited_good, 11 * reduction);
}

/* ---- the record and the trace ---- */

static json_t *record(void)
{
    char path[] = "/tmp/sim-record-XXXXXX";
    close(mkstemp(path));
    assert_true(sim_write_record(path));
    json_t *root = json_load_file(path, 0, NULL);
    unlink(path);
    assert_non_null(root);
    return root;
}

static json_int_t number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* All of the host's time is accounted for, and the streams' too. */
static void test_record(void **state)
{
    (void)state;
    size_t i;
    json_t *stream, *in_call;
    json_int_t waiting = 0;
    const char *call;
    sharded_step(true);
    work(s, 123456); /* the device goes on after the host */
    json_t *root = record(), *host = json_object_get(root, "host");
    assert_string_equal(json_string_value(json_object_get(root, "streams")), "timed");
    assert_int_equal(number(host, "ns"), number(host, "calls_ns") + number(host, "launches_ns") +
                                             number(host, "program_ns") + number(host, "waiting_ns"));
    assert_int_equal(number(host, "ns"), sim_host_ns());
    json_object_foreach(json_object_get(host, "waiting_in"), call, in_call)
    {
        waiting += json_integer_value(in_call);
    }
    assert_int_equal(waiting, number(host, "waiting_ns"));
    /* Full streams held the host up before it waited for the whole device. */
    assert_in_range(number(json_object_get(host, "waiting_in"), "cuCtxSynchronize"), 1, waiting - 1);
    assert_int_equal(number(root, "virtual_ns"), time_of(s).end_ns);
    json_t *streams = json_object_get(json_array_get(json_object_get(root, "devices"), 0), "streams");
    assert_int_equal(json_array_size(streams), 2);
    json_array_foreach(streams, i, stream)
    {
        assert_int_equal(number(stream, "busy_ns") + number(stream, "waiting_ns") + number(stream, "idle_ns"),
                         number(stream, "end_ns") - number(stream, "begin_ns"));
        const json_t *reason = json_array_get(json_object_get(stream, "waiting_for"), 0);
        assert_int_equal(number(reason, "ns"), number(stream, "waiting_ns"));
        assert_int_not_equal(number(reason, "stream"), number(stream, "stream"));
    }
    json_decref(root);
}

/* The slices of each row lie one behind the other, and add up to the streams' busy time. */
static void test_trace(void **state)
{
    (void)state;
    char path[] = "/tmp/sim-trace-XXXXXX";
    double busy = 0, waiting = 0, end[3] = {0};
    size_t i, calls = 0;
    json_t *slice;
    close(mkstemp(path));
    assert_true(sim_trace_to(path));
    work(s, 5000);
    assert_ok(cuEventRecord(event, s));
    assert_ok(cuStreamWaitEvent(t, event, 0));
    assert_ok(cuLaunchKernel(kernel, 1024, 1, 1, 256, 1, 1, 0, t, NULL, NULL));
    sim_host_spend(300);
    assert_ok(cuCtxSynchronize());
    assert_true(sim_trace_to(NULL));
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    unlink(path);
    json_array_foreach(json_object_get(root, "traceEvents"), i, slice)
    {
        if (strcmp(json_string_value(json_object_get(slice, "ph")), "X") != 0)
            continue;
        const char *kind = json_string_value(json_object_get(slice, "cat"));
        json_int_t process = number(slice, "pid"), row = process == 0 ? 0 : number(slice, "tid") % 2 + 1;
        double ts = json_number_value(json_object_get(slice, "ts"));
        double duration = json_number_value(json_object_get(slice, "dur"));
        assert_true(ts >= end[row] - 1e-6);
        end[row] = ts + duration;
        calls += process == 0;
        busy += strcmp(kind, "work") == 0 ? duration : 0;
        waiting += strcmp(kind, "wait") == 0 && process == 1 ? duration : 0;
    }
    json_decref(root);
    assert_int_equal(calls, 3); /* the program, the waits for s and for t; the rest is too short */
    assert_float_equal(busy * 1e3, (double)(time_of(s).busy_ns + time_of(t).busy_ns), 0.5);
    assert_float_equal(waiting * 1e3, (double)time_of(t).waiting_ns, 0.5);
}

/* In the other modes no clock runs and nothing is recorded. */
static void test_other_modes(void **state)
{
    (void)state;
    struct sim_config config = small_device();
    struct sim_stream_time time;
    begin(&config);
    assert_ok(sim_stream_work(NULL, 0, 0, 1000));
    sim_host_spend(1000);
    assert_int_equal(sim_host_ns(), 0);
    assert_false(sim_stream_time(NULL, &time));
    assert_false(sim_trace_to("/tmp/never-made"));
    json_t *root = record();
    assert_null(json_object_get(root, "virtual_ns"));
    json_decref(root);
}

#define TEST(function) cmocka_unit_test_setup(function, start)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_host_runs_ahead),
        TEST(test_idle),
        TEST(test_streams_run_side_by_side),
        TEST(test_waiting),
        TEST(test_waits_no_longer_than_needed),
        TEST(test_waiting_is_not_idle),
        TEST(test_last_wait_counts),
        TEST(test_default_stream),
        TEST(test_events),
        TEST(test_polling_ends),
        TEST(test_onlooker),
        TEST(test_watched),
        TEST(test_effects_come_in_time),
        TEST(test_effects_in_order_of_time),
        TEST(test_kernels),
        TEST(test_shapes),
        TEST(test_collectives),
        TEST(test_copies),
        TEST(test_free_waits),
        cmocka_unit_test(test_a_large_allocation),
        TEST(test_a_full_stream),
        TEST(test_host_function),
        TEST(test_graph),
        TEST(test_held_stream),
        cmocka_unit_test(test_planted_wait_slows_the_step),
        cmocka_unit_test(test_record),
        TEST(test_trace),
        cmocka_unit_test(test_other_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
