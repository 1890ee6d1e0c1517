# SPDX-License-Identifier: Apache-2.0
"""Runs all linters in parallel: ``python -m tests.lint``.

Prints the output of each one that fails, and exits 1 if any does.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

LINTERS: Final = (
    "-m tests.lint_c",
    "-m ansiblelint --offline --strict",
    "-m mypy",
    "-m yamllint --strict .",
    "-m sphinxlint README.rst CONTRIBUTING.rst CHANGELOG.rst docs templates tests/README.rst findings",
    "-m tests.lint_headers",
    f"{Path(sys.executable).with_name('lint-imports')} --no-cache",
    "-m ruff check .",
    "-m ruff format --check .",
)
"""Arguments of the interpreter, the slowest linter first."""


def run_linter(linter: str) -> bool:
    """Run *linter*, print its output if it fails, and return whether it passes."""
    done = subprocess.run(
        [sys.executable, *linter.split()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.stdout.write(f"{linter}: exit code {done.returncode}\n{done.stdout}\n")
    return done.returncode == 0


def main() -> int:
    """Run all linters and return 0 if all pass, else 1."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return 0 if all(list(pool.map(run_linter, LINTERS))) else 1


if __name__ == "__main__":
    sys.exit(main())
