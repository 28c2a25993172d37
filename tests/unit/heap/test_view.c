/* SPDX-License-Identifier: Apache-2.0 */
/* Views: pieces lent and given back, runs of free bytes found in a view, blocks in views, and a validator
 * that sees each kind of damage. The scene: handles h0 .. h4 of 4, 2, 6, 2 and 2 granules, views over some of
 * them.
 */
#include "alloc/heap/internal.h"
#include "alloc/heap/view.h"
#include "tests/unit/heap/bench.h"
#include <string.h>

#define VIEW_BASE ((uint64_t)0x600000000000)
#define HANDLES   5

static const uint64_t begins[HANDLES + 1] = {0, 4, 6, 12, 14, 16}; /* of the handles, in granules */

struct scene {
    struct bench bench;
    unsigned views;
};

static void open_scene(struct scene *scene)
{
    scene->views = 0;
    bench_open(&scene->bench, 32);
    FILL(&scene->bench, scene->bench.extent->first, 4, 2, 6, 2, 2);
}

static struct sm_handle *handle(struct scene *scene, unsigned i)
{
    return sm_extent_handle_at(scene->bench.extent, AT(begins[i]));
}

/* A view over handles by number, mapped and open. */
static struct sm_view *add_view(struct scene *scene, const unsigned *numbers, uint32_t count)
{
    struct sm_view *view = sm_view_create(scene->bench.home, count);
    assert_non_null(view);
    assert_true(view->closed);
    for (uint32_t i = 0; i < count; i++) {
        sm_view_add(view, scene->bench.extent, handle(scene, numbers[i]), 0, handle(scene, numbers[i])->size);
        view->entries[i].mapped = true;
    }
    sm_view_publish(&scene->bench.heap, view, VIEW_BASE + 64 * GRANULE * scene->views++);
    view->closed = false;
    view->whole = true;
    bench_check(&scene->bench);
    return view;
}

#define VIEW(scene, ...)                                                                                     \
    add_view(scene, (const unsigned[]){__VA_ARGS__},                                                         \
             sizeof((const unsigned[]){__VA_ARGS__}) / sizeof(unsigned))

/* A LIVE block over [from, to) granules at home. */
static struct sm_block *occupy(struct scene *scene, uint64_t from, uint64_t to)
{
    struct sm_block *block = bench_block(scene->bench.extent, AT(from));
    assert_true(sm_heap_prepare(&scene->bench.heap, 2));
    block = sm_block_take_at(block, AT(from), (to - from) * GRANULE, (to - from) * GRANULE);
    bench_check(&scene->bench);
    return block;
}

static bool everybody(const struct sm_home *home, void *context)
{
    (void)home;
    (void)context;
    return true;
}

static bool nobody(const struct sm_home *home, void *context)
{
    (void)home;
    (void)context;
    return false;
}

static bool find(struct scene *scene, uint64_t granules, struct sm_run *run)
{
    return sm_view_find_run(&scene->bench.heap, granules * GRANULE, 64, everybody, NULL, run);
}

/* A run of this length exactly, from this offset, in granules. */
static void expect_run(struct scene *scene, uint64_t size, const struct sm_view *view, uint64_t from,
                       uint64_t to)
{
    struct sm_run run;
    assert_true(find(scene, size, &run));
    assert_ptr_equal(run.view, view);
    assert_int_equal(run.from, from * GRANULE);
    assert_int_equal(run.to, to * GRANULE);
}

static struct sm_block *take(struct scene *scene, uint64_t size, uint64_t requested)
{
    struct sm_run run;
    assert_true(sm_view_find_run(&scene->bench.heap, size, 64, everybody, NULL, &run));
    assert_true(sm_heap_prepare(&scene->bench.heap, sm_view_records(run.view->count)));
    struct sm_block *block = sm_view_take(&run, size, requested);
    bench_check(&scene->bench);
    return block;
}

/* ---- lending ---- */

