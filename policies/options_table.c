/* SPDX-License-Identifier: Apache-2.0 */
/* options_table: the one list of options. See options.h and options_table.h.
 *
 * Adding an option is adding a line here and its field to struct sm_options; parser, error texts, defaults,
 * echo and the check of docs/options.md follow. The bounds stand once more in the range text; a test reads
 * them back from it and tries them. */
#include "policies/options_table.h"
#include "base/align.h"
#include "base/log.h"
#include <string.h>

static const char *const backend_names[] = {"native", NULL};
static const char *const policy_names[] = {"stitch", "expandable", "native", NULL};
static const char *const peers_names[] = {"all", "none", NULL};
static const char *const lending_names[] = {"completed", "off", NULL};
static const char *const log_names[] = {"error", "warning", "info", "debug", NULL};

_Static_assert(sizeof(enum sm_policy) == sizeof(unsigned) && sizeof(enum sm_peers) == sizeof(unsigned) &&
                   sizeof(enum sm_lending) == sizeof(unsigned),
               "choices are stored as unsigned");

#define AT(field)   .offset = offsetof(struct sm_options, field)
#define PASSED_OVER .offset = SM_OPTION_NOT_STORED
#define MIB_MAX     17592186044415 /* as bytes it still fits 64 bits */

#define NUMBER(place, the_unit, low, high)                                                                   \
    {                                                                                                        \
        .kind = SM_OPTION_NUMBER, place, .unit = the_unit, .min = low, .max = high                           \
    }
#define NUMBER_OR(place, the_unit, low, high, the_word, its_value)                                           \
    {                                                                                                        \
        .kind = SM_OPTION_NUMBER, place, .unit = the_unit, .min = low, .max = high, .word = the_word,        \
        .word_value = its_value                                                                              \
    }
#define SHARE(place)                                                                                         \
    {                                                                                                        \
        .kind = SM_OPTION_SHARE, place                                                                       \
    }
#define OPEN_SHARE_OR(place, the_word)                                                                       \
    {                                                                                                        \
        .kind = SM_OPTION_SHARE, place, .open = true, .word = the_word                                       \
    }
#define BOOL(place)                                                                                          \
    {                                                                                                        \
        .kind = SM_OPTION_BOOL, place                                                                        \
    }
#define CHOICE(place, the_names)                                                                             \
    {                                                                                                        \
        .kind = SM_OPTION_CHOICE, place, .names = the_names                                                  \
    }
#define CHOICE_OR_DIGIT(place, the_names)                                                                    \
    {                                                                                                        \
        .kind = SM_OPTION_CHOICE, place, .names = the_names, .digits = true                                  \
    }
#define DIVISIONS(place)                                                                                     \
    {                                                                                                        \
        .kind = SM_OPTION_DIVISIONS, place                                                                   \
    }
#define PATH_OR(place, the_word)                                                                             \
    {                                                                                                        \
        .kind = SM_OPTION_PATH, place, .word = the_word                                                      \
    }
#define TEXT(place)                                                                                          \
    {                                                                                                        \
        .kind = SM_OPTION_TEXT, place                                                                        \
    }

#define PYTORCH true
#define OURS    false

