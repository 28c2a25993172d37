/* SPDX-License-Identifier: Apache-2.0 */
/* nccl: collectives between the processes of one machine.
 *
 * A message of up to 64 KiB is handed over for real: the call waits for its stream and for its peers, so that
 * what programs agree upon (sizes, flags, shapes) is true. A larger one takes the time of its bytes
 * on its stream and talks to nobody: what this rank holds stands for what its peers hold, and what only a
 * peer sends stays as it is in memory. The traffic is that of the real calls either way. In a capture, and
 * between devices of one process, every message counts as large.
 *
 * Owns: the communicators. No lock: NCCL asks its callers for order on one communicator. */
#include "sim/mathlibs/mathlib.h"
#include "sim/mathlibs/nccl_exchange.h"
#include "sim/mathlibs/nccl_reduce.h"

#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

enum { NCCL_SUCCESS = 0, NCCL_UNHANDLED_CUDA_ERROR = 1, NCCL_SYSTEM_ERROR = 2, NCCL_INVALID_ARGUMENT = 4 };

struct communicator {
    int ranks, rank;
    CUdevice device;
    struct exchange *exchange; /* NULL: one rank, or several in this process */
};

struct unique_id {
    char bytes[128];
};

typedef struct communicator *comm;

int ncclGetUniqueId(struct unique_id *id);
int ncclCommInitRank(comm *communicator, int ranks, struct unique_id id, int rank);
int ncclCommInitRankConfig(comm *communicator, int ranks, struct unique_id id, int rank, void *config);
int ncclCommInitRankScalable(comm *communicator, int ranks, int rank, int ids, struct unique_id *id,
                             void *config);
int ncclCommInitAll(comm *communicators, int devices, const int *list);
int ncclCommDestroy(comm communicator);
int ncclCommAbort(comm communicator);
int ncclCommCount(comm communicator, int *ranks);
int ncclCommUserRank(comm communicator, int *rank);
int ncclCommCuDevice(comm communicator, int *device);
int ncclMemAlloc(void **pointer, size_t size);
int ncclMemFree(void *pointer);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, comm communicator,
                  CUstream stream);
int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, comm communicator,
               CUstream stream);
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, comm communicator,
                  CUstream stream);
int ncclBcast(void *buffer, size_t count, int type, int root, comm communicator, CUstream stream);
int ncclAllGather(const void *from, void *to, size_t count, int type, comm communicator, CUstream stream);
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, comm communicator,
                      CUstream stream);
int ncclAlltoAll(const void *from, void *to, size_t count, int type, comm communicator, CUstream stream);
int ncclGather(const void *from, void *to, size_t count, int type, int root, comm communicator,
               CUstream stream);
int ncclSend(const void *from, size_t count, int type, int peer, comm communicator, CUstream stream);
int ncclRecv(void *to, size_t count, int type, int peer, comm communicator, CUstream stream);

#pragma GCC visibility push(default)

/* ---- communicators ---- */

int ncclGetUniqueId(struct unique_id *id)
{
    return getrandom(id, sizeof *id, 0) == (ssize_t)sizeof *id ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
}

int ncclCommInitRank(comm *communicator, int ranks, struct unique_id id, int rank)
{
    struct exchange *exchange = NULL;
    CUdevice device;

    if (ranks < 1 || rank < 0 || rank >= ranks)
        return NCCL_INVALID_ARGUMENT;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return NCCL_UNHANDLED_CUDA_ERROR;
    if (ranks > 1 && !(exchange = exchange_open(&id, ranks, rank)))
        return NCCL_SYSTEM_ERROR;
    *communicator = mathlib_new();
    **communicator = (struct communicator){ranks, rank, device, exchange};
    sim_host_watched(); /* a caller of NCCL has a thread that looks after what was put */
    return NCCL_SUCCESS;
}

int ncclCommInitRankConfig(comm *communicator, int ranks, struct unique_id id, int rank, void *config)
{
    (void)config;
    return ncclCommInitRank(communicator, ranks, id, rank);
}

int ncclCommInitRankScalable(comm *communicator, int ranks, int rank, int ids, struct unique_id *id,
                             void *config)
{
    (void)config;
    return ids < 1 ? NCCL_INVALID_ARGUMENT : ncclCommInitRank(communicator, ranks, *id, rank);
}

int ncclCommInitAll(comm *communicators, int devices, const int *list)
{
    for (int i = 0; i < devices; i++) {
        communicators[i] = mathlib_new();
        *communicators[i] = (struct communicator){devices, i, list ? list[i] : i, NULL};
    }
    sim_host_watched();
    return NCCL_SUCCESS;
}

int ncclCommDestroy(comm communicator)
{
    if (communicator)
        exchange_close(communicator->exchange);
    mathlib_delete(communicator);
    return NCCL_SUCCESS;
}

int ncclCommAbort(comm communicator)
{
    return ncclCommDestroy(communicator);
}

int ncclCommCount(comm communicator, int *ranks)
{
    *ranks = communicator->ranks;
    return NCCL_SUCCESS;
}

