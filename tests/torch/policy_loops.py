# SPDX-License-Identifier: Apache-2.0
"""Loops that test_glue_policies.py runs under PyTorch's own allocator and under seamalloc with the policy of that name.

    python policy_loops.py LOOP...    with SEAMALLOC_CONF set: under seamalloc

After every step of a loop the device is asked what was called and what it holds, PyTorch what it counts: one line of
JSON a step. Everything is drawn from seeds, so that both ask for the same memory at the same moments."""

import ctypes
import importlib.util
import json
import os
import random
import sys
from pathlib import Path

import torch

MIB = 1 << 20
TRAINING = Path(__file__).resolve().parents[2] / "examples" / "training"
CALLS = ["cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease",
         "cuMemAddressReserve", "cuMemAddressFree"]
FIGURES = ["allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"]

device = ctypes.CDLL("libcuda.so.1")  # the simulated one, which tells what it was asked
for _name in ("sim_calls", "sim_physical_bytes", "sim_physical_bytes_peak"):
    getattr(device, _name).restype = ctypes.c_uint64


before: dict[str, int] = {}


def note(step: object) -> None:
    stats = torch.cuda.memory_stats()
    line = {"step": str(step), "bytes": device.sim_physical_bytes(0), "peak": device.sim_physical_bytes_peak(0)}
    line |= {name: device.sim_calls(name.encode()) - before.get(name, 0) for name in CALLS}
    line |= {name: stats[f"{name}.all.current"] for name in FIGURES}
    line |= {"retries": stats["num_alloc_retries"], "ooms": stats["num_ooms"]}
    print("STEP " + json.dumps(line), flush=True)


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, TRAINING / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def empty(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def gpt() -> None:
    """A small GPT in mixed precision; the lengths differ from step to step."""
    made = example("gpt")
    with torch.device("cuda"):
        model = made.GPT(3, 256)
    optimizer = torch.optim.AdamW(model.parameters())
    for step, tokens in enumerate(made.batches(8, 2, seed=5)):
        tokens = tokens.to("cuda", non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        del logits
        note(f"gpt forward {step}")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        note(f"gpt step {step}")


def dcgan() -> None:
    """The discriminator and the generator of a DCGAN, a few batches of different sizes."""
    made = example("dcgan")
    generator, discriminator = made.make_generator().to("cuda"), made.make_discriminator().to("cuda")
    models = [generator, discriminator]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    for step, size in enumerate([64, 64, 48, 64, 100]):
        real = torch.randn(size, 3, 64, 64).to("cuda")
        discriminator(real).sum().backward()
        fake = generator(torch.randn(size, made.NOISE, 1, 1, device="cuda"))
        discriminator(fake.detach()).sum().backward()
        note(f"dcgan discriminator {step}")
        discriminator(fake).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        note(f"dcgan step {step}")


def mixed() -> None:
    """Blocks of all sizes on three streams, used on others, given back in any order, emptied now and then."""
    draw = random.Random(11)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    blocks: list[torch.Tensor] = []
    for step in range(600):
        if blocks and (len(blocks) > 60 or draw.random() < 0.47):
            block = blocks.pop(draw.randrange(len(blocks)))
            if draw.random() < 0.3:
                block.record_stream(draw.choice(streams))
            del block
        else:
            top = draw.choice([4096, 900_000, 3 * MIB, 12 * MIB, 60 * MIB])
            with torch.cuda.stream(draw.choice(streams)):
                blocks.append(empty(draw.randint(1, top)))
        if draw.random() < 0.01:
            torch.cuda.empty_cache()
        if step % 10 == 9:
            note(f"mixed {step}")
    blocks.clear()
    torch.cuda.empty_cache()
    note("mixed, emptied")


def shortage() -> None:
    """As mixed, on what is left of a device that is nearly full: retries, and requests that fail."""
    draw = random.Random(12)
    limit = DEVICE_MIB * MIB * torch.cuda.get_per_process_memory_fraction()
    filler = empty(int(limit) - device.sim_physical_bytes(0) - 700 * MIB)
    blocks: list[torch.Tensor] = []
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    note("shortage begins")
    for step in range(600):
        if blocks and (len(blocks) > 40 or draw.random() < 0.45):
            blocks.pop(draw.randrange(len(blocks)))
        else:
            top = draw.choice([4096, 900_000, 9 * MIB, 90 * MIB, 200 * MIB])
            with torch.cuda.stream(draw.choice(streams)):
                try:
                    blocks.append(empty(draw.randint(1, top)))
                except torch.OutOfMemoryError:
                    blocks.append(empty(0))
        if step % 5 == 4:
            note(f"shortage {step}")
    blocks.clear()
    del filler
    torch.cuda.empty_cache()
    note("shortage, emptied")


DEVICE_MIB = int(os.environ.get("SEAMALLOC_SIM_MIB", "2048"))
LOOPS = {loop.__name__: loop for loop in (gpt, dcgan, mixed, shortage)}


def main() -> None:
    if "SEAMALLOC_CONF" in os.environ:
        import seamalloc

        seamalloc.install()
    torch.manual_seed(3)
    # seamalloc has tried out at its set-up what kind of handle the device makes: calls count from here.
    empty(1)
    before.update({name: device.sim_calls(name.encode()) for name in CALLS})
    note("start")
    for name in sys.argv[1:]:
        LOOPS[name]()
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
