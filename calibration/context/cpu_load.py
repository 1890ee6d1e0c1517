# SPDX-License-Identifier: Apache-2.0
"""Which processes used the CPUs while the capture slept: the difference of two snapshots of the kernel's counters.

Source: ``show_stat`` in ``fs/proc/stat.c`` and ``do_task_stat`` in ``fs/proc/array.c`` of the Linux kernel. Both count
in ticks of ``USER_HZ``, 100 per second on every architecture.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from calibration.base.cpulists import MAX_ID
from calibration.base.text import visible
from calibration.context.model import BusyProcess, CpuLoad, Load
from calibration.context.tree import MAX_FILE_BYTES, Tree

ROOT = "/load"
"""Directory of the snapshots in a capture."""

NAMED = 200
"""Most processes listed, busiest first."""

MAX_TICKS = 10**15
"""Larger counts are corrupt: 300,000 years."""

_CPU = re.compile(r"cpu([0-9]{1,5}) ([0-9 ]+)", re.ASCII)


class _Counts(NamedTuple):
    """Ticks of one CPU since boot."""

    busy: int
    stolen: int


class _Used(NamedTuple):
    """A process or thread: name, CPU time in ticks, and the CPU it last ran on."""

    name: str
    ticks: int
    cpu: int | None


def parse_cpu_counts(text: str) -> dict[int, _Counts]:
    """Return busy and stolen ticks by CPU.

    Busy is user, nice, system, irq and softirq; guest time is part of user. Raises ``ValueError`` if no CPU is
    counted.
    """
    found = {}
    for line in text.splitlines():
        match = _CPU.fullmatch(line.rstrip())
        if match is None:
            continue
        if int(match.group(1)) > MAX_ID:
            raise ValueError(f"CPU {match.group(1)} is beyond {MAX_ID}")
        fields = [_ticks(word) for word in match.group(2).split(maxsplit=10)[:10]]
        user, nice, system, _idle, _iowait, irq, softirq, steal = (*fields, *[0] * 8)[:8]
        found[int(match.group(1))] = _Counts(user + nice + system + irq + softirq, steal)
    if not found:
        raise ValueError("no rows such as 'cpu0 1 2 3 4'")
    return found


def parse_used(text: str) -> _Used:
    """Parse ``/proc/PID/stat``. Raises ``ValueError`` if a field is missing."""
    head, bracket, tail = text.rpartition(")")
    fields = tail.split()
    if not bracket or "(" not in head or len(fields) < 13:
        raise ValueError("no fields such as '1 (init) S 0 1 1'")
    cpu = fields[36] if len(fields) > 36 else ""
    return _Used(
        name=visible(head.partition("(")[2]),
        ticks=_ticks(fields[11]) + _ticks(fields[12]),
        cpu=int(cpu) if cpu.isascii() and cpu.isdigit() and len(cpu) < 6 else None,
    )


def _ticks(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 20) or int(word) > MAX_TICKS:
        raise ValueError(f"not a count of ticks: {word[:40]!r}")
    return int(word)


def read_load(tree: Tree, recorded: Any) -> Load | None:
    """Return the load between the snapshots; None without snapshots.

    *recorded* is the matching part of ``capture.json``; a reason in it is recorded as unreadable.
    """
    if not isinstance(recorded, dict):
        return None
    if isinstance(recorded.get("reason"), str):
        tree.note(ROOT, recorded["reason"])
    interval_s, processes_s, ticks_per_s = (
        _positive(recorded.get(key)) for key in ("interval_s", "processes_interval_s", "ticks_per_s")
    )
    before = tree.parse(f"{ROOT}/before/proc/stat", parse_cpu_counts, MAX_FILE_BYTES)
    after = tree.parse(f"{ROOT}/after/proc/stat", parse_cpu_counts, MAX_FILE_BYTES)
    if interval_s is None or processes_s is None or ticks_per_s is None or before is None or after is None:
        return None
    whole = interval_s * ticks_per_s
    own = recorded.get("own")
    return Load(
        interval_s=interval_s,
        resolution=1 / whole,
        cpus=tuple(
            CpuLoad(
                cpu=cpu,
                busy=max(0, after[cpu].busy - before[cpu].busy) / whole,
                stolen=max(0, after[cpu].stolen - before[cpu].stolen) / whole,
            )
            for cpu in sorted(after.keys() & before.keys())
        ),
        processes=_processes(tree, processes_s * ticks_per_s, _integers(own)),
    )


def _processes(tree: Tree, whole: float, own: frozenset[int]) -> tuple[BusyProcess, ...]:
    found = []
    for pid in tree.numbered(f"{ROOT}/after/proc", ""):
        after = tree.parse(f"{ROOT}/after/proc/{pid}/stat", parse_used)
        before = tree.parse(f"{ROOT}/before/proc/{pid}/stat", parse_used)
        if after is None or pid in own:
            continue
        ticks = after.ticks - (before.ticks if before is not None else 0)
        if ticks <= 0:
            continue
        tasks = f"{ROOT}/after/proc/{pid}/task"
        threads = [tree.parse(f"{tasks}/{tid}/stat", parse_used) for tid in tree.numbered(tasks, "")]
        ran = {
            thread.cpu
            for thread in (*threads, after)
            if thread is not None and thread.ticks > 0 and thread.cpu is not None
        }
        found.append(BusyProcess(pid=pid, name=after.name, share=ticks / whole, cpus=tuple(sorted(ran))))
    return tuple(sorted(found, key=lambda task: (-task.share, task.pid))[:NAMED])


def _integers(value: Any) -> frozenset[int]:
    return frozenset(pid for pid in value if isinstance(pid, int)) if isinstance(value, list) else frozenset()


def _positive(value: Any) -> float | None:
    """Return a positive number of seconds or ticks from *capture.json*, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < MAX_TICKS else None
