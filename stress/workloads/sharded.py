# SPDX-License-Identifier: Apache-2.0
"""Loops of two ranks: both generations of sharding, data parallel buckets, a pipeline of two stages."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from blocks import VOCABULARY, Layer, RMSNorm, Stack, decoder, on_device, token_loss
from loop import Run

BFLOAT = torch.bfloat16


class Trained(nn.Module):
    """A stack with its loss, so that one call goes through all that is sharded."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return token_loss(self.stack(tokens), self.stack.head, targets)


def fsdp1(run: Run) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    stack = on_device(lambda: decoder(layers=12, width=2048), run.device)
    stack.recompute = [True] * len(stack.layers)
    model = FullyShardedDataParallel(
        Trained(stack), auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=run.device, use_orig_params=True,
        mixed_precision=MixedPrecision(param_dtype=BFLOAT, reduce_dtype=BFLOAT), limit_all_gathers=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in run.steps(12):
        length = run.between(256, 2560, 8)
        model(run.tokens(6, length), run.tokens(6, length)).backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()


def fsdp2(run: Run) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    stack = on_device(lambda: decoder(layers=12, width=2048, key_heads=8), run.device)
    stack.recompute = [number % 2 == 1 for number in range(len(stack.layers))]
    policy = MixedPrecisionPolicy(param_dtype=BFLOAT, reduce_dtype=torch.float32)
    for layer in stack.layers:
        fully_shard(layer, mp_policy=policy)
    model = fully_shard(Trained(stack), mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for _ in run.steps(12):
        shape = run.between(2, 5), run.between(384, 2048, 16)
        model(run.tokens(*shape), run.tokens(*shape)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def ddp(run: Run) -> None:
    """An encoder that fills in masked tokens."""
    stack = on_device(lambda: Stack([Layer(1024, causal=False) for _ in range(12)], 1024), run.device)
    model = nn.parallel.DistributedDataParallel(
        Trained(stack), device_ids=[run.rank], bucket_cap_mb=50, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in run.steps(16):
        with torch.autocast("cuda", dtype=BFLOAT):
            length = run.between(64, 1024)
            loss = model(run.tokens(16, length), run.tokens(16, length))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Stage(nn.Module):
    """A part of a decoder: the first has the embedding, the last the head and the loss."""

    def __init__(self, width: int, layers: int, first: bool) -> None:
        super().__init__()
        self.width = width
        self.token = nn.Embedding(VOCABULARY, width) if first else None
        self.layers = nn.ModuleList(Layer(width, key_heads=8) for _ in range(layers))
        self.norm = None if first else RMSNorm(width)
        self.head = None if first else nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        if self.token is not None:
            x = self.token(x)
        for layer in self.layers:
            x = layer(x)
        return x if self.norm is None else token_loss(self.norm(x), self.head, targets)


class Schedule:
    """One forward, one backward: a stage has as many micro-batches under way as there are stages behind it, and one."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self.run, self.stage, self.peer = run, stage, 1 - run.rank
        self.under_way: list[tuple[Tensor, Tensor]] = []
        self.sent: list[tuple[dist.Work, Tensor]] = []

    def receive(self, batch: int, length: int) -> Tensor:
        buffer = torch.empty(batch, length, self.stage.width, dtype=BFLOAT, device=self.run.device)
        dist.recv(buffer, self.peer)
        return buffer

    def send(self, tensor: Tensor) -> None:
        self.sent.append((dist.isend(tensor.contiguous(), self.peer), tensor))

    def forward(self, batch: int, length: int) -> None:
        if self.run.rank == 0:
            given = self.run.tokens(batch, length)
            made = self.stage(given)
            self.send(made.detach())
        else:
            given = self.receive(batch, length).requires_grad_()
            made = self.stage(given, self.run.tokens(batch, length))
        self.under_way.append((given, made))

    def backward(self) -> None:
        given, made = self.under_way.pop(0)
        if self.run.rank == 0:
            made.backward(self.receive(*made.shape[:2]))
        else:
            made.backward()
            self.send(given.grad)

    def batch(self, sizes: list[tuple[int, int]]) -> None:
        for size in sizes:
            self.forward(*size)
            if len(self.under_way) > 1 - self.run.rank:
                self.backward()
        while self.under_way:
            self.backward()
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()


def pipeline(run: Run) -> None:
    stage = on_device(partial(Stage, 2048, 8, run.rank == 0), run.device, BFLOAT)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-4)
    schedule = Schedule(run, stage)
    for _ in run.steps(10):
        schedule.batch([(run.between(2, 4), run.between(256, 2048, 8)) for _ in range(6)])
        optimizer.step()
        optimizer.zero_grad()
