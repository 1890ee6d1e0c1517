# SPDX-License-Identifier: Apache-2.0
"""Wake-up latency: how late a thread runs after its timer expired, idle and loaded."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import ceil
from statistics import median
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.errors import InputError
from calibration.base.grouping import grouped, of_known
from calibration.base.model import Model
from calibration.base.percentiles import Histogram, beyond_longest, merged, percentile, samples_for, worst_but
from calibration.base.statistics import Estimate, estimate
from calibration.base.validity import Flag, flag
from calibration.charts import base
from calibration.charts.base import Chart
from calibration.charts.curves import Axis, curves_of, line_chart
from calibration.context.model import Context
from calibration.measurements.base import (
    TRACED_SUFFIX,
    Declaration,
    MeasuredRun,
    Metric,
    Observation,
    Parsed,
    Planned,
    Settings,
    Step,
    Values,
)
from calibration.measurements.chase import chain_memory
from calibration.measurements.evidence import Missing, document_flags, information, missing_part
from calibration.measurements.instructions import without_flush
from calibration.measurements.metric_rows import DISTURBED, INTERRUPTED, P99_OF_CPUS, Record, latency
from calibration.measurements.sut import (
    FIFO_LEAVES_NONE,
    FORK_PROCESSES,
    LOAD_CPUS,
    NONE_TO_LOAD,
    Place,
    Sut,
    none_isolated,
)
from calibration.sutprobe.document import Part, ProbeDocument, ProbeError, Result, read_result
from calibration.sutprobe.placement import CpuView, Interference, verified_in_rounds
from calibration.sutprobe.tracing import TracedCause, TracedRest, Unexplained

PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)
"""Percentiles that are reported as far as the number of samples supports them."""

WORST = 10
"""Latest wake-ups listed, of each CPU by sutprobe and of all in the values."""

LEAD_S = 0.05
"""Before each condition: reading of counters and wake-ups that do not count, for the expected duration only."""

CPU_S = 0.001
"""Time per CPU and condition of the controlling thread, for the expected duration only."""

COARSE_TIMER_NS = 1000
"""Resolution of the kernel's timers from which wake-ups are late by it: 1 if it is high, else the length of a tick."""

CURVE_POINTS = 120
"""Most points of a curve."""

Load = Literal["none", "memory", "housekeeping"]
Condition = Literal["idle", "shallow_idle", "memory", "housekeeping", "shallow_memory", "shallow_housekeeping"]
"""``shallow_*``: the same with deep idle states kept away."""


# The result of ``sutprobe wakeup``


class Ran(Model):
    """What the kernel ran between a deadline and its wake-up; ``unexplained`` is idle exit, firmware or hypervisor."""

    causes: tuple[TracedCause, ...]
    edges: TracedRest
    unexplained: Unexplained


class Wake(Model):
    """One of the latest wake-ups; ``ran`` is ``None`` if the kernel was not traced then, or its events were lost."""

    late_ns: int
    at_unix_ns: int
    ran: Ran | None


class Command(Model):
    """The operator's command, started ``after_ns`` for a late wake-up; ``error`` says why it could not be started.

    ``text`` is the first of the ``printed_bytes`` that it printed. It was ``killed`` if it took too long, or the
    measurement was ended. ``exit_code`` or ``signal`` is how it ended.
    """

    error: str | None
    after_ns: int
    took_s: float
    exit_code: int | None
    signal: int | None
    killed: bool
    printed_bytes: int
    text: str

    @property
    def ended(self) -> str:
        """How it ended, in words."""
        if self.error is not None:
            return f"not started: {self.error}"
        how = f"exit code {self.exit_code}" if self.signal is None else f"signal {self.signal}"
        return f"{'killed' if self.killed else how} after {units.time_ns(self.took_s * 1e9)}"

    @property
    def first_line(self) -> str:
        """The first line that it printed, of at most 80 characters; the run document has more."""
        return self.text.partition("\n")[0].rstrip()[:80]


