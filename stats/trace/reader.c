/* SPDX-License-Identifier: Apache-2.0 */
/* reader: see reader.h. Nothing that the file says is believed before its checksum was right, and no event
 * before it was decoded within its block. */
#include "stats/trace/reader.h"
#include "base/hostmem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct sm_trace_reader {
    FILE *file;
    uint64_t offset; /* of the block being read */
    uint64_t next_offset;
    struct sm_trace_block block;
    struct sm_trace_codec codec;
    uint8_t *raw, *stored; /* SM_TRACE_RAW_MAX each */
    size_t at;
    uint64_t left; /* events of the block not given yet */
    uint64_t events, lost, cut;
    bool ended;
    char name[SM_TRACE_NAME_MAX + 1];
    char *text;
    size_t text_bytes;
    char path[512]; /* for messages */
};

static seam_result read_head(struct sm_trace_reader *reader, struct sm_error *error)
{
    uint8_t head[SM_TRACE_HEAD_BYTES];
    uint32_t numbers[2], crc;
    if (fread(head, 1, sizeof(head), reader->file) != sizeof(head) || memcmp(head, SM_TRACE_MAGIC, 8) != 0)
        return sm_error_set(error, SEAM_E_IO, "%s is no recording of seamalloc", reader->path);
    memcpy(numbers, head + 8, sizeof(numbers));
    if (numbers[0] != SM_TRACE_VERSION)
        return sm_error_set(error, SEAM_E_UNSUPPORTED, "%s has version %u of the format; %d is understood",
                            reader->path, numbers[0], SM_TRACE_VERSION);
    if (numbers[1] > SM_TRACE_TEXT_MAX)
        return sm_error_set(error, SEAM_E_IO, "%s: byte 12: the header is damaged", reader->path);
    reader->text_bytes = numbers[1] + (size_t)1;
    reader->text = sm_hostmem_get(reader->text_bytes);
    if (!reader->text)
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory to read %s", reader->path);
    if (fread(reader->text, 1, numbers[1], reader->file) != numbers[1] ||
        fread(&crc, 1, sizeof(crc), reader->file) != sizeof(crc))
        return sm_error_set(error, SEAM_E_IO, "%s breaks off within its header", reader->path);
    if (crc != sm_trace_crc(sm_trace_crc(0, head, sizeof(head)), reader->text, numbers[1]))
        return sm_error_set(error, SEAM_E_IO, "%s: byte 0: the header is damaged", reader->path);
    reader->offset = reader->next_offset = sizeof(head) + numbers[1] + sizeof(crc);
    return SEAM_OK;
}

seam_result sm_trace_reader_open(const char *path, struct sm_trace_reader **out, struct sm_error *error)
{
    struct sm_trace_reader *reader = sm_hostmem_get(sizeof(*reader));
    seam_result result = SEAM_OK;
    if (!reader)
        return sm_error_set(error, SEAM_E_HOST_OOM, "no host memory to read %s", path);
    snprintf(reader->path, sizeof(reader->path), "%s", path);
    reader->raw = sm_hostmem_get(SM_TRACE_RAW_MAX);
    reader->stored = sm_hostmem_get(SM_TRACE_RAW_MAX);
    reader->file = fopen(path, "rbe");
    if (!reader->raw || !reader->stored)
        result = sm_error_set(error, SEAM_E_HOST_OOM, "no host memory to read %s", path);
    else if (!reader->file)
        result = sm_error_set(error, SEAM_E_IO, "%s: %s", path, strerror(errno));
    else
        result = read_head(reader, error);
    if (result)
        sm_trace_reader_close(reader);
    else
        *out = reader;
    return result;
}

void sm_trace_reader_close(struct sm_trace_reader *reader)
{
    if (reader->file)
        fclose(reader->file);
    sm_hostmem_put(reader->raw, SM_TRACE_RAW_MAX);
    sm_hostmem_put(reader->stored, SM_TRACE_RAW_MAX);
    sm_hostmem_put(reader->text, reader->text_bytes);
    sm_hostmem_put(reader, sizeof(*reader));
}

