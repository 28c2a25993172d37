/* SPDX-License-Identifier: Apache-2.0 */
/* sim: the control side of the simulated CUDA device.
 *
 * The device side is the CUDA driver API itself (cuda.h); a program that links `seam_sim`, or loads the
 * simulator as libcuda.so.1, calls it as it would call a driver. This header is what a test needs besides:
 * start with a chosen device, break a call, let a neighbour take memory, stop a stream, look into the
 * device's own books.
 *
 * The books are the device's, never the allocator's: whoever allocates, they count the same way.
 * Thread: every function here may be called from any thread, except sim_start and sim_reset, which need that
 * no other thread is inside a cu* or sim_* call. */
#ifndef SEAMALLOC_SIM_SIM_H
#define SEAMALLOC_SIM_SIM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_CONTROL __attribute__((visibility("default")))

#define SIM_DEVICES_MAX 16

/* When work that was put on a stream completes. */
enum sim_streams {
    SIM_STREAMS_IMMEDIATE, /* at once, unless its stream is held or waits for one that is */
    SIM_STREAMS_LAG,  /* after `lag` further device calls (launch, copy, fill, record, query), or when waited
                         for */
    SIM_STREAMS_LATE, /* when waited for; a program that only polls gets it after 10,000 such calls */
    SIM_STREAMS_RANDOM, /* like LAG, by a number below 64 that is drawn for each operation, from `seed` */
    SIM_STREAMS_TIMED   /* when the host's virtual clock has passed its end; see "virtual time" below */
};

/* What a device may lack, or claim to have and refuse. */
enum sim_feature {
    SIM_FEATURE_VMM = 1,    /* virtual memory management */
    SIM_FEATURE_EXPORT = 2, /* handles that can be shared as file descriptors */
    SIM_FEATURE_FABRIC = 4, /* handles that can be shared between machines: never there, but may be claimed */
    SIM_FEATURE_POOLS = 8,  /* cuMemAllocAsync and cuMemPoolCreate */
    SIM_FEATURE_PEERS = 16, /* access from one device to another's memory */
    SIM_FEATURE_MANAGED = 32, /* cuMemAllocManaged */
    SIM_FEATURE_RDMA = 64     /* handles that other hardware may write to (gpuDirectRDMACapable) */
};

/* What of a handle one mapping may show. Always whole units of the granularity. */
enum sim_partial {
    SIM_PARTIAL_WHOLE,  /* all of it */
    SIM_PARTIAL_PREFIX, /* its beginning */
    SIM_PARTIAL_INNER   /* any part */
};

struct sim_config {
    int devices;              /* 1 .. SIM_DEVICES_MAX */
    uint64_t device_bytes;    /* memory of each device, a multiple of the granularity */
    uint64_t granularity;     /* the minimum, a power of two; 2 MiB on current devices */
    uint64_t recommended;     /* what the device recommends, a power of two; 0: the minimum */
    uint64_t address_bytes;   /* budget of reserved addresses of each device; 0: what its arena holds */
    uint64_t mappings_max;    /* mappings with access a device may have; 0: no ceiling */
    const char *cost;         /* preset name, or the path of a cost file; NULL: "h100" */
    enum sim_streams streams; /* see above */
    uint64_t lag;             /* for SIM_STREAMS_LAG */
    uint64_t seed;            /* for SIM_STREAMS_RANDOM */
    bool plain_descend; /* plain allocations lie at falling addresses, as mmap places them; default rising */
    bool backed; /* memory is real host memory; else only the tables are kept, and copies move nothing */
    /* How drivers differ, in what a probe finds (as granularity and mappings_max are) ... */
    enum sim_partial partial; /* default: whole handles only */
    bool unmap_several;       /* one unmap may take several whole adjoining mappings; default true */
    /* ... and in what SEAMALLOC_SIM_DRIVER lists; all of it is off by default. */
    bool copies_fault;  /* a copy or fill of memory that is not there is taken, and faults on the device as a
                          kernel does; default: it is refused at the call */
    bool access_whole;  /* access is set for all mappings of a reservation in one call, or not at all */
    bool release_keeps; /* memory that was released stays taken while the reservation in which it was mapped
                              last is there */
    bool hints_refused; /* a reservation at a wished address fails */
    bool oversubscribe; /* allocations go on beyond the device's memory, up to twice as much */
    unsigned lacks;     /* features (enum sim_feature) that the device says not to have, and refuses */
    unsigned lies;      /* features that it says to have, and refuses all the same */
    uint64_t tenant_bytes; /* memory of each device that another tenant has from the start */
    bool strict;           /* a violation ends the process */
    bool log;              /* say on stderr, once a name, what was asked for and is not supported */
    bool uninitialised;    /* cuInit has not been called yet; default: it has */
    const char *share; /* the devices are shared with all processes that give this name; NULL: with none */
    uint32_t stuck_ms; /* a host wait on a held stream gives up after this; 0: never */
};

