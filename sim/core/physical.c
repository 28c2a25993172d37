/* SPDX-License-Identifier: Apache-2.0 */
/* physical: see physical.h. */
#include "sim/core/physical.h"
#include "base/align.h"
#include "sim/core/backing.h"
#include "sim/core/config.h"
#include "sim/core/gaps.h"
#include "sim/core/ledger.h"
#include "sim/core/lock.h"
#include "sim/sim.h"
#include <stdatomic.h>

static struct {
    struct sim_gaps runs;
    _Atomic uint64_t used, peak, tenant, tenant_peak;
} devices[SIM_DEVICES_MAX];
static int device_count;
static uint64_t total;

bool sim_physical_start(int count, uint64_t device_bytes, uint64_t tenant_bytes)
{
    total = device_bytes;
    for (device_count = 0; device_count < count; device_count++) {
        devices[device_count].tenant = devices[device_count].tenant_peak = tenant_bytes;
        if (!sim_gaps_init(&devices[device_count].runs, 0, sim_backing_file_bytes(device_bytes)))
            return false;
    }
    return true;
}

void sim_physical_reset(void)
{
    for (int d = 0; d < SIM_DEVICES_MAX; d++) {
        if (d < device_count)
            sim_gaps_clear(&devices[d].runs);
        devices[d].used = devices[d].peak = devices[d].tenant = devices[d].tenant_peak = 0;
    }
    device_count = 0;
}

bool sim_physical_take(int device, uint64_t size, uint64_t *offset)
{
    uint64_t mine = devices[device].used + devices[device].tenant;
    uint64_t most = sim_config.oversubscribe ? 2 * total : total;
    if (mine > most || size > most - mine ||
        !sim_ledger_take(device, (int64_t)size, most - devices[device].tenant))
        return false;
    if (!sim_gaps_take_low(&devices[device].runs, size, 1, offset)) {
        sim_ledger_take(device, -(int64_t)size, total);
        return false;
    }
    devices[device].used += size;
    devices[device].peak = sm_max(devices[device].peak, devices[device].used);
    return true;
}

void sim_physical_give(int device, uint64_t offset, uint64_t size)
{
    sim_backing_forget(device, offset, size);
    sim_gaps_give(&devices[device].runs, offset, size);
    devices[device].used -= size;
    sim_ledger_take(device, -(int64_t)size, total);
}

uint64_t sim_physical_left(int device)
{
    uint64_t taken = devices[device].used + devices[device].tenant + sim_ledger_others(device);
    return taken < total ? total - taken : 0;
}

uint64_t sim_physical_bytes(int device)
{
    return device < 0 || device >= SIM_DEVICES_MAX ? 0 : devices[device].used;
}

uint64_t sim_physical_bytes_peak(int device)
{
    return device < 0 || device >= SIM_DEVICES_MAX ? 0 : devices[device].peak;
}

uint64_t sim_shared_bytes(int device)
{
    struct sim_ledger_figures figures;
    if (device < 0 || device >= SIM_DEVICES_MAX || !sim_ledger_figures(&figures))
        return sim_physical_bytes(device);
    return figures.devices[device].bytes;
}

uint64_t sim_shared_bytes_peak(int device)
{
    struct sim_ledger_figures figures;
    if (device < 0 || device >= SIM_DEVICES_MAX || !sim_ledger_figures(&figures))
        return sim_physical_bytes_peak(device);
    return figures.devices[device].peak_bytes;
}

uint64_t sim_device_left(int device)
{
    if (device < 0 || device >= device_count)
        return 0;
    sim_lock();
    uint64_t left = sim_physical_left(device);
    sim_unlock();
    return left;
}

static void set_tenant(int device, uint64_t bytes)
{
    devices[device].tenant = bytes;
    devices[device].tenant_peak = sm_max(devices[device].tenant_peak, bytes);
}

void sim_physical_let(int device, uint64_t bytes)
{
    uint64_t had = devices[device].tenant;
    set_tenant(device, bytes <= had ? bytes : had + sm_min(bytes - had, sim_physical_left(device)));
}

uint64_t sim_physical_tenant(int device)
{
    return devices[device].tenant;
}

uint64_t sim_physical_tenant_peak(int device)
{
    return devices[device].tenant_peak;
}

bool sim_tenant(int device, int64_t bytes)
{
    bool done = false;
    if (device < 0 || device >= device_count)
        return false;
    sim_lock();
    if (bytes >= 0 ? (uint64_t)bytes <= sim_physical_left(device)
                   : (uint64_t)-bytes <= devices[device].tenant) {
        set_tenant(device, devices[device].tenant + (uint64_t)bytes);
        done = true;
    }
    sim_unlock();
    return done;
}
