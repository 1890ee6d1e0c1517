# SPDX-License-Identifier: Apache-2.0
"""Coverage of estimates in simulated runs with known variances: rounds, placements in them, windows in those."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from statistics import fmean, median
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.shares import percent
from calibration.statistics import Estimate, estimate

LEVEL: Final = 100.0

WINDOWS: Final = 3

WINDOWS_VARIANCE: Final = 0.1
"""Variance of windows relative to that of placements: windows share their pages and agree much better."""

RATIOS: Final = (0.0, 1.0, 2.0, 5.0)
"""Variances of rounds relative to that of placements."""


class Design(NamedTuple):
    """Rounds of a run, and placements in each."""

    rounds: int
    placements: int

    def __str__(self) -> str:
        return f"{self.rounds} x {self.placements}"


DESIGNS: Final = (Design(6, 1), Design(6, 2), Design(9, 1), Design(9, 2))

Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]
"""Effects of rounds with variance 1."""

EFFECTS: Final[Mapping[str, Draw]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.standard_exponential(shape),
}


class Coverage(NamedTuple):
    """What intervals and predictions of many runs claimed and achieved, as fractions."""

    claimed: float
    interval: float
    prediction: float | None


def runs_of(
    design: Design, ratio: float, count: int, *, effect: str = "normal", between: float = 0.0, seed: int = 1
) -> NDArray[np.float64]:
    """Return the windows of *count* runs, by round and placement; placements have variance 1, rounds *ratio*.

    Whole runs differ by *between* times the variance that independent rounds explain in a median of them.
    """
    rng = np.random.default_rng(seed)
    over_rounds = np.sqrt(ratio) * EFFECTS[effect](rng, (count, design.rounds, 1, 1))
    placements = rng.standard_normal((count, design.rounds, design.placements, 1))
    windows = np.sqrt(WINDOWS_VARIANCE) * rng.standard_normal((count, design.rounds, design.placements, WINDOWS))
    values = LEVEL + over_rounds + placements + windows
    explained = np.median(np.median(np.median(values, axis=3), axis=2), axis=1).std()
    return np.asarray(values + np.sqrt(between) * explained * rng.standard_normal((count, 1, 1, 1)))


def estimate_of(run: NDArray[np.float64]) -> Estimate:
    """Return the estimate of a run's windows by round and placement."""
    rounds = [number for number, placements in enumerate(run) for _ in placements]
    return estimate(run.reshape(-1, run.shape[-1]).tolist(), "ns", rounds=rounds)


def coverage_of(
    runs: NDArray[np.float64], estimate_of: Callable[[NDArray[np.float64]], Estimate] = estimate_of
) -> Coverage:
    """Return how many intervals of *runs* hold the median of all their values, and predictions the next run's value."""
    found = [estimate_of(run) for run in runs]
    truth = median(item.value for item in found)
    held = [item.interval[0] <= truth <= item.interval[1] for item in found if item.interval is not None]
    predicted = [
        item.prediction[0] <= after.value <= item.prediction[1]
        for item, after in pairwise(found)
        if item.prediction is not None
    ]
    return Coverage(fmean(item.coverage or 0.0 for item in found), fmean(held), fmean(predicted) if predicted else None)


class Stopped(NamedTuple):
    """Runs that stop at a target: coverage of the interval as claimed and achieved, and the mean number of rounds."""

    claimed: float
    interval: float
    rounds: float


def stopped_at(target: float, count: int, *, most: int = 31) -> Stopped:
    """Return what *count* runs give that add a round to six until the half-width is *target*, in deviations of a round.

    They have no more than *most* rounds, with one placement and one window each.
    """
    values = LEVEL + np.random.default_rng(1).standard_normal((count, most, 1))
    ended = []
    for run in values.tolist():
        for rounds in range(DESIGNS[0].rounds, most + 1):
            found = estimate(run[:rounds], "ns", rounds=range(rounds), target_half_width=target / LEVEL)
            if found.converged:
                break
        ended.append(found)
    held = [item.interval[0] <= LEVEL <= item.interval[1] for item in ended if item.interval is not None]
    rounds_made = fmean(len(item.rounds) for item in ended)
    return Stopped(fmean(item.coverage or 0.0 for item in ended), fmean(held), rounds_made)


TARGETS: Final = (0.3, 0.5, 0.7, 1.0)
"""Half-widths at which runs stop, in standard deviations of a round."""

STOPPED_HEAD: Final = ("Target", "Claimed, %", "Achieved, %", "Rounds")


def stopped_rows(count: int) -> Iterator[tuple[str, ...]]:
    """Yield for each target the coverage of runs that stop at it."""
    for target in TARGETS:
        found = stopped_at(target, count)
        yield f"{target:g}", percent(found.claimed), percent(found.interval), f"{found.rounds:.1f}"


HEAD: Final = (
    "Rounds x placements",
    "Claimed, %",
    "Effect of rounds",
    "Runs",
    *(f"Variance {ratio:g}" for ratio in RATIOS),
)

MADE: Final = (("normal", 0.0), ("normal", 1.0), ("exponential", 1.0))
"""Effects of rounds, and the variance of whole runs."""


def rows(count: int) -> Iterator[tuple[str, ...]]:
    """Yield for each design and effect of rounds the achieved coverage of interval and prediction, in percent."""
    for design in DESIGNS:
        for effect, between in MADE:
            found = [coverage_of(runs_of(design, ratio, count, effect=effect, between=between)) for ratio in RATIOS]
            achieved = (f"{percent(item.interval)} / {percent(item.prediction)}" for item in found)
            yield str(design), percent(found[0].claimed), effect, f"{between:g}", *achieved
