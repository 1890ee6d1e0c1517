# SPDX-License-Identifier: Apache-2.0
"""Settings that cannot be restored: each is reported with its value before, the value found and the reason."""

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from calibration.runner import files, journal, settings
from calibration.runner.files import Refused
from tests.suts import EVERYTHING, MSR, NO_TURBO, PAGES, POLICY, Sut, changed, peek, step, wait_until

pytestmark = pytest.mark.timeout(300)

WANTED = {"hugepages_2m": {"0": 8}, "turbo": "off"}

ENDS_BADLY = ("directory", "self.of_this_boot(machine):", "machine.breaks():")
"""What an error in the end of the run is made of."""


def refusing(where: str, error: BaseException | None = None) -> Any:
    """Return ``write_value`` of a machine that refuses *where* with *error*, or ignores what is written there."""
    write = settings.write_value

    def write_or_refuse(machine: Any, place: str, value: str) -> None:
        if place != where:
            write(machine, place, value)
        elif error is not None:
            raise error

    return write_or_refuse


REASONS: dict[str, tuple[BaseException | None, str | None]] = {
    "refused": (PermissionError(errno.EPERM, "Operation not permitted", "/x"), "Operation not permitted"),
    "ignored": (None, None),
    "another error": (ValueError("odd"), "odd"),
}


@pytest.mark.parametrize(("error", "told"), REASONS.values(), ids=REASONS)
def test_a_setting_that_the_machine_does_not_restore_is_told_and_the_others_are_restored(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, told: str | None
) -> None:
    journal.change(sut.machine, made.descriptor, WANTED)
    before = Path(made.path, "journal").read_text()
    with monkeypatch.context() as patched:
        patched.setattr(settings, "TRY_S", 0.0)
        patched.setattr(settings, "write_value", refusing(PAGES % 0, error))
        changes, faults = made.restore(sut.machine, "run")
    fault = {"setting": "hugepages_2m", "where": PAGES % 0, "wanted": "0", "found": "8", "error": told}
    assert faults == [fault]
    assert {change["setting"]: (change["restored"], change["restored_by"]) for change in changes} == {
        "hugepages_2m": ("8", None),
        "turbo": ("0", "run"),
    }
    assert made.told_restored() == (changes, faults)
    assert Path(made.path, "journal").read_text() == before
    assert made.restore(sut.machine, "cleanup")[1] == []
    assert journal.is_empty(made.descriptor)
    assert sut.read(PAGES % 0) == "0"


