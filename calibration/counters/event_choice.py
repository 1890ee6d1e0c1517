# SPDX-License-Identifier: Apache-2.0
"""Choose the events to open on a captured machine, with their encodings; each role without one has a reason.

Nothing is guessed: a role that the machine cannot count, would refuse or has no free counter for is missing, with its
reason. Permissions follow ``Documentation/admin-guide/perf-security.rst`` and ``perf_event_open(2)``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Final

from calibration.base.cpulists import format_cpulist
from calibration.base.errors import InputError
from calibration.context.model import Context, EventSource
from calibration.counters.assignment import SAMPLES, Counters
from calibration.counters.chosen import ChosenEvent, ChosenSampling, CounterChoice, MissingCounter
from calibration.counters.encoding import encode
from calibration.counters.event_roles import EVENT_ROLES
from calibration.counters.tables import ANY, Boxes, CoreEvent, Table, table_for, tables

CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
"""Bits of ``CapEff``; either lets a process count what ``perf_event_paranoid`` forbids to others."""

HARDWARE = "hardware"
"""Source of the kernel's generic events, which have no directory of their own."""


CORE_SOURCE: Final = re.compile(r"cpu|cpu_core|armv[0-9]+_\w+", re.ASCII)
"""Names of core sources. On a machine with two kinds of cores only the faster ones are counted."""

APART: Final = frozenset({"dram.reads", "dram.writes"})

BYTES_PER_UNIT: Final = {"MiB": 2.0**20, "KiB": 2.0**10, "GiB": 2.0**30, "Bytes": 1.0, "B": 1.0}


def choose_events(context: Context, wanted: Collection[str] = tuple(EVENT_ROLES)) -> CounterChoice:
    """Return what to open on the machine of *context* for the roles *wanted*, and how to sample loads.

    If counters are too few, the first roles in the order of ``EVENT_ROLES`` get them: request another one on its own.
    Samples come last, with a caution if they would be multiplexed.
    """
    roles = [role for role in EVENT_ROLES if role in wanted]
    if context.event_sources is None:
        reason = _not_captured(context)
        missing = tuple(MissingCounter(role=role, reason=reason) for role in (*roles, SAMPLES))
        return CounterChoice(microarchitecture=None, events=(), sampling=None, missing=missing)
    chooser = _Chooser(context, context.event_sources, roles)
    events: list[ChosenEvent] = []
    sampling: list[ChosenSampling] = []
    reasons: dict[str, str] = {}
    known = {box.role for box in chooser.table.boxes} if chooser.table else set()
    for role in (*roles, SAMPLES):
        if role == "dram.reads_and_writes" and (known | {event.name for event in events}) & APART:
            continue  # only used by machines that cannot tell reads from writes
        try:
            if role == SAMPLES:
                sampling.append(chooser.sampling())
            else:
                events += chooser.of_boxes(role) if EVENT_ROLES[role] == "machine" else chooser.of_threads(role)
        except InputError as error:
            reasons[role] = str(error)
    return CounterChoice(
        microarchitecture=chooser.table.microarchitecture if chooser.table else None,
        events=tuple(events),
        sampling=next(iter(sampling), None),
        missing=tuple(MissingCounter(role=role, reason=reason) for role, reason in reasons.items()),
    )


def _not_captured(context: Context) -> str:
    if context.kernel.perf_event_paranoid is None:
        return (
            "the capture has neither /sys/bus/event_source nor perf_event_paranoid: the kernel was built without "
            "performance events, or the capture is not complete"
        )
    return "the capture has no /sys/bus/event_source: capture the machine again with this version"


def _kinds(names: Collection[str]) -> str:
    """Return the names of sources with their numbers as N, without repetitions."""
    kinds = sorted({re.sub(r"[0-9]+", "N", name) for name in names})
    return ", ".join(kinds)


def _shown(expression: str) -> str:
    """Return a pattern of source names in readable form."""
    return expression.replace("(_[0-9]+)?", "").replace("[0-9]+", "N").replace("[0-9a-f]+", "N").replace("|", " or ")


