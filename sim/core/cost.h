/* SPDX-License-Identifier: Apache-2.0 */
/* cost: what driver calls would cost on a GPU, as modelled nanoseconds that are added up and never slept.
 *
 * A cost file has one line a call: NAME FIXED [PER_HANDLE [PER_GIB]], all in nanoseconds; '#' begins a
 * comment. A call costs FIXED, plus PER_HANDLE for each mapping or handle it deals with, plus PER_GIB in
 * proportion to its bytes. "default" stands for the calls that are not named. Lines "work.NAME NUMBER" are
 * about the device's work, in virtual time (model.h); a file without any takes those of h100. Lines
 * "rule.NAME VALUE" are rules in which drivers differ (terms.h). "like PRESET" as the first line: what the
 * file does not say is as in that preset. */
#ifndef SEAMALLOC_SIM_CORE_COST_H
#define SEAMALLOC_SIM_CORE_COST_H

#include "sim/sim.h"

/* The presets of sim/presets, compiled in; ends with a NULL name. */
struct sim_preset {
    const char *name, *text;
};
extern const struct sim_preset sim_presets[];

/* Loads a preset, or a file when no preset has that name; NULL: h100. Figures of before are set to 0. What it
 * says about rules goes into *config, unless that is NULL. Returns: false and a message in `error`; the costs
 * and *config are then unchanged. */
bool sim_cost_load(const char *name, struct sim_config *config, char *error, size_t error_size);

/* The name that was loaded. */
const char *sim_cost_name(void);

/* Adds what a call costs beyond its fixed part (which the count of calls gives). Thread: any. */
void sim_cost_add(int device, int call, uint64_t handles, uint64_t bytes);

/* The fixed part of a call. Thread: any. */
uint64_t sim_cost_fixed(int call);

/* Modelled nanoseconds of all calls of one kind on one device. */
uint64_t sim_cost_ns(int device, int call);

void sim_cost_reset(void);

#endif
