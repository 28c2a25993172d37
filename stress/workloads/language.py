# SPDX-License-Identifier: Apache-2.0
"""Language models on one device: accumulation, mixture of experts, adapters, offload, reinforcement, translation."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from blocks import Cache, FeedForward, Layer, Stack, decoder, on_device, token_loss
from loop import Run

BFLOAT = torch.bfloat16


def accumulation(run: Run) -> None:
    """Documents are packed to a length that differs from micro-batch to micro-batch."""
    model = on_device(lambda: decoder(layers=12, width=1024), run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in run.steps(14):
        count = run.between(2, 6)
        for _ in range(count):
            length = run.between(128, 2048)
            with torch.autocast("cuda", dtype=BFLOAT):
                hidden = model(run.tokens(8, length))
                loss = token_loss(hidden, model.head, run.tokens(8, length)) / count
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


class Experts(nn.Module):
    """Top two of eight. Which token goes where would come from values; here the loads are numbers of the schedule."""

    COUNT, CHOSEN = 8, 2

    def __init__(self, width: int, run: Run) -> None:
        super().__init__()
        self.run = run
        self.router = nn.Linear(width, self.COUNT, bias=False)
        self.experts = nn.ModuleList(FeedForward(width, 2 * width) for _ in range(self.COUNT))

    def loads(self, tokens: int) -> list[int]:
        """How many tokens each expert gets: uneven, and all of them together `CHOSEN` times the tokens."""
        weights = [self.run.between(20, 200) for _ in range(self.COUNT)]
        counts = [tokens * self.CHOSEN * weight // sum(weights) for weight in weights]
        counts[0] += tokens * self.CHOSEN - sum(counts)
        return counts

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        shares, _ = self.router(rows).float().softmax(-1).topk(self.CHOSEN, -1)
        order = torch.zeros(len(rows) * self.CHOSEN, dtype=torch.long, device=x.device)
        total = torch.zeros_like(rows)
        for expert, where in zip(self.experts, order.split(self.loads(len(rows))), strict=True):
            made = expert(rows.index_select(0, where))
            total = total.index_add(0, where, made * shares.flatten().index_select(0, where)[:, None].to(made.dtype))
        return total.view_as(x)


def experts(run: Run) -> None:
    width = 1024
    make = [lambda: Layer(width, key_heads=4, feed_forward=Experts(width, run)), lambda: Layer(width, key_heads=4)]
    model = on_device(lambda: Stack([make[number % 2]() for number in range(10)], width), run.device, BFLOAT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in run.steps(24):
        shape = run.between(2, 6), run.between(256, 2048)
        token_loss(model(run.tokens(*shape)), model.head, run.tokens(*shape)).backward()
        optimizer.step()
        optimizer.zero_grad()


class Adapter(nn.Module):
    """A frozen projection with a trained one of low rank beside it."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        place = {"device": frozen.weight.device, "dtype": torch.float32}
        self.frozen = frozen
        self.down = nn.Linear(frozen.in_features, rank, bias=False, **place)
        self.up = nn.Linear(rank, frozen.out_features, bias=False, **place)

    def forward(self, x: Tensor) -> Tensor:
        low = F.dropout(x, 0.05).float()
        return self.frozen(x) + (2.0 * self.up(self.down(low))).to(x.dtype)


def adapt(model: nn.Module, rank: int) -> None:
    model.requires_grad_(False)
    for part in [part for part in model.modules() if type(part).__name__ in ("Attention", "FeedForward")]:
        for name, child in list(part.named_children()):
            setattr(part, name, Adapter(child, rank))


def lora(run: Run) -> None:
    model = on_device(lambda: decoder(layers=20, width=3072, key_heads=8), run.device, BFLOAT)
    model.recompute = [True] * len(model.layers)
    adapt(model, rank=16)
    optimizer = torch.optim.AdamW([part for part in model.parameters() if part.requires_grad], lr=1e-4)
    for _ in run.steps(16):
        shape = run.between(1, 6), run.between(200, 3000)
        token_loss(model(run.tokens(*shape)), model.head, run.tokens(*shape)).backward()
        optimizer.step()
        optimizer.zero_grad()


class Offload:
    """Keeps large saved tensors in host memory from the forward pass to the backward pass.

    Copies out run on a side stream; the tensor on the device is kept until its copy is over, some layers later."""

    BYTES_MIN = 4 << 20
    LAG = 2  # copies under way before the oldest is waited for

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.leaving: list[tuple[torch.cuda.Event, Tensor]] = []

    def pack(self, tensor: Tensor) -> tuple[bool, Any]:
        if tensor.nbytes < self.BYTES_MIN or isinstance(tensor, nn.Parameter) or not tensor.is_contiguous():
            return False, tensor
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
            self.leaving.append((self.stream.record_event(), tensor))
        while len(self.leaving) > self.LAG:
            event, _ = self.leaving.pop(0)
            torch.cuda.current_stream().wait_event(event)
        return True, host

    def unpack(self, packed: tuple[bool, Any]) -> Tensor:
        moved, tensor = packed
        if not moved:
            return tensor
        with torch.cuda.stream(self.stream):
            back = tensor.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.stream)
        back.record_stream(torch.cuda.current_stream())
        return back

    def finish(self) -> None:
        torch.cuda.current_stream().wait_stream(self.stream)
        self.leaving.clear()


