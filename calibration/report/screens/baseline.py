# SPDX-License-Identifier: Apache-2.0
"""Terminal output of a proposed baseline: its bounds, what it would notice, and what is not accepted."""

from typing import IO, Final

from rich.text import Text

from calibration.base.console import console as console_on
from calibration.base.grouping import grouped
from calibration.base.text import some_of, visible
from calibration.base.units import percent, plural
from calibration.judge.baselines import Proposal
from calibration.judge.words import amount
from calibration.measurements import row_of

MAX_NAMES: Final = 3
"""Metrics named per reason before the rest is counted."""


def print_proposal(proposal: Proposal, stream: IO[str], *, everything: bool = False) -> None:
    """Print what is, or would be, accepted for one place, and what is not.

    Without *everything*, only headline metrics have a line.
    """
    console = console_on(stream)
    acceptance = proposal.acceptance
    console.print(Text(visible(f"Bounds of {proposal.place.words}"), style="bold"))
    if acceptance is not None:
        noticed = {item.metric: item.change for item in proposal.noticed}
        shown = [name for name in acceptance.bounds if everything or row_of(name).record is not None]
        rows = [("Level", "Bounds", "Notices", "Nights", *(["Before"] if proposal.before else []), "Metric")]
        for metric in shown or acceptance.bounds:
            bound, before = acceptance.bounds[metric], proposal.before.get(metric)
            rows.append(
                (
                    amount(bound.value, bound.unit),
                    bound.words,
                    percent(noticed[metric]) if metric in noticed else "-",
                    str(bound.nights),
                    *(["-" if before is None else before.words] if proposal.before else []),
                    metric,
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:  # metrics last and whole, so that they can be searched for
            cells = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            console.print(Text(visible(cells).rstrip()), soft_wrap=True)
        console.print()
        console.print(Text(visible(_noticing(proposal))))
    reasons = grouped((one.reason, f"{one.sut} {one.metric}") for one in proposal.refused)
    for reason, names in reasons.items():
        console.print(Text(visible(f"not accepted: {some_of(names, MAX_NAMES)}: {reason}"), style="yellow"))
    for note in proposal.notes:
        console.print(Text(visible(f"note: {note}")))


def _noticing(proposal: Proposal) -> str:
    """Return what the baseline would notice, in a sentence."""
    enough = sum(item.enough for item in proposal.noticed)
    text = f"This baseline notices a change that matters in {enough} of {plural(len(proposal.noticed), 'metric')}"
    if headlines := proposal.headlines:
        best, worst = (pick(headlines, key=lambda item: item.change) for pick in (min, max))
        text += f"; in headline metrics one of {percent(best.change)} ({best.metric})"
        text += f" to {percent(worst.change)} ({worst.metric})" if worst is not best else ""
    return f"{text}."
