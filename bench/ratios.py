# SPDX-License-Identifier: Apache-2.0
"""Ratios of figures that were measured in alternation, and the targets they are held against."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from calibration.statistics import median_ranks


@dataclass(frozen=True)
class Spread:
    """Median of samples and the distribution-free interval around it; ``coverage`` is what that many samples reach."""

    value: float
    low: float
    high: float
    coverage: float
    count: int


def spread(samples: Sequence[float]) -> Spread:
    """Return median and interval of *samples*. Raises ``ValueError`` where there are none or one is not finite."""
    if not samples or not all(math.isfinite(sample) for sample in samples):
        raise ValueError(f"expected finite samples, found {list(samples)}")
    low, high, coverage = median_ranks(len(samples))
    ordered = sorted(samples)
    return Spread(median(ordered), ordered[low - 1], ordered[high - 1], coverage, len(ordered))


def paired_ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return ours / theirs of each alternation; of the last, which may be incomplete, only where both are there."""
    return [mine / other for mine, other in zip(ours, theirs, strict=False)]


@dataclass(frozen=True)
class Comparison:
    """Ours against each peer in one quantity; ``best_peer`` is the one with the best median figure."""

    ours: Spread
    best_peer: str | None
    peers: Mapping[str, Spread]
    ratios: Mapping[str, Spread]


def compare(ours: Sequence[float], peers: Mapping[str, Sequence[float]], *, higher_is_better: bool) -> Comparison:
    """Compare *ours* with *peers*: samples of one alternation are at the same place of each.

    A peer without any sample is left out.
    """
    figures = {name: spread(samples) for name, samples in peers.items() if samples}
    ratios = {name: spread(paired_ratios(ours, peers[name])) for name in figures}
    pick: Callable[..., str] = max if higher_is_better else min
    best = pick(figures, key=lambda name: figures[name].value) if figures else None
    return Comparison(spread(ours), best, figures, ratios)


def hit_share(cache_bytes: float, buffer_bytes: float, nodes_per_line: int) -> float:
    """Return the share of a random chase's loads that a cache serves because several nodes share a line.

    Nodes are visited in random order, each once per lap; a line is still in a least-recently-used cache of C bytes
    when one of its k nodes was visited within the last share x of the lap, the one that touched C bytes of lines. A
    line is touched in that stretch with probability 1 - (1 - x)^k, which C / B equals; the next node finds its line
    there where one of the other k - 1 fell into the stretch: 1 - (1 - C/B)^((k-1)/k).
    """
    if nodes_per_line < 1 or buffer_bytes <= 0.0 or cache_bytes < 0.0:
        raise ValueError(f"expected k >= 1, B > 0 and C >= 0, found {nodes_per_line}, {buffer_bytes}, {cache_bytes}")
    missing = max(0.0, 1.0 - cache_bytes / buffer_bytes)
    return 1.0 - float(missing ** ((nodes_per_line - 1) / nodes_per_line))


def predicted_latency(hit_ns: float, miss_ns: float, hits: float) -> float:
    """Return the mean latency of loads of which the share *hits* takes *hit_ns* and the rest *miss_ns*."""
    return hits * hit_ns + (1.0 - hits) * miss_ns


@dataclass(frozen=True)
class Target:
    """What a comparison is held against: a ratio at least, a ratio near one, or a figure of ours at most."""

    at_least: float | None = None
    within: float | None = None
    figure_at_most: float | None = None
    ratio_below: float | None = None

    def text(self) -> str:
        """Say the target."""
        parts = []
        if self.at_least is not None:
            parts.append(f"ratio at least {self.at_least:g}")
        if self.within is not None:
            parts.append(f"ratio within {100 * self.within:g} % of 1")
        if self.ratio_below is not None:
            parts.append(f"ratio below {self.ratio_below:g}")
        if self.figure_at_most is not None:
            parts.append(f"ours at most {self.figure_at_most:g}")
        return ", ".join(parts)

    def met(self, ours: float, ratio: float | None) -> bool | None:
        """Tell whether it is met; ``None`` where a ratio is wanted and there is no peer to make it with."""
        needs_ratio = self.at_least is not None or self.within is not None or self.ratio_below is not None
        if self.figure_at_most is not None and ours > self.figure_at_most:
            return False
        if not needs_ratio:
            return True
        if ratio is None:
            return None
        return (
            (self.at_least is None or ratio >= self.at_least)
            and (self.within is None or abs(ratio - 1.0) <= self.within)
            and (self.ratio_below is None or ratio < self.ratio_below)
        )
