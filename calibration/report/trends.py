# SPDX-License-Identifier: Apache-2.0
"""Pages of a testbed: what is wrong tonight, and each figure of each SUT over the nights, a line for each.

A testbed has a page with its map, with charts of what is wrong, what changed in the context and which nights are
missing, and a page for each family of figures. Charts are few, however large the testbed; what is drawn can be
downloaded as data.
"""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from html import escape
from math import isfinite
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.judge.causes import context_changes
from calibration.judge.drift import Analysis, Change
from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.report import filters
from calibration.report.charts.trends import Panel, trend
from calibration.report.environment import html_page
from calibration.report.lab import COLUMNS, NAMES, Column, Lab, column_of
from calibration.report.markup import chart_html
from calibration.report.spark import Spark, spark
from calibration.report.tonight import Finding, Nights, Standing, describe, findings, signed, sized
from calibration.results.history import NightRun

SHOWN: Final = 365
"""So many days up to tonight are drawn; data grow no further."""

LINE: Final = 60
"""So many nights has the line of a figure."""

CHARTS: Final = 4
"""So many figures of what is wrong tonight have charts on a testbed's page."""

PANELS: Final = 4
"""So many SUTs has a chart, those that fail first."""

EACH: Final = 3
"""So many reasons are told of a run that is not complete."""

LISTED: Final = 40
"""So many of the newest changes of context and missing nights have their rows."""

FAMILY: Final = 8
"""Of more figures than these that differ only in a number there is one line: from the best to the worst."""

CSV_COLUMNS: Final = ("testbed", "sut", "metric", "unit", "night", "value", "low", "high")


class Group(NamedTuple):
    """The metrics of one line: one, or all of a family that differ only in a number."""

    column: Column
    name: str
    title: str
    metrics: tuple[str, ...]


class Row(NamedTuple):
    """One figure of one SUT: its line, and what is said of it."""

    title: str
    tonight: str
    accepted: str
    change: str
    fails: bool
    verdict: str
    line: Spark | None


class Section(NamedTuple):
    """One SUT on the page of a family of figures."""

    sut: str
    anchor: str
    fails: bool
    rows: tuple[Row, ...]


class Changed(NamedTuple):
    """What changed in the context of some SUTs in one night, by the number that charts mark it with."""

    number: int
    night: date
    suts: tuple[str, ...]
    changes: tuple[ContextChange, ...]


class Gap(NamedTuple):
    """Nights on end on which a SUT has no complete run, and why."""

    sut: str
    first: date
    last: date
    nights: int
    reason: str


Links = Callable[[str, str], str | None]
"""Returns the folder of a SUT's page, by testbed and name; ``None`` where it has none."""


def render_testbed(
    nights: Nights, testbed: str, found: Sequence[Standing], link: Links
) -> tuple[dict[str, tuple[str, str, str]], dict[str, bytes]]:
    """Return the pages of *testbed*, by their paths (title, body, and list of sections), and their other files.

    *found* are its SUTs as they stand tonight; *link* tells where, from the testbed's folder, a SUT's page is.
    """
    return _Testbed(nights, testbed, found, link).files()


