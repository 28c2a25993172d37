# SPDX-License-Identifier: Apache-2.0
"""Models of other data than text or pictures: graphs, point sets, pairs of residues, speech, purchases."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from blocks import Attention, FeedForward, Layer, RMSNorm, on_device
from loop import Run

BFLOAT = torch.bfloat16


class GraphLayer(nn.Module):
    """Attention along edges; what a node gets is summed over the edges that end in it."""

    HEADS = 8

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width)
        self.edge = nn.Linear(width, self.HEADS)
        self.out, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, nodes: Tensor, edges: Tensor, begin: Tensor, end: Tensor, kept: int) -> Tensor:
        """Of the nodes only the first `kept` go on: those farther away were sampled for their sake."""
        query, key, value = (part.unflatten(-1, (self.HEADS, -1)) for part in self.project(nodes).chunk(3, -1))
        score = (query.index_select(0, end) * key.index_select(0, begin)).sum(-1) + self.edge(edges)
        weight = score.exp()
        total = torch.zeros(len(nodes), self.HEADS, dtype=weight.dtype, device=nodes.device).index_add(0, end, weight)
        share = weight / total.index_select(0, end)
        messages = value.index_select(0, begin) * share[:, :, None]
        gathered = torch.zeros_like(value).index_add(0, end, messages).flatten(1)
        return self.norm(nodes[:kept] + F.gelu(self.out(gathered[:kept])))


def sampled_sizes(run: Run, seeds: int, hops: int) -> list[tuple[int, int]]:
    """Nodes and edges of each hop, farthest first: a node has some neighbours, many of which were seen before."""
    sizes, nodes = [(seeds, 0)], seeds
    for _ in range(hops):
        edges = nodes * run.between(6, 14)
        nodes += edges * run.between(35, 75) // 100
        sizes.append((nodes, edges))
    return sizes[::-1]


def graph(run: Run) -> None:
    width, classes = 256, 172
    layers = on_device(lambda: nn.ModuleList(GraphLayer(width) for _ in range(3)), run.device)
    head = on_device(lambda: nn.Linear(width, classes), run.device)
    features = torch.empty(1_500_000, width, dtype=BFLOAT, device=run.device)
    parameters = [*layers.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    for _ in run.steps(50):
        sizes = sampled_sizes(run, run.between(256, 1024), len(layers))
        nodes = features.index_select(0, torch.zeros(sizes[0][0], dtype=torch.long, device=run.device)).float()
        for layer, (_, count), (kept, _) in zip(layers, sizes, sizes[1:], strict=False):
            begin, end = torch.zeros(2, count, dtype=torch.long, device=run.device)
            nodes = layer(nodes, run.picture(count, width), begin, end, kept)
        F.cross_entropy(head(nodes), run.tokens(len(nodes))).backward()
        optimizer.step()
        optimizer.zero_grad()


class PointLayer(nn.Module):
    """Attention of each point to its nearest ones, with their relative positions."""

    NEAR = 16

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width)
        self.place = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))
        self.weigh = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.BatchNorm1d(width)

    def nearest(self, positions: Tensor) -> Tensor:
        """Numbers of the nearest points; distances of a piece of the points at a time."""
        found = [torch.cdist(piece, positions).topk(self.NEAR, -1, largest=False)[1] for piece in positions.split(2048)]
        return torch.cat(found).mul_(0).flatten()  # what lies in memory is no point's number

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        near = self.nearest(positions)
        query, key, value = self.project(x).chunk(3, -1)
        shape = len(x), self.NEAR, -1
        offset = positions[:, None] - positions.index_select(0, near).view(len(x), self.NEAR, 3)
        place = self.place(offset)
        weight = self.weigh(query[:, None] - key.index_select(0, near).view(shape) + place).softmax(1)
        return self.norm(x + (weight * (value.index_select(0, near).view(shape) + place)).sum(1))


class PointNet(nn.Module):
    """Each level has a quarter of the points and twice the width, and goes back up for a label of each point."""

    def __init__(self, width: int, levels: int, classes: int) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.enter = nn.Linear(6, width)
        self.down = nn.ModuleList(PointLayer(size) for size in widths)
        self.wider = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False))
        self.narrower = nn.ModuleList(nn.Linear(a + b, a) for a, b in zip(widths, widths[1:], strict=False))
        self.head = nn.Linear(width, classes)

    def forward(self, positions: Tensor) -> Tensor:
        x, kept = self.enter(torch.cat([positions, positions], -1)), []
        for number, layer in enumerate(self.down):
            x = layer(x, positions)
            if number < len(self.wider):
                kept.append(x)
                x, positions = self.wider[number](x[::4]), positions[::4].contiguous()
        for narrower in reversed(self.narrower):
            before = kept.pop()
            spread = x.repeat_interleave(4, 0, output_size=4 * len(x))[: len(before)]
            x = F.relu(narrower(torch.cat([before, spread], -1)))
        return self.head(x)


def points(run: Run) -> None:
    model = on_device(lambda: PointNet(64, 4, 20), run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in run.steps(24):
        count = sum(run.between(2000, 12000) for _ in range(4))
        made = model(run.picture(count, 3))
        F.cross_entropy(made, run.tokens(count)).backward()
        optimizer.step()
        optimizer.zero_grad()


class Triangle(nn.Module):
    """What a pair of residues learns from the third corner of all their triangles."""

    def __init__(self, width: int, outgoing: bool) -> None:
        super().__init__()
        self.formula = "ikc,jkc->ijc" if outgoing else "kic,kjc->ijc"
        self.norm, self.out_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.sides, self.gates = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, pairs: Tensor) -> Tensor:
        x = self.norm(pairs)
        first, second = (self.sides(x) * self.gates(x).sigmoid()).chunk(2, -1)
        return self.gate(x).sigmoid() * self.out(self.out_norm(torch.einsum(self.formula, first, second)))


class PairBlock(nn.Module):
    """Updates the pairs of a chain, then the chain with the pairs as a bias."""

    def __init__(self, width: int, single: int) -> None:
        super().__init__()
        self.triangles = nn.ModuleList([Triangle(width, True), Triangle(width, False)])
        self.rows = nn.ModuleList([Attention(width, causal=False), Attention(width, causal=False)])
        self.feed = nn.Sequential(RMSNorm(width), FeedForward(width, 4 * width))
        self.bias, self.project = nn.Linear(width, single // 64), nn.Linear(single, 3 * single)
        self.single = nn.Sequential(RMSNorm(single), FeedForward(single))

    def forward(self, pairs: Tensor, chain: Tensor) -> tuple[Tensor, Tensor]:
        for triangle in self.triangles:
            pairs = pairs + triangle(pairs)
        pairs = pairs + self.rows[0](pairs)
        pairs = pairs + self.rows[1](pairs.transpose(0, 1)).transpose(0, 1)
        pairs = pairs + self.feed(pairs)
        query, key, value = self.project(chain).unflatten(-1, (3, -1, 64)).permute(1, 2, 0, 3)
        bias = self.bias(pairs).permute(2, 0, 1).to(query.dtype)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        chain = chain + mixed.transpose(0, 1).flatten(1)
        return pairs, chain + self.single(chain)


class PairNet(nn.Module):
    def __init__(self, width: int, single: int, blocks: int) -> None:
        super().__init__()
        self.chain, self.relative = nn.Embedding(32, single), nn.Embedding(66, width)
        self.left, self.right = nn.Linear(single, width), nn.Linear(single, width)
        self.blocks = nn.ModuleList(PairBlock(width, single) for _ in range(blocks))
        self.distances = nn.Linear(width, 64)

    def forward(self, residues: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """The pairs, and for each of them the likelihoods of 64 distances."""
        chain, count = self.chain(residues), len(residues)
        offsets = torch.zeros(count, count, dtype=torch.long, device=residues.device)
        pairs = self.left(chain)[:, None] + self.right(chain)[None] + self.relative(offsets)
        if before is not None:
            pairs = pairs + before
        for block in self.blocks:
            if torch.is_grad_enabled():
                pairs, chain = checkpoint(block, pairs, chain, use_reentrant=False)
            else:
                pairs, chain = block(pairs, chain)
        return pairs, self.distances(pairs + pairs.transpose(0, 1))


def pairs(run: Run) -> None:
    """Some rounds without gradients, each beginning with the pairs of the one before, then one with."""
    model = on_device(lambda: PairNet(128, 384, 8), run.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in run.steps(16):
        count, before = run.between(96, 420), None
        residues = run.tokens(count)
        with torch.autocast("cuda", dtype=BFLOAT):
            for _ in range(run.between(0, 3)):
                with torch.no_grad():
                    before, _ = model(residues, before)
            _, distances = model(residues, before)
            loss = F.cross_entropy(distances.flatten(0, 1).float(), run.tokens(count * count))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()


class Conformer(nn.Module):
    """Half a feed-forward, attention, a gated convolution along time, half a feed-forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before = self.feed(width)
        self.norm, self.attention = RMSNorm(width), Attention(width, causal=False)
        self.conv_norm, self.open = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.conv, self.batch = nn.Conv1d(width, width, 31, padding=15, groups=width), nn.BatchNorm1d(width)
        self.close = nn.Linear(width, width)
        self.after = self.feed(width)

    @staticmethod
    def feed(width: int) -> nn.Sequential:
        return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * F.dropout(self.before(x), 0.1)
        x = x + self.attention(self.norm(x))
        inner = F.glu(self.open(self.conv_norm(x)), -1).transpose(1, 2)
        x = x + self.close(F.silu(self.batch(self.conv(inner))).transpose(1, 2))
        return x + 0.5 * F.dropout(self.after(x), 0.1)


