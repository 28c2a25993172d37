/* SPDX-License-Identifier: Apache-2.0 */
/* options: reads strings, policy files and the environment. See options.h.
 *
 * A text is a list of entries with commas between them; an entry is key:value, or @FILE where that is
 * allowed. Values may be lists in brackets. A file is read line by line, each line a text of its own without
 * its comment. All readers write into one copy of the settings, which replaces them only when everything was
 * good.
 *
 * A key may come once in a text and once in a file; a string that names a file may override it. */
#include "policies/options.h"
#include "base/hostmem.h"
#include "policies/options_table.h"
#include "policies/presets.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX   ((size_t)1 << 20)
#define QUOTED_BYTES_MAX 48

/* Where the reader stands. In a file, text is one line of it. */
struct reader {
    struct sm_options *options; /* the copy */
    const char *source, *file;  /* file NULL: in the string itself */
    unsigned line;
    bool strict;         /* PyTorch's variables: its keys, its words, no files */
    struct sm_span text; /* positions are counted from its start */
    struct sm_span rest; /* not read yet */
    uint64_t seen;       /* keys that came already, a bit for each row */
    struct sm_error *error;
};

/* A part of the text as an error shows it: cut, and one printable character for each byte. */
static const char *quote(struct sm_span span, char text[QUOTED_BYTES_MAX + 8])
{
    size_t n = span.length < QUOTED_BYTES_MAX ? span.length : QUOTED_BYTES_MAX;
    for (size_t i = 0; i < n; i++)
        text[i] = span.at[i] >= 0x20 && span.at[i] < 0x7f ? span.at[i] : '?';
    strcpy(text + n, span.length > n ? "..." : "");
    return text;
}

/* "SOURCE, position 7: " or "SOURCE: FILE:3: " and the text. */
static seam_result fail_with(const struct reader *reader, seam_result code, const char *at,
                             const char *format, va_list args)
{
    char text[SM_ERROR_TEXT_MAX];
    vsnprintf(text, sizeof text, format, args);
    if (reader->file)
        return sm_error_set(reader->error, code, "%s: %s:%u: %s", reader->source, reader->file, reader->line,
                            text);
    return sm_error_set(reader->error, code, "%s, position %zu: %s", reader->source,
                        (size_t)(at - reader->text.at) + 1, text);
}

/* The string is not understood. */
__attribute__((format(printf, 3, 4))) static seam_result fail(const struct reader *reader, const char *at,
                                                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    seam_result result = fail_with(reader, SEAM_E_OPTION, at, format, args);
    va_end(args);
    return result;
}

