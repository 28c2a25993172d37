/* SPDX-License-Identifier: Apache-2.0 */
/* Locks with ranks: a thread may take a lock only while all locks it holds have a lower rank. Checked in
 * debug builds (a violation prints both names and aborts); in release builds a plain mutex.
 *
 * A brief lock is one that is held for some dozens of instructions and never over a call that may wait: who
 * finds it taken spins, then sleeps for moments. Giving it back is then a plain store. A lock is used in one
 * of the two ways, never both. */
#ifndef SEAM_BASE_LOCK_H
#define SEAM_BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Ascending: the order in which locks are taken. */
enum sm_lock_rank {
    SM_RANK_PHASES, /* phase and window boundaries, all devices */
    SM_RANK_SETUP,  /* loading, configuring, creating devices */
    SM_RANK_MEMORY, /* one device: growth, trim, reclaim; held over driver calls */
    SM_RANK_HEAP,   /* one device: blocks, homes, counters; never held over a driver call that may wait */
    SM_RANK_HOME,   /* one home, while it is leased */
    SM_RANK_TRACE,  /* the buffers of a recording */
    SM_RANK_COUNT
};

struct sm_lock {
    pthread_mutex_t mutex;
    _Atomic bool taken; /* of a brief lock */
    enum sm_lock_rank rank;
    const char *name;
    void (*entered)(void *context); /* called at each taking, with the lock held; NULL: nothing is */
    void *context;
};

void sm_lock_init(struct sm_lock *lock, enum sm_lock_rank rank, const char *name);
void sm_lock_fini(struct sm_lock *lock);
void sm_lock_take(struct sm_lock *lock);
/* The same, and `entered` is not called. */
void sm_lock_take_bare(struct sm_lock *lock);
void sm_lock_give(struct sm_lock *lock);
/* Debug builds: what a thread holds, for the inline functions below. */
void sm_lock_note_taking(const struct sm_lock *lock);
void sm_lock_note_given(const struct sm_lock *lock);
/* Waits for a brief lock that is taken, and takes it. */
void sm_lock_wait_brief(struct sm_lock *lock);

static inline void sm_lock_take_brief(struct sm_lock *lock)
{
#ifndef NDEBUG
    sm_lock_note_taking(lock);
#endif
    if (__builtin_expect(atomic_exchange_explicit(&lock->taken, true, memory_order_acquire), false))
        sm_lock_wait_brief(lock);
}

static inline void sm_lock_give_brief(struct sm_lock *lock)
{
#ifndef NDEBUG
    sm_lock_note_given(lock);
#endif
    atomic_store_explicit(&lock->taken, false, memory_order_release);
}

/* Debug builds: aborts unless the calling thread holds the lock. */
void sm_lock_assert_held(const struct sm_lock *lock);

#endif
