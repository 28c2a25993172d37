/* SPDX-License-Identifier: Apache-2.0 */
/* hostmem: the only door to host memory.
 *
 * 1. Where the process has jemalloc (mallocx, sdallocx, mallctl are bound weakly), metadata comes from an
 * arena of its own; elsewhere from libc. No library of ours links jemalloc.
 * 2. Sizes are given back at free, so that the bytes in use are known exactly.
 * 3. sm_slab serves records of one size: a list of free records, refilled from hostmem in chunks that double
 * up to a limit, so that taking a record allocates only when a chunk is used up.
 * 4. Every allocation passes one fault counter, so that tests can fail each of them.
 *
 * Thread: sm_hostmem_* safe; a slab is protected by its owner's lock. */
#ifndef SEAM_BASE_HOSTMEM_H
#define SEAM_BASE_HOSTMEM_H

#include "base/fault.h"
#include <stddef.h>

/* Returns: zeroed memory of size bytes aligned to 16, or NULL. Requires: size > 0. */
void *sm_hostmem_get(size_t size);
/* Grows or shrinks; new bytes are zero. On failure NULL, and the old memory is untouched. memory NULL: like
 * get. */
void *sm_hostmem_resize(void *memory, size_t old_size, size_t size);
/* memory NULL is allowed. Requires: size is what was asked for. */
void sm_hostmem_put(void *memory, size_t size);

/* Bytes in use and their peak; "jemalloc" or "libc". */
size_t sm_hostmem_bytes(void);
size_t sm_hostmem_bytes_peak(void);
const char *sm_hostmem_source(void);

/* Armed by tests: see base/fault.h. */
struct sm_fault *sm_hostmem_fault(void);

struct sm_slab_chunk;
struct sm_slab {
    size_t record_size;           /* immutable after init */
    void *free_records;           /* linked through their first word */
    struct sm_slab_chunk *chunks; /* newest first */
    size_t count;                 /* records handed out */
    size_t capacity;              /* records in all chunks */
};

/* Requires: record_size >= sizeof(void *). Allocates nothing. */
void sm_slab_init(struct sm_slab *slab, size_t record_size);
/* Gives all chunks back, whatever is still handed out. */
void sm_slab_fini(struct sm_slab *slab);
/* Makes sure that the next `records` takes cannot fail. Returns: false when out of host memory; nothing
 * changed. */
bool sm_slab_reserve(struct sm_slab *slab, size_t records);
/* Returns: a zeroed record, or NULL. */
void *sm_slab_take(struct sm_slab *slab);
void sm_slab_give(struct sm_slab *slab, void *record);
/* `records` free records go over into *loan, which may then be used like a slab, under another lock, as long
 * as it has some left. Records of the one may be given back to the other. Unlend ends the loan: what *loan
 * has free goes back, what it handed out counts as handed out by the slab.
 * Requires: the slab has so many free records. */
void sm_slab_lend(struct sm_slab *slab, struct sm_slab *loan, size_t records);
/* So many more go over into a loan that runs. */
void sm_slab_lend_more(struct sm_slab *slab, struct sm_slab *loan, size_t records);
void sm_slab_unlend(struct sm_slab *slab, struct sm_slab *loan);

#endif