@dataclass(frozen=True)
class _Testbed:
    """One testbed while its pages are made."""

    nights: Nights
    testbed: str
    found: Sequence[Standing]
    link: Links

    @cached_property
    def start(self) -> int:
        """The first column that is drawn."""
        oldest = self.nights.night - timedelta(days=SHOWN - 1)
        return next(column for column, night in enumerate(self.nights.history.nights) if night >= oldest)

    @cached_property
    def suts(self) -> tuple[str, ...]:
        """The SUTs that are drawn: those that were measured in the nights that are shown."""
        first = self.nights.history.nights[self.start]
        runs = self.nights.history.runs
        return tuple(
            sut for testbed, sut in sorted(runs) if testbed == self.testbed and max(runs[testbed, sut]) >= first
        )

    @cached_property
    def wrong(self) -> list[Finding]:
        """What is wrong tonight, the worst first."""
        return [each for each in findings(self.nights) if each.testbed == self.testbed]

    @cached_property
    def groups(self) -> list[Group]:
        """All figures in the order of the page of a run, families of many as one."""
        metrics = dict.fromkeys(
            each.metric for each in self.nights.history.series if each.testbed == self.testbed and each.sut in self.suts
        )
        known = {name: place for place, name in enumerate(self.nights.titles)}
        families: dict[str, list[str]] = {}
        for metric in sorted(metrics, key=lambda each: (known.get(each, len(known)), each)):
            families.setdefault(re.sub(r"\d+", "#", metric), []).append(metric)
        grouped: list[Group] = []
        for name, members in families.items():
            if len(members) > FAMILY:
                title = _family_title([self.nights.title(each) for each in members])
                title = f"{title} ({len(members)} figures)"
                grouped.append(Group(column_of(members[0]), name, title, tuple(members)))
            else:
                grouped += [self.single(each) for each in members]
        return grouped

    def single(self, metric: str) -> Group:
        """Return the group of one metric alone."""
        return Group(column_of(metric), metric, self.nights.title(metric), (metric,))

    @cached_property
    def changed(self) -> list[Changed]:
        """What changed in the context in the nights that are shown, the oldest first."""
        first = self.nights.history.nights[self.start]
        alike: dict[tuple[date, tuple[tuple[str, str | None, str | None], ...]], list[str]] = {}
        kept: dict[tuple[date, tuple[tuple[str, str | None, str | None], ...]], tuple[ContextChange, ...]] = {}
        for sut in self.suts:
            for changes in _changes_of(self.nights.history.runs[self.testbed, sut].values()):
                if changes[0].night >= first:
                    key = changes[0].night, tuple((each.fact, each.before, each.after) for each in changes)
                    alike.setdefault(key, []).append(sut)
                    kept[key] = changes
        ordered = sorted(alike, key=lambda key: (key[0], alike[key]))
        return [Changed(n, key[0], tuple(alike[key]), kept[key]) for n, key in enumerate(ordered, start=1)]

    @cached_property
    def marks(self) -> Mapping[str, tuple[tuple[int, int], ...]]:
        """The marks of what changed in the context by SUT: column that is drawn, and number."""
        columns = {night: column for column, night in enumerate(self.nights.history.nights[self.start :])}
        return {
            sut: tuple((columns[each.night], each.number) for each in self.changed if sut in each.suts)
            for sut in self.suts
        }

    # Pages

    def files(self) -> tuple[dict[str, tuple[str, str, str]], dict[str, bytes]]:
        """Return all pages and files."""
        files = {"figures.csv.gz": self.data(), "tonight.json": self.said()}
        charts = [drawn for metric in self.worst() if (drawn := self.chart(files, metric)) is not None]
        pages, kinds = {}, []
        for column in COLUMNS:
            sections = list(self.sections(column))
            if sections:
                body = html_page("trend_kind", testbed=self.testbed, column=column, sections=sections, nights=LINE)
                title = f"{column.title} over the nights, {self.testbed}"
                pages[f"{column.code.lower()}.html"] = (title, body, _contents(sections))
                kinds.append((column, sum(len(each.rows) for each in sections), sum(each.fails for each in sections)))
        body = html_page(
            "testbed",
            testbed=self.testbed,
            lab=Lab(self.nights, self.found),
            link=self.link,
            trends={self.testbed: ""},
            nights=self.nights,
            first=self.nights.history.nights[self.start],
            kinds=kinds,
            charts=charts,
            waived=[each for each in self.nights.verdicts if each.testbed == self.testbed and each.waiver is not None],
            changed=list(reversed(self.changed))[:LISTED],
            more_changed=max(0, len(self.changed) - LISTED),
            gaps=self.gaps[:LISTED],
            more_gaps=max(0, len(self.gaps) - LISTED),
            **NAMES,
        )
        pages["index.html"] = (self.testbed, body, "")
        return pages, files

    def sections(self, column: Column) -> Iterator[Section]:
        """Yield the SUTs that have figures of *column*, those that fail first."""
        found = []
        for sut in self.suts:
            rows = []
            for group in self.groups:
                members = self.members(sut, group) if group.column == column else []
                if members:
                    scale, _ = self.unit(members)
                    panel, row = (self.one if len(group.metrics) == 1 else self.many)(sut, members, scale, group.title)
                    rows.append(row._replace(line=spark(panel, LINE)))
            if rows:
                rows.sort(key=lambda each: not each.fails)
                found.append(Section(sut, f"sut-{filters.slug(sut)}", any(each.fails for each in rows), tuple(rows)))
        yield from sorted(found, key=lambda each: not each.fails)

    def worst(self) -> list[str]:
        """Return the metrics whose charts show what is wrong tonight, one of each finding."""
        drawable = (
            next((metric for metric in each.metrics if (self.testbed, each.sut, metric) in self.nights.rows), None)
            for each in self.wrong
        )
        return [metric for metric in dict.fromkeys(drawable) if metric is not None][:CHARTS]

    # Figures

    def chart(self, files: dict[str, bytes], metric: str) -> str | None:
        """Return the figure of *metric*, its pictures among *files*, with the SUTs that fail first."""
        group = self.single(metric)
        members = {sut: rows for sut in self.suts if (rows := self.members(sut, group))}
        scale, unit = self.unit([row for rows in members.values() for row in rows])
        drawn = [self.one(sut, rows, scale, group.title) for sut, rows in members.items()]
        drawn.sort(key=lambda pair: not pair[0].failing)
        said = "; ".join(f"{panel.label}: {row.verdict}" for panel, row in drawn if row.fails)
        columns = self.nights.history.nights[self.start :]
        alt = f"{group.title} on {len(columns)} nights from {columns[0]} to {columns[-1]}. {said}."
        found = trend(columns, [panel for panel, _ in drawn[:PANELS]], unit, name=metric, alt=alt)
        return None if found is None else chart_html(found, group.title, files)

    def unit(self, rows: Sequence[int]) -> tuple[float, str]:
        """Return the factor and the unit in which the series *rows* are drawn."""
        return _unit(self.nights.history.series[rows[0]].unit, max(map(self.largest, rows), default=0.0))

    def members(self, sut: str, group: Group) -> list[int]:
        """Return the series of *group* that *sut* has in the nights that are shown."""
        rows = self.nights.rows
        return [rows[key] for metric in group.metrics if (key := (self.testbed, sut, metric)) in rows]

    def largest(self, row: int) -> float:
        """Return the median of the sizes of a series' figures, by which its unit is chosen."""
        known = self.nights.history.values[row, self.start :]
        known = known[np.isfinite(known)]
        return float(np.median(np.abs(known))) if len(known) else 0.0

    def one(self, sut: str, rows: Sequence[int], scale: float, title: str) -> tuple[Panel, Row]:
        """Return panel and row of one figure of a SUT."""
        (row,) = rows
        history, analysis = self.nights.history, self.nights.analyses[row]
        series = history.series[row]
        verdicts = self.nights.of_metric.get((self.testbed, sut, series.metric), ())
        bound = next((each.bound for each in verdicts if each.check == "limits"), None)
        fails, said = self.verdict(sut, verdicts)
        value = float(history.values[row, -1])
        known = bool(np.isfinite(value))
        tonight = filters.measured(value, series.unit) if known else "no figure"
        columns = slice(self.start, None)
        flips = analysis.flips
        panel = Panel(
            label=sut,
            state=f"{tonight if known else 'no figure tonight'}, {said}",
            failing=fails,
            values=history.values[row, columns] * scale,
            low=history.low[row, columns] * scale,
            high=history.high[row, columns] * scale,
            band=(None, None) if bound is None else (_times(bound[0], scale), _times(bound[1], scale)),
            levels=tuple(self.levels(analysis, history.values[row], scale)),
            changes=tuple(
                (each.night - self.start, _label(each)) for each in analysis.changes if each.night >= self.start
            ),
            flips=None
            if flips is None
            else (max(0, flips.night - self.start), flips.lower * scale, flips.upper * scale),
            context=self.marks[sut],
        )
        return panel, Row(
            title=title,
            tonight=tonight,
            accepted=_bounds(bound, series.unit),
            change=_newest(analysis, history.nights),
            fails=fails,
            verdict=said,
            line=None,
        )

    def many(self, sut: str, rows: Sequence[int], scale: float, title: str) -> tuple[Panel, Row]:
        """Return panel and row of a family of figures of a SUT: from its best to its worst, and the worst as a line."""
        history = self.nights.history
        values = history.values[rows, self.start :]
        lower = history.series[rows[0]].better == "lower"
        some: NDArray[np.bool_] = np.any(np.isfinite(values), axis=0)
        low, high = np.full(len(some), np.nan), np.full(len(some), np.nan)
        low[some], high[some] = np.nanmin(values[:, some], axis=0), np.nanmax(values[:, some], axis=0)
        unit = history.series[rows[0]].unit
        metrics = {history.series[row].metric for row in rows}
        failing = [
            each for finding in self.wrong if finding.sut == sut for each in finding.verdicts if each.metric in metrics
        ]
        tonight = "no figure"
        if some[-1]:
            worst = rows[int((np.nanargmax if lower else np.nanargmin)(values[:, -1]))]
            name = self.nights.title(history.series[worst].metric)
            ends = filters.measured_interval((float(low[-1]), float(high[-1])), unit)
            tonight = f"{ends}; the worst: {name}"
        verdicts = [each for each in self.nights.of_sut.get((self.testbed, sut), ()) if each.metric in metrics]
        said = self.verdict(sut, verdicts)[1]
        if failing:
            said = f"{len({each.metric for each in failing})} of {len(rows)} fail"
        found = [each for each in map(self.nights.change, failing) if each is not None and each.night >= self.start]
        nights = {each.night: each for each in reversed(found)}
        panel = Panel(
            label=sut,
            state=said,
            failing=bool(failing),
            values=(high if lower else low) * scale,
            low=low * scale,
            high=high * scale,
            changes=tuple((night - self.start, _label(change)) for night, change in sorted(nights.items())),
            context=self.marks[sut],
        )
        change = describe(self.nights, failing[0]) if failing else ""
        return panel, Row(
            title=title, tonight=tonight, accepted="", change=change, fails=bool(failing), verdict=said, line=None
        )

    def verdict(self, sut: str, verdicts: Iterable[NightVerdict]) -> tuple[bool, str]:
        """Return whether a figure of *sut* fails tonight, and what is said of it."""
        verdicts = list(verdicts)
        failing = [each for each in verdicts if each.outcome == "fail"]
        if failing:
            since = min((each.since for each in failing if each.since is not None), default=None)
            return True, "fails" + (f" since {since}" if since is not None else "")
        if any(each.waiver is not None for each in verdicts):
            return False, "waived"
        if self.nights.night not in self.nights.history.runs[self.testbed, sut]:
            return False, "not measured"
        limits = [each.outcome for each in verdicts if each.check == "limits"]
        return False, "as accepted" if limits and set(limits) <= {"pass", "noted"} else "no reference"

    def levels(self, analysis: Analysis, values: NDArray[np.float64], scale: float) -> Iterator[tuple[int, int, float]]:
        """Yield the stretches of one level that are drawn."""
        known = np.flatnonzero(np.isfinite(values))
        changes = [each for each in analysis.changes if each.kind == "level"]
        if not len(known) or not np.isfinite(analysis.level):
            return
        firsts = [int(known[0]), *(each.night for each in changes)]
        lasts = [*(each.night - 1 for each in changes), int(known[-1])]
        levels = [each.before for each in changes] + [changes[-1].after if changes else analysis.level]
        for first, last, level in zip(firsts, lasts, levels, strict=True):
            if last >= max(first, self.start):
                yield max(first, self.start) - self.start, last - self.start, level * scale

    # Nights that are missing

    @cached_property
    def gaps(self) -> list[Gap]:
        """The nights that are shown on which a SUT has no complete run, the newest first."""
        columns = self.nights.history.nights[self.start :]
        unreadable = {
            (each.sut, each.night): each.file for each in self.nights.history.unreadable if each.testbed == self.testbed
        }
        found: list[Gap] = []
        for sut in self.suts:
            runs = self.nights.history.runs[self.testbed, sut]
            last = None
            for night in columns:
                if night < min(runs):
                    continue
                run, file = runs.get(night), unreadable.get((sut, night))
                reason = f"cannot read {file}" if run is None and file is not None else _why(run)
                if reason is None:
                    last = None
                elif last is not None and last.reason == reason:
                    last = last._replace(last=night, nights=last.nights + 1)
                    found[-1] = last
                else:
                    last = Gap(sut, night, night, 1, reason)
                    found.append(last)
        return sorted(found, key=lambda each: (-each.last.toordinal(), each.sut))

    # Data

    def data(self) -> bytes:
        """Return every figure that is drawn as compressed CSV, a line each, with five digits."""
        history = self.nights.history
        nights = np.array([night.isoformat() for night in history.nights[self.start :]])
        lines = [",".join(CSV_COLUMNS) + "\n"]
        for row, series in enumerate(history.series):
            if series.testbed != self.testbed:
                continue
            name = io.StringIO()
            csv.writer(name, lineterminator="").writerow(series[:4])
            line = name.getvalue().replace("%", "%%") + ",%s,%.5g,%.5g,%.5g\n"
            figures = (each[row, self.start :] for each in (history.values, history.low, history.high))
            lines += [line % each for each in zip(nights, *figures, strict=True) if each[1] == each[1]]
        return gzip.compress("".join(lines).replace(",nan", ",").encode(), compresslevel=4, mtime=0)

    def said(self) -> bytes:
        """Return tonight's verdicts, every change that was found, and what changed in the context, as JSON."""
        nights = self.nights
        rows = [row for row, series in enumerate(nights.history.series) if series.testbed == self.testbed]
        content = {
            "night": nights.night.isoformat(),
            "verdicts": [each.model_dump(mode="json") for each in nights.verdicts if each.testbed == self.testbed],
            "changes": [
                {
                    "sut": nights.history.series[row].sut,
                    "metric": nights.history.series[row].metric,
                    "night": nights.history.nights[each.night].isoformat(),
                    **{name: _known(value) for name, value in each._asdict().items() if name != "night"},
                }
                for row in rows
                for each in nights.analyses[row].changes
            ],
            "context_changes": [
                {"sut": sut, **each.model_dump(mode="json")}
                for sut in self.suts
                for changes in _changes_of(nights.history.runs[self.testbed, sut].values())
                for each in changes
            ],
        }
        return json.dumps(content).encode()


