# SPDX-License-Identifier: Apache-2.0
"""Parts of a page that templates call: each returns blocks, or text in a style."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from calibration.base.model import format_time
from calibration.base.text import visible
from calibration.base.trust import Trust
from calibration.base.units import ABSENT, duration
from calibration.charts.base import Chart
from calibration.measurements.evidence import Missing
from calibration.report.blocks import (
    Block,
    Box,
    Bullets,
    Charts,
    Comment,
    Dots,
    Heading,
    Inline,
    Link,
    Paragraph,
    Place,
    Span,
    Style,
    Table,
    Target,
    Text,
    Verbatim,
    beginning,
)
from calibration.report.composing import BREAK, Fragment, cells, compose
from calibration.report.filters import alike, command
from calibration.report.headlines import HeadlineRow, Peers
from calibration.results.model import Measurement, NotMeasured

MAX_LINE: Final = 8_000
"""Longer lines of a verbatim text are cut on a page; the run document has all of them."""

CAUSES: Final = {"failed": "failed", "not_planned": "not planned", "interrupted": "the run ended before it"}
"""Why something was not measured, in words."""


def heading(text: object, level: int = 1, anchor: str = "") -> Heading:
    """Return a title: of the page, of a section or of a part of it."""
    return Heading(str(text), level, anchor)


def styled(text: object, style: Style) -> Span:
    """Return *text* in a style."""
    return Span(str(text), style)


def moved(text: object, how: str) -> Inline:
    """Return *text* in the style of a metric that moved for the worse or for the better."""
    return Span(str(text), "invalid" if how == "worse" else "on_target") if how in {"worse", "better"} else str(text)


def link(text: object, target: str) -> Link:
    """Return *text* that leads to a URL or to ``#anchor`` on the page."""
    return Link(str(text), target)


def paragraph(text: object, kind: str) -> Paragraph:
    """Return a paragraph of one *text*, with a class."""
    return Paragraph((str(text),), kind)


def place(name: Literal["links", "method"], kind: str = "") -> Place:
    """Return a place that the site fills."""
    return Place(name, kind)


def target(name: str) -> Target:
    """Return what ``#name`` leads to."""
    return Target(name)


def fold(title: object, kind: str = "fold", *, caller: Any) -> Box:
    """Return a part that is folded on the site."""
    return Box(str(title), compose(caller()) or (Paragraph(("Nothing.",)),), kind)


def box(title: object, kind: str, *, caller: Any) -> Box:
    """Return a box."""
    return Box(str(title), compose(caller()), kind)


def comment(*lines: str) -> Comment:
    """Return a comment in the source of the page."""
    return Comment(lines)


def warning(*, caller: Any) -> Box:
    """Return a warning."""
    return Box("", compose(caller()), "warning")


def trust(level: Trust, word: str) -> Span:
    """Return the word for a trust."""
    return Span(word, level)


def valued(text: object, level: Trust) -> Inline:
    """Return a value, struck out if it is invalid."""
    return Span(str(text), "struck") if level == "invalid" else str(text)


def struck(measurement: Measurement, text: object) -> Inline:
    """Return *text*, struck out if its measurement is invalid; the mark for a missing value is not."""
    shown = str(text).strip()
    return shown if measurement.validity.valid or shown == ABSENT else Span(shown, "struck")


def charts(found: Iterable[Chart]) -> Charts | None:
    """Return charts side by side."""
    drawn = tuple(found)
    return Charts(drawn) if drawn else None


def verbatim(text: object = "", *, struck: bool = False, caller: Any = None) -> Verbatim:
    """Return *text*, or what the caller writes, with its spaces and lines; trailing ones are removed."""
    lines = [visible(line.rstrip()).rstrip() for line in str(text if caller is None else caller()).split("\n")]
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return Verbatim("\n".join(beginning(line, MAX_LINE) for line in lines), struck)


def block(measurement: Measurement, *, caller: Any) -> Verbatim:
    """Return what the caller writes as a verbatim text, struck out if its measurement is invalid."""
    return verbatim(caller=caller, struck=not measurement.validity.valid)


def output(line: str, text: str | None, absent: str) -> Block:
    """Return the output of a command on the SUT; *absent* if unknown."""
    return Paragraph((absent,)) if text is None else verbatim(f"$ {line}\n{text}")


