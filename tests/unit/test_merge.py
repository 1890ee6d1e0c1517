# SPDX-License-Identifier: Apache-2.0
"""Results of several controllers become one: nothing is lost, doubled, overwritten or half copied."""

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.base.errors import BAD_INPUT, GOOD, EnvironmentLacksError, InputError
from calibration.commands.merging import merge_command
from calibration.finish import finish
from calibration.judge.night import judge_night
from calibration.measurements.platform import ShapeReference, platform_of
from calibration.results.kept_shapes import keep_references, path_of
from calibration.results.layout import RECORDS, RUN, find_runs
from calibration.run.lifecycle import BegunRun, resume
from calibration.run.merge import LOCK, STAGING, Merged, merge
from calibration.run.records import EndRecord, append_record
from tests.captures import captured
from tests.unit import histories
from tests.unit.test_references import searched
from tests.unit.test_results import CAPTURE, NOW, begin, end_step

LATER = datetime(2026, 1, 2, 4, 4, 5, tzinfo=UTC)
IDENTITY = ("t1", "s1", "r1")


def end_run(directory: Path, now: datetime = NOW) -> None:
    append_record(directory, EndRecord(finished_at=now, interrupted=False))
    finish(directory, now=now)


def make_run(results: Path, sut: str = "s1", step: str = "idle_latency") -> Path:
    """Store an incomplete run of *sut* with its page, and return its directory."""
    begun = begin(results, sut=sut)
    end_step(begun, step)
    end_run(begun.directory)
    (begun.directory / "report").mkdir()
    (begun.directory / "report" / "page.rst").write_text("page")
    (begun.directory / f".{RUN}.partial").write_text("left by a kill")
    return begun.directory


def continue_run(directory: Path, step: str = "latency_matrix") -> None:
    begun = resume(directory, capture=CAPTURE, now=LATER)
    end_step(begun, step)
    end_run(directory, LATER)


def files(results: Path) -> dict[str, bytes]:
    """Return the files of *results*, without the lock."""
    found = {str(path.relative_to(results)): path.read_bytes() for path in results.rglob("*") if path.is_file()}
    assert not (results / STAGING).exists()
    found.pop(LOCK, None)
    return found


def public(results: Path) -> dict[str, bytes]:
    """Return the files of *results* that are merged."""
    return {name: content for name, content in files(results).items() if "report" not in name and "/." not in name}


@pytest.fixture
def slices(tmp_path: Path) -> list[Path]:
    """Return the results of two slices, with three SUTs of one testbed: the controller of one was killed."""
    make_run(tmp_path / "slice1", "s1")
    make_run(tmp_path / "slice1", "s3")
    end_step(begin(tmp_path / "slice2", sut="s2"), "idle_latency")
    return [tmp_path / "slice1", tmp_path / "slice2"]


def test_runs_of_all_slices_are_copied_once(slices: list[Path], tmp_path: Path) -> None:
    merged = tmp_path / "merged"
    before = [files(part) for part in slices]
    assert merge(merged, slices) == Merged(3, 0, ())
    assert files(merged) == public(slices[0]) | public(slices[1])
    for part in slices:
        for name in public(part):
            assert (merged / name).stat().st_mtime_ns == (part / name).stat().st_mtime_ns
    stamps = {path: path.stat().st_mtime_ns for path in merged.rglob("*")}
    assert merge(merged, slices) == Merged(0, 3, ())
    assert merge(merged, [*slices, *slices]) == Merged(0, 6, ())
    del stamps[merged / LOCK]
    assert stamps == {path: path.stat().st_mtime_ns for path in stamps}
    assert [files(part) for part in slices] == before
    end_run(merged / "t1" / "s2" / "r1")
    assert len(find_runs(merged)) == 3


def test_a_continued_run_replaces_its_beginning_but_not_the_reverse(tmp_path: Path) -> None:
    run = make_run(tmp_path / "slice")
    shutil.copytree(tmp_path / "slice", tmp_path / "before")
    merge(tmp_path / "merged", [tmp_path / "slice"])
    continue_run(run)
    assert merge(tmp_path / "merged", [tmp_path / "slice"]) == Merged(1, 0, ())
    assert files(tmp_path / "merged") == public(tmp_path / "slice")
    assert "t1/s1/r1/context-2.tar.gz" in files(tmp_path / "merged")
    assert merge(tmp_path / "merged", [tmp_path / "before"]) == Merged(0, 1, ())
    assert files(tmp_path / "merged") == public(tmp_path / "slice")


@pytest.mark.parametrize("go_on", [
    lambda begun: finish(begun.directory, now=NOW),
    lambda begun: end_run(begun.directory),
    lambda begun: end_step(begun, "idle_latency"),
])  # fmt: skip
def test_a_run_without_a_document_is_merged_again_when_it_has_more(
    tmp_path: Path, go_on: Callable[[BegunRun], Any]
) -> None:
    begun = begin(tmp_path / "slice")
    merge(tmp_path / "merged", [tmp_path / "slice"])
    go_on(begun)
    assert merge(tmp_path / "merged", [tmp_path / "slice"]) == Merged(1, 0, ())
    assert files(tmp_path / "merged") == public(tmp_path / "slice")