int ncclCommUserRank(comm communicator, int *rank)
{
    *rank = communicator->rank;
    return NCCL_SUCCESS;
}

int ncclCommCuDevice(comm communicator, int *device)
{
    *device = communicator->device;
    return NCCL_SUCCESS;
}

int ncclMemAlloc(void **pointer, size_t size)
{
    CUdeviceptr address;

    if (cuMemAlloc(&address, size) != CUDA_SUCCESS)
        return NCCL_UNHANDLED_CUDA_ERROR;
    *pointer = (void *)address;
    return NCCL_SUCCESS;
}

int ncclMemFree(void *pointer)
{
    return cuMemFree((CUdeviceptr)pointer) == CUDA_SUCCESS ? NCCL_SUCCESS : NCCL_UNHANDLED_CUDA_ERROR;
}

/* ---- large messages: their time, and this rank's own data ---- */

/* This rank's part of a collective that moves `total` bytes, for the range in which its own arrive. */
static int transfer(enum sim_collective what, const void *buffer, size_t size, size_t total,
                    const struct communicator *communicator, CUstream stream)
{
    CUresult result;

    if (size == 0)
        return NCCL_SUCCESS;
    result = sim_stream_collective(stream, (CUdeviceptr)buffer, size, what, total, communicator->ranks);
    return result == CUDA_SUCCESS ? NCCL_SUCCESS : NCCL_UNHANDLED_CUDA_ERROR;
}

static int copy_to(void *to, const void *from, size_t size, CUstream stream)
{
    if (size == 0 || from == to)
        return NCCL_SUCCESS;
    return cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, size, stream) == CUDA_SUCCESS
               ? NCCL_SUCCESS
               : NCCL_UNHANDLED_CUDA_ERROR;
}

/* Takes the time, and copies unless in place. */
static int copy(enum sim_collective what, const void *from, void *to, size_t size, size_t total,
                const struct communicator *communicator, CUstream stream)
{
    int result = transfer(what, to, size, total, communicator, stream);

    return result == NCCL_SUCCESS ? copy_to(to, from, size, stream) : result;
}

/* This rank's data to each of `ranks` places. */
static int fill_places(enum sim_collective what, const char *from, char *to, size_t size,
                       const struct communicator *communicator, CUstream stream)
{
    size_t total = size * (size_t)communicator->ranks;
    int result = transfer(what, to, total, total, communicator, stream);

    for (int i = 0; i < communicator->ranks && result == NCCL_SUCCESS; i++)
        result = copy_to(to + (size_t)i * size, from, size, stream);
    return result;
}

/* ---- small messages: shown to all ranks ---- */

