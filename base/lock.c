/* SPDX-License-Identifier: Apache-2.0 */
/* lock: see lock.h.
 *
 * Debug builds keep, for each thread, the locks that it holds. Ranks only ascend, so there is room for one
 * lock a rank. The list is thread-local by the general model: an initial-exec variable would need the static
 * TLS block, which a library loaded by dlopen may not find room in. Release builds have no thread-local
 * variable at all. */
#include "base/lock.h"
#include "base/log.h"
#include <stdlib.h>
#include <time.h>

#ifndef NDEBUG
struct held_locks {
    const struct sm_lock *locks[SM_RANK_COUNT]; /* ascending ranks */
    unsigned count;
};
static __thread __attribute__((tls_model("global-dynamic"))) struct held_locks held;

static void note_taking(const struct sm_lock *lock)
{
    if (!held.count)
        return;
    const struct sm_lock *last = held.locks[held.count - 1];
    if (last->rank < lock->rank)
        return;
    sm_log(SM_LOG_ERROR, "lock order: \"%s\" (rank %d) is taken while \"%s\" (rank %d) is held", lock->name,
           (int)lock->rank, last->name, (int)last->rank);
    abort();
}

static void note_taken(const struct sm_lock *lock)
{
    held.locks[held.count++] = lock;
}

/* Locks may be given back in any order: the ones behind move up, which keeps the ranks ascending. */
static void note_given(const struct sm_lock *lock)
{
    unsigned i = 0;
    while (i < held.count && held.locks[i] != lock)
        i++;
    if (i == held.count) {
        sm_log(SM_LOG_ERROR, "lock order: \"%s\" is given back by a thread that does not hold it",
               lock->name);
        abort();
    }
    for (held.count--; i < held.count; i++)
        held.locks[i] = held.locks[i + 1];
}

void sm_lock_assert_held(const struct sm_lock *lock)
{
    for (unsigned i = 0; i < held.count; i++)
        if (held.locks[i] == lock)
            return;
    sm_log(SM_LOG_ERROR, "lock \"%s\" is not held here", lock->name);
    abort();
}
#else
static void note_taking(const struct sm_lock *lock)
{
    (void)lock;
}

static void note_taken(const struct sm_lock *lock)
{
    (void)lock;
}

static void note_given(const struct sm_lock *lock)
{
    (void)lock;
}

void sm_lock_assert_held(const struct sm_lock *lock)
{
    (void)lock;
}
#endif

void sm_lock_init(struct sm_lock *lock, enum sm_lock_rank rank, const char *name)
{
    pthread_mutex_init(&lock->mutex, NULL);
    atomic_init(&lock->taken, false);
    lock->rank = rank;
    lock->name = name;
    lock->entered = NULL;
    lock->context = NULL;
}

void sm_lock_fini(struct sm_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

void sm_lock_take_bare(struct sm_lock *lock)
{
    note_taking(lock); /* before waiting: a wrong order must be told, not end in a deadlock */
    pthread_mutex_lock(&lock->mutex);
    note_taken(lock);
}

void sm_lock_take(struct sm_lock *lock)
{
    sm_lock_take_bare(lock);
    if (lock->entered)
        lock->entered(lock->context);
}

void sm_lock_give(struct sm_lock *lock)
{
    note_given(lock);
    pthread_mutex_unlock(&lock->mutex);
}

/* ---- brief locks ---- */

void sm_lock_note_taking(const struct sm_lock *lock)
{
    note_taking(lock);
    note_taken(lock); /* nobody looks before it is */
}

void sm_lock_note_given(const struct sm_lock *lock)
{
    note_given(lock);
}

#define SPINS    100
#define SLEEP_NS 5000

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

void sm_lock_wait_brief(struct sm_lock *lock)
{
    do {
        for (int i = 0; i < SPINS && atomic_load_explicit(&lock->taken, memory_order_relaxed); i++)
            pause_briefly();
        /* Its holder is not running, or others are faster: not even a thread of the highest priority may keep
         * them from the processor. */
        if (atomic_load_explicit(&lock->taken, memory_order_relaxed))
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    } while (atomic_exchange_explicit(&lock->taken, true, memory_order_acquire));
}
