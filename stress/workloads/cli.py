# SPDX-License-Identifier: Apache-2.0
"""stress/run compare, record, replay, timed, list: the loops of this folder under several allocators.

Results are left in build/loops/. Everything runs on the simulated device, and every table says so.
"""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import seamalloc
import show
from catalog import LOOPS, QUICK, SHARDED, Loop
from measure import ALLOCATORS, NATIVE, ROOT, SEAMALLOC, Allocator, Measured, measure, write_json
from runs import Machine, RunError, describe_machine, interrupts  # found by measure

RESULTS = ROOT / "build" / "loops"
POLICIES = ("native", "expandable", "stitch")
SCALES = (1.0, 0.61, 1.37, 2.0)
REPLAY_DEVICE_MIB = 4 * 81920  # so that no policy runs out of memory at the largest scale
COLUMNS_MIN = 120
LINE_COLUMNS_MAX = 60
INTERRUPTED = 130
PLAIN: dict[str, Any] = {"markup": False, "soft_wrap": True}

NOTES = (
    "reserved, calls and time are the device's own record (time by its cost preset); of two ranks the first is shown",
    "utilisation = peak allocated / peak reserved; native's allocated has the rest of blocks that it does not split",
)

out = Console(width=None if Console().width >= COLUMNS_MIN else COLUMNS_MIN, highlight=False)
err = Console(stderr=True, highlight=False)
Job = tuple[Loop, Allocator]


def say(text: str) -> None:
    out.print(text, **PLAIN)


def heading(command: str, machine: Machine) -> str:
    """Of every output: what the figures are of."""
    text = f"{machine.text()}, CUDA {machine.cuda}, Python {machine.python}, seamalloc {seamalloc.version()}"
    return f"[{command}] {datetime.date.today().isoformat()}, on: {text}, {machine.device_bytes >> 20} MiB"


def choose(names: Sequence[str], half: str | None = None) -> list[Loop]:
    for name in names:
        if name not in LOOPS:
            raise click.BadParameter(f"{name} is no loop; there are: {', '.join(sorted(LOOPS))}", param_hint="LOOP")
    chosen = [LOOPS[name] for name in sorted(names or LOOPS)]
    return [loop for loop in chosen if half is None or loop.half == half]


def run_all(command: str, jobs: list[Job], work: Callable[[Job, Callable[[str], None]], Measured]) -> list[Measured]:
    """Every job in its turn; shows which of how many it is, and the line that the loop printed last."""
    runs = []
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        for number, job in enumerate(jobs, 1):
            what = f"{number} of {len(jobs)}, {job[0].name} under {job[1].name}"
            task = progress.add_task(what)

            def tell(line: str, task: Any = task, what: str = what) -> None:
                progress.update(task, description=f"{what}: {line[:LINE_COLUMNS_MAX]}")

            run = work(job, tell)
            progress.remove_task(task)
            err.print(f"[{command}] {what}: {run.seconds:.1f} s", **PLAIN)
            runs.append(run)
    return runs


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def document(command: str, machine: Machine, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "format": f"seamalloc.loops.{command}",
        "version": 1,
        "date": datetime.date.today().isoformat(),
        "machine": vars(machine),
        "seamalloc": seamalloc.version(),
        "rows": rows,
    }


def judge(runs: list[Measured]) -> None:
    """Ends the program with 1 when a loop did what it should not have done, although it came to its end."""
    good = True
    for run in runs:
        what = f"{run.loop.name} under {run.allocator.name}"
        if count := sum(rank.violations for rank in run.ranks):
            err.print(f"error: {what} broke {count} rules of the driver", **PLAIN)
            good = False
        if names := {name for rank in run.ranks for name in rank.unsupported}:
            err.print(f"warning: {what} asked for what the device does not have: {', '.join(sorted(names))}", **PLAIN)
    if not good:
        sys.exit(1)


def finish(command: str, machine: Machine, runs: list[Measured], results: Path, file: Path | None) -> None:
    written = document(command, machine, [run.as_dict() for run in runs])
    for place in (results / f"{command}.json", file):
        if place is not None:
            write_json(place, written)
    judge(runs)


