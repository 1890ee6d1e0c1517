# SPDX-License-Identifier: Apache-2.0
"""The nights of a store with the verdicts of the last one, and what fails in words.

Everything follows from the stored documents: tonight is their newest night, no clock is read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from math import copysign, inf, isfinite, sqrt
from typing import NamedTuple

from calibration.base.grouping import grouped
from calibration.judge.baseline_files import Baselines, NoBaselines
from calibration.judge.causes import context_changes
from calibration.judge.drift import Analysis, DriftChange
from calibration.judge.events import Event, find_events
from calibration.judge.tolerances import Tolerances
from calibration.judge.verdicts import CHECKS, RUN, ContextChange, NightVerdict
from calibration.judge.words import amount, within
from calibration.measurements import record_title, row_of
from calibration.results.history import History, NightRun, Sut


@dataclass(frozen=True)
class JudgedNights:
    """The history of a store, and the verdicts of its last night.

    ``analyses`` has one entry per series of ``history``.
    """

    history: History
    analyses: Sequence[Analysis]
    verdicts: Sequence[NightVerdict]
    tolerances: Tolerances = field(default_factory=Tolerances)
    baselines: Baselines = field(default_factory=NoBaselines)

    @property
    def night(self) -> date:
        """The newest night."""
        return self.history.nights[-1]

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """What began on several SUTs at once."""
        return find_events(self.verdicts)

    @cached_property
    def rows(self) -> Mapping[tuple[str, str, str], int]:
        """Row of each series by testbed, SUT and metric."""
        return {(series.testbed, series.sut, series.metric): row for row, series in enumerate(self.history.series)}

    @cached_property
    def of_sut(self) -> Mapping[Sut, Sequence[NightVerdict]]:
        """Tonight's verdicts by SUT."""
        return grouped(((verdict.testbed, verdict.sut), verdict) for verdict in self.verdicts)

    @cached_property
    def moved(self) -> Mapping[Sut, Collection[date]]:
        """The nights on which something began at each SUT that fails or is noted tonight."""
        return {
            sut: {item.since for item in those if item.outcome in {"fail", "noted"} and item.since is not None}
            for sut, those in self.of_sut.items()
        }

    def newest(self, sut: Sut) -> NightRun | None:
        """Return the newest run of *sut*; ``None`` if it has none that can be read."""
        runs = self.history.runs.get(sut, {})
        return runs[max(runs)] if runs else None

    def began(self, sut: Sut, since: date | None) -> NightRun | None:
        """Return the run of *sut* of the night *since*."""
        return None if since is None else self.history.runs.get(sut, {}).get(since)

    def verdicts_of(self, row: int) -> Sequence[NightVerdict]:
        """Return tonight's verdicts on one series."""
        return self._of_series.get(self.history.series[row][:3], ())

    @cached_property
    def _of_series(self) -> Mapping[tuple[str, str, str], Sequence[NightVerdict]]:
        return grouped((self.key(verdict), verdict) for verdict in self.verdicts)

    def changed_tonight(self, sut: Sut) -> tuple[ContextChange, ...]:
        """Return the facts of *sut* that changed since its last run."""
        runs = self.history.runs.get(sut, {})
        known = [night for night in sorted(runs) if runs[night].facts]
        if len(known) < 2 or known[-1] != self.night:
            return ()
        return context_changes(runs[known[-2]], runs[known[-1]])

    def key(self, verdict: NightVerdict) -> tuple[str, str, str]:
        """Return the series key of a verdict."""
        return verdict.testbed, verdict.sut, verdict.metric

    def title(self, metric: str) -> str:
        """Return the display name of *metric*."""
        return title_of(metric, self.history.titles)

    def change(self, verdict: NightVerdict) -> DriftChange | None:
        """Return the change that *verdict* is about: the newest of its kind that began on that night."""
        row = self.rows.get(self.key(verdict))
        kind = {"drift": "level", "spread": "spread"}.get(verdict.check)
        if row is None or kind is None:
            return None
        nights = self.history.nights
        return next(
            (
                change
                for change in reversed(self.analyses[row].changes)
                if change.kind == kind and nights[change.night] == verdict.since
            ),
            None,
        )

    def worth(self, verdict: NightVerdict, change: DriftChange) -> str:
        """Return ``, better`` or ``, worse`` for a change of a level, else an empty text."""
        if change.kind != "level":
            return ""
        better = self.history.series[self.rows[self.key(verdict)]].better
        return ", better" if (change.after > change.before) == (better == "higher") else ", worse"

    def deviation(self, verdict: NightVerdict) -> float | None:
        """Return the deviation of a metric from its accepted level in tolerances, positive for worse."""
        row = self.rows.get(self.key(verdict))
        if row is None or verdict.value is None or verdict.bound is None or verdict.check != "limits":
            return None
        low, high = verdict.bound
        if low is not None and high is not None:
            level, half = (low + high) / 2, (high - low) / 2
        else:  # one-sided: measured from the previous level
            bound = high if low is None else low
            level = self.analyses[row].level
            half = 0.0 if bound is None else abs(bound - level)
        widest = max(half, self.tolerances.fraction(verdict.metric) * abs(level))
        if not widest > 0:
            return None
        size = (verdict.value - level) / widest
        return size if self.history.series[row].better == "lower" else -size

    def size(self, verdict: NightVerdict) -> float:
        """Return the size of a failure in tolerances: of the level, else of its change."""
        size = self.deviation(verdict)
        if size is None:
            change, fraction = self.change(verdict), self.tolerances.fraction(verdict.metric) or 1.0
            size = 0.0 if change is None or not isfinite(change.size) else abs(change.size) / fraction
        return size


