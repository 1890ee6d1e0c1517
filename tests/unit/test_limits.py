# SPDX-License-Identifier: Apache-2.0
"""Limits: bounds that can be judged by, and the verdicts they give."""

from pathlib import Path
from typing import Any

import pytest

from calibration.context import load
from calibration.context.model import Context
from calibration.errors import InputError
from calibration.judge.limits import read_limits
from calibration.judge.run import verdicts_of
from calibration.measurements import declaration
from calibration.results.model import Measurement, Verdict
from calibration.validity import flag, validity
from tests.unit.test_measurements import FIXTURES, parse, read

GOOD = {"metric": "idle_latency.latency_ns", "upper": 500, "unit": "ns", "reason": "what the same board had before"}


@pytest.fixture(scope="module")
def context() -> Context:
    return load(FIXTURES / "context" / "x86_64-two-nodes-smt.tar.gz")


def measured(context: Context, *, invalid: bool = False) -> Measurement:
    raw = read(FIXTURES / "sutprobe" / "idle_latency.json")
    (parsed,) = parse(Path("idle_latency.json"), raw, context)
    return Measurement.model_construct(
        id="idle",
        kind="idle_latency",
        values=parsed.values,
        validity=validity([flag("EMULATED", "a made up machine")] if invalid else []),
    )


def verdicts(context: Context, *limits: dict[str, Any], invalid: bool = False) -> list[Verdict]:
    return list(verdicts_of([measured(context, invalid=invalid)], read_limits(list(limits))))


def value(context: Context) -> tuple[float, tuple[float, float]]:
    metric = next(iter(declaration("idle_latency").metrics(measured(context).values)))
    assert metric.interval is not None
    return metric.value, metric.interval


def test_a_figure_within_its_bounds_passes_and_says_so(context: Context) -> None:
    figure, (low, high) = value(context)
    (verdict,) = verdicts(context, {**GOOD, "lower": low * 0.9, "upper": high * 1.1})
    assert verdict.outcome == "pass"
    assert (verdict.lower, verdict.upper) == (low * 0.9, high * 1.1)
    assert f"found {figure:g} ns (what the same board had before)" in verdict.reason
    assert "reaches beyond" not in verdict.reason


@pytest.mark.parametrize(("bound", "factor", "words"), [("upper", 0.5, "at most"), ("lower", 2, "at least")])
def test_a_figure_outside_its_bounds_fails(context: Context, bound: str, factor: float, words: str) -> None:
    figure, _ = value(context)
    limit = {**GOOD, "upper": None, bound: figure * factor}
    (verdict,) = verdicts(context, limit)
    assert verdict.outcome == "fail"
    assert verdict.reason.startswith(f"expected {words} {figure * factor:g} ns, found {figure:g} ns")


def test_a_pass_whose_interval_reaches_beyond_says_so(context: Context) -> None:
    figure, (_, high) = value(context)
    assert high > figure
    (verdict,) = verdicts(context, {**GOOD, "upper": (figure + high) / 2})
    assert verdict.outcome == "pass"
    assert verdict.reason.endswith("reaches beyond")


def test_a_limit_whose_metric_was_not_measured_fails(context: Context) -> None:
    limit = {"metric": "bandwidth_matrix.0.1.bandwidth_mb_s", "lower": 9000, "unit": "MB/s", "reason": "two channels"}
    latency, bandwidth = verdicts(context, limit)
    assert latency.outcome == "no_reference"
    assert (bandwidth.name, bandwidth.metric, bandwidth.outcome) == (limit["metric"], None, "fail")
    assert bandwidth.reason == "not measured, expected at least 9000 MB/s (two channels)"


def test_an_invalid_figure_is_not_compared_with_its_limit(context: Context) -> None:
    (verdict,) = verdicts(context, {**GOOD, "upper": 1e9}, invalid=True)
    assert (verdict.outcome, verdict.reason) == ("invalid", "a made up machine")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("idle", "expected a list of limits, found 'idle'"),
        ([["idle"]], "expected limit 1 to be a mapping of metric, lower, upper, unit, reason"),
        ([{**GOOD, "most": 3}], "expected limit 1 to be a mapping of metric, lower, upper, unit, reason"),
        ([{**GOOD, "metric": "idle_latency.latency"}], "found 'idle_latency.latency', which no measurement has"),
        ([{**GOOD, "metric": "bandwidth_matrix.a.0.bandwidth_mb_s"}], "which no measurement has"),
        ([{**GOOD, "unit": "us"}], "expected the unit ns for idle_latency.latency_ns, found us"),
        ([{**GOOD, "unit": None}], "expected unit of limit 1 to be a text, found None"),
        ([{**GOOD, "reason": " "}], "expected reason of limit 1 to be a text"),
        ([{**GOOD, "reason": "a\x1b[2Jb"}], "expected reason of limit 1 to be a text"),
        ([{**GOOD, "upper": None}], "expected a lower or an upper bound for idle_latency.latency_ns, found neither"),
        ([{**GOOD, "upper": "500"}], "expected upper of idle_latency.latency_ns to be a number, found '500'"),
        ([{**GOOD, "upper": float("nan")}], "to be a number, found nan"),
        ([{**GOOD, "upper": True}], "to be a number, found True"),
        ([{**GOOD, "lower": 501}], "found lower 501 above upper 500"),
        ([GOOD, GOOD], "expected one limit for idle_latency.latency_ns, found 2"),
    ],
)
def test_a_limit_that_nothing_can_be_judged_by_is_bad_input(limits: Any, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_limits(limits)
    assert str(refused.value).startswith("calibration_limits: ")
    assert words in str(refused.value)


def test_bounds_may_allow_one_value_alone() -> None:
    (limit,) = read_limits([{**GOOD, "lower": 500, "upper": 500}])
    assert (limit.lower, limit.upper) == (500, 500)


def test_no_limits_are_no_limits() -> None:
    assert read_limits([]) == ()
