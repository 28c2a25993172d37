/* SPDX-License-Identifier: Apache-2.0 */
/* tenant: see tenant.h. */
#include "sim/core/tenant.h"
#include "base/align.h"
#include "sim/core/config.h"
#include "sim/core/lock.h"
#include "sim/core/physical.h"
#include "sim/core/timing.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 64 };

struct step {
    uint64_t bytes, when; /* calls, or ns */
};

_Atomic bool sim_tenant_waits;

static struct step steps[STEPS_MAX];
static size_t count, done;
static _Atomic uint64_t due; /* when the next step is */
static bool is_timed;        /* the steps are by virtual time */
static char plan[1024];

/* Reads a whole number from *at on. */
static bool read_number(const char **at, uint64_t *number)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)**at))
        return false;
    *number = strtoull(*at, &end, 10);
    *at = end;
    return !errno;
}

/* The unit after a time: 0 for calls, else nanoseconds; `when` 0 needs none. Returns: false for another. */
static bool read_unit(const char **at, uint64_t when, uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"calls", 0}, {"us", 1000}, {"ms", 1000000}};
    size_t length = strcspn(*at, ",");
    *ns = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strlen(units[i].name) == length && !strncmp(*at, units[i].name, length)) {
            *at += length;
            *ns = units[i].ns;
            return true;
        }
    return length == 0 && when == 0;
}

/* Reads one step into the plan. Returns: NULL, or what would be right. */
static const char *read_step(const char **at, uint64_t mib, bool has_time)
{
    uint64_t size, when, ns;
    if (count == STEPS_MAX)
        return "want at most 64 steps";
    if (!read_number(at, &size) || *(*at)++ != '@' || !read_number(at, &when) || !read_unit(at, when, &ns))
        return "want a list of MIB@WHEN, with WHEN as 0, 5000calls, 20us or 3ms";
    if (ns && when > UINT64_MAX / ns)
        return "want an earlier time";
    if (size > mib)
        return "want no more than the device has";
    if (ns && !has_time)
        return "want calls: only SEAMALLOC_SIM_STREAMS=timed has a clock";
    if (when && count && steps[count - 1].when && is_timed != (ns != 0))
        return "want all steps by calls, or all by time";
    if (count && when * (ns ? ns : 1) <= steps[count - 1].when)
        return "want each step later than the one before";
    if (when)
        is_timed = ns != 0;
    steps[count++] = (struct step){size * SM_MIB, when * (ns ? ns : 1)};
    return NULL;
}

bool sim_tenant_plan(const char *text, uint64_t mib, bool has_time, char *right, size_t size)
{
    const char *wrong = strlen(text) < sizeof plan ? NULL : "want a shorter list";
    count = done = 0;
    is_timed = false;
    for (const char *at = text; !wrong; at++) {
        wrong = read_step(&at, mib, has_time);
        if (wrong || !*at)
            break;
    }
    if (wrong) {
        count = 0;
        snprintf(right, size, "%s", wrong);
        return false;
    }
    snprintf(plan, sizeof plan, "%s", text);
    atomic_store(&due, steps[0].when);
    atomic_store(&sim_tenant_waits, true);
    return true;
}

void sim_tenant_clear(void)
{
    count = 0;
    atomic_store(&sim_tenant_waits, false);
}

const char *sim_tenant_text(void)
{
    return count ? plan : NULL;
}

void sim_tenant_step(uint64_t call)
{
    uint64_t now = is_timed ? sim_timing_now() : call;
    if (now < atomic_load_explicit(&due, memory_order_relaxed))
        return;
    sim_lock();
    for (; done < count && steps[done].when <= now; done++)
        for (int device = 0; device < sim_config.devices; device++)
            sim_physical_let(device, steps[done].bytes);
    if (done == count)
        atomic_store_explicit(&sim_tenant_waits, false, memory_order_relaxed);
    else
        atomic_store_explicit(&due, steps[done].when, memory_order_relaxed);
    sim_unlock();
}
