# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.lint_headers``: every source file names its licence, and none a place or a tool of its making."""

import re
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
SPDX = "SPDX-License-Identifier: Apache-2.0"

WITH_HEADER = {
    ".py",
    ".c",
    ".h",
    ".yml",
    ".yaml",
    ".j2",
    ".cfg",
    ".ini",
    ".toml",
    ".css",
    ".rst.j2",
    ".robot",
    ".resource",
}
"""Files with one of these endings are source files."""

FOREIGN = re.compile(r"/work/|/root/|/home/[a-z]+/|\bTODO\b|\bFIXME\b|\bXXX\b")
"""Forbidden in committed files: paths of the author's machine, and unfinished work."""


def tracked() -> list[Path]:
    """Return the files tracked by git, or all files if this is no git checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [CHECKOUT / name for name in done.stdout.split("\0") if name]
    return [path for path in CHECKOUT.rglob("*") if path.is_file() and not path.name.startswith(".")]


def findings(path: Path) -> list[str]:
    """Return the errors of one file, a sentence each."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return []
    name = path.relative_to(CHECKOUT)
    found = []
    if path.suffix in WITH_HEADER and SPDX not in "".join(text.splitlines(keepends=True)[:5]):
        found.append(f"{name}: expected '{SPDX}' in the first five lines")
    if path != Path(__file__) and (match := FOREIGN.search(text)):
        line = text.count("\n", 0, match.start()) + 1
        found.append(f"{name}:{line}: found {match.group()!r}")
    return found


def main() -> int:
    """Print all findings; return 1 if there are any."""
    files = tracked()
    if not files:
        print("expected files to check, found none", file=sys.stderr)  # noqa: T201 - this is a command
        return 3
    found = [finding for path in files if path.is_file() for finding in findings(path)]
    print("\n".join(found) or f"{len(files)} files: licence lines and texts are as they should be")  # noqa: T201 - the same
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
