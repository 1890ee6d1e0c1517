# SPDX-License-Identifier: Apache-2.0
"""Percentiles and tail of single loads from local memory."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, PositiveInt

from calibration.base import units
from calibration.base.errors import InputError
from calibration.base.model import Model
from calibration.base.percentiles import Histogram, Percentile, beyond_longest, merged, percentile
from calibration.base.statistics import Estimate
from calibration.charts.base import TIME_LABEL, Chart
from calibration.charts.curves import Axis, curves_of, line_chart
from calibration.measurements.base import HalfWidth, MeasuredRun, Metric, Parsed, Planned, Step, Values
from calibration.measurements.chase import HOP_NS, ChaseSettings, Condition, NearChaseDeclaration
from calibration.measurements.evidence import Missing, estimate_of
from calibration.measurements.metric_rows import Family, latency
from calibration.measurements.sut import Sut
from calibration.sutprobe.document import ProbeDocument
from calibration.sutprobe.latency import KeepAwakeThread, LatencyPlacement, SingleLoads

PERCENTS: Final = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)

INTERRUPTION_NS: Final = 2000.0
"""A longer load was interrupted: refresh of all banks takes 0.3 to 0.6 µs (JEDEC, tRFC), the shortest interrupt about
1 µs with its entry and exit."""

RESOLUTIONS: Final = 5
"""A percentile of fewer steps of the clock than this is not given: it would be off by a tenth or more."""

LOAD_NS: Final = 300.0
"""Cost of one load from memory and one from L1, each with two readings of the clock, for the expected duration only."""

CHART_FROM_NS: Final = 5.0
"""Left end of the chart, for clocks that show loads of no time."""

MEMORIES: Final[tuple[tuple[str, str, Family], ...]] = (
    ("", "local", "local_latency"),
    ("node{memory_node}.", "a memory-only node's", "remote_latency"),
)
"""How names of metrics begin, whose memory they are of, and their family."""

Percent = Annotated[float, Field(gt=0, lt=100)]


class LoadTailSettings(ChaseSettings):
    """In each walk of a chase, *single_loads* more loads are timed one by one.

    Windows of half a millisecond: most of them see no interruption even on a busy machine, and single loads that were
    interrupted are left out too.
    """

    placements: PositiveInt = 1
    windows: PositiveInt = 50
    hops: PositiveInt = 4_000
    single_loads: PositiveInt = 1_000_000
    target_half_width: HalfWidth = 0.05

    def options(self) -> dict[str, object]:
        """Return the options of sutprobe for these settings."""
        return {**super().options(), "single-loads": self.single_loads}

    def walk_s(self, size_bytes: int, stride_bytes: int = 64, hop_ns: float = HOP_NS, hops: int | None = None) -> float:
        """Return the expected time in s to walk one point's existing chains, single loads included."""
        loads_s = self.single_loads * LOAD_NS * 1e-9
        return super().walk_s(size_bytes, stride_bytes, hop_ns, hops) + self.placements * loads_s


class TailPercentile(Model):
    """One percentile of the loads that were not interrupted, in ns, the clock's own time included.

    ``value_ns`` is that of the loads of all rounds; ``interval`` is from their order statistics, and includes the
    resolution of the clock. ``by_rounds`` is estimated from each round's percentile, ``None`` if a round has too few
    loads for one. If neither can be given, ``reason`` says why.
    """

    percent: Percent
    value_ns: float | None
    interval: tuple[float, float] | None
    coverage: float | None
    by_rounds: Estimate | None
    reason: str | None

    @property
    def best_ns(self) -> float | None:
        """The value by rounds, else that of all loads."""
        return self.value_ns if self.by_rounds is None else self.by_rounds.value


class LoadTailValues(Values):
    """Single loads of ``cpu`` from memory of ``node``, with the machine in ``condition``.

    That is the nearest, or a memory-only one (``memory_only``).
    ``memory`` and ``reference`` (a line in L1, timed in turn) count all loads by their ticks of ``tick_ns``, the
    clock's own time included; it advances in steps of ``resolution_ns``. A load of ``interruption_ns`` or more counts
    as interrupted, not in the percentiles. At most ``beyond_longest`` of all loads take longer than the longest that
    was not interrupted, ``longest_ns``, with 95 % probability.

    ``reference_ns`` is the mean of the reference. ``single_ns`` is that of memory, less the reference, plus a load from
    L1, interrupted loads left out; ``chase_ns`` is a load of the same chain by its windows. Both are
    the same quantity.
    """

    kind: Literal["load_tail"] = "load_tail"
    cpu: int
    node: int
    memory_only: bool = False
    size_bytes: int
    page: str
    condition: Condition
    keep_awake: tuple[KeepAwakeThread, ...]
    tick_ns: float
    resolution_ns: float
    interruption_ns: float
    loads: int
    interrupted: int
    interrupted_reference: int
    involuntary_switches: int
    longest_ns: float
    beyond_longest: float
    percentiles: tuple[TailPercentile, ...]
    reference_ns: Estimate
    single_ns: Estimate
    chase_ns: Estimate
    memory: Histogram
    reference: Histogram

    @property
    def variant(self) -> str:
        """Begins the names of its metrics, after the kind."""
        return f"node{self.node}." if self.memory_only else ""


