/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the command share. */
#ifndef SEAM_TOOLS_TOOLS_H
#define SEAM_TOOLS_TOOLS_H

#include <jansson.h>
#include <sim/sim.h>

/* Plays one trace on a fresh device, with the settings that seam_configure() was given; policy names them in
 * the row; sizes are the trace's times `scale`. Returns: its row (docs of the fields: docs/tools.md), or NULL
 * after a message. */
json_t *replay_trace(const char *path, const char *policy, double scale, const struct sim_config *config);

/* Writes the trace `from` in another form, which the name of `to` says. Returns: an exit code. */
int convert(const char *from, const char *to);

/* The command tune. Returns: an exit code. */
int tune(int argc, char **argv);

/* The command bench. Returns: an exit code. */
int bench(int argc, char **argv);

#endif
