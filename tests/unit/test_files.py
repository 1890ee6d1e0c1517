# SPDX-License-Identifier: Apache-2.0
"""Only regular files are opened, of bounded size and without following links."""

import os
import sys
from pathlib import Path

import pytest

from calibration.errors import InputError
from calibration.files import read_regular

LIMIT = 64


def link(path: Path) -> None:
    target = path.with_name("outside")
    target.write_text("secret")
    path.symlink_to(target)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        path.symlink_to("/dev/zero")


PLANTED = {
    "link": (link, "a symbolic link"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "a symbolic link"),
    "FIFO": (os.mkfifo, "not a regular file"),
    "device": (device, "not a regular file|a symbolic link"),
    "directory": (Path.mkdir, "not a regular file"),
    "sparse": (sparse, "larger than 64 bytes"),
    "large": (lambda path: path.write_bytes(bytes(LIMIT + 1)), "larger than 64 bytes"),
}


@pytest.fixture
def opened():
    """Return the paths that this process opens during a test."""
    seen: list[str] = []
    active = [True]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if active and event == "open" and not int(arguments[2] or 0) & os.O_PATH:
            seen.append(str(arguments[0]))

    sys.addaudithook(hook)
    yield seen
    active.clear()


@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_no_small_regular_file_is_refused(tmp_path, opened, kind):
    plant, reason = PLANTED[kind]
    path = tmp_path / "file"
    plant(path)
    opened.clear()
    with pytest.raises(InputError, match=rf"^{path}: ({reason})"):
        read_regular(path, LIMIT)
    assert bool(opened) == (kind in {"large", "sparse"})


def test_a_regular_file_is_read_up_to_the_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(LIMIT))
    assert read_regular(path, LIMIT) == bytes(LIMIT)


def test_a_file_without_a_size_is_read_up_to_the_limit():
    with pytest.raises(InputError, match="larger than 64 bytes"):
        read_regular(Path("/proc/cpuinfo"), LIMIT)


def test_a_missing_file_is_told_from_a_refused_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "file", LIMIT)


def test_links_are_followed_above_the_directory_and_refused_below(tmp_path):
    real = tmp_path / "data"
    (real / "testbed").mkdir(parents=True)
    (real / "testbed" / "file").write_text("content")
    results = tmp_path / "results"
    results.symlink_to(real)
    assert read_regular(results / "testbed" / "file", LIMIT, below=results) == b"content"
    (real / "other").symlink_to(real / "testbed")
    with pytest.raises(InputError, match="other is a symbolic link or not a directory"):
        read_regular(results / "other" / "file", LIMIT, below=results)


@pytest.mark.parametrize("name", ["../file", "/etc/hostname", "sut/../../file"])
def test_a_name_that_leaves_the_directory_is_refused(tmp_path, name):
    (tmp_path / "file").write_text("outside")
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(InputError, match="not below"):
        read_regular(inside / name, LIMIT, below=inside)


def test_no_descriptor_is_left_open(tmp_path):
    link(tmp_path / "file")
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with pytest.raises(InputError):
            read_regular(tmp_path / "file", LIMIT)
        with pytest.raises(InputError):
            read_regular(tmp_path / "file" / "below", LIMIT, below=tmp_path)
        read_regular(tmp_path / "outside", LIMIT)
    assert set(Path("/proc/self/fd").iterdir()) == before
