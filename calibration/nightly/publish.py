# SPDX-License-Identifier: Apache-2.0
"""Publish the site and the judgement of the night atomically, where a web server serves them.

The destination has ``versions/<version>/``, each an immutable copy, and ``current``, a symbolic link to one of them,
which the server serves. A version is named by a hash of its content. ``<version>.files`` lists the files published in
it: nothing else is ever removed.
"""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.files import able_to, locked, read_regular, sync_all, write_whole

CURRENT: Final = "current"
VERSIONS: Final = "versions"
NIGHT: Final = "night"
"""Folder of a version with the judgement of the night."""

_LIST: Final = ".files"
_PARTIAL: Final = ".partial"

MAX_LIST_BYTES: Final = 64 * 1024 * 1024
"""Limit for reading a version's file list: 100 SUTs add 100 KB per night kept."""


class Published(NamedTuple):
    """Where it is served from, and whether the version changed."""

    current: Path
    changed: bool


def publish(site: Path, night: Path, destination: Path, keep: int) -> Published:
    """Publish *site*, with *night* as its folder ``night/``, below *destination*; keep the newest *keep* versions.

    A published version is not written again. Hidden files and symbolic links are skipped. Raises ``InputError`` if
    there is no site, *keep* is below 1 or one directory is inside another, ``EnvironmentLacksError`` if *destination*
    cannot be written or something there was not published by this function.
    """
    if keep < 1:
        raise InputError(f"publish_keep is {keep}; at least 1 version must be kept")
    if not (site / "index.html").is_file():
        raise InputError(f"no index.html in {site}; set report_site to true")
    _check_apart(site, night, destination)
    sources = {**_files(site, ""), **_files(night, f"{NIGHT}/")}
    version = _version(sources)
    versions = destination / VERSIONS
    with (
        able_to(
            f"publish the site to {destination}",
            ". Free some space, or set publish_dir to a directory that can be written",
        ),
        locked(versions / ".lock"),
    ):
        _check_ours(destination, version)
        if not (versions / version).is_dir():
            _copy(sources, versions, version)
        changed = _switch(destination, version)
        _prune(versions, version, keep)
    return Published(destination / CURRENT, changed)


def _check_apart(site: Path, night: Path, destination: Path) -> None:
    there = destination.resolve()
    for path in (site.resolve(), night.resolve()):
        if there.is_relative_to(path) or path.is_relative_to(there):
            raise InputError(f"{there} overlaps {path}; set publish_dir to a separate directory")


def _files(folder: Path, prefix: str) -> dict[str, Path]:
    """Return the files below *folder* by name with *prefix*; empty if there is no folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in name.parts):
            found[f"{prefix}{name.as_posix()}"] = path
    return found


def _version(sources: dict[str, Path]) -> str:
    hashed = hashlib.sha256()
    for name, path in sorted(sources.items()):
        hashed.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return hashed.hexdigest()[:16]


def _check_ours(destination: Path, version: str) -> None:
    """Raise ``EnvironmentLacksError`` if files of others are in the way."""
    current, folder = destination / CURRENT, destination / VERSIONS / version
    if os.path.lexists(current) and not (current.is_symlink() and current.readlink().parts[:-1] == (VERSIONS,)):
        raise EnvironmentLacksError(f"{current} is not a link to a published version; move it away")
    if os.path.lexists(folder) and not _list_of(folder).is_file():
        raise EnvironmentLacksError(f"{folder} has no list of published files; move it away")


def _list_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LIST)


def _partial_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _PARTIAL)


def _copy(sources: dict[str, Path], versions: Path, version: str) -> None:
    """Copy *sources*; the version appears when complete, readable for everybody."""
    folder = versions / version
    partial = _partial_of(folder)
    if os.path.lexists(partial):
        _remove(folder)  # left by an interruption
    write_whole(_list_of(folder), "".join(f"{name}\n" for name in sources).encode())
    partial.mkdir()
    partial.chmod(0o755)
    for name, source in sources.items():
        target = partial / name
        for parent in reversed(target.relative_to(partial).parents[:-1]):
            (partial / parent).mkdir(exist_ok=True)
            (partial / parent).chmod(0o755)
        shutil.copyfile(source, target)
        target.chmod(0o644)
    sync_all(partial)
    partial.rename(folder)


def _switch(destination: Path, version: str) -> bool:
    """Point the link to *version*, and return whether it changed."""
    current, wanted = destination / CURRENT, Path(VERSIONS, version)
    if current.is_symlink() and current.readlink() == wanted:
        return False
    os.utime(_list_of(destination / wanted))  # the age is that of the last publication
    pending = destination / f".{CURRENT}.{os.getpid()}"
    pending.unlink(missing_ok=True)
    pending.symlink_to(wanted)
    pending.replace(current)
    return True


def _prune(versions: Path, version: str, keep: int) -> None:
    """Remove all but the newest versions, and leftovers of interrupted publications."""
    folders = [path.with_name(path.name.removesuffix(_LIST)) for path in versions.glob(f"*{_LIST}")]
    whole = [folder for folder in folders if folder.is_dir() and folder.name != version]
    newest = sorted(whole, key=lambda item: (_list_of(item).stat().st_mtime_ns, item.name), reverse=True)
    kept = {version, *(item.name for item in newest[: keep - 1])}
    for folder in folders:
        if folder.name not in kept:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove the published files of a version; keep files of others, and then the folder too."""
    names = read_regular(_list_of(folder), MAX_LIST_BYTES).decode("utf-8", "surrogateescape").splitlines()
    for place in (folder, _partial_of(folder)):
        if place.is_symlink():
            continue
        root = place.resolve()
        for name in names:
            if (place / name).parent.resolve().is_relative_to(root):
                (place / name).unlink(missing_ok=True)
        parents = {parent for name in names for parent in Path(name).parents}
        for parent in sorted(parents, key=lambda parent: len(parent.parts), reverse=True):
            with suppress(OSError):  # not empty, or missing
                (place / parent).rmdir()
    _list_of(folder).unlink()
