/* SPDX-License-Identifier: Apache-2.0 */
/* rules: see rules.h. Protected by: a lock of its own. */
#include "sim/core/rules.h"
#include "sim/core/calls.h"
#include "sim/core/history.h"
#include "sim/sim.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 1024 };

static const struct {
    const char *name, *text, *source;
} rules[] = {
#define X(identifier, name, text, source) {name, text, source},
    SIM_RULES(X)
#undef X
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_violation kept[KEPT]; /* protected by lock, as the count */
static size_t count;
static bool is_strict;
static __thread uint64_t handle_of_next;

void sim_rules_about(uint64_t handle)
{
    handle_of_next = handle;
}

static void report(const struct sim_violation *v, const char *text, const char *source, uint64_t handle)
{
    fprintf(stderr,
            "seamalloc: simulated device: broken rule %s in %s (call %llu), range [%#llx, +%llu), device %d\n"
            "    %s (%s)%s%s\n",
            v->rule, v->call, (unsigned long long)sim_current_number(), (unsigned long long)v->base,
            (unsigned long long)v->size, v->device, text, source, *v->text ? ": " : "", v->text);
    uint64_t size = v->base && !v->size ? 1 : v->size; /* an address alone */
    if (size || handle) {
        fprintf(stderr, "  what happened there, oldest first:\n");
        if (sim_history_print(stderr, v->base, size, handle) == 0)
            fprintf(stderr, "    nothing that is remembered\n");
    }
    fflush(stderr);
}

void sim_violate(enum sim_rule rule, int device, uint64_t base, uint64_t size, const char *format, ...)
{
    struct sim_violation v = {
        .rule = rules[rule].name, .call = sim_current_call(), .base = base, .size = size, .device = device};
    uint64_t handle = handle_of_next;
    handle_of_next = 0;
    if (format) {
        va_list args;
        va_start(args, format);
        vsnprintf(v.text, sizeof v.text, format, args);
        va_end(args);
    }
    pthread_mutex_lock(&lock);
    if (count < KEPT)
        kept[count] = v;
    count++;
    bool strict = is_strict;
    pthread_mutex_unlock(&lock);
    if (strict) {
        report(&v, rules[rule].text, rules[rule].source, handle);
        abort();
    }
}

void sim_rules_reset(bool strict)
{
    pthread_mutex_lock(&lock);
    count = 0;
    is_strict = strict;
    pthread_mutex_unlock(&lock);
}

size_t sim_violation_count(void)
{
    pthread_mutex_lock(&lock);
    size_t n = count;
    pthread_mutex_unlock(&lock);
    return n;
}

bool sim_violation(size_t i, struct sim_violation *violation)
{
    pthread_mutex_lock(&lock);
    bool there = i < count && i < KEPT;
    if (there)
        *violation = kept[i];
    pthread_mutex_unlock(&lock);
    return there;
}
