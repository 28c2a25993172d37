/* SPDX-License-Identifier: Apache-2.0 */
/* The driver may be called from any thread at once: memory, streams and events of several threads do not
 * meet. */
#include "tests/contract/contract.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 60 };

/* What a thread did not get; never asserted on the thread itself. */
struct worker {
    pthread_t thread;
    unsigned number;
    CUresult error;
    const char *where;
    bool wrong_bytes;
};

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        w->error = (call);                                                                                   \
        if (w->error) {                                                                                      \
            w->where = #call;                                                                                \
            return false;                                                                                    \
        }                                                                                                    \
    } while (0)

/* One life of a mapping, written through one address and read through another. */
static bool one_round(struct worker *w, CUstream stream, CUevent event, unsigned value)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_prop(0);
    CUmemAccessDesc desc = read_write(0);
    CUdeviceptr base, plain;
    unsigned got = 0;
    TRY(cuMemAddressReserve(&base, 2 * granularity, 0, 0, 0));
    TRY(cuMemCreate(&handle, granularity, &prop, 0));
    TRY(cuMemMap(base, granularity, 0, handle, 0));
    TRY(cuMemMap(base + granularity, granularity, 0, handle, 0));
    TRY(cuMemSetAccess(base, 2 * granularity, &desc, 1));
    TRY(cuMemsetD32Async(base, value, 256, stream));
    TRY(cuEventRecord(event, stream));
    TRY(cuEventSynchronize(event));
    TRY(cuEventQuery(event));
    TRY(cuMemAlloc(&plain, 65536));
    TRY(cuMemcpyDtoDAsync(plain, base + granularity, 1024, stream));
    TRY(cuMemcpyDtoHAsync(&got, plain + 512, 4, stream));
    TRY(cuStreamSynchronize(stream));
    w->wrong_bytes |= got != value;
    TRY(cuMemFree(plain));
    TRY(cuMemUnmap(base, granularity));
    TRY(cuMemUnmap(base + granularity, granularity));
    TRY(cuMemRelease(handle));
    TRY(cuMemAddressFree(base, 2 * granularity));
    return true;
}

static bool work(struct worker *w)
{
    CUstream stream;
    CUevent event;
    TRY(cuCtxSetCurrent(contract_context));
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned i = 0; i < ROUNDS; i++)
        if (!one_round(w, stream, event, w->number << 16 | i))
            return false;
    TRY(cuEventDestroy(event));
    TRY(cuStreamDestroy(stream));
    return true;
}

static void *run(void *argument)
{
    work(argument);
    return NULL;
}

/* note: the driver may be called from any thread at once; programs do, and rely on it. */
static void test_threads(void **state)
{
    (void)state;
    struct worker workers[THREADS] = {0};
    size_t before = free_bytes();
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].number = i + 1;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        if (workers[i].error)
            fail_msg("thread %u: %s gave %d", i, workers[i].where, workers[i].error);
        assert_false(workers[i].wrong_bytes);
    }
    assert_int_equal(free_bytes(), before);
}

/* The current context is a thread's own. */
static void *ask_context(void *out)
{
    cuCtxGetCurrent(out);
    return NULL;
}

/* cuda.h, cuCtxGetCurrent: the current context is a thread's own, and NULL at first. */
static void test_context_of_a_new_thread(void **state)
{
    (void)state;
    pthread_t thread;
    CUcontext theirs = contract_context;
    assert_int_equal(pthread_create(&thread, NULL, ask_context, &theirs), 0);
    pthread_join(thread, NULL);
    assert_null(theirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_context_of_a_new_thread),
    };
    RUN_CONTRACT(tests);
}
