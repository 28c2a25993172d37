/* SPDX-License-Identifier: Apache-2.0 */
/* config: the configuration in force, its checks, and the only reader of SEAMALLOC_SIM_* (and of nothing
 * else). */
#ifndef SEAMALLOC_SIM_CORE_CONFIG_H
#define SEAMALLOC_SIM_CORE_CONFIG_H

#include "sim/sim.h"

/* The configuration in force. Read-only after start. */
extern struct sim_config sim_config;

/* Is a feature really there; does the device say so? */
static inline bool sim_has(enum sim_feature feature)
{
    return !((sim_config.lacks | sim_config.lies) & feature);
}

static inline bool sim_claims(enum sim_feature feature)
{
    return !(sim_config.lacks & feature) &&
           (feature != SIM_FEATURE_FABRIC || sim_config.lies & SIM_FEATURE_FABRIC);
}

/* Checks a configuration. Returns: false and a message in `error`. */
bool sim_config_check(const struct sim_config *config, char *error, size_t error_size);

/* Fills *config from the environment, and arms SEAMALLOC_SIM_FAIL. Returns: false after a message on stderr
 * that names variable, value and what would be right. */
bool sim_config_environment(struct sim_config *config);

/* Sets what a list of names says (SEAMALLOC_SIM_DRIVER). Returns: false for a name that is none; *config may
 * have been changed then. */
bool sim_habits_parse(const char *text, struct sim_config *config);

/* The names in force, one a call: of SEAMALLOC_SIM_DRIVER; of features. *at: 0 at first. Return: NULL at the
 * end. */
const char *sim_habit_next(const struct sim_config *config, size_t *at);
const char *sim_feature_next(unsigned features, size_t *at);

/* The value of SEAMALLOC_SIM_REPORT as it was at the start, with %p replaced by the process id; NULL: no
 * report. */
const char *sim_config_report(void);

/* The same for SEAMALLOC_SIM_TRACE. */
const char *sim_config_trace(void);

/* True when this machine has a real device (or claims to): the simulator then does not stand in.
 * SEAMALLOC_SIM_PROBE names another root folder than / to look in, for tests. */
bool sim_config_real_device(void);

/* "immediate", "lag:50": the stream mode in words. */
const char *sim_config_streams_text(const struct sim_config *config, char *text, size_t size);

#endif
