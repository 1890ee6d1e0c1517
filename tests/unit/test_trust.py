# SPDX-License-Identifier: Apache-2.0
"""Trust in one figure: the levels, the worst reason, and interference that counts only where it moved the figure."""

from itertools import pairwise

import pytest

from calibration.base.statistics import Estimate, estimate
from calibration.base.trust import Judged, lowest, of_width, trust_of, worst
from calibration.base.validity import flag

STEADY = [[99.0], [99.5], [100.0], [100.0], [100.5], [101.0]]


def figure(samples: list[list[float]] = STEADY, target: float | None = 0.01, **disturbed: set[int]) -> Estimate:
    return estimate(samples, "ns", target_half_width=target, disturbed=disturbed)


@pytest.mark.parametrize(
    ("half_width", "trust"), [(0.0099, "on_target"), (0.0101, "near"), (0.0299, "near"), (0.0301, "poor")]
)
def test_a_half_width_is_on_target_near_or_poor(half_width: float, trust: str) -> None:
    judged = of_width(half_width, 0.01)
    assert judged.trust == trust
    assert (judged.reason is None) == (trust == "on_target")


def test_reason_names_width_and_target() -> None:
    judged = trust_of(figure([[90.0], [95.0], [100.0], [104.0], [108.0], [110.0]]))
    assert judged.trust == "poor"
    assert judged.reason is not None
    assert judged.reason.reason == "half-width 9.8 %, target 1 %"
    wide = of_width(1.6, 0.01).reason
    assert wide is not None
    assert wide.reason == "half-width 160 %, target 1 %"


def test_value_without_a_target_is_observed() -> None:
    assert trust_of(figure(target=None)) == Judged("observed")
    assert trust_of(figure([[100.0]])) == Judged("observed")


def test_two_levels_are_poor_however_narrow_the_interval() -> None:
    judged = trust_of(figure([[100.0, 120.0] * 3] * 6))
    assert (judged.trust, judged.reason and judged.reason.code) == ("poor", "BIMODAL")


def test_interference_counts_beyond_the_half_width() -> None:
    split = [[100.0], [100.0], [100.0], [103.0], [103.0], [103.0]]
    moved = figure(split, 0.02, STOLEN={3, 4, 5})
    assert [flag.code for flag in moved.flags] == []  # 1.5 away, and the half-width is 1.5
    few = [[100.0], [100.1], [100.2], [100.3], [107.0], [107.1], [107.2], [107.3], [107.4]]
    hit = figure(few, 0.05, STOLEN={4, 5, 6, 7, 8})
    assert [flag.code for flag in hit.flags] == ["STOLEN"]
    assert hit.flags[0].reason == "5 of 9 placements affected; without them the value is -6.4 %"
    assert trust_of(hit).trust == "near"
    assert figure(STEADY, 0.02, FAULTED={0}).flags == ()


def test_all_placements_disturbed_cannot_be_compared() -> None:
    assert figure(STEADY, 0.02, STOLEN=set(range(6))).flags == ()


def test_reports_only_the_worst_reason() -> None:
    wide = figure([[90.0], [91.0], [92.0], [93.0], [170.0], [171.0], [172.0]], 0.01, FAULTED={4, 5, 6}, PREEMPTED={0})
    judged = trust_of(wide)
    assert judged.reason is not None
    assert judged.reason.code == "NOT_CONVERGED"


def test_worst_reasons_are_of_placement_then_of_the_samples_then_of_interference() -> None:
    order = ("PLACEMENT_WRONG", "WORK_UNPROVED", "EMULATED", "BIMODAL", "NOT_CONVERGED", "THROTTLED", "STOLEN", "MOVED")
    for worse, other in pairwise(order):
        assert worst([flag(other, ""), flag(worse, "")]) == flag(worse, "")
    assert worst([]) is None


def test_the_lowest_trust_counts() -> None:
    assert lowest(["on_target", "near", "observed"]) == "near"
    assert lowest(["near", "invalid", "poor"]) == "invalid"
    assert lowest(["observed", "on_target"]) == "on_target"
    assert lowest([]) is None
