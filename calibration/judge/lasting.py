# SPDX-License-Identifier: Apache-2.0
"""What differs without a change: equal SUTs whose results differ all along, and results that flip between two levels.

Neither has a night on which it began, so that nothing can follow it. What is known of the SUTs themselves is compared
instead. docs/method/explanation.rst explains the method.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import expm1, isfinite, log, log1p, nan
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.judge.association import FALSE_CLAIMS, MIN_SHIFTS, WITHIN
from calibration.judge.causes import INSTRUMENT, differences_from, fact_of
from calibration.judge.detector import Floats, Integers, two_levels
from calibration.judge.drift import analyse
from calibration.judge.outliers import FAMILY_WISE, Levels, compare_levels, holm, levels_of
from calibration.judge.throughput import medians
from calibration.judge.tolerances import Tolerances
from calibration.judge.verdicts import ContextChange
from calibration.measurements.metric_rows import Better
from calibration.results.history import History, NightRun, Sut

SAME: Final = 0.01
"""Results of equal SUTs may differ so far. Lower: what a cable or a slot makes is listed. Higher: the 2 and 3 % of
FDio/csit#3997 are lost in the noise of a test."""

MIN_EQUAL: Final = 3
"""With two SUTs, either may be the one that is wrong."""

Kind = Literal["metric", "fact"]


class MetricDifference(Model):
    """A metric of a SUT against the median of equal ones, as a share: beyond its tolerance."""

    metric: str
    size: float
    better: bool


class Lasting(Model):
    """A SUT (or several tested together) whose results differ from those of most ``others``, equal ones, all along.

    ``size`` is the largest of the ``tests`` in which it does, as a share with its 95 % interval. ``facts`` are those in
    which it differs from most of the others, on its first and its last night; ``before`` is theirs.
    """

    suts: tuple[str, ...]
    size: float
    interval: tuple[float, float]
    tests: tuple[str, ...]
    others: int
    facts: tuple[ContextChange, ...]
    metrics: tuple[MetricDifference, ...]


class Together(Model):
    """What was on one of two levels, or had one of two values, on the same nights as the results.

    ``lower`` and ``upper`` are what it was with the lower and the upper results; ``same`` of ``nights`` agree.
    ``chance`` is the probability of such an agreement anywhere in the lab; it is ``claimed`` if at most 0.05.
    """

    kind: Kind
    what: str
    lower: str
    upper: str
    same: int
    nights: int
    chance: float
    claimed: bool


class Bands(Model):
    """Results of a test that flip between two levels; ``nights`` of ``of`` are on the lower one."""

    suts: tuple[str, ...]
    test: str
    unit: str | None
    lower: float
    upper: float
    nights: int
    of: int
    together: tuple[Together, ...]


class Flipping(NamedTuple):
    """What flips at a SUT: whether it is on the upper level, or has the second value, by the ordinal of the night."""

    kind: Kind
    what: str
    lower: str
    upper: str
    is_upper: Mapping[int, bool]


class Standing(NamedTuple):
    """A calibrated SUT as it is: first and last run, level of each metric and which way is better, what flips."""

    first: NightRun
    last: NightRun
    levels: Mapping[str, tuple[float, Better]]
    flipping: tuple[Flipping, ...]


class Results(NamedTuple):
    """A test: ``values`` of shape (places, nights), NaN for missing; ``steady`` are places without a change."""

    test: str
    unit: str | None
    suts: Sequence[tuple[Sut, ...]]
    days: Integers
    values: Floats
    steady: Sequence[bool]


class _Compared(NamedTuple):
    """A place against ``others`` of its kind in one test: logarithm of the ratio, half of its interval, and p."""

    test: str
    place: tuple[Sut, ...]
    others: Sequence[tuple[Sut, ...]]
    difference: float
    half: float
    p: float


def standing_of(history: History, names: set[str], flipping: Collection[Sut]) -> dict[Sut, Standing]:
    """Return the SUTs of *history* with *names* as they are; those without a known machine are left out.

    What flips is looked for at the SUTs in *flipping* only.
    """
    rows = grouped(((series.testbed, series.sut), row) for row, series in enumerate(history.series))
    level = medians(history.values).tolist()
    found = {}
    for sut, runs in history.runs.items():
        known = [runs[night] for night in sorted(runs) if runs[night].facts]
        if sut[1] in names and known:
            own = rows.get(sut, [])
            levels = {history.series[row].metric: (level[row], history.series[row].better) for row in own}
            flips = (*_flipping_metrics(history, own), *_flipping_facts(known)) if sut in flipping else ()
            found[sut] = Standing(known[0], known[-1], levels, flips)
    return found


def flipping_suts(tests: Iterable[Results]) -> set[Sut]:
    """Return the SUTs with results that flip between two levels."""
    return {sut for _, suts, _, _ in _flipping_results(tests) for sut in suts}


