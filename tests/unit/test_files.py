# SPDX-License-Identifier: Apache-2.0
"""Only regular files of bounded size are opened, without following links; new files have unpredictable names."""

import os
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.base.files import open_regular, read_regular, refuse_links, replacing, write_whole
from calibration.runner.directory import Directory
from tests.planting import KINDS, Witness, opens, plant, swap_after, watched

LIMIT = 64

REASONS = {
    **dict.fromkeys(("link", "link to a device", "dangling link"), "a symbolic link; remove it"),
    **dict.fromkeys(("FIFO", "device", "directory"), "not a regular file; remove it"),
    **dict.fromkeys(("sparse", "large"), "larger than 64 bytes"),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.write_text("secret")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_large_and_special_files_are_not_read(tmp_path: Path, outside: Path, kind: str) -> None:
    path = tmp_path / "file"
    plant(kind, path, outside)
    with watched(kind, path, outside) as witness:
        with pytest.raises(InputError, match=rf"^{path}: {REASONS[kind]}"):
            read_regular(path, LIMIT)
        assert witness.opened() == []


@pytest.mark.parametrize("mode", ["r+b", "ab"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"sparse", "large"}])
def test_special_files_are_not_written(tmp_path: Path, outside: Path, kind: str, mode: str) -> None:
    path = tmp_path / "file"
    plant(kind, path, outside)
    with watched(kind, path, outside) as witness:
        with pytest.raises(InputError, match=REASONS[kind]):
            open_regular(path, mode, create=True)  # type: ignore[arg-type]
        assert witness.opened() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_swapped_after_the_check_is_not_opened(
    tmp_path: Path, outside: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("ours")
    planted = tmp_path / "planted"
    plant(kind, planted, outside)

    def swap() -> None:
        path.unlink()
        planted.rename(path)

    swap_after(monkeypatch, "fstat", swap)
    with Witness(outside) as witness, opens() as opened:
        assert read_regular(path, LIMIT) == b"ours"
        assert witness.opened() == []
    assert [name for name in opened if not name.startswith("/proc/self/fd/")] == []


def test_a_regular_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(LIMIT))
    assert read_regular(path, LIMIT) == bytes(LIMIT)


def test_a_file_of_unknown_size_is_read_up_to_the_limit() -> None:
    with pytest.raises(InputError, match="larger than 64 bytes"):
        read_regular(Path("/proc/cpuinfo"), LIMIT)


def test_a_file_without_a_size_is_read_whole() -> None:
    path = Path("/proc/sys/kernel/osrelease")
    assert path.stat().st_size == 0
    assert read_regular(path, LIMIT) == path.read_bytes()


def test_missing_file_is_distinguished_from_a_refused_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "file", LIMIT)


def test_links_are_followed_above_the_directory_and_refused_below(tmp_path: Path) -> None:
    real = tmp_path / "data"
    (real / "testbed").mkdir(parents=True)
    (real / "testbed" / "file").write_text("content")
    results = tmp_path / "results"
    results.symlink_to(real)
    assert read_regular(results / "testbed" / "file", LIMIT, below=results) == b"content"
    refuse_links(results / "testbed" / "file", below=results)
    (real / "other").symlink_to(real / "testbed")
    with pytest.raises(InputError, match="other is a symbolic link or not a directory"):
        read_regular(results / "other" / "file", LIMIT, below=results)
    with pytest.raises(InputError, match="other: a symbolic link; remove it"):
        refuse_links(results / "other" / "file", below=results)


@pytest.mark.parametrize("name", ["../file", "/etc/hostname", "sut/../../file"])
def test_a_path_outside_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("outside")
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(InputError, match="not below"):
        read_regular(inside / name, LIMIT, below=inside)


def test_descriptors_are_closed(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "file").symlink_to(outside)
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with pytest.raises(InputError):
            read_regular(tmp_path / "file", LIMIT)
        with pytest.raises(InputError):
            read_regular(tmp_path / "file" / "below", LIMIT, below=tmp_path)
        read_regular(outside, LIMIT)
    assert set(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "directory"])
def test_file_replaces_planted_entry(tmp_path: Path, outside: Path, kind: str) -> None:
    path = tmp_path / "file"
    plant(kind, path, outside)
    with watched(kind, path, outside) as witness:
        write_whole(path, b"content")
        assert witness.opened() == []
    assert path.is_file()
    assert not path.is_symlink()
    assert path.read_bytes() == b"content"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "outside"]


def test_pending_file_is_removed_after_a_failure(tmp_path: Path, file_size_limit: Any) -> None:
    file_size_limit(4)
    with pytest.raises(OSError, match="File too large"):
        write_whole(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []


def test_appending_keeps_the_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"one", b"two"):
        with open_regular(path, "ab", create=True) as file:
            file.write(content)
    assert path.read_bytes() == b"onetwo"


# On disk


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """What files had, and the names in directories, when they were synced, by inode."""
    fsync, found = os.fsync, {}

    def syncing(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        found[path.stat().st_ino] = (
            sorted(entry.name for entry in path.iterdir()) if path.is_dir() else path.read_bytes()
        )

    monkeypatch.setattr(os, "fsync", syncing)
    return found


def test_a_file_is_on_disk_before_it_replaces_another(tmp_path: Path, on_disk: dict[int, Any]) -> None:
    path = tmp_path / "run.json"
    write_whole(path, b"one")
    assert on_disk[path.stat().st_ino] == b"one"
    with replacing(path) as written:
        written.write_bytes(b"another")
    assert path.read_bytes() == on_disk[path.stat().st_ino] == b"another"


def test_what_a_run_keeps_on_a_sut_is_on_disk(tmp_path: Path, on_disk: dict[int, Any]) -> None:
    with Directory.create(str(tmp_path), {"run_id": "run1", "sut": "sut1"}) as made:
        folder = Path(made.path)
        made.write_bytes("plan.json", b"{}")
        assert on_disk[(folder / "plan.json").stat().st_ino] == b"{}"
        assert "plan.json" in on_disk[folder.stat().st_ino]
        for number in (1, 2):
            made.record(record="step", number=number)
            records = next(path for path in folder.iterdir() if path.name.startswith("records"))
            assert on_disk[records.stat().st_ino] == records.read_bytes()
