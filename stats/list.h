/* SPDX-License-Identifier: Apache-2.0 */
/* list: every figure of the statistics, once. Structs, JSON, tables, Python keys and docs/statistics.md
 * follow from it.
 *
 * A *level* goes up and down: {current, peak, in, out} for {all, small_pool, large_pool}; in and out are
 * running sums of rises and falls. A *counter* only rises. A *part* (base/parts.h) says what reserved bytes
 * are doing at an instant. The small_pool and large_pool keys follow PyTorch's line, 1 MiB of rounded size
 * inclusive, whatever the size class. */
#ifndef SEAM_STATS_LIST_H
#define SEAM_STATS_LIST_H

/* X(name, unit, meaning, "when it moves") */
#define SM_LEVELS(X)                                                                                         \
    X(allocation, COUNT, "blocks handed out", "+ alloc, - free request")                                     \
    X(allocated_bytes, BYTES, "bytes handed out, after rounding", "+ alloc, - free request")                 \
    X(requested_bytes, BYTES, "bytes asked for", "+ alloc, - free completed")                                \
    X(active, COUNT, "blocks handed out or pending", "+ alloc, - free completed")                            \
    X(active_bytes, BYTES, "bytes handed out or pending", "+ alloc, - free completed")                       \
    X(reserved_bytes, BYTES, "bytes of handles held, each once", "+ create, - release")                      \
    X(segment, COUNT, "contiguous mapped home ranges", "map, unmap")                                         \
    X(inactive_split, COUNT, "free ranges that share a handle with other bytes", "alloc, free")              \
    X(inactive_split_bytes, BYTES, "free bytes in handles that hold other bytes", "alloc, free")             \
    X(mapped_bytes, BYTES, "bytes mapped, views included", "map, unmap")                                     \
    X(mappings, COUNT, "mappings, views included", "map, unmap")                                             \
    X(view_bytes, BYTES, "bytes mapped a second time, in views", "view made, evicted")                       \
    X(reserved_address_bytes, BYTES, "bytes of reserved address space", "reserve, address free")             \
    X(handles, COUNT, "handles held", "create, release")                                                     \
    X(events, COUNT, "driver events held", "event create, destroy")

/* X(name, unit, meaning) */
#define SM_COUNTERS(X)                                                                                       \
    X(num_alloc_retries, COUNT, "requests that were tried again after reclaim")                              \
    X(num_ooms, COUNT, "requests that failed for lack of memory")                                            \
    X(num_device_alloc, COUNT, "growths: times that handles were created and mapped")                        \
    X(num_device_free, COUNT, "trims: times that handles were unmapped and released")                        \
    X(num_sync_all_streams, COUNT, "waits for all pending blocks")                                           \
    X(hits, COUNT, "requests served from a free range")                                                      \
    X(view_hits, COUNT, "requests served from a kept view")                                                  \
    X(misses, COUNT, "requests that needed driver calls")                                                    \
    X(stitches, COUNT, "blocks joined from several ranges")                                                  \
    X(pieces, COUNT, "pieces of stitched blocks")                                                            \
    X(borrows, COUNT, "requests served with another stream's memory")                                        \
    X(splits, COUNT, "free ranges divided")                                                                  \
    X(merges, COUNT, "free ranges joined with a neighbour")                                                  \
    X(growths, COUNT, "growths that succeeded")                                                              \
    X(rollbacks, COUNT, "driver sequences undone after a failed call")                                       \
    X(fence_waits, COUNT, "blocks that had to wait for another stream")                                      \
    X(event_waits, COUNT, "host waits for events or streams")                                                \
    X(trims, COUNT, "trims that returned memory")                                                            \
    X(gc_runs, COUNT, "collections because of garbage_collection_threshold")                                 \
    X(limit_refusals, COUNT, "growths refused by the limit before asking the driver")                        \
    X(unknown_frees, COUNT, "frees of pointers that are no live block")                                      \
    X(driver_errors, COUNT, "driver calls that failed")

#define SM_SPLIT_SMALL_MAX ((uint64_t)1 << 20) /* PyTorch's line between small_pool and large_pool */

#endif
