/* SPDX-License-Identifier: Apache-2.0 */
/* seamalloc: a caching allocator for CUDA devices on the driver's virtual memory management calls.
 *
 * Model. A *device* is a CUDA ordinal. A *stream* is a CUstream (NULL: the legacy default stream). A *block*
 * is what seam_malloc() hands out: a multiple of 512 bytes, aligned to 512 bytes, readable and writable from
 * its device. A block belongs to the stream it was asked for: after seam_free() work on that stream may reuse
 * it at once; any other stream that used it must have been named by seam_record_stream() before.
 *
 * Sizes are bytes. All functions may be called from any thread at any time, unless said otherwise. No
 * function needs a current CUDA context; each restores the caller's. In a forked child every function that
 * would touch a device fails with SEAM_E_STATE. Loading the library calls no CUDA function.
 *
 * Errors. Functions return a seam_result, or NULL from seam_malloc(); seam_last_error() then gives the
 * calling thread's text: what was wrong, where, and what would be right. Nothing is half done after an error.
 */
#ifndef SEAMALLOC_H
#define SEAMALLOC_H

#include <seamalloc/result.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SEAM_API        __attribute__((visibility("default")))
#define SEAM_MUST_CHECK __attribute__((warn_unused_result))
#else
#define SEAM_API
#define SEAM_MUST_CHECK
#endif

/* A CUstream or cudaStream_t: the two are one type. */
typedef struct CUstream_st *seam_stream;

/* Names a private pool, as PyTorch's MempoolId_t does. {0, 0} is the default pool. */
struct seam_pool_id {
    unsigned long long first, second;
};
typedef struct seam_pool_id seam_pool_id;

/* ---- version, errors, settings ------------------------------------------------------------------------- */

/* Version of the library, "major.minor.patch". Never fails. */
SEAM_API const char *seam_version(void);

/* The name ("SEAM_E_LIMIT") and the meaning of a result code; "unknown result" for a number that is none. */
SEAM_API const char *seam_result_name(seam_result result);
SEAM_API const char *seam_result_text(seam_result result);

/* The text and the code of the calling thread's last failed call; "" and SEAM_OK if none failed yet. A call
 * that succeeds leaves both as they were. The text stays valid until the thread's next failed call. */
SEAM_API const char *seam_last_error(void);
SEAM_API seam_result seam_last_result(void);

/* Sets options from a string "key:value,key:value" (docs/options.md). They take precedence over the variables
 * SEAMALLOC_CONF, PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF, which are read at the first use.
 * Errors: SEAM_E_OPTION (text names key, position and valid values; nothing was applied), SEAM_E_STATE after
 * the first allocation, SEAM_E_IO when a named file cannot be read. */
SEAM_API SEAM_MUST_CHECK seam_result seam_configure(const char *options);

/* Writes the settings in force as such a string. Returns the length needed without the final 0; at most
 * capacity bytes are written, always ended by 0 when capacity > 0. */
SEAM_API size_t seam_settings(char *buffer, size_t capacity);

/* Loads the driver and reads the settings; done by the first allocation if not before.
 * Errors: SEAM_E_NO_DRIVER, SEAM_E_OPTION, SEAM_E_DEVICE, SEAM_E_HOST_OOM, SEAM_E_STATE (forked child). */
SEAM_API SEAM_MUST_CHECK seam_result seam_init(void);

/* Number of devices; 0 before seam_init() or when there is none. */
SEAM_API int seam_device_count(void);

/* ---- memory -------------------------------------------------------------------------------------------- */

/* A block of at least size bytes on a device, for work on the stream. size 0 gives NULL without an error.
 * On failure NULL; seam_last_result() is SEAM_E_DEVICE_OOM, SEAM_E_LIMIT, SEAM_E_ARGUMENT, ... and the text
 * names the cause, the sizes, and the largest request that could be served. */
SEAM_API void *seam_malloc(size_t size, int device, seam_stream stream);

/* Gives a block back. NULL is allowed. Size, device and stream are not asked for: the address index knows.
 * Errors: SEAM_E_POINTER for what is no live block; it is counted and changes nothing. */
SEAM_API seam_result seam_free(void *block);

/* Says that work on another stream uses the block: after seam_free() it is reused only once that stream has
 * done what it had been given by then. The block's own stream is ignored. The stream must exist until the
 * block is freed. Errors: SEAM_E_POINTER, SEAM_E_HOST_OOM (the use is not noted), SEAM_E_ARGUMENT,
 * SEAM_E_STATE. */
SEAM_API seam_result seam_record_stream(void *block, seam_stream stream);

/* The block that holds an address, its size and where it begins. Errors: SEAM_E_POINTER. */
SEAM_API SEAM_MUST_CHECK seam_result seam_block_of(const void *address, void **block, size_t *size);

/* Gives memory that no block uses back to the driver: waits until the work that last used it is done.
 * device -1: every device. */
SEAM_API seam_result seam_trim(int device);

/* Limits what the allocator may hold on a device: a share of its memory, 0 <= fraction <= 1 (1: no limit).
 * Memory already held stays. Errors: SEAM_E_ARGUMENT. */
