/* SPDX-License-Identifier: Apache-2.0 */
/* Locks with ranks: a thread may take a lock only while all locks it holds have a lower rank. Checked in
 * debug builds (a violation prints both names and aborts); in release builds a plain mutex. */
#ifndef SEAM_BASE_LOCK_H
#define SEAM_BASE_LOCK_H

#include <pthread.h>

/* Ascending: the order in which locks are taken. */
enum sm_lock_rank {
    SM_RANK_PHASES, /* phase and window boundaries, all devices */
    SM_RANK_SETUP,  /* loading, configuring, creating devices */
    SM_RANK_MEMORY, /* one device: growth, trim, reclaim; held over driver calls */
    SM_RANK_HEAP,   /* one device: blocks, homes, counters; never held over a driver call that may wait */
    SM_RANK_TRACE,  /* the buffers of a recording */
    SM_RANK_COUNT
};

struct sm_lock {
    pthread_mutex_t mutex;
    enum sm_lock_rank rank;
    const char *name;
};

void sm_lock_init(struct sm_lock *lock, enum sm_lock_rank rank, const char *name);
void sm_lock_fini(struct sm_lock *lock);
void sm_lock_take(struct sm_lock *lock);
void sm_lock_give(struct sm_lock *lock);
/* Debug builds: aborts unless the calling thread holds the lock. */
void sm_lock_assert_held(const struct sm_lock *lock);

#endif
