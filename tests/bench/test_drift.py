# SPDX-License-Identifier: Apache-2.0
"""What the measurement of the drift check plants and counts: noise, changes, false alarms, changes found."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from bench import drift


def figures(noise: str) -> np.ndarray:
    return drift.made(noise, 0, 400, 400) - drift.LEVEL


@pytest.mark.parametrize("noise", drift.NOISES)
def test_noise_has_a_mean_of_zero_and_its_stated_deviation(noise: str) -> None:
    assert abs(float(np.nanmean(figures(noise)))) < 0.02
    assert float(np.nanstd(figures(noise))) == pytest.approx(drift.NOISES[noise].deviation, abs=0.05)


@pytest.mark.parametrize("noise", drift.DEPENDENT)
def test_neighbouring_nights_are_correlated_as_stated_and_a_cycle_repeats_every_week(noise: str) -> None:
    def covariance(lag: int) -> float:
        return float((figures(noise)[:, lag:] * figures(noise)[:, :-lag]).mean())

    correlation, power = drift.NOISES[noise].correlation, drift.NOISES[noise].cycle ** 2 / 2.0
    assert covariance(1) == pytest.approx(correlation + power * np.cos(2.0 * np.pi / 7.0), abs=0.015)
    assert covariance(7) == pytest.approx(power, abs=0.015)


def test_a_seed_and_a_noise_make_the_same_series_again_and_others_make_others() -> None:
    one, same, other = (drift.made("autocorrelation 0", seed, 2, 30) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, drift.made("autocorrelation 0.1", 1, 2, 30))


def test_changes_are_planted_up_and_down() -> None:
    quiet = np.zeros((2, 5))
    assert drift.shifted(quiet, 3, 2.0).tolist() == [[0, 0, 0, 2, 2], [0, 0, 0, -2, -2]]
    assert drift.drifting(quiet, 3, 2.0).tolist() == [[0, 0, 0, 2, 4], [0, 0, 0, -2, -4]]


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
        pytest.param(lambda night: [40 + night % 2 * drift.NEAR] if night >= 53 else [], 1, id="dated again nearby"),
        pytest.param(lambda night: [40 + night // 60 * 11] if night >= 53 else [], 2, id="dated again elsewhere"),
        pytest.param(lambda night: [40] if night in (43, 50) else [], 2, id="taken back and raised again"),
        pytest.param(lambda night: [40, 70] if night >= 73 else [], 2, id="two at once"),
    ],
)
def test_a_false_alarm_is_a_change_that_was_not_named_nearby_the_night_before(
    named: Callable[[int], list[int]], alarms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "Walk", walks(named))
    assert drift.false_alarms(np.zeros((3, 100)), flips=False) == 3 * alarms


def test_flips_are_a_false_alarm_once_and_only_where_the_noise_does_not_flip() -> None:
    noise = drift.made("two levels, 50/50", 1, 20, 90)
    assert drift.false_alarms(noise, flips=True) == 0
    assert drift.false_alarms(noise, flips=False) == 20


def test_false_alarms_are_counted_with_the_detector_in_use() -> None:
    quiet = drift.made("normal, 20 % missing", 1, 10, 100)
    assert drift.false_alarms(quiet, flips=False) == 0
    assert drift.false_alarms(drift.shifted(quiet, 60, 8.0), flips=False) == 10


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
        ("level", 30 - drift.CLOSE, 33, True),
        ("level", 29 - drift.CLOSE, 33, False),
        ("spread", 30, 33, False),
    ],
)
def test_a_change_is_found_in_time_at_its_place_and_as_one_of_the_level(
    kind: str, night: int, since: int, hit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "analyse", analyses(kind, night, since))
    assert drift.found(np.zeros((2, 40)), 30, 3).tolist() == [hit, hit]


def test_the_t_test_compares_the_newest_three_with_all_before() -> None:
    series = np.vstack([np.tile([99.0, 101.0], 20), np.full(40, np.nan)])
    assert drift.t_test_alarms(series) == 0
    series[0, 25:28] = 110.0
    assert drift.t_test_alarms(series) == 1


def test_with_noise_known_drifts_are_found_less_often_the_more_nights_are_correlated() -> None:
    shares = [drift.known_noise_drifts(correlation, 1000) for correlation in (0.0, 0.3)]
    assert shares == pytest.approx([0.96, 0.76], abs=0.04)


def test_a_directory_that_does_not_exist_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "document_of", lambda *_: pytest.fail("measured"))
    result = CliRunner().invoke(drift.drift_command, ["--json", str(tmp_path / "none" / "drift.json")])
    assert result.exit_code == 2
    assert "no such directory for --json" in result.output


def test_a_short_run_makes_a_whole_document(monkeypatch: pytest.MonkeyPatch) -> None:
    used = ("autocorrelation 0", "autocorrelation 0.3", "Student t, 3 df", "log-normal", "normal, 20 % missing")
    monkeypatch.setattr(drift, "NOISES", {noise: drift.NOISES[noise] for noise in used})
    monkeypatch.setattr(drift, "OTHERS", {noise: drift.NOISES[noise] for noise in used[2:]})
    monkeypatch.setattr(drift, "LENGTH", 20)
    monkeypatch.setattr(drift, "AFTER", (20, 60))
    said: list[str] = []
    document = drift.document_of(10, said.append, largest=20)
    assert tuple(document["noises"]) == used
    assert len(said) == len(used)
    row = document["noises"]["autocorrelation 0"]
    assert (row["nights"], list(row["shifts"]), list(row["drifts"])) == (20000, ["20", "60"], ["20", "60"])
    assert 20 < row["shifts"]["60"] <= 30
    assert 0 < row["drifts"]["60"] <= 10
    assert document["noises"]["normal, 20 % missing"]["nights"] == pytest.approx(16000, rel=0.02)
    assert document["time"]["series"] == 20
    assert all(0 < each["hits"] <= each["tries"] for each in document["coverage"])
    assert {"known_noise", "spread", "flips", "machine", "version"} < set(document)
