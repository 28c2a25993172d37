/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines on stderr, "seamalloc: ...". Level 0 errors only, 1 warnings (default), 2 growth and trims, 3
 * every request. Thread: safe; a line is written by one call. */
#ifndef SEAM_BASE_LOG_H
#define SEAM_BASE_LOG_H

enum sm_log_level { SM_LOG_ERROR, SM_LOG_WARNING, SM_LOG_INFO, SM_LOG_DEBUG };

void sm_log_set_level(enum sm_log_level level);
void sm_log(enum sm_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A condition that only a fault of ours can break. Prints and aborts in debug builds; counted and logged once
 * in release builds, where the caller goes on as safely as it can. Returns the condition. */
#define SM_CHECK(condition)                                                                                  \
    (__builtin_expect(!!(condition), 1) || sm_check_failed(#condition, __FILE__, __LINE__))
/* Always false. The analyzer may take it for the end: it then believes what was checked. */
#ifdef __clang_analyzer__
__attribute__((analyzer_noreturn))
#endif
int sm_check_failed(const char *condition, const char *file, int line);
/* Failures of SM_CHECK since start; tests expect 0. */
unsigned long sm_check_failures(void);

/* Level 2 assertions: debug builds only. */
#ifdef NDEBUG
#define SM_ASSERT(condition) ((void)0)
#else
#define SM_ASSERT(condition) ((void)SM_CHECK(condition))
#endif

#endif
