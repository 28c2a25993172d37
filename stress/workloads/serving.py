# SPDX-License-Identifier: Apache-2.0
"""Serving loops: requests come and go, with caches that grow by concatenation or that lie in the pages of a pool."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from blocks import HEAD_WIDTH, Attention, Cache, Stack, decoder, on_device
from loop import Run

BFLOAT = torch.bfloat16


@dataclass
class Request:
    prompt: int  # tokens
    answer: int  # tokens still to make
    caches: list[Cache] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    done: int = 0  # tokens in the cache


def next_token(model: Stack, hidden: Tensor) -> Tensor:
    """A draw from the most likely fifty of each row."""
    logits = model.head(hidden[:, -1]).float() / 0.8
    best, where = logits.topk(50, -1)
    drawn = torch.multinomial(F.softmax(best, -1), 1)
    # Whatever lies in memory must not be used as a token's number.
    return where.gather(1, drawn.clamp(0, 49)).mul(0)


@torch.no_grad()
def serve_growing(run: Run) -> None:
    """Up to eight requests at once; one that ends makes room for the next, of another length."""
    model = on_device(lambda: decoder(layers=12, width=2048, key_heads=8), run.device, BFLOAT)
    active: list[Request] = []
    for _ in run.steps(80):
        while len(active) < 8 and run.between(0, 3):
            request = Request(run.between(64, 3000), run.between(8, 120), model.caches())
            next_token(model, model(run.tokens(1, request.prompt), request.caches))
            active.append(request)
        for request in active:
            next_token(model, model(run.tokens(1, 1), request.caches))
            request.answer -= 1
        active = [request for request in active if request.answer > 0]


PAGE_TOKENS = 16
PAGES = 6000
CHUNK_TOKENS = 2048  # of prompts, in one step


class PagedModel:
    """Runs a decoder's layers over keys and values that lie in pages of one pool for each layer."""

    def __init__(self, run: Run, model: Stack) -> None:
        self.run, self.model = run, model
        shape = 2, PAGES * PAGE_TOKENS, model.layers[0].attention.key_heads, HEAD_WIDTH
        self.pools = [torch.empty(shape, dtype=BFLOAT, device=run.device) for _ in model.layers]
        self.free = list(range(PAGES))

    def room(self, tokens: int) -> bool:
        return len(self.free) * PAGE_TOKENS >= tokens

    def extend(self, request: Request, tokens: int) -> list[int]:
        """Takes pages for so many more tokens; where in the pool those lie."""
        places = range(request.done, request.done + tokens)
        request.done += tokens
        while len(request.pages) * PAGE_TOKENS < request.done:
            request.pages.append(self.free.pop())
        return [request.pages[place // PAGE_TOKENS] * PAGE_TOKENS + place % PAGE_TOKENS for place in places]

    def give_back(self, request: Request) -> None:
        self.free += request.pages
        request.pages = []

    def send(self, numbers: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(numbers, pin_memory=True).to(self.run.device, non_blocking=True)

    def table(self, requests: list[Request]) -> Tensor:
        """Where the tokens of each request lie, padded to the longest."""
        longest = max(len(request.pages) for request in requests)
        pages = self.send([request.pages + [0] * (longest - len(request.pages)) for request in requests])
        within = torch.arange(PAGE_TOKENS, device=self.run.device)
        return (pages[:, :, None] * PAGE_TOKENS + within).flatten(1)

    def attend(self, attention: Attention, pool: Tensor, x: Tensor, fresh: Tensor, table: Tensor) -> Tensor:
        """Attention to all tokens of each request, after the keys and values of the new ones are stored."""
        query = attention.split(attention.query(x), attention.heads)
        for part, project in zip(pool, (attention.key, attention.value), strict=True):
            part.index_copy_(0, fresh, project(x).view(-1, attention.key_heads, HEAD_WIDTH))
        joined = pool.index_select(1, table.flatten()).unflatten(1, table.shape).transpose(2, 3)
        keys, values = joined.repeat_interleave(attention.heads // attention.key_heads, 2)
        return attention.out(F.scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(2))

    def step(self, requests: list[Request], count: int) -> Tensor:
        """So many new tokens of each request, through all layers; the next one of each."""
        fresh = self.send([place for request in requests for place in self.extend(request, count)])
        table = self.table(requests)
        x = self.model.token(self.run.tokens(len(requests), count))
        for layer, pool in zip(self.model.layers, self.pools, strict=True):
            x = x + self.attend(layer.attention, pool, layer.before_attention(x), fresh, table)
            x = x + layer.feed(layer.before_feed(x))
        return next_token(self.model, self.model.norm(x))


@torch.no_grad()
def serve_paged(run: Run) -> None:
    """Each step: a piece of the prompts that wait, then one token for all that are past theirs."""
    model = on_device(lambda: decoder(layers=12, width=2048, key_heads=8), run.device, BFLOAT)
    paged = PagedModel(run, model)
    waiting: list[Request] = []
    active: list[Request] = []
    for _ in run.steps(160):
        for _ in range(run.between(0, 3)):
            waiting.append(Request(run.between(32, 4000), run.between(8, 200)))
        budget = CHUNK_TOKENS
        while waiting and budget and len(active) < 64 and paged.room(waiting[0].prompt + waiting[0].answer):
            request = waiting[0]
            piece = min(budget, request.prompt - request.done)
            budget -= piece
            paged.step([request], piece)
            if request.done == request.prompt:
                active.append(waiting.pop(0))
        if not active:
            continue
        paged.step(active, 1)
        for request in active:
            request.answer -= 1
            if request.answer <= 0:
                paged.give_back(request)
        active = [request for request in active if request.pages]
