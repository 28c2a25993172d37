# SPDX-License-Identifier: Apache-2.0
"""What test_sim_torch.py runs on the simulated device, one process for each: `python sim_programs.py NAME`.

A program is a function called main_NAME. It uses PyTorch as anybody would, checks nothing that the device does not
promise (kernels compute nothing, copies and fills are real), and returns figures, which are printed as JSON."""

import ctypes
import gc
import json
import os
import resource
import sys

import torch
import torch.nn.functional as F
from torch import nn

MIB = 1 << 20
DEVICE = "cuda"


def physical_bytes(device=0):
    """Bytes in use on the device by its own books."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.sim_physical_bytes.restype = ctypes.c_uint64
    return driver.sim_physical_bytes(device)


def graph_bytes_peak(device=0):
    """The most bytes that graphs have owned, by the driver's count."""
    value = ctypes.c_uint64()
    assert ctypes.CDLL("libcuda.so.1").cuDeviceGetGraphMemAttribute(device, 3, ctypes.byref(value)) == 0
    return value.value


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class Transformer(nn.Module):
    """A small language model: the shapes of a real one, fewer of them."""

    def __init__(self, vocabulary=4096, width=256, layers=4, heads=4, length=512):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(model, batches, amp=False):
    """Trains over the batches; returns the bytes allocated after each step."""
    model = model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(DEVICE, enabled=amp)
    allocated = []
    for tokens, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, enabled=amp):
            out = model(tokens.to(DEVICE, non_blocking=True))
            loss = F.cross_entropy(out.flatten(0, -2), targets.to(DEVICE, non_blocking=True).flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        del out, loss
        allocated.append(torch.cuda.memory_allocated())
    return allocated


def token_batches(count, lengths=(128,)):
    for i in range(count):
        length = lengths[i % len(lengths)]
        yield torch.randint(4096, (4, length)), torch.randint(4096, (4, length))


# ---- the parts of the tour ----


def do_tensors():
    host = torch.arange(100_000, dtype=torch.float32)
    device = host.to(DEVICE)
    copy = torch.empty_like(device)
    copy.copy_(device)
    strided = torch.arange(12, dtype=torch.float32).view(3, 4)
    filled = device.clone().zero_()
    return {
        "round_trip": torch.equal(device.cpu(), host),
        "device_to_device": torch.equal(copy.cpu(), host),
        "views": torch.equal(strided.to(DEVICE)[1].cpu(), strided[1]),
        "zeros": float(filled.cpu().abs().sum()),
    }


def do_autograd():
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(128), nn.Linear(128, 8))
    model.to(DEVICE)(torch.randn(16, 64, device=DEVICE)).sum().backward()
    return {"gradients": all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())}


def do_training():
    steady = train(Transformer(), token_batches(6))
    amp = train(Transformer(), token_batches(6), amp=True)
    varying = train(Transformer(), token_batches(12, (64, 300, 128, 511, 96, 200)))
    return {"steady": steady, "amp": amp, "varying": varying}


