# SPDX-License-Identifier: Apache-2.0
"""Sentinels: a few metrics that tell in seconds whether a SUT is the one that was accepted.

A reading is compared with the accepted level on a logarithmic scale. Its standard deviation is that of the accepted
bounds, which has the variation of nights and the error of the level, and that of the reading itself, from its
interval; their squares are added, with degrees of freedom by Satterthwaite. Two distances follow from Student's
quantiles:

*refusal*
    an unchanged SUT reads farther than this from its level with a probability of ``FALSE_REFUSALS``, shared by all
    sentinels.
*visible*
    a SUT that changed by this much reads within *refusal* with a probability of half of ``1 - FOUND``.

If *visible* is not beyond the change that must be found, the allowed distance is widened until it is: smaller changes
do not matter. Otherwise a reading within *refusal* decides nothing. A reading outside is repeated, and two on the same
side are a change. Both bounds hold however the two depend on each other: a false refusal needs the first outside, and a
change is missed only if one of two is within.

The longest gap was seen once and has no error of its own: it is compared with the accepted upper bound, and a longer
one is repeated too.
"""

from collections.abc import Sequence
from math import exp, expm1, inf, log, log1p, sqrt
from typing import Final, Literal, NamedTuple

from scipy.special import stdtridf, stdtrit

from calibration.judge.baseline_files import Bounds
from calibration.judge.prediction import USUAL_COVERAGE
from calibration.judge.words import amount, share
from calibration.measurements.base import Metric
from calibration.runner.intervals import MOMENTS

FALSE_REFUSALS: Final = 1 / 200
"""Probability that an unchanged SUT is refused, over all sentinels. A lab that gates every test refuses one SUT in a
week or two by mistake; ten times less would hide changes that are twice as large."""

FOUND: Final = 0.95
"""Probability that a change is found."""


class Sentinel(NamedTuple):
    """A metric with a level: the first of *metrics* that a SUT has; *change* is the relative change to be found."""

    name: Literal["latency", "bandwidth", "clock"]
    metrics: tuple[str, ...]
    change: float

    @property
    def kind(self) -> str:
        """The kind of measurement of all *metrics*."""
        return self.metrics[0].partition(".")[0]


SENTINELS: Final = (
    Sentinel("latency", ("idle_latency.latency_ns",), 0.05),
    Sentinel("bandwidth", ("peak_injection_bandwidth.reads.bandwidth_mb_s",), 0.03),
    Sentinel("clock", ("core_frequency.scalar.all.lowest_hz", "core_frequency.scalar.alone.lowest_hz"), 0.02),
)
"""Two per cent of the clock are less than one step of most processors' turbo, and ten times what a clock that is not
throttled varies. The longest gap of isolated CPUs is the fourth sentinel."""

SHARE: Final = FALSE_REFUSALS / (len(SENTINELS) + 1)
"""The part of ``FALSE_REFUSALS`` of one sentinel."""


Outcome = Literal["passed", "failed", "undecided"]


class Verdict(NamedTuple):
    """What is known of one sentinel, in words; ``repeat`` if another reading may decide more."""

    outcome: Outcome
    text: str
    repeat: bool = False


class Deviation(NamedTuple):
    """The logarithm of a value, its standard deviation, and the degrees of freedom of that."""

    log: float
    spread: float
    degrees: float

    def beside(self, other: "Deviation") -> "Deviation":
        """Return the difference to *other*."""
        squares = self.spread**2, other.spread**2
        variance = sum(squares)
        weights = sum(square**2 / item.degrees for square, item in zip(squares, (self, other), strict=True))
        return Deviation(self.log - other.log, sqrt(variance), variance**2 / weights if weights else inf)


def level_of(bounds: Bounds, outside: float) -> Deviation:
    """Return the accepted level of *bounds*, beyond each of which a fraction *outside* of the nights is.

    The degrees of freedom are those that make the bounds as wide as they are. Raises ``ValueError`` for a metric that
    has values without a logarithm.
    """
    end = bounds.upper if bounds.upper is not None else bounds.lower
    if not bounds.relative or end is None:
        raise ValueError("its accepted values are not all positive")
    if bounds.spread == 0:
        return Deviation(log(bounds.value), 0.0, inf)
    quantile = abs(log(end / bounds.value)) / bounds.spread
    normal = float(stdtrit(inf, 1 - outside))
    degrees = inf if quantile <= normal else float(stdtridf(1 - outside, quantile))
    return Deviation(log(bounds.value), bounds.spread, degrees)


class LevelKind(NamedTuple):
    """What a level is called, before its value and where it varies.

    The interval of a reading is wider for what changes from run to run by *moments*, if the level has that already.
    """

    value: str
    varies: str
    moments: float


ACCEPTED: Final = LevelKind("accepted", "the accepted nights vary", MOMENTS)
BEFORE: Final = LevelKind("before", "the run before varies", 1.0)


