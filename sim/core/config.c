/* SPDX-License-Identifier: Apache-2.0 */
/* config: see config.h. */
#include "sim/core/config.h"
#include "base/align.h"
#include "sim/core/address.h"
#include "sim/core/cost.h"
#include "sim/core/faults.h"
#include "sim/core/tenant.h"
#include "sim/core/terms.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim_config sim_config;
static char report_path[4096], trace_path[4096];

void sim_config_default(struct sim_config *config)
{
    *config = (struct sim_config){
        .devices = 1,
        .device_bytes = 80 * SM_GIB,
        .granularity = 2 * SM_MIB,
        .mappings_max = 523000, /* one published measurement; see presets/h100.conf for the spirit */
        .streams = SIM_STREAMS_IMMEDIATE,
        .backed = true,
        .unmap_several = true,
        .stuck_ms = 10000,
    };
}

bool sim_config_check(const struct sim_config *c, char *error, size_t error_size)
{
    const char *wrong = NULL;
    if (c->devices < 1 || c->devices > SIM_DEVICES_MAX)
        wrong = "devices: want 1 to 16";
    else if (!sm_is_pow2(c->granularity) || c->granularity < 65536)
        wrong = "granularity: want a power of two from 64 KiB";
    else if (c->recommended && (!sm_is_pow2(c->recommended) || c->recommended < c->granularity))
        wrong = "recommended: want a power of two from the granularity";
    else if (c->device_bytes == 0 || c->device_bytes % c->granularity)
        wrong = "device_bytes: want a multiple of the granularity";
    else if (c->device_bytes > sim_arena_bytes(c->devices, c->backed))
        wrong = "device_bytes: more than the addresses a device has";
    else if (c->tenant_bytes > c->device_bytes)
        wrong = "tenant_bytes: more than the device has";
    if (wrong)
        snprintf(error, error_size, "%s", wrong);
    return !wrong;
}

const char *sim_config_streams_text(const struct sim_config *config, char *text, size_t size)
{
    switch (config->streams) {
    case SIM_STREAMS_IMMEDIATE:
        snprintf(text, size, "immediate");
        break;
    case SIM_STREAMS_LAG:
        snprintf(text, size, "lag:%llu", (unsigned long long)config->lag);
        break;
    case SIM_STREAMS_LATE:
        snprintf(text, size, "late");
        break;
    case SIM_STREAMS_RANDOM:
        snprintf(text, size, "random:%llu", (unsigned long long)config->seed);
        break;
    case SIM_STREAMS_TIMED:
        snprintf(text, size, "timed");
    }
    return text;
}

/* ---- the environment ---- */

static bool complain(const char *variable, const char *value, const char *right)
{
    fprintf(stderr, "seamalloc: simulated CUDA device: %s=%s is not valid: %s\n", variable, value, right);
    return false;
}

/* A number from low to high. Leaves *out alone when the variable is unset. */
static bool read_number(const char *variable, uint64_t low, uint64_t high, uint64_t *out)
{
    const char *value = getenv(variable);
    char *end, right[96];
    if (!value)
        return true;
    errno = 0;
    uint64_t number = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno || number < low || number > high) {
        snprintf(right, sizeof right, "want a whole number from %llu to %llu", (unsigned long long)low,
                 (unsigned long long)high);
        return complain(variable, value, right);
    }
    *out = number;
    return true;
}

static bool read_flag(const char *variable, bool *out)
{
    uint64_t number = *out;
    if (!read_number(variable, 0, 1, &number))
        return false;
    *out = number;
    return true;
}

/* The number of "NAME:NUMBER", when that is what the value is. */
static bool mode_number(const char *value, const char *name, uint64_t *number)
{
    size_t length = strlen(name);
    char *end;
    if (strncmp(value, name, length) != 0 || value[length] != ':' ||
        !isdigit((unsigned char)value[length + 1]))
        return false;
    errno = 0;
    *number = strtoull(value + length + 1, &end, 10);
    return !*end && !errno;
}

