# SPDX-License-Identifier: Apache-2.0
"""No operation opens a file of shared results by a name in whose place another user may plant something."""

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from calibration.base.errors import InputError
from calibration.finish import finish
from calibration.judge.baseline_files import add_acceptance
from calibration.judge.baselines import propose
from calibration.judge.night import judge_night
from calibration.judge.standing import Standings
from calibration.nightly.lock import hold
from calibration.nightly.retention import Policy, expired
from calibration.report.rendering import render_run
from calibration.results.layout import run_directory
from calibration.results.store import read_run
from calibration.run import lifecycle
from calibration.run.attempts import complete_suts, newest_unfinished, outstanding
from calibration.run.records import EndRecord, NoteRecord, append_record, record_checker
from tests.planting import opens
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
    "assemble": lambda results: finish(measured(results), now=NOW),
    "read": lambda results: read_run(measured(results)),
    "complete": lambda results: complete_suts(results, "r1"),
    "missing": lambda results: newest_unfinished(results, {("t1", "s1")}),
    "page": lambda results: render_run(measured(results), Standings()),
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
    finish(directory, now=NOW)
    accept(results)
    return results


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_file_is_opened_by_its_name(lab: Path, tmp_path: Path, operation: str) -> None:
    """Each is opened as the file that was found to be a regular one: test_files.py plants all kinds in its place."""
    results = tmp_path / "results"
    shutil.copytree(lab, results)
    with opens(resolved=True) as opened:
        OPERATIONS[operation](results)
    assert [path for path in opened if path.startswith("/proc/self/fd/")]
    below = [Path(path) for path in opened if Path(path).is_relative_to(results)]
    # Not even resolved, except those in a pending directory, which is gone or has another name now.
    assert [path for path in below if path.parent.is_dir() and not path.is_dir()] == []


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
