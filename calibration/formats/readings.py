# SPDX-License-Identifier: Apache-2.0
"""Content of third-party texts: results, results without a value, and inconsistencies.

A reading has the kind, field names and metric names of an own measurement, with plain numbers instead of estimates: no
text states an uncertainty. Missing values are ``None``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from calibration.base.model import Model
from calibration.measurements import declaration
from calibration.measurements.base import Metric
from calibration.measurements.table import Table, TableRow
from calibration.sutprobe.jitter import JitterInterval

Format = Literal["csit_page", "mlc", "pma_jitter", "mess"]
"""What a text is recognised as."""

SUFFIXES: Final = ("_ns", "_ticks", "_mb_s")
"""Ends of the names of values that an own measurement has with an interval."""


class ReadValues(Model):
    """Base of the values of one kind; ``kind`` is the discriminator."""

    kind: str

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics, named like those of a measurement of the kind."""
        raise NotImplementedError

    def fields(self) -> dict[str, Any]:
        """Return the values as plain fields."""
        return self.model_dump()

    def _metric(self, name: str, title: str, value: float) -> Metric:
        return declaration(self.kind).metric(name, title, value)


class ReadJitter(ReadValues):
    """Jitter of one CPU, in ``ticks`` of the clock named by the text, at an unknown rate.

    ``loops`` are the turns of one execution, ``executions`` those of one display interval, ``iterations`` the requested
    number of intervals.
    """

    kind: Literal["jitter"] = "jitter"
    cpu: int | None
    loops: int | None
    executions: int | None
    iterations: int | None
    ticks: str | None
    intervals: tuple[JitterInterval, ...]

    def metrics(self) -> Iterator[Metric]:
        """Yield the median jitter of an interval."""
        name, title = ("", "") if self.cpu is None else (f"cpu{self.cpu}.", f", CPU {self.cpu}")
        ticks = median(interval.inst_jitter_cycles for interval in self.intervals)
        yield self._metric(f"{name}inst_jitter_ticks", f"Jitter per interval{title}", ticks)


class ReadIdleLatency(ReadValues):
    """Latency of ``cpu`` to memory of ``node``; ``clocks`` is the same time in the text's ``clock``."""

    kind: Literal["idle_latency"] = "idle_latency"
    cpu: int | None
    node: int | None
    latency_ns: float
    clocks: float | None
    clock: str | None

    def metrics(self) -> Iterator[Metric]:
        """Yield the latency."""
        name, title = "", "Idle latency"
        if self.cpu is not None:
            name, title = f"cpu{self.cpu}.", f"{title}, CPU {self.cpu}"
            if self.node is not None:
                name, title = f"{name}node{self.node}.", f"{title} to memory of node {self.node}"
        yield self._metric(f"{name}latency_ns", title, self.latency_ns)


class ReadMixes(ReadValues):
    """Bandwidth in MB/s by mix, as moved by memory: in one shape, or the best of a search for each mix."""

    kind: Literal["peak_injection_bandwidth", "max_bandwidth"]
    bandwidth_mb_s: dict[str, float]

    def metrics(self) -> Iterator[Metric]:
        """Yield the bandwidth of each mix."""
        for mix, value in self.bandwidth_mb_s.items():
            yield self._metric(f"{mix}.bandwidth_mb_s", f"{declaration(self.kind).title}, {mix}", value)


class ReadLoadedPoint(Model):
    """Latency and bandwidth at one injection delay."""

    inject_delay: int
    latency_ns: float
    bandwidth_mb_s: float


class ReadLoadedLatency(ReadValues):
    """Latency under load, in the text's order of delays."""

    kind: Literal["loaded_latency"] = "loaded_latency"
    points: tuple[ReadLoadedPoint, ...]

    def metrics(self) -> Iterator[Metric]:
        """Yield both ends of the sweep: latency and bandwidth under full load, latency at the longest delay."""
        points = {point.inject_delay: point for point in self.points}
        for delay in dict.fromkeys((min(points), max(points))):
            title = f"Loaded latency, inject delay {delay}"
            yield self._metric(f"{delay}.latency_ns", title, points[delay].latency_ns)
        delay = min(points)
        title = f"Bandwidth beside the probe, inject delay {delay}"
        yield self._metric(f"{delay}.bandwidth_mb_s", title, points[delay].bandwidth_mb_s)


class ReadCurvePoint(Model):
    """Latency at one bandwidth, 0 without load."""

    bandwidth_mb_s: float
    latency_ns: float


class ReadCurve(Model):
    """Latency by increasing bandwidth, with one share of reads in the traffic of the memory."""

    reads_percent: int
    points: tuple[ReadCurvePoint, ...]


class ReadMemoryCurves(ReadValues):
    """Curves of one memory, that with the most reads first."""

    kind: Literal["memory_curves"] = "memory_curves"
    curves: tuple[ReadCurve, ...]

    def metrics(self) -> Iterator[Metric]:
        """Yield the end of the curves with the most and with the fewest reads: highest bandwidth, and latency there."""
        for curve in dict.fromkeys((self.curves[0], self.curves[-1])):
            name, title = f"{curve.reads_percent}pct", f"{curve.reads_percent} % reads"
            yield self._metric(f"{name}.bandwidth_mb_s", f"Highest bandwidth, {title}", curve.points[-1].bandwidth_mb_s)
            yield self._metric(f"{name}.latency_ns", f"Latency there, {title}", curve.points[-1].latency_ns)