SEAM_API SEAM_MUST_CHECK seam_result seam_set_memory_fraction(double fraction, int device);
SEAM_API SEAM_MUST_CHECK seam_result seam_memory_fraction(int device, double *fraction);

/* Free and total bytes of the device, as the driver reports them (all processes). */
SEAM_API SEAM_MUST_CHECK seam_result seam_device_memory(int device, size_t *free_bytes, size_t *total_bytes);

/* ---- private pools (graph capture, separate heaps) -------------------------------------------------------
 */

/* Decides whether a request on this stream belongs to the pool being begun. Called by the requesting thread
 * inside seam_malloc(), with a lock held: it must be quick and must not call back into the library. */
typedef bool (*seam_pool_filter)(seam_stream stream, void *context);

/* From now on requests on the device for which the filter says yes are served from the pool, until
 * seam_pool_end(). Filter NULL: requests on streams that are being captured, and those of the calling thread.
 * Pools may be begun again and nest; the innermost match wins. Each begin counts as one use of the pool.
 * Errors: SEAM_E_ARGUMENT, SEAM_E_STATE when this pool is being filled already, SEAM_E_HOST_OOM. */
SEAM_API SEAM_MUST_CHECK seam_result seam_pool_begin(int device, seam_pool_id pool, seam_pool_filter filter,
                                                     void *context);
SEAM_API seam_result seam_pool_end(int device, seam_pool_id pool);

/* Drops one use. With no use left the pool's free memory may be given back: by seam_trim(), or when memory
 * is short. */
SEAM_API seam_result seam_pool_release(int device, seam_pool_id pool);

/* What the calling thread last began a pool for has come to its end. kept: nothing changes. Else it failed
 * (a capture that was broken), nobody will release it, and the begin is undone: the pool is ended, if it is
 * filled still, and the use dropped. Without such a begin, nothing. Errors: SEAM_E_STATE when the use was
 * dropped already. */
SEAM_API seam_result seam_pool_settle(bool kept);

/* ---- measurement ------------------------------------------------------------------------------------------
 */

/* Phases: named intervals with their own peaks, nested; they count the whole process. A name is a non-empty
 * string of at most 63 bytes without '/'. Errors: SEAM_E_ARGUMENT, SEAM_E_STATE (pop without push),
 * SEAM_E_HOST_OOM. */
SEAM_API seam_result seam_phase_push(const char *name);
SEAM_API seam_result seam_phase_pop(void);

/* Phases of the calling thread alone: they count its own requests and net bytes, on a stack of its own. */
SEAM_API seam_result seam_thread_phase_push(const char *name);
SEAM_API seam_result seam_thread_phase_pop(void);

/* Windows: like phases, but they may overlap others; closed by the number that open gave. */
SEAM_API SEAM_MUST_CHECK seam_result seam_window_open(const char *name, uint64_t *window);
SEAM_API seam_result seam_window_close(uint64_t window);

/* The statistics of a device (-1: all) as JSON ("seamalloc.stats", docs/statistics.md) or as a table for
 * people. Each returns the length needed without the final 0 and writes at most capacity bytes, always ended
 * by 0 when capacity > 0; 0 on failure. */
SEAM_API size_t seam_stats_json(int device, char *buffer, size_t capacity);
SEAM_API size_t seam_stats_table(int device, char *buffer, size_t capacity);

/* One figure by its dotted name, e.g. "allocated_bytes.all.peak" or "gap.rounding" (docs/statistics.md lists
 * them). Errors: SEAM_E_ARGUMENT for a name that is none. */
SEAM_API SEAM_MUST_CHECK seam_result seam_stat(int device, const char *name, int64_t *value);

/* peak := current for every level; nothing else changes. */
SEAM_API seam_result seam_reset_peaks(int device);
/* Running totals (in, out) and event counters := 0. */
SEAM_API seam_result seam_reset_totals(int device);

/* ---- recording ---------------------------------------------------------------------------------------- */

/* Records every request from now on into a file (docs/trace.md), until seam_trace_stop(), seam_shutdown() or
 * the end of the process; "%p" in the path becomes the process's number. Blocks that are live already come
 * first. The file is whole up to its last block whatever happens to the process. The option trace:FILE does
 * the same from the first request on.
 * Errors: SEAM_E_ARGUMENT, SEAM_E_STATE when a recording runs, SEAM_E_IO, SEAM_E_HOST_OOM; as seam_init(). */
SEAM_API SEAM_MUST_CHECK seam_result seam_trace_start(const char *path);
/* Writes what is left and closes the file. Errors: SEAM_E_STATE when none runs, SEAM_E_IO when it is not
 * whole. */
SEAM_API seam_result seam_trace_stop(void);

/* ---- checking and leaving
 * ---------------------------------------------------------------------------------- */

/* Walks all bookkeeping and compares it with the counters. SEAM_OK, or SEAM_E_STATE with the first
 * contradiction in seam_last_error(). Slow; for tests and for reports. */
SEAM_API SEAM_MUST_CHECK seam_result seam_validate(void);

/* Gives everything back and forgets all devices and settings. Live blocks become invalid: the caller has
 * ended all work on them. Not while another thread is inside the library. */
SEAM_API seam_result seam_shutdown(void);

#ifdef __cplusplus
}
#endif

#endif
