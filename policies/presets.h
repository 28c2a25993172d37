/* SPDX-License-Identifier: Apache-2.0 */
/* presets: the files of policies/presets/ as the library knows them, by name, without their comments.
 * Constant; any thread. */
#ifndef SEAM_POLICIES_PRESETS_H
#define SEAM_POLICIES_PRESETS_H

struct sm_preset {
    const char *name, *text; /* "stitch-2mib"; its lines. NULL ends the table */
};
extern const struct sm_preset sm_presets[];

#endif
