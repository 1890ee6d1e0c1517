# SPDX-License-Identifier: Apache-2.0
"""Values of metrics over many nights, as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # importing the models takes longer than a history
    from calibration.base.trust import Trust
    from calibration.measurements.metric_rows import Better
    from calibration.results.model import RunStatus

K = TypeVar("K", bound=tuple[Any, ...])
V = TypeVar("V")

Sut = tuple[str, str]
"""A SUT by its testbed and its own name."""


class Series(NamedTuple):
    """One metric of one SUT: a row of :class:`History`."""

    testbed: str
    sut: str
    metric: str
    unit: str
    better: Better


@dataclass(frozen=True, slots=True)
class NightRun:
    """The run that represents a SUT's night: the newest complete one, else the newest that began, else the newest.

    ``facts`` are those that affect metrics, by name (``calibration.context.facts``); ``reasons`` say why metrics are
    missing. ``failed`` names its own checks that fail (``calibration.results.run_checks``). ``directory`` is relative
    to the results.
    """

    testbed: str
    sut: str
    run_id: str
    night: date
    status: RunStatus
    directory: str
    facts: Mapping[str, str]
    reasons: tuple[str, ...]
    profile: str = ""
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """The run document's own verdict on one metric, by the inventory's limits at that time."""

    lower: float | None
    upper: float | None
    outcome: str
    reason: str


class Unreadable(NamedTuple):
    """A run document that cannot be read: its ``file``, relative to the results, and why.

    ``night`` comes from the name of its directory, ``None`` if that has none. A ``misdated`` one is read by itself, but
    stands for no night: a wrong clock has dated it.
    """

    testbed: str
    sut: str
    file: str
    night: date | None
    reason: str
    misdated: bool = False


@dataclass(frozen=True, slots=True)
class RecordedCheck:
    """The run document's check of a metric against another of its run (``calibration.results.consistency``)."""

    metric: str
    unit: str
    value: float
    interval: tuple[float, float] | None
    bound: tuple[float | None, float | None]
    outcome: str
    reason: str


RunCheckName = Literal["inventory", "restored", "errors", "complete"]


class RunCheck(NamedTuple):
    """A check of a run on its own (``calibration.results.run_checks``), with the texts that decided it."""

    name: RunCheckName
    outcome: Literal["pass", "fail", "no_reference"]
    texts: tuple[str, ...]


class Headline(NamedTuple):
    """A headline metric of a run: the metric of record of ``quantity``, with the trust in it."""

    quantity: str
    title: str
    metric: str
    trust: Trust


@dataclass(frozen=True)
class History:
    """Values of SUTs over nights.

    ``values``, ``low`` and ``high`` have the shape (series, nights): the value and the ends of its interval, each in
    the unit of its series, NaN if there is no valid one. If the ends were asked for of the last nights only, they have
    the columns of these, to be counted from the last. ``nights`` are those on which a run of
    any SUT began, ascending; ``series`` are sorted by testbed, SUT and metric. ``runs`` has each SUT's runs by night.
    ``recorded`` has the verdicts of the last night's documents by testbed, SUT and metric, ``consistency`` their passed
    and failed checks by SUT, ``run_checks`` the checks of each run on its own, ``headlines`` its headline metrics, and
    ``titles`` the titles of all metrics. Imports are excluded. ``unreadable`` are the documents of these nights that
    cannot be read. If the last night has no other, it has no run.
    """

    nights: tuple[date, ...]
    series: tuple[Series, ...]
    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    runs: Mapping[Sut, Mapping[date, NightRun]]
    recorded: Mapping[tuple[str, str, str], Recorded]
    consistency: Mapping[Sut, Sequence[RecordedCheck]] = field(default_factory=dict)
    run_checks: Mapping[Sut, Sequence[RunCheck]] = field(default_factory=dict)
    headlines: Mapping[Sut, Sequence[Headline]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[Unreadable, ...] = ()

    def parts(self, size: int, also: Iterable[str] = ()) -> Iterator[tuple[Collection[str], History]]:
        """Yield some testbeds at a time, in order, with their history over all nights: the next with *size* series.

        Testbeds named in *also* have a part, too.
        """
        counts = Counter(series.testbed for series in self.series)
        suts = (self.runs, ((damaged.testbed, damaged.sut) for damaged in self.unreadable))
        testbeds = sorted({*counts, *(testbed for of in suts for testbed, _ in of), *also})
        part: set[str] = set()
        first = end = 0
        for place, testbed in enumerate(testbeds, 1):
            part.add(testbed)
            end += counts[testbed]
            if end - first >= size or place == len(testbeds):
                yield part, self._part(part, slice(first, end))
                part, first = set(), end

    def _part(self, testbeds: Collection[str], rows: slice) -> History:
        def of(values: Mapping[K, V]) -> dict[K, V]:
            return {key: value for key, value in values.items() if key[0] in testbeds}

        return replace(
            self,
            series=self.series[rows],
            values=self.values[rows],
            low=self.low[rows],
            high=self.high[rows],
            runs=of(self.runs),
            recorded=of(self.recorded),
            consistency=of(self.consistency),
            run_checks=of(self.run_checks),
            headlines=of(self.headlines),
            unreadable=tuple(damaged for damaged in self.unreadable if damaged.testbed in testbeds),
        )
