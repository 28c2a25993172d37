# SPDX-License-Identifier: Apache-2.0
"""`seamalloc run`: an unmodified script, its arguments, its exit code, and the statistics when it ends."""

import json
import sys

SCRIPT = """\
import os, sys
import helper                              # lies beside the script
import torch
if __name__ == "__main__":
    x = torch.ones(1 << 20, device="cuda")
    print("ARGS", sys.argv[1:], torch.cuda.memory.get_allocator_backend(), helper.value)
    if "--fail" in sys.argv:
        sys.exit(7)
    if "--raise" in sys.argv:
        raise EOFError("the script's own")
"""


def prepare(run):
    folder = run.folder / "scripts"
    folder.mkdir()
    (folder / "helper.py").write_text("value = 42\n")
    (folder / "train.py").write_text(SCRIPT)
    return str(folder / "train.py")


def test_run_passes_arguments_and_writes_statistics(run):
    script, out = prepare(run), run.folder / "stats.json"
    done = run.command(
        *(sys.executable, "-m", "seamalloc", "run", "--policy", "stitch", "--stats", str(out)),
        *(script, "--policy", "mine", "-x", "data"),
    )
    assert "ARGS ['--policy', 'mine', '-x', 'data'] pluggable 42" in done.stdout
    document = json.loads(out.read_text())
    (device,) = document["devices"]
    assert device["levels"]["allocated_bytes"]["all"]["peak"] == 4 << 20
    assert device["policy"] == "stitch"


def test_exit_codes_and_exceptions_are_the_scripts(run):
    script, out = prepare(run), run.folder / "stats.json"
    command = (sys.executable, "-m", "seamalloc", "run", "--stats", str(out), script)
    run.command(*command, "--fail", expect=7)
    assert json.loads(out.read_text())["devices"]
    out.unlink()
    done = run.command(*command, "--raise", expect=1)
    assert "EOFError: the script's own" in done.stderr and "Traceback" in done.stderr
    assert json.loads(out.read_text())["devices"], "the statistics are there whichever way the script ends"


def test_statistics_lie_where_the_command_was_given(run):
    script = "import os, torch; os.mkdir('below'); os.chdir('below'); torch.ones(1, device='cuda')"
    (run.folder / "moves.py").write_text(script)
    run.command(sys.executable, "-m", "seamalloc", "run", "--stats", "stats.json", "moves.py")
    assert json.loads((run.folder / "stats.json").read_text())["devices"]


def test_a_script_that_uses_no_device_leaves_no_zeros(run):
    (run.folder / "idle.py").write_text("print('idle')\n")
    out = run.folder / "stats.json"
    run.command(sys.executable, "-m", "seamalloc", "run", "--stats", str(out), "idle.py")
    document = json.loads(out.read_text())
    assert "unavailable" in document and "devices" not in document


def test_bad_input_is_a_clear_error(run):
    script = prepare(run)
    base = (sys.executable, "-m", "seamalloc", "run")
    missing = run.command(*base, "no/such.py", expect=2)
    assert "no/such.py" in missing.stderr and "Traceback" not in missing.stderr
    folder = run.command(*base, "--stats", "/no/such/folder/x.json", script, expect=2)
    assert "/no/such/folder" in folder.stderr and "ARGS" not in folder.stdout
    policy = run.command(*base, "--policy", "no_such_policy", script, expect=2)
    assert "no_such_policy" in policy.stderr and "ARGS" not in policy.stdout and "Traceback" not in policy.stderr
    assert "SCRIPT" in run.command(*base, "--help").stdout


def test_run_records_what_the_script_asks_for(run):
    script, out = prepare(run), run.folder / "run-%p.seamtrace"
    run.command(sys.executable, "-m", "seamalloc", "run", "--trace", str(out), script)
    (file,) = run.folder.glob("run-*.seamtrace")
    content = file.read_bytes()
    assert content.startswith(b"SEAMTRC\n") and b'"settings"' in content
    assert content[-40:-36] == b"END1", "it was ended, not cut off"
    events, lost = (int.from_bytes(content[at : at + 8], "little") for at in (-24, -16))
    assert events >= 3 and lost == 0  # the device, an allocation, its free
    bad = run.command(sys.executable, "-m", "seamalloc", "run", "--trace", "a:b", script, expect=2)
    assert "trace" in bad.stderr and "ARGS" not in bad.stdout and "Traceback" not in bad.stderr


def test_bench_measures_both_allocators(run):
    done = run(
        """
        from seamalloc import _bench
        result(document=_bench.measure(2, live=(64,)))
        """,
        install=False,
    )
    rows = done["document"]["rows"]
    assert len(rows) == 2 * 5 * 2  # threads, ways, patterns
    assert {(row["allocator"], row["through"]) for row in rows} == {
        ("native", "raw_alloc"),
        ("native", "allocate"),
        ("seamalloc", "raw_alloc"),
        ("seamalloc", "allocate"),
        ("seamalloc", "seam_malloc"),
    }
    assert all(row["ns_per_pair"] > 0 for row in rows)
    assert done.record["violations"] == []
