# SPDX-License-Identifier: Apache-2.0
import pytest

from calibration.base.validity import validity
from calibration.measurements.base import Step
from calibration.report.page import provenance
from calibration.results.model import RunDocument
from calibration.run.pace import pace, pace_text, within_announcement
from tests.report.report_documents import flagged, run_document


def lasting(factor: float) -> RunDocument:
    """Return a run whose steps were announced to take 2 s each, and took *factor* times as long."""
    document = run_document()
    assert document.plan is not None
    measurements = tuple(
        measurement.model_copy(update={"rounds": (), "duration_s": 2 * factor, "validity": validity(())})
        for measurement in document.measurements
    )
    steps = tuple(
        Step(
            id=step, kind="jitter", title=step, argv=("sutprobe",), cpus=(0,), memory_bytes={}, tasks=1,
            expected_duration_s=2.0, setup_s=0.0, longest_duration_s=2.0, deadline_s=30.0,
        )
        for step in dict.fromkeys(measurement.step for measurement in measurements)
    )  # fmt: skip
    plan = document.plan.model_copy(update={"steps": steps})
    return document.model_copy(update={"measurements": measurements, "plan": plan})


def test_a_step_counts_once() -> None:
    document = lasting(1.5)
    first = document.measurements[0]
    twice = document.model_copy(update={"measurements": (*document.measurements, first)})
    announced_s, took_s = pace(twice) or (0, 0)
    assert (announced_s, took_s) == pace(document)
    assert took_s == pytest.approx(1.5 * announced_s)


def test_an_interrupted_run_is_compared_with_the_rounds_that_it_has() -> None:
    document = lasting(0.5)
    assert document.plan is not None
    steps = tuple(step.model_copy(update={"rounds": 6}) for step in document.plan.steps)
    measurements = tuple(item.model_copy(update={"rounds": (1, 2, 3)}) for item in document.measurements)
    update = {"plan": document.plan.model_copy(update={"steps": steps}), "measurements": measurements}
    announced_s, took_s = pace(document.model_copy(update=update)) or (0, 0)
    assert took_s == pytest.approx(announced_s)


@pytest.mark.parametrize(("factor", "within"), [(1.19, True), (0.81, True), (1.21, False), (0.79, False)])
def test_a_fifth_longer_is_as_announced(factor: float, within: bool) -> None:
    assert within_announcement(lasting(factor)) is within
    assert (pace_text(lasting(factor)) or "").endswith(" announced") is (within or factor < 1)


def test_the_reason_of_a_slow_run_is_named() -> None:
    document = flagged(lasting(2), 0, "STOLEN", "12 ms taken by the hypervisor in 3 of 6 placements")
    text = pace_text(document) or ""
    assert f"the hypervisor took CPU time in 1 of {len(document.measurements)} measurements" in text
    assert "announced" in text
    facts = {fact.name: fact.value for fact in provenance(document)}
    assert facts["Measuring"] == text


def test_a_slow_run_without_a_recorded_reason() -> None:
    assert (pace_text(lasting(2)) or "").endswith("announced: no recorded reason")


def test_a_run_without_a_plan_has_no_pace() -> None:
    document = lasting(1).model_copy(update={"plan": None})
    assert pace(document) is None
    assert pace_text(document) is None
    assert within_announcement(document)
