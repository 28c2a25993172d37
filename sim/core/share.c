/* SPDX-License-Identifier: Apache-2.0 */
/* share: see share.h. */
#include "sim/core/share.h"
#include "sim/core/address.h"
#include "sim/core/backing.h"
#include "sim/core/config.h"
#include "sim/core/physical.h"
#include "sim/core/table.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x31636d2d6d697373u /* "ssim-mc1" */

/* What is exported at a place of a device's file. */
struct header {
    uint64_t magic, handle, size;
    int32_t device;
    uint32_t handle_types;
    unsigned char flags[sizeof(((CUmemAllocationProp *)0)->allocFlags)];
};

/* A plain allocation, in the 64 bytes that CUDA gives it. */
struct ipc {
    uint64_t magic, inode, offset, size;
    int32_t process, descriptor, device;
};
_Static_assert(sizeof(struct ipc) <= sizeof(CUipcMemHandle), "the handle has room");
_Static_assert(sizeof(struct header) <= SIM_BACKING_HEADER, "the header has room");

/* Memory that was exported, is nobody's here any more, and was in use elsewhere when last looked. */
struct detained {
    struct detained *next;
    int device;
    uint64_t offset, size;
};
static struct detained *detained;

static uint64_t inode_of(int descriptor)
{
    struct stat status;
    return fstat(descriptor, &status) ? 0 : status.st_ino;
}

/* The device whose file a descriptor is, or -1: it comes from another process. */
static int own_device(int descriptor)
{
    uint64_t inode = inode_of(descriptor);
    for (int d = 0; d < sim_config.devices; d++)
        if (inode && inode == inode_of(sim_backing_descriptor(d)))
            return d;
    return -1;
}

static int open_again(int descriptor)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* ---- handles ---- */

CUresult sim_share_export(struct sim_memory *memory, int *descriptor)
{
    struct header header = {.magic = MAGIC,
                            .handle = memory->handle,
                            .size = memory->size,
                            .device = memory->device,
                            .handle_types = memory->prop.requestedHandleTypes};
    if (memory->file != memory->device) /* another process's: only its maker knows when it ends */
        return CUDA_ERROR_NOT_SUPPORTED;
    memcpy(header.flags, &memory->prop.allocFlags, sizeof header.flags);
    int made = open_again(sim_backing_descriptor(memory->file));
    if (made < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!sim_backing_put_header(made, memory->offset, &header, sizeof header) ||
        lseek(made, (off_t)memory->offset, SEEK_SET) < 0) {
        close(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->exported = true;
    *descriptor = made;
    return CUDA_SUCCESS;
}

/* A lock on one place of a file, held by the descriptor until it is closed. */
static bool lock_place(int descriptor, uint64_t offset)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1};
    return fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

static bool is_locked(int descriptor, uint64_t offset)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1};
    return fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Makes a handle of what lies at a place of a foreign file, which becomes ours. */
static CUresult adopt(int descriptor, uint64_t offset, const struct header *header, uint64_t *handle)
{
    struct sim_memory *memory = calloc(1, sizeof *memory);
    int file = memory ? sim_backing_adopt(descriptor) : -1;
    if (file < 0) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *memory = (struct sim_memory){
        .size = header->size, .offset = offset, .references = 1, .device = header->device, .file = file};
    memory->prop = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (CUmemAllocationHandleType)header->handle_types,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = header->device},
    };
    memcpy(&memory->prop.allocFlags, header->flags, sizeof header->flags);
    CUresult result = sim_memory_adopt(memory, handle);
    if (result) {
        sim_backing_abandon(file, false); /* the caller closes */
        free(memory);
    }
    return result;
}

