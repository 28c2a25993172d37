/* SPDX-License-Identifier: Apache-2.0 */
/* parts: what each byte of reserved memory is doing at an instant.
 *
 * The heap keeps the sums, the statistics read them; the identity
 *     reserved = requested_live + rounding + pending + fenced + held_free + whole_free
 * holds after every operation and is checked by the validator. */
#ifndef SEAM_BASE_PARTS_H
#define SEAM_BASE_PARTS_H

#include <stdint.h>

/* X(name, meaning, what helps) */
#define SM_PARTS(X)                                                                                          \
    X(requested_live, "requested bytes of live blocks", "-")                                                 \
    X(rounding, "rounded minus requested bytes of live blocks", "finer rounding")                            \
    X(pending, "freed, another stream that used it has not finished", "fewer record_stream, earlier events") \
    X(fenced, "free, known to wait for its own stream (0: lending asks at the moment it wants memory)",      \
      "order between streams")                                                                               \
    X(held_free, "free, in handles that also hold other bytes: cannot be trimmed",                           \
      "stitching, smaller handles")                                                                          \
    X(whole_free, "free whole handles: a trim returns them", "trim, sizes that fit")

enum sm_part {
#define X(name, meaning, helps) SM_PART_##name,
    SM_PARTS(X)
#undef X
        SM_PART_COUNT
};

struct sm_parts {
    int64_t bytes[SM_PART_COUNT];
};

#endif
