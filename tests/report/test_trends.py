# SPDX-License-Identifier: Apache-2.0
"""Pages of a lab and its testbeds: states, map, failures, changes and metrics over the nights."""

import csv
import gzip
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from calibration.judge.answer import Answer, answers, urgency
from calibration.judge.drift import DriftChange
from calibration.judge.judged import JudgedNights, describe, findings
from calibration.judge.run import judge_run
from calibration.judge.strip import NIGHTS as NIGHTS_SHOWN
from calibration.judge.tolerances import OwnTolerance, Tolerances
from calibration.report import site
from calibration.report.blocks import Marks, plain
from calibration.report.lab import SIGNS, STATES, Cell, Lab, column_of
from calibration.report.site import build_site
from calibration.report.spark import SPARK_PX, spark
from calibration.report.trends import MAX_CHARTS, MAX_DAYS, render_testbed
from tests.harmless import check_figure
from tests.report.made_nights import GAP, IDLE, LAST, NIGHTS, SHIFT, TESTBED, made_nights, run_id
from tests.report.report_documents import guide, run_document, store
from tests.report.test_hostile_page import TEXTS


def link(_testbed: str, sut: str) -> str | None:
    return f"{sut}/index.html" if sut != "t3-sut9" else None


def answers_on(nights: JudgedNights) -> list[Answer]:
    return list(answers(nights).values())


def lab_of(nights: JudgedNights) -> Lab:
    return Lab(nights, answers_on(nights))


def rendered(nights: JudgedNights) -> tuple[dict[str, str], dict[str, bytes]]:
    found = [answer for answer in answers_on(nights) if answer.testbed == TESTBED]
    pages, files = render_testbed(nights, TESTBED, found, link)
    return {name: body for name, (_, body, _) in pages.items()}, files


def cells(lab: Lab, sut: str) -> dict[str, Cell]:
    return {cell.column.code: cell for cell in next(row for row in lab.rows if row.answer.sut == sut).cells}


@pytest.fixture(scope="module")
def nights() -> JudgedNights:
    return made_nights()


@pytest.fixture(scope="module")
def lab(nights: JudgedNights) -> Lab:
    return lab_of(nights)


@pytest.fixture(scope="module")
def made(nights: JudgedNights) -> tuple[dict[str, str], dict[str, bytes]]:
    return rendered(nights)


# Tonight


def test_answers_are_ordered_by_urgency(nights: JudgedNights) -> None:
    assert [(answer.sut, answer.state) for answer in sorted(answers_on(nights), key=urgency)] == [
        ("t3-sut2", "fails"),
        ("t3-sut4", "fails"),
        ("t4-sut1", "not_measured"),
        ("t3-sut5", "no_baseline"),
        ("t3-sut1", "as_accepted"),
        ("t3-sut3", "as_accepted"),
        ("t3-sut9", "gone"),
    ]


def test_a_failure_is_described_by_its_worst_metric(nights: JudgedNights) -> None:
    text = {finding.sut: describe(nights, finding.verdicts[0]) for finding in reversed(findings(nights))}
    assert text["t3-sut2"] == "Idle latency +8.0 % (+7.0 % to +9.0 %), worse"
    assert text["t3-sut4"] == "Idle latency flips between two levels, 90 to 95.4 ns"
    assert text["t4-sut1"].startswith("no run this night")


def test_a_level_that_is_back_shows_for_how_long_it_was_off(nights: JudgedNights) -> None:
    row = nights.rows[TESTBED, "t3-sut2", IDLE]
    (change,) = nights.analyses[row].changes
    back = change._replace(night=SHIFT + 5, before=change.after, after=change.before)
    analyses = list(nights.analyses)
    analyses[row] = replace(analyses[row], changes=(change, back))
    pages = rendered(replace(nights, analyses=analyses))[0]
    assert any(f"{NIGHTS[SHIFT + 5]}: back after 5 nights of +8 %" in page for page in pages.values())


