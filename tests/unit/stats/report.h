/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a report back: the text of sm_stats_emit, and figures of parsed JSON by dotted path. */
#ifndef SEAM_TESTS_STATS_REPORT_H
#define SEAM_TESTS_STATS_REPORT_H

#include "stats/stats.h"
#include <jansson.h>

/* Facts that the tests give to the report. */
extern const struct sm_report_facts test_facts;

/* The text of the report in a buffer of its own (free() it). JSON: the bare object of the device. */
char *report_text(struct sm_stats *stats, enum sm_emit_form form, int64_t now_ns);
/* The parsed report; fails the test when it is no JSON. */
json_t *report_json(struct sm_stats *stats, int64_t now_ns);
/* The value at "levels.active.all.peak"; fails the test when there is none. */
json_t *at_path(json_t *object, const char *path);
int64_t int_at(json_t *object, const char *path);
/* The node of that path in the array of that name; NULL when there is none. */
json_t *node_of(json_t *report, const char *array, const char *path);

#endif
