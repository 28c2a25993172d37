/* SPDX-License-Identifier: Apache-2.0 */
/* options: every setting, from one table.
 *
 * SM_OPTIONS lists each option once: key, kind, where it may be set, default, range, meaning. Parser, error
 * texts, the echo of the settings in force and docs/options.md (compared by a test) are made from it.
 *
 * Sources, later ones win: defaults; PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF (PyTorch's keys; the first
 * one set in PyTorch's order counts; keys that belong to PyTorch alone, such as pinned_*, are accepted and
 * passed over); SEAMALLOC_CONF (all keys, "@/path/file.conf" reads a policy file); seam_configure(). A bad
 * string changes nothing: parsing works on a copy.
 *
 * Thread: pure; the caller's lock protects the struct. Only this module reads the environment. */
#ifndef SEAM_POLICIES_OPTIONS_H
#define SEAM_POLICIES_OPTIONS_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sm_policy { SM_POLICY_STITCH, SM_POLICY_EXPANDABLE, SM_POLICY_NATIVE, SM_POLICY_COUNT };
enum sm_peers { SM_PEERS_ALL, SM_PEERS_NONE };
enum sm_lending { SM_LENDING_COMPLETED, SM_LENDING_OFF };

#define SM_UNLIMITED     UINT64_MAX
#define SM_ROUNDUP_SLOTS 16
/* A path and its 0. */
#define SM_OPTION_PATH_BYTES 240

struct sm_options {
    enum sm_policy policy;
    /* PyTorch's keys */
    uint64_t max_split_size;                     /* bytes; SM_UNLIMITED: every block may be split */
    uint64_t max_non_split_rounding;             /* bytes */
    uint64_t large_segment_size;                 /* bytes; native, expandable */
    uint8_t roundup_divisions[SM_ROUNDUP_SLOTS]; /* slot i: [2^i MiB, 2^(i+1) MiB); 0: off; see
                                                    policies/rounding.h */
    uint16_t roundup_listed;             /* bit i: slot i was given, and not taken from the one below */
    double garbage_collection_threshold; /* share of the limit; 0: off */
    double per_process_memory_fraction;  /* 1: no limit */
    bool expandable_segments;            /* accepted; under stitch it changes nothing */
    /* ours */
    uint64_t small_limit;    /* bytes; requests up to it (inclusive, rounded) are the small class */
    uint64_t handle_bytes;   /* largest handle of a growth; 0: by policies/growth.h */
    uint64_t work_percent;   /* driver work aimed at, in percent of a mapping for each 20 MiB held */
    uint64_t slack_permille; /* growth below peak live x (1 + this) needs no second thought */
    uint64_t patience_ms;    /* how long a request without memory waits for any pending block to come free */
    uint64_t address_limit;  /* bytes of address space that may be reserved, all devices */
    bool map_parts;          /* where the driver maps any part of a handle, do so in views */
    enum sm_lending lending; /* whether free memory of a stream may serve another */
    enum sm_peers peers;     /* who is granted access to new mappings */
    bool exportable;         /* ask for handles that can be shared (file descriptor) where the device can */
    unsigned log_level;      /* base/log.h */
    char trace[SM_OPTION_PATH_BYTES]; /* file of the recording that begins with the allocator; "": none */
};

/* "stitch", "expandable", "native". */
const char *sm_options_policy_name(enum sm_policy policy);

void sm_options_defaults(struct sm_options *options);

/* Applies text to a copy of *options and stores it if all of it is good. source names it in errors
 * ("SEAMALLOC_CONF"). Returns: SEAM_OK, SEAM_E_OPTION, SEAM_E_IO (a named file); *error then says source,
 * key, position, valid values. */
seam_result sm_options_parse(struct sm_options *options, const char *source, const char *text,
                             struct sm_error *error);

/* Defaults, then the environment. On an error *options holds the defaults. */
seam_result sm_options_from_environment(struct sm_options *options, struct sm_error *error);

/* The settings in force as a string that sm_options_parse takes back to the same settings.
 * Returns: length needed without the final 0, as snprintf. */
size_t sm_options_format(const struct sm_options *options, char *buffer, size_t capacity);

/* The table itself, for documentation and for its test: key, kind, default, range, meaning; NULL key ends it.
 */
struct sm_option_info {
    const char *key, *kind, *default_text, *range, *meaning;
    bool of_pytorch; /* may stand in PyTorch's variables */
};
const struct sm_option_info *sm_options_table(void);

#endif
