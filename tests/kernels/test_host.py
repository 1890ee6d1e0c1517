# SPDX-License-Identifier: Apache-2.0
"""Known answers of code that needs no SUT: parsers and arithmetic of sutprobe, asked by programs of this machine."""

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Final

import pytest

from calibration.build import CACHE_DIRECTORY, SOURCES_DIRECTORY, source_sha256, sources
from tests.tools import require

HOST: Final = Path(__file__).parent / "host"
PROGRAMS: Final = sorted(path.stem for path in HOST.glob("*.c"))
FLAGS: Final = (
    "-std=gnu11", "-O0", "-g", "-pthread", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip
WITHOUT: Final = {"main.c", "selftest.c"}
"""Sources that no host program needs: each has a main of its own."""


@pytest.fixture(scope="session")
def archive() -> Path:
    """All sources of sutprobe but its main ones, compiled with the sanitizers once for all tests and processes."""
    compiler = require("gcc", "gcc")
    directory = CACHE_DIRECTORY / "kernels" / "host"
    directory.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(f"{source_sha256()} {compiler} {FLAGS}".encode()).hexdigest()[:32]
    library = directory / f"{key}.a"
    with (directory / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not library.exists():
            shutil.rmtree(directory / "objects", ignore_errors=True)
            for old in directory.glob("*.a"):
                old.unlink()
            files = [path for path in sources() if path.name not in WITHOUT]
            with ThreadPool() as pool:
                pool.map(lambda path: _compile(compiler, path, directory / "objects" / path.with_suffix(".o")), files)
            objects = sorted((directory / "objects").rglob("*.o"))
            subprocess.run([require("binutils", "ar"), "rcs", f"{library}.new", *objects], check=True)
            Path(f"{library}.new").rename(library)
    return library


def _compile(compiler: str, source: Path, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, *FLAGS, "-I.", "-c", "-o", output, source], cwd=SOURCES_DIRECTORY, check=True)


@pytest.fixture
def run(archive: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program, with sources of *other* in front of sutprobe's own."""

    def ran(name: str, *other: Path) -> subprocess.CompletedProcess[str]:
        program = tmp_path / name
        subprocess.run(
            [require("gcc", "gcc"), *FLAGS, f"-I{SOURCES_DIRECTORY}", f"-I{HOST}", "-o", program,
             HOST / f"{name}.c", *other, archive, "-lm"],
            check=True,
        )  # fmt: skip
        return subprocess.run([program], capture_output=True, text=True, check=False)

    return ran


@pytest.mark.parametrize("name", PROGRAMS)
def test_answers_are_known(name: str, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run(name)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"ok"}


SABOTAGE: Final = {
    "gap_period": ("gaps", "periods.c", "best.period = best.followed;\n\t\tstruct train whole", "struct train whole"),
    "trace_text": ("tracing", "causes.c", "\treader->last = at > reader->last ? at : reader->last;\n", ""),
    "csv": ("text", "csv.c", "row->size_bytes / 1024", "row->size_bytes / 1000"),
    "samples": ("samples", "decode.c", "now.events & SPE_TLB_WALK", "now.events & 2 * SPE_TLB_WALK"),
    "counters": (
        "arithmetic",
        "pmu_counts.c",
        "((double)enabled / (double)running)",
        "((double)running / (double)enabled)",
    ),
    "reached": ("shares", "shares.c", "double time = 1 / share,", "double time = share,"),
    "disturbed": ("shares", "shares.c", "#define ENOUGH 2u", "#define ENOUGH 1u"),
    "out_of_reach": ("shares", "shares.c", "FIRST_DELAY), SHARES_DELAY_MAX);", "FIRST_DELAY), 1e6);"),
    "memory": ("memory", "demand.c", "*bytes += cached;", "*bytes -= cached;"),
    "control_groups": ("memory", "cgroup.c", "room < least", "room > least"),
}
"""By case: the program, a file of sutprobe, what it says, and a fault."""


@pytest.mark.parametrize("case", SABOTAGE)
def test_a_fault_is_found_by_its_case(
    case: str, run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    program, name, right, wrong = SABOTAGE[case]
    text = (SOURCES_DIRECTORY / name).read_text(encoding="utf-8")
    assert right in text, f"{name} no longer says {right!r}"
    (tmp_path / name).write_text(text.replace(right, wrong, 1), encoding="utf-8")
    done = run(program, tmp_path / name)
    assert done.returncode == 1
    assert f"failed {case}:" in done.stdout
