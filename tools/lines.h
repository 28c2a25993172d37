/* SPDX-License-Identifier: Apache-2.0 */
/* lines: files as lines or whole, plain or compressed (xz, zstd, gzip). libarchive takes care of compression;
 * lines are cut out of its blocks. */
#ifndef SEAM_TOOLS_LINES_H
#define SEAM_TOOLS_LINES_H

#include <stddef.h>
#include <stdint.h>

#define LINE_BYTES_MAX 512

struct lines;

/* Returns: NULL with a message on stderr. An empty file has no lines. */
struct lines *lines_open(const char *path);
void lines_close(struct lines *lines);
/* The next line without its end. Returns: 1, 0 at the end, -1 with a message. */
int lines_next(struct lines *lines);
/* The last line, to be written into as well, and its number from 1. */
char *lines_text(struct lines *lines);
uint64_t lines_number(const struct lines *lines);
/* The first bytes of the file, before the first line is read; what is not there stays as it was. */
void lines_peek(struct lines *lines, char *bytes, size_t size);
/* Says what is wrong with it. Returns: -1. */
int lines_complain(const struct lines *lines, const char *what);

/* The whole file, to be freed. Returns: NULL with a message. */
char *file_load(const char *path, size_t *size);

#endif
