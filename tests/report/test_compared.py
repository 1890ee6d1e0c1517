# SPDX-License-Identifier: Apache-2.0
"""The text of a comparison: differences in full, the rest counted, and facts that explain them."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from calibration.judge.comparison import ComparedRuns, _facts, _rank, compare, compare_metrics
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.report.alone import page_alone
from calibration.report.blocks import Charts, Table, plain
from calibration.report.comparison import comparison_page, headline_metrics, print_comparison
from calibration.report.rst import to_rst
from calibration.results.model import RunDocument
from calibration.results.plain import DocumentMetric
from tests.report.browsing import look
from tests.report.report_documents import grown, index_of, replace, with_rows
from tests.unit.test_comparison import figure


def comparison(first: Sequence[DocumentMetric], second: Sequence[DocumentMetric]) -> str:
    figures = tuple(sorted(compare_metrics(first, second), key=_rank))
    return text_of(ComparedRuns(first="one", second="other", context=(), facts=(), figures=figures))


def text_of(compared: ComparedRuns) -> str:
    """Return the source of the page without the declared roles and without escapes."""
    text = to_rst(comparison_page(compared)).replace("\\", "")
    return text[text.index("Comparison\n===") :]


def matrix(count: int, values: Sequence[float]) -> list[DocumentMetric]:
    found = [
        figure(value, (value * 0.999, value * 1.001), name=f"latency_matrix.0.{n}.latency_ns")
        for n, value in zip(range(count), values, strict=True)
    ]
    return [item.model_copy(update={"kind": "latency_matrix"}) for item in found]


def test_the_largest_ratio_comes_first_whichever_side_is_better() -> None:
    first = [figure(100, (99.9, 100.1), name="idle_latency.latency_ns"), *matrix(2, [100, 100])]
    second = [figure(101, (100.9, 101.1), name="idle_latency.latency_ns"), *matrix(2, [90, 120])]
    text = comparison(first, second)
    assert "**2 of 3 metrics differ; largest: " in text
    assert text.index("- 1.20x\n") < text.index("first better") < text.index("- 0.90x\n") < text.index("second better")
    assert "* The same within the tolerance, 1: " in text


def test_metrics_that_differ_only_in_a_number_share_a_line() -> None:
    text = comparison(matrix(8, [100] * 8), matrix(8, [110, 111, 112, 113, 114, 115, 116, 90]))
    assert text.index("7 metrics") < text.index("- 1.10x to 1.16x")
    assert text.count("90 ns") == 1
    few = comparison(matrix(3, [100] * 3), matrix(3, [110, 111, 112]))
    assert "figures" not in few
    assert "111 ns" in few


def test_values_have_the_units_of_the_headline_table() -> None:
    name = "peak_injection_bandwidth.reads.bandwidth_mb_s"
    text = comparison(
        [figure(20_000.0, (19_900.0, 20_100.0), name=name, unit="MB/s")],
        [figure(10_000.0, (9_900.0, 10_100.0), name=name, unit="MB/s")],
    )
    assert "- 20 GB/s (19.9 to 20.1 GB/s)\n" in text
    assert "MB/s" not in text


def test_a_single_reading_of_another_tool_is_indicative() -> None:
    text = comparison([figure(100, None, instrument="Intel MLC", name="idle_latency.latency_ns")],
                [figure(50, (49.9, 50.1), name="idle_latency.latency_ns")])  # fmt: skip
    assert "**1 of 1 metrics differ indicatively; largest: " in text
    assert "Indicative: an interval is missing" in text
    assert "- 0.50x\n" in text


def test_identical_metrics_are_counted(document: RunDocument) -> None:
    compared = compare(document, document)
    text = text_of(compared)
    assert f"**Identical: all {len(compared.figures)} metrics." in text
    assert compared.facts == ()
    assert "No configuration differences." in text
    assert text.count("list-table") == 1, "the headline metrics"
    assert len(text.splitlines()) < 125


def test_headline_metrics_come_first_and_others_are_folded(document: RunDocument) -> None:
    """Causes need a known mechanism."""
    page = comparison_page(compare(document, slower(document, 1.5)))
    table = next(block for block in page if isinstance(block, Table))
    rows = {plain(row[0]): [plain(cell) for cell in row[1:]] for row in table.rows}
    assert next(iter(rows)) == "Idle latency, node 0 to node 0"
    assert len(rows) <= 12
    *_, change, verdict, causes = rows["Idle latency, node 0 to node 0"]
    assert (change, verdict, causes) == ("+50.0 %", "first better", "microcode")
    assert rows["L1 latency"][2:] == ["+0.00 %", "identical", "-"]
    bells = next(block for block in page if isinstance(block, Charts)).charts[0]
    assert "Idle latency, node 0 to node 0 +50.0 %" in bells.alt
    assert "* Identical, " in to_rst(page)


def test_the_longest_interruption_is_that_of_record_even_if_only_the_other_view_can_be_compared(
    document: RunDocument,
) -> None:
    compared = compare(document, document)
    gaps, work = (
        next(metric for metric in compared.figures if metric.name == f"jitter.cpu1.{view}")
        for view in ("gaps.max_ns", "work_max_ns")
    )
    assert gaps.first is not None
    longest = gaps.first.model_copy(update={"metric": gaps.first.metric.model_copy(update={"value": 9e9})})
    gaps = gaps.model_copy(update={"first": longest, "ratio": None, "quantity": work.quantity})
    assert headline_metrics(compared.model_copy(update={"figures": (work, gaps)})) == [gaps]


def test_a_page_in_one_file_needs_nothing_else(document: RunDocument) -> None:
    html = page_alone(comparison_page(compare(document, slower(document, 1.5))))
    assert html.startswith("<!doctype html>")
    assert html.count('src="data:image/svg+xml;base64,') == 2
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", html)
    assert "<script" not in html
    assert "url(" not in html


@pytest.mark.parametrize(("view", "beside"), [("wide", True), ("narrow", False)])
def test_facts_stand_beside_the_chart_where_there_is_room(
    view: str, beside: bool, document: RunDocument, one_browser: webdriver.Chrome, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(page_alone(comparison_page(compare(document, slower(document, 1.5)))), encoding="utf-8")
    look(one_browser, view)
    one_browser.get(page.as_uri())
    chart, facts = (one_browser.find_element(By.CSS_SELECTOR, item).rect for item in (".charts", "#machines"))
    assert (facts["x"] >= chart["x"] + chart["width"]) == beside
    assert (facts["y"] < chart["y"] + chart["height"]) == beside


def test_the_terminal_has_the_headline_metrics_first(document: RunDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    stream = io.StringIO()
    print_comparison(compare(document, slower(document, 1.5)), stream)
    text = stream.getvalue()
    assert text.index("metrics differ") < text.index("Idle latency, node 0 to node") < text.index("Machines")
    assert "Chart" not in text


def slower(document: RunDocument, factor: float) -> RunDocument:
    """Return *document* of a machine with other microcode, whose memory is *factor* times as slow."""
    index = index_of(document, "latency_matrix")
    values = document.measurements[index].values
    assert isinstance(values, NodeMatrixValues)
    other = replace(document, index, values=with_rows(values, grown(values, 1, lambda _cpu, _memory: factor)))
    return other.model_copy(update={"facts": {**document.facts, "microcode": "0x2"}})


def test_missing_metrics_are_counted_by_kind() -> None:
    text = comparison(matrix(9, [100] * 9), matrix(8, [100.5] * 8))
    assert "* The same within the tolerance, 8: Latency matrix (8)" in text
    assert "* Only in the first, 1: Latency matrix (1)" in text


def test_facts_are_ordered_by_the_differences_they_explain(document: RunDocument) -> None:
    own = {"BIOS": "1", "governor": "performance", "DIMMs": "8 x 32 GiB", "kernel": "6.1", "turbo": "on"}
    other = {"BIOS": "2", "governor": "performance", "DIMMs": "7 x 32 GiB", "SMT": "on", "turbo": "off"}
    first, second = (document.model_copy(update={"facts": item}) for item in (own, other))
    found = _facts(first, second, ["idle_latency.latency_ns", "jitter.cpu1.inst_jitter_ns"])
    assert [(change.fact, change.first, change.second, change.moves) for change in found] == [
        ("turbo", "on", "off", 2),
        ("BIOS", "1", "2", 2),
        ("DIMMs", "8 x 32 GiB", "7 x 32 GiB", 1),
    ]
    assert all(item.reason for item in found)
    assert [(fact.moves, fact.reason) for fact in _facts(first, second, [])] == [(0, None)] * 3
