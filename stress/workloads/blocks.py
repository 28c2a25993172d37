# SPDX-License-Identifier: Apache-2.0
"""Parts of language models that several loops share: attention with caches, gated feed-forward, layers, decoders."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

VOCABULARY = 32000
LENGTH_MAX = 8192
HEAD_WIDTH = 64
LOSS_ROWS = 2048  # logits are made for so many positions at once


class Cache:
    """Keys and values of one layer; each step's are joined to those before, in new memory."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is not None and self.values is not None:
            keys = torch.cat([self.keys, keys], 2)
            values = torch.cat([self.values, values], 2)
        self.keys, self.values = keys, values
        return keys, values

    def reorder(self, order: Tensor) -> None:
        """As beam search does after each token."""
        if self.keys is not None and self.values is not None:
            self.keys = self.keys.index_select(0, order)
            self.values = self.values.index_select(0, order)

    @property
    def length(self) -> int:
        return 0 if self.keys is None else self.keys.shape[2]


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return wide.to(x.dtype) * self.weight.to(x.dtype)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions; x is (batch, heads, length, head width)."""
    sine, cosine = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class Attention(nn.Module):
    """Self attention, or attention to a context; fewer heads of keys than of queries where wanted."""

    def __init__(self, width: int, key_heads: int | None = None, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = width // HEAD_WIDTH, causal
        self.key_heads = key_heads or self.heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, self.key_heads * HEAD_WIDTH, bias=False)
        self.value = nn.Linear(width, self.key_heads * HEAD_WIDTH, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.register_buffer("rates", 10000.0 ** -(torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH), persistent=False)

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, HEAD_WIDTH)).transpose(1, 2)

    def forward(self, x: Tensor, cache: Cache | None = None, context: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        query = self.split(self.query(x), self.heads)
        key, value = self.split(self.key(source), self.key_heads), self.split(self.value(source), self.key_heads)
        if context is None:
            begin = cache.length if cache else 0
            places = torch.arange(begin, begin + x.shape[1], device=x.device)
            angles = places[:, None] * self.rates[None, :]
            query, key = rotate(query, angles), rotate(key, angles)
        if cache is not None:
            key, value = cache.extend(key, value)
        if self.key_heads != self.heads:
            key = key.repeat_interleave(self.heads // self.key_heads, 1)
            value = value.repeat_interleave(self.heads // self.key_heads, 1)
        causal = self.causal and context is None and query.shape[2] == key.shape[2] > 1
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two projections in, one of them a gate, one out."""

    def __init__(self, width: int, inner: int | None = None) -> None:
        super().__init__()
        inner = inner or (8 * width // 3 + 255) // 256 * 256
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(
        self, width: int, key_heads: int | None = None, causal: bool = True, cross: bool = False,
        feed_forward: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.before_attention, self.attention = RMSNorm(width), Attention(width, key_heads, causal)
        if cross:
            self.before_cross, self.cross = RMSNorm(width), Attention(width, causal=False)
        self.before_feed, self.feed = RMSNorm(width), feed_forward or FeedForward(width)

    def forward(self, x: Tensor, cache: Cache | None = None, context: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.before_attention(x), cache)
        if context is not None:
            x = x + self.cross(self.before_cross(x), context=context)
        return x + self.feed(self.before_feed(x))


class Stack(nn.Module):
    """Embedding, layers, last norm. `recompute` tells of each layer whether its inside is made again going back."""

    def __init__(self, layers: list[nn.Module], width: int, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.recompute = [False] * len(layers)

    def forward(self, tokens: Tensor, caches: list[Cache] | None = None, context: Tensor | None = None) -> Tensor:
        x = self.token(tokens)
        for number, layer in enumerate(self.layers):
            cache = caches[number] if caches else None
            if self.recompute[number] and torch.is_grad_enabled():
                x = checkpoint(layer, x, cache, context, use_reentrant=False)
            else:
                x = layer(x, cache, context)
        return self.norm(x)

    def caches(self) -> list[Cache]:
        return [Cache() for _ in self.layers]


def decoder(layers: int, width: int, key_heads: int | None = None, vocabulary: int = VOCABULARY) -> Stack:
    return Stack([Layer(width, key_heads) for _ in range(layers)], width, vocabulary)


def token_loss(hidden: Tensor, head: nn.Module, targets: Tensor) -> Tensor:
    """Mean cross entropy, with the logits of one piece of the positions at a time."""
    rows, wanted = hidden.flatten(0, 1), targets.flatten()
    pieces = zip(rows.split(LOSS_ROWS), wanted.split(LOSS_ROWS), strict=True)
    losses = [F.cross_entropy(head(piece).float(), target, reduction="sum") for piece, target in pieces]
    return torch.stack(losses).sum() / wanted.numel()


def on_device(make, device: torch.device, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A module whose weights are made on the device."""
    with device:
        return make().to(dtype)
