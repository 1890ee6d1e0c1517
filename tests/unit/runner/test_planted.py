# SPDX-License-Identifier: Apache-2.0
"""What another user of a SUT puts in the place of a run's directory or files is neither opened nor followed."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calibration.runner import client, files, lock
from calibration.runner.directory import PROGRAM, Directory
from calibration.runner.files import CHANGED, Refused
from tests.planting import KINDS, Witness, opens, plant, swap_after, watched
from tests.suts import EVERYTHING, NO_TURBO, Run, Sut, gone, simulated_sut, step
from tests.tools import require_root

pytestmark = pytest.mark.timeout(300)

OTHER = 65534

NAME = "calibration-run1-sut1-0123abcd"

OPERATIONS: dict[str, Callable[[Sut, str], object]] = {
    "begin": lambda _, path: client.begin(path, io.BytesIO()),
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
    path.mkdir()
    path.chmod(CHANGED)
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


RUN = "20261121T032712Z-3f2a"


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
def test_an_ordinary_user_is_refused_while_roots_settings_are_changed(killed: bool) -> None:
    require_root()
    # Not below pytest's directory, which is closed to others.
    with tempfile.TemporaryDirectory() as directory, simulated_sut(Path(directory)) as sut:
        Path(directory).chmod(0o755)
        sut.base.chmod(0o1777)
        sut.python = "/usr/bin/python3"
        run = sut.start(RUN, settings={"turbo": "off"})
        if killed:
            run.kill(*run.processes()[:2])
        ordinary = {"popen": {"user": OTHER, "group": OTHER, "extra_groups": []}, "lock": f"{sut.lock}-other"}
        with pytest.raises(Refused, match=f"by a run of root in {run.path}, which is running or was killed") as refused:
            sut.start("run2", **ordinary)
        assert refused.value.run_id == RUN
        assert [path.name for path in sut.base.iterdir()] == [run.path.name]
        assert sut.read(NO_TURBO) == "1"
        subprocess.run(["python3", run.path / "runner", "remove", run.path], check=True, stdout=subprocess.DEVNULL)
        assert sut.read(NO_TURBO) == "0"
        sut.start("run2", **ordinary)


@contextlib.contextmanager
def sitting(path: Path, user: int = OTHER) -> Iterator[int]:
    """Have a process of *user* with its working directory at *path*, and the directory open, that ignores SIGTERM."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.chdir(path)
        os.open(path, os.O_RDONLY)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setuid(user)
        os.write(writer, b"x")
        signal.pause()
    os.read(reader, 1)
    yield child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)


ENDS: dict[str, Callable[[Run], object]] = {
    "its end": lambda run: run.begin(step("one")).follow(),
    "cancelled": Run.cancel,
    "the next run": lambda run: (run.kill(*run.processes()[:2]), run.sut.start("run2")),
}


@pytest.mark.parametrize("end", ENDS)
def test_who_sits_in_a_runs_directory_keeps_neither_settings_nor_directory(sut: Sut, end: str) -> None:
    require_root()
    before = sut.settings()
    run = sut.start(settings=EVERYTHING)
    with sitting(run.path) as process:
        ENDS[end](run)
        assert sut.settings() == before
        assert run.remove()["faults"] == []
        assert not run.path.exists()
        assert not gone(process)


def test_who_has_taken_the_name_of_the_lock_does_not_keep_settings_from_being_restored(sut: Sut) -> None:
    before = sut.settings()
    run = sut.start(settings=EVERYTHING)
    run.kill(*run.processes()[:2])
    with lock.take(sut.lock), sut.popen("restore", str(run.path)) as restoring:
        assert restoring.wait(60) == 0
    assert sut.settings() == before


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
            assert found.end_processes() == ([], [])
            found.remove()
            assert other.poll() is None
        finally:
            other.kill()
    assert (precious / NAME / "kept").exists()
    assert list((tmp_path / "aside").iterdir()) == []


def test_programs_of_the_run_are_ended_and_no_others(tmp_path: Path) -> None:
    path, beside = tmp_path / NAME, tmp_path / f"{NAME}x"
    for folder in (path, beside):
        folder.mkdir(mode=0o700)
        shutil.copy("/bin/sleep", folder / "sutprobe")
    inside = path / f"{PROGRAM}x"
    inside.mkdir()
    with contextlib.ExitStack() as stack, Directory(str(path)) as found:

        def start(program: Path, folder: Path) -> "subprocess.Popen[bytes]":
            process = stack.enter_context(subprocess.Popen([program, "600"], cwd=folder))
            stack.callback(process.kill)
            return process

        sleep = Path("/bin/sleep")
        ours = [start(path / "sutprobe", Path("/")), start(sleep, inside)]
        administrator = start(sleep, path)
        others = [start(beside / "sutprobe", beside), administrator]
        assert found.end_processes() == (sorted(process.pid for process in ours), [])
        assert [process.wait() for process in ours] == [-signal.SIGTERM] * 2
        assert [process.poll() for process in others] == [None, None]
