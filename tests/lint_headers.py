# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.lint_headers``: every source file names its licence, and none a place or a tool of its making."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
SPDX = "SPDX-License-Identifier: Apache-2.0"
WITH_HEADER = {
    *(".py", ".c", ".h", ".yml", ".yaml", ".j2", ".cfg", ".ini", ".toml", ".css", ".robot", ".resource")
}  # the endings of source files
FOREIGN = re.compile(r"/work/|/root/|/home/[a-z]+/|\bTODO\b|\bFIXME\b|\bXXX\b")
"""Forbidden in committed files: paths of the author's machine, and unfinished work."""


def findings(path: Path) -> Iterator[str]:
    """Yield the errors of one file, a sentence each."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    name = path.relative_to(CHECKOUT)
    if path.suffix in WITH_HEADER and SPDX not in "".join(text.splitlines(keepends=True)[:5]):
        yield f"{name}: expected '{SPDX}' in the first five lines"
    if path != Path(__file__) and (match := FOREIGN.search(text)):
        yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: found {match.group()!r}"


def main() -> str | None:
    """Return all findings in the files that git tracks, none if there is nothing wrong."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    files = [path for name in listed.split("\0") if name and (path := CHECKOUT / name).is_file()]
    return "\n".join(finding for path in files for finding in findings(path)) or None


if __name__ == "__main__":
    sys.exit(main())
