# SPDX-License-Identifier: Apache-2.0
"""The check of the C sources finds what it is for, on both architectures, and again when a file changes."""

from pathlib import Path

import pytest

from tests import lint_c

CLEAN = '// SPDX-License-Identifier: Apache-2.0\n#include <stdio.h>\n\nint main(void)\n{\n\treturn puts("") < 0;\n}\n'


@pytest.mark.parametrize(("name", "text", "named"), [
    ("main.c", CLEAN.replace("\treturn", "    return"), "clang-format"),
    ("main.c", CLEAN.replace('puts("")', "*(int *)0"), "clang-analyzer"),
    ("main.c", CLEAN.replace("return", "#if defined(__aarch64__)\n#error only here\n#endif\n\treturn"), "only here"),
    ("arch/aarch64/main.c", CLEAN.replace("return", "#if defined(__aarch64__)\n\t*(int *)0 = 1;\n#endif\n\treturn"),
     "clang-analyzer"),
], ids=["format", "fault", "another architecture", "files of another architecture"])  # fmt: skip
def test_findings_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, named: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert lint_c.main(tmp_path) == 1
    assert named in capsys.readouterr().out


def test_passed_files_are_analysed_again_only_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    findings = lint_c.findings
    monkeypatch.setattr(lint_c, "findings", lambda *check: ran.append(check) or findings(*check))
    sources, passed = tmp_path / "sources", tmp_path / "passed"
    sources.mkdir()
    for name, text, checks, code in (
        ("main.c", CLEAN, 2, 0),
        ("main.c", CLEAN, 0, 0),
        ("used.h", CLEAN.replace("int main(void)", "static inline int used(void)"), 2, 0),
        ("main.c", CLEAN.replace('puts("")', 'sizeof(sizeof(""))'), 2, 1),
        ("used.h", CLEAN.replace("int main(void)", "static inline int used(void)"), 1, 1),
    ):
        (sources / name).write_text(text, encoding="utf-8")
        ran.clear()
        assert lint_c.main(sources, passed=passed) == code
        assert len(ran) == checks
