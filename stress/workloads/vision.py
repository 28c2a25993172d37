# SPDX-License-Identifier: Apache-2.0
"""Pictures: a diffusion model, a vision transformer with evaluation, a convolutional network fed by a side stream."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from blocks import HEAD_WIDTH, Layer, RMSNorm, on_device
from loop import Run

BFLOAT = torch.bfloat16


class Residual(nn.Module):
    """Two convolutions with the noise level added between them."""

    def __init__(self, before: int, after: int, level: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(16, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.level = nn.Linear(level, after)
        self.second = nn.Sequential(nn.GroupNorm(16, after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1))
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        inner = self.first(x) + self.level(level)[:, :, None, None]
        return self.skip(x) + self.second(inner)


class Conditioned(nn.Module):
    """Attention of the pixels to each other and to a text."""

    def __init__(self, width: int, text: int) -> None:
        super().__init__()
        self.layer, self.text = Layer(width, causal=False, cross=True), nn.Linear(text, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        rows = self.layer(x.flatten(2).transpose(1, 2), None, self.text(text))
        return x + rows.transpose(1, 2).view_as(x)


class UNet(nn.Module):
    """Three levels of pictures, attention on the two smaller."""

    LEVEL, TEXT = 256, 768

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        before = [width, *sizes[:-1]]
        self.down = nn.ModuleList(Residual(a, b, self.LEVEL) for a, b in zip(before, sizes, strict=True))
        self.look_down = nn.ModuleList(Conditioned(size, self.TEXT) for size in sizes[1:])
        self.middle = Residual(sizes[-1], sizes[-1], self.LEVEL)
        self.up = nn.ModuleList(
            Residual(a + b, b, self.LEVEL) for a, b in zip([sizes[-1], *sizes[:0:-1]], sizes[::-1], strict=True)
        )
        self.look_up = nn.ModuleList(Conditioned(size, self.TEXT) for size in sizes[:0:-1])
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: Tensor, level: Tensor, text: Tensor) -> Tensor:
        x, kept = self.enter(x), []
        for number, block in enumerate(self.down):
            x = block(x, level)
            if number:
                x = self.look_down[number - 1](x, text)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, level)
        for number, block in enumerate(self.up):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1), level)
            if number < len(self.look_up):
                x = self.look_up[number](x, text)
        return self.leave(x)


# Sides of the latent pictures: about the same number of pixels, other shapes; now and then a smaller set.
SHAPES = [(64, 64), (56, 72), (72, 56), (48, 80), (80, 48), (40, 96), (96, 40), (32, 32), (24, 40)]


def diffusion(run: Run) -> None:
    model = on_device(lambda: UNet(128), run.device)
    averaged = [torch.empty_like(part) for part in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in run.steps(24):
        batch, shape = run.between(6, 12), SHAPES[run.between(0, len(SHAPES) - 1)]
        clean = run.picture(batch, 4, *shape)
        text = run.picture(batch, run.between(20, 77), UNet.TEXT)
        with torch.autocast("cuda", dtype=BFLOAT):
            noise = torch.randn_like(clean)
            made = model(clean + noise, run.picture(batch, UNet.LEVEL), text)
        F.mse_loss(made.float(), noise).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(averaged, list(model.parameters()), 0.001)


class VisionTransformer(nn.Module):
    PATCH = 16

    def __init__(self, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Linear(3 * self.PATCH**2, width)
        self.layers = nn.ModuleList(Layer(width, causal=False) for _ in range(layers))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, classes)

    def forward(self, pictures: Tensor, left_out: frozenset[int] = frozenset()) -> Tensor:
        rows = F.pixel_unshuffle(pictures, self.PATCH).flatten(2).transpose(1, 2)
        x = self.patches(rows)
        for number, layer in enumerate(self.layers):
            if number not in left_out:
                x = layer(x)
        return self.head(self.norm(x).mean(1))


@torch.no_grad()
def evaluate(run: Run, model: VisionTransformer, size: int) -> Tensor:
    """Larger batches than in training, the last one smaller; all outputs are kept until the end."""
    seen = []
    for batch in (192, 192, 192, run.between(20, 191)):
        with torch.autocast("cuda", dtype=BFLOAT):
            seen.append(model(run.picture(batch, 3, size, size)).float())
    return torch.cat(seen).argmax(-1)


def evaluation(run: Run) -> None:
    model = on_device(lambda: VisionTransformer(16 * HEAD_WIDTH, 16, 1000), run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in run.steps(20):
        size = 16 * run.between(8, 16)
        left_out = frozenset(number for number in range(16) if run.between(0, 9) == 0)
        with torch.autocast("cuda", dtype=BFLOAT):
            made = model(run.picture(64, 3, size, size), left_out)
            loss = F.cross_entropy(made.float(), run.tokens(64), label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 == 3:
            evaluate(run, model, 16 * run.between(12, 18))


class Separable(nn.Module):
    """A wide depthwise convolution, then two projections of the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(self.norm(self.spread(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


class Pyramid(nn.Sequential):
    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...], classes: int) -> None:
        parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, stride=4)]
        for number, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if number:
                parts += [nn.GroupNorm(1, widths[number - 1]), nn.Conv2d(widths[number - 1], width, 2, stride=2)]
            parts += [Separable(width) for _ in range(depth)]
        super().__init__(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))


class Prefetcher:
    """Sends the next batch and prepares it on a stream of its own, while the model works on the one before."""

    def __init__(self, run: Run) -> None:
        self.run, self.stream = run, torch.cuda.Stream()
        self.ready: tuple[Tensor, Tensor] | None = None
        self.mean = run.picture(1, 3, 1, 1)
        self.prepare()

    def prepare(self) -> None:
        run, size = self.run, 32 * self.run.between(5, 10)
        batch = 8 * run.between(3, 6)
        with torch.cuda.stream(self.stream):
            # Bytes from the host would be real; they are made on the device, since none of them is looked at.
            pictures = torch.empty(batch, 3, size + 32, size + 32, dtype=torch.uint8, device=run.device)
            wide = pictures.float().sub_(self.mean).div_(58.0)
            cut = F.interpolate(wide[:, :, 8:-8, 8:-8], (size, size), mode="bilinear")
            mixed = torch.where(run.picture(batch, 1, 1, 1) > 0.5, cut, cut.flip(3))
            self.ready = mixed, run.tokens(batch)

    def next(self) -> tuple[Tensor, Tensor]:
        assert self.ready is not None
        torch.cuda.current_stream().wait_stream(self.stream)
        for tensor in self.ready:
            tensor.record_stream(torch.cuda.current_stream())
        batch, self.ready = self.ready, None
        self.prepare()
        return batch


def prefetch(run: Run) -> None:
    model = on_device(lambda: Pyramid((96, 192, 384, 768), (3, 3, 9, 3), 1000), run.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    source = Prefetcher(run)
    for _ in run.steps(20):
        pictures, classes = source.next()
        with torch.autocast("cuda", dtype=BFLOAT):
            loss = F.cross_entropy(model(pictures).float(), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
