# SPDX-License-Identifier: Apache-2.0
"""Content of third-party texts: results, results without a value, and inconsistencies.

A reading has the kind, field names and metric names of an own measurement, with plain numbers instead of estimates: no
text states an uncertainty. Missing values are ``None``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from calibration.measurements import row_of
from calibration.measurements.base import Metric, cells_of
from calibration.model import Model
from calibration.sutprobe.jitter import JitterInterval

Row = tuple[float | None, ...]
Named = tuple[str, str, float]
"""Name, title and value of a metric."""

SUFFIXES: Final = ("_ns", "_ticks", "_mb_s")
"""Ends of the names of values that an own measurement has with an interval."""


class ReadValues(Model):
    """Base of the values of one kind; ``kind`` is the discriminator."""

    kind: str

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics, named like those of a measurement of the kind."""
        for name, title, value in self._named():
            row = row_of(name)
            yield Metric(
                name=name,
                title=title,
                value=value,
                unit=row.unit,
                interval=None,
                coverage=None,
                estimator=None,
                placements=None,
                better=row.better,
            )

    def _named(self) -> Iterator[Named]:
        raise NotImplementedError


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

    def _named(self) -> Iterator[Named]:
        name, title = ("", "") if self.cpu is None else (f".cpu{self.cpu}", f", CPU {self.cpu}")
        ticks = median(interval.inst_jitter_cycles for interval in self.intervals)
        yield f"jitter{name}.inst_jitter_ticks", f"Jitter per interval{title}", ticks


class ReadIdleLatency(ReadValues):
    """Latency of ``cpu`` to memory of ``node``; ``clocks`` is the same time in the text's ``clock``."""

    kind: Literal["idle_latency"] = "idle_latency"
    cpu: int | None
    node: int | None
    latency_ns: float
    clocks: float | None
    clock: str | None

    def _named(self) -> Iterator[Named]:
        name, title = "idle_latency", "Idle latency"
        if self.cpu is not None:
            name, title = f"{name}.cpu{self.cpu}", f"{title}, CPU {self.cpu}"
            if self.node is not None:
                name, title = f"{name}.node{self.node}", f"{title} to memory of node {self.node}"
        yield f"{name}.latency_ns", title, self.latency_ns


class ReadMatrix(ReadValues):
    """A value for the CPUs of ``cpu_nodes`` (rows) and the memory of ``memory_nodes`` (columns)."""

    cpu_nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]

    field: ClassVar[str]
    title: ClassVar[str]

    @property
    def rows(self) -> tuple[Row, ...]:
        """The values, one row per node of ``cpu_nodes``."""
        rows: tuple[Row, ...] = getattr(self, self.field)
        return rows

    def _named(self) -> Iterator[Named]:
        for row, column, value in cells_of(self.cpu_nodes, self.memory_nodes, self.rows):
            yield f"{self.kind}.{row}.{column}.{self.field}", self.title.format(row, column), value


class ReadLatencyMatrix(ReadMatrix):
    """Latency of loads."""

    kind: Literal["latency_matrix"] = "latency_matrix"
    latency_ns: tuple[Row, ...]

    field: ClassVar[str] = "latency_ns"
    title: ClassVar[str] = "Latency, CPUs of node {} to memory of node {}"


class ReadBandwidthMatrix(ReadMatrix):
    """Bandwidth of reads."""

    kind: Literal["bandwidth_matrix"] = "bandwidth_matrix"
    bandwidth_mb_s: tuple[Row, ...]

    field: ClassVar[str] = "bandwidth_mb_s"
    title: ClassVar[str] = "Read bandwidth, CPUs of node {} from memory of node {}"


class ReadMixes(ReadValues):
    """Bandwidth in MB/s by mix, as moved by memory."""

    bandwidth_mb_s: dict[str, float]

    title: ClassVar[str]

    def _named(self) -> Iterator[Named]:
        for mix, value in self.bandwidth_mb_s.items():
            yield f"{self.kind}.{mix}.bandwidth_mb_s", f"{self.title}, {mix}", value


class ReadPeakInjectionBandwidth(ReadMixes):
    """Bandwidth in one shape."""

    kind: Literal["peak_injection_bandwidth"] = "peak_injection_bandwidth"
    title: ClassVar[str] = "Peak injection bandwidth"


class ReadMaxBandwidth(ReadMixes):
    """The best bandwidth of a search for each mix."""

    kind: Literal["max_bandwidth"] = "max_bandwidth"
    title: ClassVar[str] = "Maximum bandwidth"


class ReadLoadedPoint(Model):
    """Latency and bandwidth at one injection delay."""

    inject_delay: int
    latency_ns: float
    bandwidth_mb_s: float


class ReadLoadedLatency(ReadValues):
    """Latency under load, in the text's order of delays."""

    kind: Literal["loaded_latency"] = "loaded_latency"
    points: tuple[ReadLoadedPoint, ...]

    def _named(self) -> Iterator[Named]:
        """Yield both ends of the sweep: latency and bandwidth under full load, latency at the longest delay."""
        points = {point.inject_delay: point for point in self.points}
        for delay in dict.fromkeys((min(points), max(points))):
            title = f"Latency under load, inject delay {delay}"
            yield f"loaded_latency.{delay}.latency_ns", title, points[delay].latency_ns
        delay = min(points)
        title = f"Bandwidth beside the probe, inject delay {delay}"
        yield f"loaded_latency.{delay}.bandwidth_mb_s", title, points[delay].bandwidth_mb_s


class ReadC2cLatency(ReadValues):
    """Latency of a line in another core's cache; matrices are writers' nodes (rows) by readers' nodes."""

    kind: Literal["c2c_latency"] = "c2c_latency"
    local_hit_ns: float | None
    local_hitm_ns: float | None
    nodes: tuple[int, ...]
    remote_hitm_writer_homed_ns: tuple[Row, ...]
    remote_hitm_reader_homed_ns: tuple[Row, ...]

    def _named(self) -> Iterator[Named]:
        for name, value in (("hit", self.local_hit_ns), ("hitm", self.local_hitm_ns)):
            if value is not None:
                yield f"c2c_latency.local_{name}_ns", f"Cache-to-cache latency, local {name.upper()}", value
        matrices = {"writer": self.remote_hitm_writer_homed_ns, "reader": self.remote_hitm_reader_homed_ns}
        for homed, matrix in matrices.items():
            for writer, reader, cell in cells_of(self.nodes, self.nodes, matrix) if matrix else ():
                title = f"HITM, writer in node {writer}, reader in node {reader}, {homed} homed"
                name = f"c2c_latency.{writer}.{reader}.remote_hitm_{homed}_homed_ns"
                yield name, f"Cache-to-cache latency, {title}", cell


if TYPE_CHECKING:
    AnyReadValues = ReadValues
else:
    AnyReadValues = Annotated[
        ReadJitter
        | ReadBandwidthMatrix
        | ReadPeakInjectionBandwidth
        | ReadMaxBandwidth
        | ReadLatencyMatrix
        | ReadIdleLatency
        | ReadLoadedLatency
        | ReadC2cLatency,
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
    fields = reading.model_dump(mode="json")
    return {"complete": reading.complete, **fields, **_with_intervals(fields.pop("values"))}


def _with_intervals(values: Any) -> Any:
    """Return *values* with a null ``<name>_interval`` and ``<name>_prediction`` beside every value."""
    if isinstance(values, list):
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
