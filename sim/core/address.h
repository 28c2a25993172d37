/* SPDX-License-Identifier: Apache-2.0 */
/* address: the addresses of a device, and what each range of them is.
 *
 * Each device has an arena at a fixed address, so that runs repeat. Reservations are placed from its bottom
 * upwards, plain allocations from its top downwards, both first fit. Host memory that the device knows
 * (pinned, registered) is kept in the same tree, but lies where the host put it. Protected by: the core lock.
 */
#ifndef SEAMALLOC_SIM_CORE_ADDRESS_H
#define SEAMALLOC_SIM_CORE_ADDRESS_H

#include "sim/core/history.h"
#include "sim/core/tree.h"
#include "sim/sim.h"
#include <sys/queue.h>

enum sim_range_kind {
    SIM_RANGE_RESERVATION, /* of cuMemAddressReserve */
    SIM_RANGE_PLAIN,       /* of cuMemAlloc and the pools */
    SIM_RANGE_HOST,        /* of cuMemHostAlloc */
    SIM_RANGE_REGISTERED   /* of cuMemHostRegister */
};

/* What a plain allocation has to do with a graph: made by its capture, and perhaps freed since. */
enum sim_graph_state { SIM_GRAPH_NONE, SIM_GRAPH_OWNED, SIM_GRAPH_FREED };

struct sim_range {
    RB_ENTRY(sim_range) link;
    uint64_t base, size;
    enum sim_range_kind kind;
    int device;
    uint64_t id;                      /* PLAIN: its number among handles; others: unique */
    uint64_t offset;                  /* PLAIN: in its file */
    int file;                         /* PLAIN: the file of its bytes (backing.h) */
    unsigned opened;                  /* PLAIN: another process's; how often it is open */
    uint64_t mappings;                /* RESERVATION: live ones in it */
    struct sim_kept *kept;            /* RESERVATION: released memory that goes back with it */
    uint64_t pool;                    /* PLAIN of a pool: the pool's handle, else 0 */
    enum sim_graph_state graph;       /* PLAIN */
    bool managed;                     /* PLAIN: the host may use it too */
    unsigned flags;                   /* HOST, REGISTERED: as given */
    bool cached;                      /* PLAIN of a pool: it is free there, and nobody's */
    uint64_t freeing;                 /* PLAIN: the number of the queued free of it; 0: none */
    uint32_t free_lane;               /* where that free is queued, */
    uint64_t free_sequence;           /* and behind what */
    TAILQ_ENTRY(sim_range) free_link; /* PLAIN of a pool, cached or freeing */
    struct sim_origin origin;
};

struct sim_kept {
    struct sim_kept *next;
    uint64_t offset, size;
    int device;
};

/* How many bytes of addresses the arena of one device has. */
uint64_t sim_arena_bytes(int devices, bool backed);

/* Returns: false when there is no host memory. */
bool sim_address_start(int devices, bool backed, uint64_t budget);
void sim_address_reset(void);

/* Places a range of addresses in a device's arena: at `hint` if that is free, else first fit, from the top or
 * from the bottom. Nothing is visible there yet. Returns: NULL when there is no room. */
struct sim_range *sim_address_place(enum sim_range_kind kind, int device, uint64_t size, uint64_t align,
                                    uint64_t hint);
/* Notes host memory. Returns: NULL when a part of it is known already, or without host memory. */
struct sim_range *sim_address_note_host(enum sim_range_kind kind, int device, uint64_t base, uint64_t size);
/* Forgets a range, and gives its addresses back to the arena (not those of host memory). */
void sim_address_drop(struct sim_range *range);

/* Cuts a plain allocation in two; `range` keeps the first `size` bytes. Requires: 0 < size < range->size.
 * Returns: the rest, or NULL without host memory. */
struct sim_range *sim_address_split(struct sim_range *range, uint64_t size);

/* The range that holds an address; the one that begins there. Return: NULL for none. */
struct sim_range *sim_address_find(uint64_t address);
struct sim_range *sim_address_at(uint64_t base);
/* The first range that is not wholly below an address, in address order; the one after a range. */
struct sim_range *sim_address_next(struct sim_range *range);

/* Does an address lie in the arena of a device, whether or not anything is there? */
bool sim_address_in_arena(uint64_t address);

uint64_t sim_address_bytes(int device);
uint64_t sim_address_bytes_peak(int device);
/* Numbers for handles and plain allocations: 1, 2, 3 ... */
uint64_t sim_address_new_id(void);

/* Adds what is live to the counts of *live. */
void sim_address_live(struct sim_live *live);

#endif