def _flipping_metrics(history: History, rows: Sequence[int]) -> Iterator[Flipping]:
    for place, (columns, (lower, upper, is_upper)) in _flipping_rows(history.values[rows]).items():
        series = history.series[rows[place]]
        days = [history.nights[column].toordinal() for column in columns]
        by_day = dict(zip(days, is_upper.tolist(), strict=True))
        texts = (f"{lower:.4g} {series.unit}", f"{upper:.4g} {series.unit}")
        yield Flipping("metric", series.metric, *texts, by_day)


def _flipping_facts(runs: Sequence[NightRun]) -> Iterator[Flipping]:
    """Yield the facts that had two values, and changed from one to the other more than twice."""
    for fact in sorted(runs[-1].facts.keys() - {INSTRUMENT}):
        texts = {run.night: text for run in runs if (text := fact_of(run, fact)) is not None}
        values = sorted(set(texts.values()))
        changes = sum(one != other for one, other in zip(list(texts.values())[1:], texts.values(), strict=False))
        if len(values) == 2 and changes > 2:
            by_day = {night.toordinal(): text == values[1] for night, text in texts.items()}
            yield Flipping("fact", fact, values[0], values[1], by_day)


_Levels = tuple[float, float, NDArray[np.bool_]]


def _flipping_rows(values: Floats) -> dict[int, tuple[Integers, _Levels]]:
    """Return the rows of *values*, NaN for missing, that flip: columns with a value, levels, which are on the upper.

    Rows with as many values are searched together.
    """
    columns = [np.flatnonzero(known) for known in np.isfinite(values)]
    packed = [values[row, of] for row, of in enumerate(columns)]
    units = [float(np.median(np.abs(of))) if len(of) else 0.0 for of in packed]
    found = {}
    for rows in grouped((len(packed[row]), row) for row, unit in enumerate(units) if unit).values():
        flips = two_levels(np.array([packed[row] / units[row] for row in rows]))
        for place in np.flatnonzero(flips.found).tolist():
            unit = units[rows[place]]
            levels = float(flips.lower[place]) * unit, float(flips.upper[place]) * unit, flips.is_upper[place]
            found[rows[place]] = columns[rows[place]], levels
    return dict(sorted(found.items()))


def lasting_differences(
    tests: Sequence[Results], standing: Mapping[Sut, Standing], tolerances: Tolerances
) -> tuple[Lasting, ...]:
    """Return the places whose results differ from those of most equal ones, those that differ most first.

    Equal are places whose SUTs have the same processors. A place whose results changed is not compared: what it differs
    in depends on the night.
    """
    groups = [
        (test, rows)
        for test in tests
        for processors, rows in _of_a_kind(test, standing).items()
        if len(rows) >= MIN_EQUAL and None not in processors
    ]
    longest = max((test.values.shape[1] for test, _ in groups), default=0)
    padded = [_padded(test.values[rows], longest) for test, rows in groups]
    analyses = iter(analyse(np.concatenate(padded)) if padded else [])
    compared: list[_Compared] = []
    for test, rows in groups:
        levels = levels_of([next(analyses) for _ in rows], np.full(len(rows), np.nan))
        found = compare_levels(Levels(*(of[:, None] for of in levels)), np.array([SAME]))
        places = [test.suts[row] for row in rows]
        columns = (of[:, 0].tolist() for of in (found.difference, found.half, found.p))
        for place, *numbers in zip(places, *columns, strict=True):
            compared.append(_Compared(test.test, place, [other for other in places if other != place], *numbers))
    odd = holm(np.array([item.p for item in compared]), FAMILY_WISE)
    differ = grouped((item.place, item) for item, is_odd in zip(compared, odd.tolist(), strict=True) if is_odd)
    lasting = [_lasting(own, standing, tolerances) for own in differ.values()]
    return tuple(sorted(lasting, key=lambda one: -abs(one.size)))


def _of_a_kind(test: Results, standing: Mapping[Sut, Standing]) -> dict[tuple[str | None, ...], list[int]]:
    """Return the rows of *test* to compare by the processors of their SUTs."""
    return grouped(
        (tuple(fact_of(standing[sut].last, "processor") for sut in suts), row)
        for row, suts in enumerate(test.suts)
        if suts and test.steady[row] and all(sut in standing for sut in suts)
    )


def _padded(values: Floats, longest: int) -> Floats:
    return np.pad(values, ((0, 0), (0, longest - values.shape[1])), constant_values=np.nan)


def _lasting(found: Sequence[_Compared], standing: Mapping[Sut, Standing], tolerances: Tolerances) -> Lasting:
    worst = max(found, key=lambda item: abs(item.difference))
    facts: dict[str, ContextChange] = {}
    metrics: dict[str, MetricDifference] = {}
    for position, sut in enumerate(worst.place):
        own, equal = standing[sut], [standing[other[position]] for other in worst.others]
        always = {item.fact for item in differences_from(own.first, [other.first for other in equal])}
        for item in differences_from(own.last, [other.last for other in equal]):
            if item.fact in always - {INSTRUMENT}:
                facts.setdefault(item.fact, item)
        measured_alike = [one for one in equal if fact_of(one.last, INSTRUMENT) == fact_of(own.last, INSTRUMENT)]
        for one in _metrics(own, measured_alike, tolerances):
            metrics.setdefault(one.metric, one)
    ordered = sorted(metrics.values(), key=lambda one: -abs(one.size) / (tolerances.fraction(one.metric) or SAME))
    return Lasting(
        suts=tuple("/".join(sut) for sut in worst.place),
        size=expm1(worst.difference),
        interval=(expm1(worst.difference - worst.half), expm1(worst.difference + worst.half)),
        tests=tuple(item.test for item in found),
        others=len(worst.others),
        facts=tuple(facts.values()),
        metrics=tuple(ordered),
    )


