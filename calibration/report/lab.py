# SPDX-License-Identifier: Apache-2.0
"""Overview of a lab or a testbed: the answers, the last nights of every SUT, and a map of SUTs by families of metrics.

Deviations are in tolerances from the accepted level: 1 is the edge of the accepted range or of the tolerance, whichever
is wider, so anything worse than 1 fails.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar, Final, Literal, NamedTuple

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.base.names import natural
from calibration.judge.answer import URGENT, WORDS, Answer, State, changed_facts, grouped_answers, headline, look
from calibration.judge.judged import JudgedNights, describe, failure_order
from calibration.judge.strip import strip_of
from calibration.judge.verdicts import RUN, NightVerdict
from calibration.measurements import row_of
from calibration.measurements.metric_rows import FAMILIES, Family
from calibration.report.blocks import Bullets, Inline, Link, Mark, Marks, Paragraph, Table, Text
from calibration.results.history import Sut


class Column(NamedTuple):
    """A family of metrics: its short name (also that of its pages), and its title."""

    family: Family
    code: str
    title: str

    @property
    def page(self) -> str:
        """The page of its trends, in the folder of a testbed."""
        return f"{self.code.lower()}.html"


COLUMNS: Final = tuple(Column(family, row.code, row.title) for family, row in FAMILIES.items())
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

STATES: Final[Mapping[State, str]] = {
    "fails": "!",
    "not_measured": "?",
    "faulty": "~",
    "no_baseline": "\N{WHITE CIRCLE}",
    "changed": "+",
    "as_accepted": "\N{MIDDLE DOT}",
}
"""Text of a night in a strip, so that it does not depend on colour."""

Links = Callable[[str, str], str | None]
"""Returns the path of a SUT's page, by testbed and name; ``None`` if it has none."""


def sut_anchor(sut: str) -> str:
    """Return the anchor of a SUT on the pages of its testbed's trends."""
    return f"sut-{units.slug(sut)}"


