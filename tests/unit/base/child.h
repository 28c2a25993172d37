/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a function in a child process and keeps what it wrote on the standard error stream: for code that
 * aborts. */
#ifndef SEAM_TESTS_UNIT_BASE_CHILD_H
#define SEAM_TESTS_UNIT_BASE_CHILD_H

#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    int status; /* as wait() gives it */
    char told[4096];
};

static inline struct child run_child(void (*function)(void))
{
    struct child child = {.status = -1};
    int ends[2];
    if (pipe(ends) != 0)
        return child;
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        function();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t n;
    while (length + 1 < sizeof child.told &&
           (n = read(ends[0], child.told + length, sizeof child.told - 1 - length)) > 0)
        length += (size_t)n;
    child.told[length] = 0;
    close(ends[0]);
    waitpid(pid, &child.status, 0);
    return child;
}

static inline int child_aborted(const struct child *child)
{
    return WIFSIGNALED(child->status) && WTERMSIG(child->status) == SIGABRT;
}

static inline int child_ended_well(const struct child *child)
{
    return WIFEXITED(child->status) && WEXITSTATUS(child->status) == 0;
}

#endif
