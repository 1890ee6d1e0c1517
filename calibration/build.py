# SPDX-License-Identifier: Apache-2.0
"""Find ``sutprobe`` for a SUT, or cross-build it with the pinned compiler wheel.

``probe/built/`` has the programs for all architectures: neither a controller nor a SUT needs a compiler. They are the
same, bit for bit, wherever they are built; CI compares them. Changed sources are compiled once, into a cache under a
hash of everything that the program depends on.
"""

import ast
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal, get_args

from calibration import __version__
from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.files import able_to, locked, read_given, write_whole
from calibration.base.places import CACHE, COLLECTION, SHARE

Target = Literal["x86_64", "aarch64", "ppc64le", "riscv64"]
TARGETS: Final[tuple[Target, ...]] = get_args(Target)

SOURCES_DIRECTORY: Final = Path(__file__).parent / "probe"
BUILT_DIRECTORY: Final = SOURCES_DIRECTORY / "built"
CACHE_DIRECTORY: Final = CACHE

PROGRAM: Final = "sutprobe"
SYMBOLS: Final = "sutprobe.symbols"
RECORD: Final = "build.json"
"""Files of a build: the program, the same with its symbols, and what it was made from."""

RECORD_BYTES: Final = 1 << 20

COMMON_FLAGS: Final = (
    "-std=gnu11",
    "-O2",
    "-g0",
    "-static",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-D_GNU_SOURCE",
    "-fno-sanitize=undefined",  # the compiler wheel turns it on by default; the sanitised build is a test of its own
    "-fno-strict-aliasing",  # buffers are looked at as links, words and vectors
)
"""Flags of every build. ``-O2`` and nothing machine-specific: performance-critical code is explicit."""

BASELINE: Final[dict[Target, str]] = {
    "x86_64": "-mcpu=x86_64",
    "aarch64": "-mcpu=generic",
    "ppc64le": "-mcpu=pwr8",
    "riscv64": "-mcpu=baseline_rv64",
}
"""The oldest supported processor; wider vectors are compiled per function and chosen at run time."""

TRIPLE: Final[dict[Target, str]] = {
    **{target: f"{target}-linux-musl" for target in TARGETS},
    "ppc64le": "powerpc64le-linux-musl",
}
"""The compiler's name of each target."""


@dataclass(frozen=True)
class BuiltProbe:
    """One built ``sutprobe``: path, hash, and how it was made."""

    path: Path
    sha256: str
    target: Target
    version: str
    compiler: str
    flags: tuple[str, ...]
    source_sha256: str


def sources(directory: Path = SOURCES_DIRECTORY) -> tuple[Path, ...]:
    """List the C files to compile, sorted, relative to ``directory``; all architectures, for every target."""
    return tuple(sorted(path.relative_to(directory) for path in directory.rglob("*.c")))


def source_sha256(directory: Path = SOURCES_DIRECTORY) -> str:
    """Hash names and contents of all C files and headers, in a fixed order."""
    digest = hashlib.sha256()
    for path in sorted((*directory.rglob("*.c"), *directory.rglob("*.h"))):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(directory).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _environment() -> dict[str, str]:
    zig_cache = str(CACHE_DIRECTORY / "zig")
    return {**os.environ, "ZIG_GLOBAL_CACHE_DIR": zig_cache, "ZIG_LOCAL_CACHE_DIR": zig_cache}


def compiler_command() -> list[str]:
    """Return the command of the pinned C compiler."""
    return [sys.executable, "-m", "ziglang", "cc"]


def compiler_version() -> str:
    """Return the compiler's version, that of its wheel.

    Raises:
        EnvironmentLacksError: The wheel is not installed.

    """
    try:
        return f"zig {version('ziglang')}"
    except PackageNotFoundError as error:
        raise EnvironmentLacksError(
            f"{BUILT_DIRECTORY} has no sutprobe of these sources, and the ziglang wheel, which compiles them, is not "
            "installed; 'bootstrap.py environment .venv-test' makes an environment with it"
        ) from error


