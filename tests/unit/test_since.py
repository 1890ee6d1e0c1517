# SPDX-License-Identifier: Apache-2.0
"""What changed since the last night, and since accepted."""

from datetime import date

import pytest
from click.testing import CliRunner

from calibration.commands.judging import accept_command
from calibration.judge.night import judge_testbed
from calibration.judge.since import Since, changes_since
from tests.unit.histories import BANDWIDTH, FACTS, LATENCY, history, judged, night_of, noise, stored

SUT = ("lab", "t1")


def last_night(*values: float | None, half_width: float | None = 0.005, **more: object) -> Since:
    found = list(changes_since(judged(history({BANDWIDTH: values}, half_width=half_width, **more)), SUT, [BANDWIDTH]))  # type: ignore[arg-type]
    assert [since.accepted for since in found] == [False]
    return found[0]


@pytest.mark.parametrize(
    ("before", "after", "half_width", "moved"),
    [
        (100.0, 101.0, 0.005, "as before"),
        (100.0, 88.0, 0.005, "worse"),
        (100.0, 112.0, 0.005, "better"),
        (100.0, 96.0, 0.02, "unknown"),  # the intervals overlap
        (100.0, 88.0, None, "unknown"),  # observed once
    ],
)
def test_a_metric_moved_if_its_intervals_say_so(
    before: float, after: float, half_width: float | None, moved: str
) -> None:
    (change,) = last_night(before, after, half_width=half_width).metrics
    assert change.moved == moved
    assert (change.reason != "") == (moved == "unknown")


def test_the_last_night_is_that_of_the_run_before() -> None:
    since = last_night(100.0, 80.0, None, 88.0, runs={2: None})
    assert since.night == night_of(1)
    assert [(change.before, change.after, change.size) for change in since.metrics] == [(80.0, 88.0, "+10.0 %")]
    assert since.text == "1 better; no configuration change"


def test_what_changed_in_the_configuration_is_named_and_counted() -> None:
    changed = {**FACTS, "microcode": "0xd0003b9", "BIOS": "Example 2.2 2026-01-01", "cores": "32 with 2 threads each"}
    since = last_night(100.0, 100.0, facts={1: changed})
    assert len(since.facts) == 3
    assert since.text.startswith("1 as before; microcode 0xd0003a5 -> 0xd0003b9; ")
    assert since.text.endswith("; 1 more fact")


def test_a_first_night_has_nothing_before() -> None:
    nights = judged(history({BANDWIDTH: [100.0]}))
    assert list(changes_since(nights, SUT, [BANDWIDTH])) == []


def test_an_absent_run_changed_nothing() -> None:
    nights = judged(history({BANDWIDTH: [100.0, 100.0, None]}, runs={2: None}))
    assert list(changes_since(nights, SUT, [BANDWIDTH])) == []


def test_since_accepted_is_as_the_limits_were_judged(tmp_path) -> None:  # type: ignore[no-untyped-def]
    paths = stored(tmp_path, [*noise(10, spread=0.002), 120.0])
    words = ["--results", str(tmp_path), "--by", "Ada", "--reason", "as delivered"]
    done = CliRunner().invoke(accept_command, [str(paths[9]), *words])
    assert done.exit_code == 0, done.output
    nights = judge_testbed(tmp_path, "lab", sut=None, night=date(2026, 1, 11))
    (before, accepted) = changes_since(nights, SUT, [LATENCY])
    assert (before.accepted, before.night) == (False, night_of(9))
    assert (accepted.accepted, accepted.night) == (True, night_of(9))
    (change,) = accepted.metrics
    assert (change.moved, change.after) == ("worse", pytest.approx(120.0))
    assert change.before == pytest.approx(100.0, rel=0.01)
    assert accepted.of([]).text == "nothing to compare; no configuration change"
