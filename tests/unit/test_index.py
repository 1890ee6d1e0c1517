# SPDX-License-Identifier: Apache-2.0
"""Histories through the index match the documents, whatever happens to either."""

import errno
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from calibration.acceptance.limits import Limit
from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.judge.run import judge_run
from calibration.results import index, store
from calibration.results.cross_checks import cross_checks
from calibration.results.history import NightRun
from calibration.results.index import read_history
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.results.plain import metrics_of
from calibration.results.run_checks import run_checks
from tests.report.report_documents import flagged, imported, not_begun_document, replace, run_document, scaled
from tests.report.report_documents import store as store_document

PAGE = Path(__file__).parents[1] / "fixtures" / "pages"
METRIC = "idle_latency.latency_ns"
NAMES = ("idle_latency", "core_frequency")
FIRST = datetime(2026, 1, 30, 1, 2, 3, tzinfo=UTC)


pytestmark = pytest.mark.usefixtures("own_index")


@pytest.fixture(name="results")
def _results(tmp_path: Path) -> Path:
    """A directory whose name means something to DuckDB, if it could."""
    path = tmp_path / "it's [1] *" / "a=b"
    path.mkdir(parents=True)
    return path


@pytest.fixture(name="document", scope="module")
def _document() -> RunDocument:
    return run_document(names=NAMES)


def figure(document: RunDocument, factor: float) -> RunDocument:
    """Return *document* with its idle latency multiplied, and judged."""
    measurement = document.measurements[0]
    latency = scaled(measurement.values.latency_ns, factor)  # type: ignore[attr-defined]
    made = replace(document, 0, values=measurement.values.model_copy(update={"latency_ns": latency}))
    return judge_run(made)


def night(
    document: RunDocument, number: int, *, sut: str = "s1", testbed: str = "t1", factor: float = 1.0, **run: Any
) -> RunDocument:
    """Return *document* as the run of a night after the first; *run* replaces fields."""
    when = FIRST + timedelta(days=number)
    fields = {
        "id": f"{when:%Y%m%dT%H%M%SZ}-0a1b", "testbed": testbed, "sut": sut, "started_at": when, "finished_at": when,
        **run,
    }  # fmt: skip
    made = figure(document, factor) if document.measurements else document
    return made.model_copy(update={"run": made.run.model_copy(update=fields)})


def latency(document: RunDocument) -> float:
    return next(
        verdict.metric.value for verdict in document.verdicts if verdict.name == METRIC and verdict.metric is not None
    )


def changed_ns(results: Path) -> int:
    """Return when the index was written."""
    return (index.index_of(results) / index.DATABASE).stat().st_mtime_ns


