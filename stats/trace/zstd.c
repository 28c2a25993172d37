/* SPDX-License-Identifier: Apache-2.0 */
/* zstd: the compression library, bound by name when a recording needs it (format.h says why). Its contexts
 * come from its own allocations. Owns the handle of the library, which is never closed. */
#include "stats/trace/format.h"
#include <dlfcn.h>
#include <pthread.h>
#include <zstd.h>

/* Fast, and within a few percent of the higher levels on varints. */
#define LEVEL 1

static struct {
    pthread_once_t once;
    bool loaded;
    __typeof__(&ZSTD_createCCtx) create;
    __typeof__(&ZSTD_freeCCtx) destroy;
    __typeof__(&ZSTD_compressCCtx) compress;
    __typeof__(&ZSTD_decompress) decompress;
    __typeof__(&ZSTD_isError) is_error;
} zstd = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    *(void **)&zstd.create = dlsym(library, "ZSTD_createCCtx");
    *(void **)&zstd.destroy = dlsym(library, "ZSTD_freeCCtx");
    *(void **)&zstd.compress = dlsym(library, "ZSTD_compressCCtx");
    *(void **)&zstd.decompress = dlsym(library, "ZSTD_decompress");
    *(void **)&zstd.is_error = dlsym(library, "ZSTD_isError");
    zstd.loaded = zstd.create && zstd.destroy && zstd.compress && zstd.decompress && zstd.is_error;
    /* The library stays for the life of the process. */
    /* cppcheck-suppress resourceLeak */
}

bool sm_zstd_load(void)
{
    pthread_once(&zstd.once, load);
    return zstd.loaded;
}

void *sm_zstd_create(void)
{
    return zstd.create();
}

void sm_zstd_destroy(void *context)
{
    if (context)
        zstd.destroy(context);
}

size_t sm_zstd_compress(void *context, void *to, size_t capacity, const void *from, size_t size)
{
    size_t bytes = zstd.compress(context, to, capacity, from, size, LEVEL);
    return zstd.is_error(bytes) ? 0 : bytes;
}

bool sm_zstd_decompress(void *to, size_t size, const void *from, size_t stored)
{
    return zstd.decompress(to, size, from, stored) == size;
}
