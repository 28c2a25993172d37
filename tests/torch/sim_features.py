# SPDX-License-Identifier: Apache-2.0
"""What of PyTorch works on the simulated device: `python sim_features.py [NAME...]` tries each feature, or those named,
and prints as JSON {"features": [[group, name, text]...], "seen": {name: [state, why]}}.

Each feature is a function whose docstring is its line in docs/features.md. It runs in a forked process of its own, so
that one that breaks the device, or dies, leaves the others alone. It asserts what a GPU would show too; it returns
what it saw that a GPU would not show ("differs"), or None ("works"). An exception, or the end of the process, is
"refused". What kernels compute is nobody's to assert but `kernels`': it is computed nowhere."""

import contextlib
import ctypes
import gc
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings

import torch
import torch.nn.functional as F
from torch import nn

MIB = 1 << 20
DEVICE = "cuda"
SECONDS_MAX = 120
GROUPS: dict[str, list] = {}


def feature(group):
    def add(function):
        GROUPS.setdefault(group, []).append(function)
        return function
    return add


def unsupported_calls():
    """Calls so far that were answered "not supported"."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.sim_calls_unsupported.restype = ctypes.c_uint64
    return driver.sim_calls_unsupported()


def small_model():
    layers = nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(256), nn.Linear(256, 8)
    return nn.Sequential(*layers).to(DEVICE)


def step(model, optimizer, x):
    optimizer.zero_grad(set_to_none=True)
    model(x).sum().backward()
    optimizer.step()


def peak_of(work):
    """The most bytes that were allocated during the work, beyond those before it."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = work()
    torch.cuda.synchronize()
    del result
    return torch.cuda.max_memory_allocated() - before


# ---- tensors ----


@feature("Tensors")
def copies():
    """copies to, from and on the device, strided ones too, `zeros`, `zero_`"""
    host = torch.arange(60_000, dtype=torch.float32)
    device = host.to(DEVICE)
    assert torch.equal(device.cpu(), host)
    assert torch.equal(torch.empty_like(device).copy_(device).cpu(), host)
    assert torch.equal(device.view(200, 300)[7].cpu(), host.view(200, 300)[7])
    assert torch.equal(host.view(200, 300)[:, :100].contiguous().pin_memory().to(DEVICE, non_blocking=True).cpu(),
                       host.view(200, 300)[:, :100])
    assert not torch.zeros(1000, device=DEVICE).cpu().any() and not device.zero_().cpu().any()


@feature("Tensors")
def kernels():
    """element-wise functions, reductions, matrix products: types, shapes, memory; and their values"""
    host = torch.arange(1, 257, dtype=torch.float32).view(16, 16)
    device = host.to(DEVICE)
    for made, wanted in ((device + 1, host + 1), (device.sum(0), host.sum(0)), (device @ device, host @ host),
                         (device.half() * 2, host.half() * 2), (device.argmax(1), host.argmax(1))):
        assert made.shape == wanted.shape and made.dtype == wanted.dtype
    if not torch.equal((device + 1).cpu(), host + 1):
        return "kernels compute nothing; what they would have written is not there"


@feature("Tensors")
def counted():
    """results whose size depends on values: `nonzero`, `unique`, masks"""
    x = torch.tensor([0.0, 1.0, 2.0, 2.0] * 100).to(DEVICE)
    sizes = [x.nonzero().numel(), x.unique().numel(), x[x > 1].numel(), x.masked_select(x > 0).numel()]
    if sizes != [300, 3, 200, 300]:
        return f"sizes come from what was computed: {sizes} elements instead of [300, 3, 200, 300]"


@feature("Tensors")
def ordering():
    """`sort`, `topk`, `cumsum`, `histc`, `multinomial`, `randperm`, `scatter_add`, embeddings"""
    x = torch.rand(5000).to(DEVICE)
    assert x.sort()[1].shape == (5000,) and x.topk(5)[0].shape == (5,) and x.cumsum(0).shape == (5000,)
    assert x.histc(10).shape == (10,) and torch.multinomial(x, 3).shape == (3,)
    assert torch.randperm(5000, device=DEVICE).shape == (5000,)
    assert x.scatter_add(0, torch.zeros(9, dtype=torch.long, device=DEVICE), x[:9]).shape == (5000,)
    table = torch.randn(100, 8, device=DEVICE, requires_grad=True)
    F.embedding(torch.zeros(4000, dtype=torch.long, device=DEVICE), table).sum().backward()
    assert table.grad.shape == table.shape


