# SPDX-License-Identifier: Apache-2.0
"""The lab of ``calibration demo``, and the tutorial that goes through it."""

import errno
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from calibration.base.commandline import calibration_command
from calibration.base.errors import BAD_INPUT, ENVIRONMENT, GOOD, INTERRUPTED, VERDICT_FAILED
from calibration.demo.lab import (
    BASES,
    FAILING,
    FIRST_NIGHT,
    NEW,
    REPAIRED,
    SLOWER,
    UNMEASURED,
    base_document,
    suts,
    write_demo,
)
from calibration.demo.nights import Template, write
from calibration.judge.answer import answers
from calibration.judge.night import read_nights
from calibration.report.page import render
from calibration.report.rst import to_rst
from calibration.results.store import open_run
from tests.command import Ended, calibration
from tests.report.demo_documents import document
from tests.report.screenshots import PICTURES
from tests.report.snippets import DOCS

PAGES = tuple(DOCS / "guide" / f"{name}.rst" for name in ("tutorial", "equal_testbeds"))
"""Pages whose commands are of the lab, in the order in which they are read."""

STEP = re.compile(r"^   \.venv/bin/calibration (.+)\n\n(?:.*\n)*?\.\. literalinclude:: (tutorial/\S+)", re.MULTILINE)
"""A command of the tutorial, and the file with its output."""

MAX_PICTURE_BYTES = 150_000

WIDTH = "92"
"""Columns of the terminal of the tutorial."""


@pytest.fixture(scope="module", name="lab")
def _lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Ended]]:
    """Yield the lab in the working directory, and how the command ended that wrote it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("tutorial"))
        patch.setattr("tests.command.WIDTH", WIDTH)
        ended = calibration("demo", "demo")
        yield Path("demo").absolute(), ended


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES)
def test_the_stored_documents_are_those_that_are_made(base: str) -> None:
    assert base in BASES
    assert document(base) == base_document(base), "python -m tests.report.demo_documents writes them anew"


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    ended = calibration("demo", tmp_path)
    assert (ended.code, ended.said) == (2, f"calibration: {tmp_path} is not an empty directory\n")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@pytest.fixture(name="one_sut")
def _one_sut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lab be one SUT, and keep the index of results in the test's directory."""
    (sut,) = (sut for sut in suts() if (sut.testbed, sut.name) == FAILING)
    monkeypatch.setattr("calibration.demo.lab.suts", lambda: iter([sut]))
    monkeypatch.setattr("calibration.results.index.CACHE", tmp_path / "cache")


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.usefixtures("one_sut")
@pytest.mark.parametrize(
    ("end", "code", "said"),
    [(KeyboardInterrupt(), INTERRUPTED, "interrupted"), (FULL, ENVIRONMENT, "lab: No space left on device. Give a")],
)
def test_an_unfinished_lab_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException, code: int, said: str
) -> None:
    monkeypatch.setattr("calibration.demo.lab.accept", Mock(side_effect=end))
    ended = calibration("demo", tmp_path / "lab")
    assert ended.code == code
    assert said in ended.said
    assert "\n" not in ended.said.strip()
    assert not [*(tmp_path / "lab").iterdir()]


