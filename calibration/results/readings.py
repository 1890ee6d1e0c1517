# SPDX-License-Identifier: Apache-2.0
"""Readings: results that were read from text, as another program printed it or as a published page shows it.

A reading has the kind and the fields of a measurement made here, with plain numbers where a measurement has estimates:
its uncertainty is not known, and nothing in it is guessed. What the text does not say is ``None``.
"""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from calibration.measurements.base import Metric
from calibration.model import Model
from calibration.sutprobe.jitter import JitterInterval

Number = float | None
Better = Literal["lower", "higher"]


class ReadValues(Model):
    """Base of the values of one kind; ``kind`` tells the kinds apart in a document."""

    kind: str

    def metrics(self) -> Iterator[Metric]:
        """Yield the headline figures, named as those of a measurement of the kind."""
        raise NotImplementedError


def read_metric(name: str, title: str, value: float, unit: str, better: Better) -> Metric:
    """Return the metric of a figure whose uncertainty is not known."""
    return Metric(
        name=name,
        title=title,
        value=value,
        unit=unit,
        interval=None,
        coverage=None,
        estimator=None,
        placements=None,
        better=better,
    )


class ReadJitter(ReadValues):
    """Jitter of one CPU, in ticks of the clock that the text names; no text says how fast that is (``tick_hz``).

    ``loops`` are the turns of one execution, ``executions`` those of one display interval, ``iterations`` the intervals
    that the program was told to show.
    """

    kind: Literal["jitter"] = "jitter"
    cpu: int | None
    loops: int | None
    executions: int | None
    iterations: int | None
    ticks: str | None
    tick_hz: None = None
    intervals: tuple[JitterInterval, ...]

    def metrics(self) -> Iterator[Metric]:
        """Yield the typical spread per interval, in ticks."""
        where = "jitter" if self.cpu is None else f"jitter.cpu{self.cpu}"
        title = "Jitter per interval" + ("" if self.cpu is None else f", CPU {self.cpu}")
        ticks = median(each.inst_jitter_cycles for each in self.intervals)
        yield read_metric(f"{where}.inst_jitter_ticks", title, ticks, "ticks", "lower")


class ReadIdleLatency(ReadValues):
    """Latency of ``cpu`` to memory of ``node``; ``clocks`` is the same time in the ``clock`` that the text names.

    ``of_many`` tells that it is one of a table of CPUs and nodes.
    """

    kind: Literal["idle_latency"] = "idle_latency"
    cpu: int | None
    node: int | None
    latency_ns: float
    clocks: float | None
    clock: str | None
    of_many: bool = False

    def metrics(self) -> Iterator[Metric]:
        """Yield the latency; one of many has CPU and node in its name."""
        name, title = "idle_latency", "Idle latency"
        if self.of_many:
            name, title = (
                f"{name}.cpu{self.cpu}.node{self.node}",
                f"{title}, CPU {self.cpu} to memory of node {self.node}",
            )
        yield read_metric(f"{name}.latency_ns", title, self.latency_ns, "ns", "lower")


class ReadLatencyMatrix(ReadValues):
    """Latency from the CPUs of ``cpu_nodes`` (rows) to the memory of ``memory_nodes`` (columns)."""

    kind: Literal["latency_matrix"] = "latency_matrix"
    cpu_nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    latency_ns: tuple[tuple[Number, ...], ...]

    def metrics(self) -> Iterator[Metric]:
        """Yield every cell that has a value."""
        for row, column, value in cells(self.cpu_nodes, self.memory_nodes, self.latency_ns):
            yield read_metric(
                f"latency_matrix.{row}.{column}.latency_ns",
                f"Latency, CPUs of node {row} to memory of node {column}",
                value,
                "ns",
                "lower",
            )


class ReadBandwidthMatrix(ReadValues):
    """Read bandwidth by the CPUs of ``cpu_nodes`` (rows) from the memory of ``memory_nodes`` (columns)."""

    kind: Literal["bandwidth_matrix"] = "bandwidth_matrix"
    cpu_nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    bandwidth_mb_s: tuple[tuple[Number, ...], ...]

    def metrics(self) -> Iterator[Metric]:
        """Yield every cell that has a value."""
        for row, column, value in cells(self.cpu_nodes, self.memory_nodes, self.bandwidth_mb_s):
            yield read_metric(
                f"bandwidth_matrix.{row}.{column}.bandwidth_mb_s",
                f"Read bandwidth, CPUs of node {row} from memory of node {column}",
                value,
                "MB/s",
                "higher",
            )


