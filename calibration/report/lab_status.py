# SPDX-License-Identifier: Apache-2.0
"""State of every SUT on the newest night: one word, since when, and the worst failure.

Everything follows from the stored documents: tonight is their newest night, no clock is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from math import copysign, inf, isfinite, sqrt
from pathlib import Path
from typing import Final, NamedTuple, get_args

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.judge.baseline_files import Baselines
from calibration.judge.causes import context_changes
from calibration.judge.completeness import RUN
from calibration.judge.drift import Analysis, DriftChange, analyse
from calibration.judge.events import Event, find_events
from calibration.judge.night import judge_history
from calibration.judge.state import State, state_of
from calibration.judge.tolerances import Tolerances, read_tolerances
from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.judge.waivers import read_waivers
from calibration.results.history import History, NightRun, Sut
from calibration.results.index import read_history

CHECKS: Final = (
    "unreadable",
    "restored",
    "missing",
    "drift",
    "limits",
    "homogeneity",
    "consistency",
    "spread",
    "bimodal",
)
"""Checks by importance."""

MAX_FACTS: Final = 4
"""Changed facts named with a finding; the others are counted."""


@dataclass(frozen=True)
class NightlyHistory:
    """The history of a store, and the verdicts of its last night.

    ``analyses`` has one entry per series of ``history``, ``titles`` the display name of each metric.
    """

    history: History
    analyses: Sequence[Analysis]
    verdicts: Sequence[NightVerdict]
    titles: Mapping[str, str]
    tolerances: Tolerances = field(default_factory=Tolerances)

    @property
    def night(self) -> date:
        """The newest night."""
        return self.history.nights[-1]

    @cached_property
    def events(self) -> Sequence[Event]:
        """Failures that began on several SUTs at once."""
        return [event for event in find_events(self.verdicts) if event.failed]

    @cached_property
    def rows(self) -> Mapping[tuple[str, str, str], int]:
        """Row of each series by testbed, SUT and metric."""
        return {(series.testbed, series.sut, series.metric): row for row, series in enumerate(self.history.series)}

    @cached_property
    def of_sut(self) -> Mapping[Sut, Sequence[NightVerdict]]:
        """Tonight's verdicts by SUT."""
        return grouped(((verdict.testbed, verdict.sut), verdict) for verdict in self.verdicts)

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
        return self.titles.get(metric, metric)

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


def read_nights(results: Path) -> NightlyHistory | None:
    """Return the nights of the documents in *results*; ``None`` if there are none."""
    history = read_history(results)
    if not history.nights:
        return None
    analyses = analyse(history.values)
    tolerances = read_tolerances(results)
    judgement = judge_history(history, analyses, Baselines(results), read_waivers(results), tolerances)
    return NightlyHistory(history, analyses, judgement.verdicts, {}, tolerances)


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


class SutStatus(NamedTuple):
    """One SUT tonight: its state, its newest readable run, and the run of the night its failure began."""

    testbed: str
    sut: str
    state: State
    newest: NightRun | None
    began: NightRun | None = None


def findings(nights: NightlyHistory) -> list[StatusFinding]:
    """Return tonight's failures by SUT and first night, most metrics first."""
    found = []
    for (testbed, sut), verdicts in nights.of_sut.items():
        by_night = grouped((verdict.since, verdict) for verdict in verdicts if verdict.outcome == "fail")
        found += [
            StatusFinding(testbed, sut, since, tuple(sorted(failing, key=lambda item: failure_order(nights, item))))
            for since, failing in by_night.items()
        ]
    return sorted(found, key=lambda run: (run.metrics[0] != RUN, -len(run.metrics), run.testbed, run.sut))


def failure_order(nights: NightlyHistory, verdict: NightVerdict) -> tuple[bool, int, float]:
    """Return a sort key for failures: missing runs first, then by check, then by size."""
    size = _size(nights, verdict)
    return verdict.metric != RUN, CHECKS.index(verdict.check), -abs(size) if size is not None else 0.0


