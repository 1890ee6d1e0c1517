# SPDX-License-Identifier: Apache-2.0
"""What changed at a SUT since its last night, and since its values were accepted: headline metrics and configuration.

A metric is better or worse if it moved beyond its tolerance whatever the values within both intervals are. It is as
before if it moved within the tolerance. Everything else is unknown.
"""

from collections.abc import Collection, Iterator
from datetime import date
from math import isfinite
from typing import Final, Literal, NamedTuple

from calibration.judge.baseline_files import Accepted, facts_of
from calibration.judge.causes import context_changes
from calibration.judge.judged import JudgedNights, signed_percent
from calibration.judge.verdicts import ContextChange, changes_text
from calibration.results.history import Sut

Moved = Literal["worse", "better", "unknown", "as before"]
"""How a metric moved, most urgent first."""

MAX_FACTS: Final = 2
"""Changed facts named in a line; the others are counted."""


class MetricChange(NamedTuple):
    """A metric before and tonight, in its unit, and how it moved; ``reason`` says why that is unknown."""

    metric: str
    unit: str
    before: float
    after: float
    moved: Moved
    reason: str

    @property
    def size(self) -> str:
        """The relative change with its sign."""
        return signed_percent(self.after / self.before - 1) if self.before else "from nothing"


class Since(NamedTuple):
    """The changes of a SUT since a ``night``: its last one, or that of the values that were ``accepted``."""

    night: date
    accepted: bool
    metrics: tuple[MetricChange, ...]
    facts: tuple[ContextChange, ...]

    def of(self, metrics: Collection[str]) -> "Since":
        """Return the changes of *metrics* only, in their order."""
        known = {item.metric: item for item in self.metrics}
        return self._replace(metrics=tuple(known[metric] for metric in metrics if metric in known))

    @property
    def news(self) -> bool:
        """Whether anything moved or changed."""
        return bool(self.facts) or any(item.moved in {"worse", "better"} for item in self.metrics)

    @property
    def name(self) -> str:
        """What it is since."""
        return f"Since {'accepted' if self.accepted else 'last night'} ({self.night})"

    @property
    def text(self) -> str:
        """How many metrics moved, and which facts changed, in a line."""
        counts = {moved: sum(item.moved == moved for item in self.metrics) for moved in ("worse", "better", "unknown")}
        parts = [f"{count} {moved}" for moved, count in counts.items() if count]
        rest = len(self.metrics) - sum(counts.values())
        parts += [f"{rest} as before"] if rest else []
        return f"{', '.join(parts) or 'nothing to compare'}; {changes_text(self.facts, MAX_FACTS)}"


def changes_since(nights: JudgedNights, sut: Sut, metrics: Collection[str]) -> Iterator[Since]:
    """Yield the changes of *metrics* of *sut* since its run before that of the last of *nights*, and since accepted."""
    runs = nights.history.runs.get(sut, {})
    run = runs.get(nights.night)
    if run is None:
        return
    before = max((night for night in runs if night < run.night), default=None)
    if before is not None:
        facts = context_changes(runs[before], run) if runs[before].facts and run.facts else ()
        moved = tuple(_since_night(nights, sut, metrics, before))
        yield Since(before, accepted=False, metrics=moved, facts=facts)
    accepted = nights.baselines.of(sut, facts_of(runs), nights.night)
    known = [accepted.bounds[metric].acceptance.night for metric in metrics if metric in accepted.bounds]
    if known:
        night = max(known)
        then = runs.get(night)
        facts = context_changes(then, run) if then is not None and then.facts and run.facts else ()
        moved = tuple(_since_accepted(nights, sut, metrics, accepted))
        yield Since(night, accepted=True, metrics=moved, facts=facts)


def _since_night(nights: JudgedNights, sut: Sut, metrics: Collection[str], before: date) -> Iterator[MetricChange]:
    history = nights.history
    column = history.nights.index(before)
    for metric in metrics:
        row = nights.rows.get((*sut, metric))
        if row is None:
            continue
        ends = history.values, history.low, history.high
        old, new = ([float(part[row, place]) for part in ends] for place in (column, -1))
        if isfinite(old[0]) and isfinite(new[0]):
            moved, reason = _moved(nights, row, old, new)
            yield MetricChange(metric, history.series[row].unit, old[0], new[0], moved, reason)


def _moved(nights: JudgedNights, row: int, old: list[float], new: list[float]) -> tuple[Moved, str]:
    """Return how a series moved from *old* to *new*, each a value and the ends of its interval, and why unknown."""
    series = nights.history.series[row]
    before, *ends_before = old
    after, *ends_after = new
    tolerance = nights.tolerances.fraction(series.metric) * abs(before)
    if abs(after - before) <= tolerance:
        return "as before", ""
    if not all(map(isfinite, (*ends_before, *ends_after))):
        return "unknown", "no interval"
    apart = ends_after[0] - ends_before[1] if after > before else ends_before[0] - ends_after[1]
    if apart <= tolerance:
        return "unknown", "the intervals are too wide"
    return ("better" if (after > before) == (series.better == "higher") else "worse"), ""


def _since_accepted(
    nights: JudgedNights, sut: Sut, metrics: Collection[str], accepted: Accepted
) -> Iterator[MetricChange]:
    """Yield the metrics beside their accepted values, as their limits were judged."""
    for metric in metrics:
        row, baseline = nights.rows.get((*sut, metric)), accepted.bounds.get(metric)
        verdicts = () if row is None else nights.verdicts_of(row)
        verdict = next((item for item in verdicts if item.check == "limits" and item.value is not None), None)
        if baseline is None or verdict is None or verdict.value is None:
            continue
        moved: Moved = "worse" if verdict.outcome == "fail" else "better" if verdict.better else "as before"
        yield MetricChange(metric, verdict.unit or "", baseline.bounds.value, verdict.value, moved, "")