static void a_piece_is_cut_out_and_comes_back(void **state)
{
    (void)state;
    static const struct {
        uint64_t from, to; /* bytes in the free range */
        unsigned ranges;   /* free ranges beside it */
    } rows[] = {{0, 16 * GRANULE, 0},
                {0, 512, 1},
                {512, 16 * GRANULE, 1},
                {3 * GRANULE + 512, 5 * GRANULE - 512, 2},
                {4 * GRANULE, 6 * GRANULE, 2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        open_scene(&scene);
        struct sm_heap *heap = &scene.bench.heap;
        struct sm_block *range = scene.bench.extent->first;
        assert_true(sm_heap_prepare(heap, 2));
        struct sm_block *piece = sm_block_lend(range, BASE + rows[i].from, BASE + rows[i].to);
        uint64_t size = rows[i].to - rows[i].from;
        assert_int_equal(piece->state, SM_BLOCK_LENT);
        assert_int_equal(piece->address, BASE + rows[i].from);
        assert_int_equal(piece->size, size);
        assert_null(piece->borrower);
        assert_int_equal(scene.bench.home->used, size);
        assert_int_equal(scene.bench.home->held + scene.bench.home->whole, 16 * GRANULE - size);
        unsigned ranges = 0;
        struct sm_block *block;
        RB_FOREACH(block, sm_free_tree, &scene.bench.home->free_ranges)
            ranges++;
        assert_int_equal(ranges, rows[i].ranges);
        int64_t sum = 0; /* nothing is nowhere while the driver works */
        for (int part = 0; part < SM_PART_COUNT; part++)
            sum += heap->parts.bytes[part];
        assert_int_equal(sum, heap->reserved);
        sm_block_unlend(piece);
        bench_check(&scene.bench);
        assert_int_equal(scene.bench.home->whole, 16 * GRANULE);
        assert_int_equal(sm_home_largest(scene.bench.home)->size, 16 * GRANULE);
        bench_close(&scene.bench);
    }
}

/* ---- views ---- */

static void a_view_counts_what_it_maps(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene);
    struct sm_heap *heap = &scene.bench.heap;
    uint64_t addresses = heap->address_bytes;
    struct sm_view *view = VIEW(&scene, 2, 0);
    struct sm_view *other = VIEW(&scene, 0, 4, 1);
    assert_int_equal(view->span.size, 10 * GRANULE);
    assert_int_equal(view->entries[1].offset, 6 * GRANULE);
    assert_int_equal(heap->view_count, 2);
    assert_int_equal(heap->view_handles, 5);
    assert_int_equal(heap->address_bytes, addresses + 18 * GRANULE);
    assert_int_equal(handle(&scene, 0)->views, 2);
    assert_int_equal(handle(&scene, 3)->views, 0);
    assert_ptr_equal(TAILQ_FIRST(&heap->views), other);
    sm_view_destroy(heap, view);
    bench_check(&scene.bench);
    assert_int_equal(handle(&scene, 0)->views, 1);
    assert_int_equal(handle(&scene, 2)->views, 0);
    sm_view_destroy(heap, other);
    assert_int_equal(heap->view_count + heap->view_handles + handle(&scene, 0)->views, 0);
    assert_int_equal(heap->address_bytes, addresses);
    bench_close(&scene.bench);
}

/* One that was never mapped is in no list and in no sum. */
static void a_view_that_came_to_nothing(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene);
    uint64_t addresses = scene.bench.heap.address_bytes;
    struct sm_view *view = sm_view_create(scene.bench.home, 2);
    sm_view_add(view, scene.bench.extent, handle(&scene, 0), 0, handle(&scene, 0)->size);
    assert_int_equal(handle(&scene, 0)->views, 1);
    sm_view_destroy(&scene.bench.heap, view);
    assert_int_equal(handle(&scene, 0)->views, 0);
    assert_int_equal(scene.bench.heap.address_bytes, addresses);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        sm_fault_arm(sm_hostmem_fault(), nth, false);
        assert_null(sm_view_create(scene.bench.home, 2));
        sm_fault_arm(sm_hostmem_fault(), 0, false);
    }
    bench_close(&scene.bench);
}

static void a_handle_in_a_view_is_not_carved(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene);
    struct sm_view *view = VIEW(&scene, 4, 2);
    struct sm_block *range = scene.bench.extent->first;
    /* From the high end: h4 is in the view, h3 is not, h2 is. */
    assert_int_equal(bench_trim(&scene.bench, range, UINT64_MAX), 2 * GRANULE);
    assert_int_equal(scene.bench.home->mapped, 14 * GRANULE);
    assert_int_equal(bench_trim(&scene.bench, bench_block(scene.bench.extent, AT(0)), UINT64_MAX),
                     6 * GRANULE);
    assert_false(sm_block_can_carve(bench_block(scene.bench.extent, AT(6))));
    assert_false(sm_block_can_carve(bench_block(scene.bench.extent, AT(14))));
    sm_view_destroy(&scene.bench.heap, view);
    assert_int_equal(bench_trim(&scene.bench, bench_block(scene.bench.extent, AT(6)), UINT64_MAX),
                     6 * GRANULE);
    bench_close(&scene.bench);
}

