# SPDX-License-Identifier: Apache-2.0
"""The closed list of validity flags."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.base.validity import flag, validity
from calibration.measurements.evidence import disturbed, placement_flags
from calibration.sutprobe.document import Warned, read_document
from calibration.sutprobe.placement import Interference, Pages, Placement

QUIET = Interference(
    involuntary_switches=0, voluntary_switches=0, minor_faults=0, major_faults=0, steal_ms=0.0, interrupts={"LOC": 25},
    softirqs={}, smi=None, core_throttle=None, package_throttle=None, pages_migrated=0,
)  # fmt: skip
GOOD_PAGES = Pages(
    wanted="thp", obtained="thp", base_bytes=4096, huge_bytes=2097152, huge_fraction=1.0, total=64, checked=64,
    on_node=64, elsewhere=0,
)  # fmt: skip


DOCUMENT = read_document(
    json.loads(
        (Path(__file__).parent.parent / "fixtures" / "sutprobe" / "idle_latency.json").read_text(encoding="utf-8")
    )
)


def test_rejects_an_unknown_flag() -> None:
    with pytest.raises(KeyError):
        flag("LOOKS_FINE", "never mind")


def test_invalid_flag_comes_first() -> None:
    judged = validity([flag("HUGEPAGE_NONE", "a"), flag("PLACEMENT_WRONG", "b"), flag("PREEMPTED", "c")])
    assert not judged.valid
    assert [item.severity for item in judged.flags] == ["invalid", "warn", "info"]


def test_warnings_leave_it_valid_and_repeats_merge() -> None:
    judged = validity([flag("PREEMPTED", "1"), flag("PREEMPTED", "1"), flag("PREEMPTED", "2")])
    assert judged.valid
    assert len(judged.flags) == 2


def placement(*, pages: Pages = GOOD_PAGES, interference: Interference = QUIET, **changes: Any) -> Placement:
    fields = {"seed": 1, "core_hz_before": 3.0e9, "core_hz_after": 3.0e9, "cpus_verified": True, **changes}
    return Placement(pages=pages, interference=interference, **fields)


def codes(*placements: Placement, proved: bool = True) -> list[str]:
    return [item.code for item in placement_flags(DOCUMENT, placements, proved=proved)]


def test_faultless_placement_has_no_flags() -> None:
    assert codes(placement(), placement()) == []


@pytest.mark.parametrize(("change", "code"), [
    ({"involuntary_switches": 1}, "PREEMPTED"),
    ({"steal_ms": 10.0}, "STOLEN"),
    ({"minor_faults": 3}, "FAULTED"),
    ({"smi": 2}, "SMI"),
    ({"core_throttle": 1}, "THROTTLED"),
    ({"pages_migrated": 5}, "MOVED"),
])  # fmt: skip
def test_each_kind_of_interference_raises_its_flag(change: dict[str, float], code: str) -> None:
    hit = placement(interference=QUIET.model_copy(update=change))
    (found,) = placement_flags(DOCUMENT, [placement(), hit], proved=True)
    assert (found.code, found.severity) == (code, "info")
    assert disturbed([placement(), hit]) == {code: {1}}


@pytest.mark.parametrize(("change", "code"), [
    ({"checked": 0, "on_node": 0}, "PLACEMENT_UNVERIFIED"),
    ({"on_node": 63, "elsewhere": 1}, "PLACEMENT_WRONG"),
    ({"on_node": 63}, "PLACEMENT_WRONG"),
    ({"total": 65}, "PLACEMENT_UNVERIFIED"),
    ({"huge_fraction": 0.0, "obtained": "base"}, "HUGEPAGE_NONE"),
    ({"huge_fraction": 0.5, "obtained": "mixed"}, "HUGEPAGE_PARTIAL"),
])  # fmt: skip
def test_each_fault_of_placement_raises_its_flag(change: dict[str, float], code: str) -> None:
    assert codes(placement(), placement(pages=GOOD_PAGES.model_copy(update=change))) == [code]


def test_single_memory_node_needs_no_read_back() -> None:
    unread = placement(pages=GOOD_PAGES.model_copy(update={"checked": 0, "on_node": 0}))
    single_node = DOCUMENT.model_copy(update={"warnings": (Warned(code="PLACEMENT_BY_TOPOLOGY", message="one node"),)})
    assert [item.code for item in placement_flags(single_node, [unread], proved=True)] == ["PLACEMENT_BY_TOPOLOGY"]


def test_flags_cpu_clock_and_unproved_work() -> None:
    assert codes(placement(cpus_verified=False)) == ["CPU_UNVERIFIED"]
    assert codes(placement(core_hz_after=2.9e9)) == ["FREQ_CHANGED"]
    assert codes(placement(), proved=False) == ["WORK_UNPROVED"]
    assert not validity(placement_flags(DOCUMENT, [placement()], proved=False)).valid


def test_flag_counts_its_placements() -> None:
    hit = placement(interference=QUIET.model_copy(update={"involuntary_switches": 4}))
    (found,) = placement_flags(DOCUMENT, [hit, placement(), hit], proved=True)
    assert found.reason == "8 involuntary context switches in 2 of 3 placements"
