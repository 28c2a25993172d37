/* SPDX-License-Identifier: Apache-2.0 */
/* terms: the rules in which drivers and devices differ: granularity, parts of handles, unmapping several
 * mappings at once, the ceiling on mappings.
 *
 * Each has one name and one way of writing its value, in a cost file ("rule.NAME VALUE"), in the record, and
 * in an environment variable of its own. The table in terms.c is the only place that knows them.
 * Thread: none; used at start. */
#ifndef SEAMALLOC_SIM_CORE_TERMS_H
#define SEAMALLOC_SIM_CORE_TERMS_H

#include "sim/sim.h"

enum sim_term {
    SIM_TERM_GRANULARITY,
    SIM_TERM_RECOMMENDED,
    SIM_TERM_PARTIAL,
    SIM_TERM_UNMAP,
    SIM_TERM_MAPPINGS,
    SIM_TERM_COUNT
};

/* "granularity_kib"; "SEAMALLOC_SIM_GRANULARITY_KIB". */
const char *sim_term_name(enum sim_term term);
const char *sim_term_variable(enum sim_term term);

/* The rule of a name; SIM_TERM_COUNT: there is none. */
enum sim_term sim_term_find(const char *name);

/* Puts a value into *config. Returns: false when it is none; *config is then unchanged, and `right` says what
 * would be right. */
bool sim_term_set(struct sim_config *config, enum sim_term term, const char *value, char *right, size_t size);

/* The value in *config, as sim_term_set takes it; in `text` where it is a number. */
const char *sim_term_text(const struct sim_config *config, enum sim_term term, char *text, size_t size);

/* The recommended granularity: the minimum, where nothing else was said. */
uint64_t sim_term_recommended(const struct sim_config *config);

#endif
