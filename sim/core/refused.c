/* SPDX-License-Identifier: Apache-2.0 */
/* refused: see refused.h. A list that only grows, searched from its start: a program that is in order has
 * none. */
#include "sim/core/refused.h"
#include "sim/core/config.h"
#include "sim/sim.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct refusal {
    struct refusal *next;
    uint64_t count;
    char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct refusal *first, **end = &first;

static struct refusal *find(const char *name)
{
    struct refusal *refusal = first;
    while (refusal && strcmp(refusal->name, name) != 0)
        refusal = refusal->next;
    return refusal;
}

static struct refusal *add(const char *name)
{
    size_t size = strlen(name) + 1;
    struct refusal *refusal = malloc(sizeof *refusal + size);
    if (!refusal)
        return NULL;
    refusal->next = NULL;
    refusal->count = 0;
    memcpy(refusal->name, name, size);
    *end = refusal;
    end = &refusal->next;
    return refusal;
}

void sim_note_unsupported(const char *name)
{
    pthread_mutex_lock(&lock);
    struct refusal *refusal = find(name);
    if (!refusal)
        refusal = add(name);
    bool say = refusal && refusal->count++ == 0 && sim_config.log;
    pthread_mutex_unlock(&lock);
    if (say)
        fprintf(stderr, "seamalloc: simulated device: %s is not supported\n", name);
}

bool sim_refused(size_t i, const char **name, uint64_t *count)
{
    pthread_mutex_lock(&lock);
    const struct refusal *refusal = first;
    while (refusal && i-- > 0)
        refusal = refusal->next;
    if (refusal) {
        *name = refusal->name;
        *count = refusal->count;
    }
    pthread_mutex_unlock(&lock);
    return refusal;
}

void sim_refused_reset(void)
{
    pthread_mutex_lock(&lock);
    while (first) {
        struct refusal *next = first->next;
        free(first);
        first = next;
    }
    end = &first;
    pthread_mutex_unlock(&lock);
}
