# SPDX-License-Identifier: Apache-2.0
"""Causes of gaps by counters: the gaps of each slice of an observation, regressed on what was counted in it.

What no count explains stays unattributed. What comes too evenly to be told from a steady rest is not told, unless it is
a timer whose gaps are known by their period.
"""

from collections.abc import Iterator, Sequence
from math import inf
from operator import mul
from typing import Annotated, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from calibration.base.grouping import grouped, of_known
from calibration.base.model import Model

MIN_SLICES: Final = 12
"""Fewer cannot carry a regression on several sources."""

MAX_ACTIVE: Final = 6
"""Sources of one regression; with more, chance chooses among them."""

MIN_T: Final = 4.0
"""A coefficient in standard errors: with some 20 sources tried, chance reaches it once in 1000 runs."""

MAX_ERROR: Final = 0.125
"""Standard error of gaps per event up to which "explains nothing" is known."""

MAX_LOST_ERROR: Final = 0.02
"""The same for time, of all events, as a share of the time lost."""

MIN_TIMER_RATE: Final = 0.9
"""Rate of a timer relative to a period that it causes, in nine of ten slices."""

MIN_VARIANCE: Final = 1e-12
"""Counts are never known better than to the rounding of a slice's edges."""

TURNS: Final = 500
"""Of least squares within bounds: more would give all that is nearly steady to its source."""

MIN_APART: Final = 1e-9
"""Share of a column's square that the others must leave, or it cannot be told from them."""

KINDS: Final = ("interrupt", "softirq", "switch", "steal", "smi")
"""Kinds of sources, in the order in which they are listed."""

TOO_EVEN: Final = "too few, too even or too much together with others to be told from the rest"
TOO_FEW: Final = "no slices to compare: no CPU was free to read counters meanwhile, or the time was too short"
WITHIN: Final = "run at the end of an interrupt or in a thread, within a gap of theirs"
NO_WAITING: Final = "waiting time unknown: this kernel has no schedstat"
STEAL: Final = "counted in ms by the kernel, in steps of its clock, not in gaps"
SMI: Final = "read before and after only, because reading interrupts the CPU"

Numbers = NDArray[np.float64]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class SlicedSource(Model):
    """What was counted in each slice under one label of ``/proc/interrupts`` or ``/proc/softirqs``."""

    source: str
    kind: Literal["interrupt", "softirq"]
    timer: bool
    events: tuple[Count, ...]


class SlicedGaps(Model):
    """The gaps that begin in each slice."""

    gaps: tuple[Count, ...]
    lost_ns: tuple[Count, ...]


class SlicedPeriod(SlicedGaps):
    """Those of them that belong to one period."""

    period_ns: PositiveFloat


class Slices(SlicedGaps):
    """One observation in slices of ``length_ns``; switches and waiting are those of the measuring thread.

    ``steal_ms`` and ``smi`` are of the whole observation. ``None`` if unknown.
    """

    length_ns: tuple[PositiveInt, ...]
    periods: tuple[SlicedPeriod, ...]
    switches: tuple[Count, ...] | None
    waited_ns: tuple[Count, ...] | None
    sources: tuple[SlicedSource, ...]
    steal_ms: float | None
    smi: int | None

    @model_validator(mode="after")
    def _equal_lengths(self) -> Self:
        rows = [self.length_ns, self.gaps, self.lost_ns, self.switches, self.waited_ns]
        rows += [row for period in self.periods for row in (period.gaps, period.lost_ns)]
        rows += [source.events for source in self.sources]
        if {len(row) for row in rows if row is not None} != {len(self.length_ns)} or not self.length_ns:
            raise ValueError("slices whose columns are of different lengths, or empty")
        return self


class GapSource(Model):
    """A possible cause of gaps: its number, and the gaps and lost time it explains, ``None`` with a ``reason``.

    A ``reason`` beside a number says why it is unknown in some of the rounds.
    """

    source: str
    kind: Literal["interrupt", "softirq", "switch", "steal", "smi"]
    count: float
    rate_per_s: float
    explained_gaps: float | None
    explained_lost_ns: float | None
    reason: str | None


class Attribution(Model):
    """Causes of the gaps, from counters read in ``slices``; shares are ``None`` without gaps."""

    slices: int
    slice_s: float
    gaps: int
    lost_ns: float
    sources: tuple[GapSource, ...]
    unattributed_gaps: float
    unattributed_lost_ns: float
    unattributed_share: float | None
    unattributed_lost_share: float | None


