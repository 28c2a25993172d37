/* SPDX-License-Identifier: Apache-2.0 */
/* throw: how a failure leaves the C code. */
#ifndef SEAMALLOC_TORCH_THROW_H
#define SEAMALLOC_TORCH_THROW_H

#ifdef __cplusplus
extern "C" {
#endif

/* Both never return; the text is copied before anything unwinds. Requires: no lock of the library is held.
 * sm_throw_shortage is for memory of the device that is missing or beyond the limit, sm_throw_failure for the
 * rest. */
__attribute__((noreturn)) void sm_throw_shortage(const char *text);
__attribute__((noreturn)) void sm_throw_failure(const char *text);

#ifdef __cplusplus
}
#endif

#endif
