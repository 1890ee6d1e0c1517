# SPDX-License-Identifier: Apache-2.0
"""Burn-in: everything at full load for hours, with every byte of memory and every result of arithmetic verified."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.grouping import grouped, of_known
from calibration.base.model import Model, shared_fields
from calibration.base.validity import Flag, flag
from calibration.charts.base import Chart
from calibration.charts.curves import Axis, curves_of, line_chart
from calibration.measurements.base import Declaration, MeasuredRun, Metric, Parsed, Planned, Settings, Step, Values
from calibration.measurements.core_frequency import WORKS
from calibration.measurements.evidence import (
    document_flags,
    interference_flags,
    missing_parts,
    page_flags,
    require_any,
)
from calibration.measurements.metric_rows import (
    CLOCK_REPEATS,
    CLOCKED,
    MEMORY_TRAFFIC,
    MetricRow,
    Record,
    Tolerance,
    bandwidth,
)
from calibration.measurements.sut import HUGE_BYTES, KEPT_FREE_BYTES, Sut, size_flags
from calibration.measurements.traffic import (
    NODE_FILL_BYTES_PER_S,
    NODE_PROVE_BYTES_PER_S,
    THREAD_FILL_BYTES_PER_S,
    THREAD_PROVE_BYTES_PER_S,
    Part,
    memory_bound_thread_bytes,
    read_group,
    read_sizes,
)
from calibration.sutprobe.burn import BurnedNode, BurnResult, BurnRound, Mismatch
from calibration.sutprobe.document import ProbeDocument, read_result

WINDOWS = 20
"""Parts of a round whose rates, clock and temperature are kept: 620 at most, whatever the length."""

VERIFIED_UNITS = ((1e12, "TB"), (1e9, "GB"))
"""Units of what was verified, the largest first."""

NOT_BROKEN = Tolerance(fraction=1.0, reason="any error fails the run by itself")
STEADY = Tolerance(fraction=0.1, reason="half of the load is arithmetic, whose share of the time varies")
WARM = Tolerance(fraction=0.1, reason="a room varies by a few degrees")


class BurnInSettings(Settings):
    """All CPUs at full load for *seconds* in each round, and *memory_share* of what each node has available.

    Longer: more *seconds* (up to a day), or more ``rounds`` of the profile.
    """

    seconds: Annotated[float, Field(gt=0, le=86400)] = 600.0
    memory_share: Annotated[PositiveFloat, Field(le=0.95)] = 0.8


class CoursePoint(Model):
    """One window: ``at_s`` under load since the first round began, its rates, clocks, temperature and power.

    ``temperature_c`` is that of the hottest sensor, ``power_w`` of all packages. ``None``: unreadable.
    """

    at_s: float
    verified_mb_s: float
    median_hz: float | None
    lowest_hz: float | None
    lowest_cpu: int | None
    temperature_c: float | None
    power_w: float | None


class SlowestCpu(Model):
    """The CPU with the lowest clock of all windows."""

    cpu: int
    hz: float


class BurnInValues(Values):
    """What was verified under full load, what was wrong, and how the machine fared meanwhile.

    ``wrong_words`` are words of memory that differ from what was written, ``wrong_results`` results of arithmetic.
    ``mismatches`` are the first of the words, ``wrong_cpus`` the CPUs that found anything. ``course`` has the windows
    of all rounds. ``core_throttle`` and ``package_throttle`` are summed over the CPUs, ``None`` if not counted.
    """

    kind: Literal["burn_in"] = "burn_in"
    work: str
    cpus: int
    load_s: float
    nodes: tuple[BurnedNode, ...]
    wrong_words: int
    wrong_bits: int
    wrong_results: int
    wrong_cpus: tuple[int, ...]
    mismatches: tuple[Mismatch, ...]
    slowest_cpu: SlowestCpu | None
    core_throttle: int | None
    package_throttle: int | None
    unreadable: dict[str, str]
    course: tuple[CoursePoint, ...]

    @property
    def errors(self) -> int:
        """Everything that was wrong."""
        return self.wrong_words + self.wrong_results

    @property
    def verified_bytes(self) -> int:
        """Bytes that were read back and compared."""
        return sum(node.verified_bytes for node in self.nodes)

    @property
    def lowest_mb_s(self) -> float | None:
        """The rate at which memory was verified in the slowest window."""
        return min((point.verified_mb_s for point in self.course), default=None)

    @property
    def highest_c(self) -> float | None:
        """The highest temperature."""
        return of_known(max, (point.temperature_c for point in self.course))

    @property
    def highest_w(self) -> float | None:
        """The highest power of the packages in a window."""
        return of_known(max, (point.power_w for point in self.course))


class BurnIn(Declaration[BurnInSettings, BurnInValues]):
    """Vector arithmetic with known results, and a march over memory, half of the time each, on all CPUs."""

    title = "Burn-in"
    question = "Does the machine compute and remember correctly under hours of full load?"
    fills_memory = True
    fails_with: ClassVar = frozenset(
        {"DATA_WRONG", "ERRORS_CORRECTED", "ERRORS_UNCORRECTED", "PROBE_KILLED", "THROTTLED"}
    )
    metric_rows = (
        MetricRow(
            "burn_in.errors",
            "words of memory and results of arithmetic that were wrong",
            "burn_in",
            "errors",
            "lower",
            NOT_BROKEN,
            MEMORY_TRAFFIC | CLOCKED,
            Record("errors", "Errors under full load"),
        ),
        bandwidth("burn_in.verified_mb_s", "memory read back and compared, on average", "burn_in", tolerance=STEADY),
        bandwidth("burn_in.lowest_mb_s", "the same in the slowest window", "burn_in", tolerance=STEADY),
        MetricRow(
            "burn_in.lowest_hz",
            "clock of the slowest core in its slowest window",
            "clock",
            "Hz",
            "higher",
            CLOCK_REPEATS,
            CLOCKED,
        ),
        MetricRow("burn_in.highest_c", "highest temperature of a package", "burn_in", "°C", "lower", WARM, CLOCKED),
    )

    def steps(self, sut: Sut, settings: BurnInSettings) -> Iterator[Planned]:
        """Yield one step with all CPUs, and the memory of all nodes."""
        parts, sizes = [], []
        for part in _parts(sut):
            size = _thread_bytes(sut, part, settings.memory_share)
            if size < HUGE_BYTES:
                yield self.not_planned("less than 2 MiB for each CPU", f"{self.title} of memory of node {part.node}")
                continue
            parts.append(part)
            sizes.append(size)
        if not parts:
            return
        by_node = {part.node: size * len(part.cpus) for part, size in zip(parts, sizes, strict=True)}
        own: dict[int, int] = {}
        for part, size in zip(parts, sizes, strict=True):
            own |= {cpu: own.get(cpu, 0) + size for cpu in part.cpus}
        fill_s = max(max(own.values()) / THREAD_FILL_BYTES_PER_S, max(by_node.values()) / NODE_FILL_BYTES_PER_S)
        prove_s = max(max(own.values()) / THREAD_PROVE_BYTES_PER_S, max(by_node.values()) / NODE_PROVE_BYTES_PER_S)
        length, memory = units.exact_duration(settings.seconds), units.size(sum(by_node.values()))
        yield self.step(
            f"{length}, {units.plural(len(own), 'CPU')}, {memory}",
            "burn",
            {
                "group": [f"{part}:{size}" for part, size in zip(parts, sizes, strict=True)],
                "work": _work(sut),
                "seconds": settings.seconds,
                "windows": WINDOWS,
            },
            cpus=sorted(own),
            memory_bytes=by_node,
            cost_s=settings.seconds + fill_s + prove_s,
            setup_s=fill_s,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield one measurement of everything."""
        del step
        result = read_result(document, BurnResult)
        require_any([cpu for cpu in result.cpus if cpu.verified_bytes], result.cpus, "CPU's burn-in")
        values = BurnInValues(
            **shared_fields(BurnInValues, result)
            | {"cpus": len(result.cpus)}
            | {name: getattr(result.interference, name) for name in ("core_throttle", "package_throttle")},
            wrong_words=sum(cpu.wrong_words for cpu in result.cpus),
            wrong_bits=sum(cpu.wrong_bits for cpu in result.cpus),
            wrong_results=sum(cpu.wrong_sums + cpu.wrong_lanes for cpu in result.cpus),
            wrong_cpus=tuple(cpu.cpu for cpu in result.cpus if cpu.wrong_words or cpu.wrong_sums or cpu.wrong_lanes),
            slowest_cpu=min(
                (SlowestCpu(cpu=cpu.cpu, hz=cpu.lowest_hz) for cpu in result.cpus if cpu.lowest_hz is not None),
                key=lambda slowest: slowest.hz,
                default=None,
            ),
            unreadable={
                missing.kind: missing.reason
                for part in result.course
                if part.telemetry is not None
                for missing in part.telemetry.unreadable
            },
            course=tuple(_course(result.course)),
        )
        yield Parsed(
            values=values,
            flags=(*_flags(values), *_size_flags(sut, document, result), *_evidence(document, result)),
            missing=missing_parts(result.cpus, lambda cpu: f"CPU {cpu.cpu}"),
        )

    def summary(self, measured: Sequence[BurnInValues]) -> Iterator[str]:
        """Yield what was verified, and what was wrong."""
        for values in measured:
            scale, unit = units.fitting(values.verified_bytes, VERIFIED_UNITS)
            wrong = units.plural(values.errors, "error") if values.errors else "no error"
            yield (
                f"{units.plural(values.cpus, 'CPU')} under full load for {units.duration(values.load_s)}, "
                f"{values.verified_bytes / scale:.3g} {unit} of memory verified: {wrong}."
            )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the clocks, and the temperature if it is known, over the time under load."""
        minutes = Axis("Time under load", "min", scale=60.0)
        for values in run.values(self.kind):
            yield line_chart(
                self.kind,
                run.of(self.kind),
                curves_of(
                    (label, (point.at_s, getattr(point, name)))
                    for label, name in (("median CPU", "median_hz"), ("slowest CPU", "lowest_hz"))
                    for point in values.course
                    if getattr(point, name) is not None
                ),
                (minutes, Axis("Core clock", "GHz", scale=1e9)),
                points=False,
                alt="Core clock over the time under full load",
                caption="The y axis does not start at zero.",
            )
            if values.highest_c is not None:
                yield line_chart(
                    f"{self.kind}-temperature",
                    run.of(self.kind),
                    curves_of(
                        ("hottest package", (point.at_s, point.temperature_c))
                        for point in values.course
                        if point.temperature_c is not None
                    ),
                    (minutes, Axis("Temperature", "°C")),
                    points=False,
                    alt="Temperature over the time under full load",
                    caption="The y axis does not start at zero.",
                )

    def metrics(self, values: BurnInValues) -> Iterator[Metric]:
        """Yield the errors, the rates, the lowest clock and the highest temperature."""
        yield self.metric("errors", f"Errors in {units.duration(values.load_s)} of full load", float(values.errors))
        if values.lowest_mb_s is not None:
            mean = fmean(point.verified_mb_s for point in values.course)
            yield self.metric("verified_mb_s", "Memory verified under full load", mean)
            yield self.metric("lowest_mb_s", "Memory verified under full load, slowest window", values.lowest_mb_s)
        if values.slowest_cpu is not None:
            yield self.metric("lowest_hz", "Lowest core clock under full load", values.slowest_cpu.hz)
        if values.highest_c is not None:
            yield self.metric("highest_c", "Highest temperature under full load", values.highest_c)


def _parts(sut: Sut) -> Iterator[Part]:
    """Yield the memory of each node with the CPUs that test it: those that use it by default, or the nearest ones."""
    home = grouped((sut.home(node), node) for node in sut.cpu_nodes)
    for node in sorted({*home, *sut.memory_nodes}):
        nodes = home.get(node) or [sut.nearest(node, sut.cpu_nodes)]
        yield Part(tuple(sorted(cpu for own in nodes for cpu in sut.cpus_of(own))), node)


def _thread_bytes(sut: Sut, part: Part, share: float) -> int:
    """Return the memory of each thread of *part*; beyond the caches if it is unknown how much is available."""
    available = sut.available_bytes.get(part.node)
    if available is None:
        (size,) = memory_bound_thread_bytes(sut, [part])
    else:
        size = min(int(available * share), available - KEPT_FREE_BYTES) // len(part.cpus)
    return max(0, size) // HUGE_BYTES * HUGE_BYTES


def _work(sut: Sut) -> str:
    """Return the widest arithmetic of the processor."""
    known = set(sut.context.processor.flags)
    works = WORKS.get(sut.context.processor.architecture or "", WORKS["ppc64le"])
    return [work.name for work in works if known.issuperset(work.features)][-1]


def _course(rounds: Iterable[BurnRound]) -> Iterator[CoursePoint]:
    begin_s = 0.0
    for part in rounds:
        for place, window in enumerate(part.windows):
            temperature_c, power_w = _read(part, place)
            yield CoursePoint(
                **shared_fields(CoursePoint, window),
                at_s=begin_s + (place + 0.5) * part.window_s,
                temperature_c=temperature_c,
                power_w=power_w,
            )
        begin_s += len(part.windows) * part.window_s


def _read(part: BurnRound, place: int) -> tuple[float | None, float | None]:
    """Return the highest temperature in a window, and the power of the packages since the one before."""
    if part.telemetry is None or place >= len(part.telemetry.readings):
        return None, None
    sources, readings = part.telemetry.sources, part.telemetry.readings
    now, before = readings[place], readings[max(0, place - 1)]
    temperatures = [value for source, value in zip(sources, now.values, strict=True) if source.kind == "temperature"]
    taken = [
        None if new is None or old is None else new - old
        for source, new, old in zip(sources, now.values, before.values, strict=True)
        if source.kind == "energy" and source.name.startswith("package")
    ]
    joules = of_known(sum, taken)
    elapsed_s = now.s - before.s
    return of_known(max, temperatures), None if joules is None or elapsed_s <= 0 else joules / elapsed_s


def _flags(values: BurnInValues) -> Iterator[Flag]:
    if values.errors:
        parts = []
        if values.wrong_words:
            first = values.mismatches[0]
            parts.append(
                f"{units.plural(values.wrong_words, 'word')} of memory differed from what was written, "
                f"first at {first.offset_bytes:#x} of CPU {first.cpu}'s memory on node {first.node}: "
                f"{first.found} in place of {first.expected}"
            )
        if values.wrong_results:
            parts.append(f"{units.plural(values.wrong_results, 'wrong result')} of arithmetic")
        yield flag("DATA_WRONG", f"{'; '.join(parts)}; found by {units.numbered('CPU', values.wrong_cpus)}")


def _size_flags(sut: Sut, document: ProbeDocument, result: BurnResult) -> Iterator[Flag]:
    """Yield a flag if the memory under test is not beyond the caches."""
    together = min(
        size * sut.fewest_per_llc(part.cpus)
        for word in document.parameters["group"]
        for part, size in zip(read_group(word), read_sizes(word), strict=True)
    )
    yield from size_flags(sut, together, {node.node: node.bytes for node in result.nodes})


def _evidence(document: ProbeDocument, result: BurnResult) -> Iterator[Flag]:
    yield from document_flags(document)
    yield from page_flags(document, [result.pages], "of 1 placement")
    if astray := [cpu.cpu for cpu in result.cpus if not cpu.cpu_verified]:
        yield flag("CPU_UNVERIFIED", f"CPUs {format_cpulist(astray)}: the thread was not there at the end")
    yield from interference_flags([result.interference], f"of {units.plural(len(result.course), 'round')}")
