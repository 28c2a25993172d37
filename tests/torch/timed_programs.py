# SPDX-License-Identifier: Apache-2.0
"""What test_sim_timed.py runs in virtual time: `python timed_programs.py NAME`, or under two ranks.

Each program trains a small language model for some steps and prints the modelled milliseconds of each. Nothing is
measured: the times come from the device's cost preset."""

import atexit
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

from sim_programs import Transformer

STEPS = 4
BATCH, LENGTH, VOCABULARY = 8, 512, 8192


def train(model, device, between=lambda: None):
    """Modelled milliseconds of each step. `between` runs after each backward pass."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long, device=device)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
    marks[0].record()
    for step in range(STEPS):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        between()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        marks[step + 1].record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in zip(marks, marks[1:], strict=False)]


def language_model(device):
    return Transformer(vocabulary=VOCABULARY, width=512, layers=6, heads=8, length=LENGTH).to(device)


def main_single():
    """One stream and nothing else."""
    return {"steps": train(language_model(0), 0)}


def main_waiting():
    """A side stream copies for a while after each backward pass, and the optimiser needlessly waits for it."""
    side, buffer = torch.cuda.Stream(), torch.empty(1 << 28, device=0)

    def copy_aside():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            buffer[1 << 27:].copy_(buffer[:1 << 27])
        torch.cuda.current_stream().wait_stream(side)

    return {"steps": train(language_model(0), 0, copy_aside)}


class Reduction:
    """The gradients of one block as one buffer, which is summed over the ranks as soon as it is complete. A patient
    one lets the backward pass wait for that; the others are waited for at the end."""

    def __init__(self, block, patient):
        self.parameters, self.patient, self.left, self.work = list(block.parameters()), patient, 0, None
        self.buffer = torch.zeros(sum(p.numel() for p in self.parameters), device=self.parameters[0].device)
        at = 0
        for parameter in self.parameters:
            parameter.grad = self.buffer[at:at + parameter.numel()].view_as(parameter)
            parameter.register_post_accumulate_grad_hook(self.note)
            at += parameter.numel()

    def note(self, _):
        self.left = (self.left or len(self.parameters)) - 1
        if self.left == 0:
            self.work = dist.all_reduce(self.buffer, async_op=True)
            if self.patient:
                self.work.wait()


def data_parallel(patient):
    """The model's every block is on every rank; what the ranks do after a backward pass."""
    model = language_model(dist.get_rank())
    reductions = [Reduction(block, patient) for block in model.blocks]

    def finish():
        for reduction in reductions:
            reduction.work.wait()

    return model, finish


def sharded():
    from torch.distributed.fsdp import fully_shard
    model = language_model(dist.get_rank())
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model), lambda: None


MODELS = {
    "overlapping": lambda: data_parallel(False),
    "patient": lambda: data_parallel(True),
    "sharded": sharded,
}


def rank_main(name):
    """One of two processes, each with a device of its own."""
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    store = f"file://{os.environ['TIMED_STORE']}"
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=2)
    model, finish = MODELS[name]()
    steps = train(model, rank, finish)
    dist.destroy_process_group()
    return {"steps": steps}


if __name__ == "__main__":
    # Autograd's thread may be about to wait for the interpreter's lock when a program ends, and PyTorch then aborts.
    atexit.register(time.sleep, 0.05)
    torch.manual_seed(0)
    if sys.argv[1] in MODELS:
        print(json.dumps(rank_main(sys.argv[1])))
    else:
        print(json.dumps(globals()["main_" + sys.argv[1]]()))