class _Row(NamedTuple):
    """What a source explains in one observation."""

    source: str
    kind: Literal["interrupt", "softirq", "switch", "steal", "smi"]
    events: float
    gaps: float | None
    lost_ns: float | None
    reason: str


def attributed(observations: Sequence[Slices]) -> Attribution | None:
    """Return the causes of the gaps of all *observations*, as sums by source; ``None`` without any."""
    if not observations:
        return None
    rows = (row for slices in observations for row in _limited(slices))
    same = grouped(((KINDS.index(row.kind), row.source), row) for row in rows)
    lengths_ns = [length_ns for slices in observations for length_ns in slices.length_ns]
    seconds = sum(lengths_ns) / 1e9
    sources = tuple(_source(same[key], seconds) for key in sorted(same, key=lambda key: key[0]))
    gaps, lost_ns = (sum(sum(getattr(slices, name)) for slices in observations) for name in ("gaps", "lost_ns"))
    rest = gaps - sum(source.explained_gaps or 0 for source in sources)
    rest_ns = lost_ns - sum(source.explained_lost_ns or 0 for source in sources)
    return Attribution(
        slices=len(lengths_ns),
        slice_s=seconds / len(lengths_ns),
        gaps=gaps,
        lost_ns=lost_ns,
        sources=sources,
        unattributed_gaps=rest,
        unattributed_lost_ns=rest_ns,
        unattributed_share=rest / gaps if gaps else None,
        unattributed_lost_share=rest_ns / lost_ns if lost_ns else None,
    )


def _source(rows: Sequence[_Row], seconds: float) -> GapSource:
    count = sum(row.events for row in rows)
    return GapSource(
        source=rows[0].source,
        kind=rows[0].kind,
        count=count,
        rate_per_s=count / seconds,
        explained_gaps=of_known(sum, (row.gaps for row in rows)),
        explained_lost_ns=of_known(sum, (row.lost_ns for row in rows)),
        reason=next((row.reason for row in rows if row.gaps is None or row.lost_ns is None), None),
    )


def _limited(slices: Slices) -> Iterator[_Row]:
    """Yield all sources, which explain no more than there is: a regression may overshoot by its error."""
    rest, rest_ns = float(sum(slices.gaps)), float(sum(slices.lost_ns))
    for row in _rows(slices):
        gaps = None if row.gaps is None else min(row.gaps, rest)
        lost_ns = None if row.lost_ns is None else min(row.lost_ns, rest_ns)
        rest, rest_ns = rest - (gaps or 0), rest_ns - (lost_ns or 0)
        yield row._replace(gaps=gaps, lost_ns=lost_ns)


def _rows(slices: Slices) -> Iterator[_Row]:
    steady = np.array(slices.length_ns) / 1e9
    gaps, lost_ns = np.array(slices.gaps, float), np.array(slices.lost_ns, float)
    gaps -= 0 if slices.switches is None else slices.switches
    lost_ns -= 0 if slices.waited_ns is None else slices.waited_ns
    events = np.array([source.events for source in slices.sources], float).reshape(-1, len(steady))
    claims = [
        _claim_periods(slices, row, gaps, lost_ns) if source.timer else (None, None)
        for source, row in zip(slices.sources, events, strict=True)
    ]
    sums, interrupts = events.sum(axis=1), np.array([source.kind == "interrupt" for source in slices.sources], bool)
    known, known_ns = dict[int, float](), dict[int, float]()
    if len(steady) >= MIN_SLICES:
        enough = MAX_LOST_ERROR * lost_ns.sum() / np.where(sums > 0, sums, 1)
        # An interrupt makes one gap at most.
        known = _regressed(gaps, steady, events, (sums > 0) & interrupts, np.full(len(sums), MAX_ERROR), most=1)
        known_ns = _regressed(lost_ns, steady, events, sums > 0, enough, most=inf)
    for number, (source, (claim, claim_ns)) in enumerate(zip(slices.sources, claims, strict=True)):
        few = len(steady) < MIN_SLICES and claim is None
        reason = WITHIN if source.kind == "softirq" else TOO_FEW if few else TOO_EVEN
        yield _Row(
            source.source,
            source.kind,
            sum(source.events),
            of_known(sum, (claim, known.get(number))),
            of_known(sum, (claim_ns, known_ns.get(number))),
            reason,
        )
    if slices.switches is not None:  # the CPU is taken and given back: one gap each
        count, waited_ns = sum(slices.switches), None if slices.waited_ns is None else sum(slices.waited_ns)
        yield _Row("involuntary switches", "switch", count, count, waited_ns, NO_WAITING)
    if slices.steal_ms is not None:  # part of the unattributed
        yield _Row("steal", "steal", slices.steal_ms, None, None, STEAL)
    if slices.smi is not None:
        none = None if slices.smi else 0.0
        yield _Row("SMI", "smi", slices.smi, none, none, SMI)


