# SPDX-License-Identifier: Apache-2.0
"""The figures that templates may ask for: each takes measurements, draws, and names the file for the page.

Templates decide which figure stands where and what is said about it; here is what each is drawn from.
"""

from collections.abc import Sequence

from calibration.context.model import Cache
from calibration.counters.volume import Direction
from calibration.measurements.bandwidth_ladder import BandwidthLadderValues
from calibration.measurements.bandwidth_scaling import BandwidthScalingValues
from calibration.measurements.c2c_matrix import C2cMatrixValues
from calibration.measurements.core_frequency import CoreFrequencyValues
from calibration.measurements.counted_volume import CountedVolumeValues
from calibration.measurements.jitter import JitterValues
from calibration.measurements.latency_ladder import LatencyLadderValues
from calibration.measurements.loaded_latency import LoadedLatencyValues
from calibration.measurements.prefetcher_effect import PrefetcherEffectValues
from calibration.measurements.regulation import Method, RegulationValues
from calibration.measurements.sustained_bandwidth import SustainedBandwidthValues
from calibration.report import figures, filters
from calibration.results.model import Measurement
from calibration.results.readings import ReadBandwidthMatrix, Reading, ReadLatencyMatrix, ReadLoadedLatency
from calibration.statistics import Estimate
from calibration.sutprobe import VolumeBytes

FOLDER = "figures"
"""Where figures lie, relative to their page."""