def _contents(sections: Iterable[Section]) -> str:
    """Return the list of links to *sections*."""
    rows = (f'<a class="reference internal" href="#{each.anchor}">{escape(each.sut)}</a>' for each in sections)
    return f"<ul><li>{'</li><li>'.join(rows)}</li></ul>"


def _family_title(titles: Sequence[str]) -> str:
    """Return what *titles* have in common: a number that differs among them becomes an ellipsis."""
    parts = [re.split(r"(\d+)", title) for title in titles]
    if len({len(each) for each in parts}) > 1:
        return titles[0]
    return "".join(each[0] if len(set(each)) == 1 else "\N{HORIZONTAL ELLIPSIS}" for each in zip(*parts, strict=True))


def _changes_of(runs: Iterable[NightRun]) -> Iterator[tuple[ContextChange, ...]]:
    """Yield what each of a SUT's *runs* has otherwise than the one before; those that know no facts are passed over."""
    before = None
    for run in sorted(runs, key=lambda each: each.night):
        if not run.facts:
            continue
        changes = () if before is None else context_changes(before, run)
        if changes:
            yield changes
        before = run


def _why(run: NightRun | None) -> str | None:
    """Return why a SUT has no complete run of a night; ``None`` where it has."""
    if run is None:
        return "no run of it began"
    if run.status == "complete":
        return None
    return f"the run is {run.status.replace('_', ' ')}: {'; '.join(run.reasons[:EACH]) or 'no reason is known'}"


