# SPDX-License-Identifier: Apache-2.0
"""Memory curves: latency against bandwidth for each share of writes, to near and far memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from calibration.base import units
from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.base.statistics import Estimate, combined, estimate
from calibration.charts.base import Chart
from calibration.charts.curves import Published
from calibration.charts.surfaces import Family, surface_chart
from calibration.context.model import Context, Relation
from calibration.counters.volume import CountedBytes, counted_flags
from calibration.measurements.base import (
    SEARCH_SUFFIX,
    Declaration,
    GridValues,
    HalfWidth,
    MeasuredRun,
    Metric,
    Parsed,
    Planned,
    Step,
)
from calibration.measurements.counting import BYTE_ROLES, event_options, loaded_counted
from calibration.measurements.evidence import Missing, estimate_of, evidence_flags, missing_part, require_any
from calibration.measurements.loaded_latency import (
    LOOK_S,
    ZERO_LOADS,
    ZERO_SETTLE_S,
    Share,
    drift_flags,
    loaded_memory,
    placement_s,
    share_options,
    share_reached,
    vector_shapes,
)
from calibration.measurements.metric_rows import MEMORY_TRAFFIC, Tolerance, bandwidth, fraction, latency
from calibration.measurements.platform import Shape
from calibration.measurements.stores import stores_flags
from calibration.measurements.sut import Place, Sut, memory_bound_bytes, size_flags
from calibration.measurements.traffic import (
    ANY_MIX,
    BUFFERS,
    CountedTrafficSettings,
    Mix,
    Part,
    Run,
    buffer_bytes,
    group_text,
    held_by_node,
    read_group,
    run_s,
    shape_options,
)
from calibration.sutprobe.bandwidth import Accounting
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.loaded import LoadedPoint, LoadedResult, LoadedSearch

FULL: Final = 100
"""The share, in percent, of a load without delay."""

FIGURES_AT: Final = (50, 75, 90)
"""Shares of a mix's own bandwidth, in percent, at which latencies are metrics."""

DOUBLE: Final = 2.0
"""A load is heavy from where it doubles the latency."""

DOUBLES_AT: Final = 0.75
"""Share of the bandwidth of reads alone at which mixes are compared: below the knee of reads on every published curve,
so that what lengthens the latency there is the writes."""

SETTLE_S: Final = 0.02
"""Time under load before the windows of a point: as long as clocks of memory and fabric take to follow."""

RUN_SETTLE_S: Final = 0.015
"""What ``run_s`` has of that."""

LOOKS: Final = 9
LOOKS_PER_SHARE: Final = 1
"""Usual number of looks of a search for each mix, and for each share, for the expected duration only."""

DOUBLING_REPEATS: Final = Tolerance(fraction=0.1, reason="it lies between two mixes, and is interpolated")

RELATIONS: Final[dict[Relation, str]] = {
    "local": "own memory",
    "near": "the same socket",
    "remote": "another socket",
    "memory_only": "no CPUs",
    "unknown": "socket unknown",
}
"""How memory lies to the CPUs that load it, on pages."""


class MemoryCurvesSettings(CountedTrafficSettings):
    """Curves of *mixes* at *shares* of each mix's own bandwidth, and without delay.

    From the CPUs of each node to its own memory, to the farthest and to memory-only nodes; with ``pairs: all`` to that
    of every node. As many pairs as take at most *round_s* in a round, but one at least: one of each class of distance
    first.
    """

    mixes: tuple[Mix, ...] = ("reads", "3:1", "1:1")
    shares: tuple[Share, ...] = (0.5, 0.75, 0.9)
    pairs: Literal["ends", "all"] = "ends"
    round_s: PositiveFloat = 5.5
    shape: Shape | None = None
    largest_bytes: PositiveInt | None = None
    windows: PositiveInt = 2
    window_s: PositiveFloat = 0.015
    target_half_width: HalfWidth = 0.03


class CurveFigures(Model):
    """Figures of one curve, of its rounds: bandwidth without delay, and latency by share of it (``50`` is 50 %).

    ``doubled_mb_s`` is the bandwidth at which latency is twice that without load; ``None`` if the load does not get
    there.
    """

    mix: Annotated[str, Field(pattern=f"^(?:{ANY_MIX})$")]
    write_share: float
    full_mb_s: Estimate
    latency_ns: dict[int, Estimate]
    doubled_mb_s: Estimate | None


