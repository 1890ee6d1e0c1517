# SPDX-License-Identifier: Apache-2.0
"""A judgement goes on from the walks of the night before, and finds what a walk from the first night finds."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from calibration.judge import detector, kept_walks
from calibration.judge.candidates import read_calibration
from calibration.judge.detector import MIN_VALUES, Walk
from calibration.judge.drift import Analysis, analyse
from calibration.judge.kept_walks import FILE, KeptWalks
from calibration.judge.night import judge_night
from calibration.results.index import index_of
from tests.unit.histories import night_of, noise, stored
from tests.unit.simulated_nights import generate

NIGHTS = 110

pytestmark = pytest.mark.usefixtures("own_index")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    index_of(tmp_path).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the nights that are walked, to be filled."""
    taken: list[int] = []
    step = Walk.step

    def counted(walk: Walk, night: int) -> None:
        if night + 1 >= MIN_VALUES:
            taken.append(night)
        step(walk, night)

    monkeypatch.setattr(Walk, "step", counted)
    return taken


def lab() -> np.ndarray:
    """Return the nights of series with everything that the detector tells apart, and without."""
    values = 100.0 + generate("autocorrelation 0.3", 3, 80, NIGHTS)
    values[:10, 70:] += 6.0
    values[10:20, 70:77] -= 9.0
    values[20:25, 30:36] += 9.0
    values[20:25, 80:85] += 9.0
    values[25:35] += np.linspace(0.0, 30.0, NIGHTS)
    values[35:40, ::3] += 20.0
    values[40:45, 60:] += 5.0 * generate("autocorrelation 0", 4, 5, NIGHTS - 60)
    values[45:55, ::4] = np.nan
    values[55:60, :50] = np.nan
    values[60:63] = 0.0
    values[61, 90:] = 1.0
    return values


def in_parts(values: np.ndarray, walks: KeptWalks) -> list[Analysis]:
    return [*analyse(values[:37], walks.run), *analyse(values[37:], walks.run)]


def test_a_night_after_the_other_is_as_a_walk_from_the_first(results: Path, steps: list[int]) -> None:
    values = lab()
    found: set[str] = set()
    for night in range(MIN_VALUES - 2, NIGHTS):
        known = values[:, : night + 1]
        walks = KeptWalks(results)
        steps.clear()
        analyses = in_parts(known, walks)
        walks.save(night_of(night))
        on_the_way = len(steps)
        assert repr(analyses) == repr(analyse(known)), f"to the last bit, in night {night}"
        found |= {change.kind for item in analyses for change in item.changes}
        found |= {name for item in analyses for name in ("flips", "excursion") if getattr(item, name) is not None}
        if night > 60:
            lengths = {int(count) for count in np.isfinite(known).sum(axis=1)}
            assert on_the_way <= 2 * len(lengths), "one step for the series of each length in each part"
    assert found == {"level", "spread", "flips", "excursion"}


@pytest.mark.parametrize("change", [np.nan, 101.0])
def test_other_values_are_walked_again_from_the_first(results: Path, steps: list[int], change: float) -> None:
    values = lab()
    walks = KeptWalks(results)
    in_parts(values[:, :-1], walks)
    walks.save(night_of(NIGHTS - 2))
    values[[3, 50, 70], [20, 51, 40]] = change  # replaced, or removed and late
    steps.clear()
    analyses = in_parts(values, KeptWalks(results))
    assert len(steps) > NIGHTS - MIN_VALUES
    assert repr(analyses) == repr(analyse(values))


def test_the_same_night_takes_no_step(results: Path, steps: list[int]) -> None:
    values = lab()
    walks = KeptWalks(results)
    in_parts(values, walks)
    walks.save(night_of(NIGHTS - 1))
    before = (index_of(results) / FILE).stat()
    steps.clear()
    again = KeptWalks(results)
    assert repr(in_parts(values, again)) == repr(analyse(values, lambda walk: KeptWalks(results).run(walk)))
    again.save(night_of(NIGHTS - 1))
    assert steps == []
    assert (index_of(results) / FILE).stat() == before, "not written again"


def test_an_older_night_does_not_replace_the_newest(results: Path, steps: list[int]) -> None:
    values = lab()
    for nights in (NIGHTS, NIGHTS - 20):
        walks = KeptWalks(results)
        assert repr(in_parts(values[:, :nights], walks)) == repr(analyse(values[:, :nights]))
        walks.save(night_of(nights - 1))
    steps.clear()
    in_parts(values, KeptWalks(results))
    assert steps == []


@pytest.mark.parametrize("module", [detector, kept_walks], ids=["detector", "layout"])
def test_another_program_goes_on_from_no_walk(
    results: Path, steps: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    values = lab()
    walks = KeptWalks(results)
    in_parts(values, walks)
    walks.save(night_of(NIGHTS - 1))
    other = tmp_path / "other.py"
    other.write_bytes(Path(str(module.__file__)).read_bytes() + b"\n")
    monkeypatch.setattr(module, "__file__", str(other))
    steps.clear()
    in_parts(values, KeptWalks(results))
    assert len(steps) > NIGHTS - MIN_VALUES


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"walks"),
        lambda file: file.write_bytes(file.read_bytes()[:-100]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"trial", b"trail")),
        lambda file: file.write_bytes(file.read_bytes()[:3000] + bytes(100) + file.read_bytes()[3100:]),
    ],
    ids=["missing", "empty", "other", "cut", "renamed", "changed"],
)  # fmt: skip
def test_a_damaged_file_is_replaced(results: Path, steps: list[int], damage: Callable[[Path], object]) -> None:
    values = lab()
    for _ in range(2):
        walks = KeptWalks(results)
        assert repr(in_parts(values, walks)) == repr(analyse(values))
        walks.save(night_of(NIGHTS - 1))
        damage(index_of(results) / FILE)
    walks = KeptWalks(results)
    in_parts(values, walks)
    walks.save(night_of(NIGHTS - 1))
    steps.clear()
    in_parts(values, KeptWalks(results))
    assert steps == []


def test_a_judgement_goes_on_from_the_one_before(tmp_path: Path, steps: list[int]) -> None:
    for sut in ("s1", "s2"):
        stored(tmp_path, [*noise(30), *noise(10, 95.0)], sut=sut)
    judge_night(tmp_path, night_of(38))
    assert steps
    steps.clear()
    whole = judge_night(tmp_path)
    assert set(steps) == {39}
    steps.clear()
    assert judge_night(tmp_path) == whole
    assert steps == []
    (index_of(tmp_path) / FILE).unlink()
    assert judge_night(tmp_path) == whole
    assert any((verdict.check, verdict.since) == ("drift", night_of(30)) for verdict in whole.verdicts)


def test_an_explanation_takes_no_step_after_a_judgement(tmp_path: Path, steps: list[int]) -> None:
    for sut in ("s1", "s2"):
        stored(tmp_path, [*noise(30), *noise(10, 95.0)], sut=sut)
    suts = [("lab", "s1"), ("lab", "s2")]
    found = read_calibration(tmp_path, suts, suts)
    assert steps
    assert {item.kind for items in found.candidates.values() for item in items} >= {"metric"}
    judge_night(tmp_path)
    steps.clear()
    assert read_calibration(tmp_path, suts, suts).candidates == found.candidates
    assert steps == []
