# SPDX-License-Identifier: Apache-2.0
"""Forty synthetic nights of a small lab with one of each failure."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from math import sin
from typing import Any

import numpy as np

from calibration.base.trust import Trust
from calibration.judge.baseline_files import Acceptance, AcceptedRun, Bounds, NoBaselines, Place
from calibration.judge.drift import Analysis, DriftChange, Flips
from calibration.judge.judged import JudgedNights
from calibration.judge.verdicts import ContextChange, NightVerdict, Waived
from calibration.results.history import Headline, History, NightRun, Series
from tests.report.report_documents import RUN_ID

TESTBED = "example-lab"
LAST = date(2026, 1, 2)
NIGHTS = tuple(LAST - timedelta(days=39 - number) for number in range(40))
IDLE, READS, GAP = "idle_latency.latency_ns", "max_bandwidth.reads.bandwidth_mb_s", "jitter.cpu{}.gaps.max_ns"
TITLES: Mapping[str, str] = {
    **{GAP.format(cpu): f"Longest interruption, CPU {cpu}" for cpu in range(9)},
    READS: "Maximum read bandwidth",
    IDLE: "Idle latency",
}
FACTS = {"kernel": "Linux 6.1.0-1", "BIOS": "Example 1.2", "microcode": "0x10", "kernel command line": "quiet"}

METRICS = (
    (IDLE, "ns", 90.0),
    *((GAP.format(cpu), "ns", 20000.0 + 1000 * cpu) for cpu in range(9)),
    (READS, "MB/s", 200000.0),
)

SHIFT, SPREAD, FLIPS, GONE, ABSENT = 30, 25, 20, 10, 38
"""The columns from which t3-sut2 is slower, t3-sut3 unsteady, t3-sut4 flips, t3-sut9 is gone, t4-sut1 is missing."""


class MadeBaselines(NoBaselines):
    """What is accepted since the first night: 2 % around the level, but nothing of t3-sut5."""

    def _acceptances(self, place: Place) -> tuple[Acceptance, ...]:
        if place.sut in {None, "t3-sut5"}:
            return ()
        bounds = {
            metric: Bounds(
                value=level, lower=level * 0.98, upper=level * 1.02, unit=unit, method="nights", why="40 nights",
                spread=0.01, relative=True, nights=40,
            )
            for metric, unit, level in METRICS
        }  # fmt: skip
        run = AcceptedRun(testbed=TESTBED, sut="t3-sut1", id=run_id(NIGHTS[0]), night=NIGHTS[0])
        accepted_at = datetime(2025, 11, 24, 8, tzinfo=UTC)
        return (
            Acceptance(
                accepted_by="ann@example.org", accepted_at=accepted_at, reason="new", outside=0.001, accepted=(run,),
                runs=(run,), bounds=bounds,
            ),
        )  # fmt: skip


def run_id(night: date) -> str:
    return RUN_ID if night == LAST else f"{night:%Y%m%d}T030405Z-0a1b"


def made_nights(text: str | None = None) -> JudgedNights:
    """Return the forty nights; with a *text*, all that comes from a SUT or an operator is that text."""
    runs: dict[tuple[str, str], dict[date, NightRun]] = {}
    series: list[Series] = []
    values: list[list[float]] = []
    analyses: list[Analysis] = []
    verdicts: list[NightVerdict] = []
    for place, (testbed, sut) in enumerate(
        [*((TESTBED, f"t3-sut{number}") for number in (1, 2, 3, 4, 5, 9)), ("other-lab", "t4-sut1")]
    ):
        own = {column: _run(testbed, sut, column, text) for column in range(40)}
        if sut == "t3-sut1":
            del own[10], own[11]
        own = {column: run for column, run in own.items() if column < {"t3-sut9": GONE, "t4-sut1": ABSENT}.get(sut, 40)}
        runs[testbed, sut] = {run.night: run for run in own.values()}
        for metric, unit, level in METRICS:
            row = [
                level * (1 + 0.002 * sin(7 * column + place)) * _moved(sut, metric, column)
                if column in own and own[column].status == "complete"
                else np.nan
                for column in range(40)
            ]
            series.append(Series(testbed, sut, metric, unit, "lower" if unit == "ns" else "higher"))
            values.append(row)
            analyses.append(_analysis(sut, metric, level))
            if 39 in own:
                verdicts += _verdicts(series[-1], analyses[-1], row[-1], level, text)
    verdicts.append(
        _verdict(
            ("other-lab", "t4-sut1", "run"),
            check="missing",
            outcome="fail",
            run_id=None,
            since=NIGHTS[ABSENT],
            reason=text or "no run this night; the last is of two nights ago",
        )
    )
    array = np.array(values)
    headlines = {sut: _headlines(sut[1]) for sut, own in runs.items() if LAST in own}
    history = History(
        NIGHTS, tuple(series), array, array * 0.998, array * 1.002, runs, {}, headlines=headlines, titles=TITLES
    )
    return JudgedNights(history, analyses, verdicts, baselines=MadeBaselines())


def _run(testbed: str, sut: str, column: int, text: str | None) -> NightRun:
    facts: Mapping[str, str] = FACTS
    if sut == "t3-sut2" and column >= SHIFT:
        facts = {**FACTS, "BIOS": "Example 1.3", "kernel command line": "quiet " + "isolcpus=1-30 " * 5}
    if text is not None:
        facts = dict.fromkeys(FACTS, f"{text}{column // 8}")
    bad = sut == "t3-sut1" and column == 20
    return NightRun(
        testbed=testbed,
        sut=sut,
        run_id=run_id(NIGHTS[column]),
        night=NIGHTS[column],
        status="not_begun" if bad else "complete",
        directory=f"{testbed}/{sut}/{run_id(NIGHTS[column])}",
        facts={} if bad else facts,
        reasons=(text or "the SUT is not reachable",) if bad else (),
    )


def _headlines(sut: str) -> list[Headline]:
    """Return the headline metrics of tonight's run: those of t3-sut3 are far from their goal."""
    trust: Trust = "poor" if sut == "t3-sut3" else "on_target"
    return [
        Headline("idle_latency", TITLES[IDLE], IDLE, trust),
        Headline("read_bandwidth.machine", TITLES[READS], READS, trust),
        Headline("worst_gap", TITLES[GAP.format(8)], GAP.format(8), "observed"),
    ]