@feature("Tensors")
def peers():
    """two devices: copies between them, tensors on each"""
    host = torch.arange(1000, dtype=torch.float32)
    assert torch.cuda.device_count() == 2 and torch.cuda.can_device_access_peer(0, 1)
    there = host.to("cuda:0").to("cuda:1")
    assert there.device.index == 1 and torch.equal(there.cpu(), host)
    assert torch.cuda.memory_allocated(1) > 0


@feature("Tensors")
def sparse():
    """sparse matrices: COO and CSR products"""
    dense = torch.randn(8, 8, device=DEVICE)
    assert torch.sparse.mm(torch.eye(8).to_sparse().to(DEVICE), dense).shape == (8, 8)
    assert (torch.eye(8).to_sparse_csr().to(DEVICE) @ dense).shape == (8, 8)


@feature("Tensors")
def runtime_compiled():
    """kernels compiled at run time (`torch.special.i0`)"""
    assert torch.special.i0(torch.rand(1000, device=DEVICE)).shape == (1000,)


# ---- training ----


@feature("Training")
def autograd():
    """autograd: gradients of every parameter, double backward"""
    model = small_model()
    x = torch.randn(16, 64, device=DEVICE, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    gradient.sum().backward()
    assert gradient.shape == x.shape
    model(x).sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())


@feature("Training")
def optimizers():
    """SGD, Adam, AdamW fused and not: steps, state, memory that stays the same after the first step"""
    for make in (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), torch.optim.Adam,
                 lambda p: torch.optim.AdamW(p, fused=True)):
        model = small_model()
        optimizer, x, allocated = make(model.parameters()), torch.randn(16, 64, device=DEVICE), []
        for _ in range(4):
            step(model, optimizer, x)
            allocated.append(torch.cuda.memory_allocated())
        assert len(set(allocated[1:])) == 1 and allocated[0] <= allocated[1]
        assert len(optimizer.state) == len(list(model.parameters()))


@feature("Training")
def mixed_precision():
    """`autocast` with bfloat16 and with float16 and a `GradScaler`"""
    model, x = small_model(), torch.randn(16, 64, device=DEVICE)
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler(DEVICE)
    for kind in (torch.bfloat16, torch.float16):
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast(DEVICE, kind):
                out = model(x)
                assert out.dtype == kind
            scaler.scale(out.sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert optimizer.state[next(model.parameters())]["step"] >= 1


@feature("Training")
def checkpointing():
    """activation checkpointing, both kinds: less memory than without"""
    from torch.utils.checkpoint import checkpoint
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(256, 4096), nn.GELU(), nn.Linear(4096, 256)) for _ in range(6))
    blocks.to(DEVICE)
    x = torch.randn(256, 256, device=DEVICE, requires_grad=True)

    def run(reentrant):
        y = x
        for block in blocks:
            y = block(y) if reentrant is None else checkpoint(block, y, use_reentrant=reentrant)
        y.sum().backward()

    run(None)  # the gradients are there from now on
    whole = peak_of(lambda: run(None))
    for reentrant in (True, False):
        assert peak_of(lambda reentrant=reentrant: run(reentrant)) < 0.6 * whole


@feature("Training")
def attention():
    """`scaled_dot_product_attention`, forward and backward, in bfloat16 and float32"""
    for kind in (torch.bfloat16, torch.float32):
        q, k, v = (torch.randn(2, 4, 256, 64, device=DEVICE, dtype=kind, requires_grad=True) for _ in range(3))
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
        assert q.grad.shape == q.shape


@feature("Training")
def compile_eager():
    """`torch.compile` with the backends `eager` and `aot_eager`"""
    for backend in ("eager", "aot_eager"):
        model = small_model()
        step(torch.compile(model, backend=backend), torch.optim.SGD(model.parameters(), 0.1),
             torch.randn(16, 64, device=DEVICE))
        assert next(model.parameters()).grad is not None


@feature("Training")
def compile_cudagraphs():
    """`torch.compile` with the backend `cudagraphs`"""
    model = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.ReLU()).to(DEVICE), backend="cudagraphs")
    with torch.no_grad():
        for _ in range(3):
            assert model(torch.randn(8, 64, device=DEVICE)).shape == (8, 64)


