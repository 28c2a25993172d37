# SPDX-License-Identifier: Apache-2.0
"""The unmodified PyTorch in several processes: tensors that are shared, and a device that is."""

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20

SHARE_TENSORS = """
    import json
    import torch, torch.multiprocessing as mp

    def child(tasks, answers):
        shared = tasks.get()
        seen = shared[:4].cpu().tolist()
        shared[:4].copy_(torch.tensor([5, 6, 7, 8], dtype=torch.int32))
        torch.cuda.synchronize()
        answers.put(seen)
        tasks.get()
        del shared

    if __name__ == "__main__":
        mp.set_start_method("spawn")
        tasks, answers = mp.Queue(), mp.Queue()
        process = mp.Process(target=child, args=(tasks, answers))
        process.start()
        first = torch.empty(1 << 20, dtype=torch.int32, device="cuda")
        second = torch.empty(1 << 20, dtype=torch.int32, device="cuda")  # not the first of its segment
        second[:4].copy_(torch.tensor([1, 2, 3, 4], dtype=torch.int32))
        torch.cuda.synchronize()
        tasks.put(second)
        seen = answers.get(timeout=120)
        now = second[:4].cpu().tolist()
        tasks.put(None)
        process.join()
        print(json.dumps([seen, now, process.exitcode]))
"""

TAKE = """
    import sys
    import torch
    block = torch.empty(600 << 20, dtype=torch.uint8, device="cuda")
    print("taken", torch.cuda.mem_get_info()[0] >> 20, flush=True)
    sys.stdin.readline()
    print("left", torch.cuda.mem_get_info()[0] >> 20, flush=True)
"""


def start(program, folder, **settings):
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program))
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("SEAMALLOC_", "PYTORCH_"))}
    environment |= {"SEAMALLOC_SIM_MIB": "1024", **settings}
    return subprocess.Popen([ROOT / "scripts/with-sim", "python", file], env=environment, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"])
@pytest.mark.parametrize("streams", ["immediate", "late"])
def test_tensors_are_shared(tmp_path, allocator, streams):
    process = start(SHARE_TENSORS, tmp_path, PYTORCH_ALLOC_CONF=allocator, SEAMALLOC_SIM_STREAMS=streams)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == [[1, 2, 3, 4], [5, 6, 7, 8], 0]


def test_a_shared_device_is_short_for_all(tmp_path):
    """The second process finds what the first has left: too little, until the first has died."""
    settings = {"SEAMALLOC_SIM_SHARE": f"torch-{os.getpid()}", "SEAMALLOC_SIM_REPORT": str(tmp_path / "%p.json")}
    first = start(TAKE, tmp_path, **settings)
    assert first.stdout.readline() == "taken 424\n"
    second = start(TAKE, tmp_path, **settings)
    _, err = second.communicate(timeout=300)
    assert second.returncode == 1
    assert "OutOfMemoryError" in err and "424" in err
    third_settings = settings | {"SEAMALLOC_SIM_REPORT": str(tmp_path / "last.json")}
    first.kill()
    first.communicate()
    third = start(TAKE, tmp_path, **third_settings)
    out, err = third.communicate("\n", timeout=300)
    assert third.returncode == 0, err
    assert out == "taken 424\nleft 424\n"
