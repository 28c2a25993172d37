/* SPDX-License-Identifier: Apache-2.0 */
/* unpickle: a pickle machine that knows data and nothing else: dictionaries, lists, tuples (as lists), text,
 * numbers, True, False, None. A pickle can otherwise name and call any function of Python; here such an
 * operation is an error at its byte. In C, so that a snapshot of many megabytes becomes a tree of jansson's
 * without a Python in between.
 *
 * Nothing is taken down again: a nesting without end, which a hostile file may hold, would be walked
 * recursively. So each container has one reference more than it needs, and a machine lives as long as the
 * program. */
#include "tools/forms.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK_MAX 100000

struct machine {
    const unsigned char *bytes;
    size_t size, at, operation; /* operation: where the present one began */
    json_t *stack[STACK_MAX];   /* NULL: a mark */
    size_t depth;
    json_t **memo;
    size_t memo_size;
    const char *path, *wrong;
    struct machine *before; /* of another file */
};

static bool stop(struct machine *machine, const char *wrong)
{
    machine->wrong = wrong;
    return false;
}

/* `count` bytes as a little-endian number. */
static uint64_t take(struct machine *machine, unsigned count)
{
    uint64_t value = 0;
    if (machine->size - machine->at < count) {
        stop(machine, "the file ends within this operation");
        machine->at = machine->size;
        return 0;
    }
    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)machine->bytes[machine->at++] << 8 * i;
    return value;
}

static bool push(struct machine *machine, json_t *value)
{
    if (machine->wrong)
        return false;
    if (machine->depth == STACK_MAX)
        return stop(machine, "the nesting is too deep");
    machine->stack[machine->depth++] = value;
    return true;
}

static bool push_text(struct machine *machine, uint64_t length)
{
    if (machine->wrong || length > machine->size - machine->at)
        return stop(machine, "the file ends within this text");
    json_t *text = json_stringn_nocheck((const char *)machine->bytes + machine->at, length);
    machine->at += length;
    return push(machine, text);
}

/* Signed, of any length up to 8 bytes; a ninth that is 0 tells a large unsigned one. */
static bool push_long(struct machine *machine)
{
    uint64_t length = take(machine, 1), value = 0;
    bool negative = false;
    if (length > 9)
        return stop(machine, "the number has more than 64 bits");
    for (unsigned i = 0; i < length && !machine->wrong; i++) {
        uint64_t byte = take(machine, 1);
        if (i < 8)
            value |= byte << 8 * i;
        else if (byte)
            return stop(machine, "the number has more than 64 bits");
        negative = byte & 0x80;
    }
    if (negative && length < 8)
        value |= ~(uint64_t)0 << 8 * length;
    return push(machine, json_integer((json_int_t)value));
}

static bool push_real(struct machine *machine)
{
    uint64_t bits = __builtin_bswap64(take(machine, 8));
    double value;
    memcpy(&value, &bits, sizeof(value));
    /* No form of JSON: what it meant does not matter here. */
    return push(machine, value - value == 0 ? json_real(value) : json_null());
}

/* The place after the last mark, which is taken off; the values stay. Returns: SIZE_MAX without one. */
static size_t pop_mark(struct machine *machine)
{
    size_t at = machine->depth;
    while (at && machine->stack[at - 1])
        at--;
    if (!at) {
        stop(machine, "a mark is missing");
        return SIZE_MAX;
    }
    memmove(machine->stack + at - 1, machine->stack + at, (machine->depth - at) * sizeof(json_t *));
    machine->depth--;
    return at - 1;
}

static bool set_item(struct machine *machine, json_t *object, json_t *key, json_t *value)
{
    char number[32];
    if (!json_is_object(object) || !key || !value)
        return stop(machine, "a dictionary, a key or a value is missing");
    if (json_is_string(key))
        json_object_setn_new_nocheck(object, json_string_value(key), json_string_length(key), value);
    else if (json_is_integer(key)) {
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(key));
        json_object_set_new_nocheck(object, number, value);
    }
    /* Other keys (tuples of statistics) are of no use here. */
    json_decref(key);
    return true;
}

/* The values from `first` on become a list, or go into one, or into a dictionary in pairs. */
static bool gather(struct machine *machine, json_t *into, size_t first)
{
    if (machine->wrong || first > machine->depth)
        return stop(machine, "the stack has too few values");
    for (size_t i = first; i < machine->depth; i++) {
        if (!json_is_object(into)) {
            if (!machine->stack[i] || json_array_append_new(into, machine->stack[i]))
                return stop(machine, "a list or a value is missing");
        } else if (i + 1 == machine->depth ||
                   !set_item(machine, into, machine->stack[i], machine->stack[i + 1]))
            return stop(machine, "a dictionary, a key or a value is missing");
        else
            i++;
    }
    machine->depth = first;
    return true;
}