class LateWake(Model):
    """A late wake-up of one of all CPUs: when (Unix time), and what the kernel ran if it was traced.

    ``command`` is the one that was started for it; ``None`` if none was, or that for an earlier one still ran.
    """

    cpu: int
    late_ns: int
    at_unix_ns: int
    ran: Ran | None
    command: Command | None = None

    @property
    def at(self) -> str:
        """When it was, in UTC with ms."""
        return f"{datetime.fromtimestamp(self.at_unix_ns // 1_000_000 / 1e3, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


class LateWakes(Model):
    """The ``first`` of ``count`` wake-ups at least ``threshold_ns`` late, in the order of each round.

    ``refused`` says why what ran before them is not known.
    """

    threshold_ns: int
    count: int
    first: tuple[LateWake, ...]
    refused: str | None = None

    @classmethod
    def of_rounds(cls, parts: Sequence[Self]) -> Self | None:
        """Return those of all rounds, the first of them; ``None`` if none were asked for."""
        if not parts:
            return None
        first = tuple(wake for part in parts for wake in part.first)[:WORST]
        return parts[0].model_copy(update={"count": sum(part.count for part in parts), "first": first})


class WakeupCpu(CpuView):
    """Wake-ups of one CPU; ``late_ns`` has a count for each ns up to 128 ns, and buckets 1.6 % wide beyond.

    Without ``cpu_verified`` they are in no value.
    ``missed`` deadlines passed before the thread ran for an earlier one; they are not among the ``wakes``. ``above``
    counts wake-ups at least as late as each threshold of the result.
    """

    wakes: int
    missed: int
    early: int
    min_ns: int | None
    busy: float
    above: tuple[int, ...]
    late_ns: Histogram
    worst: tuple[Wake, ...]

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        if self.late_ns.total != self.wakes:
            raise ValueError(f"{self.late_ns.total} samples in the histogram of CPU {self.cpu}, not {self.wakes}")
        return self


class WakeupCondition(Model):
    """All CPUs under one load. ``rounds`` are those that this one is merged from, empty if it was measured once.

    ``late`` are the first beyond a threshold, if they were asked for.
    """

    load: Load
    traced: bool
    stopped: Literal["time", "threshold", "interrupted"]
    wall_s: float
    load_mb_s: float | None
    forks_per_s: float | None
    cpus: tuple[WakeupCpu, ...]
    late: LateWakes | None = None
    interference: Interference
    rounds: tuple[Self, ...] = ()


class FailedCondition(Model):
    """A condition without wake-ups, because its load could not be made or did not last."""

    load: Load
    traced: bool
    error: ProbeError


class WakeupResult(Result):
    """Result of ``sutprobe wakeup``: one condition after another, each on all CPUs at once.

    ``timer_resolution_ns`` is 1 with high-resolution timers, else the length of a tick.
    """

    period_ns: int
    timer_slack_ns: int
    timer_resolution_ns: int
    fifo: int
    memory_locked: bool
    idle_latency_us: int | None
    asked_mb_s: float | None
    load_threads: int
    housekeeping_cpus: int
    tracing_refused: str | None
    thresholds_ns: tuple[int, ...]
    conditions: tuple[WakeupCondition, ...]
    failed: tuple[FailedCondition, ...] = ()

    @classmethod
    def merged(cls, rounds: Sequence[tuple[Part, Self]]) -> Self:
        """Return the results of *rounds* as one, whose histograms are the sums."""
        found = grouped((condition.load, condition) for _, result in rounds for condition in result.conditions)
        first = rounds[0][1]
        if any(result.period_ns != first.period_ns for _, result in rounds):
            raise InputError("rounds with different periods")
        changes = {
            "conditions": tuple(map(_merged_condition, found.values())),
            "failed": tuple(failed for _, result in rounds for failed in result.failed),
            "memory_locked": all(result.memory_locked for _, result in rounds),
        }
        return first.model_copy(update=changes)


