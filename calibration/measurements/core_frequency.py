# SPDX-License-Identifier: Apache-2.0
"""Core frequency: each core's clock under scalar or vector work, alone and with some or all others."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.statistics import Estimate, combined, estimate
from calibration.base.text import sentence_case
from calibration.base.validity import Flag, flag
from calibration.charts.base import Chart
from calibration.charts.cores import deviations_chart
from calibration.charts.curves import Axis, curves_of, line_chart
from calibration.measurements.base import (
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
from calibration.measurements.evidence import (
    document_flags,
    interference_flags,
    lost_flags,
    missing_parts,
    require_any,
    undisturbed,
)
from calibration.measurements.metric_rows import ALIKE, CLOCK_REPEATS, CLOCKED, MetricRow, Record, fraction
from calibration.measurements.sut import Sut
from calibration.measurements.table import TableRow
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.frequency import ACTIVE, FrequencyPoint, FrequencyResult

POINT_S = 0.02
"""Threads and counters of one point, for the expected duration only."""

MIN_SLOWDOWN = 0.02
"""A core is slow if its whole interval is below the median of the others by more than this: turbo steps of one
machine's cores differ by less, unless some are favoured or of another kind, which is worth a flag too."""

CHAIN_TOLERANCE = 0.02
"""Largest relative difference between the chain with vector work and the chain alone, still called the clock."""


class Work(NamedTuple):
    """A kind of work, and the CPU feature flags it needs."""

    name: str
    features: tuple[str, ...]


WHO = {"alone": "one core alone", "all": "all cores at once"}
"""Descriptions of the cores that work; numbers are those of some of them."""

WORKS = {
    "x86_64": (Work("scalar", ()), Work("avx2", ("avx2", "fma")), Work("avx512", ("avx512f",))),
    "aarch64": (Work("scalar", ()), Work("neon", ("asimd",)), Work("sve", ("sve",))),
    "ppc64le": (Work("scalar", ()),),
    "riscv64": (Work("scalar", ()),),
}
"""By architecture, lightest first."""

ANY_WORK = "|".join(sorted({work.name for works in WORKS.values() for work in works}))
"""The works' names, as the choice of a label."""


class CoreFrequencySettings(RepeatedSettings):
    """Each kind of work with *windows* of *window_s* after *settle_s* of the same work.

    All cores work at once; at most *alone_cores* of them are also measured alone, one after another. With
    *turbo_steps* also 2, 4, 8 ... cores are active at once, spread over nodes and last-level caches.
    """

    alone_cores: PositiveInt = 8
    turbo_steps: bool = False
    windows: PositiveInt = 9
    window_s: PositiveFloat = 0.005
    settle_s: NonNegativeFloat = 0.05
    target_half_width: HalfWidth = 0.01


class ClockRow(NamedTuple):
    """The cores measured under one kind of work and activity, by clock, slowest first."""

    work: str
    active: str
    points: tuple[TableRow, ...]

    @property
    def name(self) -> str:
        """Description of the row."""
        return f"{self.work}, {WHO.get(self.active) or f'{self.active} cores at once'}"

    @property
    def partial(self) -> bool:
        """Whether some cores were active, neither one nor all."""
        return self.active not in WHO

    @property
    def clocks_hz(self) -> list[float]:
        """The clocks, ascending."""
        return [point.frequency_hz.value for point in self.points]

    @property
    def median_hz(self) -> float:
        """The median of the clocks."""
        return median(self.clocks_hz)

    @property
    def middle(self) -> Estimate | None:
        """The median of the clocks; ``None`` if their rounds differ."""
        clocks = [point.frequency_hz for point in self.points]
        return clocks[0] if len(clocks) == 1 else combined(clocks, median, "Hz")

    @property
    def spread(self) -> float:
        """Difference between the fastest and the slowest core, relative to the median."""
        return _spread(self.clocks_hz)


def rows_of(points: Iterable[TableRow]) -> list[ClockRow]:
    """Return *points* by work, in order of appearance, and number of active cores, ascending."""
    found = grouped(((point.work, point.active), point) for point in points)
    rows = [
        ClockRow(work, active, tuple(sorted(group, key=lambda point: (point.frequency_hz.value, point.cpu))))
        for (work, active), group in found.items()
    ]
    works = list(dict.fromkeys(row.work for row in rows))
    return sorted(rows, key=lambda row: (works.index(row.work), row.points[0].active_cpus))


