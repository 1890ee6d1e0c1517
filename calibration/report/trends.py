# SPDX-License-Identifier: Apache-2.0
"""Pages of a testbed: tonight's failures, and each metric of each SUT over the nights, one line each.

A testbed has a page with its map, charts of failures, context changes and missing nights, and a page per family of
metrics. The number of charts is limited; all plotted data can be downloaded.
"""

import csv
import gzip
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property, partial
from itertools import groupby, pairwise
from math import isfinite
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.base.names import natural
from calibration.charts.base import Chart
from calibration.charts.trends import Panel, trend
from calibration.judge.answer import Answer
from calibration.judge.causes import context_changes
from calibration.judge.drift import Analysis
from calibration.judge.judged import (
    JudgedNights,
    StatusFinding,
    change_text,
    describe,
    failure_order,
    findings,
    signed_percent,
)
from calibration.judge.strip import NIGHTS
from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.judge.words import amount, within
from calibration.measurements import row_of
from calibration.report.blocks import Spark
from calibration.report.environment import blocks_of
from calibration.report.html import to_html
from calibration.report.lab import COLUMNS, Column, Lab, Links, column_of, sut_anchor
from calibration.report.pictures import keep
from calibration.report.spark import spark
from calibration.results.history import NightRun

MAX_DAYS: Final = 365
"""Days shown, up to tonight."""

SPARK_NIGHTS: Final = 60
"""Nights in a sparkline."""

MAX_CHARTS: Final = 4
"""Failing metrics with charts on a testbed's page."""

MAX_PANELS: Final = 4
"""SUTs in a chart, failing ones first."""

MAX_REASONS: Final = 3
"""Reasons shown for an incomplete run."""

MAX_LISTED: Final = 40
"""Newest context changes, and missing nights, that are listed."""

MAX_FAMILY: Final = 8
"""More metrics than this that differ only in a number share one line, from the best to the worst."""

CSV_COLUMNS: Final = ("testbed", "sut", "metric", "unit", "night", "value", "low", "high")


class TrendGroup(NamedTuple):
    """The metrics of one line: a single one, or a family that differs only in a number."""

    column: Column
    title: str
    metrics: tuple[str, ...]


class TrendRow(NamedTuple):
    """One metric of one SUT: its sparkline, between which values it runs, and its text."""

    title: str
    tonight: str
    accepted: str
    change: str
    fails: bool
    verdict: str
    line: Spark | None


class Section(NamedTuple):
    """One SUT on the page of a family of metrics."""

    sut: str
    anchor: str
    fails: bool
    rows: tuple[TrendRow, ...]


class Changed(NamedTuple):
    """Context changes of some SUTs on one night, with the number that marks it in charts."""

    number: int
    night: date
    suts: tuple[str, ...]
    changes: tuple[ContextChange, ...]


class Gap(NamedTuple):
    """Consecutive nights without a complete run of a SUT, and the reason."""

    sut: str
    first: date
    last: date
    nights: int
    reason: str


def render_testbed(
    nights: JudgedNights, testbed: str, found: Sequence[Answer], link: Links
) -> tuple[dict[str, tuple[str, str, str]], dict[str, bytes]]:
    """Return the pages of *testbed* by path (title, body, and list of sections), and its other files.

    *found* are its SUTs tonight; *link* returns the path of a SUT's page, relative to the testbed's folder.
    """
    return _Testbed(nights, testbed, found, link).files()