def bullets(title: str, items: Iterable[str | Missing | NotMeasured]) -> Fragment:
    """Return a titled list of sentences, or of missing values with reasons; nothing without any."""
    texts = tuple((item if isinstance(item, str) else _missing(item),) for item in items)
    return Fragment((Paragraph((title,)), Bullets(texts)) if texts else ())


def _missing(item: Missing | NotMeasured) -> str:
    cause = f" ({CAUSES[item.cause]})" if isinstance(item, NotMeasured) else ""
    return f"{item.what}{cause}: {item.reason}"


def tabulate(items: Iterable[Any], kind: str = "", intro: str = "", otherwise: str = "", *, caller: Any) -> Fragment:
    """Return a table: the caller writes the rows of each item as lines of ``title | cell``, with a blank line between.

    Without rows the text *otherwise*, else preceded by *intro*.
    """
    written: list[Any] = []
    for item in items:
        written += caller(*item) if len(caller.arguments) > 1 else caller(item)
        written.append(BREAK)
    rows = cells(written)
    if not rows:
        return Fragment((Paragraph((otherwise,)),) if otherwise else ())
    table = Table(tuple(rows[0]), tuple(map(tuple, rows[1:])), kind)
    return Fragment((Paragraph((intro,)), table) if intro else (table,))


def facts(rows: Sequence[Any], absent: str) -> Table:
    """Return a table of names and values."""
    return Table((), tuple(((row.name,), (absent if row.value is None else row.value,)) for row in rows), "facts")


def metric_rows(rows: Sequence[Any]) -> Table | None:
    """Return metrics with half-width and trust; nothing without any."""
    titles = ("Metric",), ("Value",), ("±",), ("Trust",)
    found = tuple(
        (
            (row.title,),
            (valued(row.value, row.trust),),
            (row.plus_minus or ABSENT,),
            (trust(row.trust, row.word), *((" ", Span("outside its limits", "invalid")) if row.outside else ())),
        )
        for row in rows
    )
    return Table(titles, found, "rows metrics") if found else None


def headline_table(rows: Sequence[HeadlineRow]) -> Table | None:
    """Return the headline table; nothing without any row. Columns that no row fills are left out."""
    titles = ("Metric", "This run", "Goal", "Accepted", "Peers", "Of peak")
    cells: list[tuple[Text, ...]] = [
        (
            (
                Link(row.title, f"method/{row.kind}"),
                *((" ", Span(aside, "aside")) if (aside := "; ".join(filter(None, (row.note, row.checks)))) else ()),
            ),
            (valued(row.value, row.trust), f" {row.plus_minus}") if row.plus_minus else (valued(row.value, row.trust),),
            (Span(row.goal, row.trust),) if row.goal else (),
            (Span(row.accepted, "invalid") if row.outside else row.accepted,) if row.accepted else (),
            () if row.peers is None else (_dots(row.peers),),
            (row.peak,) if row.peak else (),
        )
        for row in rows
    ]
    used = [place for place in range(len(titles)) if any(row[place] for row in cells)]
    found = tuple(tuple(row[place] for place in used) for row in cells)
    anchors = tuple(row.anchor for row in rows)
    return Table(tuple((titles[place],) for place in used), found, "headlines", anchors) if rows else None


def _dots(peers: Peers) -> Dots:
    return Dots(peers.words, peers.values, peers.own, peers.accepted)


def printed(measurement: Measurement, *, caller: Any) -> Fragment:
    """Return a measurement as on the published pages: what ran and when, flags, the command, the caller's values.

    Missing values follow.
    """
    when, took = format_time(measurement.started_at), duration(measurement.duration_s)
    who = f"{measurement.title}: measured by {measurement.instrument}, started {when}, took {took}."
    found: list[Block] = [Paragraph((who,))]
    wrong = [flag for flag in measurement.validity.flags if flag.severity == "invalid"]
    if not measurement.validity.valid:
        why: list[Inline] = [Span("INVALID, struck out:", "strong")]
        for number, flag in enumerate(wrong, 1):
            why += [" ", Span(flag.code, "invalid"), f" {flag.reason}{'.' if number == len(wrong) else ';'}"]
        found.append(Paragraph(tuple(why)))
    found.append(verbatim(f"{command(measurement.argv)}\n{caller()}", struck=not measurement.validity.valid))
    return Fragment((*found, *bullets('Not measured (shown as "-"):', alike(measurement.missing))))