@pytest.mark.usefixtures("one_sut")
def test_of_two_writers_at_a_time_one_is_refused(tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    with ThreadPoolExecutor(2) as pool:
        errors = {str(done.exception()) for done in [pool.submit(write_demo, lab) for _ in range(2)]}
    assert errors == {"None", f"{lab} is not an empty directory"}
    assert {path.name for path in lab.iterdir()} == {FAILING[0], "references", "throughput.csv", "equal.csv"}


@pytest.mark.usefixtures("one_sut")
def test_a_lab_whose_writer_was_killed_is_no_lab_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = tmp_path / "lab"
    with monkeypatch.context() as killed:
        killed.setattr("calibration.demo.lab.accept", Mock(side_effect=KeyboardInterrupt))
        killed.setattr("shutil.rmtree", Mock())
        calibration("demo", lab)
    assert [*lab.rglob("run.json")]
    assert calibration("judge", "--results", lab) == (BAD_INPUT, f"calibration: no run to judge below {lab}\n")
    assert calibration("demo", lab).code == GOOD
    assert {path.name for path in lab.iterdir()} == {FAILING[0], "references", "throughput.csv", "equal.csv"}
    monkeypatch.setattr("calibration.results.index._line", Mock(side_effect=AssertionError("read again")))
    assert calibration("judge", "--results", lab).code == VERDICT_FAILED


def test_a_lab_is_made_the_same_each_time_and_says_that_it_is_made(tmp_path: Path) -> None:
    (sut,) = (sut for sut in suts() if (sut.testbed, sut.name) == UNMEASURED)
    templates = {base: Template(base_document(base)) for base in BASES}
    for name in ("one", "other"):
        write(tmp_path / name, [sut], templates, FIRST_NIGHT)
    runs = sorted((tmp_path / "one").glob("*/*/*/run.json"))
    assert len(runs) == 29
    for run in runs:
        assert run.read_bytes() == (tmp_path / "other" / run.relative_to(tmp_path / "one")).read_bytes()
    stored = open_run(runs[-1])
    made = stored.document
    assert (made.run.testbed, made.run.sut, made.run.id) == runs[-1].parts[-4:-1]
    assert f"{made.run.started_at:%Y%m%d}" == made.run.id[:8] == "20260629"
    assert "made by calibration demo" in to_rst(render(stored).blocks)


def test_a_headline_of_the_worst_cpu_is_of_the_worst_cpu(tmp_path: Path) -> None:
    (sut,) = (sut for sut in suts() if (sut.testbed, sut.name) == FAILING)
    write(tmp_path, [sut], {base: Template(base_document(base)) for base in BASES}, FIRST_NIGHT)
    for run in tmp_path.glob("*/*/*/run.json"):
        document = open_run(run).document
        lost = {
            verdict.name: verdict.metric.value
            for verdict in document.verdicts
            if verdict.name.endswith("lost_fraction") and verdict.metric is not None
        }
        (headline,) = (item.metric for item in document.record if item.metric.name in lost)
        assert headline.value == max(lost.values())


def test_pictures_of_the_home_page_are_small() -> None:
    home = (DOCS / "index.rst").read_text(encoding="utf-8")
    for name in PICTURES:
        assert f"_static/{name}" in home
        assert (DOCS / "_static" / name).stat().st_size <= MAX_PICTURE_BYTES, name


@pytest.mark.slow
def test_the_lab_has_one_of_each_state(lab: tuple[Path, Ended]) -> None:
    found = answers(read_nights(lab[0]))
    assert Counter(answer.state for answer in found.values()) == {
        "fails": 1, "not_measured": 1, "no_baseline": 1, "as_accepted": len(found) - 3,
    }  # fmt: skip
    assert (found[NEW].state, found[UNMEASURED].state) == ("no_baseline", "not_measured")
    failing = found[FAILING]
    assert failing.machine.startswith("fails since 2026-06-28: Read bandwidth, node 1 from its own memory")
    assert [change.fact for change in failing.changes] == ["memory", "DIMMs"]
    assert {found[REPAIRED].state, found[SLOWER].state} == {"as_accepted"}


def steps() -> Iterator[tuple[list[str], Path]]:
    """Yield the commands of the pages with the files of their output, in their order."""
    for page in PAGES:
        for command, name in STEP.findall(page.read_text(encoding="utf-8")):
            yield shlex.split(command), page.parent / name


@pytest.mark.slow
def test_the_tutorial_shows_what_its_commands_print(lab: tuple[Path, Ended]) -> None:
    (first, _), *others = found = list(steps())
    assert first == ["demo", "demo"]
    ends = [lab[1], *(calibration(*words) for words, _ in others)]
    for (_, path), ended in zip(found, ends, strict=True):
        assert ended.code in (GOOD, VERDICT_FAILED), ended.said
        said = ended.said.replace(calibration_command(), ".venv/bin/calibration").replace(f"{lab[0].parent}/", "")
        said = "\n".join(line.rstrip() for line in said.split("\n"))
        if os.environ.get("CALIBRATION_BLESS") == "1":
            path.write_text(said, encoding="utf-8")
        assert said == path.read_text(encoding="utf-8"), f"{path} differs; CALIBRATION_BLESS=1 writes it anew"
    assert {path.name for _, path in found} == {path.name for path in (PAGES[0].parent / "tutorial").iterdir()}


@pytest.mark.slow
def test_what_the_demo_says_to_try_works(lab: tuple[Path, Ended]) -> None:
    commands = re.findall(r"^  (.*)$", lab[1].said.replace(calibration_command(), ""), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        assert calibration(*shlex.split(command)).code in (GOOD, VERDICT_FAILED)