def test_a_value_that_the_machine_has_in_spite_of_its_error_is_restored(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.change(sut.machine, made.descriptor, {"turbo": "off"})

    def write(machine: Any, where: str, value: str) -> None:
        machine.write(where, value)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(settings, "write_value", write)
    changes, faults = made.restore(sut.machine, "run")
    assert faults == []
    assert changes[0]["restored_by"] == "run"


def test_what_a_program_of_the_run_has_in_use_is_restored_when_it_was_ended(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.change(sut.machine, made.descriptor, {"turbo": "off"})
    made.write_bytes("program", Path("/bin/sleep").read_bytes(), 0o700)
    write = settings.write_value
    with subprocess.Popen([f"{made.path}/program", "600"]) as user:

        def write_unless_in_use(machine: Any, where: str, value: str) -> None:
            if user.poll() is None:
                raise OSError(errno.EBUSY, "Device or resource busy")
            write(machine, where, value)

        monkeypatch.setattr(settings, "write_value", write_unless_in_use)
        changes, faults = made.restore(sut.machine, "cleanup")
        user.kill()
    assert faults == []
    assert [(change["restored"], change["restored_by"]) for change in changes] == [("0", "cleanup")]
    assert made.told_restored() == (changes, faults)
    assert sut.read(NO_TURBO) == "0"


def test_a_journal_that_cannot_be_read_or_emptied_is_told(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.change(sut.machine, made.descriptor, WANTED)

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(files, "read_text", broken)
        assert not journal.is_empty(made.descriptor)
        patched.setattr(type(made), "of_this_boot", lambda *_: True)
        assert made.restore(sut.machine, "run") == (
            [],
            [settings.fault_at(f"{made.path}/journal", "the journal of settings cannot be read: Input/output error")],
        )
    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", broken)
        changes, (fault,) = made.restore(sut.machine, "run")
    assert {change["setting"] for change in changes} == set(WANTED)  # they are restored, and not forgotten
    assert fault["error"] == "the journal cannot be emptied: Input/output error"
    assert sut.read(PAGES % 0) == "0"
    assert made.restore(sut.machine, "cleanup")[1] == []


def test_what_an_error_in_the_end_of_the_run_left_changed_is_told_with_the_values(sut: Sut) -> None:
    whole = sut.modules
    sut.modules = changed(sut.modules, *ENDS_BADLY)
    run = sut.start(settings=WANTED).begin(step("one"))
    state, records = run.follow()
    assert state == "ended"
    last = records[-1]
    assert {change["setting"]: change["restored"] for change in last["changes"]} == {"hugepages_2m": "8", "turbo": "1"}
    assert {fault["where"]: (fault["wanted"], fault["found"]) for fault in last["faults"]} == {
        PAGES % 0: ("0", "8"),
        NO_TURBO: ("0", "1"),
    }
    assert {fault["error"] for fault in last["faults"]} == {"'Machine' object has no attribute 'breaks'"}
    removed = run.remove()
    assert removed["faults"] == last["faults"]
    assert run.path.exists()
    sut.modules = whole
    assert run.remove()["faults"] == []
    assert (sut.read(PAGES % 0), sut.read(NO_TURBO)) == ("0", "0")
    wait_until(lambda: sut.left() == [])


def test_a_start_that_fails_tells_what_it_could_not_undo(sut: Sut) -> None:
    sut.modules = changed(sut.modules, *ENDS_BADLY)
    sut.modules = changed(sut.modules, "worker", "captured = capture.capture(", "captured = capture.lost(")
    with pytest.raises(Refused) as refused:
        sut.start(settings=WANTED)
    text = str(refused.value)
    assert text.startswith("the runner ended at once: AttributeError: module")
    assert ". Not restored: " in text
    assert f"hugepages_2m at {PAGES % 0}: wanted 0, found 8: " in text
    assert {fault["found"] for fault in refused.value.faults} == {"8", "1"}


def test_a_change_that_can_be_undone_a_moment_later_is_no_fault(sut: Sut) -> None:
    before = sut.settings()
    sut.modules = changed(
        sut.modules, "journal", 'entries[:reached], "run")', 'entries[:reached], "run") and ([], [{}])'
    )
    with pytest.raises(Refused, match="Not all changes so far could be undone") as refused:
        sut.start(settings={"turbo": "off", "hugepages_2m": {"0": 8}, "governor": "performance", **_unsupported(sut)})
    assert refused.value.faults == []
    assert sut.settings() == before
    wait_until(lambda: sut.left() == [])


def _unsupported(sut: Sut) -> dict[str, Any]:
    """Have the second policy refuse the governor that is requested."""
    sut.file(POLICY % 1 + "scaling_governor").chmod(0o444)
    sut.modules = changed(
        sut.modules,
        "settings",
        "    register = register_of(where)\n    if register:\n        descriptor",
        "    if 'policy1' in where and value == 'performance':\n        raise OSError(1, 'no')\n"
        "    register = register_of(where)\n    if register:\n        descriptor",
    )
    return {}


def test_steps_are_not_measured_with_prefetchers_that_could_not_be_switched_on_again(sut: Sut) -> None:
    sut.modules = changed(
        sut.modules,
        "settings",
        "    register = register_of(where)\n    if register:\n        descriptor",
        f"    if '/1/' in where and value == '0x40' and not os.path.exists({str(sut.directory / 'mended')!r}):\n"
        "        raise OSError(1, 'Operation not permitted')\n"
        "    register = register_of(where)\n    if register:\n        descriptor",
    )
    plan = [step("on"), step("off", prefetchers="off"), step("on again"), step("off again", prefetchers="off")]
    _, records = sut.start().begin(*plan).follow()
    told = {record["id"]: record.get("reason") for record in records if record["record"] in ("step", "refused")}
    assert list(told) == ["on", "off", "on again", "off again"]
    where = (MSR % 1) + ":0x1a4"
    assert told["on again"] == (
        f"the prefetchers are off. Not restored: prefetchers at {where}: wanted 0x40, found 0x4f: "
        "Operation not permitted"
    )
    assert [told[name] for name in ("on", "off", "off again")] == [None] * 3
    assert [fault["where"] for fault in records[-1]["faults"]] == [where]
    assert peek(sut.file(MSR % 0), 0x1A4) == "40"


def test_a_count_that_fails_costs_no_run(sut: Sut) -> None:
    sut.modules = changed(sut.modules, "health", "energy = self.energy.taken()", "energy = self.energy.gone()")
    _, records = sut.start().begin(step("one")).follow()
    health = next(record for record in records if record["record"] == "health")
    assert "gone" in health["unreadable"]["everything"]
    assert [record["record"] for record in records] == ["step", "health", "done"]


def test_systemd_is_told_what_it_cannot_restore(sut: Sut) -> None:
    run = sut.start(settings=EVERYTHING)
    run.kill(*run.processes()[:2])
    sut.modules = changed(sut.modules, *ENDS_BADLY)
    with sut.popen("restore", str(run.path), stderr=-1) as restoring:
        told = restoring.communicate(timeout=120)[1].decode()
    assert told.startswith("Not restored: ")
    assert "; and " in told
    assert json.loads((run.path / "records.jsonl").read_bytes().splitlines()[-1])["faults"]