def _unit(unit: str, size: float) -> tuple[float, str]:
    """Return the factor and the unit in which figures of about *size* are drawn."""
    if unit == "fraction":
        return 100.0, "%"
    if unit == "Hz":
        return 1e-9, "GHz"
    if unit == "MB/s" and size >= 1000:
        return 1e-3, "GB/s"
    for least, factor, shown in ((1e9, 1e-9, "s"), (1e6, 1e-6, "ms"), (filters.LONG_NS, 1e-3, "µs")):
        if unit == "ns" and size >= least:
            return factor, shown
    return 1.0, unit


def _known(value: object) -> object:
    """Return *value* as JSON has it: what is no number is none."""
    if isinstance(value, tuple):
        return value if all(map(isfinite, value)) else None
    return None if isinstance(value, float) and not isfinite(value) else value


def _times(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _bounds(bound: tuple[float | None, float | None] | None, unit: str) -> str:
    if bound is None or bound == (None, None):
        return ""
    low, high = bound
    if low is None:
        return f"at most {filters.measured(high, unit)}"
    return f"at least {filters.measured(low, unit)}" if high is None else filters.measured_interval((low, high), unit)


def _label(change: Change) -> str:
    return signed(change.size) if change.kind == "level" else f"spread {signed(change.size)}"


def _newest(analysis: Analysis, nights: Sequence[date]) -> str:
    """Return the newest change, or the two levels between which it flips, in words."""
    if analysis.flips is not None:
        return f"flips since {nights[analysis.flips.night]}, {filters.percent(analysis.flips.upper_share)} at the upper"
    if not analysis.changes:
        return ""
    newest = analysis.changes[-1]
    return f"{nights[newest.night]}: {'' if newest.kind == 'level' else 'spread '}{sized(newest)}"
