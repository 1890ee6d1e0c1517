# SPDX-License-Identifier: Apache-2.0
"""Output of a trend: on one screen, as CSV and as JSON."""

import csv
import json
from collections.abc import Iterator, Sequence
from io import StringIO
from math import isfinite
from typing import Any, Final

from calibration.base.text import WIDTH, cut, some_of, visible
from calibration.judge.detector import MIN_VALUES
from calibration.judge.trend import Choices, Step, Trend, TrendNight
from calibration.judge.words import amount, change, finite, share, within

COLUMNS: Final = ("night", "run_id", "status", "value", "low", "high", "outside", "notes")
"""Columns of the CSV output."""

MAX_NIGHTS: Final = 10
"""Nights on the screen."""

MAX_CHANGES: Final = 5
"""Changes on the screen, newest last."""

MAX_SPARKS: Final = 60
"""Nights in the sparkline."""

MAX_SUTS: Final = 20
"""SUTs named before the rest is counted."""

BLOCKS: Final = "▁▂▃▄▅▆▇█"

MIN_SPAN: Final = 0.05
"""Minimum height of a sparkline, relative to its values."""

DATED_WITHIN: Final = 2
"""Uncertainty of a change's date in nights: other changes within it are possible causes."""


def _missing(trend: Trend, night: TrendNight) -> str | None:
    """Return why *night* has no value; ``None`` if it has one."""
    if night.value is not None:
        return None
    if night.run is None:
        return night.fault or "no run"
    reasons = [
        reason for reason in night.run.reasons if reason.startswith(f"{trend.series.metric}: ")
    ] or night.run.reasons
    return f"no valid value, the run is {night.run.status}{': ' + reasons[0] if reasons else ''}"


def _found(trend: Trend) -> dict[str, list[str]]:
    """Return the detected changes as text, by first night."""
    unit = trend.series.unit
    found: dict[str, list[str]] = {}
    for item in trend.analysis.changes:
        of = unit if item.kind == "level" else "fraction"
        size = f"{change(item.size, item.interval)}: " if isfinite(item.size) else ""
        text = f"{item.kind} {size}{amount(item.before, of)} -> {amount(item.after, of)}"
        found.setdefault(trend.nights[item.night].night, []).append(text)
    if (flips := trend.analysis.flips) is not None:
        text = (
            f"flips between {amount(flips.lower, unit)} and {amount(flips.upper, unit)} from here on, "
            f"{share(flips.upper_share)} of the nights at the upper"
        )
        found.setdefault(trend.nights[flips.night].night, []).append(text)
    return found


def _state(trend: Trend, night: TrendNight) -> list[str]:
    """Return whether the value of *night* is missing, and why, or out of the baseline."""
    missing = _missing(trend, night)
    return [*([] if missing is None else [missing]), *(["outside"] if night.outside else [])]


def _notes(trend: Trend) -> Iterator[list[str]]:
    """Yield the notes of each night."""
    found = _found(trend)
    for night in trend.nights:
        yield [
            *_state(trend, night),
            *found.get(night.night, []),
            *(one.text for one in night.changes),
        ]


def trend_text(trend: Trend, *, everything: bool = False) -> str:
    """Return *trend* on one screen: level, baseline, changes, newest nights; with *everything* a line per night."""
    series, analysis, reference = trend.series, trend.analysis, trend.reference
    lines = [f"{series.metric} of {series.testbed}/{series.sut}, {series.better} is better"]
    measured = [night.value for night in trend.nights if night.value is not None]
    if trend.step is not None:
        lines.append(_step(trend, trend.step))
    elif isfinite(analysis.level):
        spread = f", nights differ by {share(analysis.spread)}" if isfinite(analysis.spread) else ""
        since = trend.nights[analysis.first].night
        back = f", back after {analysis.excursion.text}" if analysis.excursion is not None else ""
        lines.append(f"level {amount(analysis.level, series.unit)} since {since}{back}{spread}")
    if reference is None:
        lines.append("no baseline accepted yet")
    else:
        lines.append(f"{reference.bounds.words}, {reference.source}: {reference.acceptance.reason}")
    drawn = sparkline([night.value for night in trend.nights[-MAX_SPARKS:]])
    low_high = f"{within(min(measured), max(measured), series.unit)}, " if measured else ""
    lines += ["", f"{drawn}  {low_high}{len(measured)} of {len(trend.nights)} nights measured"]
    changes = list(_change_lines(trend))
    if changes:
        lines += ["", *changes[-MAX_CHANGES:]]
        if len(changes) > MAX_CHANGES:
            lines.append(f"and {len(changes) - MAX_CHANGES} changes before")
    lines.append("")
    notes = list(_notes(trend)) if everything else [_state(trend, night) for night in trend.nights]
    for night, texts in list(zip(trend.nights, notes, strict=True))[0 if everything else -MAX_NIGHTS :]:
        value = "-" if night.value is None else amount(night.value, series.unit)
        interval = "" if night.low is None or night.high is None else within(night.low, night.high, series.unit)
        lines.append(f"{night.night}  {value:>12}  {interval:<26}  {'; '.join(texts)}".rstrip())
    if len(trend.nights) > MAX_NIGHTS and not everything:
        lines.append(f"and {len(trend.nights) - MAX_NIGHTS} nights before: --all")
    shown = map(visible, lines)
    return "\n".join(shown if everything else (cut(item, WIDTH) for item in shown)) + "\n"


