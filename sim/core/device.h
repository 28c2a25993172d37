/* SPDX-License-Identifier: Apache-2.0 */
/* device: what the device says about itself. */
#ifndef SEAMALLOC_SIM_CORE_DEVICE_H
#define SEAMALLOC_SIM_CORE_DEVICE_H

#include "sim/sim.h"

#define SIM_DEVICE_NAME "seamalloc simulated device"

/* The value of an attribute; 0 for those that such a device does not have. Requires: device is valid. */
int sim_device_attribute(int device, CUdevice_attribute attribute);

/* Starts what the environment describes, for cuInit. Returns: what cuInit answers. */
CUresult sim_device_init(void);

#endif
