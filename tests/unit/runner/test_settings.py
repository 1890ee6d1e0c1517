# SPDX-License-Identifier: Apache-2.0
"""The settings that a run changes on a SUT and restores, and their journal."""

import contextlib
import errno
import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.tuning import read_changes, wanted_settings
from calibration.runner import journal, prefetchers, settings
from calibration.runner.files import CHANGED, Refused
from tests.suts import BOOST, CPUINFO, EVERYTHING, MSR, NO_TURBO, ONLINE, PAGES, POLICY, Sut, peek, poke

Changes = list[dict[str, Any]]


def change(sut: Sut, made: Any, wanted: dict[str, Any]) -> Changes:
    return journal.change(sut.machine, made.descriptor, wanted)[0]  # type: ignore[no-any-return]


def restore(sut: Sut, made: Any) -> Changes:
    changes, faults = made.restore(sut.machine, "run")
    assert faults == []
    return changes  # type: ignore[no-any-return]


def lines(made: Any) -> list[str]:
    return Path(made.path, "journal").read_text().splitlines()


def test_all_settings_are_changed_and_restored(sut: Sut, made: Any) -> None:
    before = sut.settings()
    changes = {item["where"]: (item["before"], item["after"]) for item in change(sut, made, EVERYTHING)}
    assert changes == {
        PAGES % 0: ("0", "64"),
        PAGES % 1: ("0", "32"),
        (POLICY % 0).replace("policy0", "policy{0-1}") + "scaling_governor": ("powersave", "performance"),
        NO_TURBO: ("0", "1"),
        "/dev/cpu/{0-1}/msr:0x1a4": ("0x40", "0x4f"),
        "irqbalance.service": ("active", "inactive"),
    }
    assert change(sut, made, EVERYTHING) == []
    changes = restore(sut, made)
    assert all(item["restored"] == item["before"] and item["restored_by"] == "run" for item in changes)
    assert sut.settings() == before
    assert lines(made) == []


@pytest.mark.parametrize(("where", "on", "off"), [(NO_TURBO, "0", "1"), (BOOST, "1", "0")], ids=["intel", "amd"])
def test_turbo_is_switched_either_way_and_restored(sut: Sut, made: Any, where: str, on: str, off: str) -> None:
    sut.file(NO_TURBO).unlink()
    for wanted, before, after in (("off", on, off), ("on", off, on)):
        sut.put(where, before + "\n")
        assert change(sut, made, {"turbo": {on: "on", off: "off"}[before]}) == []
        (found,) = change(sut, made, {"turbo": wanted})
        assert (found["where"], found["before"], found["after"]) == (where, before, after)
        assert sut.read(where) == after
        (found,) = restore(sut, made)
        assert (found["restored"], sut.read(where)) == (before, before)


LIMIT = "scaling_max_freq"
TURBO_HZ, BASE_HZ, OWN_HZ = "4000000", "2400000", "2000000"


class Interrupted(BaseException):
    """The run was killed."""


class Cpufreq:
    """The switches for turbo as Linux has them: a general one, and one for each policy."""

    def __init__(self, sut: Sut, monkeypatch: pytest.MonkeyPatch, general: str | None, *own: str | None) -> None:
        self.sut, self.writes, self.most_writes, self.overwrites = sut, 0, -1, False
        self.write_file = settings.Machine.write
        sut.file(NO_TURBO).unlink()
        if general is not None:
            sut.put(BOOST, general + "\n")
        for number, value in enumerate(own):
            sut.put(POLICY % number + LIMIT, (OWN_HZ if number else TURBO_HZ) + "\n")
            if value is not None:
                sut.put(POLICY % number + "boost", value + "\n")
        monkeypatch.setattr(settings.Machine, "write", lambda _machine, where, text: self.write(where, text))

    def write(self, where: str, text: str) -> None:
        if self.writes == self.most_writes:
            raise Interrupted
        self.writes += 1
        policy = Path(where).parent
        if where == BOOST:
            if self.sut.read(BOOST) == text and not self.overwrites:
                return  # until Linux 6.15
            for file in self.sut.file(where).parent.glob("policy*/boost"):
                self.set_own(f"{policy}/{file.parent.name}", text)
        elif where.endswith("/boost"):
            if self.sut.file(BOOST).exists() and self.sut.read(BOOST) == "0":
                raise OSError(errno.EINVAL, "Invalid argument", where)
            self.set_own(str(policy), text)
            return
        self.write_file(self.sut.machine, where, text)

    def set_own(self, policy: str, text: str) -> None:
        """Set a policy's own switch, which sets its limit too."""
        self.write_file(self.sut.machine, f"{policy}/boost", text)
        self.write_file(self.sut.machine, f"{policy}/{LIMIT}", TURBO_HZ if text == "1" else BASE_HZ)