def _run(command: list[str], directory: Path | None = None) -> str:
    done = subprocess.run(command, cwd=directory, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentLacksError(
            f"'{' '.join(command[:4])} ...' failed with exit code {done.returncode}:\n{done.stderr.strip()}"
        )
    return done.stdout


def subcommands(directory: Path = SOURCES_DIRECTORY) -> list[str]:
    """Return the names of the subcommands that the sources define, sorted."""
    texts = ((directory / path).read_text(encoding="utf-8") for path in sources(directory))
    return sorted(name for text in texts for name in re.findall(r"^SUBCOMMAND\((\w+)\) = ", text, re.MULTILINE))


def build_info(target: str, compiler: str, flags: str, source: str, directory: Path = SOURCES_DIRECTORY) -> str:
    """Return the C source with the build information, which differs between builds, and the table of subcommands."""
    values = ", ".join(json.dumps(value) for value in (__version__, target, compiler, flags, source))
    names = subcommands(directory)
    entries = "".join(f"&{name}_subcommand, " for name in names)
    return "\n".join(
        (
            '#include "subcommand.h"',
            f"const struct build_info build_info = {{{values}}};",
            *(f"extern const struct subcommand {name}_subcommand;" for name in names),
            f"const struct subcommand *const subcommands[] = {{{entries}NULL}};",
            "",
        )
    )


def compile_to(output: Path, target: Target, directory: Path = SOURCES_DIRECTORY) -> None:
    """Compile all sources into ``output`` for ``target``, with symbols.

    Raises:
        EnvironmentLacksError: The compiler failed, with its output.

    """
    triple, flags = TRIPLE[target], (*COMMON_FLAGS, BASELINE[target])
    with tempfile.TemporaryDirectory() as temporary:
        info = Path(temporary) / "build_info.c"
        info.write_text(
            build_info(triple, compiler_version(), " ".join(flags), source_sha256(directory), directory),
            encoding="utf-8",
        )
        files = [*(path.as_posix() for path in sources(directory)), str(info)]
        _run(
            [*compiler_command(), "-target", triple, *flags, "-I.", "-o", str(output), *files, "-lm"],
            directory,
        )


PT_LOAD: Final = 1
"""The kind of an ELF segment that is loaded."""


def strip(image: bytes) -> bytes:
    """Return a static 64-bit ELF program without what follows its segments: sections and symbols, no use to a SUT."""
    start, size, count = *struct.unpack_from("<Q", image, 32), *struct.unpack_from("<HH", image, 54)
    headers = [start + number * size for number in range(count)]
    segments = {at: struct.unpack_from("<I4xQ16xQ", image, at) for at in headers}
    end = max(offset + length for kind, offset, length in segments.values() if kind == PT_LOAD)
    stripped = bytearray(image[:end])
    for at, (_, offset, length) in segments.items():
        if offset + length > end:  # the attributes of RISC-V lie behind the symbols, and nothing loads them
            stripped[at : at + size] = bytes(size)  # an unused entry; its offset differs between builders
    struct.pack_into("<Q", stripped, 40, 0)
    struct.pack_into("<HHH", stripped, 58, 0, 0, 0)
    return bytes(stripped)


def build(target: Target) -> BuiltProbe:
    """Return ``sutprobe`` for ``target``: the one beside the sources if it is theirs, else ``compiled``.

    Raises:
        EnvironmentLacksError: The sources were changed, and there is no compiler, or it failed.
        InputError: The program is damaged.

    """
    if (BUILT_DIRECTORY / target).exists():
        probe = prebuilt(BUILT_DIRECTORY, target)
        if (probe.source_sha256, probe.version) == (source_sha256(), __version__):
            return probe
    return compiled(target)


def compiled(target: Target, cache_directory: Path | None = None) -> BuiltProbe:
    """Return ``sutprobe`` for ``target``, compiled unless the cache has it.

    The cache is ``<checkout>/.cache/probe/<target>/<key>/`` with the three files of a build; the key hashes the
    sources, the compiler's version, the flags and this file. A cached binary with a wrong hash is rebuilt.

    Raises:
        EnvironmentLacksError: There is no compiler, or it failed.

    """
    root = (cache_directory or CACHE_DIRECTORY) / "probe" / target
    flags = (*COMMON_FLAGS, BASELINE[target])
    source = source_sha256()
    compiler = compiler_version()
    recipe = Path(__file__).read_text(encoding="utf-8")
    key = hashlib.sha256(json.dumps([source, compiler, flags, __version__, recipe]).encode()).hexdigest()[:32]
    final = root / key
    with locked(root / f"{key}.lock"):  # the second of two simultaneous builds uses the first's
        with suppress(InputError):
            return _recorded(final, target)
        shutil.rmtree(final, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".building-") as name:
            work = Path(name) / "build"
            work.mkdir()
            compile_to(work / SYMBOLS, target)
            if source_sha256() != source:
                raise EnvironmentLacksError("the sources changed while they were compiled; build again")
            program = strip((work / SYMBOLS).read_bytes())
            (work / PROGRAM).write_bytes(program)
            (work / PROGRAM).chmod(0o755)
            record = {
                "path": PROGRAM,
                "sha256": hashlib.sha256(program).hexdigest(),
                "target": target,
                "version": __version__,
                "compiler": compiler,
                "flags": flags,
                "source_sha256": source,
            }
            (work / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            work.rename(final)
        return _recorded(final, target)


def build_all(targets: Iterable[Target] = TARGETS) -> list[BuiltProbe]:
    """Return ``sutprobe`` for all ``targets``, built at the same time; errors are those of ``build``."""
    with ThreadPoolExecutor() as builders:
        return list(builders.map(build, targets))


def prebuilt(directory: Path, target: Target) -> BuiltProbe:
    """Return the sutprobe for ``target`` that was built elsewhere: ``<directory>/<target>/``, as in the cache.

    For the programs of a checkout or a wheel, and for builds that a lab has approved. The record says what it was made
    from, and the run document repeats it.

    Raises:
        InputError: A file is missing, the record is invalid, or the hash differs.

    """
    return _recorded(directory / target, target)


def _recorded(place: Path, target: Target) -> BuiltProbe:
    """Return the sutprobe in *place*, the three files of a build. Raises ``InputError`` like ``prebuilt``."""
    try:
        recorded = json.loads(read_given(place / RECORD, RECORD_BYTES))
        found = hashlib.sha256((place / PROGRAM).read_bytes()).hexdigest()
    except (InputError, OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"no prebuilt sutprobe for {target}: {error}; put {PROGRAM} and {RECORD} into {place}"
        ) from error
    texts = ("sha256", "target", "version", "compiler", "source_sha256")
    if (
        not isinstance(recorded, dict)
        or any(not isinstance(recorded.get(name), str) for name in texts)
        or not isinstance(recorded.get("flags"), list)
    ):
        raise InputError(f"{place / RECORD} lacks {', '.join(texts)} or a list of flags; build sutprobe again")
    for name, value in (("sha256", found), ("target", target)):
        if recorded[name] != value:
            raise InputError(
                f"{place / PROGRAM} has the {name} {value}, {place / RECORD} says {recorded[name]}; "
                "copy both from one build"
            )
    return BuiltProbe(
        **{name: recorded[name] for name in texts},
        path=place / PROGRAM,
        flags=tuple(map(str, recorded["flags"])),
    )


def collection(directory: Path) -> Path:
    """Build the Ansible collection into *directory*, and return the path of the tarball.

    Raises:
        EnvironmentLacksError: ansible-galaxy failed, with its output, or *directory* cannot be written.

    """
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary) / "collection"
        skipped = shutil.ignore_patterns("__pycache__", "collections")
        shutil.copytree(COLLECTION, staged, ignore=skipped)  # in a checkout it has links
        shutil.copytree(SHARE / "playbooks", staged / "playbooks", ignore=skipped)
        _describe(staged)
        output = _run(
            [
                sys.executable,
                "-m",
                "ansible",
                "galaxy",
                "collection",
                "build",
                "--output-path",
                temporary,
            ],
            staged,
        )
        made = Path(output.rpartition(" at ")[2].strip())
        with able_to(f"write to {directory}"):
            directory.mkdir(parents=True, exist_ok=True)
            write_whole(directory / made.name, made.read_bytes())
    return directory.absolute() / made.name


STUB: Final = '''# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
{}"""

EXAMPLES = r"""
{}"""
'''
"""A module beside an action: there Ansible looks for an action's documentation."""


def _describe(staged: Path) -> None:
    """Add to a collection what Galaxy asks of it: a page for each role, a documented module for each action.

    All is taken from the argument specifications of the roles and the docstrings of the actions.
    """
    import yaml  # noqa: PLC0415 - a build of sutprobe has only the standard library

    actions: dict[str, list[str]] = {path.stem: [] for path in (staged / "plugins" / "action").glob("*.py")}
    for role in sorted((staged / "roles").iterdir()):
        name = f"calibration.harness.{role.name}"
        meta = yaml.safe_load((role / "meta" / "main.yml").read_text(encoding="utf-8"))
        if (specs := role / "meta" / "argument_specs.yml").exists():
            main = yaml.safe_load(specs.read_text(encoding="utf-8"))["argument_specs"]["main"]
            meta["galaxy_info"] = {"description": main["short_description"], "standalone": False}
            (role / "meta" / "main.yml").write_text(yaml.safe_dump(meta), encoding="utf-8")
        page = f"# {name}\n\n{meta['galaxy_info']['description']}. Variables: `ansible-doc -t role {name}`\n"
        (role / "README.md").write_text(page, encoding="utf-8")
        tasks = "".join(path.read_text(encoding="utf-8") for path in role.glob("tasks/*.yml"))
        for action in sorted(set(re.findall(r"^  calibration\.harness\.(\w+):", tasks, re.MULTILINE))):
            actions[action].append(name)
    (staged / "plugins" / "modules").mkdir()
    for action, roles in actions.items():
        source = (staged / "plugins" / "action" / f"{action}.py").read_text(encoding="utf-8")
        docstring = (ast.get_docstring(ast.parse(source)) or action).replace("``", "`")
        sentences = [paragraph.replace("\n", " ") for paragraph in docstring.split("\n\n")]
        documentation = {
            "module": action,
            "short_description": sentences[0].rstrip("."),
            "description": [
                *sentences,
                f"An action of {' and '.join(roles)}, which gives it its variables as arguments.",
            ],
            "author": ["The calibration harness contributors (!UNKNOWN)"],
        }
        examples = [{"ansible.builtin.import_role": {"name": role}} for role in roles]
        stub = STUB.format(*(yaml.safe_dump(item, sort_keys=False) for item in (documentation, examples)))
        (staged / "plugins" / "modules" / f"{action}.py").write_text(stub, encoding="utf-8")