class CoreFrequencyValues(GridValues):
    """Clocks of all cores under each kind of work, while ``active_cpus`` CPUs do the same.

    ``frequency_hz`` is the clock while the CPU was not interrupted, ``share_fraction`` its share of the time.
    ``chain_ratio`` compares the chain with vector work to the chain alone, ``None`` without vector work.
    """

    kind: Literal["core_frequency"] = "core_frequency"

    axes: ClassVar = {
        "work": Annotated[str, Field(pattern=f"^{ANY_WORK}$")],
        "active": Annotated[str, Field(pattern=ACTIVE)],
        "cpu": int,
    }
    columns: ClassVar = {
        "active_cpus": int,
        "frequency_hz": Estimate,
        "share_fraction": float,
        "chain_ratio": float | None,
    }

    @property
    def rows(self) -> list[ClockRow]:
        """The same points by work and activity."""
        return rows_of(self.points)


class CoreFrequency(Declaration[CoreFrequencySettings, CoreFrequencyValues]):
    """A chain of additions measures the clock, with independent vector instructions as the load."""

    title = "Core frequency"
    question = "At which clock does each core run under scalar and vector work, alone and with all others?"
    metric_rows = (
        *(
            MetricRow(
                f"core_frequency.{{work:{work}}}.{{cores:{cores}}}.{{core:{core}}}_hz",
                "clock of the slowest core, of the fastest, or their median, each alone or all at once, by work",
                "clock",
                "Hz",
                "higher",
                CLOCK_REPEATS,
                CLOCKED,
                record,
            )
            for work, cores, core, record in (
                ("scalar", "all", "median", Record("clock", "Core clock, all cores busy")),
                ("scalar", "all", "lowest", Record("clock", "Core clock, all cores busy", rank=1)),
                (ANY_WORK, "alone|all", "lowest|median|highest", None),
            )
        ),
        MetricRow(
            f"core_frequency.{{work:{ANY_WORK}}}.{{cores}}.median_hz",
            "median clock of so many cores at once, spread over nodes and last-level caches, by work",
            "clock",
            "Hz",
            "higher",
            CLOCK_REPEATS,
            CLOCKED,
        ),
        fraction(
            f"core_frequency.{{work:{ANY_WORK}}}.{{cores:alone|all}}.spread",
            "difference of the fastest and the slowest core, by their median",
            "clock",
            better="lower",
            tolerance=ALIKE,
            depends=CLOCKED,
        ),
    )

    def steps(self, sut: Sut, settings: CoreFrequencySettings) -> Iterator[Planned]:
        """Yield one step with one CPU of every core."""
        architecture = sut.context.processor.architecture or ""
        if architecture not in WORKS:
            yield self.not_planned(f"no work is written for {architecture!r}")
            return
        works = []
        known = set(sut.context.processor.flags)
        for work in WORKS[architecture]:
            if known and not known.issuperset(work.features):
                reason = f"the processor does not list {' and '.join(work.features)} among its features"
                yield self.not_planned(reason, f"{self.title} under {work.name} work")
            else:
                works.append(work.name)
        cpus = sut.one_per_core(sut.cpus)
        alone = spread_over(sut, cpus, settings.alone_cores)
        if len(alone) < len(cpus):
            yield self.not_planned(
                f"each costs its own time; {len(alone)} are measured alone, spread over the nodes (alone_cores), and "
                f"all {len(cpus)} at once",
                f"{self.title} of {len(cpus) - len(alone)} of {len(cpus)} cores alone",
            )
        active = ["alone"] if len(cpus) == 1 else ["alone", "all"]
        order = sut.spread(cpus) if settings.turbo_steps else []
        some = [order[: 1 << power] for power in range(1, len(order).bit_length()) if 1 << power < len(order)]
        points = len(works) * (len(alone) + (len(cpus) > 1) + len(some))
        point_s = settings.settle_s + settings.windows * settings.window_s
        yield self.step(
            f"{', '.join(works)}, {units.plural(len(cpus), 'core')}",
            "frequency",
            {
                "cpus": format_cpulist(cpus),
                "alone-cpus": format_cpulist(alone),
                "together": [format_cpulist(part) for part in some],
                "work": ",".join(works),
                "active": ",".join(active),
                "windows": settings.windows,
                "window-s": settings.window_s,
                "settle-s": settings.settle_s,
            },
            cpus=cpus,
            memory_bytes={},
            cost_s=points * (POINT_S + point_s),
            setup_s=points * (POINT_S + settings.settle_s),
            repeated=settings,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield all cores under all kinds of work; one without a value is listed with its reason."""
        del sut
        result = read_result(document, FrequencyResult)
        target = step.target_half_width
        measured = [point for point in result.points if point.error is None]
        require_any(measured, result.points, "core's frequency")
        table = CoreFrequencyValues.table_of(_row(point, target) for point in measured)
        yield Parsed(
            values=CoreFrequencyValues(table=table),
            flags=(
                *document_flags(document),
                *lost_flags(result.points),
                *_proof_flags(measured),
                *interference_flags(
                    [point.interference for point in measured if point.interference], f"of {len(measured)} points"
                ),
                *_slow_flags(row for row in rows_of(table.rows) if not row.partial),
            ),
            missing=missing_parts(result.points, _words),
        )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield each CPU's deviation from the median of its row (per cent), for more than two CPUs, and the steps."""
        for measurement in run.of(self.kind):
            values = measurement.values
            if len({point.cpu for point in values.points}) > 2:
                rows = [row for row in values.rows if row.active == "all"] or values.rows
                clocks = {
                    f"{row.name}: median {units.frequency(round(row.median_hz))}": (
                        row.median_hz,
                        {point.cpu: point.frequency_hz for point in row.points},
                    )
                    for row in rows
                }
                yield deviations_chart(measurement, clocks, nodes=run.nodes)
            if any(row.partial for row in values.rows):
                yield line_chart(
                    f"{measurement.id}-turbo",
                    [measurement],
                    curves_of(
                        (row.work, (float(row.points[0].active_cpus), row.middle or row.median_hz))
                        for row in values.rows
                    ),
                    (
                        Axis("Active cores", kind="octaves", text=lambda count: units.plural(round(count), "core")),
                        Axis("Clock", "GHz", scale=1e9),
                    ),
                    alt="Median clock by the number of active cores",
                )

    def summary(self, measured: Sequence[CoreFrequencyValues]) -> Iterator[str]:
        """Yield the clock with all cores busy, and the slowest CPU."""
        for row in (row for values in measured for row in values.rows if row.active == "all"):
            slowest, middle = row.points[0], combined([point.frequency_hz for point in row.points], median, "Hz")
            shown = units.frequency(row.median_hz) if middle is None else units.headline(middle)
            yield (
                f"{sentence_case(row.name)}: median {shown}, slowest CPU {slowest.cpu} "
                f"{(1 - slowest.frequency_hz.value / row.median_hz) * 100:.2f} % below."
            )

    def metrics(self, values: CoreFrequencyValues) -> Iterator[Metric]:
        """Yield lowest, median and highest clock and their spread, for each kind of work, alone and at once."""
        for row in rows_of(values.points):
            prefix = f"{row.work}.{row.active}"
            title = f"{self.title}, {row.name}"
            median_hz = row.middle
            if row.partial:
                if median_hz is not None:
                    yield self.metric(f"{prefix}.median_hz", f"{title}, median of the cores", median_hz)
                continue
            if len(row.points) == 1:
                yield self.metric(f"{prefix}.lowest_hz", title, row.points[0].frequency_hz)
                continue
            for name, point in (("lowest", row.points[0]), ("highest", row.points[-1])):
                yield self.metric(f"{prefix}.{name}_hz", f"{title}, {name}", point.frequency_hz)
            clocks = [point.frequency_hz for point in row.points]
            if median_hz is not None:
                yield self.metric(f"{prefix}.median_hz", f"{title}, median of the cores", median_hz)
            if (spread := combined(clocks, _spread, "fraction")) is not None:
                yield self.metric(f"{prefix}.spread", f"{title}, spread of the cores", spread)


def spread_over(sut: Sut, cpus: Sequence[int], most: int) -> list[int]:
    """Return at most *most* of *cpus*, ascending: an even share of each node's, including its first and last."""
    if len(cpus) <= most:
        return list(cpus)
    nodes = [sorted(set(cpus).intersection(sut.cpus_of(node))) for node in sut.cpu_nodes]
    shares = [most // len(nodes) + (index < most % len(nodes)) for index in range(len(nodes))]
    return sorted(cpu for own, share in zip(nodes, shares, strict=True) for cpu in _evenly(own, share))


def _evenly(items: Sequence[int], count: int) -> list[int]:
    if count >= len(items):
        return list(items)
    if count < 2:
        return list(items[:count])
    return [items[round(index * (len(items) - 1) / (count - 1))] for index in range(count)]


def median_without(ascending: Sequence[float], index: int) -> float:
    """Return the median of *ascending* (at least two values) without the one at *index*."""
    middle = len(ascending) - 1
    low, high = (ascending[place + (place >= index)] for place in ((middle - 1) // 2, middle // 2))
    return (low + high) / 2


def _spread(clocks: Sequence[float]) -> float:
    return (max(clocks) - min(clocks)) / median(clocks)


def _words(point: FrequencyPoint) -> str:
    return f"CPU {point.cpu}, {point.work}, {point.active}"


def _row(point: FrequencyPoint, target_half_width: float | None) -> dict[str, Any]:
    """Return *point* as a row; interrupted windows are dropped while more than half remain."""
    if not point.windows_hz or point.share is None or point.dirty_windows is None:
        raise InputError(f"no windows and no error for {_words(point)}")
    parts = point.rounds or (point,)
    return {
        **{name: getattr(point, name) for name in ("work", "active", "cpu", "active_cpus", "chain_ratio")},
        "frequency_hz": estimate(
            [undisturbed(part.windows_hz or (), set(part.dirty_windows or ())) for part in parts],
            "Hz",
            rounds=range(len(parts)) if point.rounds else (),
            target_half_width=target_half_width,
        ),
        "share_fraction": point.share,
    }


def _proof_flags(points: Sequence[FrequencyPoint]) -> Iterator[Flag]:
    """Yield a flag for each point whose chain was not verified to run, on its CPU, at the clock."""
    if astray := [point for point in points if not point.cpu_verified]:
        yield flag("CPU_UNVERIFIED", f"the thread was not on its CPU at the end: {_words(astray[0])}")
    if wrong := [point for point in points if not point.checked]:
        yield flag("WORK_UNPROVED", f"wrong number of executed instructions: {_words(wrong[0])}")
    off = [point for point in points if point.chain_ratio is not None and abs(point.chain_ratio - 1) > CHAIN_TOLERANCE]
    if off:
        worst = max(off, key=lambda core: abs((core.chain_ratio or 1) - 1))
        yield flag(
            "WORK_UNPROVED",
            f"the chain ran at {worst.chain_ratio:.3f} of its own speed beside the vector work, so it was not the "
            f"clock in {len(off)} of {len(points)} points: {_words(worst)}",
        )


def _slow_flags(rows: Iterable[ClockRow]) -> Iterator[Flag]:
    """Yield a flag for each of *rows* with a core whose interval is below the other cores'."""
    for row in rows:
        if len(row.points) < 2:
            continue
        slow = []
        clocks = row.clocks_hz
        for index, point in enumerate(row.points):
            others = median_without(clocks, index)
            _, high = point.frequency_hz.interval or (0.0, point.frequency_hz.value)
            if high < (1 - MIN_SLOWDOWN) * others:
                slow.append((point, others))
        if slow:
            worst, others = slow[0]
            yield flag(
                "SLOW_CORE",
                f"{row.name}: {units.numbered('CPU', [point.cpu for point, _ in slow])}, "
                f"worst CPU {worst.cpu} at {worst.frequency_hz.value / 1e9:.3f} GHz where the median of the others is "
                f"{others / 1e9:.3f} GHz",
            )
