# SPDX-License-Identifier: Apache-2.0
"""Nights for the tests of gates: recorded documents, and the smallest change that a gate detects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import date
from pathlib import Path
from typing import Any

from report_documents import attempt, grown, index_of, replace, run_document, scaled, store, with_rows

from calibration.base.statistics import Estimate
from calibration.judge.night import judgement_of, read_nights
from calibration.judge.run import verdicts_of
from calibration.judge.verdicts import Check, NightVerdict
from calibration.measurements import declaration
from calibration.measurements.jitter import JitterValues
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.preflight.checks import Check as Expectation
from calibration.results.cross_checks import cross_checks
from calibration.results.health import Counted, Health
from calibration.results.model import RunDocument
from calibration.results.run_checks import RUN_CHECKS

NIGHT = date(2026, 1, 2)
NAMES = ("jitter", "latency_matrix", "bandwidth_matrix", "max_bandwidth", "loaded_latency")

OF_METRICS: tuple[Check, ...] = ("limits", "drift", "spread", "bimodal", "homogeneity", "consistency", "missing")

MET = Expectation(
    name="kernel_release", title="Kernel release", expected="6.1.*", found="6.1.0-1", outcome="met", severity="blocking"
)


HEALTHY = Health(
    elapsed_s=60.0,
    counters=(Counted(kind="memory_corrected", read=4, lost=(), changed=()),),
    temperatures=(),
    energy=(),
    unreadable={},
)
"""A run in which no module corrected an error."""


def good_document(sut: str = "sut1") -> RunDocument:
    """Return a run of what was recorded on one node, with a second node that is farther, and an isolated CPU."""
    document = run_document(names=NAMES, sut=sut, testbed="testbed1").model_copy(
        update={"attempts": (attempt(checks=(MET,), health=HEALTHY),), "not_measured": ()}
    )
    document = with_cells(document, "latency_matrix", ((1.0, 1.6), (1.6, 1.0)))
    document = with_cells(document, "bandwidth_matrix", ((1.0, 0.5), (0.5, 1.0)))
    index = index_of(document, "jitter")
    values = document.measurements[index].values
    assert isinstance(values, JitterValues)
    return replace(document, index, values=values.model_copy(update={"isolated": True}))


def with_cells(document: RunDocument, kind: str, factors: Sequence[Sequence[float]]) -> RunDocument:
    """Return *document* with a matrix of the recorded cell times *factors*."""
    index = index_of(document, kind)
    values = document.measurements[index].values
    assert isinstance(values, NodeMatrixValues)
    rows = grown(values, len(factors), lambda row, node: factors[row][node])
    return replace(document, index, values=with_rows(values, rows))


def with_figures(document: RunDocument, kind: str, factor: float, *which: str | int) -> RunDocument:
    """Return *document* with every figure of *kind* times *factor*: those below the fields, keys and places *which*."""
    index = index_of(document, kind)
    values = document.measurements[index].values
    return replace(document, index, values=type(values).model_validate(_times(values.model_dump(), factor, which)))


def _times(value: Any, factor: float, which: Sequence[str | int]) -> Any:
    if which:
        step, *rest = which
        if isinstance(value, dict):
            return {**value, step: _times(value[step], factor, rest)}
        return tuple(_times(item, factor, rest) if place == step else item for place, item in enumerate(value))
    if isinstance(value, dict) and "estimator" in value:
        return scaled(Estimate.model_validate(value), factor).model_dump()
    if isinstance(value, dict):
        return {name: _times(item, factor, ()) for name, item in value.items()}
    return tuple(_times(item, factor, ()) for item in value) if isinstance(value, tuple) else value


def verdict(check: Check, metric: str, **changes: Any) -> NightVerdict:
    """Return a verdict that passes; *changes* replaces its fields."""
    fields: dict[str, Any] = {
        "testbed": "testbed1", "sut": "sut1", "run_id": "20260102T030405Z-0a1b", "night": NIGHT, "metric": metric,
        "check": check, "outcome": "pass", "value": 1.0, "unit": "ns", "bound": (0.5, 2.0), "reason": "as it was",
    }  # fmt: skip
    return NightVerdict(**{**fields, **changes})


def good_verdicts(document: RunDocument) -> list[NightVerdict]:
    """Return passing verdicts of every check of a metric on every figure of *document*."""
    run = document.run
    names = [
        metric.name
        for measurement in document.measurements
        for metric in declaration(measurement.kind).metrics(measurement.values)
    ]
    about = {"testbed": run.testbed, "sut": run.sut, "run_id": run.id}
    return [verdict(check, name, **about) for name in names for check in OF_METRICS]


def failing(verdicts: Sequence[NightVerdict], check: Check, metric: str, **changes: Any) -> list[NightVerdict]:
    """Return *verdicts* with that of *check* on *metric* failed."""
    return [
        changed(item, **{"outcome": "fail", **changes}) if (item.check, item.metric) == (check, metric) else item
        for item in verdicts
    ]


@dataclass(frozen=True)
class Case:
    """A night of one SUT, on disk: its run, and the verdicts on its metrics.

    Without ``measured`` the SUT has no run of the night.
    """

    document: RunDocument
    verdicts: Sequence[NightVerdict]
    measured: bool = True

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write the store and the file of verdicts; return both."""
        return write_night(folder, [self])


def good_case(sut: str = "sut1") -> Case:
    """Return a night in which every gate passes."""
    document = good_document(sut)
    return Case(document, good_verdicts(document))


def measured(change: Callable[[RunDocument], RunDocument]) -> Callable[[], Case]:
    """Return what makes the good night with its document changed."""
    return lambda: changed(good_case(), document=change(good_document()))


def judged(check: Check, metric: str, **changes: Any) -> Callable[[], Case]:
    """Return what makes the good night with one verdict failed."""

    def make() -> Case:
        case = good_case()
        return changed(case, verdicts=failing(case.verdicts, check, metric, **changes))

    return make


def write_night(folder: Path, cases: Sequence[Case]) -> tuple[Path, Path]:
    """Write the runs and the verdicts of *cases* into *folder*; return the store and the file of verdicts.

    The checks of the runs on their own, and the answers, are those of the judge.
    """
    results = folder / "results"
    for item in cases:
        measured = item.document.measurements
        judged_once = {"verdicts": tuple(verdicts_of(measured)), "consistency": cross_checks(measured)}
        if item.measured:
            store(item.document.model_copy(update=judged_once), results)
    nights = read_nights(results)
    assert nights is not None
    own = [found for found in nights.verdicts if found.check in RUN_CHECKS]
    judged_nights = changed(nights, verdicts=(*own, *(found for case in cases for found in case.verdicts)))
    path = folder / "verdicts.json"
    path.write_text(judgement_of(judged_nights).model_dump_json(), encoding="utf-8")
    return results, path
