# SPDX-License-Identifier: Apache-2.0
"""Loaded at the start of every interpreter of a simulated environment, by a path file beside it.

Waits for `import torch`, and then turns cuDNN off: the simulated device has no cuDNN, and PyTorch's own convolutions
and recurrent layers, which it uses in that case, run unchanged. It says so once a run, on stderr."""

import importlib.util
import os
import sys

SAID = "SEAMALLOC_SIM_SAID"  # inherited by child processes, so that workers do not say it again


class TorchFinder:
    """A finder that lets the others find torch and runs after_torch when its import is done."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_then_adjust(module):
            load(module)
            after_torch(module)

        spec.loader.exec_module = load_then_adjust
        return spec


def after_torch(torch):
    torch.backends.cudnn.enabled = False
    if SAID not in os.environ:
        os.environ[SAID] = "1"
        print("seamalloc: torch.backends.cudnn.enabled = False (the simulated device has no cuDNN)", file=sys.stderr)


if not any(isinstance(finder, TorchFinder) for finder in sys.meta_path):
    sys.meta_path.insert(0, TorchFinder())
