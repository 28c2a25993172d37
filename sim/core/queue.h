/* SPDX-License-Identifier: Apache-2.0 */
/* queue: work in order. Every stream is a lane of operations; an operation's effect happens when it
 * completes.
 *
 * When one may complete is the mode's business (sim_streams): at once, after a number of further calls, or
 * when its virtual time has come (timing.h); always in the order of its lane, never before what it waits for,
 * never in a lane that is held. A host wait pushes what it waits for, whatever the mode. Modes that count
 * calls differ in draw_due() in queue.c, and in nothing else.
 *
 * Order between lanes is also tracked (clocks): for each lane, up to which operation of every other lane it
 * is known to be ordered. Work that touches the same bytes as unfinished work elsewhere without such an order
 * is a race, and a broken rule, also when it happens to go well here. Protected by: the core lock. */
#ifndef SEAMALLOC_SIM_CORE_QUEUE_H
#define SEAMALLOC_SIM_CORE_QUEUE_H

#include "sim/core/transfer.h"
#include "sim/sim.h"
#include <stdatomic.h>
#include <sys/queue.h>

enum sim_op_kind {
    SIM_OP_KERNEL,   /* does nothing; may name the bytes it uses */
    SIM_OP_TRANSFER, /* copy or fill */
    SIM_OP_RECORD,   /* an event */
    SIM_OP_WAIT,     /* for an operation of another lane */
    SIM_OP_HOST,     /* a host function */
    SIM_OP_FREE      /* a stream-ordered free */
};

struct sim_touch {
    uint64_t base, size;
    bool write;
};

struct sim_op {
    STAILQ_ENTRY(sim_op) link;
    enum sim_op_kind kind;
    uint64_t sequence; /* in its lane, from 1 */
    uint64_t due;      /* from which on it may complete: a count of calls, or its end in virtual time */
    uint64_t ns;       /* KERNEL: how long it takes */
    const char *name;  /* for the trace, or NULL; never freed */
    CUresult fault;    /* instead of its effect: the device breaks with this error */
    bool is_node;      /* of a graph: the driver does not look at its addresses again when it is launched */
    int touch_count;
    struct sim_touch touches[2];
    union {
        struct sim_transfer transfer;
        struct {
            uint64_t event; /* handle */
            uint64_t number;
        } record;
        struct {
            uint32_t lane;
            uint64_t sequence, end_ns;
        } wait;
        struct {
            void (*call)(void *user);
            void *user;
        } host;
        struct {
            uint64_t base, number;
        } free;
    };
};
STAILQ_HEAD(sim_op_list, sim_op);

/* For each lane by index, up to which sequence; beyond size: 0. */
struct sim_clock {
    uint64_t *at;
    size_t size;
};

struct sim_capture;
struct sim_track;

struct sim_lane {
    uint32_t index;  /* immutable */
    uint64_t stream; /* the number of its stream; 0: none */
    int device;
    bool is_legacy;   /* the default stream, which blocking streams are ordered with */
    bool is_blocking; /* ordered with the default stream */
    bool is_held, is_busy, is_dying, is_active;
    uint64_t last, done; /* sequences: put, completed */
    struct sim_op_list ops;
    TAILQ_ENTRY(sim_lane) active; /* lanes with operations */
    struct sim_clock clock;
    uint64_t end_ns;             /* virtual time at which all that is on it has ended */
    struct sim_track *track;     /* its account of virtual time; NULL: none yet */
    struct sim_capture *capture; /* NULL: none */
    _Atomic uint64_t capture_id; /* of it, for lock-free questions; 0: none */
};

/* A point in a lane, and what is ordered before it. */
struct sim_point {
    uint32_t lane;
    uint64_t sequence;
    uint64_t end_ns; /* in virtual time */
    struct sim_clock clock;
};

/* A new lane, or one that a destroyed stream has left. Returns: NULL when there is no host memory. */
struct sim_lane *sim_lane_new(int device, bool is_blocking, bool is_legacy);
/* The lane's stream is gone: it may be used again once it is empty. */
void sim_lane_drop(struct sim_lane *lane);

/* Puts an operation on a lane, and completes what may. A copy of *op is kept. The ranges it touches are
 * checked. Returns: CUDA_ERROR_INVALID_VALUE when a copy or fill finds them not there (other work is taken,
 * and faults when it runs); the error that stays with the lane's device; CUDA_ERROR_OUT_OF_MEMORY. May drop
 * and retake the lock while a host function runs. */
CUresult sim_queue_put(struct sim_lane *lane, const struct sim_op *op);

/* One of the calls that time is counted in has been made. May drop and retake the lock. */
void sim_queue_tick(void);

/* Waits, on the host, until an operation is done. Returns: CUDA_ERROR_LAUNCH_TIMEOUT, and a broken rule, when
 * a held lane keeps it from completing for longer than the configuration allows. Drops the lock while it
 * sleeps. */
CUresult sim_queue_wait(struct sim_lane *lane, uint64_t sequence);
CUresult sim_queue_wait_lane(uint32_t index, uint64_t sequence);
/* The same for everything that is now on the lanes of a device (-1: of all). */
CUresult sim_queue_wait_all(int device);

/* Completes everything that is on a lane now, held or not. */
void sim_queue_run(struct sim_lane *lane);
void sim_queue_hold(struct sim_lane *lane, bool hold);
size_t sim_queue_pending(const struct sim_lane *lane);

/* The present end of a lane (its clock is a copy), and making a lane wait for a point. */
bool sim_queue_point(const struct sim_lane *lane, struct sim_point *point);
CUresult sim_queue_wait_point(struct sim_lane *lane, const struct sim_point *point);
/* Makes a lane wait for the present end of all lanes of its device. */
CUresult sim_queue_wait_device(struct sim_lane *lane);
/* Makes every lane of a device wait for a point. */
CUresult sim_queue_device_wait_point(int device, const struct sim_point *point);
bool sim_queue_point_done(const struct sim_point *point);
void sim_point_clear(struct sim_point *point);

/* Does whatever is put on a lane now come after an operation of another one, or is that done? */
bool sim_queue_is_after(const struct sim_lane *lane, uint32_t other, uint64_t sequence);

/* Is there unfinished work that touches a range of addresses? */
bool sim_queue_uses(uint64_t base, uint64_t size);

/* Operations that are not done, on all lanes. Thread: any, no lock. */
uint64_t sim_queue_total(void);

/* Requires: the configuration is in force. */
void sim_queue_start(void);
void sim_queue_reset(void);

#endif
