/* SPDX-License-Identifier: Apache-2.0 */
/* faults: see faults.h.
 *
 * A rule is a set of calls, perhaps of certain sizes or about one device, how many of them are still let
 * through, how many then meet it, and what happens to those: an answer, a fault of their work, or another
 * tenant. Protected by: a lock of its own, the innermost of the simulator, taken only while a rule is armed.
 */
#include "sim/core/faults.h"
#include "base/align.h"
#include "sim/core/config.h"
#include "sim/core/errors.h"
#include "sim/core/lock.h"
#include "sim/core/physical.h"
#include "sim/core/sticky.h"
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RULES = 16 };
#define FOREVER UINT64_MAX

struct rule {
    bool set[SIM_CALL_COUNT];
    uint64_t left;        /* the call that finds 1 here fails */
    uint64_t times;       /* that many fail one after the other; FOREVER */
    uint64_t least, most; /* of these sizes; most 0: whatever the size */
    bool one_device;
    int device;     /* about this device, if one_device */
    CUresult error; /* CUDA_SUCCESS: what suits the call */
    CUresult fault; /* the call goes through, and its work faults with this; CUDA_SUCCESS: it fails */
    int64_t tenant; /* the call goes through, and before it another tenant takes (+) or gives (-) that much */
};

_Atomic int sim_faults_armed;
static struct rule rules[RULES]; /* protected by lock, as all below */
static int rule_count;
static uint64_t hits;
__thread CUresult sim_fault_of_work;
static __thread int fault_device; /* on which it is */
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

static bool is_meant(const struct rule *rule, enum sim_call call, int device, uint64_t size)
{
    if (!rule->set[call] || rule->left == 0 || (rule->one_device && rule->device != device))
        return false;
    return rule->most == 0 || (size != SIM_NO_SIZE && size >= rule->least && size <= rule->most);
}

/* Another tenant takes, or gives back, so much or what there is. */
static void let_tenant(int device, int64_t bytes)
{
    if (device >= sim_config.devices)
        return;
    sim_lock();
    uint64_t had = sim_physical_tenant(device);
    sim_physical_let(device, bytes >= 0 ? had + (uint64_t)bytes : had - sm_min(had, (uint64_t)-bytes));
    sim_unlock();
}

/* What a rule does to the call that meets it. Requires: the lock is held. */
static void meet(const struct rule *rule, enum sim_call call, CUresult *result, CUresult *fault,
                 int64_t *tenant)
{
    if (rule->tenant) {
        *tenant += rule->tenant;
        return;
    }
    hits += !*result && !*fault;
    if (rule->fault)
        *fault = *fault ? *fault : rule->fault;
    else
        *result = *result ? *result : error_of(rule, call);
}

CUresult sim_fault_due(enum sim_call call, int device, uint64_t size)
{
    CUresult result = CUDA_SUCCESS, fault = CUDA_SUCCESS;
    int64_t tenant = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < rule_count; i++) {
        struct rule *rule = &rules[i];
        if (!is_meant(rule, call, device, size) || --rule->left > 0)
            continue;
        if (rule->times == FOREVER || --rule->times > 0)
            rule->left = 1;
        meet(rule, call, &result, &fault, &tenant);
    }
    pthread_mutex_unlock(&lock);
    if (tenant)
        let_tenant(sm_max(device, 0), tenant);
    if (result && sim_is_sticky(result))
        sim_sticky_set(device, result);
    else if (!result && fault) {
        sim_fault_of_work = fault;
        fault_device = device;
    }
    return result;
}

void sim_fault_settle_now(void)
{
    sim_sticky_set(fault_device, sim_fault_of_work);
    sim_fault_of_work = CUDA_SUCCESS;
}