/* Something else is wrong. */
__attribute__((format(printf, 4, 5))) static seam_result
fail_as(const struct reader *reader, seam_result code, const char *at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    seam_result result = fail_with(reader, code, at, format, args);
    va_end(args);
    return result;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip(struct reader *reader, size_t bytes)
{
    reader->rest.at += bytes;
    reader->rest.length -= bytes;
}

static void skip_blanks(struct reader *reader)
{
    while (reader->rest.length && is_blank(*reader->rest.at))
        skip(reader, 1);
}

/* Takes what comes before the first of the marks, without the blanks behind it. */
static struct sm_span take_until(struct reader *reader, const char *marks)
{
    struct sm_span span = {reader->rest.at, 0};
    while (reader->rest.length && !strchr(marks, *reader->rest.at))
        skip(reader, 1);
    span.length = (size_t)(reader->rest.at - span.at);
    while (span.length && is_blank(span.at[span.length - 1]))
        span.length--;
    return span;
}

/* Takes a value: a list up to its bracket, or anything up to the comma. Returns: false when a list is left
 * open. */
static bool take_value(struct reader *reader, struct sm_span *value)
{
    if (!reader->rest.length || *reader->rest.at != '[') {
        *value = take_until(reader, ",");
        return true;
    }
    *value = take_until(reader, "]");
    if (!reader->rest.length)
        return false;
    skip(reader, 1);
    value->length = (size_t)(reader->rest.at - value->at);
    return true;
}

static void list_keys(bool of_pytorch_only, char *text, size_t size)
{
    size_t length = 0;
    text[0] = 0;
    for (const struct sm_option_info *info = sm_options_table(); info->key && length < size; info++)
        if (info->of_pytorch || !of_pytorch_only)
            length += (size_t)snprintf(text + length, size - length, "%s%s", length ? ", " : "", info->key);
}

static seam_result fail_at_key(const struct reader *reader, struct sm_span key, int index)
{
    char quoted[QUOTED_BYTES_MAX + 8], keys[SM_ERROR_TEXT_MAX];
    list_keys(reader->strict, keys, sizeof keys);
    if (!key.length)
        return fail(reader, key.at, "a key is missing; valid keys: %s", keys);
    quote(key, quoted);
    if (index >= 0)
        return fail(reader, key.at, "%s is a key of SEAMALLOC_CONF, not of PyTorch; valid keys: %s", quoted,
                    keys);
    return fail(reader, key.at, "unknown key \"%s\"; valid keys: %s", quoted, keys);
}

static seam_result read_lines(struct reader *reader, const char *content, size_t size);

/* policy:NAME of a preset that is more than a policy's name: as if its file were named. */
static seam_result read_preset(struct reader *reader, const struct sm_preset *preset)
{
    struct reader in_file = *reader;
    in_file.file = preset->name;
    in_file.line = 0;
    return read_lines(&in_file, preset->text, strlen(preset->text));
}

static const struct sm_preset *find_preset(const struct reader *reader, const char *key, struct sm_span name)
{
    if (reader->file || strcmp(key, "policy") != 0)
        return NULL;
    for (const struct sm_preset *preset = sm_presets; preset->name; preset++)
        if (strlen(preset->name) == name.length && memcmp(preset->name, name.at, name.length) == 0)
            return preset;
    return NULL;
}

/* One key:value. */
static seam_result read_entry(struct reader *reader)
{
    struct sm_span value, where, key = take_until(reader, ":,");
    int index = sm_option_find(key.at, key.length);
    const struct sm_option_info *info = index < 0 ? NULL : &sm_options_table()[index];
    char quoted[QUOTED_BYTES_MAX + 8];
    if (!info || (reader->strict && !info->of_pytorch))
        return fail_at_key(reader, key, index);
    if (strchr(info->key, '*') == NULL) {
        if (reader->seen >> index & 1)
            return fail(reader, key.at, "%s: the key came before; it may come once", info->key);
        reader->seen |= (uint64_t)1 << index;
    }
    if (reader->rest.length && *reader->rest.at == ':')
        skip(reader, 1);
    skip_blanks(reader);
    if (!take_value(reader, &value))
        return fail(reader, value.at, "%s: the list is not closed by \"]\"; valid: %s", info->key,
                    info->range);
    if (!value.length)
        return fail(reader, value.at, "%s: the value is missing; valid: %s", info->key, info->range);
    const char *wrong =
        sm_option_read(&sm_option_rows[index], reader->options, value, reader->strict, &where);
    if (!wrong)
        return SEAM_OK;
    const struct sm_preset *preset = find_preset(reader, info->key, value);
    if (preset)
        return read_preset(reader, preset);
    const char *word = reader->strict ? NULL : sm_option_rows[index].word;
    return fail(reader, where.at, "%s: \"%s\" %s; valid: %s%s%s", info->key, quote(where, quoted), wrong,
                info->range, word ? " or " : "", word ? word : "");
}

static seam_result read_file(struct reader *reader);

/* A whole text: nothing, or entries with single commas between them. */
static seam_result read_text(struct reader *reader)
{
    reader->rest = reader->text;
    skip_blanks(reader);
    if (!reader->rest.length)
        return SEAM_OK;
    for (;;) {
        skip_blanks(reader);
        bool names_file = !reader->strict && reader->rest.length && *reader->rest.at == '@';
        seam_result result = names_file ? read_file(reader) : read_entry(reader);
        if (result != SEAM_OK)
            return result;
        skip_blanks(reader);
        if (!reader->rest.length)
            return SEAM_OK;
        if (*reader->rest.at != ',')
            return fail(reader, reader->rest.at, "a comma is missing between two settings");
        skip(reader, 1);
    }
}

/* Reads a regular file, named at `at`, whole. Ensures: on SEAM_OK *content has *size + 1 bytes (hostmem). */
static seam_result load_file(const struct reader *reader, const char *at, const char *path, char **content,
                             size_t *size)
{
    struct stat status;
    char *memory = NULL;
    size_t length = 0, bytes = 0;
    ssize_t n;
    seam_result result = SEAM_OK;
    /* Without O_NONBLOCK a pipe would be waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) != 0) {
        result =
            fail_as(reader, SEAM_E_IO, at, "the policy file %s cannot be opened: %s", path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(status.st_mode) || status.st_size > (off_t)FILE_BYTES_MAX) {
        result =
            fail_as(reader, SEAM_E_IO, at, "the policy file %s is not a regular file of at most %zu bytes",
                    path, FILE_BYTES_MAX);
        goto out;
    }
    bytes = (size_t)status.st_size;
    memory = sm_hostmem_get(bytes + 1);
    if (!memory) {
        result = fail_as(reader, SEAM_E_HOST_OOM, at, "no host memory to read the policy file %s", path);
        goto out;
    }
    /* A file that became shorter meanwhile leaves zeros at the end, which no setting accepts. */
    while (length < bytes && (n = read(fd, memory + length, bytes - length)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            result = fail_as(reader, SEAM_E_IO, at, "the policy file %s cannot be read: %s", path,
                             strerror(errno));
            goto out;
        }
        length += (size_t)n;
    }
    *content = memory;
    *size = bytes;
    memory = NULL;
out:
    sm_hostmem_put(memory, bytes + 1);
    if (fd >= 0)
        close(fd);
    return result;
}

static seam_result read_lines(struct reader *reader, const char *content, size_t size)
{
    struct reader lines = *reader;
    lines.seen = 0;
    for (const char *at = content, *end = content + size; at < end; at += lines.text.length + 1) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        const char *comment = memchr(at, '#', length);
        lines.line++;
        lines.text = (struct sm_span){at, comment ? (size_t)(comment - at) : length};
        seam_result result = read_text(&lines);
        if (result != SEAM_OK)
            return result;
        lines.text.length = length;
    }
    return SEAM_OK;
}

