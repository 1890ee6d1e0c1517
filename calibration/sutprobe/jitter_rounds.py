# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe jitter``, and the results of several rounds merged into one.

Counts, sums, maxima and the longest gaps are exact. Quantiles shorter than the listed gaps are upper bounds;
``turn_ns.median`` and the ``median_ns`` of a period are medians of the rounds' medians.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import isclose
from statistics import median
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from calibration.base.errors import InputError
from calibration.base.grouping import grouped, of_known
from calibration.base.model import Model
from calibration.runner.intervals import COVERAGE_WANTED, median_ranks
from calibration.sutprobe.document import Part, Result, validated
from calibration.sutprobe.jitter import (
    GapBin,
    GapRate,
    GapView,
    JitterCpu,
    LongGap,
    Period,
    PmaView,
    TimeQuantile,
    TurnTime,
)
from calibration.sutprobe.placement import Interference, verified_in_rounds

CLOCK_TOLERANCE: Final = 0.001
"""Relative difference between clocks; beyond, their ticks are not the same. Calibrations of one clock agree to ppm."""

EDGE_TOLERANCE: Final = 0.01
"""Relative difference between the edges of equal bins, whose next is at least 6 % higher."""

LONGEST: Final = 20
"""Gaps listed if the rounds list all they had; the default of sutprobe."""

PERIOD_TOLERANCE: Final = 0.2
"""Difference between equal periods, as a share of the window: as much as sutprobe tracks without losing a gap."""

REASONS: Final = ("intervals", "time", "interrupted")
"""Why a view ended; the last one that occurs in any round is that of the whole."""


class JitterResult(Result):
    """Result of ``sutprobe jitter``: one entry per CPU, measured at the same time.

    ``forks_per_s`` are the processes started by the housekeeping load, ``None`` without it.
    """

    forks_per_s: float | None = None
    cpus: tuple[JitterCpu, ...]

    @classmethod
    def of_rounds(cls, parts: Sequence[Part]) -> Self:
        """Return the results of *parts* as one, CPU by CPU: all views of a long run together take gigabytes."""
        pieces: dict[str, list[tuple[int, bytes]]] = {}
        rounds = []
        for part in parts:
            whole = validated(part.result or b"", _Unread)
            for cpu in whole.cpus:
                pieces.setdefault(str(cpu.get("cpu")), []).append((part.round, _json(cpu)))
            rounds.append((part, validated(_json({**(whole.model_extra or {}), "cpus": ()}), cls)))
        cpus = [
            _cpu([_in_round(validated(piece, JitterCpu), number) for number, piece in found])
            for found in pieces.values()
        ]
        cpus.sort(key=lambda cpu: cpu.cpu)
        return cls.merged(rounds).model_copy(update={"cpus": tuple(cpus)})

    @classmethod
    def merged(cls, rounds: Sequence[tuple[Part, Self]]) -> Self:
        """Return the results of *rounds*, in order of time, as one.

        CPUs are matched by number; one without a view in some rounds has that of the others. Raises ``InputError`` if
        the ticks of the rounds are of different clocks.
        """
        found = grouped((cpu.cpu, _in_round(cpu, part.round)) for part, result in rounds for cpu in result.cpus)
        return rounds[0][1].model_copy(
            update={
                "forks_per_s": of_known(median, (result.forks_per_s for _, result in rounds)),
                "cpus": tuple(_cpu(found[number]) for number in sorted(found)),
            }
        )


class _Unread(BaseModel):
    """The result of a round, whose CPUs are not read yet."""

    model_config = ConfigDict(extra="allow", strict=True)

    cpus: list[dict[str, Any]]


def _json(part: dict[str, Any]) -> bytes:
    return to_json(part, inf_nan_mode="constants")  # to be refused when it is read


def _in_round(cpu: JitterCpu, number: int) -> JitterCpu:
    """Return *cpu* with the *number* of its round in each interval."""
    if cpu.pma is None:
        return cpu
    intervals = tuple(interval.model_copy(update={"round": number}) for interval in cpu.pma.intervals)
    return cpu.model_copy(update={"pma": cpu.pma.model_copy(update={"intervals": intervals})})


