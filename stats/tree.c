/* SPDX-License-Identifier: Apache-2.0 */
/* tree: the paths of phases that were ever entered, and what their entries add up to.
 *
 * A node is a name under a parent, found by a red-black tree over (parent, name). Nodes are never given back
 * while the statistics live; programs that make up names without end run into SM_NODES_MAX and are counted
 * under "(other)". */
#include "stats/internal.h"

#include <string.h>

static int compare_nodes(const struct sm_node *a, const struct sm_node *b)
{
    if (a->parent != b->parent)
        return (uintptr_t)a->parent < (uintptr_t)b->parent ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* libbsd's RB_GENERATE_STATIC needs an attribute macro that glibc lacks; not all of its functions are used.
 */
RB_GENERATE_INTERNAL(sm_node_tree, sm_node, by_name, compare_nodes, static __attribute__((unused)))

void sm_tree_init(struct sm_stats *stats)
{
    sm_slab_init(&stats->nodes, sizeof(struct sm_node));
    RB_INIT(&stats->nodes_by_name);
    TAILQ_INIT(&stats->phase_root.children);
    TAILQ_INIT(&stats->window_root.children);
    TAILQ_INIT(&stats->thread_root.children);
}

void sm_tree_fini(struct sm_stats *stats)
{
    sm_slab_fini(&stats->nodes);
}

bool sm_tree_reserve(struct sm_stats *stats)
{
    return sm_slab_reserve(&stats->nodes, 1);
}

static struct sm_node *find_child(struct sm_stats *stats, struct sm_node *parent, const char *name)
{
    struct sm_node key = {.parent = parent};
    strncpy(key.name, name, SM_PHASE_NAME_MAX);
    return sm_node_tree_RB_FIND(&stats->nodes_by_name, &key);
}

static struct sm_node *make_child(struct sm_stats *stats, struct sm_node *parent, const char *name)
{
    struct sm_node *node = sm_slab_take(&stats->nodes);
    node->parent = parent;
    node->depth = parent->depth + 1;
    strncpy(node->name, name, SM_PHASE_NAME_MAX);
    TAILQ_INIT(&node->children);
    TAILQ_INSERT_TAIL(&parent->children, node, sibling);
    sm_node_tree_RB_INSERT(&stats->nodes_by_name, node);
    return node;
}

struct sm_node *sm_tree_enter(struct sm_stats *stats, struct sm_node *parent, const char *name)
{
    struct sm_node *node = find_child(stats, parent, name);
    if (node)
        return node;
    if (parent->depth < SM_NODE_DEPTH_MAX && stats->nodes.count < SM_NODES_MAX)
        return make_child(stats, parent, name);
    while (parent->parent)
        parent = parent->parent;
    node = find_child(stats, parent, SM_NODE_OTHER_NAME);
    return node ? node : make_child(stats, parent, SM_NODE_OTHER_NAME);
}

void sm_tree_add(struct sm_node *node, const int64_t figure[SM_FIGURE_COUNT], const struct sm_crest *crest)
{
    const bool first = node->count++ == 0;
    for (unsigned i = 0; i < SM_FIGURE_COUNT; i++) {
        struct sm_series *series = &node->figure[i];
        if (first || figure[i] < series->min)
            series->min = figure[i];
        if (first || figure[i] > series->max)
            series->max = figure[i];
        series->last = figure[i];
        series->sum += (double)figure[i];
    }
    if (first)
        node->highest = *crest;
    else
        sm_crest_merge(&node->highest, crest);
}

struct sm_node *sm_tree_next(const struct sm_node *node)
{
    if (!TAILQ_EMPTY(&node->children))
        return TAILQ_FIRST(&node->children);
    while (node->parent && !TAILQ_NEXT(node, sibling))
        node = node->parent;
    return node->parent ? TAILQ_NEXT(node, sibling) : NULL;
}