SWITCHES = [
    ("1", "1", "1"),
    ("1", "0", "1"),
    ("1", "0", "0"),
    ("0", "0", "0"),
    (None, "0", "1"),
    ("1", "1", None),
    ("0", None, None),
]


@pytest.mark.parametrize(("wanted", "value"), [("on", "1"), ("off", "0")])
@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_turbo_of_each_policy_is_switched_and_restored_wherever_the_run_ends(
    request: pytest.FixtureRequest, switches: tuple[str | None, ...], wanted: str, value: str
) -> None:
    sut, made = request.getfixturevalue("sut"), request.getfixturevalue("made")
    kernel = Cpufreq(sut, request.getfixturevalue("monkeypatch"), *switches)
    before = sut.settings()
    for kernel.overwrites in (False, True):
        kernel.writes = 0
        change(sut, made, {"turbo": wanted})
        own = [sut.read(POLICY % number + "boost") for number, switch in enumerate(switches[1:]) if switch is not None]
        assert set(own or [sut.read(BOOST)]) == {value}
        assert change(sut, made, {"turbo": wanted}) == []
        restored = restore(sut, made)
        assert all((item["after"], item["restored"]) == (value, item["before"]) for item in restored)
        assert sut.settings() == before
        for most_writes in range(kernel.writes):
            kernel.writes, kernel.most_writes = 0, most_writes
            with contextlib.suppress(Interrupted):
                change(sut, made, {"turbo": wanted})
            kernel.most_writes = -1
            restore(sut, made)
            assert sut.settings() == before


