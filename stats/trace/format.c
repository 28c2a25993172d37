/* SPDX-License-Identifier: Apache-2.0 */
/* format: see format.h. An event is a tag byte, then only what differs from the event before.
 *
 * tag: the action in the low four bits; then flags, each for a number that follows in this order:
 *   PLACE   device and thread
 *   STREAM  stream
 *   POOL    pool (else 0)
 *   ID      for an allocation the id (else the last one plus 1)
 * then by action: ALLOC size; FREE and RECORD_STREAM the last id minus this one, zigzag; FAIL size, result;
 * DEVICE id, size, name; LOST size; phases a name (length, bytes), except LEAVE. */
#include "stats/trace/format.h"
#include <pthread.h>
#include <string.h>

enum { FLAG_PLACE = 0x10, FLAG_STREAM = 0x20, FLAG_POOL = 0x40, FLAG_ID = 0x80, ACTION = 0x0f };
_Static_assert(SM_TRACE_ACTION_COUNT <= ACTION + 1, "an action has four bits");

static inline uint8_t *put(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_name(uint8_t *at, const char *name)
{
    size_t length = name ? strnlen(name, SM_TRACE_NAME_MAX) : 0;
    at = put(at, length);
    memcpy(at, name ? name : "", length);
    return at + length;
}

static inline uint8_t *put_body(uint8_t *at, const struct sm_trace_codec *codec,
                                const struct sm_trace_event *event)
{
    int64_t back;
    switch (event->action) {
    case SM_TRACE_ALLOC:
    case SM_TRACE_LOST:
        return put(at, event->size);
    case SM_TRACE_FREE:
    case SM_TRACE_RECORD_STREAM:
        back = (int64_t)(codec->id - event->id);
        return put(at, (uint64_t)back << 1 ^ (back < 0 ? UINT64_MAX : 0));
    case SM_TRACE_FAIL:
        return put(put(at, event->size), event->result);
    case SM_TRACE_DEVICE:
        return put_name(put(put(at, event->id), event->size), event->name);
    case SM_TRACE_PHASE_ENTER:
    case SM_TRACE_PHASE_MARK:
        return put_name(at, event->name);
    default:
        return at;
    }
}

size_t sm_trace_encode(struct sm_trace_codec *codec, const struct sm_trace_event *event, uint8_t *to)
{
    uint8_t *at = to + 1;
    unsigned tag = event->action;
    if (event->device != codec->device || event->thread != codec->thread) {
        tag |= FLAG_PLACE;
        at = put(put(at, event->device), event->thread);
        codec->device = event->device;
        codec->thread = event->thread;
    }
    if (event->stream != codec->stream) {
        tag |= FLAG_STREAM;
        at = put(at, event->stream);
        codec->stream = event->stream;
    }
    if (event->pool) {
        tag |= FLAG_POOL;
        at = put(at, event->pool);
    }
    if (event->action == SM_TRACE_ALLOC) {
        if (event->id != codec->id + 1) {
            tag |= FLAG_ID;
            at = put(at, event->id);
        }
        codec->id = event->id;
    }
    to[0] = (uint8_t)tag;
    return (size_t)(put_body(at, codec, event) - to);
}

/* Where the decoder stands; at NULL once something was wrong. */
struct cursor {
    const uint8_t *at, *end;
};

static uint64_t take(struct cursor *cursor)
{
    uint64_t value = 0;
    for (unsigned shift = 0; cursor->at && cursor->at < cursor->end && shift < 64; shift += 7) {
        uint8_t byte = *cursor->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    cursor->at = NULL;
    return 0;
}

static uint32_t take_word(struct cursor *cursor)
{
    uint64_t value = take(cursor);
    if (value > UINT32_MAX)
        cursor->at = NULL;
    return (uint32_t)value;
}

static void take_name(struct cursor *cursor, struct sm_trace_event *event, char *name)
{
    uint64_t length = take(cursor);
    if (!cursor->at || length > SM_TRACE_NAME_MAX || length > (uint64_t)(cursor->end - cursor->at)) {
        cursor->at = NULL;
        return;
    }
    memcpy(name, cursor->at, length);
    name[length] = 0;
    event->name = name;
    cursor->at += length;
}

static void take_body(struct cursor *cursor, const struct sm_trace_codec *codec, struct sm_trace_event *event,
                      char *name)
{
    uint64_t back;
    switch (event->action) {
    case SM_TRACE_ALLOC:
    case SM_TRACE_LOST:
        event->size = take(cursor);
        return;
    case SM_TRACE_FREE:
    case SM_TRACE_RECORD_STREAM:
        back = take(cursor);
        event->id = codec->id - (back >> 1 ^ -(back & 1));
        return;
    case SM_TRACE_FAIL:
        event->size = take(cursor);
        event->result = take_word(cursor);
        return;
    case SM_TRACE_DEVICE:
        event->id = take(cursor);
        event->size = take(cursor);
        take_name(cursor, event, name);
        return;
    case SM_TRACE_PHASE_ENTER:
    case SM_TRACE_PHASE_MARK:
        take_name(cursor, event, name);
        return;
    default:
        return;
    }
}

size_t sm_trace_decode(struct sm_trace_codec *codec, const uint8_t *from, size_t size,
                       struct sm_trace_event *event, char *name)
{
    struct cursor cursor = {from + 1, from + size};
    if (!size || (from[0] & ACTION) >= SM_TRACE_ACTION_COUNT)
        return 0;
    *event = (struct sm_trace_event){.action = (enum sm_trace_action)(from[0] & ACTION)};
    if (from[0] & FLAG_PLACE) {
        codec->device = take_word(&cursor);
        codec->thread = take_word(&cursor);
    }
    if (from[0] & FLAG_STREAM)
        codec->stream = take(&cursor);
    if (from[0] & FLAG_POOL)
        event->pool = take(&cursor);
    if (event->action == SM_TRACE_ALLOC) {
        codec->id = from[0] & FLAG_ID ? take(&cursor) : codec->id + 1;
        event->id = codec->id;
    }
    event->device = codec->device;
    event->thread = codec->thread;
    event->stream = codec->stream;
    take_body(&cursor, codec, event, name);
    return cursor.at ? (size_t)(cursor.at - from) : 0;
}

/* ---- checksums ---- */

static uint32_t crc_table[256];

static void fill_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
        crc_table[i] = value;
    }
}

uint32_t sm_trace_crc(uint32_t crc, const void *bytes, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *at = bytes;
    pthread_once(&once, fill_crc_table);
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ crc_table[(crc ^ at[i]) & 0xff];
    return ~crc;
}

uint32_t sm_trace_block_crc(const struct sm_trace_block *block, const void *bytes)
{
    uint32_t crc = sm_trace_crc(0, block, offsetof(struct sm_trace_block, checksum));
    return sm_trace_crc(crc, bytes, block->stored_bytes);
}
