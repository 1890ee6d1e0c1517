# SPDX-License-Identifier: Apache-2.0
"""Changes of the level and of the spread of figures over nights, and figures that flip between two levels.

All series are walked through night by night, at the same time: what is known on a night follows from that night and
those before it, so that ``analyse(values[:, :n + 1])`` is what was known on night ``n``.

Nothing is assumed of the noise but that it is independent from night to night. Its density is estimated for each series
from the figures before (a kernel estimate, a normal, a Student t and a log-normal density, each as far as it explains
the figures, in a table of bins), with a floor for what was never seen. The newest three to eight figures are a change
of the level where some shift of that density makes them more likely than no shift does, by a factor that noise seldom
reaches: a generalised likelihood ratio (Lorden, *Procedures for reacting to a change in distribution*, 1971; Lai,
*Sequential changepoint detection in quality control and dynamical systems*, 1995). A figure that flips between two
levels has both of them in its density, so that a visit to either is no change, and a single outlier is what the floor
allows for. Small changes show in the sums of up to sixty *scores* (what a normal variable of the same rank would be),
changes of the spread in the sums of their squares. docs/method/drift.rst says what this finds, and bench/drift.py
measures it.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.judge.noise import BINS, LEAST, Floats, Integers, bins_of, estimate_noise, likelihood_ratio

FEWEST = 10
"""Figures before which nothing is said: of fewer, noise and change cannot be told apart."""

SHORT_TAILS = (3, 5, 8)
"""Numbers of newest figures that are compared by likelihood."""

LONG_TAILS = (12, 20, 35, 60)
"""Numbers of newest figures that are compared by the sum of their scores: enough for it to be nearly normal."""

SPREAD_TAILS = (8, 12, 16, 24, 40)
"""Numbers of newest figures whose spread is compared. Fewer cannot show a spread that became a third."""

SCREEN = 3.1
"""Standard deviations that a sum of figures must be off for them to be looked at closely: it only saves time."""

SELDOM = 8
"""A tail is looked at whenever an eighth of it is new: every night up to fifteen figures, every seventh at sixty."""

LIKELIHOOD_THREE = 5.5
"""Logarithm of the likelihood ratio at which three figures are a change. This and the bounds below were chosen with
``bench/drift.py``, so that fewer than one new change per 1000 nights is noise."""

LIKELIHOOD_MORE = 9.0
"""The same for four to eight figures: what three did not show is asked for more, as it is asked in addition."""

HEAVY = 3.0
"""What is asked for in addition, times the excess of the noise's tail over a normal's: where outliers are common the
density between them is known less well."""

LONG = 4.2
"""Standard deviations of a sum of scores at which a long tail is a change."""

SPREAD = 3.6
"""The same for the sum of squares, as a normal variable (Wilson and Hilferty)."""

KEPT = 2.3
"""Standard deviations that a new change of the level must keep while it is young; one that does not is taken back."""

YOUNG = 30
"""Figures for which a change is young."""

WINDOW = 96
"""Figures back from the night on which a change is found, among which it is dated."""

BEFORE = 3
"""A change began among the figures that show it, or among a third as many before them."""

NEVER = 1 << 30
"""Number of figures that stands for no change."""

ANEW = 10
"""Figures by which a change is dated anew at most, when there are more on both sides."""

HISTORY = 240
"""Figures back from a night that the noise is estimated from at most."""

LARGEST = 1e12
"""Size, relative to the same, from which on a figure is as large as any."""

BOUND_NORMAL = 3.3
"""Standard deviations to which a figure is bounded where the noise is taken for normal."""

BOUND = 4.0
"""Standard deviations to which a figure is bounded in the running sums, for the same reason."""

SCREEN_MORE = 3.8
"""The same as ``SCREEN`` for more than three figures."""

SCREEN_SPREAD = 3.3
"""The same for the sum of squares."""

ONE_IN_10000 = 1e-4
"""Probability below which newest figures that all lie within a part of the noise are no chance."""

FEW = 4.0
"""What is asked for in addition, relative, per figure that the noise was estimated from."""

TWO_FIGURES = 18
"""Fewer figures cannot tell two levels from one."""

TWO_EXPLAIN = 0.85
"""Share of the variance that two levels must explain."""

TWO_LEAST = 0.05
"""Share of the figures that the less frequent level must have, and never fewer than three."""

TWO_APART = 0.25
"""Part of the distance between two levels by which they may move and be the same."""

TWO_CHANCE = 0.002
"""Probability below which figures that are all on one level do not flip."""

TWO_MOVED = 4.0
"""Standard errors by which the newest figures may be off the level that each is on."""

TRIMMED = 1.15
"""Variance of a mean without the outer fifths, relative to that of the whole mean, for normal noise."""

TOGETHER = 5000
"""Series that are walked through together, at most: more take more memory, fewer more time."""

CACHED = 512
"""Series of which as many figures as there are fit into a processor's cache."""

WORKERS = 2
"""Parts of the series that are walked through at the same time."""


class Change(NamedTuple):
    """A change that was found.

    ``night`` is the column of the first night of the new state. ``before`` and ``after`` are the level, or for
    ``spread`` the standard deviation relative to the level. ``size`` is after / before - 1 and ``interval`` bounds it
    with 95 %; they are NaN where before is 0.
    """

    kind: Literal["level", "spread"]
    night: int
    before: float
    after: float
    size: float
    interval: tuple[float, float]


class Flips(NamedTuple):
    """Two levels between which a figure flips since the column ``night``, and the share of nights on the upper one."""

    night: int
    lower: float
    upper: float
    upper_share: float


@dataclass(frozen=True)
class Analysis:
    """What the figures of one series say, as known on its last night.

    ``level`` (a trimmed mean) and ``spread`` (standard deviation relative to the level) are those of the stretch that
    the last figure belongs to, which begins at the column ``first`` and has ``count`` figures. ``level`` is NaN where
    there is no figure, ``spread`` where there are fewer than two or the level is 0.
    """

    changes: tuple[Change, ...]
    flips: Flips | None
    level: float
    spread: float
    first: int
    count: int


