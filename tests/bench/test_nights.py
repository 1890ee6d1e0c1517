# SPDX-License-Identifier: Apache-2.0
"""The made store: documents that are right, events that are there, and a table that tells right from wrong."""

import json
import math
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from bench import made, nights, nights_page
from bench.made import FIRST_NIGHT, Event, State, factors, make, names, own_events, planned_events, template
from bench.nights import Finding, Findings, known_on, matched, number, quiet_nights, read_labels, table_of
from calibration.errors import EnvironmentLacksError, InputError
from calibration.judge.run import verdicts_of
from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.results import index
from calibration.results.facts import facts
from calibration.results.history import History, Series
from calibration.results.index import read_history
from calibration.results.layout import RUN
from calibration.results.store import read_run

NIGHTS = 30
SUT = ("t1", "sut01")
METRIC = "idle_latency.latency_ns"


@pytest.fixture(name="store", scope="module")
def _store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    folder = tmp_path_factory.mktemp("made")
    size = make(folder / "results", folder / "labels.json", suts=2, nights=NIGHTS, seed=3)
    assert size == sum(path.stat().st_size for path in folder.glob(f"results/*/*/*/{RUN}"))
    return folder / "results", read_labels(folder / "labels.json")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "CACHE", tmp_path / "cache")


# What is made


def test_every_document_is_valid_and_its_parts_belong_together(store: tuple[Path, list[Event]]) -> None:
    results, _ = store
    seen = set()
    for path in sorted(results.glob(f"*/*/*/{RUN}"))[::7]:
        document = read_run(path)
        run = document.run
        assert path.parts[-4:-1] == (run.testbed, run.sut, run.id)
        assert document.context is not None
        assert document.facts == facts(document.context.parsed, run.kernels)
        judged = {each.name: each for each in verdicts_of(document.measurements)}
        assert len(judged) == len(document.verdicts) > 60
        for verdict in document.verdicts:
            other = judged[verdict.name]
            assert (verdict.measurement, verdict.outcome) == (other.measurement, other.outcome)
            assert verdict.metric is not None
            assert other.metric is not None
            assert verdict.metric.value == pytest.approx(other.metric.value, rel=1e-6)
            assert verdict.metric.interval == (
                None if other.metric.interval is None else pytest.approx(other.metric.interval, rel=1e-6)
            )
            seen.add(verdict.metric.value)
    assert len(seen) > 200


def test_a_document_is_as_large_as_that_of_the_run_it_is_made_of(store: tuple[Path, list[Event]]) -> None:
    whole = len(made.base_document().model_dump_json(indent=1))
    for path in store[0].glob(f"*/*/*/{RUN}"):
        if read_run(path).run.status == "complete":
            assert path.stat().st_size == pytest.approx(whole, rel=0.1)
            return
    pytest.fail("expected a complete run")


def test_the_same_seed_makes_the_same_store_and_another_one_another(tmp_path: Path) -> None:
    kept = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make(tmp_path / name, tmp_path / f"{name}.json", suts=1, nights=20, seed=seed)
        kept[name] = {
            path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).glob("*/*/*/*")
        }
        assert not list((tmp_path / name).rglob("*label*"))
    assert kept["a"] == kept["b"]
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert kept["a"] != kept["c"]


def test_every_kind_of_event_is_planted_in_time_and_no_metric_twice() -> None:
    events = planned_events(20, 180, 1)
    assert {nights.row_of(each) for each in events} == set(nights.ROWS)
    assert set(nights.CHECKS) == {each.kind for each in events} - {"kernel"}
    assert sum(each.kind == "odd_dimm" for each in events) == 1
    taken: set[tuple[str, str, str]] = set()
    for event in events:
        assert event.night == 0 or 40 <= event.night < 160
        for metric in event.metrics:
            assert (event.testbed, event.sut, metric) not in taken
            taken.add((event.testbed, event.sut, metric))
        if event.kind in {"level", "spread", "flips", "bios", "odd_dimm"}:
            assert event.metrics
            assert event.size != 0


def moved(events: Iterable[Event]) -> np.ndarray[Any, Any]:
    """Return the logarithms of what the idle latency of a SUT is multiplied by on each of 400 nights."""
    group = next(group for group, metrics in template(State()).metrics.items() if METRIC in metrics)
    column = template(State()).groups[group]
    return np.log(factors(SUT, 400, 5, list(events))[:, column])


