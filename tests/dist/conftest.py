# SPDX-License-Identifier: Apache-2.0
"""The wheel, and a place where it is installed, outside of the checkout."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from calibration.base.places import CACHE
from tests.ansible.support import ROOT, copy_checkout

CONTAINERFILE = ROOT / "docs" / "guide" / "units" / "Containerfile"
LOCKS = ROOT / "requirements"

BUILD = {**os.environ, "SOURCE_DATE_EPOCH": "1767323045", "CALIBRATION_CACHE_DIR": str(CACHE)}
PIP_WHEEL = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir")


def start(*command: str | Path, env: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run *command* to its end, with its errors in its output."""
    return subprocess.run(
        [*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, env=env, cwd=cwd,
    )  # fmt: skip


def run(*command: str | Path, env: dict[str, str], cwd: Path | None = None) -> str:
    """Return the output of *command*; fail with it if the exit code is not 0."""
    done = start(*command, env=env, cwd=cwd)
    assert done.returncode == 0, done.stdout
    return done.stdout


def only(directory: Path, pattern: str = "*.whl") -> Path:
    """Return the file of *directory* with a name like *pattern*."""
    (found,) = directory.glob(pattern)
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as ``pip wheel .`` builds it, in its own environment, from the files that git does not ignore."""
    source = copy_checkout(tmp_path_factory.mktemp("source"))
    for made in ("docs/_build/html/index.html", "docs/calibration/lab/sut/index.rst", "build/lib/calibration/old.py"):
        (source / made).parent.mkdir(parents=True)
        (source / made).write_text("made by a run or a build in this checkout\n")
    run(*PIP_WHEEL, source / "dist", source, env=BUILD)
    return only(source / "dist")


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage of the container file, with their arguments."""
    lines = [line for line in CONTAINERFILE.read_text().splitlines() if line and not line.startswith("#")]
    found: list[list[tuple[str, str]]] = []
    for instruction, _, arguments in (line.partition(" ") for line in lines):
        assert instruction in {"ARG", "FROM", "COPY", "RUN", "ENV", "WORKDIR", "ENTRYPOINT"}
        if instruction == "FROM":
            found.append([])
        if instruction != "ARG":
            found[-1].append((instruction, arguments))
    return found


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, an empty home and an empty working directory."""

    environment: Path
    home: Path
    place: Path

    def __call__(self, *command: str | Path) -> str:
        """Return the output of a *command* of the environment in the empty directory."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CALIBRATION_"))}
        clean = {**outside, "HOME": str(self.home), "PATH": f"{self.environment / 'bin'}:/usr/bin:/bin"}
        name, *arguments = command
        return run(self.environment / "bin" / name, *arguments, env=clean, cwd=self.place)


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment in which the commands of the container file have installed the wheel."""
    made = tmp_path_factory.mktemp("installed") / "environment"
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CALIBRATION_"))}
    run(sys.executable, "-m", "venv", made, env=outside)
    places = {"/usr/share/calibration": str(LOCKS), "/wheel": str(wheel.parent), "--no-cache-dir": "--quiet"}
    for instruction, arguments in stages()[-1]:
        if instruction == "RUN":
            command = re.sub("|".join(places), lambda found: places[found[0]], arguments)
            run("/bin/sh", "-c", command, env={**outside, "PATH": f"{made / 'bin'}:/usr/bin:/bin"})
    return made


@pytest.fixture
def installed(environment: Path, tmp_path: Path) -> Installed:
    """The environment, with an empty home and an empty working directory."""
    for name in ("home", "place"):
        (tmp_path / name).mkdir()
    return Installed(environment, tmp_path / "home", tmp_path / "place")