class Drawings:
    """Draws the figures of one page and keeps their SVG text by path, in the order in which they were asked for."""

    def __init__(self, caches: Sequence[Cache] = ()) -> None:
        self._caches = caches
        self.drawn: dict[str, str] = {}

    def _keep(self, name: str, svg: str) -> str:
        path = f"{FOLDER}/{filters.slug(name)}.svg"
        if path in self.drawn:
            raise ValueError(f"expected one figure named {path}, found two")
        self.drawn[path] = svg
        return path

    def jitter(self, measurements: Sequence[Measurement], name: str) -> str:
        """Draw the gap histogram of all CPUs in *measurements*, and return the figure's path."""
        series = []
        thresholds = []
        for measurement in measurements:
            values = measurement.values
            if not isinstance(values, JitterValues):
                raise TypeError(f"expected a jitter measurement, found {measurement.kind}")
            thresholds.append(values.gaps.threshold_ns)
            series.append(
                figures.Histogram(
                    label=f"CPU {values.cpu}, {'isolated' if values.isolated else 'not isolated'}",
                    bins=tuple((each.from_ns, each.to_ns, each.count) for each in values.gaps.histogram),
                    wall_s=values.gaps.wall_s,
                    longest_ns=values.gaps.max_ns,
                )
            )
        return self._keep(name, figures.histogram(series, max(thresholds), invalid=invalid_text(measurements)))

    def core_frequency(self, measurement: Measurement) -> str:
        """Draw the clock of every core under each kind of work, and return the figure's path."""
        values = measurement.values
        if not isinstance(values, CoreFrequencyValues):
            raise TypeError(f"expected core frequencies, found {measurement.kind}")
        works = list(dict.fromkeys(row.work for row in values.rows))
        series = [
            figures.Clocks(
                label=row.name,
                group=works.index(row.work),
                filled=row.active == "all",
                points=tuple(
                    (point.cpu, point.frequency_hz) for point in sorted(row.points, key=lambda each: each.cpu)
                ),
            )
            for row in values.rows
        ]
        return self._keep(measurement.id, figures.clocks(series, invalid=invalid_text([measurement])))

    def heat_map(
        self,
        measurement: Measurement,
        *,
        rows: Sequence[int],
        columns: Sequence[int],
        cells: Sequence[Sequence[Estimate | None]],
        what: str,
        unit: str,
        scale: float = 1.0,
    ) -> str:
        """Draw a node matrix of *what*, its values divided by *scale* to be in *unit*, and return the figure's path."""
        svg = figures.heat_map(
            rows, columns, cells, what=what, unit=unit, scale=scale, invalid=invalid_text([measurement])
        )
        return self._keep(measurement.id, svg)

    def core_matrix(self, measurement: Measurement, what: str) -> str:
        """Draw *what* from each CPU to each other, and return the figure's path."""
        values = measurement.values
        if not isinstance(values, C2cMatrixValues):
            raise TypeError(f"expected a core-to-core matrix, found {measurement.kind}")
        svg = figures.core_map(
            values.cpus, values.nodes, filters.values(values.latency_ns), what=what, invalid=invalid_text([measurement])
        )
        return self._keep(measurement.id, svg)

    def loaded_latency(self, measurement: Measurement) -> str:
        """Draw latency against bandwidth, one curve per probe, and return the figure's path."""
        values = measurement.values
        if not isinstance(values, LoadedLatencyValues):
            raise TypeError(f"expected a loaded latency measurement, found {measurement.kind}")
        probes = sorted({(probe.cpu, probe.node) for point in values.points for probe in point.probes})
        curves = []
        labels: list[list[str]] = []
        for cpu, node in probes:
            points = [
                (point.inject_delay, point.bandwidth_mb_s, probe.latency_ns)
                for point in values.points
                for probe in point.probes
                if (probe.cpu, probe.node) == (cpu, node)
            ]
            curves.append(
                figures.Curve(label=f"CPU {cpu}, memory of node {node}", points=tuple((x, y) for _, x, y in points))
            )
            first = not labels
            ends = {points[0][0], points[-1][0]} if first else set()
            labels.append([f"delay {delay}" if delay in ends else "" for delay, _, _ in points])
        zero = {
            (each.cpu, each.node): filters.middle(
                (*each.windows_ns_start, *each.windows_ns_middle, *each.windows_ns_end)
            )
            for each in values.zero_load
        }
        marks = [
            figures.Mark(latency, f"CPU {probe[0]} without load: {filters.figure(latency, 'ns')} ns")
            for probe in probes
            if (latency := zero.get(probe)) is not None
        ]
        svg = figures.load_curve(curves, labels, marks, invalid=invalid_text([measurement]))
        return self._keep(measurement.id, svg)

    def latency_ladder(self, measurements: Sequence[Measurement], name: str) -> str:
        """Draw latency against working-set size, one curve per order and stride, and return the figure's path."""
        lines: dict[str, list[tuple[float | Estimate, Estimate]]] = {}
        plateaus: list[figures.Plateau] = []
        for measurement in measurements:
            values = measurement.values
            if not isinstance(values, LatencyLadderValues):
                raise TypeError(f"expected a latency ladder, found {measurement.kind}")
            for point in values.points:
                label = f"{SERIES[values.series]}{point.order}, stride {filters.size(point.stride_bytes)}"
                if values.series == "copies":
                    label = f"{len(values.cpus)} copies, {label}"
                lines.setdefault(label, []).append((float(point.size_bytes), point.latency_ns))
            plateaus += _plateaus(values)
        caches = [
            figures.Mark(
                float(each.size_bytes),
                f"L{each.level}{'d' if each.type == 'Data' else ''}\n{filters.size(each.size_bytes)}",
            )
            for each in self._caches
            if each.type != "Instruction" and each.size_bytes is not None
        ]
        curves = [figures.Curve(label=label, points=tuple(points)) for label, points in lines.items()]
        svg = figures.size_curve(curves, caches, plateaus, invalid=invalid_text(measurements))
        return self._keep(name, svg)

    def prefetcher_effect(self, measurements: Sequence[Measurement], name: str) -> str:
        """Draw latency against stride, one curve per order and state of the prefetchers, and return its path."""
        lines: dict[str, list[tuple[float | Estimate, Estimate]]] = {}
        for measurement in measurements:
            values = measurement.values
            if not isinstance(values, PrefetcherEffectValues):
                raise TypeError(f"expected an effect of prefetchers, found {measurement.kind}")
            state = "as found" if values.prefetchers == "as_found" else "off"
            for point in values.points:
                line = lines.setdefault(f"{point.order}, prefetchers {state}", [])
                line.append((float(point.stride_bytes), point.latency_ns))
        curves = [figures.Curve(label=label, points=tuple(points)) for label, points in lines.items()]
        return self._keep(name, figures.stride_curve(curves, invalid=invalid_text(measurements)))

    def bandwidth_ladder(self, measurement: Measurement) -> str:
        """Draw bandwidth against the size of a thread's buffer, one curve per mix, and return the figure's path."""
        values = measurement.values
        if not isinstance(values, BandwidthLadderValues):
            raise TypeError(f"expected a bandwidth ladder, found {measurement.kind}")
        lines: dict[str, list[tuple[float | Estimate, Estimate]]] = {}
        for point in values.points:
            lines.setdefault(point.mix, []).append((float(point.size_bytes), point.program_mb_s))
        caches = [
            figures.Mark(float(each.share_bytes), f"L{each.level}\n{filters.size(each.share_bytes)}")
            for each in values.caches
        ]
        curves = [figures.Curve(label=mix, points=tuple(points)) for mix, points in lines.items()]
        return self._keep(measurement.id, figures.bandwidth_sizes(curves, caches, invalid=invalid_text([measurement])))

    def bandwidth_scaling(self, measurements: Sequence[Measurement], name: str) -> str:
        """Draw bandwidth against the number of threads, one curve per order, and return the figure's path."""
        curves = []
        enough = []
        for measurement in measurements:
            values = measurement.values
            if not isinstance(values, BandwidthScalingValues):
                raise TypeError(f"expected a bandwidth by number of threads, found {measurement.kind}")
            how = ORDERS[values.order]
            points = tuple((float(point.threads), point.bandwidth_mb_s) for point in values.points)
            curves.append(figures.Curve(label=f"{values.mix}, {how}", points=points))
            share = filters.exact_percent(values.enough_fraction)
            enough.append(
                figures.Mark(float(values.enough_threads), f"{values.enough_threads} reach {share} of the best, {how}")
            )
        return self._keep(name, figures.thread_curve(curves, enough, invalid=invalid_text(measurements)))

    def sustained_bandwidth(self, measurements: Sequence[Measurement], name: str) -> str:
        """Draw bandwidth over the seconds of load, one curve per mix, and return the figure's path."""
        curves = []
        for measurement in measurements:
            values = measurement.values
            if not isinstance(values, SustainedBandwidthValues):
                raise TypeError(f"expected a sustained bandwidth, found {measurement.kind}")
            points = [((place + 0.5) * values.window_s, each) for place, each in enumerate(values.windows_mb_s)]
            curves.append((values.mix, points))
        return self._keep(name, figures.course_curve(curves, invalid=invalid_text(measurements)))

    def regulation(self, measurements: Sequence[Measurement], name: str) -> str:
        """Draw bandwidth against the number of no-ops, one curve per number of threads, and return the figure's path.

        Of *measurements*, all have the prefetchers in one state.
        """
        curves = [
            figures.Curve(
                label=threads(values.threads),
                points=tuple((float(point.nops), point.bandwidth_mb_s) for point in values.points),
            )
            for values in regulated(measurements)
        ]
        return self._keep(name, figures.regulation_curve(curves, invalid=invalid_text(measurements)))

    def regulated_latency(
        self, measurements: Sequence[Measurement], method: Method, what: str, name: str
    ) -> str | None:
        """Draw the latency by *method* against bandwidth, and return the figure's path; ``None`` without any.

        *what* is the latency's name. Of *measurements*, all have the prefetchers in one state.
        """
        curves = []
        for values in regulated(measurements):
            found = [(point, point.latency_ns(method)) for point in values.points]
            points = tuple((point.bandwidth_mb_s, latency) for point, latency in found if latency is not None)
            if points:
                curves.append(figures.Curve(label=threads(values.threads), points=points))
        if not curves:
            return None
        labels = [[""] * len(curve.points) for curve in curves]
        svg = figures.load_curve(curves, labels, [], what=f"{what}, ns", invalid=invalid_text(measurements))
        return self._keep(name, svg)

    def variation(self, series: Sequence[tuple[str, Sequence[float]]], name: str) -> str:
        """Draw the coefficients of variation of each method of *series*, and return the figure's path."""
        return self._keep(name, figures.variation_bars(series))

    def counted_volume(self, measurement: Measurement) -> str | None:
        """Draw the known and the counted bytes of one repeat by direction, and return the figure's path.

        ``None`` where nothing of either direction was counted.
        """
        values = measurement.values
        if not isinstance(values, CountedVolumeValues):
            raise TypeError(f"expected a counted volume, found {measurement.kind}")
        if values.counted is None:
            return None
        groups = []
        for direction, words in DIRECTION_WORDS.items():
            bars = []
            if (found := values.counted.of(direction)) is not None:
                bars.append(_bar("counted by the memory controllers", found.counted_bytes / values.repeats, 1))
            bars += [
                _bar("read from local memory by the cores' count", each.counted_bytes / values.repeats, 2)
                for each in values.counted.others
                if each.role == "core.offcore_reads" and direction == "reads"
            ]
            if bars:
                known = [
                    *_bar(f"known: {values.passes} triads", phase_bytes(values.known.triad, direction), 0),
                    *_bar("known: initialisation", phase_bytes(values.known.init, direction), 4),
                ]
                groups.append((words, [known, *bars]))
        if not groups:
            return None
        return self._keep(measurement.id, figures.volume_bars(groups, invalid=invalid_text([measurement])))

    def read_matrix(self, reading: Reading) -> str:
        """Draw a node matrix that was read from a text, and return the figure's path."""
        values = reading.values
        if isinstance(values, ReadLatencyMatrix):
            cells, what, unit, scale = values.latency_ns, "Idle latency", "ns", 1.0
        elif isinstance(values, ReadBandwidthMatrix):
            cells, what, unit, scale = values.bandwidth_mb_s, "Read bandwidth", "GB/s", 1000.0
        else:
            raise TypeError(f"expected a node matrix, found {values.kind}")
        known = [[None if cell is None else observed(cell, unit) for cell in row] for row in cells]
        svg = figures.heat_map(values.cpu_nodes, values.memory_nodes, known, what=what, unit=unit, scale=scale)
        return self._keep(f"read-{reading.id}", svg)

    def read_load(self, reading: Reading) -> str:
        """Draw latency against bandwidth as read from a text, and return the figure's path."""
        values = reading.values
        if not isinstance(values, ReadLoadedLatency):
            raise TypeError(f"expected a loaded latency, found {values.kind}")
        ends = {values.points[0].inject_delay, values.points[-1].inject_delay}
        points = tuple(
            (observed(each.bandwidth_mb_s, "MB/s"), observed(each.latency_ns, "ns")) for each in values.points
        )
        labels = [f"delay {each.inject_delay}" if each.inject_delay in ends else "" for each in values.points]
        svg = figures.load_curve([figures.Curve(label=reading.instrument, points=points)], [labels], [])
        return self._keep(f"read-{reading.id}", svg)


