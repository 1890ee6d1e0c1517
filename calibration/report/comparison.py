# SPDX-License-Identifier: Apache-2.0
"""Comparisons as text: of two documents, and of all machines on the site."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import NamedTuple

from calibration.judge.comparison import Compared, Comparison, compare_figures
from calibration.judge.tolerances import ANY_OTHER, TOLERANCES
from calibration.measurements import registry
from calibration.model import Model
from calibration.report import filters
from calibration.report.environment import environment, tidy
from calibration.report.page import page_order
from calibration.results.model import Imported, RunDocument
from calibration.results.plain import Figured, figured

FAMILY = 8
"""Of more figures than these that differ only in a number, pages of machines tell; a comparison would have no end."""

WORDS = {
    "differs": "differs",
    "indicative": "differs indicatively",
    "identical": "identical",
    "same": "the same",
    "undecided": "undecided",
    "only_first": "not measured",
    "only_second": "not measured there",
}
"""What is said of a figure beside the baseline's."""


class Machine(Model):
    """What the comparison says of one machine: its name, where its page is, what it is, and its headline figures."""

    label: str
    folder: str
    processor: str | None
    source: str
    imported: bool
    measured_on: date | None
    figures: tuple[Figured, ...]


class Row(NamedTuple):
    """One figure of one machine beside the baseline's; the title stands in the baseline's own row only."""

    title: str
    link: str
    figure: Figured | None
    ratio: float | None
    judged: str


def machine_of(document: RunDocument, folder: str) -> Machine:
    """Return the machine of *document*, whose page lies in *folder*."""
    run = document.run
    models = () if document.context is None else document.context.parsed.processor.models
    imported = document.imported
    return Machine(
        label=f"{run.testbed} / {run.sut}",
        folder=folder,
        processor=", ".join(dict.fromkeys(each.name for each in models if each.name)) or None,
        source=f"run of {filters.time(run.started_at)}" if imported is None else _origin(imported),
        imported=imported is not None,
        measured_on=None if imported is None else imported.measured_on,
        figures=tuple(figured(document, public=True)),
    )


def _origin(imported: Imported) -> str:
    title = "" if imported.title is None else f" ({imported.title})"
    when = "at a time that nobody said" if imported.measured_on is None else f"on {imported.measured_on.isoformat()}"
    return f"imported from {imported.source}{title}, measured {when}"


class Told(NamedTuple):
    """Figures of one family with one outcome, in one line: ``first`` and ``second`` are there where it is one figure.

    ``change`` is the second's value relative to the first's, less one, and ``interval`` what its interval allows; of
    several figures the least and the most of them.
    """

    title: str
    figures: int
    change: tuple[float, float] | None
    interval: tuple[float, float] | None
    tolerance: float
    better: str | None
    flags: tuple[str, ...]
    why: str
    first: Figured | None
    second: Figured | None


TOGETHER = 3
"""Of more figures than these that were judged alike, and differ only in a number, a comparison tells in one line."""


def render_comparison(compared: Compared) -> str:
    """Return *compared* as reStructuredText."""
    by_outcome: dict[str, list[Comparison]] = {}
    for each in compared.figures:
        by_outcome.setdefault(each.outcome, []).append(each)
    differing = sorted(by_outcome.get("differs", ()), key=_matters, reverse=True)
    template = environment().get_template("comparison.rst.j2")
    return tidy(
        template.render(
            compared=compared,
            counts={outcome: len(figures) for outcome, figures in by_outcome.items()},
            most=differing[0] if differing else None,
            better={side: sum(each.better == side for each in differing) for side in ("first", "second")},
            told={
                outcome: list(
                    _told(differing, _family)
                    if outcome == "differs"
                    else _told(figures, _kind_of, least=TOGETHER if outcome == "undecided" else 0)
                )
                for outcome, figures in by_outcome.items()
            },
            tolerances=(*TOLERANCES, ANY_OTHER),
        )
    )


def _matters(each: Comparison) -> float:
    """Return how many times its tolerance a figure differs by."""
    return 0.0 if not each.ratio else abs(math.log(each.ratio)) / math.log1p(each.tolerance.fraction)


def _numberless(text: str) -> str:
    return re.sub(r"[-+]?\d+(?:\.\d+)?", "#", text)


def _family(each: Comparison) -> tuple[str, str]:
    """Return what figures have in common that differ only in a number: name, and what was said of them but numbers."""
    return _numberless(each.name), f"{each.outcome} {each.better} {_numberless(each.reason)}"


