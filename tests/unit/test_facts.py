# SPDX-License-Identifier: Apache-2.0
"""Facts of a machine: exactly the properties that metrics depend on."""

from pathlib import Path
from typing import Any, Final

import pytest

from calibration.base.tuning import SETTINGS
from calibration.context.cmdline import parse_cmdline
from calibration.context.facts import NOT_KNOWN, differences, fact_value, facts, other_facts, same_fact
from calibration.context.loader import load
from calibration.context.model import Context, Dimm, FrequencyPolicy, IdleState
from tests.captures import captured

CAPTURES = sorted((Path(__file__).parents[1] / "fixtures" / "context").glob("*.tar.gz"))
SUTPROBE: Final = "0123456789abcdef" * 4


@pytest.fixture(name="machine")
def _machine() -> Context:
    return captured("x86_64-isolated")


def changed(context: Context, part: str, **fields: Any) -> Context:
    return context.model_copy(update={part: getattr(context, part).model_copy(update=fields)})


def dimm(locator: str, **fields: Any) -> Dimm:
    known: dict[str, Any] = {
        **dict.fromkeys(Dimm.model_fields), "locator": locator, "size_bytes": 32 << 30, "type": "DDR5", "ranks": 2,
        "speed_mt_s": 5600, "configured_mt_s": 4800,
    }  # fmt: skip
    return Dimm(**{**known, **fields})


def policy(**fields: Any) -> FrequencyPolicy:
    known = {
        **dict.fromkeys(FrequencyPolicy.model_fields),
        "cpus": (0,),
        "min_hz": 800_000_000,
        "max_hz": 3_900_000_000,
    }
    return FrequencyPolicy(**{**known, **fields})


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name.partition(".")[0])
def test_every_machine_has_all_facts(capture: Path, machine: Context) -> None:
    found = facts(load(capture), None)
    assert list(found) == list(facts(machine, SUTPROBE))
    assert all(found.values())
    assert "None" not in "".join(found.values())
    assert found["sutprobe build"] == NOT_KNOWN


@pytest.mark.parametrize(("part", "fields", "name", "says"), [
    ("capture", {"kernel_release": "6.1.0-57-amd64"}, "kernel", "6.1.0-57-amd64"),
    ("cmdline", dict(parse_cmdline("mitigations=off")), "kernel command line", "mitigations=off"),
    ("firmware", {"bios_version": "1.3"}, "BIOS", "SeaBIOS 1.3 04/01/2014"),
    ("firmware", {"dimms": ()}, "DIMMs", NOT_KNOWN),
    ("topology", {"smt_control": "off"}, "SMT", "off"),
    ("frequency", {"governors": ("performance",)}, "governor", "performance"),
    ("frequency", {"turbo": False}, "turbo", "off"),
    ("frequency", {"drivers": ("intel_pstate",), "pstate_status": "active"}, "frequency driver", "intel_pstate, act"),
    ("frequency", {"policies": (policy(), policy(cpus=(1,)))}, "frequency limits", "0.8 to 3.9 GHz"),
    ("idle", {"states": (IdleState(name="C6", description=None, latency_us=1, residency_us=1, disabled_cpus=(2, 3)),)},
     "idle states", "C6 (off on CPUs 2-3)"),
    ("memory", {"numa_balancing": 2}, "NUMA balancing", "mode 2"),
    ("kernel", {"preemption": "lazy"}, "preemption", "lazy"),
    ("memory", {"hugepages": ()}, "huge pages", NOT_KNOWN),
    ("clocksource", {"current": "hpet"}, "clock source", "hpet"),
    ("isolation", {"isolated": ()}, "isolated CPUs", "none (tickless: 2-3,6-7)"),
    ("isolation", {"cpuset_isolated": (4,)}, "isolated CPUs", "2-4,6-7 (tickless: 2-3,6-7)"),
    ("isolation", {"housekeeping": (0, 1, 4, 5)}, "housekeeping CPUs", "0-1,4-5"),
    ("isolation", {"housekeeping": ()}, "housekeeping CPUs", "none"),
])  # fmt: skip
def test_relevant_change_affects_only_its_fact(
    machine: Context, part: str, fields: dict[str, Any], name: str, says: str
) -> None:
    before, after = facts(machine, None), facts(changed(machine, part, **fields), None)
    assert [item for item in before if before[item] != after[item]] == [name]
    assert after[name].startswith(says) or says in after[name]
    assert other_facts(before, after) == [f"{name}: {before[name]} -> {after[name]}"]


def test_cores_with_different_numbers_of_threads_are_told_apart(machine: Context) -> None:
    (core, *_) = machine.topology.cores
    cores = [core.model_copy(update={"cpus": cpus}) for cpus in ((0, 1), (2, 3), (4,), (5,), (6,))]
    other = changed(machine, "topology", cores=tuple(cores), threads_per_core=2)
    assert facts(other, None)["cores"] == "2 with 2 threads, 3 with 1 thread, in 2 packages"


def test_volatile_and_identifying_data_are_no_facts(machine: Context) -> None:
    other = changed(machine, "capture", hostname="sut9", uname="Linux sut9", captured_at="2027-01-01T00:00:00Z")
    other = changed(other, "memory", free_bytes=1, available_bytes=1)
    other = changed(other, "kernel", uptime_s=5.0, load_average=(9.0, 9.0, 9.0))
    other = changed(other, "frequency", policies=(policy(current_hz=1),))
    first = changed(machine, "frequency", policies=(policy(current_hz=2),))
    for context, where in (
        (first, "root=UUID=1 BOOT_IMAGE=/a quiet -- x"),
        (other, "root=UUID=2 BOOT_IMAGE=/b quiet -- x"),
    ):
        found = facts(context.model_copy(update={"cmdline": parse_cmdline(where)}), SUTPROBE)
        assert found["kernel command line"] == "quiet -- x"
        assert found["sutprobe build"] == "0123456789ab"
    same = other.model_copy(update={"cmdline": machine.cmdline})
    assert facts(first, SUTPROBE) == facts(same, SUTPROBE)