def name_of(percent: float) -> str:
    """Return a percentile as a part of a metric's name: ``p99_9``."""
    return f"p{percent:g}".replace(".", "_")


class LoadTail(NearChaseDeclaration[LoadTailSettings, LoadTailValues]):
    """The chase of the idle latency, with loads timed one by one."""

    title = "Tail of single loads"
    question = "How much longer than the median do the slowest loads from memory take?"
    metric_rows = tuple(
        latency(
            rf"load_tail.{variant}{{percentile:p\d+(?:_\d+)?}}.latency_ns",
            f"percentile of loads from {where} memory timed one by one, those that were interrupted left out",
            family,
        )
        for variant, where, family in MEMORIES
    )

    def steps(self, sut: Sut, settings: LoadTailSettings) -> Iterator[Planned]:
        """Yield the chase of the idle latency, from the same CPU over the same memory, and over memory-only nodes'."""
        yield self.chase(sut, settings)[0]
        for node in sut.memory_only_beside(sut.cpu_nodes[0]):
            yield self.chase(sut, settings, memory_node=node)[0]

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the one distribution."""
        point, latency, fields, flags = self.chased(document, step, sut)
        placements = latency.placements
        if document.clock is None or any(placement.single_loads is None for placement in placements):
            raise InputError("no single loads in a placement, or no clock")
        fields |= _values(placements, document.clock.resolution_ns, point.overhead_ns, step.target_half_width)
        yield Parsed(
            values=LoadTailValues(
                chase_ns=latency.latency_ns,
                memory_only=fields["node"] != sut.home(sut.node_of(fields["cpu"])),
                **fields,
            ),
            flags=flags,
            missing=tuple(
                Missing(what=f"{found.percent:g} % of loads", reason=found.reason)
                for found in fields["percentiles"]
                if found.reason is not None
            ),
        )

    def metrics(self, values: LoadTailValues) -> Iterator[Metric]:
        """Yield the percentiles, by rounds where each has loads enough."""
        for found in values.percentiles:
            name = f"{values.variant}{name_of(found.percent)}.latency_ns"
            title = f"Single loads, {found.percent:g} %{f', node {values.node}' * values.memory_only}"
            if found.by_rounds is not None:
                yield self.metric(name, title, found.by_rounds)
            elif found.value_ns is not None:
                yield self.metric(
                    name, title, found.value_ns, interval=found.interval, coverage=found.coverage, placements=None
                )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the share of loads that take at least so long (log-log), from memory and from L1."""
        curves = curves_of(
            (name, (max(start * values.tick_ns, CHART_FROM_NS), share))
            for values in run.values(self.kind)
            for name, histogram in (
                [(f"memory of node {values.node}", values.memory)]
                if values.memory_only
                else [("memory", values.memory), ("a line in L1, same timing", values.reference)]
            )
            for start, share in histogram.exceeding()
        )
        longest = max(values.memory.longest * values.tick_ns for values in run.values(self.kind))
        yield line_chart(
            self.kind,
            run.of(self.kind),
            curves,
            (
                Axis("Time of a load", kind="decades", labels=TIME_LABEL, text=units.time_ns),
                Axis("Share of loads that take at least so long", kind="decades", labels=SHARE_LABEL),
            ),
            marked=[(INTERRUPTION_NS, "interrupted")] if longest > INTERRUPTION_NS else [],
            points=False,
            alt="Share of loads from memory, and from a line in L1, that take at least a time",
            values=[_ends(values) for values in run.values(self.kind)],
            caption="What lies above the curve of L1 is memory's; where both meet it is the system's.",
        )


def _ends(values: LoadTailValues) -> str:
    known = {item.percent: best_ns for item in values.percentiles if (best_ns := item.best_ns) is not None}
    found = [f"{percent:g} % {units.time_ns(known[percent])}" for percent in list(known)[:: len(known) - 1 or 1]]
    longest = units.time_ns(values.memory.longest * values.tick_ns)
    where = f"memory of node {values.node}" if values.memory_only else "memory"
    return f"{where} {', '.join([*found, f'longest {longest}'])}; L1 mean {units.time_ns(values.reference_ns.value)}"


