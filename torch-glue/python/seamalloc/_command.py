# SPDX-License-Identifier: Apache-2.0
"""The command ``seamalloc``: runs an unmodified PyTorch script under the allocator.

click reads the command line and no more: the script runs after click is done, so that its exceptions, exit codes and
signals are its own.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

import seamalloc


@dataclass
class Job:
    """What ``run`` was asked to do."""

    script: Path
    arguments: tuple[str, ...]
    policy: str | None
    stats: Path | None
    trace: Path | None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """seamalloc, a caching allocator for CUDA that PyTorch can use in place of its own."""


@cli.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--policy", metavar="NAME|FILE", help="Policy by name, or a policy file; default: SEAMALLOC_CONF.")
@click.option(
    "--stats",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE.json",
    help="Write the statistics there when the script ends.",
)
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Record every request there, for `seamalloc replay`; %p in the name becomes the process's number.",
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(policy: str | None, stats: Path | None, trace: Path | None, script: Path, arguments: tuple[str, ...]) -> Job:
    """Run the PyTorch script SCRIPT with seamalloc as its CUDA allocator.

    ARGUMENTS are the script's; its exit code is passed on.
    """
    for file, option in (stats, "--stats"), (trace, "--trace"):
        if file is not None and not os.access(file.absolute().parent, os.W_OK):
            raise click.BadParameter(f"the folder of {file} does not exist or cannot be written", param_hint=option)
    # The script may go to another folder before they are written.
    return Job(script, arguments, policy, stats and stats.absolute(), trace and trace.absolute())


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of a table.")
@click.option("--threads", type=click.IntRange(1, 64), default=2, show_default=True, help="Most threads at once.")
def bench(as_json: bool, threads: int) -> None:
    """Measure PyTorch's native allocator and seamalloc side by side in this process.

    `seamalloc bench` of the C command measures more, and joins these rows to its own.
    """
    from seamalloc import _bench, _native

    try:
        document = _bench.measure(threads)
    except (ImportError, RuntimeError, _native.NativePartError, seamalloc.SeamallocError) as error:
        raise click.ClickException(" ".join(str(error).split())) from error
    if as_json:
        print(json.dumps(document))
        return
    for row in document["rows"]:
        who = f"{row['allocator']:10} {row['through']:12} {row['threads']:3} threads {row['live']:8} live"
        print(f"{who} {row['pattern']:8}{row['ns_per_pair']:9.1f} ns a pair")


def _write_stats(file: Path) -> None:
    document = seamalloc.stats()
    if document is None:
        document = {"format": "seamalloc.stats", "unavailable": seamalloc.unavailable_reason()}
    try:
        file.write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        print(f"seamalloc: the statistics could not be written to {file}: {error.strerror}", file=sys.stderr)


def execute(job: Job) -> None:
    """Runs the script in this process as ``python SCRIPT ARGUMENTS`` would. Its exceptions pass through."""
    # A setting, so that the recording begins with the first use of the driver: the script may still fork before.
    if job.trace is None:
        seamalloc.install(job.policy)
    else:
        seamalloc.install(job.policy, trace=str(job.trace))
    sys.argv = [str(job.script), *job.arguments]
    # What `python -m` or a console script put there is the command's folder, not the script's.
    sys.path[0] = str(job.script.resolve().parent)
    try:
        runpy.run_path(str(job.script), run_name="__main__")
    finally:
        if job.stats is not None:
            _write_stats(job.stats)


def main() -> NoReturn:
    """The console script."""
    try:
        job = cli.main(prog_name="seamalloc", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(1)
    if not isinstance(job, Job):
        sys.exit(job or 0)  # --help
    try:
        execute(job)
    except seamalloc.SeamallocError as error:
        if seamalloc.installed():
            raise  # the script's own
        print(f"seamalloc: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
