# SPDX-License-Identifier: Apache-2.0
"""Overview of a lab: a map of SUTs by families of metrics, tonight's changes, and a dot strip per platform.

Deviations are in tolerances from the accepted level: 1 is the edge of the accepted range or of the tolerance, whichever
is wider, so anything worse than 1 fails.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from math import isfinite
from typing import Any, Final, Literal, NamedTuple

from calibration.judge.completeness import RUN
from calibration.judge.state import State
from calibration.judge.verdicts import NightVerdict
from calibration.judge.words import changed_fact
from calibration.measurements import row_of
from calibration.measurements.metric_rows import Family
from calibration.report.lab_status import (
    CHECKS,
    NightlyHistory,
    StatusFinding,
    SutStatus,
    describe,
    findings,
    listed,
    summary,
)
from calibration.results.history import Sut

OTHER_STATES: Final[Mapping[State, str]] = {"unmeasured": "not measured", "no_reference": "without a baseline"}
"""States counted in the summary besides failures."""


class Column(NamedTuple):
    """A family of metrics: its short name (also that of its pages), and its title."""

    family: Family
    code: str
    title: str


COLUMNS: Final = (
    Column("local_latency", "lat", "idle latency, own node"),
    Column("remote_latency", "rem", "idle latency, other nodes"),
    Column("read_bandwidth", "read", "read bandwidth"),
    Column("mixed_bandwidth", "mix", "other bandwidths"),
    Column("loaded_latency", "load", "latency under load"),
    Column("access_patterns", "acc", "access patterns"),
    Column("pages", "page", "page sizes"),
    Column("L1", "L1", "L1 cache"),
    Column("L2", "L2", "L2 cache"),
    Column("L3", "L3", "L3 cache"),
    Column("L4", "L4", "L4 cache"),
    Column("transfers", "c2c", "core to core"),
    Column("clock", "clk", "core clock"),
    Column("longest_gap", "gap", "longest gap"),
    Column("lost_time", "lost", "time lost to gaps"),
    Column("wakeup", "wake", "wake-up latency"),
    Column("undeclared", "old", "metrics of other versions"),
)
"""Columns of the map."""

_OF: Final = {column.family: column for column in COLUMNS}

LARGE_DEVIATION: Final = 3.0
"""Tolerances above which a deviation counts as large."""

Step = Literal["worse2", "worse", "same", "better", "better2", "missing", "waived", "none", "absent"]

SIGNS: Final[Mapping[Step, tuple[str, str]]] = {
    "worse2": ("\N{MINUS SIGN}\N{MINUS SIGN}", f"fails, by more than {LARGE_DEVIATION:.0f} tolerances"),
    "worse": ("\N{MINUS SIGN}", "fails"),
    "same": ("\N{MIDDLE DOT}", "as accepted"),
    "better": ("+", "better"),
    "better2": ("++", f"better by more than {LARGE_DEVIATION:.0f} tolerances"),
    "missing": ("?", "not measured"),
    "waived": ("w", "waived"),
    "none": ("\N{WHITE CIRCLE}", "no baseline"),
    "absent": ("", "not applicable"),
}
"""Text of a cell and its meaning, so that it does not depend on colour."""

MAX_ROWS: Final = 14
"""Maximum rows of a platform's table; larger platforms have several, side by side."""

MAX_LISTED: Final = 12
"""Failures, and changes of tonight, that are listed."""

MAX_NAMED: Final = 3
"""SUTs named before the rest is counted."""

STRIP_RANGE: Final = 4.0
"""Range of a dot strip in tolerances, to both sides; outliers are drawn at the edge."""


def column_of(metric: str) -> Column:
    """Return the column of *metric*."""
    return _OF[row_of(metric).family]


class Cell(NamedTuple):
    """One SUT's metrics of one family: the worst step, a description, and the location of the trends.

    ``deviation`` is in tolerances, positive for worse; ``None`` if there is no accepted level.
    """

    column: Column
    step: Step
    text: str
    deviation: float | None

    @property
    def sign(self) -> str:
        """The text of the cell."""
        return SIGNS[self.step][0]