/* ---- runs ---- */

static void the_shortest_run_serves(void **state)
{
    (void)state;
    struct scene scene;
    struct sm_run run;
    open_scene(&scene);
    struct sm_view *wide = VIEW(&scene, 0, 1, 2);
    struct sm_view *narrow = VIEW(&scene, 3, 4);
    expect_run(&scene, 3, narrow, 0, 4);
    expect_run(&scene, 4, narrow, 0, 4);
    expect_run(&scene, 5, wide, 0, 12);
    assert_false(find(&scene, 13, &run));
    occupy(&scene, 5, 6); /* of h1 */
    expect_run(&scene, 5, wide, 0, 5);
    expect_run(&scene, 6, wide, 6, 12);
    assert_false(find(&scene, 7, &run));
    occupy(&scene, 13, 15);
    expect_run(&scene, 1, narrow, 0, 1);
    bench_close(&scene.bench);
}

/* Begins inside a handle, goes over one that lies elsewhere at home, ends inside a third. */
static void a_run_goes_on_from_handle_to_handle(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene);
    struct sm_view *view = VIEW(&scene, 0, 4, 2);
    struct sm_block *low = occupy(&scene, 0, 3);
    occupy(&scene, 8, 12);
    occupy(&scene, 4, 6);
    expect_run(&scene, 5, view, 3, 8);
    struct sm_block *block = take(&scene, 4 * GRANULE + 512, 4 * GRANULE + 3);
    assert_int_equal(block->address, view->span.base + 3 * GRANULE);
    assert_int_equal(block->pieces->address, AT(3));
    assert_int_equal(block->pieces->next_piece->address, AT(14));
    assert_int_equal(block->pieces->next_piece->size, 2 * GRANULE);
    assert_int_equal(block->pieces->next_piece->next_piece->address, AT(6));
    assert_int_equal(block->pieces->next_piece->next_piece->size, GRANULE + 512);
    assert_int_equal(view->live, 1);
    assert_int_equal(scene.bench.heap.parts.bytes[SM_PART_rounding], 509);
    /* The rest of the run, and nothing of the block. */
    struct sm_run run;
    assert_true(sm_view_find_run(&scene.bench.heap, 512, 64, everybody, NULL, &run));
    assert_int_equal(run.from, 7 * GRANULE + 512);
    assert_int_equal(run.to, 8 * GRANULE);
    assert_ptr_equal(sm_view_block_of(&scene.bench.heap, block->address + 4 * GRANULE + 511), block);
    assert_null(sm_view_block_of(&scene.bench.heap, block->address + 4 * GRANULE + 512));
    assert_null(sm_view_block_of(&scene.bench.heap, block->address - 1));
    assert_null(sm_block_give(block));
    bench_check(&scene.bench);
    assert_int_equal(view->live, 0);
    bench_give(&scene.bench, low);
    expect_run(&scene, 8, view, 0, 8);
    bench_close(&scene.bench);
}

/* Two blocks in one view, one of them pending. */
static void blocks_share_a_view(void **state)
{
    (void)state;
    struct scene scene;
    struct sm_fence fence = {0};
    open_scene(&scene);
    struct sm_view *view = VIEW(&scene, 2, 0);
    struct sm_block *a = take(&scene, 7 * GRANULE, 7 * GRANULE);
    struct sm_block *b = take(&scene, 2 * GRANULE, 2 * GRANULE);
    assert_int_equal(b->address, a->address + 7 * GRANULE);
    assert_int_equal(view->live, 2);
    assert_int_equal(scene.bench.heap.stitched, 2);
    a->fence = &fence;
    sm_block_pend(a);
    bench_check(&scene.bench);
    assert_null(sm_view_block_of(&scene.bench.heap, a->address));
    assert_null(sm_heap_block(&scene.bench.heap, a->address));
    struct sm_run run;
    assert_false(find(&scene, 2, &run)); /* what waits is not free */
    a->fence = NULL;
    assert_null(sm_block_give(a));
    bench_check(&scene.bench);
    assert_null(sm_block_give(b));
    bench_check(&scene.bench);
    expect_run(&scene, 10, view, 0, 10);
    bench_close(&scene.bench);
}

