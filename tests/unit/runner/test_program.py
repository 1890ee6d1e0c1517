# SPDX-License-Identifier: Apache-2.0
"""The runner as a program: what it needs on a SUT, and that packing it gives the same bytes."""

import ast
import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from pathlib import Path

import pytest

from calibration.runner import bundle
from tests.suts import EVERYTHING, Sut, step

OLDEST = (3, 8)

NEWER = (
    "asyncio.Runner asyncio.TaskGroup asyncio.timeout functools.cache graphlib tomllib zoneinfo math.lcm os.pidfd_open "
    "os.waitstatus_to_exitcode random.randbytes itertools.pairwise itertools.batched contextlib.chdir "
    "contextlib.aclosing signal.pidfd_send_signal inspect.get_annotations datetime.UTC enum.StrEnum "
    "hashlib.file_digest types.NoneType types.UnionType operator.call "
    "removeprefix removesuffix bit_count is_relative_to with_stem"
)
"""Younger names of the standard library, and methods, as far as a runner may be tempted."""

MODULES = {name: source for name, source in bundle.sources().items() if name.startswith("calibration/runner/")}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
            if isinstance(node.value, ast.Name):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("name", MODULES)
def test_the_runner_is_python_3_8_with_its_standard_library_alone(name: str) -> None:
    tree = ast.parse(MODULES[name], feature_version=OLDEST)
    for module in imported(tree):
        assert module.split(".")[0] in sys.stdlib_module_names or module.startswith("calibration.runner"), module
        if module.startswith("calibration.runner."):
            assert module.replace(".", "/") + ".py" in MODULES  # it is packed
    assert sorted({*NEWER.split()} & {*used(tree), *imported(tree)}) == []


@cache
def interpreters() -> dict[str, str]:
    """Return other releases of Python on this machine from the oldest on, by their version."""
    places = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    places += Path.home().glob(".pyenv/versions/*/bin")
    found = [path for place in places for path in place.glob("python3.*") if re.fullmatch(r"python3\.\d+", path.name)]
    works = [
        path for path in found if not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
    ]
    versions = {path.name.removeprefix("python3."): str(path) for path in works}  # a shim of pyenv need not have one
    return {f"3.{minor}": versions[minor] for minor in sorted(versions, key=int) if int(minor) >= OLDEST[1]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", interpreters())
def test_a_run_under_each_python_of_this_machine(sut: Sut, version: str) -> None:
    sut.python = interpreters()[version]
    before = sut.settings()
    run = sut.start(settings=EVERYTHING)
    run.begin(step("one"), step("two", prefetchers="off"))
    state, records = run.follow()
    assert (state, [record["record"] for record in records]) == (
        "ended",
        ["step", "step", "health", "done", "restored"],
    )
    assert sut.settings() == before
    assert sut.ask("facts", str(sut.base), sut.lock)[0]["holder"] is None
    run.remove()


def test_an_older_python_is_told(tmp_path: Path) -> None:
    version = "import sys; sys.version_info = (3, 7); sys.version = '3.7.16 (main)'; "
    asking = [sys.executable, "-I", "-S", "-c", version + bundle.LOAD, "find", str(tmp_path), "run1", "sut1"]
    done = subprocess.run(asking, input=bundle.runner(), capture_output=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, b"Python 3.8 or newer is needed, this is 3.7.16")


def test_the_runner_is_loaded_without_a_file(tmp_path: Path) -> None:
    asking = [sys.executable, "-I", "-S", "-B", "-c", bundle.LOAD, "find", str(tmp_path), "run1", "sut1"]
    done = subprocess.run(asking, input=bundle.runner(), capture_output=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith(b'{"found": []')
    assert list(tmp_path.iterdir()) == []


def test_equal_contents_give_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = bundle.packed({**bundle.sources(), "sutprobe": bytes(1000)}, stored=frozenset({"sutprobe"}))
    for name, source in MODULES.items():
        copy = tmp_path / Path(name).name
        copy.write_bytes(source)
        copy.chmod(stat.S_IRUSR)
    (tmp_path / "bundle.py").touch()
    monkeypatch.setattr(bundle, "HERE", tmp_path)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert bundle.packed({**bundle.sources(), "sutprobe": bytes(1000)}, stored=frozenset({"sutprobe"})) == packed
    with zipfile.ZipFile(BytesIO(packed)) as archive:
        assert archive.getinfo("sutprobe").compress_type == zipfile.ZIP_STORED
        assert "calibration/runner/bundle.py" not in archive.namelist()
        assert archive.testzip() is None
