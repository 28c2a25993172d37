/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_exchange: see nccl_exchange.h. A place has two counters, what was put into it and what was taken out,
 * and its owner writes again when both are equal. Waiting is polling with short sleeps: the peers are
 * processes that may have no core of their own. */
#include "sim/mathlibs/nccl_exchange.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WAIT_US   100
#define WAITS_MAX (60 * 1000000 / WAIT_US)

/* One message on its way. `taken` counts readers: one of a pair, all ranks of a round. */
struct place {
    _Atomic uint64_t put, taken;
    char padding[48];
    char bytes[EXCHANGE_BYTES_MAX];
};

struct shared {
    _Atomic int joined;
    char padding[60];
    struct place shown[EXCHANGE_RANKS_MAX];
    struct place sent[EXCHANGE_RANKS_MAX][EXCHANGE_RANKS_MAX]; /* from, to */
};

struct exchange {
    struct shared *shared;
    int ranks, rank;
    uint64_t rounds;
};

static bool wait_for(const _Atomic uint64_t *counter, uint64_t value)
{
    for (int i = 0; atomic_load(counter) < value; i++) {
        if (i == WAITS_MAX)
            return false;
        usleep(WAIT_US);
    }
    return true;
}

/* The file is sparse, so its size costs nothing; the last to join takes its name away. */
static struct shared *join(const void *id, int ranks)
{
    char name[64] = "/seamalloc-nccl-";
    size_t length = strlen(name);
    struct shared *shared;
    int file;

    for (int i = 0; i < 16; i++)
        length +=
            (size_t)snprintf(name + length, sizeof name - length, "%02x", ((const unsigned char *)id)[i]);
    file = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return NULL;
    shared = MAP_FAILED;
    if (ftruncate(file, sizeof *shared) == 0)
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED)
        return NULL;
    if (atomic_fetch_add(&shared->joined, 1) + 1 == ranks)
        shm_unlink(name);
    return shared;
}

struct exchange *exchange_open(const void *id, int ranks, int rank)
{
    struct exchange *exchange = ranks <= EXCHANGE_RANKS_MAX ? malloc(sizeof *exchange) : NULL;
    struct shared *shared = exchange ? join(id, ranks) : NULL;

    if (!shared) {
        free(exchange);
        return NULL;
    }
    *exchange = (struct exchange){shared, ranks, rank, 0};
    return exchange;
}

void exchange_close(struct exchange *exchange)
{
    if (exchange)
        munmap(exchange->shared, sizeof *exchange->shared);
    free(exchange);
}

bool exchange_all(struct exchange *exchange, const void *mine, size_t size)
{
    struct place *shown = exchange->shared->shown;
    uint64_t round = ++exchange->rounds;

    if (!wait_for(&shown[exchange->rank].taken, (round - 1) * (uint64_t)exchange->ranks))
        return false;
    memcpy(shown[exchange->rank].bytes, mine, size);
    atomic_store(&shown[exchange->rank].put, round);
    for (int i = 0; i < exchange->ranks; i++)
        if (!wait_for(&shown[i].put, round))
            return false;
    return true;
}

const void *exchange_of(const struct exchange *exchange, int rank)
{
    return exchange->shared->shown[rank].bytes;
}

void exchange_done(struct exchange *exchange)
{
    for (int i = 0; i < exchange->ranks; i++)
        atomic_fetch_add(&exchange->shared->shown[i].taken, 1);
}

bool exchange_send(struct exchange *exchange, int peer, const void *data, size_t size)
{
    struct place *place = &exchange->shared->sent[exchange->rank][peer];
    uint64_t put = atomic_load(&place->put);

    if (!wait_for(&place->taken, put))
        return false;
    memcpy(place->bytes, data, size);
    atomic_store(&place->put, put + 1);
    return true;
}

bool exchange_receive(struct exchange *exchange, int peer, void *data, size_t size)
{
    struct place *place = &exchange->shared->sent[peer][exchange->rank];
    uint64_t taken = atomic_load(&place->taken);

    if (!wait_for(&place->put, taken + 1))
        return false;
    memcpy(data, place->bytes, size);
    atomic_store(&place->taken, taken + 1);
    return true;
}
