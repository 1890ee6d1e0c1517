# SPDX-License-Identifier: Apache-2.0
"""Core-to-core matrix: cache-to-cache latency between single CPUs, by topology."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from statistics import median
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.base.statistics import Estimate, combined, estimate
from calibration.base.validity import Flag, flag
from calibration.charts.base import Chart
from calibration.charts.cores import Strip, pairs_chart
from calibration.context.model import Context
from calibration.measurements.base import (
    SEARCH_SUFFIX,
    START_UP_S,
    Declaration,
    GridValues,
    HalfWidth,
    MeasuredRun,
    Metric,
    Parsed,
    Planned,
    RepeatedSettings,
    Step,
)
from calibration.measurements.c2c_latency import L2_PARTS
from calibration.measurements.evidence import (
    ASYMMETRY,
    Missing,
    document_flags,
    interference_flags,
    missing_parts,
    placement_flags,
    require_any,
    uneven,
)
from calibration.measurements.metric_rows import transfer
from calibration.measurements.neighbourhood import CLASSES, LABELS, PAIRS_OF, Class, Neighbourhood, sampled
from calibration.measurements.sut import Sut, whole_pages
from calibration.measurements.table import Table
from calibration.sutprobe.c2c import C2cEstimate, C2cLeftOut, C2cResult, C2cSearch
from calibration.sutprobe.document import ProbeDocument, read_result

Method = Literal["transfer", "pingpong"]

PAIR_S = 0.004
"""Threads, clock settling and memory mapping of one pair, for the expected duration only."""

PLACEMENT_S: dict[Method, float] = {"transfer": 0.0016, "pingpong": 0.001}
"""One placement: 8,000 lines prepared and loaded, or 3,300 hand-shakes, for the expected duration only."""

SPAN_LINES = 4 * 1024
"""Most lines that those of a placement span: of every four one."""

BUDGET_FACTOR = 3
"""A matrix that would take this many times the expected duration is sampled, well before the deadline."""

BUDGET_FLOOR_S = 10
"""Below this duration nothing is sampled: a busy machine may be slow."""

TIMED_PAIRS = 3
"""Pairs that sutprobe times, for the expected duration only."""

RECORDS_BYTES = 256 << 20
"""What is kept of the answers of a run."""

CPU_BYTES = 440 << 10
"""Of that, what kinds with a view of each CPU take for one of them in a run of the profile ``full``."""

CELL_BYTES, PLACEMENT_BYTES, NUMBER_BYTES = 650, 60, 16
"""A pair in an answer, each of its placements, and each of their windows.

