# SPDX-License-Identifier: Apache-2.0
"""Ratios, targets, and the law of several nodes in a line against a simulated cache."""

import math
from collections import OrderedDict
from random import Random

import pytest

from bench.ratios import Target, compare, hit_share, paired_ratios, predicted_latency, spread


def test_a_ratio_is_taken_within_its_alternation() -> None:
    made = compare([10.0, 20.0, 40.0], {"a": [5.0, 10.0, 20.0]}, higher_is_better=True)
    assert made.ratios["a"].value == 2.0
    assert (made.ratios["a"].low, made.ratios["a"].high) == (2.0, 2.0)
    assert made.ours.value == 20.0


def test_seven_alternations_give_extremes_that_cover_the_median() -> None:
    made = spread([7.0, 1.0, 6.0, 2.0, 5.0, 3.0, 4.0])
    assert (made.value, made.low, made.high, made.count) == (4.0, 1.0, 7.0, 7)
    assert made.coverage == pytest.approx(1 - 2 / 2**7)


def test_the_best_peer_is_the_fastest_or_the_quickest() -> None:
    peers = {"slow": [1.0, 1.0], "fast": [3.0, 3.0], "none": []}
    assert compare([2.0, 2.0], peers, higher_is_better=True).best_peer == "fast"
    assert compare([2.0, 2.0], peers, higher_is_better=False).best_peer == "slow"
    assert "none" not in compare([2.0, 2.0], peers, higher_is_better=True).peers


def test_without_peers_there_is_no_ratio() -> None:
    made = compare([2.0], {}, higher_is_better=True)
    assert made.best_peer is None
    assert not made.ratios


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_samples_that_are_none_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        spread(samples)


def test_an_alternation_that_one_side_lacks_has_no_ratio() -> None:
    assert paired_ratios([4.0, 6.0], [2.0]) == [2.0]


def test_a_target_is_met_missed_or_cannot_be_told() -> None:
    assert Target(at_least=1.4).met(0.0, 1.4) is True
    assert Target(at_least=1.4).met(0.0, 1.39) is False
    assert Target(at_least=1.4).met(0.0, None) is None
    assert Target(within=0.07).met(0.0, 0.92) is False
    assert Target(within=0.07).met(0.0, 1.06) is True
    assert Target(figure_at_most=20.0).met(20.5, None) is False
    assert Target(figure_at_most=20.0).met(19.5, None) is True
    assert Target(figure_at_most=6.0, ratio_below=1.0).met(5.0, 1.5) is False
    assert Target(figure_at_most=6.0, ratio_below=1.0).text() == "ratio below 1, ours at most 6"


def simulated_hits(cache_lines: int, buffer_lines: int, nodes_per_line: int) -> float:
    """Return the share of hits of a random chase through a fully associative least-recently-used cache."""
    order = list(range(buffer_lines * nodes_per_line))
    Random(1).shuffle(order)
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for lap in range(3):
        for node in order:
            line = node // nodes_per_line
            if line in cache:
                cache.move_to_end(line)
                hits += lap > 0
            else:
                cache[line] = None
                if len(cache) > cache_lines:
                    cache.popitem(last=False)
    return hits / (2 * len(order))


@pytest.mark.parametrize("nodes_per_line", [1, 2, 4, 8])
@pytest.mark.parametrize("ratio", [1.25, 1.5, 2.0, 4.0])
def test_the_cache_hit_law_is_what_a_simulated_cache_does(nodes_per_line: int, ratio: float) -> None:
    cache_lines = 2048
    predicted = hit_share(1.0, ratio, nodes_per_line)
    assert simulated_hits(cache_lines, int(cache_lines * ratio), nodes_per_line) == pytest.approx(predicted, abs=0.02)


def test_the_law_at_its_ends() -> None:
    assert hit_share(1.0, 0.5, 4) == 1.0
    assert hit_share(1.0, 2.0, 1) == 0.0
    assert predicted_latency(10.0, 100.0, 0.25) == pytest.approx(77.5)
    with pytest.raises(ValueError, match="k >= 1"):
        hit_share(1.0, 2.0, 0)