static void who_may_not_lend_ends_a_run(void **state)
{
    (void)state;
    struct scene scene;
    struct sm_run run;
    open_scene(&scene);
    VIEW(&scene, 0, 1);
    assert_false(sm_view_find_run(&scene.bench.heap, GRANULE, 64, nobody, NULL, &run));
    assert_true(sm_view_find_run(&scene.bench.heap, GRANULE, 64, everybody, NULL, &run));
    assert_false(sm_view_find_run(&scene.bench.heap, GRANULE, 0, everybody, NULL, &run));
    bench_close(&scene.bench);
}

static void a_closed_view_serves_nobody(void **state)
{
    (void)state;
    struct scene scene;
    struct sm_run run;
    open_scene(&scene);
    struct sm_view *view = VIEW(&scene, 0, 1);
    view->closed = true;
    assert_false(find(&scene, 1, &run));
    view->closed = false;
    assert_true(find(&scene, 1, &run));
    bench_close(&scene.bench);
}

/* The search looks at the views used last, and a block makes its view one of them. */
static void only_the_views_used_last_are_searched(void **state)
{
    (void)state;
    struct scene scene;
    struct sm_run run;
    open_scene(&scene);
    struct sm_view *first = VIEW(&scene, 0, 2);
    struct sm_view *second = VIEW(&scene, 1, 3);
    assert_false(sm_view_find_run(&scene.bench.heap, 10 * GRANULE, 1, everybody, NULL, &run));
    struct sm_block *block = take(&scene, 10 * GRANULE, 1);
    assert_ptr_equal(TAILQ_FIRST(&scene.bench.heap.views), first);
    assert_ptr_equal(TAILQ_NEXT(first, link), second);
    sm_block_give(block);
    assert_true(sm_view_find_run(&scene.bench.heap, 10 * GRANULE, 1, everybody, NULL, &run));
    bench_close(&scene.bench);
}

/* A handle that was unmapped from under a view leaves a hole in it; its slot, and even its extent, may be
 * gone or another's afterwards. */
static void what_is_gone_from_a_view_is_not_touched(void **state)
{
    (void)state;
    struct scene scene;
    struct sm_run run;
    open_scene(&scene);
    struct sm_heap *heap = &scene.bench.heap;
    struct sm_extent *own = scene.bench.extent;
    struct sm_extent *other = sm_extent_add(scene.bench.home, BASE + SM_GIB, 4 * GRANULE);
    assert_non_null(other);
    FILL(&scene.bench, other->first, 3);
    occupy(&scene, 4, 16);
    struct sm_view *view = sm_view_create(scene.bench.home, 3);
    sm_view_add(view, own, handle(&scene, 0), 0, handle(&scene, 0)->size);
    sm_view_add(view, other, sm_extent_handle_at(other, other->base), 0,
                sm_extent_handle_at(other, other->base)->size);
    sm_view_add(view, own, handle(&scene, 2), 0, handle(&scene, 2)->size);
    sm_view_publish(heap, view, VIEW_BASE);
    for (int i = 0; i < 3; i++)
        view->entries[i].mapped = true;
    view->closed = false;
    view->whole = true;
    struct sm_block *block = take(&scene, GRANULE, GRANULE);
    assert_true(sm_view_uses(view, &view->entries[0]));
    assert_false(sm_view_uses(view, &view->entries[1]));
    view->entries[1].mapped = false;
    sm_view_drop(heap, &view->entries[1]);
    bench_check(&scene.bench);
    assert_int_equal(heap->view_handles, 2);
    assert_int_equal(bench_trim(&scene.bench, other->first, UINT64_MAX), 3 * GRANULE);
    sm_extent_remove(other);
    assert_ptr_equal(sm_view_block_of(heap, block->address), block);
    assert_null(sm_view_block_of(heap, view->span.base + 5 * GRANULE));
    assert_false(find(&scene, 4, &run));
    expect_run(&scene, 3, view, 1, 4);
    struct sm_block *rest = take(&scene, 3 * GRANULE, 1);
    sm_block_give(rest);
    sm_block_give(block);
    sm_view_destroy(heap, view);
    bench_close(&scene.bench);
}

/* ---- damage ---- */

static void expect(struct scene *scene, const char *word)
{
    struct sm_error error = {0};
    if (!sm_heap_validate(&scene->bench.heap, &error))
        fail_msg("damage was not found: %s", word);
    if (!strstr(error.text, word))
        fail_msg("\"%s\" was expected in: %s", word, error.text);
}

