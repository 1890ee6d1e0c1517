# SPDX-License-Identifier: Apache-2.0
"""Bandwidth matrix: read bandwidth from the CPUs of each node to the memory of each node."""

from collections.abc import Iterator
from typing import Literal

from calibration.charts.base import Chart
from calibration.charts.matrices import Matrix, matrices_chart, node_matrix
from calibration.counters.volume import CountedBytes
from calibration.errors import InputError
from calibration.measurements.base import (
    MeasuredRun,
    Metric,
    Parsed,
    Planned,
    Step,
    Values,
    cells_of,
    require_any,
)
from calibration.measurements.counting import BYTE_ROLES, event_options
from calibration.measurements.metric_rows import Record, bandwidth
from calibration.measurements.platform import Shape
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import (
    CountedTrafficSettings,
    Mix,
    Part,
    Run,
    TrafficDeclaration,
    common_buffer_bytes,
    shape_options,
)
from calibration.measurements.traffic_points import Setting, missing_points, mix_bandwidth, setting_of, traffic_flags
from calibration.statistics import Estimate
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.validity import Flag, flag

MIX: Mix = "reads"
"""Mix of all cells: reads alone are equally fast in both directions on every memory."""

LOCAL_DIFFERENCE = 0.05
"""Relative difference between two nodes' local bandwidths that suggests a missing DIMM."""


class BandwidthMatrixSettings(CountedTrafficSettings):
    """Read-only traffic in one *shape*; by default that kept for the platform, else the built-in one."""

    shape: Shape | None = None


class BandwidthMatrixValues(Values):
    """Read bandwidth in MB/s from the memory of ``memory_nodes`` (columns) by all CPUs of ``cpu_nodes`` (rows).

    A cell without a value is ``None`` and listed in ``missing``. ``counted`` has the same shape, ``None`` without
    hardware counters.
    """

    kind: Literal["bandwidth_matrix"] = "bandwidth_matrix"
    cpu_nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    setting: Setting
    bandwidth_mb_s: tuple[tuple[Estimate | None, ...], ...]
    counted: tuple[tuple[CountedBytes | None, ...], ...] | None = None

    def matrix(self) -> Matrix:
        """Return the bandwidths for a chart, in GB/s."""
        return node_matrix("Read bandwidth", "GB/s", (self.cpu_nodes, self.memory_nodes), self.bandwidth_mb_s, 1e3)


class BandwidthMatrix(TrafficDeclaration[BandwidthMatrixSettings, BandwidthMatrixValues]):
    """All CPUs of one node read from one node, for every pair."""

    kind = "bandwidth_matrix"
    title = "Bandwidth matrix"
    question = "How much do the CPUs of each node read from the memory of each node?"
    settings = BandwidthMatrixSettings
    values = BandwidthMatrixValues
    main_chart_rank = 41
    metric_rows = tuple(
        bandwidth(
            name,
            "what the CPUs of the first node read from the memory of the second",
            "read_bandwidth",
            record=record,
            reference="read_{relation}_mb_s",
        )
        for name, record in (
            (
                "bandwidth_matrix.{cpu_node}.{memory_node:=cpu_node}.bandwidth_mb_s",
                Record("read_bandwidth", "Read bandwidth, node {cpu_node} from its own memory", "{cpu_node}", 2),
            ),
            ("bandwidth_matrix.{cpu_node}.{memory_node}.bandwidth_mb_s", None),
        )
    )

    def steps(self, sut: Sut, settings: BandwidthMatrixSettings) -> Iterator[Planned]:
        """Yield one step for all cells, row by row.

        If the profile has no shape, traffic uses the one kept for reads on the platform.
        """
        cells = [[Part(tuple(sut.cpus_of(row)), column)] for row in sut.cpu_nodes for column in sut.memory_nodes]
        if not cells:
            yield self.not_planned("no node with CPUs and no node with memory found")
            return
        size_bytes = common_buffer_bytes(sut, cells, (MIX,))
        cost_s = settings.cost_s([Run(parts, MIX, size_bytes) for parts in cells])
        counters = event_options(sut.context, BYTE_ROLES) if settings.counters else {}
        yield self.traffic_step(
            f"{len(sut.cpu_nodes)} x {len(sut.memory_nodes)} nodes",
            cells,
            (MIX,),
            size_bytes,
            {
                "delay": 0,
                **settings.options(),
                **shape_options(settings, settings.shape, sut.traffic_shape, (MIX,)),
                **counters,
            },
            cost_s=cost_s,
            repeated=settings,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the matrix; a cell without a value is ``None`` and listed with its reason."""
        points = read_result(document, BandwidthResult).points
        target = step.target_half_width
        cells = {
            (sut.node_of(point.cpus[0]), point.nodes[0]): mix_bandwidth(point, target, sut.context) for point in points
        }
        rows = tuple(dict.fromkeys(row for row, _ in cells))
        columns = tuple(dict.fromkeys(column for _, column in cells))
        if len(rows) * len(columns) != len(points):
            raise InputError(f"{len(points)} cells for {len(rows)} x {len(columns)} nodes")
        measured = {f"node {row} from {column}": cell for (row, column), cell in cells.items() if cell is not None}
        require_any(measured, points, "cell")
        flags: list[Flag] = [*traffic_flags(sut, document, points, measured)]
        local = {row: cell.bandwidth_mb_s.value for (row, column), cell in cells.items() if cell and row == column}
        if local and max(local.values()) / min(local.values()) - 1 > LOCAL_DIFFERENCE:
            low, high = min(local, key=lambda node: local[node]), max(local, key=lambda node: local[node])
            flags.append(
                flag("NODE_ASYMMETRY", f"node {low} reads {local[low]:.0f} MB/s locally, node {high} {local[high]:.0f}")
            )
        yield Parsed(
            id=step.id,
            values=BandwidthMatrixValues(
                cpu_nodes=rows,
                memory_nodes=columns,
                setting=setting_of(points[0]),
                bandwidth_mb_s=tuple(
                    tuple(cell.bandwidth_mb_s if (cell := cells[row, column]) else None for column in columns)
                    for row in rows
                ),
                counted=tuple(
                    tuple(cell.counted if (cell := cells[row, column]) else None for column in columns) for row in rows
                )
                if any(cell.counted for cell in measured.values())
                else None,
            ),
            flags=tuple(flags),
            missing=missing_points(points),
        )

    def main_chart(self, run: MeasuredRun, width: int) -> Chart | None:
        """Return bandwidth between nodes; ``None`` for a single node, or if the chart of latencies includes it."""
        measured = () if run.of("latency_matrix") else run.of(self.kind)[:1]
        return matrices_chart("numa", [measurement.values.matrix() for measurement in measured], width, measured)

    def metrics(self, values: BandwidthMatrixValues) -> Iterator[Metric]:
        """Yield every cell that has a value."""
        for row, column, cell in cells_of(values.cpu_nodes, values.memory_nodes, values.bandwidth_mb_s):
            title = f"Read bandwidth, CPUs of node {row} from memory of node {column}"
            yield self.metric(f"{row}.{column}.bandwidth_mb_s", title, cell)


MEASUREMENT = BandwidthMatrix()
