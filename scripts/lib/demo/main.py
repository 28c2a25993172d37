# SPDX-License-Identifier: Apache-2.0
"""The demo: training scripts under three allocators, then tables and a JSON file. scripts/demo sets up and calls it.

Each script runs in a fresh process for each allocator. What the runs leave (their lines, the device's records,
seamalloc's statistics) is in build/demo/ afterwards; a demo that is stopped leaves nothing behind.
"""

from __future__ import annotations

import datetime
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

import tables
from runs import ALLOCATORS, ROOT, Machine, Run, RunError, describe_machine, interrupts, run_script

SCRIPTS = ROOT / "examples" / "training"
RESULTS = ROOT / "build" / "demo"
QUICK: list[tuple[str, list[str]]] = [("dcgan.py", [])]
WHOLE = [*QUICK, ("gpt.py", [])]
COLUMNS_MIN = 110  # what the widest table needs
LINE_COLUMNS_MAX = 70
INTERRUPTED = 130
PLAIN: dict[str, Any] = {"markup": False, "soft_wrap": True}

out = Console(width=None if Console().width >= COLUMNS_MIN else COLUMNS_MIN, highlight=False)
err = Console(stderr=True, highlight=False)


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
                    err.print(f"[demo] {what} ...", **PLAIN)
                run = run_script(SCRIPTS / name, arguments, allocator, machine, folder, tell)
                progress.remove_task(task)
                err.print(f"[demo] {what}: {run.seconds:.1f} s", **PLAIN)
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


def print_table(table: Table) -> None:
    """The title by itself, since it may be wider than the table."""
    title, table.title = table.title, None
    out.print(title, **PLAIN)
    out.print(table)


def show(runs: list[Run], machine: Machine) -> None:
    scripts = list(dict.fromkeys(run.script for run in runs))
    for script in scripts:
        of_script = [run for run in runs if run.script == script]
        if any(tables.memory_lines(run) for run in of_script):
            print_table(tables.line_by_line(of_script, machine))
    print_table(tables.comparison(runs, machine))
    for note in tables.comparison_notes(runs, machine):
        out.print(f"  {note}", **PLAIN)
    out.print()
    for run in runs:
        if run.allocator == "seamalloc":
            print_table(tables.phase_levels(run, machine))
            print_table(tables.phase_gaps(run, machine))


def judge(runs: list[Run]) -> bool:
    """Says what a run did that it should not have done, although it came to its end; whether the demo is good."""
    good = True
    for run in runs:
        what = f"{run.script} under {run.allocator}"
        if run.violations:
            count, first = len(run.violations), run.violations[0]["text"]
            err.print(f"[demo] error: {what} broke {count} rules of the driver; the first: {first}", **PLAIN)
            good = False
        if run.unsupported_calls:
            names = ", ".join(sorted(run.unsupported_calls))
            err.print(f"[demo] warning: {what} asked for what the simulated device does not have: {names}", **PLAIN)
    return good


def demo(quick: bool, file: Path | None, folder: Path) -> int:
    machine = describe_machine(folder)
    out.print(f"[demo] on: {machine.text()}, {machine.device_bytes >> 20} MiB", **PLAIN)
    runs = run_all(QUICK if quick else WHOLE, machine, folder)
    show(runs, machine)
    results = folder / "demo.json"
    results.write_text(json.dumps(document(runs, machine), indent=1) + "\n")
    if file is not None:
        shutil.copyfile(results, file)
    return 0 if judge(runs) else 1


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
    interrupts.install()
    results.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="demo-", dir=results.parent))
    folder.chmod(0o755)
    try:
        code = demo(quick, file, folder)
    except RunError as error:
        err.print(f"[demo] error: {error}", **PLAIN)
        keep(folder, results)
        err.print(f"[demo] what the runs left is in {results}", **PLAIN)
        sys.exit(1)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        err.print("[demo] stopped", **PLAIN)
        sys.exit(INTERRUPTED)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    keep(folder, results)
    out.print(f"[demo] results as JSON: {file or results / 'demo.json'}", **PLAIN)
    sys.exit(code)


if __name__ == "__main__":
    main()
