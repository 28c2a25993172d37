/* SPDX-License-Identifier: Apache-2.0 */
/* nccl: collectives that complete on their stream without talking to anybody.
 *
 * The model: every rank holds what this one holds. A broadcast or an all-gather copies this rank's data to
 * where the peers' would arrive; a reduction copies without adding up; what only a peer sends stays as it is
 * in memory. Sizes and streams are those of the real calls, and each takes the time of its bytes. That is
 * enough for programs of several processes to run with the traffic of the real ones, and not enough to train.
 *
 * Owns: the communicators. No lock: NCCL asks its callers for order on one communicator. */
#include "sim/mathlibs/mathlib.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { NCCL_SUCCESS = 0, NCCL_UNHANDLED_CUDA_ERROR = 1, NCCL_SYSTEM_ERROR = 2, NCCL_INVALID_ARGUMENT = 4 };

/* Bytes a nanosecond between devices of one machine: a round figure. */
#define LINK_BYTES_PER_NS 400.0

struct communicator {
    int ranks, rank;
    CUdevice device;
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
    CUdevice device;

    (void)id;
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return NCCL_INVALID_ARGUMENT;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return NCCL_UNHANDLED_CUDA_ERROR;
    *communicator = mathlib_new();
    **communicator = (struct communicator){ranks, rank, device};
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
        *communicators[i] = (struct communicator){devices, i, list ? list[i] : i};
    }
    return NCCL_SUCCESS;
}

int ncclCommDestroy(comm communicator)
{
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

/* ---- collectives ---- */

/* Bytes of an element of an ncclDataType_t: int8 uint8 int32 uint32 int64 uint64 half float double bfloat16
 * and the two 8-bit floats, in this order. */
static size_t type_bytes(int type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 0;
}

/* The time of `size` bytes over the link, for the range in which they arrive. */
static int transfer(const void *buffer, size_t size, CUstream stream)
{
    CUresult result =
        sim_stream_work(stream, (CUdeviceptr)buffer, size, (uint64_t)((double)size / LINK_BYTES_PER_NS));

    return result == CUDA_SUCCESS ? NCCL_SUCCESS : NCCL_UNHANDLED_CUDA_ERROR;
}

/* Takes the time, and copies unless in place. The copy comes last: after it the bytes are known. */
static int copy(const void *from, void *to, size_t size, CUstream stream)
{
    int result = size > 0 ? transfer(to, size, stream) : NCCL_SUCCESS;

    if (result != NCCL_SUCCESS || size == 0 || from == to)
        return result;
    return cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, size, stream) == CUDA_SUCCESS
               ? NCCL_SUCCESS
               : NCCL_UNHANDLED_CUDA_ERROR;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, comm communicator,
                  CUstream stream)
{
    (void)op, (void)communicator;
    return copy(from, to, count * type_bytes(type), stream);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, comm communicator,
               CUstream stream)
{
    size_t size = count * type_bytes(type);

    (void)op;
    return communicator->rank == root ? copy(from, to, size, stream) : transfer(from, size, stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, comm communicator,
                  CUstream stream)
{
    size_t size = count * type_bytes(type);

    return communicator->rank == root ? copy(from, to, size, stream) : transfer(to, size, stream);
}

int ncclBcast(void *buffer, size_t count, int type, int root, comm communicator, CUstream stream)
{
    return ncclBroadcast(buffer, buffer, count, type, root, communicator, stream);
}

/* This rank's data to each of `ranks` places. */
static int fill_places(const char *from, char *to, size_t size, const struct communicator *communicator,
                       CUstream stream)
{
    int result = NCCL_SUCCESS;

    for (int i = 0; i < communicator->ranks && result == NCCL_SUCCESS; i++)
        result = copy(from, to + (size_t)i * size, size, stream);
    return result;
}

int ncclAllGather(const void *from, void *to, size_t count, int type, comm communicator, CUstream stream)
{
    return fill_places(from, to, count * type_bytes(type), communicator, stream);
}

int ncclGather(const void *from, void *to, size_t count, int type, int root, comm communicator,
               CUstream stream)
{
    size_t size = count * type_bytes(type);

    return communicator->rank == root ? fill_places(from, to, size, communicator, stream)
                                      : transfer(from, size, stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, comm communicator,
                      CUstream stream)
{
    size_t size = count * type_bytes(type);

    (void)op;
    return copy((const char *)from + (size_t)communicator->rank * size, to, size, stream);
}

int ncclAlltoAll(const void *from, void *to, size_t count, int type, comm communicator, CUstream stream)
{
    return copy(from, to, count * type_bytes(type) * (size_t)communicator->ranks, stream);
}

int ncclSend(const void *from, size_t count, int type, int peer, comm communicator, CUstream stream)
{
    (void)peer, (void)communicator;
    return transfer(from, count * type_bytes(type), stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, comm communicator, CUstream stream)
{
    (void)peer, (void)communicator;
    return transfer(to, count * type_bytes(type), stream);
}

#pragma GCC visibility pop
