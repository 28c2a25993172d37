/* SPDX-License-Identifier: Apache-2.0 */
/* form_text: the text form (trace.h), read and written. */
#include "tools/forms.h"
#include "tools/lines.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text_in {
    struct reader reader;
    struct lines *lines;
    struct scopes scopes;
};

/* Numbers at *at, separated by one space each. Returns: their count, or -1 for what is no number. */
static int parse_numbers(const char *at, uint64_t *numbers, int most)
{
    int count = 0;
    while (*at && count < most) {
        char *end;
        if (*at != ' ' || at[1] < '0' || at[1] > '9')
            return -1;
        errno = 0;
        numbers[count++] = strtoull(at + 1, &end, 10);
        if (errno)
            return -1;
        at = end;
    }
    return *at ? -1 : count;
}

/* What the numbers of an event mean, in their order: id, size, stream, device, thread, pool. */
static const struct form {
    char action;
    int least;
    const char *fields;
} forms[] = {{'a', 3, "isSdtp"}, {'f', 2, "iSt"}, {'r', 2, "iSt"}, {'x', 2, "sSdtp"}, {'t', 0, "d"},
             {'b', 1, "pd"},     {'e', 1, "pd"},  {'d', 1, "pd"},  {'-', 0, ""}};

static const struct form *form_of(char action)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (forms[i].action == action)
            return &forms[i];
    return NULL;
}

static bool set_field(struct trace_event *event, char field, uint64_t value)
{
    switch (field) {
    case 'i':
        event->id = value;
        return true;
    case 's':
        event->size = value;
        return true;
    case 'S':
        event->stream = value;
        return true;
    case 'd':
        event->device = (int)value;
        return value < TRACE_DEVICES_MAX;
    case 't':
        event->thread = (uint32_t)value;
        return value <= UINT32_MAX;
    default:
        event->pool = value;
        return true;
    }
}

static int fill(struct text_in *in, struct trace_event *event)
{
    const struct form *form = form_of(event->action);
    uint64_t numbers[6];
    int count;
    if (!form)
        return lines_complain(in->lines, "no event begins so; one of a f r x t b e d + - p was expected");
    count = parse_numbers(lines_text(in->lines) + 1, numbers, 6);
    if (count < 0)
        return lines_complain(in->lines, "numbers separated by one space were expected");
    if (count < form->least || count > (int)strlen(form->fields))
        return lines_complain(in->lines, "this event has another number of fields");
    if (event->action == 't')
        event->device = TRACE_DEVICES_ALL;
    for (int i = 0; i < count; i++)
        if (!set_field(event, form->fields[i], numbers[i]))
            return lines_complain(in->lines, "a device or a thread has too large a number");
    if ((event->action == 'a' || event->action == 'x') && count < (int)strlen(form->fields))
        event->pool = scopes_pool(&in->scopes, event->device);
    scopes_follow(&in->scopes, event);
    return 1;
}

static int text_next(struct reader *reader, struct trace_event *event)
{
    struct text_in *in = (struct text_in *)reader;
    char *text = lines_text(in->lines);
    int code;
    do
        code = lines_next(in->lines);
    while (code > 0 && (!text[0] || text[0] == '#'));
    if (code <= 0)
        return code;
    *event = (struct trace_event){.action = text[0], .line = lines_number(in->lines)};
    if (event->action != '+' && event->action != 'p')
        return fill(in, event);
    if (text[1] != ' ' || !text[2])
        return lines_complain(in->lines, "a phase needs a name");
    event->name = text + 2;
    return 1;
}

static void text_close(struct reader *reader)
{
    lines_close(((struct text_in *)reader)->lines);
    free(reader);
}

struct reader *text_reader(const char *path)
{
    struct text_in *in = calloc(1, sizeof(*in));
    if (in && (in->lines = lines_open(path))) {
        in->reader = (struct reader){text_next, text_close};
        return &in->reader;
    }
    free(in);
    return NULL;
}

/* ---- writing ---- */

struct text_out {
    struct writer writer;
    FILE *file;
    const char *path;
    struct scopes scopes;
};

/* Optional fields are written as far as one of them is not what its absence means. */
static void put_request(FILE *file, const struct scopes *scopes, const struct trace_event *event)
{
    bool other_pool = event->pool != scopes_pool(scopes, event->device);
    if (event->action == 'a')
        fprintf(file, "a %lu %lu %lu", event->id, event->size, event->stream);
    else
        fprintf(file, "x %lu %lu", event->size, event->stream);
    if (event->device || event->thread || other_pool)
        fprintf(file, " %d %u", event->device, event->thread);
    if (other_pool)
        fprintf(file, " %lu", event->pool);
    fputc('\n', file);
}

static bool text_put(struct writer *writer, const struct trace_event *event)
{
    struct text_out *out = (struct text_out *)writer;
    FILE *file = out->file;
    scopes_follow(&out->scopes, event);
    switch (event->action) {
    case 'a':
    case 'x':
        put_request(file, &out->scopes, event);
        break;
    case 'f':
    case 'r':
        fprintf(file, "%c %lu %lu", event->action, event->id, event->stream);
        fprintf(file, event->thread ? " %u\n" : "\n", event->thread);
        break;
    case 't':
        fprintf(file, event->device == TRACE_DEVICES_ALL ? "t\n" : "t %d\n", event->device);
        break;
    case 'b':
    case 'e':
    case 'd':
        fprintf(file, "%c %lu", event->action, event->pool);
        fprintf(file, event->device ? " %d\n" : "\n", event->device);
        break;
    case '-':
        fputs("-\n", file);
        break;
    default:
        fprintf(file, "%c %s\n", event->action, event->name);
    }
    return true;
}

static bool text_finish(struct writer *writer)
{
    struct text_out *out = (struct text_out *)writer;
    bool good = !ferror(out->file);
    good = (out->file == stdout ? fflush(stdout) : fclose(out->file)) == 0 && good;
    if (!good)
        fprintf(stderr, "seamalloc: %s could not be written: %s\n", out->path, strerror(errno));
    free(out);
    return good;
}

struct writer *text_writer(const char *path)
{
    struct text_out *out = calloc(1, sizeof(*out));
    FILE *file = strcmp(path, "-") != 0 ? fopen(path, "we") : stdout;
    if (!file || !out) {
        fprintf(stderr, "seamalloc: %s: %s\n", path, strerror(errno));
        free(out);
        return NULL;
    }
    *out = (struct text_out){.writer = {text_put, text_finish, 0}, .file = file, .path = path};
    return &out->writer;
}
