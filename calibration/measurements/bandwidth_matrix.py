# SPDX-License-Identifier: Apache-2.0
"""Bandwidth matrix: read bandwidth from the CPUs of each node to the memory of each node."""

from collections.abc import Iterator, Sequence
from operator import truediv
from typing import ClassVar, Literal

from calibration.base import units
from calibration.base.statistics import Estimate
from calibration.base.validity import Flag, flag
from calibration.charts.base import Chart
from calibration.charts.matrices import matrices_chart
from calibration.counters.volume import CountedBytes
from calibration.measurements.base import MeasuredRun, Metric, Parsed, Planned, Step
from calibration.measurements.counting import BYTE_ROLES, event_options
from calibration.measurements.evidence import require_any
from calibration.measurements.metric_rows import BANDWIDTH_REPEATS, MEMORY_TRAFFIC, Record, bandwidth, fraction
from calibration.measurements.node_matrix import NodeMatrixValues, near_metrics, told_apart
from calibration.measurements.platform import Setting, Shape
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import (
    CountedTrafficSettings,
    Mix,
    Part,
    TrafficDeclaration,
    common_buffer_bytes,
    shape_options,
)
from calibration.measurements.traffic_points import missing_points, mix_bandwidth, setting_of, traffic_flags
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result

MIX: Mix = "reads"
"""Mix of all cells: reads alone are equally fast in both directions on every memory."""

LOCAL_DIFFERENCE = 0.05
"""Relative difference between two nodes' local bandwidths that suggests a missing DIMM."""


class BandwidthMatrixSettings(CountedTrafficSettings):
    """Read-only traffic in one *shape*; by default that kept for the platform, else the built-in one."""

    shape: Shape | None = None


class BandwidthMatrixValues(NodeMatrixValues):
    """Read bandwidth in MB/s from the memory of each node by all CPUs of each node.

    ``counted`` is what hardware counters counted meanwhile, ``None`` without them.
    """

    kind: Literal["bandwidth_matrix"] = "bandwidth_matrix"
    setting: Setting

    columns: ClassVar = {"bandwidth_mb_s": Estimate | None, "counted": CountedBytes | None}
    drawn = ("bandwidth_mb_s", "Read bandwidth", "GB/s", 1e3)


class BandwidthMatrix(TrafficDeclaration[BandwidthMatrixSettings, BandwidthMatrixValues]):
    """All CPUs of one node read from one node, for every pair."""

    title = "Bandwidth matrix"
    question = "How much do the CPUs of each node read from the memory of each node?"
    titles: ClassVar = {
        "{cpu_node}.{memory_node}.bandwidth_mb_s": (
            "Read bandwidth, CPUs of node {cpu_node} from memory of node {memory_node}"
        )
    }
    main_chart_rank = 41
    metric_rows = (
        *(
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
        ),
        fraction(
            "bandwidth_matrix.{cpu_node}.near_fraction",
            "what a node's CPUs read from the other nodes of its socket, relative to its own memory",
            "read_bandwidth",
            better="higher",
            tolerance=BANDWIDTH_REPEATS,
            depends=MEMORY_TRAFFIC,
        ),
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
            cost=settings.cost_s,
            repeated=settings,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the matrix; a cell without a value is ``None`` and listed with its reason."""
        points = read_result(document, BandwidthResult).points
        cells = [mix_bandwidth(point, step.target_half_width, sut.context) for point in points]
        table = BandwidthMatrixValues.table_of(
            {
                "cpu_node": sut.node_of(point.cpus[0]),
                "memory_node": point.nodes[0],
                "bandwidth_mb_s": cell and cell.bandwidth_mb_s,
                "counted": cell and cell.counted,
            }
            for point, cell in zip(points, cells, strict=True)
        )
        measured = {
            f"node {row.cpu_node} from {row.memory_node}": cell
            for row, cell in zip(table.rows, cells, strict=True)
            if cell is not None
        }
        require_any(measured, points, "cell")
        flags: list[Flag] = [*traffic_flags(sut, document, points, measured)]
        found = table.cells("bandwidth_mb_s")
        local = sorted((cell.value, row, cell) for (row, column), cell in found.items() if row == column)
        if local and local[-1][0] / local[0][0] - 1 > LOCAL_DIFFERENCE:
            low, high = (f"node {row} {units.headline(cell)}" for _, row, cell in (local[0], local[-1]))
            flags.append(flag("NODE_ASYMMETRY", f"local reads: {low}, {high}"))
        yield Parsed(
            values=BandwidthMatrixValues(
                table=table, setting=setting_of(points[0]), near=BandwidthMatrixValues.near_in(table, sut.context)
            ),
            flags=tuple(flags),
            missing=missing_points(points),
        )

    def metrics(self, values: BandwidthMatrixValues) -> Iterator[Metric]:
        """Yield the cells, and what each node's CPUs read from the other nodes of their socket."""
        yield from super().metrics(values)
        yield from near_metrics(self, values)

    def summary(self, measured: Sequence[BandwidthMatrixValues]) -> Iterator[str]:
        """Yield what CPUs gain within their node, where sockets have several."""
        for values in measured:
            gain = values.against_near(values.near, truediv, "times")
            if gain is None:
                continue
            ends = " to ".join(units.significant(end, 3) for end in gain.interval or ())
            times = f"{units.significant(gain.value, 3)}{f' ({ends})' if ends else ''} times"
            if told_apart(gain, 1.0):
                yield f"A node's CPUs read {times} as much from its own memory as from the other nodes of its socket."
            else:
                yield f"By bandwidth, the other nodes of a socket cannot be told from the own one: {times}."

    def main_chart(self, run: MeasuredRun, width: int) -> Chart | None:
        """Return bandwidth between nodes; ``None`` for a single node, or if the chart of latencies includes it."""
        measured = () if run.of("latency_matrix") else run.of(self.kind)[:1]
        return matrices_chart("numa", [found.values.matrix(found.values.table) for found in measured], width, measured)