def reading_of(metric: Metric, kind: LevelKind = ACCEPTED) -> Deviation:
    """Return the value of *metric*, to be compared with a level of *kind*, with its standard error.

    That is what its interval over rounds implies. Raises ``ValueError`` without such an interval.
    """
    if metric.interval is None or metric.rounds is None or metric.rounds < 2 or metric.value <= 0:
        raise ValueError("its uncertainty is unknown")
    low, high = metric.interval
    degrees, coverage = metric.rounds - 1, metric.coverage or USUAL_COVERAGE
    half = (high - low) / 2 / kind.moments / metric.value  # not of logarithms: a wide interval reaches down to 0
    return Deviation(log(metric.value), half / float(stdtrit(degrees, (1 + coverage) / 2)), degrees)


class SentinelReading(NamedTuple):
    """A value beside its accepted level, as logarithms.

    ``by`` is how far it is away, ``allowed`` how far it may be, ``visible`` the smallest change that is found.
    """

    metric: Metric
    by: float
    allowed: float
    visible: float

    @property
    def side(self) -> int:
        """-1 or 1 if it is too far away, below or above; else 0."""
        return 0 if abs(self.by) <= self.allowed else 1 if self.by > 0 else -1

    @property
    def text(self) -> str:
        """The difference and the value."""
        return f"{_percent(self.by, '+')} ({amount(self.metric.value, self.metric.unit)})"


def distances(difference: Deviation) -> tuple[float, float]:
    """Return how far an unchanged *difference* may read from 0, and how far a changed one from the change."""
    return (
        float(stdtrit(difference.degrees, 1 - SHARE / 2)) * difference.spread,
        float(stdtrit(difference.degrees, (1 + FOUND) / 2)) * difference.spread,
    )


def read(level: Deviation, change: float, metric: Metric, kind: LevelKind = ACCEPTED) -> SentinelReading:
    """Return *metric* beside a *level* of *kind*, if a relative *change* is to be found.

    Raises ``ValueError`` if the uncertainty of *metric* is unknown.
    """
    difference = reading_of(metric, kind).beside(level)
    refusal, margin = distances(difference)
    return SentinelReading(metric, difference.log, max(refusal, log1p(change) - margin), refusal + margin)


def judge_level(level: Deviation, change: float, metrics: Sequence[Metric], kind: LevelKind = ACCEPTED) -> Verdict:
    """Return the verdict on one or two readings of the same metric, which a *change* has moved or not.

    Raises ``ValueError`` if the uncertainty of one is unknown.
    """
    readings = [read(level, change, metric, kind) for metric in metrics]
    first, last = readings[0], readings[-1]
    unit = last.metric.unit
    text = f"{', then '.join(reading.text for reading in readings)}, {kind.value} {amount(exp(level.log), unit)}"
    if last.side == 0 and last.visible > log1p(change):
        quiet = sum(distances(level)) <= log1p(change)
        why = "this reading varies" if quiet else kind.varies
        seen = f"a change from {_percent(last.visible)} on would be seen"
        return Verdict("undecided", f"{text}: {seen}, {why} too much for {share(change)}", repeat=quiet)
    text += f" ±{_percent(last.allowed)}"
    if last.side == 0:
        return Verdict("passed", text)
    if len(readings) > 1 and first.side == last.side:
        return Verdict("failed", text)
    return Verdict("undecided", f"{text}: outside once", repeat=True)


def judge_noise(change: float, metric: Metric) -> Verdict:
    """Return whether a second run that varies like that of *metric* would show a *change*.

    Raises ``ValueError`` if its uncertainty is unknown.
    """
    visible = read(reading_of(metric, BEFORE), change, metric, BEFORE).visible
    text = f"{amount(metric.value, metric.unit)}: a change from {_percent(visible)} on will be seen"
    if visible > log1p(change):
        return Verdict("undecided", f"{text}, this machine varies too much for {share(change)}")
    return Verdict("passed", text)


def _percent(difference: float, sign: str = "") -> str:
    """Return a *difference* of logarithms in per cent with two digits, of 100 or more with all."""
    change = 100 * expm1(difference)
    return f"{change:{sign}.0f} %" if abs(change) >= 100 else f"{change:{sign}.2g} %"


def judge_gap(upper: float | None, gaps: Sequence[float], observed_s: float) -> Verdict:
    """Return the verdict on the longest *gaps* (ns) in one or two times of *observed_s*; *upper* is accepted."""
    found = ", then ".join(amount(gap, "ns") for gap in gaps)
    if upper is None:
        return Verdict("undecided", f"{found}: no accepted upper bound, which takes several nights")
    every_s = -observed_s / log((1 - FOUND) / 2)
    text = f"{found}, accepted at most {amount(upper, 'ns')}; longer ones are seen if they come every {every_s:.1f} s"
    outside = [gap > upper for gap in gaps]
    if not outside[-1]:
        return Verdict("passed", text)
    if len(gaps) > 1 and outside[0]:
        return Verdict("failed", text)
    return Verdict("undecided", f"{text}: outside once", repeat=True)
