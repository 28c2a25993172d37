/* SPDX-License-Identifier: Apache-2.0 */
/* consumer: a user's program, written against the installed headers alone.
 *
 * Takes a block, looks it up, reads a figure and the report, gives everything back. Each step that goes wrong
 * has its own exit status, so that the test that runs it can say which. Prints the version of the library it
 * ran with. */
#include <seamalloc/seamalloc.h>
#include <stdio.h>

static int fail(int step)
{
    fprintf(stderr, "consumer: step %d: %s: %s\n", step, seam_result_name(seam_last_result()),
            seam_last_error());
    return step;
}

int main(void)
{
    const size_t size = (size_t)3 << 20;
    void *found = NULL;
    size_t found_size = 0;
    int64_t allocated = 0;
    char report[1 << 16];

    char *block = seam_malloc(size, 0, NULL);
    if (!block)
        return fail(1);
    if (seam_block_of(block + size - 1, &found, &found_size) != SEAM_OK || found != block ||
        found_size < size)
        return fail(2);
    if (seam_stat(0, "allocated_bytes.all.current", &allocated) != SEAM_OK || allocated < (int64_t)size)
        return fail(3);
    if (seam_stats_json(0, report, sizeof report) == 0 || report[0] != '{')
        return fail(4);
    if (seam_free(block) != SEAM_OK)
        return fail(5);
    if (seam_free(report) != SEAM_E_POINTER)
        return fail(6);
    if (seam_validate() != SEAM_OK)
        return fail(7);
    if (seam_shutdown() != SEAM_OK)
        return fail(8);
    printf("%s\n", seam_version());
    return 0;
}