/* "@FILE". */
static seam_result read_file(struct reader *reader)
{
    const char *at = reader->rest.at;
    if (reader->file)
        return fail(reader, at, "a policy file cannot name another one");
    skip(reader, 1);
    struct sm_span name = take_until(reader, ",");
    char path[4096];
    if (!name.length || name.length >= sizeof path)
        return fail(reader, at, "\"@\" is not followed by the path of a file");
    memcpy(path, name.at, name.length);
    path[name.length] = 0;
    char *content = NULL;
    size_t size = 0;
    seam_result result = load_file(reader, at, path, &content, &size);
    if (result != SEAM_OK)
        return result;
    struct reader in_file = *reader;
    in_file.file = path;
    in_file.line = 0;
    result = read_lines(&in_file, content, size);
    sm_hostmem_put(content, size + 1);
    return result;
}

seam_result sm_options_parse(struct sm_options *options, const char *source, const char *text,
                             struct sm_error *error)
{
    struct sm_options copy = *options;
    struct reader reader = {
        .options = &copy,
        .source = source,
        .strict = strncmp(source, "PYTORCH_", 8) == 0,
        .text = {text, strlen(text)},
        .error = error,
    };
    seam_result result = read_text(&reader);
    if (result == SEAM_OK)
        *options = copy;
    return result;
}

seam_result sm_options_from_environment(struct sm_options *options, struct sm_error *error)
{
    static const char *const of_pytorch[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
    struct sm_options copy;
    seam_result result = SEAM_OK;
    sm_options_defaults(options);
    copy = *options;
    for (unsigned i = 0; i < 2; i++) {
        const char *text = getenv(of_pytorch[i]);
        if (text) { /* set but empty counts as set */
            result = sm_options_parse(&copy, of_pytorch[i], text, error);
            break;
        }
    }
    const char *ours = getenv("SEAMALLOC_CONF");
    if (result == SEAM_OK && ours)
        result = sm_options_parse(&copy, "SEAMALLOC_CONF", ours, error);
    if (result == SEAM_OK)
        *options = copy;
    return result;
}

size_t sm_options_format(const struct sm_options *options, char *buffer, size_t capacity)
{
    const struct sm_option_info *infos = sm_options_table();
    char value[SM_OPTION_VALUE_MAX];
    size_t length = 0;
    for (int i = 0; infos[i].key; i++) {
        if (sm_option_rows[i].offset == SM_OPTION_NOT_STORED)
            continue;
        sm_option_write(&sm_option_rows[i], options, value);
        size_t room = length < capacity ? capacity - length : 0;
        length += (size_t)snprintf(room ? buffer + length : NULL, room, "%s%s:%s", length ? "," : "",
                                   infos[i].key, value);
    }
    return length;
}
