/* SPDX-License-Identifier: Apache-2.0 */
/* module: see module.h. PyTorch registers some 24,000 kernels in some hundreds of modules: names are found in
 * a tree. */
#include "sim/core/module.h"
#include "sim/core/memory.h"
#include "sim/core/table.h"
#include "sim/core/tree.h"
#include <stdlib.h>
#include <string.h>

enum { GLOBAL_BYTES = 65536 };

struct entry {
    RB_ENTRY(entry) link;
    struct sim_function *function; /* or NULL */
    uint64_t base;                 /* of a variable on `device`, or 0 */
    int device;
    const char *name; /* in the same block of memory */
};

static int compare(const struct entry *a, const struct entry *b)
{
    int order = strcmp(a->name, b->name);
    if (order == 0)
        order = (a->function != NULL) - (b->function != NULL);
    return order ? order : a->device - b->device;
}
RB_HEAD(entry_tree, entry);
SIM_TREE_GENERATE(entry_tree, entry, link, compare)

struct module {
    struct entry_tree entries;
};

uint64_t sim_module_new(void)
{
    struct module *module = calloc(1, sizeof *module);
    if (!module)
        return 0;
    RB_INIT(&module->entries);
    uint64_t handle = sim_table_add(SIM_KIND_MODULE, module);
    if (!handle)
        free(module);
    return handle;
}

static void free_entry(struct entry *entry)
{
    if (entry->function)
        sim_table_remove(SIM_KIND_FUNCTION, entry->function->handle);
    free(entry->function);
    free(entry);
}

static void free_module(struct module *module, bool with_memory)
{
    for (struct entry *entry; (entry = RB_ROOT(&module->entries));) {
        RB_REMOVE(entry_tree, &module->entries, entry);
        if (with_memory && entry->base)
            sim_memory_free(entry->base);
        free_entry(entry);
    }
    free(module);
}

CUresult sim_module_unload(uint64_t handle)
{
    struct module *module = sim_table_remove(SIM_KIND_MODULE, handle);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    free_module(module, true);
    return CUDA_SUCCESS;
}

struct sim_function *sim_function_get(uint64_t handle)
{
    return sim_table_get(SIM_KIND_FUNCTION, handle);
}

/* An entry that is not yet in the tree. */
static struct entry *new_entry(const char *name)
{
    struct entry *entry = calloc(1, sizeof *entry + strlen(name) + 1);
    if (entry)
        entry->name = strcpy((char *)(entry + 1), name);
    return entry;
}

CUresult sim_module_function(uint64_t handle, const char *name, uint64_t *function)
{
    static struct sim_function any;
    struct module *module = sim_table_get(SIM_KIND_MODULE, handle);
    struct entry key = {.name = name, .function = &any}, *entry;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    entry = RB_FIND(entry_tree, &module->entries, &key);
    if (!entry) {
        entry = new_entry(name);
        if (!entry)
            return CUDA_ERROR_OUT_OF_MEMORY;
        entry->function = calloc(1, sizeof *entry->function + strlen(name) + 1);
        uint64_t made = entry->function ? sim_table_add(SIM_KIND_FUNCTION, entry->function) : 0;
        if (!made) {
            free(entry->function);
            free(entry);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        entry->function->handle = made;
        entry->function->module = handle;
        strcpy(entry->function->name, name);
        RB_INSERT(entry_tree, &module->entries, entry);
    }
    *function = entry->function->handle;
    return CUDA_SUCCESS;
}

CUresult sim_module_global(uint64_t handle, const char *name, int device, uint64_t *base, size_t *size)
{
    struct module *module = sim_table_get(SIM_KIND_MODULE, handle);
    struct entry key = {.name = name, .device = device}, *entry;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    entry = RB_FIND(entry_tree, &module->entries, &key);
    if (!entry) {
        entry = new_entry(name);
        CUresult result =
            entry ? sim_memory_alloc(device, GLOBAL_BYTES, &entry->base) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result) {
            free(entry);
            return result;
        }
        entry->device = device;
        RB_INSERT(entry_tree, &module->entries, entry);
    }
    if (base)
        *base = entry->base;
    if (size)
        *size = GLOBAL_BYTES;
    return CUDA_SUCCESS;
}

static void drop(uint64_t handle, void *object, void *user)
{
    (void)user;
    sim_table_remove(SIM_KIND_MODULE, handle);
    free_module(object, false);
}

void sim_modules_reset(void)
{
    sim_table_each(SIM_KIND_MODULE, drop, NULL);
}
