# SPDX-License-Identifier: Apache-2.0
"""The built kernel, and a way to run it that reads its document."""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pytest

from calibration.build import (
    CACHE_DIRECTORY,
    SOURCES_DIRECTORY,
    BuiltKernel,
    Target,
    build,
    build_info,
    compile_to,
    compiler_version,
    source_sha256,
    sources,
)
from calibration.sutprobe.document import read_document
from tests.tools import emulator, require

Sanitizer = Literal["address", "undefined", "thread"]
SANITIZERS: Final[tuple[Sanitizer, ...]] = get_args(Sanitizer)

SANITIZED_OPTIMISATION: Final = "-O0"
"""The sanitizers see as much of unoptimised code, and the hundreds of kernels compile in a tenth of the time."""


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


def gap_view(done: Finished) -> dict[str, Any]:
    assert done.document["result"] is not None, done.stderr
    read_document(done.document)
    (cpu,) = done.document["result"]["cpus"]
    gaps: dict[str, Any] = cpu["gaps"]
    return gaps


def run_with_share(probe: Probe, cpu: int, *arguments: str) -> tuple[Finished, float]:
    """Run a command, and return with it the share of its time that *cpu* had: the least of before and after."""
    gaps = ("jitter", "--cpus", str(cpu), "--view", "gaps", "--gap-s", "0.3")
    before, done, after = (probe(*words) for words in (gaps, arguments, gaps))
    return done, 1.0 - max(float(gap_view(view)["lost_fraction"]) for view in (before, after))


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
        pytest.skip(f"this machine is no x86_64 and no aarch64: {machine}")
    kernel: BuiltKernel = request.getfixturevalue(f"built_{target}")
    return kernel.path


@pytest.fixture(scope="session")
def public(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program that every user of this machine can start."""
    place = tmp_path_factory.mktemp("program")
    for directory in (place, *place.parents[:2]):
        directory.chmod(0o755)
    return shutil.copy(native, place / "sutprobe")


@pytest.fixture(scope="session")
def probe(native: Path) -> Probe:
    return Probe(str(native))


@pytest.fixture(scope="session")
def cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="session")
def emulated_aarch64(built_aarch64: BuiltKernel) -> Probe:
    """The aarch64 binary, on an emulated processor."""
    if platform.machine() == "aarch64":
        pytest.skip("aarch64 is native here")
    return Probe(emulator("aarch64"), str(built_aarch64.path))


@pytest.fixture(scope="session")
def sanitized() -> Callable[[Sanitizer], Probe]:
    """The kernel under a sanitizer: built once, whichever tests and processes ask for it."""

    def probe(sanitizer: Sanitizer) -> Probe:
        directory = CACHE_DIRECTORY / "kernels" / "sanitized"
        directory.mkdir(parents=True, exist_ok=True)
        # The pinned wheel has no address or thread sanitizer for static binaries.
        compiler = compiler_version() if sanitizer == "undefined" else require("gcc", "cc")
        key = hashlib.sha256(f"{source_sha256()} {compiler} {SANITIZED_OPTIMISATION}".encode()).hexdigest()[:32]
        binary = directory / f"{sanitizer}-{key}"
        with (directory / f"{sanitizer}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not binary.exists():
                for old in directory.glob(f"{sanitizer}-*"):
                    old.unlink()
                fresh = directory / f"{sanitizer}.building"
                if sanitizer == "undefined":
                    flags = ("-fsanitize=undefined", "-fno-sanitize-recover=undefined")
                    compile_to(fresh, "x86_64", (SANITIZED_OPTIMISATION, *flags))
                else:
                    _compile_with(compiler, sanitizer, fresh)
                fresh.rename(binary)
        return Probe(str(binary))

    return probe


def _compile_with(compiler: str, sanitizer: Sanitizer, binary: Path) -> None:
    info = binary.with_name("build_info.c")
    info.write_text(build_info("sanitized", "sanitized", "sanitized", "sanitized"), encoding="utf-8")
    built = subprocess.run(
        [
            compiler,
            "-std=gnu11",
            SANITIZED_OPTIMISATION,
            "-pthread",
            "-D_GNU_SOURCE",
            "-fno-strict-aliasing",
            f"-fsanitize={sanitizer}",
            "-I.",
            "-o",
            str(binary),
            *(str(path) for path in sources()),
            str(info),
            "-lm",
        ],
        cwd=SOURCES_DIRECTORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0 and f"lib{sanitizer[0]}san" in built.stderr:
        pytest.skip(f"the system compiler has no {sanitizer} sanitizer: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