def test_a_missing_or_different_dimm_changes_the_facts(machine: Context) -> None:
    whole = [dimm("A1"), dimm("A2"), dimm("B1"), dimm("B2")]

    def dimms_of(dimms: list[Dimm]) -> str:
        return facts(changed(machine, "firmware", dimms=tuple(dimms)), None)["DIMMs"]

    assert dimms_of(whole) == "4 x 32 GiB DDR5 at 4800 MT/s, 2 ranks in A1, A2, B1, B2"
    assert dimms_of([*whole[:3], dimm("B2", size_bytes=0)]).endswith("in A1, A2, B1; 1 x empty in B2")
    assert "1 x 32 GiB DDR5 at 4400 MT/s, 2 ranks in B2" in dimms_of([*whole[:3], dimm("B2", configured_mt_s=4400)])
    assert "1 x 16 GiB DDR5 at 4800 MT/s, 1 rank in B2" in dimms_of(
        [*whole[:3], dimm("B2", size_bytes=16 << 30, ranks=1)]
    )
    unknown = dimm("B2", bank="CHANNEL B", size_bytes=None, ranks=None, configured_mt_s=None)
    assert dimms_of([unknown]) == "1 x size unknown DDR5 in CHANNEL B B2"


def test_tunable_settings_do_not_prevent_resuming(machine: Context) -> None:
    assert {"governor", "turbo"} < set(SETTINGS)
    tuned = changed(machine, "frequency", governors=("performance",), turbo=False)
    tuned = changed(tuned, "memory", hugepages=())
    assert differences(machine, tuned) == []
    other = changed(machine, "capture", hostname="sut9")
    assert differences(machine, other) == [f"host name: {machine.capture.hostname} -> sut9"]
    assert differences(machine, changed(machine, "capture", kernel_release="6.9"))[0].startswith("kernel: Linux 6.1")
    assert differences(machine, machine.model_copy(update={"cmdline": None}))[0].endswith(f" -> {NOT_KNOWN}")
    other = changed(machine, "firmware", bios_version="9")
    assert [difference.partition(":")[0] for difference in differences(machine, other)] == ["BIOS"]


SAME = [
    ("kernel command line", "nohz_full=2-3 hugepages=8 default_hugepagesz=2M",
     "default-hugepagesz=2M hugepages=8 nohz_full=2,3"),
    ("kernel command line", "isolcpus=domain,managed_irq,2-3 audit=0", "audit=off isolcpus=managed_irq,domain,3,2"),
    ("governor", "performance, powersave", "powersave, performance"),
    ("microcode", "0x2 on CPUs 1; 0x1 on CPUs 0", "0x1 on CPUs 0; 0x2 on CPUs 1"),
    ("CPUs", "0-3", "0,1,2,3"),
    ("frequency limits", "0.8 to 3.9 GHz, 0.8 to 2.9 GHz", "0.8 to 2.9 GHz, 0.8 to 3.9 GHz"),
    ("network devices", "1 x a at 0000:18:00.0; 2 x b at c, d", "2 x b at c, d; 1 x a at 0000:18:00.0"),
    ("kernel command line",
     "ro ostree=/ostree/boot.0/x root=UUID=1 boot=UUID=11 BOOTIF=<blanked> rd.lvm.lv=a/root resume_offset=1",
     "ro ostree=/ostree/boot.1/x root=UUID=2 boot=UUID=22 rd.lvm.lv=b/root rd.luks.uuid=luks-b"),
    ("DIMMs", "2 x 16 GiB in P0 A1, P0 B1; 1 x empty in P0 C1", "1 x empty in P0 C1; 2 x 16 GiB in P0 B1, P0 A1"),
    ("allocation", "a on CPUs 0: L3 1; b on CPUs 1: L3 2", "b on CPUs 1: L3 2; a on CPUs 0: L3 1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "one", "other"), SAME)
def test_texts_that_say_the_same_are_no_difference(name: str, one: str, other: str) -> None:
    assert same_fact(name, one, other)
    assert other_facts({name: one}, {name: other}) == []
    assert fact_value(name, one) == fact_value(name, other)


OTHER = [
    ("kernel command line", "console=ttyS0 console=tty0", "console=tty0 console=ttyS0"),  # the last is /dev/console
    ("kernel command line", "hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=4"),
    ("kernel command line", "quiet -- a b", "quiet -- b a"),
    ("governor", "performance", "performance, powersave"),
    ("DIMMs", "2 x 16 GiB in P0 A1, P0 B1", "2 x 16 GiB in P0 A1, P0 C1"),
    ("tuned profile", "balanced own", "own balanced"),  # the last one prevails
    ("distances between nodes", "10 20; 21 10", "10 21; 20 10"),
    ("NUMA balancing", NOT_KNOWN, "0"),
    ("sutprobe build", "0123", "3210"),
]


@pytest.mark.parametrize(("name", "one", "other"), OTHER)
def test_texts_that_say_something_else_are_a_difference(name: str, one: str, other: str) -> None:
    assert not same_fact(name, one, other)
    assert other_facts({name: one}, {name: other}) == [f"{name}: {one} -> {other}"]