class LabRow(NamedTuple):
    """One SUT: its standing and its cells."""

    standing: SutStatus
    cells: tuple[Cell, ...]


class Platform(NamedTuple):
    """SUTs with the same processor and number of cores, worst first."""

    title: str
    rows: tuple[LabRow, ...]

    @property
    def failing(self) -> int:
        """Number of failing SUTs."""
        return sum(row.standing.state in {"fails", "unmeasured"} for row in self.rows)

    @property
    def columns(self) -> list[int]:
        """Indices of the families of which any SUT has a metric."""
        return [n for n in range(len(COLUMNS)) if any(row.cells[n].step != "absent" for row in self.rows)]

    @property
    def tables(self) -> list[tuple[LabRow, ...]]:
        """Its rows in tables of equal length."""
        tables = -(-len(self.rows) // MAX_ROWS)
        size = -(-len(self.rows) // tables)
        return [self.rows[place : place + size] for place in range(0, len(self.rows), size)]

    @property
    def strips(self) -> list[tuple[Column, list[tuple[str, float, Step]]]]:
        """Families with at least two deviating SUTs: SUT, deviation in tolerances, and step."""
        found = []
        for place, column in enumerate(COLUMNS):
            cells = [(row.standing.sut, row.cells[place]) for row in self.rows]
            dots = [(sut, cell.deviation, cell.step) for sut, cell in cells if cell.deviation is not None]
            if len(dots) > 1:
                found.append((column, dots))
        return found


class Failure(NamedTuple):
    """One failure: its SUTs, a description, and its first night."""

    suts: tuple[Sut, ...]
    what: str
    since: str


class Fact(NamedTuple):
    """A fact that changed tonight, in the same way on several SUTs, and where metrics got worse or better."""

    fact: str
    before: str | None
    after: str | None
    suts: tuple[Sut, ...]
    worse: int
    better: int


@dataclass(frozen=True)
class Lab:
    """The SUTs of a lab, or of one of its testbeds, tonight."""

    nights: NightlyHistory
    found: Sequence[SutStatus]

    @property
    def failing(self) -> bool:
        """Whether a SUT fails or was not measured."""
        return any(item.state in {"fails", "unmeasured"} for item in self.found)

    @property
    def gone(self) -> list[Sut]:
        """SUTs that are no longer expected."""
        return [(run.testbed, run.sut) for run in self.found if run.state == "gone"]

    @cached_property
    def platforms(self) -> list[Platform]:
        """SUTs by platform: most failures first, then the largest."""
        rows: dict[str, list[LabRow]] = {}
        for standing in self.found:
            if standing.state != "gone":
                rows.setdefault(self._platform(standing), []).append(LabRow(standing, tuple(self._cells(standing))))
        found = [Platform(title, tuple(sorted(those, key=_row_order))) for title, those in rows.items()]
        return sorted(found, key=lambda item: (-item.failing, -len(item.rows), item.title))

    @property
    def sentence(self) -> str:
        """Number of failing SUTs, and the failures."""
        counts = Counter(item.state for item in self.found)
        every = len(self.found) - counts["gone"]
        wrong = counts["fails"]
        text = f"{wrong} of {every} SUT{'' if every == 1 else 's'} fail{'s' if wrong == 1 else ''} tonight"
        others = [f"{counts[state]} {words}" for state, words in OTHER_STATES.items() if counts[state]]
        text += f" ({', '.join(others)})" if others else ""
        described = [omitted for omitted in self.failures if omitted.what]
        if wrong and described:
            text += f": {_failure_text(described[0])}"
            more = len(described) - 1
            text += f"; and {more} more below" if more else ""
        return f"{text}."

    @cached_property
    def failures(self) -> list[Failure]:
        """Failures, each listed once, those with most SUTs first.

        SUTs whose failures began on the same night, mostly in the same family, are combined.
        """
        own = {(run.testbed, run.sut) for run in self.found}
        alike: dict[tuple[date | None, str], list[StatusFinding]] = {}
        for finding in findings(self.nights):
            if (finding.testbed, finding.sut) in own:
                codes = [RUN if one == RUN else column_of(one).code for one in finding.metrics]
                counts = Counter(code for code in codes if code != COLUMNS[-1].code) or Counter(codes)
                alike.setdefault((finding.since, counts.most_common(1)[0][0]), []).append(finding)
        found = []
        for (since, _), those in sorted(alike.items(), key=lambda item: (-len(item[1]), item[0][1] == RUN)):
            suts = tuple((run.testbed, run.sut) for run in those)
            worst = max(those, key=lambda item: max(map(self._size, item.verdicts)))
            what = summary(self.nights, worst)
            shared = set.intersection(*({change.fact for change in item.context_changes} for item in those))
            if len(those) > 1:
                what = f"{describe(self.nights, worst.verdicts[0])}, at the worst ({worst.sut})"
                what += f"; changed: {listed(sorted(shared)[:MAX_NAMED])}" if shared else ""
            found.append(Failure(suts, what, "" if since is None else since.isoformat()))
        return found

    @cached_property
    def facts(self) -> list[Fact]:
        """Facts that changed tonight, most SUTs first."""
        nights = self.nights
        groups: dict[tuple[str, str | None, str | None], list[Sut]] = {}
        for standing in self.found:
            for change in nights.changed_tonight((standing.testbed, standing.sut)):
                key = (change.fact, change.before, change.after)
                groups.setdefault(key, []).append((standing.testbed, standing.sut))
        found = []
        for (fact, before, after), suts in groups.items():
            moved = [self._moved(sut) for sut in suts]
            found.append(Fact(fact, before, after, tuple(suts), moved.count("worse"), moved.count("better")))
        return sorted(found, key=lambda change: (-change.worse, -len(change.suts), change.fact))

    def _moved(self, sut: Sut) -> str:
        """Return whether metrics of *sut* got worse or better tonight."""
        tonight = [verdict for verdict in self.nights.of_sut.get(sut, ()) if verdict.since == self.nights.night]
        if any(verdict.outcome == "fail" for verdict in tonight):
            return "worse"
        return "better" if any("better" in verdict.reason for verdict in tonight if verdict.outcome == "noted") else ""

    def deviation(self, verdict: NightVerdict) -> float | None:
        """Return the deviation of a metric from its accepted level in tolerances, positive for worse."""
        row = self.nights.rows.get(self.nights.key(verdict))
        if row is None or verdict.value is None or verdict.bound is None or verdict.check != "limits":
            return None
        low, high = verdict.bound
        if low is not None and high is not None:
            level, half = (low + high) / 2, (high - low) / 2
        else:  # one-sided: measured from the previous level
            bound = high if low is None else low
            level = self.nights.analyses[row].level
            half = 0.0 if bound is None else abs(bound - level)
        widest = max(half, self.nights.tolerances.fraction(verdict.metric) * abs(level))
        if not widest > 0:
            return None
        size = (verdict.value - level) / widest
        return size if self.nights.history.series[row].better == "lower" else -size

    @cached_property
    def _had(self) -> Mapping[Sut, set[Column]]:
        """Families of which a SUT ever had a metric."""
        found: dict[Sut, set[Column]] = {}
        for series in self.nights.history.series:
            found.setdefault((series.testbed, series.sut), set()).add(column_of(series.metric))
        return found

    def _cells(self, standing: SutStatus) -> Iterator[Cell]:
        of: dict[Column, list[NightVerdict]] = {column: [] for column in COLUMNS}
        for verdict in self.nights.of_sut.get((standing.testbed, standing.sut), ()):
            if verdict.metric != RUN and verdict.check != "unreadable":
                of[column_of(verdict.metric)].append(verdict)
        if any(verdict.check == "limits" and verdict.value is not None for those in of.values() for verdict in those):
            yield from itertools.starmap(self._cell, of.items())
            return
        had = self._had.get((standing.testbed, standing.sut), set())
        for column in COLUMNS:
            step: Step = "missing" if column in had else "absent"
            yield Cell(column, step, SIGNS[step][1], None)

    def _cell(self, column: Column, verdicts: Sequence[NightVerdict]) -> Cell:
        limits = [verdict for verdict in verdicts if verdict.check == "limits"]
        known = [(size, limit) for limit in limits if (size := self.deviation(limit)) is not None]
        known.sort(key=lambda pair: pair[0])
        failing = [verdict for verdict in verdicts if verdict.outcome == "fail"]
        if failing:
            first = min(failing, key=lambda verdict: (CHECKS.index(verdict.check), -abs(self._size(verdict))))
            size = max(map(self._size, failing))
            missing = all(verdict.check == "missing" for verdict in failing)
            step: Step = "missing" if missing else "worse2" if size > LARGE_DEVIATION else "worse"
            deviation = None if missing or not known else known[-1][0]
            return Cell(column, step, describe(self.nights, first), deviation)
        if not known:
            step = "none" if limits else "absent"
            return Cell(column, step, SIGNS[step][1], None)
        (best, it), (worst, _) = known[0], known[-1]
        if any(verdict.waiver is not None for verdict in verdicts):
            return Cell(column, "waived", SIGNS["waived"][1], worst)
        if best < -1 and -best > worst:
            return Cell(column, "better2" if best < -LARGE_DEVIATION else "better", describe(self.nights, it), best)
        return Cell(column, "same", SIGNS["same"][1], max(worst, best, key=abs))

    def _size(self, verdict: NightVerdict) -> float:
        """Return the size of a failure in tolerances: of the level, else of its change."""
        size = self.deviation(verdict)
        if size is None:
            change, fraction = self.nights.change(verdict), self.nights.tolerances.fraction(verdict.metric) or 1.0
            size = 0.0 if change is None or not isfinite(change.size) else abs(change.size) / fraction
        return size

    def _platform(self, standing: SutStatus) -> str:
        facts = {} if standing.newest is None else standing.newest.facts
        processor = facts.get("processor")
        if not processor:
            return "Processor unknown"
        name = re.sub(r"^\S+ (.*?)(?: \d+ \d+ \d+)?$", r"\1", processor)
        return f"{name}, {facts['cores'].split(' ')[0]} cores" if "cores" in facts else name


def _row_order(row: LabRow) -> tuple[int, int, float, str, str]:
    """Return a sort key for SUTs: failing, not measured, others; then by failing families, then by size."""
    order = {"fails": 0, "unmeasured": 1}.get(row.standing.state, 2)
    steps = Counter(cell.step for cell in row.cells)
    bad = 10 * steps["worse2"] + 3 * steps["worse"] + steps["missing"]
    largest = max((cell.deviation for cell in row.cells if cell.deviation is not None), default=0.0)
    return order, -bad, -largest if order == 0 else 0.0, row.standing.testbed, row.standing.sut


def _failure_text(wrong: Failure) -> str:
    names = [f"{testbed}/{sut}" for testbed, sut in wrong.suts]
    who = names[0] if len(names) == 1 else f"{len(names)} SUTs"
    return f"{who}: {wrong.what}" + (f", since {wrong.since}" if wrong.since else "")


def strip_position(deviation: float) -> float:
    """Return the position of a dot on a strip, as a fraction of its width."""
    return (max(-STRIP_RANGE, min(STRIP_RANGE, deviation)) + STRIP_RANGE) / (2 * STRIP_RANGE)


NAMES: Final[Mapping[str, Any]] = {
    "columns": COLUMNS,
    "signs": SIGNS,
    "max_listed": MAX_LISTED,
    "max_named": MAX_NAMED,
    "strip_position": strip_position,
    "changed_fact": changed_fact,
}
"""Names that the templates of a lab and of a testbed use."""