@feature("Training")
def compile_inductor():
    """`torch.compile` with its usual backend, without Triton"""
    assert torch.compile(lambda x: torch.relu(x) + 1)(torch.randn(1000, device=DEVICE)).shape == (1000,)


# ---- convolutions and recurrent layers ----


@feature("Convolutions")
def convolutions():
    """1, 2 and 3 dimensions, transposed, grouped, with batch normalisation and pooling, backward too"""
    layers = [(nn.Conv1d(8, 16, 3), (4, 8, 64)), (nn.Conv2d(8, 16, 3, padding=1), (4, 8, 32, 32)),
              (nn.Conv2d(8, 16, 3, groups=8), (4, 8, 32, 32)), (nn.Conv3d(8, 16, 3), (2, 8, 8, 8, 8)),
              (nn.ConvTranspose2d(8, 16, 4, 2, 1), (4, 8, 16, 16)),
              (nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)), (4, 8, 32, 32))]
    for layer, shape in layers:
        wanted = layer(torch.randn(shape)).shape
        x = torch.randn(shape, device=DEVICE, requires_grad=True)
        y = layer.to(DEVICE)(x)
        y.sum().backward()
        assert y.shape == wanted and x.grad.shape == x.shape
    if not torch.backends.cudnn.enabled:
        return "PyTorch's own kernels and buffers in place of cuDNN's, which is off"


@feature("Convolutions")
def recurrent():
    """LSTM and GRU, backward too"""
    for kind in (nn.LSTM, nn.GRU):
        x = torch.randn(4, 10, 16, device=DEVICE, requires_grad=True)
        y = kind(16, 32, 2, batch_first=True).to(DEVICE)(x)[0]
        y.sum().backward()
        assert y.shape == (4, 10, 32) and x.grad.shape == x.shape
    if not torch.backends.cudnn.enabled:
        return "PyTorch's own kernels and buffers in place of cuDNN's, which is off"


@feature("Convolutions")
def cudnn():
    """cuDNN, turned on against the device's advice"""
    torch.backends.cudnn.enabled = True
    assert nn.Conv2d(3, 8, 3).to(DEVICE)(torch.randn(1, 3, 8, 8, device=DEVICE)).shape == (1, 8, 6, 6)


# ---- linear algebra and transforms ----

DECOMPOSITIONS = {
    "cholesky": torch.linalg.cholesky, "eigh": torch.linalg.eigh, "qr": torch.linalg.qr, "svd": torch.linalg.svd,
    "solve": lambda x: torch.linalg.solve(x, x[:, 0]), "inverse": torch.linalg.inv, "det": torch.linalg.det,
    "lstsq": lambda x: torch.linalg.lstsq(x, x[:, :1])[0],
}


def workspace_of(function, x):
    """Bytes during the call beyond what it returns."""
    function(x)  # handles and their own workspaces are made at the first call
    parts = function(x)
    parts = parts if isinstance(parts, tuple) else (parts,)
    kept = sum(part.untyped_storage().nbytes() for part in parts)
    del parts
    return peak_of(lambda: function(x)) - kept


@feature("Linear algebra")
def decompositions():
    """Cholesky, QR, SVD, `eigh`, `solve`, `inv`, `det`, `lstsq`; with work memory that grows with the matrix"""
    for name, function in DECOMPOSITIONS.items():
        wanted, made = function(torch.eye(32)), function(torch.eye(32, device=DEVICE))
        pairs = zip(wanted, made, strict=True) if isinstance(wanted, tuple) else ((wanted, made),)
        assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs), name
    sizes = {name: [workspace_of(DECOMPOSITIONS[name], torch.eye(n, device=DEVICE)) for n in (128, 512)]
             for name in ("cholesky", "qr", "svd", "eigh")}
    assert all(0 < small < large for small, large in sizes.values()), sizes
    return "work memory is sized by LAPACK's formulas, not cuSOLVER's"


@feature("Linear algebra")
def batched():
    """batches of matrices: `bmm`, `baddbmm`, `inv`, `cholesky`, `solve`"""
    x = torch.eye(8, device=DEVICE).expand(100, 8, 8).contiguous()
    assert torch.bmm(x, x).shape == torch.baddbmm(x, x, x).shape == torch.linalg.inv(x).shape == x.shape
    assert torch.linalg.cholesky(x).shape == torch.linalg.solve(x, x).shape == x.shape


