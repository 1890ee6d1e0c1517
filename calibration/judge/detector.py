# SPDX-License-Identifier: Apache-2.0
"""Change detection in nightly values: jumps and drifts of the level, changes of the spread, flips between two levels.

All series are processed together, night by night, using only that night and earlier ones. The newest nights of a series
are compared with its *reference*, the earlier nights at the same level. The noise may be autocorrelated: the
autocorrelation is estimated, and what a night inherits from the one before is subtracted before nights are summed.
docs/method/drift.rst explains the method; bench/judgement.py measures it.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_VALUES = 13
"""Values needed before anything is reported: ten for a reference plus the newest three. Lower: the noise is poorly
known, shifts are missed and false alarms raised. Higher: a new SUT is monitored later."""

REFERENCE_NIGHTS = 100
"""Nights in the reference. Lower: the noise is known less well and slow drifts are missed. Higher: slow changes of the
noise are tracked later and false alarms increase."""

JUMP_NIGHTS = 3
"""Newest nights summed to find a jump. Lower: only large jumps are found. Higher: they are found later."""

DRIFT_NIGHTS = 14
"""Newest nights kept out of the reference and searched for a drift or a changed spread. Lower: slow drifts enter the
reference and are missed. Higher: they are found later."""

CLIP = 3.5
"""Outlier limit in standard deviations. Lower: jumps are missed. Higher: outliers raise false alarms."""

BOUND = 3.5
"""Threshold for a jump or a changed spread, in standard deviations. Lower: false alarms. Higher: changes are found
later."""

EXCURSION_BOUND = 6.0
"""Threshold for an excursion, in standard errors of its level. Lower: false alarms are taken for excursions. Higher:
smaller excursions are revoked like a false alarm."""

DRIFT_BOUND = 2.75
"""Threshold for a drift of independent nights, in standard deviations; twice the autocorrelation is added. Lower: false
alarms. Higher: slow drifts are missed."""

CORRELATION = 0.25
"""Prior autocorrelation, weighted as half of a full reference. Lower: false alarms if nights are correlated. Higher:
slow drifts are missed if they are not."""

FIRST_REFERENCE = MIN_VALUES - JUMP_NIGHTS
"""Values in the first reference."""

EPSILON = 1e-9
"""Standard deviation, relative to the first values, below which values are equal: the rounding error of sums."""

MAX_SIZE = 1e12
"""Size, relative to the first values, above which a value is clipped."""

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Flags = NDArray[np.bool_]
Kind = Literal["level", "spread"]

START, ENTERED, LEVEL, COUNT, VARIANCE, LAGGED, FOURTH, DEGREES = range(8)
"""Rows of a walk's state: first value of the stretch; first value not in the reference (``START`` if there is no
reference yet); mean of the reference and its effective number of values; and of the noise: variance, covariance of
neighbours, fourth moment and the effective number of values of these."""

_NIGHTS = np.arange(DRIFT_NIGHTS + 1)
_JUMP: Floats = np.where(_NIGHTS > DRIFT_NIGHTS - JUMP_NIGHTS, 1.0, 0.0)[:, None]
"""A unit jump: the night before the newest ones, then these."""

_RAMPS: Floats = np.maximum(0.0, _NIGHTS[:, None] + _NIGHTS - DRIFT_NIGHTS)
"""A unit drift per night over the same nights, one column per number of nights searched."""


class Walk:
    """State of the detector over *values* of shape (nights, series) without gaps, *counts* values per series.

    ``done`` are the values of each series that are in the state; a walk over all of them ends as one that began there.
    ``begins`` has the first value and the kind of each change. A change of the level is on *trial* at first:
    ``before`` is the state to restore if the old level returns. ``excursions`` has the first value of each change
    that returned, and the first one back. They are left out of ``joined``: the values before them move up.
    """

    def __init__(self, values: Floats, counts: Integers) -> None:
        self.values, self.counts = values, counts
        self.joined = values.copy()
        self.state = np.zeros((8, len(counts)))
        self.before = np.zeros_like(self.state)
        self.trial = np.zeros(len(counts), np.bool_)
        self.done = np.zeros(len(counts), np.intp)
        self.begins: list[list[tuple[int, Kind]]] = [[] for _ in counts]
        self.excursions: list[list[tuple[int, int]]] = [[] for _ in counts]

    def run(self) -> None:
        """Process all nights that are not done."""
        for done in np.unique(self.done[self.done < self.counts]).tolist():
            rows = np.flatnonzero(self.done == done)
            part = self if len(rows) == len(self.counts) else self._part(rows)
            for night in range(done, int(part.counts.max())):
                part.step(night)
            self.state[:, rows], self.before[:, rows], self.trial[rows] = part.state, part.before, part.trial
        self.done = self.counts

    def _part(self, rows: Integers) -> "Walk":
        """Return the walk of *rows*, which shares what began in them."""
        part = Walk(self.values[:, rows], self.counts[rows])
        part.state, part.before, part.trial = self.state[:, rows], self.before[:, rows], self.trial[rows]
        part.joined = self.joined[:, rows]
        part.begins, part.excursions = [self.begins[row] for row in rows], [self.excursions[row] for row in rows]
        return part

    def changed(self, row: int) -> bool:
        """Return whether anything began or returned in the series at *row*."""
        return bool(self.begins[row] or self.excursions[row])

    def step(self, night: int) -> None:
        """Process the values of *night*; earlier nights must have been processed."""
        if night + 1 < MIN_VALUES:
            return
        moving = night < self.counts
        length = night + 1 - self.state[START]
        searched = np.clip(length // 4, JUMP_NIGHTS, DRIFT_NIGHTS).astype(np.intp)
        self._learn(moving, length - searched)
        self._look(night, moving, searched)

    def _learn(self, moving: Flags, wanted: Floats) -> None:
        """Add as many values as *wanted* to the references."""
        state = self.state
        fresh = moving & (state[ENTERED] == state[START]) & (wanted >= FIRST_REFERENCE)
        if fresh.any():
            self._begin(np.flatnonzero(fresh))
        known = moving & (state[ENTERED] > state[START])
        while (rows := np.flatnonzero(known & (state[ENTERED] - state[START] < wanted))).size:
            self._enter(rows)

    def _begin(self, rows: Integers) -> None:
        """Begin the references of *rows*; keep what is known of the noise."""
        state, size = self.state, FIRST_REFERENCE
        values = bounded(self.joined[state[START, rows].astype(np.intp) + np.arange(size)[:, None], rows])
        level = total(values) / size
        off = values - level
        variance = total(off**2) / (size - 1)
        lagged = total(off[1:] * off[:-1]) / (size - 1) + variance / size
        known = state[DEGREES, rows]
        new = (size - 1) / (size - 1 + known)
        state[VARIANCE, rows] += new * (variance - state[VARIANCE, rows])
        state[LAGGED, rows] += new * (lagged - state[LAGGED, rows])
        state[FOURTH, rows] += new * (3.0 * variance**2 - state[FOURTH, rows])
        state[LEVEL, rows], state[COUNT, rows] = level, size
        state[DEGREES, rows] = np.minimum(known + size - 1, REFERENCE_NIGHTS)
        state[ENTERED, rows] += size

    def _enter(self, rows: Integers) -> None:
        """Add the next value of *rows* to the reference, by its deviation from the mean."""
        state = self.state
        at, level = state[ENTERED, rows].astype(np.intp), state[LEVEL, rows]
        reach = CLIP * np.sqrt(state[VARIANCE, rows])
        reach[reach <= CLIP * EPSILON] = np.inf  # no noise known until the first value that differs
        off, last = (np.clip(self.joined[item, rows] - level, -reach, reach) for item in (at, at - 1))
        count = np.minimum(state[COUNT, rows] + 1.0, REFERENCE_NIGHTS)
        degrees = np.minimum(state[DEGREES, rows] + 1.0, REFERENCE_NIGHTS)
        square = off**2 * (count - 1.0) / count
        state[LEVEL, rows] += off / count
        state[VARIANCE, rows] += (square - state[VARIANCE, rows]) / degrees
        state[LAGGED, rows] += (off * last - state[LAGGED, rows]) / degrees
        state[FOURTH, rows] += (square**2 - state[FOURTH, rows]) / degrees
        state[COUNT, rows], state[DEGREES, rows] = count, degrees
        state[ENTERED, rows] += 1.0

    def _look(self, night: int, moving: Flags, searched: Integers) -> None:
        """Compare the newest values, *searched* of them per series, with the reference."""
        state = self.state
        ready = moving & (state[ENTERED] > state[START])
        newest = (self.joined[max(0, night - DRIFT_NIGHTS) : night + 1] - state[LEVEL]) / deviation_of(state)
        if night < DRIFT_NIGHTS:
            newest = np.pad(newest, ((DRIFT_NIGHTS - night, 0), (0, 0)))
        calm = np.clip(newest, -CLIP, CLIP)
        ended = self._end_excursions(night, moving & self.trial)
        level = ready & ~ended & self._level_moved(calm, searched)
        newest = newest[1:]
        self._follow_trials(night, moving & self.trial & ~level, newest)
        spread = moving & ~level & ~ended & self._spread_changed(calm[1:], night, searched)
        if (level | spread).any():
            self._change(night, level, spread, newest)

    def _level_moved(self, newest: Floats, searched: Integers) -> Flags:
        """Return whether the *newest* values, in standard deviations off the reference, are a jump or a drift."""
        correlation, count = correlation_of(self.state), np.maximum(self.state[COUNT], 1.0)
        fresh = newest[1:] - correlation * newest[:-1]  # minus what a night inherits from the one before

        def normal(change: Floats, degrees: Floats) -> Floats:
            """Return the nights' sum weighted by the shape of *change*, as a normal variable."""
            weights = change[1:] - correlation * change[:-1]
            variance = (weights**2).sum(axis=0) * (1.0 - correlation**2)
            of_level = (weights.sum(axis=0) * (1.0 - correlation)) ** 2 * memory_of(correlation) / count
            return normal_of_student((weights * fresh).sum(axis=0) / np.sqrt(variance + of_level), degrees)

        # Heavy tails increase the variance of a variance, and sums of few nights have heavy tails.
        degrees = np.maximum(self.state[DEGREES], 1.0) * (2.0 / (tails_of(self.state) - 1.0)) ** 1.5
        jump = normal(_JUMP, degrees)
        outside = (newest[-JUMP_NIGHTS:] * np.sign(jump)).min(axis=0) > 1.0
        drift = normal(_RAMPS[:, searched], degrees / 2.0)  # fewer: the autocorrelation is estimated too
        return np.asarray((outside & (np.abs(jump) > BOUND)) | (np.abs(drift) > DRIFT_BOUND + 2.0 * correlation))

    def _spread_changed(self, newest: Floats, night: int, searched: Integers) -> Flags:
        """Return whether the standard deviation of the *newest* values differs from the reference's.

        An increased spread looks like a jump first: while a change of the level is on trial, the nights since are
        compared with the reference before it. They must vary from night to night, unlike those of a drift.
        """
        reference = np.where(self.trial, self.before, self.state)
        since = np.clip(night + 1 - self.state[START], 2, DRIFT_NIGHTS).astype(np.intp)
        count = np.where(self.trial, since, searched)
        inside = _RAMPS[1:, count] > 0.0
        mean = (inside * newest).sum(axis=0) / count
        variance = (inside * (newest - mean) ** 2).sum(axis=0) / (count - 1)
        correlation = correlation_of(reference)
        steps = (inside[:-1] * np.diff(newest, axis=0) ** 2).sum(axis=0) / (count - 1) / 2.0 / (1.0 - correlation)
        variance = np.where(self.trial, np.minimum(variance, steps), variance)
        variance *= (deviation_of(self.state) / deviation_of(reference)) ** 2
        variance[reference[VARIANCE] <= EPSILON**2] = 1.0  # rounding error only
        independent = (1.0 - correlation**2) / (1.0 + correlation**2) * 2.0 / (tails_of(reference) - 1.0)
        normal = normal_of_ratio(variance, (count - 1) * independent, reference[DEGREES] * independent)
        enough = (count >= FIRST_REFERENCE) & (reference[ENTERED] > reference[START])
        return np.asarray(enough & (np.where(self.trial, normal, np.abs(normal)) > BOUND))

    def _end_excursions(self, night: int, trial: Flags) -> Flags:
        """Restore the level before a change on *trial* that the newest nights have left again; return for which series.

        Fewer nights than a jump needs are outliers.
        """
        ended = np.zeros_like(trial)
        rows = np.flatnonzero(trial)
        before, length = self.before[:, rows], night + 1 - self.state[START, rows]
        oldest = max(0, night + 1 - 3 * DRIFT_NIGHTS)
        off = (self.joined[oldest : night + 1, rows] - before[LEVEL]) / deviation_of(before)
        sizes = size_left(off, length.astype(np.intp), memory_of(correlation_of(before)))
        at = np.flatnonzero(sizes)
        first = np.maximum(before[ENTERED, at].astype(np.intp), oldest)
        runs = [excursion(off[start - oldest :, row], sizes[row]) for start, row in zip(first, at, strict=True)]
        begin, end = first + np.array(runs, np.intp).reshape(-1, 2).T
        self._take_back(rows[at])
        long = end - begin >= JUMP_NIGHTS
        self._leave_out(rows[at[long]], begin[long], end[long])
        ended[rows[at]] = True
        return ended

    def _leave_out(self, rows: Integers, begin: Integers, end: Integers) -> None:
        """Leave the excursions of *rows* from *begin* until *end* out of their level, which continues."""
        state = self.state
        while (left := rows[state[ENTERED, rows] < begin]).size:
            self._enter(left)
        for row, first, back in zip(rows.tolist(), begin.tolist(), end.tolist(), strict=True):
            self.left_out(row, first, back)
        state[START, rows] += end - begin
        state[ENTERED, rows] = end

    def left_out(self, row: int, first: int, back: int) -> None:
        """Leave the excursion of *row* from the value *first* until *back* out of the values before it."""
        self.excursions[row].append((first, back))
        self.joined[back - first : back, row] = self.joined[:first, row].copy()

    def _follow_trials(self, night: int, trial: Flags, newest: Floats) -> None:
        """Update the date of recent changes, and revert those whose newest week is back at the old level."""
        if not trial.any():
            return
        state = self.state
        size = newest[-JUMP_NIGHTS - 1 : -1].mean(axis=0)
        still = newest[-1] * np.sign(size) > np.abs(size) / 2.0  # a night back at the old level tells nothing
        rows = np.flatnonzero(trial & still & (state[ENTERED] == state[START]))
        if rows.size:
            state[START, rows] = state[ENTERED, rows] = dates(newest[:, rows], night, self.before[ENTERED, rows])
            for row in rows.tolist():
                self.begins[row][-1] = (int(state[START, row]), "level")
        rows = np.flatnonzero(trial)
        before, length = self.before[:, rows], night + 1 - state[START, rows]
        week = np.clip(length, 1, DRIFT_NIGHTS // 2)
        off = np.clip(
            (self.joined[night + 1 - DRIFT_NIGHTS // 2 : night + 1, rows] - before[LEVEL]) / deviation_of(before),
            -CLIP,
            CLIP,
        )
        off[np.arange(len(off))[:, None] < len(off) - week] = 0.0
        memory = memory_of(correlation_of(before))
        back = (length > JUMP_NIGHTS) & (
            np.abs(off.sum(axis=0) / week) < np.sqrt(memory / week + memory / before[COUNT])
        )
        self._take_back(rows[back])
        self.trial[rows[length >= 2 * DRIFT_NIGHTS]] = False

    def _take_back(self, rows: Integers) -> None:
        self.state[:, rows] = self.before[:, rows]
        self.trial[rows] = False
        for row in rows.tolist():
            self.begins[row].pop()

    def _change(self, night: int, level: Flags, spread: Flags, newest: Floats) -> None:
        """Begin new stretches, unless values flip between levels seen before."""
        self._take_back(np.flatnonzero(spread & self.trial))
        rows = np.flatnonzero(level | spread)
        first = np.where(self.trial, self.before[START], self.state[START])[rows]
        values = np.where(np.arange(night + 1) >= first[:, None], self.values[: night + 1, rows].T, np.nan)
        rows = rows[~two_levels(values).found]
        state = self.state
        for kind, shown, dated in (("level", level, dates), ("spread", spread, spread_dates)):
            at = rows[shown[rows]]
            begin = dated(newest[:, at], night, state[ENTERED, at])
            self.before[:, at] = state[:, at]
            self.trial[at] = kind == "level"
            state[START, at] = state[ENTERED, at] = begin
            if kind == "spread":
                state[DEGREES, at] = 0.0
            for row, value in zip(at.tolist(), begin.tolist(), strict=True):
                self.begins[row].append((int(value), kind))


def total(values: Floats) -> Floats:
    """Return the sum of each column, rounded as if it were alone."""
    return np.asarray(np.add.accumulate(values, axis=0)[-1])


def bounded(values: Floats) -> Floats:
    """Return *values*, one series per column, with outliers clipped, so that none dominates."""
    middle = np.median(values, axis=0)
    off = values - middle
    size = np.sort(np.abs(off), axis=0)
    reach = np.maximum(CLIP * 1.4826 * np.median(size, axis=0), size[(9 * (len(size) - 1)) // 10])
    return np.asarray(middle + np.clip(off, -reach, reach))


def deviation_of(state: Floats) -> Floats:
    """Return the standard deviation of the noise."""
    return np.asarray(np.sqrt(np.maximum(state[VARIANCE], EPSILON**2)))


def tails_of(state: Floats) -> Floats:
    """Return the kurtosis of the noise, at least that of a normal distribution."""
    return np.asarray(np.maximum(state[FOURTH] / np.maximum(state[VARIANCE], EPSILON**2) ** 2, 3.0))


def correlation_of(state: Floats) -> Floats:
    """Return the autocorrelation, shrunk towards ``CORRELATION``: few values hardly determine it."""
    weight = REFERENCE_NIGHTS / 2.0
    own = state[DEGREES] * state[LAGGED] / np.maximum(state[VARIANCE], EPSILON**2)
    return np.asarray(np.clip((own + weight * CORRELATION) / (state[DEGREES] + weight), 0.0, 0.9))


def memory_of(correlation: Floats) -> Floats:
    """Return the variance of a mean of many nights relative to that of independent nights."""
    return (1.0 + correlation) / (1.0 - correlation)


def normal_of_student(student: Floats, degrees: Floats) -> Floats:
    """Return the normal variable with the tail probability of Student's t (Wallace, 1959)."""
    factor = (8.0 * degrees + 1.0) / (8.0 * degrees + 3.0)
    return np.asarray(np.sign(student) * factor * np.sqrt(degrees * np.log1p(student**2 / degrees)))


def normal_of_ratio(ratio: Floats, degrees: Floats, other: Floats) -> Floats:
    """Return the normal variable with the tail probability of a *ratio* of two variances (Paulson, 1942)."""
    above, below = 2.0 / (9.0 * degrees), 2.0 / (9.0 * np.maximum(other, 1.0))
    root = np.cbrt(ratio)
    return np.asarray(((1.0 - below) * root - (1.0 - above)) / np.sqrt(below * root**2 + above))


def size_left(off: Floats, length: Integers, memory: Floats) -> Floats:
    """Return how far off the reference the last *length* values were before the newest of them left that level again.

    *off* are the newest values in standard deviations off the reference. The result is 0 where they have not left:
    the level must be sure, three to seven nights apart from it, and the last three nearer to the reference.
    """
    sizes = np.zeros(len(length))
    for nights in range(JUMP_NIGHTS, DRIFT_NIGHTS // 2 + 1):
        away = length - nights
        inside = np.arange(len(off) - nights)[:, None] >= len(off) - length
        ordered = np.sort(np.where(inside, off[:-nights], np.nan), axis=0)  # NaN last
        middle = np.maximum([away - 1, away], 0) // 2
        median = np.where(away > 0, ordered[middle, np.arange(len(away))].mean(axis=0), 0.0)
        own, others = memory / np.maximum(away, 1), memory / nights
        size, newest = np.abs(median), np.sign(median) * off[-nights:]
        left = (size > EXCURSION_BOUND * np.sqrt(own)) & (size - newest.mean(axis=0) > BOUND * np.sqrt(own + others))
        left &= newest[-JUMP_NIGHTS:].max(axis=0) < size / 2.0
        sizes = np.where(left & (sizes == 0.0), median, sizes)
    return sizes


def excursion(off: Floats, size: float) -> tuple[int, int]:
    """Return the first of the values *off* (standard deviations) that are off by *size*, and the first one back.

    They are nearer to *size* than to 0, in sum the most.
    """
    sign, away = (1.0 if size > 0.0 else -1.0), abs(size)
    nearer = np.clip(sign * off, -away, 2.0 * away) - away / 2.0
    total = np.concatenate(([0.0], np.cumsum(nearer)))
    end = int(np.argmax(total - np.minimum.accumulate(total)))
    return int(np.argmin(total[: end + 1])), end


def dates(newest: Floats, night: int, first: Floats) -> Floats:
    """Return the night from which the *newest* values (standard deviations off the reference) are at their new level.

    This is the split that fits best: later nights near the new level, earlier ones near the reference; not before
    *first*.
    """
    last, mean = np.median(newest[-JUMP_NIGHTS:], axis=0), np.clip(newest, -CLIP, CLIP).mean(axis=0)
    size = np.where(np.abs(last) > np.abs(mean), last, mean)
    nearer = np.clip(newest * np.sign(size), -np.abs(size), 2.0 * np.abs(size)) - np.abs(size) / 2.0
    return _last(np.cumsum(nearer[::-1], axis=0), night, first)


def spread_dates(newest: Floats, night: int, first: Floats) -> Floats:
    """Return the night from which the *newest* values have the new spread, by maximum likelihood."""
    count = np.arange(1.0, len(newest) + 1.0)[:, None]
    variance = np.maximum(np.cumsum(np.clip(newest[::-1], -2.0 * CLIP, 2.0 * CLIP) ** 2, axis=0) / count, EPSILON)
    return _last(count * (variance - 1.0 - np.log(variance)), night, first)


def _last(gain: Floats, night: int, first: Floats) -> Floats:
    """Return the night at which *gain*, indexed by nights back, is largest; at least two nights back."""
    back = np.arange(1, len(gain) + 1)[:, None]
    gain = np.where((back >= 2) & (night + 1 - back >= first), gain, -np.inf)
    return np.asarray(night - np.argmax(gain, axis=0), np.float64)


class _Levels(NamedTuple):
    """Whether values flip between two levels, the levels, and which values are on the upper one."""

    found: Flags
    lower: Floats
    upper: Floats
    is_upper: Flags


def two_levels(values: Floats) -> _Levels:
    """Return whether *values*, one series per row, NaN for missing, flip between two levels.

    The levels must be so far apart that no value fits both. The newest values must be on them, and earlier ones on
    both, on at least one night in ``DRIFT_NIGHTS``. There must be at least five flips, and half as many as chance
    gives: a level that changed once and returned does not flip.
    """
    known = np.isfinite(values)
    if values.shape[1] < 2 * FIRST_REFERENCE:
        zeros = np.zeros(len(values))
        return _Levels(zeros > 0.0, zeros, zeros, known)
    count = np.maximum(known.sum(axis=1), 1)
    mean = np.where(known, values, 0.0).sum(axis=1) / count
    ordered = np.sort(values, axis=1) - mean[:, None]
    below = np.arange(1, values.shape[1])
    above = np.maximum(count[:, None] - below, 0)
    sums = np.cumsum(np.nan_to_num(ordered), axis=1)[:, :-1]
    between = np.where(above > 0, sums**2 * count[:, None] / (below * np.maximum(above, 1)), 0.0)
    rows, cut = np.arange(len(values)), np.argmax(between, axis=1)
    low = sums[rows, cut]
    upper = (values > (ordered[rows, cut] + mean)[:, None]) & known
    newest = (rows[:, None], np.arange(max(values.shape[1] - JUMP_NIGHTS, 0), values.shape[1]))
    share = (upper.sum(axis=1) - upper[newest].sum(axis=1)) / np.maximum(count - JUMP_NIGHTS, 1)
    flips = ((upper[:, 1:] != upper[:, :-1]) & known[:, 1:] & known[:, :-1]).sum(axis=1)
    levels = mean + low / (cut + 1.0), mean - low / np.maximum(count - cut - 1.0, 1.0)
    apart = levels[1] - levels[0]
    within = np.sqrt(np.maximum(np.nansum(ordered**2, axis=1) - between[rows, cut], 0.0) / count)
    found = (apart > EPSILON) & (apart >= 2.0 * CLIP * within) & (count >= 2 * FIRST_REFERENCE)
    found &= flips >= np.maximum(5.0, share * (1.0 - share) * count)
    off = np.abs(values[newest] - np.where(upper[newest], levels[1][:, None], levels[0][:, None]))
    found &= np.median(off, axis=1) <= CLIP * within + EPSILON
    found &= np.minimum(share, 1.0 - share) >= 1.0 / DRIFT_NIGHTS
    return _Levels(found, *levels, upper)
