# SPDX-License-Identifier: Apache-2.0
"""Terminal output of a proposed baseline: its bounds, and what is not accepted."""

from typing import IO, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from calibration.base.console import console as console_on
from calibration.base.grouping import grouped
from calibration.base.text import some_of, visible
from calibration.judge.baselines import Proposal
from calibration.judge.words import amount, share

MAX_NAMES: Final = 3
"""Metrics named per reason before the rest is counted."""


def print_proposal(proposal: Proposal, stream: IO[str]) -> None:
    """Print what is, or would be, accepted for one place, and what is not."""
    console = console_on(stream)
    acceptance = proposal.acceptance
    console.print(Text(visible(f"Bounds of {proposal.place.words}"), style="bold"))
    if acceptance is not None:
        titles = ["Metric", "Level", "Bounds", "Width", "Nights", "Spread of", *(["Before"] if proposal.before else [])]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
        for title in titles:
            table.add_column(
                title, justify="right" if title in {"Level", "Width", "Nights"} else "left", overflow="fold"
            )
        for metric, bound in acceptance.bounds.items():
            width = [(end / bound.value - 1) for end in (bound.lower, bound.upper) if end is not None and bound.value]
            before = proposal.before.get(metric)
            cells = [
                metric,
                amount(bound.value, bound.unit),
                bound.words,
                share(max(map(abs, width))) if width else "-",
                str(bound.nights),
                bound.method,
                "-" if before is None else before.words,
            ]
            table.add_row(*cells[: len(titles)])
        console.print(table)
        console.print()
    reasons = grouped((one.reason, f"{one.sut} {one.metric}") for one in proposal.refused)
    for reason, names in reasons.items():
        console.print(Text(visible(f"not accepted: {some_of(names, MAX_NAMES)}: {reason}"), style="yellow"))
    for note in proposal.notes:
        console.print(Text(visible(f"note: {note}")))