@feature("Linear algebra")
def fourier():
    """`fft`, `ifft`, `rfft`, `fft2`, `fftn`; with work memory that grows with the transform"""
    x = torch.randn(64, 1000, device=DEVICE)
    assert torch.fft.fft(x).shape == (64, 1000) and torch.fft.rfft(x).shape == (64, 501)
    assert torch.fft.ifft(torch.fft.fft2(x)).dtype == torch.complex64 and torch.fft.fftn(x).shape == (64, 1000)
    sizes = [workspace_of(torch.fft.fft, torch.randn(n, dtype=torch.complex64, device=DEVICE))
             for n in (1 << 16, 1 << 20)]
    assert 0 < sizes[0] < sizes[1], sizes
    return "work memory is one copy of the data, not what cuFFT asks for"


# ---- memory ----


@feature("Memory")
def statistics():
    """`memory_allocated`, `memory_reserved`, peaks, `memory_summary`, `mem_get_info`, `empty_cache`"""
    x = torch.empty(64 * MIB, dtype=torch.uint8, device=DEVICE)
    assert torch.cuda.memory_allocated() >= 64 * MIB <= torch.cuda.memory_reserved()
    del x
    torch.cuda.empty_cache()
    left, total = torch.cuda.mem_get_info()
    assert torch.cuda.max_memory_allocated() >= 64 * MIB and "Allocated" in torch.cuda.memory_summary()
    assert torch.cuda.memory_reserved() < 64 * MIB and total - left == torch.cuda.memory_reserved()


@feature("Memory")
def out_of_memory():
    """`torch.OutOfMemoryError`, and going on after it"""
    kept, size = [], torch.cuda.mem_get_info()[1] // 8
    with contextlib.suppress(torch.OutOfMemoryError):
        for _ in range(9):
            kept.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))
        raise AssertionError("more memory than there is")
    assert len(kept) in (7, 8)
    kept.clear()
    assert torch.empty(4 * size, dtype=torch.uint8, device=DEVICE).data_ptr()


@feature("Memory")
def fraction():
    """`set_per_process_memory_fraction`"""
    torch.cuda.set_per_process_memory_fraction(0.5)
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(int(0.6 * torch.cuda.mem_get_info()[1]), dtype=torch.uint8, device=DEVICE)
        raise AssertionError("more than the fraction")
    assert torch.empty(int(0.4 * torch.cuda.mem_get_info()[1]), dtype=torch.uint8, device=DEVICE).data_ptr()


@feature("Memory")
def history():
    """`_record_memory_history`, `_snapshot`, `memory_snapshot`"""
    torch.cuda.memory._record_memory_history()
    kept = torch.empty(MIB, device=DEVICE)
    snapshot = torch.cuda.memory._snapshot()
    assert kept.data_ptr() and snapshot["segments"] and any(snapshot["device_traces"])
    assert torch.cuda.memory_snapshot()


@feature("Memory")
def pool():
    """`MemPool` and `use_mem_pool`"""
    mine = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(mine):
        kept = torch.empty(4 * MIB, device=DEVICE)
    assert kept.data_ptr() and mine.snapshot()


@feature("Memory")
def host_memory():
    """pinned and registered host memory"""
    assert torch.empty(MIB, pin_memory=True).is_pinned()
    buffer = torch.empty(MIB)
    assert torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), buffer.nbytes, 0) == 0 and buffer.is_pinned()
    assert torch.cuda.cudart().cudaHostUnregister(buffer.data_ptr()) == 0


def take_shared(channel, answers):
    answers.put(channel.get().cpu().tolist())


@feature("Memory")
def shared():
    """tensors handed to another process"""
    import torch.multiprocessing as mp
    context = mp.get_context("spawn")
    channel, answers = context.Queue(), context.Queue()
    mine = torch.arange(4.0).to(DEVICE)
    mine.untyped_storage()._share_cuda_()  # in a queue's thread the refusal would be nobody's
    child = context.Process(target=take_shared, args=(channel, answers))
    child.start()
    channel.put(mine)
    assert answers.get(timeout=300) == [0, 1, 2, 3]
    child.join()


# ---- streams, graphs, loading, profiling ----


