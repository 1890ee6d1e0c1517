# SPDX-License-Identifier: Apache-2.0
"""The built sutprobe, and a way to run it that reads its document."""

import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from calibration.build import TARGETS, BuiltProbe, compiled
from calibration.sutprobe.document import read_document
from tests.probe.sanitized import SANITIZERS, Sanitizer, program
from tests.probe.selftest_build import build_selftest
from tests.tools import emulator

NOBODYS: Final = 1_000_000 + os.getpid()
"""A user without any process: tests that run side by side have one each."""


@dataclass(frozen=True)
class Finished:
    """What one run of sutprobe left."""

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
        assert len(lines) == 1, f"{len(lines)} lines on stdout, not one: {done.stdout[:300]!r} {done.stderr}"
        return Finished(done.returncode, json.loads(lines[0], parse_constant=refuse), done.stderr)


def architecture_of(probe: Probe) -> str:
    """Return the target that *probe* was built for."""
    target: str = probe("info").document["build"]["target"]
    return target.partition("-")[0].replace("powerpc", "ppc")


def gap_view(done: Finished) -> dict[str, Any]:
    assert done.document["result"] is not None, done.stderr
    read_document(done.document)
    (cpu,) = done.document["result"]["cpus"]
    gaps: dict[str, Any] = cpu["gaps"]
    return gaps


def instances(tracefs: Path) -> set[str]:
    """Return the names of sutprobe's own tracing instances."""
    return {path.name for path in tracefs.glob("instances/sutprobe-*")}


def abandoned(tracefs: Path) -> set[str]:
    """Return the instances of processes that are gone; those of others that run meanwhile are theirs."""
    return {name for name in instances(tracefs) if not Path("/proc", name.split("-")[1]).exists()}


def run_with_share(probe: Probe, cpu: int, *arguments: str) -> tuple[Finished, float]:
    """Run a command, and return with it the share of its time that *cpu* had: the least of before and after."""
    gaps = ("jitter", "--cpus", str(cpu), "--view", "gaps", "--gap-s", "0.3")
    before, done, after = (probe(*words) for words in (gaps, arguments, gaps))
    return done, 1.0 - max(float(gap_view(view)["lost_fraction"]) for view in (before, after))


def core_hz(placements: list[dict[str, Any]]) -> float:
    """Return the highest core clock seen around *placements*: other work on the host only lowers what is read."""
    return max(hz for placement in placements for hz in (placement["core_hz_before"], placement["core_hz_after"]))


def refuse(constant: str) -> None:
    raise AssertionError(f"the document holds {constant}")


SLOW = {"emulated", "emulated_aarch64", "sanitizer", *(f"built_{target}" for target in TARGETS)}
"""Fixtures that compile sutprobe for another machine than this one, or for a sanitizer."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what takes another sutprobe than this machine's: a minute to compile each."""
    others = SLOW - {f"built_{platform.machine()}"}
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            values = item.callspec.params.values() if hasattr(item, "callspec") else ()
            if others & {*item.fixturenames, *(f"built_{value}" for value in values)}:
                item.add_marker("slow")


@pytest.fixture(scope="session")
def built_x86_64() -> BuiltProbe:
    return compiled("x86_64")


@pytest.fixture(scope="session")
def built_aarch64() -> BuiltProbe:
    return compiled("aarch64")


@pytest.fixture(scope="session")
def built_ppc64le() -> BuiltProbe:
    return compiled("ppc64le")


@pytest.fixture(scope="session")
def built_riscv64() -> BuiltProbe:
    return compiled("riscv64")


@pytest.fixture(scope="session")
def native(request: pytest.FixtureRequest) -> Path:
    if platform.machine() not in TARGETS:
        pytest.skip(f"this machine is none that sutprobe is built for: {platform.machine()}")
    built: BuiltProbe = request.getfixturevalue(f"built_{platform.machine()}")
    return built.path


@pytest.fixture(scope="session")
def public(native: Path) -> Iterator[Path]:
    """A copy of the program that every user of this machine can start, which pytest's own directories do not allow."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(shutil.copy(native, place))


@pytest.fixture(scope="session")
def probe(native: Path) -> Probe:
    return Probe(str(native))


@pytest.fixture(scope="session")
def selftest(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Probe:  # noqa: ARG001 - skipped with it
    """The program with known answers."""
    return Probe(str(build_selftest(tmp_path_factory.mktemp("selftest") / "sutprobe", platform.machine())))


@pytest.fixture(scope="session")
def cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="session")
def emulated_aarch64(built_aarch64: BuiltProbe) -> Probe:
    """The aarch64 binary, on an emulated processor."""
    if platform.machine() == "aarch64":
        pytest.skip("aarch64 is native here")
    return Probe(emulator("aarch64"), str(built_aarch64.path))


@pytest.fixture(scope="session", params=[target for target in TARGETS if target != "x86_64"])
def emulated(request: pytest.FixtureRequest) -> Probe:
    """Each binary of another architecture, on an emulated processor."""
    if platform.machine() == request.param:
        pytest.skip(f"{request.param} is native here")
    built: BuiltProbe = request.getfixturevalue(f"built_{request.param}")
    return Probe(emulator(request.param), str(built.path))


@pytest.fixture(scope="session", params=SANITIZERS)
def sanitizer(request: pytest.FixtureRequest) -> Sanitizer:
    chosen: Sanitizer = request.param
    return chosen


@pytest.fixture(scope="session")
def sanitized(sanitizer: Sanitizer) -> Probe:
    """The program under a sanitizer."""
    return Probe(str(program(sanitizer)))


@pytest.fixture
def forkers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Lists the forkers of this test: other workers have theirs at the same time, and a killed parent's are adopted."""
    mark = f"CALIBRATION_TEST={uuid4()}"
    monkeypatch.setenv(*mark.split("="))

    def running() -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if (path / "comm").read_text(encoding="utf-8") == "sutprobe-forker\n" and mark.encode() in (
                    path / "environ"
                ).read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    return running