@dataclass(frozen=True)
class _Testbed:
    """One testbed, while its pages are made."""

    nights: JudgedNights
    testbed: str
    found: Sequence[Answer]
    link: Links

    @cached_property
    def start(self) -> int:
        """The first column shown."""
        oldest = self.nights.night - timedelta(days=MAX_DAYS - 1)
        return next(column for column, night in enumerate(self.nights.history.nights) if night >= oldest)

    @cached_property
    def suts(self) -> tuple[str, ...]:
        """The SUTs shown: those measured in the nights shown."""
        first = self.nights.history.nights[self.start]
        runs = self.nights.history.runs
        return tuple(
            sut for testbed, sut in sorted(runs) if testbed == self.testbed and max(runs[testbed, sut]) >= first
        )

    @cached_property
    def wrong(self) -> list[StatusFinding]:
        """Tonight's failures, worst first."""
        return [finding for finding in findings(self.nights) if finding.testbed == self.testbed]

    @cached_property
    def groups(self) -> list[TrendGroup]:
        """All metrics in page order, large groups of one row combined: local and remote cells never are."""
        metrics = dict.fromkeys(
            series.metric
            for series in self.nights.history.series
            if series.testbed == self.testbed and series.sut in self.suts
        )
        alike = grouped(
            ((row_of(metric).name, re.sub(r"\d+", "#", metric)), metric) for metric in sorted(metrics, key=natural)
        )
        groups: list[TrendGroup] = []
        for members in alike.values():
            titles = [self.nights.title(member) for member in members]
            if len(members) > MAX_FAMILY:
                title = f"{_family_title(titles)} ({len(members)} metrics)"
                groups.append(TrendGroup(column_of(members[0]), title, tuple(members)))
            else:
                groups += [
                    TrendGroup(column_of(member), title, (member,))
                    for member, title in zip(members, titles, strict=True)
                ]
        return groups

    @cached_property
    def changed(self) -> list[Changed]:
        """Context changes in the nights shown, oldest first."""
        first = self.nights.history.nights[self.start]
        alike: dict[tuple[ContextChange, ...], list[str]] = {}
        for sut in self.suts:
            for changes in _changes_of(self.nights.history.runs[self.testbed, sut].values()):
                if changes[0].night >= first:
                    alike.setdefault(changes, []).append(sut)
        ordered = sorted(alike.items(), key=lambda item: (item[0][0].night, item[1]))
        return [
            Changed(n, changes[0].night, tuple(suts), changes) for n, (changes, suts) in enumerate(ordered, start=1)
        ]

    @cached_property
    def marks(self) -> Mapping[str, tuple[tuple[int, int], ...]]:
        """Marks of context changes by SUT: column and number."""
        columns = {night: column for column, night in enumerate(self.nights.history.nights[self.start :])}
        return {
            sut: tuple((columns[run.night], run.number) for run in self.changed if sut in run.suts) for sut in self.suts
        }

    # Pages

    def files(self) -> tuple[dict[str, tuple[str, str, str]], dict[str, bytes]]:
        """Return all pages and files."""
        charts = [drawn for metric in self.worst() if (drawn := self.chart(metric)) is not None]
        pictures: dict[str, str] = {}
        for chart in charts:
            keep(pictures, chart)
        pages, kinds = {}, []
        for column in COLUMNS:
            if sections := list(self.sections(column)):
                names = {"testbed": self.testbed, "column": column, "sections": sections}
                page = to_html(blocks_of("site/trend_kind", **names, nights=SPARK_NIGHTS), {}, "")
                title = f"{column.title} over the nights, {self.testbed}"
                pages[column.page] = (title, page.body, page.contents)
                kinds.append(
                    (column, sum(len(section.rows) for section in sections), sum(section.fails for section in sections))
                )
        index = blocks_of(
            "site/testbed",
            testbed=self.testbed,
            lab=Lab(self.nights, self.found, self.link, {self.testbed: ""}),
            nights=self.nights,
            strip_nights=NIGHTS,
            first=self.nights.history.nights[self.start],
            kinds=kinds,
            drawn=charts,
            waived=[
                verdict
                for verdict in self.nights.verdicts
                if verdict.testbed == self.testbed and verdict.waiver is not None
            ],
            changed=list(reversed(self.changed))[:MAX_LISTED],
            more_changed=max(0, len(self.changed) - MAX_LISTED),
            gaps=self.gaps[:MAX_LISTED],
            more_gaps=max(0, len(self.gaps) - MAX_LISTED),
        )
        pages["index.html"] = (self.testbed, to_html(index, pictures, "").body, "")
        svg = {path: text.encode() for path, text in pictures.items() if path.endswith(".svg")}
        return pages, {"figures.csv.gz": self.data()} | svg

    def sections(self, column: Column) -> Iterator[Section]:
        """Yield the SUTs with metrics of *column*, failing ones first."""
        found = []
        for sut in self.suts:
            rows = [
                self.row(sut, members, group.title)
                for group in self.groups
                if group.column == column and (members := self.members(sut, group.metrics))
            ]
            if rows:
                rows.sort(key=lambda row: not row.fails)
                found.append(Section(sut, sut_anchor(sut), rows[0].fails, tuple(rows)))
        yield from sorted(found, key=lambda item: not item.fails)

    def worst(self) -> list[str]:
        """Return the metrics charted for tonight's failures, one per finding."""
        drawable = (
            next((metric for metric in run.metrics if (self.testbed, run.sut, metric) in self.nights.rows), None)
            for run in self.wrong
        )
        return [metric for metric in dict.fromkeys(drawable) if metric is not None][:MAX_CHARTS]

    # Charts and rows

    def chart(self, metric: str) -> Chart | None:
        """Return the chart of *metric*: failing SUTs, and one that does not."""
        history, title = self.nights.history, self.nights.title(metric)
        rows = {sut: row for sut in self.suts for row in self.members(sut, [metric])}
        values = np.abs(history.values[list(rows.values()), self.start :])
        sizes = [np.median(value[np.isfinite(value)]) for value in values if np.isfinite(value).any()]
        scale, unit = _unit(history.series[next(iter(rows.values()))].unit, max(sizes, default=0.0))
        panels = [self.panel(sut, row, scale, unit) for sut, row in rows.items()]
        panels.sort(key=lambda panel: not panel.failing)
        panels = panels[: min(MAX_PANELS, 1 + sum(panel.failing for panel in panels))]
        return trend(history.nights[self.start :], panels, unit, name=metric, title=title)

    def members(self, sut: str, metrics: Iterable[str]) -> list[int]:
        """Return the rows of *sut*'s series of *metrics*."""
        rows = self.nights.rows
        return [rows[key] for metric in metrics if (key := (self.testbed, sut, metric)) in rows]

    def panel(self, sut: str, row: int, scale: float, unit: str) -> Panel:
        """Return the panel of one metric of a SUT, in *unit*."""
        history, analysis = self.nights.history, self.nights.analyses[row]
        verdicts = self.nights.verdicts_of(row)
        low, high = _bound(verdicts) or (None, None)
        fails, verdict = self.verdict(sut, verdicts)
        value, flips = float(history.values[row, -1]), analysis.flips
        tonight = f"{units.significant(value * scale)} {unit}" if isfinite(value) else "no value tonight"
        values, lows, highs = (item[row, self.start :] * scale for item in (history.values, history.low, history.high))
        return Panel(
            label=sut,
            state=f"{tonight}, {verdict}",
            failing=fails,
            values=values,
            low=lows,
            high=highs,
            band=(low and low * scale, high and high * scale),
            levels=tuple(self.levels(analysis, history.values[row], scale)),
            changes=tuple(
                (change.night - self.start, ("" if change.kind == "level" else "spread ") + signed_percent(change.size))
                for change in analysis.changes
                if change.night >= self.start
            ),
            flips=flips and (max(0, flips.night - self.start), flips.lower * scale, flips.upper * scale),
            context=self.marks[sut],
        )

    def row(self, sut: str, rows: Sequence[int], title: str) -> TrendRow:
        """Return the row of a metric of a SUT, or of a family from best to worst, with the worst as sparkline."""
        history = self.nights.history
        first, values = history.series[rows[0]], history.values[rows, self.start :]
        verdicts = [item for row in rows for item in self.nights.verdicts_of(row)]
        failing = [verdict for verdict in verdicts if verdict.outcome == "fail"]
        fails, verdict = self.verdict(sut, verdicts)
        bound = _bound(verdicts) if len(rows) == 1 else None
        change = _newest(self.nights.analyses[rows[0]], history.nights) if len(rows) == 1 else ""
        worst = (np.fmax if first.better == "lower" else np.fmin).reduce(values)
        tonight = "no value"
        if isfinite(worst[-1]):
            tonight = amount(worst[-1], first.unit)
            if len(rows) > 1:
                name = self.nights.title(history.series[rows[values[:, -1].tolist().index(worst[-1])]].metric)
                ends = np.nanmin(values[:, -1]), np.nanmax(values[:, -1])
                tonight = f"{within(*ends, first.unit)}; the worst: {name}"
        if failing and len(rows) > 1:
            verdict = f"{len({figure.metric for figure in failing})} of {len(rows)} fail"
            change = describe(self.nights, min(failing, key=partial(failure_order, self.nights)))
        accepted = "" if bound is None else within(*bound, first.unit)
        line = spark(worst, first.unit, bound or (None, None), SPARK_NIGHTS, fails=fails)
        return TrendRow(title, tonight, accepted, change, fails, verdict, line)

    def verdict(self, sut: str, verdicts: Iterable[NightVerdict]) -> tuple[bool, str]:
        """Return whether a metric of *sut* fails tonight, and the text for it."""
        verdicts = list(verdicts)
        failing = [verdict for verdict in verdicts if verdict.outcome == "fail"]
        if failing:
            since = min((verdict.since for verdict in failing if verdict.since is not None), default=None)
            return True, "fails" + (f" since {since}" if since is not None else "")
        if any(verdict.waiver is not None for verdict in verdicts):
            return False, "waived"
        if self.nights.night not in self.nights.history.runs[self.testbed, sut]:
            return False, "not measured"
        limits = [verdict.outcome for verdict in verdicts if verdict.check == "limits"]
        return False, "as accepted" if limits and set(limits) <= {"pass", "noted"} else "no baseline"

    def levels(self, analysis: Analysis, values: NDArray[np.float64], scale: float) -> Iterator[tuple[int, int, float]]:
        """Yield the stretches of constant level shown."""
        known = np.flatnonzero(np.isfinite(values))
        changes = [change for change in analysis.changes if change.kind == "level"]
        if not len(known) or not np.isfinite(analysis.level):
            return
        edges = [int(known[0]), *(change.night for change in changes), int(known[-1]) + 1]
        levels = [change.before for change in changes] + [changes[-1].after if changes else analysis.level]
        for (first, end), level in zip(pairwise(edges), levels, strict=True):
            if end > max(first, self.start):
                yield max(first, self.start) - self.start, end - 1 - self.start, level * scale

    # Missing nights

    @cached_property
    def gaps(self) -> list[Gap]:
        """Nights without a complete run of a SUT, newest first."""
        found = []
        for sut in self.suts:
            first = min(self.nights.history.runs[self.testbed, sut])
            nights = (night for night in self.nights.history.nights[self.start :] if night >= first)
            for reason, those in groupby(nights, key=partial(self.why, sut)):
                if reason is not None:
                    without = list(those)
                    found.append(Gap(sut, without[0], without[-1], len(without), reason))
        return sorted(found, key=lambda run: (-run.last.toordinal(), run.sut))

    def why(self, sut: str, night: date) -> str | None:
        """Return why *sut* has no complete run of *night*; ``None`` if it has one."""
        run = self.nights.history.runs[self.testbed, sut].get(night)
        if run is None:
            file = self.unreadable.get((sut, night))
            return "no run began" if file is None else f"cannot read {file}"
        if run.status == "complete":
            return None
        reasons = "; ".join(run.reasons[:MAX_REASONS]) or "reason unknown"
        return f"the run is {run.status.replace('_', ' ')}: {reasons}"

    @cached_property
    def unreadable(self) -> Mapping[tuple[str, date | None], str]:
        """Unreadable files by SUT and night."""
        damaged = self.nights.history.unreadable
        return {(run.sut, run.night): run.file for run in damaged if run.testbed == self.testbed}

    # Data

    def data(self) -> bytes:
        """Return every metric that is drawn as compressed CSV, a line each, with five digits."""
        history = self.nights.history
        nights = np.array([night.isoformat() for night in history.nights[self.start :]])
        lines = [",".join(CSV_COLUMNS) + "\n"]
        for row, series in enumerate(history.series):
            if series.testbed != self.testbed:
                continue
            name = io.StringIO()
            csv.writer(name, lineterminator="").writerow(series[:4])
            line = name.getvalue().replace("%", "%%") + ",%s,%.5g,%.5g,%.5g\n"
            figures = (item[row, self.start :] for item in (history.values, history.low, history.high))
            lines += [line % item for item in zip(nights, *figures, strict=True) if item[1] == item[1]]
        return gzip.compress("".join(lines).replace(",nan", ",").encode(), compresslevel=4, mtime=0)


