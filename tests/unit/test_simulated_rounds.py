# SPDX-License-Identifier: Apache-2.0
"""Coverage as claimed, whether placements or rounds vary: runs simulated with known variances.

docs/method/statistics.rst has the result of more of such runs.
"""

from collections.abc import Callable
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
import pytest

from calibration.base.statistics import Estimate, estimate

POINTS = 0.03
LEVEL = 100.0
WINDOWS = 3
WINDOWS_VARIANCE = 0.1
"""Relative to that of placements: windows share their pages and agree much better."""


class Design(NamedTuple):
    """Rounds of a run, and placements in each."""

    rounds: int
    placements: int


DESIGNS = (Design(6, 1), Design(6, 2), Design(9, 1), Design(9, 2))


def runs_of(design: Design, ratio: float, count: int, *, between: float = 0.0) -> np.ndarray:
    """Return the windows of *count* runs, by round and placement; placements have variance 1, rounds *ratio*.

    Whole runs differ by *between* times the variance that independent rounds explain in a median of them.
    """
    rng = np.random.default_rng(1)
    over_rounds = np.sqrt(ratio) * rng.standard_normal((count, design.rounds, 1, 1))
    placements = rng.standard_normal((count, design.rounds, design.placements, 1))
    windows = np.sqrt(WINDOWS_VARIANCE) * rng.standard_normal((count, design.rounds, design.placements, WINDOWS))
    values = LEVEL + over_rounds + placements + windows
    explained = np.median(np.median(np.median(values, axis=3), axis=2), axis=1).std()
    return np.asarray(values + np.sqrt(between) * explained * rng.standard_normal((count, 1, 1, 1)))


def by_round(run: np.ndarray) -> Estimate:
    rounds = [number for number, placements in enumerate(run) for _ in placements]
    return estimate(run.reshape(-1, run.shape[-1]).tolist(), "ns", rounds=rounds)


def by_placement(run: np.ndarray) -> Estimate:
    """Return the wrong estimate: the placements of all rounds as if they were independent."""
    return estimate(run.reshape(-1, run.shape[-1]).tolist(), "ns")


def coverage_of(runs: np.ndarray, estimated: Callable[[np.ndarray], Estimate]) -> tuple[float, float, float]:
    """Return coverage as claimed, of the median of all runs by intervals, and of the next run by predictions."""
    found = [estimated(run) for run in runs]
    truth = median(item.value for item in found)
    held = [item.interval[0] <= truth <= item.interval[1] for item in found if item.interval is not None]
    predicted = [
        item.prediction[0] <= after.value <= item.prediction[1]
        for item, after in pairwise(found)
        if item.prediction is not None
    ]
    return fmean(item.coverage or 0.0 for item in found), fmean(held), fmean(predicted or [0.0])


@pytest.mark.parametrize("design", DESIGNS, ids=str)
@pytest.mark.parametrize(("ratio", "between"), [(0.0, 1.0), (5.0, 0.0)])
def test_interval_and_prediction_hold_as_often_as_claimed(design: Design, ratio: float, between: float) -> None:
    claimed, interval, prediction = coverage_of(runs_of(design, ratio, 2000, between=between), by_round)
    assert claimed >= 0.95
    assert interval == pytest.approx(claimed, abs=POINTS)
    assert prediction == pytest.approx(claimed, abs=POINTS + 0.01)


@pytest.mark.parametrize("design", [design for design in DESIGNS if design.placements > 1], ids=str)
def test_placements_as_units_would_claim_too_much(design: Design) -> None:
    claimed, interval, _ = coverage_of(runs_of(design, 5.0, 2000), by_placement)
    assert interval < claimed - POINTS


def test_rounds_are_what_the_estimate_is_given() -> None:
    (run,) = runs_of(Design(6, 2), 1.0, 1)
    found = by_round(run)
    assert (found.estimator, found.rounds, found.windows) == (
        "median_of_rounds",
        tuple(number for number in range(6) for _ in range(2)),
        run.size,
    )


def test_stopping_at_a_target_costs_little_coverage() -> None:
    """Runs of six rounds add one until the half-width is 0.7 standard deviations of a round, or they have 31."""
    ended = []
    for run in (LEVEL + np.random.default_rng(1).standard_normal((400, 31, 1))).tolist():
        for rounds in range(6, 32):
            found = estimate(run[:rounds], "ns", rounds=range(rounds), target_half_width=0.7 / LEVEL)
            if found.converged:
                break
        ended.append(found)
    assert 6 < fmean(len(found.rounds) for found in ended) < 31
    held = fmean(found.interval[0] <= LEVEL <= found.interval[1] for found in ended if found.interval is not None)
    assert held == pytest.approx(fmean(found.coverage or 0.0 for found in ended), abs=POINTS)
