# SPDX-License-Identifier: Apache-2.0
"""Changes in a lab's own results: of single SUTs, and of the whole lab at once.

What all SUTs have in common on a night (new software under test, another traffic generator) is subtracted before the
changes of single SUTs are looked for, and has changes of its own. docs/method/explanation.rst explains the method.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from calibration.judge.detector import (
    CLIP,
    CORRELATION,
    EPSILON,
    REFERENCE_NIGHTS,
    Floats,
    Walk,
    bounded,
    normal_of_student,
)
from calibration.judge.drift import TRIMMED, analyse

FALSE_CHANGES: Final = 0.05
"""Probability that any of all series of a lab without changes has one: the detector's own alarms are many more, and
each would be a chance for a coincidence."""

MIN_ROWS: Final = 3
"""SUTs that most nights need for what all have in common: with two it is not known which one changed."""

WINDOW: Final = 14
"""Nights before and after a change that are compared directly. Fewer: the comparison is noisy. More: an earlier or
later change falls into it."""

HALF: Final = 0.5
"""Part of what is seen of a change that must be a SUT's own."""


MIN_SIDE: Final = 5
"""Values needed before and after a change. Fewer: correlated outliers are a change. More: it is reported later."""

REDATE: Final = 10
"""Values by which a change is moved to where it fits best. Fewer: a change that the detector took for one of the spread
at first keeps a wrong date. More: the date moves to another change."""

NEAR: Final = 2
"""Nights within which a change is dated like a common one."""


class Moved(NamedTuple):
    """A change of the level in one row: column of its first value, relative size with 95 % interval.

    ``significance`` is in standard normal deviations.
    """

    column: int
    size: float
    interval: tuple[float, float]
    significance: float


@dataclass(frozen=True)
class Changes:
    """Changes of one test. ``own`` has those of each row, ``common`` those that most SUTs have in common.

    ``controlled`` is whether there are enough SUTs to tell the two apart.
    """

    own: tuple[tuple[Moved, ...], ...]
    common: tuple[Moved, ...]
    controlled: bool


def bound_of(count: int) -> float:
    """Return the bound for changes among *count* values of all series together, in standard normal deviations."""
    return float(-ndtri(FALSE_CHANGES / 2.0 / max(count, 1)))


def significant(values: Floats, bound: float, run: Callable[[Walk], None] = Walk.run) -> list[tuple[Moved, ...]]:
    """Return the changes of the level of each row of *values*, NaN for missing, that exceed *bound*.

    The detector, which answers on each night, finds short stretches; looking back at all nights finds what was too weak
    or too early for it. All changes are dated by the nights before and after. *run* runs the detector.
    """
    suspects = np.flatnonzero(_steps_somewhere(values, bound))
    found: list[tuple[Moved, ...]] = [()] * len(values)
    for row, analysis in enumerate(analyse(values, run)):
        if analysis.changes or row in suspects:
            found[row] = tuple(_moved(values[row], [item.night for item in analysis.changes], bound))
    return found


def _steps_somewhere(values: Floats, bound: float) -> NDArray[np.bool_]:
    """Return which rows may have a step that exceeds *bound*: those with one if noise were independent and normal."""
    known = np.isfinite(values)
    count = known.sum(axis=1)[:, None].astype(np.float64)
    off = np.where(known, values - medians(values)[:, None], 0.0)
    before = known.cumsum(axis=1).astype(np.float64)
    after = count - before
    sums = off.cumsum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = (sums / before - (sums[:, -1:] - sums) / after) ** 2 * before * after / count
        gain = np.nan_to_num(np.where((before >= MIN_SIDE) & (after >= MIN_SIDE), gain, 0.0)).max(axis=1, initial=0.0)
        rest = np.maximum((off**2).sum(axis=1) - sums[:, -1] ** 2 / count[:, 0] - gain, 0.0)
        student = gain * np.maximum(count[:, 0] - 2.0, 1.0)
    return np.asarray(student > bound**2 / 2.0 * rest)


def _moved(row: Floats, nights: Sequence[int], bound: float) -> Iterator[Moved]:
    """Yield the changes of *row* that exceed *bound*, given the *nights* at which the detector has some."""
    known = np.flatnonzero(np.isfinite(row))
    values = row[known]
    edges = [0, *np.searchsorted(known, nights).tolist(), len(values)]
    place = 0
    while place < len(edges) - 1:
        step = _step(values[edges[place] : edges[place + 1]])
        if step is None or step.significance < bound:
            place += 1
        else:
            edges.insert(place + 1, edges[place] + step.column)
    for begin, middle, end in zip(edges, edges[1:], edges[2:], strict=False):
        step = _step(values[begin:end], middle - begin)
        if step is not None and step.significance >= bound:
            yield step._replace(column=int(known[begin + step.column]))


