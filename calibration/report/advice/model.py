# SPDX-License-Identifier: Apache-2.0
"""The model of advice: what was found, what it costs here, the change, and how to undo it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from calibration.base.model import Model
from calibration.base.units import slug
from calibration.measurements.disturbers import Disturber
from calibration.report.advice.evidence import Cost, Evidence


class Source(Model):
    """Where the change is documented."""

    title: str
    url: str


class Advice(Model):
    """One thing to change on a SUT.

    ``rule`` names the rule, ``title`` says what to do, ``found`` what was found, by name. ``cost`` is what it cost in
    this run, by the metric or count ``metric``; without one, ``unmeasured`` says what measures it. ``share`` is the
    cost as a share of a CPU's time, of the bandwidth, latency or clock, 0 if it is none; ``count`` is the number of
    events or bytes if the cost is one, else ``None``.

    ``about`` is the cause of interruptions that the change removes, ``anchor`` its place on a page.

    ``change``, ``keep`` and ``undo`` are lines for a root shell: what takes effect now (or at the next boot), what
    keeps it over a boot (empty if the change does), and what reverts both. Lines with ``#`` first are for the reader.
    """

    rule: str
    title: str
    found: str
    cost: str | None
    metric: str | None
    unmeasured: str | None
    share: float
    count: float | None
    change: tuple[str, ...]
    keep: tuple[str, ...]
    undo: tuple[str, ...]
    source: Source
    about: Disturber | None
    anchor: str

    @property
    def rank(self) -> tuple[int, float]:
        """Its place among other advice: shares, counts, what is unmeasured, and what was measured as nothing."""
        measured = 0 if self.share or self.count else 1 if self.cost is None else 2
        return measured, -self.share


class Commands(NamedTuple):
    """Lines for a root shell (see :class:`Advice`)."""

    change: tuple[str, ...]
    undo: tuple[str, ...]
    keep: tuple[str, ...] = ()


class Found(NamedTuple):
    """What a rule found: the sentence, the cost or what measures it, and the commands."""

    found: str
    cost: Cost | str
    commands: Commands


class Rule(NamedTuple):
    """One row of the table of rules.

    ``title`` is what to do, ``condition`` when the rule applies, ``cost`` what shows its cost; all three are in the
    documentation. ``host_only`` rules are about what a guest cannot change, and are not applied to guests. ``about`` is
    the cause of interruptions that the change removes.
    """

    id: str
    title: str
    condition: str
    cost: str
    source: Source
    find: Callable[[Evidence], Iterator[Found]]
    host_only: bool = False
    about: Disturber | None = None

    def apply(self, evidence: Evidence) -> Iterator[Advice]:
        """Yield the advice that *evidence* supports."""
        if self.host_only and evidence.context.virtualization.guest:
            return
        for number, found in enumerate(self.find(evidence)):
            cost = found.cost if isinstance(found.cost, Cost) else None
            yield Advice(
                rule=self.id,
                title=self.title,
                found=found.found,
                cost=None if cost is None else cost.text,
                metric=None if cost is None else cost.metric,
                unmeasured=None if isinstance(found.cost, Cost) else found.cost,
                share=0.0 if cost is None else cost.share,
                count=None if cost is None else cost.number,
                change=found.commands.change,
                keep=found.commands.keep,
                undo=found.commands.undo,
                source=self.source,
                about=self.about,
                anchor=f"advice-{slug(self.id)}{f'-{number + 1}' if number else ''}",
            )
