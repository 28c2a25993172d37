/* SPDX-License-Identifier: Apache-2.0 */
/* ledger: see ledger.h.
 *
 * Joining and leaving are made under a file lock on the whole, so that nobody joins what is being taken away.
 * The locks are those of the process: a forked child has none of them, and closing its copy of the descriptor
 * does not release its parent's. */
#include "sim/core/ledger.h"
#include "base/align.h"
#include "sim/core/calls.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x3172656764656c73u /* "sledger1" */

enum { SLOTS = 256, JOINING = 0, FIRST_SLOT = 1 }; /* bytes of the file that locks are about */

struct slot {
    uint64_t is_taken;
    uint64_t used[SIM_DEVICES_MAX];
};

struct ledger {
    uint64_t magic, gone; /* gone: taken away; who opened it meanwhile opens again */
    uint64_t devices, device_bytes, granularity;
    pthread_mutex_t mutex;
    uint64_t ended, died, violations;
    uint64_t peak[SIM_DEVICES_MAX];
    uint64_t calls[SIM_DEVICES_MAX][SIM_CALL_COUNT];
    struct slot slots[SLOTS];
};

static struct ledger *ledger; /* NULL: alone */
static int file = -1;
static int own_slot;
static pid_t owner; /* who joined: a forked child has only a copy */
static char path[256];

static bool complain(const char *what, const char *why)
{
    fprintf(stderr, "seamalloc: simulated CUDA device: SEAMALLOC_SIM_SHARE: %s: %s\n", what, why);
    return false;
}

static bool lock_byte(int descriptor, int byte, short type, bool waits)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(descriptor, waits ? F_SETLKW : F_SETLK, &lock) == 0;
}

/* Does another process hold the lock of a slot? */
static bool is_alive(int slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = FIRST_SLOT + slot, .l_len = 1};
    return slot == own_slot || (fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK);
}

static void take_mutex(void)
{
    /* Who died with it has changed one number or none: there is nothing to repair. */
    if (pthread_mutex_lock(&ledger->mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&ledger->mutex);
}

static void give_mutex(void)
{
    pthread_mutex_unlock(&ledger->mutex);
}

/* Clears the slots of the dead. Requires: the mutex. Returns: how many others live. */
static int sweep(void)
{
    int living = 0;
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &ledger->slots[i];
        if (i == own_slot || !slot->is_taken)
            continue;
        if (is_alive(i)) {
            living++;
            continue;
        }
        *slot = (struct slot){0};
        ledger->died++;
    }
    return living;
}

static void make_new(const struct sim_config *config)
{
    pthread_mutexattr_t attributes;
    memset(ledger, 0, sizeof *ledger);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&ledger->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    ledger->devices = (uint64_t)config->devices;
    ledger->device_bytes = config->device_bytes;
    ledger->granularity = config->granularity;
    ledger->magic = MAGIC;
}

/* Opens and maps the shared memory, with the lock for joining held. */
static bool open_file(const struct sim_config *config)
{
    file = shm_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return complain(path, strerror(errno));
    struct stat status;
    if (!lock_byte(file, JOINING, F_WRLCK, true) || fstat(file, &status) ||
        (status.st_size < (off_t)sizeof *ledger && ftruncate(file, sizeof *ledger))) {
        close(file);
        return complain(path, strerror(errno));
    }
    void *p = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (p == MAP_FAILED) {
        close(file);
        return complain(path, strerror(errno));
    }
    ledger = p;
    if (ledger->gone && status.st_nlink) /* who took it away died before its name was gone */
        shm_unlink(path);
    if (!ledger->gone) {
        own_slot = -1;
        if (ledger->magic != MAGIC || sweep() == 0) /* nobody uses it: begin anew */
            make_new(config);
    }
    return true;
}

static void close_file(void)
{
    munmap(ledger, sizeof *ledger);
    ledger = NULL;
    close(file); /* with all its locks */
    file = -1;
}