class MemoryCurvesValues(GridValues):
    """Curves from the CPUs of one node to the memory of one node, by ``mix`` and ``share`` (%) of its own bandwidth.

    ``latency_ns`` is that of a probe on ``probe_cpu``, from the same windows as the ``bandwidth_mb_s`` of the ``load``,
    by the declared rule; ``write_share`` is the part of these bytes that is written, ``counted`` what hardware counters
    counted. ``unloaded_ns`` is the latency without load in the same placements. ``doubling_write_share`` is the share
    of writes from which a load as heavy as ``DOUBLES_AT`` of the bandwidth of reads doubles it; ``None`` if none does,
    or reads alone do.
    """

    kind: Literal["memory_curves"] = "memory_curves"
    cpu_node: int
    memory_node: int
    relation: Relation
    probe_cpu: int
    load: str
    unloaded_ns: Estimate
    curves: tuple[CurveFigures, ...]
    doubling_write_share: Estimate | None

    axes: ClassVar = {"mix": str, "share": int}
    columns: ClassVar = {
        "write_share": float,
        "inject_delay": int,
        "delay_ns": float,
        "share_reached": float | None,
        "bandwidth_mb_s": Estimate | None,
        "latency_ns": Estimate | None,
        "counted": CountedBytes | None,
    }

    @property
    def place(self) -> str:
        """The two nodes, and how they lie to each other."""
        if self.relation == "local":
            return f"node {self.cpu_node}, own memory"
        return f"node {self.cpu_node} to memory of node {self.memory_node} ({RELATIONS[self.relation]})"


class Pair(NamedTuple):
    """CPUs of one node, one to probe and others to load, and the node whose memory they use."""

    cpu_node: int
    probe: Place
    load: Part

    @property
    def memory_node(self) -> int:
        """The node of the memory."""
        return self.load.node


