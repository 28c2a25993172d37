/* SPDX-License-Identifier: Apache-2.0 */
/* cost: see cost.h. The table changes only at start; the sums are atomics, so nothing here takes a lock. */
#include "sim/core/cost.h"
#include "base/align.h"
#include "sim/core/calls.h"
#include "sim/core/model.h"
#include "sim/core/terms.h"
#include "sim/core/timing.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cost {
    uint64_t fixed, per_handle, per_gib; /* ns */
};

#define MOST UINT64_C(1000000000000) /* ns: a thousand seconds */

static struct cost costs[SIM_CALL_COUNT];
static char loaded[256] = "zero";
static _Atomic uint64_t extra[SIM_DEVICES_MAX][SIM_CALL_COUNT];

/* What a text says. */
struct costs {
    struct cost calls[SIM_CALL_COUNT], other;
    struct sim_model model;
    bool has_work;            /* a line about work was in it */
    bool is_begun;            /* there was a line */
    struct sim_config config; /* the rules are in it */
    char wrong[160];          /* room for what is wrong */
};

enum { NAME_SHOWN = 60 }; /* of a name in a message, so that the reason has room */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static char *preset_text(const char *name)
{
    for (const struct sim_preset *preset = sim_presets; preset->name; preset++)
        if (!strcmp(preset->name, name))
            return strdup(preset->text);
    return NULL;
}

static bool parse(char *text, const char *name, struct costs *read, char *error, size_t error_size);

/* "like PRESET": begins with what that says. */
static const char *parse_like(const char *preset, bool is_first, struct costs *read)
{
    char *text = preset && is_first ? preset_text(preset) : NULL;
    bool good = text && parse(text, preset, read, read->wrong, sizeof read->wrong);
    free(text);
    return good ? NULL : "want a preset after like, and like before everything else";
}

/* "rule.NAME VALUE". */
static const char *parse_rule(const char *name, const char *value, struct costs *read)
{
    enum sim_term term = sim_term_find(name);
    if (term == SIM_TERM_COUNT)
        return "no such rule";
    if (!value)
        return "want a value after the rule";
    return sim_term_set(&read->config, term, value, read->wrong, sizeof read->wrong) ? NULL : read->wrong;
}

/* Reads one line. Returns: NULL or what is wrong. */
static const char *parse_line(char *line, struct costs *read)
{
    line[strcspn(line, "#\n")] = 0;
    char *save, *name = strtok_r(line, " \t", &save), *field;
    uint64_t number[3] = {0};
    int count = 0;
    bool is_first = !read->is_begun, is_like = name && !strcmp(name, "like");
    if (!name)
        return NULL;
    read->is_begun = true;
    if (is_like || !strncmp(name, "rule.", 5)) {
        const char *value = strtok_r(NULL, " \t", &save);
        if (strtok_r(NULL, " \t", &save))
            return "want one value";
        return is_like ? parse_like(value, is_first, read) : parse_rule(name + 5, value, read);
    }
    while ((field = strtok_r(NULL, " \t", &save))) {
        char *end;
        if (count == 3)
            return "want NAME FIXED [PER_HANDLE [PER_GIB]], in nanoseconds";
        errno = 0;
        number[count] = strtoull(field, &end, 10);
        if (!isdigit((unsigned char)*field) || *end || errno || number[count++] > MOST)
            return "want whole numbers from 0 to 1000000000000"; /* sums of the largest still are numbers */
    }
    if (count == 0)
        return "want at least one number after the name";
    struct cost cost = {number[0], number[1], number[2]};
    if (!strcmp(name, "default")) {
        read->other = cost;
        return NULL;
    }
    if (!strncmp(name, "work.", 5)) {
        uint64_t *figure = sim_model_field(&read->model, name);
        if (figure)
            *figure = cost.fixed;
        read->has_work = true;
        return !figure ? "no such figure of work" : count == 1 ? NULL : "want one number";
    }
    int call = sim_call_find(name, strlen(name));
    if (call < 0)
        return "no driver call has this name";
    read->calls[call] = cost;
    return NULL;
}

/* Reads a whole cost text. Returns: false, with a message. */
static bool parse(char *text, const char *name, struct costs *read, char *error, size_t error_size)
{
    int number = 0;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        number++;
        const char *wrong = parse_line(line, read);
        if (wrong) {
            snprintf(error, error_size, "%.*s:%d: %s", NAME_SHOWN, last_part(name), number, wrong);
            return false;
        }
    }
    return true;
}