def cells(
    rows: tuple[int, ...], columns: tuple[int, ...], values: tuple[tuple[Number, ...], ...]
) -> Iterator[tuple[int, int, float]]:
    """Yield row, column and value of each cell of a matrix that has a value."""
    for row, line in zip(rows, values, strict=True):
        for column, value in zip(columns, line, strict=True):
            if value is not None:
                yield row, column, value


class _ReadMixes(ReadValues):
    """Bandwidth in MB/s by mix, by what memory must move; no text has another shape of access (``plain``)."""

    plain: Literal[False] = False
    bandwidth_mb_s: dict[str, float]

    what: ClassVar[str]

    def metrics(self) -> Iterator[Metric]:
        """Yield the bandwidth of each mix."""
        for mix, value in self.bandwidth_mb_s.items():
            yield read_metric(f"{self.kind}.{mix}.bandwidth_mb_s", f"{self.what}, {mix}", value, "MB/s", "higher")


class ReadPeakInjectionBandwidth(_ReadMixes):
    """Bandwidth by mix in one shape of access."""

    kind: Literal["peak_injection_bandwidth"] = "peak_injection_bandwidth"
    what: ClassVar[str] = "Peak injection bandwidth"


class ReadMaxBandwidth(_ReadMixes):
    """The best bandwidth that a search found for each mix."""

    kind: Literal["max_bandwidth"] = "max_bandwidth"
    what: ClassVar[str] = "Maximum bandwidth"


class ReadLoadedPoint(Model):
    """Latency and bandwidth with one injection delay."""

    inject_delay: int
    latency_ns: float
    bandwidth_mb_s: float


class ReadLoadedLatency(ReadValues):
    """Latency under load, in the order in which the text has the delays."""

    kind: Literal["loaded_latency"] = "loaded_latency"
    points: tuple[ReadLoadedPoint, ...]

    def metrics(self) -> Iterator[Metric]:
        """Yield both ends of the sweep: latency and bandwidth under full load, latency at the longest delay."""
        full = min(self.points, key=lambda point: point.inject_delay)
        least = max(self.points, key=lambda point: point.inject_delay)
        for point in (full, least) if least is not full else (full,):
            yield read_metric(
                f"loaded_latency.{point.inject_delay}.latency_ns",
                f"Latency under load, inject delay {point.inject_delay}",
                point.latency_ns,
                "ns",
                "lower",
            )
        yield read_metric(
            f"loaded_latency.{full.inject_delay}.bandwidth_mb_s",
            f"Bandwidth beside the probe, inject delay {full.inject_delay}",
            full.bandwidth_mb_s,
            "MB/s",
            "higher",
        )