def _size(nights: NightlyHistory, verdict: NightVerdict) -> float | None:
    """Return the relative deviation of a metric from its previous level, its peers or its bound."""
    change = nights.change(verdict)
    if change is not None:
        return change.size if isfinite(change.size) else None
    if verdict.value is None or verdict.bound is None:
        return None
    low, high = verdict.bound
    if verdict.check == "homogeneity" and low and high and low * high > 0:
        return verdict.value / copysign(sqrt(low * high), low) - 1
    for end, beyond in ((high, verdict.value > (inf if high is None else high)), (low, verdict.value < (low or -inf))):
        if beyond and end:
            return verdict.value / end - 1
    return None


def signed_percent(share: float) -> str:
    """Return a change in per cent with its sign; as a factor if it more than triples."""
    if not isfinite(share):
        return "from nothing"
    return f"{share + 1:.3g} times" if share > 2 else f"{share * 100:+.{2 if abs(share) < 0.01 else 1}f} %"


def describe(nights: NightlyHistory, verdict: NightVerdict) -> str:
    """Return the failure of one metric, with its size."""
    if verdict.metric == RUN or verdict.check == "unreadable":
        return verdict.reason
    title, size, change = nights.title(verdict.metric), _size(nights, verdict), nights.change(verdict)
    if change is not None:
        spread = "" if change.kind == "level" else "its nights' spread "
        return f"{title} {spread}{change_text(change)}{nights.worth(verdict, change)}"
    flips = nights.analyses[nights.rows[key]].flips if (key := nights.key(verdict)) in nights.rows else None
    if verdict.check == "bimodal" and flips is not None:
        levels = units.measured_interval((flips.lower, flips.upper), verdict.unit or "")
        return f"{title} flips between two levels, {levels}"
    if verdict.check == "consistency":
        return f"{title}: {verdict.reason}"
    if size is not None and verdict.check == "homogeneity":
        return f"{title} {signed_percent(size)} from the testbed's others"
    if size is not None:
        value, much = units.measured(verdict.value, verdict.unit or ""), signed_percent(abs(size)).removeprefix("+")
        return f"{title} {value}, {much} {'above' if size > 0 else 'below'} the accepted range"
    return f"{title}: {verdict.reason}"


def change_text(change: DriftChange) -> str:
    """Return the size of a change, with its interval if known."""
    low, high = change.interval
    interval = f" ({signed_percent(low)} to {signed_percent(high)})" if isfinite(low) and isfinite(high) else ""
    return signed_percent(change.size) + interval


def summary(nights: NightlyHistory, finding: StatusFinding) -> str:
    """Return a finding in one line: the worst metric, the number of others, and what changed that night."""
    text = describe(nights, finding.verdicts[0])
    more = len(finding.metrics) - 1
    if more and finding.metrics[0] != RUN:
        what = "file" if finding.verdicts[0].check == "unreadable" else "metric"
        text += f", and {more} more {what}{'s' if more > 1 else ''}"
    if facts := list(dict.fromkeys(change.fact for change in finding.context_changes)):
        more_facts = [f"{len(facts) - MAX_FACTS} more"] if len(facts) > MAX_FACTS else []
        text += f"; changed: {listed(facts[:MAX_FACTS] + more_facts)}"
    return text


def standings(nights: NightlyHistory) -> list[SutStatus]:
    """Return every SUT of the results, most urgent first."""
    wrong = grouped(((finding.testbed, finding.sut), finding) for finding in findings(nights))
    found = [_standing(nights, sut, wrong.get(sut, [])) for sut in sorted({*nights.history.runs, *wrong})]
    return sorted(found, key=lambda run: (get_args(State).index(run.state), run.testbed, run.sut))


def _standing(nights: NightlyHistory, sut: Sut, wrong: Sequence[StatusFinding]) -> SutStatus:
    runs = nights.history.runs.get(sut, {})
    newest = runs[max(runs)] if runs else None
    state = state_of(nights.of_sut.get(sut, ()))
    since = wrong[0].since if wrong else None
    return SutStatus(*sut, state, newest, None if since is None else runs.get(since))


def listed(words: Sequence[str]) -> str:
    """Return *words* joined as a list in a sentence."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
