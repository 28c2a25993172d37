/* SPDX-License-Identifier: Apache-2.0 */
/* oom: turns a shortage of memory into PyTorch's own exception, which Python sees as torch.OutOfMemoryError.
 *
 * Compiled on the user's machine against the PyTorch in use (seamalloc/_native.py), because the exception's
 * layout is PyTorch's and changes with it. Links libc10 alone. SEAM_TORCH_VERSION is torch.__version__, given
 * by the loader, which asks for it again when it finds the compiled file later. */
#include <c10/util/Exception.h>

extern "C" __attribute__((visibility("default"))) const char *seam_native_torch_version(void)
{
    return SEAM_TORCH_VERSION;
}

extern "C" __attribute__((visibility("default"))) void seam_native_throw(const char *text)
{
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
}
