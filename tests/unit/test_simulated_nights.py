# SPDX-License-Identifier: Apache-2.0
"""Simulated nights are what they state: with other noise, a worse detector would pass its tests."""

import numpy as np
import pytest

from tests.unit import simulated_nights as nights


@pytest.mark.parametrize("noise", nights.NOISES)
def test_noise_has_its_stated_deviation_autocorrelation_and_cycle(noise: str) -> None:
    values, stated = nights.generate(noise, 0, 400, 400) - nights.LEVEL, nights.NOISES[noise]
    assert abs(float(np.nanmean(values))) < 0.02
    assert float(np.nanstd(values)) == pytest.approx(stated.deviation, abs=0.05)
    for lag in (1, 7):
        covariance = float(np.nanmean(values[:, lag:] * values[:, :-lag]))
        cycle = stated.cycle**2 / 2.0 * np.cos(2.0 * np.pi * lag / 7.0)
        assert covariance == pytest.approx(stated.correlation**lag + cycle, abs=0.02)


def test_changes_and_flips_are_alarms_once() -> None:
    quiet = nights.generate("normal, 20 % missing", 1, 10, 100)
    assert nights.count_false_alarms(quiet, flips=False) == 0
    assert nights.count_false_alarms(nights.with_shift(quiet, 60, 8.0), flips=False) == 10
    flips = nights.generate("two levels, 50/50", 1, 20, 90)
    assert [nights.count_false_alarms(flips, flips=expected) for expected in (True, False)] == [0, 20]
