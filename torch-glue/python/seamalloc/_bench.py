# SPDX-License-Identifier: Apache-2.0
"""PyTorch's native allocator beside seamalloc, for the command ``bench``: both in one process, on the same threads,
taking turns, and of each the lowest round.

PyTorch holds one allocator at a time; the native one is looked up before seamalloc takes its place, and is set up by
hand afterwards. The loops are ``native/bench.cc``, compiled on first use and kept as the other part is (``_native``).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import seamalloc
from seamalloc import _library, _native
from seamalloc._library import PACKAGE, SOURCE_ROOT

LIVE = (64, 1024, 16384, 262144, 1000000)
PAIRS = 2000  # short, so that some rounds are not interrupted on a machine that does other things
ROUNDS = 30
TOGETHER = 10  # several threads need longer rounds, which the moment until all run does not fill
PATTERNS = {"churn": 64, "scatter": 0}  # among how many of the live blocks a pair chooses; 0: all
RAW_ALLOC, ALLOCATE, DIRECT = range(3)
THROUGH = ("raw_alloc", "allocate", "seam_malloc")


def _cuda_headers() -> Path:
    places = [Path(os.environ[name]) / "include" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if SOURCE_ROOT is not None:
        places.append(SOURCE_ROOT / "build" / "deps" / "cuda" / "include")
    places.append(Path("/usr/local/cuda/include"))
    for place in places:
        if (place / "cuda_runtime_api.h").is_file():
            return place
    raise _native.NativePartError("the CUDA headers (cuda_runtime_api.h) were not found; CUDA_HOME names their folder")


def _source() -> Path:
    places = [PACKAGE / "native" / "bench.cc"]
    if SOURCE_ROOT is not None:
        places.append(SOURCE_ROOT / "torch-glue" / "native" / "bench.cc")
    for place in places:
        if place.is_file():
            return place
    raise _native.NativePartError("bench.cc is not part of this installation")


def _build(torch: ModuleType) -> Path:
    source = _source()
    flags = [*_native._flags(torch), "-O2", f"-I{_cuda_headers()}"]
    key = hashlib.sha256(source.read_bytes() + "\0".join(flags).encode()).hexdigest()[:12]
    target = _native.cache_folder() / f"bench-torch{torch.__version__}-{key}.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(suffix=".so", prefix=".making-", dir=target.parent)
    os.close(handle)
    try:
        command = [_native._compiler(), *flags, str(source), "-o", scratch, "-lc10_cuda", "-lc10", "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _native.NativePartError(f"{command[0]} failed: {done.stderr.strip()[:600]}")
        os.replace(scratch, target)
    finally:
        Path(scratch).unlink(missing_ok=True)
    return target


def _load(torch: ModuleType) -> ctypes.CDLL:
    part = ctypes.CDLL(str(_build(torch)))
    pointer = ctypes.c_void_p
    part.seam_bench_allocator.restype = pointer
    part.seam_bench_init.argtypes = [pointer, ctypes.c_int]
    part.seam_bench_open.restype = pointer
    part.seam_bench_open.argtypes = [ctypes.c_int, pointer, pointer, pointer, ctypes.c_int, ctypes.c_long]
    part.seam_bench_round.restype = ctypes.c_double
    part.seam_bench_round.argtypes = [pointer, ctypes.c_long, ctypes.c_long]
    part.seam_bench_close.argtypes = [pointer]
    return part


def _measure(part: ctypes.CDLL, kinds: list[tuple[str, int, Any]], threads: int, live: int) -> list[dict[str, Any]]:
    library = _library.load()
    functions = (library.address("seam_malloc"), library.address("seam_free"))
    cells = [part.seam_bench_open(kind, allocator, *functions, threads, live) for _, kind, allocator in kinds]
    lows = {(pattern, i): float("inf") for pattern in PATTERNS for i in range(len(cells))}
    for _ in range(ROUNDS):
        for pattern, i in lows:
            ns = part.seam_bench_round(cells[i], PAIRS * (TOGETHER if threads > 1 else 1), PATTERNS[pattern])
            if ns < 0:
                raise seamalloc.SeamallocError(f"{kinds[i][0]} through {THROUGH[kinds[i][1]]} failed")
            lows[pattern, i] = min(lows[pattern, i], ns)
    for cell in cells:
        part.seam_bench_close(cell)
    return [
        {
            "allocator": kinds[i][0],
            "through": THROUGH[kinds[i][1]],
            "process": "torch",
            "threads": threads,
            "live": live,
            "pattern": pattern,
            "recorded": False,
            "ns_per_pair": low,
        }
        for (pattern, i), low in lows.items()
    ]


def measure(threads_most: int, live: tuple[int, ...] = LIVE) -> dict[str, Any]:
    """The rows, as ``seamalloc bench --json`` has them. Makes seamalloc this process's allocator."""
    import torch

    part = _load(torch)
    native = part.seam_bench_allocator()
    seamalloc.install()
    torch.cuda.init()
    wrapper = part.seam_bench_allocator()
    if wrapper == native:
        raise seamalloc.SeamallocError("PyTorch did not change its allocator")
    part.seam_bench_init(native, torch.cuda.device_count())
    kinds = [
        ("native", RAW_ALLOC, native),
        ("native", ALLOCATE, native),
        ("seamalloc", RAW_ALLOC, wrapper),
        ("seamalloc", ALLOCATE, wrapper),
        ("seamalloc", DIRECT, None),
    ]
    rows: list[dict[str, Any]] = []
    threads = 1
    while threads <= threads_most:
        for count in live:
            rows += _measure(part, kinds, threads, count)
        threads *= 2
    return {"torch": torch.__version__, "device": torch.cuda.get_device_name(0), "rows": rows}
