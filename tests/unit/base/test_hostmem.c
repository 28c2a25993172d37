/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: zeroed, counted to the byte, from an arena of its own where jemalloc is there, failing where
 * told. */
#include "base/hostmem.h"
#include "tests/unit/base/cmocka_all.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weak: the sanitizers' builds have no jemalloc. */
extern int mallctl(const char *name, void *old, size_t *old_size, void *new_value, size_t new_size)
    __attribute__((weak));

static bool all_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

static void zeroed_aligned_and_counted(void **state)
{
    (void)state;
    size_t before = sm_hostmem_bytes();
    for (size_t size = 1; size < 300000; size = size * 3 + 1) {
        for (int again = 0; again < 2; again++) { /* the second time it may be used memory */
            unsigned char *memory = sm_hostmem_get(size);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 16, 0);
            assert_true(all_zero(memory, size));
            assert_int_equal(sm_hostmem_bytes(), before + size);
            assert_true(sm_hostmem_bytes_peak() >= before + size);
            memset(memory, 0xee, size);
            sm_hostmem_put(memory, size);
            assert_int_equal(sm_hostmem_bytes(), before);
        }
    }
    sm_hostmem_put(NULL, 100);
    assert_int_equal(sm_hostmem_bytes(), before);
}

static void peak_is_exact(void **state)
{
    (void)state;
    size_t size = sm_hostmem_bytes_peak() + 1000; /* above all that was */
    void *memory = sm_hostmem_get(size);
    assert_int_equal(sm_hostmem_bytes_peak(), sm_hostmem_bytes());
    sm_hostmem_put(memory, size);
    assert_int_equal(sm_hostmem_bytes_peak(), sm_hostmem_bytes() + size);
}

static void resize_keeps_and_zeroes(void **state)
{
    (void)state;
    size_t before = sm_hostmem_bytes();
    unsigned char *memory = sm_hostmem_resize(NULL, 0, 100);
    memset(memory, 7, 100);
    memory = sm_hostmem_resize(memory, 100, 5000);
    for (int i = 0; i < 100; i++)
        assert_int_equal(memory[i], 7);
    assert_true(all_zero(memory + 100, 4900));
    assert_int_equal(sm_hostmem_bytes(), before + 5000);
    sm_fault_arm(sm_hostmem_fault(), 1, false);
    assert_null(sm_hostmem_resize(memory, 5000, 9000));
    assert_int_equal(memory[99], 7); /* untouched */
    assert_int_equal(sm_hostmem_bytes(), before + 5000);
    memory = sm_hostmem_resize(memory, 5000, 10);
    assert_int_equal(memory[9], 7);
    assert_int_equal(sm_hostmem_bytes(), before + 10);
    sm_hostmem_put(memory, 10);
    assert_int_equal(sm_hostmem_bytes(), before);
}

static void refuses_sizes_that_no_host_has(void **state)
{
    (void)state;
    size_t before = sm_hostmem_bytes();
    assert_null(sm_hostmem_get(SIZE_MAX));
    assert_null(sm_hostmem_get(SIZE_MAX / 2));
    assert_int_equal(sm_hostmem_bytes(), before);
}

static unsigned arena_of(void *memory)
{
    unsigned arena = 0;
    size_t size = sizeof arena;
    assert_int_equal(mallctl("arenas.lookup", &arena, &size, &memory, sizeof memory), 0);
    return arena;
}

static size_t small_bytes_of(unsigned arena)
{
    char name[64];
    uint64_t epoch = 1;
    size_t bytes = 0, size = sizeof bytes;
    assert_int_equal(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch), 0);
    snprintf(name, sizeof name, "stats.arenas.%u.small.allocated", arena);
    assert_int_equal(mallctl(name, &bytes, &size, NULL, 0), 0);
    return bytes;
}

/* jemalloc is asked whose memory it is: an arena that malloc() does not use, and no cache keeps what was
 * given back. */
static void lives_in_an_arena_of_its_own(void **state)
{
    (void)state;
    if (!mallctl) {
        assert_string_equal(sm_hostmem_source(), "libc");
        return;
    }
    assert_string_equal(sm_hostmem_source(), "jemalloc");
    void *ours = sm_hostmem_get(64), *another = sm_hostmem_get(4000), *theirs = malloc(64);
    unsigned arena = arena_of(ours);
    assert_int_equal(arena_of(another), arena);
    assert_int_not_equal(arena_of(theirs), arena);
    free(theirs);
    size_t with_all = small_bytes_of(arena);
    sm_hostmem_put(another, 4000);
    assert_int_equal(with_all - small_bytes_of(arena), 4096); /* its size class, back at once */
    sm_hostmem_put(ours, 64);
    assert_int_equal(with_all - small_bytes_of(arena), 4096 + 64);
}

static void *get_and_put(void *unused)
{
    void *kept[16] = {0};
    (void)unused;
    for (unsigned i = 0; i < 20000; i++) {
        unsigned k = i * 7 % 16;
        sm_hostmem_put(kept[k], kept[k] ? 24 + k : 0);
        kept[k] = sm_hostmem_get(24 + k);
    }
    for (unsigned k = 0; k < 16; k++)
        sm_hostmem_put(kept[k], 24 + k);
    return NULL;
}

static void counts_exactly_under_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    size_t before = sm_hostmem_bytes();
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_and_put, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(sm_hostmem_bytes(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_aligned_and_counted),   cmocka_unit_test(peak_is_exact),
        cmocka_unit_test(resize_keeps_and_zeroes),      cmocka_unit_test(refuses_sizes_that_no_host_has),
        cmocka_unit_test(lives_in_an_arena_of_its_own), cmocka_unit_test(counts_exactly_under_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
