/* SPDX-License-Identifier: Apache-2.0 */
/* face: the functions that PyTorch finds by name in libseamalloc_torch.so.
 *
 * The signatures are PyTorch's (CUDAPluggableAllocator and its setters). Two C++ types cross this border,
 * both as the x86-64 and AArch64 calling conventions pass them: MempoolId_t, a pair of two unsigned long
 * long, is seam_pool_id; a std::function passed by value is the address of the caller's copy, which is not
 * looked at.
 *
 * Errors leave as C++ exceptions (throw.h), because the interface has no other way to report one and PyTorch
 * takes NULL for memory. They are thrown here, outermost, when no lock of the library is held. What PyTorch
 * calls from destructors (free, end and release of a pool) never throws; seam_last_error() keeps what went
 * wrong.
 *
 * Thread: any thread, any time. */
#ifndef SEAMALLOC_TORCH_FACE_H
#define SEAMALLOC_TORCH_FACE_H

#include <seamalloc/seamalloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* PyTorch is about to use CUDA. Throws when the library cannot start. */
SEAM_API void seam_torch_init(int device_count);

/* A block; NULL only for size 0. Throws for every failure. */
SEAM_API void *seam_torch_alloc(size_t size, int device, seam_stream stream);

/* Gives a block back. Only the pointer counts: some versions of PyTorch hand in the size, device and stream
 * of another block that once had the same address. NULL and foreign pointers are passed over. */
SEAM_API void seam_torch_free(void *block, size_t size, int device, seam_stream stream);

/* torch.cuda.empty_cache(). Throws when the driver refuses. */
SEAM_API void seam_torch_reset(void);

/* torch.cuda.set_per_process_memory_fraction(). Throws when refused. */
SEAM_API void seam_torch_memory_fraction(double fraction, int device);

/* The block that holds an address, and its size; for an address that is not ours the address itself and 0. */
SEAM_API void *seam_torch_base_alloc(void *address, size_t *size);

/* Tensor.record_stream(). NULL and foreign pointers are passed over, as by PyTorch's own allocator. Throws
 * when the use could not be noted: reuse of the memory would not be safe then. */
SEAM_API void seam_torch_record_stream(void *block, seam_stream stream);

/* Graph capture: what is asked for between begin and end on a capturing stream, or by the calling thread,
 * comes from the pool. Begin throws. */
SEAM_API void seam_torch_begin_allocate_to_pool(int device, seam_pool_id pool, void *filter);
SEAM_API void seam_torch_end_allocate_to_pool(int device, seam_pool_id pool);
SEAM_API void seam_torch_release_pool(int device, seam_pool_id pool);

/* Out of memory is thrown by this function instead of as a std::runtime_error; it must not return. NULL: as
 * before. The part that knows PyTorch's own exception (torch-glue/native) puts itself in here. */
SEAM_API void seam_torch_set_throw(void (*thrower)(const char *text));

#ifdef __cplusplus
}
#endif

#endif
