# SPDX-License-Identifier: Apache-2.0
"""The settings that a run changes on a SUT and restores."""

import ast
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibration.errors import EnvironmentLacksError, InputError
from calibration.reservation import guarded
from calibration.tuning import read_changes, wanted_settings
from tests.suts import (
    ANSIBLE,
    CPUINFO,
    EVERYTHING,
    LONG_S,
    MSR,
    NO_TURBO,
    ONLINE,
    PAGES,
    POLICY,
    Holder,
    Sut,
    await_guardian,
    end_guardian,
    peek,
    poke,
    sut_files,
    sut_hold,
    sut_prefetchers,
    sut_reservations,
    sut_settings,
    wait_until,
)


@pytest.fixture
def holder(sut: Sut) -> dict[str, Any]:
    """Return the holder of the SUT's reservation."""
    held, _ = sut.hold()
    return held


def test_all_settings_are_changed_and_restored(sut: Sut, holder: Holder) -> None:
    before = sut.settings()
    changes = {change["where"]: (change["before"], change["after"]) for change in sut.tune(holder, EVERYTHING)}
    assert changes == {
        PAGES % 0: ("0", "64"),
        PAGES % 1: ("0", "32"),
        (POLICY % 0).replace("policy0", "policy{0-1}") + "scaling_governor": ("powersave", "performance"),
        NO_TURBO: ("0", "1"),
        "/dev/cpu/{0-1}/msr:0x1a4": ("0x40", "0x4f"),
        "irqbalance.service": ("active", "inactive"),
    }
    assert sut.tune(holder, EVERYTHING) == []
    answer = sut.release()
    assert all(
        change["restored"] == change["before"] and change["restored_by"] == "run" for change in answer["changes"]
    )
    assert sut.settings() == before
    assert sut.left() == []


def test_recorded_registers_are_restored_but_not_reported(sut: Sut, holder: Holder) -> None:
    before = sut.settings()
    sut.tune(holder, {"prefetchers": "off"})
    tuned = sut.settings()
    entries, unread = sut_settings.read_prefetchers(sut.machine)
    assert ([(entry.where, entry.before) for entry in entries], unread) == (
        [("/dev/cpu/0/msr:0x1a4", "0x4f"), ("/dev/cpu/1/msr:0x1a4", "0x4f")],
        None,
    )
    for _ in range(2):
        sut_hold.record(sut.path, sut.machine, holder["token"], entries)
    assert len((Path(sut.path) / "journal").read_text().splitlines()) == 4
    assert sut.settings() == tuned
    sut_settings.write_value(sut.machine, entries[1].where, "0x0")
    (change,) = sut.release()["changes"]
    assert (change["before"], change["restored"]) == ("0x40", "0x40")
    assert sut.settings() == before


def test_unreadable_registers_are_reported(sut: Sut) -> None:
    sut.file("/dev/cpu/1/msr").unlink()
    entries, unread = sut_settings.read_prefetchers(sut.machine)
    assert [entry.where for entry in entries] == ["/dev/cpu/0/msr:0x1a4"]
    assert unread == "MSR 0x1a4 of CPUs 1: No such file or directory"


def test_recording_needs_a_reservation(sut: Sut) -> None:
    entries, _ = sut_settings.read_prefetchers(sut.machine)
    with pytest.raises(sut_files.Refused, match="no longer reserved for this run"):
        sut_hold.record(sut.path, sut.machine, "0" * 32, entries)


def test_side_effects_of_a_setting_are_restored(sut: Sut, holder: Holder) -> None:
    sut.tune(holder, {"governor": "performance"})
    sut.put(POLICY % 0 + "energy_performance_preference", "performance\n")
    (change,) = sut.release()["changes"]
    assert change["where"].endswith("policy{0-1}/scaling_governor")
    assert sut.read(POLICY % 0 + "energy_performance_preference") == "balance_performance"


