/* SPDX-License-Identifier: Apache-2.0 */
/* lock: see lock.h. */
#include "sim/core/lock.h"
#include <errno.h>
#include <pthread.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

void sim_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

bool sim_sleep(uint32_t milliseconds)
{
    if (milliseconds == 0)
        return pthread_cond_wait(&condition, &mutex) == 0;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return pthread_cond_timedwait(&condition, &mutex, &until) != ETIMEDOUT;
}

void sim_wake(void)
{
    pthread_cond_broadcast(&condition);
}
