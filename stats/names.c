/* SPDX-License-Identifier: Apache-2.0 */
/* names: the words of the lists, for everything that reads or writes figures by name. */
#include "stats/internal.h"

const char *const sm_level_names[SM_LEVEL_COUNT] = {
#define X(name, unit, meaning, moves) #name,
    SM_LEVELS(X)
#undef X
};

#define BYTES SM_UNIT_BYTES
#define COUNT SM_UNIT_COUNT
const enum sm_unit sm_level_units[SM_LEVEL_COUNT] = {
#define X(name, unit, meaning, moves) unit,
    SM_LEVELS(X)
#undef X
};
const enum sm_unit sm_counter_units[SM_COUNTER_COUNT] = {
#define X(name, unit, meaning) unit,
    SM_COUNTERS(X)
#undef X
};

const char *const sm_counter_names[SM_COUNTER_COUNT] = {
#define X(name, unit, meaning) #name,
    SM_COUNTERS(X)
#undef X
};

const char *const sm_part_names[SM_PART_COUNT] = {
#define X(name, meaning, helps) #name,
    SM_PARTS(X)
#undef X
};
const char *const sm_part_helps[SM_PART_COUNT] = {
#define X(name, meaning, helps) helps,
    SM_PARTS(X)
#undef X
};

const char *const sm_kind_names[SM_KIND_COUNT] = {"all", "small_pool", "large_pool"};

const char *const sm_tracked_names[SM_TRACKED_COUNT] = {
#define X(name, level) #name,
    SM_TRACKED(X)
#undef X
};

const char *const sm_phase_counter_names[SM_PHASE_COUNTER_COUNT] = {
#define X(name) #name,
    SM_PHASE_COUNTERS(X)
#undef X
};