CUresult sim_share_import(int descriptor, uint64_t *handle)
{
    struct header header;
    off_t position = lseek(descriptor, 0, SEEK_CUR);
    uint64_t offset = position < 0 ? 0 : (uint64_t)position;
    bool is_own = own_device(descriptor) >= 0;
    if (position < 0 || !sim_backing_get_header(descriptor, offset, &header, sizeof header) ||
        header.magic != MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_own) {
        CUresult result = sim_memory_import(header.handle);
        if (!result)
            *handle = header.handle;
        return result;
    }
    if (header.device < 0 || header.device >= sim_config.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    int kept = open_again(descriptor);
    /* The header counts only once the place is locked: its maker takes it away before it looks for locks. */
    if (kept < 0 || !lock_place(kept, offset) ||
        !sim_backing_get_header(kept, offset, &header, sizeof header) || header.magic != MAGIC) {
        if (kept >= 0)
            close(kept);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = adopt(kept, offset, &header, handle);
    if (result)
        close(kept);
    return result;
}

bool sim_share_detain(const struct sim_memory *memory)
{
    const struct header none = {0};
    int descriptor = sim_backing_descriptor(memory->device);
    sim_backing_put_header(descriptor, memory->offset, &none, sizeof none);
    if (!is_locked(descriptor, memory->offset))
        return false;
    struct detained *d = malloc(sizeof *d);
    if (!d) /* never given back: the least harm */
        return true;
    *d = (struct detained){detained, memory->device, memory->offset, memory->size};
    detained = d;
    return true;
}

bool sim_share_sweep(void)
{
    bool any = false;
    for (struct detained **at = &detained, *d; (d = *at);) {
        if (is_locked(sim_backing_descriptor(d->device), d->offset)) {
            at = &d->next;
            continue;
        }
        sim_physical_give(d->device, d->offset, d->size);
        *at = d->next;
        free(d);
        any = true;
    }
    return any;
}

/* ---- plain allocations ---- */

CUresult sim_share_ipc_get(uint64_t base, CUipcMemHandle *handle)
{
    const struct sim_range *range = sim_address_find(base);
    if (!range || range->kind != SIM_RANGE_PLAIN || range->pool || range->managed || range->graph ||
        range->opened)
        return CUDA_ERROR_INVALID_VALUE;
    int descriptor = sim_backing_descriptor(range->file);
    struct ipc ipc = {.magic = MAGIC,
                      .inode = inode_of(descriptor),
                      .offset = range->offset,
                      .size = range->size,
                      .process = (int32_t)getpid(),
                      .descriptor = descriptor,
                      .device = range->device};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &ipc, sizeof ipc);
    return CUDA_SUCCESS;
}

/* The range that this process has opened already, or NULL. */
static struct sim_range *find_opened(const struct ipc *ipc, int device)
{
    for (struct sim_range *range = sim_address_next(NULL); range; range = sim_address_next(range))
        if (range->kind == SIM_RANGE_PLAIN && range->opened && range->device == device &&
            range->offset == ipc->offset && inode_of(sim_backing_descriptor(range->file)) == ipc->inode)
            return range;
    return NULL;
}

CUresult sim_share_ipc_open(const CUipcMemHandle *handle, int device, uint64_t *base)
{
    struct ipc ipc;
    char path[64];
    memcpy(&ipc, handle, sizeof ipc);
    if (ipc.magic != MAGIC || ipc.device < 0 || ipc.device >= sim_config.devices)
        return CUDA_ERROR_INVALID_VALUE;
    if (ipc.process == (int32_t)getpid()) /* not in the process that made it (programming guide, IPC) */
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_range *range = find_opened(&ipc, device);
    if (range) {
        range->opened++;
        *base = range->base;
        return CUDA_SUCCESS;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)ipc.process, (int)ipc.descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return CUDA_ERROR_INVALID_VALUE;
    int file = inode_of(descriptor) == ipc.inode ? sim_backing_adopt(descriptor) : -1;
    if (file < 0) {
        close(descriptor);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = sim_memory_open_foreign(device, file, ipc.offset, ipc.size, base);
    if (result)
        sim_backing_abandon(file, true);
    return result;
}

CUresult sim_share_ipc_close(uint64_t base)
{
    struct sim_range *range = sim_address_at(base);
    if (!range || range->kind != SIM_RANGE_PLAIN || !range->opened)
        return CUDA_ERROR_INVALID_VALUE;
    if (--range->opened > 0)
        return CUDA_SUCCESS;
    int file = range->file;
    sim_history_note("closed", range->base, range->size, 0);
    sim_address_drop(range);
    sim_backing_abandon(file, true);
    return CUDA_SUCCESS;
}

void sim_share_reset(void)
{
    for (struct detained *d; (d = detained);) {
        detained = d->next;
        free(d);
    }
}
