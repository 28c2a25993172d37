/* SPDX-License-Identifier: Apache-2.0 */
/* share: memory of one process in another: handles as file descriptors (cuMemExportToShareableHandle), plain
 * allocations and events as small handles (cuIpc*).
 *
 * The descriptor is the memory file of the device, opened anew so that it has a position of its own, and its
 * position says where the memory begins; what is there is written in a header further up in the file. So a
 * descriptor may be passed on by whatever means (inherited, over a socket, fetched with pidfd_getfd), the
 * bytes are really shared, and they stay as long as anybody holds them. Who imports keeps a lock on the place
 * in the file, which ends with the process: the maker gives memory back only where nobody has one.
 *
 * Memory that came from elsewhere counts where it was made, not here. All functions require the core lock. */
#ifndef SEAMALLOC_SIM_CORE_SHARE_H
#define SEAMALLOC_SIM_CORE_SHARE_H

#include "sim/core/memory.h"

/* A new descriptor for a handle that may be exported. */
CUresult sim_share_export(struct sim_memory *memory, int *descriptor);
/* The handle of a descriptor, which stays the caller's. In the process that made it: the same handle, with
 * one reference more. */
CUresult sim_share_import(int descriptor, uint64_t *handle);

/* Does another process still use memory whose last reference here is gone? Its header is no longer valid
 * then, and if so, the memory is given back by a later sim_share_sweep. */
bool sim_share_detain(const struct sim_memory *memory);
/* Gives back what nobody uses any more. Returns: whether there was something. */
bool sim_share_sweep(void);

CUresult sim_share_ipc_get(uint64_t base, CUipcMemHandle *handle);
/* Opens it for a device. The same handle again gives the same address, to be closed as often. */
CUresult sim_share_ipc_open(const CUipcMemHandle *handle, int device, uint64_t *base);
CUresult sim_share_ipc_close(uint64_t base);

void sim_share_reset(void);

#endif
