# SPDX-License-Identifier: Apache-2.0
"""Names that people type: unique prefixes of runs, SUTs and commands, and suggestions for unknown ones."""

import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from calibration.base.errors import InputError
from calibration.base.names import pick
from calibration.cli import COMMANDS, calibration
from calibration.profiles import load_profile
from calibration.results.find import find_run, pick_sut, suts_of

RUNS = (
    "t1/a1/20260101T000000Z-0001", "t1/a1/20260102T000000Z-0002", "t1/a1/imported-0123456789ab",
    "t1/a10/20260101T000000Z-0001", "t10/b/20260103T000000Z-0003", "t2/b/20260102T000000Z-0002",
    "t2/c/imported-ffffffffffff",
)  # fmt: skip


@pytest.fixture(name="results")
def _results(tmp_path: Path) -> Path:
    """Return results whose documents are empty: none is to be read."""
    for run in RUNS:
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "run.json").touch()
    return tmp_path


@pytest.mark.parametrize(("given", "found"), [
    (None, "t10/b/20260103T000000Z-0003"),
    ("t1/a1", "t1/a1/20260102T000000Z-0002"),
    ("a1", "t1/a1/20260102T000000Z-0002"),
    ("t2/b", "t2/b/20260102T000000Z-0002"),
    ("t10", "t10/b/20260103T000000Z-0003"),
    ("t10/", "t10/b/20260103T000000Z-0003"),
    ("c", "t2/c/imported-ffffffffffff"),
    ("t1/a10/2026", "t1/a10/20260101T000000Z-0001"),
    ("t1/a1/20260101", "t1/a1/20260101T000000Z-0001"),
    ("t1/a1/imp", "t1/a1/imported-0123456789ab"),
    ("20260103", "t10/b/20260103T000000Z-0003"),
])  # fmt: skip
def test_a_run_is_found_by_path_name_or_prefix(results: Path, given: str | None, found: str) -> None:
    assert find_run(results, given) == results / found


def test_an_unfinished_run_is_not_an_unknown_one(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Path("t1/a1/20260104T000000Z-0004")
    (results / run).mkdir()
    (results / run / "records.jsonl").touch()
    for given in (str(run), str(results / run)):
        with pytest.raises(InputError, match=rf"{run} is not a finished run; .* assemble \S+{run} --interrupted"):
            find_run(results, given)
    monkeypatch.chdir(results)
    with pytest.raises(InputError, match=f"^{run} is not a finished run"):
        find_run(Path("elsewhere"), str(run))
    assert find_run(results, "t1/a1").name == "20260102T000000Z-0002"


@pytest.mark.parametrize(("given", "message"), [
    ("b", "ambiguous SUT 'b': t10/b, t2/b"),
    ("a", "ambiguous SUT 'a': t1/a1, t1/a10"),
    ("t2", "ambiguous SUT 't2': t2/b, t2/c"),
    ("t1/a11", "unknown SUT 't1/a11', did you mean t1/a1 or t1/a10?"),
    ("zz", "unknown SUT 'zz', expected a1, a10, b, c"),
    ("t1/a1/2026", "ambiguous run of t1/a1 '2026': 20260102T000000Z-0002, 20260101T000000Z-0001"),
    ("20260101", "ambiguous run '20260101': t1/a1/20260101T000000Z-0001, t1/a10/20260101T000000Z-0001"),
    ("/nowhere/at/all", "cannot read the directory /nowhere/at/all"),
])  # fmt: skip
def test_an_unknown_run_is_answered_with_suggestions(results: Path, given: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        find_run(results, given)
    assert str(raised.value).startswith(message)


def test_a_path_takes_precedence_over_a_name(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = results / RUNS[0]
    assert find_run(Path("/nowhere"), str(run)) == run
    assert find_run(Path("/nowhere"), str(run.parent)) == results / RUNS[1]
    monkeypatch.chdir(results / "t1")
    assert find_run(results, "a1") == Path("a1") / RUNS[1].rpartition("/")[2]


@pytest.mark.parametrize("given", ["example", "example/server"])
def test_a_run_without_a_testbed_has_its_directorys_name_and_makes_no_sut(results: Path, given: str) -> None:
    (results / "example" / "report" / "figures").mkdir(parents=True)
    (results / "example" / "run.json").touch()
    assert find_run(results, given) == results / "example"
    assert "example/report" not in suts_of(results)


def test_a_run_without_its_document_is_not_found(results: Path) -> None:
    (results / RUNS[4] / "run.json").unlink()
    (results / RUNS[1] / "run.json").unlink()
    assert find_run(results) == results / RUNS[5]
    assert find_run(results, "t1/a1") == results / RUNS[0]
    with pytest.raises(InputError, match="no run below"):
        find_run(results, "t10/b")


def test_references_are_not_a_testbed(results: Path) -> None:
    (results / "references" / "bounds").mkdir(parents=True)
    (results / ".hidden" / "x").mkdir(parents=True)
    assert suts_of(results) == ["t1/a1", "t1/a10", "t10/b", "t2/b", "t2/c"]
    assert pick_sut("t2/c", suts_of(results)) == "t2/c"


def test_long_suggestions_are_truncated() -> None:
    with pytest.raises(InputError, match=r"expected n0, n1, n2, n3, n4 and 45 more$"):
        pick("x", [f"n{number}" for number in range(50)], "name")
    with pytest.raises(InputError, match=r"unknown name 'x', none exists$"):
        pick("x", [], "name")


# Commands


def output_of(*words: str) -> str:
    return CliRunner().invoke(calibration, words, prog_name="calibration").output


def test_commands_have_prefixes_and_suggestions() -> None:
    assert output_of("comp", "--help") == output_of("compare", "--help") != output_of("context", "--help")
    assert "Ambiguous command 'co': context, counters, compare, collection." in output_of("co")
    assert "No such command 'asemble'. Did you mean 'assemble'?" in output_of("asemble")
    assert "No such option" in output_of("--speed")


def test_help_lists_each_command_on_one_line() -> None:
    lines = output_of("--help").splitlines()
    assert [line for line in lines if line in {"Run:", "Read:", "Nightly:", "Plumbing:"}] == [
        *("Run:", "Read:", "Nightly:", "Plumbing:")
    ]
    assert len(COMMANDS) > 10
    for name in COMMANDS:
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.endswith("."), "the first sentence is too long for one line"
        assert not line.endswith("..."), "the first sentence is too long for one line"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_valid_example(name: str) -> None:
    context = click.Context(calibration)
    command = calibration.get_command(context, name)
    assert command is not None
    begin = f"Example: calibration {name}"
    assert (command.epilog or "").startswith(begin)
    words = shlex.split((command.epilog or "").removeprefix(begin).partition(">")[0])
    with command.make_context(name, words, parent=context):
        pass


def test_a_profile_may_be_shortened() -> None:
    assert load_profile("nig") == load_profile("nightly")
    with pytest.raises(InputError, match="unknown profile 'nightyl', did you mean nightly"):
        load_profile("nightyl")
