# SPDX-License-Identifier: Apache-2.0
"""The unmodified PyTorch in several processes: tensors that are shared, a device that is, and one on which somebody
else takes memory and gives it back."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

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
        seen = answers.get(timeout=300)
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


# Two ranks train a model, on one device. Each keeps all that it ever got until both are done, and then tells.
RANKS = """
    import json, os, sys
    import torch, torch.distributed as dist
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method="file://" + os.environ["STORE"], rank=rank, world_size=2)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(6))).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.ones(64 * (rank + 1), 2048, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    print("done", flush=True)
    sys.stdin.readline()
    print(json.dumps([torch.cuda.mem_get_info()[0], torch.cuda.max_memory_reserved()]), flush=True)
    sys.stdin.readline()
    dist.destroy_process_group()
"""

# Somebody else takes most of the device, and gives it back: by the count of driver calls, of which a question is one.
BESIDE_A_TENANT = """
    import os
    import torch
    if os.environ["ALLOCATOR"] == "seamalloc":
        import seamalloc
        seamalloc.install()

    def left():
        return torch.cuda.mem_get_info()[0] >> 20

    def ask():
        try:
            return torch.empty(600 << 20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            return None

    kept = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    before = ask()
    print("before", before is not None)
    del before
    torch.cuda.empty_cache()
    while left() > 400:
        pass
    print("held", left() <= 224, ask() is not None, kept.numel() >> 20)
    while left() < 800:
        pass
    print("given back", ask() is not None)
"""


def start(program, folder, **settings):
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program))
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("SEAMALLOC_", "PYTORCH_"))}
    environment |= {"SEAMALLOC_SIM_MIB": "1024", **settings}
    return subprocess.Popen([sys.executable, file], env=environment, text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


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


def test_ranks_on_one_device_share_its_memory(tmp_path):
    settings = {"SEAMALLOC_SIM_SHARE": f"ranks-{os.getpid()}", "SEAMALLOC_SIM_MIB": "2048",
                "STORE": str(tmp_path / "store"), "SEAMALLOC_SIM_REPORT": str(tmp_path / "%p.json")}
    ranks = [start(RANKS, tmp_path, RANK=str(rank), **settings) for rank in range(2)]
    for rank in ranks:
        assert rank.stdout.readline() == "done\n", rank.communicate()[1]
    told = []
    for rank in ranks:
        rank.stdin.write("\n")
        rank.stdin.flush()
        told.append(json.loads(rank.stdout.readline()))
    for rank in ranks:
        _, err = rank.communicate("\n", timeout=300)
        assert rank.returncode == 0, err
    records = [json.loads((tmp_path / f"{rank.pid}.json").read_text()) for rank in ranks]
    last = max(records, key=lambda record: record["shared"]["processes_ended"])
    own = [record["devices"][0]["physical_peak_bytes"] for record in records]
    assert all(peak >= reserved > 100 * MIB for peak, (_, reserved) in zip(own, told, strict=True))
    # Nobody has given anything back: what both had was there at the same time, and neither saw it as free.
    assert last["shared"]["devices"][0]["physical_peak_bytes"] == sum(own)
    assert [left for left, _ in told] == [2048 * MIB - sum(own)] * 2
    assert last["shared"]["processes_ended"] == 1 and last["shared"]["processes_died"] == 0
    assert last["shared"]["violations_total"] == 0


@pytest.mark.parametrize("allocator", ["native", "expandable", "seamalloc"])
def test_a_tenant_takes_and_gives_back(tmp_path, allocator):
    settings = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"} if allocator == "expandable" else {}
    settings |= {"SEAMALLOC_SIM_TENANT": "0@0,700@4000calls,0@8000calls"}
    process = start(BESIDE_A_TENANT, tmp_path, ALLOCATOR=allocator,
                    SEAMALLOC_SIM_REPORT=str(tmp_path / "device.json"), **settings)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert out.splitlines() == ["before True", "held True False 100", "given back True"]
    record = json.loads((tmp_path / "device.json").read_text())
    assert record["devices"][0]["tenant_peak_bytes"] == 700 * MIB and record["devices"][0]["tenant_bytes"] == 0
    assert record["violations_total"] == 0