def test_history_matches_the_documents(results: Path, document: RunDocument) -> None:
    made = {
        (sut, number): night(document, number, sut=sut, factor=1 + number / 10 + len(sut) / 100)
        for sut in ("s1", "s22")
        for number in (0, 1, 3)
        if (sut, number) != ("s22", 1)
    }
    for item in made.values():
        store_document(item, results)
    history = read_history(results)
    assert history.nights == (date(2026, 1, 30), date(2026, 1, 31), date(2026, 2, 2))
    names = sorted(verdict.name for verdict in made["s1", 0].verdicts)
    assert [series[:3] for series in history.series] == [("t1", sut, name) for sut in ("s1", "s22") for name in names]
    assert history.values.shape == history.low.shape == history.high.shape == (2 * len(names), 3)
    for row, series in enumerate(history.series):
        for column, number in enumerate((0, 1, 3)):
            one = made.get((series.sut, number))
            if one is None:
                assert math.isnan(history.values[row, column])
                continue
            (metric,) = (verdict.metric for verdict in one.verdicts if verdict.name == series.metric)
            assert metric is not None
            assert (series.unit, series.better) == (metric.unit, metric.better)
            assert history.values[row, column] == metric.value
            found = (history.low[row, column], history.high[row, column])
            assert found == (metric.interval or pytest.approx((math.nan, math.nan), nan_ok=True))
    assert list(history.runs) == [("t1", "s1"), ("t1", "s22")]
    assert list(history.runs["t1", "s22"]) == [date(2026, 1, 30), date(2026, 2, 2)]
    one = made["s1", 0]
    assert history.runs["t1", "s1"][date(2026, 1, 30)] == NightRun(
        testbed="t1",
        sut="s1",
        run_id=one.run.id,
        night=date(2026, 1, 30),
        status="complete",
        directory=f"t1/s1/{one.run.id}",
        facts=one.facts,
        reasons=tuple(f"{omitted.what}: {omitted.reason}" for omitted in one.not_measured),
        profile=one.run.profile,
        failed=tuple(check.name for check in run_checks(one) if check.outcome == "fail"),
    )
    assert history.run_checks["t1", "s1"] == tuple(run_checks(one))
    assert [item.metric for item in history.headlines["t1", "s1"]] == [item.metric.name for item in one.record]
    assert {history.titles[item.metric.name] for item in metrics_of(one)} == {
        item.metric.title for item in metrics_of(one)
    }
    assert list(history.runs["t1", "s1"][date(2026, 1, 30)].facts) == list(one.facts)
    assert set(history.recorded) == {("t1", sut, name) for sut in ("s1", "s22") for name in names}


def test_a_filtered_history_reads_no_other_document(results: Path, document: RunDocument) -> None:
    for number in (0, 1):
        for names in ({}, {"testbed": "t2"}, {"sut": "s2"}):
            store_document(night(document, number, **names), results)
    whole = read_history(results)
    broken = [path for path in results.glob(f"*/*/*/{RUN}") if "t1/s1" not in str(path)]
    for path in broken:
        path.write_text("{")
    shutil.rmtree(index.index_of(results))
    assert read_history(results, testbed="t1", sut="s1", metric=METRIC, until=date(2026, 1, 30)).values.shape == (1, 1)
    part = read_history(results, testbed="t1", sut="s1")
    kept = [row for row, series in enumerate(whole.series) if series[:2] == ("t1", "s1")]
    assert part.series == tuple(whole.series[row] for row in kept)
    assert np.array_equal(part.values, whole.values[kept])
    assert part.runs == {("t1", "s1"): whole.runs["t1", "s1"]}
    assert read_history(results, testbed="none").series == ()
    assert read_history(results, testbed="t1", sut="none").nights == ()
    assert {(damaged.testbed, damaged.sut) for damaged in read_history(results, sut="s1").unreadable} == {("t2", "s1")}


def test_the_newest_complete_run_represents_a_night(results: Path, document: RunDocument) -> None:
    complete = [night(document, 0, id=f"20260130T0{hour}0000Z-aaaa", factor=hour) for hour in (1, 2)]
    later = night(document, 0, id="20260130T030000Z-aaaa", factor=3, status="incomplete")
    for item in (*complete, later):
        store_document(
            item.model_copy(
                update={"run": item.run.model_copy(update={"started_at": FIRST.replace(hour=int(item.run.id[10]))})}
            ),
            results,
        )
    history = read_history(results, metric=METRIC)
    assert history.values.tolist() == [[latency(complete[1])]]
    assert history.runs["t1", "s1"][date(2026, 1, 30)].run_id == complete[1].run.id
    for item in complete:
        shutil.rmtree(results / "t1" / "s1" / item.run.id)
    assert read_history(results, metric=METRIC).values.tolist() == [[latency(later)]]


def test_the_night_comes_from_the_identifier_or_the_start(results: Path, document: RunDocument) -> None:
    late = FIRST.replace(hour=23) + timedelta(days=5)
    store_document(night(document, 0, id="20260301T235959Z-aaaa", started_at=late), results)
    store_document(night(document, 0, id="by-hand", started_at=late), results)
    store_document(night(document, 0, id="20269999T235959Z-aaaa", started_at=late + timedelta(days=1)), results)
    history = read_history(results, metric=METRIC)
    assert history.nights == (late.date(), late.date() + timedelta(days=1), date(2026, 3, 1))