def do_convolutions():
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(16, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to(DEVICE)
    out = model(torch.randn(4, 3, 32, 32, device=DEVICE))
    out.sum().backward()
    recurrent = nn.LSTM(16, 32, 2, batch_first=True).to(DEVICE)
    recurrent(torch.randn(4, 10, 16, device=DEVICE))[0].sum().backward()
    return {"shape": list(out.shape), "cudnn": torch.backends.cudnn.enabled}


def do_streams():
    stream = torch.cuda.Stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    x = torch.empty(4 * MIB, device=DEVICE)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = x * 2
        x.record_stream(stream)
    del x
    torch.cuda.current_stream().wait_stream(stream)
    end.record()
    end.synchronize()
    return {"bytes": y.numel() * 4, "elapsed_ms": start.elapsed_time(end), "done": end.query() and stream.query()}


def do_graphs():
    model, x = nn.Linear(64, 64).to(DEVICE), torch.randn(8, 64, device=DEVICE)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
        y = torch.relu(y)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    private = None
    if torch.cuda.get_allocator_backend() == "native":
        private = sum(segment["total_size"] for segment in torch.cuda.memory_snapshot()
                      if tuple(segment["segment_pool_id"]) != (0, 0))
    graphed = torch.cuda.make_graphed_callables(nn.Linear(8, 8).to(DEVICE),
                                                (torch.randn(4, 8, device=DEVICE, requires_grad=True),))
    graphed(torch.randn(4, 8, device=DEVICE, requires_grad=True)).sum().backward()
    return {"address": y.data_ptr() != 0, "private_bytes": private}


def do_loading():
    # A forked worker must not be the one that finds the cycles of the graphs and frees their memory.
    gc.collect()
    data = torch.utils.data.TensorDataset(torch.arange(256, dtype=torch.float32).view(64, 4))
    loader = torch.utils.data.DataLoader(data, 8, num_workers=2, pin_memory=True)
    rows, pinned = [], True
    for (batch,) in loader:
        pinned = pinned and batch.is_pinned()
        rows.append(batch.to(DEVICE, non_blocking=True))
    torch.cuda.synchronize()
    return {"pinned": pinned, "arrived": torch.equal(torch.cat([row.cpu() for row in rows]), data.tensors[0])}


def do_out_of_memory():
    total = torch.cuda.get_device_properties(0).total_memory
    size, kept, message = 256 * MIB, [], ""
    try:
        for _ in range(total // size + 1):
            kept.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))
    except torch.OutOfMemoryError as error:
        message = str(error)
    given = len(kept)
    kept.clear()
    torch.cuda.empty_cache()
    again = torch.empty(total // 2, dtype=torch.uint8, device=DEVICE)
    return {"message": message, "given_bytes": given * size, "total": total, "again": again.numel()}


def main_tour():
    """Everything that a training program does, and what the memory statistics say after it."""
    torch.manual_seed(0)
    parts = (do_tensors, do_autograd, do_training, do_convolutions, do_streams, do_graphs, do_loading)
    result = {part.__name__[3:]: part() for part in parts}
    torch.cuda.synchronize()
    result["stats"] = {
        "reserved": torch.cuda.memory_reserved(),
        "reserved_peak": torch.cuda.max_memory_reserved(),
        "allocated": torch.cuda.memory_allocated(),
        "device_bytes": physical_bytes(),
        "graph_peak": graph_bytes_peak(),
        "device_used": torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0],
    }
    return result


def main_out_of_memory():
    return do_out_of_memory()


def main_repeat():
    """The addresses and sizes of one seeded sequence of requests, made by two runs of a program."""
    torch.manual_seed(1)
    addresses, live = [], []
    for i in range(400):
        size = int(torch.randint(1, 6 * MIB, (1,)))
        live.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))
        addresses.append(live[-1].data_ptr())
        if len(live) > 30:
            live.pop(int(torch.randint(len(live), (1,))))
    train(Transformer(layers=2), token_batches(3, (64, 200, 128)))
    return {"addresses": addresses, "reserved_peak": torch.cuda.max_memory_reserved(),
            "allocated": torch.cuda.memory_allocated()}


def main_requests():
    """Every request of a training program as PyTorch's own history has it: what, how many bytes, on which stream."""
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python", context=None)
    torch.manual_seed(1)
    train(Transformer(layers=2), token_batches(4, (64, 200, 128)))
    do_convolutions()
    do_streams()
    do_graphs()
    plain = len(request_history())
    train(Transformer(layers=2), token_batches(4, (64, 200, 128)), amp=True)
    torch.cuda.synchronize()
    requests = request_history()
    return {"plain": requests[:plain], "amp": requests[plain:]}


def request_history():
    """Each request so far: what, bytes, and the stream by the order of first use."""
    streams, requests = {}, []
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        if entry["action"] in ("alloc", "free_requested"):
            stream = streams.setdefault(entry["stream"], len(streams))
            requests.append([entry["action"], entry["size"], stream])
    return requests