const char *sm_trace_reader_text(const struct sm_trace_reader *reader)
{
    return reader->text;
}

static int damaged(struct sm_trace_reader *reader, const char *what, struct sm_error *error)
{
    sm_error_set(error, SEAM_E_IO, "%s: byte %lu: %s; %lu events before it are good", reader->path,
                 reader->offset, what, reader->events);
    return -1;
}

/* The file has no more whole block. */
static int break_off(struct sm_trace_reader *reader)
{
    reader->cut = reader->offset;
    reader->ended = true;
    return 0;
}

static int unpack(struct sm_trace_reader *reader, struct sm_error *error)
{
    const struct sm_trace_block *block = &reader->block;
    if (block->coding == SM_TRACE_RAW) {
        if (block->stored_bytes != block->raw_bytes)
            return damaged(reader, "the block's sizes differ", error);
        memcpy(reader->raw, reader->stored, block->raw_bytes);
        return 1;
    }
    if (block->coding != SM_TRACE_ZSTD)
        return damaged(reader, "the block is coded in an unknown way", error);
    if (!sm_zstd_load())
        return damaged(reader, "the block is compressed, and libzstd.so.1 is not there", error);
    if (!sm_zstd_decompress(reader->raw, block->raw_bytes, reader->stored, block->stored_bytes))
        return damaged(reader, "the block does not unpack", error);
    return 1;
}

/* Returns: 1 when a block lies in raw, 0 at the end, -1. */
static int read_block(struct sm_trace_reader *reader, struct sm_error *error)
{
    struct sm_trace_block *block = &reader->block;
    reader->offset = reader->next_offset;
    if (fread(block, 1, sizeof(*block), reader->file) != sizeof(*block))
        return break_off(reader);
    if ((block->mark != SM_TRACE_BLOCK_MARK && block->mark != SM_TRACE_END_MARK) ||
        block->raw_bytes > SM_TRACE_RAW_MAX || block->stored_bytes > SM_TRACE_RAW_MAX)
        return damaged(reader, "no block begins here", error);
    if (fread(reader->stored, 1, block->stored_bytes, reader->file) != block->stored_bytes)
        return break_off(reader);
    if (block->checksum != sm_trace_block_crc(block, reader->stored))
        return damaged(reader, "the checksum of this block is wrong", error);
    reader->next_offset = reader->offset + sizeof(*block) + block->stored_bytes;
    if (block->mark == SM_TRACE_END_MARK) {
        reader->ended = true;
        reader->lost = block->events;
        return block->first_event == reader->events ? 0
                                                    : damaged(reader, "the end counts other events", error);
    }
    if (block->first_event != reader->events)
        return damaged(reader, "a block is missing before this one", error);
    reader->at = 0;
    reader->left = block->events;
    reader->codec = (struct sm_trace_codec){0};
    return unpack(reader, error);
}

int sm_trace_reader_next(struct sm_trace_reader *reader, struct sm_trace_event *event, struct sm_error *error)
{
    while (!reader->left) {
        int code = reader->ended ? 0 : read_block(reader, error);
        if (code <= 0)
            return code;
    }
    size_t bytes = sm_trace_decode(&reader->codec, reader->raw + reader->at,
                                   reader->block.raw_bytes - reader->at, event, reader->name);
    if (!bytes)
        return damaged(reader, "the block holds something that is no event", error);
    reader->at += bytes;
    reader->left--;
    reader->events++;
    if (event->action == SM_TRACE_LOST)
        reader->lost += event->size;
    return 1;
}

uint64_t sm_trace_reader_cut(const struct sm_trace_reader *reader)
{
    return reader->cut;
}

uint64_t sm_trace_reader_lost(const struct sm_trace_reader *reader)
{
    return reader->lost;
}