class ReadTable(ReadValues):
    """The table of an own measurement of the kind, with numbers for those of its estimates that the text has."""

    kind: Literal["latency_matrix", "bandwidth_matrix", "c2c_latency"]
    table: Table

    @model_validator(mode="after")
    def _typed(self) -> Self:
        declaration(self.kind).values.check(self.table, read=True)
        return self

    def metrics(self) -> Iterator[Metric]:
        """Yield the kind's metrics that the text has."""
        yield from declaration(self.kind).table_metrics(self.table)

    def fields(self) -> dict[str, Any]:
        """Return the table as plain fields, in the layout of the text."""
        return {"kind": self.kind, **declaration(self.kind).values.printed(self.table)}


def table_reading(kind: str, rows: Sequence[dict[str, Any]]) -> Iterator[ReadTable]:
    """Yield the table of *rows*, in which labels that the text does not have are ``None``; nothing without rows."""
    axes = tuple(declaration(kind).values.axes)
    if rows:
        made = tuple(TableRow(dict.fromkeys(axes) | row) for row in rows)
        yield ReadTable.model_validate({"kind": kind, "table": Table(axes=axes, rows=made)})


if TYPE_CHECKING:
    AnyReadValues = ReadValues
else:
    AnyReadValues = Annotated[
        ReadJitter | ReadMixes | ReadIdleLatency | ReadLoadedLatency | ReadMemoryCurves | ReadTable,
        Field(discriminator="kind"),
    ]


class Reading(Model):
    """One result read from text.

    ``instrument`` is the program and its version; ``command`` the shell line shown with it. ``missing`` says what was
    cut off or unreadable. ``notes`` are the lines of the text beside the values.
    """

    id: str = ""
    instrument: str
    command: str | None
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    values: AnyReadValues

    @property
    def complete(self) -> bool:
        """Whether the result is complete."""
        return not self.missing


class NotRead(Model):
    """A result that the text names without a value, and why."""

    kind: str
    what: str
    reason: str


def flat(reading: Reading) -> dict[str, Any]:
    """Return *reading* as a JSON object: the fields of its values, and null as interval and prediction of each."""
    fields = reading.model_dump(mode="json", exclude={"values"})
    return {"complete": reading.complete, **fields, **_with_intervals(reading.values.fields())}


def _with_intervals(values: Any) -> Any:
    """Return *values* with a null ``<name>_interval`` and ``<name>_prediction`` beside every value."""
    if isinstance(values, list | tuple):
        return [_with_intervals(value) for value in values]
    if not isinstance(values, dict):
        return values
    found: dict[str, Any] = {}
    for name, value in values.items():
        found[name] = _with_intervals(value)
        if name.endswith(SUFFIXES):
            found |= {f"{name}_interval": None, f"{name}_prediction": None}
    return found


class Inconsistency(Model):
    """A contradiction in a text, or a reason to doubt a value.

    ``code`` is one of ``INCONSISTENCIES``, ``where`` the part of the text, ``reason`` what is wrong.
    """

    code: str
    where: str
    reason: str


INCONSISTENCIES: Final[Mapping[str, str]] = {
    "ARCHITECTURE": "does not fit the architecture or vendor of the machine",
    "CMDLINE_DAMAGED": "the kernel command line is damaged",
    "COLUMNS_CONTRADICT": "columns of a table that follow from each other do not",
    "COMMAND_CONTRADICTS": "the command shown did not print the output",
    "CORE_NOT_ISOLATED": "the measured core is not isolated",
    "HOST_CONTRADICTS": "the text names one machine, its output another or none",
    "KERNEL_CONTRADICTS": "the kernel that was booted is not the one that ran",
    "NOT_GIVEN": "the text refers to a part that is not in it",
    "NOT_UNDERSTOOD": "a part of the text that no reader recognises: its numbers are in no measurement",
    "ORDER": "values in an impossible order",
    "PLACEHOLDER": "a placeholder in place of a result",
    "SAME_FIGURES": "another page, of another kernel or host, has the same digits",
    "SIZES_CONTRADICT": "tables of one machine have different nodes",
    "STRAY_TEXT": "characters in an output that the program did not print",
    "TRUNCATED": "an output is cut off or partly unreadable",
    "UNIT_NOT_SAID": "numbers without a unit are not values",
    "UNPROVED": "a statement about machines without a value",
}
"""All codes with their meaning."""


def inconsistency(code: str, where: str, reason: str) -> Inconsistency:
    """Return the inconsistency *code*. Raises ``KeyError`` for a code outside the closed list."""
    if code not in INCONSISTENCIES:
        raise KeyError(code)
    return Inconsistency(code=code, where=where, reason=reason)


class Read(Model):
    """The content of one text: its readings in order, results without a value, and inconsistencies."""

    readings: tuple[Reading, ...] = ()
    not_read: tuple[NotRead, ...] = ()
    inconsistencies: tuple[Inconsistency, ...] = ()


def joined(parts: Sequence[Read], more: Iterable[Inconsistency] = ()) -> Read:
    """Return *parts* of a text as one, with *more* inconsistencies.

    A reading's identifier is its kind, with a number from the second of the kind on.
    """
    counts: dict[str, int] = {}
    readings = []
    for reading in (reading for part in parts for reading in part.readings):
        kind = reading.values.kind
        counts[kind] = counts.get(kind, 0) + 1
        readings.append(reading.model_copy(update={"id": kind if counts[kind] == 1 else f"{kind}-{counts[kind]}"}))
    return Read(
        readings=tuple(readings),
        not_read=tuple(gone for part in parts for gone in part.not_read),
        inconsistencies=(*(fault for part in parts for fault in part.inconsistencies), *more),
    )