def _merged_condition(parts: Sequence[WakeupCondition]) -> WakeupCondition:
    cpus = grouped((cpu.cpu, cpu) for part in parts for cpu in part.cpus)
    return parts[0].model_copy(
        update={
            "stopped": next((part.stopped for part in parts if part.stopped != "time"), "time"),
            "wall_s": sum(part.wall_s for part in parts),
            "load_mb_s": of_known(median, (part.load_mb_s for part in parts)),
            "forks_per_s": of_known(median, (part.forks_per_s for part in parts)),
            "cpus": tuple(_merged_cpu(cpus[number]) for number in sorted(cpus)),
            "late": LateWakes.of_rounds([part.late for part in parts if part.late is not None]),
            "interference": Interference.summed([part.interference for part in parts]),
            "rounds": tuple(parts),
        }
    )


def _merged_cpu(parts: Sequence[WakeupCpu]) -> WakeupCpu:
    verified, error = verified_in_rounds(parts)
    parts = [part for part in parts if part.cpu_verified] or parts
    worst = sorted((wake for part in parts for wake in part.worst), key=lambda wake: -wake.late_ns)
    return WakeupCpu(
        cpu=parts[0].cpu,
        cpu_verified=verified,
        error=error,
        wakes=sum(part.wakes for part in parts),
        missed=sum(part.missed for part in parts),
        early=sum(part.early for part in parts),
        min_ns=of_known(min, (part.min_ns for part in parts)),
        busy=max(part.busy for part in parts),
        above=tuple(map(sum, zip(*(part.above for part in parts), strict=True))),
        late_ns=merged(part.late_ns for part in parts),
        worst=tuple(worst[:WORST]),
    )


# Percentiles


class Percentile(Model):
    """A percentile over all CPUs and rounds, as far as the samples support it.

    ``value_ns`` has an ``interval`` from the order of the samples (95 %), which covers chance but not what differs from
    round to round; ``in_rounds`` is the estimate over rounds, if each round supports one. With fewer samples only
    ``bound_ns`` is known: with 95 % confidence the percentile is at most that. ``reason`` says why nothing is.
    """

    percent: float
    value_ns: float | None = None
    interval: tuple[float, float] | None = None
    in_rounds: Estimate | None = None
    bound_ns: float | None = None
    reason: str | None = None

    @property
    def best(self) -> float | Estimate | None:
        """The value of record: over rounds if known, else of all samples."""
        return self.in_rounds or self.value_ns


def percentile_of(percent: float, found: Histogram, rounds: Sequence[Histogram]) -> Percentile:
    """Return the percentile of *found*, the sum of *rounds* (empty if it was measured once)."""
    middle = percentile(found, percent)
    if middle is None:
        share = 1 - percent / 100
        if beyond_longest(found.total) <= share:
            return Percentile(percent=percent, bound_ns=found.longest)
        return Percentile(percent=percent, reason=f"{found.total} wake-ups, {samples_for(share)} needed for a bound")
    each = [percentile(part, percent) for part in rounds]
    known = [[part.value] for part in each if part is not None]
    in_rounds = estimate(known, "ns", rounds=range(len(known))) if 1 < len(known) == len(each) else None
    return Percentile(percent=percent, value_ns=middle.value, interval=middle.interval, in_rounds=in_rounds)


# The measurement


