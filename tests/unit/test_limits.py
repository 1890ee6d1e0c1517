# SPDX-License-Identifier: Apache-2.0
"""Limits of the inventory: which are valid, and the verdicts they give."""

from typing import Any

import pytest

from calibration.acceptance.limits import KernelKind, read_limits
from calibration.base.errors import InputError
from calibration.base.validity import flag, validity
from calibration.context.model import Context
from calibration.judge.run import judge_run, verdicts_of
from calibration.measurements import declaration
from calibration.results.model import Measurement, Verdict
from tests.captures import captured
from tests.report.report_documents import run_document
from tests.unit.test_measurements import parse, read

GOOD = {"metric": "idle_latency.latency_ns", "upper": 500, "unit": "ns", "reason": "what the same board had before"}


@pytest.fixture(scope="module")
def context() -> Context:
    return captured("x86_64-two-nodes-smt")


def measured(context: Context, *, invalid: bool = False) -> Measurement:
    raw = read("idle_latency")
    (parsed,) = parse("idle_latency", raw, context)
    return Measurement.model_construct(
        id="idle",
        kind="idle_latency",
        values=parsed.values,
        validity=validity([flag("EMULATED", "a made up machine")] if invalid else []),
    )


def verdicts(context: Context, *limits: dict[str, Any], invalid: bool = False) -> list[Verdict]:
    return list(verdicts_of([measured(context, invalid=invalid)], [read_limits(list(limits))]))


def value(context: Context) -> tuple[float, tuple[float, float]]:
    metric = next(iter(declaration("idle_latency").metrics(measured(context).values)))
    assert metric.interval is not None
    return metric.value, metric.interval


def test_a_metric_within_its_limits_passes(context: Context) -> None:
    figure, (low, high) = value(context)
    (verdict,) = verdicts(context, {**GOOD, "lower": low * 0.9, "upper": high * 1.1})
    assert verdict.outcome == "pass"
    assert (verdict.lower, verdict.upper) == (low * 0.9, high * 1.1)
    assert f"found {figure:g} ns (what the same board had before)" in verdict.reason
    assert "reaches beyond" not in verdict.reason


@pytest.mark.parametrize(("bound", "factor", "words"), [("upper", 0.5, "at most"), ("lower", 2, "at least")])
def test_a_metric_outside_its_limits_fails(context: Context, bound: str, factor: float, words: str) -> None:
    figure, _ = value(context)
    limit = {**GOOD, "upper": None, bound: figure * factor}
    (verdict,) = verdicts(context, limit)
    assert verdict.outcome == "fail"
    assert verdict.reason.startswith(f"expected {words} {figure * factor:.15g} ns, found {figure:g} ns")


def test_a_failed_limit_never_shows_the_bound_as_what_was_found(context: Context) -> None:
    figure, _ = value(context)
    bound = float(f"{figure:g}")
    (verdict,) = verdicts(
        context, {**GOOD, "upper": None, "lower": bound} if figure < bound else {**GOOD, "upper": bound}
    )
    assert verdict.outcome == "fail"
    assert f" {bound:g} ns, found {figure!r} ns" in verdict.reason


def test_a_pass_with_an_interval_beyond_the_limit_says_so(context: Context) -> None:
    figure, (_, high) = value(context)
    assert high > figure
    (verdict,) = verdicts(context, {**GOOD, "upper": (figure + high) / 2})
    assert verdict.outcome == "pass"
    assert verdict.reason.endswith("reaches beyond")


BANDWIDTH = {"metric": "bandwidth_matrix.0.1.bandwidth_mb_s", "lower": 9000, "unit": "MB/s", "reason": "two channels"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "not measured: the profile quick does not have it; expected at least 9000 MB/s (two channels)"),
        ({"metric": "*.bandwidth_mb_s"}, "not measured; expected at least 9000 MB/s (two channels)"),
    ],
)
def test_a_limit_of_an_unmeasured_metric_fails(changes: dict[str, str], reason: str) -> None:
    limit = {**BANDWIDTH, **changes}
    latency, bandwidth = judge_run(run_document(names=("idle_latency",)), read_limits([limit])).verdicts
    assert latency.outcome == "no_reference"
    assert (bandwidth.name, bandwidth.metric, bandwidth.outcome) == (limit["metric"], None, "fail")
    assert bandwidth.reason == reason


def test_an_invalid_metric_is_not_compared(context: Context) -> None:
    (verdict,) = verdicts(context, {**GOOD, "upper": 1e9}, invalid=True)
    assert (verdict.outcome, verdict.reason) == ("invalid", "a made up machine")


def test_a_pattern_sets_the_limit_of_every_metric_that_fits(context: Context) -> None:
    figure, _ = value(context)
    (verdict,) = verdicts(context, {**GOOD, "metric": "idle_latency.*", "upper": figure / 2})
    assert (verdict.name, verdict.outcome, verdict.upper) == ("idle_latency.latency_ns", "fail", figure / 2)


