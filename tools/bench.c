/* SPDX-License-Identifier: Apache-2.0 */
/* bench: what an allocation and a free cost on the hit path, on this machine.
 *
 * Each thread has a stream and live blocks of its own; a pair frees one of them, chosen at random, and asks
 * for the same size again: the memory is there, and no driver is called. Chosen is either among 64 of them
 * that lie far apart ("churn": most live on, a few come and go), or among all ("scatter": with many of them
 * the time is mostly that of the machine's caches). Rounds of all cases take turns, and
 * of each the lowest round counts, so that what else the machine does falls on all alike. Recording is
 * measured as one more case. Where `python3` has a CUDA build of PyTorch, the package measures PyTorch's
 * native allocator beside ours in one process, and its rows are joined to these. */
#include "tools/tools.h"
#include <cuda.h>
#include <getopt.h>
#include <pthread.h>
#include <seamalloc/seamalloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Short, so that some are not interrupted on a machine that does other things. */
#define REPEATS     30
#define ROUNDS      3
#define PAIRS       2000
#define THREADS_MAX 64
/* Several threads need longer rounds, which the moment until all run does not fill. */
#define TOGETHER  10
#define CASES_MAX 64
#define CHURN     64
/* The case that is also measured with a recording, next to it. */
#define RECORDED_LIVE 1024

enum { BY_CHURN, BY_SCATTER, PATTERNS };
static const char *const pattern_names[] = {"churn", "scatter"};

struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    CUstream stream;
    size_t live;
    void **blocks;
    uint64_t seed;
    int pairs;
    uint64_t from[PATTERNS][REPEATS], to[PATTERNS][REPEATS];
    bool failed;
};

struct bench_case {
    unsigned threads;
    size_t live; /* all threads together */
    bool recorded;
    double lowest[PATTERNS];
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

/* 512 bytes to 4 KiB. */
static size_t size_of(size_t index)
{
    return 512 * (1 + index % 8);
}

static size_t choose(struct worker *worker, int pattern)
{
    size_t step = worker->live < CHURN ? 1 : worker->live / CHURN;
    if (pattern == BY_SCATTER)
        return draw(&worker->seed) % worker->live;
    return draw(&worker->seed) % (worker->live < CHURN ? worker->live : CHURN) * step;
}

static void run_pairs(struct worker *worker, int pattern, int repeat)
{
    pthread_barrier_wait(worker->barrier);
    worker->from[pattern][repeat] = now_ns();
    for (int i = 0; i < worker->pairs; i++) {
        size_t at = choose(worker, pattern);
        worker->failed |= seam_free(worker->blocks[at]) != SEAM_OK;
        worker->blocks[at] = seam_malloc(size_of(at), 0, worker->stream);
        worker->failed |= !worker->blocks[at];
    }
    worker->to[pattern][repeat] = now_ns();
}

static void *work(void *context)
{
    struct worker *worker = context;
    worker->blocks = calloc(worker->live, sizeof(void *));
    worker->failed = !worker->blocks;
    for (size_t i = 0; i < worker->live && !worker->failed; i++)
        worker->failed = !(worker->blocks[i] = seam_malloc(size_of(i), 0, worker->stream));
    for (int i = 0; i < PATTERNS * REPEATS; i++)
        if (worker->failed)
            pthread_barrier_wait(worker->barrier);
        else
            run_pairs(worker, i % PATTERNS, i / PATTERNS);
    for (size_t i = 0; i < worker->live && worker->blocks; i++)
        worker->failed |= seam_free(worker->blocks[i]) != SEAM_OK;
    return NULL;
}

/* The case's time is its lowest: nanoseconds of a thread for a pair, from when the first thread began until
 * the last one ended, so that threads which did not run at once do not look as if they had. */
static void lower(struct bench_case *one, const struct worker *workers, int pattern, int repeat)
{
    uint64_t from = UINT64_MAX, to = 0;
    double ns;
    for (unsigned i = 0; i < one->threads; i++) {
        from = workers[i].from[pattern][repeat] < from ? workers[i].from[pattern][repeat] : from;
        to = workers[i].to[pattern][repeat] > to ? workers[i].to[pattern][repeat] : to;
    }
    ns = (double)(to - from) / workers[0].pairs;
    if (!one->lowest[pattern] || ns < one->lowest[pattern])
        one->lowest[pattern] = ns;
}

static bool run_case(struct bench_case *one, CUstream *streams)
{
    struct worker *workers = calloc(one->threads, sizeof(*workers));
    pthread_barrier_t barrier;
    bool failed = false;
    pthread_barrier_init(&barrier, NULL, one->threads);
    for (unsigned i = 0; i < one->threads; i++) {
        workers[i] = (struct worker){.barrier = &barrier,
                                     .stream = streams[i],
                                     .live = one->live / one->threads,
                                     .pairs = one->threads > 1 ? TOGETHER * PAIRS : PAIRS,
                                     .seed = 88172645463325252u + i};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            abort();
    }
    for (unsigned i = 0; i < one->threads; i++) {
        pthread_join(workers[i].thread, NULL);
        failed |= workers[i].failed;
        free(workers[i].blocks);
    }
    for (int i = 0; i < PATTERNS * REPEATS && !failed; i++)
        lower(one, workers, i % PATTERNS, i / PATTERNS);
    pthread_barrier_destroy(&barrier);
    free(workers);
    return !failed;
}

static bool run_round(struct bench_case *cases, int count, CUstream *streams, const char *file)
{
    for (int i = 0; i < count; i++) {
        if (cases[i].recorded && seam_trace_start(file))
            return false;
        if (!run_case(&cases[i], streams) || (cases[i].recorded && seam_trace_stop()))
            return false;
    }
    return true;
}

static int list_cases(struct bench_case *cases, unsigned threads)
{
    static const size_t live[] = {64, 1024, 16384, 262144, 1000000};
    int count = 0;
    for (unsigned t = 1; t <= threads; t *= 2)
        for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++) {
            cases[count++] = (struct bench_case){.threads = t, .live = live[i]};
            if (t == 1 && live[i] == RECORDED_LIVE)
                cases[count++] = (struct bench_case){.threads = t, .live = live[i], .recorded = true};
        }
    return count;
}

