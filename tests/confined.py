# SPDX-License-Identifier: Apache-2.0
"""Control groups made on this machine, of either version, and processes in them."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

TOP: Final = Path("/sys/fs/cgroup")

VERSION_1: Final[Mapping[str, str]] = {
    "cpuset.cpus": "cpuset.cpus", "cpuset.mems": "cpuset.mems", "memory.max": "memory.limit_in_bytes",
    "cpu.max": "cpu.cfs_quota_us", "pids.max": "pids.max",
}  # fmt: skip
"""Files of version 1 by their names in version 2; its period is 100 ms too unless it is set."""


@contextmanager
def _directory(top: Path) -> Iterator[Path]:
    path = top / f"calibration-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no permission: a control group at {top} ({error})")
    try:
        yield path
    finally:
        for _ in range(100):  # in use until the kernel has buried its last process
            with suppress(OSError):
                path.rmdir()
            if not path.exists():
                break
            time.sleep(0.05)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="ascii")
    except OSError as error:
        pytest.skip(f"no permission: {path} ({error})")


@contextmanager
def control_groups(limits: Mapping[str, str]) -> Iterator[tuple[Path, ...]]:
    """Give the directories of a control group with *limits*, by names of version 2; skip the test if it cannot be made.

    Version 1 has one directory for each controller.
    """
    with ExitStack() as stack:
        if (TOP / "cgroup.controllers").exists():
            controllers = {name.partition(".")[0] for name in limits}
            _write(TOP / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(controllers)))
            group = stack.enter_context(_directory(TOP))
            for name, value in limits.items():
                _write(group / name, value)
            yield (group,)
            return
        groups: dict[str, Path] = {}
        for name, value in limits.items():
            controller = name.partition(".")[0]
            if controller not in groups:
                groups[controller] = stack.enter_context(_directory(TOP / controller))
            _write(groups[controller] / VERSION_1[name], value.split()[0])
        yield tuple(groups.values())


def run_in(
    groups: tuple[Path, ...], *command: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run *command* in *groups* and return what it printed."""
    enter = " && ".join(f"echo $$ > {group}/cgroup.procs" for group in groups)
    words = ["/bin/sh", "-c", f'{enter} && exec "$0" "$@"', *command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=env)