class Transducer(nn.Module):
    WORDS = 512

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        halves = nn.Conv1d(80, width, 3, 2, 1), nn.Conv1d(width, width, 3, 2, 1)
        self.enter = nn.Sequential(halves[0], nn.SiLU(), halves[1], nn.SiLU())
        self.layers = nn.ModuleList(Conformer(width) for _ in range(layers))
        self.words, self.past = nn.Embedding(self.WORDS, width), Layer(width)
        self.join, self.out = nn.Linear(width, width), nn.Linear(width, self.WORDS)

    def forward(self, sound: Tensor, words: Tensor) -> Tensor:
        """For each frame and each word the likelihoods of the next one."""
        x = self.enter(sound).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        lattice = torch.tanh(self.join(x)[:, :, None] + self.past(self.words(words))[:, None])
        return self.out(lattice).float().log_softmax(-1)


def speech(run: Run) -> None:
    """Short recordings make large batches."""
    model = on_device(lambda: Transducer(384, 10), run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in run.steps(30):
        frames = run.between(200, 1800)
        words = max(4, frames * run.between(6, 14) // 400)
        batch = max(1, 12000 // frames)
        with torch.autocast("cuda", dtype=BFLOAT):
            lattice = model(run.picture(batch, 80, frames), run.tokens(batch, words))
        # Paths through the lattice: the blanks, and the words that are said.
        said = lattice.gather(-1, torch.zeros_like(lattice[..., :1], dtype=torch.long)).squeeze(-1)
        (torch.logaddexp(lattice[..., 0], said).logcumsumexp(1)[:, -1].mean()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()


class Recommender(nn.Module):
    """A causal transformer over a person's history, with an item's number, its shop and its time."""

    def __init__(self, width: int, items: int, layers: int) -> None:
        super().__init__()
        self.items, self.shops = nn.Embedding(items, width), nn.Embedding(items // 10, width)
        self.hours = nn.Embedding(24 * 366, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm = RMSNorm(width)

    def forward(self, history: Tensor, candidates: Tensor) -> Tensor:
        x = self.items(history) + self.shops(history) + self.hours(history)
        for layer in self.layers:
            x = layer(F.dropout(x, 0.1))
        return torch.einsum("blw,cw->blc", self.norm(x), self.items(candidates))


def recommender(run: Run) -> None:
    model = on_device(lambda: Recommender(256, 400_000, 6), run.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in run.steps(24):
        batch, length = 16 * run.between(2, 12), run.between(20, 400)
        candidates = run.tokens(run.between(500, 1500))
        with torch.autocast("cuda", dtype=BFLOAT):
            scores = model(run.tokens(batch, length), candidates)
        F.cross_entropy(scores.flatten(0, 1).float(), run.tokens(batch * length)).backward()
        optimizer.step()
        optimizer.zero_grad()
