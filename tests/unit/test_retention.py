# SPDX-License-Identifier: Apache-2.0
"""Old runs are removed by policy, and nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.files import pending
from calibration.nightly.retention import Policy, UnreadableReferenceError, expired, remove
from calibration.results.nights import night_of
from tests.report.report_documents import run_document

TONIGHT = date(2026, 11, 22)


@pytest.mark.parametrize(("run_id", "night"), [
    ("20261122T023005Z-3f2a", TONIGHT),
    ("20261322T023005Z-3f2a", None),
    ("20261122T023005Z-3f2a.old", None),
    ("imported-0123456789ab", None),
])  # fmt: skip
def test_the_night_is_in_the_name_of_a_run(run_id: str, night: date | None) -> None:
    assert night_of(run_id) == night


RAW = ("records.jsonl", "context.tar.gz", "context-2.tar.gz", "meltdown-checker.txt", "mlc/idle.txt", "report/page.rst")


def make_run(results: Path, sut: str, run_id: str, status: str = "complete", names: tuple[str, ...] = RAW) -> Path:
    directory = results / "t1" / sut / run_id
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "run.json").write_text(document("t1", sut, run_id, status))
    return directory


@cache
def unnamed() -> dict[str, Any]:
    return run_document(names=()).model_dump(mode="json")


def document(testbed: str, sut: str, run_id: str, status: str) -> str:
    run = {**unnamed()["run"], "testbed": testbed, "sut": sut, "id": run_id, "status": status}
    return json.dumps({**unnamed(), "run": run})


def of(day: int) -> str:
    return f"202611{day:02d}T023000Z-00{day:02d}"


def names_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def nights_of_others(results: Path) -> None:
    """Make a SUT with a run on each night, none of which is removed: its documents cannot be read."""
    for day in range(1, 23):
        make_run(results, "others", of(day), names=())
        (results / "t1" / "others" / of(day) / "run.json").write_text("")


def tidied(results: Path, nights: int, raw_nights: int, tonight: date = TONIGHT) -> list[tuple[str, str]]:
    found = expired(results, tonight, Policy(nights, raw_nights))
    for item in found:
        remove(results, item)
    assert expired(results, tonight, Policy(nights, raw_nights)) == []
    return [(str(omitted.directory), omitted.what) for omitted in found]


def test_everything_is_kept_by_default(tmp_path: Path) -> None:
    make_run(tmp_path, "a", "19990101T000000Z-0000")
    killed = make_run(tmp_path, "a", of(1))
    (killed / "run.json").unlink()
    with pending(killed / "context.tar.gz", b"half") as written:
        os.utime(written, (0, 0))
        make_run(tmp_path, "a", of(22))
        (tmp_path / "references").mkdir()
        (tmp_path / "references" / "x.json").write_text("{")  # nothing of it is asked
        assert expired(tmp_path, TONIGHT, Policy(0, 0)) == []


def test_raw_data_is_removed_before_documents(tmp_path: Path) -> None:
    runs = {day: make_run(tmp_path, "a", of(day)) for day in (1, 12, 11, 22)}
    nights_of_others(tmp_path)
    (runs[1] / "notes.txt").write_text("an operator's")
    assert tidied(tmp_path, 0, 10) == [(f"t1/a/{of(1)}", "raw"), (f"t1/a/{of(11)}", "raw")]
    assert names_in(runs[1]) == {"run.json", "notes.txt"}
    assert names_in(runs[11]) == {"run.json"}
    assert names_in(runs[12]) == names_in(runs[22]) == {"run.json", *RAW}


def test_foreign_files_in_a_run_are_kept(tmp_path: Path) -> None:
    runs = {day: make_run(tmp_path, "a", of(day)) for day in (1, 2, 21, 22)}
    nights_of_others(tmp_path)
    (runs[2] / "notes.txt").write_text("an operator's")
    assert tidied(tmp_path, 20, 10) == [(f"t1/a/{of(1)}", "run"), (f"t1/a/{of(2)}", "raw")]
    assert tidied(tmp_path, 19, 10) == [(f"t1/a/{of(2)}", "run")]
    assert not runs[1].exists()
    assert names_in(runs[2]) == {"notes.txt"}
    assert names_in(runs[21]) == {"run.json", *RAW}


def test_the_newest_and_newest_complete_runs_are_kept(tmp_path: Path) -> None:
    make_run(tmp_path, "a", of(1))
    kept = make_run(tmp_path, "a", of(2))
    make_run(tmp_path, "a", of(3), "incomplete")
    newest = make_run(tmp_path, "a", of(4), "not_begun")
    alone = make_run(tmp_path, "b", of(1), "incomplete")
    assert tidied(tmp_path, 1, 0) == [(f"t1/a/{of(1)}", "run"), (f"t1/a/{of(3)}", "run")]
    assert kept.exists()
    assert newest.exists()
    assert alone.exists()


def test_a_run_that_cannot_be_read_is_not_the_newest(tmp_path: Path) -> None:
    kept = make_run(tmp_path, "a", of(1), "incomplete")
    (make_run(tmp_path, "a", of(2)) / "run.json").write_text("")
    nights_of_others(tmp_path)
    assert tidied(tmp_path, 1, 1) == []
    assert names_in(kept) == {"run.json", *RAW}


def test_referenced_runs_are_kept(tmp_path: Path) -> None:
    kept = make_run(tmp_path, "a", of(1))
    make_run(tmp_path, "a", of(2))
    make_run(tmp_path, "a", of(22))
    reference = tmp_path / "references" / "limits" / "sut" / "t1" / "a.json"
    reference.parent.mkdir(parents=True)
    reference.write_text(json.dumps({"accepted": [{"runs": [{"id": of(1)}]}]}))
    assert tidied(tmp_path, 1, 1) == [(f"t1/a/{of(2)}", "run")]
    assert names_in(kept) == {"run.json", *RAW}


@pytest.mark.parametrize("content", ["{", "\udcff", "[" * 100_000])
def test_an_unreadable_reference_keeps_everything(tmp_path: Path, content: str) -> None:
    make_run(tmp_path, "a", of(1))
    make_run(tmp_path, "a", of(22))
    reference = tmp_path / "references" / "limits" / "platform" / "x.json"
    reference.parent.mkdir(parents=True)
    reference.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UnreadableReferenceError, match=r"platform/x\.json.*nothing was removed"):
        expired(tmp_path, TONIGHT, Policy(1, 1))


def test_only_run_directories_are_touched(tmp_path: Path) -> None:
    make_run(tmp_path, "a", of(22))
    imported = make_run(tmp_path, "a", "imported-0123456789ab", "imported")
    by_hand = make_run(tmp_path, "a", "before-the-move")
    as_if = make_run(tmp_path, "a", of(1), "imported")
    another = make_run(tmp_path, "a", of(2))
    (another / "run.json").write_text(document("t1", "b", of(2), "complete"))
    nonsense = make_run(tmp_path, "a", of(3))
    killed = make_run(tmp_path, "a", of(4))
    (killed / "run.json").unlink()
    hidden = make_run(tmp_path, ".a", of(5))
    make_run(tmp_path, ".a", of(6))
    no_date = make_run(tmp_path, "a", "20269999T999999Z-0000")
    inside = tmp_path / "references" / "a" / of(6)
    inside.mkdir(parents=True)
    (inside / "run.json").write_text("{}")
    (tmp_path / "t1" / "a" / of(7)).write_text("a file")
    before = names_in(tmp_path)
    newer = document("t1", "a", of(3), "complete").replace('"run/1"', '"run/99"')
    for content in ("", "[]", "7", '{"run": []}', "\x00", "[" * 100_000, newer):
        (nonsense / "run.json").write_text(content)
        assert tidied(tmp_path, 1, 1) == [], content
    for path in (imported, by_hand, as_if, another, nonsense, killed, hidden, no_date, inside):
        assert path.exists(), path
    assert names_in(tmp_path) == before


def test_half_written_files_of_killed_controllers_are_removed_after_a_day(tmp_path: Path) -> None:
    make_run(tmp_path, "a", of(22))
    old, ended, never_begun, tonight, by_hand = (
        make_run(tmp_path, sut, name)
        for sut, name in (("a", of(1)), ("a", of(2)), ("a", of(3)), ("a", of(21)), ("a", "by-hand"))
    )
    for directory in (never_begun, tonight):
        shutil.rmtree(directory)
        directory.mkdir()
    (ended / "run.json").unlink()
    os.utime(ended / "records.jsonl", (0, 0))
    moved = make_run(tmp_path, "a", "moved", names=())
    (moved / "run.json").unlink()
    for directory in (old, ended, never_begun, tonight, by_hand, moved):
        with pending(directory / "context.tar.gz", b"half") as written:
            written.rename(directory / "kept")
        (directory / "kept").rename(written)  # as if the process was killed in the block
        if directory != tonight:
            os.utime(written, (0, 0))
    found = tidied(tmp_path, 1, 1)
    assert found == [(f"t1/a/{of(2)}", "partial"), (f"t1/a/{of(3)}", "partial"), (f"t1/a/{of(1)}", "run")]
    assert names_in(ended) == {*RAW}
    assert not never_begun.exists()
    assert not old.exists()
    assert len(names_in(tonight)) == 1
    assert names_in(by_hand) > {"run.json", *RAW}
    assert len(names_in(moved)) == 1


def test_a_half_written_file_may_be_a_link_to_nothing(tmp_path: Path) -> None:
    make_run(tmp_path, "a", of(22))
    killed = make_run(tmp_path, "a", of(1), names=())
    (killed / "run.json").unlink()
    with pending(killed / "context.tar.gz", b"") as written:
        name = written.name
    (killed / name).symlink_to(tmp_path / "missing")
    os.utime(killed / name, (0, 0), follow_symlinks=False)
    assert tidied(tmp_path, 1, 1) == [(f"t1/a/{of(1)}", "partial")]
    assert not killed.exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    old = make_run(results, "a", of(1), names=("records.jsonl",))
    make_run(results, "a", of(22))
    real = make_run(elsewhere, "b", of(1))
    make_run(elsewhere, "b", of(22))
    (results / "t1" / "b").symlink_to(elsewhere / "t1" / "b")
    (results / "t1" / "a" / of(2)).symlink_to(real)
    (results / "t2").symlink_to(elsewhere / "t1")
    (old / "report").symlink_to(real)
    (old / "context.tar.gz").symlink_to(real / "context.tar.gz")
    assert tidied(results, 1, 1) == [(f"t1/a/{of(1)}", "run")]
    assert not old.exists()
    assert names_in(real) == {"run.json", *RAW}


@pytest.mark.parametrize("policy", [Policy(-1, 0), Policy(0, -1)])
def test_a_negative_number_of_nights_is_refused(tmp_path: Path, policy: Policy) -> None:
    with pytest.raises(InputError, match="must not be negative"):
        expired(tmp_path, TONIGHT, policy)


def test_results_must_be_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no directory of results"):
        expired(tmp_path / "missing", TONIGHT, Policy(1, 1))


def test_unremovable_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path, "a", of(1))
    make_run(tmp_path, "a", of(22))

    def refuse(_path: Path, **_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    (found,) = expired(tmp_path, TONIGHT, Policy(1, 0))
    with pytest.raises(EnvironmentLacksError, match=r"cannot remove the expired run .*: Permission denied"):
        remove(tmp_path, found)


def dated(night: str) -> str:
    return f"{night}T023000Z-0000"


@pytest.mark.parametrize("jumped", ["20990101", "20010101"])
def test_a_clock_that_jumped_deletes_nothing(tmp_path: Path, jumped: str, clock: Callable[[date], None]) -> None:
    clock(date.fromisoformat(jumped))
    for day in range(13, 23):
        make_run(tmp_path, "a", of(day))
    make_run(tmp_path, "a", dated(jumped))
    before = names_in(tmp_path)
    with suppress(InputError):
        assert tidied(tmp_path, 30, 30, date.fromisoformat(jumped)) == []
    assert names_in(tmp_path) == before


def test_a_night_after_the_clock_is_refused_by_name(tmp_path: Path, clock: Callable[[date], None]) -> None:
    clock(TONIGHT)
    for day in (1, 2, 22):
        make_run(tmp_path, "a", of(day))
    with pytest.raises(InputError, match="the night 2099-01-01 is far from the other nights: nothing was removed"):
        expired(tmp_path, date(2099, 1, 1), Policy(1, 1))


def test_the_run_of_a_clock_that_jumped_is_not_the_newest_and_is_kept(
    tmp_path: Path, clock: Callable[[date], None]
) -> None:
    clock(TONIGHT)
    newest = make_run(tmp_path, "a", of(2))
    wrong = make_run(tmp_path, "a", dated("20990101"))
    make_run(tmp_path, "a", of(1))
    nights_of_others(tmp_path)
    assert tidied(tmp_path, 1, 1) == [(f"t1/a/{of(1)}", "run")]
    assert newest.exists()
    assert wrong.exists()


def test_nights_are_counted_not_days(tmp_path: Path) -> None:
    weekly = [make_run(tmp_path, "a", of(day)) for day in (1, 8, 15, 22)]
    assert tidied(tmp_path, 3, 0) == [(f"t1/a/{of(1)}", "run")]
    assert not weekly[0].exists()
    assert all(run.exists() for run in weekly[1:])
