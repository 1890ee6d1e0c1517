# SPDX-License-Identifier: Apache-2.0
"""Runs a command and measures what it and everything it starts costs, processes that made themselves independent too.

``python bench/meter.py REPORT COMMAND...`` becomes the parent of every orphan among the command's descendants
(``PR_SET_CHILD_SUBREAPER``), such as the masters of ssh connections, so that none of them is missing: the kernel hands
the CPU time of each to the process that waits for it. Processes that outlive the command are terminated. The report is
JSON: the exit code, the time until the command ended, CPU seconds, and the largest memory that was seen.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

PR_SET_CHILD_SUBREAPER = 36
"""From linux/prctl.h."""

SAMPLE_S = 0.5
"""Minimum interval between memory samples."""

SAMPLE_SHARE = 0.1
"""Maximum fraction of the time spent sampling: summing the pages of 100 processes takes a while."""

END_S = 10.0
"""Time for processes that outlive the command to exit after SIGTERM."""


@dataclass
class Usage:
    """The cost of a command; ``pss`` counts shared pages once."""

    exit_code: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    processes_at_peak: int = 0
    peak_pss_bytes: int = 0


def parents(proc: Path = Path("/proc")) -> dict[int, int]:
    """Return the parent of each process."""
    found = {}
    for path in proc.iterdir():
        if path.name.isdigit():
            try:
                text = (path / "stat").read_text(errors="replace")
            except OSError:
                continue  # it has ended
            found[int(path.name)] = int(text.rpartition(")")[2].split()[1])
    return found


def descendants(of: int) -> list[int]:
    """Return the processes below process *of*."""
    children: dict[int, list[int]] = {}
    for process, parent in parents().items():
        children.setdefault(parent, []).append(process)
    found: list[int] = []
    waiting = [of]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def pss_bytes(process: int) -> int:
    """Return the proportional memory of *process*; 0 of one that has ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


def watch(usage: Usage, over: threading.Event) -> None:
    """Look at the memory of all descendants until *over*, and keep the largest sum in *usage*."""
    while not over.is_set():
        began = time.monotonic()
        sizes = [pss_bytes(process) for process in descendants(os.getpid())]
        if sum(sizes) > usage.peak_pss_bytes:
            usage.peak_pss_bytes, usage.processes_at_peak = sum(sizes), len(sizes)
        over.wait(max(SAMPLE_S, (time.monotonic() - began) / SAMPLE_SHARE))


def end_all(number: int) -> None:
    """Send signal *number* to everything that still runs below this process."""
    for process in descendants(os.getpid()):
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue  # already ended


def measure(command: list[str]) -> Usage:
    """Run *command*, end processes it left running, and return the total cost."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this kernel does not hand orphans to who asks for them")
    usage, over = Usage(), threading.Event()
    began = time.monotonic()
    started = subprocess.Popen(command)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        os.kill(started.pid, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    watcher = threading.Thread(target=watch, args=(usage, over))
    watcher.start()
    timers: list[threading.Timer] = []
    while True:
        try:
            process, status, spent = os.wait4(-1, 0)
        except ChildProcessError:
            break
        usage.cpu_s += spent.ru_utime + spent.ru_stime
        if process == started.pid:
            usage.wall_s = time.monotonic() - began
            usage.exit_code = started.returncode = os.waitstatus_to_exitcode(status)
            over.set()
            watcher.join()
            end_all(signal.SIGTERM)
            timers.append(threading.Timer(END_S, end_all, (signal.SIGKILL,)))
            timers[0].start()
    for timer in timers:
        timer.cancel()
    return usage


def main() -> None:
    """Measure the command of the arguments and write the report."""
    report, *command = sys.argv[1:]
    usage = measure(command)
    Path(report).write_text(json.dumps(asdict(usage)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
