# SPDX-License-Identifier: Apache-2.0
"""``calibration counters DIR [--json]``: print which events would be opened on a machine, and why others are not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import click

from calibration.base.cpulists import format_cpulist
from calibration.base.text import visible
from calibration.context.loader import load
from calibration.counters.chosen import ChosenEvent, CounterChoice
from calibration.counters.event_choice import choose_events


def numbered(names: Iterable[str]) -> str:
    """Return names with those that differ only in a trailing number combined: ``uncore_imc_0-7``."""
    found = []
    for stem, group in groupby(dict.fromkeys(names), key=lambda name: re.sub(r"(?<=[_a-z])[0-9]{1,3}$", "", name)):
        rest = [name.removeprefix(stem) for name in group]
        together = all(number.isdigit() and number == str(int(number)) for number in rest)
        found += [stem + format_cpulist(map(int, rest))] if together else [stem + part for part in rest]
    return ", ".join(found)


def words_of(words: dict[str, int]) -> str:
    """Return the words of an event as in an argument."""
    return " ".join(f"{word}={value:#x}" for word, value in sorted(words.items()))


def rows_of(events: Iterable[ChosenEvent]) -> list[list[ChosenEvent]]:
    """Group events that count the same on several boxes or channels, in order of first appearance."""
    rows: dict[tuple[object, ...], list[ChosenEvent]] = {}
    for event in events:
        kind = re.sub(r"[0-9]+$", "", event.event)
        rows.setdefault((event.name, kind, event.cpus, event.group, event.scale_bytes, event.caution), []).append(event)
    return list(rows.values())


def _event_lines(row: list[ChosenEvent]) -> list[str]:
    first = row[0]
    bytes_each = "" if first.scale_bytes is None else f", {first.scale_bytes:g} bytes a count"
    where = "each measuring thread" if first.cpus is None else f"CPUs {format_cpulist(first.cpus)}"
    together = "" if first.group is None else f", group {first.group}"
    words = ", ".join(dict.fromkeys(words_of(item.words) for item in row))
    lines = [
        f"{first.name:<21} {numbered(event.event for event in row)}",
        f"{'':<21} {numbered(event.pmu for event in row)}: {words}",
        f"{'':<21} on {where}{together}{bytes_each}; {first.source}",
    ]
    return [*lines, *([f"{'':<21} caution: {first.caution}"] if first.caution else [])]


def table_text(choice: CounterChoice) -> str:
    """Return a choice as text: events to open, then missing ones and why."""
    lines = [f"{'microarchitecture':<21} {choice.microarchitecture or 'no table of this processor'}"]
    for row in rows_of(choice.events):
        lines += _event_lines(row)
    if choice.sampling is not None:
        sampling = choice.sampling
        aux = "" if sampling.aux is None else f" aux={sampling.aux:#x}"
        lines += [
            f"{'samples':<21} {sampling.event}, by {sampling.method}, one of {sampling.period}",
            f"{'':<21} {sampling.pmu}: {words_of(sampling.words)}{aux}; {sampling.source}",
            *([f"{'':<21} caution: {sampling.caution}"] if sampling.caution else []),
        ]
    lines += [f"{item.role:<21} missing: {item.reason}" for item in choice.missing]
    return "\n".join(visible(line) for line in lines)


@click.command(
    "counters",
    short_help="List the hardware counters usable on a machine.",
    epilog="Example: calibration counters /",
)
@click.argument("root", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--json", "as_json", is_flag=True, help="Print events, sampling and what is missing as one JSON document."
)
def counters_command(root: Path, as_json: bool) -> None:
    """List the events that would be opened on the machine in DIR, and why others are missing.

    DIR is / for this machine, a captured tree, its tar.gz, or a run's directory. No event is opened.
    """
    choice = choose_events(load(root))
    click.echo(choice.model_dump_json(indent=1) if as_json else table_text(choice))
