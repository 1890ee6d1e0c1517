# SPDX-License-Identifier: Apache-2.0
"""The built kernel, and a way to run it that reads its document."""

import json
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from calibration.build import BuiltKernel, Target, build


@dataclass(frozen=True)
class Finished:
    """What one run of the kernel left."""

    code: int
    document: dict[str, Any]
    stderr: str


class Probe:
    """Runs one ``sutprobe`` binary."""

    def __init__(self, *command: str) -> None:
        self.command = command

    def __call__(self, *arguments: str, timeout: float = 100) -> Finished:
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False, timeout=timeout)
        lines = done.stdout.splitlines()
        assert len(lines) == 1, f"expected one line on stdout, found {len(lines)}: {done.stdout[:300]!r} {done.stderr}"
        return Finished(done.returncode, json.loads(lines[0], parse_constant=refuse), done.stderr)


def refuse(constant: str) -> None:
    raise AssertionError(f"the document holds {constant}")


@pytest.fixture(scope="session")
def built_x86_64() -> BuiltKernel:
    return build("x86_64")


@pytest.fixture(scope="session")
def built_aarch64() -> BuiltKernel:
    return build("aarch64")


@pytest.fixture(scope="session")
def native(request: pytest.FixtureRequest) -> Path:
    machine = platform.machine()
    target: Target
    if machine == "x86_64":
        target = "x86_64"
    elif machine == "aarch64":
        target = "aarch64"
    else:
        pytest.skip(f"sutprobe is not written for {machine}")
    kernel: BuiltKernel = request.getfixturevalue(f"built_{target}")
    return kernel.path


@pytest.fixture(scope="session")
def probe(native: Path) -> Probe:
    return Probe(str(native))


@pytest.fixture(scope="session")
def cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))
