/* SPDX-License-Identifier: Apache-2.0 */
/* forms: the readers and writers behind trace.h and convert, one pair for each form. A reader is what
 * trace_open() chose; a writer takes events in their order and closes with finish. All say on stderr what is
 * wrong, with the line or byte. */
#ifndef SEAM_TOOLS_FORMS_H
#define SEAM_TOOLS_FORMS_H

#include "tools/trace.h"
#include <jansson.h>

/* Which pools are being filled: what a request that names no pool belongs to. */
struct scopes {
    struct {
        uint64_t pool;
        int device;
    } open[64];
    int count;
};
/* Follows b and e; of more than 64 at once the rest is not seen. */
void scopes_follow(struct scopes *scopes, const struct trace_event *event);
uint64_t scopes_pool(const struct scopes *scopes, int device);

struct reader {
    int (*next)(struct reader *reader, struct trace_event *event);
    void (*close)(struct reader *reader);
};
struct reader *text_reader(const char *path);
struct reader *rmm_reader(const char *path);
struct reader *snapshot_reader(const char *path, bool json);
struct reader *recording_reader(const char *path);
bool recording_is_cut(const struct reader *reader);
uint64_t recording_lost(const struct reader *reader);

struct writer {
    bool (*put)(struct writer *writer, const struct trace_event *event);
    bool (*finish)(struct writer *writer); /* also frees it */
    uint64_t left_out;                     /* events that the form has no word for */
};
struct writer *text_writer(const char *path);
struct writer *rmm_writer(const char *path);
struct writer *snapshot_writer(const char *path);
struct writer *recording_writer(const char *path, const char *from);

/* Plain data from a pickle: only the operations that build it; whatever could name or call code is refused
 * with the byte at which it stands. The tree lives as long as the program. Returns: NULL with a message. */
json_t *unpickle(const char *path, const char *bytes, size_t size);

#endif
