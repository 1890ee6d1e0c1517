# SPDX-License-Identifier: Apache-2.0
"""``calibration show``: a run on one screen."""

import dataclasses
import io
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibration.acceptance.limits import Limit
from calibration.base.commandline import calibration_command
from calibration.base.errors import EnvironmentLacksError
from calibration.cli import calibration
from calibration.judge.answer import labelled
from calibration.judge.run import judge_run
from calibration.judge.since import MetricChange, Since
from calibration.judge.verdicts import ContextChange
from calibration.report.show import print_run, print_story
from calibration.report.story import Story
from calibration.results.imports import EPOCH, document_of, read_file
from calibration.results.model import RunDocument
from tests.readings import PAGES
from tests.report.report_documents import (
    first_screen,
    flagged,
    index_of,
    judged,
    not_begun_document,
    run_document,
    store,
    with_nodes,
)

RUN = Path("results/t1/sut1/r1")
"""Where the documents would be, in the working directory."""


WHOLE = calibration_command("report", str(RUN), "--text")
"""A command that is never cut, as it would not work."""

COMMAND = "Do: "
"""Begins the line with another such command."""


def shown(document: RunDocument, monkeypatch: pytest.MonkeyPatch, columns: int = 100) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    print_run(document, RUN, stream)
    return stream.getvalue()


def failing(document: RunDocument) -> RunDocument:
    """Return *document* with a limit that its idle latency exceeds."""
    limit = Limit(metric="latency_matrix.0.0.latency_ns", lower=None, upper=90.0, unit="ns", reason="the inventory")
    return judge_run(document, [limit])


def imported() -> RunDocument:
    raw, page = read_file(PAGES[1])
    return document_of(page, raw, source="page.rst", testbed=None, sut=None, measured_on=None, now=EPOCH)


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("make", [run_document, not_begun_document, imported, lambda: with_nodes(run_document(), 8)])
def test_any_run_is_one_screen(make, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(judged(make()), monkeypatch, columns).splitlines()
    assert 3 < len(lines) <= 24, "a terminal has 24 rows"
    assert max(len(line) for line in lines if not line.startswith(COMMAND) and WHOLE not in line) <= min(columns, 100)


def test_the_screen_has_the_story_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    document = judged(run_document())
    found = first_screen(document)
    text = " ".join(shown(document, monkeypatch).split())
    (_, first), *others = found.answer
    assert text.startswith(f"? {found.name} {found.when} ")
    assert f" {first} {' '.join(labelled(about, said) for about, said in others)} " in text
    assert found.headlines
    for row in found.headlines:
        assert f"{row.title} {row.value}" in text
    assert all(f"- {finding}" in text for finding in found.findings[:2])


def test_a_value_outside_of_its_limits_is_marked_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(failing(run_document(names=("latency_matrix",))), monkeypatch)
    assert text.startswith("✗ ")
    assert "151 ns ±7.9 % !  accepted: at most 90 ns !\n" in text


def test_what_is_left_out_is_counted_with_the_command_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    document = run_document()
    for index in range(3):
        document = flagged(document, index, "PLACEMENT_WRONG", f"{index} of 4 pages")
    found, text = first_screen(document), shown(document, monkeypatch)
    left_out = found.more_findings + len(found.findings) - 2 + found.more_advice + max(0, len(found.advice) - 1)
    assert left_out > 2
    assert f"\n  and {left_out} more: {WHOLE}\n" in text


def test_changes_are_on_the_screen_if_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    story = first_screen(judged(run_document()))
    metric = story.headlines[0].metric
    worse = MetricChange(metric, "ns", 100.0, 112.0, "worse", "")
    fact = ContextChange(fact="microcode", before="0x1", after="0x2", night=date(2026, 1, 2))
    calm = Since(date(2026, 1, 1), accepted=False, metrics=(worse._replace(moved="as before"),), facts=())
    moved = Since(date(2025, 12, 1), accepted=True, metrics=(worse,), facts=(fact,))
    text = printed(dataclasses.replace(story, since=(calm, moved)))
    assert "Since last night" not in text
    assert "Since accepted (2025-12-01): 1 worse; microcode 0x1 -> 0x2" in text
    assert story.findings[0] in text
    assert story.findings[1] not in text
    assert len(text.splitlines()) == len(printed(story).splitlines())


def printed(story: Story) -> str:
    stream = io.StringIO()
    print_story(story, Path("run"), stream)
    return stream.getvalue()


def test_what_is_not_restored_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    document = not_begun_document()
    (left,) = [flag.reason for flag in document.flags]
    assert len(left) > 80
    assert left in " ".join(shown(document, monkeypatch, 80).split())


def test_untrusted_values_are_marked_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    document = run_document()
    wrong = flagged(document, index_of(document, "jitter"), "CPU_UNVERIFIED", "it ran elsewhere")
    assert "✗" not in shown(judged(document), monkeypatch)
    (line,) = (line for line in shown(judged(wrong), monkeypatch).splitlines() if "Longest interruption" in line)
    assert line.endswith(" ✗")
    assert shown(judged(wrong), monkeypatch).startswith("✗ ")


def test_import_lists_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(imported(), monkeypatch)
    assert "published calibration page page.rst" in text
    assert "29 metrics by " in text
    assert "Idle latency" in text


def test_escape_sequences_of_a_sut_are_not_printed() -> None:
    found = dataclasses.replace(
        first_screen(run_document()), name="\x1b[2J", findings=("\x07 [bold]x[/bold]",), machine="\u202e"
    )
    stream = io.StringIO()
    print_story(found, RUN, stream)
    assert not {"\x1b", "\x07", "\u202e"} & set(stream.getvalue())
    assert "[bold]x[/bold]" in stream.getvalue()


def test_a_terminal_has_colours_and_no_color_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    failed = failing(run_document(names=("latency_matrix",)))
    assert "\x1b[1;31m✗ " in shown(failed, monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in shown(failed, monkeypatch)


def test_without_the_other_nights_there_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store(run_document(names=("idle_latency",)), tmp_path / "results")
    (tmp_path / "file").touch()
    monkeypatch.setattr("calibration.results.index.CACHE", tmp_path / "file")
    for words in (["show"], ["report"], ["report", "--text"]):
        ended = CliRunner().invoke(calibration, [*words, str(run)])
        assert isinstance(ended.exception, EnvironmentLacksError)
        assert "CALIBRATION_CACHE_DIR" in str(ended.exception)
        assert ended.output == ""


def test_the_command_takes_the_newest_run(tmp_path: Path) -> None:
    run = store(run_document(names=("idle_latency",)), tmp_path)
    named = CliRunner().invoke(calibration, ["show", str(run)])
    newest = CliRunner().invoke(calibration, ["show", "--results", str(tmp_path)])
    assert named.exit_code == newest.exit_code == 0
    assert named.output == newest.output != ""
