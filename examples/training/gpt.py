# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT with AdamW in mixed precision on sequences whose length varies from step to step.

    python examples/training/gpt.py [--steps N] [--layers N] [--width N] [--batch N] [--dtype float16|bfloat16]

A plain PyTorch script: it runs under any allocator. With seamalloc its phases are measured, too. Lengths are drawn
from a seed, so that two runs ask for the same memory. The tokens are random: what is trained is of no interest here.
"""

import argparse
import random
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

try:
    from seamalloc import phase
except ImportError:
    from contextlib import nullcontext as phase

VOCABULARY = 50304
LENGTH_MIN, LENGTH_MAX = 64, 1024
HEAD_WIDTH = 64
GIB = 1 << 30


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // HEAD_WIDTH
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project_in(x).unflatten(-1, (3, self.heads, HEAD_WIDTH))
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project_out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width))
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.feed_forward(x)


class GPT(nn.Module):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(LENGTH_MAX, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.token(tokens) + self.position(places)))


def batches(count: int, size: int, seed: int) -> Iterator[Tensor]:
    """Batches on the host, page-locked. Each has one token more than the length: input and target overlap."""
    lengths = random.Random(seed)
    for _ in range(count):
        length = lengths.randint(LENGTH_MIN, LENGTH_MAX)
        yield torch.randint(VOCABULARY, (size, length + 1)).pin_memory()


def parse() -> argparse.Namespace:
    options = argparse.ArgumentParser(description="Trains a GPT on sequences of varying length.")
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--layers", type=int, default=12)
    options.add_argument("--width", type=int, default=768, help=f"a multiple of {HEAD_WIDTH}")
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--dtype", choices=["float16", "bfloat16"], default="float16")
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    if chosen.width % HEAD_WIDTH:
        options.error(f"--width must be a multiple of {HEAD_WIDTH}, not {chosen.width}")
    return chosen


def main() -> None:
    chosen = parse()
    torch.manual_seed(chosen.seed)
    device = torch.device("cuda")
    dtype = getattr(torch, chosen.dtype)

    with phase("setup"):
        with device:
            model = GPT(chosen.layers, chosen.width)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
        # float16 needs its gradients scaled; bfloat16 has the range of float32.
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters / 1e6:.1f} million parameters, batch {chosen.batch}, {chosen.dtype}", flush=True)

    source = batches(chosen.steps, chosen.batch, chosen.seed)
    for step in range(1, chosen.steps + 1):
        with phase("data"):
            tokens = next(source).to(device, non_blocking=True)
        with phase("forward"), torch.autocast("cuda", dtype=dtype):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            del logits
        with phase("backward"):
            scaler.scale(loss).backward()
        with phase("optimizer"):
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        if step % 10 == 0 or step == chosen.steps:
            allocated, reserved = torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB
            print(
                f"step {step}: length {tokens.shape[1] - 1}, loss {loss.item():.3f}, "
                f"peaks: allocated {allocated:.2f} GiB, reserved {reserved:.2f} GiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
