# SPDX-License-Identifier: Apache-2.0
"""Races for real: files that are swapped for links while they are opened.

A swap is one system call that exchanges two names, so that every moment has either the file or the link.
"""

import contextlib
import ctypes
import errno
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from calibration.base import files as results
from calibration.base.errors import InputError
from calibration.runner import files
from calibration.runner.directory import Directory
from calibration.runner.files import Refused
from tests.planting import Witness

pytestmark = pytest.mark.timeout(300)

any_tries = pytest.mark.parametrize("tries", [300, pytest.param(6000, marks=pytest.mark.thorough)])

AT_FDCWD, RENAME_EXCHANGE = -100, 2

fork = multiprocessing.get_context("fork")


def exchange(first: Path, second: Path) -> None:
    """Exchange two names for ever."""
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    names = bytes(first), bytes(second)
    while rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0 or ctypes.get_errno() == errno.ENOENT:
        pass
    os._exit(ctypes.get_errno())


@contextmanager
def exchanging(first: Path, second: Path) -> Iterator[None]:
    """Have another process exchange two names while the block runs."""
    process = fork.Process(target=exchange, args=(first, second))
    process.start()
    try:
        yield
        assert process.is_alive(), f"expected exchanges to the end, found {os.strerror(process.exitcode or 0)}"
    finally:
        process.kill()
        process.join()


def never_followed(first: Path, outside: Path, operation: Callable[[], bool], tries: int) -> None:
    """Do *operation* at least *tries* times while *first* is a link to *outside* half of the time."""
    link = first.with_name(".link")
    link.symlink_to(outside)
    content = outside.read_bytes()
    outcomes = {True: 0, False: 0}
    with exchanging(first, link), Witness(outside) as witness:
        while sum(outcomes.values()) < tries or not all(outcomes.values()):
            try:
                done = operation()
            except (Refused, OSError, InputError):
                done = False
            outcomes[done] += 1
            if not outcomes[True] % 100:
                assert witness.opened() == []
        assert witness.opened() == []
    assert outside.read_bytes() == content


@any_tries
def test_a_racing_link_to_a_directory_is_not_removed(tmp_path: Path, tries: int) -> None:
    precious, fresh = tmp_path / "precious", tmp_path / "fresh"
    precious.mkdir(mode=0o700)
    (precious / "kept").touch()
    path, link = (tmp_path / f"calibration-run1-{name}-0123abcd" for name in ("sut1", "link"))
    link.symlink_to(precious)
    outcomes = {True: 0, False: 0}
    with exchanging(path, link):
        while sum(outcomes.values()) < tries // 8 or not all(outcomes.values()):  # it costs more than to read
            fresh.mkdir(mode=0o700, exist_ok=True)
            (fresh / "sutprobe").touch()
            for name in (path, link):
                with contextlib.suppress(OSError):  # the name that the link has now
                    fresh.rename(name)
                    break
            try:
                with Directory(str(path)) as directory:
                    directory.remove()
                outcomes[True] += 1
            except (Refused, OSError):
                outcomes[False] += 1
    assert [path.name for path in precious.iterdir()] == ["kept"]


def append(path: Path) -> bool:
    with results.open_regular(path, "ab", create=True) as stream:
        stream.write(b"more")
    return True


OPERATIONS: dict[str, Callable[[Path], bool]] = {
    "on a SUT": lambda path: files.read_text(str(path), 100) == "ours",
    "results": lambda path: results.read_regular(path, 100) == b"ours",
    "appended to": append,
}


@any_tries
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_racing_link_is_not_followed(tmp_path: Path, operation: str, tries: int) -> None:
    path, outside = tmp_path / "file", tmp_path / "outside"
    path.write_text("ours")
    outside.write_text("secret")
    never_followed(path, outside, lambda: OPERATIONS[operation](path), tries)


@any_tries
def test_a_racing_link_to_results_is_not_followed(tmp_path: Path, tries: int) -> None:
    inside, elsewhere = tmp_path / "results" / "sut1", tmp_path / "elsewhere"
    for folder, content in ((inside, "ours"), (elsewhere, "secret")):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(content)
    link = tmp_path / "results" / "link"
    link.symlink_to(elsewhere)
    outcomes = {b"ours": 0, None: 0}
    with exchanging(inside, link), Witness(elsewhere / "run.json") as witness:
        while sum(outcomes.values()) < tries or not all(outcomes.values()):
            try:
                found = results.read_regular(inside / "run.json", 100, below=tmp_path / "results")
            except InputError:
                outcomes[None] += 1
            else:
                outcomes[found] += 1  # KeyError: what another user has elsewhere
        assert witness.opened() == []