static json_t *row_of(const struct bench_case *one, int pattern)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:I, s:s, s:b, s:f}", "allocator", "seamalloc", "through",
                     "seam_malloc", "process", "command", "threads", one->threads, "live",
                     (json_int_t)one->live, "pattern", pattern_names[pattern], "recorded", one->recorded,
                     "ns_per_pair", one->lowest[pattern]);
}

/* What recording adds to an event, of which a pair is two, against a hit of the same run. */
static json_t *recording_of(const struct bench_case *cases, int count)
{
    double off = 0, on = 0;
    for (int i = 0; i < count; i++)
        if (cases[i].threads == 1 && cases[i].live == RECORDED_LIVE)
            *(cases[i].recorded ? &on : &off) = cases[i].lowest[BY_CHURN];
    return json_pack("{s:f, s:f, s:f}", "ns_per_pair_off", off, "ns_per_event_added", (on - off) / 2, "ratio",
                     on / off);
}

/* The package's rows, or NULL with the reason in *note. */
static json_t *ask_package(unsigned threads, char *note, size_t size)
{
    char command[128], *text = NULL;
    size_t room = 0;
    json_error_t error;
    json_t *result;
    FILE *pipe;
    snprintf(command, sizeof(command), "exec python3 -m seamalloc bench --json --threads %u 2>&1 </dev/null",
             threads);
    pipe = popen(command, "re");
    if (!pipe)
        return NULL;
    /* What the simulated device or PyTorch has to say comes first, then one object. */
    note[0] = 0;
    result = NULL;
    while (!result && getline(&text, &room, pipe) >= 0) {
        if (text[0] == '{')
            result = json_loads(text, 0, &error);
        else
            snprintf(note, size, "%.*s", (int)strcspn(text, "\n"), text);
    }
    while (getline(&text, &room, pipe) >= 0)
        continue;
    free(text);
    if (pclose(pipe) && result) {
        json_decref(result);
        return NULL;
    }
    return result;
}

