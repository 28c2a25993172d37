/* SPDX-License-Identifier: Apache-2.0 */
/* habits: the names of what drivers do in different ways, as SEAMALLOC_SIM_DRIVER takes them. */
#include "sim/core/config.h"
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t field; /* of sim_config */
    bool value;
} habits[] = {
    {"unmap-single", offsetof(struct sim_config, unmap_several), false},
    {"access-whole", offsetof(struct sim_config, access_whole), true},
    {"release-keeps", offsetof(struct sim_config, release_keeps), true},
    {"hints-refused", offsetof(struct sim_config, hints_refused), true},
    {"oversubscribe", offsetof(struct sim_config, oversubscribe), true},
    {"copies-fault", offsetof(struct sim_config, copies_fault), true},
};

static bool set(const char *name, size_t length, struct sim_config *config)
{
    static const char partial[] = "partial-mappings";
    if (length == strlen(partial) && !strncmp(name, partial, length)) {
        config->partial = SIM_PARTIAL_INNER;
        return true;
    }
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++) {
        if (strlen(habits[i].name) != length || strncmp(name, habits[i].name, length) != 0)
            continue;
        *(bool *)((char *)config + habits[i].field) = habits[i].value;
        return true;
    }
    return false;
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
