# SPDX-License-Identifier: Apache-2.0
"""An analysis that goes on from an earlier night says what one from the beginning says, and keeps nothing wrong."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.errors import EnvironmentLacksError
from calibration.judge import drift, memory
from calibration.judge.drift import Analysis, analyse, analyse_on
from calibration.judge.memory import FILE, analyse_history
from calibration.judge.noise import Floats
from calibration.results import index
from calibration.results.history import History, Series
from tests.unit.histories import history


def told(analyses: Sequence[Analysis]) -> str:
    """Return *analyses* as text without the last digits, in which sums differ by what lies beside them."""
    return re.sub(r"-?\d+\.\d+(?:e-?\d+)?", lambda number: f"{float(number[0]):.9g}", repr(analyses))


def figures(series: int = 120, nights: int = 90) -> Floats:
    """Return noise of several kinds, with changes, flips and missing nights."""
    random = np.random.default_rng(5)
    made = 100.0 + random.normal(size=(series, nights))
    made[::2] = 100.0 + random.standard_t(3, size=made[::2].shape)
    made[1::10, 40:] += 6.0
    made[3::10] += 12.0 * (random.random(made[3::10].shape) < 0.3)
    made[random.random(made.shape) < 0.05] = np.nan
    made[4, 7:] = np.nan
    made[6] = np.nan
    return made


@pytest.mark.parametrize("night", [3, 10, 40, 43, 89, 90])
def test_going_on_says_the_same(night: int) -> None:
    known = figures()
    _, walked = analyse_on(known[:, :night], None)
    found, _ = analyse_on(known, walked)
    assert told(found) == told(analyse(known))
    assert any(each.changes for each in found)
    assert any(each.flips for each in found)


def test_every_night_of_many_is_gone_on_from_the_one_before() -> None:
    known = figures(series=40)
    walked = None
    for night in range(60, known.shape[1] + 1):
        found, walked = analyse_on(known[:, :night], walked)
        assert told(found) == told(analyse(known[:, :night])), night


def test_series_are_known_again_in_another_order_and_new_ones_are_not() -> None:
    known = figures()
    _, walked = analyse_on(known[:80, :80], None)
    order = np.random.default_rng(1).permutation(len(known))
    found, _ = analyse_on(known[order], walked.of(np.where(order < 80, order, -1)))
    whole = analyse(known)
    assert told(found) == told([whole[each] for each in order])


def test_a_figure_that_is_another_than_it_was_is_analysed_anew() -> None:
    known = figures()
    _, walked = analyse_on(known[:, :80], None)
    known[1, 5] += 30.0
    known[2, :-1] = known[2, 1:]
    assert told(analyse_on(known, walked)[0]) == told(analyse(known))
    assert told(analyse_on(known[:, :50], walked)[0]) == told(analyse(known[:, :50]))


class Lab:
    """A history, and how often its series were analysed from their beginning."""

    def __init__(self, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.results = results
        self.whole = self._history()
        self.anew: list[bool] = []
        index.index_of(results).mkdir(parents=True)

        def watched(values: Floats, before: drift.Walked | None) -> object:
            self.anew.append(before is None)
            return analyse_on(values, before)

        monkeypatch.setattr(memory, "analyse_on", watched)

    def _history(self) -> History:
        made = history({f"idle_latency.{number}": [100.0] * 60 for number in range(20)})
        return replace(made, values=figures(series=20, nights=60))

    def judged(self, night: int) -> bool:
        """Analyse as known on *night*; return whether it was from the beginning."""
        part = replace(self.whole, nights=self.whole.nights[:night], values=self.whole.values[:, :night])
        assert told(analyse_history(self.results, part)) == told(analyse(part.values))
        return self.anew[-1]


@pytest.fixture(name="lab")
def _lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(index, "CACHE", tmp_path / "cache")
    return Lab(tmp_path / "results", monkeypatch)


def test_a_night_goes_on_from_the_one_before_and_an_earlier_one_changes_nothing(lab: Lab) -> None:
    path = index.index_of(lab.results) / FILE
    assert lab.judged(50)
    assert not lab.judged(55)
    kept = path.read_bytes()
    assert not lab.judged(55)
    assert not lab.judged(40)
    assert path.read_bytes() == kept
    assert not lab.judged(60)
    assert path.read_bytes() != kept


def test_what_a_killed_process_left_is_overwritten_and_gone(lab: Lab) -> None:
    path = index.index_of(lab.results) / FILE
    left = path.with_name(f".{FILE}")
    left.write_bytes(b"half of it")
    assert lab.judged(50)
    assert not lab.judged(50)
    assert not left.exists()


def test_what_is_damaged_or_of_another_version_is_made_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    path = index.index_of(lab.results) / FILE
    lab.judged(50)
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"nothing of the kind"):
        path.write_bytes(damaged)
        assert lab.judged(50)
        assert path.read_bytes() == whole
    monkeypatch.setattr(memory, "_version", lambda: "another")
    assert lab.judged(50)
    assert path.read_bytes() != whole


def test_a_metric_that_is_new_joins_those_that_are_known(lab: Lab) -> None:
    lab.judged(50)
    first = lab.whole.series[0]
    series = (Series(first.testbed, "a0", *first[2:]), *lab.whole.series)
    lab.whole = replace(lab.whole, series=series, values=np.vstack([figures(nights=60)[:1], lab.whole.values]))
    assert not lab.judged(60)


def test_a_cache_that_cannot_be_written_is_told(lab: Lab) -> None:
    (index.index_of(lab.results) / FILE).mkdir()
    with pytest.raises(EnvironmentLacksError, match="cannot be kept"):
        lab.judged(50)
