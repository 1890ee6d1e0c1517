# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the judgement: noise, injected changes, false alarms, detections."""

from collections.abc import Callable, Iterable
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from bench import judgement


@cache
def values(noise: str) -> np.ndarray:
    return judgement.generate(noise, 0, 400, 400) - judgement.LEVEL


@pytest.mark.parametrize("noise", judgement.NOISES)
def test_noise_has_a_mean_of_zero_and_its_stated_deviation(noise: str) -> None:
    assert abs(float(np.nanmean(values(noise)))) < 0.02
    assert float(np.nanstd(values(noise))) == pytest.approx(judgement.NOISES[noise].deviation, abs=0.05)


@pytest.mark.parametrize("noise", judgement.DEPENDENT)
def test_noise_has_its_autocorrelation_and_weekly_cycle(noise: str) -> None:
    def covariance(lag: int) -> float:
        return float((values(noise)[:, lag:] * values(noise)[:, :-lag]).mean())

    correlation, power = judgement.NOISES[noise].correlation, judgement.NOISES[noise].cycle ** 2 / 2.0
    assert covariance(1) == pytest.approx(correlation + power * np.cos(2.0 * np.pi / 7.0), abs=0.015)
    assert covariance(7) == pytest.approx(power, abs=0.015)


def test_noise_is_reproducible() -> None:
    one, same, other = (judgement.generate("autocorrelation 0", seed, 2, 30) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, judgement.generate("autocorrelation 0.1", 1, 2, 30))


def test_injected_changes_go_up_and_down() -> None:
    quiet = np.zeros((2, 5))
    assert judgement.with_shift(quiet, 3, 2.0).tolist() == [[0, 0, 0, 2, 2], [0, 0, 0, -2, -2]]
    assert judgement.with_drift(quiet, 3, 2.0).tolist() == [[0, 0, 0, 2, 4], [0, 0, 0, -2, -4]]


def walks(named: Callable[[int], list[int]]) -> Callable[[np.ndarray, np.ndarray], SimpleNamespace]:
    """Return a detector that names, on each night and in each series, changes that begin where *named* says."""

    def walk(_: np.ndarray, counts: np.ndarray) -> SimpleNamespace:
        self = SimpleNamespace(begins=[[] for _ in counts])
        self.step = lambda night: setattr(self, "begins", [[(at, "level") for at in named(night)] for _ in counts])
        return self

    return walk


@pytest.mark.parametrize(
    ("named", "alarms"),
    [
        pytest.param(lambda _: [], 0, id="none"),
        pytest.param(lambda night: [40] if night >= 43 else [], 1, id="one that stays"),
        pytest.param(
            lambda night: [40 + night % 2 * judgement.REDATE_LIMIT] if night >= 53 else [], 1, id="dated again nearby"
        ),
        pytest.param(lambda night: [40 + night // 60 * 11] if night >= 53 else [], 2, id="dated again elsewhere"),
        pytest.param(lambda night: [40] if night in (43, 50) else [], 2, id="taken back and raised again"),
        pytest.param(lambda night: [40, 70] if night >= 73 else [], 2, id="two at once"),
    ],
)
def test_redated_changes_are_one_false_alarm(
    named: Callable[[int], list[int]], alarms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "Walk", walks(named))
    assert judgement.count_false_alarms(np.zeros((3, 100)), flips=False) == 3 * alarms


def test_flips_are_one_false_alarm_unless_the_noise_flips() -> None:
    noise = judgement.generate("two levels, 50/50", 1, 20, 90)
    assert judgement.count_false_alarms(noise, flips=True) == 0
    assert judgement.count_false_alarms(noise, flips=False) == 20


def test_false_alarms_use_the_detector() -> None:
    quiet = judgement.generate("normal, 20 % missing", 1, 10, 100)
    assert judgement.count_false_alarms(quiet, flips=False) == 0
    assert judgement.count_false_alarms(judgement.with_shift(quiet, 60, 8.0), flips=False) == 10


def analyses(kind: str, night: int, since: int) -> Callable[[np.ndarray], Iterable[SimpleNamespace]]:
    """Return an analysis that names a change of *kind* at *night*, after *since* nights."""

    def analyse(series: np.ndarray) -> list[SimpleNamespace]:
        change = SimpleNamespace(kind=kind, night=night)
        return [SimpleNamespace(changes=(change,) if series.shape[1] >= since else ()) for _ in series]

    return analyse


@pytest.mark.parametrize(
    ("kind", "night", "since", "hit"),
    [
        ("level", 30, 33, True),
        ("level", 30, 34, False),
        ("level", 30 - judgement.DATE_TOLERANCE, 33, True),
        ("level", 29 - judgement.DATE_TOLERANCE, 33, False),
        ("spread", 30, 33, False),
    ],
)
def test_a_detected_change_has_its_time_date_and_kind(
    kind: str, night: int, since: int, hit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "analyse", analyses(kind, night, since))
    assert judgement.detected(np.zeros((2, 40)), 30, 3).tolist() == [hit, hit]


def test_the_table_has_a_row_per_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    used = ("autocorrelation 0", "normal, 20 % missing")
    monkeypatch.setattr(judgement, "NOISES", {noise: judgement.NOISES[noise] for noise in used})
    monkeypatch.setattr(judgement, "LENGTH", 40)
    done = CliRunner().invoke(judgement.judgement, ["drift", "--series", "10"])
    assert done.exit_code == 0, done.output
    rows = [line.split("  ") for line in done.output.splitlines()]
    assert [row[0] for row in rows[3:-1]] == list(used)
