# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from calibration import build as build_module
from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.build import BUILT_DIRECTORY, SOURCES_DIRECTORY, TARGETS, BuiltProbe, source_sha256, sources

ELF_MACHINE = {"x86_64": 62, "aarch64": 183, "ppc64le": 21, "riscv64": 243}


IF_CHANGED = (
    "for a change of sutprobe: CALIBRATION_BLESS=1 python -m pytest tests/probe/test_build.py -k bit_for_bit -m ''"
)


@pytest.fixture(params=TARGETS)
def built(request: pytest.FixtureRequest) -> BuiltProbe:
    of_target: BuiltProbe = request.getfixturevalue(f"built_{request.param}")
    return of_target


def test_binary_is_static_and_for_its_target(built: BuiltProbe) -> None:
    image = built.path.read_bytes()
    assert image[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", image, 18)[0] == ELF_MACHINE[built.target]
    offset, size, count = struct.unpack_from("<Q", image, 32)[0], *struct.unpack_from("<HH", image, 54)
    segments = [struct.unpack_from("<I4xQ16xQ", image, offset + i * size) for i in range(count)]
    assert 3 not in {kind for kind, _, _ in segments}, "PT_INTERP: the binary must run on a SUT without libraries"
    assert all(begin + length <= len(image) for _, begin, length in segments), "an offset that differs between builders"
    assert len(image) < 3 << 19, "every run sends it to every SUT, over slow links too"
    assert os.access(built.path, os.X_OK)


def test_binary_names_no_path_of_the_builder(built: BuiltProbe) -> None:
    assert str(Path(build_module.__file__).parent).encode() not in built.path.read_bytes()


def test_binaries_are_the_same_bit_for_bit_as_those_of_the_checkout(built: BuiltProbe) -> None:
    """CALIBRATION_BLESS=1 writes them after a change of the sources, the flags, the compiler or the version."""
    kept = BUILT_DIRECTORY / built.target
    for name in ("build.json", "sutprobe"):
        if os.environ.get("CALIBRATION_BLESS") == "1":
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy2(built.path.with_name(name), kept)
        assert (kept / name).read_bytes() == built.path.with_name(name).read_bytes(), IF_CHANGED
    assert os.access(kept / "sutprobe", os.X_OK)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets that the compiler is asked for."""
    asked: list[str] = []
    monkeypatch.setattr(build_module, "compiled", asked.append)
    return asked


def test_the_checkout_has_the_programs_of_its_sources(compiling: list[str]) -> None:
    found = {target: getattr(build_module.build(target), "path", None) for target in TARGETS}
    assert found == {target: BUILT_DIRECTORY / target / "sutprobe" for target in TARGETS}, IF_CHANGED
    assert not compiling, IF_CHANGED


@pytest.mark.parametrize("name", ["source_sha256", "__version__", "BUILT_DIRECTORY"])
def test_changed_sources_are_compiled(
    name: str, compiling: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = {"source_sha256": lambda: "ab" * 32, "__version__": "9.8.7", "BUILT_DIRECTORY": tmp_path}
    monkeypatch.setattr(build_module, name, others[name])
    build_module.build("x86_64")
    assert compiling == ["x86_64"]


def test_a_damaged_program_is_no_reason_to_compile(
    compiling: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(BUILT_DIRECTORY, tmp_path / "built")
    monkeypatch.setattr(build_module, "BUILT_DIRECTORY", tmp_path / "built")
    with (tmp_path / "built" / "x86_64" / "sutprobe").open("ab") as program:
        program.write(b"x")
    with pytest.raises(InputError, match="sha256"):
        build_module.build("x86_64")
    assert not compiling


def test_without_a_compiler_the_way_to_one_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build_module, "BUILT_DIRECTORY", tmp_path)
    monkeypatch.setattr(build_module, "version", missing)
    with pytest.raises(EnvironmentLacksError, match=r"ziglang wheel.*\.venv-test"):
        build_module.build("x86_64")


def missing(name: str) -> str:
    raise PackageNotFoundError(name)


def test_record_says_what_the_bytes_are(built: BuiltProbe) -> None:
    record = json.loads((built.path.parent / "build.json").read_text(encoding="utf-8"))
    assert record["sha256"] == built.sha256 == hashlib.sha256(built.path.read_bytes()).hexdigest()
    assert record["source_sha256"] == built.source_sha256 == source_sha256()
    assert built.compiler == f"zig {version('ziglang')}"


def test_second_build_is_the_cached_one(built: BuiltProbe) -> None:
    before = built.path.stat().st_mtime_ns
    assert build_module.compiled(built.target) == built
    assert built.path.stat().st_mtime_ns == before


def test_damaged_cache_is_not_trusted(built_x86_64: BuiltProbe, tmp_path: Path) -> None:
    built = built_x86_64
    # A copy: other tests run the program meanwhile.
    kept = tmp_path / "kept"
    shutil.copytree(built.path.parent, kept)
    assert build_module._recorded(kept, built.target) == replace(built, path=kept / built.path.name)
    program = kept / built.path.name
    program.write_bytes(program.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="sha256"):
        build_module._recorded(kept, built.target)


def test_every_c_file_is_listed_once(tmp_path: Path) -> None:
    listed = sources()
    assert len(set(listed)) == len(listed) > 10
    assert {path.suffix for path in listed} == {".c"}
    copy = tmp_path / "probe"
    shutil.copytree(SOURCES_DIRECTORY, copy)
    same = source_sha256(copy)
    assert same == source_sha256()
    header = copy / "clock.h"
    header.write_text(header.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert source_sha256(copy) != same, "a changed header must change the key of the cache"


def test_no_flag_depends_on_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the compiler's cache is of no use, and a changed comment compiles everything again."""
    copy = tmp_path / "probe"
    shutil.copytree(SOURCES_DIRECTORY, copy)
    flags: list[list[str]] = []
    monkeypatch.setattr(
        build_module, "_run", lambda command, _: flags.append([text for text in command if not text.endswith(".c")])
    )
    for _ in range(2):
        build_module.compile_to(tmp_path / "sutprobe", "x86_64", copy)
        with (copy / "clock.h").open("a", encoding="utf-8") as header:
            header.write("/* a comment */\n")
    assert flags[0] == flags[1]


def test_sources_that_change_meanwhile_are_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = iter(("before", "after"))
    monkeypatch.setattr(build_module, "source_sha256", lambda: next(hashes))
    monkeypatch.setattr(build_module, "compile_to", lambda binary, _: binary.write_bytes(b""))
    with pytest.raises(EnvironmentLacksError, match="changed while"):
        build_module.compiled("x86_64", tmp_path)
    assert not list(tmp_path.rglob("sutprobe"))


def test_compiler_error_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.c").write_text("int main(void) { return undeclared_name; }\n", encoding="utf-8")
    with pytest.raises(EnvironmentLacksError, match="undeclared_name"):
        build_module.compile_to(tmp_path / "broken", "x86_64", tmp_path)


def test_two_builds_at_once_agree(built_x86_64: BuiltProbe) -> None:
    program = "from calibration.build import compiled; print(compiled('x86_64').sha256)"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=SOURCES_DIRECTORY.parents[1]
        )
        for _ in range(2)
    ]
    assert [process.communicate(timeout=100)[0].strip() for process in running] == [built_x86_64.sha256] * 2


def test_every_source_starts_with_its_licence() -> None:
    for path in SOURCES_DIRECTORY.rglob("*.[ch]"):
        assert "SPDX-License-Identifier: Apache-2.0" in path.read_text(encoding="utf-8").splitlines()[0], path
