/* SPDX-License-Identifier: Apache-2.0 */
/* Policy files: read line by line, errors with file and line, nothing applied of a bad one, no memory kept.
 */
#include "base/align.h"
#include "base/hostmem.h"
#include "tests/unit/policies/options_testing.h"
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *preset;
static char folder[] = "/tmp/seam-options-XXXXXX", path[64], named[80];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/tuned.conf", folder);
    snprintf(named, sizeof named, "@%s", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_bytes(const char *content, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void write_file(const char *content)
{
    write_bytes(content, strlen(content));
}

static void reads_lines_and_comments(void **state)
{
    (void)state;
    write_file("# a comment\n\n  slack_permille : 9 # another: one\r\nhandle_mib:8, log:2\n"
               "\troundup_power2_divisions:[1:1,4:2]\nmax_split_size_mb:30");
    struct sm_options options = accept(OURS, named);
    assert_int_equal(options.slack_permille, 9);
    assert_int_equal(options.handle_bytes, 8 * SM_MIB);
    assert_int_equal(options.log_level, 2);
    assert_int_equal(options.roundup_divisions[2], 2);
    assert_int_equal(options.max_split_size, 30 * SM_MIB);
    write_file("");
    struct sm_options standard = defaults();
    options = accept(OURS, named);
    assert_same_settings(&options, &standard);
}

static void later_settings_win(void **state)
{
    (void)state;
    char text[200];
    write_file("slack_permille:9,log:2\n");
    snprintf(text, sizeof text, "slack_permille:3, %s , log:0", named);
    struct sm_options options = accept(OURS, text);
    assert_int_equal(options.slack_permille, 9);
    assert_int_equal(options.log_level, 0);
}

static void refuse_file(const char *content, const char *line, const char *key, const char *valid)
{
    char place[80];
    write_file(content);
    snprintf(place, sizeof place, "%s:%s: ", path, line);
    size_t before = sm_hostmem_bytes();
    refuse(OURS, named, place, key, valid);
    assert_int_equal(sm_hostmem_bytes(), before);
}

static void errors_name_file_and_line(void **state)
{
    (void)state;
    refuse_file("log:2\n\n# x\nlog:9\n", "4", "log", "once");
    refuse_file("log:2\nslack_permille:x # y\n", "2", "slack_permille: \"x\"", "0 to 1000");
    refuse_file("log:2\nnonsense\n", "2", "unknown key \"nonsense\"", "backend");
    refuse_file("log:2,\nslack_permille:1\n", "1", "key is missing", "backend");
    refuse_file("roundup_power2_divisions:[1:1,\n2:2]\n", "1", "roundup_power2_divisions", "not closed");
    refuse_file("slack_permille:1\n@/etc/hostname\n", "2", "cannot name another", "");
}

static void bytes_of_any_kind(void **state)
{
    (void)state;
    static const char with_zero[] = "log:2\n\0\0\0";
    write_bytes(with_zero, sizeof with_zero - 1);
    refuse(OURS, named, ":2: ", "key is missing", "");
    write_bytes("log:2\0", 6);
    refuse(OURS, named, ":1: ", "comma", "");
    write_bytes("l\0g:2", 5);
    refuse(OURS, named, ":1: ", "unknown key \"l\"", "");
}

static void files_that_cannot_be_read(void **state)
{
    (void)state;
    char text[200];
    static char large[((size_t)1 << 20) + 1];
    refuse_as(SEAM_E_IO, OURS, "log:2,@/nonexistent/x.conf", "position 7", "/nonexistent/x.conf",
              "No such file");
    snprintf(text, sizeof text, "@%s", folder);
    refuse_as(SEAM_E_IO, OURS, text, "position 1", folder, "regular file");
    refuse_as(SEAM_E_IO, OURS, "@/dev/zero", "position 1", "/dev/zero", "regular file");
    memset(large, '#', sizeof large);
    write_bytes(large, sizeof large - 1);
    accept(OURS, named);
    write_bytes(large, sizeof large);
    refuse_as(SEAM_E_IO, OURS, named, "position 1", path, "1048576 bytes");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes into it: must not wait */
    refuse_as(SEAM_E_IO, OURS, named, "position 1", path, "regular file");
    unlink(path);
    refuse(OURS, "@", "position 1", "path", "");
    refuse(OURS, "@,log:2", "position 1", "path", "");
    memset(large, 'x', 5000);
    large[0] = '@';
    large[5000] = 0;
    refuse(OURS, large, "position 1", "path", "");
}

static void no_host_memory(void **state)
{
    (void)state;
    struct sm_options before = defaults(), options = before;
    struct sm_error error;
    write_file("log:2\n");
    sm_fault_arm(sm_hostmem_fault(), 1, false);
    assert_int_equal(sm_options_parse(&options, OURS, named, &error), SEAM_E_HOST_OOM);
    assert_int_equal(sm_hostmem_fault()->hits, 1);
    assert_memory_equal(&options, &before, sizeof options);
    assert_int_equal(sm_options_parse(&options, OURS, named, &error), SEAM_OK);
    assert_int_equal(options.log_level, 2);
}

/* The preset says the defaults, and says them all. */
static void preset_is_the_default(void **state)
{
    (void)state;
    char text[600], line[600];
    struct sm_options standard = defaults();
    struct sm_options other =
        accept(OURS, "slack_permille:9,handle_mib:8,log:0,peers:none,exportable:False,"
                     "max_split_size_mb:40,max_non_split_rounding_mb:30,small_limit_kib:1,"
                     "roundup_power2_divisions:4,garbage_collection_threshold:0.5,"
                     "per_process_memory_fraction:0.5,address_limit_gib:1,"
                     "expandable_segments:True");
    snprintf(text, sizeof text, "@%s", preset);
    assert_int_equal(sm_options_parse(&other, OURS, text, NULL), SEAM_OK);
    assert_same_settings(&other, &standard);
    FILE *file = fopen(preset, "r");
    assert_non_null(file);
    unsigned policies = 0;
    while (fgets(line, sizeof line, file))
        policies += strncmp(line, "policy:stitch", 13) == 0;
    fclose(file);
    assert_int_equal(policies, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_lines_and_comments),  cmocka_unit_test(later_settings_win),
        cmocka_unit_test(errors_name_file_and_line), cmocka_unit_test(bytes_of_any_kind),
        cmocka_unit_test(files_that_cannot_be_read), cmocka_unit_test(no_host_memory),
        cmocka_unit_test(preset_is_the_default),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s PRESET\n", argv[0]);
        return 2;
    }
    preset = argv[1];
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
