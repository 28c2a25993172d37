/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_exchange: how the ranks of a communicator, each a process of this machine, hand small messages to each
 * other: a shared file in memory, named after the communicator's id, with a place for each rank and each pair
 * of ranks. One communicator is used by one thread at a time, as NCCL asks for, and by all ranks in the same
 * order. */
#ifndef SEAMALLOC_SIM_MATHLIBS_NCCL_EXCHANGE_H
#define SEAMALLOC_SIM_MATHLIBS_NCCL_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

/* The largest message; what is larger is not handed over. */
#define EXCHANGE_BYTES_MAX 65536
#define EXCHANGE_RANKS_MAX 16

struct exchange;

/* Joins the ranks that open the same 128 bytes. Does not wait for them.
 * Returns: NULL when there is no shared memory, or there are too many ranks. */
struct exchange *exchange_open(const void *id, int ranks, int rank);

/* Leaves; NULL is nothing. */
void exchange_close(struct exchange *exchange);

/* Shows `mine` to all ranks, and waits until all have shown theirs.
 * Requires: size <= EXCHANGE_BYTES_MAX; the last round was ended with exchange_done.
 * Returns: false when a peer has not come within a minute. */
bool exchange_all(struct exchange *exchange, const void *mine, size_t size);

/* What a rank has shown, from exchange_all until exchange_done. */
const void *exchange_of(const struct exchange *exchange, int rank);

/* Ends the round: what was shown may be overwritten once every rank has said so. */
void exchange_done(struct exchange *exchange);

/* Leaves a message for a peer; waits only while the last one lies there unread.
 * Requires: size <= EXCHANGE_BYTES_MAX. Returns: false as above. */
bool exchange_send(struct exchange *exchange, int peer, const void *data, size_t size);

/* Takes the next message of a peer. The same conditions. */
bool exchange_receive(struct exchange *exchange, int peer, void *data, size_t size);

#endif
