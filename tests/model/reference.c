/* SPDX-License-Identifier: Apache-2.0 */
/* reference: see reference.h. A cell is one granule of one handle; it exists while a live block holds bytes
 * of it. */
#include "tests/model/reference.h"
#include "sim/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 512

struct cell {
    struct cell *next;
    uint64_t handle, granule; /* number of the handle, granule in it */
    uint64_t used;            /* units */
    unsigned char taken[];    /* one a unit */
};

enum act { CLAIM, DROP, CHECK };

void reference_open(struct reference *reference, int device, uint64_t granularity)
{
    memset(reference, 0, sizeof(*reference));
    reference->device = device;
    reference->granularity = granularity;
}

void reference_close(struct reference *reference)
{
    for (size_t i = 0; i < sizeof(reference->cells) / sizeof(reference->cells[0]); i++)
        for (struct cell *cell = reference->cells[i], *next; cell; cell = next) {
            next = cell->next;
            free(cell);
        }
    memset(reference->cells, 0, sizeof(reference->cells));
}

static struct cell **find_cell(struct reference *reference, uint64_t handle, uint64_t granule)
{
    uint64_t hash = (handle * 0x9E3779B97F4A7C15u ^ granule * 0xC2B2AE3D27D4EB4Fu) >> 20;
    struct cell **at = &reference->cells[hash % (sizeof(reference->cells) / sizeof(reference->cells[0]))];
    while (*at && ((*at)->handle != handle || (*at)->granule != granule))
        at = &(*at)->next;
    return at;
}

static bool wrong(struct reference *reference, const char *what, CUdeviceptr address)
{
    snprintf(reference->wrong, sizeof(reference->wrong), "device %d, address %#llx: %s", reference->device,
             (unsigned long long)address, what);
    return false;
}

/* The units [first, last] of one cell. */
static bool act_on_cell(struct reference *reference, struct cell **at, uint64_t first, uint64_t last,
                        enum act act)
{
    struct cell *cell = *at;
    for (uint64_t unit = first; unit <= last; unit++) {
        if (cell->taken[unit] != (act != CLAIM))
            return false;
        if (act != CHECK) {
            cell->taken[unit] = act == CLAIM;
            cell->used += act == CLAIM ? 1u : (uint64_t)-1;
        }
    }
    if (!cell->used) {
        *at = cell->next;
        free(cell);
    }
    (void)reference;
    return true;
}

/* How many bytes from an address on lie in the same granule of the same handle, at most `most`. */
static uint64_t piece_size(const struct reference *reference, CUdeviceptr from, uint64_t most)
{
    uint64_t offset = 0, granularity = reference->granularity;
    (void)sim_resolve(from, NULL, &offset);
    uint64_t rest = granularity - offset % granularity;
    return rest < most ? rest : most;
}

/* The bytes of a block that lie in one granule of a handle. */
static bool act_on_piece(struct reference *reference, CUdeviceptr from, CUdeviceptr to, enum act act)
{
    uint64_t handle, offset, end_handle, end_offset, granularity = reference->granularity;
    if (!sim_resolve(from, &handle, &offset) || !sim_resolve(to - 1, &end_handle, &end_offset))
        return wrong(reference, "nothing is mapped here", from);
    if (handle != end_handle || end_offset - offset != to - 1 - from)
        return wrong(reference, "a granule is not one piece of a handle", from);
    if (!sim_accessible(from, reference->device) || !sim_accessible(to - 1, reference->device))
        return wrong(reference, "the device may not use this", from);
    struct cell **at = find_cell(reference, handle, offset / granularity);
    if (!*at) {
        if (act != CLAIM)
            return wrong(reference, "a live block's memory is another than it was", from);
        *at = calloc(1, sizeof(struct cell) + granularity / UNIT);
        if (!*at)
            return wrong(reference, "the test has no memory", from);
        (*at)->handle = handle;
        (*at)->granule = offset / granularity;
    }
    if (!act_on_cell(reference, at, offset % granularity / UNIT, end_offset % granularity / UNIT, act))
        return wrong(reference,
                     act == CLAIM ? "two live blocks hold this byte" : "a live block's memory is another's",
                     from);
    return true;
}

static bool act_on_block(struct reference *reference, const struct held *held, enum act act)
{
    CUdeviceptr end = held->address + held->size, to;
    reference->wrong[0] = 0;
    for (CUdeviceptr from = held->address; from < end; from = to) {
        to = from + piece_size(reference, from, end - from);
        if (!act_on_piece(reference, from, to, act))
            return false;
    }
    return true;
}

bool reference_claim(struct reference *reference, const struct held *held)
{
    if (held->address % UNIT || held->size % UNIT || held->size < held->requested)
        return wrong(reference, "not a multiple of 512, or too small", held->address);
    if (!act_on_block(reference, held, CLAIM))
        return false;
    reference->held[reference->held_count++] = *held;
    reference->allocated += held->size;
    reference->requested += held->requested;
    return true;
}

bool reference_drop(struct reference *reference, size_t i)
{
    struct held held = reference->held[i];
    if (!act_on_block(reference, &held, DROP))
        return false;
    reference->allocated -= held.size;
    reference->requested -= held.requested;
    reference->held[i] = reference->held[--reference->held_count];
    return true;
}

bool reference_check(struct reference *reference)
{
    for (size_t i = 0; i < reference->held_count; i++)
        if (!act_on_block(reference, &reference->held[i], CHECK))
            return false;
    return true;
}