def test_invalid_missing_and_imported_metrics_are_excluded(results: Path, document: RunDocument) -> None:
    store_document(night(document, 0), results)
    wrong = flagged(night(document, 1), 0, "PLACEMENT_WRONG", "its memory lay elsewhere")
    limits = (Limit(metric="c2c_latency.local_hitm_ns", lower=None, upper=9.0, unit="ns", reason="as promised"),)
    wrong = judge_run(wrong, limits)
    store_document(wrong, results)
    refused = not_begun_document()
    store_document(night(refused, 2), results)
    page = sorted(PAGE.glob("*.rst"))[1].read_bytes()
    store_document(night(imported(page), 3, id="imported-1", testbed="t1"), results)
    history = read_history(results)
    assert history.nights == tuple(FIRST.date() + timedelta(days=number) for number in range(3))
    row = [series.metric for series in history.series].index(METRIC)
    assert np.isnan(history.values[row]).tolist() == [False, True, True]
    assert np.isnan(history.low[row]).tolist() == np.isnan(history.high[row]).tolist() == [False, True, True]
    assert {series.metric for series in history.series} == {verdict.name for verdict in wrong.verdicts} - {
        limits[0].metric
    }
    runs = list(history.runs["t1", "s1"].values())
    assert f"{METRIC}: its memory lay elsewhere" in runs[1].reasons
    assert (runs[2].status, runs[2].facts, runs[2].reasons) == ("not_begun", {}, (refused.not_measured[0].reason,))
    assert history.recorded == {}
    before = read_history(results, until=runs[1].night)
    assert before.nights == history.nights[:2]
    assert before.recorded["t1", "s1", METRIC].outcome == "invalid"
    failed = before.recorded["t1", "s1", limits[0].metric]
    assert (failed.lower, failed.upper, failed.outcome) == (None, 9.0, "fail")
    assert failed.reason.startswith("not measured")


def test_a_run_without_metrics_is_a_night(results: Path) -> None:
    store_document(night(run_document(names=()), 0, status="incomplete"), results)
    history = read_history(results)
    assert (history.series, history.values.shape, len(history.nights)) == ((), (0, 1), 1)
    assert history.runs["t1", "s1"][FIRST.date()].status == "incomplete"


def test_changed_units_are_not_mixed(results: Path, document: RunDocument) -> None:
    old = night(document, 0)
    store_document(old, results)
    path = results / "t1" / "s1" / old.run.id / RUN
    raw = json.loads(path.read_bytes())
    for verdict in raw["verdicts"]:
        verdict["metric"]["unit"] = "us"
    path.write_text(json.dumps(raw))
    store_document(night(document, 1), results)
    history = read_history(results, metric=METRIC)
    assert history.series[0].unit == "ns"
    assert np.isnan(history.values[0]).tolist() == [True, False]


# The index follows the documents


def test_index_follows_new_changed_and_deleted_documents(results: Path, document: RunDocument) -> None:
    for number in (0, 1, 2, 3):
        for sut in ("s1", "s2"):
            store_document(night(document, number, sut=sut), results)
    first = read_history(results, metric=METRIC)
    before = changed_ns(results)
    again = read_history(results, metric=METRIC)
    assert changed_ns(results) == before
    assert np.array_equal(first.values, again.values)
    store_document(night(document, 4, factor=2), results)
    new = read_history(results, metric=METRIC)
    assert new.values[0, -1] == pytest.approx(2 * new.values[0, 0])
    assert np.array_equal(new.values[:, :4], first.values)
    assert math.isnan(new.values[1, -1])
    assert changed_ns(results) != before
    resumed = night(document, 4, factor=3)
    shutil.rmtree(results / "t1" / "s1" / resumed.run.id)
    store_document(resumed, results)
    assert read_history(results, metric=METRIC).values[0, -1] == latency(resumed)
    shutil.rmtree(results / "t1" / "s1" / resumed.run.id)
    assert np.array_equal(read_history(results, metric=METRIC).values, first.values)
    for path in results.glob("t1/*/202601*"):
        shutil.rmtree(path)
    assert read_history(results).nights == first.nights[2:]
    shutil.rmtree(results / "t1")
    assert read_history(results).runs == {}