def test_events_do_to_the_figures_what_they_say() -> None:
    quiet = moved(())
    event = Event("level", *SUT, 200, (METRIC,), 0.1)
    assert moved([event])[:200] == pytest.approx(quiet[:200])
    assert moved([event])[200:] - quiet[200:] == pytest.approx(math.log(1.1))
    other = moved([replace(event, metrics=("core_frequency.scalar.all.median_hz",))])
    assert other == pytest.approx(quiet)
    wide = moved([replace(event, kind="spread", size=3.0)])
    level = np.median(quiet)
    assert wide[:200] == pytest.approx(quiet[:200])
    assert np.median(abs(wide[200:] - level)) == pytest.approx(4 * np.median(abs(quiet[200:] - level)), rel=0.2)
    flips = moved([replace(event, kind="flips")]) - quiet
    assert not flips[:200].any()
    assert set(np.round(flips[200:], 6)) == {0.0, round(math.log(1.1), 6)}
    assert 40 < np.count_nonzero(flips) < 160


def test_the_history_has_the_events_and_their_context(store: tuple[Path, list[Event]]) -> None:
    results, events = store
    history = read_history(results)
    assert {(each.testbed, each.sut) for each in history.series} == set(names(2))
    for event in events:
        runs = history.runs[event.testbed, event.sut]
        on = FIRST_NIGHT + timedelta(days=event.night)
        if event.kind == "no_run":
            assert on not in runs or runs[on].status == "not_begun"
        elif event.kind == "not_begun":
            assert on not in runs or runs[on].reasons == (made.NOT_BEGUN,)
        elif event.kind in {"bios", "kernel"}:
            fact = {"bios": "BIOS", "kernel": "kernel"}[event.kind]
            told = {run.facts[fact] for night, run in runs.items() if run.facts and night >= on}
            before = {run.facts[fact] for night, run in runs.items() if run.facts and night < on}
            assert len(told) == len(before) == 1
            assert told != before
        elif event.kind == "odd_dimm":
            odd = {run.facts["DIMMs"] for run in runs.values() if run.facts}
            assert len(odd) == 1
            assert f"1 x 16 GiB DDR5 at 4400 MT/s, 1 rank in {made.ODD_SLOT}" in odd.pop()


# What is made of what was found


def verdict(night: int, outcome: str = "fail", since: int | None = None, cause: str | None = None) -> NightVerdict:
    on = FIRST_NIGHT + timedelta(days=night)
    change = None if cause is None else ContextChange(fact=cause, before="1", after="2", night=on)
    return NightVerdict.model_validate(
        {
            **dict.fromkeys(NightVerdict.model_fields),
            "testbed": "t1",
            "sut": "sut01",
            "night": on,
            "metric": METRIC,
            "check": "drift",
            "outcome": outcome,
            "since": None if since is None else FIRST_NIGHT + timedelta(days=since),
            "context_changes": () if change is None else (change,),
            "reason": "a test",
        }
    )


def test_a_finding_stands_until_it_passes_or_its_date_jumps() -> None:
    findings = Findings()
    findings.add(10, [verdict(10, since=9, cause="BIOS")])
    findings.add(11, [verdict(11, since=8)])
    findings.add(13, [verdict(13, since=10)])
    findings.add(14, [verdict(14, "pass")])
    findings.add(15, [verdict(15, since=9)])
    findings.add(30, [verdict(30, since=29)])
    assert [(each.found, each.since, each.last) for each in findings.done] == [(10, 9, 13), (15, 9, 15), (30, 29, 30)]
    assert findings.done[0].causes == {"BIOS"}
    assert findings.done[1].causes == frozenset()


def finding(check: Any, found: int, since: int, metric: str = METRIC, sut: str = "sut01", **more: Any) -> Finding:
    return Finding("t1", sut, metric, check, found, since, found, **{"causes": frozenset(), **more})


def history_of(values: list[list[float]]) -> History:
    array = np.array(values)
    return History(
        nights=tuple(FIRST_NIGHT + timedelta(days=each) for each in range(array.shape[1])),
        series=tuple(Series("t1", f"sut{row + 1:02d}", METRIC, "ns", "lower") for row in range(len(values))),
        values=array,
        low=array,
        high=array,
        runs={},
        recorded={("t1", "sut01", METRIC): None},  # type: ignore[dict-item]
    )


