# SPDX-License-Identifier: Apache-2.0
"""Hardware's floor: what takes a CPU whose interrupts are off, which no setting of the operating system explains."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from calibration.base import units
from calibration.base.cpulists import format_cpulist
from calibration.base.errors import InputError
from calibration.base.grouping import of_known
from calibration.base.model import Model, shared_fields
from calibration.base.statistics import POISSON_CONFIDENCE, poisson_bounds
from calibration.base.text import sentence_case
from calibration.base.validity import Flag, flag
from calibration.measurements.base import Declaration, Metric, Observation, Parsed, Planned, Settings, Step, Values
from calibration.measurements.evidence import missing_parts
from calibration.measurements.metric_rows import DISTURBED, INTERRUPTED, MetricRow, Record, latency
from calibration.measurements.sut import Sut
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.firmware import COUNTS, FirmwareCpu, FirmwareResult

HOUR_S = 3600.0

STOP_S = 0.06
"""Time to end the tracer's thread of one CPU, half a window on average, for the expected duration only."""

LISTED = 20
"""Most moments that are listed."""


class FirmwareSettings(Settings):
    """All chosen CPUs at once, *seconds* in each round: those of jitter, at most *cpus*, evenly spread (``None``: all).

    A system management interrupt stops all CPUs, so that a few see it.
    """

    seconds: PositiveFloat = 1.0
    cpus: PositiveInt | None = 16


class FloorCpu(Model):
    """One CPU: ``gaps`` in ``observed_s``, the longest (``None`` without any), counters (``None`` if unreadable)."""

    cpu: int
    observed_s: float | None
    gaps: int | None
    max_gap_ns: float | None
    nmi_windows: int | None
    smi: int | None
    core_throttle: int | None
    package_throttle: int | None


class Moment(Model):
    """Gaps of several CPUs that overlap: when the last was over, and how long the longest was."""

    at_unix_ns: int
    length_ns: float
    cpus: tuple[int, ...]

    @property
    def at(self) -> str:
        """When it was over, UTC, to the millisecond."""
        whole_s, rest_ns = divmod(self.at_unix_ns, 10**9)
        return f"{datetime.fromtimestamp(whole_s, UTC):%Y-%m-%d %H:%M:%S}.{rest_ns // 10**6:03}"


class HourlyRate(Model):
    """Gaps per hour of the CPU with most, and their exact Poisson interval, one-sided if none was seen."""

    cpu: int
    value: float
    interval: tuple[float, float]


class FirmwareValues(Values):
    """What was seen while interrupts were off; ``refused`` says why there is no ``instrument``.

    ``max_gap_ns`` is the longest gap of all CPUs. If none was seen it is ``threshold_ns``: all were shorter.
    ``observed_s`` is that of the CPU that was observed least, of ``wall_s``. ``smi`` is the count of the CPU with most,
    since one interrupt stops all.
    """

    kind: Literal["firmware"] = "firmware"
    instrument: Literal["hwlat"] | None
    refused: str | None
    threshold_ns: float | None
    wall_s: float
    observed_s: float | None
    max_gap_ns: float | None
    rate_per_hour: HourlyRate | None
    cpus: tuple[FloorCpu, ...]
    moments: tuple[Moment, ...]
    smi: int | None
    smi_source: str | None
    smi_refused: str | None
    core_throttle: int | None
    package_throttle: int | None

    @property
    def gaps(self) -> int:
        """Gaps of the CPU with most."""
        return max(cpu.gaps or 0 for cpu in self.cpus)

    @property
    def headline(self) -> str | None:
        """The result in one line; ``None`` without an instrument."""
        if self.max_gap_ns is None or self.rate_per_hour is None:
            return None
        longest = units.time_ns(self.max_gap_ns)
        return f"hardware latency: at most {longest}, {units.rate(self.rate_per_hour.value)}"


