# SPDX-License-Identifier: Apache-2.0
"""A night is published atomically, and foreign files are not touched."""

import ctypes
import errno
import fcntl
import os
from pathlib import Path

import pytest

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.files import sync_all
from calibration.nightly.publish import publish

PLACE = "calibration.nightly.publish.sync_all"


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for what others write on this machine."""
    monkeypatch.setattr(PLACE, lambda _: None)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    for name in ("index.html", "calibration/t1/index.html", "_static/style.css"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"first {name}")
    (folder / ".calibration-site").write_text("hidden")
    return folder


@pytest.fixture
def night(tmp_path: Path) -> Path:
    folder = tmp_path / "night"
    folder.mkdir()
    (folder / "judgement.json").write_text("{}")
    return folder


def served(destination: Path) -> set[str]:
    current = destination / "current"
    return {str(path.relative_to(current)) for path in current.rglob("*") if path.is_file()}


SERVED = {"index.html", "calibration/t1/index.html", "_static/style.css", "night/judgement.json"}


def test_site_and_judgement_are_published_world_readable(site: Path, night: Path, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("nobody's")
    (site / "link.html").symlink_to(tmp_path / "private")
    before = os.umask(0o077)
    try:
        published = publish(site, night, tmp_path / "www", keep=2)
    finally:
        os.umask(before)
    assert published == (tmp_path / "www" / "current", True)
    assert served(tmp_path / "www") == SERVED
    version = (tmp_path / "www" / "current").resolve()
    for path in (version, *version.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


def test_a_version_is_on_disk_before_it_appears(
    site: Path, night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: dict[Path, bytes] = {}

    def syncing(directory: Path) -> None:
        sync_all(directory)
        on_disk.update({path.relative_to(directory): path.read_bytes() for path in directory.rglob("*.*")})
        assert [path for path in directory.parent.iterdir() if path.is_dir()] == [directory]

    monkeypatch.setattr(PLACE, syncing)
    current = publish(site, night, tmp_path / "www", keep=2).current.resolve()
    assert on_disk == {path.relative_to(current): path.read_bytes() for path in current.rglob("*.*")}
    assert len(on_disk) == len(SERVED)


def test_a_file_system_that_does_not_write_is_an_error(
    site: Path, night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def syncfs(self, _descriptor: int) -> int:
            ctypes.set_errno(errno.EIO)
            return -1

    monkeypatch.setattr(PLACE, sync_all)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Failing())
    with pytest.raises(EnvironmentLacksError, match=r"cannot publish the site to .*: Input/output error"):
        publish(site, night, tmp_path / "www", keep=2)
    assert not (tmp_path / "www" / "current").exists()


def test_a_published_version_is_not_rewritten(site: Path, night: Path, tmp_path: Path) -> None:
    publish(site, night, tmp_path / "www", keep=2)
    before = {path: path.lstat().st_mtime_ns for path in (tmp_path / "www").rglob("*") if path.name != ".lock"}
    assert not publish(site, night, tmp_path / "www", keep=2).changed
    assert before == {path: path.lstat().st_mtime_ns for path in (tmp_path / "www").rglob("*") if path.name != ".lock"}


def test_only_own_old_versions_are_removed(site: Path, night: Path, tmp_path: Path) -> None:
    www = tmp_path / "www"
    www.mkdir()
    (www / "robots.txt").write_text("others'")
    folders = []
    for number in range(4):
        (site / "index.html").write_text(f"night {number}")
        publish(site, night, www, keep=2)
        folders.append((www / "current").resolve())
        if number == 0:
            (folders[0] / "calibration" / "notes.txt").write_text("others'")
    assert [folder.is_dir() for folder in folders] == [True, False, True, True]
    assert [path.name for path in folders[0].rglob("*") if path.is_file()] == ["notes.txt"]
    assert (www / "robots.txt").read_text() == "others'"
    assert (www / "current" / "index.html").read_text() == "night 3"
    (site / "index.html").write_text("night 2")
    assert publish(site, night, www, keep=2).changed
    assert (www / "current").resolve() == folders[2]
    (site / "index.html").write_text("night 0")
    with pytest.raises(EnvironmentLacksError, match="has no list of published files; move it away"):
        publish(site, night, www, keep=2)
    assert (www / "current").resolve() == folders[2]


def test_a_version_is_as_old_as_its_last_publication(site: Path, night: Path, tmp_path: Path) -> None:
    folders = []
    for number, text in enumerate(("first", "second", "first", "third")):
        (site / "index.html").write_text(text)
        folders.append(publish(site, night, tmp_path / "www", keep=2).current.resolve())
        if number < 2:
            os.utime(folders[-1].with_name(f"{folders[-1].name}.files"), (number, number))
    assert [folder.is_dir() for folder in folders] == [True, False, True, True]


def test_publications_wait_for_each_other(
    site: Path, night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(_: Path) -> None:
        with (tmp_path / "www" / "versions" / ".lock").open("ab") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setattr(PLACE, meanwhile)
    assert publish(site, night, tmp_path / "www", keep=2).changed


def test_a_link_that_a_killed_process_of_this_number_left_is_replaced(site: Path, night: Path, tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    left = tmp_path / "www" / f".current.{os.getpid()}"
    left.symlink_to("versions/0123456789abcdef")
    assert publish(site, night, tmp_path / "www", keep=2).changed
    assert served(tmp_path / "www") == SERVED
    assert not os.path.lexists(left)


def test_foreign_link_in_a_version_is_not_followed(site: Path, night: Path, tmp_path: Path) -> None:
    www, precious = tmp_path / "www", tmp_path / "precious"
    publish(site, night, www, keep=1)
    first = (www / "current").resolve()
    precious.mkdir()
    (precious / "index.html").write_text("keep")
    for path in (first / "calibration" / "t1").iterdir():
        path.unlink()
    (first / "calibration" / "t1").rmdir()
    (first / "calibration" / "t1").symlink_to(precious)
    (site / "index.html").write_text("another")
    publish(site, night, www, keep=1)
    assert (precious / "index.html").read_text() == "keep"
    assert not (first / "index.html").exists()


def test_a_version_that_was_replaced_by_a_link_is_not_followed(site: Path, night: Path, tmp_path: Path) -> None:
    www, elsewhere = tmp_path / "www", tmp_path / "elsewhere"
    publish(site, night, www, keep=1)
    first = (www / "current").resolve()
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    (site / "index.html").write_text("another")
    publish(site, night, www, keep=1)
    assert {str(path.relative_to(elsewhere)) for path in elsewhere.rglob("*") if path.is_file()} == SERVED


def test_leftovers_of_a_killed_publication_are_removed(site: Path, night: Path, tmp_path: Path) -> None:
    www = tmp_path / "www"
    publish(site, night, www, keep=3)
    version = (www / "current").resolve()
    version.with_name("0123456789abcdef.files").write_text("index.html\na/b.html\n")
    partial = version.with_name("0123456789abcdef.partial")
    partial.mkdir()
    (partial / "index.html").write_text("half")
    (site / "index.html").write_text("another")
    publish(site, night, www, keep=3)
    assert sorted(path.name for path in version.parent.glob("0123456789abcdef*")) == []
    assert version.is_dir()


def test_a_killed_publication_is_resumed(site: Path, night: Path, tmp_path: Path) -> None:
    www = tmp_path / "www"
    publish(site, night, www, keep=3)
    version = (www / "current").resolve()
    version.rename(version.with_name(version.name + ".partial"))
    (www / "current").unlink()
    assert publish(site, night, www, keep=3).changed
    assert served(www) == SERVED


def test_foreign_files_are_not_replaced(site: Path, night: Path, tmp_path: Path) -> None:
    www = tmp_path / "www"
    (www / "current").mkdir(parents=True)
    with pytest.raises(EnvironmentLacksError, match="not a link to a published version; move it away"):
        publish(site, night, www, keep=1)
    (www / "current").rmdir()
    (www / "current").symlink_to("/nonexistent")
    with pytest.raises(EnvironmentLacksError, match="not a link to a published version; move it away"):
        publish(site, night, www, keep=1)


@pytest.mark.parametrize("place", ["site", "site/www", "night", "."])
def test_overlapping_directories_are_refused(site: Path, night: Path, tmp_path: Path, place: str) -> None:
    with pytest.raises(InputError, match="set publish_dir"):
        publish(site, night, tmp_path / place, keep=1)


def test_a_missing_site_and_zero_versions_are_refused(site: Path, night: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="publish_keep"):
        publish(site, night, tmp_path / "www", keep=0)
    (site / "index.html").unlink()
    with pytest.raises(InputError, match="set report_site to true"):
        publish(site, night, tmp_path / "www", keep=1)
    assert not (tmp_path / "www").exists()


def test_unwritable_path_is_reported(site: Path, night: Path, tmp_path: Path) -> None:
    (tmp_path / "www").write_text("no directory")
    with pytest.raises(EnvironmentLacksError, match="cannot publish the site"):
        publish(site, night, tmp_path / "www", keep=1)
