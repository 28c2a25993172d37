# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with seamalloc and shows where in a training step the memory goes.

    scripts/with-sim python examples/train_phases.py        # without a GPU
    python examples/train_phases.py                         # with one

The phases say for each part of the step what was allocated at its entry, its peak and its exit, and which bytes left
it alive: the forward pass carries activations out, the backward pass frees them and carries gradients out."""

import seamalloc

seamalloc.install()  # before anything touches torch.cuda

import torch  # noqa: E402
from torch import nn  # noqa: E402

MIB = 1 << 20


def train(steps: int) -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(6)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        with seamalloc.phase("step"):
            with seamalloc.phase("data"):
                batch = torch.randn(512, 2048).cuda()
            with seamalloc.phase("forward"):
                loss = model(batch).square().mean()
            with seamalloc.phase("backward"):
                loss.backward()
            with seamalloc.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            del batch, loss


def show() -> None:
    document = seamalloc.stats()
    if document is None:
        print("no figures:", seamalloc.unavailable_reason())
        return
    print(f"{'phase':<16}{'entry':>8}{'peak':>8}{'exit':>8}{'carried out':>13}   MiB, last entry")
    for phase in document["devices"][0]["phases"]:
        allocated = phase["allocated"]
        figures = (allocated["entry"], allocated["peak"], allocated["exit"], phase["carried_out"]["bytes"])
        entry, peak, leave, carried = (figure["last"] / MIB for figure in figures)
        print(f"{phase['path']:<16}{entry:8.1f}{peak:8.1f}{leave:8.1f}{carried:13.1f}")
    print(
        f"\npeak allocated {torch.cuda.max_memory_allocated() / MIB:.1f} MiB, "
        f"peak reserved {torch.cuda.max_memory_reserved() / MIB:.1f} MiB"
    )


train(4)
show()
