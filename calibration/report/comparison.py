# SPDX-License-Identifier: Apache-2.0
"""Comparisons as text: of two documents, and of all machines on the site."""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple

from calibration.judge.comparison import ANY_OTHER, TOLERANCES, Compared, Comparison, compare_figures
from calibration.measurements import registry
from calibration.model import Model
from calibration.report import filters
from calibration.report.environment import environment, tidy
from calibration.results.model import Imported, RunDocument
from calibration.results.plain import Figured, figured
from calibration.results.readings import READ_KINDS

FAMILY = 8
"""Of more figures than these that differ only in a number, pages of machines tell; a comparison would have no end."""

WORDS = {
    "differs": "differs",
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


def render_comparison(compared: Compared) -> str:
    """Return *compared* as reStructuredText."""
    by_outcome: dict[str, list[Comparison]] = {}
    for each in compared.figures:
        by_outcome.setdefault(each.outcome, []).append(each)
    template = environment().get_template("comparison.rst.j2")
    return tidy(template.render(compared=compared, by_outcome=by_outcome, tolerances=(*TOLERANCES, ANY_OTHER)))


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
    for kind in READ_KINDS:
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