def _cpu(found: Sequence[JitterCpu]) -> JitterCpu:
    verified, error = verified_in_rounds(found)
    found = [cpu for cpu in found if cpu.cpu_verified] or found
    pma, gaps = of_known(_pma, (cpu.pma for cpu in found)), of_known(_gaps, (cpu.gaps for cpu in found))
    return JitterCpu(
        cpu=found[0].cpu,
        cpu_verified=verified,
        error=error,
        pma=pma,
        gaps=gaps,
        pma_missing=None if pma else found[0].pma_missing,
        gaps_missing=None if gaps else found[0].gaps_missing,
    )


def _pma(views: Sequence[PmaView]) -> PmaView:
    """Return one view of all intervals, with their numbers, minimum and maximum so far recomputed."""
    if not all(isclose(view.tick_hz, views[0].tick_hz, rel_tol=CLOCK_TOLERANCE) for view in views):
        raise InputError(f"rounds with different clocks: {', '.join(f'{view.tick_hz:.6g} Hz' for view in views)}")
    intervals = [interval for view in views for interval in view.intervals]
    least = accumulate((interval.abs_min_cycles for interval in intervals), min)
    most = accumulate((interval.abs_max_cycles for interval in intervals), max)
    ticks = [sum(interval.interval_cycles for interval in view.intervals) for view in views]
    blind = sum(view.blind_fraction * total for view, total in zip(views, ticks, strict=True))
    numbered = tuple(
        interval.model_copy(update={"sample": number, "abs_min_cycles": low, "abs_max_cycles": high})
        for number, (interval, low, high) in enumerate(zip(intervals, least, most, strict=True), 1)
    )
    changes = {"blind_fraction": blind / sum(ticks), "stopped": _stopped(views), "intervals": numbered}
    return views[0].model_copy(update=changes)


def _gaps(views: Sequence[GapView]) -> GapView:
    """Return one view of the total time of *views*."""
    lost = tuple(view.lost_fraction for view in views)
    if len(views) == 1:
        return views[0].model_copy(update={"lost_by_round": lost})
    sums = _sums(views, "wall_s", "turns", "backward_steps", "count", "lost_ns")
    wall_ns = sums["wall_s"] * 1e9
    clocks_hz = [hz for view in views for hz in (view.core_hz_before, view.core_hz_after)]
    changes = {
        "stopped": _stopped(views),
        "rate_half_width": _half_width([view.count / view.wall_s for view in views]),
        "turn_ns": TurnTime(
            min=min(view.turn_ns.min for view in views), median=median(view.turn_ns.median for view in views)
        ),
        "threshold_ns": max(view.threshold_ns for view in views),
        "coverage_fraction": sum(view.coverage_fraction * view.wall_s for view in views) / sums["wall_s"],
        "max_ns": max(view.max_ns for view in views),
        "lost_fraction": sums["lost_ns"] / wall_ns,
        "histogram": _histogram(views),
        "rates_per_s": _rates(views, sums["wall_s"]),
        "quantiles": _quantiles(views, wall_ns, sums["lost_ns"]),
        "longest": _longest(views),
        "ring_full": any(view.ring_full for view in views),
        "periods": _periods(views, sums["count"]),
        "slices": tuple(observation for view in views for observation in view.slices),
        "core_hz_after": max(clocks_hz[1:], key=lambda hz: abs(hz - clocks_hz[0])),  # a change in between is kept
        "interference": Interference.summed([view.interference for view in views]),
        "lost_by_round": lost,
    }
    return views[0].model_copy(update=sums | changes)


def _stopped(views: Sequence[PmaView | GapView]) -> str:
    return max((view.stopped for view in views), key=REASONS.index)


def _sums(parts: Sequence[Model], *names: str) -> dict[str, Any]:
    """Return the sums of the fields *names*; ``None`` if no part knows the field."""
    return {name: of_known(sum, (getattr(part, name) for part in parts)) for name in names}


def _half_width(rates: Sequence[float]) -> float | None:
    """Return the relative half-width of the interval of *rates*; ``None`` if they are too few to have one."""
    low, high, coverage = median_ranks(len(rates))
    centre, ordered = median(rates), sorted(rates)
    return (ordered[high - 1] - ordered[low - 1]) / 2 / centre if coverage >= COVERAGE_WANTED and centre else None


def _histogram(views: Sequence[GapView]) -> tuple[GapBin, ...]:
    """Return all bins; those whose edges differ by no more than the calibration of the clock are one."""
    bins: list[GapBin] = []
    for added in sorted((bucket for view in views for bucket in view.histogram), key=lambda bucket: bucket.from_ns):
        last = bins[-1] if bins else added
        edges = (last.from_ns, added.from_ns), (last.to_ns, added.to_ns)
        if bins and all(isclose(one, other, rel_tol=EDGE_TOLERANCE) for one, other in edges):
            count, to_ns = last.count + added.count, max(last.to_ns, added.to_ns)
            bins[-1] = GapBin(from_ns=last.from_ns, to_ns=to_ns, count=count)
        else:
            bins.append(added)
    return tuple(bins)