def title_of(metric: str, titles: Mapping[str, str]) -> str:
    """Return the display name of *metric*: that of its quantity if it is a figure of record, else of the *titles*."""
    return record_title(metric) or titles.get(metric, metric)


class StatusFinding(NamedTuple):
    """A failure of a SUT since one night: its failed verdicts, worst first."""

    testbed: str
    sut: str
    since: date | None
    verdicts: tuple[NightVerdict, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics affected, worst first."""
        return tuple(dict.fromkeys(verdict.metric for verdict in self.verdicts))

    @property
    def context_changes(self) -> tuple[ContextChange, ...]:
        """What changed in the context that night, most likely causes of the worst failure first."""
        return tuple(dict.fromkeys(change for verdict in self.verdicts for change in verdict.context_changes))


def findings(nights: JudgedNights) -> list[StatusFinding]:
    """Return tonight's failures by SUT and first night, most metrics first."""
    found = []
    for (testbed, sut), verdicts in nights.of_sut.items():
        by_night = grouped((verdict.since, verdict) for verdict in verdicts if verdict.outcome == "fail")
        found += [
            StatusFinding(testbed, sut, since, tuple(sorted(failing, key=lambda item: failure_order(nights, item))))
            for since, failing in by_night.items()
        ]
    return sorted(found, key=lambda run: (run.metrics[0] != RUN, -len(run.metrics), run.testbed, run.sut))


def failure_order(nights: JudgedNights, verdict: NightVerdict) -> tuple[bool, bool, float, int]:
    """Return a sort key for failures: of the run, then of headline metrics, the largest in tolerances first."""
    of_run = verdict.metric == RUN or verdict.check == "unreadable"
    headline = of_run or row_of(verdict.metric).record is not None
    return not of_run, not headline, 0.0 if of_run else -nights.size(verdict), CHECKS.index(verdict.check)


def _size(nights: JudgedNights, verdict: NightVerdict) -> float | None:
    """Return the relative deviation of a metric from its previous level, its peers or its bound."""
    change = nights.change(verdict)
    if change is not None:
        return change.size if isfinite(change.size) else None
    if verdict.value is None or verdict.bound is None:
        return None
    low, high = verdict.bound
    if verdict.check == "homogeneity" and low and high and low * high > 0:
        return verdict.value / copysign(sqrt(low * high), low) - 1
    return beyond(verdict.value, verdict.bound)


def beyond(value: float, bound: tuple[float | None, float | None]) -> float | None:
    """Return how far *value* is out of *bound*, relative to its end; ``None`` if it is inside, or the end is 0."""
    low, high = bound
    for end, outside in ((high, value > (inf if high is None else high)), (low, value < (low or -inf))):
        if outside and end:
            return value / end - 1
    return None


def signed_percent(share: float) -> str:
    """Return a change in per cent with its sign; as a factor if it more than triples."""
    if not isfinite(share):
        return "from nothing"
    return f"{share + 1:.3g} times" if share > 2 else f"{share * 100:+.{2 if abs(share) < 0.01 else 1}f} %"


def describe(nights: JudgedNights, verdict: NightVerdict) -> str:
    """Return the failure of one metric, with its size."""
    if verdict.metric == RUN or verdict.check == "unreadable":
        return verdict.reason
    title, size, change = nights.title(verdict.metric), _size(nights, verdict), nights.change(verdict)
    if change is not None:
        spread = "" if change.kind == "level" else "its nights' spread "
        return f"{title} {spread}{change_text(change)}{nights.worth(verdict, change)}"
    flips = nights.analyses[nights.rows[key]].flips if (key := nights.key(verdict)) in nights.rows else None
    if verdict.check == "bimodal" and flips is not None:
        levels = within(flips.lower, flips.upper, verdict.unit)
        return f"{title} flips between two levels, {levels}"
    if verdict.check == "consistency":
        return f"{title}: {verdict.reason}"
    if size is not None and verdict.check == "homogeneity":
        return f"{title} {signed_percent(size)} from the testbed's others"
    if size is not None and verdict.bound is not None:
        value, much = amount(verdict.value or 0.0, verdict.unit), signed_percent(abs(size)).removeprefix("+")
        where = "above" if size > 0 else "below"
        return f"{title}: {value}, {much} {where} the accepted range ({within(*verdict.bound, verdict.unit)})"
    return f"{title}: {verdict.reason}"


def change_text(change: DriftChange) -> str:
    """Return the size of a change, with its interval if known."""
    low, high = change.interval
    interval = f" ({signed_percent(low)} to {signed_percent(high)})" if isfinite(low) and isfinite(high) else ""
    return signed_percent(change.size) + interval
