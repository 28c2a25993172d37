/* SPDX-License-Identifier: Apache-2.0 */
/* A test case that is a process of its own: what it answers, and what it says on stderr. */
#ifndef SEAM_TESTS_UNIT_SIM_CHILD_H
#define SEAM_TESTS_UNIT_SIM_CHILD_H

#include "tests/unit/sim/sim_test.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct outcome {
    int status;      /* as waitpid gives it */
    char text[8192]; /* stderr */
};

/* Runs `body` in a child; its exit status is what body returns. */
static inline void in_child(int (*body)(void), struct outcome *outcome)
{
    int ends[2];
    size_t used = 0;
    ssize_t n;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        signal(SIGABRT, SIG_DFL);
        exit(body());
    }
    close(ends[1]);
    while ((n = read(ends[0], outcome->text + used, sizeof outcome->text - 1 - used)) > 0)
        used += (size_t)n;
    outcome->text[used] = 0;
    close(ends[0]);
    waitpid(child, &outcome->status, 0);
}

static inline void assert_text(const struct outcome *outcome, const char *part)
{
    if (!strstr(outcome->text, part))
        fail_msg("\"%s\" is not in: %s", part, outcome->text);
}

#endif