def test_the_change_of_a_failure_is_of_its_kind_and_night(nights: JudgedNights) -> None:
    row = nights.rows[TESTBED, "t3-sut2", IDLE]
    (change,) = nights.analyses[row].changes
    steadier = DriftChange("spread", SHIFT, 0.002, 0.001, -0.5, (-0.6, -0.4))
    back = change._replace(night=SHIFT + 5, before=change.after, after=change.after * 0.99, size=-0.01)
    analyses = list(nights.analyses)
    analyses[row] = replace(analyses[row], changes=(change._replace(night=SHIFT - 5, size=0.5), change, steadier, back))
    more = replace(nights, analyses=analyses)
    verdict = next(item for item in nights.verdicts if item.sut == "t3-sut2" and item.check == "drift")
    assert more.change(verdict) == change
    assert more.change(replace(verdict, check="spread")) == steadier
    assert more.change(replace(verdict, since=NIGHTS[SHIFT + 1])) is None


def test_failures_of_most_metrics_come_first(nights: JudgedNights) -> None:
    verdict = next(
        verdict for verdict in nights.verdicts if verdict.sut == "t3-sut4" and verdict.check == "homogeneity"
    )
    more = [replace(verdict, metric=GAP.format(cpu)) for cpu in (4, 5)]
    changed = replace(nights, verdicts=[*nights.verdicts, *more])
    assert [len(finding.metrics) for finding in findings(changed)] == [1, 3, 1, 1]


def test_a_failed_run_with_values_is_not_missing(nights: JudgedNights) -> None:
    missing = replace(nights.verdicts[-1], testbed=TESTBED, sut="t3-sut1", run_id=run_id(LAST))
    found = answers(replace(nights, verdicts=[*nights.verdicts, missing]))
    assert found[TESTBED, "t3-sut1"].state == "faulty"


# The lab


def test_the_first_sentence_counts_suts_by_state(lab: Lab) -> None:
    counted = "2 failed, 1 not measured, 1 without a baseline, 2 as accepted"
    assert (lab.sentence, lab.look) == (f"Night of {LAST}, 6 SUTs: {counted}.", "bad")


def test_urgent_answers_come_first_and_have_a_card(lab: Lab, made: tuple[dict[str, str], dict[str, bytes]]) -> None:
    assert [[sut for _, sut in members] for members, _ in lab.urgent] == [["t3-sut2"], ["t3-sut4"], ["t4-sut1"]]
    (first, _, _) = (answer for _, answer in lab.urgent)
    assert first.machine == f"fails since {NIGHTS[SHIFT]}: Idle latency +8.0 % (+7.0 % to +9.0 %), worse"
    text = made[0]["index.html"]
    assert f"<p>{first.machine}</p>" in text
    assert "<strong>Changed:</strong> BIOS Example 1.2 -&gt; Example 1.3; none of 4 other SUTs of example-lab" in text
    assert "<strong>May we test?</strong> no</p>" in text
    assert text.count('class="lab-card') == 2
    assert 'Without a baseline: <a class="reference" href="t3-sut5/index.html">example-lab/t3-sut5</a>.' in text


def test_each_sut_has_its_last_nights_as_signs_and_in_words(
    lab: Lab, made: tuple[dict[str, str], dict[str, bytes]]
) -> None:
    (testbed, strips), (other, _) = lab.strips
    assert (testbed, other) == (TESTBED, "other-lab")
    shown = {plain((who,)): marks for who, _, marks in strips.items if isinstance(marks, Marks)}
    assert list(shown) == [f"t3-sut{number}" for number in range(1, 6)]
    assert all(len(strip.marks) == NIGHTS_SHOWN for strip in shown.values())
    (renewed,) = (mark for mark in shown["t3-sut2"].marks if mark.kind.endswith(" renewed"))
    assert renewed.meaning == f"{NIGHTS[SHIFT]}: fails, configuration changed"
    assert shown["t3-sut2"].marks[-1].kind == "night fails"
    words = {sut: strip.text for sut, strip in shown.items()}
    assert words["t3-sut1"] == "as accepted on 14"
    assert words["t3-sut2"] == f"as accepted on {14 - (40 - SHIFT)}, fails on {40 - SHIFT}"
    assert words["t3-sut5"] == "unknown: no baseline on 14"
    text = made[0]["index.html"]
    assert f'aria-label="{words["t3-sut2"]}"' in text
    assert f'title="{NIGHTS[SHIFT]}: fails, configuration changed">{STATES["fails"]}</i>' in text
    assert "No longer measured: example-lab/t3-sut9" in text