def _in_all(tables: Sequence[dict[float, float]]) -> dict[float, list[float]]:
    """Return the values of the keys that all *tables* have."""
    return {key: [table[key] for table in tables] for key in tables[0] if all(key in table for table in tables)}


def _rates(views: Sequence[GapView], wall_s: float) -> tuple[GapRate, ...]:
    counts = _in_all([{row.threshold_ns: round(row.rate * view.wall_s) for row in view.rates_per_s} for view in views])
    return tuple(GapRate(threshold_ns=length_ns, rate=sum(gaps) / wall_s) for length_ns, gaps in counts.items())


def _longest(views: Sequence[GapView]) -> tuple[LongGap, ...]:
    """Return as many as are surely the longest: the gaps that a list left out may be as long as its last."""
    starts_ns = accumulate((view.wall_s * 1e9 for view in views[:-1]), initial=0.0)
    gaps = [
        LongGap(at_ns=start_ns + gap.at_ns, length_ns=gap.length_ns)
        for start_ns, view in zip(starts_ns, views, strict=True)
        for gap in view.longest
    ]
    sure = min((len(view.longest) for view in views if len(view.longest) < view.count), default=LONGEST)
    return tuple(sorted(gaps, key=lambda gap: (-gap.length_ns, gap.at_ns))[:sure])


def _quantiles(views: Sequence[GapView], wall_ns: float, lost_ns: float) -> tuple[TimeQuantile, ...]:
    """Return the least lengths known to be enough: at most the largest of the rounds."""
    enough = _in_all([{row.time_fraction: row.gap_ns for row in view.quantiles} for view in views])
    for length_ns, longer_ns in _limits(views, lost_ns):
        for fraction, lengths in enough.items():
            if longer_ns <= (1 - fraction) * wall_ns:
                enough[fraction] = [min(max(lengths), length_ns)]
    return tuple(TimeQuantile(time_fraction=fraction, gap_ns=max(lengths)) for fraction, lengths in enough.items())


def _limits(views: Sequence[GapView], lost_ns: float) -> Iterator[tuple[float, float]]:
    """Yield lengths and the most time that longer gaps can have taken, which is exact for the listed gaps."""
    yield max(view.threshold_ns for view in views), lost_ns
    longer_ns = 0.0
    for gap in _longest(views):
        yield gap.length_ns, longer_ns
        longer_ns += gap.length_ns
    bins = sorted(_histogram(views), key=lambda bucket: -bucket.to_ns)
    longer_ns, rest_ns = 0.0, lost_ns - sum(bucket.count * bucket.from_ns for bucket in bins)
    for bucket in bins:
        yield bucket.to_ns, min(longer_ns, rest_ns)
        longer_ns += bucket.count * bucket.to_ns
        rest_ns += bucket.count * bucket.from_ns


def _periods(views: Sequence[GapView], count: int) -> tuple[Period, ...]:
    """Return the periods, the equal ones of different rounds as one; of two candidates, that of more similar gaps."""
    groups: list[list[Period]] = []
    for view in views:
        earlier = list(groups)
        for period in view.periods:
            equal = [place for place, group in enumerate(earlier) if _equal(group[0], period)]
            if equal:
                place = min(equal, key=lambda at: abs(earlier[at][0].median_ns - period.median_ns))
                earlier.pop(place).append(period)
            else:
                groups.append([period])
    return tuple(sorted((_period(group, count) for group in groups), key=lambda period: -period.gaps))


def _equal(one: Period, other: Period) -> bool:
    return abs(one.period_ns - other.period_ns) <= PERIOD_TOLERANCE * max(one.window_ns, other.window_ns)


def _period(found: Sequence[Period], count: int) -> Period:
    sums = _sums(found, "gaps", "cycles", "lost_ns")
    period_ns = sum(period.period_ns * period.cycles for period in found) / sums["cycles"]
    return Period(
        **sums,
        period_ns=period_ns,
        hz=1e9 / period_ns,
        share_of_gaps=sums["gaps"] / count,
        median_ns=median(period.median_ns for period in found),
        window_ns=max(period.window_ns for period in found),
    )
