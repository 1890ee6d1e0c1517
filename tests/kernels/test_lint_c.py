# SPDX-License-Identifier: Apache-2.0
"""The check of the C sources finds what it is for, on both architectures, and says what it lacks."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests import lint_c

CLEAN = '// SPDX-License-Identifier: Apache-2.0\n#include <stdio.h>\n\nint main(void)\n{\n\treturn puts("") < 0;\n}\n'


def lint(directory: Path, text: str, name: str = "main.c") -> int:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return lint_c.main(directory)


def test_clean_source_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(tmp_path, CLEAN) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (CLEAN.replace("\treturn", "    return"), "clang-format"),
        (CLEAN.replace('puts("")', "*(int *)0"), "clang-analyzer"),
        (CLEAN.replace("<stdio.h>", "<no_such_header.h>"), "no_such_header.h"),
        (CLEAN.replace('puts("")', 'sizeof(sizeof(""))'), "bugprone-sizeof-expression"),
    ],
)
def test_findings_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str, named: str) -> None:
    assert lint(tmp_path, wrong) == 1
    assert named in capsys.readouterr().out


@pytest.mark.parametrize("target", ["x86_64", "aarch64"])
def test_each_architecture_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    only_there = CLEAN.replace("int main", f"#if defined(__{target}__)\n#error only here\n#endif\n\nint main")
    assert lint(tmp_path, only_there) == 1
    assert "only here" in capsys.readouterr().out


def test_files_of_the_second_architecture_are_analysed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = CLEAN.replace("return", "#if defined(__aarch64__)\n\t*(int *)0 = 1;\n#endif\n\treturn")
    assert lint(tmp_path, there, "arch/aarch64/main.c") == 1
    assert "clang-analyzer" in capsys.readouterr().out


def test_passed_files_are_analysed_again_only_when_they_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    findings = lint_c.findings
    monkeypatch.setattr(lint_c, "findings", lambda *check: ran.append(check) or findings(*check))
    sources, passed = tmp_path / "sources", tmp_path / "passed"
    for name, text, checks, code in (
        ("main.c", CLEAN, 2, 0),
        ("main.c", CLEAN, 0, 0),
        ("used.h", CLEAN.replace("int main(void)", "static inline int used(void)"), 2, 0),
        ("main.c", CLEAN.replace('puts("")', 'sizeof(sizeof(""))'), 2, 1),
        ("used.h", CLEAN.replace("int main(void)", "static inline int used(void)"), 1, 1),
    ):
        sources.mkdir(exist_ok=True)
        (sources / name).write_text(text, encoding="utf-8")
        ran.clear()
        assert lint_c.main(sources, passed=passed) == code
        assert len(ran) == checks
    assert "bugprone-sizeof-expression" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["clang-format", "clang-tidy"])
def test_missing_tool_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == missing else real(name, path=path))
    assert lint(tmp_path, CLEAN) == 3
    assert missing in capsys.readouterr().err


def test_missing_headers_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert lint(tmp_path, CLEAN) == 3
    assert "ziglang" in capsys.readouterr().err
