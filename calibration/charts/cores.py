# SPDX-License-Identifier: Apache-2.0
"""Charts of cores: core-to-core latency, and differences between clocks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from calibration.base import units
from calibration.base.grouping import of_known
from calibration.base.statistics import Estimate
from calibration.charts import base
from calibration.charts.alternative import Value, alternative, extremes
from calibration.charts.base import HALF, WIDE, Chart, Frame, Json, Measured, Scale, rounded
from calibration.charts.cpus import Nodes, in_blocks
from calibration.charts.matrices import Matrix, heat_map

MAX_NUMBERED_COLUMNS = 16  # most columns of a matrix with numbers in its cells
MAX_CPU_ROWS = 24  # most CPUs with a row each
MAX_BLOCKS = 40  # with more last-level caches, or if most of their pairs were not measured, blocks are nodes
MIN_FREQUENCY_RANGE = 0.02  # least range of a strip of clocks to both sides of the median, as a share
MAX_PLACES = 128  # most places of a strip; beyond, one place is several CPUs


class Strip(NamedTuple):
    """Latencies (ns) of a class of pairs: label, median, minimum, maximum, and number of measured pairs."""

    label: str
    median_ns: float
    minimum_ns: float
    maximum_ns: float
    measured: str


def pairs_chart(
    measurement: Measured[Any],
    node_of: Mapping[int, int],
    latencies_ns: Mapping[tuple[int, ...], Estimate],
    *,
    strips: Iterable[Strip],
    domains: Sequence[Sequence[int]],
) -> Chart | None:
    """Return latency (ns) between blocks of CPUs, and *strips*; ``None`` for two CPUs.

    *node_of* has the node of each CPU, *latencies_ns* those of the measured pairs, *domains* the CPUs behind each
    last-level cache. A block's value is the median of its measured pairs.
    """
    if len(node_of) <= 2:
        return None
    caption = "Lines run from the fastest to the slowest pair of a class, dots are medians."
    parts = []
    if matrix := _blocks(node_of, latencies_ns, domains):
        parts.append(heat_map(matrix, WIDE - 215, numbers=len(matrix.columns) <= MAX_NUMBERED_COLUMNS))
        size = f"{len(matrix.rows)} by {len(matrix.rows)}"
        caption += f" A cell is the median of the measured pairs of {size} blocks, darker if it is slower."
    rows: list[Json] = [
        {
            "c": strip.label,
            "v": rounded(strip.median_ns),
            "l": rounded(strip.minimum_ns),
            "h": rounded(strip.maximum_ns),
            "t": base.shown(strip.median_ns, "ns"),
            "n": strip.measured,
        }
        for strip in strips
    ]
    if rows:
        across = Scale(0.0, max(row["h"] for row in rows) * 1.12, WIDE - base.LEFT - 190)
        x = across.channel("v", "Latency, ns", ticks=6)
        tooltip = base.tips(c="pairs within", t="median", l="from, ns", h="to, ns", n="pairs measured")
        colour = base.COLOURS[0]
        layers = [
            base.mark("rule", {**base.stretch("x", x), "tooltip": tooltip}, color=colour, strokeWidth=6, opacity=0.35),
            base.mark("point", {"x": x, "tooltip": tooltip}, filled=True, size=70, color=colour, opacity=1),
            base.mark("text", {"x": {**x, "field": "h"}, "text": {"field": "t"}}, align="left", dx=8),
        ]
        parts.append(base.view((across.px, 26 * len(rows)), layers, rows, encoding={"y": base.named_rows("c", None)}))
    if not parts:
        return None
    medians = [f"{row['c']} {row['t']}" for row in rows]
    ends = [extremes(_values(node_of, latencies_ns))] if latencies_ns else []
    alt = alternative("Core-to-core latency, and medians by class", [*ends, *reversed(medians)])
    return Chart(measurement.id, base.stacked(parts, 24, [measurement]), alt, caption)


def _values(node_of: Mapping[int, int], latencies_ns: Mapping[tuple[int, ...], Estimate]) -> Iterator[Value]:
    for (writer, reader), latency in latencies_ns.items():
        nodes = f", node {node_of[writer]} to {node_of[reader]}" * (node_of[writer] != node_of[reader])
        yield Value(latency.value, base.shown(latency.value, "ns"), f"CPU {writer} to {reader}{nodes}")


def _blocks(
    node_of: Mapping[int, int], latencies_ns: Mapping[tuple[int, ...], Estimate], domains: Sequence[Sequence[int]]
) -> Matrix | None:
    """Return the matrix by last-level cache, by node or by CPU, whichever shows most; ``None`` if none does."""
    matrix_of = partial(_matrix, node_of, latencies_ns)
    if len(node_of) <= MAX_CPU_ROWS:
        return matrix_of({str(cpu): [cpu] for cpu in node_of}, "CPU")
    caches = [here for domain in domains if (here := [cpu for cpu in domain if cpu in node_of])]
    caches.sort(key=lambda here: [node_of[cpu] for cpu in here])
    if 1 < len(caches) <= MAX_BLOCKS:
        title = "last-level cache: its CPUs"
        matrix = matrix_of({f"{n}: {units.cpus(here)}": here for n, here in enumerate(caches, 1)}, title)
        if sum(cell is not None for row in matrix.cells for cell in row) >= len(caches) ** 2 / 2:
            return matrix
    blocks = {str(node): [cpu for cpu in node_of if node_of[cpu] == node] for node in sorted({*node_of.values()})}
    return matrix_of(blocks, "node") if len(blocks) > 1 else None


def _matrix(
    node_of: Mapping[int, int],
    latencies_ns: Mapping[tuple[int, ...], Estimate],
    blocks: Mapping[str, Sequence[int]],
    title: str,
) -> Matrix:
    """Return the median latency of the measured pairs between *blocks*, by name."""

    def middle(writers: Sequence[int], readers: Sequence[int]) -> float | None:
        pairs = (latencies_ns.get((writer, reader)) for writer in writers for reader in readers)
        return of_known(lambda known: rounded(median(base.bounds(latency)[0] for latency in known)), pairs)

    return Matrix(
        "Latency",
        "ns",
        list(blocks),
        [name.partition(":")[0] for name in blocks],
        [[middle(writers, readers) for readers in blocks.values()] for writers in blocks.values()],
        row_title=f"writer's {title}",
        column_title="reader's",
        nodes=()
        if title == "node"
        else [units.numbered("node", (node_of[cpu] for cpu in block)) for block in blocks.values()],
    )


def deviations_chart(
    measurement: Measured[Any],
    clocks: Mapping[str, tuple[float, Mapping[int, Estimate]]],
    *,
    nodes: Nodes,
    what: str = "Clock",
) -> Chart:
    """Return each CPU's deviation from the median of its row, in per cent, by *nodes* where there are several.

    *clocks* has each row by label: the median, and the clock of each CPU, or *what* else was measured.
    """
    cpus = sorted({cpu for _, by_cpu in clocks.values() for cpu in by_cpu})
    blocks = in_blocks(cpus, nodes, MAX_PLACES)
    places = blocks.places
    shown = {base.label(name): row for name, row in clocks.items()}
    rows = [found for name, row in shown.items() for found in _deviations(name, *row, places)]
    frame = Frame(
        base.fitting(HALF, shown),
        220,
        legend=list(shown),
        measurements=[measurement],
    )
    low = min(*(row["l"] for row in rows), -100 * MIN_FREQUENCY_RANGE)
    high = max(*(row["h"] for row in rows), 100 * MIN_FREQUENCY_RANGE)
    count = len(places)
    across, up = Scale(-0.1, count + 0.1, frame.plot[0]), Scale(low * 1.1, high * 1.1, frame.plot[1], up=True)
    x = blocks.channel(across, "x", 28)
    y = up.channel("y", "From the median, %")
    bar = {"x": x, **base.stretch("y", y), "color": frame.series(base.COLOURS)}
    tooltip = base.tips(c="CPU", s="work", y="% from the median")
    spot = {"x": x, "y": y, "color": bar["color"], "shape": frame.series(base.SHAPES), "tooltip": tooltip}
    layers = [
        base.rules("y", [0.0]),
        blocks.boundaries("x"),
        base.mark("rule", bar, strokeWidth=max(1.5, min(4.0, 0.4 * frame.plot[0] / count)), opacity=0.35),
        base.mark("point", spot, filled=True, size=24, opacity=0.9),
    ]
    ends = extremes(
        Value(share, units.percent(share), f"CPU {cpu}")
        for middle, by_cpu in clocks.values()
        for cpu, clock in by_cpu.items()
        for share in [clock.value / middle - 1]
    )
    alt = alternative(f"{what} of {len(cpus)} CPUs, from the median", [ends, *shown])
    caption = f"Points are the {'clocks' if what == 'Clock' else what.lower()} of CPUs, bars their intervals."
    if blocks.size > 1:
        caption = f"Points are medians of {blocks.size} CPUs, bars reach from the slowest to the fastest of them."
    return Chart(measurement.id, frame.spec(layers, rows), alt, caption)


def _deviations(
    name: str, median_hz: float, by_cpu: Mapping[int, Estimate], blocks: Sequence[Sequence[int]]
) -> Iterator[Json]:
    """Yield the deviation of each place of a strip, a block of CPUs, in per cent of the row's median."""
    for place, block in enumerate(blocks):
        cpus = [cpu for cpu in block if cpu in by_cpu]
        if not cpus:
            continue
        clocks = [by_cpu[cpu].value for cpu in cpus]
        ends = clocks if len(cpus) > 1 else by_cpu[cpus[0]].interval or clocks
        y, low, high = (round(100 * (hz / median_hz - 1), 3) for hz in (median(clocks), min(ends), max(ends)))
        yield {"s": name, "x": place + 0.5, "c": units.cpus(cpus), "y": y, "l": low, "h": high}