def main_lag():
    """One tensor made again and again while another stream still uses the last ones."""
    stream, addresses = torch.cuda.Stream(), set()
    for _ in range(200):
        x = torch.empty(4 * MIB, device=DEVICE)
        with torch.cuda.stream(stream):
            y = x * 2
            x.record_stream(stream)
        addresses.add(x.data_ptr())
        del x, y
    return {"addresses": len(addresses)}


def main_refused_memory():
    """A device that gives no more than four pieces, long before it is full."""
    kept = []
    try:
        for _ in range(40):
            kept.append(torch.empty(30 * MIB, dtype=torch.uint8, device=DEVICE))
    except torch.OutOfMemoryError as error:
        return {"given": len(kept), "message": str(error)}
    return {"given": len(kept), "message": ""}


FEATURES = {
    "nonzero": lambda x: x.nonzero(),
    "masks": lambda x: (x[x > 0], x.masked_select(x > 0)),
    "unique": lambda x: x.unique(),
    "sort": lambda x: (x.sort(), x.topk(5), x.argmax().item()),
    "scan": lambda x: (x.cumsum(0), x.histc(10), x.long().abs().bincount()),
    "random": lambda x: (torch.multinomial(x.abs(), 3), torch.randperm(5000, device=DEVICE)),
    "scatter": lambda x: x.scatter_add(0, torch.zeros(9, dtype=torch.long, device=DEVICE), x[:9]),
    "embedding": lambda x: F.embedding(torch.zeros(4000, dtype=torch.long, device=DEVICE),
                                       torch.randn(100, 8, device=DEVICE, requires_grad=True)).sum().backward(),
    "fft": lambda x: torch.fft.ifft(torch.fft.fft(x)),
    "svd": lambda x: torch.linalg.svd(x.view(20, 50)),
    "solve": lambda x: torch.linalg.solve(torch.eye(8, device=DEVICE), x[:8]),
    "inverse": lambda x: torch.linalg.inv(torch.eye(8, device=DEVICE)),
    "cholesky": lambda x: torch.linalg.cholesky(torch.eye(8, device=DEVICE)),
    "qr": lambda x: torch.linalg.qr(x.view(20, 50)),
    "eigh": lambda x: torch.linalg.eigh(torch.eye(8, device=DEVICE)),
    "batched": lambda x: torch.linalg.inv(torch.eye(4, device=DEVICE).expand(600, 4, 4).contiguous()),
    "bmm": lambda x: torch.bmm(torch.randn(4, 8, 8, device=DEVICE), torch.randn(4, 8, 8, device=DEVICE)),
    "half": lambda x: x.bfloat16().view(20, 50) @ x.half().bfloat16().view(50, 20),
    "dot": lambda x: (x @ x, torch.mv(x.view(20, 50), x[:50])),
    "sparse": lambda x: torch.sparse.mm(torch.eye(8).to_sparse().to(DEVICE), x[:64].view(8, 8)),
    "sparse csr": lambda x: torch.eye(8).to_sparse_csr().to(DEVICE) @ x[:64].view(8, 8),
    "attention": lambda x: F.scaled_dot_product_attention(
        *[torch.randn(2, 4, 128, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)] * 3).sum().backward(),
    "jiterator": lambda x: torch.special.i0(x),
    "print": lambda x: str(x[:3]),
    "pool": lambda x: use_pool(),
    "snapshot": lambda x: take_snapshot(),
    "profiler": lambda x: profile(x),
    "strided host copy": lambda x: torch.randn(64, 64).pin_memory()[:, :16].to(DEVICE, non_blocking=True),
}


def use_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        return torch.empty(MIB, device=DEVICE)


def take_snapshot():
    torch.cuda.memory._record_memory_history()
    kept = torch.empty(MIB, device=DEVICE)
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    assert kept.data_ptr() and snapshot["segments"] and any(snapshot["device_traces"])


def profile(x):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        x + x
    assert profiler.key_averages()


