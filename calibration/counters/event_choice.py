# SPDX-License-Identifier: Apache-2.0
"""Choose the events to open on a captured machine, with their encodings; each role without one has a reason.

Nothing is guessed: a role that the machine cannot count, would refuse or has no free counter for is missing, with its
reason. Permissions follow ``Documentation/admin-guide/perf-security.rst`` and ``perf_event_open(2)``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from calibration.base.cpulists import format_cpulist
from calibration.base.errors import InputError
from calibration.context.model import Context, EventSource
from calibration.counters.assignment import SAMPLES, Counters
from calibration.counters.chosen import ChosenEvent, ChosenSampling, CounterChoice, MissingCounter
from calibration.counters.encoding import encode
from calibration.counters.event_roles import EVENT_ROLES
from calibration.counters.tables import ANY, Boxes, CoreEvent, SampledEvent, Table, table_of, tables

CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
"""Bits of ``CapEff``; either lets a process count what ``perf_event_paranoid`` forbids to others."""

HARDWARE = "hardware"
"""Source of the kernel's generic events, which have no directory of their own."""


CORE_SOURCE: Final = re.compile(r"cpu|cpu_core|armv[0-9]+_\w+", re.ASCII)
"""Names of core sources. On a machine with two kinds of cores only the faster ones are counted."""

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
    chooser = _Chooser(context, context.event_sources)
    events: list[ChosenEvent] = []
    reasons: dict[str, str] = {}
    boxes = chooser.boxes([role for role in roles if EVENT_ROLES[role] == "machine"])
    threads = chooser.threads([role for role in roles if EVENT_ROLES[role] == "thread"])
    for role, found in (*boxes, *threads):
        if isinstance(found, str):
            reasons[role] = found
        else:
            events.extend(found)
    sampling = chooser.sampling()
    if isinstance(sampling, str):
        reasons[SAMPLES] = sampling
    return CounterChoice(
        microarchitecture=chooser.table.microarchitecture if chooser.table else None,
        events=tuple(events),
        sampling=None if isinstance(sampling, str) else sampling,
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
    """One machine's sources, its event table, and the counters in use."""

    def __init__(self, context: Context, sources: Sequence[EventSource]) -> None:
        self._context = context
        self._sources = {source.name: source for source in sources}
        self._any = tables()[ANY]
        models = context.processor.models
        found = (table_of(model.vendor, model.family, model.model, model.stepping) for model in models)
        self.table: Table | None = next((table for table in found if table is not None), None)
        self._taken: dict[str, list[str]] = {}
        self._counters = Counters(self.table, self._smt_off(), context.kernel.nmi_watchdog)
        capabilities = context.capture.effective_capabilities
        inside = context.confinement.user_namespace
        unprivileged = capabilities is not None and not capabilities & (1 << CAP_PERFMON | 1 << CAP_SYS_ADMIN)
        unprivileged = unprivileged or bool(inside)  # capabilities of a user namespace do not count for events
        self._paranoid = context.kernel.perf_event_paranoid if unprivileged else None

    # Permissions

    def _refused(self, most: int, what: str) -> str | None:
        """Return why the kernel refuses what it permits up to perf_event_paranoid *most*; None if permitted."""
        if self._paranoid is None or self._paranoid <= most:
            return None
        return (
            f"not permitted: kernel.perf_event_paranoid is {self._paranoid}, {what} needs {most} or less, or "
            "CAP_PERFMON or CAP_SYS_ADMIN"
        )

    def _guest(self) -> str:
        return "; the hypervisor exposes none" if self._context.virtualization.guest else ""

    # Uncore boxes

    def boxes(self, roles: Sequence[str]) -> Iterator[tuple[str, list[ChosenEvent] | str]]:
        """Yield each of *roles* with its events, or why it has none."""
        counted: set[str] = set()
        apart = {"dram.reads", "dram.writes"}
        known = {box.role for box in self.table.boxes} if self.table else set()
        for role in roles:
            if role == "dram.reads_and_writes" and (counted | known) & apart:
                continue  # only used by machines that cannot tell reads from writes
            found = self._role_of_boxes(role)
            if not isinstance(found, str):
                counted.add(role)
            yield role, found

    def _role_of_boxes(self, role: str) -> list[ChosenEvent] | str:
        known = self.table.boxes if self.table else ()
        machine = self._context.processor.architecture
        others = [box for box in self._any.boxes if machine in (None, box.architecture)]
        rows = [candidate for candidate in (*known, *others) if candidate.role == role]
        reasons = []
        for row in rows:
            sources = [source for name, source in self._sources.items() if re.fullmatch(row.pmus, name)]
            if not sources:
                continue
            found = self._row_of_boxes(row, sources)
            if not isinstance(found, str):
                return found
            reasons.append(found)
        if reasons:
            return reasons[0]
        if self.table and role in self.table.absent:
            return self.table.absent[role]
        if not rows:
            return self._no_event(role)
        shown = ", ".join(sorted({_shown(other.pmus) for other in rows}))
        return f"no PMU counts it ({shown}){self._guest()}"

    def _row_of_boxes(self, row: Boxes, sources: Sequence[EventSource]) -> list[ChosenEvent] | str:
        refusal = self._refused(0, "counting the machine as a whole")
        if refusal:
            return refusal
        found: list[ChosenEvent] = []
        for source in sources:
            taken = self._taken.get(source.name, [])
            if taken and len(taken) + len(row.events) > row.counters:
                return f"the counters of {source.name} are in use by {', '.join(sorted(set(taken)))}"
            events = self._events_of_box(row, source)
            if isinstance(events, str):
                return events
            found += events
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

    def _events_of_box(self, row: Boxes, source: EventSource) -> list[ChosenEvent] | str:
        online = set(self._context.online_cpus)
        cpus = tuple(cpu for cpu in source.cpumask or () if cpu in online)
        if not cpus:
            return f"no online CPU in the cpumask of {source.name}"
        found = []
        for event in row.events:
            alias = source.aliases.get(event.alias) if event.alias else None
            terms = alias.terms if alias else event.terms
            if terms is None:
                return f"{source.name} has no event {event.alias}, and no table has its encoding"
            scale, unit = row.scale_bytes, None
            if alias and alias.scale is not None and alias.unit in BYTES_PER_UNIT:
                scale, unit = alias.scale * BYTES_PER_UNIT[alias.unit], alias.unit
            try:
                words = encode(source, terms)
            except InputError as error:
                return str(error)
            found.append(
                ChosenEvent(
                    name=row.role,
                    pmu=source.name,
                    words=words,
                    group=None,
                    user=False,
                    cpus=cpus,
                    scale_bytes=scale,
                    unit=unit,
                    event=event.event,
                    source=_listing(self._any if row in self._any.boxes else self.table, event.source),
                    caution=_crowded(row),
                )
            )
        return found

    # Core events

    def _core_source(self) -> EventSource | str:
        """Return the source of the cores; of several, the one with the most CPUs."""
        sources = [source for name, source in self._sources.items() if CORE_SOURCE.fullmatch(name)]
        if not sources:
            return f"no core PMU among the event sources ({_kinds(self._sources)}){self._guest()}"
        return max(sources, key=lambda source: len(source.cpus or self._context.online_cpus))

    def threads(self, roles: Sequence[str]) -> Iterator[tuple[str, list[ChosenEvent] | str]]:
        """Yield each of *roles* with its events, or why it has none. Grouped events come first."""
        core = self._core_source()
        refusal = self._refused(2, "counting anything")
        if isinstance(core, str) or refusal:
            yield from ((role, core if isinstance(core, str) else refusal or "") for role in roles)
            return
        known = self.table.core if self.table else ()
        rows = {role: [row for row in (*self._any.core, *known) if row.role == role] for role in roles}
        grouped = [row for role in roles for row in rows[role] if row.group is not None]
        together = self._counters.take(grouped)
        for role in roles:
            if not rows[role]:
                yield role, self._no_event(role)
                continue
            alone = [row for row in rows[role] if row.group is None]
            fits = together if len(alone) < len(rows[role]) else self._counters.take(alone)
            yield role, fits if isinstance(fits, str) else self._of_threads(rows[role], core)

    def _no_event(self, role: str) -> str:
        if self.table is None:
            models = self._context.processor.models
            found = (models[0].vendor, models[0].family, models[0].model) if models else ()
            words = [f"{word}{value}" for word, value in zip(("", "family ", "model "), found, strict=False) if value]
            return f"no event table for {' '.join(words) or 'an unknown processor'}"
        return self.table.absent.get(role, f"no event of {self.table.microarchitecture} counts it")

    def _smt_off(self) -> bool:
        return self._context.topology.threads_per_core == 1 and self._context.topology.smt_active is not True

    def _of_threads(self, rows: Sequence[CoreEvent], core: EventSource) -> list[ChosenEvent] | str:
        try:
            return [self._of_thread(row, core) for row in rows]
        except InputError as error:
            return str(error)

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

    def sampling(self) -> ChosenSampling | str:
        """Return how to sample loads, or why they cannot be sampled."""
        row = self.table.sampling if self.table else None
        if row is None:
            return self._no_event(SAMPLES)
        source = next((candidate for name, candidate in self._sources.items() if re.fullmatch(row.pmus, name)), None)
        if source is None:
            return f"no {_shown(row.pmus)} among the event sources ({_kinds(self._sources)}){self._guest()}"
        if row.method == "pebs" and source.caps.get("max_precise") == "0":
            return f"{source.name} has no precise sampling (caps/max_precise is 0)"
        # IBS cannot exclude the kernel unless the driver filters in software (swfilt)
        everything = row.method == "ibs" and "swfilt" not in source.formats
        refusal = self._refused(1 if everything else 2, "sampling the kernel too" if everything else "sampling")
        return refusal or self._sampled(row, source)

    def _sampled(self, row: SampledEvent, source: EventSource) -> ChosenSampling | str:
        optional = [term for term in row.optional if term.partition("=")[0] in source.formats]
        needs_aux = row.aux is not None and row.aux_alias in source.aliases
        try:
            words = encode(source, ",".join([row.terms, *optional]))
            aux = encode(source, row.aux)["config"] if row.aux is not None and needs_aux else None
        except InputError as error:
            return str(error)
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