def test_a_partial_reservation_of_huge_pages_is_restored(
    sut: Sut, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = sut_settings.Machine.write

    def scarce(machine: Any, where: str, text: str) -> None:
        write(machine, where, str(min(int(text), 40)) if where == PAGES % 1 else text)

    monkeypatch.setattr(sut_settings.Machine, "write", scarce)
    with pytest.raises(sut_files.Refused, match=r"only 40 of 64 huge pages could .* so far were restored"):
        sut.tune(holder, {"hugepages_2m": {"0": 64, "1": 64}})
    assert (sut.read(PAGES % 0), sut.read(PAGES % 1)) == ("0", "0")
    assert sut.release()["changes"] == []


def test_register_that_ignores_writes_is_refused(sut: Sut, holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 8)
    with pytest.raises(sut_files.Refused, match=r"set to 0x4f and reads 0x40.*remove tune_pr.* so far were restored"):
        sut.tune(holder, {"prefetchers": "off"})
    assert Path(sut.path, "journal").read_text() == ""


AMD = "processor\t: %d\nvendor_id\t: AuthenticAMD\ncpu family\t: %d\nmodel\t\t: 17\n\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"
POWER = "processor\t: %d\ncpu\t\t: POWER9, altivec supported\n\n"
DSCR = "/sys/devices/system/cpu/cpu%d/dscr"
DSCR_DEFAULT = "/sys/devices/system/cpu/dscr_default"


def amd(sut: Sut, family: int, bits: int = 1 << 13, last: int = 0x80000028) -> None:
    """Make the machine one of AMD's whose CPUID says *bits* in leaf 0x80000021 and has leaves up to *last*."""
    sut.put("/proc/cpuinfo", AMD % (0, family) + AMD % (1, family))
    for cpu in (0, 1):
        poke(sut.file(f"/dev/cpu/{cpu}/cpuid"), {0x80000000: last, 0x80000021: bits}, size=16)
        poke(sut.file(MSR % cpu), {0xC0000108: 0x3C0})


def power(sut: Sut, *values: str) -> None:
    """Make the machine one of POWER's, with *values* of its CPUs' registers, and 0 by default."""
    sut.put("/proc/cpuinfo", "".join(POWER % cpu for cpu in range(len(values))))
    for cpu, value in enumerate(values):
        sut.put(DSCR % cpu, value + "\n")
    sut.put(DSCR_DEFAULT, "0\n")


def to_all_cpus(write: Any) -> Callable[[Any, str, str], None]:
    """Return *write* as the kernel does it: what is written to the default is written to all CPUs."""

    def store(machine: Any, where: str, text: str) -> None:
        for path in (where, *(machine.glob("/sys/devices/system/cpu/cpu[0-9]*/dscr") if where == DSCR_DEFAULT else ())):
            write(machine, path, text)

    return store


PROCESSORS: dict[str, tuple[Callable[[Sut], None], dict[int, tuple[int, int]]]] = {
    "broadwell": (lambda sut: intel(sut, 0x4F), {0x1A4: (0, 0xF)}),
    "skylake": (lambda sut: intel(sut, 0x55), {0x1A4: (0, 0xF)}),
    "emerald-rapids": (lambda sut: intel(sut, 0xCF), {0x1A4: (0, 0x2F), 0x6D: (0x11, 0x40000004011)}),
    "granite-rapids": (lambda sut: intel(sut, 0xAD), {0x1A4: (0, 0xEF), 0x6D: (0x11, 0x40000004011)}),
    "sierra-forest": (lambda sut: intel(sut, 0xAF), {0x1A4: (0, 0x3D), 0x1320: (0x22, 0x80000000022)}),
    "goldmont": (lambda sut: intel(sut, 0x5F), {0x1A4: (0, 0x5)}),
    "knights-landing": (lambda sut: intel(sut, 0x57), {0x1A4: (0, 0x3)}),
    "zen-4": (lambda sut: amd(sut, 0x19), {0xC0000108: (0x3C0, 0x3EF)}),
    "zen-5": (lambda sut: amd(sut, 0x1A), {0xC0000108: (0x3C0, 0x3EF)}),
}


def intel(sut: Sut, model: int) -> None:
    """Make the machine one of Intel's, *model*, with some bits set that are no prefetcher's."""
    sut.put("/proc/cpuinfo", CPUINFO % (0, model) + CPUINFO % (1, model))
    for cpu in (0, 1):
        poke(sut.file(MSR % cpu), {0x1A4: 0, 0x6D: 0x11, 0x1320: 0x22})


@pytest.mark.parametrize(("make", "registers"), PROCESSORS.values(), ids=PROCESSORS)
def test_only_the_documented_bits_of_a_processor_are_written(
    sut: Sut, holder: Holder, make: Callable[[Sut], None], registers: dict[int, tuple[int, int]]
) -> None:
    make(sut)
    before = sut.settings()
    changes = sut.tune(holder, {"prefetchers": "off"})
    assert {change["where"]: (change["before"], change["after"]) for change in changes} == {
        f"/dev/cpu/{{0-1}}/msr:{register:#x}": (hex(was), hex(now)) for register, (was, now) in registers.items()
    }
    touched = {name.rpartition(":")[2] for name, value in sut.settings().items() if before.get(name) != value}
    assert touched == {hex(register) for register in registers}
    again = {
        prefetcher.where: int(prefetcher.wanted, 16) for prefetcher in sut_settings.plan_prefetchers(sut.machine, "on")
    }
    assert again == {MSR % cpu + f":{register:#x}": was for cpu in (0, 1) for register, (was, _) in registers.items()}
    sut.release()
    assert sut.settings() == before


def test_dscr_is_changed_and_restored_on_each_cpu(sut: Sut, holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sut_settings.Machine, "write", to_all_cpus(sut_settings.Machine.write))
    power(sut, "0", "1", "1d7", "0")
    before = sut.settings()
    changes = sut.tune(holder, {"prefetchers": "off"})
    assert {change["where"]: (change["before"], change["after"]) for change in changes} == {
        "/sys/devices/system/cpu/cpu{0,3}/dscr": ("0", "1"),
        DSCR % 2: ("1d7", "1"),
        DSCR_DEFAULT: ("0", "1"),
    }
    assert [sut.read(DSCR % cpu) for cpu in range(4)] == ["1"] * 4
    assert sut.tune(holder, {"prefetchers": "off"}) == []
    assert all(change["restored"] == change["before"] for change in sut.release()["changes"])
    assert sut.settings() == before


def test_dscr_that_ignores_writes_is_refused(sut: Sut, holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    power(sut, "0", "0")
    before = sut.settings()
    monkeypatch.setattr(sut_settings.Machine, "write", lambda *_: None)
    with pytest.raises(sut_files.Refused, match=r"cpu0/dscr was set to 1 and reads 0.* so far were restored"):
        sut.tune(holder, {"prefetchers": "off"})
    assert sut.settings() == before


def test_a_partially_written_register_is_refused_and_all_are_restored(
    sut: Sut, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    intel(sut, 0xCF)
    before = sut.settings()
    write = sut_settings.write_value

    def locked(machine: Any, where: str, value: str) -> None:
        write(machine, where, hex(int(value, 16) & 0x4011) if where == "/dev/cpu/1/msr:0x6d" else value)

    monkeypatch.setattr(sut_settings, "write_value", locked)
    with pytest.raises(sut_files.Refused, match=r"cpu/1/msr:0x6d was set to 0x40000004011 and reads 0x4011.* restored"):
        sut.tune(holder, {"prefetchers": "off"})
    assert sut.settings() == before
    assert sut.release()["changes"] == []


def test_cpu_offline_before_its_change_is_refused_and_others_restored(
    sut: Sut, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = sut_reservations.Reservation.write_journal

    def then_offline(self: Any, entries: Any) -> int:
        mark: int = write(self, entries)
        sut.file(MSR % 1).unlink()
        sut.put(ONLINE, "0\n")
        return mark

    monkeypatch.setattr(sut_reservations.Reservation, "write_journal", then_offline)
    with pytest.raises(sut_files.Refused, match=r"cpu/1/msr:0x1a4 cannot be set to 0x4f: .* so far were restored"):
        sut.tune(holder, {"prefetchers": "off"})
    assert peek(sut.file(MSR % 0), 0x1A4) == "40"
    assert sut.release()["released"]


def test_the_sut_stays_reserved_until_an_offline_cpu_is_restored(sut: Sut, holder: Holder) -> None:
    sut.tune(holder, {"prefetchers": "off"})
    register = sut.file(MSR % 1)
    register.rename(register.with_name("away"))
    sut.put(ONLINE, "0\n")
    with pytest.raises(sut_files.Refused, match="msr:0x1a4 cannot be restored to 0x40: its CPUs are offline: put them"):
        sut.release()
    assert peek(sut.file(MSR % 0), 0x1A4) == "40"
    register.with_name("away").rename(register)
    sut.put(ONLINE, "1\n")
    sut.release()
    assert peek(register, 0x1A4) == "40"


def test_untune_restores_only_its_own_setting(sut: Sut, holder: Holder) -> None:
    before = sut.settings()
    sut.tune(holder, {"hugepages_2m": {"0": 64}, "prefetchers": "on", "turbo": "off"})
    tuned = sut.settings()
    known = Path(sut.path, "journal").read_text()
    for _ in range(2):
        changes, mark = sut_hold.tune(sut.path, sut.machine, holder["token"], {"prefetchers": "off"}, lease_s=LONG_S)
        assert [(change["where"], change["after"]) for change in changes] == [("/dev/cpu/{0-1}/msr:0x1a4", "0x4f")]
        assert Path(sut.path, "journal").read_text() != known
        (change,) = sut_hold.untune(sut.path, sut.machine, holder["token"], mark, lease_s=LONG_S)
        assert (change["after"], change["restored"], change["restored_by"]) == ("0x4f", "0x40", "run")
        assert sut.settings() == tuned
        assert Path(sut.path, "journal").read_text() == known
    assert {change["setting"] for change in sut.release()["changes"]} == {"hugepages_2m", "turbo"}
    assert sut.settings() == before


def test_prefetchers_that_are_off_stay_off_at_untune(sut: Sut, holder: Holder) -> None:
    sut.tune(holder, {"prefetchers": "off"})
    changes, mark = sut_hold.tune(sut.path, sut.machine, holder["token"], {"prefetchers": "off"}, lease_s=LONG_S)
    assert changes == []
    assert sut_hold.untune(sut.path, sut.machine, holder["token"], mark, lease_s=LONG_S) == []
    assert peek(sut.file(MSR % 0), 0x1A4) == "4f"
    assert [change["restored"] for change in sut.release()["changes"]] == ["0x40"]


def test_refused_change_keeps_earlier_changes(sut: Sut, holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sut.settings()
    sut.tune(holder, {"hugepages_2m": {"0": 64}})
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda *_: 8)
        with pytest.raises(sut_files.Refused, match="changes so far were restored"):
            sut.tune(holder, {"prefetchers": "off"})
    assert sut.read(PAGES % 0) == "64"
    assert [change["setting"] for change in sut.release()["changes"]] == ["hugepages_2m"]
    assert sut.settings() == before


@pytest.mark.parametrize("mark", [1, 1 << 20])
def test_invalid_mark_undoes_nothing(sut: Sut, holder: Holder, mark: int) -> None:
    sut.tune(holder, {"prefetchers": "off"})
    with pytest.raises(sut_files.Refused, match=f"no line of the journal ends at {mark}"):
        sut_hold.untune(sut.path, sut.machine, holder["token"], mark, lease_s=LONG_S)
    assert peek(sut.file(MSR % 0), 0x1A4) == "4f"


def test_a_failed_untune_is_repeated_at_release(sut: Sut, holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sut.settings()
    _, mark = sut_hold.tune(sut.path, sut.machine, holder["token"], {"prefetchers": "off"}, lease_s=LONG_S)
    with monkeypatch.context() as patched:
        patched.setattr(sut_settings, "write_value", lambda *_: None)
        with pytest.raises(sut_files.Refused, match="/dev/cpu/1/msr:0x1a4 was restored to 0x40 and reads 0x4f"):
            sut_hold.untune(sut.path, sut.machine, holder["token"], mark, lease_s=LONG_S)
    assert [change["restored"] for change in sut.release()["changes"]] == ["0x40"]
    assert sut.settings() == before


def test_the_guardian_restores_prefetchers_after_a_step_was_killed(sut: Sut, holder: Holder) -> None:
    """SIGKILL to what runs on the SUT, and no more word of the run: the guardian holds the old values."""
    before = sut.settings()
    sut.tune(holder, {"prefetchers": "off"})
    program = Path(holder["directory"], "measuring")
    shutil.copy(shutil.which("sleep") or "", program)
    command = guarded([str(program), "1000"], sut.reservation(holder), lease_s=LONG_S, idle_s=0)
    with subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True) as step:
        wait_until(lambda: sut_files.PrivateDirectory(holder["directory"], os.geteuid()).processes() != [])
        assert sut.settings() != before
        os.killpg(step.pid, signal.SIGKILL)
    wait_until(lambda: sut.settings() == before)
    await_guardian(holder)
    assert sut.left() == []


REFUSED: dict[str, tuple[dict[str, Any], dict[str, str | None], str]] = {
    "another-processor": (
        {"prefetchers": "off"},
        {"/proc/cpuinfo": CPUINFO % (0, 0x01)},
        "family 6 model 1 are not documented",
    ),
    "no-register": (
        {"prefetchers": "off"},
        {"/dev/cpu/1/msr": None},
        "cpu/1/msr:0x1a4 cannot be read: .*kernel module msr",
    ),
    "arm": ({"prefetchers": "off"}, {"/proc/cpuinfo": ARM}, "an Arm processor .* CPUECTLR_EL1.* the firmware's menu"),
    "mixed": (
        {"prefetchers": "off"},
        {"/proc/cpuinfo": CPUINFO % (0, 0x55) + CPUINFO % (1, 0x97)},
        "6 model 151 are not documented",
    ),
    "zen-2": (
        {"prefetchers": "off"},
        {"/proc/cpuinfo": AMD % (0, 0x17)},
        "AuthenticAMD family 23 model 17 are not doc",
    ),
    "zen-3-unasked": (
        {"prefetchers": "off"},
        {"/proc/cpuinfo": AMD % (0, 0x19)},
        "cpu/0/cpuid cannot be read: .* kernel module cpuid",
    ),
    "no-such-governor": (
        {"governor": "ondemand"},
        {},
        "no governor ondemand in .*: set tune_governor to performance or powersave",
    ),
    "no-node": ({"hugepages_2m": {"7": 1}}, {}, "node 7 has no huge pages of 2048 KiB"),
    "fewer-pages": (
        {"hugepages_2m": {"0": 1}},
        {PAGES % 0: "5"},
        "node 0 has 5 huge pages of 2048 KiB, more than the 1",
    ),
    "no-turbo": ({"turbo": "off"}, {NO_TURBO: None}, "the kernel cannot switch turbo"),
}


@pytest.mark.parametrize(("settings", "files", "message"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_change_is_refused_and_nothing_changed(
    sut: Sut, holder: Holder, settings: dict[str, Any], files: dict[str, str | None], message: str
) -> None:
    for where, text in files.items():
        sut.file(where).unlink(missing_ok=True)
        if text is not None:
            sut.put(where, text)
    before = sut.settings()
    with pytest.raises(sut_files.Refused, match=message):
        sut.tune(holder, {"irqbalance": "stopped", **settings})
    assert sut.settings() == before
    assert not Path(sut.path, "journal").exists()


@pytest.mark.parametrize(("bits", "last"), [(0xFFFFDFFF, 0x80000028), (0xFFFFFFFF, 0x8000001F)])
def test_a_processor_without_prefetcher_register_is_refused(sut: Sut, holder: Holder, bits: int, last: int) -> None:
    amd(sut, 0x19, bits, last)
    before = sut.settings()
    with pytest.raises(sut_files.Refused, match=r"CPU 0 has no prefetcher register .PrefetchCtlMsr"):
        sut.tune(holder, {"prefetchers": "off"})
    assert sut.settings() == before


def test_the_journal_accepts_every_register_of_the_table() -> None:
    places = {
        f"/dev/cpu/0/msr:{register:#x}" for table in sut_prefetchers.PREFETCH_TABLES for register in table.registers
    } | {
        DSCR % 3,
        DSCR_DEFAULT,
    }
    for where in places:
        line = sut_settings.Entry("prefetchers", where, "0x1" if "msr" in where else "1", None).line()
        assert sut_settings.Entry.of_line(line).where == where
    for where in ("/dev/cpu/0/msr:0x10", "/dev/cpu/0/msr", "/sys/devices/system/cpu/cpu3/online"):
        with pytest.raises(sut_files.Refused, match="invalid line in the journal"):
            sut_settings.Entry.of_line(sut_settings.Entry("prefetchers", where, "0x1", None).line())


def test_the_sut_stays_reserved_until_an_offline_policy_is_restored(sut: Sut) -> None:
    holder, _ = sut.hold()
    sut.tune(holder, {"governor": "performance", "turbo": "off"})
    policy = sut.file(POLICY % 1)
    policy.rename(policy.with_name("away"))
    with pytest.raises(sut_files.Refused, match="its CPUs are offline: put them online"):
        sut.release()
    assert (sut.read(NO_TURBO), sut.read(POLICY % 0 + "scaling_governor")) == ("0", "powersave")
    end_guardian(holder)
    with pytest.raises(sut_files.Refused, match=r"cannot restore what run run1 .* left on the SUT"):
        sut.hold("run2")
    policy.with_name("away").rename(policy)
    _, taken_over = sut.hold("run2")
    assert taken_over["holder"]["run_id"] == "run1"
    assert sut.read(POLICY % 1 + "scaling_governor") == "powersave"


@pytest.mark.parametrize("state", ["inactive", None], ids=["not-running", "no-systemd"])
def test_stopped_irqbalance_needs_no_change(sut: Sut, holder: Holder, state: str | None) -> None:
    if state is None:
        sut.file("/usr/bin/systemctl").unlink()
    sut.put("/irqbalance", f"{state}\n")
    assert sut.tune(holder, {"irqbalance": "stopped"}) == []


def test_irqbalance_that_cannot_be_restarted_is_refused(sut: Sut, holder: Holder) -> None:
    sut.put("/irqbalance", "inactive\n")
    sut.put("/proc/4711/comm", "irqbalance\n")
    with pytest.raises(sut_files.Refused, match="irqbalance runs as process 4711"):
        sut.tune(holder, {"irqbalance": "stopped"})


@pytest.mark.parametrize(
    ("places", "shown"),
    [(["/dev/cpu/3/msr"], "/dev/cpu/3/msr"), ([f"/dev/cpu/{n}/msr" for n in (0, 1, 2, 5)], "/dev/cpu/{0-2,5}/msr")],
)
def test_paths_that_differ_in_a_number_are_grouped(places: list[str], shown: str) -> None:
    changes = [{"where": where, "before": "0x0", "restored": None} for where in places]
    (change,) = sut_settings.group_changes(changes)
    assert change["where"] == shown
    assert sut_settings.paths_of(shown) == places


# The controller's side


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no-consent": ({"governor": "performance"}, {}, "tune_governor is set without tune_governor_ok: true"),
    "half-consent": ({"turbo": "off"}, {"turbo": "yes"}, "without tune_turbo_ok: true"),
    "other-consent": ({"turbo": "off"}, {"governor": True}, "without tune_turbo_ok: true"),
    "word": ({"turbo": "maybe"}, {"turbo": True}, "tune_turbo must be on or off, not 'maybe'"),
    "shell": ({"governor": "x; reboot"}, {"governor": True}, "a word of lower-case letters"),
    "pages": ({"hugepages_2m": 512}, {"hugepages_2m": True}, "must map nodes to numbers"),
    "fewer": ({"hugepages_1g": {0: -1}}, {"hugepages_1g": True}, "must map nodes to numbers"),
    "unknown": ({"voltage": "9"}, {"voltage": True}, "unknown setting"),
}


@pytest.mark.parametrize(("settings", "consent", "message"), WRONG.values(), ids=WRONG)
def test_settings_without_consent_are_refused(settings: dict[str, Any], consent: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        wanted_settings(settings, consent)


def test_settings_with_consent_are_accepted() -> None:
    empty = {"hugepages_2m": {}, "hugepages_1g": {}, "governor": "", "turbo": "", "prefetchers": "", "irqbalance": ""}
    assert wanted_settings(empty, {}) == {}
    wanted = {"hugepages_2m": {0: 512}, "turbo": False, "irqbalance": "stopped"}
    agreed = dict.fromkeys(wanted, True)
    assert wanted_settings({**empty, **wanted}, agreed) == {
        "hugepages_2m": {"0": 512},
        "turbo": "off",
        "irqbalance": "stopped",
    }


@pytest.mark.parametrize(
    "raw", [[{"setting": "turbo"}], ["x"], [{}] * 20_001, [dict.fromkeys(guardian_fields := ("setting",), "x")]]
)
def test_invalid_changes_are_refused(raw: list[Any]) -> None:
    assert guardian_fields
    with pytest.raises(EnvironmentLacksError):
        read_changes(raw)


def test_changes_with_long_texts_are_refused(sut: Sut, holder: Holder) -> None:
    (change,) = sut.tune(holder, {"turbo": "off"})
    assert read_changes([change])[0].after == "1"
    with pytest.raises(EnvironmentLacksError, match="more than 4096"):
        read_changes([{**change, "where": "x" * 5000}])


@pytest.mark.parametrize("path", sorted(ANSIBLE.glob("module*/*.py")), ids=lambda path: path.stem)
def test_modules_of_the_sut_are_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))