def main_features():
    """Functions that read results back, use a math library, or ask the device for more than memory."""
    failed = {}
    for name, feature in FEATURES.items():
        try:
            feature(torch.randn(1000).to(DEVICE))
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001 (each failure is a line of the report)
            failed[name] = f"{type(error).__name__}: {error}"
    return {"failed": failed, "tried": len(FEATURES)}


def main_refusal():
    """cuDNN turned on against the device's advice."""
    torch.backends.cudnn.enabled = True
    try:
        nn.Conv2d(3, 8, 3).to(DEVICE)(torch.randn(1, 3, 8, 8, device=DEVICE))
    except RuntimeError as error:
        return {"error": str(error)}
    return {"error": ""}


def main_zeros():
    """A device full of zeros, and what that takes of the host's memory."""
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.empty(1, device=DEVICE)
    first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = [torch.zeros(1 << 28, device=DEVICE) for _ in range(16)]
    kept += [torch.zeros(1 << 20, device=DEVICE) for _ in range(64)]
    values = [float(kept[0][12345].item()), float(kept[-1].cpu().sum())]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first
    return {"device_bytes": sum(x.numel() * 4 for x in kept), "grown_kib": grown, "start_kib": start, "values": values}


def collectives(rank, ranks):
    """What each rank gets from the others, in messages that are small enough to be real."""
    import torch.distributed as dist
    mine = torch.tensor([1.0, rank, 5.0, -rank], device=rank)
    gathered = [torch.empty(4, device=rank) for _ in range(ranks)]
    dist.all_gather(gathered, mine)
    summed, top, root = mine.clone(), mine.clone(), mine.clone()
    dist.all_reduce(summed)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    dist.broadcast(root, src=1)
    scattered = torch.empty(2, device=rank)
    dist.reduce_scatter_tensor(scattered, mine)
    passed = torch.empty(4, device=rank)
    work = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, passed, 1 - rank)])
    for request in work:
        request.wait()
    large = torch.zeros(1 << 20, device=rank)
    dist.all_reduce(large)
    return {"gathered": [part.tolist() for part in gathered], "summed": summed.tolist(), "top": top.tolist(),
            "root": root.tolist(), "scattered": scattered.tolist(), "passed": passed.tolist()}


def in_a_group(rank, ranks, path, work):
    """What work() gives in a process group of its own. The group's thread and the work's cycles keep buffers for as
    long as they like: both have to go before anything else is measured."""
    torch.distributed.init_process_group("nccl", init_method=f"file://{path}", rank=rank, world_size=ranks)
    found = work()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    gc.collect()
    return found


def bytes_of_state(wrap):
    """What a wrapped model and its optimizer hold after three steps."""
    before = torch.cuda.memory_allocated()
    model = wrap(nn.Sequential(nn.Linear(64, 2048), nn.GELU(), nn.Linear(2048, 8)).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 64, device="cuda")).sum().backward()
        optimizer.step()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # in some versions they are tensors
    return torch.cuda.memory_allocated() - before


def rank_main(rank, ranks, path):
    from torch.distributed.fsdp import fully_shard
    torch.cuda.set_device(rank)
    found = in_a_group(rank, ranks, f"{path}.collectives", lambda: collectives(rank, ranks))
    for name, wrap in (("data_parallel", nn.parallel.DistributedDataParallel), ("sharded", fully_shard)):
        found[name] = in_a_group(rank, ranks, f"{path}.{name}", lambda wrap=wrap: bytes_of_state(wrap))
    with open(f"{path}.{rank}", "w", encoding="utf-8") as file:
        json.dump(found, file)


def main_distributed():
    """Two processes on two devices."""
    path = os.environ["SIM_PROGRAM_STORE"]
    torch.multiprocessing.spawn(rank_main, (2, path), nprocs=2)
    ranks = []
    for rank in range(2):
        with open(f"{path}.{rank}", encoding="utf-8") as file:
            ranks.append(json.load(file))
    return {"devices": torch.cuda.device_count(), "ranks": ranks}


if __name__ == "__main__":
    print(json.dumps(globals()["main_" + sys.argv[1]]()))
