/* SPDX-License-Identifier: Apache-2.0 */
/* The `seamalloc` command. `replay`, `tune`, `convert` and `bench` are done here; what needs Python is handed
 * to the package. */
#include "tools/tools.h"
#include <getopt.h>
#include <seamalloc/seamalloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: seamalloc replay [--policy NAME|FILE] [--device-mib N] [--cost PRESET] [--scale F]\n"
    "                        [--partial-mappings] [--descending] [--json] TRACE...\n"
    "       seamalloc tune [--out FILE] [--cost PRESET] [--budget SECONDS] [--device-mib N] TRACE...\n"
    "       seamalloc convert IN OUT                  (.seamtrace .txt .pickle .csv)\n"
    "       seamalloc bench [--json] [--threads N]\n"
    "       seamalloc run [OPTIONS] SCRIPT [ARGS]     (python3 -m seamalloc run)\n"
    "       seamalloc --version\n"
    "\n"
    "replay plays recorded traces through the allocator on the simulated device: one row for each trace and "
    "policy.\n"
    "Policies: stitch (default), stitch-few-calls, stitch-2mib, expandable and native (after PyTorch's\n"
    "rules), or a FILE of key:value settings\n"
    "(docs/options.md). --scale: sizes times F. --partial-mappings: the device maps any part of a handle.\n"
    "--descending: plain allocations lie at falling addresses, as with some drivers.\n";

struct arguments {
    struct sim_config config;
    double scale; /* of sizes */
    const char *policies[16];
    int policy_count;
    bool parts; /* the device maps any part of a handle */
    bool json;
};

static bool parse(int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = {
        {"policy", required_argument, NULL, 'p'},     {"device-mib", required_argument, NULL, 'm'},
        {"cost", required_argument, NULL, 'c'},       {"json", no_argument, NULL, 'j'},
        {"descending", no_argument, NULL, 'd'},       {"scale", required_argument, NULL, 's'},
        {"partial-mappings", no_argument, NULL, 'a'}, {0}};
    int c;
    char *end;
    sim_config_default(&arguments->config);
    arguments->config.backed = false;
    arguments->scale = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'p' && arguments->policy_count < 16)
            arguments->policies[arguments->policy_count++] = optarg;
        else if (c == 'c')
            arguments->config.cost = optarg;
        else if (c == 'j')
            arguments->json = true;
        else if (c == 'd')
            arguments->config.plain_descend = true;
        else if (c == 'a')
            arguments->parts = true;
        else if (c == 's') {
            arguments->scale = strtod(optarg, &end);
            if (*end || end == optarg || !(arguments->scale > 0 && arguments->scale <= 1000)) {
                fprintf(stderr, "seamalloc: --scale %s: a number above 0, at most 1000, was expected\n",
                        optarg);
                return false;
            }
        } else if (c == 'm') {
            arguments->config.device_bytes = strtoull(optarg, &end, 10) << 20;
            if (*end || !arguments->config.device_bytes) {
                fprintf(stderr, "seamalloc: --device-mib %s: a number of MiB above 0 was expected\n", optarg);
                return false;
            }
        } else
            return false;
    }
    if (!arguments->policy_count)
        arguments->policies[arguments->policy_count++] = "stitch";
    return optind < argc;
}

static bool choose_policy(const char *policy)
{
    char text[4200];
    snprintf(text, sizeof(text), strchr(policy, '/') || strchr(policy, '.') ? "@%s" : "policy:%s", policy);
    if (seam_configure(text) == SEAM_OK)
        return true;
    fprintf(stderr, "seamalloc: --policy %s: %s\n", policy, seam_last_error());
    return false;
}

static void print_row(json_t *row)
{
    const json_t *driver = json_object_get(row, "driver_calls");
    printf("%-40s %-10s %9.1f %9.1f %7.2f %% %8.1f ms %7lld creates %7lld maps\n",
           json_string_value(json_object_get(row, "trace")),
           json_string_value(json_object_get(row, "policy")),
           (double)json_integer_value(json_object_get(row, "allocated_peak")) / 1048576,
           (double)json_integer_value(json_object_get(row, "reserved_peak")) / 1048576,
           100 * json_real_value(json_object_get(row, "utilisation")),
           (double)json_integer_value(json_object_get(row, "driver_ns")) / 1e6,
           json_integer_value(json_object_get(driver, "create")),
           json_integer_value(json_object_get(driver, "map")));
}

static int replay(int argc, char **argv)
{
    struct arguments arguments = {0};
    json_t *rows = json_array();
    int failures = 0;
    if (!parse(argc, argv, &arguments)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!sim_config_rules(&arguments.config))
        return 1;
    if (arguments.parts)
        arguments.config.partial = SIM_PARTIAL_INNER;
    if (!arguments.json)
        printf("simulated device, cost preset %s; MiB\n%-40s %-10s %9s %9s %9s %11s\n",
               arguments.config.cost ? arguments.config.cost : "h100", "trace", "policy", "allocated",
               "reserved", "use", "driver time");
    for (int i = optind; i < argc; i++)
        for (int p = 0; p < arguments.policy_count; p++) {
            json_t *row =
                choose_policy(arguments.policies[p])
                    ? replay_trace(argv[i], arguments.policies[p], arguments.scale, &arguments.config)
                    : NULL;
            if (!row)
                failures++;
            else if (!arguments.json)
                print_row(row);
            if (row)
                json_array_append_new(rows, row);
        }
    if (arguments.json) {
        json_dumpf(rows, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(rows);
    return failures ? 1 : 0;
}

/* Hands the command to the Python package. */
static int hand_over(int argc, char **argv)
{
    char **command = calloc((size_t)argc + 4, sizeof(*command));
    const char *python = "python3";
    if (!command)
        return 1;
    command[0] = (char *)python;
    command[1] = (char *)"-m";
    command[2] = (char *)"seamalloc";
    memcpy(command + 3, argv + 1, (size_t)(argc - 1) * sizeof(*command));
    execvp(python, command);
    perror("seamalloc: python3 could not be started");
    return 127;
}

int main(int argc, char **argv)
{
    bool help = argc > 1 && (!strcmp(argv[1], "--help") || (argc == 3 && !strcmp(argv[2], "--help")));
    const char *command = argc > 1 && !help ? argv[1] : "";
    if (!strcmp(command, "replay"))
        return replay(argc - 1, argv + 1);
    if (!strcmp(command, "tune"))
        return tune(argc - 1, argv + 1);
    if (!strcmp(command, "convert") && argc == 4)
        return convert(argv[2], argv[3]);
    if (!strcmp(command, "bench"))
        return bench(argc - 1, argv + 1);
    if (!strcmp(command, "run"))
        return hand_over(argc, argv);
    if (!strcmp(command, "--version")) {
        printf("seamalloc %s\n", seam_version());
        return 0;
    }
    if (help) {
        fputs(usage, stdout);
        return 0;
    }
    if (*command)
        fprintf(stderr, "seamalloc: \"%s\" is no command, or not with these arguments\n", command);
    fputs(usage, stderr);
    return 2;
}