void sim_fault_give(struct sim_op *op)
{
    if (op->kind != SIM_OP_KERNEL && op->kind != SIM_OP_TRANSFER && op->kind != SIM_OP_HOST)
        return;
    op->fault = op->fault ? op->fault : sim_fault_of_work;
    sim_fault_of_work = CUDA_SUCCESS;
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
    struct rule rule = {.left = nth, .times = forever ? FOREVER : 1, .error = error};
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
    struct rule rule = {.left = nth, .times = forever ? FOREVER : 1};
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        rule.set[call] = is_resource_call(sim_call_names[call]);
    add_rule(&rule);
}

bool sim_fail_any_of(const char *calls, uint64_t nth, bool forever)
{
    struct rule rule = {.left = nth, .times = forever ? FOREVER : 1};
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
    sim_fault_of_work = CUDA_SUCCESS;
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

/* ---- rules as text ---- */

static const char *const sized[] = {
    "cuMemCreate",       "cuMemMap",         "cuMemUnmap",     "cuMemSetAccess",   "cuMemAddressReserve",
    "cuMemAlloc",        "cuMemAllocAsync",  "cuMemHostAlloc", "cuMemAddressFree", "cuMemAllocFromPoolAsync",
    "cuMemAllocManaged", "cuMemHostRegister"};

/* Reads a number from 1, perhaps followed by K, M or G. Returns: false when there is none. */
static bool read_size(const char **at, uint64_t *size)
{
    char *end;
    unsigned shift = 0;
    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    *size = strtoull(*at, &end, 10);
    if (*end == 'K' || *end == 'M' || *end == 'G')
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
    *at = end + (shift > 0);
    if (errno || *size > UINT64_MAX >> 1 >> shift)
        return false;
    *size <<= shift;
    return true;
}

static const char *read_size_condition(const char **at, struct rule *rule)
{
    uint64_t size;
    char sign = **at;
    bool equal = sign == '=' || (sign && (*at)[1] == '=');
    if (sign != '<' && sign != '>' && sign != '=')
        return "want >=, >, <=, < or = after size";
    *at += 1 + (sign != '=' && equal);
    if (!read_size(at, &size) || size == 0)
        return "want a number of bytes from 1 after size, perhaps with K, M or G";
    rule->most = rule->most ? rule->most : SIM_NO_SIZE - 1;
    if (sign != '<') /* a second condition narrows the first */
        rule->least = equal ? size : size + 1;
    if (sign != '>')
        rule->most = equal ? size : size - 1;
    return rule->most < rule->least || rule->most == 0 ? "no size is like that" : NULL;
}

static const char *read_error(const char **at, CUresult *error)
{
    size_t length = strcspn(*at, ":,");
    const struct sim_error *known = sim_error_named(*at, length);
    if (!known || !known->error)
        return "want the name of an error there, such as CUDA_ERROR_OUT_OF_MEMORY";
    *error = known->error;
    *at += length;
    return NULL;
}

static const char *read_fault(const char **at, struct rule *rule)
{
    const char *wrong = read_error(at, &rule->fault);
    return wrong || sim_is_sticky(rule->fault)
               ? wrong
               : "want an error that stays after fault=, such as CUDA_ERROR_ILLEGAL_ADDRESS";
}

static const char *read_tenant(const char **at, struct rule *rule)
{
    uint64_t bytes;
    bool gives = **at == '-';
    *at += gives;
    if (!read_size(at, &bytes) || bytes == 0)
        return "want a number of bytes after tenant=, perhaps with - before it and with K, M or G";
    rule->tenant = gives ? -(int64_t)bytes : (int64_t)bytes;
    return NULL;
}

/* What happens to a call that meets the rule, in place of an error that suits it. */
static const char *read_effect(const char **at, struct rule *rule)
{
    bool is_error = !strncmp(*at, "error=", 6), is_fault = !strncmp(*at, "fault=", 6);
    if (rule->error || rule->fault || rule->tenant)
        return "want one of error=, fault= and tenant=";
    *at += is_error || is_fault ? 6 : 7;
    return is_error ? read_error(at, &rule->error) : is_fault ? read_fault(at, rule) : read_tenant(at, rule);
}

static const char *read_condition(const char **at, const char *name, struct rule *rule)
{
    if (!strncmp(*at, "error=", 6) || !strncmp(*at, "fault=", 6) || !strncmp(*at, "tenant=", 7))
        return read_effect(at, rule);
    if (!strncmp(*at, "size", 4)) {
        *at += 4;
        return IN(sized, name) ? read_size_condition(at, rule) : "this call has no size";
    }
    if (!strncmp(*at, "device=", 7)) {
        char *end;
        *at += 7;
        unsigned long device = strtoul(*at, &end, 10);
        if (!isdigit((unsigned char)**at) || device >= SIM_DEVICES_MAX)
            return "want a device number after device=";
        if (rule->one_device)
            return "want device= once";
        rule->one_device = true;
        rule->device = (int)device;
        *at = end;
        return NULL;
    }
    return "want size, device=, error=, fault= or tenant= after the count";
}

/* Reads the count: N, N+ or N..M. */
static const char *read_count(const char **at, struct rule *rule)
{
    uint64_t last;
    char *end;
    if (!isdigit((unsigned char)**at))
        return "want a number after the colon";
    errno = 0;
    last = rule->left = strtoull(*at, &end, 10);
    rule->times = 1;
    if (end[0] == '+') {
        rule->times = FOREVER;
        end++;
    } else if (end[0] == '.' && end[1] == '.') {
        *at = end + 2;
        last = isdigit((unsigned char)**at) ? strtoull(*at, &end, 10) : 0;
        rule->times = last - rule->left + 1;
    }
    *at = end;
    return rule->left == 0 || last < rule->left || errno ? "want a number from 1, and in N..M the larger last"
                                                         : NULL;
}

/* Reads one rule. Returns: NULL or what is wrong. */
static const char *parse_rule(const char *text, size_t length, struct rule *rule)
{
    size_t name_length = strcspn(text, ":,");
    if (name_length >= length)
        return "want CALL:N, CALL:N+ or CALL:N..M, perhaps with :size>=BYTES, :device=D, :error=NAME, "
               ":fault=NAME or :tenant=BYTES";
    int id = sim_call_find(text, name_length);
    if (id < 0)
        return "no such call; want a documented driver name without version, such as cuMemCreate";
    const char *at = text + name_length + 1;
    *rule = (struct rule){0};
    rule->set[id] = true;
    const char *wrong = read_count(&at, rule);
    while (!wrong && at < text + length && *at == ':') {
        at++;
        wrong = read_condition(&at, sim_call_names[id], rule);
    }
    return wrong                 ? wrong
           : at != text + length ? "want nothing after the count but +, ..M or a condition such as :size>=64M"
                                 : NULL;
}

bool sim_fault_parse(const char *text, char *error, size_t error_size)
{
    static struct rule parsed[RULES]; /* too large for the stack; start-up is single-threaded by contract */
    int count = 0;
    const char *wrong = NULL;
    pthread_mutex_lock(&lock);
    int armed = rule_count;
    pthread_mutex_unlock(&lock);
    for (const char *p = text; *p;) {
        size_t part = strcspn(p, ",");
        wrong = count + armed == RULES ? "too many faults" : parse_rule(p, part, &parsed[count]);
        if (wrong) {
            snprintf(error, error_size, "in \"%.*s\": %s", (int)sm_min(part, 60), p, wrong);
            return false;
        }
        count++;
        p += part + (p[part] == ',');
    }
    for (int i = 0; i < count; i++)
        add_rule(&parsed[i]);
    return true;
}

bool sim_fail_text(const char *text)
{
    static pthread_mutex_t parsing = PTHREAD_MUTEX_INITIALIZER;
    char error[200];
    pthread_mutex_lock(&parsing);
    bool good = sim_fault_parse(text, error, sizeof error);
    pthread_mutex_unlock(&parsing);
    if (!good)
        fprintf(stderr, "seamalloc: simulated CUDA device: %s\n", error);
    return good;
}
