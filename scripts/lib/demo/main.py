# SPDX-License-Identifier: Apache-2.0
"""The demo: training scripts under three allocators, then tables and a JSON file. scripts/demo sets up and calls it.

Each script runs in a fresh process for each allocator. What the runs leave (their lines, the device's records,
seamalloc's statistics) is in build/demo/ afterwards; a demo that is stopped leaves nothing behind.
"""

from __future__ import annotations

import datetime
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

import tables
from runs import ALLOCATORS, ROOT, Machine, Run, RunError, describe_machine, run_script

SCRIPTS = ROOT / "examples" / "training"
RESULTS = ROOT / "build" / "demo"
QUICK = [("dcgan.py", [])]
WHOLE = [*QUICK, ("gpt.py", [])]
COLUMNS_MIN = 110  # what the widest table needs
LINE_COLUMNS_MAX = 70
INTERRUPTED = 130

out = Console(width=None if Console().width >= COLUMNS_MIN else COLUMNS_MIN, highlight=False)
err = Console(stderr=True, highlight=False)


def stop_as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run_all(jobs: list[tuple[str, list[str]]], machine: Machine, folder: Path) -> list[Run]:
    """Runs every job under every allocator; shows the line that the running script printed last."""
    runs = []
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        for name, arguments in jobs:
            for allocator in ALLOCATORS:
                what = f"{Path(name).stem} under {allocator}"
                task = progress.add_task(what)

                def tell(line: str, task: TaskID = task, what: str = what) -> None:
                    progress.update(task, description=f"{what}: {line[:LINE_COLUMNS_MAX]}")

                if not err.is_terminal:
                    err.print(f"[demo] {what} ...", markup=False)
                run = run_script(SCRIPTS / name, arguments, allocator, machine, folder, tell)
                progress.remove_task(task)
                err.print(f"[demo] {what}: {run.seconds:.1f} s", markup=False)
                runs.append(run)
    return runs


def document(runs: list[Run], machine: Machine) -> dict[str, object]:
    return {
        "format": "seamalloc.demo",
        "version": 1,
        "date": datetime.date.today().isoformat(),
        "machine": vars(machine),
        "runs": [run.as_dict() for run in runs],
    }


def show(runs: list[Run], machine: Machine) -> None:
    scripts = list(dict.fromkeys(run.script for run in runs))
    for script in scripts:
        of_script = [run for run in runs if run.script == script]
        if any(tables.memory_lines(run) for run in of_script):
            out.print(tables.line_by_line(of_script, machine))
    out.print(tables.comparison(runs, machine))
    for note in tables.comparison_notes(runs, machine):
        out.print(f"  {note}", markup=False, soft_wrap=True)
    out.print()
    for run in runs:
        if run.allocator == "seamalloc":
            out.print(tables.phase_levels(run, machine))
            out.print(tables.phase_gaps(run, machine))


def complaints(runs: list[Run]) -> list[str]:
    """What a run did that it must not, although it came to its end."""
    found = []
    for run in runs:
        what = f"{run.script} under {run.allocator}"
        if run.violations:
            first = run.violations[0]
            found.append(f"{what} broke {len(run.violations)} rules of the driver; the first: {first['text']}")
        if run.unsupported_calls:
            names = ", ".join(sorted(run.unsupported_calls))
            found.append(f"{what} called what the simulated device does not have: {names}")
    return found


def demo(quick: bool, file: Path | None, folder: Path) -> int:
    machine = describe_machine(folder)
    out.print(f"[demo] on: {machine.text()}, {machine.device_bytes >> 20} MiB", markup=False)
    runs = run_all(QUICK if quick else WHOLE, machine, folder)
    show(runs, machine)
    results = folder / "demo.json"
    results.write_text(json.dumps(document(runs, machine), indent=1) + "\n")
    if file is not None:
        shutil.copyfile(results, file)
    found = complaints(runs)
    for complaint in found:
        err.print(f"[demo] error: {complaint}", markup=False)
    return 1 if found else 0


def keep(folder: Path, results: Path) -> None:
    """The finished run takes the place of the one before."""
    shutil.rmtree(results, ignore_errors=True)
    folder.rename(results)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="The smaller script only.")
@click.option(
    "--json", "file", type=click.Path(dir_okay=False, writable=True, path_type=Path), metavar="FILE",
    help="Write the results there, too.",
)
@click.option(
    "--results", type=click.Path(file_okay=False, path_type=Path), default=RESULTS, metavar="FOLDER",
    help="Where to leave what the runs wrote; emptied first. Default: build/demo",
)
def main(quick: bool, file: Path | None, results: Path) -> None:
    """Run the training scripts under PyTorch's native allocator, its expandable segments, and seamalloc."""
    if file is not None and not file.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder of {file} does not exist", param_hint="--json")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_as_interrupt)
    results.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="demo-", dir=results.parent))
    folder.chmod(0o755)
    try:
        code = demo(quick, file, folder)
    except RunError as error:
        err.print(f"[demo] error: {error}", markup=False)
        keep(folder, results)
        err.print(f"[demo] what the runs left is in {results}", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        err.print("[demo] stopped")
        sys.exit(INTERRUPTED)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    keep(folder, results)
    out.print(f"[demo] results as JSON: {file or results / 'demo.json'}", markup=False, soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
