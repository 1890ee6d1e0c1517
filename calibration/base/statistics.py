# SPDX-License-Identifier: Apache-2.0
"""Estimates with their uncertainty.

A value is measured in several *rounds* spread over the run, on *placements* (fresh allocations of the memory it
touches) in each, with *windows* in each of those. Windows share their pages, placements of one round share what
varies over minutes: clocks, temperature, neighbours. So the round is the unit of replication. The estimate is the
median of the round medians; its interval comes from order statistics of those medians, which assume nothing about
their distribution (David and Nagaraja, *Order Statistics*, section 7.1), and is wider by ``MOMENTS`` for what changes
from run to run. A value measured in one round is treated the same way one level down: its interval covers placement,
not time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import accumulate, combinations
from math import factorial, log, sqrt
from operator import itemgetter
from statistics import fmean, median
from typing import Literal, Self, TypeVar

from pydantic import model_validator

from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.base.validity import Flag, flag
from calibration.runner.intervals import MOMENTS, median_ranks

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

REPLICATION = sqrt(2)
"""The next run differs from this one by two errors of the same size, so its value lies in a range wider by this factor
around this value (Hahn and Meeker, *Statistical Intervals*, section 4.7)."""

CHANCE = 0.001
"""Chance at which rounds that do not differ are said to differ."""

RANKED_CHANCE = 0.003
"""The same if only their order tells: six rounds that all rise, or all fall, are that rare."""

RELEVANT = 0.01
"""Relative half-width from which a difference between rounds matters, where a figure has no target."""

GOES_WITH = 0.8
"""Rank correlation (Kendall's) over the rounds from which something is said to go with a figure."""

POISSON_CONFIDENCE = 0.95
"""Confidence of the bounds of a number of rare events."""

T = TypeVar("T")

Estimator = Literal["median_of_rounds", "median_of_placements", "median_of_windows", "derived"]

Level = Literal["rounds", "placements", "windows"]


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

    ``value``, ``interval``, ``prediction``, ``minimum``, ``maximum`` and ``samples`` are in ``unit``; spreads are
    relative standard deviations. ``samples`` has one list of windows per placement, round by round; ``rounds`` has
    the number of the round of each, and is empty if all were measured at one time. ``interval`` holds the median over
    all such runs with the probability ``coverage``, ``prediction`` about as often the value of the next run of the same
    plan. ``within_spread`` is that of windows in a placement, ``between_spread`` that of placements in a round, and
    ``rounds_spread`` that of rounds, without what placements explain if a round has several. ``target_half_width`` is
    relative, ``None`` without a target. ``flags`` name what moved the value.
    """

    value: float
    unit: str
    estimator: Estimator
    interval: tuple[float, float] | None
    coverage: float | None
    prediction: tuple[float, float] | None = None
    rounds: tuple[int, ...] = ()
    placements: int
    windows: int
    within_spread: float | None
    between_spread: float | None
    rounds_spread: float | None = None
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

    @property
    def centres(self) -> tuple[float, ...]:
        """The median of each round or, if all was measured at one time, of each placement."""
        medians = [median(placement) for placement in self.samples]
        return tuple(map(median, _grouped(medians, self.rounds))) if self.rounds else tuple(medians)

    @property
    def centre_of_rounds(self) -> dict[int, float]:
        """The same by the number of the round or, if all was measured at one time, of the placement."""
        return dict(zip(dict.fromkeys(self.rounds) or range(self.placements), self.centres, strict=True))

    @property
    def largest_spread(self) -> tuple[Level, float] | None:
        """The level at which the samples spread most, and how much; ``None`` if no spread is known."""
        known: dict[Level, float | None] = {
            "rounds": self.rounds_spread,
            "placements": self.between_spread,
            "windows": self.within_spread,
        }
        return max(((name, spread) for name, spread in known.items() if spread), key=itemgetter(1), default=None)

    def apart(self, other: "Estimate") -> bool:
        """Return whether both have intervals and these do not overlap."""
        if self.interval is None or other.interval is None:
            return False
        return self.interval[1] < other.interval[0] or other.interval[1] < self.interval[0]


def estimate(
    samples: Sequence[Sequence[float]],
    unit: str,
    *,
    rounds: Sequence[int] = (),
    target_half_width: float | None = None,
    disturbed: Mapping[str, Set[int]] | None = None,
    covariates: Mapping[str, Sequence[float | None]] | None = None,
) -> Estimate:
    """Return the estimate for *samples*, one sequence of windows per placement, all in *unit*.

    *rounds* is the round of each placement, empty if all were measured at one time. With one placement in all the
    estimator is ``median_of_windows``, and the interval does not cover placement. *target_half_width* is relative; if
    given, the estimate says whether it was met. *disturbed* are the placements, by index, hit by each kind of
    interference, *covariates* what else is known at each placement, by name. Raises ``ValueError`` without placements
    or for a placement without windows.
    """
    if not samples or not all(samples):
        raise ValueError("a placement without windows, or no placement")
    order = sorted(range(len(samples)), key=lambda index: rounds[index]) if rounds else range(len(samples))
    kept = tuple(tuple(float(window) for window in samples[index]) for index in order)
    flat = [window for placement in kept for window in placement]
    numbers = tuple(rounds[index] for index in order) if rounds else ()
    grouped = _grouped([median(placement) for placement in kept], numbers)
    estimator: Estimator = "median_of_rounds"
    centres = sorted(median(group) for group in grouped)
    if len(grouped) == 1:
        estimator = "median_of_windows" if len(kept) == 1 else "median_of_placements"
        centres = sorted(flat if len(kept) == 1 else grouped[0])
    value = median(centres)
    interval: tuple[float, float] | None = None
    prediction: tuple[float, float] | None = None
    coverage: float | None = None
    if len(centres) > 1:
        low, high, coverage = median_ranks(len(centres))
        interval = (centres[low - 1], centres[high - 1])
        if len(grouped) > 1:
            prediction = _wider(value, interval, MOMENTS * REPLICATION)
            interval = _wider(value, interval, MOMENTS)
    within = [spread for placement in kept if (spread := relative_spread(placement)) is not None]
    between, over_rounds = _spreads(grouped, value)
    result = Estimate(
        value=value,
        unit=unit,
        estimator=estimator,
        interval=interval,
        coverage=coverage,
        prediction=prediction,
        rounds=numbers,
        placements=len(kept),
        windows=len(flat),
        within_spread=median(within) if within else None,
        between_spread=between,
        rounds_spread=over_rounds,
        minimum=min(flat),
        maximum=max(flat),
        bimodal=is_bimodal(flat),
        converged=None,
        samples=kept,
    )
    hit = {code: {new for new, old in enumerate(order) if old in found} for code, found in (disturbed or {}).items()}
    known = {name: [values[index] for index in order] for name, values in (covariates or {}).items()}
    update: dict[str, object] = {
        "flags": (*shift_flags(result, hit), *covariate_flags(grouped, value, target_half_width, known))
    }
    if target_half_width is not None and result.half_width is not None:
        sure = (coverage or 0.0) >= MIN_COVERAGE
        update |= {
            "converged": sure and result.half_width <= target_half_width,
            "target_half_width": target_half_width,
        }
    return result.model_copy(update=update)


def _wider(value: float, bounds: tuple[float, float], factor: float) -> tuple[float, float]:
    """Return *bounds* with their distances from *value* times *factor*; below 0 only if the lower one was."""
    low, high = bounds
    return max(value - factor * (value - low), min(0.0, low)), value + factor * (high - value)


def combined(estimates: Sequence[Estimate], function: Callable[[Sequence[float]], float], unit: str) -> Estimate | None:
    """Return the *function* of several *estimates*, computed in each round: their median, or their spread.

    Rounds that some of them lack are left out; ``None`` if no other is left. Without rounds, placements take their
    place.
    """
    centres = [item.centre_of_rounds for item in estimates]
    common = [number for number in centres[0] if all(number in rounds for rounds in centres)]
    if not common:
        return None
    targets = {item.target_half_width for item in estimates}
    found = estimate(
        [[function([rounds[number] for rounds in centres])] for number in common],
        unit,
        rounds=common if all(item.rounds for item in estimates) else (),
        target_half_width=targets.pop() if len(targets) == 1 else None,
    )
    return found.model_copy(update={"estimator": "derived"})


def _grouped(centres: Sequence[T], rounds: Sequence[int]) -> list[list[T]]:
    """Return the *centres* of placements by the number of their round; one round without numbers."""
    found = grouped(zip(rounds or [0] * len(centres), centres, strict=True))
    return list(found.values())


def _mean_squares(grouped: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Return the mean squares of placements in rounds, and of rounds: ``None`` with no degree of freedom."""
    count, inside, between = sum(map(len, grouped)), 0.0, 0.0
    mean = fmean(centre for group in grouped for centre in group)
    for group in grouped:
        centre = fmean(group)
        inside += sum((value - centre) ** 2 for value in group)
        between += len(group) * (centre - mean) ** 2
    free = count - len(grouped)
    return inside / free if free else None, between / (len(grouped) - 1) if len(grouped) > 1 else None


def _spreads(grouped: Sequence[Sequence[float]], value: float) -> tuple[float | None, float | None]:
    """Return the relative spreads of placements in rounds and of rounds: the components of their variance.

    From the one-way analysis of variance (Searle, Casella and McCulloch, *Variance Components*, section 3.6). With one
    placement in each round, the spread of rounds contains that of placements.
    """
    if value == 0:
        return None, None
    inside, between = _mean_squares(grouped)
    size = sum(map(len, grouped)) / len(grouped)
    over = None if between is None else max(0.0, between - (inside or 0.0)) / size
    scale = abs(value)
    return None if inside is None else sqrt(inside) / scale, None if over is None else sqrt(over) / scale


def differs(grouped: Sequence[Sequence[float]]) -> bool:
    """Return whether the rounds in *grouped* differ by more than their placements explain.

    With several placements in a round by the F test at ``CHANCE``. With one by the trend over the rounds: the
    Mann-Kendall test (Mann, Econometrica 13, 1945) at ``RANKED_CHANCE``.
    """
    inside, between = _mean_squares(grouped)
    if between is None:
        return False
    if inside is None:
        centres = [group[0] for group in grouped]
        return _trend_chance(len(centres), abs(_agreement(range(len(centres)), centres))) < RANKED_CHANCE
    if inside == 0:
        return between > 0
    from scipy.special import fdtrc  # noqa: PLC0415 - slow, and only rounds that may differ need it

    return bool(fdtrc(len(grouped) - 1, sum(map(len, grouped)) - len(grouped), between / inside) < CHANCE)


def covariate_flags(
    grouped: Sequence[Sequence[float]],
    value: float,
    target: float | None,
    covariates: Mapping[str, Sequence[float | None]],
) -> Iterator[Flag]:
    """Yield a flag if the rounds in *grouped* differ, and by more than *target*, and which *covariates* went with them.

    *covariates* has one value for each placement. What goes with the rounds has a rank correlation of ``GOES_WITH``.
    """
    centres = [median(group) for group in grouped]
    change = (max(centres) - min(centres)) / abs(value or 1)
    if change <= 2 * (target or RELEVANT) or not differs(grouped):
        return
    numbers = [number for number, group in enumerate(grouped) for _ in group]
    causes = []
    for name, values in covariates.items():
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            continue
        over = [fmean(group) for group in _grouped(known, numbers)]
        if abs(_agreement(over, centres)) >= GOES_WITH:
            causes.append(f"{name} from {min(over):.4g} to {max(over):.4g}")
    changed = f"with it changed {', '.join(causes)}" if causes else "no recorded condition changed with it"
    reason = f"its rounds differ by {change * 100:.2g} %, from {centres[0]:.4g} in the first to {centres[-1]:.4g}"
    yield flag("NOT_STATIONARY", f"{reason} in the last; {changed}")


def _trend_chance(count: int, agreement: float) -> float:
    """Return how often *count* values in random order agree with their order at least as much, either way.

    From the number of orders by their inversions (Kendall, *Rank Correlation Methods*, section 5.2).
    """
    orders = [1]
    for size in range(2, count + 1):
        sums = list(accumulate(orders + [0] * (size - 1)))
        orders = [total - (sums[place - size] if place >= size else 0) for place, total in enumerate(sums)]
    most = round((1 - agreement) * (len(orders) - 1) / 2)  # inversions with that agreement or more
    return min(1.0, 2 * sum(orders[: most + 1]) / factorial(count))


def _agreement(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Kendall's rank correlation (tau-a) of two sequences of the same length."""
    signs = [
        ((a > b) - (a < b)) * ((c > d) - (c < d)) for (a, c), (b, d) in combinations(zip(one, other, strict=True), 2)
    ]
    return fmean(signs)


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
        kept = [None if index in hit else centre for index, centre in enumerate(centres)]
        rounds = [[centre for centre in group if centre is not None] for group in _grouped(kept, found.rounds)]
        rest = [median(group) for group in rounds if group]
        if hit and rest and abs(shift := median(rest) - found.value) > half:
            count = f"{len(hit)} of {len(centres)} placements"
            change = shift / abs(found.value or 1) * 100
            yield flag(code, f"{count} affected; without them the value is {change:+.1f} %")


def poisson_bounds(count: int) -> tuple[float, float]:
    """Return bounds for the mean of a Poisson distribution of which *count* was observed, with 95 % confidence.

    The exact interval (Garwood 1936, *Fiducial limits for the Poisson distribution*), two-sided; of none seen, 0 and
    the one-sided upper bound, 3.0.
    """
    if count == 0:
        return 0.0, -log(1 - POISSON_CONFIDENCE)
    from scipy.special import gammaincinv  # noqa: PLC0415 - slow, and only rare events need it

    tail = (1 - POISSON_CONFIDENCE) / 2
    return float(gammaincinv(count, tail)), float(gammaincinv(count + 1, 1 - tail))
