# SPDX-License-Identifier: Apache-2.0
"""``calibration report --text``, ``--json`` and ``--csv``."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from docutils import nodes

from calibration.acceptance.limits import Limit
from calibration.commands.report import report_command
from calibration.judge.run import judge_run
from calibration.measurements import registry
from calibration.profiles import load_profile
from calibration.report.terminal import print_blocks
from calibration.results.layout import RUN
from calibration.results.model import MetricsDocument, RunDocument
from calibration.results.plain import PlainRow, metrics_of, plain_document, rows
from calibration.results.store import StoredRun
from tests.readings import PAGES
from tests.report.report_documents import (
    as_bytes,
    first_screen,
    flagged,
    imported,
    index_of,
    judged,
    not_begun_document,
    page_of,
    parsed,
    replace,
    run_document,
    store,
    with_nodes,
    with_rounds,
)
from tests.walk import estimates


def printed(document: RunDocument, monkeypatch: pytest.MonkeyPatch, columns: int = 100, *, full: bool = True) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    print_blocks(page_of(document).blocks, stream, full=full)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("make", "columns"), [(run_document, 60), (not_begun_document, 100), (lambda: with_nodes(run_document(), 8), 100)]
)
def test_the_terminal_shows_every_word_of_the_page(make, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    document = make()
    text = printed(document, monkeypatch, columns)
    tree = parsed(page_of(document))
    joined = re.sub(r"\s+", "", text)
    for title in tree.findall(nodes.title):
        assert re.sub(r"\s+", "", title.astext()) in joined
    for block in tree.findall(nodes.literal_block):
        for line in block.astext().splitlines():
            assert line in text
    words = {word for cell in tree.findall(nodes.entry) for word in cell.astext().split()}
    assert len(words) > 20
    assert [word for word in words if len(word) < min(columns, 100) and word not in joined] == []


@pytest.mark.parametrize("make", [run_document, not_begun_document])
def test_folded_parts_are_omitted(make, monkeypatch: pytest.MonkeyPatch) -> None:
    document = make()
    text = printed(document, monkeypatch, full=False)
    assert max(len(line) for line in text.splitlines() if not line.startswith("    ")) <= 100  # but commands in one
    assert first_screen(document).answer[0][1] in " ".join(text.split())
    tree = parsed(page_of(document))
    folded = [element for element in tree.findall(nodes.admonition) if "fold" in element["classes"]]
    folds = [fold for fold in folded if "commands" not in fold["classes"]]
    titles = [fold.next_node(nodes.title).astext() for fold in folds]
    assert len(titles) > 5
    assert [title for title in titles if title in text.splitlines()] == []
    assert text.splitlines()[-1].startswith(f"{len(folds)} folded parts")
    assert "Evidence" not in text.splitlines(), "a section with nothing in it"


def test_a_quick_run_takes_at_most_200_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    document = run_document(names=tuple(load_profile("quick").measurements))
    assert len(document.measurements) > 10
    assert len(printed(document, monkeypatch, full=False).splitlines()) <= 200


def test_invalid_values_are_marked_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    document = run_document(names=("idle_latency",))
    shown = printed(flagged(document, index_of(document, "idle_latency"), "PLACEMENT_WRONG", "99 of 100"), monkeypatch)
    assert "INVALID, struck out" in shown
    assert "\x1b" not in shown


def test_escape_sequences_of_a_sut_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    document = run_document(names=("idle_latency",))
    hostile = replace(document, 0, title="\x1b[2J\x07 [bold]title[/bold] :smile:")
    shown = printed(hostile, monkeypatch, 200)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[bold]title[/bold] :smile:" in shown


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(report_command, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_and_writes_nothing(tmp_path: Path) -> None:
    run = store(run_document(names=("idle_latency",)), tmp_path / "results")
    for form in ("--text", "--json", "--csv"):
        assert invoke(str(run), form)
        assert invoke(str(tmp_path / "results"), form)
    assert [path.name for path in run.iterdir()] == ["run.json"]


def test_json_has_every_value_with_its_interval(tmp_path: Path) -> None:
    document = run_document()
    found = json.loads(invoke(str(store(document, tmp_path)), "--json"))
    assert found["run"]["id"] == document.run.id
    by_kind = {measurement["kind"]: measurement for measurement in found["measurements"]}
    assert set(by_kind) == set(registry())
    cell = document.measurements[index_of(document, "latency_matrix")].values.table.rows[0].latency_ns  # type: ignore[attr-defined] # it has one
    assert by_kind["latency_matrix"]["latency_ns"][0][0] == cell.value
    assert by_kind["latency_matrix"]["latency_ns_interval"][0][0] == list(cell.interval)
    peak = by_kind["peak_injection_bandwidth"]
    assert isinstance(peak["bandwidth_mb_s"]["reads"], float)
    assert len(peak["bandwidth_mb_s_interval"]["reads"]) == 2
    assert len(peak["bandwidth_mb_s_prediction"]["reads"]) == 2
    assert by_kind["traffic_shape"]["best"]["reads"]["bandwidth_mb_s_prediction"] is None
    assert "samples" not in json.dumps(found["measurements"])
    assert set(by_kind["idle_latency"]["validity"]) == {"valid", "flags", "reasons"}


def test_json_and_csv_have_predictions_of_values_in_rounds() -> None:
    document = run_document(names=("idle_latency",))
    values = with_rounds(document.measurements[0].values)
    document = replace(document, 0, values=values)
    (plain,) = plain_document(document)["measurements"]
    low, high = values.latency_ns.prediction
    assert plain["latency_ns_prediction"] == [low, high]
    row = next(rows(judged(document)))
    assert (row.prediction_low, row.prediction_high, row.rounds) == (low, high, len(set(values.latency_ns.rounds)))


def test_json_has_every_estimate() -> None:
    document = run_document()
    text = json.dumps(plain_document(document)["measurements"])
    numbers = {float(item) for item in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)}
    measured = [estimate.value for measurement in document.measurements for estimate in estimates(measurement.values)]
    assert len(measured) > 100
    assert [value for value in measured if value not in numbers] == []


def test_csv_has_a_row_for_each_metric(tmp_path: Path) -> None:
    document = judged(run_document())
    rows = list(csv.DictReader(io.StringIO(invoke(str(store(document, tmp_path)), "--csv"))))
    expected = [
        metric
        for measurement in document.measurements
        for metric in registry()[measurement.kind].metrics(measurement.values)
    ]
    assert list(rows[0]) == list(PlainRow._fields)
    assert [row["metric"] for row in rows] == [metric.name for metric in expected]
    assert [float(row["value"]) for row in rows] == [metric.value for metric in expected]
    known = [(row, metric.interval) for row, metric in zip(rows, expected, strict=True) if metric.interval]
    assert known
    assert all((float(row["interval_low"]), float(row["interval_high"])) == interval for row, interval in known)


def test_rows_need_only_the_metrics_of_a_document() -> None:
    limited = judge_run(run_document(), [Limit(metric="none", lower=1.0, upper=None, unit="ns", reason="")])
    documents = limited, flagged(limited, 0, "EMULATED", "a test"), imported(PAGES[0].read_bytes())
    for document in documents:
        stored = StoredRun(Path(RUN), as_bytes(document))
        found = list(rows(stored.read_as(MetricsDocument)))
        assert found == list(rows(document))
        assert [row.metric for row in found] == [item.metric.name for item in metrics_of(document)]


def test_a_site_is_not_built_while_printing(tmp_path: Path) -> None:
    run = store(run_document(names=()), tmp_path / "results")
    refused = CliRunner().invoke(report_command, [str(run), "--text", "--html", str(tmp_path / "html")])
    assert refused.exit_code == 2
    assert "cannot be combined" in refused.output


@pytest.mark.parametrize("form", ["--text", "--csv"])
def test_output_that_cannot_be_written_is_reported(form: str, tmp_path: Path) -> None:
    run = store(run_document(names=("idle_latency",)), tmp_path)
    command = [sys.executable, "-m", "calibration.cli", "report", str(run), form]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "calibration: cannot write the output: No space left on device\n"


def test_characters_that_a_terminal_lacks_are_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_blocks(page_of(run_document(names=("jitter",))).blocks, stream)
    stream.flush()
    assert b"\\xb5s" in raw.getvalue()