static bool take_slot(void)
{
    for (own_slot = 0; own_slot < SLOTS; own_slot++)
        if (!ledger->slots[own_slot].is_taken && lock_byte(file, FIRST_SLOT + own_slot, F_WRLCK, false)) {
            ledger->slots[own_slot] = (struct slot){.is_taken = 1};
            return true;
        }
    return complain(path, "too many processes");
}

static bool fits(const struct sim_config *config)
{
    char text[160];
    if (ledger->devices == (uint64_t)config->devices && ledger->device_bytes == config->device_bytes &&
        ledger->granularity == config->granularity)
        return true;
    snprintf(text, sizeof text, "in use with %llu devices of %llu MiB, not %d of %llu MiB",
             (unsigned long long)ledger->devices, (unsigned long long)(ledger->device_bytes / SM_MIB),
             config->devices, (unsigned long long)(config->device_bytes / SM_MIB));
    return complain(config->share, text);
}

bool sim_ledger_join(const struct sim_config *config)
{
    if (!config->share || !*config->share)
        return true;
    snprintf(path, sizeof path, "/seamalloc-sim-%u-%s", (unsigned)getuid(), config->share);
    do {
        if (ledger)
            close_file(); /* it was taken away between opening and locking */
        if (!open_file(config))
            return false;
    } while (ledger->gone);
    if (!fits(config) || !take_slot()) {
        close_file();
        return false;
    }
    owner = getpid();
    lock_byte(file, JOINING, F_UNLCK, true);
    return true;
}

void sim_ledger_leave(void)
{
    if (!ledger)
        return;
    if (owner != getpid()) {
        close_file();
        return;
    }
    lock_byte(file, JOINING, F_WRLCK, true);
    take_mutex();
    for (int device = 0; device < SIM_DEVICES_MAX; device++)
        for (int call = 0; call < SIM_CALL_COUNT; call++)
            ledger->calls[device][call] += sim_call_count(device, call);
    ledger->violations += sim_violation_count();
    ledger->ended++;
    ledger->slots[own_slot] = (struct slot){0};
    if (sweep() == 0) {
        ledger->gone = 1;
        shm_unlink(path);
    }
    give_mutex();
    close_file();
}

static uint64_t others(int device)
{
    uint64_t sum = 0;
    for (int i = 0; i < SLOTS; i++)
        sum += i == own_slot ? 0 : ledger->slots[i].used[device];
    return sum;
}

bool sim_ledger_take(int device, int64_t bytes, uint64_t limit)
{
    bool taken = false;
    if (!ledger)
        return true;
    take_mutex();
    uint64_t *used = &ledger->slots[own_slot].used[device], sum = others(device) + *used;
    if (bytes > 0 && sum + (uint64_t)bytes > limit) { /* look for the dead only when it matters */
        sweep();
        sum = others(device) + *used;
    }
    if (bytes <= 0 || sum + (uint64_t)bytes <= limit) {
        *used += (uint64_t)bytes;
        ledger->peak[device] = sm_max(ledger->peak[device], sum + (uint64_t)bytes);
        taken = true;
    }
    give_mutex();
    return taken;
}

uint64_t sim_ledger_others(int device)
{
    if (!ledger)
        return 0;
    take_mutex();
    sweep();
    uint64_t sum = others(device);
    give_mutex();
    return sum;
}

bool sim_ledger_figures(struct sim_ledger_figures *figures)
{
    if (!ledger)
        return false;
    take_mutex();
    *figures = (struct sim_ledger_figures){.running = (uint64_t)sweep() + 1,
                                           .ended = ledger->ended,
                                           .died = ledger->died,
                                           .violations = ledger->violations};
    for (int d = 0; d < SIM_DEVICES_MAX; d++) {
        figures->devices[d].bytes = others(d) + ledger->slots[own_slot].used[d];
        figures->devices[d].peak_bytes = ledger->peak[d];
    }
    give_mutex();
    return true;
}

uint64_t sim_ledger_calls(int device, int call)
{
    if (!ledger)
        return 0;
    take_mutex();
    uint64_t count = ledger->calls[device][call];
    give_mutex();
    return count;
}
