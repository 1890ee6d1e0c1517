# SPDX-License-Identifier: Apache-2.0
"""What a run knows that advice may rest on: the machine, what was measured, and what was counted and traced."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from calibration.base import units
from calibration.base.cpulists import short_cpulist
from calibration.base.text import some_of, visible
from calibration.context.boot_rules import versions
from calibration.context.model import Context
from calibration.measurements import declaration
from calibration.measurements.base import Metric
from calibration.measurements.disturbers import LOCAL_TIMER
from calibration.measurements.jitter import JitterValues
from calibration.profiles import load_profile, profile_names
from calibration.report.advice.claims import Claim, claims
from calibration.results.health import CounterKind
from calibration.results.model import Measurement, RunDocument

MAX_NAMED: Final = 6
"""Interrupts, threads and devices named; the rest is counted."""

TICK_RATES_HZ: Final = (100, 250, 300, 1000)
"""What the scheduler's tick can be configured to (CONFIG_HZ)."""

TICK_TOLERANCE: Final = 1e-3
"""Relative difference between a rate in the gaps and the tick's: clocks agree to ppm, other timers to nothing."""


class Cost(NamedTuple):
    """What was found costs here, by which metric or count, and as a share or a number."""

    text: str
    metric: str
    share: float = 0.0
    number: float | None = None


class Watched(NamedTuple):
    """A CPU that was watched for gaps, with its measurement."""

    cpu: int
    measurement: Measurement
    values: JitterValues

    @property
    def valid(self) -> bool:
        """Whether its times can be used; counts always can."""
        return self.measurement.validity.valid

    @property
    def lost(self) -> str:
        """The metric of the share of its time that gaps took."""
        return f"{self.values.own_metrics}gaps.lost_fraction"

    def counted(self, interrupt: str) -> int | None:
        """Return how often an interrupt came, by its number or name; ``None`` if interrupts were not counted."""
        found = self.values.gaps.interrupts
        return None if found is None else found.get(interrupt, 0)


