/* SPDX-License-Identifier: Apache-2.0 */
/* libbsd's red-black trees, with the attribute that their static form uses (its macro is not visible
 * everywhere). */
#ifndef SEAMALLOC_SIM_CORE_TREE_H
#define SEAMALLOC_SIM_CORE_TREE_H

#include <bsd/sys/tree.h>

#define SIM_TREE_GENERATE(name, type, field, compare)                                                        \
    RB_GENERATE_INTERNAL(name, type, field, compare, __attribute__((unused)) static)

#endif
