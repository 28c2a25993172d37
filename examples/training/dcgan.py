# SPDX-License-Identifier: Apache-2.0
"""Trains a DCGAN on random 64 x 64 images and prints the device memory after every line of the step.

    python examples/training/dcgan.py [--iterations N]

A plain PyTorch script: it runs under any allocator. With seamalloc its phases are measured, too. Each printed line is
"[what was just done] allocated / reserved / highest allocated" in MiB.
"""

import argparse

import torch
from torch import nn

try:
    from seamalloc import phase
except ImportError:
    from contextlib import nullcontext as phase

BATCH = 64
NOISE = 100  # length of the generator's input
WIDTH = 64  # channels of the outermost hidden layer; doubled at each halving of the image
LEARNING_RATE = 2e-4
BETAS = (0.5, 0.999)
SAMPLE_EVERY = 100  # iterations
MIB = 1 << 20


def make_generator() -> nn.Module:
    """Noise of 1 x 1 grows to 4, 8, 16, 32 and 64 pixels a side."""
    channels = [NOISE, WIDTH * 8, WIDTH * 4, WIDTH * 2, WIDTH]
    layers: list[nn.Module] = []
    for i, (before, after) in enumerate(zip(channels, channels[1:], strict=False)):
        stride, padding = (1, 0) if i == 0 else (2, 1)
        layers.append(nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False))
        layers += [nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    layers += [nn.ConvTranspose2d(WIDTH, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


def make_discriminator() -> nn.Module:
    """The mirror image: 64 pixels a side shrink to one probability."""
    channels = [3, WIDTH, WIDTH * 2, WIDTH * 4, WIDTH * 8]
    layers: list[nn.Module] = []
    for i, (before, after) in enumerate(zip(channels, channels[1:], strict=False)):
        layers.append(nn.Conv2d(before, after, 4, 2, 1, bias=False))
        if i > 0:
            layers.append(nn.BatchNorm2d(after))
        layers.append(nn.LeakyReLU(0.2, inplace=True))
    layers += [nn.Conv2d(WIDTH * 8, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0)]
    return nn.Sequential(*layers)


def set_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def show(what: str) -> None:
    figures = torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()
    allocated, reserved, highest = (figure / MIB for figure in figures)
    print(f"[{what}] {allocated:.1f} / {reserved:.0f} / {highest:.1f}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description="Trains a DCGAN and prints device memory after every line.")
    options.add_argument("--iterations", type=int, default=2)
    iterations = options.parse_args().iterations
    torch.manual_seed(999)
    device = torch.device("cuda")

    with phase("setup"):
        generator = make_generator().to(device)
        generator.apply(set_weights)
        show("netG creation")
        discriminator = make_discriminator().to(device)
        discriminator.apply(set_weights)
        fixed_noise = torch.randn(BATCH, NOISE, 1, 1, device=device)
        show("fixed_noise creation")
        criterion = nn.BCELoss()
        step_discriminator = torch.optim.Adam(discriminator.parameters(), lr=LEARNING_RATE, betas=BETAS)
        step_generator = torch.optim.Adam(generator.parameters(), lr=LEARNING_RATE, betas=BETAS)

    for iteration in range(iterations):
        print(f"iteration {iteration + 1}: allocated / reserved / highest allocated, MiB", flush=True)

        # The discriminator, on real images and on made ones.
        discriminator.zero_grad()
        with phase("data"):
            real = torch.randn(BATCH, 3, 64, 64).to(device)
            label = torch.full((BATCH,), 1.0, device=device)
        show("real batch to device")
        with phase("forward"):
            output = discriminator(real)
            loss_real = criterion(output, label)
        show("netD forward (real)")
        with phase("backward"):
            loss_real.backward()
        show("errD_real backward")
        with phase("forward"):
            noise = torch.randn(BATCH, NOISE, 1, 1, device=device)
            fake = generator(noise)
            label.fill_(0.0)
        show("netG forward")
        with phase("forward"):
            output = discriminator(fake.detach())
            loss_fake = criterion(output, label)
        show("netD forward on fake")
        with phase("backward"):
            loss_fake.backward()
        show("errD_fake backward")
        with phase("optimizer"):
            step_discriminator.step()
        show("optimizerD step")

        # The generator, through the discriminator.
        generator.zero_grad()
        label.fill_(1.0)
        with phase("forward"):
            output = discriminator(fake)
            loss_generator = criterion(output, label)
        show("netD forward (G update)")
        with phase("backward"):
            loss_generator.backward()
        show("errG backward")
        with phase("optimizer"):
            step_generator.step()
        show("optimizerG step")

        if iteration % SAMPLE_EVERY == 0:
            # Pictures to look at. The name is kept until the next batch is made and with it the graph, as happens in
            # many a script: it shows as some 50 MiB more in the following iteration.
            with phase("samples"):
                fake = generator(fixed_noise)
                fake.detach().cpu()


if __name__ == "__main__":
    main()
