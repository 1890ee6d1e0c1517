# SPDX-License-Identifier: Apache-2.0
"""Files that another user plants in shared results are neither opened nor written to.

The files to replace are those that each operation opens in results without a fault.
"""

import shutil
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

from calibration import files, lifecycle
from calibration.errors import CalibrationError, InputError
from calibration.judge.baseline_files import add_acceptance
from calibration.judge.baselines import propose
from calibration.judge.night import judge_night
from calibration.nightly.lock import hold
from calibration.nightly.retention import Policy, expired
from calibration.report import render_run
from calibration.results.attempts import complete_suts, newest_unfinished, outstanding
from calibration.results.layout import run_directory
from calibration.results.records import EndRecord, NoteRecord, append_record, record_checker
from calibration.results.store import read_run
from tests.planting import KINDS, opens, plant, watched
from tests.unit.histories import noise, run_id, stored
from tests.unit.test_results import CAPTURE, NOW, checker_run, end_step

pytestmark = pytest.mark.usefixtures("own_index")

SUT = "t1/s1/r1"
"""The run that was measured; those of lab/t1 only have a document."""


def measured(results: Path) -> Path:
    return results / SUT


def resume(results: Path) -> None:
    lifecycle.resume(measured(results), capture=CAPTURE, now=NOW)


def accept(results: Path) -> None:
    run = results / "lab/t1" / run_id(2)
    (proposal,) = propose([run], scope="sut", by="me", reason="new", metrics=(), now=NOW)
    assert proposal.acceptance is not None
    add_acceptance(results, proposal.place, proposal.acceptance)


def begin(results: Path) -> None:
    lifecycle.begin(results, testbed="t1", sut="s2", run_id="r2", profile="nightly", capture=CAPTURE, now=NOW)


OPERATIONS: dict[str, Callable[[Path], object]] = {
    "judge": judge_night,
    "accept": accept,
    "retention": lambda results: expired(results, date(2026, 1, 20), Policy(nights=1, raw_nights=1)),
    "lock": lambda results: hold(results, NOW).close(),
    "begin": begin,
    "resume": resume,
    "outstanding": lambda results: outstanding(measured(results)),
    "record": lambda results: append_record(measured(results), NoteRecord(reason="a reason")),
    "assemble": lambda results: lifecycle.finish(measured(results), now=NOW),
    "read": lambda results: read_run(measured(results)),
    "complete": lambda results: complete_suts(results, "r1"),
    "missing": lambda results: newest_unfinished(results, {("t1", "s1")}),
    "page": lambda results: render_run(measured(results)),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("lab")
    stored(results, noise(3))
    begun = lifecycle.begin(results, testbed="t1", sut="s1", run_id="r1", profile="quick", capture=CAPTURE, now=NOW)
    end_step(begun, "idle_latency")
    directory = begun.directory
    record_checker(directory, checker_run(), b"{}")
    append_record(directory, EndRecord(finished_at=NOW, interrupted=False))
    lifecycle.finish(directory, now=NOW)
    accept(results)
    return results


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Collect the files that are looked up to be opened."""
    found: list[Path] = []
    real = files._find

    def find(path: Path, below: Path) -> int:
        found.append(path)
        return real(path, below)

    monkeypatch.setattr(files, "_find", find)
    return found


def reason(operation: Callable[[Path], object], results: Path, path: Path) -> str:
    """Return why *operation* failed; *path* itself if it did not, because it does not need the file."""
    try:
        operation(results)
    except CalibrationError as error:
        return str(error)
    return str(path)


@pytest.mark.parametrize(
    "everywhere",
    [pytest.param(False, id="once"), pytest.param(True, id="everywhere", marks=pytest.mark.thorough)],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_planted_files_are_not_opened(
    lab: Path,
    tmp_path: Path,
    looked_up: list[Path],
    operation: str,
    *,
    everywhere: bool,
) -> None:
    """Replace each file by one kind of planted file, in turn, or by all kinds."""
    results = tmp_path / "results"
    shutil.copytree(lab, results)
    with opens() as opened:
        OPERATIONS[operation](results)
    below = [Path(path) for path in opened if Path(path).is_relative_to(results)]
    # No file by its name, except those in a pending directory, which is gone or has another name now.
    assert [path for path in below if path.parent.is_dir() and not path.is_dir()] == []
    paths = {path.relative_to(results) for path in looked_up if path.is_relative_to(results)}
    assert paths
    outside = tmp_path / "outside"
    for number, path in enumerate(sorted(paths), [*OPERATIONS].index(operation)):
        for kind in KINDS if everywhere else [[*KINDS][number % len(KINDS)]]:
            shutil.rmtree(results)
            shutil.copytree(lab, results)
            outside.write_text("secret")
            plant(kind, results / path, outside)
            with watched(kind, results / path, outside) as witness:
                assert str(path.parent) in reason(OPERATIONS[operation], results, path), (path, kind)
                assert witness.opened() == [], (path, kind)
            assert outside.read_text() == "secret"


@pytest.mark.parametrize("linked", ["lab", "lab/t1", f"lab/t1/{run_id(2)}"])
def test_linked_directories_are_reported(lab: Path, tmp_path: Path, linked: str) -> None:
    results = tmp_path / "results"
    shutil.copytree(lab, results)
    shutil.move(results / linked, tmp_path / "elsewhere")
    (results / linked).symlink_to(tmp_path / "elsewhere")
    failed = [verdict for verdict in judge_night(results).verdicts if verdict.check == "unreadable"]
    assert {run.sut for run in failed} == {"t1"}
    assert all(f"{Path(linked).name} is a symbolic link or not a directory" in item.reason for item in failed)
    with pytest.raises(InputError, match="a symbolic link; remove it"):
        run_directory(results, "lab", "t1", run_id(2))


def test_results_may_be_reached_through_a_link(lab: Path, tmp_path: Path) -> None:
    for number, operation in enumerate(OPERATIONS.values()):
        real, results = tmp_path / f"real{number}", tmp_path / f"results{number}"
        shutil.copytree(lab, real)
        results.symlink_to(real)
        operation(results)