def _kind_of(each: Comparison) -> tuple[str, str]:
    """Return what figures of one kind have in common that were judged alike for the same reason, numbers aside."""
    some = each.first or each.second
    title = registry()[some.kind].title if some and some.kind in registry() else each.title
    return title, f"{each.tolerance.fraction} {_numberless(each.reason)}"


def _told(
    figures: Sequence[Comparison], key: Callable[[Comparison], tuple[str, str]], *, least: int = TOGETHER
) -> Iterator[Told]:
    """Yield *figures*: one by one, or in one line where more than *least* of them have the *key* in common."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for each in figures:
        groups.setdefault(key(each), []).append(each)
    for (name, _), group in groups.items():
        if len(group) > least:
            title = name if key is _kind_of else _numberless(group[0].title)
            yield _line(title, group, f"such as: {group[0].reason}" if len(group) > 1 else group[0].reason)
        else:
            yield from (_line(each.title, [each], each.reason) for each in group)


def _line(title: str, group: Sequence[Comparison], why: str) -> Told:
    changes = [each.ratio - 1 for each in group if each.ratio is not None]
    bounds = [each.ratio_interval for each in group if each.ratio_interval is not None]
    sides = [side for each in group for side in (each.first, each.second) if side is not None]
    return Told(
        title=title,
        figures=len(group),
        change=(min(changes), max(changes)) if changes else None,
        interval=(min(low for low, _ in bounds) - 1, max(high for _, high in bounds) - 1) if bounds else None,
        tolerance=group[0].tolerance.fraction,
        better=group[0].better,
        flags=tuple(dict.fromkeys(flag for side in sides for flag in side.flags)),
        why=why,
        first=group[0].first if len(group) == 1 else None,
        second=group[0].second if len(group) == 1 else None,
    )


def render_site_comparison(machines: Sequence[Machine]) -> str:
    """Return the page that holds *machines* against the first of them that was measured here."""
    baseline = next((each for each in machines if not each.imported), machines[0] if machines else None)
    others = [each for each in machines if each is not baseline]
    kinds = [] if baseline is None else list(_kinds(baseline, others))
    text = (
        environment()
        .get_template("site/comparison.rst.j2")
        .render(
            baseline=baseline if kinds else None,
            family=FAMILY,
            machines=[
                [_link(each), filters.inline(each.processor or "not known"), filters.inline(each.source)]
                for each in machines
            ],
            kinds=kinds,
            tolerances=(*TOLERANCES, ANY_OTHER),
        )
    )
    return tidy(text)


def _link(machine: Machine) -> str:
    return f":doc:`{filters.inline(machine.label)} <{machine.folder}/index>`"


def _kinds(baseline: Machine, others: Sequence[Machine]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the title of each kind and its rows: each figure of the baseline, and what the others have of it."""
    compared = [
        (other, {each.name: each for each in compare_figures(baseline.figures, other.figures)}) for other in others
    ]
    few = _few(baseline.figures)
    for kind in page_order():
        rows: list[Row] = []
        for figure in baseline.figures:
            name = figure.metric.name
            found = [(other, each[name]) for other, each in compared if each[name].second is not None]
            if figure.kind != kind or not found or name not in few:
                continue
            rows.append(Row(figure.metric.title, _link(baseline), figure, 1.0, "is the first"))
            rows += [
                Row("", _link(other), each.second, each.ratio, f"{WORDS[each.outcome]}: {each.reason}")
                for other, each in found
            ]
        if rows:
            yield registry()[kind].title, rows


def family(metric: str) -> str:
    """Return the name of the family of *metric*: of those that differ from it only in numbers."""
    return re.sub(r"\d+", "#", metric)


def _few(figures: Sequence[Figured]) -> set[str]:
    """Return the names of the figures whose families have no more than :data:`FAMILY` members."""
    families: dict[str, set[str]] = {}
    for figure in figures:
        families.setdefault(family(figure.metric.name), set()).add(figure.metric.name)
    return {name for members in families.values() if len(members) <= FAMILY for name in members}


def render_history(machines: Sequence[Machine]) -> str:
    """Return the page with the figures of one machine's documents, *machines*, newest first, side by side."""
    found = [{each.metric.name: each for each in reversed(machine.figures)} for machine in machines]
    few = set().union(*(_few(machine.figures) for machine in machines))
    titles = {each.metric.name: each.metric.title for machine in machines for each in machine.figures}
    rows = [
        (title, [figures.get(name) for figures in found])
        for name, title in titles.items()
        if name in few and sum(name in figures for figures in found) > 1
    ]
    template = environment().get_template("site/history.rst.j2")
    return tidy(template.render(label=machines[0].label, machines=machines, rows=rows, family=FAMILY))