def test_a_run_that_lost_its_raw_data_to_retention_is_known(tmp_path: Path) -> None:
    make_run(tmp_path / "slice")
    merge(tmp_path / "merged", [tmp_path / "slice"])
    kept = tmp_path.joinpath("merged", *IDENTITY)
    for name in (RECORDS, "context.tar.gz"):
        (kept / name).unlink()
    assert merge(tmp_path / "merged", [tmp_path / "slice"]) == Merged(0, 1, ())
    (kept / RUN).touch()  # an unpacked archive keeps no times
    assert merge(tmp_path / "merged", [tmp_path / "slice"]) == Merged(0, 1, ())
    assert [path.name for path in kept.iterdir()] == [RUN]


def test_a_run_with_other_content_is_refused_with_both_paths(tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    make_run(tmp_path / "two", step="latency_matrix")
    make_run(tmp_path / "two", "s2")
    merge(tmp_path / "merged", [tmp_path / "one"])
    copied, known, (refused,) = merge(tmp_path / "merged", [tmp_path / "two"])
    assert (copied, known) == (1, 0)
    assert f"t1/s1/r1 of {tmp_path / 'two'}: differs from {tmp_path / 'merged'}/t1/s1/r1; " in refused
    found = files(tmp_path / "merged")
    assert {name: found[name] for name in public(tmp_path / "one")} == public(tmp_path / "one")


def test_other_content_of_the_same_size_differs(tmp_path: Path) -> None:
    run = make_run(tmp_path / "slice")
    merge(tmp_path / "merged", [tmp_path / "slice"])
    text, found = (run / RUN).read_text(), (run / RUN).stat()
    (run / RUN).write_text(text.replace('"incomplete"', '"INCOMPLETE"'))
    os.utime(run / RUN, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    assert (run / RUN).stat().st_size == found.st_size
    before = files(tmp_path / "merged")
    (refused,) = merge(tmp_path / "merged", [tmp_path / "slice"]).refused
    assert "differs from" in refused
    assert files(tmp_path / "merged") == before


def test_a_copy_is_on_disk_before_it_is_a_run(
    slices: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, rename = os.fsync, Path.rename
    on_disk: dict[Path, bytes] = {}
    renamed = []

    def syncing(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        on_disk[path] = path.read_bytes()
        fsync(descriptor)

    def renaming(source: Path, target: Path) -> Path:
        copied = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
        assert {path: on_disk.get(path) for path in copied} == copied
        renamed.append(target)
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    assert merge(tmp_path / "merged", slices) == Merged(3, 0, ())
    assert len(renamed) == 3


def _change_identity(run: Path) -> None:
    raw = json.loads((run / RUN).read_bytes())
    raw["run"]["sut"] = "s2"
    (run / RUN).write_text(json.dumps(raw))


def _change_records(run: Path) -> None:
    (run / RUN).unlink()
    (run / RECORDS).write_text('{"record": "end"}\n')


def _add_link(run: Path) -> None:
    (run / "passwd").symlink_to("/etc/passwd")


def _add_linked_folder(run: Path) -> None:
    (run / "mlc").symlink_to("/etc")


def _link_run(run: Path) -> None:
    outside = run.parents[3] / "outside"
    run.rename(outside)
    run.symlink_to(outside)


@pytest.mark.parametrize(("damage", "reason"), [
    (lambda run: (run / RUN).write_text("{}"), "schema_version: Field required"),
    (lambda run: (run / RUN).write_text('{"schema_version": "run/1"}'), "not a run document: run: "),
    (lambda run: (run / "context.tar.gz").write_bytes(CAPTURE[:-1]), "its sha256 differs from the run document"),
    (lambda run: run.rename(run.with_name("bad name")), "not a valid run identifier name"),
    (_change_identity, "contains the run t1/s2/r1"),
    (_change_records, "does not begin with the start of a run"),
    (_add_link, "a symbolic link"),
    (_add_linked_folder, "a symbolic link"),
    (_link_run, "a symbolic link"),
])  # fmt: skip
def test_a_damaged_run_is_refused(tmp_path: Path, damage: Callable[[Path], Any], reason: str) -> None:
    damage(make_run(tmp_path / "slice"))
    make_run(tmp_path / "slice", "s2")
    copied, known, refused = merge(tmp_path / "merged", [tmp_path / "slice"])
    assert (copied, known, len(refused)) == (1, 0, 1)
    assert "t1/s1/" in refused[0]
    assert f"of {tmp_path / 'slice'}: " in refused[0]
    assert reason in refused[0]
    assert [run.parent.name for run in find_runs(tmp_path / "merged")] == ["s2"]


def test_an_interrupted_merge_shows_whole_runs_only_and_is_repeated(
    slices: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = tmp_path / "merged"

    def killed(_source: Path, _target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            merge(merged, slices)
    assert (merged / STAGING / RUN).exists()
    assert find_runs(merged) == []
    assert merge(merged, slices) == Merged(3, 0, ())
    assert files(merged) == public(slices[0]) | public(slices[1])


@pytest.mark.parametrize("left", range(4))
def test_an_interrupted_replacement_is_repeated(left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "slice")
    merge(tmp_path / "merged", [tmp_path / "slice"])
    continue_run(run)
    moved, replace = [], Path.replace

    def killed(source: Path, target: Path) -> None:
        if len(moved) == left:
            raise KeyboardInterrupt
        moved.append(target)
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            merge(tmp_path / "merged", [tmp_path / "slice"])
    assert merge(tmp_path / "merged", [tmp_path / "slice"]) == Merged(1, 0, ())
    assert files(tmp_path / "merged") == public(tmp_path / "slice")


def test_concurrent_merges_copy_each_run_once(slices: list[Path], tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as workers:
        merged = list(workers.map(lambda _: merge(tmp_path / "merged", slices), range(4)))
    assert (sum(one.copied for one in merged), sum(one.known for one in merged)) == (3, 9)
    assert not any(one.refused for one in merged)


def test_learned_references_are_merged_and_never_replaced(tmp_path: Path) -> None:
    context = captured("x86_64-two-nodes-smt")
    document = searched(context)
    other = document.model_copy(update={"run": document.run.model_copy(update={"sut": "t2"})})
    for name, of in (("one", document), ("two", other)):
        keep_references(tmp_path / name, of)
        (tmp_path / name / "references" / "waivers.yml").write_text("[]")
    path = path_of(tmp_path / "merged", ShapeReference, platform_of(context))
    assert merge(tmp_path / "merged", [tmp_path / "one", tmp_path / "two"]) == Merged(0, 0, ())
    assert files(tmp_path / "merged") == {
        str(path.relative_to(tmp_path / "merged")): (
            tmp_path / "one" / path.relative_to(tmp_path / "merged")
        ).read_bytes()
    }
    path.unlink()
    (tmp_path / "one" / path.relative_to(tmp_path / "merged")).write_text("{}")
    copied, known, (refused,) = merge(tmp_path / "merged", [tmp_path / "one", tmp_path / "two"])
    assert (copied, known) == (0, 0)
    assert "one/references/traffic_shape" in refused
    assert "it was not merged" in refused
    assert json.loads(path.read_bytes())["run"]["sut"] == "t2"


@pytest.mark.parametrize(("source", "reason"), [("gone", "no directory"), (".", "overlaps"), ("merged/in", "overlaps")])
def test_a_source_is_a_directory_of_its_own(tmp_path: Path, source: str, reason: str) -> None:
    (tmp_path / "merged" / "in").mkdir(parents=True)
    make_run(tmp_path / "slice")
    with pytest.raises(InputError, match=reason):
        merge(tmp_path / "merged", [tmp_path / "slice", tmp_path / source])
    assert find_runs(tmp_path / "merged") == []


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "slice")
    (tmp_path / "merged").write_text("not a directory")
    with pytest.raises(EnvironmentLacksError, match=r"cannot merge into .*merged"):
        merge(tmp_path / "merged", [tmp_path / "slice"])


def test_the_command_prints_what_it_did(slices: list[Path], tmp_path: Path) -> None:
    arguments = [str(tmp_path / "merged"), *map(str, slices)]
    done = CliRunner().invoke(merge_command, arguments)
    assert (done.exit_code, done.output) == (GOOD, f"{arguments[0]}: 3 runs merged, 0 there already, 0 refused\n")
    (slices[0] / "t1" / "s1" / "r1" / RUN).write_text("{}")
    done = CliRunner().invoke(merge_command, arguments)
    assert done.exit_code == BAD_INPUT
    assert done.stderr.startswith("refused: ")
    assert done.stdout.endswith(": 0 runs merged, 2 there already, 1 refused\n")


def test_slices_of_a_testbed_are_judged_as_one_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SUT that differs from those of other slices is found, whatever the identifiers of their runs."""
    levels = {f"t{number}": (115.0 if number == 3 else 100.0) for number in range(6)}
    for number, (sut, level) in enumerate(levels.items()):
        figures = histories.noise(8, level, 0.002, seed=number)
        for place in ("one", f"slice{number % 3}"):
            with monkeypatch.context() as patch:
                patch.setattr(
                    histories,
                    "run_id",
                    lambda night, by=number % 3: f"{histories.night_of(night):%Y%m%d}T02000{by}Z-0a1b",
                )
                histories.stored(tmp_path / place, figures, sut=sut)
    assert merge(tmp_path / "merged", [tmp_path / f"slice{number}" for number in range(3)]) == Merged(48, 0, ())
    judged = judge_night(tmp_path / "merged", histories.night_of(7))
    assert judged == judge_night(tmp_path / "one")
    different = {(verdict.sut, verdict.outcome) for verdict in judged.verdicts if verdict.check == "homogeneity"}
    assert different == {(sut, "fail" if sut == "t3" else "pass") for sut in levels}