@feature("Streams and graphs")
def streams():
    """streams, events, `record_stream`, waits between streams"""
    stream, event = torch.cuda.Stream(priority=-1), torch.cuda.Event()
    x = torch.empty(MIB, device=DEVICE)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = x * 2
        x.record_stream(stream)
        event.record()
    del x
    torch.cuda.current_stream().wait_event(event)
    event.synchronize()
    stream.synchronize()
    assert y.shape == (MIB,) and event.query() and stream.query()


@feature("Streams and graphs")
def elapsed():
    """time between two events"""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.empty(16384, 16384, device=DEVICE)
    x @ x
    start.record()
    for _ in range(100):  # a petaflop: seconds on any device
        x @ x
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    if start.elapsed_time(end) < 1000:
        return "the host's time, as work takes none unless SEAMALLOC_SIM_STREAMS is `timed`"


@feature("Streams and graphs")
def graphs():
    """CUDA graphs: capture, private memory, a shared pool, `make_graphed_callables`; a replay does its copies"""
    model, x = nn.Linear(64, 64).to(DEVICE), torch.zeros(8, 64, device=DEVICE)
    copy, stream = torch.empty_like(x), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy.copy_(x)
        y = model(x)
    with torch.cuda.graph(second, pool=graph.pool()):
        z = y + 1
    given = torch.arange(512, dtype=torch.float32).view(8, 64)
    x.copy_(given)
    graph.replay()
    second.replay()
    torch.cuda.synchronize()
    assert y.shape == z.shape == (8, 64)
    graphed = torch.cuda.make_graphed_callables(nn.Linear(8, 8).to(DEVICE),
                                                (torch.randn(4, 8, device=DEVICE, requires_grad=True),))
    graphed(torch.randn(4, 8, device=DEVICE, requires_grad=True)).sum().backward()
    if not torch.equal(copy.cpu(), given):
        return "a replay does not do the copies that were captured"


@feature("Streams and graphs")
def loading():
    """`DataLoader` with workers and pinned memory, copies without waiting"""
    data = torch.utils.data.TensorDataset(torch.arange(256, dtype=torch.float32).view(64, 4))
    rows = []
    for (batch,) in torch.utils.data.DataLoader(data, 8, num_workers=2, pin_memory=True):
        assert batch.is_pinned()
        rows.append(batch.to(DEVICE, non_blocking=True))
    torch.cuda.synchronize()
    assert torch.equal(torch.cat([row.cpu() for row in rows]), data.tensors[0])


@feature("Streams and graphs")
def profiler():
    """`torch.profiler` with the device's activities and with memory"""
    from torch.profiler import ProfilerActivity, profile
    model, x = small_model(), torch.randn(16, 64, device=DEVICE)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as seen:
        model(x).sum().backward()
        torch.cuda.synchronize()
    assert any(event.key == "aten::linear" for event in seen.key_averages())
    if not any(event.device_type == torch.autograd.DeviceType.CUDA for event in seen.events()):
        return "the host's side only: no kernels, copies or fills of the device are in the profile"


# ---- torch.distributed, 2 processes ----


def run_rank(rank, ranks, path, work):
    import torch.distributed as dist
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{path}", rank=rank, world_size=ranks)
    found = work(rank)
    dist.barrier()
    dist.destroy_process_group()
    with open(f"{path}.{rank}", "w", encoding="utf-8") as file:
        json.dump(found, file)


