/* SPDX-License-Identifier: Apache-2.0 */
/* bad: a library that breaks every rule of check_library.py, to show that each rule notices.
 *
 * It exports a name that no list has, takes static TLS, and is linked to a library that ours may not ask for.
 */
#include <jansson.h>

__attribute__((visibility("default"), tls_model("initial-exec"))) __thread int bad_counter;

__attribute__((visibility("default"))) const char *bad_name(void);

const char *bad_name(void)
{
    bad_counter++;
    return jansson_version_str();
}
