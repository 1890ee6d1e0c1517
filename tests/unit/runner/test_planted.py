# SPDX-License-Identifier: Apache-2.0
"""What another user of a SUT puts in the place of a run's directory or files is neither opened nor followed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from calibration.runner import client, files
from calibration.runner.directory import Directory
from calibration.runner.files import Refused
from tests.planting import KINDS, Witness, opens, plant, swap_after, watched
from tests.suts import NO_TURBO, Sut, simulated_sut
from tests.tools import require_root

pytestmark = pytest.mark.timeout(300)

OTHER = 65534

NAME = "calibration-run1-sut1-0123abcd"

OPERATIONS: dict[str, Callable[[Sut, str], object]] = {
    "begin": lambda _, path: client.begin(path, "/dev/null"),
    "watch": lambda _, path: client.watch(path, 0, at_least_s=0, at_most_s=0),
    "cancel": lambda _, path: client.cancel(path),
    "restore": lambda _, path: client.restore(path),
    "open": lambda _, path: Directory(path),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_planted_as_a_runs_directory_is_not_opened(sut: Sut, operation: str) -> None:
    outside = sut.directory / "outside"
    outside.write_text("secret")
    path = sut.base / NAME
    for kind in KINDS:
        plant(kind, path, outside)
        if kind == "directory":
            path.chmod(0o755)
        with watched(kind, path, outside) as witness:
            if operation != "restore" or kind in {"directory", "link to a device"}:
                with contextlib.suppress(OSError, Refused):
                    OPERATIONS[operation](sut, str(path))
            else:
                OPERATIONS[operation](sut, str(path))
            assert client.find(str(sut.base), "run1", "sut1") == []
            assert witness.opened() == [], kind
        assert outside.read_text() == "secret"


def test_a_link_to_a_runs_directory_is_refused(sut: Sut, tmp_path: Path) -> None:
    with Directory.create(str(sut.base), sut.job()) as made:
        link = tmp_path / NAME
        link.symlink_to(made.path)
        for path in (str(link), made.path + "/", os.path.relpath(made.path), made.path + "/..", str(sut.base)):
            with pytest.raises(Refused):
                Directory(path)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o702, 0o1777])
def test_a_directory_that_others_may_write_to_is_not_used(sut: Sut, mode: int) -> None:
    path = sut.base / NAME
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(Refused, match=rf"expected mode 0700 and .* found mode {mode:04o}"):
        Directory(str(path))


def test_another_users_directory_is_neither_used_nor_removed(sut: Sut) -> None:
    require_root()
    path = sut.base / NAME
    path.mkdir(mode=0o701)
    (path / "journal").write_text(json.dumps(["turbo", NO_TURBO, "1", "0"]) + "\n")
    (path / "job.json").write_text(json.dumps(sut.job(boot_id=sut.machine.boot_id())))
    for item in (path, *path.iterdir()):
        os.chown(item, OTHER, OTHER)
    before = sut.settings()
    with pytest.raises(Refused, match="user "):
        Directory(str(path))
    assert client.find(str(sut.base), "run1", "sut1") == []
    assert sut.start("run2").answer["taken_over"] is None
    assert sut.settings() == before
    assert sorted(item.name for item in path.iterdir()) == ["job.json", "journal"]


def test_an_ordinary_user_is_refused_while_roots_settings_are_changed() -> None:
    require_root()
    # Not below pytest's directory, which is closed to others.
    with tempfile.TemporaryDirectory() as directory, simulated_sut(Path(directory)) as sut:
        Path(directory).chmod(0o755)
        sut.base.chmod(0o1777)
        sut.python = "/usr/bin/python3"
        run = sut.start(settings={"turbo": "off"})
        run.kill(*run.processes()[:2])
        ordinary = {"popen": {"user": OTHER, "group": OTHER, "extra_groups": []}}
        command = f"python3 {run.path}/runner remove {run.path}"
        with pytest.raises(Refused, match=f"dead run of root, {run.path}: restore them as root with {command}"):
            sut.start("run2", **ordinary)
        assert [path.name for path in sut.base.iterdir()] == [run.path.name]
        subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL)
        assert sut.read(NO_TURBO) == "0"
        sut.start("run2", **ordinary)


# What is not a run's


@pytest.mark.parametrize(
    "name", ["calibration-data", "calibration-master", "calibration-run1-sut1", "calibration-a-b-0123abcd.orig"]
)
def test_other_directories_of_the_user_are_kept(sut: Sut, name: str) -> None:
    theirs = sut.base / name
    theirs.mkdir(mode=0o700)
    (theirs / "kept").touch()
    with subprocess.Popen(["/bin/sleep", "600"], cwd=theirs) as other:
        try:
            sut.start().remove()
            assert other.poll() is None
        finally:
            other.kill()
    assert (theirs / "kept").exists()


def test_a_directory_that_is_being_made_is_not_removed(sut: Sut) -> None:
    making = sut.base / NAME
    making.mkdir(mode=0o700)
    sut.start().remove()
    assert making.exists()


# Swapped between the look and the use


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_swapped_after_its_check_is_not_opened(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    path = tmp_path / "job.json"
    path.write_text("ours")
    planted = tmp_path / "planted"
    plant(kind, planted, outside)

    def swap() -> None:
        path.unlink()
        planted.rename(path)

    swap_after(monkeypatch, "fstat", swap)
    with Witness(outside) as witness, opens() as opened:
        assert files.read_text(str(path), 100) == "ours"
        assert witness.opened() == []
    assert [name for name in opened if not name.startswith("/proc/self/fd/")] == []


def test_a_swapped_directory_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = tmp_path / "precious"
    (precious / NAME).mkdir(parents=True, mode=0o700)
    (precious / NAME / "kept").touch()
    shutil.copy("/bin/sleep", precious / NAME / "sutprobe")
    way = tmp_path / "way"
    path = way / NAME
    path.mkdir(parents=True, mode=0o700)
    (path / "removed").mkdir()
    (path / "removed" / "link").symlink_to(precious)

    def swap() -> None:
        way.rename(tmp_path / "aside")
        way.symlink_to(precious)

    swap_after(monkeypatch, "fstat", swap)
    with subprocess.Popen([str(precious / NAME / "sutprobe"), "600"]) as other, Directory(str(path)) as found:
        try:
            assert found.end_processes() == []
            found.remove()
            assert other.poll() is None
        finally:
            other.kill()
    assert (precious / NAME / "kept").exists()
    assert list((tmp_path / "aside").iterdir()) == []


def test_processes_that_work_in_the_directory_are_ended_and_no_others(tmp_path: Path) -> None:
    path, beside = tmp_path / NAME, tmp_path / f"{NAME}x"
    for folder in (path, beside):
        folder.mkdir(mode=0o700)
        shutil.copy("/bin/sleep", folder / "sutprobe")
    with contextlib.ExitStack() as stack, Directory(str(path)) as found:
        inside = [[str(path / "sutprobe"), "600"], ["/bin/sleep", "600"]]
        started = [stack.enter_context(subprocess.Popen(argv, cwd=path)) for argv in inside]
        other = stack.enter_context(subprocess.Popen([str(beside / "sutprobe"), "600"], cwd=beside))
        stack.callback(other.kill)
        for process in started:
            stack.callback(process.kill)
        assert sorted(found.end_processes()) == sorted(process.pid for process in started)
        assert [process.wait() for process in started] == [-signal.SIGTERM] * 2
        assert other.poll() is None