SHARE_LABEL: Final = "datum.value >= 1 ? 'all' : '1/' + format(1 / datum.value, '~s')"


class Timed(NamedTuple):
    """The single loads of some placements in all, below ``INTERRUPTION_NS``, and their clock."""

    whole: Histogram
    tick_ns: float
    resolution_ns: float


def _values(
    placements: Sequence[LatencyPlacement], resolution_ns: float, l1_ns: float, target: float | None
) -> dict[str, Any]:
    """Return the fields that are made of the single loads of *placements*."""
    each = [_loads(placement) for placement in placements]
    tick_ns = median(loads.tick_ns for loads in each)
    memory, reference = merged(loads.memory for loads in each), merged(loads.reference for loads in each)
    whole, interrupted = memory.split(INTERRUPTION_NS / tick_ns)
    if not whole.counts:
        raise InputError(f"all {memory.total} single loads took {INTERRUPTION_NS:g} ns or more")
    timed = Timed(whole, tick_ns, max(resolution_ns, tick_ns))

    def clock_alone(placement: LatencyPlacement) -> float:
        return _mean_ns(_loads(placement), _loads(placement).reference)

    def single(placement: LatencyPlacement) -> float:
        return _mean_ns(_loads(placement), _loads(placement).memory) - clock_alone(placement) + l1_ns

    return {
        "tick_ns": tick_ns,
        "resolution_ns": timed.resolution_ns,
        "interruption_ns": INTERRUPTION_NS,
        "loads": memory.total,
        "interrupted": interrupted.total,
        "interrupted_reference": reference.split(INTERRUPTION_NS / tick_ns)[1].total,
        "involuntary_switches": sum(loads.involuntary_switches for loads in each),
        "longest_ns": whole.longest * tick_ns,
        "beyond_longest": beyond_longest(whole.total),
        "percentiles": tuple(_percentile(placements, timed, percent, target) for percent in PERCENTS),
        "reference_ns": _derived(placements, clock_alone, None),
        "single_ns": _derived(placements, single, target),
        "memory": memory,
        "reference": reference,
    }


def _derived(
    placements: Sequence[LatencyPlacement], value: Callable[[LatencyPlacement], float], target: float | None
) -> Estimate:
    """Return the estimate, in ns, of a *value* computed from each of *placements*."""
    found = estimate_of(placements, lambda placement: [value(placement)], "ns", target)
    return found.model_copy(update={"estimator": "derived"})


def _loads(placement: LatencyPlacement) -> SingleLoads:
    if placement.single_loads is None:
        raise InputError("no single loads in a placement")
    return placement.single_loads


def _whole(loads: SingleLoads, histogram: Histogram) -> Histogram:
    """Return the part of *histogram* that was not interrupted."""
    found, _ = histogram.split(INTERRUPTION_NS / loads.tick_ns)
    if not found.counts:
        raise InputError(f"all single loads of a placement took {INTERRUPTION_NS:g} ns or more")
    return found


def _mean_ns(loads: SingleLoads, histogram: Histogram) -> float:
    return _whole(loads, histogram).mean * loads.tick_ns


def _percentile(
    placements: Sequence[LatencyPlacement], timed: Timed, percent: float, target: float | None
) -> TailPercentile:
    """Return a percentile of all loads, and by rounds if each placement has loads enough for it."""
    whole, tick_ns, resolution_ns = timed
    step = resolution_ns / tick_ns
    found = percentile(whole, percent, step)
    reason = None
    if found is None:
        reason = f"{whole.total} loads are too few"
    elif found.value < RESOLUTIONS * step:
        short = f"{found.value * tick_ns:.3g} ns is too short"
        reason = f"{short} for a clock that advances in steps of {resolution_ns:.3g} ns"
    if found is None or reason is not None:
        return TailPercentile(
            percent=percent, value_ns=None, interval=None, coverage=None, by_rounds=None, reason=reason
        )

    def of_one(placement: LatencyPlacement) -> Percentile | None:
        loads = _loads(placement)
        return percentile(_whole(loads, loads.memory), percent, step)

    values = [item.value * tick_ns for item in map(of_one, placements) if item is not None]
    each = iter(values)
    return TailPercentile(
        percent=percent,
        value_ns=found.value * tick_ns,
        interval=(found.interval[0] * tick_ns, found.interval[1] * tick_ns),
        coverage=found.coverage,
        by_rounds=_derived(placements, lambda _: next(each), target) if len(values) == len(placements) else None,
        reason=None,
    )
