# SPDX-License-Identifier: Apache-2.0
"""Core jitter: how much the operating system disturbs a CPU, in two views of the same CPU."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.model import Model, shared_fields
from calibration.base.percentiles import worst_but
from calibration.base.statistics import Estimate, estimate
from calibration.base.validity import Flag, flag
from calibration.charts.base import Chart
from calibration.charts.gaps import Exceedance, gaps_chart
from calibration.charts.interruptions import Bar, Spot, lost_time, time_line
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
from calibration.measurements.disturbers import (
    MAX_INTERRUPTIONS,
    Disturber,
    Interruption,
    Loss,
    interruptions,
    losses,
)
from calibration.measurements.evidence import (
    FREQUENCY_CHANGE,
    document_flags,
    information,
    missing_part,
    resolution_flags,
)
from calibration.measurements.metric_rows import (
    DISTURBED,
    INTERRUPTED,
    P99_OF_CPUS,
    MetricRow,
    Record,
    fraction,
    latency,
)
from calibration.measurements.sut import FIFO_LEAVES_NONE, FORK_PROCESSES, NONE_TO_LOAD, Sut, none_isolated
from calibration.sutprobe.attribution import Attribution
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.jitter import (
    GapBin,
    GapRate,
    GapView,
    JitterCpu,
    JitterInterval,
    LongGap,
    Period,
    PmaInterval,
    PmaView,
    TimeQuantile,
)
from calibration.sutprobe.jitter_rounds import JitterResult
from calibration.sutprobe.tracing import Traced, TracedView

TURN_NS = 0.75
"""Duration of one turn of the timed work (two core cycles), for the expected duration only."""

TRACED_SHARE = 0.5
"""Duration of tracing, as a share of the untraced gap view."""

WARM_UP_EXECUTIONS = 1000
"""Executions of the timed work before the first interval, for the expected duration only."""

SETTLE_S = 0.15
"""Settling of the cores (50 ms at most), warm-up of the gap view (50 ms) and readings of counters."""

CPU_S = 0.01
"""Time per CPU of the controlling thread: start, reading of counters, output."""

MIN_COVERAGE = 0.999
"""Share of the wall time that the gap view must have observed."""


MAX_BARS: Final = 6
"""CPUs with a bar of the lost time each; of more, their mean and the first half of those that lost most have one."""

MIN_CLOCK_SHARE: Final = 0.2
"""Share of the fixed work's jitter from which a changed core clock is named as its cause."""


Load = Literal["none", "housekeeping"]


class JitterSettings(Settings):
    """Both views in each round, one after the other, on all chosen CPUs at once.

    *loops*, *executions* are those of the published pages; *gap_s* is a round's part of the gap view. *isolated* is how
    many of the isolated CPUs are measured (``None``: all), plus one that is not isolated for comparison. *fifo* is the
    real-time priority of the measuring threads; 0, as on the published pages, is an ordinary thread. Under the *load*
    ``housekeeping`` up to four other CPUs start processes. With *attribute* the kernel is traced before and after one
    more gap view after the rounds, for half its duration in total.
    """

    loops: PositiveInt = 80_000
    executions: PositiveInt = 20_000
    intervals: PositiveInt = 1
    gap_s: PositiveFloat = 2.5
    isolated: NonNegativeInt | None = None
    housekeeping: bool = True
    fifo: int = Field(default=0, ge=0, le=99)
    load: Load = "none"
    attribute: bool = False


class Gaps(Model):
    """Every interruption longer than ``threshold_ns``; the loop observes all the time.

    ``lost`` is the share of time lost in each round, ``None`` if it was measured once.
    ``rate_half_width`` is the relative half-width of the interval of the gap rate over rounds, six at least.
    """

    stopped: str
    rate_half_width: float | None
    wall_s: float
    threshold_ns: float
    turn_min_ns: float
    turn_median_ns: float
    coverage_fraction: float
    count: int
    max_ns: float
    lost_fraction: float
    histogram: tuple[GapBin, ...]
    rates_per_s: tuple[GapRate, ...]
    quantiles: tuple[TimeQuantile, ...]
    longest: tuple[LongGap, ...]
    periods: tuple[Period, ...]
    attribution: Attribution | None
    traced: Traced | None = None
    lost: Estimate | None = None
    interrupts: dict[str, int] | None
    softirqs: dict[str, int] | None
    involuntary_switches: int
    steal_ms: float | None

    @property
    def lost_share(self) -> float:
        """The share of the time that gaps took: the figure of record."""
        return self.lost_fraction if self.lost is None else self.lost.value

    @property
    def view(self) -> TracedView | None:
        """The gaps while the kernel was traced; ``None`` if it was not."""
        return None if self.traced is None else self.traced.view


