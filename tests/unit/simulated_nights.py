# SPDX-License-Identifier: Apache-2.0
"""Simulated nights of known noise with planted changes, and what the judgement finds in them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.judge.detector import Walk, two_levels
from calibration.judge.drift import analyse
from calibration.judge.outliers import FAMILY_WISE, Levels, compare_levels, holm, levels_of

Floats = NDArray[np.float64]

SHIFT = 4.0
"""Size of a planted shift, in standard deviations of a night including the weekly cycle."""

SHIFT_NIGHTS = 3
"""Nights within which a shift must be found."""

RISE = 0.15
"""Planted drift per night, in the same unit."""

RISE_NIGHTS = 14
"""Nights within which a drift must be found."""

CYCLE = 0.3
"""Amplitude of a weekly cycle, in standard deviations of the noise."""

LEVEL = 100.0

REDATE_LIMIT = 10
"""A change may be re-dated by this many nights and still count as the same."""

DATE_TOLERANCE = 3
"""Tolerance of a planted shift's date, in nights."""


class Noise(NamedTuple):
    """Noise with mean 0 and standard deviation 1, autocorrelation, and a weekly cycle."""

    draw: Callable[[np.random.Generator, tuple[int, int]], Floats]
    correlation: float = 0.0
    cycle: float = 0.0
    flips: bool = False

    @property
    def deviation(self) -> float:
        """The standard deviation of a night."""
        return float(np.sqrt(1.0 + self.cycle**2 / 2.0))

    def generate(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """Return series of so many nights, each with a phase of its own."""
        values = self.draw(rng, shape)
        for night in range(1, shape[1] if self.correlation else 0):
            inherited = self.correlation * values[:, night - 1]
            values[:, night] = inherited + np.sqrt(1.0 - self.correlation**2) * values[:, night]
        phase = rng.random((shape[0], 1))
        return np.asarray(values + self.cycle * np.sin(2.0 * np.pi * (np.arange(shape[1]) / 7.0 + phase)))


def _two(share: float, apart: float = 20.0) -> Callable[[np.random.Generator, tuple[int, int]], Floats]:
    """Return noise that flips between two levels night by night, each with a noise of its own."""

    def noise(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        values = rng.standard_normal(shape) + apart * (rng.random(shape) < share)
        return np.asarray((values - apart * share) / np.sqrt(1.0 + apart**2 * share * (1.0 - share)))

    return noise


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_normal(shape)


def _student(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.asarray(rng.standard_t(3, shape) / np.sqrt(3.0))


def _lognormal(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    values = np.exp(0.5 * rng.standard_normal(shape))
    return np.asarray((values - np.exp(0.125)) / np.sqrt((np.exp(0.25) - 1.0) * np.exp(0.25)))


def _outliers(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    values = rng.standard_normal(shape)
    values += 10.0 * (rng.random(shape) < 0.02) * np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    return np.asarray(values / np.sqrt(3.0))


def _missing(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.where(rng.random(shape) < 0.2, np.nan, rng.standard_normal(shape))


DEPENDENT: Mapping[str, Noise] = {
    f"autocorrelation {correlation:g}{', weekly cycle' if cycle else ''}": Noise(_normal, correlation, cycle)
    for correlation in (0.0, 0.1, 0.2, 0.3)
    for cycle in (0.0, CYCLE)
}
"""Normal noise that the targets are for."""

OTHERS: Mapping[str, Noise] = {
    "Student t, 3 df": Noise(_student), "log-normal": Noise(_lognormal), "outliers, 2 %": Noise(_outliers),
    "two levels, 50/50": Noise(_two(0.5), flips=True), "two levels, 80/20": Noise(_two(0.2), flips=True),
    "two levels, 90/10": Noise(_two(0.1), flips=True), "normal, 20 % missing": Noise(_missing),
}  # fmt: skip

NOISES: Mapping[str, Noise] = {**DEPENDENT, **OTHERS}


def generate(noise: str, seed: int, series: int, nights: int) -> Floats:
    """Return *series* of *noise* over *nights* around the level, without a change."""
    rng = np.random.default_rng([seed, tuple(NOISES).index(noise)])
    return LEVEL + NOISES[noise].generate(rng, (series, nights))


def _signs(values: Floats) -> Floats:
    return np.where(np.arange(len(values)) % 2 == 0, 1.0, -1.0)[:, None]


def with_shift(values: Floats, after: int, size: float) -> Floats:
    """Return *values* with a level that shifts *after* so many nights: up in every other series, down in the rest."""
    return np.asarray(values + size * _signs(values) * (np.arange(values.shape[1]) >= after))


def with_drift(values: Floats, after: int, size: float) -> Floats:
    """Return *values* with a level that drifts by *size* every night *after* so many, up or down."""
    return np.asarray(values + size * _signs(values) * np.clip(np.arange(values.shape[1]) - after + 1, 0, None))


def count_false_alarms(values: Floats, *, flips: bool) -> int:
    """Return how many alarms begin on *values*, which have no change, walked through night by night.

    An alarm is a change of the level or of the spread that was not named the night before within ten nights of the same
    place; and flips between two levels, where *flips* are not what the noise does.
    """
    counts = np.isfinite(values).sum(axis=1)
    packed = np.take_along_axis(values, np.argsort(~np.isfinite(values), axis=1, kind="stable"), axis=1) - LEVEL
    walk = Walk(np.ascontiguousarray(packed.T), counts)
    alarms, flipping = 0, np.zeros(len(values), np.bool_)
    named: list[list[int]] = [[] for _ in values]
    for night in range(values.shape[1]):
        walk.step(night)
        now = [[at for at, _ in begins] for begins in walk.begins]
        alarms += sum(
            all(abs(at - old) > REDATE_LIMIT for old in before)
            for before, after in zip(named, now, strict=True)
            if after != before
            for at in after
        )
        named = now
        if not flips and night % 7 == 6:
            first = np.array([begins[-1] if begins else 0 for begins in now])
            seen = np.where(np.arange(night + 1) >= first[:, None], packed[:, : night + 1], np.nan)
            found = two_levels(seen).found
            alarms += int((found & ~flipping).sum())
            flipping = found
    return alarms


def detected(values: Floats, after: int, within: int) -> NDArray[np.bool_]:
    """Return in which of *values* the change *after* so many nights is named on one of the nights *within* it."""
    hit = np.zeros(len(values), np.bool_)
    for night in range(after + 1, after + within + 1):
        left = np.flatnonzero(~hit)
        hit[left] = [
            any(change.kind == "level" and change.night >= after - DATE_TOLERANCE for change in analysis.changes)
            for analysis in analyse(values[left, :night])
        ]
    return hit


# Homogeneity

METRICS = 150
"""Metrics of a server judged together."""

Tails = Literal["normal", "t3"]


class Rates(NamedTuple):
    """Fractions of trials: an equal server called an outlier, all odd ones found; and of equal values that pass."""

    false: float
    found: float
    passed: float


def trials(
    chance: np.random.Generator,
    count: int,
    *,
    suts: int,
    nights: int,
    spread: tuple[float, float],
    noise: Tails,
    off: float = 0.0,
    odd: int = 0,
    tolerances: Sequence[float] = (0.02,),
    metrics: int = METRICS,
) -> list[Rates]:
    """Return what *count* nights find: the first *odd* servers are *off* in the first metric, all else is equal.

    *spread* bounds the relative standard deviation of nights, drawn for each server and metric. The same nights are
    judged with each of *tolerances*.
    """
    shares = np.zeros((count, len(tolerances), 3))
    for trial in range(count):
        deviation = np.exp(chance.uniform(math.log(spread[0]), math.log(spread[1]), size=(suts, metrics)))
        levels = _levels(chance, deviation, nights, noise)
        levels.level[:odd, 0] += np.log1p(off)
        for at, tolerance in enumerate(tolerances):
            compared = compare_levels(levels, np.full(metrics, tolerance))
            named = holm(compared.p.ravel(), FAMILY_WISE).reshape(compared.p.shape)
            equal = np.ones_like(named)
            equal[:, 0] = odd == 0 or 2 * odd < suts
            equal[:odd, 0] = False
            within = np.abs(compared.difference) + compared.half <= np.log1p(tolerance)
            shares[trial, at] = named[equal].any(), named[:odd, 0].all(), within[equal].mean()
    return [Rates(*item) for item in shares.mean(axis=0).tolist()]


def _levels(chance: np.random.Generator, deviation: Floats, nights: int, noise: Tails) -> Levels:
    """Return levels of generated nights; the interval of a value is half of the variation of nights."""
    size = (nights, *deviation.shape)
    drawn = chance.standard_normal(size) if noise == "normal" else chance.standard_t(3, size) / np.sqrt(3)
    values = np.exp(deviation * drawn).reshape(nights, -1).T
    levels = levels_of(analyse(values), (deviation / 2).ravel() ** 2)
    return Levels(*(level.reshape(deviation.shape) for level in levels))