class Firmware(Declaration[FirmwareSettings, FirmwareValues]):
    """The kernel's tracer hwlat, and the counters of firmware and heat."""

    title = "Firmware"
    question = "What takes a CPU that no setting of the operating system explains?"
    longest = ("firmware", ("cpus", "*", "gaps", "longest", "0", "length_ns"))
    metric_rows = (
        latency(
            "firmware.max_gap_ns",
            "the longest hardware latency (a gap with interrupts off); without any, the threshold",
            "longest_gap",
            tolerance=DISTURBED,
            depends=INTERRUPTED,
            record=Record("firmware_gap", "Worst hardware latency"),
        ),
        MetricRow(
            "firmware.rate_per_hour",
            "hardware latency events, on the CPU with most of them",
            "lost_time",
            "per hour",
            "lower",
            DISTURBED,
            INTERRUPTED,
        ),
    )

    def steps(self, sut: Sut, settings: FirmwareSettings) -> Iterator[Planned]:
        """Yield one step that observes all chosen CPUs at once."""
        cpus = sorted(sut.isolated) or [sut.measuring_cpu(node) for node in sut.cpu_nodes]
        if settings.cpus is not None and len(cpus) > settings.cpus:
            cpus = [cpus[place * len(cpus) // settings.cpus] for place in range(settings.cpus)]
        yield self.step(
            units.numbered("CPU", cpus),
            "firmware",
            {"cpus": format_cpulist(cpus), "seconds": settings.seconds},
            cpus=cpus,
            memory_bytes={},
            tasks=0,
            cost_s=settings.seconds + STOP_S * len(cpus),
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield one measurement of all CPUs."""
        del step, sut
        result = read_result(document, FirmwareResult)
        if not result.cpus:
            raise InputError("the answer has no CPU")
        cpus = tuple(map(_floor, result.cpus))
        observed = [cpu for cpu in cpus if cpu.observed_s]
        known = min((cpu.observed_s or 0.0 for cpu in observed), default=None)
        if known is None and result.instrument is not None:
            raise InputError("the tracer observed nothing: the command ended before its first window")
        longest = [cpu.max_gap_ns for cpu in cpus if cpu.max_gap_ns is not None]
        yield Parsed(
            values=FirmwareValues(
                **shared_fields(FirmwareValues, result)
                | {name: of_known(max, (getattr(cpu, name) for cpu in cpus)) for name in COUNTS}
                | {"cpus": cpus},
                observed_s=known,
                max_gap_ns=max(longest) if longest else result.threshold_ns,
                rate_per_hour=None if known is None else _rate(observed),
                moments=_moments(result.cpus),
            ),
            flags=tuple(_flags(result)),
            missing=missing_parts(result.cpus, lambda cpu: f"CPU {cpu.cpu}"),
        )

    def summary(self, measured: Sequence[FirmwareValues]) -> Iterator[str]:
        """Yield the headline, its evidence, and what the counters say."""
        for values in measured:
            rate, headline = values.rate_per_hour, values.headline
            if headline is None or rate is None or values.observed_s is None:
                yield f"Hardware latency not measured: {self.absence(values)}."
                continue
            yield f"{sentence_case(headline)}."
            ends = units.measured_interval(rate.interval, "per hour")
            gap, confidence = units.exact_time_ns(values.threshold_ns or 0.0), units.percent(POISSON_CONFIDENCE)
            if values.gaps:
                yield (f"CPU {rate.cpu} had most of more than {gap}: {ends} with {confidence} confidence.")
            else:
                yield (
                    f"None of more than {gap} in {units.duration(values.observed_s)}: at most "
                    f"{units.rate(rate.interval[1])} with {confidence} confidence."
                )

    def metrics(self, values: FirmwareValues) -> Iterator[Metric]:
        """Yield the longest gap and the rate, if gaps were looked for."""
        if values.max_gap_ns is None or values.rate_per_hour is None or values.observed_s is None:
            return
        seen = f"in {values.observed_s:.0f} s"
        yield self.metric("max_gap_ns", f"Worst hardware latency {seen}", values.max_gap_ns)
        yield self.metric(
            "rate_per_hour",
            f"Hardware latency events {seen}",
            values.rate_per_hour.value,
            interval=values.rate_per_hour.interval,
            coverage=POISSON_CONFIDENCE,
        )

    def absence(self, values: FirmwareValues) -> str | None:
        """Return why there was no tracer."""
        return values.refused

    def observation(self, values: FirmwareValues, metric: str) -> Observation | None:
        """Return for how long the longest gap was looked for, on the CPU that was observed least."""
        if not metric.endswith(".max_gap_ns") or values.observed_s is None:
            return None
        return Observation(values.observed_s, {cpu.cpu: cpu.max_gap_ns or 0.0 for cpu in values.cpus if cpu.observed_s})


def _floor(cpu: FirmwareCpu) -> FloorCpu:
    gaps = cpu.gaps
    return FloorCpu(
        **shared_fields(FloorCpu, cpu) | {"gaps": None if gaps is None else gaps.count},
        observed_s=None if gaps is None else gaps.observed_s,
        max_gap_ns=gaps.longest[0].length_ns if gaps is not None and gaps.longest else None,
        nmi_windows=None if gaps is None else gaps.nmi_windows,
    )


def _rate(cpus: Sequence[FloorCpu]) -> HourlyRate:
    """Return the rate of the CPU with most gaps per time; if there are none, of the one with the highest bound."""
    hours = {cpu.cpu: (cpu.observed_s or 0.0) / HOUR_S for cpu in cpus}
    most = max(cpus, key=lambda cpu: ((cpu.gaps or 0) / hours[cpu.cpu], -hours[cpu.cpu]))
    low, high = poisson_bounds(most.gaps or 0)
    observed = hours[most.cpu]
    return HourlyRate(cpu=most.cpu, value=(most.gaps or 0) / observed, interval=(low / observed, high / observed))


def _moments(cpus: Sequence[FirmwareCpu]) -> tuple[Moment, ...]:
    """Return the moments with the longest gaps, the longest first."""
    found: list[Moment] = []
    gaps = [(gap.at_unix_ns, gap.length_ns, cpu.cpu) for cpu in cpus if cpu.gaps for gap in cpu.gaps.longest]
    for at_ns, length_ns, cpu in sorted(gaps):
        last = found[-1] if found else None
        if last is not None and at_ns - length_ns <= last.at_unix_ns:
            found[-1] = Moment(
                at_unix_ns=at_ns,
                length_ns=max(last.length_ns, length_ns),
                cpus=tuple(sorted({*last.cpus, cpu})),
            )
        else:
            found.append(Moment(at_unix_ns=at_ns, length_ns=length_ns, cpus=(cpu,)))
    return tuple(sorted(found, key=lambda moment: (-moment.length_ns, moment.at_unix_ns))[:LISTED])


def _flags(result: FirmwareResult) -> Iterator[Flag]:
    """Yield the flags of the observation. What firmware does is the result here, not a fault."""
    lost = sum(cpu.gaps.lost_windows or 0 for cpu in result.cpus if cpu.gaps is not None)
    if lost:
        yield flag("TRACE_LOST", f"{lost} windows with gaps did not fit into the kernel's buffer and were lost")