def on_two_devices(work):
    """What each of two ranks returns. The ranks are forked: nothing of CUDA has been used here."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")
        torch.multiprocessing.start_processes(run_rank, (2, path, work), nprocs=2, start_method="fork")
        found = []
        for rank in range(2):
            with open(f"{path}.{rank}", encoding="utf-8") as file:
                found.append(json.load(file))
        return found


def train_wrapped(rank, wrap):
    model = wrap(nn.Sequential(nn.Linear(64, 2048), nn.GELU(), nn.Linear(2048, 8)).to(rank))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        step(model, optimizer, torch.randn(16, 64, device=rank))
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated(rank)


def wrap_data_parallel(rank):
    return train_wrapped(rank, lambda model: nn.parallel.DistributedDataParallel(model, device_ids=[rank]))


def wrap_fsdp1(rank):
    from torch.distributed.fsdp import FullyShardedDataParallel
    return train_wrapped(rank, lambda model: FullyShardedDataParallel(model, device_id=rank))


def wrap_fsdp2(rank):
    from torch.distributed.fsdp import fully_shard
    return train_wrapped(rank, fully_shard)


def talk(rank):
    import torch.distributed as dist
    mine, other = torch.tensor([1.0, rank], device=rank), torch.empty(2, device=rank)
    gathered = [torch.empty(2, device=rank) for _ in range(2)]
    dist.all_gather(gathered, mine)
    both = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, other, 1 - rank)]
    for request in dist.batch_isend_irecv(both):
        request.wait()
    assert [part.tolist() for part in gathered] == [[1, 0], [1, 1]] and other.tolist() == [1, 1 - rank]
    dist.all_reduce(mine)
    dist.broadcast(other, src=0)
    large = torch.full((1 << 18,), 1.0).to(rank)
    dist.all_reduce(large)
    return {"small": [mine.tolist(), other.tolist()], "large": float(large.cpu()[-1])}


@feature("torch.distributed")
def collectives():
    """all-reduce, all-gather, broadcast, send and receive between two processes on two devices"""
    for found in on_two_devices(talk):
        assert found["small"] == [[2, 1], [1, 1]]
        large = found["large"]
    if large != 2:
        return "messages above 64 KiB take their time and memory, and are not moved"


@feature("torch.distributed")
def data_parallel():
    """DDP: three steps"""
    assert min(on_two_devices(wrap_data_parallel)) > 0


@feature("torch.distributed")
def sharded_1():
    """FSDP1 (`FullyShardedDataParallel`): three steps, half of the state on each rank"""
    whole, shards = on_two_devices(wrap_data_parallel), on_two_devices(wrap_fsdp1)
    assert 0.3 * whole[0] < shards[0] < 0.75 * whole[0], (whole, shards)


@feature("torch.distributed")
def sharded_2():
    """FSDP2 (`fully_shard`): three steps, half of the state on each rank"""
    whole, shards = on_two_devices(wrap_data_parallel), on_two_devices(wrap_fsdp2)
    assert 0.3 * whole[0] < shards[0] < 0.75 * whole[0], (whole, shards)


# ---- trying them ----


def first_line(error):
    """The error in words that are the same in every run: no addresses, paths and process numbers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    # The text of a failed child process is a traceback, whose last line tells most.
    text = lines[-1] if "Traceback" in str(error) else re.split(r"(?<=[.!])\s", lines[0])[0]
    text = re.sub(r"0x[0-9a-f]+|(?<![\w.:/])/[\w./-]+", "...", text)
    text = re.sub(r"process \d+ terminated", "a process terminated", text)  # whichever ended first
    return f"{type(error).__name__}: {text}".replace("|", "/")


def outcome(function):
    """[state, why] of a feature, tried in this process."""
    try:
        seen = function()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 (each is a line of the table)
        traceback.print_exc()
        return ["refused", first_line(error)]
    count = unsupported_calls()
    if seen is None and count:
        seen = f"{count} calls were answered \"not supported\""
    return ["differs", seen] if seen else ["works", ""]


def last_words(text):
    """What C++ said before it ended the process, in one sentence."""
    found = re.search(r"what\(\):\s*(.+)", text)
    return ": " + re.split(r"(?<=[.!])\s", found[1])[0].replace("|", "/") if found else ""


def try_apart(function):
    """The outcome in a process of its own, which may die or not end."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS_MAX)
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            os.write(answer.fileno(), json.dumps(outcome(function)).encode())
            sys.stderr.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        answer.seek(0)
        said.seek(0)
        text, words = answer.read(), said.read().decode(errors="replace")
    print(words, file=sys.stderr, flush=True)
    state, why = json.loads(text) if text else \
        ("refused", f"the process ended with status {os.waitstatus_to_exitcode(status)}")
    return [state, why + last_words(words) if state == "refused" and "SIG" in why or not text else why]


def main():
    warnings.simplefilter("ignore")
    wanted = set(sys.argv[1:])
    features, seen = [], {}
    for group, functions in GROUPS.items():
        for function in functions:
            name = function.__name__
            if wanted and name not in wanted:
                continue
            start = time.monotonic()
            features.append([group, name, function.__doc__])
            seen[name] = try_apart(function)
            print(f"---- {name}: {seen[name]} after {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    print(json.dumps({"features": features, "seen": seen}))


if __name__ == "__main__":
    main()