class _Chooser:
    """One machine's sources, its event table, and the counters in use.

    What it cannot choose is an ``InputError``, with the reason.
    """

    def __init__(self, context: Context, sources: Sequence[EventSource], roles: Sequence[str]) -> None:
        self._context = context
        self._sources = {source.name: source for source in sources}
        self._any = tables()[ANY]
        self.table = table_for(context.processor.models)
        self._taken: dict[str, list[str]] = {}
        smt_off = context.topology.threads_per_core == 1 and context.topology.smt_active is not True
        self._counters = Counters(self.table, smt_off, context.kernel.nmi_watchdog)
        capabilities = context.capture.effective_capabilities
        inside = context.confinement.user_namespace
        unprivileged = capabilities is not None and not capabilities & (1 << CAP_PERFMON | 1 << CAP_SYS_ADMIN)
        unprivileged = unprivileged or bool(inside)  # capabilities of a user namespace do not count for events
        self._paranoid = context.kernel.perf_event_paranoid if unprivileged else None
        core = (*self._any.core, *(self.table.core if self.table else ()))
        self._rows = {role: [row for row in core if row.role == role] for role in roles}

    @cached_property
    def _together(self) -> str | None:
        """Why the grouped events of all roles have no counters; None if they have."""
        return self._counters.take([row for rows in self._rows.values() for row in rows if row.group is not None])

    # Permissions

    def _permit(self, most: int, what: str) -> None:
        """Refuse what the kernel permits up to perf_event_paranoid *most*."""
        if self._paranoid is not None and self._paranoid > most:
            raise InputError(
                f"not permitted: kernel.perf_event_paranoid is {self._paranoid}, {what} needs {most} or less, or "
                "CAP_PERFMON or CAP_SYS_ADMIN"
            )

    def _guest(self) -> str:
        return "; the hypervisor exposes none" if self._context.virtualization.guest else ""

    # Uncore boxes

    def of_boxes(self, role: str) -> list[ChosenEvent]:
        """Return the events of *role*."""
        known = self.table.boxes if self.table else ()
        machine = self._context.processor.architecture
        others = [box for box in self._any.boxes if machine in (None, box.architecture)]
        rows = [candidate for candidate in (*known, *others) if candidate.role == role]
        refused: InputError | None = None
        for row in rows:
            if sources := [source for name, source in self._sources.items() if re.fullmatch(row.pmus, name)]:
                try:
                    return self._row_of_boxes(row, sources)
                except InputError as error:
                    refused = refused or error
        if refused is not None:
            raise refused
        if not rows or (self.table and role in self.table.absent):
            raise InputError(self._no_event(role))
        shown = ", ".join(sorted({_shown(other.pmus) for other in rows}))
        raise InputError(f"no PMU counts it ({shown}){self._guest()}")

    def _row_of_boxes(self, row: Boxes, sources: Sequence[EventSource]) -> list[ChosenEvent]:
        self._permit(0, "counting the machine as a whole")
        found: list[ChosenEvent] = []
        for source in sources:
            taken = self._taken.get(source.name, [])
            if taken and len(taken) + len(row.events) > row.counters:
                raise InputError(f"the counters of {source.name} are in use by {', '.join(sorted(set(taken)))}")
            found += self._events_of_box(row, source)
        for source in sources:
            self._taken.setdefault(source.name, []).extend([row.role] * len(row.events))
        missed = self._packages_without({cpu for event in found for cpu in event.cpus or ()})
        return [_with_caution(event, missed) for event in found] if missed else found

    def _packages_without(self, cpus: set[int]) -> str | None:
        """Return a caution if a package has none of *cpus*, so its boxes are not counted."""
        cores = self._context.topology.cores
        counted = {core.package_id for core in cores if cpus & set(core.cpus)}
        left = sorted({core.package_id for core in cores if core.package_id is not None} - counted)
        return f"not counted on package {', '.join(map(str, left))}" if left else None

    def _events_of_box(self, row: Boxes, source: EventSource) -> Iterator[ChosenEvent]:
        online = set(self._context.online_cpus)
        cpus = tuple(cpu for cpu in source.cpumask or () if cpu in online)
        if not cpus:
            raise InputError(f"no online CPU in the cpumask of {source.name}")
        for event in row.events:
            alias = source.aliases.get(event.alias) if event.alias else None
            terms = alias.terms if alias else event.terms
            if terms is None:
                raise InputError(f"{source.name} has no event {event.alias}, and no table has its encoding")
            scale, unit = row.scale_bytes, None
            if alias and alias.scale is not None and alias.unit in BYTES_PER_UNIT:
                scale, unit = alias.scale * BYTES_PER_UNIT[alias.unit], alias.unit
            yield ChosenEvent(
                name=row.role,
                pmu=source.name,
                words=encode(source, terms),
                group=None,
                user=False,
                cpus=cpus,
                scale_bytes=scale,
                unit=unit,
                event=event.event,
                source=_listing(self._any if row in self._any.boxes else self.table, event.source),
                caution=_crowded(row),
            )

    # Core events

    def of_threads(self, role: str) -> list[ChosenEvent]:
        """Return the events of *role*; of several core sources, on the one with the most CPUs."""
        sources = [source for name, source in self._sources.items() if CORE_SOURCE.fullmatch(name)]
        if not sources:
            raise InputError(f"no core PMU among the event sources ({_kinds(self._sources)}){self._guest()}")
        self._permit(2, "counting anything")
        rows, together = self._rows[role], self._together  # grouped events come first
        if not rows:
            raise InputError(self._no_event(role))
        alone = [row for row in rows if row.group is None]
        if lack := together if len(alone) < len(rows) else self._counters.take(alone):
            raise InputError(lack)
        core = max(sources, key=lambda source: len(source.cpus or self._context.online_cpus))
        return [self._of_thread(row, core) for row in rows]

    def _no_event(self, role: str) -> str:
        if self.table is None:
            models = self._context.processor.models
            found = (models[0].vendor, models[0].family, models[0].model) if models else ()
            words = [f"{word}{value}" for word, value in zip(("", "family ", "model "), found, strict=False) if value]
            return f"no event table for {' '.join(words) or 'an unknown processor'}"
        return self.table.absent.get(role, f"no event of {self.table.microarchitecture} counts it")

    def _of_thread(self, row: CoreEvent, core: EventSource) -> ChosenEvent:
        words = encode(core, row.terms)
        if row.generic and core.name == "cpu_core" and core.type is not None:
            # With two kinds of cores, the upper half of a generic event's number selects the kind
            words["config"] |= core.type << 32
        cautions = [row.caution] if row.caution else []
        online = set(self._context.online_cpus)
        if core.cpus is not None and not online <= set(core.cpus):
            cautions.append(f"{core.name} counts on CPUs {format_cpulist(core.cpus)} only")
        if self._context.virtualization.guest and "offcore_rsp" in row.terms:
            cautions.append("a hypervisor may not pass this event on: it then stays at 0")
        return ChosenEvent(
            name=row.role,
            pmu=HARDWARE if row.generic else core.name,
            words=words,
            group=row.group,
            user=True,
            cpus=None,
            scale_bytes=None,
            unit=None,
            event=row.event,
            source=_listing(self._any if row.generic else self.table, row.source),
            caution="; ".join(cautions) or None,
        )

    # Samples

    def sampling(self) -> ChosenSampling:
        """Return how to sample loads."""
        row = self.table.sampling if self.table else None
        if row is None:
            raise InputError(self._no_event(SAMPLES))
        source = next((candidate for name, candidate in self._sources.items() if re.fullmatch(row.pmus, name)), None)
        if source is None:
            raise InputError(f"no {_shown(row.pmus)} among the event sources ({_kinds(self._sources)}){self._guest()}")
        if row.method == "pebs" and source.caps.get("max_precise") == "0":
            raise InputError(f"{source.name} has no precise sampling (caps/max_precise is 0)")
        # IBS cannot exclude the kernel unless the driver filters in software (swfilt)
        everything = row.method == "ibs" and "swfilt" not in source.formats
        self._permit(1 if everything else 2, "sampling the kernel too" if everything else "sampling")
        optional = [term for term in row.optional if term.partition("=")[0] in source.formats]
        needs_aux = row.aux is not None and row.aux_alias in source.aliases
        words = encode(source, ",".join([row.terms, *optional]))
        aux = encode(source, row.aux)["config"] if row.aux is not None and needs_aux else None
        crowded = self._counters.take([row]) if row.counters is not None else None
        caution = "multiplexed with the events above" if crowded else row.caution
        return ChosenSampling(
            method=row.method,
            pmu=source.name,
            words=words,
            aux=aux,
            period=row.period,
            event=row.event,
            source=_listing(self.table, row.source),
            caution=caution,
        )


def _with_caution(event: ChosenEvent, caution: str) -> ChosenEvent:
    return event.model_copy(update={"caution": f"{event.caution}; {caution}" if event.caution else caution})


def _crowded(row: Boxes) -> str | None:
    """Return the caution of *row*, plus that of a box that cannot count all its events at once."""
    if len(row.events) <= row.counters:
        return row.caution
    crowd = f"{len(row.events)} events are multiplexed on {row.counters} counters: counts are estimates"
    return f"{row.caution}; {crowd}" if row.caution else crowd


def _listing(table: Table | None, source: str) -> str:
    """Return the list that a row comes from, with its edition."""
    listing = (table or tables()[ANY]).sources[source]
    return f"{listing.list}, {listing.version}"
