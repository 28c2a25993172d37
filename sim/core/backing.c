/* SPDX-License-Identifier: Apache-2.0 */
/* backing: see backing.h. */
#include "sim/core/backing.h"
#include "sim/sim.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The devices' files come first, then those of other processes; -1: none. */
enum { FILES_MAX = SIM_DEVICES_MAX + 4096 };
static int files[FILES_MAX];
static int file_count; /* of the devices */
static int files_end = SIM_DEVICES_MAX;
static bool is_on;
static bool has_complained;

/* Runs begin at multiples of this, and each has room for a header beyond the last byte of memory. */
enum { RUN_UNIT = 65536 };

uint64_t sim_backing_file_bytes(uint64_t device_bytes)
{
    return device_bytes * 64;
}

static uint64_t whole_bytes(uint64_t device_bytes)
{
    uint64_t memory = sim_backing_file_bytes(device_bytes);
    return memory + memory / RUN_UNIT * SIM_BACKING_HEADER;
}

bool sim_backing_start(int devices, uint64_t device_bytes, bool backed)
{
    is_on = backed;
    for (file_count = 0; file_count < devices; file_count++) {
        int file = memfd_create("seamalloc-simulated-device", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, (off_t)whole_bytes(device_bytes))) {
            fprintf(stderr, "seamalloc: simulated device: no memory file: %s\n", strerror(errno));
            if (file >= 0)
                close(file);
            sim_backing_reset();
            return false;
        }
        files[file_count] = file;
    }
    return true;
}

void sim_backing_reset(void)
{
    while (file_count > 0)
        close(files[--file_count]);
    while (files_end > SIM_DEVICES_MAX)
        if (files[--files_end] >= 0)
            close(files[files_end]);
    is_on = false;
}

int sim_backing_adopt(int descriptor)
{
    int file = SIM_DEVICES_MAX;
    while (file < files_end && files[file] >= 0)
        file++;
    if (file == FILES_MAX)
        return -1;
    files_end += file == files_end;
    files[file] = descriptor;
    return file;
}

void sim_backing_abandon(int file, bool closes)
{
    if (closes)
        close(files[file]);
    files[file] = -1;
}

int sim_backing_descriptor(int file)
{
    return files[file];
}

/* Where the header of a run lies. Returns: -1 when the file is not laid out like ours. */
static off_t header_place(int descriptor, uint64_t offset)
{
    struct stat status;
    if (fstat(descriptor, &status) || !S_ISREG(status.st_mode) || offset % RUN_UNIT)
        return -1;
    uint64_t parts = (uint64_t)status.st_size / (RUN_UNIT + SIM_BACKING_HEADER);
    if (offset / RUN_UNIT >= parts)
        return -1;
    return (off_t)(parts * RUN_UNIT + offset / RUN_UNIT * SIM_BACKING_HEADER);
}

bool sim_backing_put_header(int descriptor, uint64_t offset, const void *header, uint64_t size)
{
    off_t place = header_place(descriptor, offset);
    return place >= 0 && pwrite(descriptor, header, size, place) == (ssize_t)size;
}

bool sim_backing_get_header(int descriptor, uint64_t offset, void *header, uint64_t size)
{
    off_t place = header_place(descriptor, offset);
    return place >= 0 && pread(descriptor, header, size, place) == (ssize_t)size;
}

bool sim_backing_on(void)
{
    return is_on;
}

static void complain(const char *what, uint64_t base, uint64_t size)
{
    if (has_complained)
        return;
    has_complained = true;
    fprintf(stderr,
            "seamalloc: simulated device: the host refused to %s [%#llx, +%llu): %s%s\n"
            "    (said once; the call answers out of memory)\n",
            what, (unsigned long long)base, (unsigned long long)size, strerror(errno),
            errno == ENOMEM ? "; see /proc/sys/vm/max_map_count" : "");
}

bool sim_backing_reserve(uint64_t base, uint64_t size)
{
    if (!is_on)
        return true;
    void *p = mmap((void *)base, size, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (p == (void *)base)
        return true;
    if (p != MAP_FAILED) /* a kernel that does not know NOREPLACE takes the address as a hint */
        munmap(p, size);
    else if (errno != EEXIST)
        complain("reserve", base, size);
    return false;
}

bool sim_backing_show(uint64_t base, uint64_t size, int file, uint64_t offset)
{
    if (!is_on)
        return true;
    void *p =
        mmap((void *)base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, files[file], (off_t)offset);
    if (p != MAP_FAILED)
        return true;
    complain("map", base, size);
    return false;
}

void sim_backing_hide(uint64_t base, uint64_t size)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (!is_on || mmap((void *)base, size, PROT_NONE, flags | MAP_FIXED, -1, 0) != MAP_FAILED)
        return;
    /* At the limit of maps one cannot be replaced, but it can be taken away, and that makes room for its
     * successor. */
    if (munmap((void *)base, size) == 0 &&
        mmap((void *)base, size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0) == (void *)base)
        return;
    /* What is left is a piece in the middle of a map, which could only be split. Its bytes stay visible
     * there; the tables do not know them, and the next map at this address replaces them. */
    complain("hide", base, size);
}

void sim_backing_release(uint64_t base, uint64_t size)
{
    if (is_on && munmap((void *)base, size))
        complain("release", base, size);
}

uint64_t sim_backing_host_alloc(uint64_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? 0 : (uint64_t)(uintptr_t)p;
}

void sim_backing_host_free(uint64_t base, uint64_t size)
{
    munmap((void *)base, size);
}

void sim_backing_forget(int device, uint64_t offset, uint64_t size)
{
    if (is_on)
        fallocate(files[device], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
}

void sim_backing_read(int device, uint64_t offset, void *out, uint64_t size)
{
    char *to = out;
    while (size > 0) {
        ssize_t n = pread(files[device], to, size, (off_t)offset);
        if (n <= 0) {
            memset(to, 0, size);
            return;
        }
        to += n;
        offset += (uint64_t)n;
        size -= (uint64_t)n;
    }
}

uint64_t sim_backing_run(int device, uint64_t offset, uint64_t size, bool *is_data)
{
    off_t data = lseek(files[device], (off_t)offset, SEEK_DATA);
    if (data < 0 || (uint64_t)data > offset) { /* no data at all, or none here */
        uint64_t hole = data < 0 ? size : (uint64_t)data - offset;
        *is_data = false;
        return hole < size ? hole : size;
    }
    off_t hole = lseek(files[device], (off_t)offset, SEEK_HOLE);
    uint64_t run = hole < 0 ? size : (uint64_t)hole - offset;
    *is_data = true;
    return run < size ? run : size;
}
