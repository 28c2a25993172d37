/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the command share. */
#ifndef SEAM_TOOLS_TOOLS_H
#define SEAM_TOOLS_TOOLS_H

#include <jansson.h>
#include <sim/sim.h>

/* Plays one trace on a fresh device, with the settings that seam_configure() was given; policy names them in
 * the row. Returns: its row (docs of the fields: docs/tools.md), or NULL after a message. */
json_t *replay_trace(const char *path, const char *policy, const struct sim_config *config);

#endif
