/* SPDX-License-Identifier: Apache-2.0 */
/* habits: the names of what drivers do in different ways and no probe can find, as SEAMALLOC_SIM_DRIVER takes
 * them. What a probe finds is in terms.c. */
#include "sim/core/config.h"
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t field; /* of sim_config: a bool, off by default */
} habits[] = {
    {"access-whole", offsetof(struct sim_config, access_whole)},
    {"release-keeps", offsetof(struct sim_config, release_keeps)},
    {"hints-refused", offsetof(struct sim_config, hints_refused)},
    {"oversubscribe", offsetof(struct sim_config, oversubscribe)},
    {"copies-fault", offsetof(struct sim_config, copies_fault)},
};

static bool set(const char *name, size_t length, struct sim_config *config)
{
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++) {
        if (strlen(habits[i].name) != length || strncmp(name, habits[i].name, length) != 0)
            continue;
        *(bool *)((char *)config + habits[i].field) = true;
        return true;
    }
    return false;
}

const char *sim_habit_next(const struct sim_config *config, size_t *at)
{
    while (*at < sizeof habits / sizeof *habits) {
        size_t i = (*at)++;
        if (*(const bool *)((const char *)config + habits[i].field))
            return habits[i].name;
    }
    return NULL;
}

bool sim_habits_parse(const char *text, struct sim_config *config)
{
    while (*text) {
        size_t length = strcspn(text, ",");
        if (!set(text, length, config))
            return false;
        text += length + (text[length] == ',');
    }
    return true;
}
