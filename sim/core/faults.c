/* SPDX-License-Identifier: Apache-2.0 */
/* faults: see faults.h.
 *
 * A rule is a set of calls, how many of them are still let through, and what the next one answers. Protected
 * by: a lock of its own, the innermost of the simulator, taken only while a rule is armed. */
#include "sim/core/faults.h"
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RULES = 16 };

struct rule {
    bool set[SIM_CALL_COUNT];
    uint64_t left; /* the call that finds 1 here fails */
    bool forever;
    CUresult error; /* CUDA_SUCCESS: what suits the call */
};

_Atomic int sim_faults_armed;
static struct rule rules[RULES]; /* protected by lock, as all below */
static int rule_count;
static uint64_t hits;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The calls in which a driver may find that there is no memory left, of whatever kind. */
static const char *const may_run_out[] = {
    "cuMemCreate",         "cuMemMap",        "cuMemSetAccess",
    "cuMemAddressReserve", "cuMemAlloc",      "cuMemAllocPitch",
    "cuMemAllocManaged",   "cuMemAllocAsync", "cuMemAllocFromPoolAsync",
    "cuMemHostAlloc",      "cuMemAllocHost",  "cuMemHostRegister",
    "cuEventCreate",       "cuStreamCreate",  "cuStreamCreateWithPriority"};

/* Questions about state that a healthy driver always answers; a fault loop need not try them. */
static const char *const cannot_fail[] = {
    "cuStreamIsCapturing",       "cuStreamGetCaptureInfo", "cuStreamGetPriority",
    "cuStreamGetFlags",          "cuStreamGetId",          "cuStreamGetCtx",
    "cuStreamGetDevice",         "cuEventElapsedTime",     "cuMemHostGetFlags",
    "cuMemHostGetDevicePointer", "cuMemGetAddressRange",   "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute"};

static bool in_list(const char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i], name))
            return true;
    return false;
}

#define IN(list, name) in_list(list, sizeof list / sizeof *list, name)

static CUresult error_of(const struct rule *rule, enum sim_call call)
{
    if (rule->error)
        return rule->error;
    return IN(may_run_out, sim_call_names[call]) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

CUresult sim_fault_due(enum sim_call call)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < rule_count; i++) {
        struct rule *rule = &rules[i];
        if (!rule->set[call] || rule->left == 0)
            continue;
        if (--rule->left > 0)
            continue;
        if (rule->forever)
            rule->left = 1;
        if (!result) {
            result = error_of(rule, call);
            hits++;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Adds a rule. Returns false when there is no room. */
static bool add_rule(const struct rule *rule)
{
    bool added = false;
    pthread_mutex_lock(&lock);
    if (rule->left && rule_count < RULES) {
        rules[rule_count++] = *rule;
        atomic_store(&sim_faults_armed, 1);
        added = true;
    }
    pthread_mutex_unlock(&lock);
    return added;
}

bool sim_fail(const char *call, uint64_t nth, bool forever, CUresult error)
{
    struct rule rule = {.left = nth, .forever = forever, .error = error};
    int id = sim_call_find(call, strlen(call));
    if (id < 0)
        return false;
    rule.set[id] = true;
    return add_rule(&rule);
}

static bool is_resource_call(const char *name)
{
    static const char *const families[] = {
        "cuMem", "cuEvent", "cuStream", "cuCtxSynchronize", "cuCtxRecordEvent", "cuLaunchHostFunc"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strncmp(name, families[i], strlen(families[i])))
            return !IN(cannot_fail, name);
    return false;
}

void sim_fail_any(uint64_t nth, bool forever)
{
    struct rule rule = {.left = nth, .forever = forever};
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        rule.set[call] = is_resource_call(sim_call_names[call]);
    add_rule(&rule);
}

bool sim_fail_any_of(const char *calls, uint64_t nth, bool forever)
{
    struct rule rule = {.left = nth, .forever = forever};
    for (const char *p = calls; *p;) {
        size_t length = strcspn(p, ",");
        int id = sim_call_find(p, length);
        if (id < 0)
            return false;
        rule.set[id] = true;
        p += length + (p[length] == ',');
    }
    return add_rule(&rule);
}

void sim_fail_clear(void)
{
    pthread_mutex_lock(&lock);
    rule_count = 0;
    hits = 0;
    atomic_store(&sim_faults_armed, 0);
    pthread_mutex_unlock(&lock);
}

uint64_t sim_fail_hits(void)
{
    pthread_mutex_lock(&lock);
    uint64_t n = hits;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Reads "NAME:N" or "NAME:N+". Returns: NULL or what is wrong. */
static const char *parse_rule(const char *text, size_t length, struct rule *rule)
{
    size_t name_length = strcspn(text, ":,");
    if (name_length >= length)
        return "want CALL:N or CALL:N+";
    int id = sim_call_find(text, name_length);
    if (id < 0)
        return "no such call; want a documented driver name without version, such as cuMemCreate";
    const char *digits = text + name_length + 1;
    char *end;
    if (!isdigit((unsigned char)*digits))
        return "want a number after the colon";
    *rule = (struct rule){.left = strtoull(digits, &end, 10)};
    rule->set[id] = true;
    rule->forever = *end == '+';
    if (end + rule->forever != text + length || rule->left == 0)
        return "want a number from 1 after the colon, and then nothing or +";
    return NULL;
}

const char *sim_fault_parse(const char *text, const char **at, int *length)
{
    static struct rule parsed[RULES]; /* too large for the stack; start-up is single-threaded by contract */
    int count = 0;
    for (const char *p = text; *p;) {
        size_t part = strcspn(p, ",");
        *at = p;
        *length = (int)part;
        if (count == RULES)
            return "too many faults";
        const char *wrong = parse_rule(p, part, &parsed[count++]);
        if (wrong)
            return wrong;
        p += part + (p[part] == ',');
    }
    for (int i = 0; i < count; i++)
        add_rule(&parsed[i]);
    return NULL;
}