def regulated(measurements: Sequence[Measurement]) -> list[RegulationValues]:
    """Return the values of *measurements*, which are of bandwidth regulation, by number of threads."""
    found = []
    for measurement in measurements:
        if not isinstance(measurement.values, RegulationValues):
            raise TypeError(f"expected a bandwidth regulation, found {measurement.kind}")
        found.append(measurement.values)
    return sorted(found, key=lambda values: values.threads)


def threads(count: int) -> str:
    """Return a number of threads in words."""
    return f"{count} thread{'s' * (count > 1)}"


def observed(value: float, unit: str) -> Estimate:
    """Return a figure that was seen once, so that nobody knows how sure it is."""
    return Estimate(
        value=value,
        unit=unit,
        estimator="observed",
        interval=None,
        coverage=None,
        placements=1,
        windows=1,
        within_spread=None,
        between_spread=None,
        minimum=value,
        maximum=value,
        bimodal=False,
        converged=None,
        samples=((value,),),
    )


def _bar(label: str, size: float, colour: int) -> list[figures.Part]:
    """Return a bar of one part, in the colour of that place."""
    return [figures.Part(label, size, figures.COLOURS[colour])]


def phase_bytes(known: VolumeBytes, direction: Direction) -> int:
    """Return what a phase of the triads moves in *direction*, lines that are read only to be written included."""
    read = known.program_read_bytes + known.allocate_read_bytes
    written = known.program_written_bytes
    return {"reads": read, "writes": written, "reads_and_writes": read + written}[direction]


