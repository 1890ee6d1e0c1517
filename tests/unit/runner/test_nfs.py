# SPDX-License-Identifier: Apache-2.0
"""Runs in a directory on NFS, whose client keeps a file that is open under another name, and its directory."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from calibration.runner.directory import Directory
from calibration.runner.files import Refused
from tests.suts import EVERYTHING, Sut, changed, runners, step, wait_until

pytestmark = pytest.mark.timeout(300)

CLIENT = '''

import glob
import socket


def is_open(path):
    """Return whether a process has *path* open: programs and sockets are."""
    found = os.lstat(path)
    if stat.S_ISSOCK(found.st_mode):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            return asking.connect_ex(path) == 0
    for link in glob.glob("/proc/[0-9]*/fd/*") + glob.glob("/proc/[0-9]*/exe"):
        try:
            if os.path.samestat(os.stat(link), found):
                return True
        except OSError:
            pass
    return False


def unlink(path, *, dir_fd=None, unlink=os.unlink):
    place = path if dir_fd is None else "/proc/self/fd/%d/%s" % (dir_fd, path)
    if not is_open(place):
        unlink(place)
    elif os.path.basename(path).startswith(".nfs"):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
    else:
        os.rename(place, os.path.join(os.path.dirname(place), ".nfs%016x" % os.lstat(place).st_ino))


def rmdir(path, *, dir_fd=None, unlink=os.unlink, rmdir=os.rmdir):
    place = path if dir_fd is None else "/proc/self/fd/%d/%s" % (dir_fd, path)
    for kept in glob.glob(place + "/.nfs*"):
        if not is_open(kept):
            unlink(kept)
    rmdir(place)


os.unlink, os.rmdir = unlink, rmdir
'''


@pytest.fixture
def nfs(sut: Sut) -> Sut:
    """Return a SUT whose runner removes files as on NFS."""
    sut.modules = changed(sut.modules, "files", "import stat\n", "import stat\n" + CLIENT)
    return sut


def killed(sut: Sut, **options: Any) -> Any:
    """Return a killed run that changed settings."""
    run = sut.start(settings=EVERYTHING, **options)
    run.kill(*run.processes()[:2])
    return run


@pytest.mark.parametrize("collected", [True, False])
def test_a_run_leaves_nothing(nfs: Sut, collected: bool) -> None:
    run = nfs.start(keep_s=3600.0 if collected else 0.5).begin(step("one"))
    if collected:
        assert run.follow()[0] == "ended"
        assert run.remove()["faults"] == []
    wait_until(lambda: nfs.left() == [])


def test_a_killed_run_is_restored_and_removed(nfs: Sut) -> None:
    before = nfs.settings()
    run = killed(nfs)
    assert nfs.settings() != before
    assert run.remove()["faults"] == []
    assert (nfs.settings(), nfs.left()) == (before, [])


def test_the_next_run_takes_over_from_a_killed_one_and_removes_it(nfs: Sut) -> None:
    before = nfs.settings()
    old = killed(nfs, keep_s=0.0)
    run = nfs.start("run2", settings=EVERYTHING)
    assert run.answer["taken_over"]["holder"]["run_id"] == "run1"
    assert not old.path.exists()
    assert run.remove()["faults"] == []
    wait_until(lambda: nfs.left() == [])
    assert nfs.settings() == before


def test_what_somebody_reads_is_removed_by_a_later_run(nfs: Sut) -> None:
    run = nfs.start().begin(step("one"))
    assert run.follow()[0] == "ended"
    with (run.path / "records.jsonl").open():
        assert run.remove()["faults"] == []
        wait_until(lambda: runners(nfs) == [])
        assert [path.name[:4] for path in run.path.iterdir()] == [".nfs"]
        os.utime(run.path, (0, 0))
        nfs.start("run2").remove()  # it is not refused
    nfs.start("run3").remove()
    wait_until(lambda: nfs.left() == [])


def test_a_server_that_makes_root_nobody_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lstat = os.lstat
    nobody = os.geteuid() + 1

    def squashed(path: Any, **options: Any) -> os.stat_result:
        state = lstat(path, **options)
        return os.stat_result((*state[:4], nobody, *state[5:])) if stat.S_ISDIR(state.st_mode) else state

    monkeypatch.setattr(os, "lstat", squashed)
    with pytest.raises(Refused, match=rf"belongs to .*{nobody}.*root_squash: set calibration_remote_base"):
        Directory.create(str(tmp_path), {"run_id": "run1", "sut": "sut1"})
    assert list(tmp_path.iterdir()) == []