loops_argument = click.argument("loops", nargs=-1, metavar="[LOOP]...")
json_option = click.option(
    "--json", "file", type=click.Path(dir_okay=False, writable=True, path_type=Path), metavar="FILE",
    help="Write the figures there, too (always in build/loops/).",
)
results_option = click.option(
    "--results", type=click.Path(file_okay=False, path_type=Path), default=RESULTS, metavar="FOLDER",
    help="Where recordings, records and logs are. Default: build/loops",
)
half_option = click.option("--half", type=click.Choice(["tuned", "held out"]), help="Only the loops of this half.")
short_option = click.option("--short", is_flag=True, help="A fifth of the steps of each loop.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Training and serving loops in real PyTorch on the simulated device, under several allocators."""


@cli.command(name="list")
def list_loops() -> None:
    """Name the loops, what each does, and to which half it belongs."""
    for loop in choose(()):
        say(f"{loop.name:14} {loop.half:9} {loop.ranks} rank{'s'[: loop.ranks - 1]:1}  {loop.about}")


@cli.command()
@loops_argument
@click.option("--quick", is_flag=True, help=f"Only {' and '.join(QUICK)}, in short form.")
@short_option
@click.option("--timed", "in_time", is_flag=True, help="In virtual time: work takes as long as modelled.")
@half_option
@json_option
@results_option
def compare(
    loops: tuple[str, ...], quick: bool, short: bool, in_time: bool, half: str | None, file: Path | None, results: Path
) -> None:
    """Run loops under native, expandable segments and seamalloc, each in a fresh process."""
    chosen = choose(loops or (QUICK if quick else ()), half)
    folder = emptied(results / "compare")
    machine = describe_machine(folder)
    say(heading("compare", machine))
    jobs = [(loop, allocator) for loop in chosen for allocator in ALLOCATORS]

    def one(job: Job, tell: Callable[[str], None]) -> Measured:
        return measure(*job, folder, tell, short=short or quick, timed=in_time)

    runs = run_all("compare", jobs, one)
    title = f"{machine.text()}, {'virtual time' if in_time else 'all work completes at once'}"
    out.print(show.comparison(runs, title))
    out.print(show.second_half(runs, title))
    for line in show.means(runs):
        say(f"  {line}")
    for note in NOTES:
        say(f"  {note}")
    finish("compare", machine, runs, results, file)


@cli.command()
@loops_argument
@click.option("--lending", default="off,completed", show_default=True, help="Modes of the option to compare.")
@short_option
@json_option
@results_option
def timed(loops: tuple[str, ...], lending: str, short: bool, file: Path | None, results: Path) -> None:
    """Compare the modelled time of a step under native and seamalloc, in virtual time. Default: the sharded loops."""
    modes = lending.split(",")
    allocators = [NATIVE, *(Allocator(f"seamalloc, lending {mode}", "seamalloc", f"lending:{mode}") for mode in modes)]
    folder = emptied(results / "timed")
    machine = describe_machine(folder)
    say(heading("timed", machine))
    jobs = [(loop, allocator) for loop in choose(loops or SHARDED) for allocator in allocators]
    runs = run_all("timed", jobs, lambda job, tell: measure(*job, folder, tell, short=short, timed=True))
    out.print(show.timed(runs, machine.text()))
    say("  times are modelled, for comparison with each other only; each rank has its own clock (docs/virtual-time.md)")
    finish("timed", machine, runs, results, file)


def trace_of(loop: Loop, results: Path) -> Path:
    return results / "traces" / (f"{loop.name}.rank%r.seamtrace" if loop.ranks > 1 else f"{loop.name}.seamtrace")


@cli.command()
@loops_argument
@short_option
@results_option
def record(loops: tuple[str, ...], short: bool, results: Path) -> None:
    """Record what loops ask for into build/loops/traces/, for `seamalloc replay` and `seamalloc tune`."""
    chosen = choose(loops)
    (results / "traces").mkdir(parents=True, exist_ok=True)
    folder = emptied(results / "record")
    say(heading("record", describe_machine(folder)))
    jobs = [(loop, SEAMALLOC) for loop in chosen]

    def one(job: Job, tell: Callable[[str], None]) -> Measured:
        return measure(*job, folder, tell, short=short, trace=trace_of(job[0], results))

    runs = run_all("record", jobs, one)
    for run in runs:
        for rank in range(run.loop.ranks):
            file = Path(str(trace_of(run.loop, results)).replace("%r", str(rank)))
            size = file.stat().st_size >> 10
            say(f"{file}: {size} KiB, {run.ranks[rank].allocations:,} allocations")
    judge(runs)


def replay_command() -> Path:
    for build in ("release", "debug"):
        if (file := ROOT / "build" / build / "bin" / "seamalloc").is_file():
            return file
    raise click.ClickException("no build has bin/seamalloc; run scripts/build first")


def recordings(loops: Sequence[str], half: str | None, results: Path) -> list[tuple[Loop, Path]]:
    """Of two ranks the first."""
    found = [(loop, Path(str(trace_of(loop, results)).replace("%r", "0"))) for loop in choose(loops, half)]
    missing = [loop.name for loop, file in found if not file.is_file()]
    if missing and loops:
        raise click.ClickException(f"there is no recording of {', '.join(missing)}; make it with stress/run record")
    found = [(loop, file) for loop, file in found if file.is_file()]
    if not found:
        raise click.ClickException(f"there are no recordings in {results / 'traces'}; make them with stress/run record")
    return found


def replay_rows(command: Path, scale: float, policies: Sequence[str], loop: Loop, file: Path) -> list[dict[str, Any]]:
    words = [str(command), "replay", "--json", "--device-mib", str(REPLAY_DEVICE_MIB)]
    words += [word for policy in policies for word in ("--policy", policy)]
    words += ["--scale", f"{scale:g}"] if scale != 1 else []
    done = subprocess.run([*words, str(file)], capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"{' '.join(words)} {file} failed:\n{done.stderr.strip()}")
    return [{"recording": loop.name, "half": loop.half, "scale": scale, **row} for row in json.loads(done.stdout)]


@cli.command()
@loops_argument
@click.option("--scale", "scales", type=float, multiple=True, help="Factors for sizes; default: 1, 0.61, 1.37 and 2.")
@click.option("--policy", "policies", multiple=True, default=POLICIES, show_default=True, metavar="NAME|FILE")
@half_option
@json_option
@results_option
def replay(
    loops: tuple[str, ...], scales: tuple[float, ...], policies: tuple[str, ...], half: str | None, file: Path | None,
    results: Path,
) -> None:
    """Replay the recordings of `stress/run record` under several policies, with sizes as recorded and scaled."""
    command = replay_command()
    scalable = "--scale" in subprocess.run([command, "--help"], capture_output=True, text=True).stdout
    if not scalable and any(scale != 1 for scale in scales):
        raise click.BadParameter("the replay of this build has no --scale; only 1 is possible", param_hint="--scale")
    rows = []
    found = recordings(loops, half, results)
    for scale in scales or (SCALES if scalable else (1.0,)):
        for loop, trace in found:
            err.print(f"[replay] {loop.name}, scale {scale:g}", **PLAIN)
            rows += replay_rows(command, scale, policies, loop, trace)
    say(f"[replay] {datetime.date.today().isoformat()}, on: SIMULATED CUDA device, seamalloc {seamalloc.version()}")
    out.print(show.replayed(rows, policies))
    for line in show.replayed_means(rows, policies):
        say(f"  {line}")
    say("  utilisation = live peak / peak reserved, with the live peak of the last policy for all")
    if file is not None:
        write_json(file, {"format": "seamalloc.loops.replay", "version": 1, "rows": rows})


def main() -> None:
    interrupts.install()
    try:
        cli.main(prog_name="stress/run", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except RunError as error:
        err.print(f"error: {error}", **PLAIN)
        err.print("what the runs left is in the folder of results", **PLAIN)
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        err.print("stopped", **PLAIN)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