def linked(link: Links, testbed: str, sut: str, text: str) -> Inline:
    """Return *text*, which leads to the page of a SUT if it has one."""
    where = link(testbed, sut)
    return text if where is None else Link(text, where)


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
    """One SUT: its answer and its cells."""

    answer: Answer
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Lab:
    """The SUTs of a lab, or of one of its testbeds, tonight.

    ``link`` leads to their pages, ``trends`` are the folders of the testbeds' trends.
    """

    MAX_LISTED: ClassVar = 12
    """Answers, and changes of tonight, that are listed."""

    MAX_NAMED: ClassVar = 3
    """SUTs named before the rest is counted."""

    nights: JudgedNights
    found: Sequence[Answer]
    link: Links = lambda _testbed, _sut: None
    trends: Mapping[str, str] = field(default_factory=dict)

    @property
    def gone(self) -> list[Sut]:
        """SUTs that are no longer expected."""
        return [(answer.testbed, answer.sut) for answer in self.found if answer.state == "gone"]

    @property
    def sentence(self) -> str:
        """Number of SUTs in each state."""
        return f"{headline(self.found, self.nights.night)}."

    @property
    def look(self) -> str:
        """The look of the sentence."""
        return look(self.found)

    @cached_property
    def urgent(self) -> list[tuple[list[Sut], Answer]]:
        """The answers with which the night fails, with their SUTs: those that share an event have one."""
        groups = grouped_answers((answer for answer in self.found if answer.state in URGENT), self.nights.events)
        return [([(member.testbed, member.sut) for member in members], answer) for members, answer in groups]

    @property
    def without_baseline(self) -> list[Answer]:
        """The SUTs that nothing is accepted for."""
        return [answer for answer in self.found if answer.state == "no_baseline"]

    @cached_property
    def facts(self) -> list[tuple[str, list[Sut]]]:
        """Facts that changed tonight without a failure."""
        return changed_facts(self.found)

    def page(self, testbed: str, sut: str) -> Inline:
        """Return the name of a SUT, which leads to its page."""
        return linked(self.link, testbed, sut, f"{testbed}/{sut}")

    def testbed_page(self, testbed: str) -> Paragraph:
        """Return the name of a testbed, which leads to its page."""
        return Paragraph((Link(testbed, f"{self.trends[testbed]}index.html"),), "lab-testbed")

    @property
    def strip_legend(self) -> Bullets:
        """What the signs of the nights mean."""
        signs: list[Text] = [(Mark(sign, f"night {state}"), f" {WORDS[state]}") for state, sign in STATES.items()]
        changed = Mark(STATES["as_accepted"], "night as_accepted renewed")
        return Bullets((*signs, (changed, " configuration changed")), "lab-legend")

    @property
    def strips(self) -> list[tuple[str, Bullets]]:
        """The last nights of each SUT, by testbed."""
        by_testbed = grouped((answer.testbed, answer) for answer in self._ordered if answer.state != "gone")
        return [
            (testbed, Bullets(tuple(map(self._strip, those)), "lab-strips")) for testbed, those in by_testbed.items()
        ]

    def _strip(self, answer: Answer) -> Text:
        nights = strip_of(self.nights, answer)
        counts = grouped((night.state, night) for night in nights if night.state is not None)
        words = ", ".join(f"{WORDS[state]} on {len(those)}" for state, those in counts.items() if state is not None)
        marks = tuple(
            Mark(
                "" if night.state is None else STATES[night.state],
                f"night {night.state or 'before'}{' renewed' if night.changed else ''}",
                f"{night.night}: {WORDS[night.state] if night.state else 'before its first run'}"
                f"{', configuration changed' if night.changed else ''}",
            )
            for night in nights
        )
        return linked(self.link, answer.testbed, answer.sut, answer.sut), " ", Marks(words, marks)

    @property
    def map_legend(self) -> Bullets:
        """What the signs of the map mean."""
        return Bullets(
            tuple((Mark(sign, f"cell {step}"), f" {words}") for step, (sign, words) in SIGNS.items() if sign),
            "lab-legend",
        )

    @property
    def map(self) -> Table:
        """The worst of each family of metrics of each SUT."""
        titles: list[Text] = [("SUT",), *((COLUMNS[place].title,) for place in self.columns)]
        rows = [
            (
                (linked(self.link, row.answer.testbed, row.answer.sut, row.answer.sut),),
                *(self._sign(row.answer, row.cells[place]) for place in self.columns),
            )
            for row in self.rows
        ]
        return Table(tuple(titles), tuple(rows), "lab-map", stub=True)

    def _sign(self, answer: Answer, cell: Cell) -> Text:
        if cell.step == "absent":
            return ()
        where = f"{self.trends[answer.testbed]}{cell.column.page}#{sut_anchor(answer.sut)}"
        return (Mark(cell.sign, f"cell {cell.step}", f"{cell.column.title}: {cell.text}", where),)

    @property
    def _ordered(self) -> list[Answer]:
        return sorted(self.found, key=lambda answer: (natural(answer.testbed), natural(answer.sut)))

    @cached_property
    def rows(self) -> list[LabRow]:
        """The map: a row per SUT."""
        return [LabRow(answer, tuple(self._cells(answer))) for answer in self._ordered if answer.state != "gone"]

    @property
    def columns(self) -> list[int]:
        """Indices of the families of which any SUT has a metric."""
        return [place for place in range(len(COLUMNS)) if any(row.cells[place].step != "absent" for row in self.rows)]

    @cached_property
    def _had(self) -> Mapping[Sut, set[Column]]:
        """Families of which a SUT ever had a metric."""
        found: dict[Sut, set[Column]] = {}
        for series in self.nights.history.series:
            found.setdefault((series.testbed, series.sut), set()).add(column_of(series.metric))
        return found

    def _cells(self, answer: Answer) -> Iterator[Cell]:
        of: dict[Column, list[NightVerdict]] = {column: [] for column in COLUMNS}
        for verdict in self.nights.of_sut.get((answer.testbed, answer.sut), ()):
            if verdict.metric != RUN and verdict.check != "unreadable":
                of[column_of(verdict.metric)].append(verdict)
        if any(verdict.check == "limits" and verdict.value is not None for those in of.values() for verdict in those):
            yield from itertools.starmap(self._cell, of.items())
            return
        had = self._had.get((answer.testbed, answer.sut), set())
        for column in COLUMNS:
            step: Step = "missing" if column in had else "absent"
            yield Cell(column, step, SIGNS[step][1], None)

    def _cell(self, column: Column, verdicts: Sequence[NightVerdict]) -> Cell:
        limits = [verdict for verdict in verdicts if verdict.check == "limits"]
        known = [(size, limit) for limit in limits if (size := self.nights.deviation(limit)) is not None]
        known.sort(key=lambda pair: pair[0])
        failing = [verdict for verdict in verdicts if verdict.outcome == "fail"]
        if failing:
            first = min(failing, key=partial(failure_order, self.nights))
            size = max(map(self.nights.size, failing))
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
