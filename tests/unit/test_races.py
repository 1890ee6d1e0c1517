# SPDX-License-Identifier: Apache-2.0
"""Races for real: controllers that reserve at one instant, and files that are swapped for links while they are opened.

A swap is one system call that exchanges two names, so that every moment has either the file or the link.
"""

import contextlib
import ctypes
import errno
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from calibration import files as results
from calibration.errors import InputError
from tests.planting import Witness
from tests.suts import Sut, guardians, load_module, sut_files, sut_hold, sut_reservations, sut_settings, wait_until

preflight = load_module("sut_preflight_info")

pytestmark = pytest.mark.timeout(300)

ROUNDS = 25
CONTROLLERS = 3

any_tries = pytest.mark.parametrize("tries", [1000, pytest.param(6000, marks=pytest.mark.thorough)])

AT_FDCWD, RENAME_EXCHANGE = -100, 2

fork = multiprocessing.get_context("fork")


# Controllers at one instant


def controller(number: int, made: Sut, start: Barrier, answers: "Queue[tuple[int, int, str | None]]") -> None:
    """Reserve the SUT in every round together with the others; the one that got it gives it back."""
    prepare = sut_hold.prepare

    def prepared(*arguments: Any, **options: Any) -> Any:
        ready = prepare(*arguments, **options)
        start.wait()  # nobody has it yet: all take it at once
        return ready

    sut_hold.prepare = prepared
    for turn in range(ROUNDS):
        start.wait()
        try:
            made.hold(f"run{turn}-{number}")
        except sut_reservations.Held as refused:
            answers.put((turn, number, str(refused)))
        else:
            answers.put((turn, number, None))
        start.wait()
        made.release(f"run{turn}-{number}")


def test_one_of_simultaneous_controllers_reserves_and_the_others_see_it(sut: Sut) -> None:
    start, answers = fork.Barrier(CONTROLLERS), fork.Queue()
    processes = [fork.Process(target=controller, args=(number, sut, start, answers)) for number in range(CONTROLLERS)]
    for process in processes:
        process.start()
    found = [answers.get() for _ in range(ROUNDS * CONTROLLERS)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    for turn in range(ROUNDS):
        said = {number: refusal for item, number, refusal in found if item == turn}
        (holder,) = [number for number, refusal in said.items() if refusal is None]
        refusals = [refusal for refusal in said.values() if refusal is not None]
        assert len(refusals) == CONTROLLERS - 1
        for refusal in refusals:
            assert f"reserved by run run{turn}-{holder} of somebody@there" in refusal
    wait_until(lambda: guardians(sut.base) == [])
    assert sut.left() == []


# Files that are swapped for links


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


def reservation(made: Sut) -> Any:
    """Return the reservation at its place, whoever holds it."""
    found = sut_reservations.Reservation.find(made.path, made.machine)
    assert found is not None
    return found


def read_holder(made: Sut) -> bool:
    return preflight.reserved_directory(made.path) is not None


def look(made: Sut) -> bool:
    holder, _ = sut_hold.read_state(made.path, made.machine)
    return holder["run_id"] is not None


def renew(made: Sut) -> bool:
    with contextlib.closing(reservation(made)) as found:
        return bool(found.renew(3600))


def read_journal(made: Sut) -> bool:
    with contextlib.closing(reservation(made)) as found:
        found.journal()
        return True


def write_journal(made: Sut) -> bool:
    with contextlib.closing(reservation(made)) as found:
        found.cut_journal(
            found.write_journal([sut_settings.Entry("turbo", sut_settings.CPU + "/cpufreq/boost", "1", "0")])
        )
        return True


def take_lock(made: Sut) -> bool:
    with contextlib.closing(reservation(made)) as found:
        return not found.take_lock()


ON_THE_SUT: dict[str, tuple[str, Callable[[Sut], bool]]] = {
    "preflight reads who holds it": ("holder.json", read_holder),
    "another controller looks": ("holder.json", look),
    "the lock": ("alive", take_lock),
    "the lease": ("lease", renew),
    "the journal is read": ("journal", read_journal),
    "the journal is written": ("journal", write_journal),
}
"""Each opens one file of a reservation, and returns whether that was the file of the reservation."""


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
            except (sut_files.Refused, OSError, InputError):
                done = False
            outcomes[done] += 1
            if not outcomes[True] % 100:
                assert witness.opened() == []
        assert witness.opened() == []
    assert outside.read_bytes() == content


@any_tries
@pytest.mark.parametrize("operation", ON_THE_SUT)
def test_a_racing_link_in_a_reservation_is_not_followed(sut: Sut, operation: str, tries: int) -> None:
    sut.hold()
    name, act = ON_THE_SUT[operation]
    Path(sut.path, "journal").touch(0o600)
    outside = sut.directory / "outside"
    outside.write_text('{"run_id": null, "directory": null}\n')
    never_followed(Path(sut.path, name), outside, lambda: act(sut), tries)


@any_tries
def test_a_racing_link_to_a_directory_is_not_removed(tmp_path: Path, tries: int) -> None:
    precious, fresh = tmp_path / "precious", tmp_path / "fresh"
    precious.mkdir(mode=0o700)
    (precious / "kept").touch()
    path, link = tmp_path / "calibration-run", tmp_path / "calibration-link"
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
                with sut_files.PrivateDirectory(str(path), os.geteuid()) as directory:
                    directory.remove()
                    outcomes[directory.exists] += 1
            except (sut_files.Refused, OSError):
                outcomes[False] += 1
    assert [path.name for path in precious.iterdir()] == ["kept"]


def read_text(path: Path) -> bool:
    return results.read_regular(path, 100) == b"ours"


def append(path: Path) -> bool:
    with results.open_regular(path, "ab") as stream:
        stream.write(b"more")
    return True


def make(path: Path) -> bool:
    with results.open_regular(path, "ab", create=True):
        return True


@any_tries
@pytest.mark.parametrize("operation", [read_text, append, make])
def test_a_racing_link_in_results_is_not_followed(
    tmp_path: Path, operation: Callable[[Path], bool], tries: int
) -> None:
    path, outside = tmp_path / "run.json", tmp_path / "outside"
    path.write_text("ours")
    outside.write_text("secret")
    never_followed(path, outside, lambda: operation(path), tries)


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
