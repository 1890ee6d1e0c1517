# SPDX-License-Identifier: Apache-2.0
"""What the measurement of the judgement plants and counts: noise, changes, false alarms, changes found."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from bench import judgement


def figures(noise: str) -> np.ndarray:
    return judgement.made(noise, 0, 400, 400) - judgement.LEVEL


@pytest.mark.parametrize("noise", judgement.NOISES)
def test_noise_has_a_mean_of_zero_and_its_stated_deviation(noise: str) -> None:
    assert abs(float(np.nanmean(figures(noise)))) < 0.02
    assert float(np.nanstd(figures(noise))) == pytest.approx(judgement.NOISES[noise].deviation, abs=0.05)


@pytest.mark.parametrize("noise", judgement.DEPENDENT)
def test_neighbouring_nights_are_correlated_as_stated_and_a_cycle_repeats_every_week(noise: str) -> None:
    def covariance(lag: int) -> float:
        return float((figures(noise)[:, lag:] * figures(noise)[:, :-lag]).mean())

    correlation, power = judgement.NOISES[noise].correlation, judgement.NOISES[noise].cycle ** 2 / 2.0
    assert covariance(1) == pytest.approx(correlation + power * np.cos(2.0 * np.pi / 7.0), abs=0.015)
    assert covariance(7) == pytest.approx(power, abs=0.015)


def test_a_seed_and_a_noise_make_the_same_series_again_and_others_make_others() -> None:
    one, same, other = (judgement.made("autocorrelation 0", seed, 2, 30) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, judgement.made("autocorrelation 0.1", 1, 2, 30))


def test_changes_are_planted_up_and_down() -> None:
    quiet = np.zeros((2, 5))
    assert judgement.shifted(quiet, 3, 2.0).tolist() == [[0, 0, 0, 2, 2], [0, 0, 0, -2, -2]]
    assert judgement.drifting(quiet, 3, 2.0).tolist() == [[0, 0, 0, 2, 4], [0, 0, 0, -2, -4]]


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
            lambda night: [40 + night % 2 * judgement.NEAR] if night >= 53 else [], 1, id="dated again nearby"
        ),
        pytest.param(lambda night: [40 + night // 60 * 11] if night >= 53 else [], 2, id="dated again elsewhere"),
        pytest.param(lambda night: [40] if night in (43, 50) else [], 2, id="taken back and raised again"),
        pytest.param(lambda night: [40, 70] if night >= 73 else [], 2, id="two at once"),
    ],
)
def test_a_false_alarm_is_a_change_that_was_not_named_nearby_the_night_before(
    named: Callable[[int], list[int]], alarms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "Walk", walks(named))
    assert judgement.false_alarms(np.zeros((3, 100)), flips=False) == 3 * alarms


def test_flips_are_a_false_alarm_once_and_only_where_the_noise_does_not_flip() -> None:
    noise = judgement.made("two levels, 50/50", 1, 20, 90)
    assert judgement.false_alarms(noise, flips=True) == 0
    assert judgement.false_alarms(noise, flips=False) == 20


def test_false_alarms_are_counted_with_the_detector_in_use() -> None:
    quiet = judgement.made("normal, 20 % missing", 1, 10, 100)
    assert judgement.false_alarms(quiet, flips=False) == 0
    assert judgement.false_alarms(judgement.shifted(quiet, 60, 8.0), flips=False) == 10


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
        ("level", 30 - judgement.CLOSE, 33, True),
        ("level", 29 - judgement.CLOSE, 33, False),
        ("spread", 30, 33, False),
    ],
)
def test_a_change_is_found_in_time_at_its_place_and_as_one_of_the_level(
    kind: str, night: int, since: int, hit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "analyse", analyses(kind, night, since))
    assert judgement.found(np.zeros((2, 40)), 30, 3).tolist() == [hit, hit]


def test_what_is_planted_in_a_lab_is_found_and_counted() -> None:
    history, events = judgement.made_lab(4, 30, 60)
    assert {event.kind for event in events} == set(judgement.KINDS)
    alarms = judgement.alarms_of(history)
    found = {row[0]: row[1:] for row in judgement.lab_rows(alarms, events)}
    for kind in ("level, 5 deviations", "odd SUT, 8 deviations", "no figure"):
        assert found[kind][:2] == ("1", "1"), kind
    assert found["no figure"][2] == "0"
    assert sum(judgement.false_alarms_of_lab(alarms, events).values()) <= 4 * 30 * 60 * 2 / 1000


def test_an_alarm_on_a_quiet_series_is_false_and_one_after_an_event_is_not() -> None:
    _, (event, *_) = judgement.made_lab(4, 5, 60)
    key = (*event.series[:3], "drift")
    early, late = judgement.Alarm(event.night - 1, 3), judgement.Alarm(event.night + 2, event.night + 1)
    assert judgement.false_alarms_of_lab({key: [early, late]}, [event])["drift"] == 1
    assert judgement.false_alarms_of_lab({key: [late]}, [])["drift"] == 1
    (row,) = (row for row in judgement.lab_rows({key: [late]}, [event]) if row[0] == event.kind)
    assert row[1:] == ("1", "1", "2")


def test_the_tables_have_a_row_for_each_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    used = ("autocorrelation 0", "normal, 20 % missing")
    monkeypatch.setattr(judgement, "NOISES", {noise: judgement.NOISES[noise] for noise in used})
    monkeypatch.setattr(judgement, "LENGTH", 40)
    done = CliRunner().invoke(judgement.judgement, ["drift", "--series", "20"])
    assert done.exit_code == 0, done.output
    rows = [line.split("  ") for line in done.output.splitlines()]
    assert [row[0] for row in rows[3:-1]] == list(used)