def _medians(figures: Floats) -> Floats:
    """Return the medians along the last axis of *figures*, NaN for none, each row with at least one."""
    ordered = np.sort(figures, axis=-1)
    count = figures.shape[-1] - np.isnan(figures).sum(axis=-1)
    rows = np.arange(len(figures))
    return np.asarray((ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2.0)


class _Screened(NamedTuple):
    """Series in whose newest *tail* figures there may be a change."""

    tail: int
    kind: Literal["level", "spread"]
    rows: Integers


OF_SERIES = (
    "done",
    "start",
    "noise_start",
    "young",
    "old_start",
    "old_level",
    "old_score",
    "old_width",
    "old_scores",
    "past_levels",
)
"""What a walk knows of each series: arrays whose first dimension is the series."""

OF_FIGURES = ("sums", "squares", "means", "deviations", "fourths", "past")
"""What it knows of each series after each figure: arrays whose second dimension is the series."""

STAND = ("stand_row", "stand_begin", "stand_kind")
"""Where stretches begin: series, figure and kind of the change."""

ARRAYS = (*OF_SERIES, *OF_FIGURES, *STAND)
"""All arrays of :class:`Walked`."""


@dataclass(frozen=True)
class Walked:
    """How far series were walked through: ``figures``, by series, without gaps, and what was known after the last.

    ``arrays`` are named as those of a walk.
    """

    figures: Floats
    arrays: Mapping[str, NDArray[Any]]

    def of(self, places: Integers) -> "Walked":
        """Return the same of the series at *places*, -1 for one that was never walked through."""
        known = np.flatnonzero(places >= 0)
        figures = np.full((len(places), self.figures.shape[1]), np.nan)
        figures[known] = self.figures[places[known]]
        arrays: dict[str, NDArray[Any]] = {}
        for name in OF_SERIES:
            old = self.arrays[name]
            arrays[name] = np.zeros((len(places), *old.shape[1:]), old.dtype)
            arrays[name][known] = old[places[known]]
        for name in OF_FIGURES:
            old = self.arrays[name]
            arrays[name] = np.zeros((len(old), len(places)), old.dtype)
            arrays[name][:, known] = old[:, places[known]]
        row = np.full(len(self.figures), -1)
        row[places[known]] = known
        now = row[self.arrays["stand_row"]]
        order = np.flatnonzero(now >= 0)
        order = order[np.argsort(now[order], kind="stable")]
        arrays |= {"stand_row": now[order]}
        arrays |= {name: self.arrays[name][order] for name in ("stand_begin", "stand_kind")}
        return Walked(figures, arrays)


class _Walk:
    """Series on their way through the nights: figures without gaps, shape (series, figures), *counts* of each.

    A *stretch* is what lies between two changes. ``sums`` and ``squares`` run over bounded figures, shape (figures + 1,
    series); ``means`` and ``deviations`` are those of the stretch and of the noise as known after so many figures.
    Figures are taken night by night from ``done`` on: what was walked before can be taken over from an earlier walk.
    """

    def __init__(self, figures: Floats, counts: Integers) -> None:
        series, longest = figures.shape
        self.figures, self.counts = figures, counts
        self.by_night = np.ascontiguousarray(figures.T)
        self.done = np.zeros(series, np.intp)
        self.moving = np.arange(series)  # the series that have a figure to take
        self.start = np.zeros(series, np.intp)
        self.noise_start = np.zeros(series, np.intp)
        self.past = np.zeros((2, series))  # squares around their level, and degrees of freedom, of earlier stretches
        self.past_levels = np.zeros(figures.shape)
        self.sums = np.zeros((longest + 1, series))
        self.squares = np.zeros((longest + 1, series))
        self.means = np.zeros((longest + 1, series))
        self.deviations = np.zeros((longest + 1, series))
        self.fourths = np.zeros((longest + 1, series))
        self.young = np.zeros(series, np.bool_)
        self.old_start = np.zeros(series, np.intp)
        self.old_level = np.zeros(series)
        self.old_score = np.zeros(series)
        self.old_width = np.ones(series)
        self.old_scores = np.zeros((series, BINS), np.float32)
        self.stand: list[dict[int, str]] = [{0: ""} for _ in counts]  # where stretches begin, and with which change

    def resume(self, before: Walked, known: NDArray[np.bool_]) -> None:
        """Take over what was known *before* of the series that are *known*."""
        rows = slice(None) if known.all() else np.flatnonzero(known)  # where that is all nothing is copied twice
        arrays = before.arrays
        for name in OF_SERIES:
            own, old = getattr(self, name), arrays[name]
            shared = tuple(map(slice, map(min, zip(own.shape[1:], old.shape[1:], strict=True))))
            own[(rows, *shared)] = old[(rows, *shared)]
        for name in OF_FIGURES:
            own, old = getattr(self, name), arrays[name]
            length = min(len(own), len(old))
            own[:length, rows] = old[:length, rows]
        for row, begin, kind in zip(*(arrays[name].tolist() for name in STAND), strict=True):
            if known[row]:
                self.stand[row][begin] = kind

    def walked(self, figures: Floats) -> Walked:
        """Return how far it went through *figures*, as they were before they were scaled."""
        arrays = {name: getattr(self, name) for name in (*OF_SERIES, *OF_FIGURES)}
        arrays |= dict(zip(STAND, _standing(self), strict=True))
        return Walked(figures, arrays)

    def run(self) -> None:
        """Walk."""
        fresh = np.flatnonzero((self.done < FEWEST) & (self.counts > FEWEST))
        if fresh.size:
            self._set_out(fresh)
        behind = (self.done < self.counts) & (self.counts > FEWEST)
        for night in range(int(self.done.min(initial=self.figures.shape[1], where=behind)), self.figures.shape[1]):
            self.moving = np.flatnonzero(behind & (self.done <= night) & (night < self.counts))
            if self.moving.size:
                self._take(night)
                self._reconsider(night)
                self._look(night)
        self.done = np.where(behind, self.counts, self.done)

    def _set_out(self, rows: Integers) -> None:
        """Take the first figures of *rows*."""
        figures = self.by_night[:FEWEST, rows]
        level = np.median(figures, axis=0)
        reach = 6.0 * 1.4826 * np.median(np.abs(figures - level), axis=0)
        figures = np.where(reach > 0.0, np.clip(figures, level - reach, level + reach), figures)
        self.sums[1 : FEWEST + 1, rows] = np.cumsum(figures, axis=0)
        self.squares[1 : FEWEST + 1, rows] = np.cumsum(figures**2, axis=0)
        for night in range(2, FEWEST + 1):
            self._update(night, rows)
        self.done[rows] = FEWEST

    def _update(self, night: int, rows: Integers | slice) -> None:
        """Renew mean and deviation after *night* figures."""
        count = night - self.start[rows]
        start, every = self.start[rows], np.arange(len(self.counts))[rows]
        total = self.sums[night, rows] - self.sums[start, every]
        mean = total / count
        around = self.squares[night, rows] - self.squares[start, every] - total * mean
        self.means[night, rows] = mean
        free = self.past[1, rows] + count - 1.0
        self.deviations[night, rows] = (
            np.sqrt(np.maximum(self.past[0, rows] + around, 0.0) / np.maximum(free, 1.0)) + LEAST
        )

    def _take(self, night: int) -> None:
        """Take the figures of *night*, bounded: one figure, however far away, is one figure."""
        rows = self._quick()
        means, deviations = self.means[night, rows], self.deviations[night, rows]
        far = np.clip((self.by_night[night, rows] - means) / deviations, -BOUND, BOUND)
        figures = means + far * deviations
        self.fourths[night + 1, rows] = self.fourths[night, rows] + (far * far) ** 2
        self.sums[night + 1, rows] = self.sums[night, rows] + figures
        self.squares[night + 1, rows] = self.squares[night, rows] + figures**2
        self._update(night + 1, rows)

    def _quick(self) -> Integers | slice:
        """Return what picks the series that move: where that is all of them nothing is copied."""
        return slice(None) if self.moving.size == len(self.counts) else self.moving

    def _sum_again(self, rows: Integers, since: Integers, night: int) -> None:
        """Sum the figures of *rows* from *since* to *night* again, as they are."""
        first = int(since.min())
        column = np.arange(first, night + 1)[:, None]
        figures = np.where(column >= since, self.by_night[first : night + 1, rows], 0.0)
        for sums, added in ((self.sums, figures), (self.squares, figures**2)):
            again = sums[since, rows] + np.cumsum(added, axis=0)
            sums[first + 1 : night + 2, rows] = np.where(column >= since, again, sums[first + 1 : night + 2, rows])
        self._update(night + 1, rows)

    def _reconsider(self, night: int) -> None:
        """Take back what looked like a change of the level and does no longer."""
        rows = self.moving[self.young[self.moving]]
        if not rows.size:
            return
        far = (self.by_night[night, rows] - self.old_level[rows]) / self.old_width[rows]
        self.old_score[rows] += self.old_scores[rows, bins_of(far)]
        count = night + 1 - self.start[rows]
        off = np.abs(self.old_score[rows]) / np.sqrt(count * (1.0 + count / (self.start[rows] - self.old_start[rows])))
        self.young[rows[count > YOUNG]] = False
        self._take_back(rows[(off < KEPT) & (count <= YOUNG)], night)

    def _take_back(self, rows: Integers, night: int) -> None:
        if not rows.size:
            return
        since = self.start[rows]
        for row, figure in zip(rows.tolist(), since.tolist(), strict=True):
            del self.stand[row][figure]
        self.start[rows] = self.old_start[rows]
        self.young[rows] = False
        around, free = self._around(rows, since)
        self.past[:, rows] -= np.array([around, free])
        self._sum_again(rows, since, night)

    def _around(self, rows: Integers, end: Integers) -> tuple[Floats, Floats]:
        """Return the squares of the stretches of *rows* around their mean until *end*, and their degrees of freedom."""
        count = end - self.start[rows]
        total = self.sums[end, rows] - self.sums[self.start[rows], rows]
        squares = self.squares[end, rows] - self.squares[self.start[rows], rows]
        return np.maximum(squares - total**2 / count, 0.0), (count - 1).astype(np.float64)

    def _look(self, night: int) -> None:
        """Look for changes in the newest figures: roughly in all series, thoroughly where there may be one.

        The noise before a short tail is not that before a long one, of which there may be too little.
        """
        self._compare(night, [*self._screen_squares(night), *self._screen_sums(night, LONG_TAILS)])
        self._compare(night, list(self._screen_sums(night, SHORT_TAILS)))

    def _screen_sums(self, night: int, tails: Sequence[int]) -> Iterator[_Screened]:
        moving = self._quick()
        for tail in tails:
            begin = night + 1 - tail
            if begin < FEWEST - 2:
                break
            if night % max(tail // SELDOM, 1):
                continue
            own = begin - self.start[moving]
            off = np.abs(self.sums[night + 1, moving] - self.sums[begin, moving] - tail * self.means[begin, moving])
            unsure = np.sqrt(1.0 + tail / np.maximum(own, 3))
            found = off > (SCREEN if tail == 3 else SCREEN_MORE) * sqrt(tail) * self.deviations[begin, moving] * unsure
            rows = self.moving[found & (own >= 3)]
            if rows.size:
                yield _Screened(tail, "level", rows)

    def _screen_squares(self, night: int) -> Iterator[_Screened]:
        moving = self._quick()
        for tail in SPREAD_TAILS:
            begin = night + 1 - tail
            if begin < FEWEST:
                break
            if night % max(tail // SELDOM, 1):
                continue
            total = self.sums[night + 1, moving] - self.sums[begin, moving]
            around = self.squares[night + 1, moving] - self.squares[begin, moving] - total**2 / tail
            relative = around / self.deviations[begin, moving] ** 2
            kurtosis = (3.0 * FEWEST + self.fourths[begin, moving]) / begin
            screen = SCREEN_SPREAD * np.sqrt(np.maximum(kurtosis - 1.0, 2.0) / 2.0)
            found = (relative > _chi(tail, screen)) | (relative < _chi(tail, -SCREEN_SPREAD))
            rows = self.moving[found & (begin - self.noise_start[moving] >= FEWEST)]
            if rows.size:
                yield _Screened(tail, "spread", rows)

    def _compare(self, night: int, screened: Sequence[_Screened]) -> None:
        """Compare the tails that were *screened* with the noise before the longest of them, series by series."""
        longest = np.zeros(len(self.counts), np.intp)
        for tail, _kind, which in screened:
            longest[which] = np.maximum(longest[which], tail)
        rows = np.flatnonzero(longest)
        if not rows.size:
            return
        first = max(0, night + 1 - HISTORY)
        column = np.arange(first, night + 1)
        end = night + 1 - longest[rows]
        level = np.where(end > self.start[rows], self.means[end, rows], self.means[night + 1, rows])
        levels = np.where(column >= self.start[rows, None], level[:, None], self.past_levels[rows, first : night + 1])
        residuals = self.figures[rows, first : night + 1] - levels
        used = (column >= self.noise_start[rows, None]) & (column < end[:, None])
        count = used.sum(axis=1)
        noise = estimate_noise(np.where(used, residuals, np.nan), count)
        shown = {kind: np.full(len(rows), NEVER) for kind in ("level", "spread")}  # by how many of the newest figures
        for tail, kind, which in screened:
            at = np.searchsorted(rows, which)
            at = at[count[at] >= FEWEST - 2]
            newest = residuals[at, -tail:].T
            own = np.minimum(count[at], night + 1 - tail - self.start[rows[at]])
            unsure = 1.0 + tail / np.maximum(own, 1)
            if kind == "level" and tail in SHORT_TAILS:
                ratio, upwards = likelihood_ratio(noise, at, newest)
                mean, deviation, normal = noise.normal[:, at]
                bounded = np.clip((newest - mean) / deviation, -BOUND_NORMAL, BOUND_NORMAL)
                ratio += normal * (bounded.sum(axis=0) ** 2 / (2.0 * tail) - ratio)
                needed = LIKELIHOOD_THREE if tail == min(SHORT_TAILS) else LIKELIHOOD_MORE
                needed = needed + HEAVY * (1.0 - normal) * noise.heavy[upwards.astype(np.intp), at]
                changed = ratio > needed * unsure * (1.0 + FEW / count[at])
                shown[kind][at[changed]] = np.minimum(shown[kind][at[changed]], tail)
                continue
            scores = noise.scores[at, bins_of(newest / noise.width[at])].astype(np.float64)
            total = scores.sum(axis=0)
            if kind == "level":
                changed = np.abs(total) > LONG * np.sqrt(tail * unsure) * (1.0 + FEW / count[at])
            else:
                around = (scores**2).sum(axis=0) - total**2 / tail
                # A level that changed among them is no larger spread.
                part = np.arange(1, tail)[:, None]
                shifted = np.cumsum(scores - total / tail, axis=0)[:-1] ** 2 * tail / (part * (tail - part))
                without = around - shifted.max(axis=0)
                off = SPREAD * np.sqrt(1.0 + tail / count[at]) * (1.0 + FEW / count[at])
                # Two levels, of which one was not visited lately, are no smaller spread.
                within = residuals[at] >= newest.min(axis=0)[:, None] - LEAST
                within &= residuals[at] <= newest.max(axis=0)[:, None] + LEAST
                seldom = ((within & used[at]).sum(axis=1) + 1.0) / (count[at] + 2.0) < ONE_IN_10000 ** (1.0 / tail)
                changed = (without > _chi(tail, off)) | ((around < _chi(tail, -off)) & seldom)
            shown[kind][at[changed]] = np.minimum(shown[kind][at[changed]], tail)
        changed = shown["spread"] < NEVER
        if changed.any():
            self._begin_spread(rows[changed], night)
        changed = (shown["level"] < NEVER) & ~changed
        if changed.any():
            self._begin(rows[changed], night, shown["level"][changed], noise.width[changed], noise.scores[changed])

    def _stand(self, rows: Integers, at: Integers, kind: str) -> None:
        for row, figure in zip(rows.tolist(), at.tolist(), strict=True):
            self.stand[row][figure] = kind

    def _date(self, rows: Integers, night: int, tails: Integers) -> Integers:
        """Return from where on the figures are most unlike their stretch: at least two of them, and three before.

        *tails* is how many of the newest figures showed it: what began long before them would have shown before.
        """
        first = max(0, night + 1 - WINDOW)
        at = np.arange(first, night)[:, None]
        start = self.start[rows]
        new, old = night + 1 - at, np.maximum(at - start, 1)
        newer = (self.sums[night + 1, rows] - self.sums[first:night, rows]) / new
        older = (self.sums[first:night, rows] - self.sums[start, rows]) / old
        off = np.abs(newer - older) * np.sqrt(new * old / (new + old))
        allowed = at >= np.maximum(start + 3, night + 1 - tails - tails // BEFORE)
        return np.asarray(first + np.argmax(np.where(allowed, off, -1.0), axis=0), dtype=np.intp)

    def _begin(self, rows: Integers, night: int, tails: Integers, width: Floats, scores: NDArray[np.float32]) -> None:
        """Begin a new stretch in *rows*, which *tails* show; *width* and *scores* are those of the noise before."""
        at = self._date(rows, night, tails)
        self._stand(rows, at, "level")
        column = np.arange(night + 1)
        level = self.means[at, rows]
        closed = (column >= self.start[rows, None]) & (column < at[:, None])
        self.past_levels[rows, : night + 1] = np.where(closed, level[:, None], self.past_levels[rows, : night + 1])
        around, free = self._around(rows, at)
        self.past[:, rows] += np.array([around, free])
        first = int(at.min())
        new = np.arange(first, night + 1) >= at[:, None]
        far = (self.figures[rows, first : night + 1] - level[:, None]) / width[:, None]
        old_score = np.where(new, scores[np.arange(len(rows))[:, None], bins_of(far)], 0.0)
        self.old_score[rows] = old_score.sum(axis=1)
        self.old_width[rows], self.old_scores[rows] = width, scores
        self.old_start[rows], self.old_level[rows] = self.start[rows], level
        self.young[rows] = True
        self.start[rows] = at
        self._sum_again(rows, at, night)

    def _begin_spread(self, rows: Integers, night: int) -> None:
        """Begin a new stretch with a noise of its own in *rows*: what looked like a young change of the level is it."""
        young = rows[self.young[rows]]
        self._take_back(young, night)
        rows = rows[self.start[rows] + 5 < night - 3]  # of a stretch that is too new for both sides later nights tell
        if not rows.size:
            return
        first = max(0, night + 1 - WINDOW)
        at = np.arange(first, night - 3)[:, None]
        parts = []
        for low, high in ((self.start[rows], at), (at, np.full_like(rows, night + 1))):
            count = np.maximum(high - low, 1)
            total = self.sums[high, rows] - self.sums[low, rows]
            around = (self.squares[high, rows] - self.squares[low, rows] - total**2 / count) / count
            parts.append(count * np.log(np.maximum(around, LEAST**2)))
        worst = np.where(at >= self.start[rows] + 5, parts[0] + parts[1], np.inf)
        found = np.asarray(first + np.argmin(worst, axis=0), dtype=np.intp)
        self._stand(rows, found, "spread")
        column = np.arange(night + 1)
        level = self.means[found, rows]
        closed = (column >= self.start[rows, None]) & (column < found[:, None])
        self.past_levels[rows, : night + 1] = np.where(closed, level[:, None], self.past_levels[rows, : night + 1])
        self.past[:, rows] = 0.0
        self.young[rows] = False
        self.start[rows] = self.noise_start[rows] = found
        self._sum_again(rows, found, night)


def _chi(count: int, normal: Floats | float) -> Floats | float:
    """Return the quantile of chi-square with *count* - 1 degrees of freedom at a *normal* one (Wilson and Hilferty)."""
    part = 2.0 / (9.0 * (count - 1.0))
    return (count - 1.0) * np.maximum(1.0 - part + normal * sqrt(part), 0.0) ** 3


class _Stretches(NamedTuple):
    """Stretches of many series, one entry each, by series and then by time; they partition each series.

    ``begin`` and ``end`` count the figures of the series. ``kind`` is that of the change which they begin with, "" for
    the first and for one that flips. ``scale`` is the standard deviation, ``tails`` the kurtosis, at least a normal's.
    """

    row: Integers
    begin: Integers
    end: Integers
    kind: NDArray[np.str_]
    level: Floats
    scale: Floats
    tails: Floats


def _gather(figures: Floats, row: Integers, begin: Integers, end: Integers) -> Floats:
    """Return the figures from *begin* to *end* of each *row*, padded with NaN."""
    column = begin[:, None] + np.arange(int((end - begin).max(initial=1)))
    inside = np.minimum(column, figures.shape[1] - 1)
    return np.where(column < end[:, None], figures[row[:, None], inside], np.nan)


def _describe(figures: Floats, counts: Integers, row: Integers, begin: Integers, kind: NDArray[np.str_]) -> _Stretches:
    """Return the stretches of series that *begin* so: level (a mean without the outer fifths) and spread of each."""
    last = np.append(row[1:] != row[:-1], np.ones(min(len(row), 1), np.bool_))
    end = np.where(last, counts[row], np.append(begin[1:], 0)[: len(row)])
    level, scale, tails = np.zeros(len(row)), np.zeros(len(row)), np.zeros(len(row))
    for part in _parts(len(row)):
        ordered = np.sort(_gather(figures, row[part], begin[part], end[part]), axis=1)
        count, column = (end - begin)[part, None], np.arange(ordered.shape[1])
        inner = (column >= count // 5) & (column < count - count // 5)
        level[part] = np.where(inner, ordered, 0.0).sum(axis=1) / np.maximum(inner.sum(axis=1), 1)
        around = np.where(column < count, ordered - level[part, None], 0.0) ** 2
        total = around.sum(axis=1)
        share = around / np.where(total > 0.0, total, 1.0)[:, None]
        scale[part] = np.sqrt(total / np.maximum(count[:, 0] - 1, 1))
        tails[part] = np.maximum((share**2).sum(axis=1) * count[:, 0], 3.0)
    return _Stretches(row, begin, end, kind, level, scale, tails)


def _parts(number: int) -> Iterator[Integers]:
    """Yield the rows up to *number*, as many at a time as fit into a cache."""
    for first in range(0, number, CACHED):
        yield np.arange(first, min(first + CACHED, number))


def _standing(walk: _Walk) -> tuple[Integers, Integers, NDArray[np.str_]]:
    """Return where the stretches of all series begin: row, figure and kind of the change."""
    row = np.repeat(np.arange(len(walk.stand)), [len(each) for each in walk.stand])
    begin = np.array([figure for each in walk.stand for figure in sorted(each)], dtype=np.intp)
    return row, begin, np.array([each[figure] for each in walk.stand for figure in sorted(each)], dtype=np.str_)


def _dated(figures: Floats, stretches: _Stretches) -> Integers:
    """Return where the stretches begin with the most likelihood, now that there are figures on both sides.

    Figures are taken to be of Student's t with three degrees of freedom around the level of their side.
    """
    begin = stretches.begin.copy()
    new = np.flatnonzero(stretches.kind != "")
    if not new.size:
        return begin
    old = new - 1
    pooled = np.sqrt((stretches.scale[new] ** 2 + stretches.scale[old] ** 2) / 2.0)
    # Few figures of the new stretch tell little of where the old one ended.
    anew = np.minimum(stretches.end[new] - begin[new], ANEW)
    first = np.maximum((stretches.begin[old] + begin[new]) // 2 + 1, begin[new] - anew)
    last = np.minimum((begin[new] + stretches.end[new]) // 2, begin[new] + anew)
    around = _gather(figures, stretches.row[new], first, np.maximum(last, first + 1))
    sides = []
    for side in (old, new):
        scale = np.where(stretches.kind[new] == "spread", stretches.scale[side], pooled)[:, None] + LEAST
        sides.append(-2.0 * np.log1p(((around - stretches.level[side][:, None]) / scale) ** 2) - np.log(scale))
    gained = np.cumsum(np.where(np.isnan(around), -np.inf, sides[0] - sides[1]), axis=1)
    gained = np.hstack([np.zeros((len(new), 1)), gained])
    begin[new] = np.where(last > first, first + np.argmax(gained, axis=1), begin[new])
    return begin


def _named(stretches: _Stretches) -> _Stretches:
    """Return the stretches with a change of the spread that turned out to be one of the level called so."""
    kind = stretches.kind.astype("<U6")
    new = np.flatnonzero(kind == "spread")
    old = new - 1
    count = stretches.end - stretches.begin
    scale = np.sqrt((stretches.scale[new] ** 2 + stretches.scale[old] ** 2) / 2.0)
    apart = np.abs(stretches.level[new] - stretches.level[old])
    moved = apart > 5.0 * scale * np.sqrt(1.0 / count[new] + 1.0 / count[old])
    alike = (stretches.scale[new] <= 2.0 * stretches.scale[old]) & (stretches.scale[old] <= 2.0 * stretches.scale[new])
    kind[new[moved & alike]] = "level"
    return stretches._replace(kind=kind)


class _Levels(NamedTuple):
    """Two levels: whether figures flip between them, since which one, the levels and the share of the upper one."""

    flips: NDArray[np.bool_]
    begin: Integers
    lower: Floats
    upper: Floats
    share: Floats


def _no_levels(number: int) -> _Levels:
    none = np.zeros(number)
    return _Levels(np.zeros(number, np.bool_), np.zeros(number, np.intp), none, none.copy(), none.copy())


class _Split(NamedTuple):
    """Figures in two parts: the mean of each, and the figure that is the last of the lower part."""

    last: Floats
    lower: Floats
    upper: Floats


def _two_levels(figures: Floats, row: Integers, begin: Integers, end: Integers, newest: Integers) -> _Levels:
    """Tell whether the figures from *begin* to *end* flip between two levels, also in their *newest* part.

    The best split of the sorted figures in two must explain ``TWO_EXPLAIN`` of the variance (one normal group in two
    explains 0.64), leave ``TWO_LEAST`` in the smaller part, and the parts must alternate: not seldom, as where the
    level changed and changed back, but about as often as chance makes them.
    """
    levels = _no_levels(len(row))
    for part in _parts(len(row)):
        inside = _gather(figures, row[part], begin[part], end[part])
        few, split = _split(inside, (end - begin)[part].astype(np.float64))
        at = part[few]
        for whole, each in zip(levels, _alternating(inside[few], begin[at], newest[at], split), strict=True):
            whole[at] = each
    return levels


def _split(figures: Floats, count: Floats) -> tuple[Integers, _Split]:
    """Return the rows whose *figures*, *count* of each and NaN for the rest, two parts explain, and the parts."""
    ordered = np.sort(figures, axis=1)
    below = np.arange(1, ordered.shape[1])
    sums = np.cumsum(np.nan_to_num(ordered), axis=1)
    total = sums[:, -1]
    above = count[:, None] - below
    middle = (total / np.maximum(count, 1.0))[:, None]
    # The squares between two parts, one of b figures with the sum s: (s - b mean)^2 n / (b (n - b))
    apart = (sums[:, :-1] - below * middle) ** 2
    between = np.where(above > 0.0, apart * count[:, None] / (below * np.maximum(above, 1.0)), 0.0)
    cut = np.argmax(between, axis=1)
    around = (np.where(np.isnan(ordered), 0.0, ordered - middle) ** 2).sum(axis=1)
    explained = between[np.arange(len(count)), cut] >= (TWO_EXPLAIN + 1.0 / count) * around
    few = np.flatnonzero(explained & (around > 0.0))
    cut, low = cut[few], sums[few, cut[few]]
    upper = (total[few] - low) / np.maximum(count[few] - cut - 1.0, 1.0)
    return few, _Split(ordered[few, cut], low / (cut + 1.0), upper)


def _alternating(inside: Floats, begin: Integers, newest: Integers, split: _Split) -> _Levels:
    """Tell whether figures that were *split* in two, and *begin* so, alternate between the parts, now as before."""
    known = ~np.isnan(inside)
    count = known.sum(axis=1).astype(np.float64)
    up = inside > split.last[:, None]
    share = up.sum(axis=1) / count
    switches = ((up[:, 1:] != up[:, :-1]) & known[:, 1:]).sum(axis=1)
    least = np.maximum(TWO_LEAST * count, 3.0)
    flips = (share * count >= least) & ((1.0 - share) * count >= least)
    flips &= switches >= np.maximum(5.0, 0.5 * 2.0 * share * (1.0 - share) * count)
    # A level that moved, or was left for good, is a change.
    off = np.where(known, inside - np.where(up, split.upper[:, None], split.lower[:, None]), 0.0)
    gone = np.cumsum(off, axis=1)[:, 2:-3]
    older = np.arange(3, inside.shape[1] - 2)
    newer = np.maximum(count[:, None] - older, 3.0)
    moved = np.abs(gone / older - (off.sum(axis=1)[:, None] - gone) / newer)
    moved = np.where(count[:, None] - older >= 3.0, moved, 0.0).max(axis=1)
    flips &= moved < TWO_APART * (split.upper - split.lower)
    place = begin[:, None] + np.arange(inside.shape[1])
    part = known & (place >= newest[:, None]) & (newest >= 0)[:, None]
    length, highs = part.sum(axis=1), (part & up).sum(axis=1)
    alone = np.where(highs == length, share, np.where(highs == 0, 1.0 - share, 1.0))
    flips &= alone**length >= TWO_CHANCE
    noise = np.sqrt(np.where(part, 0.0, off**2).sum(axis=1) / np.maximum(count - length, 1.0))
    flips &= np.abs(np.where(part, off, 0.0).sum(axis=1)) <= TWO_MOVED * noise * np.sqrt(length)
    # Figures that stay on one level for longer than chance does are from before it began to flip.
    stays = np.argmax((up != up[:, :1]) & known, axis=1)
    same = np.where(up[:, 0], share, 1.0 - share)
    begin = begin + np.where(same ** np.maximum(stays, 1) < TWO_CHANCE, stays, 0)
    return _Levels(flips, begin, split.lower, split.upper, share)


def _flipping(
    figures: Floats, counts: Integers, row: Integers, begin: Integers
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], _Levels]:
    """Return which of the stretches that *begin* so stand, which flip, and, for each series, whether it does now.

    Stretches that flip between the same two levels are one: the longest sequences are joined, from the first on.
    """
    series = len(counts)
    stands, flip = np.ones(len(row), np.bool_), np.zeros(len(row), np.bool_)
    now = _no_levels(series)
    head = np.searchsorted(row, np.arange(series))
    tail = np.searchsorted(row, np.arange(series), side="right") - 1
    ends = np.append(begin[1:], 0)
    ends[tail] = counts
    first, last = head.copy(), tail.copy()
    todo = np.arange(series)
    while todo.size:
        one, other = first[todo], last[todo]
        tested = np.flatnonzero(ends[other] - begin[one] >= TWO_FIGURES)
        joined = np.zeros(len(todo), np.bool_)
        if tested.size:
            one, other = one[tested], other[tested]
            levels = _two_levels(figures, row[one], begin[one], ends[other], np.where(other > one, begin[other], -1))
            joined[tested] = levels.flips
            flip[one[levels.flips]] = True
            for which in np.flatnonzero(levels.flips):
                stands[one[which] + 1 : other[which] + 1] = False
            current = levels.flips & (other == tail[row[one]])
            for kept, each in zip(now, levels, strict=True):
                kept[row[one[current]]] = each[current]
        fewer = ~joined & (last[todo] > first[todo])
        last[todo[fewer]] -= 1
        on = todo[~fewer]
        first[on] = np.where(joined[~fewer], last[on], first[on]) + 1
        last[on] = tail[on]
        todo = todo[first[todo] <= tail[todo]]
    return stands, flip, now


def _analyse(values: Floats, longest: int, before: Walked | None) -> tuple[list[Analysis], Walked]:
    """Analyse some series, of which none has more than *longest* figures."""
    finite = np.isfinite(values)
    counts = finite.sum(axis=1)
    columns = np.argsort(~finite, axis=1, kind="stable")[:, :longest]
    taken = np.take_along_axis(values, columns, axis=1)
    taken[np.arange(longest) >= counts[:, None]] = np.nan
    some = np.flatnonzero(counts)
    # By the first figures, or the first that is not 0: later ones may not change what was known before them.
    unit, centre = np.zeros(len(taken)), np.zeros(len(taken))
    unit[some] = _medians(np.abs(taken[some, :FEWEST]))
    other = taken[np.arange(len(taken)), np.argmax(np.nan_to_num(taken) != 0.0, axis=1)]
    unit = np.where(unit > 0.0, unit, np.abs(np.nan_to_num(other)))
    unit[unit == 0.0] = 1.0
    with np.errstate(over="ignore"):  # what is too large for a quotient is as large as any
        figures = np.clip(taken / unit[:, None], -LARGEST, LARGEST)
    centre[some] = _medians(figures[some, :FEWEST])
    figures -= centre[:, None]
    walk = _Walk(figures, counts)
    if before is not None:
        walk.resume(before, _goes_on(taken, before))
    walk.run()
    row, begin, kind = _standing(walk)
    stands, flip, levels = _flipping(figures, counts, row, begin)
    row, begin, kind, flip = row[stands], begin[stands], kind[stands], flip[stands]
    # That a figure began to flip is said once: as a change only where it flipped before, between other levels.
    again = flip & np.append(False, flip[:-1] & (row[1:] == row[:-1]))[: len(flip)]
    kept = ~levels.flips[row] | (begin < levels.begin[row]) | (begin == 0) | again
    row, begin, kind = row[kept], begin[kept], kind[kept]
    known = np.zeros(len(counts), np.bool_)
    known[row[begin == levels.begin[row]]] = True
    late = np.flatnonzero(levels.flips & ~known)
    order = np.lexsort((np.append(begin, levels.begin[late]), np.append(row, late)))
    row, begin = np.append(row, late)[order], np.append(begin, levels.begin[late])[order]
    kind = np.append(kind, np.full(len(late), ""))[order]
    begin = _dated(figures, _describe(figures, counts, row, begin, kind))
    stretches = _named(_describe(figures, counts, row, begin, kind))
    level = stretches.level + centre[stretches.row]
    stretches = stretches._replace(level=np.where(np.abs(level) < LEAST, 0.0, level))  # what is left of 0 by rounding
    levels = levels._replace(lower=levels.lower + centre, upper=levels.upper + centre)
    return _told(stretches, levels, unit, columns, counts), walk.walked(taken)


def _goes_on(figures: Floats, before: Walked) -> NDArray[np.bool_]:
    """Return for each series whether its *figures* begin with those that were walked through *before*."""
    old = before.figures[:, : figures.shape[1]]
    same = np.isnan(before.figures[:, figures.shape[1] :]).all(axis=1)
    return np.asarray(same & (np.isnan(old) | (old == figures[:, : old.shape[1]])).all(axis=1))


def _told(stretches: _Stretches, levels: _Levels, unit: Floats, columns: Integers, counts: Integers) -> list[Analysis]:
    """Return what was found in the words of the interface."""
    count = stretches.end - stretches.begin
    relative = stretches.scale / np.where(stretches.level == 0.0, np.nan, np.abs(stretches.level))
    relative[count < 2] = np.nan
    intervals = _intervals(stretches, relative)
    changes: list[list[Change]] = [[] for _ in counts]
    for at in np.flatnonzero(stretches.kind != "").tolist():
        row = int(stretches.row[at])
        night = int(columns[row, stretches.begin[at]])
        size, low, high = intervals[:, at].tolist()
        if stretches.kind[at] == "level":
            before, after = (stretches.level[at - 1 : at + 1] * unit[row]).tolist()
            changes[row].append(Change("level", night, before, after, size, (low, high)))
        else:
            before, after = relative[at - 1 : at + 1].tolist()
            changes[row].append(Change("spread", night, before, after, size, (low, high)))
    last = np.searchsorted(stretches.row, np.arange(len(counts)), side="right") - 1
    analyses = []
    for row, at in enumerate(last.tolist()):
        begin = int(stretches.begin[at])
        flips = None
        if levels.flips[row]:
            lower, upper = float(levels.lower[row] * unit[row]), float(levels.upper[row] * unit[row])
            flips = Flips(int(columns[row, begin]), lower, upper, float(levels.share[row]))
        level = float(stretches.level[at] * unit[row]) if counts[row] else np.nan
        first = int(columns[row, begin]) if counts[row] else 0
        analyses.append(Analysis(tuple(changes[row]), flips, level, float(relative[at]), first, int(count[at])))
    return analyses


def _intervals(stretches: _Stretches, relative: Floats) -> Floats:
    """Return size of the change that each stretch begins with, and the ends of its 95 % interval: shape (3, stretches).

    Levels: both standard errors from the pooled deviation (that of either side is known too badly where it has three
    figures) and Student's t, to first order. Spreads: the logarithm of a deviation has a variance of (kurtosis - 1) / 4
    per figure (Bonett, *Approximate confidence interval for standard deviation of nonnormal distributions*, 2006).
    """
    sizes = np.full((3, len(stretches.row)), np.nan)
    new = np.flatnonzero(stretches.kind != "")
    if not new.size:
        return sizes
    from scipy.special import stdtrit  # noqa: PLC0415 - takes as long as all else, and is seldom needed

    old = new - 1
    count = (stretches.end - stretches.begin).astype(np.float64)
    free = np.maximum(count[new] + count[old] - 2.0, 1.0)
    pooled = (count[new] - 1.0) * stretches.scale[new] ** 2 + (count[old] - 1.0) * stretches.scale[old] ** 2
    before = np.where(stretches.level[old] == 0.0, np.nan, stretches.level[old])
    ratio = stretches.level[new] / before
    error = np.sqrt(TRIMMED * pooled / free * (1.0 / count[new] + ratio**2 / count[old])) / np.abs(before)
    half = stdtrit(free, 0.975) * error
    level = stretches.kind[new] == "level"
    sizes[:, new[level]] = np.array([ratio - 1.0, ratio - 1.0 - half, ratio - 1.0 + half])[:, level]
    factor = relative[new] / np.where(relative[old] == 0.0, np.nan, relative[old])
    free = np.array([np.maximum(count[each] - 1.0, 1.0) for each in (old, new)])
    variance = (stretches.tails[old] - 1.0) / 4.0 / free[0] + (stretches.tails[new] - 1.0) / 4.0 / free[1]
    half = np.exp(stdtrit(free.min(axis=0), 0.975) * np.sqrt(variance))
    sizes[:, new[~level]] = np.array([factor - 1.0, factor / half - 1.0, factor * half - 1.0])[:, ~level]
    return sizes


def analyse(values: Floats) -> list[Analysis]:
    """Return what is known of each series on its last night.

    *values* has the shape (series, nights), in any unit, of either sign, NaN where there is no figure. One analysis
    per row. Fewer than ``FEWEST`` figures are too few for a change.
    """
    return analyse_on(values, None)[0]


def analyse_on(values: Floats, before: Walked | None) -> tuple[list[Analysis], Walked]:
    """Return the same as ``analyse``, and what is needed to go on with it on a later night.

    *before* is what was needed *before*, with the same rows. A series whose figures do not begin with those of then is
    analysed from its beginning.
    """
    series = len(values)
    counts = np.isfinite(values).sum(axis=1)
    longest = max(int(counts.max(initial=0)), 1)
    values = np.pad(values, ((0, 0), (0, max(longest - values.shape[1], 0))), constant_values=np.nan)
    if before is not None:  # one night is soon walked through: to cut all up for that takes longer
        return _analyse(values, longest, before)
    number = max(1, -(-series // TOGETHER // WORKERS)) * WORKERS
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(lambda part: _analyse(part, longest, None), np.array_split(values, number)))
    return [each for analyses, _ in found for each in analyses], _joined([each for _, each in found])


def _joined(parts: Sequence[Walked]) -> Walked:
    """Return *parts* as one, their series one after another."""
    firsts = np.cumsum([0, *(len(each.figures) for each in parts)])
    arrays = {
        name: np.concatenate([each.arrays[name] for each in parts], axis=1 if name in OF_FIGURES else 0)
        for name in ARRAYS
    }
    arrays["stand_row"] = np.concatenate(
        [each.arrays["stand_row"] + first for each, first in zip(parts, firsts, strict=False)]
    )
    return Walked(np.concatenate([each.figures for each in parts]), arrays)