def choices_text(choices: Choices, *, everything: bool = False) -> str:
    """Return the SUTs, and the metrics of one of them by family: the first, or with *everything* all of them."""
    width = max(map(len, choices.metrics), default=0)
    lines = [f"SUTs: {', '.join(choices.suts) if everything else some_of(choices.suts, MAX_SUTS)}", ""]
    lines.append(f"Metrics of {choices.sut}:")
    for title, metrics in choices.metrics.items():
        shown = metrics if everything else metrics[:1]
        more = f" and {len(metrics) - 1} more" if len(metrics) > len(shown) else ""
        for number, metric in enumerate(shown):
            lines.append(f"  {'' if number else title:<{width}}  {metric}{more}")
    return "\n".join(map(visible, lines)) + "\n"


def _step(trend: Trend, step: Step) -> str:
    """Return the two levels that the eye sees, and how many nights a level takes."""
    unit, size = trend.series.unit, change(step.after / step.before - 1, None) if step.before else "from 0"
    first = trend.nights[step.night].night
    measured = sum(night.value is not None for night in trend.nights)
    after = sum(night.value is not None for night in trend.nights[step.night :])
    few = f"{measured} of {MIN_VALUES}" if measured < MIN_VALUES else str(after)
    return (
        f"level {amount(step.before, unit)} before {first}, {amount(step.after, unit)} since ({size}): "
        f"{few} nights so far, too few to be sure"
    )


def sparkline(values: Sequence[float | None]) -> str:
    """Return *values* as a line of block characters, with gaps for missing ones; noise of a few per cent stays flat."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    middle = (min(known) + max(known)) / 2
    half = max(max(known) - middle, MIN_SPAN / 2 * abs(middle)) or 1.0
    return "".join(
        " " if value is None else BLOCKS[round((value - middle + half) / (2 * half) * (len(BLOCKS) - 1))]
        for value in values
    )


def _change_lines(trend: Trend) -> Iterator[str]:
    """Yield each change with the facts that changed on nearby nights."""
    places = {night.night: place for place, night in enumerate(trend.nights)}
    for night, found in sorted(_found(trend).items()):
        around = trend.nights[max(0, places[night] - DATED_WITHIN) : places[night] + DATED_WITHIN + 1]
        facts = [one.text for item in around for one in item.changes]
        cause = f"; with it {'; '.join(facts)}" if facts else "; no known fact changed"
        yield f"{night}  {'; '.join(found)}{cause}"


def trend_csv(trend: Trend) -> str:
    """Return *trend* as CSV, a line per night, with a header."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for night, notes in zip(trend.nights, _notes(trend), strict=True):
        run = night.run
        names = (None, None) if run is None else (run.run_id, run.status)
        writer.writerow((night.night, *names, night.value, night.low, night.high, night.outside, "; ".join(notes)))
    return text.getvalue()


def trend_json(trend: Trend) -> str:
    """Return *trend* as JSON; non-finite numbers are null."""
    series, analysis, reference = trend.series, trend.analysis, trend.reference
    flips = analysis.flips
    made: dict[str, Any] = {
        "testbed": series.testbed,
        "sut": series.sut,
        "metric": series.metric,
        "unit": series.unit,
        "better": series.better,
        "bounds": None
        if reference is None
        else {
            **reference.bounds.model_dump(mode="json", exclude={"runs"}),
            "scope": reference.scope,
            **reference.acceptance.model_dump(mode="json", include={"accepted_by", "accepted_at", "reason"}),
        },
        "level": finite(analysis.level),
        "spread": finite(analysis.spread),
        "since": trend.nights[analysis.first].night,
        "step": None if trend.step is None else {**trend.step._asdict(), "night": trend.nights[trend.step.night].night},
        "changes": [
            {
                **item._asdict(),
                "night": trend.nights[item.night].night,
                "before": finite(item.before),
                "after": finite(item.after),
                "size": finite(item.size),
                "interval": list(item.interval) if all(map(isfinite, item.interval)) else None,
            }
            for item in analysis.changes
        ],
        "flips": None if flips is None else {**flips._asdict(), "night": trend.nights[flips.night].night},
        "nights": [
            {
                "night": night.night,
                "run_id": None if night.run is None else night.run.run_id,
                "status": None if night.run is None else night.run.status,
                "value": night.value,
                "interval": None if night.low is None or night.high is None else [night.low, night.high],
                "outside": night.outside,
                "missing": _missing(trend, night),
                "context_changes": [one.model_dump(mode="json") for one in night.changes],
            }
            for night in trend.nights
        ],
    }
    return json.dumps(made, indent=1, allow_nan=False) + "\n"
