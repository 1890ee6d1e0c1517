# SPDX-License-Identifier: Apache-2.0
"""Compare a run with the references of its hardware.

Only figures of our own instrument, of other machines with the same processor and the same conditions, say what is
usual. Everything else of that processor is context, with what differs. Neither is a limit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from calibration.base.grouping import grouped
from calibration.references.library import Library
from calibration.references.metrics import OWN, QUANTITIES, Condition, Instrument, Metric
from calibration.references.model import ReferenceMachine, Source, processor_key
from calibration.references.observed import Observed, Subject, observed, subject_of
from calibration.results.model import RunDocument

SAME_MT_S: Final = 2
"""2933 and 2934 MT/s, or 2666 and 2667, are one speed, rounded by the firmware."""

WORDS: Final[Mapping[Condition, tuple[str, str]]] = {
    "cores_per_socket": ("cores of a socket", "{} cores a socket"),
    "sockets": ("sockets", "{} sockets"),
    "nodes_per_socket": ("nodes of a socket", "{} nodes a socket"),
    "mt_s": ("memory speed", "{} MT/s"),
    "channels_per_socket": ("memory channels", "{} channels a socket"),
}
"""Each condition by name, and its value."""


class ReferenceGroup(NamedTuple):
    """Figures of one instrument, obtained in one way, under the same conditions, on several machines.

    ``value`` is the median of the machines, ``low`` and ``high`` their extremes, ``share`` the median share of their
    theoretical peaks, where known. ``differs`` are the conditions that are others than those of the run, ``unknown``
    the names of those that one of both does not show.
    """

    instrument: Instrument
    how: str | None
    differs: tuple[str, ...]
    unknown: tuple[str, ...]
    value: float
    low: float
    high: float
    machines: int
    share: float | None
    sources: tuple[Source, ...]


class ComparedMetric(NamedTuple):
    """A figure of the run, what is usual for it (``None`` without a reference), and the context, the nearest first."""

    figure: Observed
    usual: ReferenceGroup | None
    context: tuple[ReferenceGroup, ...]

    @property
    def nearest(self) -> tuple[ReferenceGroup, ...]:
        """The nearest group of each instrument and way of measuring."""
        found: dict[tuple[Instrument, str | None], ReferenceGroup] = {}
        for group in self.context:
            found.setdefault((group.instrument, group.how), group)
        return tuple(found.values())


class Normal(NamedTuple):
    """A run beside the references of its hardware; ``faults`` are files that cannot be read.

    ``curves`` are the machines with the same processor that have curves of latency against bandwidth.
    """

    subject: Subject
    figures: tuple[ComparedMetric, ...]
    faults: tuple[str, ...]
    curves: tuple[tuple[Source, ReferenceMachine], ...] = ()

    def of(self, metric: Metric) -> ComparedMetric | None:
        """Return the comparison of *metric*, ``None`` if the run does not have it."""
        return next((item for item in self.figures if item.figure.metric == metric), None)


def normal(document: RunDocument, library: Library) -> Normal:
    """Return *document* beside the references of its hardware in *library*."""
    subject = subject_of(document)
    known: list[tuple[Source, ReferenceMachine]] = []
    if subject.processor is not None:
        key = processor_key(subject.processor)
        known = [
            (source, machine)
            for source, machine in library.entries
            if processor_key(machine.processor) == key and not (machine.run and machine.name == subject.label)
        ]
    figures = tuple(_compared(item, subject, known) for item in observed(document))
    return Normal(subject, figures, library.faults, tuple(entry for entry in known if entry[1].curves))


def _compared(figure: Observed, subject: Subject, known: Iterable[tuple[Source, ReferenceMachine]]) -> ComparedMetric:
    groups = sorted(_groups(figure.metric, subject, known), key=lambda group: _distance(group, figure))
    usual = next((group for group in groups if _is_usual(group, figure)), None)
    return ComparedMetric(figure, usual, tuple(group for group in groups if group is not usual))


def _is_usual(group: ReferenceGroup, figure: Observed) -> bool:
    return group.instrument == OWN and group.how == figure.how and not group.differs and not group.unknown


def _distance(group: ReferenceGroup, figure: Observed) -> tuple[bool, int, bool, int, str, str]:
    """Order groups: our own instrument first, then by what differs from *figure* and what is unknown."""
    other_way = group.how != figure.how
    known = group.instrument != OWN, len(group.differs), other_way, len(group.unknown)
    return *known, group.instrument, group.how or ""


Found = tuple[Source, ReferenceMachine, float]


def _groups(
    metric: Metric, subject: Subject, known: Iterable[tuple[Source, ReferenceMachine]]
) -> Iterator[ReferenceGroup]:
    found: dict[tuple[Instrument, str | None, tuple[str, ...], tuple[str, ...]], list[Found]] = {}
    for source, machine in known:
        for figure in machine.figures:
            if figure.metric == metric:
                key = (machine.instrument, figure.how, *differences(metric, subject, machine))
                found.setdefault(key, []).append((source, machine, figure.value))
    for (instrument, how, differs, unknown), entries in found.items():
        values = _by_machine((source.title, machine.name, value) for source, machine, value in entries)
        shares = _by_machine(
            (source.title, machine.name, value / peak)
            for source, machine, value in entries
            if (peak := machine.peak_mb_s(metric)) is not None
        )
        yield ReferenceGroup(
            instrument=instrument,
            how=how,
            differs=differs,
            unknown=unknown,
            value=median(values),
            low=min(values),
            high=max(values),
            machines=len(values),
            share=median(shares) if shares else None,
            sources=tuple(dict.fromkeys(source for source, _, _ in entries)),
        )


def _by_machine(entries: Iterable[tuple[str, str, float]]) -> list[float]:
    """Return one value of each machine, the median of its own: repeats on one machine are no further machines."""
    found = grouped(((source, name), value) for source, name, value in entries)
    return [median(values) for values in found.values()]


def differences(metric: Metric, subject: Subject, machine: ReferenceMachine) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return in which conditions of *metric* the *machine* differs from *subject*, and which of both are unknown.

    The processor decides how many cores a socket has, so a source need not say it.
    """
    differs, unknown = [], []
    for name in QUANTITIES[metric].conditions:
        own, other = subject.conditions[name], machine.condition(name)
        if own is None or other is None:
            if name != "cores_per_socket":
                unknown.append(WORDS[name][0])
        elif abs(own - other) > (SAME_MT_S if name == "mt_s" else 0):
            text = WORDS[name][1].format(other)
            differs.append(text.replace("s a ", " a ", 1).removesuffix("s") if other == 1 and name != "mt_s" else text)
    return tuple(differs), tuple(unknown)


def unusual_by(figure: Observed, usual: ReferenceGroup) -> float:
    """Return how far *figure* is beyond the range of *usual*, as a share of its nearer end; 0 within it."""
    end = min(max(figure.value, usual.low), usual.high)
    return figure.value / end - 1


def sources_of(groups: Sequence[ReferenceGroup]) -> list[tuple[Instrument, Source]]:
    """Return the sources of *groups* with the instrument, each once, in order."""
    return list(dict.fromkeys((group.instrument, source) for group in groups for source in group.sources))
