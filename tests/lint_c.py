# SPDX-License-Identifier: Apache-2.0
"""Checks the C sources: ``python -m tests.lint_c [deep]``.

clang-format and clang-tidy come from their wheels, the C library's headers from the compiler's wheel, so nothing of the
machine is used. Code that depends on the architecture is analysed for both. Prints the findings; exits 0 without any, 1
with some, 3 without a tool. ``deep`` also follows paths through calls, which takes four times as long. What passed
before and has not changed is not analysed again.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Final

from calibration.base.errors import EnvironmentLacksError
from calibration.build import (
    BASELINE,
    CACHE_DIRECTORY,
    COMMON_FLAGS,
    SOURCES_DIRECTORY,
    TARGETS,
    TRIPLE,
    Target,
    sources,
)

ROOT: Final = SOURCES_DIRECTORY.parents[1]
WORKERS: Final = 2
LANGUAGE_FLAGS: Final = ("-std=", "-D", "-O")
"""Of the build's flags, those that change what the sources say; the others are the compiler wheel's own."""
SHALLOW: Final = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", "mode=shallow")]
"""Follow paths through small functions only, at a quarter of the cost."""


def tool(name: str) -> str:
    """Give the path of a tool of this interpreter's environment, or of ``PATH``.

    Raises:
        EnvironmentLacksError: there is none.

    """
    found = shutil.which(name, path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", ""))))
    if not found:
        raise EnvironmentLacksError(f"{name} is neither beside this Python nor on PATH; install requirements/")
    return found


def header_directories(target: Target) -> tuple[Path, ...]:
    """Give the directories of the compiler wheel that hold the C library's headers for ``target``.

    The compiler's own headers are not among them: clang-tidy brings those that fit its version.

    Raises:
        EnvironmentLacksError: the wheel is not installed, or is laid out in another way.

    """
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.submodule_search_locations:
        raise EnvironmentLacksError("no ziglang wheel; install requirements/")
    headers = Path(package.submodule_search_locations[0]) / "lib" / "libc" / "include"
    library, kernel = HEADERS.get(target, (target, target))
    names = (f"{library}-linux-musl", "generic-musl", f"{kernel}-linux-any", "any-linux-any")
    directories = tuple(headers / name for name in names)
    for directory in directories:
        if not directory.is_dir():
            raise EnvironmentLacksError(f"no headers in {directory}; install requirements/")
    return directories


def tidy_command(program: str, file: Path, target: Target, *, deep: bool) -> list[str]:
    """Give the argument list that analyses one file for one architecture."""
    headers = [word for directory in header_directories(target) for word in ("-isystem", str(directory))]
    flags = [flag for flag in (*COMMON_FLAGS, BASELINE[target]) if flag.startswith(LANGUAGE_FLAGS)]
    return [
        program, "--quiet", f"--config-file={ROOT / '.clang-tidy'}", *([] if deep else SHALLOW), str(file), "--",
        f"--target={TRIPLE[target]}", "-nostdlibinc", *headers, *flags,
    ]  # fmt: skip


HEADERS: dict[Target, tuple[str, str]] = {
    "x86_64": ("x86_64", "x86"),
    "ppc64le": ("powerpc64", "powerpc"),
    "riscv64": ("riscv64", "riscv"),
}
"""Names of the library's and the kernel's headers, where they are not the target's."""

OF_TESTS = ROOT / "tests" / "probe"
"""The tests' own programs, which are formatted alike."""


def targets_of(file: Path, directory: Path) -> list[Target]:
    """List the architectures that a file is analysed for: all of them where its code mentions one."""
    text = (directory / file).read_text(encoding="utf-8")
    if file.parts[:2] == ("arch", "generic"):
        return ["riscv64", "aarch64"] if "__aarch64__" in text else ["riscv64"]
    if file.parts[0] == "arch":
        return [target for target in TARGETS if target == file.parts[1]]
    return list(TARGETS) if any(f"__{target}__" in text for target in TARGETS) else [TARGETS[0]]


def commands(directory: Path, *, deep: bool = False) -> list[list[str]]:
    """Give the argument list of every check, to be run in ``directory``, those that take longest first.

    Raises:
        EnvironmentLacksError: a tool or the headers are missing.

    """
    form, tidy = tool("clang-format"), tool("clang-tidy")
    files = sorted(path.relative_to(directory) for path in directory.rglob("*.[ch]"))
    by_size = sorted(sources(directory), key=lambda file: -(directory / file).stat().st_size)
    style = f"--style=file:{ROOT / '.clang-format'}"
    return [
        *(tidy_command(tidy, file, target, deep=deep) for file in by_size for target in targets_of(file, directory)),
        [form, "--dry-run", "-Werror", style, *map(str, [*files, *sorted(OF_TESTS.rglob("*.[ch]"))])],
    ]


def findings(command: Sequence[str], directory: Path) -> str:
    """Run one check in ``directory`` and give what it printed, empty if it found nothing."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return (done.stdout + done.stderr).strip() or f"{Path(command[0]).name} ended with {done.returncode}"


def key_of(command: Sequence[str], directory: Path) -> str:
    """Hash a check with all that it reads: the program, its settings, the headers and the files that it names."""
    settings = (ROOT / name for name in (".clang-tidy", ".clang-format"))
    named = (directory / word for word in command if word.endswith((".c", ".h")))
    digest = hashlib.sha256(json.dumps([version(Path(command[0]).name), *command]).encode())
    for path in sorted({*settings, *named, *directory.rglob("*.h")}):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main(directory: Path = SOURCES_DIRECTORY, *, deep: bool = False, passed: Path | None = None) -> int:
    """Run all checks and print what they found, except those that ``passed`` lists as passed before.

    Returns:
        0, 1 where something was found, 3 where a tool is missing.

    """
    try:
        every = {key_of(command, directory): command for command in commands(directory, deep=deep)}
    except EnvironmentLacksError as error:
        sys.stderr.write(f"lint_c: {error}\n")
        return 3
    before = set(passed.read_text(encoding="ascii").split()) if passed and passed.exists() else set()
    fresh = [key for key in every if key not in before]
    with ThreadPoolExecutor(WORKERS) as pool:
        texts = pool.map(lambda key: findings(every[key], directory), fresh)
        found = {key: text for key, text in zip(fresh, texts, strict=True) if text}
    if passed:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.write_text("\n".join(every.keys() - found.keys()), encoding="ascii")
    sys.stdout.writelines(f"{text}\n" for text in found.values())
    return 1 if found else 0


if __name__ == "__main__":
    deep = sys.argv[1:] == ["deep"]
    sys.exit(main(deep=deep, passed=CACHE_DIRECTORY / "lint_c" / ("deep" if deep else "shallow")))
