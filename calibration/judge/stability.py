# SPDX-License-Identifier: Apache-2.0
"""Stability of a metric over the nights: its level, its spread, and flips between two levels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from math import isfinite
from typing import Literal

from calibration.judge.baseline_files import AcceptedLevel
from calibration.judge.detector import MIN_VALUES
from calibration.judge.drift import Analysis, DriftChange, lasting, uncertainty
from calibration.judge.rows import SeriesNight
from calibration.judge.tolerances import Tolerances, tolerated
from calibration.judge.verdicts import NightVerdict
from calibration.judge.words import amount, change, finite, share


@dataclass(frozen=True)
class Stability:
    """A series over *nights*: *count* of them have values. Changes until the column *accepted* are accepted."""

    nights: Sequence[date]
    row: SeriesNight
    analysis: Analysis
    count: int
    tolerances: Tolerances
    level: AcceptedLevel | None
    accepted: int

    def verdicts(self) -> Iterator[NightVerdict]:
        """Yield whether level and spread are unchanged, and whether there is one level."""
        if self.count < MIN_VALUES:
            reason = f"{self.count} of {MIN_VALUES} nights so far"
            unit, analysis, verdict = self.row.series.unit, self.analysis, self.row.verdict
            yield verdict("drift", "no_reference", reason, value=finite(analysis.level), unit=unit)
            yield verdict("spread", "no_reference", reason, value=finite(analysis.spread), unit="fraction")
            yield verdict("bimodal", "no_reference", reason, value=self.row.value, unit=unit)
            return
        yield self._changed("drift")
        yield self._changed("spread")
        yield self._bimodal()

    def _changed(self, check: Literal["drift", "spread"]) -> NightVerdict:
        """Return whether the level, or the spread, is unchanged since it was accepted."""
        analysis, row, nights = self.analysis, self.row, self.nights
        drift = check == "drift"
        unit = row.series.unit if drift else "fraction"
        value = finite(analysis.level if drift else analysis.spread)
        changes = [item for item in analysis.changes if item.kind == ("level" if drift else "spread")]
        since = [item for item in changes if item.night > self.accepted]
        what = "level" if drift else "spread of nights"
        if not since:
            reason = f"{what} {'unknown' if value is None else amount(value, unit)} since {nights[analysis.first]}"
            if changes and self.level is not None:
                last = changes[-1]
                reason = f"{what} {change(last.size, None)} since {nights[last.night]}, {self.level.acceptance.source}"
            return row.verdict(check, "pass", reason, value=value, unit=unit)
        spread, fraction = (analysis.spread, self.tolerances.fraction(row.series.metric)) if drift else (0.0, 0.0)
        standing, excursion = lasting(since, spread, fraction)
        if not standing and excursion is not None:
            last, bound = excursion.last, _bound(excursion, spread)
            reason = f"{what} is back at {amount(last.after, unit)} since {nights[last.night]}, after {excursion.text}"
            if bound is not None and bound[0] <= last.after <= bound[1]:
                return row.verdict(check, "pass", reason, value=value, unit=unit, bound=bound)
            return row.verdict(check, "noted", reason + tolerated(fraction), value=value, unit=unit, bound=bound)
        first, last = standing[0], standing[-1]
        classify_change = self.tolerances.classify_change if drift else self.tolerances.classify_spread
        move = classify_change(row.series, first.before, last.after)
        size = f"{change(last.size, last.interval)} " if isfinite(last.size) else ""
        reason = (
            f"{what} {size}since {nights[last.night]}, from {amount(last.before, unit)} to {amount(last.after, unit)}"
        )
        if first is not last:
            reason += f"; before {nights[first.night]} it was {amount(first.before, unit)}"
        return row.verdict(
            check,
            move.outcome,
            reason + move.why,
            value=value,
            unit=unit,
            bound=_bound(standing, spread),
            interval=last.interval if all(map(isfinite, last.interval)) else None,
            since=nights[last.night],
            better=move.better,
        )

    def _bimodal(self) -> NightVerdict:
        flips, row = self.analysis.flips, self.row
        if flips is None:
            return row.verdict_on_value("bimodal", "pass", "one level")
        since, unit = self.nights[flips.night], row.series.unit
        reason = (
            f"flips between {amount(flips.lower, unit)} and {amount(flips.upper, unit)} since {since}, "
            f"{share(flips.upper_share)} of the nights at the upper level"
        )
        if self.level is not None and flips.night <= self.accepted:
            return row.verdict_on_value("bimodal", "pass", f"{reason}, {self.level.acceptance.source}")
        fraction = self.tolerances.fraction(row.series.metric)
        if abs(flips.upper - flips.lower) <= fraction * abs(flips.lower):
            return row.verdict_on_value("bimodal", "noted", f"{reason}{tolerated(fraction)}", since=since)
        return row.verdict_on_value("bimodal", "fail", reason, since=since)


def _bound(changes: Sequence[DriftChange], spread: float) -> tuple[float, float] | None:
    """Return between what a level counts as that before all *changes*; ``None`` if that is unknown."""
    before, tolerance = changes[0].before, uncertainty(changes, spread)
    if not (isfinite(before) and isfinite(tolerance)):
        return None
    return before - tolerance * abs(before), before + tolerance * abs(before)
