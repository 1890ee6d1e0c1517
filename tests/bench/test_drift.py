# SPDX-License-Identifier: Apache-2.0
"""What the comparison of methods counts: planted changes found, false alarms, intervals."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench import drift


@pytest.mark.parametrize("noise", drift.NOISES)
def test_noise_has_a_mean_of_zero_and_a_deviation_of_one(noise: str) -> None:
    figures = drift.made(noise, 0, 400, 400) - drift.LEVEL
    assert abs(float(np.nanmean(figures))) < 0.02
    assert float(np.nanstd(figures)) == pytest.approx(1.0, abs=0.06)


def test_the_same_seed_makes_the_same_series_and_another_does_not() -> None:
    one, same, other = (drift.made("normal", seed, 2, 30) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_shift_is_planted_up_and_down() -> None:
    planted = drift.shifted(np.zeros((2, 5)), 3, 2.0)
    assert planted.tolist() == [[0, 0, 0, 2, 2], [0, 0, 0, -2, -2]]


def test_a_change_that_is_dated_anew_is_no_new_alarm_and_one_elsewhere_is() -> None:
    assert drift.new_alarms([40], [40 + drift.NEAR]) == 0
    assert drift.new_alarms([40], [40, 41 + drift.NEAR]) == 1
    assert drift.new_alarms([], [7]) == 1


def test_false_alarms_are_those_that_a_method_names_anew() -> None:
    def cries_wolf(figures: np.ndarray) -> list[list[int]]:
        return [[figures.shape[1] // 20 * 20] if figures.shape[1] >= 20 else [] for _ in figures]

    assert drift.false_alarms(cries_wolf, np.zeros((3, 60))) == 3 * 3
    assert drift.false_alarms(lambda figures: [[] for _ in figures], np.zeros((3, 60))) == 0


def test_a_change_counts_as_found_on_its_first_nights_only() -> None:
    def late(figures: np.ndarray) -> list[list[int]]:
        return [[30] if figures.shape[1] >= 34 else [] for _ in figures]

    assert not drift.found(late, np.zeros((2, 40)), 30, 3).any()
    assert drift.found(late, np.zeros((2, 40)), 30, 4).all()


def test_a_change_named_elsewhere_is_not_the_one_that_was_planted() -> None:
    assert not drift.found(lambda figures: [[20] for _ in figures], np.zeros((2, 40)), 30, 3).any()


def test_intervals_are_those_of_the_tables() -> None:
    assert drift.rate(95, 100)["interval"] == pytest.approx([0.8872, 0.9836], abs=1e-4)
    assert drift.rate(0, 10)["interval"] == pytest.approx([0.0, 0.3085], abs=1e-4)
    assert drift.rate(10, 10)["interval"][1] == 1.0
    assert drift.per_thousand(10, 1000)["interval"] == pytest.approx([4.795, 18.39], abs=1e-2)
    assert drift.per_thousand(0, 1000)["interval"] == pytest.approx([0.0, 3.689], abs=1e-3)


def test_the_newest_three_are_tested_against_all_before() -> None:
    figures = np.vstack([np.tile([99.0, 101.0], 20), np.full(40, np.nan)])
    assert drift.newest_three(figures) == [[], []]
    figures[0, -3:] = 110.0
    assert drift.newest_three(figures) == [[37], []]


def test_contenders_that_are_not_installed_are_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "CONTENDERS", {"nobody": ("nobody", "no_such_module", lambda module: module)})
    methods, versions, absent = drift.find_methods()
    assert set(methods) == {drift.OURS, "t test of three"}
    assert versions == {}
    assert "no_such_module" in absent["nobody"]


def test_noise_that_does_not_exist_is_refused() -> None:
    result = CliRunner().invoke(drift.drift_command, ["--noise", "pink"])
    assert result.exit_code == 2
    assert "expected --noise to be one of normal;" in result.output


def test_a_document_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    result = CliRunner().invoke(drift.drift_command, ["--json", str(tmp_path / "none" / "drift.json")])
    assert result.exit_code == 2
    assert "expected --json in a directory that is there" in result.output


def test_a_short_run_makes_a_whole_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "CONTENDERS", {})
    monkeypatch.setattr(drift, "LARGEST", 10)
    said: list[str] = []
    document = drift.document_of(0.01, 10, ["normal"], said.append, largest=20)
    ours = document["noises"]["normal"][drift.OURS]
    assert ours["found"]["60"]["tries"] > 0
    assert ours["false"]["nights"] > 0
    assert document["time"]["series"] == 20
    assert len(said) == 2