/* The device that is there when nobody says otherwise: one of 80 GiB, h100 costs, immediate streams, backed.
 */
SIM_CONTROL void sim_config_default(struct sim_config *config);

/* Takes over what the cost file or preset config->cost says about the rules in which drivers differ (its
 * lines "rule.NAME VALUE"), as the device that is loaded as a library does. sim_start alone takes the costs,
 * and the rules from *config. Returns: false, with a message on stderr and *config unchanged, for a file that
 * is none. */
SIM_CONTROL bool sim_config_rules(struct sim_config *config);

/* Starts the device described by `config`; whatever was there before is gone, counts and faults included.
 * No context is current afterwards. Returns false, with a message on stderr, for an impossible configuration
 * (what was there before is then untouched). */
SIM_CONTROL bool sim_start(const struct sim_config *config);

/* The same configuration again, as new. Pointers and handles of before mean nothing any more. */
SIM_CONTROL void sim_reset(void);

/* ---- faults ---- */

/* The nth (1: the next) call named `call` from now on fails with `error` and does nothing; with `forever`,
 * all later ones too. `call` is the documented name without version suffix ("cuMemCreate"). Up to 16 rules at
 * once. Returns false when `call` is no name of the driver API or no rule is left. */
SIM_CONTROL bool sim_fail(const char *call, uint64_t nth, bool forever, CUresult error);

/* The nth call of *any* memory, event or stream function fails (fault loops): with out of memory where the
 * driver may run out, with CUDA_ERROR_UNKNOWN elsewhere. Queries of state that cannot fail on a healthy
 * device (capture status, current context) are not counted. */
SIM_CONTROL void sim_fail_any(uint64_t nth, bool forever);

/* The same for the calls named in a comma-separated list. Returns false for an unknown name. */
SIM_CONTROL bool sim_fail_any_of(const char *calls, uint64_t nth, bool forever);

/* Arms what SEAMALLOC_SIM_FAIL would: a comma-separated list of CALL:N, CALL:N+ and CALL:N..M, each perhaps
 * with conditions, which then are all that is counted: ":size>=64M" (also >, <=, <, =; K, M and G are powers
 * of two) for calls that have a size, ":device=1" for calls about that device.
 * "cuMemCreate:2+:size>=64M:device=1" is each such creation from the second on. Returns false, with a message
 * on stderr and nothing armed, for a text that is not one.
 *
 * What happens to such a call may be said as well, once: ":error=CUDA_ERROR_NOT_PERMITTED" is its answer;
 * ":fault=CUDA_ERROR_ILLEGAL_ADDRESS" (an error that stays): it goes through, and the work it puts on a
 * stream faults on the device; of a call that puts none there, the device is broken from the thread's next
 * call on;
 * ":tenant=512M" (or -512M): it goes through, and before it another tenant takes (gives back) that much of
 * the device, or what there is. */
SIM_CONTROL bool sim_fail_text(const char *text);

SIM_CONTROL void sim_fail_clear(void);
/* Calls that failed on purpose since the start or the last sim_fail_clear. */
SIM_CONTROL uint64_t sim_fail_hits(void);

/* After this every call answers CUDA_ERROR_DEINITIALIZED, as a driver does once the process exits. */
SIM_CONTROL void sim_deinitialise(void);

/* The error that stays with a device since work on it faulted, or CUDA_SUCCESS. From then on every call made
 * in its context answers it, but those about the host alone (sim/core/sticky.c lists them). */
SIM_CONTROL CUresult sim_device_error(int device);

/* ---- the books ---- */

/* Calls of one function (documented name, versions and stream variants together), on all devices, and of all.
 */
SIM_CONTROL uint64_t sim_calls(const char *name);
SIM_CONTROL uint64_t sim_calls_total(void);
/* Calls that were answered "not supported" because the simulator does not implement them; those that a
 * library on top of the driver (a math library, say) reported with sim_note_unsupported are among them. */
