/* SPDX-License-Identifier: Apache-2.0 */
/* docs/options.md holds the tables of the options as the program knows them. `test_policies_options_doc
 * --print` prints both, to be pasted between the marks. */
#include "policies/options.h"
#include "tests/unit/policies/cmocka_all.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *document;

static size_t write_table(char *text, size_t size, bool of_pytorch)
{
    size_t n = (size_t)snprintf(
        text, size, "| key | value | default | valid | meaning |\n| --- | --- | --- | --- | --- |\n");
    for (const struct sm_option_info *info = sm_options_table(); info->key; info++)
        if (info->of_pytorch == of_pytorch)
            n += (size_t)snprintf(text + n, size - n, "| `%s` | %s | %s | %s | %s |\n", info->key, info->kind,
                                  info->default_text, info->range, info->meaning);
    assert_true(n < size);
    return n;
}

static char *load(const char *name)
{
    FILE *file = fopen(name, "rb");
    char *text = calloc(1, 1 << 18);
    if (!file || !text)
        fail_msg("%s cannot be read", name);
    assert_in_range(fread(text, 1, (1 << 18) - 1, file), 1, (1 << 18) - 2);
    fclose(file);
    return text;
}

static void expect_table(bool of_pytorch, const char *mark)
{
    static char expected[1 << 16];
    char line[80], *text = load(document);
    size_t length = write_table(expected, sizeof expected, of_pytorch);
    snprintf(line, sizeof line, "<!-- table: %s -->\n", mark);
    char *at = strstr(text, line);
    if (!at)
        fail_msg("%s has no line %s", document, line);
    at += strlen(line);
    if (*at == '\n')
        at++;
    if (strncmp(at, expected, length) != 0 || (at[length] != '\n' && at[length] != 0))
        fail_msg("%s differs from the table in the program; expected at \"%s\":\n%s", document, mark,
                 expected);
    free(text);
}

static void document_has_both_tables(void **state)
{
    (void)state;
    expect_table(true, "of PyTorch");
    expect_table(false, "of seamalloc");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(document_has_both_tables)};
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        static char text[1 << 16];
        write_table(text, sizeof text, true);
        printf("<!-- table: of PyTorch -->\n\n%s\n", text);
        write_table(text, sizeof text, false);
        printf("<!-- table: of seamalloc -->\n\n%s", text);
        return 0;
    }
    document = argc == 2 ? argv[1] : "docs/options.md";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