def offload(run: Run) -> None:
    """Every layer is recomputed, and what it begins with waits in host memory."""
    model = on_device(lambda: decoder(layers=12, width=2048, key_heads=8), run.device, BFLOAT)
    model.recompute = [True] * len(model.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    away = Offload()
    for _ in run.steps(14):
        shape = 2, run.between(512, 3072)
        with torch.autograd.graph.saved_tensors_hooks(away.pack, away.unpack):
            hidden = model(run.tokens(*shape))
        away.finish()
        token_loss(hidden, model.head, run.tokens(*shape)).backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def generate(run: Run, model: Stack, batch: int, prompt: int, answer: int) -> None:
    caches = model.caches()
    hidden = model(run.tokens(batch, prompt), caches)
    for _ in range(answer):
        F.softmax(model.head(hidden[:, -1]).float(), -1)
        hidden = model(run.tokens(batch, 1), caches)


def log_likelihoods(run: Run, model: Stack, batch: int, length: int) -> Tensor:
    """Of each token of the answers; the logits of one row at a time."""
    hidden = model(run.tokens(batch, length))
    targets = run.tokens(batch, length)
    rows = zip(hidden, targets, strict=True)
    return torch.stack([-F.cross_entropy(model.head(row).float(), target, reduction="none") for row, target in rows])


def policy_loss(new: Tensor, old: Tensor, reference: Tensor, advantage: Tensor) -> Tensor:
    ratio = (new - old).exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    gap = reference - new
    return (0.05 * (gap.exp() - gap - 1) - gain).mean()


def rollouts(run: Run) -> None:
    """A group of answers to each prompt, their likelihoods under three models' states, two epochs of updates."""
    policy = on_device(lambda: decoder(layers=10, width=1536, key_heads=6), run.device, BFLOAT)
    reference = on_device(lambda: decoder(layers=10, width=1536, key_heads=6), run.device, BFLOAT).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
    group, small = 32, 4
    for _ in run.steps(8):
        prompt, answer = run.between(64, 900), run.between(24, 90)
        generate(run, policy, group, prompt, answer)
        # An answer's tokens were all made, but only the longest is as long as all were allowed to be.
        pieces = [(small, prompt + run.between(answer // 2, answer)) for _ in range(group // small)]
        with torch.no_grad():
            old = [log_likelihoods(run, policy, *piece) for piece in pieces]
            given = [log_likelihoods(run, reference, *piece) for piece in pieces]
            reward = torch.empty(group, device=run.device)
            advantage = ((reward - reward.mean()) / (reward.std() + 1e-4)).split(small)
        for _ in range(2):
            for number, piece in enumerate(pieces):
                new = log_likelihoods(run, policy, *piece)
                policy_loss(new, old[number], given[number], advantage[number][:, None]).backward()
                if number % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()


class Translator(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = Stack([Layer(width, causal=False) for _ in range(6)], width)
        self.decoder = Stack([Layer(width, cross=True) for _ in range(6)], width)


@torch.no_grad()
def beam_search(run: Run, model: Translator, batch: int, source: int, target: int, beams: int = 4) -> None:
    context = model.encoder(run.tokens(batch, source)).repeat_interleave(beams, 0)
    caches: list[Cache] = model.decoder.caches()
    scores = torch.empty(batch, beams, 1, device=run.device)
    order = torch.arange(batch * beams, device=run.device)
    for _ in range(target):
        hidden = model.decoder(run.tokens(batch * beams, 1), caches, context)
        following = model.decoder.head(hidden[:, -1]).float().log_softmax(-1).view(batch, beams, -1)
        scores, _ = (scores + following).flatten(1).topk(beams, -1)
        scores = scores[:, :, None]
        for cache in caches:
            cache.reorder(order)


def translation(run: Run) -> None:
    """Batches have about as many tokens each, so that long sentences make small batches."""
    model = on_device(lambda: Translator(1024), run.device)
    model.decoder.token = model.encoder.token
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in run.steps(28):
        source = run.between(8, 400)
        target = max(4, source * run.between(80, 130) // 100)
        batch = max(1, 16000 // max(source, target))
        with torch.autocast("cuda", dtype=BFLOAT):
            hidden = model.decoder(run.tokens(batch, target), None, model.encoder(run.tokens(batch, source)))
            loss = token_loss(hidden, model.decoder.head, run.tokens(batch, target))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 7 == 6:
            beam_search(run, model, batch=24, source=run.between(20, 120), target=run.between(20, 60))
