/* SPDX-License-Identifier: Apache-2.0 */
/* plant: faults that are built in on purpose, to prove that the simulated device catches them. A library is
 * built with at most one, which -DSEAMALLOC_PLANT=SM_PLANT_... names (CMake: SEAMALLOC_PLANT=early_reuse);
 * without it every condition here is a constant 0 and the code is as if it were not there.
 * tests/plant builds a variant for each and expects the device's report. */
#ifndef SEAMALLOC_ALLOC_PLANT_H
#define SEAMALLOC_ALLOC_PLANT_H

enum sm_plant {
    SM_PLANT_NONE,
    SM_PLANT_EARLY_REUSE,   /* a PENDING block is free at once: its events are not asked */
    SM_PLANT_MISSING_EVENT, /* no event is recorded when a block becomes PENDING */
    SM_PLANT_WRONG_STREAM,  /* the event is recorded on the block's own stream, not on its user's */
    SM_PLANT_EARLY_UNMAP,   /* a trim does not wait for the stream that last used the memory */
    SM_PLANT_EARLY_LEND     /* free memory of a stream is lent to another whether or not its work is done */
};

#ifndef SEAMALLOC_PLANT
#define SEAMALLOC_PLANT SM_PLANT_NONE
#endif

#define SM_PLANTED(name) (SEAMALLOC_PLANT == SM_PLANT_##name)

#endif
