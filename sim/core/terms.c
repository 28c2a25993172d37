/* SPDX-License-Identifier: Apache-2.0 */
/* terms: see terms.h. */
#include "sim/core/terms.h"
#include "base/align.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *variable;
} terms[SIM_TERM_COUNT] = {
    [SIM_TERM_GRANULARITY] = {"granularity_kib", "SEAMALLOC_SIM_GRANULARITY_KIB"},
    [SIM_TERM_RECOMMENDED] = {"recommended_kib", "SEAMALLOC_SIM_RECOMMENDED_KIB"},
    [SIM_TERM_PARTIAL] = {"partial", "SEAMALLOC_SIM_PARTIAL"},
    [SIM_TERM_UNMAP] = {"unmap", "SEAMALLOC_SIM_UNMAP"},
    [SIM_TERM_MAPPINGS] = {"mappings", "SEAMALLOC_SIM_MAPPINGS"},
};

static const char *const partial_names[] = {
    [SIM_PARTIAL_WHOLE] = "whole", [SIM_PARTIAL_PREFIX] = "prefix", [SIM_PARTIAL_INNER] = "inner"};

enum { KIB = 1024, GRANULARITY_LEAST = 64, GRANULARITY_MOST = 1 << 20 /* KiB */ };

const char *sim_term_name(enum sim_term term)
{
    return terms[term].name;
}

const char *sim_term_variable(enum sim_term term)
{
    return terms[term].variable;
}

enum sim_term sim_term_find(const char *name)
{
    enum sim_term term = 0;
    while (term < SIM_TERM_COUNT && strcmp(terms[term].name, name) != 0)
        term++;
    return term;
}

uint64_t sim_term_recommended(const struct sim_config *config)
{
    return sm_max(config->granularity, config->recommended);
}

static bool number_of(const char *value, uint64_t most, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(value, &end, 10);
    return isdigit((unsigned char)*value) && !*end && !errno && *number <= most;
}

static bool set_granularity(struct sim_config *config, const char *value, char *right, size_t size)
{
    uint64_t kib;
    if (!number_of(value, GRANULARITY_MOST, &kib) || kib < GRANULARITY_LEAST || !sm_is_pow2(kib)) {
        snprintf(right, size, "want a power of two from %d to %d", GRANULARITY_LEAST, GRANULARITY_MOST);
        return false;
    }
    config->granularity = kib * KIB;
    if (config->recommended) /* what was said before of a smaller one */
        config->recommended = sim_term_recommended(config);
    return true;
}

static bool set_recommended(struct sim_config *config, const char *value, char *right, size_t size)
{
    uint64_t kib, least = config->granularity / KIB;
    if (!number_of(value, GRANULARITY_MOST, &kib) || kib < least || !sm_is_pow2(kib)) {
        snprintf(right, size, "want a power of two from the granularity, %llu, to %d",
                 (unsigned long long)least, GRANULARITY_MOST);
        return false;
    }
    config->recommended = kib * KIB;
    return true;
}

static bool set_partial(struct sim_config *config, const char *value, char *right, size_t size)
{
    for (int i = SIM_PARTIAL_WHOLE; i <= SIM_PARTIAL_INNER; i++)
        if (!strcmp(value, partial_names[i])) {
            config->partial = (enum sim_partial)i;
            return true;
        }
    snprintf(right, size, "want whole, prefix or inner");
    return false;
}

static bool set_unmap(struct sim_config *config, const char *value, char *right, size_t size)
{
    if (strcmp(value, "one") != 0 && strcmp(value, "several") != 0) {
        snprintf(right, size, "want one or several");
        return false;
    }
    config->unmap_several = !strcmp(value, "several");
    return true;
}

static bool set_mappings(struct sim_config *config, const char *value, char *right, size_t size)
{
    uint64_t number;
    if (!number_of(value, UINT32_MAX, &number)) {
        snprintf(right, size, "want a whole number from 0 (no ceiling) to %u", UINT32_MAX);
        return false;
    }
    config->mappings_max = number;
    return true;
}

bool sim_term_set(struct sim_config *config, enum sim_term term, const char *value, char *right, size_t size)
{
    switch (term) {
    case SIM_TERM_GRANULARITY:
        return set_granularity(config, value, right, size);
    case SIM_TERM_RECOMMENDED:
        return set_recommended(config, value, right, size);
    case SIM_TERM_PARTIAL:
        return set_partial(config, value, right, size);
    case SIM_TERM_UNMAP:
        return set_unmap(config, value, right, size);
    case SIM_TERM_MAPPINGS:
        return set_mappings(config, value, right, size);
    case SIM_TERM_COUNT:
        break;
    }
    return false;
}

const char *sim_term_text(const struct sim_config *config, enum sim_term term, char *text, size_t size)
{
    uint64_t number = 0;
    switch (term) {
    case SIM_TERM_PARTIAL:
        return partial_names[config->partial];
    case SIM_TERM_UNMAP:
        return config->unmap_several ? "several" : "one";
    case SIM_TERM_GRANULARITY:
        number = config->granularity / KIB;
        break;
    case SIM_TERM_RECOMMENDED:
        number = sim_term_recommended(config) / KIB;
        break;
    case SIM_TERM_MAPPINGS:
        number = config->mappings_max;
        break;
    case SIM_TERM_COUNT:
        break;
    }
    snprintf(text, size, "%llu", (unsigned long long)number);
    return text;
}