def test_the_table_tells_what_was_found_from_what_is_false() -> None:
    level = Event("level", "t1", "sut01", 50, (METRIC, "other"), 0.1, 5.0)
    bios = Event("bios", "t1", "sut02", 60, (METRIC,), 0.1, 7.0)
    gone = Event("no_run", "t1", "sut03", 20, until=21)
    kernel = Event("kernel", "t1", "sut03", 70)
    history = history_of([[1.0, 2.0] * 50] * 3)
    findings = [
        finding("drift", 52, 51),
        finding("drift", 70, 50),  # found once more: counts once
        finding("spread", 60, 60),  # beside the level
        finding("drift", 40, 39),  # before it: false
        finding("drift", 66, 58, sut="sut02", causes=frozenset({"BIOS"})),
        finding("missing", 20, 20, "run", "sut03"),
        finding("missing", 21, 21, METRIC, "sut03"),  # beside the missing run
        finding("missing", 22, 22, "run", "sut03"),  # after it: false
        finding("drift", 72, 71, sut="sut03"),  # at the time of the new kernel: false
    ]
    table = table_of(history, findings, [level, bios, gone, kernel])
    rows = {each["kind"]: each for each in table["rows"]}
    assert list(rows) == list(nights.ROWS)
    found = rows["level 5"]
    assert (found["events"], found["planted"], found["found"], found["found_in_time"]) == (1, 2, 1, 1)
    assert (found["nights_to_find"], found["date_error_median"], found["date_error_max"]) == (2, 1, 1)
    assert (rows["bios"]["found"], rows["bios"]["found_in_time"], rows["bios"]["cause_named"]) == (1, 0, 1)
    assert (rows["no_run"]["planted"], rows["no_run"]["found"], rows["no_run"]["date_error_max"]) == (1, 1, 0)
    assert (rows["kernel"]["planted"], rows["kernel"]["events"], rows["kernel"]["false_alarms"]) == (0, 1, 1)
    assert rows["spread"]["planted"] == 0
    assert table["false_alarms"] == {"drift": 2, "spread": 0, "bimodal": 0, "homogeneity": 0, "missing": 1}
    assert table["beside_events"] == 2
    assert table["metric_nights"] == 50 + 60 + 100


def test_a_change_that_is_dated_wrongly_is_not_found() -> None:
    event = Event("level", "t1", "sut01", 50, (METRIC,), 0.1, 5.0)
    wrong = finding("drift", 60, 50 + nights.AT_MOST + 1)
    matched([wrong], [event])
    assert wrong.event is None
    assert wrong.beside


def test_figures_that_never_differ_are_not_counted() -> None:
    assert quiet_nights(history_of([[1.0] * 10, [math.nan] * 10, [1.0, 2.0] * 4 + [math.nan] * 2]), []) == 8


def test_a_night_is_judged_without_what_came_after(store: tuple[Path, list[Event]]) -> None:
    history = read_history(store[0])
    seen = known_on(history, 4)
    until = read_history(store[0], until=history.nights[4])
    assert seen.nights == until.nights
    assert {sut: list(runs) for sut, runs in seen.runs.items()} == {sut: list(runs) for sut, runs in until.runs.items()}
    kept = [row for row, each in enumerate(seen.series) if each in until.series]
    assert np.array_equal(seen.values[kept], until.values, equal_nan=True)
    assert number(seen.nights[-1]) == 4


def test_a_store_is_judged_night_by_night(store: tuple[Path, list[Event]]) -> None:
    results, events = store
    told: list[int] = []
    history, findings = nights.judged(results, told.append)
    assert told == list(range(len(history.nights)))
    table = table_of(history, findings, events)
    rows = {each["kind"]: each for each in table["rows"]}
    assert rows["no_run"]["found"] == rows["no_run"]["planted"] == sum(each.kind == "no_run" for each in events)
    assert table["false_alarms"]["missing"] == 0


def test_labels_are_not_among_the_results(store: tuple[Path, list[Event]]) -> None:
    results, events = store
    assert own_events(names(2)[0], events) + own_events(names(2)[1], events) != []
    assert not [path for path in results.rglob("*") if path.is_file() and path.name not in {RUN, "records.jsonl"}]


def test_bad_usage_has_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text(json.dumps({"suts": 3, "nights": 20, "seed": 1}))
    with pytest.raises(InputError, match="give another --keep"):
        CliRunner().invoke(
            nights.nights_command,
            ["table", "--suts", "2", "--nights", "20", "--keep", str(tmp_path)],
            standalone_mode=False,
            catch_exceptions=False,
        )
    done = CliRunner().invoke(nights.nights_command, ["time", "--nights", "3"])
    assert done.exit_code == InputError.exit_code


def test_questions_are_timed_as_commands_and_the_store_is_left_as_it_was(tmp_path: Path) -> None:
    arguments = [
        "time",
        "--suts",
        "1",
        "--nights",
        "20",
        "--keep",
        str(tmp_path / "kept"),
        "--json",
        str(tmp_path / "n"),
    ]
    done = CliRunner().invoke(nights.nights_command, arguments, standalone_mode=False, catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads((tmp_path / "n").read_bytes())["time"]
    for name in (*nights_page.QUESTIONS, "index_bytes"):
        assert found[name] > 0, name
    assert {each["met"] for each in found["targets"].values()} == {None}, "only the largest store is judged"
    assert len(list((tmp_path / "kept" / "results").glob(f"*/*/*/{RUN}"))) == found["store"]["documents"]


def test_a_command_that_fails_is_no_time(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacksError, match="none"):
        nights.process_s(
            [sys.executable, "-m", "calibration.cli", "judge", str(tmp_path / "none")], tmp_path, good=(0, 1)
        )