def _moved(sut: str, metric: str, column: int) -> float:
    if (sut, metric) == ("t3-sut2", IDLE) and column >= SHIFT:
        return 1.08
    if (sut, metric) == ("t3-sut3", READS) and column >= SPREAD:
        return 1 + 0.03 * (-1) ** column
    return 1.06 if (sut, metric) == ("t3-sut4", IDLE) and column >= FLIPS and column % 3 == 0 else 1.0


def _analysis(sut: str, metric: str, level: float) -> Analysis:
    if (sut, metric) == ("t3-sut2", IDLE):
        change = DriftChange("level", SHIFT, level, level * 1.08, 0.08, (0.07, 0.09))
        return Analysis((change,), None, level * 1.08, 0.0014, SHIFT, 10)
    if (sut, metric) == ("t3-sut3", READS):
        change = DriftChange("spread", SPREAD, 0.0014, 0.03, 0.03 / 0.0014 - 1, (12.0, 31.0))
        return Analysis((change,), None, level, 0.03, SPREAD, 15)
    if (sut, metric) == ("t3-sut4", IDLE):
        return Analysis((), Flips(FLIPS, level, level * 1.06, 0.35), level, 0.02, 0, 40)
    return Analysis((), None, level, 0.0014, 0, 40)


def _verdict(key: tuple[str, str, str], **fields: Any) -> NightVerdict:
    testbed, sut, metric = key
    absent = dict.fromkeys(("value", "unit", "bound", "interval", "since", "waiver"))
    given = {"run_id": run_id(LAST), "night": LAST, "context_changes": (), "reason": "as accepted", **absent, **fields}
    return NightVerdict(testbed=testbed, sut=sut, metric=metric, **given)


def _verdicts(row: Series, analysis: Analysis, value: float, level: float, text: str | None) -> list[NightVerdict]:
    """Return tonight's verdicts on one figure: t3-sut5 has no reference, the others were accepted within 2 %."""
    key, sut = (row.testbed, row.sut, row.metric), row.sut
    bound = None if sut == "t3-sut5" else (level * 0.98, level * 1.02)
    fields: dict[str, Any] = {"value": value, "unit": row.unit, "bound": bound, "check": "limits"}
    shifted = (sut, row.metric) == ("t3-sut2", IDLE)
    outcome = "fail" if shifted else "no_reference" if bound is None else "pass"
    found = [_verdict(key, **fields, outcome=outcome, since=NIGHTS[SHIFT] if shifted else None)]
    if shifted:
        change = ContextChange(fact="BIOS", before="Example 1.2", after="Example 1.3", night=NIGHTS[SHIFT])
        found.append(
            _verdict(
                key, check="drift", outcome="fail", since=NIGHTS[SHIFT], interval=(0.07, 0.09),
                context_changes=(change,),
            )
        )  # fmt: skip
    if (sut, row.metric) == ("t3-sut3", READS):
        waiver = Waived(reason=text or "a fan is replaced", by=text or "ann@example.org", until=date(2026, 2, 1))
        found.append(_verdict(key, check="spread", outcome="pass", since=NIGHTS[SPREAD], waiver=waiver))
    if analysis.flips is not None:
        reason = text or "flips between two levels"
        found.append(_verdict(key, check="bimodal", outcome="fail", since=NIGHTS[FLIPS], unit="ns", reason=reason))
    if (sut, row.metric) == ("t3-sut4", GAP.format(3)):
        odd = {**fields, "check": "homogeneity", "bound": (level / 2 / 1.1, level / 2 * 1.1)}
        found.append(_verdict(key, **odd, outcome="fail", since=NIGHTS[1], reason=text or "unlike the others"))
    return found
