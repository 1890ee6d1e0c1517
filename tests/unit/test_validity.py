# SPDX-License-Identifier: Apache-2.0
"""The closed list of validity flags."""

import pytest

from calibration.sutprobe import Interference, LatencyPlacement, Pages
from calibration.validity import SEVERITIES, flag, validity

QUIET = Interference(
    involuntary_switches=0,
    voluntary_switches=0,
    minor_faults=0,
    major_faults=0,
    steal_ms=0.0,
    interrupts={"LOC": 25},
    softirqs={},
    smi=None,
    core_throttle=None,
    package_throttle=None,
    pages_migrated=0,
)
GOOD_PAGES = Pages(
    wanted="thp",
    obtained="thp",
    base_bytes=4096,
    huge_bytes=2097152,
    huge_fraction=1.0,
    checked=64,
    on_node=64,
    elsewhere=0,
)


def test_a_flag_outside_the_list_is_refused() -> None:
    with pytest.raises(KeyError):
        flag("LOOKS_FINE", "never mind")


def test_one_invalid_flag_makes_the_measurement_invalid_and_comes_first() -> None:
    judged = validity([flag("HUGEPAGE_NONE", "a"), flag("PLACEMENT_WRONG", "b"), flag("PREEMPTED", "c")])
    assert not judged.valid
    assert [each.severity for each in judged.flags] == ["invalid", "warn", "info"]


def test_warnings_alone_leave_it_valid_and_repeats_are_kept_once() -> None:
    judged = validity([flag("PREEMPTED", "1"), flag("PREEMPTED", "1"), flag("PREEMPTED", "2")])
    assert judged.valid
    assert len(judged.flags) == 2


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"involuntary_switches": 1}, "PREEMPTED"),
        ({"steal_ms": 10.0}, "STOLEN"),
        ({"minor_faults": 3}, "FAULTED"),
        ({"smi": 2}, "SMI"),
        ({"core_throttle": 1}, "THROTTLED"),
        ({"pages_migrated": 5}, "MOVED"),
    ],
)
def test_each_kind_of_interference_raises_its_flag(change: dict[str, float], code: str) -> None:
    assert list(QUIET.flags()) == []
    assert [each.code for each in QUIET.model_copy(update=change).flags()] == [code]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"checked": 0, "on_node": 0}, "PLACEMENT_UNVERIFIED"),
        ({"on_node": 63, "elsewhere": 1}, "PLACEMENT_WRONG"),
        ({"on_node": 63}, "PLACEMENT_WRONG"),
        ({"huge_fraction": 0.0, "obtained": "base"}, "HUGEPAGE_NONE"),
        ({"huge_fraction": 0.5, "obtained": "mixed"}, "HUGEPAGE_PARTIAL"),
    ],
)
def test_each_fault_of_placement_raises_its_flag(change: dict[str, float], code: str) -> None:
    assert list(GOOD_PAGES.flags()) == []
    assert [each.code for each in GOOD_PAGES.model_copy(update=change).flags()] == [code]


def test_a_wrong_cpu_or_a_changed_clock_is_seen() -> None:
    placement = LatencyPlacement(
        seed=1,
        pages=GOOD_PAGES,
        core_hz_before=3.0e9,
        core_hz_after=2.9e9,
        interference=QUIET,
        cpu_verified=False,
        windows_ns=(1.0,),
        dirty_windows=(),
    )
    assert {each.code for each in placement.flags()} == {"FREQ_CHANGED", "CPU_UNVERIFIED"}
    assert SEVERITIES["CPU_UNVERIFIED"] == "invalid"
