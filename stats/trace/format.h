/* SPDX-License-Identifier: Apache-2.0 */
/* format: the bytes of a recording (docs/trace.md), and what turns events into them and back.
 *
 * A file is a header, blocks, and an end mark. A block stands alone: its events are coded against a state
 * that begins anew with it, and its checksum covers its head and its bytes; so a file that breaks off is good
 * up to its last whole block. All numbers of the frame are little-endian, those of events are varints (seven
 * bits a byte, low first).
 *
 * Thread: pure; a codec belongs to whoever writes or reads the block. */
#ifndef SEAM_STATS_TRACE_FORMAT_H
#define SEAM_STATS_TRACE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SM_TRACE_VERSION 1

enum sm_trace_action {
    SM_TRACE_ALLOC,
    SM_TRACE_FREE,
    SM_TRACE_RECORD_STREAM,
    SM_TRACE_FAIL,
    SM_TRACE_TRIM,
    SM_TRACE_POOL_BEGIN,
    SM_TRACE_POOL_END,
    SM_TRACE_POOL_RELEASE,
    SM_TRACE_PHASE_ENTER,
    SM_TRACE_PHASE_LEAVE,
    SM_TRACE_PHASE_MARK, /* leaves the phase that the last mark entered, and enters this one */
    SM_TRACE_DEVICE,     /* no event: id is the granularity, size the total bytes, name the device's */
    SM_TRACE_LOST,       /* no event: size events could not be kept */
    SM_TRACE_ACTION_COUNT
};

#define SM_TRACE_DEVICES_ALL UINT32_MAX
#define SM_TRACE_NAME_MAX    127

struct sm_trace_event {
    enum sm_trace_action action;
    uint64_t id;           /* ALLOC, FREE, RECORD_STREAM: of the block */
    uint64_t size;         /* ALLOC, FAIL: bytes asked for */
    uint64_t stream, pool; /* small numbers; 0: the default one */
    uint32_t device;       /* TRIM: may be SM_TRACE_DEVICES_ALL */
    uint32_t thread;
    uint32_t result;  /* FAIL: a seam_result, or 0 when it is not known */
    const char *name; /* phases, DEVICE */
};

/* What the coding of an event leans on; zeroed at the start of a block. */
struct sm_trace_codec {
    uint64_t id, stream;
    uint32_t device, thread;
};

/* Most bytes of one event. */
#define SM_TRACE_EVENT_MAX 256

/* Requires: room for SM_TRACE_EVENT_MAX; a name is cut at SM_TRACE_NAME_MAX. Returns: bytes written. */
size_t sm_trace_encode(struct sm_trace_codec *codec, const struct sm_trace_event *event, uint8_t *to);
/* Fills name (SM_TRACE_NAME_MAX + 1 bytes) where the event has one. Returns: bytes read, or 0 when what
 * stands there is no event. */
size_t sm_trace_decode(struct sm_trace_codec *codec, const uint8_t *from, size_t size,
                       struct sm_trace_event *event, char *name);

#define SM_TRACE_MAGIC "SEAMTRC\n" /* 8 bytes */
/* Magic, version and the length of the text as 32 bits each, the text (JSON), the CRC of all before. */
#define SM_TRACE_HEAD_BYTES 16
#define SM_TRACE_TEXT_MAX   ((size_t)1 << 16)

enum sm_trace_coding { SM_TRACE_RAW, SM_TRACE_ZSTD };

#define SM_TRACE_BLOCK_MARK 0x314b4c42u /* "BLK1" */
/* "END1": the head of a block without bytes; first_event is the number of events, events that of the lost. */
#define SM_TRACE_END_MARK 0x31444e45u
#define SM_TRACE_RAW_MAX  ((size_t)1 << 22)

/* The head of a block, 40 bytes as it stands in the file. The checksum is the CRC of the head before it, then
 * of the bytes. */
struct sm_trace_block {
    uint32_t mark, coding, stored_bytes, raw_bytes;
    uint64_t first_event, events;
    uint32_t reserved, checksum;
};
_Static_assert(sizeof(struct sm_trace_block) == 40, "it is written as it lies");

/* CRC-32 as zlib has it; crc 0 to begin with. */
uint32_t sm_trace_crc(uint32_t crc, const void *bytes, size_t size);
uint32_t sm_trace_block_crc(const struct sm_trace_block *block, const void *bytes);

/* ---- zstd.c ---- */

/* zstd is looked for when a recording begins or is read, so that the library itself depends on libc alone;
 * without it blocks are stored as they are. Returns: false when there is none. Thread: safe. */
bool sm_zstd_load(void);
/* Requires: loaded. A context, or NULL. */
void *sm_zstd_create(void);
void sm_zstd_destroy(void *context);
/* Returns: bytes written, or 0 when it would take more than `capacity`. */
size_t sm_zstd_compress(void *context, void *to, size_t capacity, const void *from, size_t size);
/* Returns: whether it gave exactly `size` bytes. */
bool sm_zstd_decompress(void *to, size_t size, const void *from, size_t stored);

#endif
