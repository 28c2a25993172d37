/* SPDX-License-Identifier: Apache-2.0 */
/* find: one figure by its dotted name. The names come from the lists, so that none can be forgotten. */
#include "stats/internal.h"

#include <string.h>

static const char *const field_names[] = {"current", "peak", "in", "out"};

/* Takes the word before the next '.' (or the end) off *text and looks it up. Returns: its index, or -1. */
static int take_word(const char **text, const char *const *words, size_t count)
{
    const size_t length = strcspn(*text, ".");
    for (size_t i = 0; i < count; i++)
        if (strlen(words[i]) == length && !memcmp(words[i], *text, length)) {
            *text += length;
            return (int)i;
        }
    return -1;
}

#define TAKE_WORD(text, words) take_word(text, words, sizeof(words) / sizeof *(words))

static bool take_dot(const char **text)
{
    if (**text != '.')
        return false;
    ++*text;
    return true;
}

static bool find_level(const struct sm_stats *stats, const char *name, int64_t *value)
{
    int level, kind, field;
    if ((level = TAKE_WORD(&name, sm_level_names)) < 0 || !take_dot(&name) ||
        (kind = TAKE_WORD(&name, sm_kind_names)) < 0 || !take_dot(&name) ||
        (field = TAKE_WORD(&name, field_names)) < 0 || *name)
        return false;
    const struct sm_level *found = sm_stats_level(stats, (enum sm_level_id)level, (enum sm_kind)kind);
    *value = (const int64_t[]){found->current, found->peak, found->in, found->out}[field];
    return true;
}

static bool find_part(struct sm_stats *stats, const char *name, int64_t *value)
{
    static const char *const places[] = {"gap", "gap_at_reserved_peak", "gap_at_allocated_peak"};
    int place, part;
    if ((place = TAKE_WORD(&name, places)) < 0 || !take_dot(&name) ||
        (part = TAKE_WORD(&name, sm_part_names)) < 0 || *name)
        return false;
    sm_crest_fold(stats);
    const struct sm_parts *const parts[] = {stats->parts, &stats->total.at_reserved,
                                            &stats->total.at_allocated};
    *value = parts[place]->bytes[part];
    return true;
}

bool sm_stats_find(struct sm_stats *stats, const char *name, int64_t *value)
{
    const char *rest = name;
    const int counter = TAKE_WORD(&rest, sm_counter_names);
    if (counter >= 0 && !*rest) {
        *value = (int64_t)sm_stats_counter(stats, (enum sm_counter_id)counter);
        return true;
    }
    return find_level(stats, name, value) || find_part(stats, name, value);
}