def test_every_metric_has_one_family(lab: Lab) -> None:
    assert {column_of(series.metric).code for series in lab.nights.history.series} == {"lat", "gap", "read"}
    assert column_of("latency_matrix.1.1.latency_ns").code == "lat"
    assert column_of("latency_matrix.1.0.latency_ns").code == "rem"
    assert column_of("latency_matrix.1.0.latency_furlongs").family == "undeclared"
    assert {cell.step for cell in cells(lab, "t3-sut1").values()} == {"same", "absent"}


def test_cells_show_failures_missing_waivers_and_baselines(lab: Lab) -> None:
    assert cells(lab, "t3-sut2")["lat"].step == "worse"
    assert "Idle latency +8.0 %" in cells(lab, "t3-sut2")["lat"].text
    assert cells(lab, "t3-sut4")["gap"].step == "worse"
    assert {cells(lab, "t4-sut1")[code].step for code in ("lat", "gap", "read")} == {"missing"}
    assert cells(lab, "t3-sut3")["read"].step == "waived"
    assert cells(lab, "t3-sut5")["lat"].step == "none"


def test_a_limit_on_what_a_run_lacks_is_not_counted_as_measured(nights: JudgedNights) -> None:
    limit = next(verdict for verdict in nights.verdicts if verdict.check == "limits")
    lacking = replace(limit, testbed="other-lab", sut="t4-sut1", value=None, outcome="fail")
    found = cells(Lab(replace(nights, verdicts=[*nights.verdicts, lacking]), answers_on(nights)), "t4-sut1")
    assert {found[code].step for code in ("lat", "gap", "read")} == {"missing"}


@pytest.mark.parametrize(
    ("value", "outcome", "step"),
    [(90.5, "pass", "same"), (99.0, "fail", "worse2"), (93.0, "fail", "worse"), (86.0, "noted", "better"),
     (80.0, "noted", "better2")],
)  # fmt: skip
def test_a_cell_s_step_is_the_deviation_in_tolerances(
    nights: JudgedNights, value: float, outcome: str, step: str
) -> None:
    changed = [
        replace(verdict, value=value, outcome=outcome)
        if (verdict.sut, verdict.metric, verdict.check) == ("t3-sut1", IDLE, "limits")
        else verdict
        for verdict in nights.verdicts
    ]
    cell = cells(Lab(replace(nights, verdicts=changed), answers_on(nights)), "t3-sut1")["lat"]
    assert cell.step == step
    assert cell.deviation == pytest.approx((value / 90 - 1) / 0.03, abs=0.01)


def test_a_wider_tolerance_makes_the_same_deviation_smaller(nights: JudgedNights) -> None:
    wide = Tolerances([OwnTolerance(metrics="idle_latency.*", fraction=0.3, reason="it varies")])
    lab = Lab(replace(nights, tolerances=wide), answers_on(nights))
    assert 0.2 < (cells(lab, "t3-sut2")["lat"].deviation or 0) < 0.3


def test_a_value_far_from_an_upper_limit_is_not_better(nights: JudgedNights) -> None:
    changed = [
        replace(verdict, bound=(None, 26000.0), value=21900.0)
        if (verdict.sut, verdict.metric, verdict.check) == ("t3-sut1", GAP.format(2), "limits")
        else verdict
        for verdict in nights.verdicts
    ]
    lab = Lab(replace(nights, verdicts=changed), answers_on(nights))
    assert cells(lab, "t3-sut1")["gap"].step == "same"


def test_the_map_has_a_row_per_sut_by_name(lab: Lab) -> None:
    assert [row.answer.sut for row in lab.rows] == [*(f"t3-sut{number}" for number in range(1, 6)), "t4-sut1"]


def test_a_failure_of_many_suts_is_one_card(nights: JudgedNights) -> None:
    verdict = next(verdict for verdict in nights.verdicts if verdict.sut == "t3-sut2" and verdict.check == "drift")
    same = [replace(verdict, sut=sut) for sut in ("t3-sut1", "t3-sut3", "t3-sut5")]
    changed = replace(nights, verdicts=[*nights.verdicts, *same])
    members, answer = lab_of(changed).urgent[0]
    assert [sut for _, sut in members] == ["t3-sut1", "t3-sut2", "t3-sut3", "t3-sut5"]
    assert answer.since == NIGHTS[SHIFT]
    assert answer.changed == "BIOS Example 1.2 -> Example 1.3; 3 of 4 other SUTs of example-lab changed then, too"
    text = rendered(changed)[0]["index.html"]
    assert "t3-sut3</a> and 1 more</p>" in text
    assert text.count('class="lab-card') == 2