#define DAMAGE(scene, place, value, word)                                                                    \
    do {                                                                                                     \
        __typeof__(place) right = (place);                                                                   \
        (place) = (value);                                                                                   \
        expect(scene, word);                                                                                 \
        (place) = right;                                                                                     \
        bench_check(&(scene)->bench);                                                                        \
    } while (0)

static void damage_is_found(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene);
    struct sm_heap *heap = &scene.bench.heap;
    struct sm_view *view = VIEW(&scene, 0, 1, 2), *other = VIEW(&scene, 3, 4);
    struct sm_block *a = take(&scene, 6 * GRANULE, 6 * GRANULE); /* h0, h1 */
    struct sm_block *b = take(&scene, 3 * GRANULE, 3 * GRANULE); /* h3, half of h4 */
    struct sm_block *first = a->pieces, *second = first->next_piece;
    struct sm_view_entry *entries = view->entries;
    uint32_t slot = entries[0].slot;
    /* h0 stands for h2 too, which no block uses: nothing is mapped wrongly, but a later block could be. */
    struct sm_view_entry twice = entries[2];
    twice.slot = slot;
    twice.size = 4 * GRANULE;
    DAMAGE(&scene, entries[2], twice, "holds bytes twice");
    /* h2's half is not h1's place. */
    DAMAGE(&scene, entries[1].slot, entries[2].slot, "is mapped to another place");
    DAMAGE(&scene, entries[0].slot, entries[1].slot, "is mapped to another place");
    DAMAGE(&scene, entries[1].offset, entries[1].offset + GRANULE, "is mapped to another place");
    DAMAGE(&scene, entries[2].offset, entries[2].offset + GRANULE, "does not follow the one before");
    DAMAGE(&scene, entries[2].size, 5 * GRANULE, "its handle changed");
    DAMAGE(&scene, entries[0].gone, true, "not mapped any more");
    DAMAGE(&scene, entries[1].mapped, false, "not mapped any more");
    DAMAGE(&scene, entries[2].gone, true, "a recount gives");
    DAMAGE(&scene, a->address, a->address + 512, "");
    DAMAGE(&scene, a->size, a->size - 512, "sum to");
    DAMAGE(&scene, first->borrower, b, "a recount gives");
    DAMAGE(&scene, second->borrower, b, "lent to another");
    DAMAGE(&scene, second->borrower, NULL, "lent to another");
    DAMAGE(&scene, first->borrower, NULL, "lent to nobody");
    DAMAGE(&scene, first->next_piece, NULL, "sum to");
    DAMAGE(&scene, a->pieces, second, "is mapped to another place");
    DAMAGE(&scene, a->extent, b->extent, "");
    DAMAGE(&scene, a->state, SM_BLOCK_PENDING, "is in state");
    DAMAGE(&scene, view->count, 1, "is longer than its view");
    DAMAGE(&scene, view->live, 0, "a recount gives");
    DAMAGE(&scene, heap->view_count, 3, "a recount gives");
    DAMAGE(&scene, heap->view_handles, 4, "a recount gives");
    DAMAGE(&scene, heap->stitched, 1, "a recount gives");
    DAMAGE(&scene, handle(&scene, 0)->views, 0, "the handles count");
    DAMAGE(&scene, heap->parts.bytes[SM_PART_fenced], 512, "part fenced");
    DAMAGE(&scene, other->span.size, 5 * GRANULE, "address bytes");
    assert_true(sm_index_remove(&heap->index, a));
    expect(&scene, "stitched block");
    sm_index_insert(&heap->index, a);
    bench_check(&scene.bench);
    /* A piece handed out at home as well. */
    first->state = SM_BLOCK_LIVE;
    expect(&scene, "");
    first->state = SM_BLOCK_LENT;
    bench_close(&scene.bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_is_cut_out_and_comes_back),
        cmocka_unit_test(a_view_counts_what_it_maps),
        cmocka_unit_test(a_view_that_came_to_nothing),
        cmocka_unit_test(a_handle_in_a_view_is_not_carved),
        cmocka_unit_test(the_shortest_run_serves),
        cmocka_unit_test(a_run_goes_on_from_handle_to_handle),
        cmocka_unit_test(blocks_share_a_view),
        cmocka_unit_test(who_may_not_lend_ends_a_run),
        cmocka_unit_test(a_closed_view_serves_nobody),
        cmocka_unit_test(only_the_views_used_last_are_searched),
        cmocka_unit_test(what_is_gone_from_a_view_is_not_touched),
        cmocka_unit_test(damage_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