class ReadC2cLatency(ReadValues):
    """Latency of a line that another core's cache holds; matrices are writers' nodes (rows) by readers' nodes."""

    kind: Literal["c2c_latency"] = "c2c_latency"
    local_hit_ns: Number
    local_hitm_ns: Number
    nodes: tuple[int, ...]
    remote_hitm_writer_homed_ns: tuple[tuple[Number, ...], ...]
    remote_hitm_reader_homed_ns: tuple[tuple[Number, ...], ...]

    def metrics(self) -> Iterator[Metric]:
        """Yield every transfer that has a value."""
        title = "Cache-to-cache latency"
        for name, value in (("hit", self.local_hit_ns), ("hitm", self.local_hitm_ns)):
            if value is not None:
                yield read_metric(
                    f"c2c_latency.local_{name}_ns", f"{title}, local {name.upper()}", value, "ns", "lower"
                )
        for homed, matrix in (
            ("writer", self.remote_hitm_writer_homed_ns),
            ("reader", self.remote_hitm_reader_homed_ns),
        ):
            for writer, reader, cell in cells(self.nodes, self.nodes, matrix) if matrix else ():
                yield read_metric(
                    f"c2c_latency.{writer}.{reader}.remote_hitm_{homed}_homed_ns",
                    f"{title}, HITM, writer in node {writer}, reader in node {reader}, {homed} homed",
                    cell,
                    "ns",
                    "lower",
                )


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

    ``instrument`` is the program that printed it and its version as the text says; ``command`` the shell line shown
    with it. ``complete`` is false where the text was cut off or a part of it could not be read, and ``missing`` says
    what. ``notes`` are the lines of the text beside the figures, as they stand there.
    """

    id: str
    instrument: str
    command: str | None
    complete: bool
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    values: AnyReadValues


class NotRead(Model):
    """A result that the text names and has no value for, and why."""

    kind: str
    what: str
    reason: str


def flat(reading: Reading) -> dict[str, Any]:
    """Return *reading* as one object with the fields of its values, and null as the interval of each figure."""
    return {
        **reading.model_dump(mode="json", exclude={"values"}),
        **with_intervals(reading.values.model_dump(mode="json")),
    }


def with_intervals(values: Any) -> Any:
    """Return *values* with ``<name>_interval``, null, beside every figure: nobody knows how sure it is."""
    if isinstance(values, list):
        return [with_intervals(each) for each in values]
    if not isinstance(values, dict):
        return values
    found: dict[str, Any] = {}
    for name, value in values.items():
        found[name] = with_intervals(value)
        if name.endswith(("_ns", "_mb_s", "_hz")) and name != "tick_hz":
            found[f"{name}_interval"] = None
    return found


class Inconsistency(Model):
    """Something in a text that contradicts the rest of it, or that a reader must know before believing a figure.

    ``code`` is one of ``INCONSISTENCIES``, ``where`` the part of the text, ``reason`` what was expected and found.
    """

    code: str
    where: str
    reason: str


INCONSISTENCIES: Mapping[str, str] = {
    "ARCHITECTURE": "what is said of the machine does not go with its architecture or vendor",
    "CMDLINE_DAMAGED": "the kernel command line cannot be what the kernel was booted with",
    "COLUMNS_CONTRADICT": "columns of a table that follow from each other do not",
    "COMMAND_CONTRADICTS": "the command shown is not the one that printed the output",
    "CORE_NOT_ISOLATED": "the measured core is not among those that the kernel isolates",
    "HOST_CONTRADICTS": "the text names one machine and its output another, or none",
    "KERNEL_CONTRADICTS": "the kernel that was booted is not the one that ran",
    "NOT_GIVEN": "the text refers to a part that is not in it",
    "NOT_UNDERSTOOD": "a part of the text that no reader knows: what stands there is in no measurement",
    "ORDER": "figures are not in the order that the hardware allows",
    "PLACEHOLDER": "a placeholder stands where a result should",
    "SAME_FIGURES": "another page, of another kernel or host, has the same digits",
    "SIZES_CONTRADICT": "tables of the same machine have different nodes",
    "STRAY_TEXT": "characters that the program did not print stand in its output",
    "TRUNCATED": "an output was cut off, or a part of it cannot be read",
    "UNIT_NOT_SAID": "figures without a unit: they are no values",
    "UNPROVED": "a statement about machines of which there is no figure",
}
"""Every code there is, and what it means."""


def inconsistency(code: str, where: str, reason: str) -> Inconsistency:
    """Return the inconsistency *code*. Raises ``KeyError`` for a code outside the closed list."""
    if code not in INCONSISTENCIES:
        raise KeyError(code)
    return Inconsistency(code=code, where=where, reason=reason)


class Read(Model):
    """What one text says: its readings in order, what it names without a value, and what contradicts itself."""

    readings: tuple[Reading, ...] = ()
    not_read: tuple[NotRead, ...] = ()
    inconsistencies: tuple[Inconsistency, ...] = ()


def numbered(readings: list[Reading]) -> tuple[Reading, ...]:
    """Return *readings* with identifiers of their own: the kind, and a number from the second of a kind on."""
    seen: dict[str, int] = {}
    found = []
    for each in readings:
        kind = each.values.kind
        seen[kind] = seen.get(kind, 0) + 1
        found.append(each.model_copy(update={"id": kind if seen[kind] == 1 else f"{kind}-{seen[kind]}"}))
    return tuple(found)
