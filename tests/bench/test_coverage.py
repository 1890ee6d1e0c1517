# SPDX-License-Identifier: Apache-2.0
"""The benchmark of coverage: made runs with known answers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench import coverage
from calibration.base.errors import InputError
from calibration.base.statistics import estimate
from calibration.base.validity import Validity
from calibration.results.model import RunDocument
from calibration.runner.intervals import MOMENTS
from tests.report.report_documents import replace, run_document, store

IDLE = "Idle latency, ns"


def made(number: int, value: float, half: float, *, rounds: int = 6) -> RunDocument:
    """Return a run whose idle latency is *value*, from *value* - *half* to *value* + *half*, over so many rounds."""
    run = {"id": f"20260102T030{number:03}Z-0001", "started_at": datetime(2026, 1, 2, tzinfo=UTC) + timedelta(number)}
    document = run_document(names=("idle_latency",), **run)
    samples = [value - half / MOMENTS, *[value] * (rounds - 2), value + half / MOMENTS]
    latency = estimate([[sample] for sample in samples], "ns", rounds=range(rounds))
    return replace(document, 0, values=document.measurements[0].values.model_copy(update={"latency_ns": latency}))


def row(runs: list[RunDocument]) -> tuple[str, ...]:
    return next(row for row in coverage.rows(runs) if row[0] == IDLE)[1:]


@pytest.fixture
def four() -> list[RunDocument]:
    """Three runs that agree, and one whose interval does not hold what they have."""
    return [made(number, value, 2.0) for number, value in enumerate((100.0, 100.5, 101.0, 150.0))]


def test_coverage_is_counted_rightly(four: list[RunDocument]) -> None:
    half_width = 2.0 / (1.96 * 1.4826 * 0.5 * 4 / 3.2)
    found = ("4", "0", "96.9", "75.0 [25, 100]", "66.7 [0, 100]", f"{half_width:.2f}", "33.3")
    families = {row[0]: row[1:] for row in coverage.rows(four)}
    assert list(families) == [IDLE, "Idle latency, all values", coverage.METRICS]
    assert families[IDLE] == families[coverage.METRICS] == found
    # A run is no witness for itself: the median of all three is in each interval, that of the others in one.
    assert row([made(number, value, 12.0) for number, value in enumerate((100.0, 110.0, 120.0))])[3].startswith("33.3 ")
    struck = replace(four[3], 0, validity=Validity(valid=False, flags=()))
    assert row([*four[:3], struck])[:4] == ("3", "0", "96.9", "100.0 [100, 100]")


def test_spreads_are_held_against_tolerances(four: list[RunDocument]) -> None:
    # 1.96 · 1.4826 · (median of 0.75, 0.25, 0.25 and 49.25) · 4 / 3.2, of 100.75; three of six pairs are 50 apart.
    assert coverage.spreads(four) == [(IDLE, "1", "3", "1.8", "1.8", "50.0")]
    assert coverage.spreads(four[:2]) == []


def test_intervals_that_claim_less_are_only_listed() -> None:
    found = row([made(number, 100.0 + number, 5.0, rounds=3 if number else 6) for number in range(3)])
    assert found[:4] == ("3", "2", "96.9", "100.0 [100, 100]")


def test_intervals_of_a_run_fail_together() -> None:
    assert coverage.share_text([[], []]) == "—"
    assert coverage.share_text([[True] * 10] * 9 + [[False] * 10]) == "90.0 [70, 100]"
    assert coverage.share_text([[True] * 9 + [False]] * 10) == "90.0 [90, 90]"


def test_spread_is_half_the_central_range() -> None:
    draw = np.random.default_rng(5)
    spreads = [coverage.spread_of(values.tolist()) for values in draw.standard_normal((4000, 10))]
    assert float(np.mean(spreads)) == pytest.approx(1.96, rel=0.03)
    assert coverage.spread_of([1.0, 1.0, 1.0, 1.0, 2.0]) > 0


def test_the_table_is_of_repeats(four: list[RunDocument], tmp_path: Path) -> None:
    for run in four:
        store(run, tmp_path / "four")
    text = CliRunner().invoke(coverage.coverage_command, [str(tmp_path / "four")], catch_exceptions=False).output
    assert text.splitlines()[3].split()[:4] == ["Idle", "latency,", "ns", "4"]
    elsewhere = four[0].model_copy(update={"run": four[0].run.model_copy(update={"sut": "other"})})
    store(elsewhere, tmp_path / "four")
    store(elsewhere, tmp_path / "one")
    for folder, fault in (("one", "1 runs, at least 3"), ("four", "several SUTs")):
        with pytest.raises(InputError, match=fault):
            coverage.read_runs(tmp_path / folder)
