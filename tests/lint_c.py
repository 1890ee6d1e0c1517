# SPDX-License-Identifier: Apache-2.0
"""Checks the C sources: ``python -m tests.lint_c``.

clang-format and clang-tidy come from their wheels, the C library's headers from the compiler's wheel, so nothing of the
machine is used. Every file is analysed for both architectures. Prints what was found; exits 0 where that is nothing, 1
where it is something, 3 where a tool is missing.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from calibration.build import BASELINE, COMMON_FLAGS, SOURCES_DIRECTORY, TARGETS, Target, sources
from calibration.errors import EnvironmentLacksError

ROOT: Final = SOURCES_DIRECTORY.parents[1]
WORKERS: Final = 2
LANGUAGE_FLAGS: Final = ("-std=", "-D", "-O")
"""Of the build's flags, those that change what the sources say; the others are the compiler wheel's own."""
SAME_FOR_BOTH: Final = "-clang-analyzer-*"
"""The search along paths takes nine tenths of the time and sees little of the architecture: for the second one it runs
only on the files that are written for it."""


def tool(name: str) -> str:
    """Give the path of a tool of this interpreter's environment, or of ``PATH``.

    Raises:
        EnvironmentLacksError: there is none.

    """
    found = shutil.which(name, path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", ""))))
    if not found:
        raise EnvironmentLacksError(f"expected {name} beside this Python or on PATH, found none; install requirements/")
    return found


def header_directories(target: Target) -> tuple[Path, ...]:
    """Give the directories of the compiler wheel that hold the C library's headers for ``target``.

    The compiler's own headers are not among them: clang-tidy brings those that fit its version.

    Raises:
        EnvironmentLacksError: the wheel is not installed, or is laid out in another way.

    """
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.submodule_search_locations:
        raise EnvironmentLacksError("expected the ziglang wheel, found none; install requirements/")
    headers = Path(package.submodule_search_locations[0]) / "lib" / "libc" / "include"
    # The kernel's headers of both word sizes of x86 are kept under one name.
    kernel = "x86-linux-any" if target == "x86_64" else f"{target}-linux-any"
    directories = tuple(headers / name for name in (f"{target}-linux-musl", "generic-musl", kernel, "any-linux-any"))
    for directory in directories:
        if not directory.is_dir():
            raise EnvironmentLacksError(f"expected headers in {directory}, found none; install requirements/")
    return directories


def tidy_command(program: str, file: Path, target: Target) -> list[str]:
    """Give the argument list that analyses one file for one architecture."""
    whole = target == TARGETS[0] or file.parts[:2] == ("arch", target)
    checks = [] if whole else [f"--checks={SAME_FOR_BOTH}"]
    headers = [word for directory in header_directories(target) for word in ("-isystem", str(directory))]
    flags = [flag for flag in (*COMMON_FLAGS, BASELINE[target]) if flag.startswith(LANGUAGE_FLAGS)]
    return [
        program, "--quiet", f"--config-file={ROOT / '.clang-tidy'}", *checks, str(file), "--",
        f"--target={target}-linux-musl", "-nostdlibinc", *headers, *flags,
    ]  # fmt: skip


HOST = ROOT / "tests" / "kernels" / "host"
"""Programs of the tests, which are formatted alike."""


def commands(directory: Path = SOURCES_DIRECTORY) -> list[list[str]]:
    """Give the argument list of every check, to be run in ``directory``, those that take longest first.

    Raises:
        EnvironmentLacksError: a tool or the headers are missing.

    """
    form, tidy = tool("clang-format"), tool("clang-tidy")
    files = sorted(path.relative_to(directory) for path in directory.rglob("*.[ch]"))
    by_size = sorted(sources(directory), key=lambda file: -(directory / file).stat().st_size)
    style = f"--style=file:{ROOT / '.clang-format'}"
    return [
        *(tidy_command(tidy, file, target) for target in TARGETS for file in by_size),
        [form, "--dry-run", "-Werror", style, *map(str, [*files, *sorted(HOST.glob("*.[ch]"))])],
    ]


def findings(command: Sequence[str], directory: Path = SOURCES_DIRECTORY) -> str:
    """Run one check in ``directory`` and give what it printed, empty where it found nothing."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return (done.stdout + done.stderr).strip() or f"{Path(command[0]).name} ended with {done.returncode}"


def main(directory: Path = SOURCES_DIRECTORY) -> int:
    """Run all checks and print what they found.

    Returns:
        0, 1 where something was found, 3 where a tool is missing.

    """
    try:
        every = commands(directory)
    except EnvironmentLacksError as error:
        sys.stderr.write(f"lint_c: {error}\n")
        return 3
    with ThreadPoolExecutor(WORKERS) as pool:
        found = [text for text in pool.map(lambda command: findings(command, directory), every) if text]
    for text in found:
        sys.stdout.write(f"{text}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
