# SPDX-License-Identifier: Apache-2.0
"""The density of a figure's noise from night to night, estimated from the figures before.

It is a mixture of a kernel estimate, a normal, a Student t and a log-normal density, each as far as it explains the
figures, in a table of bins. docs/method/drift.rst says what it is used for.
"""

from functools import cache
from math import exp
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

BINS = 128
MIDDLE = BINS // 2
KERNEL = tuple(exp(-(offset**2) / 8.0) for offset in range(-6, 7))
"""Weights that smooth counts in bins: a normal kernel with a standard deviation of two bins."""

PRIOR = (0.0, 3.0, 2.5, 1.0)
"""Logarithms of the weights that densities have before they explain figures: kernel, normal, Student t, log-normal."""

TENTH = 1.2816
"""Standard deviations from the middle of a normal variable to its outer tenths."""

CAP = 3.5
"""Scores are bounded: one figure, however far away, is one figure."""

LEAST = 1e-9
"""Deviation, relative to the median size of the figures, below which they are the same: it is the rounding of sums."""

HEAVIEST = 0.5
"""Excess of the tail above which nothing more is asked for."""


class Noise(NamedTuple):
    """The noise of some series as tables by bins of the residual, shape (series, bins).

    ``heavy`` is the excess of the reach of the lower and of the upper tail over a normal's, shape (2, series);
    ``normal`` are mean and standard deviation of the residuals and how far they may be taken for normal, 0 to 1, shape
    (3, series).
    """

    width: Floats
    log_density: NDArray[np.float32]
    scores: NDArray[np.float32]
    heavy: Floats
    normal: Floats


@cache
def _score_of_rank() -> NDArray[np.float32]:
    """Return the scores of 4096 ranks: standard normal quantiles, bounded."""
    normal = NormalDist()
    scores = [normal.inv_cdf((rank + 0.5) / 4096) for rank in range(4096)]
    return np.asarray(np.clip(scores, -CAP, CAP), dtype=np.float32)


def estimate_noise(residuals: Floats, count: Integers) -> Noise:
    """Estimate the noise from *residuals*, shape (series, figures), *count* of each row and NaN for the rest."""
    ordered = np.sort(residuals.astype(np.float32), axis=1)
    every = np.arange(len(ordered))
    low, tenth, quarter, median, three, nine, high = (
        ordered[every, np.rint(share * (count - 1)).astype(np.intp)].astype(np.float64)
        for share in (0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97)
    )
    whole, half = (high - low) / 3.76, (three - quarter) / 1.349
    scale = np.where((half > 0.0) & (half < whole), half, whole)
    two = half > 1.6 * whole
    width = np.maximum(np.maximum(np.where(two, 0.0, 0.7) * scale * count**-0.2, (high - low) / 40.0), LEAST)
    # A kernel adds its variance to that of the figures: where they have one level they are drawn together by as much.
    added = np.where(two | (half < 0.5 * whole), 0.0, 2.0 * width / np.maximum(whole, LEAST))
    shrunk = 1.0 / np.sqrt(1.0 + np.minimum(added, 1.0) ** 2)
    ordered -= _narrow(median)
    ordered *= _narrow(shrunk / width)
    ordered += _narrow(median / width + (MIDDLE + 0.5))
    margin = len(KERNEL) // 2
    row = BINS + 2 * margin + 1
    bins = np.where(np.isnan(ordered), row - 1, np.clip(ordered, 0.0, BINS - 1) + margin).astype(np.intp)
    bins += every[:, None] * row
    counted = np.bincount(bins.ravel(), minlength=len(every) * row).reshape(-1, row).astype(np.float32)
    counted[:, -1] = 0.0
    kernel = np.zeros((len(every), BINS), np.float32)
    for offset, weight in enumerate(KERNEL):
        kernel += weight / sum(KERNEL) * counted[:, offset : offset + BINS]
    counted = counted[:, margin : -1 - margin]
    number, floor = _narrow(count), _narrow(2.0 / (count + 10.0))
    # How well each density explains the figures, the kernel's without the figure that is explained
    others = np.maximum(kernel - KERNEL[margin] / sum(KERNEL), 0.0) / (number - 1.0)
    mean, deviation = _moments(counted, shrunk)
    densities = [
        kernel,
        _student(count - 1.0, mean, deviation, count),
        _student(np.full(len(count), 3.0), median / width + MIDDLE, (three - quarter) / 1.5298 / width, count),
        _log_normal(median / width + MIDDLE, (median - tenth) / width, (nine - median) / width),
    ]
    densities = [each / np.maximum(each.sum(axis=1, keepdims=True), 1e-30) for each in densities]  # may be 0 everywhere
    explained = [
        (counted * np.log((1.0 - floor) * each + floor / BINS)).sum(axis=1) + prior
        for each, prior in zip((others, *densities[1:]), PRIOR, strict=True)
    ]
    trust = np.exp(np.array(explained) - np.max(explained, axis=0))
    trust /= trust.sum(axis=0)
    density = sum(_narrow(each) * one for each, one in zip(trust, densities, strict=True))
    rank = np.cumsum(density, axis=1) - density / 2.0
    density = density * (1.0 - floor) + floor / BINS
    scores = _score_of_rank()[np.clip(rank * 4096.0, 0.0, 4095.0).astype(np.intp)]
    reach = np.array([median - low, high - median]) / np.maximum(three - quarter, LEAST) / 1.395
    normal = np.array([(mean - MIDDLE) * width, np.maximum(deviation, 0.5) * width, trust[1]])
    return Noise(width, np.log(density), scores, np.clip(reach - 1.0, 0.0, HEAVIEST), normal)


