/* SPDX-License-Identifier: Apache-2.0 */
/* lines: see lines.h. Owns the archive's reader; a line is copied, so that it may be cut up in place. */
#include "tools/lines.h"
#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lines {
    struct archive *archive;
    char *path;
    const char *block;
    size_t block_size, at;
    uint64_t number;
    char text[LINE_BYTES_MAX];
    char shown[64]; /* what a complaint quotes: the text may have been cut up */
};

/* Returns: NULL with a message. */
static struct archive *open_archive(const char *path)
{
    struct archive *archive = archive_read_new();
    struct archive_entry *entry;
    archive_read_support_filter_all(archive);
    archive_read_support_format_raw(archive);
    archive_read_support_format_empty(archive);
    if (archive_read_open_filename(archive, path, 1 << 16) == ARCHIVE_OK &&
        archive_read_next_header(archive, &entry) >= ARCHIVE_WARN)
        return archive;
    /* An empty file has no entry: it is one without lines. */
    if (!archive_errno(archive))
        return archive;
    fprintf(stderr, "seamalloc: %s: %s\n", path, archive_error_string(archive));
    archive_read_free(archive);
    return NULL;
}

struct lines *lines_open(const char *path)
{
    struct archive *archive = open_archive(path);
    struct lines *lines = archive ? calloc(1, sizeof(*lines)) : NULL;
    if (!lines)
        return NULL;
    lines->path = strdup(path);
    lines->archive = archive;
    return lines;
}

void lines_close(struct lines *lines)
{
    archive_read_free(lines->archive);
    free(lines->path);
    free(lines);
}

char *lines_text(struct lines *lines)
{
    return lines->text;
}

uint64_t lines_number(const struct lines *lines)
{
    return lines->number;
}

int lines_complain(const struct lines *lines, const char *what)
{
    fprintf(stderr, "seamalloc: %s:%lu: %s: \"%s\"\n", lines->path, lines->number, what, lines->shown);
    return -1;
}

static int end_line(struct lines *lines, size_t length)
{
    lines->text[length] = 0;
    snprintf(lines->shown, sizeof(lines->shown), "%.60s", lines->text);
    lines->number++;
    return 1;
}

/* Returns: 1 with bytes at hand, 0 at the end, -1. */
static int refill(struct lines *lines)
{
    int64_t offset;
    if (archive_format(lines->archive) ==
        ARCHIVE_FORMAT_EMPTY) /* a file without a byte has no entry to read */
        return 0;
    int code =
        archive_read_data_block(lines->archive, (const void **)&lines->block, &lines->block_size, &offset);
    lines->at = 0;
    if (code == ARCHIVE_EOF)
        lines->block_size = 0;
    if (code >= ARCHIVE_WARN)
        return code != ARCHIVE_EOF;
    fprintf(stderr, "seamalloc: %s: breaks off after line %lu: %s\n", lines->path, lines->number,
            archive_error_string(lines->archive));
    return -1;
}

void lines_peek(struct lines *lines, char *bytes, size_t size)
{
    if (refill(lines) > 0)
        memcpy(bytes, lines->block, size < lines->block_size ? size : lines->block_size);
}

int lines_next(struct lines *lines)
{
    size_t length = 0;
    for (;;) {
        if (lines->at == lines->block_size) {
            int code = refill(lines);
            if (code < 0)
                return -1;
            if (code == 0)
                return length ? end_line(lines, length) : 0;
            continue;
        }
        char c = lines->block[lines->at++];
        if (c == '\n')
            return end_line(lines, length);
        if (length + 1 == sizeof(lines->text)) {
            end_line(lines, length);
            return lines_complain(lines, "the line is longer than any event");
        }
        lines->text[length++] = c;
    }
}

char *file_load(const char *path, size_t *size)
{
    struct archive *archive = open_archive(path);
    size_t length = 0, capacity = 1 << 20;
    char *bytes = archive ? malloc(capacity) : NULL;
    ssize_t n = -1;
    while (bytes && (n = archive_read_data(archive, bytes + length, capacity - length)) > 0) {
        length += (size_t)n;
        if (length == capacity) {
            char *more = realloc(bytes, capacity *= 2);
            if (!more)
                free(bytes);
            bytes = more;
        }
    }
    if (bytes && n < 0) {
        fprintf(stderr, "seamalloc: %s: %s\n", path, archive_error_string(archive));
        free(bytes);
        bytes = NULL;
    }
    if (archive)
        archive_read_free(archive);
    *size = length;
    return bytes;
}