/* Reads a whole cost text that stands for itself. */
static bool parse_whole(char *text, const char *name, const struct sim_config *config, struct costs *read,
                        char *error, size_t error_size)
{
    *read = (struct costs){.config = *config};
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        read->calls[call].fixed = UINT64_MAX;
    if (!parse(text, name, read, error, error_size))
        return false;
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        if (read->calls[call].fixed == UINT64_MAX)
            read->calls[call] = read->other;
    return true;
}

static char *read_file(const char *path)
{
    enum { LARGEST = 1 << 16 };
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    char *text = calloc(1, LARGEST);
    size_t n = text ? fread(text, 1, LARGEST - 1, file) : 0;
    bool bad = ferror(file) || (text && (n == LARGEST - 1 || memchr(text, 0, n)));
    fclose(file);
    if (bad) {
        free(text);
        return NULL;
    }
    return text;
}

/* A file that was made by timing calls says nothing about work: then work takes what it takes in h100. */
static void borrow_work(struct costs *read)
{
    static struct costs usual;
    char error[128], *text = preset_text("h100");
    if (text && parse_whole(text, "h100", &read->config, &usual, error, sizeof error))
        read->model = usual.model;
    free(text);
}

/* Reads a preset, or a file. */
static bool read_costs(const char *name, const struct sim_config *config, struct costs *read, char *error,
                       size_t error_size)
{
    char *text = preset_text(name);
    bool is_file = !text;
    if (is_file)
        text = read_file(name);
    if (!text) {
        snprintf(
            error, error_size,
            "%.*s is neither a preset (h100, a100, a100-worst, small, zero) nor a readable file of text, "
            "less than 64 KiB",
            NAME_SHOWN, name);
        return false;
    }
    bool good = parse_whole(text, name, config, read, error, error_size);
    free(text);
    if (good && is_file && !read->has_work)
        borrow_work(read);
    return good;
}

bool sim_config_rules(struct sim_config *config)
{
    static struct costs read;
    char error[256];
    if (!read_costs(config->cost ? config->cost : "h100", config, &read, error, sizeof error)) {
        fprintf(stderr, "seamalloc: simulated CUDA device: cost: %s\n", error);
        return false;
    }
    *config = read.config;
    return true;
}

bool sim_cost_load(const char *name, struct sim_config *config, char *error, size_t error_size)
{
    static struct costs read;
    static const struct sim_config usual = {.granularity = 65536};
    name = name ? name : "h100";
    if (!read_costs(name, config ? config : &usual, &read, error, error_size))
        return false;
    if (config)
        *config = read.config;
    memcpy(costs, read.calls, sizeof costs);
    sim_model = read.model;
    snprintf(loaded, sizeof loaded, "%s", name);
    sim_cost_reset();
    return true;
}

const char *sim_cost_name(void)
{
    return loaded;
}

void sim_cost_add(int device, int call, uint64_t handles, uint64_t bytes)
{
    const struct cost *cost = &costs[call];
    uint64_t ns =
        cost->per_handle * handles + (uint64_t)((double)cost->per_gib * (double)bytes / (double)SM_GIB);
    if (ns == 0)
        return;
    atomic_fetch_add_explicit(&extra[device < 0 ? 0 : device][call], ns, memory_order_relaxed);
    if (sim_timing_on())
        sim_timing_extra(call, ns);
}

uint64_t sim_cost_fixed(int call)
{
    return costs[call].fixed;
}

uint64_t sim_cost_ns(int device, int call)
{
    return costs[call].fixed * sim_call_count(device, call) +
           atomic_load_explicit(&extra[device][call], memory_order_relaxed);
}

void sim_cost_reset(void)
{
    for (int device = 0; device < SIM_DEVICES_MAX; device++)
        for (int call = 0; call < SIM_CALL_COUNT; call++)
            atomic_store_explicit(&extra[device][call], 0, memory_order_relaxed);
}

uint64_t sim_driver_ns(const char *name)
{
    int only = name ? sim_call_find(name, strlen(name)) : -1;
    uint64_t sum = 0;
    if (name && only < 0)
        return 0;
    for (int call = 0; call < SIM_CALL_COUNT; call++)
        for (int device = 0; (only < 0 || call == only) && device < SIM_DEVICES_MAX; device++)
            sum += sim_cost_ns(device, call);
    return sum;
}