class MemoryCurves(Declaration[MemoryCurvesSettings, MemoryCurvesValues]):
    """One probe beside loads of several shares of writes, for pairs of nodes."""

    title = "Memory curves"
    question = "How does latency grow with bandwidth, for each share of writes and each memory?"
    metric_rows = (
        bandwidth(
            f"memory_curves.{{cpu_node}}.{{memory_node}}.{{mix:{ANY_MIX}}}.bandwidth_mb_s",
            "what the CPUs of the first node, but the probe's, move to and from the memory of the second without delay",
            "mixed_bandwidth",
        ),
        latency(
            rf"memory_curves.{{cpu_node}}.{{memory_node}}.{{mix:{ANY_MIX}}}.{{load:\d+pct}}.latency_ns",
            "one load of a probe beside that share of the bandwidth, interpolated between measured shares",
            "loaded_latency",
        ),
        bandwidth(
            r"memory_curves.{reads:\d+pct}.bandwidth_mb_s",
            "highest bandwidth with that share of reads, of another program",
            "mixed_bandwidth",
            imported=True,
        ),
        latency(
            r"memory_curves.{reads:\d+pct}.latency_ns",
            "latency at the highest bandwidth with that share of reads, of another program",
            "loaded_latency",
            imported=True,
        ),
        fraction(
            "memory_curves.{cpu_node}.{memory_node}.doubling_write_share",
            f"share of writes from which a load of {DOUBLES_AT:.0%} of the bandwidth of reads doubles the latency",
            "loaded_latency",
            better="higher",
            tolerance=DOUBLING_REPEATS,
            depends=MEMORY_TRAFFIC,
        ),
    )

    def steps(self, sut: Sut, settings: MemoryCurvesSettings) -> Iterator[Planned]:
        """Yield for each pair of nodes a search of delays, and a sweep of all mixes over them."""
        if not sut.cpu_nodes or not sut.memory_nodes:
            yield self.not_planned("no node with CPUs and no node with memory found")
            return
        pairs = pairs_of(sut, settings)
        if not pairs:
            yield self.not_planned(
                "no CPU is left to load memory: every node has one core to measure with, which is the probe's"
            )
            return
        spent_s, left_out = 0.0, 0
        for number, pair in enumerate(pairs):
            suffix = f"-{pair.cpu_node}-{pair.memory_node}" if number else ""
            *searched, sweep = self._steps(sut, settings, pair, suffix)
            if number and spent_s + sweep.expected_duration_s > settings.round_s:
                left_out += 1
                continue
            spent_s += sweep.expected_duration_s
            yield from (*searched, sweep)
        if left_out:
            reason = f"those measured take {settings.round_s:g} s of each round: one of each distance first"
            yield self.not_planned(reason, f"{self.title} of {left_out} of {len(pairs)} pairs of nodes")

    def _steps(self, sut: Sut, settings: MemoryCurvesSettings, pair: Pair, suffix: str) -> Iterator[Step]:
        load_bytes = buffer_bytes(sut, [pair.load], ("reads",))
        probe_bytes = memory_bound_bytes(sut, pair.memory_node, largest_bytes=settings.largest_bytes)
        runs = [Run([pair.load], mix, load_bytes // BUFFERS[mix]) for mix in settings.mixes]
        largest = Run([pair.load], "reads", load_bytes)
        where: dict[str, Any] = {
            "cpus": sorted({pair.probe.cpu, *pair.load.cpus}),
            "memory_bytes": loaded_memory(largest, [pair.probe], probe_bytes),
        }
        words = vector_shapes(shape_options(settings, settings.shape, sut.traffic_shape, settings.mixes))
        load: dict[str, object] = {
            "probe": [pair.probe],
            "load": group_text([pair.load]),
            "mix": ",".join(settings.mixes),
            "probe-size-bytes": probe_bytes,
            "buffer-bytes": load_bytes,
            "share-buffer": True,
            "settle-s": SETTLE_S,
            **words,
        }
        counters = event_options(sut.context, BYTE_ROLES) if settings.counters else {}
        build_s = placement_s(largest, probe_bytes)
        points, shares = 1 + len(settings.shares), len(settings.shares)
        each_s = settings.windows * settings.window_s
        sweep_s = build_s + sum(points * (run_s(run) + SETTLE_S - RUN_SETTLE_S + each_s) for run in runs)
        where_to = f"node {pair.cpu_node} to node {pair.memory_node}"
        sweep = self.step(
            f"{where_to}, {units.plural(len(runs), 'mix')}, {units.plural(points, 'load')} each",
            "loaded",
            {**settings.options(), **load, **counters},
            cost_s=settings.placements * (sweep_s + ZERO_LOADS * (ZERO_SETTLE_S + each_s)),
            setup_s=settings.placements * build_s,
            repeated=settings,
            suffix=suffix,
            **where,
        )
        search = self.step(
            f"{where_to}, search of delays",
            "loaded",
            {**load, "delay": 0, **share_options(settings.shares), "share-passes": 1, "choose": True},
            cost_s=build_s + sum((LOOKS + LOOKS_PER_SHARE * shares) * (LOOK_S + run_s(run)) for run in runs),
            setup_s=build_s,
            suffix=f"{suffix}{SEARCH_SUFFIX}",
            **where,
        )
        yield from sweep.after(search, "--mix-delay")

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the curves of one pair of nodes; a point without a value is listed as missing."""
        result = read_result(document, LoadedResult)
        found = {
            mix: shares
            for search in document.beside
            for mix, shares in grouped((share.mix, share) for share in read_result(search, LoadedSearch).shares).items()
        }
        parameters = document.parameters
        parts = read_group(str(parameters["load"]))
        probe = result.zero_load[0]
        by_mix = grouped((point.mix, point) for point in result.points)
        rows: list[dict[str, Any]] = []
        missing: list[Missing] = []
        for mix, points in by_mix.items():
            shares = [FULL, *(share.share_percent for share in found.get(mix, ()))]
            seen = [1.0, *(share.share_found for share in found.get(mix, ()))]
            if len(points) != len(shares):
                raise InputError(f"{len(points)} points of {mix}, and a search for {len(shares) - 1} shares")
            asked = [Asked(*item) for item in zip(shares, seen, points, strict=True)]
            asked.sort(key=attrgetter("share"))
            rows += [row_of(sut.context, one, asked[-1].point, parts[0], step.target_half_width) for one in asked]
            missing += [
                missing_part(f"{mix}, {one.share} % of full load", one.point.error)
                for one in asked
                if not one.point.placements
            ]
        measured = [row for row in rows if row.get("latency_ns") is not None]
        require_any(measured, result.points, "point")
        cpu_node, memory_node = sut.node_of(probe.cpu), probe.node
        unloaded = unloaded_of(result, step.target_half_width)
        curves = tuple(
            curve
            for mix, own in grouped((row["mix"], row) for row in measured).items()
            if (curve := figures_of(mix, unloaded, own)) is not None
        )
        probe_bytes = int(parameters["probe_size_bytes"])
        held = held_by_node([(parts, int(parameters["buffer_bytes"])), ([Part((probe.cpu,), probe.node)], probe_bytes)])
        counted = [(f"{row['mix']}, {row['share']} %", row["counted"]) for row in measured if row["counted"]]
        yield Parsed(
            suffix="",
            values=MemoryCurvesValues(
                table=MemoryCurvesValues.table_of(rows),
                cpu_node=cpu_node,
                memory_node=memory_node,
                relation=sut.context.relation(cpu_node, memory_node),
                probe_cpu=probe.cpu,
                load=str(parameters["load"]),
                unloaded_ns=unloaded,
                curves=curves,
                doubling_write_share=doubling_of(unloaded, curves, measured),
            ),
            flags=(
                *evidence_flags(document, result.points),
                *size_flags(sut, probe_bytes, held),
                *drift_flags(result.zero_load),
                *counted_flags(counted),
                *stores_flags(sut.context, list(by_mix), counted=bool(counted)),
            ),
            missing=tuple(missing),
        )

    def metrics(self, values: MemoryCurvesValues) -> Iterator[Metric]:
        """Yield for each mix bandwidth without delay and latency at shares of it, and the doubling share of writes."""
        of, where = f"{values.cpu_node}.{values.memory_node}", values.place
        for curve in values.curves:
            yield self.metric(f"{of}.{curve.mix}.bandwidth_mb_s", f"Full load, {curve.mix}, {where}", curve.full_mb_s)
            for share, found in curve.latency_ns.items():
                title = f"Latency at {share} % of full load, {curve.mix}, {where}"
                yield self.metric(f"{of}.{curve.mix}.{share}pct.latency_ns", title, found)
        if values.doubling_write_share is not None:
            title = f"Share of writes that doubles latency, {where}"
            yield self.metric(f"{of}.doubling_write_share", title, values.doubling_write_share)

    def summary(self, measured: Sequence[MemoryCurvesValues]) -> Iterator[str]:
        """Yield what the first node gets of its own memory and of the slowest other."""
        own = next((values for values in measured if values.relation == "local"), None)
        others = [values for values in measured if own and values.cpu_node == own.cpu_node and values is not own]
        if own and own.curves:
            text = f"Node {own.cpu_node} moves {_ends(own)} in its own memory"
            far = max((values for values in others if values.curves), key=_full_latency, default=None)
            if far is not None:
                text += f", and {_ends(far)} in that of node {far.memory_node} ({RELATIONS[far.relation]})"
            yield f"{text}."
            if (share := own.doubling_write_share) is not None:
                load = f"a load of {units.exact_percent(DOUBLES_AT)} of the bandwidth of reads"
                yield f"From {units.percent(share.value, 2)} of writes on, {load} doubles its latency."

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield latency against bandwidth by share of writes: own memory, and the slowest of the others beside it."""
        measured = run.of(self.kind)
        own = next((found for found in measured if found.values.relation == "local"), measured[0])
        others = [found for found in measured if found.values.cpu_node == own.values.cpu_node and found is not own]
        drawn = [own, *sorted(others, key=lambda found: _full_latency(found.values))[-1:]]
        families = [
            Family(found.values.place, curves_by_mix(found.values), found.values.unloaded_ns.value) for found in drawn
        ]
        published = run.published if own.values.relation == "local" else Published()
        families[0] = families[0]._replace(published=published.curves)
        yield surface_chart(self.kind, drawn, families, published.source)


def pairs_of(sut: Sut, settings: MemoryCurvesSettings) -> list[Pair]:
    """Return the pairs of nodes to measure: first one of each class of distance, nearest first, then the others.

    Without the nodes whose only core is the probe's.
    """
    found: list[Pair] = []
    for node in sut.cpu_nodes:
        probe = sut.measuring_cpu(node)
        cpus = tuple(cpu for cpu in sut.one_per_core(sut.cpus_of(node)) if cpu not in sut.siblings(probe))
        others = sut.memory_nodes if settings.pairs == "all" else _ends_of(sut, node)
        memory = dict.fromkeys((sut.home(node), *others))
        if cpus:
            found += [Pair(node, Place(probe, other), Part(cpus, other)) for other in memory]
    classes = grouped((_class(sut, pair), pair) for pair in found)
    first = [of_class[0] for _, of_class in sorted(classes.items(), key=lambda item: item[0][1])]
    return first + [pair for pair in found if pair not in first]


def _ends_of(sut: Sut, node: int) -> list[int]:
    """Return the memory farthest from the CPUs of *node* that other CPUs have, and that of no CPUs."""
    with_cpus = [other for other in sut.memory_nodes if other not in sut.memory_only_nodes]
    far = max(with_cpus, key=lambda other: (sut.distance(node, other) or 0, -other), default=node)
    return [far, *sut.memory_only_nodes]


def _class(sut: Sut, pair: Pair) -> tuple[Relation, int]:
    """Return what pairs of a class share: relation and distance, 0 if that is unknown."""
    return sut.context.relation(pair.cpu_node, pair.memory_node), sut.distance(pair.cpu_node, pair.memory_node) or 0


class Asked(NamedTuple):
    """A requested share in percent, what the search saw of the bandwidth there, and its point."""

    share: int
    seen: float
    point: LoadedPoint


def row_of(context: Context, asked: Asked, full: LoadedPoint, load: Part, target: float | None) -> dict[str, Any]:
    """Return the row of a point, beside that of the *full* load; without values if it has none."""
    point = asked.point
    row = {
        "mix": point.mix,
        "share": asked.share,
        "write_share": write_share(point.accounting),
        "inject_delay": point.inject_delay,
        "delay_ns": point.delay_ns,
    }
    if not point.placements:
        return row
    of_point = partial(estimate_of, point.placements, target=target)
    return row | {
        "share_reached": share_reached(point, [full], asked.seen),
        "bandwidth_mb_s": of_point(attrgetter("windows_mb_s"), "MB/s"),
        "latency_ns": of_point(lambda placement: placement.probes[0].windows_ns, "ns"),
        "counted": loaded_counted(context, point.placements, point.accounting, [load.node] * len(load.cpus)),
    }


def write_share(accounting: Accounting) -> float:
    """Return the part of the bytes of a step that memory is given, by the declared rule."""
    read = accounting.reads_per_step + accounting.write_allocate_reads_per_step
    return accounting.writes_per_step / (read + accounting.writes_per_step)


def unloaded_of(result: LoadedResult, target: float | None) -> Estimate:
    """Return the latency of the probe without load, before, during and after the sweep of each round."""
    placements = max((point.placements or () for point in result.points), key=len)
    numbers = list(dict.fromkeys(placement.round for placement in placements))
    windows = {zero.round: zero.windows_ns for zero in result.zero_load}
    rounds = [number for number in numbers if number is not None]
    return estimate([windows[number] for number in numbers], "ns", rounds=rounds, target_half_width=target)


Curve = Sequence[tuple[float, float]]
"""Bandwidth in MB/s and latency in ns by rising load, from none."""


def latency_at(curve: Curve, bandwidth_mb_s: float) -> float:
    """Return the latency where *curve* first reaches a bandwidth, between two points; at its end if it does not."""
    for (before, low), (after, high) in pairwise(curve):
        if before <= bandwidth_mb_s <= after:
            return low + (high - low) * ((bandwidth_mb_s - before) / (after - before) if after > before else 1.0)
    return curve[-1][1]


def bandwidth_at(curve: Curve, latency_ns: float) -> float:
    """Return the bandwidth where *curve* first reaches a latency, between two points; at its end if it does not."""
    for (before, low), (after, high) in pairwise(curve):
        if low <= latency_ns <= high:
            return before + (after - before) * ((latency_ns - low) / (high - low) if high > low else 0.0)
    return curve[-1][0]


def _curve(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the curve of the latency without load, and bandwidth and latency of each point by rising load."""
    unloaded, *rest = values
    return [(0.0, unloaded), *zip(rest[::2], rest[1::2], strict=True)]


def _estimates(unloaded: Estimate, rows: Iterable[dict[str, Any]]) -> list[Estimate]:
    """Return the estimates that ``_curve`` takes, of the *rows* of a mix."""
    by_load = sorted(rows, key=lambda row: row["share"])
    return [unloaded, *(row[name] for row in by_load for name in ("bandwidth_mb_s", "latency_ns"))]


def figures_of(mix: str, unloaded: Estimate, rows: Sequence[dict[str, Any]]) -> CurveFigures | None:
    """Return the figures of the curve of *mix*, computed in each round; ``None`` without a point at full load."""
    full = next((row for row in rows if row["share"] == FULL), None)
    if full is None:
        return None
    taken = _estimates(unloaded, rows)

    def at_share(share: int) -> Callable[[Sequence[float]], float]:
        return lambda values: latency_at(curve := _curve(values), curve[-1][0] * share / 100)

    latencies = {share: combined(taken, at_share(share), "ns") for share in FIGURES_AT}
    medians = _curve([item.value for item in taken])
    doubled = None
    if medians[-1][1] >= DOUBLE * unloaded.value:
        doubled = combined(taken, lambda values: bandwidth_at(_curve(values), DOUBLE * values[0]), "MB/s")
    return CurveFigures(
        mix=mix,
        write_share=full["write_share"],
        full_mb_s=full["bandwidth_mb_s"],
        latency_ns={share: found for share, found in latencies.items() if found is not None},
        doubled_mb_s=doubled,
    )


def doubling_of(unloaded: Estimate, curves: Sequence[CurveFigures], rows: Sequence[dict[str, Any]]) -> Estimate | None:
    """Return the share of writes from which a load of ``DOUBLES_AT`` of the bandwidth of reads doubles the latency.

    Each mix doubles it at some bandwidth, which falls with the share of writes: the share at which that is the
    bandwidth of the load, between two mixes, in each round. ``None`` if it is not between two.
    """
    by_mix = grouped((row["mix"], row) for row in rows)
    mixes = sorted((curve for curve in curves), key=attrgetter("write_share"))
    if len(mixes) < 2 or mixes[0].write_share > 0:
        return None
    groups = [_estimates(unloaded, by_mix[curve.mix]) for curve in mixes]
    sizes = [len(group) for group in groups]

    def share(values: Sequence[float]) -> float:
        found, at = [], 0
        for curve, size in zip(mixes, sizes, strict=True):
            points = _curve(values[at : at + size])
            found.append((curve.write_share, bandwidth_at(points, DOUBLE * values[0])))
            if at == 0:
                load = DOUBLES_AT * points[-1][0]
            at += size
        for (before, high), (after, low) in pairwise(found):
            if high >= load >= low and high > low:
                return before + (after - before) * (high - load) / (high - low)
        return found[0][0] if found[0][1] < load else found[-1][0]

    taken = [item for group in groups for item in group]
    middle = share([item.value for item in taken])
    inside = mixes[0].write_share < middle < mixes[-1].write_share
    return combined(taken, share, "fraction") if inside else None


def curves_by_mix(values: MemoryCurvesValues) -> dict[str, list[tuple[Estimate, Estimate]]]:
    """Return bandwidth and latency of the points of each mix, by rising load, for a chart."""
    rows = [row for row in values.points if row.latency_ns is not None]
    rows.sort(key=lambda row: (row.write_share, row.share))
    return grouped((mix_text(row.mix, row.write_share), (row.bandwidth_mb_s, row.latency_ns)) for row in rows)


def mix_text(mix: str, written: float) -> str:
    """Return a mix with its share of writes."""
    return f"{mix}, {units.percent(written, 2)} written" if written else mix


def _full_latency(values: MemoryCurvesValues) -> float:
    return max((latency.value for latency in values.table.cells("latency_ns").values()), default=0.0)


def _ends(values: MemoryCurvesValues) -> str:
    """Return bandwidth and latency of the curves with the fewest and the most writes."""
    texts = []
    for curve in (values.curves[0], *values.curves[1:][-1:]):
        at = curve.latency_ns.get(90)
        beside = "" if at is None else f" ({units.headline(at)} at 90 % of that)"
        texts.append(f"{units.headline(curve.full_mb_s)} of {curve.mix}{beside}")
    return " and ".join(texts)