class Evidence:
    """A run of a machine that was captured, as the rules see it."""

    def __init__(self, document: RunDocument, context: Context) -> None:
        self.document = document
        self.context = context
        self.online = frozenset(context.online_cpus)
        self.isolated = self.online.intersection(context.isolated_cpus)
        found = [
            Watched(values.cpu, measurement, values)
            for measurement in document.measurements
            if isinstance(values := measurement.values, JitterValues)
        ]
        # Housekeeping CPUs are there to be interrupted.
        self.watched = [item for item in found if item.cpu in self.isolated or not self.isolated]
        self._claims: dict[str, dict[int, Claim]] = {}
        for item in self.watched:
            traced = item.values.gaps.traced
            for claim in () if traced is None or traced.view is None else claims(traced.view):
                self._claims.setdefault(claim.rule, {})[item.cpu] = claim

    # The machine

    @property
    def quiet(self) -> frozenset[int]:
        """The CPUs to keep free of interruptions: the isolated ones, else those watched."""
        return self.isolated or frozenset(item.cpu for item in self.watched)

    @property
    def housekeeping(self) -> frozenset[int]:
        """The other CPUs that are online."""
        return self.online - self.quiet

    def quiet_text(self) -> str:
        """Return the quiet CPUs in words."""
        return f"{'isolated ' if self.isolated else ''}{self.cpus(self.quiet)}"

    def option(self, *names: str) -> bool:
        """Return whether the kernel's command line has one of the parameters *names*."""
        line = self.context.cmdline
        return line is not None and any(map(line.values, names))

    def since(self, version: tuple[int, int]) -> bool:
        """Return whether the kernel surely has what Linux has since a *version*."""
        return versions(self.context.capture.kernel_release)[-1] >= version

    def cpus(self, found: Collection[int]) -> str:
        """Return CPUs in words: ``CPU 3``, ``CPUs 4-15 (12 of 504)``."""
        if len(found) == 1:
            return f"CPU {min(found)}"
        return f"CPUs {short_cpulist(found)} ({len(found)} of {len(self.online)})"

    # What was measured

    def values(self, kind: str) -> list[Any]:
        """Return the values of the valid measurements of *kind*."""
        return [item.values for item in self.document.measurements if item.kind == kind and item.validity.valid]

    def metric(self, *names: str) -> Metric | None:
        """Return the first of the metrics *names* that a valid measurement has."""
        kinds = {name.partition(".")[0] for name in names}
        found = {
            metric.name: metric
            for item in self.document.measurements
            if item.kind in kinds and item.validity.valid
            for metric in item.metrics()
        }
        return next((found[name] for name in names if name in found), None)

    def read_bandwidth(self) -> Metric | None:
        """Return the machine's read bandwidth of record."""
        return next(
            (
                item.metric
                for item in self.document.record
                if item.quantity == "read_bandwidth.machine" and item.trust != "invalid"
            ),
            None,
        )

    def unmeasured(self, what: str, kind: str, how: str = "") -> str:
        """Return why the cost *what* is unknown, and how *kind* measures it."""
        found = [item for item in self.document.measurements if item.kind == kind]
        title = declaration(kind).title
        if found and not any(item.validity.valid for item in found):
            return f"{what}: {title} ({kind}) of this run is not valid"
        if found and not how:
            return f"{what}: {title} ({kind}) of this run has no such value"
        return f"{what}: not measured in this run; {title} ({kind}) measures it, {how or _profiles(kind)}"

    def counted(self, kind: CounterKind) -> dict[str, int] | None:
        """Return what the machine counted of *kind* during the run, by name; ``None`` if it is unknown."""
        parts = [attempt.health.of(kind) for attempt in self.document.attempts if attempt.health is not None]
        if not parts or any(part is None or part.unknown or not part.read for part in parts):
            return None
        found: dict[str, int] = {}
        for change in (change for part in parts if part is not None for change in part.changed):
            found[change.name] = found.get(change.name, 0) + (change.count or 0)
        return found

    @property
    def counted_s(self) -> float:
        """For how long the machine counted."""
        return sum(attempt.health.elapsed_s for attempt in self.document.attempts if attempt.health is not None)

    def tick_hz(self, item: Watched) -> float | None:
        """Return how often the tick interrupts a CPU; ``None`` if neither counts nor gaps show it."""
        count = item.counted(LOCAL_TIMER)
        if count is not None and self.context.processor.architecture == "x86_64":
            return count / item.values.gaps.wall_s
        rates = (period.hz for period in item.values.gaps.periods if item.valid)
        return next((hz for hz in rates if any(abs(hz / rate - 1) < TICK_TOLERANCE for rate in TICK_RATES_HZ)), None)

    # What was traced

    def claimed(self, rule: str) -> Mapping[int, Claim]:
        """Return the causes of gaps that belong to *rule*, by CPU."""
        return self._claims.get(rule, {})

    def traced_cost(self, claimed: Mapping[int, Claim]) -> Cost:
        """Return what the causes cost the CPU that lost most of its time to them."""
        valid = [item for item in self.watched if item.cpu in claimed and item.valid]
        if not valid:
            events = sum(cause.events for claim in claimed.values() for cause in claim.causes)
            measured = ", ".join(item.measurement.id for item in self.watched if item.cpu in claimed)
            text = f"{units.plural(events, 'event')} while the kernel was traced"
            return Cost(text, f"traced events of {measured}", number=events)
        item = max(valid, key=lambda item: claimed[item.cpu].share * item.values.gaps.lost_fraction)
        of_lost = claimed[item.cpu].share
        share = of_lost * item.values.gaps.lost_fraction
        text = f"{units.percent(share)} of the time of CPU {item.cpu}, {of_lost * 100:.0f} % of what it loses"
        return Cost(text, f"{item.lost}, by traced events", share)


def names(found: Sequence[str]) -> str:
    """Return names in words, of many the first and the number of the others."""
    return some_of([visible(name) for name in found], MAX_NAMED)


def functions(claimed: Mapping[int, Claim]) -> str:
    """Return the functions (or names) of causes in words."""
    causes = (cause for claim in claimed.values() for cause in claim.causes)
    return names(list(dict.fromkeys(cause.function or cause.name for cause in causes)))


@cache
def _profiles(kind: str) -> str:
    having = [name for name in profile_names() if kind in load_profile(name).measurements]
    if not having:
        return "in a profile of your own"
    *others, last = having
    return f"in the profile {last}" if not others else f"in the profiles {', '.join(others)} and {last}"