DIRECTION_WORDS: dict[Direction, str] = {
    "reads": "read",
    "writes": "written",
    "reads_and_writes": "read and written",
}
"""Directions of memory traffic, in words."""

ORDERS = {"fill": "node after node", "spread": "spread over the nodes"}
"""How threads were added, in words."""


SERIES = {"random": "", "prefetched": "prefetched: ", "interleaved": "interleaved: ", "copies": ""}
"""What the name of a curve begins with."""


def _plateaus(values: LatencyLadderValues) -> list[figures.Plateau]:
    """Return the recognised levels as stretches: each from half the size where it ends down to the level before."""
    sizes = sorted(point.size_bytes for point in values.points)
    found = []
    start = sizes[0] if sizes else 0
    for level in values.levels:
        end = level.size_bytes if level.size_bytes is not None else sizes[-1]
        inside = [size for size in sizes if start <= size <= end]
        near = [
            point.size_bytes
            for point in values.points
            if point.size_bytes in inside and abs(point.latency_ns.value / level.latency_ns.value - 1) < PLATEAU_NEAR
        ]
        if near:
            found.append(
                figures.Plateau(
                    float(min(near)),
                    float(end),
                    level.latency_ns.value,
                    f"{filters.level(level.name, level.size_bytes)}: "
                    f"{filters.significant(level.latency_ns.value, 3)} ns",
                )
            )
        start = end
    return found


PLATEAU_NEAR = 0.15
"""A point is drawn as part of a level whose latency it has within this share."""


def invalid_text(measurements: Sequence[Measurement]) -> str:
    """Return the codes that make any of *measurements* invalid, or an empty text."""
    codes = {
        flag.code for measurement in measurements for flag in measurement.validity.flags if flag.severity == "invalid"
    }
    return ", ".join(sorted(codes))