/* What lies below `first` takes what lies above. */
static bool gather_below(struct machine *machine, size_t first)
{
    if (machine->wrong || !first || first > machine->depth || !machine->stack[first - 1])
        return stop(machine, "the stack has too few values");
    return gather(machine, machine->stack[first - 1], first);
}

static bool gather_new(struct machine *machine, json_t *into, size_t first)
{
    return gather(machine, into, first) && push(machine, into);
}

static bool remember(struct machine *machine, uint64_t index)
{
    if (machine->wrong || !machine->depth || !machine->stack[machine->depth - 1] || index > machine->size)
        return stop(machine, "there is nothing to remember");
    if (index >= machine->memo_size) {
        size_t size = (index + 1) * 2;
        json_t **memo = realloc(machine->memo, size * sizeof(*memo));
        if (!memo)
            return stop(machine, "out of host memory");
        memset(memo + machine->memo_size, 0, (size - machine->memo_size) * sizeof(*memo));
        machine->memo = memo;
        machine->memo_size = size;
    }
    machine->memo[index] = json_incref(machine->stack[machine->depth - 1]);
    return true;
}

static bool recall(struct machine *machine, uint64_t index)
{
    if (machine->wrong || index >= machine->memo_size || !machine->memo[index])
        return stop(machine, "nothing was remembered under this number");
    return push(machine, json_incref(machine->memo[index]));
}

static bool step_number(struct machine *machine, unsigned operation)
{
    switch (operation) {
    case 'J':
        return push(machine, json_integer((int32_t)take(machine, 4)));
    case 'K':
        return push(machine, json_integer((json_int_t)take(machine, 1)));
    case 'M':
        return push(machine, json_integer((json_int_t)take(machine, 2)));
    case 0x8a:
        return push_long(machine);
    case 'G':
        return push_real(machine);
    case 0x88:
        return push(machine, json_true());
    case 0x89:
        return push(machine, json_false());
    case 'N':
        return push(machine, json_null());
    case 0x8c:
        return push_text(machine, take(machine, 1));
    case 'X':
        return push_text(machine, take(machine, 4));
    default:
        return stop(machine, "this operation builds no plain data, and is not carried out");
    }
}

static bool step(struct machine *machine, unsigned operation, size_t *memoized)
{
    switch (operation) {
    case 0x80: /* version */
        if (take(machine, 1) > 4)
            return stop(machine, "pickles above protocol 4 are not read");
        return true;
    case 0x95: /* frame */
        (void)take(machine, 8);
        return true;
    case '(':
        return push(machine, NULL);
    case '}':
        return push(machine, json_incref(json_object()));
    case ']':
    case ')':
        return push(machine, json_incref(json_array()));
    case 't':
    case 'l':
        return gather_new(machine, json_incref(json_array()), pop_mark(machine));
    case 'd':
        return gather_new(machine, json_incref(json_object()), pop_mark(machine));
    case 0x85:
    case 0x86:
    case 0x87:
        return gather_new(machine, json_incref(json_array()), machine->depth - (operation - 0x84));
    case 'a':
        return gather_below(machine, machine->depth - 1);
    case 's':
        return gather_below(machine, machine->depth - 2);
    case 'e':
    case 'u':
        return gather_below(machine, pop_mark(machine));
    case 'q':
        return remember(machine, take(machine, 1));
    case 'r':
        return remember(machine, take(machine, 4));
    case 0x94:
        return remember(machine, (*memoized)++);
    case 'h':
        return recall(machine, take(machine, 1));
    case 'j':
        return recall(machine, take(machine, 4));
    default:
        return step_number(machine, operation);
    }
}

json_t *unpickle(const char *path, const char *bytes, size_t size)
{
    static struct machine *machines;
    struct machine *machine = calloc(1, sizeof(*machine));
    json_t *result = NULL;
    size_t memoized = 0;
    if (!machine)
        return NULL;
    machine->before = machines;
    machines = machine;
    machine->bytes = (const unsigned char *)bytes;
    machine->size = size;
    while (!machine->wrong) {
        machine->operation = machine->at;
        unsigned operation = (unsigned)take(machine, 1);
        if (machine->wrong || !step(machine, operation, &memoized))
            break;
        if (machine->at < size && bytes[machine->at] == '.') {
            if (machine->depth == 1 && machine->stack[0])
                result = machine->stack[0];
            else
                stop(machine, "the pickle ends with other than one value");
            break;
        }
    }
    if (!result)
        fprintf(stderr, "seamalloc: %s: byte %zu: %s\n", path, machine->operation, machine->wrong);
    return result;
}
