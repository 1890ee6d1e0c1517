# SPDX-License-Identifier: Apache-2.0
"""Estimates with their uncertainty.

A value is measured on several *placements* (fresh allocations of the memory it touches) with several *windows* in
each. Physical placement is the unit of replication: windows of one placement share its pages and agree with each
other far better than placements do, so an interval made from windows alone would be much too narrow. The estimate
is the median of the placement medians; its interval comes from order statistics of those medians, which assumes
nothing about their distribution (David and Nagaraja, *Order Statistics*, section 7.1).
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from math import sqrt
from statistics import NormalDist, median
from typing import Literal, Self

from pydantic import model_validator

from calibration.model import Model
from calibration.validity import Flag, flag

COVERAGE_WANTED = 0.95
"""The interval is the narrowest symmetric one that covers the median at least this often."""

MIN_COVERAGE = 0.9
"""An interval that covers the true value less often decides nothing; three placements reach 0.75, five 0.94."""

BIMODAL_EXPLAINED = 0.85
"""Share of variance that two groups must explain. One normal group split in two explains 0.64, a uniform one 0.75."""

BIMODAL_MINOR_SHARE = 0.15
"""Share of the samples that the smaller group must hold, so that a few outliers are not called a second mode."""

BIMODAL_SEPARATION = 0.03
"""Distance of the groups' means relative to the median, below which two modes would not matter to a reader."""

BIMODAL_SAMPLES = 18
"""Fewest samples in which two modes can be detected."""

EXACT_SAMPLES = 1000
"""Ranks of more samples come from the normal distribution, whose coverage is then right to 0.0001."""

Estimator = Literal["median_of_placements", "median_of_windows", "derived"]


