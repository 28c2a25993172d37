# SPDX-License-Identifier: Apache-2.0
"""Starts one command as several ranks and waits for all of them.

    python ranks.py COUNT COMMAND [ARG...]

Each rank has RANK in its environment and sees a simulated device for each rank; "%r" in an argument or in
SEAMALLOC_SIM_REPORT becomes its number. When one fails the others are ended, and its exit code is passed on.
"""

import os
import subprocess
import sys
import tempfile
import time

POLL_SECONDS = 0.05


# PyTorch 2.15's newer NCCL back end asks the allocator for a snapshot when a group is made. PyTorch's class for plug-in
# allocators refuses that, which ends the process; so the older back end is used, under every allocator alike.
OLDER_BACK_END = {"TORCH_DIST_USE_NCCL2": "0"}


def start(rank: int, count: int, command: list[str], store: str) -> subprocess.Popen[bytes]:
    env = os.environ | OLDER_BACK_END
    env |= {"RANK": str(rank), "LOOP_STORE": store, "SEAMALLOC_SIM_DEVICES": str(count)}
    if report := env.get("SEAMALLOC_SIM_REPORT"):
        env["SEAMALLOC_SIM_REPORT"] = report.replace("%r", str(rank))
    return subprocess.Popen([part.replace("%r", str(rank)) for part in command], env=env)


def wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """0, or the code of the first that failed."""
    while True:
        codes = [process.poll() for process in processes]
        failed = [code for code in codes if code]
        if failed or None not in codes:
            return failed[0] if failed else 0
        time.sleep(POLL_SECONDS)


def main() -> int:
    count, command = int(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(count):
                processes.append(start(rank, count, command, os.path.join(folder, "store")))
            code = wait(processes)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
