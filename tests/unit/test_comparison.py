# SPDX-License-Identifier: Apache-2.0
"""Comparison: a metric differs only if the intervals support it; otherwise there is a reason."""

import io
import random
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
from click.testing import CliRunner

from calibration.base.errors import InputError
from calibration.base.statistics import estimate
from calibration.commands.judging import compare_command
from calibration.context.facts import NOT_KNOWN
from calibration.judge.comparison import ComparedRuns, Comparison, compare, compare_metrics, read_compared
from calibration.measurements import registry
from calibration.measurements.base import Metric
from calibration.report.comparison import print_comparison
from calibration.results.plain import DocumentMetric
from tests.readings import PAGES
from tests.report.report_documents import run_document

MLC = "Intel MLC v3.11"
NAME = "idle_latency.latency_ns"


def figure(
    value: float,
    interval: tuple[float, float] | None,
    *,
    name: str = NAME,
    prediction: tuple[float, float] | None = None,
    coverage: float | None = 0.96,
    valid: bool = True,
    unit: str = "ns",
    better: str = "lower",
    instrument: str = "sutprobe 1",
) -> DocumentMetric:
    metric = Metric.model_validate(
        {
            "name": name,
            "title": "Idle latency",
            "value": value,
            "unit": unit,
            "interval": interval,
            "coverage": None if interval is None else coverage,
            "prediction": prediction,
            "estimator": None,
            "placements": None,
            "better": better,
        }
    )
    return DocumentMetric(
        measurement="idle", kind="idle_latency", instrument=instrument, valid=valid, flags=(), metric=metric
    )


def judged(first: DocumentMetric | None, second: DocumentMetric | None) -> Comparison:
    (found,) = compare_metrics([first] if first else [], [second] if second else [])
    return found


@pytest.mark.parametrize(("first", "second", "outcome", "better", "reason"), [
    (figure(100, (99, 101)), figure(120, (119, 121)), "differs", "first", "beyond the tolerance of 3 %"),
    (figure(120, (119, 121)), figure(100, (99, 101)), "differs", "second", "beyond the tolerance of 3 %"),
    (figure(100, (99, 101), better="higher"), figure(120, (119, 121), better="higher"), "differs", "second", "3 %"),
    (figure(100, (99.5, 100.5)), figure(101, (100.5, 101.5)), "same", None, "within the tolerance of 3 %"),
    (figure(100, (99, 101)), figure(104, (102, 106)), "undecided", None, "neither within nor beyond the tolerance"),
    (figure(100, (90, 110)), figure(101, (91, 111)), "undecided", None, "neither within nor beyond the tolerance"),
    (figure(100, None), figure(200, (199, 201)), "undecided", None, "the first has no stated uncertainty"),
    (figure(100, (99, 101)), figure(200, None), "undecided", None, "the second has no stated uncertainty"),
    (figure(100, None, instrument=MLC), figure(200, (199, 201)), "indicative", "first", "5 % is assumed"),
    (figure(100, (99, 101)), figure(90, None, instrument=MLC), "indicative", "second", "5 % is assumed"),
    (figure(100, None, instrument=MLC), figure(92, None, instrument=MLC), "undecided", None, "5 % is assumed"),
    (figure(100, None, instrument=MLC), figure(100, None, instrument=MLC), "identical", None, "same digits"),
    (figure(100, (99, 101)), figure(100, (99, 101)), "identical", None, "same digits"),
    (figure(100, (99, 101), coverage=0.75), figure(200, (199, 201)), "indicative", "first", "only 75 % coverage"),
    (figure(100, (99, 101), coverage=0.75), figure(101, (99, 101)), "undecided", None, "only 75 % coverage"),
    (figure(100, (99, 101), valid=False), figure(200, (199, 201)), "undecided", None, "the first is invalid"),
    (figure(100, (99, 101)), figure(200, (199, 201), unit="us"), "undecided", None, "their units differ"),
    (figure(1, (0.9, 1.1), unit="ticks"), figure(2, (1.9, 2.1), unit="ticks"), "undecided", None, "two clocks"),
    (figure(0, (0, 0)), figure(200, (199, 201)), "undecided", None, "0 has no ratio"),
    (figure(100, (99, 101)), None, "only_first", None, "not measured in the second"),
    (None, figure(100, (99, 101)), "only_second", None, "not measured in the first"),
])  # fmt: skip
def test_outcome_and_reason(
    first: DocumentMetric | None, second: DocumentMetric | None, outcome: str, better: str | None, reason: str
) -> None:
    found = judged(first, second)
    assert (found.outcome, found.better) == (outcome, better)
    assert reason in found.reason