class IsolatedCpus(Model):
    """The longest gap of each of ``cpus``, all that are isolated."""

    cpus: tuple[int, ...]
    max_ns: tuple[float, ...]


class JitterValues(Values):
    """Jitter of one CPU. Intervals are in ticks of a clock of ``tick_hz``, which are not core cycles.

    ``inst_jitter_ns`` is the spread of the timed work's duration (maximum - minimum) over the intervals.
    ``blind_fraction`` is the share of time between executions, which the PMA-compatible view does not observe.
    ``guest`` says whether a hypervisor may take the CPU without any counter in the guest showing it. ``forks_per_s``
    are the processes started by the housekeeping load, ``None`` without it. The first of the isolated CPUs has what
    follows from all of them.
    """

    kind: Literal["jitter"] = "jitter"
    cpu: int
    forks_per_s: float | None = None
    all_isolated: IsolatedCpus | None = None
    isolated: bool
    loops: int
    executions: int
    tick_source: str
    tick_hz: float
    blind_fraction: float
    core_hz: float
    guest: bool | None
    intervals: tuple[JitterInterval, ...]
    inst_jitter_ns: Estimate
    gaps: Gaps

    @property
    def condition(self) -> str:
        """Begins the names of the metrics, after the kind: with the load, so that no history mixes both."""
        return "" if self.forks_per_s is None else "housekeeping."

    @property
    def own_metrics(self) -> str:
        """Begins the names of the metrics of this CPU."""
        return f"{self.kind}.{self.condition}cpu{self.cpu}."

    @property
    def work_max_ns(self) -> float:
        """The longest execution of the fixed work less the shortest: how long it was interrupted at most."""
        longest = max((interval.inst_max_cycles for interval in self.intervals), default=0)
        shortest = min((interval.inst_min_cycles for interval in self.intervals), default=0)
        return (longest - shortest) / self.tick_hz * 1e9

    @property
    def work_s(self) -> float:
        """How long the fixed work was executed."""
        return sum(interval.interval_cycles for interval in self.intervals) / self.tick_hz

    @property
    def longest_ns(self) -> float:
        """The longest interruption that either view saw."""
        return max(self.gaps.max_ns, self.work_max_ns)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What took the time that the CPU lost."""
        gaps = self.gaps
        return losses(gaps.lost_share, traced=gaps.view, counted=gaps.attribution, guest=self.guest)


CONDITIONS: Final = {"jitter.": "", "jitter.{load:housekeeping}.": " under load"}
"""How names of metrics begin, and what titles add."""


def _rows(condition: str, under: str) -> Iterator[MetricRow]:
    """Yield the rows of the metrics whose names begin with *condition*."""
    row = partial(latency, tolerance=DISTURBED, depends=INTERRUPTED)
    # Both views see the same interruptions, for different times: of their maxima the longer one is of record.
    longest = Record("worst_gap", f"Longest interruption{under}, CPU {{cpu}}", worst=True)
    yield row(
        f"{condition}cpu{{cpu}}.inst_jitter_ns",
        "longest less shortest execution of the fixed work within a display interval",
        "lost_time",
    )
    yield row(
        f"{condition}cpu{{cpu}}.gaps.max_ns",
        "the longest interruption that was seen, once",
        "longest_gap",
        record=longest,
    )
    yield row(
        f"{condition}cpu{{cpu}}.work_max_ns",
        "longest less shortest execution of the fixed work, once",
        "longest_gap",
        record=longest,
    )
    yield fraction(
        f"{condition}cpu{{cpu}}.gaps.lost_fraction",
        "share of the time that interruptions took",
        "lost_time",
        better="lower",
        tolerance=DISTURBED,
        depends=INTERRUPTED,
        record=Record("lost_share", f"CPU time lost to interruptions{under}, CPU {{cpu}}", worst=True),
    )
    yield row(f"{condition}isolated.gaps.max_ns", "the longest interruption of all isolated CPUs, once", "longest_gap")
    yield row(
        f"{condition}isolated.gaps.{P99_OF_CPUS}",
        "99 % of the isolated CPUs, of at least 100, have no longer interruption",
        "longest_gap",
    )


class Jitter(Declaration[JitterSettings, JitterValues]):
    """The timed work of PMA jitter, then a loop that only reads the clock."""

    title = "Core jitter"
    question = "How much does the operating system disturb a CPU?"
    longest = ("gap", ("cpus", "*", "gaps", "max_ns"))
    main_chart_rank = 30
    metric_rows = (
        *(row for condition, under in CONDITIONS.items() for row in _rows(condition, under)),
        *(
            MetricRow(
                name,
                "the same in ticks of the clock of another program",
                "lost_time",
                "ticks",
                "lower",
                DISTURBED,
                INTERRUPTED,
                imported=True,
            )
            for name in ("jitter.inst_jitter_ticks", "jitter.cpu{cpu}.inst_jitter_ticks")
        ),
    )

    def steps(self, sut: Sut, settings: JitterSettings) -> Iterator[Planned]:
        """Yield one step that measures all chosen CPUs at once, and one that traces them if that is asked for."""
        cpus = sorted(sut.isolated)[: settings.isolated]
        if not sut.isolated:
            cpus = [sut.measuring_cpu(sut.cpu_nodes[0])]
            yield self.not_planned(none_isolated(sut.context), "Jitter of an isolated CPU")
        elif settings.housekeeping:
            cpus = [*sorted(sut.cpus - sut.isolated)[:1], *cpus]
        if settings.fifo and (taken := sut.fifo_cpus(cpus)) != cpus:
            yield self.not_planned(FIFO_LEAVES_NONE, f"Jitter of CPU {cpus[0]}")
            cpus = taken
            if not cpus:
                return
        title = units.numbered("CPU", cpus)
        thread: dict[str, object] = {"fifo": settings.fifo} if settings.fifo else {}
        forkers = sut.housekeeping_cpus(cpus) if settings.load == "housekeeping" else []
        if forkers:
            thread["housekeeping-cpus"] = format_cpulist(forkers)
            title = f"{title}, housekeeping load"
        elif settings.load != "none":
            yield self.not_planned(NONE_TO_LOAD, f"{self.title} under the load {settings.load}")
            return
        set_up_s = SETTLE_S + CPU_S * len(cpus)
        where: dict[str, Any] = {
            "cpus": sorted(cpus),
            "memory_bytes": {},
            "tasks": len(cpus) + FORK_PROCESSES * len(forkers),
            "setup_s": set_up_s,
        }
        executions = settings.intervals * settings.executions + min(settings.executions, WARM_UP_EXECUTIONS)
        yield self.step(
            title,
            "jitter",
            {
                "cpus": format_cpulist(cpus),
                "view": "both",
                "loops": settings.loops,
                "executions": settings.executions,
                "intervals": settings.intervals,
                "gap-s": settings.gap_s,
                **thread,
            },
            cost_s=executions * settings.loops * TURN_NS * 1e-9 + settings.gap_s + set_up_s,
            **where,
        )
        if settings.attribute:
            yield self.step(
                f"{title}, traced",
                "jitter",
                {"cpus": format_cpulist(cpus), "view": "gaps", "gap-s": settings.gap_s, **thread, "attribute": True},
                cost_s=settings.gap_s * (1 + TRACED_SHARE) + set_up_s,
                suffix=TRACED_SUFFIX,
                part_of=self.kind,
                **where,
            )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield one measurement per CPU."""
        del step
        if document.clock is None:
            raise InputError("the answer does not name the clock")
        result = read_result(document, JitterResult)
        cpus = result.cpus
        traced = {
            cpu.cpu: cpu.gaps.traced
            for part in document.beside
            for cpu in read_result(part, JitterResult).cpus
            if cpu.gaps is not None
        }
        lost = [cpu for cpu in cpus if cpu.error is not None and cpu.pma is None and cpu.gaps is None]
        missing = tuple(missing_part(f"CPU {cpu.cpu}", cpu.error) for cpu in lost)
        if len(lost) == len(cpus) and document.error is None:
            raise InputError(missing[0].reason if missing else "the answer has no CPU")
        together = _together([cpu for cpu in cpus if cpu.cpu in sut.isolated])
        for cpu in cpus:
            if cpu in lost:
                continue
            if cpu.pma is None or cpu.gaps is None:
                if document.error is not None:
                    continue  # interrupted before this CPU had both; the step's own error says so
                reason = cpu.pma_missing or cpu.gaps_missing or "found one or none"
                raise InputError(f"CPU {cpu.cpu} lacks a view: {reason}")
            yield Parsed(
                suffix=f"-cpu{cpu.cpu}",
                values=JitterValues(
                    **shared_fields(JitterValues, cpu.pma) | {"intervals": tuple(map(_bare, cpu.pma.intervals))},
                    cpu=cpu.cpu,
                    isolated=cpu.cpu in sut.isolated,
                    forks_per_s=result.forks_per_s,
                    all_isolated=together if together is not None and cpu.cpu == together.cpus[0] else None,
                    tick_source=document.clock.source,
                    core_hz=cpu.gaps.core_hz_after,
                    guest=sut.context.virtualization.guest,
                    inst_jitter_ns=_inst_jitter(cpu.pma),
                    gaps=_gaps(cpu.gaps, traced.get(cpu.cpu)),
                ),
                flags=(
                    *document_flags(document),
                    *resolution_flags(document),
                    *_flags(cpu, sut),
                    *_traced_flags(traced.get(cpu.cpu)),
                ),
                missing=missing,
            )
            missing = ()  # listed once, with the first CPU

    def main_chart(self, run: MeasuredRun, width: int) -> Chart:
        """Return the number of gaps per second of at least this length."""
        return gaps_chart(
            self.kind, run.of(self.kind), [exceedance(cpu) for cpu in run.values(self.kind)], run.nodes, width
        )

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the longest interruptions on a time line, and the lost time by cause."""
        found: list[JitterValues] = run.values(self.kind)
        watched = quiet(found)
        if longest := longest_interruptions(watched):
            spots = [Spot(item.cpu, item.at_ns / 1e9, item.length_ns, item.cause, _by(item)) for item in longest]
            traced = any(view.longest for values in watched if (view := values.gaps.view))
            watched_s = max(map(_watched_s, watched))
            yield time_line("interruptions", run.of(self.kind), spots, watched_s, traced=traced)
        if bars := [bar for bar in _bars(found) if bar.parts]:
            yield lost_time("lost time by cause", run.of(self.kind), bars)

    def summary(self, measured: Sequence[JitterValues]) -> Iterator[str]:
        """Yield the share of a core taken by the operating system."""
        for isolated, word in ((True, "isolated"), (False, "not isolated")):
            cpus = [values for values in measured if values.isolated == isolated]
            if not cpus:
                continue
            longest = max(cpus, key=lambda values: values.longest_ns)
            lost = sorted(values.gaps.lost_share for values in cpus)
            gap = units.time_ns(longest.longest_ns)
            if len(cpus) == 1:
                share = units.percent(lost[0])
                yield f"CPU {longest.cpu} ({word}) loses {share} of its time; longest interruption {gap}."
            else:
                shares = list(dict.fromkeys(map(units.percent, (lost[0], lost[-1]))))
                middle = f", median {units.percent(median(lost))}" if len(shares) > 1 else ""
                yield (
                    f"{len(cpus)} CPUs ({word}) lose {' to '.join(shares)} of their time{middle}; longest "
                    f"interruption {gap}, on CPU {longest.cpu}."
                )
            if ticks := [period for values in cpus for period in values.gaps.periods]:
                tick = max(ticks, key=lambda period: period.share_of_gaps or 0)
                rate, share = f"{units.significant(tick.hz, 3)} Hz", units.percent(tick.share_of_gaps)
                yield f"The {rate} timer causes {share} of the interruptions."

    def metrics(self, values: JitterValues) -> Iterator[Metric]:
        """Yield the typical spread per interval, the longest gap and the share of time lost."""
        condition, gaps = values.condition, values.gaps
        cpu = f"{condition}cpu{values.cpu}"
        yield self.metric(f"{cpu}.inst_jitter_ns", f"Jitter per interval, CPU {values.cpu}", values.inst_jitter_ns)
        longest = f"Longest interruption in {gaps.wall_s:.0f} s, CPU {values.cpu}"
        yield self.metric(f"{cpu}.gaps.max_ns", longest, gaps.max_ns)
        title = f"Longest interruption of the fixed work in {values.work_s:.0f} s, CPU {values.cpu}"
        yield self.metric(f"{cpu}.work_max_ns", title, values.work_max_ns)
        title = f"CPU time lost to interruptions, CPU {values.cpu}"
        yield self.metric(f"{cpu}.gaps.lost_fraction", title, gaps.lost or gaps.lost_fraction)
        if (every := values.all_isolated) is not None:
            isolated, number = f"{condition}isolated.gaps", len(every.cpus)
            title = f"Longest interruption of {number} isolated CPUs in {gaps.wall_s:.0f} s"
            yield self.metric(f"{isolated}.max_ns", title, max(every.max_ns))
            if (most := worst_but(99, every.max_ns)) is not None:
                yield self.metric(f"{isolated}.{P99_OF_CPUS}", f"{title}, 99 % of the CPUs", most)

    def observation(self, values: JitterValues, metric: str) -> Observation | None:
        """Return for how long the longest interruption was looked for."""
        if metric.endswith(".work_max_ns"):
            return Observation(values.work_s, {values.cpu: values.work_max_ns})
        if not metric.endswith(".gaps.max_ns"):
            return None
        every = values.all_isolated
        if every is None or not metric.endswith(".isolated.gaps.max_ns"):
            return Observation(values.gaps.wall_s, {values.cpu: values.gaps.max_ns})
        return Observation(values.gaps.wall_s, dict(zip(every.cpus, every.max_ns, strict=True)))


def metrics_of_isolated(cpus: Iterable[int]) -> tuple[str, ...]:
    """Return how the names of the metrics of isolated *cpus*, and of all together, begin under any load."""
    scopes = ("isolated", *(f"cpu{cpu}" for cpu in cpus))
    return tuple(f"jitter.{load}{scope}." for load in ("", "housekeeping.") for scope in scopes)


def quiet(found: Sequence[JitterValues]) -> list[JitterValues]:
    """Return those of isolated CPUs, which should be left alone; of all if there is none."""
    return [values for values in found if values.isolated] or list(found)


def longest_interruptions(watched: Sequence[JitterValues]) -> list[Interruption]:
    """Return the longest interruptions of *watched* CPUs, of the traced views if the kernel was traced."""
    found = [
        item
        for values in watched
        for item in interruptions(values.cpu, values.gaps.longest, values.gaps.view, values.guest)
    ]
    return sorted(found, key=lambda item: -item.length_ns)[:MAX_INTERRUPTIONS]


def _watched_s(values: JitterValues) -> float:
    view = values.gaps.view
    return values.gaps.wall_s if view is None or not view.longest else view.with_tracing.wall_s


def _by(item: Interruption) -> str:
    return "cause unknown" if item.cause == "unknown" else " ".join(filter(None, ("by", item.cause, item.name)))


def mean_losses(watched: Sequence[JitterValues]) -> dict[Disturber, float]:
    """Return the share of the time of *watched* CPUs that each cause took, greatest first."""
    shares = grouped((loss.cause, loss.share) for values in watched for loss in values.losses)
    mean = {cause: sum(those) / len(watched) for cause, those in shares.items()}
    return dict(sorted(mean.items(), key=lambda item: -item[1]))


def _bars(found: Sequence[JitterValues]) -> Iterator[Bar]:
    """Yield a bar for each CPU, or one for the mean of many and some for those that lost most."""
    shown, watched = list(found), quiet(found)
    if len(found) > MAX_BARS:
        yield Bar(f"mean of {len(watched)}", list(mean_losses(watched).items()))
        shown = sorted(watched, key=lambda values: -values.gaps.lost_share)[: MAX_BARS // 2]
    for values in shown:
        label = f"CPU {values.cpu}{', isolated' * (values.isolated and len(watched) < len(found))}"
        yield Bar(label, [(loss.cause, loss.share) for loss in values.losses])


def _together(isolated: Sequence[JitterCpu]) -> IsolatedCpus | None:
    """Return what the *isolated* CPUs that were watched have together."""
    longest = {cpu.cpu: cpu.gaps.max_ns for cpu in isolated if cpu.cpu_verified and cpu.gaps is not None}
    if not longest:
        return None
    return IsolatedCpus(cpus=tuple(longest), max_ns=tuple(longest.values()))


def _bare(interval: PmaInterval) -> JitterInterval:
    """Return *interval* without what else happened in it."""
    return JitterInterval(**shared_fields(JitterInterval, interval))


def _inst_jitter(view: PmaView) -> Estimate:
    """Return the spread within an interval in ns, with the intervals of a round as its windows."""
    rounds = grouped((item.round, item.inst_jitter_cycles * 1e9 / view.tick_hz) for item in view.intervals)
    return estimate(list(rounds.values()), "ns", rounds=range(len(rounds)) if None not in rounds else ())


def _gaps(view: GapView, traced: Traced | None) -> Gaps:
    same = {**shared_fields(Gaps, view), **shared_fields(Gaps, view.interference), "attribution": view.attribution}
    same["traced"] = traced
    if rounds := view.lost_by_round:
        same["lost"] = estimate([[lost] for lost in rounds], "fraction", rounds=range(len(rounds)))
    return Gaps(turn_min_ns=view.turn_ns.min, turn_median_ns=view.turn_ns.median, **same)


def _flags(cpu: JitterCpu, sut: Sut) -> Iterator[Flag]:
    """Yield the flags of one CPU. Interruptions are the result here, not a fault."""
    if not cpu.cpu_verified:
        reason = "the thread was not on its CPU when the views ended" if cpu.error is None else cpu.error.message
        yield flag("CPU_UNVERIFIED", reason)
    elif cpu.error is not None:
        yield flag("PARTIAL", f"CPU {cpu.cpu} lacks rounds, first: {cpu.error.code}: {cpu.error.message}")
    if cpu.cpu not in sut.isolated:
        yield flag("NOT_ISOLATED", f"CPU {cpu.cpu} is not isolated: it runs other work of the operating system too")
    if cpu.gaps is None:
        return
    if cpu.gaps.coverage_fraction < MIN_COVERAGE:
        yield flag("COVERAGE_LOW", f"{cpu.gaps.coverage_fraction * 100:.2f} % of the wall time was observed")
    if cpu.gaps.ring_full:
        yield flag(
            "RING_FULL", "more gaps than the list of time stamps holds: counts are exact, times are not complete"
        )
    change = cpu.gaps.core_hz_after / cpu.gaps.core_hz_before - 1
    if abs(change) > FREQUENCY_CHANGE:
        share = _jitter_of_clock(cpu.pma, abs(change))
        text = f"the core clock changed by {change * 100:+.1f} %"
        if share >= MIN_CLOCK_SHARE:
            yield flag("FREQ_CHANGED", f"{text}, {min(share, 1.0) * 100:.0f} % of the jitter of the fixed work")
        else:
            yield information("FREQ_CHANGED", text)
    if cpu.gaps.interference.smi:
        yield flag("SMI", f"{cpu.gaps.interference.smi} system management interrupts during the gap view")
    if cpu.gaps.interference.core_throttle or cpu.gaps.interference.package_throttle:
        yield flag("THROTTLED", "thermal throttle count rose during the gap view")


def _jitter_of_clock(view: PmaView | None, change: float) -> float:
    """Return the share of the fixed work's jitter that a relative *change* of the core clock explains."""
    if view is None or not view.intervals:
        return 0.0
    work = min(item.inst_min_cycles for item in view.intervals)
    jitter = median(item.inst_jitter_cycles for item in view.intervals)
    return change * work / jitter if jitter else 0.0


def _traced_flags(traced: Traced | None) -> Iterator[Flag]:
    """Yield the flag for a trace that is not complete."""
    if traced is not None and traced.view is not None and traced.view.lost_events:
        yield flag("TRACE_LOST", f"{traced.view.lost_events} traced events did not fit and were lost")


def exceedance(values: JitterValues) -> Exceedance:
    """Return the complementary cumulative rates of the gaps of one CPU."""
    gaps = values.gaps
    left = 0
    points = [(gaps.max_ns, 1 / gaps.wall_s)] if any(bucket.count for bucket in gaps.histogram) else []
    for bucket in sorted(gaps.histogram, key=lambda bucket: -bucket.from_ns):
        left += bucket.count
        if bucket.count and bucket.from_ns < gaps.max_ns:
            points.append((bucket.from_ns, left / gaps.wall_s))
    return Exceedance(values.cpu, values.isolated, tuple(reversed(points)), gaps.threshold_ns)
