# SPDX-License-Identifier: Apache-2.0
"""Ratios of alternating measurements."""

import math

import pytest

from bench.ratios import compare, spread


def test_a_ratio_is_taken_within_its_alternation() -> None:
    made = compare([10.0, 20.0, 40.0], {"a": [5.0, 10.0, 20.0]}, higher_is_better=True)
    assert made.ratio == (2.0, 2.0, 2.0)
    assert made.ours.value == 20.0


def test_seven_alternations_give_the_extremes() -> None:
    assert spread([7.0, 1.0, 6.0, 2.0, 5.0, 3.0, 4.0]) == (4.0, 1.0, 7.0)


def test_the_best_peer_is_the_fastest_or_the_quickest() -> None:
    peers = {"slow": [1.0, 1.0], "fast": [3.0, 3.0], "none": []}
    assert compare([2.0, 2.0], peers, higher_is_better=True).peer == "fast"
    assert compare([2.0, 2.0], peers, higher_is_better=False).peer == "slow"


def test_without_peers_there_is_no_ratio() -> None:
    assert compare([2.0], {"none": []}, higher_is_better=True)[1:] == (None, None, None)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_missing_and_infinite_samples_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="not finite samples"):
        spread(samples)
