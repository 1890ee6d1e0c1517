# SPDX-License-Identifier: Apache-2.0
"""The compiler is asked for its version once per installed wheel, and never believed after the wheel has changed."""

from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from calibration import build
from calibration.base.errors import EnvironmentLacksError


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A wheel of its own, whose program is asked through ``_ask_compiler``."""
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "zig").write_text("one", encoding="utf-8")
    spec = ModuleSpec("ziglang", None, origin=str(package / "__init__.py"))
    monkeypatch.setattr(build, "find_spec", lambda _name: spec)
    monkeypatch.setattr(build, "CACHE_DIRECTORY", tmp_path / "cache")
    build.compiler_version.cache_clear()
    yield package
    build.compiler_version.cache_clear()


def answering(monkeypatch: pytest.MonkeyPatch, answer: str) -> list[str]:
    asked: list[str] = []

    def ask() -> str:
        asked.append(answer)
        return answer

    monkeypatch.setattr(build, "_ask_compiler", ask)
    build.compiler_version.cache_clear()
    return asked


def test_version_is_cached_across_processes(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = answering(monkeypatch, "clang 1")
    assert build.compiler_version() == "clang 1"
    later = answering(monkeypatch, "never asked")
    assert build.compiler_version() == "clang 1"
    assert (len(first), later) == (1, [])
    assert wheel.is_dir()


def test_changed_wheel_is_asked_again(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "clang 1")
    build.compiler_version()
    (wheel / "zig").write_text("another", encoding="utf-8")
    answering(monkeypatch, "clang 2")
    assert build.compiler_version() == "clang 2"


@pytest.mark.parametrize("there", [True, False])
def test_compiler_failure_is_not_cached(wheel: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    if not there:
        (wheel / "zig").unlink()

    def refuse() -> str:
        raise EnvironmentLacksError("no compiler")

    monkeypatch.setattr(build, "_ask_compiler", refuse)
    with pytest.raises(EnvironmentLacksError):
        build.compiler_version()
    assert not list((wheel.parent / "cache").rglob("compiler-*"))
