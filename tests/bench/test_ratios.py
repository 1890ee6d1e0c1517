# SPDX-License-Identifier: Apache-2.0
"""Ratios of alternating measurements: known answers, and coverage beside simulated neighbours."""

import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bench.contenders import Contender
from bench.peers import LOOK, QUADRUPLES, Turn, rows_of
from bench.ratios import BLOCKS, FEWEST, Quadruple, spread, undisturbed


def test_the_interval_is_that_of_block_medians() -> None:
    found = spread([8.0, 2.0, 7.0, 1.0, 6.0, 3.0, 5.0, 4.0])
    assert found == (pytest.approx(math.sqrt(20.0)), pytest.approx(1.0), pytest.approx(8.0))
    assert found.precision == pytest.approx(math.sqrt(8.0) - 1)
    # Blocks of three: an outlier in each is no sample of its own.
    assert spread([1.0, 100.0, 1.0] * BLOCKS) == (1.0, 1.0, 1.0)
    assert spread([2.0] * (FEWEST - 1))[1:] == (None, None)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf], [1.0, 0.0], [-1.0]])
def test_missing_and_infinite_samples_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="not finite and positive samples"):
        spread(samples)


def test_a_linear_drift_cancels() -> None:
    ours, again, theirs, back = (math.exp(0.1 * when) for when in (0, 3, 1, 2))
    assert Quadruple(3.0 * ours, 3.0 * again, theirs, back).ratio == pytest.approx(3.0)


def test_a_quadruple_is_dropped_if_either_side_differs_from_itself_more_than_usual() -> None:
    usual = [
        Quadruple(100.0, 104.0, 50.0, 51.0),
        Quadruple(100.0, 101.0, 50.0, 48.0),
        Quadruple(100.0, 96.0, 50.0, 50.0),
    ]
    ours, theirs = Quadruple(100.0, 112.0, 50.0, 50.0), Quadruple(100.0, 100.0, 50.0, 56.0)
    assert undisturbed([*usual, ours, theirs]) == usual
    changed_sides = [Quadruple(*one[2:], *one[:2]) for one in (*usual, ours, theirs)]
    assert undisturbed(changed_sides) == changed_sides[:3]
    # Within the goal nothing is disturbed, however steady the others are.
    assert len(undisturbed([Quadruple(1.0, 1.0, 1.0, 1.0)] * 5 + [Quadruple(1.0, 1.029, 1.0, 1.0)])) == 6
    assert len(undisturbed([Quadruple(1.0, 1.0, 1.0, 1.0)] * 5 + [Quadruple(1.0, 1.032, 1.0, 1.0)])) == 5
    assert undisturbed([]) == []


OURS, THEIRS = (Contender(name, name, (), {"read": float}) for name in ("ours", "theirs"))


@dataclass(frozen=True)
class Noise:
    """What moves values, as logarithms; times are starts of a program."""

    drift: float = 0.012
    burst_share: float = 0.0  # of the time
    burst: float = 0.3
    ours: float = 0.01
    theirs: float = 0.01
    ours_slowed: float = 0.0  # in 15 of 100 starts, ours alone


def machine_speeds(source: random.Random, noise: Noise) -> Iterator[float]:
    """Yield the speed of the machine by start: drifts of seconds to minutes, and slower bursts of three starts."""
    states, slowed = [source.gauss(0.0, noise.drift) for _ in range(3)], 0.0
    while True:
        for number, correlation in enumerate((0.3, 0.8, 0.97)):
            states[number] *= correlation
            states[number] += math.sqrt(1.0 - correlation**2) * source.gauss(0.0, noise.drift)
        if source.random() < 1 / 3:
            slowed = source.expovariate(1.0 / noise.burst) if source.random() < noise.burst_share else 0.0
        yield sum(states) - slowed


def simulated_turn(source: random.Random, speeds: Iterator[float], noise: Noise, truth: float) -> Turn:
    values: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
    there = source.sample(("ours", "theirs"), 2)
    for name in (*there, *reversed(there)):
        own = source.gauss(0.0, noise.ours if name == "ours" else noise.theirs)
        if name == "ours" and noise.ours_slowed and source.random() < 0.15:
            own -= source.expovariate(1.0 / noise.ours_slowed)
        values[name].append({"read": (truth if name == "ours" else 1.0) * math.exp(next(speeds) + own)})
    return values


@pytest.mark.parametrize("noise", [
    Noise(),
    Noise(drift=0.03),
    Noise(burst_share=0.1),
    Noise(drift=0.02, burst_share=0.3),
    Noise(burst_share=0.1, theirs=0.06),
    Noise(burst_share=0.1, ours_slowed=0.2),
])  # fmt: skip
def test_an_interval_that_ends_the_turns_covers_the_truth_and_has_no_bias(noise: Noise) -> None:
    """Looked at as often as the turns are, until it is narrow, whatever the bound has dropped."""
    source, truth, runs = random.Random(7), 0.97, 2000
    covered, values, narrow = 0, [], 0
    for _ in range(runs):
        speeds, turns = machine_speeds(source, noise), []
        while len(turns) < 60:
            turns += [simulated_turn(source, speeds, noise, truth) for _ in range(LOOK)]
            (row,) = rows_of("read", (OURS, THEIRS), turns)
            if len(turns) >= QUADRUPLES and row.wanted <= 1.0:
                break
        low, high = row.ratio.low, row.ratio.high
        assert low is not None
        assert high is not None
        covered += low <= truth <= high
        narrow += row.wanted <= 1.0
        values.append(row.ratio.value / truth)
    assert covered >= 0.94 * runs
    assert statistics.median(values) == pytest.approx(1.0, abs=0.003)
    assert narrow >= 0.5 * runs
