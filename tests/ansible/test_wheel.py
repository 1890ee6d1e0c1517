# SPDX-License-Identifier: Apache-2.0
"""``pip install .`` installs everything that a calibration needs."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support import TINY, copy_checkout, files_of_checkout

from calibration.places import CACHE

SHARED = ("ansible", "docs", "playbooks", "results/example/run.json", "roles", "templates")
"""Directories beside the package that are in ``calibration/share/`` of a wheel."""


def run(*command: str | Path, **options: object) -> str:
    """Return the output of *command*; fail with it if the exit code is not 0."""
    done = subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built without the files that git ignores."""
    source = copy_checkout(tmp_path_factory.mktemp("source"))
    for made in ("docs/_build/html/index.html", "docs/calibration/lab/sut/index.rst"):
        (source / made).parent.mkdir(parents=True)
        (source / made).write_text("made by a run in this checkout\n")
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", source / "dist")
    run(sys.executable, "-m", "pip", "wheel", *options, source)
    (found,) = (source / "dist").glob("*.whl")
    return found


def test_the_wheel_has_every_file_of_the_package_and_its_shared_directories(wheel: Path) -> None:
    wanted = {
        name if name.startswith("calibration/") else f"calibration/share/{name}"
        for name in files_of_checkout("calibration", *SHARED)
        if not name.startswith("docs/calibration/")
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("calibration/")}
    assert found == wanted | {"calibration/share/ansible.cfg"}


def link_requirements(requires: Iterable[str], packages: Path) -> None:
    """Link the installed requirements, with their own, into *packages*."""
    for requirement in map(Requirement, requires):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = distribution(requirement.name)
        assert requirement.specifier.contains(found.version, prereleases=True), requirement
        names = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        new = [name for name in sorted(names) if not (packages / name).exists()]
        for name in new:
            (packages / name).symlink_to(Path(str(found.locate_file(name))))
        if new:
            link_requirements(found.requires or (), packages)


def test_the_wheel_calibrates_with_only_its_requirements(wheel: Path, tmp_path: Path) -> None:
    environment, home, place = (tmp_path / name for name in ("environment", "home", "place"))
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-input", wheel)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (own,) = distributions(name="calibration-harness", path=[str(packages)])
    link_requirements(own.requires or (), packages)
    place.mkdir()
    cache = home / ".cache" / "calibration"
    cache.mkdir(parents=True)
    for name in ("kernels", "zig"):  # built from the same sources: compiling them once more takes minutes
        if (CACHE / name).is_dir():
            (cache / name).symlink_to(CACHE / name)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CALIBRATION_"))}
    clean = {**kept, "HOME": str(home), "PATH": f"{environment / 'bin'}:/usr/bin:/bin"}

    def calibration(*arguments: str | Path) -> str:
        return run(environment / "bin" / "calibration", *arguments, cwd=place, env=clean)

    assert json.loads(calibration("plan", "--profile", "full", "--json"))["steps"]
    (tmp_path / "remote").mkdir()  # this machine stands for other tests' SUTs too
    places = {"calibration_remote_base": f"{tmp_path}/remote", "reserve_path": f"{tmp_path}/remote/reservation"}
    output = calibration("run", "--profile", TINY, "-e", json.dumps(places))
    (document,) = place.glob("results/*/*/*/run.json")
    assert f"Results: {document.parent}\n" in output
    assert "valid, complete, 1 measurement" in calibration("validate", document)
    assert (place / "docs" / "_build" / "html" / "index.html").is_file()
    assert "idle_latency" in calibration("judge", "results", "--json")
    assert {path.name for path in place.iterdir()} == {"results", "docs"}
    assert {path.name for path in home.iterdir()} == {".cache"}