def test_facts_that_changed_without_a_failure_are_listed(nights: JudgedNights) -> None:
    history = nights.history
    changed = ("t3-sut1", "t3-sut2", "t3-sut3")
    runs = {
        sut: {
            night: replace(run, facts={**run.facts, "microcode": "0x11"})
            if night == LAST and sut[1] in changed
            else run
            for night, run in those.items()
        }
        for sut, those in history.runs.items()
    }
    moved = replace(nights, history=replace(history, runs=runs))
    suts = [(TESTBED, "t3-sut1"), (TESTBED, "t3-sut3")]
    assert lab_of(moved).facts == [("microcode 0x10 -> 0x11", suts)], "t3-sut2 fails"
    text = rendered(moved)[0]["index.html"]
    assert "2 SUTs: <strong>microcode 0x10 -&gt; 0x11</strong>, no metric affected (" in text
    assert text.count(f'title="{LAST}: as accepted, configuration changed"') == 2


def test_a_night_without_changes_says_so(lab: Lab, made: tuple[dict[str, str], dict[str, bytes]]) -> None:
    assert lab.facts == []
    assert "No configuration changes besides those above." in made[0]["index.html"]


def test_nights_without_a_run_are_dated(made: tuple[dict[str, str], dict[str, bytes]]) -> None:
    rows = re.findall(
        r"<tr><td><p>(t3-sut\d)</p></td><td><p>([^<]*)</p></td><td><p>(\d+)</p></td>", made[0]["index.html"]
    )
    first, second, single = NIGHTS[-30], NIGHTS[-29], NIGHTS[-20]
    gone = ("t3-sut9", f"{first} to {LAST}", "30")
    assert rows == [gone, ("t3-sut1", str(single), "1"), ("t3-sut1", f"{first} to {second}", "2")]


# Pages


def test_each_cell_links_to_its_sut(made: tuple[dict[str, str], dict[str, bytes]]) -> None:
    pages = made[0]
    links = re.findall(r'<td><p><a class="cell \w+" href="([^"#]+)#([^"]+)"', pages["index.html"])
    assert len(links) == 15
    for page, anchor in links:
        assert f'id="{anchor}"' in pages[page]
    signs = set(re.findall(r'<a class="cell [^>]*>([^<]+)</a>', pages["index.html"]))
    assert signs <= {sign for sign, _ in SIGNS.values()}
    assert len(signs) > 3


def test_a_sut_without_a_page_is_not_linked(made: tuple[dict[str, str], dict[str, bytes]]) -> None:
    assert 'href="t3-sut2/index.html"' in made[0]["index.html"]
    assert "t3-sut9/index.html" not in "".join(made[0].values())


def test_failures_come_first_and_have_charts(made: tuple[dict[str, str], dict[str, bytes]]) -> None:
    pages, files = made
    text = pages["lat.html"]
    sections = text.split("<h2>")[1:]
    assert [section.partition("<")[0] for section in sections][:3] == ["t3-sut2", "t3-sut4", "t3-sut1"]
    assert [section.count('<svg class="spark fails"') for section in sections] == [1, 1, 0, 0, 0, 0]
    assert [section.count('<span class="flag invalid">fails since ') for section in sections] == [1, 1, 0, 0, 0, 0]
    panels = re.findall(r'"text":"(t3-sut\d): ', pages["index.html"])
    assert panels[0] == "t3-sut2"
    charts = {path for path in files if path.endswith(".svg")}
    assert charts == {f"figures/{name}{end}.svg" for name in ("idle-latency.latency-ns", "jitter.cpu3.gaps.max-ns")
                      for end in ("", "-dark")}  # fmt: skip
    for path in charts:
        assert f'src="{path}"' in pages["index.html"]
        check_figure(files[path].decode())


