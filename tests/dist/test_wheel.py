# SPDX-License-Identifier: Apache-2.0
"""The wheel is the same wherever it is built, and calibrates without checkout and compiler."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from calibration.build import SHA256SUMS, TARGETS
from calibration.places import CACHE
from tests.ansible.support import ROOT, TINY, copy_checkout, files_of_checkout

SHARED = ("ansible", "docs", "playbooks", "results/example/run.json", "roles", "templates")
"""Directories beside the package that are in ``calibration/share/`` of a wheel."""

CONTAINERFILE = ROOT / "docs" / "guide" / "units" / "Containerfile"
LOCKS = ROOT / "requirements"

BUILD = {**os.environ, "SOURCE_DATE_EPOCH": "1767323045", "CALIBRATION_CACHE_DIR": str(CACHE)}
PIP_WHEEL = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir")
MAKE_SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def start(*command: str | Path, env: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run *command* to its end, with its errors in its output."""
    return subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=env,
        cwd=cwd,
    )


def run(*command: str | Path, env: dict[str, str], cwd: Path | None = None) -> str:
    """Return the output of *command*; fail with it if the exit code is not 0."""
    done = start(*command, env=env, cwd=cwd)
    assert done.returncode == 0, done.stdout
    return done.stdout


def only(directory: Path, pattern: str = "*.whl") -> Path:
    """Return the file of *directory* with a name like *pattern*."""
    (found,) = directory.glob(pattern)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as ``pip wheel .`` builds it, in its own environment, from the files that git does not ignore."""
    source = copy_checkout(tmp_path_factory.mktemp("source"))
    for made in ("docs/_build/html/index.html", "docs/calibration/lab/sut/index.rst", "build/lib/calibration/old.py"):
        (source / made).parent.mkdir(parents=True)
        (source / made).write_text("made by a run or a build in this checkout\n")
    run(*PIP_WHEEL, source / "dist", source, env=BUILD)
    return only(source / "dist")


def test_the_wheel_has_the_package_with_sutprobe_and_the_shared_directories(wheel: Path) -> None:
    wanted = {
        name if name.startswith("calibration/") else f"calibration/share/{name}"
        for name in files_of_checkout("calibration", *SHARED)
        if not name.startswith("docs/calibration/")
    }
    built = {f"calibration/kernels/{target}/{name}" for target in TARGETS for name in ("sutprobe", "build.json")}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("calibration/")}
    assert found == wanted | built | {"calibration/share/ansible.cfg"}


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage of the container file, with their arguments."""
    lines = [line for line in CONTAINERFILE.read_text().splitlines() if line and not line.startswith("#")]
    found: list[list[tuple[str, str]]] = []
    for instruction, _, arguments in (line.partition(" ") for line in lines):
        assert instruction in {"FROM", "COPY", "RUN", "ENV", "WORKDIR", "ENTRYPOINT"}
        if instruction == "FROM":
            found.append([])
        found[-1].append((instruction, arguments))
    return found


def test_the_containers_wheel_is_the_same_bit_for_bit(wheel: Path, tmp_path: Path) -> None:
    """From another directory, through a source distribution as with ``python -m build``, in the tests' environment."""
    checkout, source = copy_checkout(tmp_path / "checkout"), tmp_path / "image" / "source"
    for instruction, arguments in stages()[0]:
        *names, target = arguments.split()
        if instruction == "COPY" and target == "/source/":
            source.mkdir(parents=True)
            for name in names:
                shutil.copy2(checkout / name, source)
        elif instruction == "COPY":
            shutil.copytree(checkout / names[0], tmp_path / "image" / target.removeprefix("/"))
    run(sys.executable, "-c", MAKE_SDIST, tmp_path, env=BUILD, cwd=source)
    run(*PIP_WHEEL, tmp_path, "--no-build-isolation", only(tmp_path, "*.tar.gz"), env=BUILD)
    assert only(tmp_path).read_bytes() == wheel.read_bytes()


def test_no_wheel_without_the_sutprobe_of_its_sources(tmp_path: Path) -> None:
    source = copy_checkout(tmp_path / "source")
    sums = source / SHA256SUMS.relative_to(ROOT)
    sums.write_text(sums.read_text().replace(sums.read_text()[:8], "0" * 8))
    done = start(*PIP_WHEEL, tmp_path, "--no-build-isolation", source, env=BUILD)
    assert done.returncode != 0
    assert "sutprobe.sha256 is not of these sources and this compiler" in done.stdout
    assert not list(tmp_path.glob("*.whl"))


def test_the_wheel_calibrates_from_an_empty_directory(wheel: Path, tmp_path: Path) -> None:
    """Installed by the commands of the container file."""
    environment, home, place, remote = (tmp_path / name for name in ("environment", "home", "place", "remote"))
    for directory in (home, place, remote):
        directory.mkdir()
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CALIBRATION_"))}
    clean = {**outside, "HOME": str(home), "PATH": f"{environment / 'bin'}:/usr/bin:/bin"}
    run(sys.executable, "-m", "venv", environment, env=outside)
    places = {"/usr/share/calibration": str(LOCKS), "/wheel": str(wheel.parent), "--no-cache-dir": "--quiet"}
    for instruction, arguments in stages()[-1]:
        if instruction == "RUN":
            command = re.sub("|".join(places), lambda found: places[found[0]], arguments)
            run("/bin/sh", "-c", command, env={**outside, "PATH": clean["PATH"]})
    with pytest.raises(AssertionError, match="No module named ziglang"):
        run(environment / "bin" / "python", "-m", "ziglang", "version", env=clean)

    def calibration(*arguments: str | Path) -> str:
        return run(environment / "bin" / "calibration", *arguments, env=clean, cwd=place)

    assert json.loads(calibration("plan", "--profile", "full", "--json"))["steps"]
    # this machine stands for other tests' SUTs too
    own = {"calibration_remote_base": str(remote), "reserve_path": f"{remote}/reservation"}
    output = calibration("run", "--profile", TINY, "-e", json.dumps(own))
    document = only(place / "results", "*/*/*/run.json")
    assert f"Results: {document.parent}\n" in output
    assert json.loads(document.read_text())["run"]["kernels"]["sha256"] in SHA256SUMS.read_text()
    assert "valid, complete, 1 measurement" in calibration("validate", document)
    assert (place / "docs" / "_build" / "html" / "index.html").is_file()
    assert "Idle latency" in calibration("report", "--text")
    assert "idle_latency" in calibration("judge", "results", "--json")
    assert {path.name for path in place.iterdir()} == {"results", "docs"}
    assert {path.name for path in home.iterdir()} == {".cache"}
    assert not {"kernels", "zig"} & {path.name for path in (home / ".cache" / "calibration").iterdir()}
