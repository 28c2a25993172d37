/* SPDX-License-Identifier: Apache-2.0 */
/* tune: a policy file for recorded loops, found by replaying them.
 *
 * From the defaults of stitch, one parameter at a time goes to the values next to it as long as that is
 * better, until no step is or the time is over. Better is a higher score: mean use in percent less mean
 * driver time as a multiple of expandable's, so that one point of memory is worth expandable's whole time. */
#include "tools/tools.h"
#include <getopt.h>
#include <seamalloc/seamalloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PARAMETERS 3
#define VALUES_MAX 8

static const struct {
    const char *key;
    unsigned values[VALUES_MAX], count, standard; /* in ascending order; index of the default */
} parameters[PARAMETERS] = {
    {"work_percent", {25, 40, 56, 75, 100, 150, 300}, 7, 3},
    {"slack_permille", {1, 2, 4, 6, 8, 12}, 6, 2},
    {"small_limit_kib", {64, 128, 256, 512, 1024}, 5, 2},
};

struct figures {
    double use, time, score; /* means over the traces: percent, multiple of expandable's, see above */
};

struct tuning {
    struct sim_config config;
    char **traces;
    int count;
    double *expandable_ns; /* by trace */
    const char *out;
    time_t end;
};

static json_t *play(const struct tuning *tuning, int trace, const char *settings)
{
    if (seam_configure(settings) == SEAM_OK)
        return replay_trace(tuning->traces[trace], "tune", 1, &tuning->config);
    fprintf(stderr, "seamalloc: %s: %s\n", settings, seam_last_error());
    return NULL;
}

/* Returns: false after a message. */
static bool measure(const struct tuning *tuning, const unsigned at[PARAMETERS], struct figures *figures)
{
    char settings[200];
    snprintf(settings, sizeof(settings), "policy:stitch,%s:%u,%s:%u,%s:%u", parameters[0].key,
             parameters[0].values[at[0]], parameters[1].key, parameters[1].values[at[1]], parameters[2].key,
             parameters[2].values[at[2]]);
    *figures = (struct figures){0};
    for (int i = 0; i < tuning->count; i++) {
        json_t *row = play(tuning, i, settings);
        if (!row)
            return false;
        figures->use += 100 * json_real_value(json_object_get(row, "utilisation")) / tuning->count;
        figures->time += (double)json_integer_value(json_object_get(row, "driver_ns")) /
                         tuning->expandable_ns[i] / tuning->count;
        json_decref(row);
    }
    figures->score = figures->use - figures->time;
    return true;
}

static bool measure_expandable(struct tuning *tuning)
{
    for (int i = 0; i < tuning->count; i++) {
        json_t *row = play(tuning, i, "policy:expandable");
        if (!row)
            return false;
        double ns = (double)json_integer_value(json_object_get(row, "driver_ns"));
        tuning->expandable_ns[i] = ns > 1 ? ns : 1;
        json_decref(row);
    }
    return true;
}

/* One step of one parameter, if it is better. Returns: -1 on a failure, 1 when it was. */
static int step(const struct tuning *tuning, unsigned at[PARAMETERS], unsigned p, int way,
                struct figures *best)
{
    struct figures found;
    unsigned before = at[p];
    if ((way < 0 && !before) || (way > 0 && before + 1 == parameters[p].count))
        return 0;
    at[p] = way < 0 ? before - 1 : before + 1;
    if (!measure(tuning, at, &found))
        return -1;
    fprintf(stderr, "%s:%u: use %.2f %%, time %.2f\n", parameters[p].key, parameters[p].values[at[p]],
            found.use, found.time);
    if (found.score > best->score) {
        *best = found;
        return 1;
    }
    at[p] = before;
    return 0;
}

static bool search(const struct tuning *tuning, unsigned at[PARAMETERS], struct figures *best)
{
    for (bool better = true; better;) {
        better = false;
        for (unsigned p = 0; p < PARAMETERS; p++)
            for (int way = -1; way <= 1; way += 2)
                for (int done = 1; done > 0 && time(NULL) < tuning->end; better |= done > 0) {
                    done = step(tuning, at, p, way, best);
                    if (done < 0)
                        return false;
                }
    }
    return true;
}

static bool write_policy(const struct tuning *tuning, const unsigned at[PARAMETERS],
                         const struct figures *found, const struct figures *standard)
{
    FILE *file = tuning->out ? fopen(tuning->out, "w") : stdout;
    if (!file) {
        perror(tuning->out);
        return false;
    }
    fprintf(file, "# Written by seamalloc tune, cost preset %s. Expected on these recordings, as means:\n",
            tuning->config.cost ? tuning->config.cost : "h100");
    fprintf(file, "# use %.2f %% at %.2f times the driver time of expandable (defaults: %.2f %% at %.2f).\n",
            found->use, found->time, standard->use, standard->time);
    for (int i = 0; i < tuning->count; i++)
        fprintf(file, "# tuned on %s\n", tuning->traces[i]);
    fprintf(file, "policy:stitch\n");
    for (unsigned p = 0; p < PARAMETERS; p++)
        fprintf(file, "%s:%u\n", parameters[p].key, parameters[p].values[at[p]]);
    bool good = !ferror(file);
    if (tuning->out)
        good &= fclose(file) == 0;
    return good;
}

static bool parse(int argc, char **argv, struct tuning *tuning)
{
    static const struct option options[] = {{"out", required_argument, NULL, 'o'},
                                            {"cost", required_argument, NULL, 'c'},
                                            {"budget", required_argument, NULL, 'b'},
                                            {"device-mib", required_argument, NULL, 'm'},
                                            {0}};
    unsigned long long budget = 60;
    char *end = NULL;
    int c;
    sim_config_default(&tuning->config);
    tuning->config.backed = false;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        unsigned long long number = c == 'b' || c == 'm' ? strtoull(optarg, &end, 10) : 1;
        if (c == '?' || !number || (end && *end)) {
            fprintf(stderr,
                    "seamalloc: tune: --budget takes seconds, --device-mib MiB, whole numbers above 0\n");
            return false;
        }
        if (c == 'o')
            tuning->out = optarg;
        else if (c == 'c')
            tuning->config.cost = optarg;
        else if (c == 'm')
            tuning->config.device_bytes = number << 20;
        else
            budget = number;
    }
    tuning->traces = argv + optind;
    tuning->count = argc - optind;
    tuning->end = time(NULL) + (time_t)budget;
    return tuning->count > 0;
}

int tune(int argc, char **argv)
{
    struct tuning tuning = {0};
    struct figures best = {0}, standard;
    unsigned at[PARAMETERS];
    bool good = false;
    if (!parse(argc, argv, &tuning)) {
        fputs("usage: seamalloc tune [--out FILE] [--cost PRESET] [--budget SECONDS] [--device-mib N] "
              "TRACE...\n",
              stderr);
        return 2;
    }
    for (unsigned p = 0; p < PARAMETERS; p++)
        at[p] = parameters[p].standard;
    tuning.expandable_ns = calloc((size_t)tuning.count, sizeof(*tuning.expandable_ns));
    if (tuning.expandable_ns && measure_expandable(&tuning) && measure(&tuning, at, &standard)) {
        best = standard;
        good = search(&tuning, at, &best) && write_policy(&tuning, at, &best, &standard);
    }
    free(tuning.expandable_ns);
    return good ? 0 : 1;
}