SIM_CONTROL uint64_t sim_calls_unsupported(void);
/* Counts a call of a library's function that has no answer, by name, under "unsupported_calls". */
SIM_CONTROL void sim_note_unsupported(const char *name);
/* Modelled nanoseconds spent in calls of one function (NULL: in all). */
SIM_CONTROL uint64_t sim_driver_ns(const char *name);

/* Bytes of physical memory in use on a device (by this process, tenants apart), and the most there ever were.
 */
SIM_CONTROL uint64_t sim_physical_bytes(int device);
SIM_CONTROL uint64_t sim_physical_bytes_peak(int device);
/* The same for all processes that share the device. */
SIM_CONTROL uint64_t sim_shared_bytes(int device);
SIM_CONTROL uint64_t sim_shared_bytes_peak(int device);
SIM_CONTROL uint64_t sim_mapping_count(int device);

/* Another tenant of the device takes (+) or gives back (-) memory. Returns false when there is not so much.
 */
SIM_CONTROL bool sim_tenant(int device, int64_t bytes);
/* What nobody has of a device's memory: what cuMemGetInfo says. */
SIM_CONTROL uint64_t sim_device_left(int device);

struct sim_live {
    uint64_t handles;        /* of cuMemCreate, not yet returned: referenced or still mapped */
    uint64_t mappings;       /* of cuMemMap */
    uint64_t reservations;   /* of cuMemAddressReserve */
    uint64_t reserved_bytes; /* addresses in them */
    uint64_t allocations;    /* of cuMemAlloc, cuMemAllocAsync and their like */
    uint64_t host;           /* of cuMemHostAlloc and cuMemHostRegister */
    uint64_t events;
    uint64_t streams;
    uint64_t graphs; /* graphs and executable graphs */
    uint64_t pools;  /* made by cuMemPoolCreate */
};
SIM_CONTROL void sim_live(struct sim_live *live);

/* Which physical byte an address means: the number of the handle (1, 2, 3 ... in order of creation, never
 * given twice) and the offset in it. Two addresses are the same byte if and only if both agree. Plain
 * allocations are numbered in the same sequence. Returns false where nothing is mapped. Out-parameters may be
 * NULL. */
SIM_CONTROL bool sim_resolve(CUdeviceptr address, uint64_t *handle_id, uint64_t *offset);

/* May `device` read and write the byte at `address`? */
SIM_CONTROL bool sim_accessible(CUdeviceptr address, int device);

/* ---- streams ---- */

/* While held, nothing put on the stream completes, whoever waits for it. Released work completes at once. */
SIM_CONTROL CUresult sim_stream_hold(CUstream stream, bool hold);

/* Puts work on a stream that reads and writes [base, base + size); `ns` is its modelled time. The range is
 * checked as a kernel's would be: mapped, with access, not in use by unfinished work of another stream that
 * is not ordered before it; mapped still when it completes. Work that completes later than it was put really
 * writes there: the byte 0x3c, all over up to 64 KiB, else at both ends and some places between. size 0: work
 * that touches nothing. */
SIM_CONTROL CUresult sim_stream_work(CUstream stream, CUdeviceptr base, size_t size, uint64_t ns);

/* The next kernel that this thread launches moves so many bytes of device memory, which gives its modelled
 * time. 0: not known (its time then comes from its number of threads). */
SIM_CONTROL void sim_kernel_moves(uint64_t bytes);

/* The next kernel that this thread launches writes nothing outside [base, base + size), as far as its caller
 * can tell from its arguments. Small reads of other memory then stay what copies and fills wrote there. size
 * 0: it may write anywhere, which is also true without this call. */
SIM_CONTROL void sim_kernel_writes(CUdeviceptr base, size_t size);

/* The next kernel that this thread launches surely writes all of [base, base + size). The range is checked as
 * that of sim_stream_work. */
SIM_CONTROL void sim_kernel_surely_writes(CUdeviceptr base, size_t size);

/* Completes what is queued on a stream now (and what it waits for), held or not. */
SIM_CONTROL CUresult sim_stream_run(CUstream stream);

/* Unfinished operations on a stream. */
SIM_CONTROL size_t sim_stream_pending(CUstream stream);

/* ---- virtual time (SIM_STREAMS_TIMED) ----
 *
 * Nothing here is measured: times come from the cost preset and from shapes, and no real clock is read. In
 * the other modes the clock stands at 0, and work takes effect as the mode says, whatever its time. */

