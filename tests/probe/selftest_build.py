# SPDX-License-Identifier: Apache-2.0
"""The program that asks sutprobe's code for known answers: its sources with a subcommand that no SUT needs.

``python -m tests.probe.selftest_build PATH`` builds it for this machine.
"""

import platform
import sys
from pathlib import Path
from typing import cast

from calibration import build
from calibration.build import BASELINE, COMMON_FLAGS, SOURCES_DIRECTORY, TRIPLE, Target
from tests.probe.sanitized import SELFTEST


def compile_selftest(program: Path, triple: str, flags: tuple[str, ...]) -> Path:
    """Compile *program* for any architecture the compiler knows, in the place where sutprobe is compiled."""
    files = [*build.sources(), *sorted(SELFTEST.glob("*.c"))]
    command = [*build.compiler_command(), "-target", triple, *flags, "-I.", "-o", str(program), *map(str, files), "-lm"]
    build._run(command, SOURCES_DIRECTORY)
    return program


def build_selftest(program: Path, target: str) -> Path:
    """Compile *program* as sutprobe itself is compiled for one of its targets."""
    chosen = cast("Target", target)
    return compile_selftest(program, TRIPLE[chosen], (*COMMON_FLAGS, BASELINE[chosen]))


if __name__ == "__main__":
    build_selftest(Path(sys.argv[1]).absolute(), platform.machine())