A placement prints less, but its reader takes a limited number of lists.
"""

ANSWERS = 12
"""Answers of a run without further rounds: those of both methods."""


class C2cMatrixSettings(RepeatedSettings):
    """How many pairs are measured, and how often in a round: *placements* sets of lines with *windows* windows each.

    All ordered pairs up to *full_pairs*; beyond, *pairs_per_class* pairs of each class in both directions, and the rows
    of as many isolated CPUs as fit into *row_pairs*. More pairs than fit into the answers of a run are refused.
    """

    placements: PositiveInt = 1
    windows: PositiveInt = 3
    target_half_width: HalfWidth = 0.05
    methods: tuple[Method, ...] = ("transfer", "pingpong")
    full_pairs: NonNegativeInt = 992
    pairs_per_class: PositiveInt = 16
    row_pairs: NonNegativeInt = 512


class C2cClass(Model):
    """The pairs of one class: how many exist and have a value, and their latencies in ns.

    ``latency_ns`` is the median of the pairs' latencies, in each round; the extremes are given with their pairs.
    """

    name: Class
    pairs: int
    measured: int
    median_ns: float | None
    latency_ns: Estimate | None = None
    minimum_ns: float | None
    minimum_pair: tuple[int, int] | None
    maximum_ns: float | None
    maximum_pair: tuple[int, int] | None

    @property
    def label(self) -> str:
        """What the pairs share, as shown on pages."""
        return LABELS[self.name]


class C2cMatrixValues(GridValues):
    """Latency in ns between CPUs, of ``writer_node`` and ``reader_node``, by class and for each requested pair.

    ``transfer`` is one load of a modified line in the writer's cache, ``pingpong`` half the round trip of a hand-shake;
    memory is on the writer's node. ``lines`` are the numbers of lines handed over at a time.
    """

    kind: Literal["c2c_matrix"] = "c2c_matrix"
    method: Method
    lines: tuple[int, ...]
    classes: tuple[C2cClass, ...]
    estimate: C2cEstimate | None

    axes: ClassVar = {"writer": int, "reader": int}
    columns: ClassVar = {"writer_node": int, "reader_node": int, "latency_ns": Estimate | None}

    @property
    def node_of(self) -> dict[int, int]:
        """The node of each CPU, in order."""
        nodes = {(row.writer_node, row.writer) for row in self.table.rows}
        nodes |= {(row.reader_node, row.reader) for row in self.table.rows}
        return {cpu: node for node, cpu in sorted(nodes)}


class C2cMatrix(Declaration[C2cMatrixSettings, C2cMatrixValues]):
    """The cache-to-cache chase, or the hand-shake, between pairs of CPUs."""

    title = "Core-to-core matrix"
    question = "How far apart are the CPUs of the machine, from cache to cache?"
    metric_rows = tuple(
        transfer(
            f"c2c_matrix.{{method:{method}}}.{{pairs:{pairs}}}_ns",
            "median of the pairs of CPUs that lie to each other like this",
            reference=reference,
        )
        for method, pairs, reference in (
            ("transfer", "smt_siblings", "core_to_core_sibling_ns"),
            ("transfer", "same_llc", "core_to_core_l3_ns"),
            ("transfer", "other_package", "core_to_core_remote_ns"),
            ("pingpong|transfer", "|".join(CLASSES), None),
        )
    )

    def steps(self, sut: Sut, settings: C2cMatrixSettings) -> Iterator[Planned]:
        """Yield two steps per method: how long a pair takes, and the pairs that there is time for.

        They are of the full matrix of a small machine, and of a sample by class of a large one.
        """
        cpus = [cpu for node in sut.cpu_nodes for cpu in sut.cpus_of(node)]
        if len(cpus) < 2:
            yield self.not_planned("fewer than two CPUs may be used")
            return
        all_pairs = len(cpus) * (len(cpus) - 1)
        full = all_pairs <= settings.full_pairs
        chosen: dict[tuple[int, int], None] = dict.fromkeys(permutations(cpus, 2)) if full else {}
        blocks = [_block(sut, node, format_cpulist(sut.cpus_of(node)), format_cpulist(cpus)) for node in sut.cpu_nodes]
        if full and all(sut.home(node) == node for node in sut.cpu_nodes):
            blocks = [format_cpulist(cpus)]
        if not full:
            blocks = []
            neighbourhood = Neighbourhood(sut.context, cpus)
            for name, pairs in neighbourhood.counts().items():
                sample = neighbourhood.sample(name, settings.pairs_per_class)
                chosen |= dict.fromkeys(directed for pair in sample for directed in (pair, pair[::-1]))
                if len(sample) < pairs:
                    yield self.not_planned(*sampled(name, pairs, len(sample), settings.pairs_per_class))
            isolated = [cpu for cpu in cpus if cpu in sut.isolated]
            rows = isolated[: settings.row_pairs // (len(cpus) - 1)]
            if rows != isolated:
                left_out = format_cpulist(set(isolated) - set(rows))
                reason = f"more than {settings.row_pairs} pairs (row_pairs)"
                yield self.not_planned(reason, f"Rows of the isolated CPUs {left_out}")
            blocks += [_block(sut, sut.node_of(cpu), str(cpu), format_cpulist(cpus)) for cpu in rows]
            blocks += [_block(sut, sut.node_of(a), str(a), str(b)) for a, b in sorted(chosen) if a not in rows]
            chosen |= dict.fromkeys((cpu, other) for cpu in rows for other in cpus if cpu != other)
        most = _most_pairs(len(cpus), settings)
        if len(chosen) > most:
            reason = f"at most {most} pairs fit into a run's answers; lower full_pairs, pairs_per_class or row_pairs"
            yield self.not_planned(reason, f"{len(chosen)} of {all_pairs} pairs of {len(cpus)} CPUs")
            return
        span_bytes = min(sut.l2_bytes // L2_PARTS, SPAN_LINES * sut.line_bytes)
        for method in settings.methods:
            cost_s = len(chosen) * (PAIR_S + settings.placements * PLACEMENT_S[method])
            where: dict[str, Any] = {
                "cpus": sorted({cpu for pair in chosen for cpu in pair}),
                "memory_bytes": dict.fromkeys(
                    map(sut.home, sut.cpu_nodes), whole_pages(settings.placements * span_bytes)
                ),
                "tasks": 2,
            }
            asked: dict[str, object] = {
                "all-pairs": blocks,
                "method": method,
                "placements": settings.placements,
                "windows": settings.windows,
            }
            suffix = "" if method == "transfer" else f"-{method}"
            matrix = self.step(
                f"{method}, {len(chosen)} of {all_pairs} pairs of {len(cpus)} CPUs",
                "c2c",
                asked,
                cost_s=cost_s,
                setup_s=len(chosen) * PAIR_S,
                repeated=settings,
                figures=("cells", "*", "placements", "*"),
                suffix=suffix,
                **where,
            )
            budget_s = max(BUDGET_FLOOR_S, round(BUDGET_FACTOR * (START_UP_S + cost_s)))
            search = self.step(
                f"{method}, time of a pair",
                "c2c",
                {**asked, "matrix-budget-s": budget_s},
                cost_s=cost_s * min(1, TIMED_PAIRS / len(chosen)),
                suffix=f"{suffix}{SEARCH_SUFFIX}",
                **where,
            )
            yield from matrix.after(search, "--matrix-pairs")

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the matrix; a requested pair without a value is listed with its reason."""
        result = read_result(document, C2cResult)
        timed = next((read_result(search, C2cSearch).estimate for search in document.beside), None)
        target = step.target_half_width
        methods = {cell.method for cell in result.cells}
        if len(methods) != 1:
            raise InputError(f"a matrix needs one method, not {', '.join(sorted(methods)) or 'none'}")
        table = C2cMatrixValues.table_of(
            {
                "writer": cell.writer,
                "reader": cell.reader,
                "writer_node": sut.node_of(cell.writer),
                "reader_node": sut.node_of(cell.reader),
                "latency_ns": estimate(cell.placements, "ns", rounds=cell.rounds, target_half_width=target)
                if cell.placements
                else None,
            }
            for cell in result.cells
        )
        found = table.cells("latency_ns")
        require_any(found, result.cells, "pair")
        values = C2cMatrixValues(
            method=methods.pop(),
            lines=tuple(sorted({cell.lines for cell in result.cells})),
            classes=tuple(_classes(sut.context, table, found)),
            estimate=timed,
            table=table,
        )
        evidence = [found for cell in result.cells for found in cell.all_evidence]
        proved = all(cell.checked for cell in result.cells if cell.error is None)
        machine = () if result.interference is None else (result.interference,)
        yield Parsed(
            values=values,
            flags=(
                *document_flags(document),
                *placement_flags(document, evidence, proved=proved),
                *(
                    raised
                    for raised in interference_flags(machine, "of 1 matrix")
                    if raised.code not in {"PREEMPTED", "FAULTED"}
                ),
                *_asymmetry(found),
            ),
            missing=(
                *missing_parts(result.cells, lambda cell: f"CPU {cell.writer} to CPU {cell.reader}"),
                *(
                    Missing(
                        what=f"Pairs {' '.join(left.pairs)}", reason=f"{left.code}: {left.message}{_why(left, timed)}"
                    )
                    for left in result.not_measured
                ),
            ),
        )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield latency between blocks of CPUs, and a strip per class of pairs."""
        measurement = run.of(self.kind)[0]
        values = measurement.values
        strips = [
            Strip(
                pair_class.label,
                pair_class.median_ns,
                pair_class.minimum_ns or pair_class.median_ns,
                pair_class.maximum_ns or pair_class.median_ns,
                f"{pair_class.measured} of {pair_class.pairs}",
            )
            for pair_class in values.classes
            if pair_class.median_ns is not None
        ]
        domains = () if run.context is None else run.context.topology.last_level_cache_domains
        latencies = values.table.cells("latency_ns")
        yield pairs_chart(measurement, values.node_of, latencies, strips=strips, domains=domains)

    def summary(self, measured: Sequence[C2cMatrixValues]) -> Iterator[str]:
        """Yield the latency of a modified line of another core, by class of pairs."""
        for values in measured:
            known = [pair_class for pair_class in values.classes if pair_class.median_ns is not None]
            if known and values.method == "transfer":
                parts = (f"{units.significant(shared.median_ns, 3)} ns within {shared.label}" for shared in known)
                yield f"A modified line of another core takes {', '.join(parts)}."

    def metrics(self, values: C2cMatrixValues) -> Iterator[Metric]:
        """Yield the median of each class that has a value."""
        for pair_class in values.classes:
            if pair_class.median_ns is not None:
                yield self.metric(
                    f"{values.method}.{pair_class.name}_ns",
                    f"{self.title}, {values.method}, median of {PAIRS_OF[pair_class.name]}",
                    pair_class.latency_ns or pair_class.median_ns,
                )


def _why(left: C2cLeftOut, timed: C2cEstimate | None) -> str:
    """Return the end of the reason why pairs were *left*, if all take too long."""
    if left.code != "sampled" or timed is None:
        return ""
    return f": all would take {timed.expected_s:.1f} s, more than {timed.budget_s:g} s"


def _most_pairs(cpus: int, settings: C2cMatrixSettings) -> int:
    """Return how many pairs fit into the answers of a run, in which every other kind is measured too."""
    pair_bytes = CELL_BYTES + settings.placements * (PLACEMENT_BYTES + settings.windows * NUMBER_BYTES)
    answers = ANSWERS + len(settings.methods) * settings.more_rounds
    return max(0, RECORDS_BYTES - CPU_BYTES * cpus) // (answers * pair_bytes)


def _block(sut: Sut, node: int, writers: str, readers: str) -> str:
    home = sut.home(node)
    return f"{writers}@{readers}" + ("" if home == node else f":{home}")


def _classes(context: Context, table: Table, found: Mapping[tuple[int, int], Estimate]) -> Iterator[C2cClass]:
    neighbourhood = Neighbourhood(context, table.labels("writer") + table.labels("reader"))
    by_class = grouped((neighbourhood.class_of(*pair), (latency, pair)) for pair, latency in found.items())
    for name, pairs in neighbourhood.counts().items():
        measured = by_class.get(name, ())
        values = sorted((latency.value, pair) for latency, pair in measured)
        yield C2cClass(
            name=name,
            pairs=2 * pairs,
            measured=len(values),
            median_ns=median(value for value, _ in values) if values else None,
            latency_ns=combined([latency for latency, _ in measured], median, "ns") if values else None,
            minimum_ns=values[0][0] if values else None,
            minimum_pair=values[0][1] if values else None,
            maximum_ns=values[-1][0] if values else None,
            maximum_pair=values[-1][1] if values else None,
        )


def _asymmetry(found: Mapping[tuple[int, ...], Estimate]) -> Iterator[Flag]:
    """Yield one flag for all pairs whose directions differ by more than their intervals explain."""
    apart = [
        (difference, pair)
        for pair, there, back, difference in uneven(found)
        if there.interval is None or back.interval is None or there.apart(back)
    ]
    if apart:
        most, (one, two) = max(apart)
        yield flag(
            "ASYMMETRIC",
            f"the two directions of {len(apart)} pairs differ by more than {ASYMMETRY * 100:.0f} %, "
            f"worst CPUs {one} and {two}: by {most * 100:.0f} %",
        )
