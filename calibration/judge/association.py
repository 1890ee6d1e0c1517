# SPDX-License-Identifier: Apache-2.0
"""Whether changes of the throughput follow changes of the calibration, or came on the same nights by chance.

The test is by shift: the throughput of the whole lab is moved in time, by the same share of the nights everywhere, and
the best coincidence is looked for anew, over all candidates and all SUTs. A coincidence is a claim if at most
``FALSE_CLAIMS`` of the shifts have one as good anywhere. docs/method/explanation.rst explains the method.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.base.grouping import grouped
from calibration.judge.detector import Floats, Integers

FALSE_CLAIMS: Final = 0.05
"""Probability that anything at all is claimed in a lab where the throughput does not follow the calibration."""

WITHIN: Final = 1
"""Values by which the dates of a cause and of its effect may differ. Lower: the effects of causes that are dated a
night off are missed. Higher: more coincidences by chance, so that less can be claimed."""

NEARBY: Final = 30
"""The best coincidence must be as rare among the shifts by so many nights to each side: changes that come in phases,
such as weeks of commissioning, meet more often than among all shifts. Fewer: nothing is rare among so few."""

MIN_SHIFTS: Final = 20
"""Shifts needed for a claim: with fewer, even the best coincidence is not rare enough."""

AS_STRONG: Final = 0.5
"""Changes at least this part as strong count as evidence for and against a candidate. Higher: a change that is a
little weaker and had no effect would not count against it."""


MIN_NIGHTS: Final = MIN_SHIFTS + 4 * WITHIN + 3
"""Nights needed for that many shifts: small ones, which hardly move anything, do not count."""


class Occurrence(NamedTuple):
    """A change of a candidate at one place.

    It happened after the value at ``first`` - 1 and up to the one at ``last``, both positions among the nights with
    throughput. Occurrences of a ``candidate`` with the same ``direction`` (1 or -1) should have the same effect.
    ``strength`` orders candidates: how large the change is, in tolerances.
    """

    candidate: Hashable
    place: int
    first: int
    last: int
    direction: int
    strength: float


class Evidence(NamedTuple):
    """What speaks for a coincidence: an occurrence, and a change of the throughput with it.

    ``chance`` is the share of shifts, or of those nearby if that is larger, with a coincidence as good anywhere in the
    lab; 1.0 if most changes of the candidate had no effect. ``hits`` of the ``alike`` changes of the candidate had the
    same effect.
    """

    chance: float
    hits: int
    alike: int

    @property
    def claimed(self) -> bool:
        """Whether this is a claim."""
        return self.chance <= FALSE_CLAIMS


@dataclass(frozen=True)
class Associated:
    """Evidence by the number of an occurrence and the direction of the throughput with it, 1 or -1.

    ``shifts`` is their number, 0 if there are too few nights.
    """

    evidence: Mapping[tuple[int, int], Evidence]
    shifts: int


class _Scores(NamedTuple):
    """Of one candidate: score of each occurrence at each shift (minus infinity without a hit), hits and their number.

    The first column is unshifted.
    """

    score: Floats
    hits: Integers
    alike: Integers


def associate(
    lengths: Sequence[int],
    changes: Mapping[int, Sequence[tuple[int, int]]],
    occurrences: Sequence[Occurrence],
) -> Associated:
    """Return the evidence that the throughput's *changes* follow the *occurrences*.

    *lengths* are the numbers of nights with throughput by place; *changes* the position and direction (1 or -1) of each
    change by place.
    """
    longest = max(lengths, default=0)
    shares = np.arange(2 * WITHIN + 2, longest - 2 * WITHIN - 1) / max(longest, 1)
    if len(shares) < MIN_SHIFTS:
        return Associated({}, 0)
    by_candidate = grouped((occurrence.candidate, number) for number, occurrence in enumerate(occurrences))
    strengths, hits = _event_strengths(occurrences), _Hits(lengths, changes, shares)
    best = np.full(len(shares), -np.inf)
    found: dict[tuple[int, int], tuple[float, int, int]] = {}
    for numbers in by_candidate.values():
        ordered = sorted(numbers, key=lambda number: -occurrences[number].strength)
        own = [occurrences[number] for number in ordered]
        for effect in (1, -1):
            found_hits = [hits.of(item.place, item.first, item.last, effect * item.direction) for item in own]
            hit = np.stack([row for row, _ in found_hits])
            if not hit.any():
                continue
            chances = np.array([chance for _, chance in found_hits])
            scores = _scores(hit, chances, np.array([item.strength for item in own]), strengths)
            best = np.maximum(best, scores.score[:, 1:].max(axis=0))
            for row in np.flatnonzero(hit[:, 0]).tolist():
                key = ordered[row], effect * own[row].direction
                found[key] = float(scores.score[row, 0]), int(scores.hits[row]), int(scores.alike[row])
    nights = np.round(shares * longest)
    nearby = best[np.minimum(nights, longest - nights) < 2 * WITHIN + 2 + NEARBY]

    def rarity(score: float) -> float:
        if not np.isfinite(score):
            return 1.0
        return max(
            (1.0 + int(np.count_nonzero(among >= score - 1e-9))) / (1.0 + len(among)) for among in (best, nearby)
        )

    evidence = {key: Evidence(rarity(score), count, alike) for key, (score, count, alike) in found.items()}
    return Associated(evidence, len(shares))


def _event_strengths(occurrences: Sequence[Occurrence]) -> Floats:
    """Return the strength of each event of the calibration, ascending: what changed at one place together is one."""
    strengths: list[float] = []
    place, position = -1, -1
    for item in sorted(occurrences, key=lambda item: (item.place, item.last)):
        if item.place != place or item.last - position > WITHIN:
            strengths.append(0.0)
        strengths[-1] = max(strengths[-1], item.strength)
        place, position = item.place, item.last
    return np.sort(np.array(strengths))


class _Hits:
    """Where a change of the throughput comes with an occurrence."""

    def __init__(
        self, lengths: Sequence[int], changes: Mapping[int, Sequence[tuple[int, int]]], shares: Floats
    ) -> None:
        self.lengths, self.changes, self.shares = lengths, changes, shares
        self.of = cache(self._of)

    def _of(self, place: int, first: int, last: int, direction: int) -> tuple[NDArray[np.bool_], float]:
        """Return whether a change in *direction* comes with it, unshifted (first) and at each shift, and the chance.

        The chance is the share of all possible shifts. Metrics that change together share the answer.
        """
        length = self.lengths[place]
        shifts = np.concatenate(([0], np.round(self.shares * length).astype(np.intp)))
        hit, around = np.zeros(len(shifts), np.bool_), np.zeros(length, np.bool_)
        span = last - first + 2 * WITHIN
        for position, own in self.changes.get(place, ()):
            if own == direction:
                off = position - (first - WITHIN)
                hit[0] |= 0 <= off <= span
                # Time is a circle: what is moved beyond the last night comes in at the first.
                hit[1:] |= (off + shifts[1:]) % length <= span
                around |= (off + np.arange(length)) % length <= span
        return hit, float(around.mean())


def _scores(hit: NDArray[np.bool_], chance: Floats, strength: Floats, events: Floats) -> _Scores:
    """Return the scores of the occurrences of one candidate, strongest first, at each shift.

    The score of *n* changes of the candidate of which *k* came with a change of the throughput is the log-likelihood
    ratio against chance, minus the logarithm of how many sets of *n* there are among events as strong. An occurrence
    has the score of the best set of the strongest that it is in.
    """
    alike = np.searchsorted(-strength, -AS_STRONG * strength, side="right")
    counts = np.cumsum(hit, axis=0)[alike - 1].astype(np.float64)
    n = alike[:, None].astype(np.float64)
    expected = (np.cumsum(chance)[alike - 1] / alike)[:, None]
    share = counts / n
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = n * (
            np.where(share > 0.0, share * np.log(share / expected), 0.0)
            + np.where(share < 1.0, (1.0 - share) * np.log((1.0 - share) / (1.0 - expected)), 0.0)
        )
    as_strong = len(events) - np.searchsorted(events, AS_STRONG * strength - 1e-12)
    gain -= np.log(np.maximum(as_strong / alike, 1.0))[:, None]
    gain[(2.0 * counts <= n) | (share <= expected)] = -np.inf
    best = np.maximum.accumulate(gain[::-1], axis=0)[::-1]
    best[~hit] = -np.inf
    return _Scores(best, counts[:, 0].astype(np.intp), alike)