def test_updating_one_sut_keeps_the_others(results: Path, document: RunDocument) -> None:
    for sut in ("s1", "s2"):
        store_document(night(document, 0, sut=sut), results)
    read_history(results)
    store_document(night(document, 1, sut="s2", factor=2), results)
    store_document(night(document, 1, sut="s1", factor=2), results)
    assert len(read_history(results, sut="s2").nights) == 2
    both = read_history(results, metric=METRIC)
    assert both.values.shape == (2, 2)
    assert not np.isnan(both.values).any()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace_table(path: Path) -> None:
    with duckdb.connect(path) as db:
        db.execute("DROP TABLE metrics")
        db.execute("CREATE TABLE metrics AS SELECT 1 AS one")


@pytest.mark.parametrize("damage", [cut, lambda path: path.write_bytes(b"DUCK" * 10_000), replace_table])
def test_a_damaged_index_is_rebuilt(results: Path, document: RunDocument, damage: Callable[[Path], Any]) -> None:
    for number in (0, 3):
        store_document(night(document, number, factor=number + 1), results)
    whole = read_history(results)
    damage(index.index_of(results) / index.DATABASE)
    found = read_history(results)
    assert np.array_equal(found.values, whole.values, equal_nan=True)
    assert (found.series, found.runs, found.recorded) == (whole.series, whole.runs, whole.recorded)
    assert read_history(results, sut="s1", metric=METRIC).values.shape == (1, 2)


def test_an_index_of_another_format_is_kept(results: Path, document: RunDocument) -> None:
    store_document(night(document, 0), results)
    other = index.index_of(results).parents[1] / f"index-{index.FORMAT + 1}" / "x"
    other.mkdir(parents=True)
    read_history(results)
    assert other.is_dir()
    assert index.index_of(results).parent.name == f"index-{index.FORMAT}"


def test_an_update_is_atomic(results: Path, document: RunDocument) -> None:
    store_document(night(document, 0), results)
    read_history(results)
    store_document(night(document, 1), results)
    code = """
import os, sys
from pathlib import Path
from calibration.results import index, store
class Dying(dict):
    def items(self):
        yield "runs", index.RUNS
        os._exit(9)
index.CACHE, index.TABLES = Path(sys.argv[2]), Dying()
index.read_history(Path(sys.argv[1]))
"""
    ended = subprocess.run([sys.executable, "-c", code, results, index.CACHE], check=False)
    assert ended.returncode == 9
    history = read_history(results, metric=METRIC)
    assert np.isnan(history.values).tolist() == [[False, False]]