@pytest.mark.parametrize(("first", "second", "ratio_interval"), [
    ((100, (90, 120)), (100, (60, 130)), (0.5814, 1.3267)),
    ((100, (100, 100)), (110, (100, 120)), (1.0, 1.2)),
    ((100, (99, 101)), (1, (0, 2)), (0.0, 0.0202)),  # 0 has no logarithm: the ends are combined
])  # fmt: skip
def test_of_rounds_the_half_widths_that_face_each_other_are_added_in_squares(
    first: tuple[float, tuple[float, float]],
    second: tuple[float, tuple[float, float]],
    ratio_interval: tuple[float, float],
) -> None:
    one, other = (figure(value, ends, prediction=ends) for value, ends in (first, second))
    assert judged(one, other).ratio_interval == pytest.approx(ratio_interval, abs=1e-4)


def test_without_rounds_on_both_sides_the_ends_are_combined() -> None:
    first, second = (100, (99, 101)), (104.9, (103.9, 105.9))
    in_rounds = [figure(*side, prediction=side[1]) for side in (first, second)]
    assert judged(*in_rounds).outcome == "differs"
    for one, other in [(figure(*first), in_rounds[1]), (in_rounds[0], figure(*second))]:
        found = judged(one, other)
        assert found.ratio_interval == pytest.approx((103.9 / 101, 105.9 / 99))
        assert found.outcome == "undecided"


def test_equal_machines_rarely_differ_and_different_ones_are_detected() -> None:
    chance = random.Random(1)

    def measured(centre: float) -> DocumentMetric:
        placements = [[chance.gauss(centre, 0.02 * centre) for _ in range(9)] for _ in range(9)]
        made = estimate(placements, "ns")
        return figure(made.value, made.interval, coverage=made.coverage)

    pairs = 400
    false = sum(judged(measured(100), measured(100)).outcome == "differs" for _ in range(pairs))
    found = sum(judged(measured(100), measured(115)).outcome == "differs" for _ in range(pairs))
    assert false == 0
    assert found > 0.9 * pairs


@pytest.fixture(name="run_of", scope="module")
def _run_of() -> Callable[[float], list[DocumentMetric]]:
    """Return what measures the metrics of a run: six rounds each, with a standard deviation of 3 % between rounds."""
    chance = random.Random(1)
    names = [f"latency_matrix.0.{number}.latency_ns" for number in range(3000)]
    declared = registry()["latency_matrix"]

    def run(centre: float) -> list[DocumentMetric]:
        found = []
        for name in names:
            rounds = [[chance.gauss(centre, 0.03 * centre)] for _ in range(6)]
            metric = declared.metric(name.partition(".")[2], name, estimate(rounds, "ns", rounds=range(6)))
            found.append(figure(1, None).model_copy(update={"metric": metric}))
        return found

    return run


def test_of_two_runs_of_one_machine_few_metrics_differ_and_a_shift_is_found(
    run_of: Callable[[float], list[DocumentMetric]],
) -> None:
    first, second = run_of(100), run_of(100)
    same = list(compare_metrics(first, second))
    moved = [item for item in same if item.ratio_interval and not item.ratio_interval[0] <= 1 <= item.ratio_interval[1]]
    assert 0.0005 * len(same) < len(moved) < 0.005 * len(same)  # 0.2 %, as documented
    assert sum(item.outcome == "differs" for item in same) < 0.001 * len(same)  # beyond the tolerance as well
    half = median((high - low) / 2 for low, high in (item.metric.interval or (0, 0) for item in first))
    shifted = list(compare_metrics(first, run_of(100 + 5 * half)))
    assert sum(item.outcome == "differs" for item in shifted) > 0.99 * len(shifted)