def _family_title(titles: Sequence[str]) -> str:
    """Return what *titles* have in common: a number that differs among them becomes an ellipsis."""
    parts = [re.split(r"(\d+)", title) for title in titles]
    if len({len(part) for part in parts}) > 1:
        return titles[0]
    return "".join(item[0] if len(set(item)) == 1 else "\N{HORIZONTAL ELLIPSIS}" for item in zip(*parts, strict=True))


def _changes_of(runs: Iterable[NightRun]) -> Iterator[tuple[ContextChange, ...]]:
    """Yield what each of a SUT's *runs* has otherwise than the one before; those that know no facts are passed over."""
    before = None
    for run in sorted(runs, key=lambda run: run.night):
        if not run.facts:
            continue
        changes = () if before is None else context_changes(before, run)
        if changes:
            yield changes
        before = run


def _unit(unit: str, size: float) -> tuple[float, str]:
    """Return the factor and the unit in which metrics of about *size* are drawn."""
    if unit == "fraction":
        return 100.0, "%"
    if unit == "Hz":
        return 1e-9, "GHz"
    if unit == "MB/s" and size >= 1000:
        return 1e-3, "GB/s"
    if unit == "ns" and size >= units.LONG_NS:
        scale, shown = units.fitting(size, units.TIMES)
        return 1 / scale, shown
    return 1.0, unit


def _bound(verdicts: Iterable[NightVerdict]) -> tuple[float | None, float | None] | None:
    """Return the accepted range of a metric; ``None`` if unknown."""
    return next(
        (verdict.bound for verdict in verdicts if verdict.check == "limits" and verdict.bound != (None, None)), None
    )


def _newest(analysis: Analysis, nights: Sequence[date]) -> str:
    """Return the newest change, or the two levels between which it flips, in words."""
    if analysis.flips is not None:
        return f"flips since {nights[analysis.flips.night]}, {units.percent(analysis.flips.upper_share)} at the upper"
    if not analysis.changes:
        return ""
    newest, excursion = analysis.changes[-1], analysis.excursion
    if excursion is not None and newest is excursion.last:
        return f"{nights[newest.night]}: back after {excursion.text}"
    return f"{nights[newest.night]}: {'' if newest.kind == 'level' else 'spread '}{change_text(newest)}"