static bool is_small(const struct communicator *communicator, size_t size, CUstream stream)
{
    CUstreamCaptureStatus status;

    return communicator->exchange && size > 0 && size <= EXCHANGE_BYTES_MAX &&
           cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

static int read_device(void *to, const void *from, size_t size, CUstream stream)
{
    if (cuMemcpyDtoHAsync(to, (CUdeviceptr)from, size, stream) != CUDA_SUCCESS ||
        cuStreamSynchronize(stream) != CUDA_SUCCESS)
        return NCCL_UNHANDLED_CUDA_ERROR;
    return NCCL_SUCCESS;
}

static int write_device(void *to, const void *from, size_t size, CUstream stream)
{
    return cuMemcpyHtoDAsync((CUdeviceptr)to, from, size, stream) == CUDA_SUCCESS ? NCCL_SUCCESS
                                                                                  : NCCL_UNHANDLED_CUDA_ERROR;
}

/* Shows `size` bytes of device memory to all ranks. Until end_round, what they showed can be looked at. */
static int show(comm communicator, const void *from, size_t size, CUstream stream)
{
    char bytes[EXCHANGE_BYTES_MAX];
    int result = read_device(bytes, from, size, stream);

    if (result == NCCL_SUCCESS && !exchange_all(communicator->exchange, bytes, size))
        result = NCCL_SYSTEM_ERROR;
    return result;
}

static int end_round(comm communicator, int result)
{
    if (result != NCCL_SYSTEM_ERROR)
        exchange_done(communicator->exchange);
    return result;
}

static int gather_small(const void *from, char *to, size_t size, comm communicator, CUstream stream)
{
    int result = show(communicator, from, size, stream);

    for (int i = 0; to && i < communicator->ranks && result == NCCL_SUCCESS; i++)
        result = write_device(to + (size_t)i * size, exchange_of(communicator->exchange, i), size, stream);
    return end_round(communicator, result);
}

/* Reduces `count` elements from the `first` on. A type without arithmetic gives this rank's own elements. */
static int reduce_small(const void *from, void *to, size_t total, size_t first, size_t count, int type,
                        int op, comm communicator, CUstream stream)
{
    size_t element = nccl_type_bytes(type), offset = first * element;
    int result = show(communicator, from, total * element, stream);
    char sum[EXCHANGE_BYTES_MAX];

    if (result == NCCL_SUCCESS && to) {
        memcpy(sum, (const char *)exchange_of(communicator->exchange, communicator->rank) + offset,
               count * element);
        for (int i = 0; i < communicator->ranks; i++)
            if (i != communicator->rank)
                nccl_fold(sum, (const char *)exchange_of(communicator->exchange, i) + offset, count, type,
                          op);
        nccl_finish(sum, count, type, op, communicator->ranks);
        result = write_device(to, sum, count * element, stream);
    }
    return end_round(communicator, result);
}

/* ---- the collectives ---- */

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, comm communicator,
                  CUstream stream)
{
    size_t size = count * nccl_type_bytes(type);

    if (is_small(communicator, size, stream))
        return reduce_small(from, to, count, 0, count, type, op, communicator, stream);
    return copy(SIM_ALL_REDUCE, from, to, size, size, communicator, stream);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, comm communicator,
               CUstream stream)
{
    size_t size = count * nccl_type_bytes(type);
    bool mine = communicator->rank == root;

    if (is_small(communicator, size, stream))
        return reduce_small(from, mine ? to : NULL, count, 0, count, type, op, communicator, stream);
    return mine ? copy(SIM_REDUCE, from, to, size, size, communicator, stream)
                : transfer(SIM_REDUCE, from, size, size, communicator, stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, comm communicator,
                      CUstream stream)
{
    size_t size = count * nccl_type_bytes(type), ranks = (size_t)communicator->ranks;
    size_t rank = (size_t)communicator->rank;

    if (is_small(communicator, size * ranks, stream))
        return reduce_small(from, to, count * ranks, count * rank, count, type, op, communicator, stream);
    return copy(SIM_REDUCE_SCATTER, (const char *)from + rank * size, to, size, size * ranks, communicator,
                stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, comm communicator,
                  CUstream stream)
{
    size_t size = count * nccl_type_bytes(type);
    bool mine = communicator->rank == root;
    int result;

    if (!is_small(communicator, size, stream))
        return mine ? copy(SIM_BROADCAST, from, to, size, size, communicator, stream)
                    : transfer(SIM_BROADCAST, to, size, size, communicator, stream);
    result = show(communicator, mine ? from : to, size, stream);
    if (result == NCCL_SUCCESS)
        result = write_device(to, exchange_of(communicator->exchange, root), size, stream);
    return end_round(communicator, result);
}

int ncclBcast(void *buffer, size_t count, int type, int root, comm communicator, CUstream stream)
{
    return ncclBroadcast(buffer, buffer, count, type, root, communicator, stream);
}

int ncclAllGather(const void *from, void *to, size_t count, int type, comm communicator, CUstream stream)
{
    size_t size = count * nccl_type_bytes(type);

    if (is_small(communicator, size, stream))
        return gather_small(from, to, size, communicator, stream);
    return fill_places(SIM_ALL_GATHER, from, to, size, communicator, stream);
}

int ncclGather(const void *from, void *to, size_t count, int type, int root, comm communicator,
               CUstream stream)
{
    size_t size = count * nccl_type_bytes(type);
    bool mine = communicator->rank == root;

    if (is_small(communicator, size, stream))
        return gather_small(from, mine ? to : NULL, size, communicator, stream);
    return mine ? fill_places(SIM_GATHER, from, to, size, communicator, stream)
                : transfer(SIM_GATHER, from, size, size * (size_t)communicator->ranks, communicator, stream);
}

int ncclAlltoAll(const void *from, void *to, size_t count, int type, comm communicator, CUstream stream)
{
    size_t size = count * nccl_type_bytes(type), total = size * (size_t)communicator->ranks;
    int result;

    if (!is_small(communicator, total, stream))
        return copy(SIM_ALL_TO_ALL, from, to, total, total, communicator, stream);
    result = show(communicator, from, total, stream);
    for (int i = 0; i < communicator->ranks && result == NCCL_SUCCESS; i++)
        result = write_device((char *)to + (size_t)i * size,
                              (const char *)exchange_of(communicator->exchange, i) +
                                  (size_t)communicator->rank * size,
                              size, stream);
    return end_round(communicator, result);
}

/* ---- between two ranks ---- */

int ncclSend(const void *from, size_t count, int type, int peer, comm communicator, CUstream stream)
{
    size_t size = count * nccl_type_bytes(type);
    char bytes[EXCHANGE_BYTES_MAX];
    int result;

    if (!is_small(communicator, size, stream))
        return transfer(SIM_SEND, from, size, size, communicator, stream);
    result = read_device(bytes, from, size, stream);
    if (result == NCCL_SUCCESS && !exchange_send(communicator->exchange, peer, bytes, size))
        result = NCCL_SYSTEM_ERROR;
    return result;
}

int ncclRecv(void *to, size_t count, int type, int peer, comm communicator, CUstream stream)
{
    size_t size = count * nccl_type_bytes(type);
    char bytes[EXCHANGE_BYTES_MAX];

    if (!is_small(communicator, size, stream))
        return transfer(SIM_SEND, to, size, size, communicator, stream);
    if (!exchange_receive(communicator->exchange, peer, bytes, size))
        return NCCL_SYSTEM_ERROR;
    return write_device(to, bytes, size, stream);
}

#pragma GCC visibility pop
