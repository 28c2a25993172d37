/* SPDX-License-Identifier: Apache-2.0 */
/* throw: the only C++ of the plug-in, and it needs the C++ runtime alone.
 *
 * std::runtime_error becomes RuntimeError in Python, whatever PyTorch's version. A function set by
 * seam_torch_set_throw, compiled against the PyTorch in use, may turn a shortage of memory into PyTorch's own
 * OutOfMemoryError. The C frames between here and PyTorch are compiled with -fexceptions. */
#include "torch-glue/shim/throw.h"
#include "torch-glue/shim/face.h"
#include <atomic>
#include <stdexcept>

static std::atomic<void (*)(const char *)> shortage_thrower{nullptr};

void seam_torch_set_throw(void (*thrower)(const char *text))
{
    shortage_thrower.store(thrower, std::memory_order_release);
}

void sm_throw_failure(const char *text)
{
    throw std::runtime_error(text);
}

void sm_throw_shortage(const char *text)
{
    void (*thrower)(const char *) = shortage_thrower.load(std::memory_order_acquire);
    if (thrower != nullptr)
        thrower(text);
    /* There is none, or it returned against its contract. */
    sm_throw_failure(text);
}