def test_the_number_of_charts_is_limited(nights: JudgedNights) -> None:
    verdict = next(
        verdict for verdict in nights.verdicts if verdict.sut == "t3-sut4" and verdict.check == "homogeneity"
    )
    more = [
        replace(verdict, metric=GAP.format(cpu), since=NIGHTS[cpu + 2], sut=f"t3-sut{cpu % 5 + 1}") for cpu in range(9)
    ]
    _, files = rendered(replace(nights, verdicts=[*nights.verdicts, *more]))
    assert sum(path.endswith("-dark.svg") for path in files) == MAX_CHARTS


@pytest.mark.parametrize(("bound", "text"), [
    ((196_000.0, 204_000.0), "196 to 204 GB/s"),
    ((196_000.0, None), "at least 196 GB/s"),
    ((None, 204_000.0), "at most 204 GB/s"),
    ((None, None), "-"),
])  # fmt: skip
def test_an_accepted_range_may_be_open(
    nights: JudgedNights, bound: tuple[float | None, float | None], text: str
) -> None:
    verdicts = [
        replace(item, bound=bound) if item.check == "limits" and "bandwidth" in item.metric else item
        for item in nights.verdicts
    ]
    of_peers = [
        replace(item, check="homogeneity", bound=(1.0, 2.0))
        for item in verdicts
        if item.check == "limits" and "bandwidth" in item.metric
    ]
    changed = replace(nights, verdicts=[*of_peers, *verdicts])
    assert f"<td><p>{text}</p></td>" in rendered(changed)[0]["read.html"]
    assert cells(lab_of(changed), "t3-sut1")["read"].step == "same"


def test_a_family_of_many_is_one_line(made: tuple[dict[str, str], dict[str, bytes]]) -> None:
    text = made[0]["gap.html"]
    assert text.count("Longest interruption, CPU … (9 metrics)") == 6
    assert "1 of 9 fail" in text


def test_cells_of_own_and_other_nodes_are_not_one_family(nights: JudgedNights) -> None:
    cell = {GAP.format(cpu): f"latency_matrix.0.{cpu}.latency_ns" for cpu in range(9)}
    series = [item._replace(metric=cell.get(item.metric, item.metric)) for item in nights.history.series]
    pages, _ = rendered(replace(nights, history=replace(nights.history, series=series), verdicts=[]))
    assert "Idle latency, node 0 to node 0" in pages["lat.html"]
    assert "Idle latency, node 0 to node 8" not in pages["lat.html"]
    assert "Idle latency, node 0 to node 8" in pages["rem.html"]


def test_a_testbed_without_failures_says_so(nights: JudgedNights) -> None:
    good = [replace(verdict, outcome="pass") for verdict in nights.verdicts]
    pages, _ = rendered(replace(nights, verdicts=good))
    assert f"Night of {LAST}, 5 SUTs: " in pages["index.html"]
    assert 'class="lab-card' not in pages["index.html"]
    assert '<figure class="chart"' not in pages["index.html"]


def test_nights_beyond_a_year_are_not_drawn(nights: JudgedNights) -> None:
    history = nights.history
    old = tuple(night - timedelta(days=MAX_DAYS if place < 5 else 0) for place, night in enumerate(history.nights))
    moved = dict(zip(history.nights, old, strict=True))
    runs = {
        sut: {moved[night]: replace(run, night=moved[night]) for night, run in those.items()}
        for sut, those in history.runs.items()
    }
    _, files = rendered(replace(nights, history=replace(history, nights=old, runs=runs)))
    assert str(old[0]) not in gzip.decompress(files["figures.csv.gz"]).decode()


@pytest.mark.parametrize("kind", TEXTS)
def test_hostile_facts_and_reasons_stay_text(kind: str) -> None:
    pages, files = rendered(made_nights(TEXTS[kind]))
    for body in pages.values():
        outside = re.sub(r'<script type="application/json" class="chart-spec">[^<]*</script>', "", body)
        assert not re.search(r"<(script|iframe|object|style)|\bon\w+=|javascript:", re.sub(r">[^<]*<", "><", outside))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u2028]", body)
    for path, content in files.items():
        if path.endswith(".svg"):
            check_figure(content.decode())


# Lines


