/* SPDX-License-Identifier: Apache-2.0 */
/* backing: the host memory behind device addresses. The only file of the simulator that maps memory for the
 * device.
 *
 * Device memory is one sparse memory file a device; a device address is the same host address, at which the
 * file is mapped once access has been given, so that a copy through an address without access cannot go
 * unnoticed. The kernel joins neighbouring maps whose offsets follow each other, which first fit in the file
 * favours: a process may have only some 65,000 maps. In table-only mode nothing is mapped; the files are
 * there for what they are named in (share.h). Protected by: the core lock. */
#ifndef SEAMALLOC_SIM_CORE_BACKING_H
#define SEAMALLOC_SIM_CORE_BACKING_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the memory files. Returns: false when the host cannot. */
bool sim_backing_start(int devices, uint64_t device_bytes, bool backed);
void sim_backing_reset(void);
bool sim_backing_on(void);

/* Occupies addresses without access. Returns: false when the host has something else there. */
bool sim_backing_reserve(uint64_t base, uint64_t size);
/* Shows a part of a device's file there, readable and writable. Returns: false when the host refuses. */
bool sim_backing_show(uint64_t base, uint64_t size, int file, uint64_t offset);
/* Takes access away; the addresses stay occupied. */
void sim_backing_hide(uint64_t base, uint64_t size);
/* Gives the addresses back to the host. */
void sim_backing_release(uint64_t base, uint64_t size);

/* Pinned host memory, which exists in table-only mode too. Returns: 0 when the host has none. */
uint64_t sim_backing_host_alloc(uint64_t size);
void sim_backing_host_free(uint64_t base, uint64_t size);

/* Forgets the bytes of a part of a device's file: they read as zeros and take no host memory. */
void sim_backing_forget(int device, uint64_t offset, uint64_t size);

/* Reads a part of a device's file; what was never written reads as zeros and stays unbacked. */
void sim_backing_read(int device, uint64_t offset, void *out, uint64_t size);

/* From `offset` on, how many bytes (at most size) have host memory behind them, or have none (*is_data tells
 * which). */
uint64_t sim_backing_run(int device, uint64_t offset, uint64_t size, bool *is_data);

/* Files of other processes beside the devices' own, which have the numbers of their devices. Adopting keeps
 * the descriptor. Returns: the number, or -1 when there are too many. */
int sim_backing_adopt(int descriptor);
/* Forgets it, and closes the descriptor if so wanted. */
void sim_backing_abandon(int file, bool closes);
/* The descriptor of a file, device's own or adopted. */
int sim_backing_descriptor(int file);

/* A few bytes about what begins at an offset of a device's file, kept in the file. Return: false when the
 * file has no room for them, is none of ours, or refuses. */
enum { SIM_BACKING_HEADER = 64 };
bool sim_backing_put_header(int descriptor, uint64_t offset, const void *header, uint64_t size);
bool sim_backing_get_header(int descriptor, uint64_t offset, void *header, uint64_t size);

/* How much of a device's file can be used for runs; far more than its memory, so that no run is ever refused
 * because free memory is in pieces: a GPU has pages. */
uint64_t sim_backing_file_bytes(uint64_t device_bytes);

#endif