static bool read_streams(struct sim_config *config)
{
    static const char variable[] = "SEAMALLOC_SIM_STREAMS";
    const char *value = getenv(variable);
    if (!value || !strcmp(value, "immediate"))
        return true;
    if (mode_number(value, "lag", &config->lag))
        config->streams = SIM_STREAMS_LAG;
    else if (mode_number(value, "random", &config->seed))
        config->streams = SIM_STREAMS_RANDOM;
    else if (!strcmp(value, "late"))
        config->streams = SIM_STREAMS_LATE;
    else if (!strcmp(value, "timed"))
        config->streams = SIM_STREAMS_TIMED;
    else
        return complain(variable, value,
                        "want immediate, lag:N, late, random:SEED or timed, with whole numbers");
    return true;
}

static bool read_faults(void)
{
    const char *value = getenv("SEAMALLOC_SIM_FAIL");
    char right[200];
    return !value || sim_fault_parse(value, right, sizeof right) ||
           complain("SEAMALLOC_SIM_FAIL", value, right);
}

static const struct {
    const char *name;
    unsigned feature;
} feature_names[] = {{"vmm", SIM_FEATURE_VMM},       {"export", SIM_FEATURE_EXPORT},
                     {"fabric", SIM_FEATURE_FABRIC}, {"pools", SIM_FEATURE_POOLS},
                     {"peers", SIM_FEATURE_PEERS},   {"managed", SIM_FEATURE_MANAGED},
                     {"rdma", SIM_FEATURE_RDMA}};

const char *sim_feature_next(unsigned features, size_t *at)
{
    while (*at < sizeof feature_names / sizeof *feature_names) {
        size_t i = (*at)++;
        if (feature_names[i].feature & features)
            return feature_names[i].name;
    }
    return NULL;
}

/* A comma-separated list of features. */
static bool read_features(const char *variable, unsigned allowed, unsigned *out)
{
    const char *value = getenv(variable);
    unsigned features = 0;
    for (const char *p = value ? value : ""; *p;) {
        size_t length = strcspn(p, ","), i = 0;
        const size_t count = sizeof feature_names / sizeof *feature_names;
        while (i < count &&
               (strlen(feature_names[i].name) != length || strncmp(p, feature_names[i].name, length) != 0 ||
                !(feature_names[i].feature & allowed)))
            i++;
        if (i == count)
            return complain(
                variable, value,
                allowed & SIM_FEATURE_FABRIC
                    ? "want a list of vmm, export, fabric, pools, peers, managed, rdma"
                    : "want a list of vmm, export, pools, peers, managed, rdma (fabric is never there)");
        features |= feature_names[i].feature;
        p += length + (p[length] == ',');
    }
    *out = features;
    return true;
}

/* A comma-separated list of ways in which the driver is otherwise. */
static bool read_driver(struct sim_config *config)
{
    const char *value = getenv("SEAMALLOC_SIM_DRIVER");
    return !value || sim_habits_parse(value, config) ||
           complain("SEAMALLOC_SIM_DRIVER", value,
                    "want a list of access-whole, release-keeps, hints-refused, oversubscribe, copies-fault");
}

/* Limits of the device, and what it and its driver do not do. */
static bool read_limits(struct sim_config *config)
{
    uint64_t address_gib = 0;
    const uint64_t arena_gib = sim_arena_bytes(config->devices, true) / SM_GIB;
    if (!read_number("SEAMALLOC_SIM_ADDRESS_GIB", 0, arena_gib, &address_gib) ||
        !read_features("SEAMALLOC_SIM_LACKS", ~(unsigned)SIM_FEATURE_FABRIC, &config->lacks) ||
        !read_features("SEAMALLOC_SIM_LIES", ~0u, &config->lies) || !read_driver(config))
        return false;
    config->address_bytes = address_gib * SM_GIB;
    return true;
}