static void print_rows(const json_t *rows)
{
    const json_t *row;
    size_t i;
    printf("%-10s %-12s %-8s %8s %9s %-8s %12s\n", "allocator", "through", "process", "threads", "live",
           "pattern", "ns a pair");
    for (i = 0; (row = json_array_get(rows, i)); i++)
        printf("%-10s %-12s %-8s %8lld %9lld %-8s %12.1f%s\n",
               json_string_value(json_object_get(row, "allocator")),
               json_string_value(json_object_get(row, "through")),
               json_string_value(json_object_get(row, "process")),
               json_integer_value(json_object_get(row, "threads")),
               json_integer_value(json_object_get(row, "live")),
               json_string_value(json_object_get(row, "pattern")),
               json_number_value(json_object_get(row, "ns_per_pair")),
               json_is_true(json_object_get(row, "recorded")) ? "  recorded" : "");
}

static void print_all(json_t *document, bool json)
{
    const json_t *recording = json_object_get(document, "recording");
    if (json) {
        json_dumpf(document, stdout, JSON_INDENT(2));
        putchar('\n');
        return;
    }
    print_rows(json_object_get(document, "rows"));
    printf("recording: %.1f ns an event more, %.2f times a hit\n",
           json_number_value(json_object_get(recording, "ns_per_event_added")),
           json_number_value(json_object_get(recording, "ratio")));
    if (json_object_get(document, "torch_unavailable"))
        printf("PyTorch's native allocator: unavailable: %s\n",
               json_string_value(json_object_get(document, "torch_unavailable")));
}

static bool start_device(CUstream *streams, unsigned threads)
{
    struct sim_config config;
    CUcontext context;
    sim_config_default(&config);
    config.backed = false;
    if (!sim_start(&config) || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return false;
    for (unsigned i = 0; i < threads; i++)
        if (cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
            return false;
    return true;
}

static bool measure(struct bench_case *cases, int count, unsigned threads)
{
    CUstream streams[THREADS_MAX];
    char file[] = "/tmp/seamalloc-bench-XXXXXX";
    int descriptor = mkstemp(file);
    bool good = descriptor >= 0 && start_device(streams, threads);
    for (int round = 0; round < ROUNDS && good; round++)
        good = run_round(cases, count, streams, file);
    if (!good)
        fprintf(stderr, "seamalloc: bench: %s\n", seam_last_error());
    if (descriptor >= 0) {
        close(descriptor);
        unlink(file);
    }
    return good && !seam_shutdown();
}

static void join_package(json_t *document, unsigned threads)
{
    char note[512] = "python3 could not be started";
    json_t *package = ask_package(threads, note, sizeof(note));
    if (package) {
        json_array_extend(json_object_get(document, "rows"), json_object_get(package, "rows"));
        json_object_set(document, "torch", json_object_get(package, "torch"));
        json_object_set(document, "device", json_object_get(package, "device"));
        json_decref(package);
    } else
        json_object_set_new(document, "torch_unavailable", json_string(note));
}

int bench(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"threads", required_argument, NULL, 't'}, {0}};
    struct bench_case cases[CASES_MAX] = {0};
    unsigned threads = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    bool json = false;
    int c, count;
    json_t *document, *rows = json_array();
    threads = threads > 8 ? 8 : threads;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'j')
            json = true;
        else if (c == 't' && atoi(optarg) > 0 && atoi(optarg) <= THREADS_MAX)
            threads = (unsigned)atoi(optarg);
        else {
            fputs("usage: seamalloc bench [--json] [--threads N]     (N: 1 to 64)\n", stderr);
            return 2;
        }
    }
    count = list_cases(cases, threads);
    if (!measure(cases, count, threads))
        return 1;
    for (int i = 0; i < count; i++)
        for (int p = 0; p < PATTERNS; p++)
            json_array_append_new(rows, row_of(&cases[i], p));
    document = json_pack("{s:s, s:s, s:i, s:o, s:o}", "format", "seamalloc.bench", "version", seam_version(),
                         "pairs_a_round", PAIRS, "recording", recording_of(cases, count), "rows", rows);
    join_package(document, threads);
    print_all(document, json);
    json_decref(document);
    return 0;
}