def _student(free: NDArray[np.floating], level: Floats, scale: Floats, count: Integers) -> NDArray[np.float32]:
    """Return Student's t density in bins, up to a factor: of a next figure, where *level* is known from *count*."""
    far = (np.arange(BINS) - _narrow(level)) / _narrow(np.maximum(scale, 0.5) * np.sqrt(1.0 + 1.0 / count))
    return np.asarray(np.exp(-_narrow((free + 1.0) / 2.0) * np.log1p(far**2 / _narrow(free))))


def _log_normal(median: Floats, below: Floats, above: Floats) -> NDArray[np.float32]:
    """Return a log-normal density in bins, up to a factor: moved, and mirrored where its long tail is the lower one.

    It has the *median*, and its outer tenths are so far *below* and *above* that.
    """
    long, short = (_narrow(np.maximum(each, 0.25)) for each in (np.maximum(above, below), np.minimum(above, below)))
    sigma = np.clip(np.log(long / short) / TENTH, 0.05, 1.5)
    side = _narrow(np.where(above >= below, 1.0, -1.0))
    far = 1.0 + side * (np.arange(BINS, dtype=np.float32) - _narrow(median)) * np.expm1(TENTH * sigma) / long
    inside = np.maximum(far, 1e-6)
    return np.where(far > 1e-6, np.exp(-((np.log(inside) / sigma) ** 2) / 2.0) / inside, np.float32(0.0))


def _moments(counted: NDArray[np.float32], shrunk: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation, in bins, of figures that are *counted* in bins and were *shrunk*."""
    bins, count = np.arange(BINS), counted.sum(axis=1)
    mean = counted @ bins / count
    variance = (counted * (bins - mean[:, None]) ** 2).sum(axis=1) / (count - 1.0)
    return mean, np.sqrt(variance) / shrunk


def _narrow(column: NDArray[np.floating] | Integers) -> NDArray[np.float32]:
    return column[:, None].astype(np.float32)


def bins_of(residuals: Floats) -> Integers:
    """Return the bins of *residuals*, which are in widths of a bin."""
    return np.clip(residuals + (MIDDLE + 0.5), 0.0, BINS - 1).astype(np.intp)


def likelihood_ratio(noise: Noise, at: Integers, residuals: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return by how much the likeliest shift explains *residuals*, shape (figures, series), better than none does.

    Row *at* of *noise* belongs to each. The shifts tried put the median of the figures on every second bin of the
    noise. Says also which are upwards.
    """
    far = residuals / noise.width[at]
    middle = np.median(far, axis=0)
    shifts = np.arange(-48.0, 49.0, 2.0)
    moved = noise.log_density[at[:, None], bins_of((far - middle)[:, :, None] + shifts)].sum(axis=0).max(axis=1)
    return (moved - noise.log_density[at, bins_of(far)].sum(axis=0)).astype(np.float64), middle > 0.0
