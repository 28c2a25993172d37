/* SPDX-License-Identifier: Apache-2.0 */
/* record: the device's own account of a run, as JSON (sim_write_record in sim.h; written at exit when
 * SEAMALLOC_SIM_REPORT names a file).
 *
 * { "simulated": true, "cost": .., "streams": .., "strict": ..,
 *   "devices": [ { "index", "name", "bytes", "physical_peak_bytes", "physical_bytes", "mappings_peak",
 * "mappings", "address_peak_bytes", "address_bytes", "calls": {name: count}, "driver_ns": {name: modelled
 * ns}, "driver_ns_total", "violations": [ {"rule", "call", "base", "size", "text"} ] } ], "violations_total":
 * n, "unsupported_calls": {name: count}, "faults": n, "live": {what is left},
 *   "shared": where SEAMALLOC_SIM_SHARE is set, { "name", "processes_running", "processes_ended",
 * "processes_died", "violations_total", "devices": [ { "physical_bytes", "physical_peak_bytes", "calls" } ]
 * }, of all processes together; the calls are those of this process and of those that have ended }
 *
 * In virtual time also "virtual_ns" and "host" (docs/virtual-time.md), and each device has "streams".
 * Calls with a count of 0 are left out. A violation that belongs to no device is listed with device 0. */
#ifndef SEAMALLOC_SIM_CORE_RECORD_H
#define SEAMALLOC_SIM_CORE_RECORD_H

#include "sim/sim.h"

#endif