def median_ranks(count: int, coverage: float = COVERAGE_WANTED) -> tuple[int, int, float]:
    """Return the ranks (1-based) of the order statistics that bound the median, and the coverage they reach.

    *count* samples are assumed independent. If even the extremes cover less than *coverage* (fewer than six samples),
    they are returned with their actual coverage.
    """
    if count < 1:
        raise ValueError("no samples")
    if count > EXACT_SAMPLES:
        deviation = sqrt(count) / 2
        low = int(count / 2 - NormalDist().inv_cdf((1 + coverage) / 2) * deviation)
        return low, count + 1 - low, 1 - 2 * NormalDist(count / 2, deviation).cdf(low - 0.5)
    ways, outside = 1, 1
    best = (1, count, _coverage(count, outside))
    for low in range(2, count // 2 + 1):
        ways = ways * (count - low + 2) // (low - 1)
        outside += ways
        reached = _coverage(count, outside)
        if reached < coverage:
            break
        best = (low, count + 1 - low, reached)
    return best


def _coverage(count: int, outside: int) -> float:
    """Return the probability that the median lies between two ranks, each with *outside* samples beyond it."""
    return 1.0 - 2.0 * outside / 2.0**count if count > 1 else 0.0


def relative_spread(samples: Sequence[float]) -> float | None:
    """Return the median absolute deviation, scaled to a normal's standard deviation and divided by the median.

    ``None`` for fewer than two samples or a median of zero.
    """
    if len(samples) < 2 or (centre := median(samples)) == 0:
        return None
    return 1.4826 * median(abs(sample - centre) for sample in samples) / abs(centre)


def is_bimodal(samples: Sequence[float]) -> bool:
    """Return whether *samples* fall into two well separated groups.

    The best split of the sorted samples into two groups (least squares, as two-means finds it) must explain
    ``BIMODAL_EXPLAINED`` of the variance, leave ``BIMODAL_MINOR_SHARE`` in the smaller group and separate the means by
    ``BIMODAL_SEPARATION`` of the median.
    """
    count = len(samples)
    if count < BIMODAL_SAMPLES:
        return False
    ordered = sorted(samples)
    mean = sum(ordered) / count
    total = sum((sample - mean) ** 2 for sample in ordered)
    if total == 0:
        return False
    best_explained, best_split, best_distance = 0.0, 0, 0.0
    below = 0.0
    for split in range(1, count):
        below += ordered[split - 1]
        low, high = below / split, (mean * count - below) / (count - split)
        explained = split * (low - mean) ** 2 + (count - split) * (high - mean) ** 2
        if explained > best_explained:
            best_explained, best_split, best_distance = explained, split, high - low
    minor = min(best_split, count - best_split) / count
    return (
        best_explained / total >= BIMODAL_EXPLAINED
        and minor >= BIMODAL_MINOR_SHARE
        and best_distance >= BIMODAL_SEPARATION * abs(median(ordered))
    )


class Estimate(Model):
    """One measured value with its uncertainty and samples.

    ``value``, ``interval``, ``minimum``, ``maximum`` and ``samples`` are in ``unit``; spreads are relative.
    ``samples`` has one list of windows per placement. ``target_half_width`` is relative, ``None`` without a target.
    ``flags`` name the interference that moved the value (``shift_flags``).
    """

    value: float
    unit: str
    estimator: Estimator
    interval: tuple[float, float] | None
    coverage: float | None
    placements: int
    windows: int
    within_spread: float | None
    between_spread: float | None
    minimum: float
    maximum: float
    bimodal: bool
    converged: bool | None
    target_half_width: float | None = None
    flags: tuple[Flag, ...] = ()
    samples: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.interval is not None and not self.interval[0] <= self.value <= self.interval[1]:
            raise ValueError(f"value {self.value} outside its interval {self.interval}")
        return self

    @property
    def half_width(self) -> float | None:
        """Half the interval's width, relative to the value; ``None`` without an interval."""
        if self.interval is None or self.value == 0:
            return None
        return (self.interval[1] - self.interval[0]) / 2.0 / abs(self.value)

    def apart(self, other: "Estimate") -> bool:
        """Return whether both have intervals and these do not overlap."""
        if self.interval is None or other.interval is None:
            return False
        return self.interval[1] < other.interval[0] or other.interval[1] < self.interval[0]


def estimate(
    samples: Sequence[Sequence[float]],
    unit: str,
    *,
    target_half_width: float | None = None,
    disturbed: Mapping[str, Set[int]] | None = None,
) -> Estimate:
    """Return the estimate for *samples*, one sequence of windows per placement, all in *unit*.

    With one placement the estimator is ``median_of_windows``, and the interval does not cover placement.
    *target_half_width* is relative; if given, the estimate says whether it was met. *disturbed* are the placements, by
    index, hit by each kind of interference. Raises ``ValueError`` without placements or for a placement without
    windows.
    """
    if not samples or not all(samples):
        raise ValueError("a placement without windows, or no placement")
    kept = tuple(tuple(float(window) for window in placement) for placement in samples)
    flat = [window for placement in kept for window in placement]
    centres = sorted(median(placement) for placement in kept)
    if len(kept) == 1:
        centres = sorted(flat)
    value = median(centres)
    interval: tuple[float, float] | None = None
    coverage: float | None = None
    if len(centres) > 1:
        low, high, coverage = median_ranks(len(centres))
        interval = (centres[low - 1], centres[high - 1])
    within = [spread for placement in kept if (spread := relative_spread(placement)) is not None]
    result = Estimate(
        value=value,
        unit=unit,
        estimator="median_of_windows" if len(kept) == 1 else "median_of_placements",
        interval=interval,
        coverage=coverage,
        placements=len(kept),
        windows=len(flat),
        within_spread=median(within) if within else None,
        between_spread=relative_spread(centres) if len(kept) > 1 else None,
        minimum=min(flat),
        maximum=max(flat),
        bimodal=is_bimodal(flat),
        converged=None,
        samples=kept,
    )
    update: dict[str, object] = {"flags": tuple(shift_flags(result, disturbed or {}))}
    if target_half_width is not None and result.half_width is not None:
        update |= {"converged": result.half_width <= target_half_width, "target_half_width": target_half_width}
    return result.model_copy(update=update)


def shift_flags(found: Estimate, disturbed: Mapping[str, Set[int]]) -> Iterator[Flag]:
    """Yield a flag for each interference that moved *found*.

    Interference moved it if the median without the *disturbed* placements differs from it by more than its half-width.
    If all placements were hit, there is nothing to compare.
    """
    if found.interval is None:
        return
    half = (found.interval[1] - found.interval[0]) / 2
    centres = [median(placement) for placement in found.samples]
    for code, hit in disturbed.items():
        rest = [centre for index, centre in enumerate(centres) if index not in hit]
        if rest and abs(shift := median(rest) - found.value) > half:
            count = f"{len(hit)} of {len(centres)} placements"
            change = shift / abs(found.value or 1) * 100
            yield flag(code, f"{count} affected; without them the value is {change:+.1f} %")