/* A piece of work by its shape. What it has nothing of is 0. */
struct sim_work {
    const char *name;       /* for the trace, must not go away; NULL: "work" */
    double operations;      /* arithmetic of a matrix product: 2 m n k */
    unsigned element_bytes; /* of its elements: narrow ones are faster */
    uint64_t memory_bytes;  /* read and written */
    uint64_t link_bytes;    /* sent to other devices */
    unsigned link_steps;    /* one after the other; 0: nothing is sent */
};

/* Puts work on a stream, as sim_stream_work does; its time is that of its shape. It costs the host a launch.
 */
SIM_CONTROL CUresult sim_stream_do(CUstream stream, CUdeviceptr base, size_t size,
                                   const struct sim_work *work);

enum sim_collective {
    SIM_ALL_REDUCE,
    SIM_ALL_GATHER,
    SIM_REDUCE_SCATTER,
    SIM_BROADCAST,
    SIM_REDUCE,
    SIM_GATHER,
    SIM_ALL_TO_ALL,
    SIM_SEND /* and receive */
};

/* Puts this rank's part in a collective on a stream: work on [base, base + size), whose time is that of a
 * ring of `ranks`. bytes: what the ranks have together when it is over (an all-gather: the gathered whole; an
 * all-reduce, a broadcast: the message). It does not wait for other ranks. */
SIM_CONTROL CUresult sim_stream_collective(CUstream stream, CUdeviceptr base, size_t size,
                                           enum sim_collective what, uint64_t bytes, int ranks);

/* The host's clock; 0 at the start. */
SIM_CONTROL uint64_t sim_host_ns(void);

/* The program itself was busy for so long, between two calls. */
SIM_CONTROL void sim_host_spend(uint64_t ns);

/* From now on, threads beside the program ask whether work is over and clear away what is (a watchdog), so
 * that it depends on real time who makes these calls. They then cost no virtual time: questions that are not
 * answered "not yet", and making and destroying events. The NCCL stand-in says so with its first
 * communicator. Until sim_start or sim_reset. */
SIM_CONTROL void sim_host_watched(void);

/* What a stream did until the end of the work that is on it. busy + waiting + idle = end - begin. */
struct sim_stream_time {
    uint64_t operations; /* kernels, copies, fills, host functions */
    uint64_t busy_ns;
    uint64_t waiting_ns; /* an operation was there, and waited for another stream */
    uint64_t idle_ns;    /* nothing was there */
    uint64_t begin_ns;   /* when the first operation could have begun */
    uint64_t end_ns;     /* the end of the last one */
};
/* Returns: false when nothing was put on the stream, or time is not modelled. */
SIM_CONTROL bool sim_stream_time(CUstream stream, struct sim_stream_time *time);

/* How much of a stream's waiting time was for another one. Where several were waited for at once, all of it
 * goes to the one that was last to end. */
SIM_CONTROL uint64_t sim_stream_waited_ns(CUstream stream, CUstream other);

/* Writes what happens from now on to a file in Chrome's trace event format (what SEAMALLOC_SIM_TRACE does);
 * NULL ends the file. Returns: false when it cannot. */
SIM_CONTROL bool sim_trace_to(const char *path);

/* ---- broken rules ---- */

struct sim_violation {
    const char
        *rule; /* short name, e.g. "map-over-mapping"; sim/core/rules.h lists them with their sources */
    const char *call; /* the driver call that broke it */
    uint64_t base;    /* the range it is about; 0, 0 where there is none */
    uint64_t size;
    int device;
    char text[160]; /* for people */
};
SIM_CONTROL size_t sim_violation_count(void);
/* The i-th since the start, oldest first; the first 1,024 are kept. Returns false beyond. */
SIM_CONTROL bool sim_violation(size_t i, struct sim_violation *violation);

/* Writes what happened lately to a range of device addresses, oldest first: what was reserved, mapped, given
 * access, unmapped, allocated and freed there, each with the number of the call. size 0: to the device at
 * all. The last 65,536 events of all ranges are kept, of which at most 24 are written. Returns how many were
 * written. */
SIM_CONTROL size_t sim_print_history(FILE *out, CUdeviceptr base, size_t size);

/* Writes what is there and was never given back, each kind with the call that made it, at most 10 of a kind.
 * Returns how much there is. Strict mode does this at exit, on stderr. */
SIM_CONTROL size_t sim_print_leaks(FILE *out);

/* ---- the record ---- */

/* Writes the device's JSON record (what SEAMALLOC_SIM_REPORT gets at exit). Returns false when it cannot. */
SIM_CONTROL bool sim_write_record(const char *path);
SIM_CONTROL void sim_print_record(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
