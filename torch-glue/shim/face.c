/* SPDX-License-Identifier: Apache-2.0 */
/* face: PyTorch's allocator interface on the public functions of seamalloc. It owns nothing and takes no
 * lock.
 *
 * Each function translates one call and decides what becomes of a failure: an exception where PyTorch can
 * carry one to the program, silence where it would end the process (see face.h). */
#include "torch-glue/shim/face.h"
#include "torch-glue/shim/throw.h"
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 1536 /* the library's text and ours around it */

/* A size as people and PyTorch's users write it: "512 bytes", "20.00 MiB", "1.50 GiB". */
static void format_size(size_t size, char *buffer, size_t capacity)
{
    if (size >= ((size_t)1 << 30))
        snprintf(buffer, capacity, "%.2f GiB", (double)size / (double)((size_t)1 << 30));
    else if (size >= ((size_t)1 << 20))
        snprintf(buffer, capacity, "%.2f MiB", (double)size / (double)((size_t)1 << 20));
    else if (size >= ((size_t)1 << 10))
        snprintf(buffer, capacity, "%.2f KiB", (double)size / (double)((size_t)1 << 10));
    else
        snprintf(buffer, capacity, "%zu bytes", size);
}

/* Programs look for "out of memory" and "Tried to allocate" in the text, so it begins with them. */
static __attribute__((noreturn)) void throw_failed_request(size_t size, int device)
{
    static const char opening[] = "CUDA out of memory. Tried to allocate ";
    const seam_result result = seam_last_result();
    const char *cause = seam_last_error();
    char text[TEXT_MAX], amount[32];

    format_size(size, amount, sizeof amount);
    if (result == SEAM_E_DEVICE_OOM || result == SEAM_E_LIMIT) {
        if (!strncmp(cause, opening, sizeof opening - 1))
            sm_throw_shortage(cause);
        snprintf(text, sizeof text, "%s%s. GPU %d: %s", opening, amount, device, cause);
        sm_throw_shortage(text);
    }
    snprintf(text, sizeof text, "seamalloc could not allocate %s on GPU %d: %s (%s)", amount, device, cause,
             seam_result_name(result));
    sm_throw_failure(text);
}

static __attribute__((noreturn)) void throw_failed_call(const char *what)
{
    char text[TEXT_MAX];

    snprintf(text, sizeof text, "seamalloc could not %s: %s (%s)", what, seam_last_error(),
             seam_result_name(seam_last_result()));
    sm_throw_failure(text);
}

void seam_torch_init(int device_count)
{
    (void)device_count; /* the driver is asked itself */
    if (seam_init() != SEAM_OK)
        throw_failed_call("start");
}

void *seam_torch_alloc(size_t size, int device, seam_stream stream)
{
    void *block = seam_malloc(size, device, stream);

    if (block == NULL && size > 0)
        throw_failed_request(size, device);
    return block;
}

void seam_torch_free(void *block, size_t size, int device, seam_stream stream)
{
    (void)size;
    (void)device;
    (void)stream;
    if (block != NULL)
        (void)seam_free(block); /* may run in a destructor: counted by the library, never thrown */
}

void seam_torch_reset(void)
{
    if (seam_trim(-1) != SEAM_OK)
        throw_failed_call("give cached memory back");
}

void seam_torch_memory_fraction(double fraction, int device)
{
    if (seam_set_memory_fraction(fraction, device) != SEAM_OK)
        throw_failed_call("set the memory fraction");
}

void *seam_torch_base_alloc(void *address, size_t *size)
{
    void *block;
    size_t block_size;

    if (seam_block_of(address, &block, &block_size) != SEAM_OK) {
        block = address;
        block_size = 0;
    }
    if (size != NULL)
        *size = block_size;
    return block;
}

void seam_torch_record_stream(void *block, seam_stream stream)
{
    seam_result result;

    if (block == NULL)
        return;
    result = seam_record_stream(block, stream);
    if (result != SEAM_OK && result != SEAM_E_POINTER)
        throw_failed_call("note the use of a block by a stream");
}

void seam_torch_begin_allocate_to_pool(int device, seam_pool_id pool, void *filter)
{
    (void)filter; /* a std::function, which C cannot call: the library tells captures apart by their ids */
    if (seam_pool_begin(device, pool, NULL, NULL) != SEAM_OK)
        throw_failed_call("begin a memory pool");
}

void seam_torch_end_allocate_to_pool(int device, seam_pool_id pool)
{
    (void)seam_pool_end(device, pool); /* also called while an exception passes */
}

void seam_torch_release_pool(int device, seam_pool_id pool)
{
    (void)seam_pool_release(device, pool); /* called by destructors */
}