/* What the device costs and which rules it has: those of the cost file, unless a variable says otherwise. */
static bool read_cost(struct sim_config *config)
{
    char text[320];
    config->cost = getenv("SEAMALLOC_SIM_COST");
    if (!sim_cost_load(config->cost, config, text, sizeof text))
        return complain("SEAMALLOC_SIM_COST", config->cost, text);
    for (enum sim_term term = 0; term < SIM_TERM_COUNT; term++) {
        const char *value = getenv(sim_term_variable(term));
        if (value && !sim_term_set(config, term, value, text, sizeof text))
            return complain(sim_term_variable(term), value, text);
    }
    return true;
}

/* Somebody else on the device. */
static bool read_tenant(const struct sim_config *config, uint64_t mib)
{
    static const char variable[] = "SEAMALLOC_SIM_TENANT";
    const char *value = getenv(variable);
    char right[200];
    if (!value)
        return true;
    if (config->share)
        return complain(variable, value,
                        "want no tenant beside SEAMALLOC_SIM_SHARE: there another process takes memory");
    return sim_tenant_plan(value, mib, config->streams == SIM_STREAMS_TIMED, right, sizeof right) ||
           complain(variable, value, right);
}

/* The name under which devices are shared: a file name. */
static bool read_share(struct sim_config *config)
{
    const char *value = getenv("SEAMALLOC_SIM_SHARE");
    if (value &&
        (!*value || strlen(value) > 64 ||
         strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") != strlen(value)))
        return complain("SEAMALLOC_SIM_SHARE", value,
                        "want a name of at most 64 letters, digits, _, - and .");
    config->share = value;
    return true;
}

/* The name of a file, with %p replaced by the process id; empty where the variable is unset. */
static void read_path(const char *variable, char *path, size_t size)
{
    const char *value = getenv(variable);
    size_t used = 0;
    path[0] = 0;
    for (; value && *value && used + 24 < size; value++) {
        if (value[0] == '%' && value[1] == 'p') {
            used += (size_t)snprintf(path + used, size - used, "%ld", (long)getpid());
            value++;
        } else {
            path[used++] = *value;
            path[used] = 0;
        }
    }
}

static bool read_paths(const struct sim_config *config)
{
    read_path("SEAMALLOC_SIM_REPORT", report_path, sizeof report_path);
    read_path("SEAMALLOC_SIM_TRACE", trace_path, sizeof trace_path);
    if (*trace_path && config->streams != SIM_STREAMS_TIMED)
        return complain("SEAMALLOC_SIM_TRACE", trace_path,
                        "only SEAMALLOC_SIM_STREAMS=timed has times to show");
    return true;
}

bool sim_config_environment(struct sim_config *config)
{
    uint64_t devices = 1, mib = 81920;
    sim_config_default(config);
    if (!read_number("SEAMALLOC_SIM_DEVICES", 1, SIM_DEVICES_MAX, &devices))
        return false;
    config->devices = (int)devices;
    uint64_t most = sm_min(sim_arena_bytes(config->devices, true) / SM_MIB, (uint64_t)16 << 20);
    if (!read_number("SEAMALLOC_SIM_MIB", 2, most, &mib) ||
        !read_flag("SEAMALLOC_SIM_STRICT", &config->strict) ||
        !read_flag("SEAMALLOC_SIM_LOG", &config->log) || !read_streams(config) || !read_cost(config))
        return false;
    config->device_bytes = sm_align_down(mib * SM_MIB, config->granularity);
    if (config->device_bytes == 0)
        return complain("SEAMALLOC_SIM_MIB", getenv("SEAMALLOC_SIM_MIB"), "less than the granularity");
    return read_limits(config) && read_share(config) && read_tenant(config, mib) && read_paths(config) &&
           read_faults();
}

const char *sim_config_report(void)
{
    return *report_path ? report_path : NULL;
}

const char *sim_config_trace(void)
{
    return *trace_path ? trace_path : NULL;
}

bool sim_config_real_device(void)
{
    static const char *const signs[] = {"/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia/version"};
    const char *root = getenv("SEAMALLOC_SIM_PROBE");
    char path[4096];
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        snprintf(path, sizeof path, "%s%s", root ? root : "", signs[i]);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}
