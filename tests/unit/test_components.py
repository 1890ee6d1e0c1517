# SPDX-License-Identifier: Apache-2.0
"""Components of variance: known shares, coverage of the intervals, and what has no answer."""

import numpy as np
import pytest

from calibration.judge.components import components_of


def values(
    chance: np.random.Generator,
    shares: tuple[float, float, float],
    *,
    suts: int = 10,
    nights: int = 90,
    correlation: float = 0.0,
    missing: float = 0.0,
) -> np.ndarray:
    """Return values whose variance has the *shares* of SUTs, nights and the rest."""
    rest = chance.standard_normal((suts, nights))
    for night in range(1, nights):
        rest[:, night] *= np.sqrt(1 - correlation**2)
        rest[:, night] += correlation * rest[:, night - 1]
    parts = (chance.standard_normal((suts, 1)), chance.standard_normal((1, nights)), rest)
    made = 100.0 + sum(np.sqrt(share) * part for share, part in zip(shares, parts, strict=True))
    return np.where(chance.random((suts, nights)) < missing, np.nan, made)


@pytest.mark.parametrize("shares", [(0.7, 0.1, 0.2), (0.0, 0.5, 0.5), (0.1, 0.0, 0.9)])
def test_estimates_are_right_on_average(shares: tuple[float, float, float]) -> None:
    chance = np.random.default_rng(1)
    found = [components_of(values(chance, shares, suts=40, missing=0.1)) for _ in range(20)]
    estimates = [(one.between_suts.value, one.nights.value, one.rest.value) for one in found if one and one.nights]
    assert len(estimates) == 20
    assert np.allclose(np.sum(estimates, axis=1), 1.0)
    assert np.mean(estimates, axis=0) == pytest.approx(shares, abs=0.05)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_intervals_hold_the_true_share_as_often_as_they_say(correlation: float) -> None:
    chance = np.random.default_rng(2)
    inside = []
    for _ in range(100):
        found = components_of(values(chance, (0.3, 0.2, 0.5), suts=5, nights=60, correlation=correlation))
        assert found is not None
        assert found.nights is not None
        for share, true in zip((found.between_suts, found.nights, found.rest), (0.3, 0.2, 0.5), strict=True):
            inside.append(share.low <= true <= share.high)
    assert np.mean(inside) > 0.92


def test_slow_noise_is_not_taken_for_differences_between_suts() -> None:
    chance = np.random.default_rng(6)
    found = [components_of(values(chance, (0.0, 0.0, 1.0), suts=20, nights=80, correlation=0.8)) for _ in range(10)]
    assert sum(one.between_suts.low > 0.0 for one in found if one) <= 1
    assert np.mean([one.between_suts.value for one in found if one]) < 0.05


def test_a_constant_difference_is_all_between_suts() -> None:
    rows = np.array([[1.0], [2.0], [3.0]]) + np.random.default_rng(3).normal(0, 1e-6, (3, 40))
    found = components_of(rows)
    assert found is not None
    assert found.between_suts.value == pytest.approx(1.0, abs=1e-6)
    assert found.between_suts.low > 0.99


def test_without_common_nights_the_share_of_nights_is_unknown() -> None:
    made = values(np.random.default_rng(4), (0.5, 0.0, 0.5), suts=2, nights=60)
    made[0, ::2], made[1, 1::2] = np.nan, np.nan
    found = components_of(made)
    assert found is not None
    assert found.nights is None
    assert found.between_suts.value + found.rest.value == pytest.approx(1.0)


def test_one_sut_too_few_values_and_no_variance_have_no_answer() -> None:
    chance = np.random.default_rng(5)
    assert components_of(values(chance, (0.5, 0.1, 0.4), suts=1)) is None
    assert components_of(values(chance, (0.5, 0.1, 0.4), suts=5, nights=12)) is None
    assert components_of(np.full((3, 40), 7.0)) is None
    assert components_of(np.zeros((3, 40))) is None