def _step(values: Floats, near: int | None = None) -> Moved | None:
    """Return the step in *values* that fits best, within ``REDATE`` of *near* if given.

    ``None`` if there is no room for one, or none.
    """
    count = len(values)
    first, last = (0, count) if near is None else (near - REDATE, near + REDATE)
    splits = np.arange(max(MIN_SIDE, first), min(count - MIN_SIDE, last) + 1)
    if not len(splits):
        return None
    calm = bounded(values)
    if near is not None and 0 < near < count:
        levels = np.array([np.median(values[:near]), np.median(values[near:])])
        off = np.abs(values - levels[(np.arange(count) >= near).astype(np.intp)])
        reach = CLIP * 1.4826 * float(np.median(off))
        calm = np.clip(values, levels.min() - reach, levels.max() + reach)
    sums = np.cumsum(calm)
    gain = ((sums[-1] - sums[splits - 1]) / (count - splits) - sums[splits - 1] / splits) ** 2
    split = int(splits[np.argmax(gain * splits * (count - splits))])
    parts = bounded(values[:split]), bounded(values[split:])
    before, after = (float(np.sort(part)[len(part) // 5 : len(part) - len(part) // 5].mean()) for part in parts)
    if before in {0.0, after}:
        return None
    rest = np.concatenate((parts[0] - before, parts[1] - after))
    degrees = max(count - 2, 1)
    variance = float((rest**2).sum()) / degrees
    lagged = float((rest[1:] * rest[:-1]).sum()) / max(variance, (EPSILON * before) ** 2)
    prior = REFERENCE_NIGHTS / 2.0  # few values hardly determine the autocorrelation: as the detector's
    correlation = min(max((lagged + prior * CORRELATION) / (count + prior), 0.0), 0.9)
    memory = TRIMMED * (1.0 + correlation) / (1.0 - correlation)
    error = sqrt(memory * variance * (1.0 / split + 1.0 / (count - split)))
    student = abs(after - before) / max(error, EPSILON * abs(before))
    half = float(stdtrit(degrees, 0.975)) * error / abs(before)
    size = (after - before) / abs(before)
    normal = float(normal_of_student(np.array([student]), np.array([float(degrees)]))[0])
    return Moved(split, size, (size - half, size + half), normal)


def changes_of(tests: Sequence[Floats], bound: float) -> list[Changes]:
    """Return the changes of *tests* that exceed *bound*: each has values of shape (SUTs, nights), NaN for missing.

    Rows whose median is 0 have no relative changes, and no others.
    """
    relative = [values / _nonzero(medians(values))[:, None] for values in tests]
    first = _changed(relative, bound)
    commons = [_common(values, rows) for values, rows in zip(relative, first, strict=True)]
    lines = {number: common[None] for number, common in enumerate(commons) if common is not None}
    adjusted = _changed([relative[number] - line + 1.0 for number, line in lines.items()], bound)
    second = dict(zip(lines, adjusted, strict=True))
    shared = dict(zip(lines, (rows[0] for rows in _changed([*lines.values()], bound)), strict=True))
    return [
        _told_apart(values, second[number], shared[number])
        if number in second
        else Changes(tuple(first[number]), (), controlled=False)
        for number, values in enumerate(relative)
    ]


def _changed(tests: Sequence[Floats], bound: float) -> list[list[tuple[Moved, ...]]]:
    """Return the significant changes of each row of each of *tests*; all rows are searched together."""
    if not tests:
        return []
    longest = max(values.shape[1] for values in tests)
    rows = np.concatenate(
        [np.pad(values, ((0, 0), (0, longest - values.shape[1])), constant_values=np.nan) for values in tests]
    )
    found = iter(significant(rows, bound))
    return [[next(found) for _ in values] for values in tests]


def _common(relative: Floats, rows: Sequence[Sequence[Moved]]) -> Floats | None:
    """Return what all SUTs have in common on each night, around 1; ``None`` unless most nights have enough SUTs.

    It is the median of the SUTs without the changes in *rows* that are a SUT's own.
    """
    per_night = np.isfinite(relative).sum(axis=0)
    if not per_night.any() or float(np.median(per_night[per_night > 0])) < MIN_ROWS:
        return None
    without = relative.copy()
    for number, row in enumerate(rows):
        for item in row:
            contrasts = _contrasts(relative, item.column)
            if _like(item.size, float(contrasts[number] - medians(contrasts[None])[0])):
                without[number, item.column :] /= 1.0 + item.size
    without /= _nonzero(medians(without))[:, None]
    common = medians(without.T)
    common[per_night < MIN_ROWS] = np.nan
    known = np.isfinite(common)
    at = np.maximum.accumulate(np.where(known, np.arange(len(common)), -1))
    return np.asarray(common[np.where(at < 0, int(np.argmax(known)), at)])


def _told_apart(relative: Floats, rows: Sequence[Sequence[Moved]], shared: Sequence[Moved]) -> Changes:
    """Return the changes in *rows*, after what all have in common was subtracted, and those that are *shared*.

    A SUT that did not change when most others did seems to have changed the other way, and one that changed more than
    the others to have changed in part: neither is a change of its own.
    """

    def own(number: int, item: Moved) -> bool:
        if all(abs(other.column - item.column) > NEAR for other in shared):
            return True
        seen = float(_contrasts(relative[number : number + 1], item.column)[0])
        return _like(item.size, seen) and _like(seen, item.size)

    return Changes(
        tuple(tuple(item for item in row if own(number, item)) for number, row in enumerate(rows)),
        tuple(shared),
        controlled=True,
    )


def _nonzero(values: Floats) -> Floats:
    return np.where(values == 0.0, np.nan, values)


def _like(size: float, other: float) -> bool:
    """Return whether *other* is in the direction of *size* and at least ``HALF`` of it."""
    return bool(other * np.sign(size) >= HALF * abs(size))


def _contrasts(relative: Floats, column: int) -> Floats:
    """Return the relative change of each row at *column*, by the medians of ``WINDOW`` nights; NaN if unknown."""
    before, after = (
        medians(part) for part in (relative[:, max(0, column - WINDOW) : column], relative[:, column : column + WINDOW])
    )
    return np.asarray(after / before - 1.0)


def medians(values: Floats) -> Floats:
    """Return the median of each row without NaN; NaN if it has no other value."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)
    count = np.isfinite(values).sum(axis=1)
    rows = np.arange(len(values))
    middle = ordered[rows, np.maximum(count - 1, 0) // 2] + ordered[rows, np.minimum(count // 2, len(ordered[0]) - 1)]
    return np.asarray(np.where(count > 0, middle / 2.0, np.nan))