/* clang-format off */
/* X(key, whose, kind, default, range, meaning, row) */
#define SM_OPTIONS(X)                                                                                        \
    X("backend", PYTORCH, "name", "native",                                                                  \
      "native (PyTorch itself refuses any other backend once seamalloc is installed)",                       \
      "PyTorch's own choice of allocator; accepted, no effect",                                              \
      CHOICE(PASSED_OVER, backend_names))                                                                    \
    X("max_split_size_mb", PYTORCH, "MiB", "unlimited", "20 to 17592186044415",                              \
      "free ranges of this size or more are kept whole for requests of this size or more",                   \
      NUMBER_OR(AT(max_split_size), SM_MIB, 20, MIB_MAX, "unlimited", SM_UNLIMITED))                         \
    X("max_non_split_rounding_mb", PYTORCH, "MiB", "20", "20 to 17592186044415",                             \
      "with a split limit: a range kept whole serves a request that is less than this smaller",              \
      NUMBER(AT(max_non_split_rounding), SM_MIB, 20, MIB_MAX))                                               \
    X("large_segment_size_mb", PYTORCH, "MiB", "20", "11 to 17592186044415",                                 \
      "segments (native) and handles (expandable) of the large class; no effect under stitch",               \
      NUMBER(AT(large_segment_size), SM_MIB, 11, MIB_MAX))                                                   \
    X("garbage_collection_threshold", PYTORCH, "share", "off", "above 0 and below 1",                        \
      "share of the memory limit (of the device without one) above which old free memory is returned",       \
      OPEN_SHARE_OR(AT(garbage_collection_threshold), "off"))                                                \
    X("roundup_power2_divisions", PYTORCH, "number or list", "0",                                            \
      "0 or a power of two up to 128, or [MIB:N,...,>:N] with MIB ascending powers of two up to 32768",      \
      "sizes go up to one of N steps between powers of two (0: off, 1: the next power of two); "             \
      "in a list N counts from MIB on",                                                                      \
      DIVISIONS(AT(roundup_divisions)))                                                                      \
    X("expandable_segments", PYTORCH, "bool", "False", "True or False",                                      \
      "memory that grows in place; accepted, the policy stitch always does",                                 \
      BOOL(AT(expandable_segments)))                                                                         \
    X("expandable_segments_reserve", PYTORCH, "text", "-", "any",                                            \
      "address space of PyTorch's segments; accepted, no effect (see address_limit_gib)", TEXT(PASSED_OVER)) \
    X("expandable_segments_reserve_by_class", PYTORCH, "list", "-", "any",                                   \
      "address space of PyTorch's segments; accepted, no effect (see address_limit_gib)", TEXT(PASSED_OVER)) \
    X("per_process_memory_fraction", PYTORCH, "share", "1", "0 to 1",                                        \
      "share of the device's memory that this process may use",                                              \
      SHARE(AT(per_process_memory_fraction)))                                                                \
    X("throw_on_cudamalloc_oom", PYTORCH, "bool", "False", "True or False",                                  \
      "when PyTorch's allocator refuses a request; accepted, no effect", BOOL(PASSED_OVER))                  \
    X("release_lock_on_cudamalloc", PYTORCH, "bool", "False", "True or False",                               \
      "locking inside PyTorch's allocator; accepted, no effect", BOOL(PASSED_OVER))                          \
    X("graph_capture_record_stream_reuse", PYTORCH, "bool", "False", "True or False",                        \
      "reuse inside PyTorch's captures; accepted, no effect", BOOL(PASSED_OVER))                             \
    X("pinned_*", PYTORCH, "text", "-", "any",                                                               \
      "settings of PyTorch's allocator of host memory; passed over", TEXT(PASSED_OVER))                      \
    X("policy", OURS, "name", "stitch",                                                                      \
      "stitch, expandable, native, or a preset: stitch-2mib, stitch-few-calls",                              \
      "how memory is placed: our way, or after PyTorch's expandable segments or its plain ones",             \
      CHOICE(AT(policy), policy_names))                                                                      \
    X("small_limit_kib", OURS, "KiB", "256", "0 to 20480",                                                   \
      "requests up to this size live in a home of their own, apart from the large ones",                     \
      NUMBER(AT(small_limit), SM_KIB, 0, 20480))                                                             \
    X("handle_mib", OURS, "MiB", "auto", "2 to 1048576",                                                     \
      "largest handle of physical memory that a growth asks for; auto: by the driver work done so far",      \
      NUMBER_OR(AT(handle_bytes), SM_MIB, 2, 1048576, "auto", 0))                                            \
    X("work_percent", OURS, "percent", "75", "10 to 100000",                                                \
      "driver work aimed at, in percent of a mapping for each 20 MiB held: more is smaller handles",         \
      NUMBER(AT(work_percent), 1, 10, 100000))                                                               \
    X("slack_permille", OURS, "1/1000", "4", "0 to 1000",                                                    \
      "memory may grow this far above the peak of live bytes (at least 8 MiB) before stitching is tried; "   \
      "0: not at all",                                                                                       \
      NUMBER(AT(slack_permille), 1, 0, 1000))                                                                \
    X("patience_ms", OURS, "ms", "200", "0 to 60000",                                                        \
      "how long a request that finds no memory waits for any block that other streams still use, "           \
      "before it waits for whole streams",                                                                   \
      NUMBER(AT(patience_ms), 1, 0, 60000))                                                                  \
    X("address_limit_gib", OURS, "GiB", "131072", "1 to 131072",                                             \
      "address space that may be reserved, all devices together",                                            \
      NUMBER(AT(address_limit), SM_GIB, 1, 131072))                                                          \
    X("map_parts", OURS, "bool", "True", "True or False",                                                    \
      "map parts of handles when blocks are stitched, where the driver is found to do that",                 \
      BOOL(AT(map_parts)))                                                                                   \
    X("lending", OURS, "name", "completed", "completed or off",                                              \
      "free memory of one stream for another under stitch: once its work is known to be done, or never",     \
      CHOICE(AT(lending), lending_names))                                                                    \
    X("peers", OURS, "name", "all", "all or none",                                                           \
      "other devices that may reach the memory of a device", CHOICE(AT(peers), peers_names))                 \
    X("exportable", OURS, "bool", "True", "True or False",                                                   \
      "ask for memory that can be shared with other processes, where the device can",                        \
      BOOL(AT(exportable)))                                                                                  \
    X("log", OURS, "name or number", "warning", "error, warning, info, debug or 0 to 3",                     \
      "what is told on the standard error stream", CHOICE_OR_DIGIT(AT(log_level), log_names))                \
    X("trace", OURS, "file", "off", "a path of at most 239 bytes without ':', ',' and '['",                  \
      "every request is recorded into this file (docs/trace.md); %p in it becomes the process's number",     \
      PATH_OR(AT(trace), "off"))
/* clang-format on */

const struct sm_option_row sm_option_rows[] = {
#define X(key, whose, kind, standard, range, meaning, ...) __VA_ARGS__,
    SM_OPTIONS(X)
#undef X
};

static const struct sm_option_info infos[] = {
#define X(key, whose, kind, standard, range, meaning, ...) {key, kind, standard, range, meaning, whose},
    SM_OPTIONS(X)
#undef X
        {0},
};

const char *sm_options_policy_name(enum sm_policy policy)
{
    return policy_names[policy];
}

const struct sm_option_info *sm_options_table(void)
{
    return infos;
}

int sm_option_find(const char *key, size_t length)
{
    for (int i = 0; infos[i].key; i++) {
        size_t n = strlen(infos[i].key);
        if (infos[i].key[n - 1] == '*' ? length >= n && memcmp(infos[i].key, key, n - 1) == 0
                                       : length == n && memcmp(infos[i].key, key, n) == 0)
            return i;
    }
    return -1;
}

void sm_options_defaults(struct sm_options *options)
{
    *options = (struct sm_options){0};
    for (int i = 0; infos[i].key; i++) {
        struct sm_span where, value = {infos[i].default_text, strlen(infos[i].default_text)};
        if (sm_option_rows[i].offset != SM_OPTION_NOT_STORED)
            (void)SM_CHECK(!sm_option_read(&sm_option_rows[i], options, value, false, &where));
    }
}
