/* SPDX-License-Identifier: Apache-2.0 */
/* moves: see moves.h. Owns nothing, has no lock. */
#include "sim/libcudart/moves.h"
#include "sim/libcudart/fill.h"

#include <stdlib.h>
#include <string.h>

/* How many elements a block of a kernel over lists of tensors goes over. */
#define CHUNK_ELEMENTS 65536

/* Most elements have 4 bytes, and what else they are stands in the name. */
static uint32_t element_bytes(const char *name)
{
    if (strstr(name, "BFloat16") || strstr(name, "4HalfE"))
        return 2;
    return strstr(name, "Float8") ? 1 : 4;
}

/* The number that follows a piece of the name; 0 when it is not there. */
static uint32_t number_after(const char *name, const char *piece)
{
    const char *found = strstr(name, piece);

    return found ? (uint32_t)strtoul(found + strlen(piece), NULL, 10) : 0;
}

struct rt_moves rt_moves(const char *name)
{
    struct rt_moves moves = {0};

    /* The addresses of the result and the operands come as one array; each is read or written once. */
    if (rt_is_elementwise(name))
        moves.per_element = number_after(name, "5arrayIPcLm") * element_bytes(name);
    else if (strstr(name, "multi_tensor_apply_kernelI"))
        moves.per_block = number_after(name, "TensorListMetadataILi") * element_bytes(name) * CHUNK_ELEMENTS;
    return moves;
}

uint64_t rt_moved_bytes(const struct rt_moves *moves, void **arguments, uint64_t blocks)
{
    if (moves->per_element) {
        int count = *(const int *)arguments[0];

        return count > 0 ? (uint64_t)count * moves->per_element : 0;
    }
    return blocks * moves->per_block;
}