def test_concurrent_readers_agree(results: Path, document: RunDocument) -> None:
    for number in range(4):
        store_document(night(document, number, factor=number + 1), results)
    found: list[list[float]] = []
    threads = [
        threading.Thread(target=lambda: found.append(read_history(results, metric=METRIC).values[0].tolist()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4
    assert len(set(found[0])) == 4


# Documents that cannot be read


def test_only_what_is_judged_is_validated(results: Path, document: RunDocument) -> None:
    path = store_document(night(document, 0), results) / RUN
    whole = read_history(results)
    made = json.loads(path.read_bytes())
    for measurement in made["measurements"]:
        measurement["values"] = measurement["values"]["kind"]
    path.write_text(json.dumps(made))
    with pytest.raises(InputError, match=r"not a run document: measurements\.0\.values"):
        store.read_run(path)
    history = read_history(results)
    assert history.unreadable == ()
    assert (history.series, history.runs, history.run_checks) == (whole.series, whole.runs, whole.run_checks)
    assert np.array_equal(history.values, whole.values, equal_nan=True)


def replacing(old: str, new: str, count: int = -1) -> Callable[[Path], Any]:
    return lambda path: path.write_text(path.read_text().replace(old, new, count))


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut off": (cut, "Invalid JSON: EOF"),
    "an empty object": (lambda path: path.write_text("{}"), "schema_version: Field required"),
    "two objects": (lambda path: path.write_text("{}{}"), "Invalid JSON: trailing characters"),
    "no figure": (replacing('"value": ', '"value": "x", "v": '),
                  "verdicts.0.metric.value: Input should be a valid number"),
    "no verdicts": (replacing('"verdicts"', '"verdict"'), "verdicts: Field required"),
    "no start": (replacing('"started_at": "2', '"started_at": "x2', 1),
                 "run.started_at: Input should be a valid datetime"),
    "an infinite bound": (replacing('"lower": null', '"lower": 1e999'),
                          "verdicts.0.lower: Input should be a finite number"),
    "half a character": (replacing("complete", "\\ud800", 1), "Invalid JSON: "),
    "of another run": (replacing('"s2"', '"s1"', 1), "contains the run t1/s1/20260131T010203Z-0a1b"),
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_an_unreadable_document_is_reported(
    results: Path, document: RunDocument, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage, reason = BROKEN[how]
    for number in (0, 1):
        store_document(night(document, number), results)
    whole = read_history(results)
    broken = store_document(night(document, 1, sut="s2"), results)
    damage(broken / RUN)
    read: list[Path] = []
    opened = store.open_run
    monkeypatch.setattr(store, "open_run", lambda path, **options: (read.append(path), opened(path, **options))[1])
    for times in (1, 1):  # the fault is kept until the file changes
        history = read_history(results)
        assert read == [broken / RUN] * times
        (unreadable,) = history.unreadable
        assert (unreadable.testbed, unreadable.sut, unreadable.night) == ("t1", "s2", date(2026, 1, 31))
        assert unreadable.file == f"t1/s2/{broken.name}/{RUN}"
        assert reason in unreadable.reason
        assert str(results) not in unreadable.reason
        assert np.array_equal(history.values, whole.values, equal_nan=True)
        assert (history.nights, history.series, history.runs) == (whole.nights, whole.series, whole.runs)
    assert read_history(results, sut="s1").unreadable == ()
    assert read_history(results, until=date(2026, 1, 30)).unreadable == ()
    monkeypatch.undo()
    monkeypatch.setattr(index, "CACHE", results.parents[1] / "cache")
    shutil.rmtree(broken)
    store_document(night(document, 1, sut="s2"), results)
    mended = read_history(results)
    assert mended.unreadable == ()
    assert list(mended.runs) == [("t1", "s1"), ("t1", "s2")]


def test_a_change_with_equal_size_and_mtime_is_detected(results: Path, document: RunDocument) -> None:
    path = store_document(night(document, 0), results) / RUN
    before = path.stat()
    first = read_history(results, metric=METRIC)
    text = path.read_text()
    status = text.replace('"status": "complete"', '"status": "complex0"', 1)
    assert status != text
    path.write_text(status)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    (unreadable,) = read_history(results, metric=METRIC).unreadable
    assert "status" in unreadable.reason
    path.write_text(text)
    again = read_history(results, metric=METRIC)
    assert again.unreadable == ()
    assert np.array_equal(again.values, first.values)


def test_a_night_with_only_unreadable_documents_can_be_requested(results: Path, document: RunDocument) -> None:
    store_document(night(document, 0), results)
    broken = store_document(night(document, 5), results)
    (broken / RUN).write_text("")
    newest = FIRST.date() + timedelta(days=5)
    assert read_history(results).nights == (FIRST.date(),)
    asked = read_history(results, until=newest)
    assert asked.nights == (FIRST.date(), newest)
    assert np.isnan(asked.values[:, 1]).all()
    shutil.rmtree(results / "t1" / "s1" / night(document, 0).run.id)
    only = read_history(results)
    assert (only.nights, only.series, only.runs) == ((newest,), (), {})


def test_a_document_deleted_during_the_update_is_missing(
    results: Path, document: RunDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (0, 1):
        run = store_document(night(document, number), results)
    load = index._load

    def late(*arguments: Any) -> None:
        shutil.rmtree(run, ignore_errors=True)
        load(*arguments)

    monkeypatch.setattr(index, "_load", late)
    assert read_history(results).nights == (FIRST.date(),)


def test_an_unreadable_directory_is_reported(
    results: Path, document: RunDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_document(night(document, 0), results)
    scandir = os.scandir

    def refuse(path: Path) -> Any:
        if Path(path).name == "s1":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    store_document(night(document, 0, sut="s2"), results)
    for _ in range(2):
        history = read_history(results)
        assert list(history.runs) == [("t1", "s2")]
        (unreadable,) = history.unreadable
        assert (unreadable.file, unreadable.reason) == ("t1/s1", "the directory cannot be read")
    monkeypatch.undo()
    monkeypatch.setattr(index, "CACHE", results.parents[1] / "cache")
    assert list(read_history(results).runs) == [("t1", "s1"), ("t1", "s2")]


def test_an_inaccessible_run_is_retried(results: Path, document: RunDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (0, 1):
        store_document(night(document, number), results)
    lstat = os.lstat

    def refused(path: Any) -> bool:
        return str(path).endswith(f"{night(document, 0).run.id}/{RUN}")

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if refused(path):
            raise PermissionError(13, "Permission denied", str(path))
        return lstat(path, **options)

    opened = store.open_run

    def closed(path: Path) -> Any:
        raise InputError(f"{path}: Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", refuse)
        patched.setattr(store, "open_run", lambda path, **_: closed(path) if refused(path) else opened(path))
        (unreadable,) = read_history(results).unreadable
    assert unreadable.file == f"t1/s1/{night(document, 0).run.id}/{RUN}"
    assert len(read_history(results).nights) == 2


def test_results_must_be_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no directory of results at"):
        read_history(tmp_path / "none")


def test_other_files_are_ignored(results: Path, document: RunDocument) -> None:
    store_document(night(document, 0), results)
    for name in ("references/baselines/sut", "t1/s1/20260131T000000Z-aaaa/report", "t1/s1/.imported-1.ab", ".git/a/b"):
        (results / name).mkdir(parents=True)
        (results / name / RUN).write_text("{")
    (results / "notes.txt").write_text("by hand")
    (results / "t1" / "s1" / "notes.txt").write_text("by hand")
    assert len(read_history(results).nights) == 1


# Documents of other versions and sizes


def test_a_document_larger_than_the_default_limit_is_read(results: Path, document: RunDocument) -> None:
    run = store_document(night(document, 0), results)
    raw = json.loads((run / RUN).read_bytes())
    raw["measurements"][0]["parameters"]["text"] = "x" * (index.MIN_OBJECT_BYTES + 1)
    (run / RUN).write_text(json.dumps(raw))
    assert len(read_history(results).nights) == 1


# What it is done with


def test_writes_only_to_the_cache(results: Path, document: RunDocument, tmp_path: Path) -> None:
    store_document(night(document, 0), results)
    home, work = tmp_path / "home", tmp_path / "work"
    for path in (home, work):
        path.mkdir()
        path.chmod(0o555)
    code = (
        "import sys, duckdb; from pathlib import Path; from calibration.results.index import read_history;"
        "print(read_history(Path(sys.argv[1])).values.shape)"
    )
    for given in ({"HOME": str(home)}, {"HOME": ""}, {}):
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(index.__file__).parents[2]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CALIBRATION_CACHE_DIR": str(tmp_path / "other"),
            **given,
        }
        ended = subprocess.run(
            [sys.executable, "-c", code, results], env=environment, cwd=work, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.startswith("(")
    assert not [*home.iterdir(), *work.iterdir()]
    assert sorted(path.name for path in results.iterdir()) == ["t1"]


def test_duckdb_is_sandboxed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    refresh = index._refresh

    def look(db: duckdb.DuckDBPyConnection, *rest: Any) -> None:
        seen.append(dict(db.execute("SELECT name, value FROM duckdb_settings()").fetchall()))
        refresh(db, *rest)

    monkeypatch.setattr(index, "_refresh", look)
    connect = duckdb.connect

    def drawing(*arguments: Any, **options: Any) -> duckdb.DuckDBPyConnection:
        db = connect(*arguments, **options)
        db.execute("SET enable_progress_bar = true")  # as it is where DuckDB finds no script
        return db

    monkeypatch.setattr(duckdb, "connect", drawing)
    read_history(results)
    (settings,) = seen
    assert settings["enable_progress_bar"] == "false"
    for name in ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions"):
        assert settings[name] == "false"
    assert settings["threads"] == str(len(os.sched_getaffinity(0)))
    home = str(index.index_of(results))
    assert (settings["home_directory"], settings["temp_directory"]) == (home, f"{home}/.spill")


def test_an_unwritable_index_is_reported(
    results: Path, document: RunDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_document(night(document, 0), results)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(index, "CACHE", tmp_path / "file")
    with pytest.raises(EnvironmentLacksError, match="CALIBRATION_CACHE_DIR"):
        read_history(results)


def test_a_server_without_locks_is_reported(
    results: Path, document: RunDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    store_document(night(document, 0), results)
    monkeypatch.setattr(index, "flock", flock)
    with pytest.raises(EnvironmentLacksError, match=r"No locks available.*CALIBRATION_CACHE_DIR"):
        read_history(results)


def test_a_full_disk_is_reported(results: Path, document: RunDocument, file_size_limit: Callable[[int], None]) -> None:
    store_document(night(document, 0), results)
    file_size_limit(100)
    with pytest.raises(EnvironmentLacksError, match="cannot write the index of the results"):
        read_history(results)
    file_size_limit(1 << 30)
    assert len(read_history(results).nights) == 1


def test_consistency_comes_from_the_last_night(results: Path) -> None:
    document = run_document(names=("idle_latency", "latency_matrix", "bandwidth_ladder", "bandwidth_ladder-all"))

    def made(number: int, factor: float, **run: Any) -> RunDocument:
        of = night(document, number, factor=factor, **run)
        return of.model_copy(update={"consistency": cross_checks(of.measurements)})

    for item in (made(0, 3.0), made(1, 1.0), made(0, 3.0, sut="s2"), made(1, 3.0, sut="s3")):
        store_document(item, results)
    found = read_history(results).consistency
    assert set(found) == {("t1", "s1"), ("t1", "s3")}
    outcomes = {sut: {verdict.metric: verdict.outcome for verdict in found["t1", sut]} for sut in ("s1", "s3")}
    ladder = {f"bandwidth_ladder.one_CPU.{mix}.memory.program_mb_s": "pass" for mix in ("reads", "write", "copy")}
    assert outcomes == {"s1": {METRIC: "pass", **ladder}, "s3": {METRIC: "fail", **ladder}}
    (check,) = (item for item in found["t1", "s3"] if item.metric == METRIC)
    stored = next(item for item in made(1, 3.0).consistency if item.figure.name == METRIC)
    values = (check.value, check.unit, check.interval, check.bound, check.reason)
    assert values == (stored.figure.value, stored.figure.unit, stored.figure.interval, stored.bound, stored.reason)
    past = read_history(results, until=date(2026, 1, 30)).consistency
    assert {sut: [verdict.outcome for verdict in of if verdict.metric == METRIC] for sut, of in past.items()} == {
        ("t1", "s1"): ["fail"],
        ("t1", "s2"): ["fail"],
    }