def test_a_published_page_differs_indicatively() -> None:
    compared = compare(read_compared(PAGES[1]), read_compared(PAGES[2]))
    assert compared.first == "t7 / t7-sut2, imported"
    assert {item.outcome for item in compared.figures} == {"undecided", "indicative", "only_first", "only_second"}
    assert re.fullmatch(r"\d+ of \d+ metrics differ indicatively; largest: .+ [\d.]+x\.", compared.summary)
    assert any(text.startswith("uname: Linux t7-sut2 4.19.0") for text in compared.context)


@pytest.mark.parametrize("form", [[], ["--json"], ["--rst"], ["--html"]])
def test_the_command_prints_the_comparison(form: list[str]) -> None:
    done = CliRunner().invoke(compare_command, [str(PAGES[1]), str(PAGES[2]), *form])
    assert done.exit_code == 0, done.output
    assert "t7 / t7-sut2, imported" in done.output.replace("\\", "")
    assert "indicative" in done.output.lower()


def test_a_path_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_compared(tmp_path)


def test_a_fact_that_one_run_does_not_know_is_no_difference() -> None:
    document = run_document()
    other = document.model_copy(update={"facts": {**document.facts, "BIOS": NOT_KNOWN, "microcode": "0x2"}})
    compared = compare(document, other)
    assert [difference.fact for difference in compared.facts] == ["microcode"]
    assert [text.partition(":")[0] for text in compared.context] == ["microcode"]
    assert compare(other, document).context[0].startswith("microcode: 0x2 -> ")


@pytest.mark.parametrize("columns", [80, 200])
def test_comparison_fits_one_screen(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    compared = compare(read_compared(PAGES[1]), read_compared(PAGES[2]))
    stream = io.StringIO()
    print_comparison(compared, stream)
    lines = stream.getvalue().splitlines()
    assert len(lines) <= 60
    assert max(len(line.rstrip()) for line in lines) <= min(columns, 100)
    assert lines[-1].endswith(" (other metrics and facts): --all")


def test_differing_matrix_cells_share_one_line() -> None:
    cells = [f"latency_matrix.0.{number}.latency_ns" for number in range(16)]
    first = [titled(100, name, f"Latency, node 0 to node {n}") for n, name in enumerate(cells)]
    second = [titled(110 + n, name, f"Latency, node 0 to node {n}") for n, name in enumerate(cells)]
    figures = tuple(compare_metrics(first, second))
    stream = io.StringIO()
    compared = ComparedRuns(first="one", second="other", context=(), facts=(), figures=figures)
    print_comparison(compared, stream, everything=True)
    text = " ".join(stream.getvalue().split())
    assert "1.10x to 1.25x" in text
    assert "(16 metrics)" in text.replace("metrics )", "metrics)")


def test_a_file_is_written_and_named(tmp_path: Path) -> None:
    target = tmp_path / "before-after.html"
    sides = [str(PAGES[1]), str(PAGES[2])]
    done = CliRunner().invoke(compare_command, [*sides, "--html", "-o", str(target)])
    assert (done.exit_code, done.output) == (0, f"{target}\n")
    assert "t7 / t7-sut2, imported" in target.read_text(encoding="utf-8")
    refused = CliRunner().invoke(compare_command, [*sides, "-o", str(target)])
    assert refused.exit_code == 2
    assert "--output needs" in refused.output


def titled(value: float, name: str, title: str) -> DocumentMetric:
    made = figure(value, (value * 0.999, value * 1.001), name=name)
    return made.model_copy(update={"metric": made.metric.model_copy(update={"title": title})})
