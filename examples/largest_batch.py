# SPDX-License-Identifier: Apache-2.0
"""Finds a batch that fits: out of memory is an exception, after which everything can be used as before.

SEAMALLOC_SIM_MIB=2048 scripts/with-sim python examples/largest_batch.py"""

import seamalloc

seamalloc.install()

import torch  # noqa: E402
from torch import nn  # noqa: E402


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int) -> float:
    loss = model(torch.randn(batch, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
step(model, optimizer, 1)  # from here on the optimizer's state exists, and every step needs the same
batch = 1 << 20
while True:
    try:
        step(model, optimizer, batch)
        break
    except torch.OutOfMemoryError as error:
        print(f"batch {batch}: {str(error).split('. ')[-1]}")
        optimizer.zero_grad(set_to_none=True)
        batch //= 2
print(f"batch {batch} fits: {torch.cuda.max_memory_reserved() >> 20} MiB reserved at most")
