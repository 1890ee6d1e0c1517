# SPDX-License-Identifier: Apache-2.0
"""sutprobe as this machine's compiler builds it with sanitizers: each source once for all tests, workers and runs."""

import fcntl
import hashlib
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from subprocess import run
from typing import Final, Literal, get_args

from calibration.build import CACHE_DIRECTORY, SOURCES_DIRECTORY, build_info, source_sha256, sources
from tests.tools import require

Sanitizer = Literal["address", "thread"]
SANITIZERS: Final[tuple[Sanitizer, ...]] = get_args(Sanitizer)

HOST: Final = Path(__file__).parent / "host"
SELFTEST: Final = Path(__file__).parent / "selftest"
FLAGS: Final = (
    "-std=gnu11",
    "-O0",  # the sanitizers see as much, and the hundreds of bandwidth kernels compile in a tenth of the time
    "-g",
    "-pthread",
    "-D_GNU_SOURCE",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Werror",
)
SANITIZER_FLAGS: Final[dict[Sanitizer, tuple[str, ...]]] = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-fsanitize=thread",),
}
UNSANITIZED: Final = {"streams_avx2", "streams_avx512"}
"""The same loops as streams_sse2.c's, of wider vectors; each would take a minute to compile."""


def _sha256(*contents: str | bytes) -> str:
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content.encode() if isinstance(content, str) else content)
    return digest.hexdigest()[:32]


def link(sanitizer: Sanitizer, program: Path, files: Sequence[Path] = ()) -> Path:
    """Link *program* from C *files* and, for what they do not define, from sutprobe's own sources; return it.

    What the files include is looked for beside *program* first.
    """
    places = (program.parent, SOURCES_DIRECTORY, HOST, SELFTEST)
    compiler = [require("gcc", "gcc"), *FLAGS, *(f"-I{place}" for place in places)]
    built = [file.with_suffix(".o") if file.stem.startswith("streams_") else file for file in files]
    for file, result in zip(files, built, strict=True):
        if file != result:  # hundreds of loops, which take three times as long with a sanitizer
            run([*compiler, "-c", "-o", result, file], check=True)
    run([*compiler, *SANITIZER_FLAGS[sanitizer], "-o", program, *built, library(sanitizer), "-lm"], check=True)
    return program


def program(sanitizer: Sanitizer, directory: Path | None = None) -> Path:
    """Return sutprobe itself, or the program of the C files of *directory* in front of its own, linked once."""
    path = library(sanitizer).with_suffix("")
    files = sorted(directory.glob("*.c")) if directory else ()
    if directory:
        path = path.with_name(f"{path.name}-{source_sha256(directory)}")
    with path.with_suffix(".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return path if path.exists() else link(sanitizer, path.with_suffix(".new"), files).rename(path)


def library(sanitizer: Sanitizer) -> Path:
    """Return the archive of all sources; only those that changed since the last one are compiled."""
    compiler, flags = require("gcc", "gcc"), (*FLAGS, *SANITIZER_FLAGS[sanitizer], f"-I{SOURCES_DIRECTORY}")
    directory = CACHE_DIRECTORY / "probe" / sanitizer
    directory.mkdir(parents=True, exist_ok=True)
    archive = directory / f"{_sha256(source_sha256(), compiler, *flags)}.a"
    with (directory / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if archive.exists():
            return archive
        info = directory / "build_info.c"
        info.write_text(build_info(sanitizer, sanitizer, sanitizer, sanitizer), encoding="utf-8")
        headers = [path.read_bytes() for path in sorted(SOURCES_DIRECTORY.rglob("*.h"))]

        def compiled(source: Path) -> Path:
            command = [compiler, *(FLAGS if source.stem in UNSANITIZED else flags), "-c", str(source)]
            output = directory / f"{source.stem}-{_sha256(*command, source.read_bytes(), *headers)}.o"
            if not output.exists():
                run([*command, "-o", output.with_suffix(".new")], check=True)
                output.with_suffix(".new").rename(output)
            return output

        with ThreadPool() as pool:
            objects = pool.map(compiled, [info, *(SOURCES_DIRECTORY / path for path in sources())], chunksize=1)
        for old in set(directory.iterdir()) - {*objects, info, directory / "lock"}:
            old.unlink()
        run([require("binutils", "ar"), "rcs", archive.with_suffix(".new"), *objects], check=True)
        return archive.with_suffix(".new").rename(archive)