def _claim_periods(
    slices: Slices, events: Numbers, gaps: Numbers, lost_ns: Numbers
) -> tuple[float | None, float | None]:
    """Take the gaps of every period that a timer's *events* can have caused out of all three; return their sums."""
    claimed: list[SlicedPeriod] = []
    length_ns = np.array(slices.length_ns)
    for period in slices.periods:
        cycles = length_ns / period.period_ns
        # One event more: a slice's edges may cut off one of them.
        rates = np.sort((events + 1) / cycles)
        if rates[len(rates) // 10] < MIN_TIMER_RATE or events.sum() < MIN_TIMER_RATE * cycles.sum():
            continue
        claimed.append(period)
        gaps -= period.gaps
        lost_ns -= period.lost_ns
        np.maximum(events - period.gaps, 0, out=events)
    claimed_ns = of_known(sum, (sum(period.lost_ns) for period in claimed))
    return of_known(sum, (sum(period.gaps) for period in claimed)), claimed_ns


def _regressed(
    explained: Numbers, steady: Numbers, events: Numbers, candidates: NDArray[np.bool_], enough: Numbers, *, most: float
) -> dict[int, float]:
    """Return the part of *explained* that is known of candidates, by their rows of *events*.

    A source is taken as long as one has a significant coefficient above zero, the most significant first; coefficients
    are at most *most*. Of the others, those that explain nothing with a standard error of *enough* are known too.
    """
    active: list[int] = []
    while True:
        fixed = np.column_stack((steady, *events[active]))
        coefficients, errors = _additions(explained, fixed, events)
        significance = np.where(candidates, coefficients / errors, 0)
        if len(active) == MAX_ACTIVE or significance.max(initial=0) <= MIN_T:
            break
        active.append(int(significance.argmax()))
    told = candidates & (errors <= enough) & (len(active) < MAX_ACTIVE)
    fit = _bounded(explained, fixed, most) if active else []
    found = dict.fromkeys(map(int, np.flatnonzero(told)), 0.0)
    return found | {number: fit[1 + place] * float(events[number].sum()) for place, number in enumerate(active)}


def _additions(explained: Numbers, fixed: Numbers, added: Numbers) -> tuple[Numbers, Numbers]:
    """Return the coefficient, and its standard error, of each row of *added* beside the columns of *fixed*.

    The error is infinite where the row cannot be told from the columns.
    """
    basis = np.linalg.qr(fixed)[0]
    rest, left = explained - basis @ (basis.T @ explained), added - (added @ basis) @ basis.T
    squares = (left**2).sum(axis=1)
    apart = squares >= MIN_APART * (added**2).sum(axis=1)
    apart &= squares > 0
    squares = np.where(apart, squares, 1)
    coefficients = np.where(apart, left @ rest / squares, 0)
    misses = ((rest - coefficients[:, None] * left) ** 2).sum(axis=1)
    variance = np.maximum(misses / max(len(rest) - fixed.shape[1] - 1, 1), MIN_VARIANCE)
    return coefficients, np.where(apart, np.sqrt(variance / squares), inf)


def _bounded(explained: Numbers, columns: Numbers, most: float) -> list[float]:
    """Return least squares with coefficients from 0 to *most*, the first without an upper bound, by turns."""
    products, right = (columns.T @ columns).tolist(), (columns.T @ explained).tolist()
    fit = [0.0] * len(right)
    for _ in range(TURNS):
        before = list(fit)
        for place, row in enumerate(products):
            rest = right[place] - sum(map(mul, row, fit)) + row[place] * fit[place]
            fit[place] = min(max(rest / row[place], 0.0), most if place else inf)
        if fit == before:
            break
    return fit