class WakeupSettings(Settings):
    """Timers on all isolated CPUs (*isolated*: how many, ``None``: all), or on one CPU if none is isolated.

    Deadlines are *period_us* apart, for *seconds* in each round under each of *loads*. Under ``memory`` up to four CPUs
    of each node read *load_mb_s* each; under ``housekeeping`` up to four CPUs start processes. *fifo* is the real-time
    priority of the measuring threads; 0 is an ordinary thread. With *idle_latency_us*, idle is measured a second time
    without idle states that take longer to leave; without ``none`` among the *loads*, it applies to these. With
    *attribute* the kernel is traced after the rounds, in an extra measurement half as long. With *threshold_us* it is
    traced throughout, and what it ran before the first ten wake-ups at least so late is kept. *command*, the path of a
    program on the SUT, is started at each of these, unless it still runs; its arguments are the CPU and how late it was
    in ns.
    """

    period_us: Annotated[int, Field(ge=10, le=1_000_000)] = 1000
    seconds: PositiveFloat = 0.5
    loads: Annotated[tuple[Load, ...], Field(min_length=1)] = ("none", "memory", "housekeeping")
    load_mb_s: PositiveFloat = 500.0
    isolated: PositiveInt | None = None
    fifo: Annotated[int, Field(ge=0, le=99)] = 0
    idle_latency_us: NonNegativeInt | None = None
    attribute: bool = False
    threshold_us: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    command: Annotated[str, Field(pattern=r"^/[^\x00-\x1f\x7f]*$", max_length=4000)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.command is not None and self.threshold_us is None:
            raise ValueError("command needs threshold_us")
        return self


class ReachableState(Model):
    """An idle state that some measured CPU could enter, and how long leaving it takes."""

    name: str
    latency_us: int | None


class LateCount(Model):
    """Wake-ups at least ``threshold_ns`` late."""

    threshold_ns: int
    count: int


class ByCpu(Model):
    """One entry for each of ``cpus``; a percentile is ``None`` if the samples of the CPU do not support it."""

    cpus: tuple[int, ...]
    p50_ns: tuple[float | None, ...]
    p99_9_ns: tuple[float | None, ...]
    max_ns: tuple[float | None, ...]


class TracedWakes(Model):
    """The latest wake-ups while the kernel was traced, in no other value; ``refused`` says why there are none."""

    refused: str | None
    wakes: int
    worst: tuple[LateWake, ...]


class WakeupValues(Values):
    """Wake-up latency of ``cpus`` together, under one condition, in the ``wakes`` of all rounds.

    ``missed`` deadlines passed while an earlier one was late; they are not among the samples of ``late_ns``.
    ``idle_states`` are those that the measured CPUs could enter, ``None`` if
    the kernel reports none. ``asked_mb_s`` and ``load_mb_s`` are the stated and the measured rate of the memory load,
    ``forks_per_s`` the processes started by the housekeeping load.
    """

    kind: Literal["wakeup"] = "wakeup"
    condition: Condition
    cpus: tuple[int, ...]
    isolated: bool
    guest: bool | None
    period_us: float
    fifo: int
    memory_locked: bool
    idle_latency_us: int | None
    idle_states: tuple[ReachableState, ...] | None
    asked_mb_s: float | None
    load_mb_s: float | None
    forks_per_s: float | None
    wall_s: float
    wakes: int
    missed: int
    min_ns: float
    max_ns: float
    percentiles: tuple[Percentile, ...]
    above: tuple[LateCount, ...]
    late_ns: Histogram
    by_cpu: ByCpu
    worst: tuple[LateWake, ...]
    traced: TracedWakes | None
    late: LateWakes | None = None
    interference: Interference

    def percentile(self, percent: float) -> Percentile:
        """Return the percentile of *percent*, one of ``PERCENTS``."""
        return next(found for found in self.percentiles if found.percent == percent)


METRICS = {50.0: "p50_ns", 99.0: "p99_ns", 99.9: "p99_9_ns"}
"""Percentiles with a metric; those beyond are of a few samples."""


STATES: Final = f"{{state:{'|'.join(get_args(Condition))}}}"
RECORDS: Final[dict[Condition, Record]] = {
    "idle": Record("wakeup", "Worst wake-up latency, idle"),
    "shallow_housekeeping": Record("wakeup", "Worst wake-up latency, housekeeping load", rank=1),
}
"""Figures of record of the conditions of nightly and of real-time runs, which are never in the same run."""
OTHER_STATES: Final = f"{{state:{'|'.join(state for state in get_args(Condition) if state not in RECORDS)}}}"
LATEST: Final = "the worst wake-up that was seen, once"


class Wakeup(Declaration[WakeupSettings, WakeupValues]):
    """Threads that sleep until absolute deadlines and see how late they run."""

    title = "Wake-up latency"
    question = "How late does a thread run after its timer expired?"
    longest = ("wake-up", ("conditions", "*", "cpus", "*", "late_ns", "longest"))
    metric_rows = tuple(
        latency(f"wakeup.{states}.{name}", meaning, "wakeup", tolerance=DISTURBED, depends=INTERRUPTED, record=record)
        for states, name, meaning, record in (
            *(
                (STATES, name, f"{percent:g} % of the wake-ups are at most this late", None)
                for percent, name in METRICS.items()
            ),
            *((f"{{state:{state}}}", "max_ns", LATEST, record) for state, record in RECORDS.items()),
            (OTHER_STATES, "max_ns", LATEST, None),
            (STATES, P99_OF_CPUS, "99 % of the CPUs, of at least 100, have no later wake-up", None),
        )
    )

    def steps(self, sut: Sut, settings: WakeupSettings) -> Iterator[Planned]:
        """Yield one step with all loads, and those traced or with deep idle states kept away that are asked for."""
        cpus = sorted(sut.isolated)[: settings.isolated]
        if not cpus:
            cpus = [sut.measuring_cpu(sut.cpu_nodes[0])]
            yield self.not_planned(none_isolated(sut.context), "Wake-up latency of isolated CPUs")
        if settings.fifo and (taken := sut.fifo_cpus(cpus)) != cpus:
            yield self.not_planned(FIFO_LEAVES_NONE, f"Wake-up latency of CPU {cpus[0]}")
            cpus = taken
            if not cpus:
                return
        helpers = sut.load_cpus(cpus)
        reasons = {load: without_flush(sut.context) if load == "memory" else None for load in settings.loads}
        if not helpers:
            reasons.update((load, NONE_TO_LOAD) for load in settings.loads if load != "none")
        for load, reason in reasons.items():
            if reason is not None:
                yield self.not_planned(reason, f"Wake-up latency under the load {load}")
        # Always, unless idle is measured as found: then a second time.
        held_us = None if "none" in settings.loads else settings.idle_latency_us
        if loads := [load for load, reason in reasons.items() if reason is None]:
            yield self._step(sut, settings, cpus, helpers, loads=loads, held_us=held_us)
            if settings.attribute:
                yield self._step(sut, settings, cpus, helpers, loads=["none"], held_us=held_us, traced=True)
        if settings.idle_latency_us is not None and held_us is None:
            yield self._step(
                sut, settings, cpus, helpers, loads=["none"], held_us=settings.idle_latency_us, suffix="-shallow-idle"
            )

    def _step(
        self,
        sut: Sut,
        settings: WakeupSettings,
        cpus: Sequence[int],
        helpers: Sequence[int],
        *,
        loads: Sequence[Load],
        held_us: int | None,
        suffix: str = "",
        traced: bool = False,
    ) -> Step:
        """Return the step with *loads*; one that is *traced* takes half the time."""
        seconds = max(settings.seconds / 2, settings.period_us / 1e6) if traced else settings.seconds
        options: dict[str, object] = {
            "cpus": format_cpulist(cpus),
            "period-us": settings.period_us,
            "seconds": seconds,
            "loads": ",".join(loads),
            "worst": WORST,
        }
        if settings.fifo:
            options["fifo"] = settings.fifo
        readers: list[Place] = []
        forkers: list[int] = []
        if "memory" in loads:
            groups = [
                (sut.home(node), here[:LOAD_CPUS])
                for node in sut.cpu_nodes
                if (here := sut.one_per_core(set(helpers) & set(sut.cpus_of(node))))
            ]
            readers = [Place(cpu, node) for node, here in groups for cpu in here]
            options["load-group"] = [f"{format_cpulist(here)}@{node}" for node, here in groups]
            options["load-mb-s"] = settings.load_mb_s
        if "housekeeping" in loads:
            forkers = sut.housekeeping_cpus(cpus)
            options["housekeeping-cpus"] = format_cpulist(forkers)
        title = units.numbered("CPU", cpus)
        if settings.threshold_us is not None and not traced:
            options |= {"threshold-us": settings.threshold_us, "keep-late": WORST}
            if settings.command is not None:
                options["command"] = settings.command
        if traced:
            options["attribute"] = True
            title, suffix = f"{title}, traced", TRACED_SUFFIX
        if held_us is not None:
            options["idle-latency-us"] = held_us
            title = f"{title}, idle states of at most {held_us} µs"
        return self.step(
            title,
            "wakeup",
            options,
            suffix=suffix,
            part_of=self.kind if traced else None,
            cpus=cpus,
            memory_bytes=chain_memory({}, readers),
            tasks=len(cpus) + len(readers) + FORK_PROCESSES * len(forkers) + (0 if settings.command is None else 2),
            cost_s=len(loads) * (seconds + LEAD_S + CPU_S * len(cpus)),
            setup_s=len(loads) * LEAD_S,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield one measurement per condition; what was traced belongs to the first."""
        del step
        result = read_result(document, WakeupResult)
        traced = next((read_result(part, WakeupResult) for part in document.beside), None)
        errors = {
            condition.load: next((cpu.error for cpu in condition.cpus if cpu.error is not None), None)
            for condition in result.conditions
        }
        errors |= {failed.load: failed.error for failed in result.failed}
        measured = [condition for condition in result.conditions if _own(condition)]
        lost = tuple(
            missing_part(f"Wake-up latency, {NAMES[_name(result, load)]}", error)
            for load, error in errors.items()
            if load not in {condition.load for condition in measured}
        )
        if not measured:
            raise InputError(lost[0].reason if lost else "no wake-up was measured")
        for condition in measured:
            values = _values(result, condition, sut, traced)
            traced = None  # listed once, with the first condition
            yield Parsed(
                suffix=f"-{values.condition}",
                values=values,
                flags=(*document_flags(document), *_flags(values, condition, result)),
                missing=(*lost, *_missing(condition)),
            )
            lost = ()  # likewise

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the share of wake-ups later than a time, a curve per condition."""
        yield line_chart(
            self.kind,
            run.of(self.kind),
            curves_of((values.condition, point) for values in run.values(self.kind) for point in curve(values.late_ns)),
            (
                Axis("Wake-up latency", kind="decades", labels=base.TIME_LABEL, text=units.time_ns),
                Axis("Share of wake-ups", kind="decades"),
            ),
            points=False,
            alt="Share of wake-ups with at least a latency, median and worst",
            values=map(_median_and_worst, run.values(self.kind)),
            caption="Share of wake-ups with at least this latency.",
        )

    def summary(self, measured: Sequence[WakeupValues]) -> Iterator[str]:
        """Yield the median and the latest wake-up under each condition, those of the same CPUs in a sentence."""
        by_cpus: dict[tuple[bool, tuple[int, ...]], list[str]] = {}
        for values in measured:
            by_cpus.setdefault((values.isolated, values.cpus), []).append(_median_and_worst(values))
        for (isolated, cpus), found in by_cpus.items():
            where = f"{len(cpus)} CPUs" if len(cpus) > 1 else f"CPU {cpus[0]}"
            kind = "isolated" if isolated else "not isolated"
            yield f"Wake-up latency of {where} ({kind}), median and worst: {'; '.join(found)}."

    def metrics(self, values: WakeupValues) -> Iterator[Metric]:
        """Yield the percentiles that the samples support, and the latest wake-up."""
        title = f"Wake-up latency, {NAMES[values.condition]}"
        for percent, name in METRICS.items():
            best = values.percentile(percent).best
            if best is not None:
                yield self.metric(f"{values.condition}.{name}", f"{title}, {percent:g} %", best)
        yield self.metric(f"{values.condition}.max_ns", f"{title}, worst of {values.wakes}", values.max_ns)
        maxima = [max_ns for max_ns in values.by_cpu.max_ns if max_ns is not None]
        if (most := worst_but(99, maxima)) is not None:
            yield self.metric(f"{values.condition}.{P99_OF_CPUS}", f"{title}, worst of 99 % of the CPUs", most)

    def observation(self, values: WakeupValues, metric: str) -> Observation | None:
        """Return the wake-ups of which the worst is a metric."""
        if not metric.endswith(".max_ns"):
            return None
        known = zip(values.by_cpu.cpus, values.by_cpu.max_ns, strict=True)
        return Observation(values.wall_s, {cpu: worst for cpu, worst in known if worst is not None}, values.late_ns)


def _median_and_worst(values: WakeupValues) -> str:
    best = units.number(values.percentile(50.0).best)
    middle = "unknown" if best is None else units.time_ns(best)
    return f"{NAMES[values.condition]} {middle} and {units.time_ns(values.max_ns)}"


def curve(late_ns: Histogram) -> list[tuple[int, float]]:
    """Return times in ns with the share of wake-ups at least so late: so many of the buckets, the last among them."""
    points = [(max(1, start), share) for start, share in late_ns.exceeding()]
    return points[:: -(ceil(len(points) / CURVE_POINTS) or 1)][::-1]


NAMES: dict[Condition, str] = {
    "idle": "idle",
    "shallow_idle": "idle, deep idle states disabled",
    "memory": "memory load",
    "housekeeping": "housekeeping load",
    "shallow_memory": "memory load, deep idle states disabled",
    "shallow_housekeeping": "housekeeping load, deep idle states disabled",
}


def _values(result: WakeupResult, condition: WakeupCondition, sut: Sut, traced: WakeupResult | None) -> WakeupValues:
    held_us = result.idle_latency_us
    cpus = _own(condition)
    found = merged(cpu.late_ns for cpu in cpus)
    kept = {cpu.cpu for cpu in cpus}
    by_round = [merged(cpu.late_ns for cpu in _own(part) if cpu.cpu in kept) for part in condition.rounds]
    rounds = [histogram for histogram in by_round if histogram.total]
    return WakeupValues(
        fifo=result.fifo,
        memory_locked=result.memory_locked,
        idle_latency_us=held_us,
        asked_mb_s=None if condition.load_mb_s is None else result.asked_mb_s,
        load_mb_s=condition.load_mb_s,
        forks_per_s=condition.forks_per_s,
        wall_s=condition.wall_s,
        interference=condition.interference,
        condition=_name(result, condition.load),
        cpus=tuple(cpu.cpu for cpu in cpus),
        isolated=bool(cpus) and all(cpu.cpu in sut.isolated for cpu in cpus),
        guest=sut.context.virtualization.guest,
        period_us=result.period_ns / 1e3,
        idle_states=_reachable(sut.context, [cpu.cpu for cpu in cpus], held_us),
        wakes=found.total,
        missed=sum(cpu.missed for cpu in cpus),
        min_ns=min(cpu.min_ns for cpu in cpus if cpu.min_ns is not None),
        max_ns=found.longest,
        percentiles=tuple(percentile_of(percent, found, rounds) for percent in PERCENTS),
        above=tuple(
            LateCount(threshold_ns=threshold_ns, count=sum(counts))
            for threshold_ns, *counts in zip(result.thresholds_ns, *(cpu.above for cpu in cpus), strict=True)
        ),
        late_ns=found,
        by_cpu=ByCpu(
            cpus=tuple(cpu.cpu for cpu in cpus),
            p50_ns=tuple(percentile_of(50.0, cpu.late_ns, ()).value_ns for cpu in cpus),
            p99_9_ns=tuple(percentile_of(99.9, cpu.late_ns, ()).value_ns for cpu in cpus),
            max_ns=tuple(cpu.late_ns.longest for cpu in cpus),
        ),
        worst=_worst(condition),
        traced=None
        if traced is None
        else TracedWakes(
            refused=traced.tracing_refused,
            wakes=sum(cpu.wakes for condition in traced.conditions for cpu in _own(condition)),
            worst=tuple(wake for condition in traced.conditions for wake in _worst(condition)),
        ),
        late=None if condition.late is None else condition.late.model_copy(update={"refused": result.tracing_refused}),
    )


def _name(result: WakeupResult, load: Load) -> Condition:
    own: dict[Load, tuple[Condition, Condition]] = {
        "none": ("idle", "shallow_idle"),
        "memory": ("memory", "shallow_memory"),
        "housekeeping": ("housekeeping", "shallow_housekeeping"),
    }
    return own[load][result.idle_latency_us is not None]


def _own(condition: WakeupCondition) -> list[WakeupCpu]:
    """Return the CPUs whose wake-ups are their own."""
    return [cpu for cpu in condition.cpus if cpu.wakes and cpu.cpu_verified]


def _missing(condition: WakeupCondition) -> Iterator[Missing]:
    for cpu in condition.cpus:
        if not cpu.cpu_verified:
            yield missing_part(f"CPU {cpu.cpu}", cpu.error)
        elif not cpu.wakes:
            yield Missing(what=f"CPU {cpu.cpu}", reason="no deadline was reached")


def _worst(condition: WakeupCondition) -> tuple[LateWake, ...]:
    wakes = [LateWake(cpu=cpu.cpu, **dict(wake)) for cpu in _own(condition) for wake in cpu.worst]
    return tuple(sorted(wakes, key=lambda wake: -wake.late_ns)[:WORST])


def _reachable(context: Context, cpus: Sequence[int], held_us: int | None) -> tuple[ReachableState, ...] | None:
    """Return the idle states that any of *cpus* could enter, not slower to leave than *held_us*."""
    if not context.idle.states:
        return None
    return tuple(
        ReachableState(name=state.name, latency_us=state.latency_us)
        for state in context.idle.states
        if not set(cpus) <= set(state.disabled_cpus)
        and (held_us is None or state.latency_us is None or state.latency_us <= held_us)
    )


def _flags(values: WakeupValues, condition: WakeupCondition, result: WakeupResult) -> Iterator[Flag]:
    if moved := [cpu.cpu for cpu in condition.cpus if not cpu.cpu_verified]:
        yield information(
            "CPU_UNVERIFIED", f"CPU {format_cpulist(moved)} is in no value: its thread was not there to the end"
        )
    if short := [cpu.error for cpu in condition.cpus if cpu.cpu_verified and cpu.error is not None]:
        yield flag("PARTIAL", f"{len(short)} CPUs lack rounds, first: {short[0].code}: {short[0].message}")
    if failed := [failed for failed in result.failed if failed.load == condition.load]:
        yield flag("PARTIAL", f"{len(failed)} rounds have no load: {failed[0].error.code}: {failed[0].error.message}")
    if result.timer_resolution_ns > COARSE_TIMER_NS:
        yield flag(
            "TIMER_COARSE",
            f"timers expire at ticks only, {units.time_ns(result.timer_resolution_ns)} apart: the kernel has no "
            "high-resolution timers",
        )
    if not values.isolated:
        yield flag("NOT_ISOLATED", f"CPU {format_cpulist(values.cpus)}: it runs other work of the operating system too")
    if condition.interference.smi:
        yield flag("SMI", f"{condition.interference.smi} system management interrupts")
    if condition.interference.core_throttle or condition.interference.package_throttle:
        yield flag("THROTTLED", "thermal throttle count rose")
