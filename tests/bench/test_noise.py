# SPDX-License-Identifier: Apache-2.0
"""Recorded noise: runs drawn from made recordings, and how placements are recorded."""

import numpy as np
import pytest

from bench import noise
from bench.contenders import Contender, Machine
from calibration.errors import InputError


def recorded(values: np.ndarray) -> noise.Series:
    """Return *values* as a series with a placement every 1.5 s."""
    times = tuple(round(1.5 * number, 1) for number in range(len(values)))
    return noise.Series(title="Chase", unit="ns", t_s=times, values=tuple(values.tolist()))


def shares(series: noise.Series, *, together: bool) -> tuple[float, float]:
    found = noise.row_of(series, 6, 45.0, 5.0, together=together)
    assert found.achieved is not None
    assert found.predicted is not None
    assert found.claimed == 0.96875
    return found.achieved.share, found.predicted.share


def test_independent_noise_is_covered_either_way() -> None:
    series = recorded(100 + np.random.default_rng(2).standard_normal(2000))
    for together in (True, False):
        achieved, predicted = shares(series, together=together)
        assert achieved == pytest.approx(0.989, abs=0.02)  # more than is claimed, as nothing changes from run to run
        assert predicted == pytest.approx(0.983, abs=0.03)


def test_slow_noise_is_covered_only_by_rounds_that_are_spread() -> None:
    waves = np.cumsum(np.random.default_rng(3).standard_normal(2000))
    waves -= np.convolve(waves, np.ones(21) / 21, mode="same")  # changes within half a minute, not over hours
    series = recorded(1000 + waves)
    together, spread = shares(series, together=True), shares(series, together=False)
    assert spread[0] > together[0] + 0.1
    assert spread[1] > together[1] + 0.1


def test_a_short_recording_is_refused() -> None:
    with pytest.raises(InputError, match="148 s recorded, at least 185 s needed"):
        noise.row_of(recorded(np.full(100, 5.0)), 6, 45.0, 5.0, together=True)


def test_placements_are_recorded_in_alternation(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine((0, 1), ((0, (0, 1)),), "x86_64", frozenset(), True, 1 << 30, 1 << 30, 1e9, "two CPUs")
    started: list[tuple[str, ...]] = []

    def values_of(contender: Contender) -> dict[str, float]:
        started.append(contender.starts[0].command)
        return dict.fromkeys(contender.metrics, 123.4567891)

    monkeypatch.setattr(noise, "values_of", values_of)
    found = noise.record(machine, list(noise.commands(machine, "sutprobe")), 0.0001)
    read = noise.Recording.model_validate_json(found.model_dump_json())
    assert [(series.title, series.unit) for series in read.series] == [
        ("Chase in 256 KiB", "ns"),
        ("Chase in 64 MiB", "ns"),
        ("Reads, one CPU", "MB/s"),
        ("Reads, all CPUs", "MB/s"),
        ("Transfer, two CPUs", "ns"),
    ]
    assert {len(series.values) for series in read.series} == {len(started) // 5}
    assert read.series[0].values[0] == 123.457
    assert all(command[command.index("--placements") + 1] == "1" for command in started)
    assert [command[-1] for command in started[:6:5]] == ["1", "2"][: len(started) // 5]
