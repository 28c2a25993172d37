# SPDX-License-Identifier: Apache-2.0
"""The names of the loops, what each does, and which of them may be tuned on.

The list and the rule were written down before the first figure. In the order of the alphabet the first name, the third,
the fifth and so on may be used to choose settings (`tuned`); the others are only ever measured (`held out`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    name: str
    module: str  # of this folder; the function there has the loop's name
    about: str
    ranks: int = 1  # processes, each with a device of its own

    @property
    def half(self) -> str:
        return ("tuned", "held out")[sorted(LOOPS).index(self.name) % 2]


_ALL = (
    Loop("accumulation", "language", "micro-batches of packed text, two to six for one optimizer step"),
    Loop("ddp", "sharded", "an encoder under DistributedDataParallel, gradients in buckets", 2),
    Loop("diffusion", "vision", "a U-Net with text conditioning, pictures of several shapes, averaged weights"),
    Loop("evaluation", "vision", "a vision transformer; larger batches evaluated between training steps"),
    Loop("experts", "language", "mixture of experts, top two of eight, uneven loads"),
    Loop("fsdp1", "sharded", "FullyShardedDataParallel, recomputation, lengths vary", 2),
    Loop("fsdp2", "sharded", "fully_shard, every second layer recomputed, clipping, lengths vary", 2),
    Loop("graph", "structures", "attention over sampled subgraphs, nodes and edges vary"),
    Loop("lora", "language", "low-rank adapters on a frozen model in bfloat16, recomputation, lengths vary"),
    Loop("offload", "language", "layers' inputs to host memory on a side stream and back"),
    Loop("pairs", "structures", "pair representations of chains, triangle updates, recycling"),
    Loop("pipeline", "sharded", "two stages, one forward one backward, micro-batches of varying length", 2),
    Loop("points", "structures", "transformer over point sets of varying size, neighbours and levels"),
    Loop("prefetch", "vision", "a convolutional network; batches prepared ahead on a side stream, sizes vary"),
    Loop("recommender", "structures", "large tables, histories of varying length, sampled candidates"),
    Loop("rollouts", "language", "reinforcement learning: generation, scores, several epochs of updates"),
    Loop("serve_growing", "serving", "continuous batching, one cache a request that grows by concatenation"),
    Loop("serve_paged", "serving", "continuous batching over pages of a fixed pool, chunked prompts"),
    Loop("speech", "structures", "a conformer with a transducer's joint lattice, lengths in buckets"),
    Loop("translation", "language", "encoder and decoder, batches by tokens, beam search between steps"),
)
LOOPS = {loop.name: loop for loop in _ALL}
QUICK = ("graph", "speech")  # short form, used by tests
SHARDED = ("fsdp1", "fsdp2", "ddp", "pipeline")