def test_turbo_that_all_policies_have_already_is_not_changed(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Cpufreq(sut, monkeypatch, "1", "0", "0")
    assert change(sut, made, {"turbo": "off"}) == []
    assert kernel.writes == 0


@pytest.mark.parametrize(("driver", "recorded"), [("cppc_cpufreq", 2), ("acpi-cpufreq", 0), ("amd-pstate-epp", 0)])
def test_limits_are_restored_only_where_the_driver_changes_them(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch, driver: str, recorded: int
) -> None:
    """With the others a lower limit may be that of a power cap, which ends by itself."""
    Cpufreq(sut, monkeypatch, "1", "1", "1")
    for number in range(2):
        sut.put(POLICY % number + "scaling_driver", driver + "\n")
    change(sut, made, {"turbo": "off"})
    assert sum(LIMIT in line for line in lines(made)) == recorded


def test_the_switch_of_intel_pstate_is_left_alone_while_it_is_off(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver then has the CPUs (acpi-cpufreq), and reading and writing the file fail with EAGAIN."""
    Cpufreq(sut, monkeypatch, "1")
    sut.put(NO_TURBO, "0\n")
    sut.put("/sys/devices/system/cpu/intel_pstate/status", "off\n")
    assert [item["where"] for item in change(sut, made, {"turbo": "off"})] == [BOOST]


def test_turbo_of_offline_policies_is_left_alone(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Cpufreq(sut, monkeypatch, "1", "1", "1")
    sut.put(POLICY % 1 + "affected_cpus", "\n")
    assert [item["where"] for item in change(sut, made, {"turbo": "off"})] == [POLICY % 0 + "boost", BOOST]
    read = settings.Machine.text

    def busy(machine: Any, where: str) -> Any:
        """Read as of a policy without online CPUs."""
        if where.startswith(POLICY % 0):
            raise OSError(errno.EBUSY, "Device or resource busy", where)
        return read(machine, where)

    monkeypatch.setattr(settings.Machine, "text", busy)
    with pytest.raises(Refused, match="no frequency policies"):
        change(sut, made, {"governor": "performance"})


def test_a_policy_that_cannot_have_turbo_is_refused(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Cpufreq(sut, monkeypatch, "1", "0", "0")
    before = sut.settings()

    def unsupported(_policy: str, _text: str) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(kernel, "set_own", unsupported)
    with pytest.raises(Refused, match=r"policy0/boost cannot be set to 1: .*Operation not supported"):
        change(sut, made, {"turbo": "on"})
    assert sut.settings() == before


@pytest.mark.parametrize(
    ("release", "counts"),
    [
        ("5.14.0-503.11.1.el9_5.x86_64", True),
        ("6.5.13", True),
        ("6.6.0", False),
        ("6.6.40-amd64", False),
        ("6.6.41", True),
        ("6.6.130", True),
        ("6.7.9", False),
        ("6.8.0", False),
        ("6.8.0-57-generic", True),
        ("6.8.12", False),
        ("6.9.9", False),
        ("6.9.10", True),
        ("6.10.0", True),
        ("6.60.1", True),
        ("7.3.0", True),
    ],
)
def test_boost_of_a_policy_counts_if_the_kernel_sets_it(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch, release: str, counts: bool
) -> None:
    """Where it is 0 whatever the CPUs do, restoring it would switch turbo off."""
    Cpufreq(sut, monkeypatch, "1", "0", "0")
    sut.put("/proc/sys/kernel/osrelease", release + "\n")
    for number in range(2):
        sut.put(POLICY % number + "scaling_driver", "acpi-cpufreq\n")
    changes = change(sut, made, {"turbo": "off"})
    assert [item["where"] for item in changes] == ([] if counts else [BOOST])
    assert settings.policy_boost_counts(release, "amd-pstate-epp")


def test_recorded_registers_are_restored_but_not_reported(sut: Sut, made: Any) -> None:
    before = sut.settings()
    change(sut, made, {"prefetchers": "off"})
    tuned = sut.settings()
    entries, unread = settings.read_prefetchers(sut.machine)
    assert ([(entry.where, entry.before) for entry in entries], unread) == (
        [("/dev/cpu/0/msr:0x1a4", "0x4f"), ("/dev/cpu/1/msr:0x1a4", "0x4f")],
        None,
    )
    for _ in range(2):  # by each command that may change them
        journal.append(made.descriptor, entries)
    assert sut.settings() == tuned
    settings.write_value(sut.machine, entries[1].where, "0x0")
    (found,) = restore(sut, made)
    assert (found["before"], found["restored"]) == ("0x40", "0x40")
    assert sut.settings() == before


def test_unreadable_registers_are_reported(sut: Sut) -> None:
    sut.file("/dev/cpu/1/msr").unlink()
    entries, unread = settings.read_prefetchers(sut.machine)
    assert [entry.where for entry in entries] == ["/dev/cpu/0/msr:0x1a4"]
    assert unread == "MSR 0x1a4 of CPUs 1: No such file or directory"


def test_side_effects_of_a_setting_are_restored(sut: Sut, made: Any) -> None:
    change(sut, made, {"governor": "performance"})
    sut.put(POLICY % 0 + "energy_performance_preference", "performance\n")
    (found,) = restore(sut, made)
    assert found["where"].endswith("policy{0-1}/scaling_governor")
    assert sut.read(POLICY % 0 + "energy_performance_preference") == "balance_performance"


def test_the_smallest_share_that_linux_lowers_without_turbo_is_restored(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    least, write = NO_TURBO.replace("no_turbo", "min_perf_pct"), settings.Machine.write

    def lowering(machine: Any, where: str, text: str) -> None:
        """Switch turbo as intel_pstate does."""
        write(machine, where, text)
        if where == NO_TURBO and text == "1":
            sut.put(least, f"{min(65, int(sut.read(least)))}\n")

    sut.put(least, "100\n")
    sut.put(NO_TURBO, "0\n")
    monkeypatch.setattr(settings.Machine, "write", lowering)
    (found,) = change(sut, made, {"turbo": "off"})
    assert (found["where"], sut.read(least)) == (NO_TURBO, "65")
    restore(sut, made)
    assert (sut.read(NO_TURBO), sut.read(least)) == ("0", "100")


def test_the_speed_that_a_program_chose_is_restored(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    speed, write = POLICY % 0 + "scaling_setspeed", settings.Machine.write

    def forgetting(machine: Any, where: str, text: str) -> None:
        """Change the governor as Linux does: userspace begins with the current speed."""
        write(machine, where, text)
        if where == POLICY % 0 + "scaling_governor":
            sut.put(speed, "3600000\n" if text == "userspace" else "<unsupported>\n")

    sut.put(speed, "2000000\n")
    sut.put(POLICY % 0 + "scaling_governor", "userspace\n")
    monkeypatch.setattr(settings.Machine, "write", forgetting)
    change(sut, made, {"governor": "performance"})
    assert sut.read(speed) == "<unsupported>"
    restore(sut, made)
    assert (sut.read(POLICY % 0 + "scaling_governor"), sut.read(speed)) == ("userspace", "2000000")


def test_a_partial_reservation_of_huge_pages_is_restored(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write = settings.Machine.write

    def scarce(machine: Any, where: str, text: str) -> None:
        write(machine, where, str(min(int(text), 40)) if where == PAGES % 1 else text)

    monkeypatch.setattr(settings.Machine, "write", scarce)
    with pytest.raises(Refused, match=r"only 40 of 64 huge pages could .* so far were restored"):
        change(sut, made, {"hugepages_2m": {"0": 64, "1": 64}})
    assert (sut.read(PAGES % 0), sut.read(PAGES % 1)) == ("0", "0")
    assert restore(sut, made) == []


def test_huge_pages_still_in_use_are_given_back_at_a_later_try(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(sut, made, {"hugepages_2m": {"0": 64}})
    write, tries, waits = settings.Machine.write, [], []

    def in_use(machine: Any, where: str, text: str) -> None:
        tries.append(where)
        write(machine, where, text if waits else "3")

    monkeypatch.setattr(settings.Machine, "write", in_use)
    monkeypatch.setattr(settings.time, "sleep", waits.append)
    (found,) = restore(sut, made)
    assert (found["restored"], sut.read(PAGES % 0), tries) == ("0", "0", [PAGES % 0] * 2)


def test_huge_pages_that_another_user_keeps_in_use_are_restored(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sut.settings()
    change(sut, made, {"hugepages_2m": {"0": 4}})
    write, surplus = settings.Machine.write, (PAGES % 0).replace("nr_", "surplus_")

    def in_use(machine: Any, where: str, text: str) -> None:
        """Lower the number as Linux does: pages in use become surplus ones, which are freed by their user."""
        write(machine, where, "2")
        sut.put(surplus, f"{2 - int(text)}\n")

    sut.put(surplus, "0\n")
    monkeypatch.setattr(settings.Machine, "write", in_use)
    (change_,) = restore(sut, made)
    assert (change_["restored"], sut.read(PAGES % 0)) == ("0", "2")
    monkeypatch.undo()
    sut.file(surplus).unlink()
    sut.put(PAGES % 0, "0\n")
    assert sut.settings() == before


def test_register_that_ignores_writes_is_refused(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 8)
    with pytest.raises(Refused, match=r"set to 0x4f and reads 0x40.*remove tune_pr.* so far were restored"):
        change(sut, made, {"prefetchers": "off"})
    assert lines(made) == []


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
    sut: Sut, made: Any, make: Callable[[Sut], None], registers: dict[int, tuple[int, int]]
) -> None:
    make(sut)
    before = sut.settings()
    changes = change(sut, made, {"prefetchers": "off"})
    assert {item["where"]: (item["before"], item["after"]) for item in changes} == {
        f"/dev/cpu/{{0-1}}/msr:{register:#x}": (hex(was), hex(now)) for register, (was, now) in registers.items()
    }
    touched = {name.rpartition(":")[2] for name, value in sut.settings().items() if before.get(name) != value}
    assert touched == {hex(register) for register in registers}
    again = {
        prefetcher.where: int(prefetcher.wanted, 16) for prefetcher in settings.plan_prefetchers(sut.machine, "on")
    }
    assert again == {MSR % cpu + f":{register:#x}": was for cpu in (0, 1) for register, (was, _) in registers.items()}
    restore(sut, made)
    assert sut.settings() == before


def test_the_streams_of_power_are_read_for_comparison(sut: Sut) -> None:
    power(sut, "0", "1d7")
    found, unread = settings.read_prefetchers(sut.machine)
    assert [(item.where, item.before, item.wanted) for item in found] == [
        (DSCR % 0, "0", None),
        (DSCR % 1, "1d7", None),
        (DSCR_DEFAULT, "0", None),
    ]
    assert unread is None
    sut.put(DSCR % 1, "nonsense\n")
    found, unread = settings.read_prefetchers(sut.machine)
    assert [item.where for item in found] == [DSCR % 0, DSCR_DEFAULT]
    assert unread is not None
    assert DSCR % 1 in unread


def test_dscr_is_changed_and_restored_on_each_cpu(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.Machine, "write", to_all_cpus(settings.Machine.write))
    power(sut, "0", "1", "1d7", "0")
    before = sut.settings()
    changes = change(sut, made, {"prefetchers": "off"})
    assert {item["where"]: (item["before"], item["after"]) for item in changes} == {
        "/sys/devices/system/cpu/cpu{0,3}/dscr": ("0", "1"),
        DSCR % 2: ("1d7", "1"),
        DSCR_DEFAULT: ("0", "1"),
    }
    assert [sut.read(DSCR % cpu) for cpu in range(4)] == ["1"] * 4
    assert change(sut, made, {"prefetchers": "off"}) == []
    assert all(item["restored"] == item["before"] for item in restore(sut, made))
    assert sut.settings() == before


def test_dscr_that_ignores_writes_is_refused(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    power(sut, "0", "0")
    before = sut.settings()
    monkeypatch.setattr(settings.Machine, "write", lambda *_: None)
    with pytest.raises(Refused, match=r"cpu0/dscr was set to 1 and reads 0.* so far were restored"):
        change(sut, made, {"prefetchers": "off"})
    assert sut.settings() == before


def test_a_partially_written_register_is_refused_and_all_are_restored(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    intel(sut, 0xCF)
    before = sut.settings()
    write = settings.write_value

    def locked(machine: Any, where: str, value: str) -> None:
        write(machine, where, hex(int(value, 16) & 0x4011) if where == "/dev/cpu/1/msr:0x6d" else value)

    monkeypatch.setattr(settings, "write_value", locked)
    with pytest.raises(Refused, match=r"cpu/1/msr:0x6d was set to 0x40000004011 and reads 0x4011.* restored"):
        change(sut, made, {"prefetchers": "off"})
    assert sut.settings() == before
    assert restore(sut, made) == []


def test_cpu_offline_before_its_change_is_refused_and_others_restored(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = journal.append

    def then_offline(directory: int, entries: Any) -> Any:
        mark = append(directory, entries)
        sut.file(MSR % 1).unlink()
        sut.put(ONLINE, "0\n")
        return mark

    monkeypatch.setattr(journal, "append", then_offline)
    with pytest.raises(Refused, match=r"cpu/1/msr:0x1a4 cannot be set to 0x4f: .* so far were restored"):
        change(sut, made, {"prefetchers": "off"})
    assert peek(sut.file(MSR % 0), 0x1A4) == "40"
    assert lines(made) == []


def test_restoring_a_part_leaves_the_rest(sut: Sut, made: Any) -> None:
    before = sut.settings()
    change(sut, made, {"hugepages_2m": {"0": 64}, "prefetchers": "on", "turbo": "off"})
    tuned = sut.settings()
    known = lines(made)
    for _ in range(2):
        changes, mark = journal.change(sut.machine, made.descriptor, {"prefetchers": "off"})
        assert [(item["where"], item["after"]) for item in changes] == [("/dev/cpu/{0-1}/msr:0x1a4", "0x4f")]
        assert lines(made) != known
        (found,), _ = journal.restore(sut.machine, made.descriptor, "run", mark)
        assert (found["after"], found["restored"], found["restored_by"]) == ("0x4f", "0x40", "run")
        assert sut.settings() == tuned
        assert lines(made) == known
        assert Path(made.path).stat().st_mode & 0o7777 == 0o1700
    assert {item["setting"] for item in restore(sut, made)} == {"hugepages_2m", "turbo"}
    assert sut.settings() == before


def test_prefetchers_that_are_off_stay_off_after_the_steps_that_need_it(sut: Sut, made: Any) -> None:
    change(sut, made, {"prefetchers": "off"})
    assert journal.change(sut.machine, made.descriptor, {"prefetchers": "off"}) == ([], None)
    assert peek(sut.file(MSR % 0), 0x1A4) == "4f"
    assert [item["restored"] for item in restore(sut, made)] == ["0x40"]


def test_refused_change_keeps_earlier_changes(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sut.settings()
    change(sut, made, {"hugepages_2m": {"0": 64}})
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda *_: 8)
        with pytest.raises(Refused, match="changes so far were restored"):
            change(sut, made, {"prefetchers": "off"})
    assert sut.read(PAGES % 0) == "64"
    assert [item["setting"] for item in restore(sut, made)] == ["hugepages_2m"]
    assert sut.settings() == before


@pytest.mark.parametrize("mark", [1, 1 << 20])
def test_invalid_mark_undoes_nothing(sut: Sut, made: Any, mark: int) -> None:
    change(sut, made, {"prefetchers": "off"})
    with pytest.raises(Refused, match=f"no line of the journal ends at {mark}"):
        journal.restore(sut.machine, made.descriptor, "run", mark)
    assert peek(sut.file(MSR % 0), 0x1A4) == "4f"


def test_what_was_not_restored_is_tried_again_at_the_end(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sut.settings()
    _, mark = journal.change(sut.machine, made.descriptor, {"prefetchers": "off"})
    with monkeypatch.context() as patched:
        patched.setattr(settings, "write_value", lambda *_: None)
        _, faults = journal.restore(sut.machine, made.descriptor, "run", mark)
    (fault,) = faults
    assert (fault["where"], fault["wanted"], fault["found"]) == ("/dev/cpu/{0-1}/msr:0x1a4", "0x40", "0x4f")
    assert fault["error"] is None  # the machine accepted the value, and ignored it
    assert [item["restored"] for item in restore(sut, made)] == ["0x40"]
    assert sut.settings() == before


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


@pytest.mark.parametrize(("wanted", "files", "message"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_change_is_refused_and_nothing_changed(
    sut: Sut, made: Any, wanted: dict[str, Any], files: dict[str, str | None], message: str
) -> None:
    for where, text in files.items():
        sut.file(where).unlink(missing_ok=True)
        if text is not None:
            sut.put(where, text)
    before = sut.settings()
    with pytest.raises(Refused, match=message):
        change(sut, made, {"irqbalance": "stopped", **wanted})
    assert sut.settings() == before
    assert not Path(made.path, "journal").exists()


@pytest.mark.parametrize(("bits", "last"), [(0xFFFFDFFF, 0x80000028), (0xFFFFFFFF, 0x8000001F)])
def test_a_processor_without_prefetcher_register_is_refused(sut: Sut, made: Any, bits: int, last: int) -> None:
    amd(sut, 0x19, bits, last)
    before = sut.settings()
    with pytest.raises(Refused, match=r"CPU 0 has no prefetcher register .PrefetchCtlMsr"):
        change(sut, made, {"prefetchers": "off"})
    assert sut.settings() == before


def test_the_journal_accepts_every_register_of_the_table() -> None:
    places = {
        f"/dev/cpu/0/msr:{register:#x}" for table in prefetchers.PREFETCH_TABLES for register in table.registers
    } | {
        DSCR % 3,
        DSCR_DEFAULT,
    }
    for where in places:
        line = settings.Entry("prefetchers", where, "0x1" if "msr" in where else "1", None).line()
        assert settings.Entry.of_line(line).where == where
    for where in ("/dev/cpu/0/msr:0x10", "/dev/cpu/0/msr", "/sys/devices/system/cpu/cpu3/online"):
        with pytest.raises(Refused, match="invalid line in the journal"):
            settings.Entry.of_line(settings.Entry("prefetchers", where, "0x1", None).line())


def test_what_is_offline_is_not_restored_and_the_rest_is(sut: Sut, made: Any) -> None:
    change(sut, made, {"governor": "performance", "turbo": "off"})
    policy = sut.file(POLICY % 1)
    policy.rename(policy.with_name("away"))
    _, faults = made.restore(sut.machine, "run")
    assert len(faults) == 2
    assert {fault["error"] for fault in faults} == {"its CPUs are offline: put them online"}
    assert (sut.read(NO_TURBO), sut.read(POLICY % 0 + "scaling_governor")) == ("0", "powersave")
    policy.with_name("away").rename(policy)
    restore(sut, made)
    assert sut.read(POLICY % 1 + "scaling_governor") == "powersave"


@pytest.mark.parametrize("state", ["inactive", None], ids=["not-running", "no-systemd"])
def test_stopped_irqbalance_needs_no_change(sut: Sut, made: Any, state: str | None) -> None:
    if state is None:
        sut.file("/usr/bin/systemctl").unlink()
    sut.put("/irqbalance", f"{state}\n")
    assert change(sut, made, {"irqbalance": "stopped"}) == []


def test_irqbalance_that_cannot_be_restarted_is_refused(sut: Sut, made: Any) -> None:
    sut.put("/irqbalance", "inactive\n")
    sut.put("/proc/4711/comm", "irqbalance\n")
    with pytest.raises(Refused, match="irqbalance runs as process 4711"):
        change(sut, made, {"irqbalance": "stopped"})


@pytest.mark.parametrize(
    ("places", "shown"),
    [(["/dev/cpu/3/msr"], "/dev/cpu/3/msr"), ([f"/dev/cpu/{n}/msr" for n in (0, 1, 2, 5)], "/dev/cpu/{0-2,5}/msr")],
)
def test_paths_that_differ_in_a_number_are_grouped(places: list[str], shown: str) -> None:
    changes = [{"where": where, "before": "0x0", "restored": None} for where in places]
    (found,) = settings.group_changes(changes)
    assert found["where"] == shown


# The journal


@pytest.mark.parametrize(
    "line",
    [
        '["turbo", "/etc/passwd", "0", "1"]',
        '["turbo", "/sys/devices/system/cpu/cpufreq/../../../../etc/passwd", "0", "1"]',
        '["governor", "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "x\\ny", "z"]',
        '["shadow", "/etc/shadow", "0", "1"]',
        '{"a": 1}',
        "half a li",
    ],
)
def test_an_invalid_line_of_the_journal_is_reported_and_the_others_are_restored(sut: Sut, made: Any, line: str) -> None:
    change(sut, made, {"turbo": "off"})
    with Path(made.path, "journal").open("a") as stream:
        stream.write(line + "\n")
    for who in ("run", "cleanup"):
        (restored,), (fault,) = made.restore(sut.machine, who)
        assert restored["restored"] == "0"
        assert fault["where"] == f"{made.path}/journal"
        assert "invalid line in the journal of settings" in fault["error"]
        assert not journal.is_empty(made.descriptor)
    assert sut.read(NO_TURBO) == "0"


def test_a_journal_that_cannot_be_written_changes_nothing(sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sut.settings()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Refused, match="No space left on device; nothing was changed"):
            change(sut, made, EVERYTHING)
    assert sut.settings() == before
    assert lines(made) == []


def test_the_journal_is_on_disk_before_a_setting_is_written(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = Path(made.path, "journal"), Path(made.path)
    fsync, write = os.fsync, settings.write_value
    on_disk: dict[Path, Any] = {}  # what each had when it was synced
    written = []

    def syncing(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        on_disk[path] = (folder.stat().st_mode & 0o7777, file.exists()) if path == folder else path.read_text()
        fsync(descriptor)

    def writing(machine: Any, where: str, value: str) -> None:
        assert f'"{where}"' in on_disk[file]
        assert on_disk[folder] == (CHANGED, True)
        written.append(where)
        write(machine, where, value)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(settings, "write_value", writing)
    change(sut, made, {"turbo": "off"})
    change(sut, made, EVERYTHING)
    assert len(written) == 8
    assert on_disk[file] == file.read_text()


CALLS = ("open", "write", "pwrite", "fsync", "ftruncate", "fchmod", "rename", "unlink")


def killed_at(count: int, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Have a child *act*, and be killed at its call number *count* to the kernel; return whether it came so far."""
    child = os.fork()
    if child == 0:
        calls = itertools.count()

        def calling(real: Any, *arguments: Any, **options: Any) -> Any:
            if next(calls) == count:
                if real.__name__ == "write":  # a part of it arrives
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os._exit(1)
            return real(*arguments, **options)

        for name in CALLS:
            monkeypatch.setattr(os, name, functools.partial(calling, getattr(os, name)))
        act()
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def test_a_run_killed_at_any_call_to_the_kernel_is_restored(
    sut: Sut, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sut.settings()

    def run() -> None:
        change(sut, made, {"prefetchers": "off", "turbo": "off", "hugepages_2m": {"0": 8}})
        restore(sut, made)

    count = 0
    while killed_at(count, run, monkeypatch):
        changed = sut.settings() != before
        assert not changed or Path(made.path).stat().st_mode & 0o7777 == 0o1700
        restore(sut, made)
        assert sut.settings() == before
        assert journal.is_empty(made.descriptor)
        assert Path(made.path).stat().st_mode & 0o7777 == 0o700
        Path(made.path, "journal").unlink(missing_ok=True)
        count += 1
    assert count > 40


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


@pytest.mark.parametrize("raw", [[{"setting": "turbo"}], ["x"], [{}] * 20_001, [{"setting": "x"}]])
def test_invalid_changes_are_refused(raw: list[Any]) -> None:
    with pytest.raises(EnvironmentLacksError):
        read_changes(raw)


def test_changes_with_long_texts_are_refused(sut: Sut, made: Any) -> None:
    (found,) = change(sut, made, {"turbo": "off"})
    assert read_changes([found])[0].after == "1"
    with pytest.raises(EnvironmentLacksError, match="more than 4096"):
        read_changes([{**found, "where": "x" * 5000}])
