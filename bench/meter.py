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
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
SAMPLE_S = 0.5  # fewest between memory samples
SAMPLE_SHARE = 0.1  # most of the time spent sampling: summing the pages of 100 processes takes a while
END_S = 10.0  # for processes that outlive the command to exit after SIGTERM


@dataclass
class Usage:
    """The cost of a command; ``pss`` counts shared pages once, and is at least what its largest process had."""

    exit_code: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    processes_at_peak: int = 0
    peak_pss_bytes: int = 0


def descendants(of: int) -> list[int]:
    """Return the processes below process *of*."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [of]
    for process in found:
        found += children.get(process, [])
    return found[1:]


def pss_bytes(process: int) -> int:
    """Return the proportional memory of *process*; 0 of one that has ended."""
    with suppress(OSError):
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
        return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return 0


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
        with suppress(ProcessLookupError):
            os.kill(process, number)


def measure(command: list[str]) -> Usage:
    """Run *command*, end processes it left running, and return the total cost."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this kernel does not hand orphans to who asks for them")
    usage, over, largest_bytes = Usage(), threading.Event(), 0
    began = time.monotonic()
    started = subprocess.Popen(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: os.kill(started.pid, number))
    watcher = threading.Thread(target=watch, args=(usage, over))
    watcher.start()
    late = threading.Timer(END_S, end_all, (signal.SIGKILL,))
    while True:
        try:
            process, status, spent = os.wait4(-1, 0)
        except ChildProcessError:
            break
        usage.cpu_s += spent.ru_utime + spent.ru_stime
        largest_bytes = max(largest_bytes, spent.ru_maxrss * 1024)
        if process == started.pid:
            usage.wall_s = time.monotonic() - began
            usage.exit_code = started.returncode = os.waitstatus_to_exitcode(status)
            over.set()
            watcher.join()
            end_all(signal.SIGTERM)
            late.start()
    late.cancel()
    usage.peak_pss_bytes = max(usage.peak_pss_bytes, largest_bytes)  # it may have ended between two samples
    return usage


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(asdict(measure(sys.argv[2:]))) + "\n", encoding="utf-8")
