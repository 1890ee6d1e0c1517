# SPDX-License-Identifier: Apache-2.0
"""A kernel that was built elsewhere is used as it is, or refused with what is wrong."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import ENVIRONMENT, InputError
from calibration.build import prebuilt
from tests.command import calibration

PROGRAM = b"#!/bin/sh\n"


def kept(folder: Path, **changes: Any) -> Path:
    """Keep a program with its record in *folder*; a change to ``None`` takes a field out of the record."""
    place = folder / "x86_64"
    place.mkdir(parents=True, exist_ok=True)
    (place / "sutprobe").write_bytes(PROGRAM)
    record = {
        "path": "sutprobe", "sha256": hashlib.sha256(PROGRAM).hexdigest(), "target": "x86_64", "version": "9.8.7",
        "compiler": "another compiler", "flags": ["-O1", "-static"], "source_sha256": "ab" * 32, **changes,
    }  # fmt: skip
    record = {name: value for name, value in record.items() if value is not None}
    (place / "build.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def test_build_record_is_passed_on(tmp_path: Path) -> None:
    built = prebuilt(kept(tmp_path), "x86_64")
    assert built.path == tmp_path / "x86_64" / "sutprobe"
    assert built.sha256 == hashlib.sha256(PROGRAM).hexdigest()
    assert (built.version, built.compiler, built.flags) == ("9.8.7", "another compiler", ("-O1", "-static"))
    assert built.source_sha256 == "ab" * 32


def test_rejects_a_binary_with_another_hash(tmp_path: Path) -> None:
    (kept(tmp_path) / "x86_64" / "sutprobe").write_bytes(PROGRAM + b"echo\n")
    with pytest.raises(InputError, match=r"sha256 [0-9a-f]{64}, \S+build\.json says [0-9a-f]{64}"):
        prebuilt(tmp_path, "x86_64")


def test_rejects_another_architecture(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"target x86_64, \S+build\.json says aarch64"):
        prebuilt(kept(tmp_path, target="aarch64"), "x86_64")


@pytest.mark.parametrize("field", ["sha256", "target", "version", "compiler", "flags", "source_sha256"])
def test_rejects_a_record_without_a_field(tmp_path: Path, field: str) -> None:
    with pytest.raises(InputError, match="build sutprobe again"):
        prebuilt(kept(tmp_path, **{field: None}), "x86_64")


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_rejects_an_invalid_record(tmp_path: Path, text: str) -> None:
    (kept(tmp_path) / "x86_64" / "build.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"build\.json"):
        prebuilt(tmp_path, "x86_64")


@pytest.mark.parametrize("name", ["sutprobe", "build.json"])
def test_names_the_missing_file(tmp_path: Path, name: str) -> None:
    (kept(tmp_path) / "x86_64" / name).unlink()
    with pytest.raises(InputError, match=name):
        prebuilt(tmp_path, "x86_64")


def test_a_runner_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.build.build", lambda _: prebuilt(kept(tmp_path), "x86_64"))
    output = tmp_path / "missing" / "runner.pyz"
    ended = calibration("runner", output)
    assert ended == (ENVIRONMENT, f"calibration: cannot write {output}: No such file or directory\n")
