/* SPDX-License-Identifier: Apache-2.0 */
/* log: see log.h. A line is built on the stack and written by one write(2): no memory is obtained, no lock is
 * taken and stdio's buffers are left alone, so that a line can be written from any place, out of memory
 * included. */
#include "base/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic int max_level = SM_LOG_WARNING;
static _Atomic unsigned long check_failures;

void sm_log_set_level(enum sm_log_level level)
{
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

static void write_line(const char *line, size_t length)
{
    while (length) {
        ssize_t n = write(STDERR_FILENO, line, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nobody to tell */
        line += n;
        length -= (size_t)n;
    }
}

void sm_log(enum sm_log_level level, const char *format, ...)
{
    static const char *const prefixes[] = {
        "seamalloc: error: ", "seamalloc: warning: ", "seamalloc: ", "seamalloc: "};
    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
        return;
    int saved_errno = errno;
    char line[1280];
    size_t length = strlen(prefixes[level]);
    memcpy(line, prefixes[level], length);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + length, sizeof line - length - 1, format, args);
    va_end(args);
    if (n > 0)
        length += (size_t)n < sizeof line - length - 1 ? (size_t)n : sizeof line - length - 2;
    line[length++] = '\n';
    write_line(line, length);
    errno = saved_errno;
}

int sm_check_failed(const char *condition, const char *file, int line)
{
    unsigned long before = atomic_fetch_add_explicit(&check_failures, 1, memory_order_relaxed);
    if (before == 0)
        sm_log(SM_LOG_ERROR, "a fault in seamalloc itself: %s does not hold at %s:%d", condition, file, line);
#ifndef NDEBUG
    abort();
#endif
    return 0;
}

unsigned long sm_check_failures(void)
{
    return atomic_load_explicit(&check_failures, memory_order_relaxed);
}