def test_the_first_limit_that_fits_applies(context: Context) -> None:
    figure, _ = value(context)
    wide, narrow = {**GOOD, "upper": figure * 2}, {**GOOD, "metric": "idle_*", "upper": figure / 2}
    assert [item.outcome for item in verdicts(context, wide, narrow)] == ["pass"]
    assert [item.outcome for item in verdicts(context, narrow, wide)] == ["fail"]


def test_a_value_beyond_a_soft_limit_is_a_warning(context: Context) -> None:
    figure, _ = value(context)
    (verdict,) = verdicts(context, {**GOOD, "upper": figure * 2, "soft_upper": figure / 2})
    assert (verdict.outcome, verdict.upper) == ("warn", figure * 2)
    assert f"expected at most {figure / 2:.15g} ns, found" in verdict.reason


@pytest.mark.parametrize(
    ("kernel", "outcome"), [("real_time", "fail"), ("other", "no_reference"), (None, "no_reference")]
)
def test_a_limit_for_real_time_kernels_says_nothing_of_others(
    context: Context, kernel: KernelKind | None, outcome: str
) -> None:
    limits = read_limits([{**GOOD, "upper": 1, "kernel": "real_time"}])
    (verdict,) = verdicts_of([measured(context)], [limits], kernel)
    assert verdict.outcome == outcome
    assert (verdict.upper is None) == (outcome == "no_reference")


def test_of_several_lists_the_verdict_is_that_of_the_worst_that_tells(context: Context) -> None:
    figure, _ = value(context)
    good, bad, silent = (
        read_limits([{**GOOD, **changes}])
        for changes in ({"upper": figure * 2}, {"upper": figure / 2}, {"upper": 1, "kernel": "real_time"})
    )
    for lists, outcome, upper in (
        ([good, bad], "fail", figure / 2),
        ([good, silent], "pass", figure * 2),
        ([silent], "no_reference", None),
    ):
        (verdict,) = verdicts_of([measured(context)], lists, "other")
        assert (verdict.outcome, verdict.upper) == (outcome, upper)


@pytest.mark.parametrize(("limits", "words"), [
    ("idle", "not a list: 'idle'"),
    ([["idle"]], "limit 1: not a mapping: ['idle']"),
    ([{**GOOD, "most": 3}], "limit 1: unknown field 'most', expected metric, lower, upper, soft_lower,"),
    ([{**GOOD, "metric": "*a" * 101}], "has 202 characters"),
    ([{**GOOD, "metric": "idle_latency.latency"}], "unknown metric 'idle_latency.latency'"),
    ([{**GOOD, "metric": "bandwidth_matrix.a.0.bandwidth_mb_s"}], "unknown metric 'bandwidth_matrix.a"),
    ([{**GOOD, "unit": "us"}], "the unit of idle_latency.latency_ns is ns, not us"),
    ([{**GOOD, "unit": None}], "limit 1: unit is not a line of text: None"),
    ([{**GOOD, "reason": " "}], "limit 1: reason is not a line of text"),
    ([{**GOOD, "reason": "a\x1b[2Jb"}], "limit 1: reason is not a line of text"),
    ([{**GOOD, "upper": None}], "idle_latency.latency_ns has no lower or upper bound"),
    ([{**GOOD, "upper": "500"}], "idle_latency.latency_ns: upper is not a number: '500'"),
    ([{**GOOD, "upper": float("nan")}], "upper is not a number: nan"),
    ([{**GOOD, "upper": True}], "upper is not a number: True"),
    ([{**GOOD, "upper": 10**400}], "upper is not a number: 1000"),
    ([{**GOOD, "lower": 501}], "the lower bound 501 is above the upper bound 500"),
    ([GOOD, GOOD], "several limits for idle_latency.latency_ns"),
    ([{**GOOD, "metric": "idle_latency.late*_mb"}], "no metric matches 'idle_latency.late*_mb'"),
    ([{**GOOD, "metric": "wakeup.*", "unit": "MB/s"}], "is ns, not MB/s"),
    ([{**GOOD, "soft_upper": 501}], "the soft upper bound 501 is above the upper bound 500"),
    ([{**GOOD, "lower": 5, "soft_lower": 4}], "the lower bound 5 is above the soft lower bound 4"),
    ([{**GOOD, "kernel": "rt"}], "kernel must be real_time or other, not 'rt'"),
    ([{**GOOD, "soft_share": 0.1}], "soft_share must be a share of CPUs"),
    ([{**GOOD, "soft_upper": 5, "soft_share": 1}], "soft_share must be a share of CPUs"),
    ([{**GOOD, "observed_s": 0}], "observed_s must be above 0, not 0"),
])  # fmt: skip
def test_unusable_limits_are_refused(limits: Any, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_limits(limits)
    assert str(refused.value).startswith("calibration_limits: ")
    assert words in str(refused.value)
    assert len(str(refused.value)) < 600


def test_limits_may_allow_a_single_value() -> None:
    (limit,) = read_limits([{**GOOD, "lower": 500, "upper": 500}])
    assert (limit.lower, limit.upper) == (500, 500)


def test_a_limit_of_minus_zero_is_zero() -> None:
    (limit,) = read_limits([{**GOOD, "upper": -0.0}])
    assert str(limit.upper) == "0.0"


def test_limits_may_be_empty() -> None:
    assert read_limits([]) == ()
