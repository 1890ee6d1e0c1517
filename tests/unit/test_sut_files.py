# SPDX-License-Identifier: Apache-2.0
"""What another user of a SUT puts in the place of a run's files and directories is neither opened nor followed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibration.reservation import NOT_RESERVED, entering
from tests.planting import KINDS, Witness, opens, plant, swap_after, watched
from tests.suts import (
    NO_TURBO,
    PATIENCE_S,
    Sut,
    end_guardian,
    gone,
    guardians,
    load_module,
    run_step,
    sut_files,
    sut_hold,
    wait_until,
)

OTHER = 65534

OLD_BOOT = "11111111-2222-3333-4444-555555555555"

RESERVATION = ("holder.json", "run", "lease", "alive", "journal")
"""Every file of a reservation; a test below compares them with what is opened."""

pytestmark = pytest.mark.timeout(120)

gives_away = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


preflight = load_module("sut_preflight_info")


def abandoned(sut: Sut, boot_id: str | None = None) -> dict[str, Any]:
    """Make a reservation whose guardian is gone; return its holder."""
    directory = sut.base / "calibration-run1-sut1-abcdefgh"
    directory.mkdir(mode=0o700)
    place = Path(sut.path)
    place.mkdir(mode=0o755)
    holder = {"run_id": "run1", "sut": "sut1", "token": "0" * 32, "guardian": os.getpid(), "directory": str(directory)}
    holder["boot_id"] = boot_id or sut.machine.boot_id()
    (place / "holder.json").write_text(json.dumps(holder))
    (place / "run").write_text(f"{holder['token']} {os.getpid()}\n")
    os.mkfifo(place / "lease")
    (place / "alive").touch(0o600)
    (place / "journal").touch(0o600)
    return holder


def give_away(*paths: Path) -> None:
    for path in paths:
        for item in (path, *path.rglob("*")):
            os.chown(item, OTHER, OTHER, follow_symlinks=False)


def clear(sut: Sut) -> None:
    for process in map(int, guardians(sut.base)):
        os.kill(process, signal.SIGKILL)
        wait_until(lambda process=process: gone(process))  # type: ignore[misc]
    for path in sut.base.iterdir():
        shutil.rmtree(path)


OPERATIONS: dict[str, Callable[[Sut, dict[str, Any]], object]] = {
    "preflight": lambda sut, _: preflight.reserved_directory(sut.path),
    "read": lambda sut, _: sut_hold.read_state(sut.path, sut.machine),
    "hold": lambda sut, _: sut.hold("run2"),
    "tune": lambda sut, holder: sut.tune(holder, {"turbo": "off"}),
    "release": lambda sut, _: sut.release(),
    "step": run_step,
}


@pytest.mark.parametrize(
    ("operation", "owner"),
    [
        *((operation, "ours") for operation in OPERATIONS if operation != "step"),  # a shell opens what is our own
        *(pytest.param(operation, "another's", marks=gives_away) for operation in OPERATIONS),
    ],
)
@pytest.mark.parametrize("name", RESERVATION)
def test_files_planted_in_a_reservation_are_not_opened(sut: Sut, name: str, operation: str, owner: str) -> None:
    outside = sut.directory / "outside"
    outside.write_text("secret")
    for kind in KINDS:
        holder = abandoned(sut)
        path = Path(sut.path, name)
        plant(kind, path, outside)
        if owner != "ours":
            give_away(Path(sut.path), Path(holder["directory"]))
        with watched(kind, path, outside) as witness:
            with contextlib.suppress(sut_files.Refused, OSError):
                OPERATIONS[operation](sut, holder)
            if not (name == "lease" and kind == "FIFO"):  # it is one
                assert witness.opened() == [], kind
        assert outside.read_text() == "secret"
        clear(sut)


def test_all_files_opened_by_a_run_are_known(sut: Sut) -> None:
    with opens(resolved=True) as opened:
        holder, _ = sut.hold()
        sut.tune(holder, {"turbo": "off"})
        preflight.reserved_directory(sut.path)
        sut_hold.read_state(sut.path, sut.machine)
        sut.release()
    names = {path for path in opened if not path.startswith("/")}
    assert names - {Path(holder["directory"]).name} == set(RESERVATION) - {"run"}  # which a step's shell alone opens
    below = {Path(path).relative_to(sut.base) for path in opened if Path(path).is_relative_to(sut.base)}
    program = {Path(holder["directory"]).name + f"/{name}" for name in sut_hold.guardian_sources()}
    directories = {path for path in map(str, below) if "/" not in path}
    assert {str(path) for path in below} - directories == program  # in the run's own private directory
    assert all(path == "." or path.startswith(("calibration-reservation", "calibration-run1-")) for path in directories)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "directory"])
def test_a_file_planted_as_a_reservation_is_not_opened(sut: Sut, kind: str) -> None:
    outside = sut.directory / "outside"
    outside.write_text("secret")
    plant(kind, Path(sut.path), outside)
    with watched(kind, Path(sut.path), outside) as witness:
        assert preflight.reserved_directory(sut.path) is None
        for operation in (lambda: sut_hold.read_state(sut.path, sut.machine), sut.hold, sut.release):
            with pytest.raises(sut_files.Refused, match="is not a readable directory"):
                operation()
        assert run_step(sut, {"token": "0" * 32, "boot_id": sut.machine.boot_id()}) == NOT_RESERVED
        assert witness.opened() == []


@pytest.mark.parametrize("kind", KINDS)
def test_lock_that_is_not_a_file_is_reported_with_a_remedy(sut: Sut, kind: str) -> None:
    abandoned(sut)
    plant(kind, Path(sut.path, "alive"), sut.directory / "outside")
    if kind in {"sparse", "large"}:
        sut.hold("run2")
    else:
        with pytest.raises(sut_files.Refused, match=r"cannot lock .*/alive: not a regular file; wait for it, or"):
            sut.hold("run2")


# Swapped between the look and the use


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_swapped_after_its_check_is_not_opened(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    path = tmp_path / "holder.json"
    path.write_text("ours")
    planted = tmp_path / "planted"
    plant(kind, planted, outside)

    def swap() -> None:
        path.unlink()
        planted.rename(path)

    swap_after(monkeypatch, "fstat", swap)
    with Witness(outside) as witness, opens() as opened:
        assert sut_files.read_text(str(path), 100) == "ours"
        assert witness.opened() == []
    assert [name for name in opened if not name.startswith("/proc/self/fd/")] == []


def test_swapped_private_directory_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = tmp_path / "precious"
    (precious / "calibration-x").mkdir(parents=True, mode=0o700)
    (precious / "calibration-x" / "kept").touch()
    shutil.copy("/bin/sleep", precious / "calibration-x" / "sutprobe")
    way = tmp_path / "way"
    path = way / "calibration-x"
    path.mkdir(parents=True, mode=0o700)
    (path / "removed").mkdir()
    (path / "removed" / "link").symlink_to(precious)

    def swap() -> None:
        way.rename(tmp_path / "aside")
        way.symlink_to(precious)

    swap_after(monkeypatch, "fstat", swap)
    with subprocess.Popen([str(precious / "calibration-x" / "sutprobe"), "600"]) as other:
        try:
            assert sut_files.remove_private(str(path), os.geteuid()) == []
            assert other.poll() is None
        finally:
            other.kill()
    assert (precious / "calibration-x" / "kept").exists()
    assert list((tmp_path / "aside").iterdir()) == []


def test_processes_are_not_ended_through_a_link(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir(mode=0o700)
    shutil.copy("/bin/sleep", programs / "sleep")
    link = tmp_path / "calibration-x"
    link.symlink_to(programs)
    kernel = load_module("sutprobe")
    with subprocess.Popen([str(programs / "sleep"), "600"]) as other:
        try:
            for act in (kernel.end, kernel.remove):
                with pytest.raises(sut_files.Refused, match="is not a directory"):
                    act(str(link), False)
            assert other.poll() is None
        finally:
            other.kill()


# The shell's part


@gives_away
def test_a_step_does_not_write_to_another_users_copy(sut: Sut) -> None:
    holder = abandoned(sut)
    assert run_step(sut, holder) == 0
    outside = sut.directory / "outside"
    outside.write_text("kept")
    plant("link", Path(sut.path, "lease"), outside)
    give_away(Path(sut.path))
    assert run_step(sut, holder) == NOT_RESERVED
    assert outside.read_text() == "kept"


def enters(directory: Path) -> bool:
    return subprocess.run(["/bin/sh", "-c", entering(str(directory))], check=False, timeout=PATIENCE_S).returncode == 0


def test_a_step_enters_only_its_own_directory(tmp_path: Path) -> None:
    own = tmp_path / "calibration x"
    own.mkdir()
    assert enters(own)
    shared = tmp_path / "shared"  # as /tmp, which is root's own
    shared.mkdir()
    link = tmp_path / "calibration-y"
    link.symlink_to(shared)
    assert not enters(link)
    assert not enters(tmp_path / "absent")
    if os.geteuid() == 0:
        os.chown(own, OTHER, OTHER)
        assert not enters(own)


# What a reservation is trusted for


def test_a_reservation_that_others_may_write_to_is_not_trusted(sut: Sut) -> None:
    for mode in (0o757, 0o775):
        holder, _ = sut.hold()
        sut.tune(holder, {"turbo": "off"})
        Path(sut.path).chmod(mode)
        with pytest.raises(sut_files.Refused, match="no longer reserved for this run"):
            sut.tune(holder, {"governor": "performance"})
        end_guardian(holder)
        if os.geteuid() == 0:
            sut.release()
            assert sut.read(NO_TURBO) == "1"  # the journal may be another's
        sut.put(NO_TURBO, "0\n")
        clear(sut)


def test_a_journal_with_an_incomplete_last_line_is_restored(sut: Sut) -> None:
    holder, _ = sut.hold()
    sut.tune(holder, {"turbo": "off"})
    end_guardian(holder)
    with Path(sut.path, "journal").open("a") as journal:
        journal.write('["governor", "/sys/dev')
    assert sut.release()["released"]
    assert sut.read(NO_TURBO) == "0"


# What a restart left


def cut_off(sut: Sut, monkeypatch: pytest.MonkeyPatch, moment: str) -> list[str]:
    """Have the power go while a reservation is made or removed; return what that leaves."""

    def power_cut(*_: object, **__: object) -> None:
        os._exit(0)

    if moment == "removal":
        sut.hold()
    process = os.fork()
    if process == 0:
        if moment == "removal":
            monkeypatch.setattr(shutil, "rmtree", power_cut)
            sut.release()
        else:
            monkeypatch.setattr(sut_hold, moment, power_cut)
            sut.hold()
        os._exit(1)
    assert os.waitpid(process, 0)[1] == 0
    for process in map(int, guardians(sut.base)):
        os.kill(process, signal.SIGKILL)
        wait_until(lambda process=process: gone(process))  # type: ignore[misc]
    return sorted(path.name for path in sut.base.iterdir())


@pytest.mark.parametrize("moment", ["start_guardian", "allow_reading", "removal"])
def test_the_next_reservation_removes_leftovers_of_a_reboot(
    sut: Sut, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    left = cut_off(sut, monkeypatch, moment)
    assert left
    sut.release("run2")
    assert sorted(path.name for path in sut.base.iterdir()) == left  # another run may be making it
    sut.put("/proc/sys/kernel/random/boot_id", OLD_BOOT + "\n")
    holder, _ = sut.hold("run2")
    expected = [Path(sut.path).name, Path(holder["directory"]).name]
    assert sorted(path.name for path in sut.base.iterdir()) == expected


def test_release_removes_leftovers_of_a_reboot(sut: Sut, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cut_off(sut, monkeypatch, "start_guardian")
    sut.put("/proc/sys/kernel/random/boot_id", OLD_BOOT + "\n")
    sut.release("run2")
    assert sut.left() == []


@pytest.mark.parametrize("kind", KINDS)
def test_other_files_named_like_an_abandoned_reservation_are_kept(sut: Sut, kind: str) -> None:
    outside = sut.directory / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    name = sut.base / f"calibration-reservation.{OLD_BOOT}.abcdefgh"
    plant(kind, name, outside)
    if kind == "directory":
        if os.geteuid() != 0:
            return
        give_away(name)
    sut.hold()
    sut.release()
    assert [path.name for path in sut.base.iterdir()] == [name.name]
    assert (outside / "kept").exists()
