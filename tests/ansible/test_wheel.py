# SPDX-License-Identifier: Apache-2.0
"""What ``pip install .`` gives: everything that a calibration needs, without the checkout."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import ROOT, TINY

from calibration.places import CACHE

SHARED = ("ansible", "docs", "playbooks", "results/example/run.json", "roles", "templates")
"""Directories beside the package that a wheel has in ``calibration/share/``."""


def run(*command: str | Path, **options: object) -> str:
    """Return what *command* printed; the test fails with it where the exit code is not 0."""
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
    """Built from what is committed or would be: what git ignores cannot help."""
    source = tmp_path_factory.mktemp("source")
    names = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    for made in ("docs/_build/html/index.html", "docs/calibration/lab/sut/index.rst"):
        (source / made).parent.mkdir(parents=True)
        (source / made).write_text("made by a run in this checkout\n")
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", source / "dist")
    run(sys.executable, "-m", "pip", "wheel", *options, source)
    (found,) = (source / "dist").glob("*.whl")
    return found


def test_the_wheel_has_every_file_of_the_package_and_of_what_it_shares(wheel: Path) -> None:
    names = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "calibration", *SHARED)
    wanted = {
        name if name.startswith("calibration/") else f"calibration/share/{name}"
        for name in names.splitlines()
        if (ROOT / name).is_file() and not name.startswith("docs/calibration/")
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("calibration/")}
    assert found == wanted | {"calibration/share/ansible.cfg"}


def test_the_wheel_calibrates_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    # The releases of the lock, whatever was released since; its hashes cannot be asked of the wheel itself.
    locked = (ROOT / "requirements" / "calibrate.txt").read_text(encoding="utf-8")
    pins = tmp_path / "constraints.txt"
    pins.write_text("".join(f"{pin}\n" for pin in re.findall(r"^([\w.-]+==.*?) \\$", locked, re.MULTILINE)))
    environment, home, place = (tmp_path / name for name in ("environment", "home", "place"))
    run(sys.executable, "-m", "venv", environment)
    run(environment / "bin" / "pip", "install", "--quiet", "--no-input", "--constraint", pins, wheel)
    place.mkdir()
    (home / ".cache" / "calibration").mkdir(parents=True)
    if (CACHE / "zig").is_dir():  # the compiler's own cache saves most of a minute
        (home / ".cache" / "calibration" / "zig").symlink_to(CACHE / "zig")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CALIBRATION_"))}
    clean = {**kept, "HOME": str(home), "PATH": f"{environment / 'bin'}:/usr/bin:/bin"}

    def calibration(*arguments: str | Path) -> str:
        return run(environment / "bin" / "calibration", *arguments, cwd=place, env=clean)

    for profile in ("quick", "nightly", "full", "counters"):
        assert json.loads(calibration("plan", "--profile", profile, "--json"))["steps"]
    (tmp_path / "remote").mkdir()  # this machine stands for other tests' SUTs too
    places = {"calibration_remote_base": f"{tmp_path}/remote", "reserve_path": f"{tmp_path}/remote/reservation"}
    said = calibration("run", "--profile", TINY, "-e", json.dumps(places))
    (document,) = place.glob("results/*/*/*/run.json")
    assert f"Results: {document.parent}\n" in said
    assert "valid, complete, 1 measurement" in calibration("validate", document)
    assert (place / "docs" / "_build" / "html" / "index.html").is_file()
    assert "idle_latency" in calibration("judge", "results", "--json")
    assert {path.name for path in place.iterdir()} == {"results", "docs"}
    assert {path.name for path in home.iterdir()} == {".cache"}