NO_LEVEL: Final[tuple[float, Better]] = (nan, "lower")


def _metrics(own: Standing, others: Sequence[Standing], tolerances: Tolerances) -> Iterator[MetricDifference]:
    for metric, (level, better) in own.levels.items():
        known = [other.levels[metric][0] for other in others if isfinite(other.levels.get(metric, NO_LEVEL)[0])]
        usual = float(np.median(known)) if known else 0.0
        if level > 0.0 and usual > 0.0 and abs(log(level / usual)) > log1p(tolerances.fraction(metric)):
            size = level / usual - 1.0
            yield MetricDifference(metric=metric, size=size, better=(size > 0.0) == (better == "higher"))


def bands_of(tests: Sequence[Results], standing: Mapping[Sut, Standing]) -> tuple[Bands, ...]:
    """Return the results that flip between two levels, with what flips on the same nights.

    The chance is that of the best agreement anywhere in the lab when the results are shifted along the nights, as for
    changes.
    """
    found = list(_flipping_results(tests))
    pairs = [
        (number, _Pair.of(flipping, dict(zip(test.days[days].tolist(), levels[2].tolist(), strict=True))))
        for number, (test, suts, days, levels) in enumerate(found)
        for sut in suts
        if sut in standing
        for flipping in standing[sut].flipping
    ]
    longest = max((len(pair.results) for _, pair in pairs), default=0)
    shares = np.arange(2 * WITHIN, longest - 2 * WITHIN + 1) / max(longest, 1)
    best = np.max([pair.shifted(shares) for _, pair in pairs], axis=0, initial=0.0) if pairs else np.zeros(0)
    by_place = grouped((number, pair.together(best)) for number, pair in pairs if len(shares) >= MIN_SHIFTS)
    return tuple(
        Bands(
            suts=tuple("/".join(sut) for sut in suts),
            test=test.test,
            unit=test.unit,
            lower=lower,
            upper=upper,
            nights=int((~is_upper).sum()),
            of=len(is_upper),
            together=tuple(sorted(by_place.get(number, ()), key=lambda one: (one.chance, one.kind, one.what))),
        )
        for number, (test, suts, _, (lower, upper, is_upper)) in enumerate(found)
    )


def _flipping_results(tests: Iterable[Results]) -> Iterator[tuple[Results, tuple[Sut, ...], Integers, _Levels]]:
    """Yield the results that flip: the test, the SUTs, the columns of their nights, and the levels."""
    for test in tests:
        for row, (columns, levels) in _flipping_rows(test.values).items():
            yield test, test.suts[row], columns, levels


class _Pair(NamedTuple):
    """Results and what flips at the same SUT, on the nights of both: 1 for the upper level, -1 for the lower."""

    flipping: Flipping
    results: Floats
    other: Floats

    @classmethod
    def of(cls, flipping: Flipping, results: Mapping[int, bool]) -> "_Pair":
        days = sorted(results.keys() & flipping.is_upper.keys())
        signs = [[1.0 if of[day] else -1.0 for day in days] for of in (results, flipping.is_upper)]
        return cls(flipping, np.array(signs[0]), np.array(signs[1]))

    def agreement(self, results: Floats) -> float:
        """Return the correlation of *results* with what flips, without its sign; 0 if either is constant."""
        one, other = (
            (values - values.mean() for values in (results, self.other)) if len(results) else (results, results)
        )
        scale = float(np.sqrt((one**2).sum() * (other**2).sum()))
        return abs(float((one * other).sum())) / scale if scale else 0.0

    def shifted(self, shares: Floats) -> Floats:
        """Return the agreement with the results shifted by each of *shares* of the nights."""
        steps = np.round(shares * len(self.results)).astype(np.intp).tolist()
        return np.array([self.agreement(np.roll(self.results, step)) for step in steps])

    def together(self, best: Floats) -> Together:
        """Return how it agrees; *best* are the best agreements of the shifts."""
        found = self.agreement(self.results)
        chance = (1 + int(np.count_nonzero(best >= found - 1e-9))) / (1 + len(best))
        same = int((self.results == self.other).sum())
        along = 2 * same >= len(self.results)
        first, second = self.flipping.lower, self.flipping.upper
        return Together(
            kind=self.flipping.kind,
            what=self.flipping.what,
            lower=first if along else second,
            upper=second if along else first,
            same=same if along else len(self.results) - same,
            nights=len(self.results),
            chance=chance,
            claimed=chance <= FALSE_CLAIMS,
        )
