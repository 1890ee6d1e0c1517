# SPDX-License-Identifier: Apache-2.0
"""A night that a wrong clock has dated is named, and is the newest nowhere."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from calibration.base.errors import InputError
from calibration.exports.openmetrics import openmetrics
from calibration.gates.night import read_night
from calibration.judge.answer import answers
from calibration.judge.night import judge_night, read_nights
from calibration.results.find import find_run
from calibration.results.index import read_history
from calibration.results.layout import new_run_id
from calibration.results.nights import misdated, today
from calibration.results.nights import night_of as of_name
from calibration.run.attempts import newest_unfinished
from calibration.run.lifecycle import begin
from tests.unit.histories import night_of, noise, run_id, stored
from tests.unit.test_results import CAPTURE, NOW

pytestmark = pytest.mark.usefixtures("own_index")

NIGHTS = 12
TODAY = night_of(NIGHTS - 1)
AHEAD, BACK = date(2099, 1, 1), date(2001, 1, 1)


def days(*numbers: int) -> list[date]:
    return [TODAY + timedelta(days=number) for number in numbers]


@pytest.mark.parametrize(("nights", "wrong"), [
    ([], []),
    (days(-2, -1, 0), []),
    (days(-2, -1, 0, 1), []),  # a controller west of another
    (days(-2, -1, 0, 10), []),
    (days(-2, -1, 0, 3650), days(3650)),
    (days(-2, 3650), days(3650)),
    (days(3650, 3651), []),  # all of them: nothing contradicts
    (days(-4000, 0), []),
])  # fmt: skip
def test_nights_apart_and_after_the_clock_are_misdated(
    nights: list[date], wrong: list[date], clock: Callable[[date], None]
) -> None:
    clock(TODAY)
    assert sorted(misdated(nights)) == wrong


def test_after_a_clock_went_back_the_fewer_nights_are_misdated(clock: Callable[[date], None]) -> None:
    clock(BACK)
    assert misdated([BACK, *days(-2, -1, 0)]) == {BACK}


def remove(run: Path) -> None:
    (run / "run.json").unlink()
    run.rmdir()


@pytest.fixture(name="wrong", params=[AHEAD, BACK])
def _wrong(request: pytest.FixtureRequest, clock: Callable[[date], None]) -> date:
    """Return the date of a wrong clock: one that was repaired, or one that has just gone back."""
    found: date = request.param
    clock(TODAY if found == AHEAD else found)
    return found


@pytest.fixture(name="results")
def _results(tmp_path: Path, wrong: date) -> Path:
    """Return results of twelve nights, and the last run once more as dated by the wrong clock."""
    results = tmp_path / "results"
    stored(results, noise(NIGHTS))
    newest = results / "lab" / "t1" / run_id(NIGHTS - 1)
    copy = newest.with_name(f"{wrong:%Y%m%d}T020000Z-0a1b")
    copy.mkdir()
    text = (newest / "run.json").read_text().replace(newest.name, copy.name)
    (copy / "run.json").write_text(text.replace(f"{TODAY}T", f"{wrong}T"))
    return results


def test_a_misdated_run_is_named_and_is_nowhere_the_newest(results: Path, wrong: date) -> None:
    file = f"lab/t1/{wrong:%Y%m%d}T020000Z-0a1b/run.json"
    judgement = judge_night(results)
    assert judgement.night == TODAY
    (named,) = [verdict for verdict in judgement.verdicts if verdict.check == "unreadable"]
    assert named.outcome == "fail"
    assert f"cannot read {file}: the clock was wrong on {wrong}; set the controller's clock, and delete" in named.reason
    assert read_night(results).night == TODAY
    nights = read_nights(results)
    assert nights is not None
    assert nights.night == TODAY
    assert [(run := nights.newest(sut)) and run.night for sut in answers(nights)] == [TODAY]
    assert read_history(results, testbed="lab", sut="t1").nights[-1] == TODAY
    assert find_run(results).name == find_run(results, "t1").name == run_id(NIGHTS - 1)
    with_it = openmetrics(results, print)
    remove(results / "lab" / "t1" / f"{wrong:%Y%m%d}T020000Z-0a1b")
    without = openmetrics(results, print)
    assert [line for line in with_it.splitlines() if '"unreadable"' not in line and "sut_state" not in line] == [
        line for line in without.splitlines() if '"unreadable"' not in line and "sut_state" not in line
    ]


def test_a_misdated_night_is_refused_by_name(results: Path, wrong: date) -> None:
    with pytest.raises(
        InputError, match=f"the night {wrong} is far from the other nights below .*: set the contr"
    ) as no:
        judge_night(results, wrong)
    assert no.value.exit_code == 2


def test_deleting_the_misdated_runs_repairs_the_results(results: Path, wrong: date) -> None:
    remove(results / "lab" / "t1" / f"{wrong:%Y%m%d}T020000Z-0a1b")
    judgement = judge_night(results)
    assert judgement.night == TODAY
    assert [verdict for verdict in judgement.verdicts if verdict.check == "unreadable"] == []


def test_a_misdated_run_is_not_the_one_to_resume(tmp_path: Path, wrong: date) -> None:
    names = [f"{night:%Y%m%d}T020000Z-0a1b" for night in (*days(-1, 0), wrong)]
    for name in names:
        begin(tmp_path, testbed="t1", sut="s1", run_id=name, profile="quick", capture=CAPTURE, now=NOW)
    assert newest_unfinished(tmp_path, [("t1", "s1")]) == names[1]


EUROPE, AMERICA = "CET-1CEST,M3.5.0,M10.5.0/3", "EST5EDT,M3.2.0,M11.1.0"


@pytest.mark.parametrize(
    ("zone", "change"), [(EUROPE, (3, 29)), (EUROPE, (10, 25)), (AMERICA, (3, 8)), (AMERICA, (11, 1))]
)
def test_a_change_of_daylight_saving_time_costs_no_night(
    zone: str, change: tuple[int, int], time_zone: Callable[[str], None]
) -> None:
    time_zone(zone)
    local = [datetime(2026, *change, 2, 30) + timedelta(days=day) for day in range(-2, 3)]  # noqa: DTZ001
    names = [new_run_id(start.astimezone()) for start in local]
    assert sorted(names) == names
    nights = [of_name(name) for name in names]
    assert len(set(nights)) == len(nights)
    assert misdated(filter(None, nights)) == frozenset()


@pytest.mark.parametrize("zone", ["EAST-14", "WEST+12"])  # at any time the date is another one in one of them
def test_today_is_the_date_in_utc(zone: str, time_zone: Callable[[str], None]) -> None:
    time_zone(zone)
    before = datetime.now(UTC).date()
    assert before <= today() <= datetime.now(UTC).date()