def test_a_line_has_gaps_band_and_last_value() -> None:
    line = spark(np.array([1.0, 1.01, np.nan, 1.02, 1.0]), "ns", (0.99, 1.03), 60)
    assert line is not None
    assert line.text == "1 to 1.02 ns", "the lowest and the highest"
    assert [len(run.split(" ")) for run in line.runs] == [2, 2]
    assert line.band is not None
    assert 0 <= line.band[0] < line.band[0] + line.band[1] <= SPARK_PX[1]
    assert line.last is not None


def test_a_line_needs_three_nights_and_ends_with_the_last() -> None:
    assert spark(np.array([1.0, np.nan, 1.0]), "ns", (None, None), 60) is None
    line = spark(np.array([1.0] * 100), "ns", (None, None), 60)
    assert line is not None
    assert len(line.runs[0].split(" ")) == 60


def test_noise_is_not_drawn_as_structure() -> None:
    line = spark(np.array([100.0, 100.02, 100.0, 100.02]), "ns", (None, None), 60)
    assert line is not None
    heights = [float(point.split(",")[1]) for point in line.runs[0].split(" ")]
    assert max(heights) - min(heights) < 1


# Data


def test_drawn_values_can_be_downloaded(nights: JudgedNights, made: tuple[dict[str, str], dict[str, bytes]]) -> None:
    rows = list(csv.DictReader(gzip.decompress(made[1]["figures.csv.gz"]).decode().splitlines()))
    own = [row for row, series in enumerate(nights.history.series) if series.testbed == TESTBED]
    assert len(rows) == int(np.isfinite(nights.history.values[own]).sum())
    shifted = [row for row in rows if (row["sut"], row["metric"]) == ("t3-sut2", IDLE)]
    assert float(shifted[SHIFT]["value"]) == pytest.approx(
        nights.history.values[nights.rows[TESTBED, "t3-sut2", IDLE], SHIFT], rel=1e-4
    )
    assert shifted[SHIFT]["night"] == str(NIGHTS[SHIFT])


# The site


def test_the_site_of_stored_documents_has_tonight_and_trends(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for day in range(1, 3):
        document = run_document(names=("idle_latency",), id=f"202601{day:02}T030405Z-0a1b")
        store(judge_run(document), results)
    output = build_site(results, guide(tmp_path / "docs"), tmp_path / "html").parent / "calibration"
    index = (output / "index.html").read_text(encoding="utf-8")
    assert "Night of 2026-01-02, 1 SUT: 1 without a baseline." in index
    page = (output / "example-lab" / "t3-sut2" / "index.html").read_text(encoding="utf-8")
    assert '<a href="../index.html">trends</a>' in page
    testbed = (output / "example-lab" / "index.html").read_text(encoding="utf-8")
    assert 'href="lat.html"' in testbed
    assert "no baseline" in (output / "example-lab" / "lat.html").read_text(encoding="utf-8")
    assert (output / "example-lab" / "figures.csv.gz").is_file()
    tonight = json.loads((output / "tonight.json").read_text(encoding="utf-8"))
    assert tonight["night"] == "2026-01-02"
    assert {verdict["outcome"] for verdict in tonight["verdicts"]} >= {"no_reference"}


def test_a_site_of_one_run_has_no_nights(tmp_path: Path) -> None:
    one = store(run_document(names=("idle_latency",)), tmp_path / "results")
    output = build_site(one, guide(tmp_path / "docs"), tmp_path / "html").parent
    assert "tonight" not in (output / "calibration" / "index.html").read_text(encoding="utf-8").lower()


def test_the_newest_runs_and_that_of_a_failure_have_documents(nights: JudgedNights, tmp_path: Path) -> None:
    runs = [tmp_path / expired.directory for those in nights.history.runs.values() for expired in those.values()]
    found = answers_on(nights)
    those = {str(document.relative_to(tmp_path)) for document in site._with_documents(runs, tmp_path, nights, found)}
    own = {item for item in those if "/t3-sut2/" in item}
    newest = {f"{TESTBED}/t3-sut2/{run_id(night)}" for night in NIGHTS[-site.MAX_RUNS :]}
    assert own == {*newest, f"{TESTBED}/t3-sut2/{run_id(NIGHTS[SHIFT])}"}
    imported = tmp_path / TESTBED / "t3-sut2" / "imported-0123456789ab"
    assert imported in site._with_documents([*runs, imported], tmp_path, nights, found)
