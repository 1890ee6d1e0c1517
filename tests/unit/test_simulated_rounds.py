# SPDX-License-Identifier: Apache-2.0
"""Coverage as claimed, whether placements or rounds vary: runs simulated with known variances."""

from functools import partial

import numpy as np
import pytest

from bench.nested import DESIGNS, RATIOS, Design, coverage_of, estimate_of, runs_of, stopped_at
from calibration.statistics import Estimate, estimate

POINTS = 0.03


def by_placement(run: np.ndarray) -> Estimate:
    """Return the wrong estimate: the placements of all rounds as if they were independent."""
    return estimate(run.reshape(-1, run.shape[-1]).tolist(), "ns")


@pytest.mark.parametrize("design", DESIGNS, ids=str)
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("between", [0.0, 1.0])
def test_interval_and_prediction_hold_as_often_as_claimed(design: Design, ratio: float, between: float) -> None:
    found = coverage_of(runs_of(design, ratio, 2000, between=between))
    assert found.claimed >= 0.95
    assert found.interval == pytest.approx(found.claimed, abs=POINTS)
    assert found.prediction == pytest.approx(found.claimed, abs=POINTS + 0.01)


@pytest.mark.parametrize("design", [design for design in DESIGNS if design.placements > 1], ids=str)
def test_placements_as_units_would_claim_too_much(design: Design) -> None:
    found = coverage_of(runs_of(design, 5.0, 2000), by_placement)
    assert found.interval < found.claimed - POINTS


def test_rounds_are_what_the_estimate_is_given() -> None:
    (run,) = runs_of(Design(6, 2), 1.0, 1)
    found = estimate_of(run)
    assert (found.estimator, found.rounds, found.windows) == (
        "median_of_rounds",
        tuple(number for number in range(6) for _ in range(2)),
        run.size,
    )


def test_simulated_variances_are_as_stated() -> None:
    runs = partial(runs_of, Design(9, 2), 5.0, 4000)
    for effect in ("normal", "exponential"):
        rounds = runs(effect=effect).mean(axis=(2, 3))
        assert float(rounds.var()) == pytest.approx(5.0 + (1.0 + 0.1 / 3) / 2, rel=0.05)


def test_stopping_at_a_target_costs_little_coverage() -> None:
    found = stopped_at(0.7, 1000)
    assert 6 < found.rounds < 31
    assert found.interval == pytest.approx(found.claimed, abs=POINTS)
